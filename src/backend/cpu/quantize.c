/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.c - quantise and amax: cuts views into contiguous runs, spreads them
 * over threads, reports the first value that cannot be quantised.
 *
 * A run is at most RUN_BLOCKS blocks of one row.  Rows that follow each other without
 * gaps count as one row.  Tasks share only a minimum and a maximum, so their order does
 * not change results.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "core/error.h"
#include "cpu.h"
#include "format/half.h"
#include "format/quantize_ref.h"
#include "format/view.h"
#include "quantize_tables.h"

/* The most blocks of a run: enough for the hardware prefetcher to detect a stream. */
#define RUN_BLOCKS 512
/* Rows whose scales are gathered before they are written to a tile. */
#define STAGE_ROWS 4
/* Small enough that this piece, the next one and the outputs stay in L1. */
#define PIECE_BYTES 4096
/* Waking a thread costs more than quantising fewer elements than this. */
#define TASK_ELEMS 32768

struct quantize_job {
	const struct cpu_device *device;
	const struct cpu_quantize_ops *ops;
	struct nib_dense x;
	bool saturate;
	int tasks;
	int64_t batch, rows, cols; /* as cut into runs */
	int64_t padded_rows;	   /* rows, with the padding of tiles */
	int64_t runs_a_row, runs;
	int64_t x_row, x_batch; /* elements */
	int64_t infinity;	/* magnitude in x's type */
	/* quantise only */
	struct nib_fp4 q;
	const struct cpu_quantizer *quantizer;
	const float *weights; /* of columns, or NULL */
	/* Index in x, row-major, of the first inf or NaN. */
	_Atomic int64_t first_bad;
	_Atomic uint32_t amax; /* magnitude in x's type */
};

/* A run: elements col .. col + n - 1 of one row. */
struct block_run {
	int64_t batch, row, col, n;
};

static bool is_tiled(const struct quantize_job *job)
{
	return job->q.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4;
}

/*
 * Runs go row by row.  For tiled scales they go down 128 rows first, because the
 * scales of these rows are interleaved and so are written while in the cache.
 */
static struct block_run run_at(const struct quantize_job *job, int64_t index)
{
	const int64_t stripe_rows = is_tiled(job) ? NIB_SCALE_TILE_ROWS : 1;
	const int64_t stripe_runs = job->runs_a_row * stripe_rows;
	const int64_t in_stripe = index % stripe_runs;
	const int64_t line =
	    index / stripe_runs * stripe_rows + in_stripe % stripe_rows;
	struct block_run run;

	run.batch = line / job->padded_rows;
	run.row = line % job->padded_rows;
	run.col = in_stripe / stripe_rows * (RUN_BLOCKS * NIB_NVFP4_BLOCK);
	run.n = job->cols - run.col;
	if (run.n > RUN_BLOCKS * NIB_NVFP4_BLOCK)
		run.n = RUN_BLOCKS * NIB_NVFP4_BLOCK;
	return run;
}

static const uint8_t *run_data(const struct quantize_job *job,
			       const struct block_run *run)
{
	const int64_t index =
	    run->batch * job->x_batch + run->row * job->x_row + run->col;

	return (const uint8_t *)job->x.data +
	       index * (job->x.dtype == NIB_DTYPE_FP32 ? 4 : 2);
}

static void job_init(struct quantize_job *job, struct nib_device *device,
		     const struct nib_dense *x, bool saturate)
{
	memset(job, 0, sizeof(*job));
	job->device = cpu_device(device);
	job->ops = &job->device->ops.quantize;
	job->x = *x;
	job->saturate = saturate;
	/* An empty matrix gets batch 0, so that products of the sizes cannot
	 * overflow. */
	job->batch = x->rows == 0 || x->cols == 0 ? 0 : nib_dense_batches(x);
	job->rows = job->padded_rows = x->rows;
	job->cols = x->cols;
	job->x_row = nib_dense_row_stride_elems(x);
	job->x_batch = nib_dense_batch_stride_elems(x);
	job->infinity = (int64_t)nib_infinity_bits(nib_dtype_format(x->dtype));
	atomic_init(&job->first_bad, INT64_MAX);
	atomic_init(&job->amax, 0);
}

