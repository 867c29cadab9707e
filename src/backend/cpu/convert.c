/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - converts the layout of scales, in pieces of a band of 128 rows.  Whole
 * tiles are copied directly; edges and padding go through a stage of 16 rows.
 */
#include <string.h>

#include "core/error.h"
#include "cpu.h"
#include "format/view.h"

/* Two pieces of 64 KiB, this one and the next, fit into a second-level cache. */
#define PIECE_GROUPS 512
/* Waking a thread costs more than converting fewer scales than this. */
#define TASK_SCALES 2048
/*
 * Scales of at least this size are streamed past the caches.  They belong to 16 MiB of
 * 16-bit floats, too many to be found in the caches by the next reader.
 */
#define STREAM_BYTES (512 << 10)
/* Rows 4 i .. 4 i + 3 of each part: a cache line of every tile. */
#define STAGE_ROWS   16
#define STAGE_GROUPS 256

struct convert_job {
	const struct cpu_quantize_ops *ops;
	struct nib_fp4 from, to;
	bool stream;
	int tasks;
	int64_t groups, bands;
	int64_t piece_groups, pieces_a_band, pieces;
};

struct piece {
	int64_t batch, row, group, groups;
	int rows;
};

static struct piece piece_at(const struct convert_job *job, int64_t index)
{
	const int64_t line = index / job->pieces_a_band;
	struct piece piece;
	int64_t left;

	piece.batch = line / job->bands;
	piece.row = line % job->bands * NIB_SCALE_TILE_ROWS;
	left = job->from.rows - piece.row;
	piece.rows = left < NIB_SCALE_TILE_ROWS ? (int)left : NIB_SCALE_TILE_ROWS;
	piece.group = index % job->pieces_a_band * job->piece_groups;
	left = job->groups - piece.group;
	piece.groups = left < job->piece_groups ? left : job->piece_groups;
	return piece;
}

static uint8_t *piece_scales(const struct nib_fp4 *v, const struct piece *piece)
{
	return nib_fp4_scale(v, piece->batch, piece->row, piece->group);
}

static struct cpu_band band_of(const struct nib_fp4 *v, const struct piece *piece)
{
	const int64_t row_bytes = nib_fp4_scale_row_stride_bytes(v);

	return (struct cpu_band){piece_scales(v, piece), 32 * row_bytes, row_bytes, 32};
}

/* Rows first .. first + 3 of each part, at most STAGE_GROUPS wide. */
static void read_stage(const struct convert_job *job, const struct piece *piece,
		       int first, uint8_t stage[STAGE_ROWS][STAGE_GROUPS])
{
	const struct cpu_band band = {stage[0], 4 * STAGE_GROUPS, STAGE_GROUPS, 4};
	const int64_t row_bytes = nib_fp4_scale_row_stride_bytes(&job->from);
	const uint8_t *from = piece_scales(&job->from, piece);
	const bool is_tiled = job->from.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4;
	const int64_t n = piece->groups, padded = (n + 3) / 4 * 4;

	if (is_tiled)
		job->ops->untile(from + first * 16, padded, NULL, false, &band);
	for (int i = 0; i < STAGE_ROWS; i++) {
		const int row = i / 4 * 32 + first + i % 4;

		if (row >= piece->rows) {
			memset(stage[i], 0, (size_t)padded);
			continue;
		}
		if (!is_tiled)
			memcpy(stage[i], from + row * row_bytes, (size_t)n);
		memset(stage[i] + n, 0, (size_t)(padded - n));
	}
}

static void write_stage(const struct convert_job *job, const struct piece *piece,
			int first, uint8_t stage[STAGE_ROWS][STAGE_GROUPS])
{
	const struct cpu_band band = {stage[0], 4 * STAGE_GROUPS, STAGE_GROUPS, 4};
	const int64_t row_bytes = nib_fp4_scale_row_stride_bytes(&job->to);
	uint8_t *to = piece_scales(&job->to, piece);

	if (job->to.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4) {
		job->ops->tile(&band, (piece->groups + 3) / 4 * 4, NULL, false,
			       to + first * 16);
		return;
	}
	for (int i = 0; i < STAGE_ROWS; i++) {
		const int row = i / 4 * 32 + first + i % 4;

		if (row < piece->rows)
			memcpy(to + row * row_bytes, stage[i], (size_t)piece->groups);
	}
}

static void convert_staged(const struct convert_job *job, struct piece piece)
{
	const int64_t end = piece.group + piece.groups;
	uint8_t stage[STAGE_ROWS][STAGE_GROUPS];

	for (; piece.group < end; piece.group += STAGE_GROUPS) {
		const int64_t left = end - piece.group;

		piece.groups = left < STAGE_GROUPS ? left : STAGE_GROUPS;
		for (int first = 0; first < 32; first += 4) {
			read_stage(job, &piece, first, stage);
			write_stage(job, &piece, first, stage);
		}
	}
}

/* next: the task's next piece, or this one if it is the last. */
static void convert_whole(const struct convert_job *job, const struct piece *piece,
			  const struct piece *next)
{
	const bool is_same_shape =
	    next->rows == piece->rows && next->groups >= piece->groups;
	const uint8_t *then = is_same_shape ? piece_scales(&job->from, next) : NULL;
	struct cpu_band band;

	if (job->to.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4) {
		band = band_of(&job->from, piece);
		job->ops->tile(&band, piece->groups, then, job->stream,
			       piece_scales(&job->to, piece));
	} else {
		band = band_of(&job->to, piece);
		job->ops->untile(piece_scales(&job->from, piece), piece->groups, then,
				 job->stream, &band);
	}
}

static void convert_piece(const struct convert_job *job, const struct piece *piece,
			  const struct piece *next)
{
	struct piece whole = *piece, end = *piece;

	whole.groups = 0;
	if (piece->rows == NIB_SCALE_TILE_ROWS)
		whole.groups = piece->groups / 4 * 4;
	end.group += whole.groups;
	end.groups -= whole.groups;
	if (whole.groups > 0)
		convert_whole(job, &whole, next);
	if (end.groups > 0)
		convert_staged(job, end);
}

static void copy_rows(const struct convert_job *job, const struct piece *piece)
{
	const int64_t from_bytes = nib_fp4_scale_row_stride_bytes(&job->from);
	const int64_t to_bytes = nib_fp4_scale_row_stride_bytes(&job->to);
	const uint8_t *from = piece_scales(&job->from, piece);
	uint8_t *to = piece_scales(&job->to, piece);

	for (int r = 0; r < piece->rows; r++)
		memcpy(to + r * to_bytes, from + r * from_bytes, (size_t)piece->groups);
}

static void convert_task(void *arg, int i)
{
	const struct convert_job *job = arg;
	const int64_t end = job->pieces * (i + 1) / job->tasks;

	for (int64_t at = job->pieces * i / job->tasks; at < end; at++) {
		const struct piece piece = piece_at(job, at);
		const struct piece next = piece_at(job, at + (at + 1 < end));

		if (job->from.scale_layout != job->to.scale_layout)
			convert_piece(job, &piece, &next);
		else if (job->to.scale_layout == NIB_SCALE_LAYOUT_LINEAR)
			copy_rows(job, &piece);
		else /* Row by row, without the padding. */
			convert_staged(job, piece);
	}
	if (job->stream)
		job->ops->drain();
}

enum nib_status cpu_convert_scales(struct nib_device *device,
				   const struct nib_fp4 *from, const struct nib_fp4 *to,
				   void *stream, struct nib_error *err)
{
	const struct cpu_device *cpu = cpu_device(device);
	int64_t batches, scales, worth;
	struct convert_job job;

	(void)stream;
	(void)err;
	/* An empty matrix may have any batch, so that products of the sizes could
	 * overflow. */
	if (from->rows == 0 || from->k == 0)
		return NIB_STATUS_OK;
	memset(&job, 0, sizeof(job));
	job.ops = &cpu->ops.quantize;
	job.from = *from;
	job.to = *to;
	job.groups = nib_fp4_groups(from);
	batches = nib_fp4_batches(from);
	scales = batches * from->rows * job.groups;
	job.stream = scales >= STREAM_BYTES;
	job.bands = (from->rows + NIB_SCALE_TILE_ROWS - 1) / NIB_SCALE_TILE_ROWS;
	/* Pieces of about the same width, in whole cache lines. */
	job.pieces_a_band = (job.groups + PIECE_GROUPS - 1) / PIECE_GROUPS;
	job.piece_groups = (job.groups + job.pieces_a_band - 1) / job.pieces_a_band;
	job.piece_groups = (job.piece_groups + 63) / 64 * 64;
	job.pieces_a_band = (job.groups + job.piece_groups - 1) / job.piece_groups;
	job.pieces = batches * job.bands * job.pieces_a_band;
	worth = scales / TASK_SCALES + 1;
	job.tasks = worth < cpu->threads ? (int)worth : cpu->threads;
	if (job.pieces > 0)
		cpu_parallel(cpu, job.tasks, convert_task, &job);
	return NIB_STATUS_OK;
}