/* Rows that follow each other without gaps become one long row. */
static void join_rows(struct quantize_job *job)
{
	job->cols *= job->rows;
	job->rows = job->padded_rows = job->rows != 0;
}

/* Counts runs and tasks; after this the sizes stay as they are. */
static void job_cut(struct quantize_job *job)
{
	const int64_t run_elems = RUN_BLOCKS * NIB_NVFP4_BLOCK;
	int64_t worth;

	job->runs_a_row = (job->cols + run_elems - 1) / run_elems;
	job->runs = job->batch * job->padded_rows * job->runs_a_row;
	worth = job->batch * job->rows * job->cols / TASK_ELEMS + 1;
	job->tasks = worth < job->device->threads ? (int)worth : job->device->threads;
}

static void keep_min(_Atomic int64_t *least, int64_t value)
{
	int64_t seen = atomic_load(least);

	while (value < seen && !atomic_compare_exchange_weak(least, &seen, value))
		;
}

static void keep_max(_Atomic uint32_t *largest, uint32_t value)
{
	uint32_t seen = atomic_load(largest);

	while (value > seen && !atomic_compare_exchange_weak(largest, &seen, value))
		;
}

static uint32_t magnitude_at(const struct quantize_job *job, const uint8_t *data,
			     int64_t i)
{
	uint32_t wide;
	uint16_t narrow;

	if (job->x.dtype == NIB_DTYPE_FP32) {
		memcpy(&wide, data + 4 * i, sizeof(wide));
		return wide & 0x7FFFFFFF;
	}
	memcpy(&narrow, data + 2 * i, sizeof(narrow));
	return narrow & 0x7FFF;
}

/* Notes the first inf or NaN of a run, which has one. */
static void note_bad(struct quantize_job *job, const struct block_run *run)
{
	const uint8_t *data = run_data(job, run);
	int64_t i = 0;

	while (magnitude_at(job, data, i) < job->infinity)
		i++;
	keep_min(&job->first_bad,
		 (run->batch * job->rows + run->row) * job->cols + run->col + i);
}

static enum nib_status fail_bad(const struct quantize_job *job, struct nib_error *err)
{
	const int64_t index = atomic_load(&job->first_bad);
	const int64_t col = index % job->x.cols;
	const int64_t row = index / job->x.cols % job->x.rows;
	const int64_t batch = index / job->x.cols / job->x.rows;
	const uint32_t bits = nib_dense_get_bits(&job->x, batch, row, col);

	return nib_fail_argument(
	    err, NIB_STATUS_BAD_DATA, "x",
	    "[batch %lld, row %lld, col %lld] = %s: must be finite", (long long)batch,
	    (long long)row, (long long)col,
	    isnan(nib_dtype_to_fp32(bits, job->x.dtype)) ? "nan" : "inf");
}

/* ---- amax --------------------------------------------------------------- */

static uint32_t finite_amax(const struct quantize_job *job, const struct block_run *run)
{
	const uint8_t *data = run_data(job, run);
	uint32_t largest = 0;

	for (int64_t i = 0; i < run->n; i++) {
		const uint32_t magnitude = magnitude_at(job, data, i);

		if (magnitude < job->infinity && magnitude > largest)
			largest = magnitude;
	}
	return largest;
}

static void amax_task(void *arg, int i)
{
	struct quantize_job *job = arg;
	const int64_t end = job->runs * (i + 1) / job->tasks;
	uint32_t largest = 0, magnitude;

	for (int64_t at = job->runs * i / job->tasks; at < end; at++) {
		const struct block_run run = run_at(job, at);

		magnitude = job->ops->amax[job->x.dtype](run_data(job, &run), run.n);
		if (magnitude >= job->infinity && job->saturate) {
			magnitude = finite_amax(job, &run);
		} else if (magnitude >= job->infinity) {
			note_bad(job, &run);
			break;
		}
		largest = magnitude > largest ? magnitude : largest;
	}
	keep_max(&job->amax, largest);
}

enum nib_status cpu_amax(struct nib_device *device, const struct nib_dense *x,
			 bool saturate, void *stream, float *amax,
			 struct nib_error *err)
{
	struct quantize_job job;

	(void)stream;
	job_init(&job, device, x, saturate);
	if (job.x_row == job.cols)
		join_rows(&job);
	job_cut(&job);
	if (job.runs > 0)
		cpu_parallel(job.device, job.tasks, amax_task, &job);
	if (atomic_load(&job.first_bad) != INT64_MAX)
		return fail_bad(&job, err);
	*amax = nib_dtype_to_fp32(atomic_load(&job.amax), x->dtype);
	return NIB_STATUS_OK;
}

/* ---- quantise ----------------------------------------------------------- */

/* The weights of block b of a run, or NULL. */
static const float *weights_at(const struct quantize_job *job,
			       const struct block_run *run, int64_t b)
{
	return job->weights ? job->weights + run->col + b * NIB_NVFP4_BLOCK : NULL;
}

/* Runs with inf or NaN use the reference code. */
static void saturate_run(const struct quantize_job *job, const struct block_run *run,
			 uint8_t *codes, uint8_t *scales)
{
	const uint8_t *data = run_data(job, run);
	const struct cpu_quantizer *z = job->quantizer;
	float block[NIB_NVFP4_BLOCK];

	for (int64_t b = 0; b < run->n / NIB_NVFP4_BLOCK; b++) {
		for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
			uint32_t wide;
			uint16_t narrow;
			const int64_t at = b * NIB_NVFP4_BLOCK + i;

			if (job->x.dtype == NIB_DTYPE_FP32) {
				memcpy(&wide, data + 4 * at, sizeof(wide));
			} else {
				memcpy(&narrow, data + 2 * at, sizeof(narrow));
				wide = narrow;
			}
			block[i] = nib_dtype_to_fp32(wide, job->x.dtype);
		}
		nib_quantize_block_ref(block, z->global, z->zero_scale, z->scales,
				       weights_at(job, run, b), 1, codes + 8 * b,
				       scales + b);
	}
}

/* Quantises a run piece by piece; the last piece prefetches the next run. */
static void quantize_run(struct quantize_job *job, const struct block_run *run,
			 const struct block_run *next, uint8_t *scales)
{
	const int64_t block_bytes = job->x.dtype == NIB_DTYPE_FP32 ? 64 : 32;
	const int64_t piece_blocks = PIECE_BYTES / block_bytes;
	const int64_t blocks = run->n / NIB_NVFP4_BLOCK;
	const uint8_t *data = run_data(job, run), *then;
	uint8_t *codes = nib_fp4_row(&job->q, run->batch, run->row) + run->col / 2;
	const bool is_amax = job->quantizer->scales == NIB_SCALES_AMAX;
	bool finite = true;

	for (int64_t b = 0; b < blocks; b += piece_blocks) {
		int64_t n = piece_blocks;

		then = data + (b + n) * block_bytes;
		if (b + n >= blocks) {
			n = blocks - b;
			then = run_data(job, next->row < job->rows ? next : run);
		}
		finite &=
		    is_amax
			? job->ops->quantize[job->x.dtype](
			      job->quantizer, data + b * block_bytes, job->x.dtype, n,
			      then, codes + 8 * b, scales + b)
			: job->ops->quantize_search(
			      job->quantizer, data + b * block_bytes, job->x.dtype, n,
			      weights_at(job, run, b), codes + 8 * b, scales + b);
	}
	if (finite)
		return;
	if (job->saturate)
		saturate_run(job, run, codes, scales);
	else
		note_bad(job, run);
}

/* Writes 4 scales of each of STAGE_ROWS neighbouring rows to their tile. */
static void put_scales(uint8_t stage[STAGE_ROWS][RUN_BLOCKS], int64_t g, uint8_t *to)
{
	for (int i = 0; i < STAGE_ROWS; i++)
		memcpy(to + 16 * i, stage[i] + g, 4);
}

/* STAGE_ROWS runs from number first on: their scales begin every 16 bytes. */
static void quantize_tiled(struct quantize_job *job, int64_t first, bool is_last)
{
	const struct block_run begin = run_at(job, first);
	const int64_t n = begin.n / NIB_NVFP4_BLOCK;
	uint8_t *to =
	    nib_fp4_scale(&job->q, begin.batch, begin.row, begin.col / NIB_NVFP4_BLOCK);
	uint8_t stage[STAGE_ROWS][RUN_BLOCKS];

	for (int i = 0; i < STAGE_ROWS; i++) {
		const struct block_run run = run_at(job, first + i);
		const bool has_next = !is_last || i + 1 < STAGE_ROWS;
		const struct block_run next = run_at(job, first + i + has_next);

		if (run.row < job->rows) {
			quantize_run(job, &run, &next, stage[i]);
			memset(stage[i] + n, 0, (size_t)(-n & 3));
		} else {
			memset(stage[i], 0, (size_t)((n + 3) / 4 * 4));
		}
	}
	for (int64_t g = 0; g < n; g += 4, to += NIB_SCALE_TILE_BYTES)
		put_scales(stage, g, to);
}

static void quantize_task(void *arg, int i)
{
	struct quantize_job *job = arg;
	const int64_t step = is_tiled(job) ? STAGE_ROWS : 1;
	const int64_t steps = job->runs / step;
	const int64_t end = steps * (i + 1) / job->tasks * step;

	for (int64_t at = steps * i / job->tasks * step; at < end; at += step) {
		const bool is_last = at + step == end;

		/* With tiled scales a later run may hold an earlier element. */
		if (is_tiled(job)) {
			quantize_tiled(job, at, is_last);
		} else {
			const struct block_run run = run_at(job, at);
			const struct block_run next = run_at(job, at + !is_last);

			quantize_run(job, &run, &next,
				     nib_fp4_scale(&job->q, run.batch, run.row,
						   run.col / NIB_NVFP4_BLOCK));
		}
	}
}

/* The one task that makes the tables, under the default floating-point mode. */
struct setup {
	struct cpu_quantizer *quantizer;
	const struct nib_quantize_options *options;
	enum nib_dtype dtype;
	float amax;
};

static void setup_task(void *arg, int i)
{
	const struct setup *setup = arg;
	float global = setup->options->global;

	(void)i;
	if (global == 0)
		global = nib_global_ref(setup->amax, setup->options->scales);
	cpu_quantizer_init(setup->quantizer, setup->dtype, global,
			   setup->options->zero_scale, setup->options->scales);
}

enum nib_status cpu_quantize(struct nib_device *device, const struct nib_dense *x,
			     const struct nib_fp4 *q,
			     const struct nib_quantize_options *options,
			     float *global_used, struct nib_error *err)
{
	const bool saturate = options->saturate != 0;
	struct cpu_quantizer quantizer;
	struct setup setup = {&quantizer, options, x->dtype, 0};
	struct quantize_job job;
	enum nib_status status;

	/* Compares bits, because a subnormal is not 0 even if the caller's mode
	 * flushes it. */
	if (nib_fp32_bits(options->global) == 0) {
		status = cpu_amax(device, x, saturate, NULL, &setup.amax, err);
		if (status)
			return status;
	}
	job_init(&job, device, x, saturate);
	cpu_parallel(job.device, 1, setup_task, &setup);
	job.q = *q;
	job.quantizer = &quantizer;
	job.weights = options->column_weights;
	if (q->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4) {
		job.padded_rows = (job.rows + NIB_SCALE_TILE_ROWS - 1) /
				  NIB_SCALE_TILE_ROWS * NIB_SCALE_TILE_ROWS;
	} else if (!job.weights && job.x_row == q->k &&
		   nib_fp4_row_stride_bytes(q) == q->k / 2 &&
		   nib_fp4_scale_row_stride_bytes(q) == q->k / NIB_NVFP4_BLOCK) {
		join_rows(&job);
	}
	job_cut(&job);
	if (job.runs > 0)
		cpu_parallel(job.device, job.tasks, quantize_task, &job);
	if (atomic_load(&job.first_bad) != INT64_MAX)
		return fail_bad(&job, err);
	if (global_used)
		*global_used = quantizer.global;
	return NIB_STATUS_OK;
}
