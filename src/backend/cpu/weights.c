/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - packed weights: panels (layout.h) on huge pages, and the codes that
 * panels leave out, so that the caller's weights can be written back.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "cpu.h"
#include "format/view.h"
#include "multiply.h"
#include "schedule.h"

struct pack_job {
	const struct cpu_device *device;
	struct cpu_packed *packed;
	const struct nib_fp4 *b;
	int tasks;
	int64_t *dropped; /* tasks: how many blocks of each */
};

static void pack_some(void *arg, int task)
{
	const struct pack_job *job = arg;
	struct cpu_packed *packed = job->packed;
	const int64_t begin = cpu_first_panel(packed->all_panels, task, job->tasks);
	const int64_t end = cpu_first_panel(packed->all_panels, task + 1, job->tasks);

	for (int64_t i = begin; i < end; i++) {
		struct cpu_rows rows = cpu_rows_of(job->b, i / packed->panels);

		packed->nan_columns[i] = job->device->ops.gemm.pack_panel(
		    &rows, i % packed->panels * PANEL_COLS, 0, rows.blocks,
		    packed->data + i * packed->panel_stride_bytes);
	}
}

/* ---- blocks whose scale is 0 ----------------------------------------------- */

/* The first block of a row, from `block` on, whose scale is 0. */
static int64_t next_zero(const struct nib_fp4 *b, int64_t batch, int64_t row,
			 int64_t block)
{
	const int64_t blocks = b->k / NIB_NVFP4_BLOCK;
	const uint8_t *scales;

	if (b->scale_layout == NIB_SCALE_LAYOUT_LINEAR) {
		const uint8_t *found;

		scales = nib_fp4_scale(b, batch, row, 0);
		found = block < blocks
			    ? memchr(scales + block, 0, (size_t)(blocks - block))
			    : NULL;
		return found ? found - scales : blocks;
	}
	/* Four blocks of a row are adjacent. */
	for (; block < blocks; block++) {
		scales = nib_fp4_scale(b, batch, row, block / 4 * 4);
		for (; block < blocks; block++) {
			if (scales[block % 4] == 0)
				return block;
			if (block % 4 == 3)
				break;
		}
	}
	return blocks;
}

/* Stores the dropped codes of a row from `to` on, unless it is NULL, and returns
 * how many blocks they are. */
static int64_t drop_row(const struct nib_fp4 *b, int64_t batch, int64_t row,
			struct cpu_dropped *to)
{
	static const uint8_t zeros[NIB_NVFP4_BLOCK / 2];
	const uint8_t *codes = nib_fp4_row(b, batch, row);
	int64_t count = 0, k = next_zero(b, batch, row, 0);

	for (; k < b->k / NIB_NVFP4_BLOCK; k = next_zero(b, batch, row, k + 1)) {
		const uint8_t *block = codes + k * (NIB_NVFP4_BLOCK / 2);

		if (memcmp(block, zeros, sizeof(zeros)) == 0)
			continue;
		if (to) {
			to[count] = (struct cpu_dropped){batch, row, k, {0}};
			memcpy(to[count].codes, block, sizeof(zeros));
		}
		count++;
	}
	return count;
}

/* The rows of a task, the same ones in both passes: counts them, or stores. */
static void drop_some(void *arg, int task)
{
	const struct pack_job *job = arg;
	struct cpu_packed *packed = job->packed;
	const int64_t rows = job->b->rows, all = rows * packed->base.batch;
	struct cpu_dropped *to = packed->dropped;
	int64_t count = 0;

	for (int i = 0; to && i < task; i++)
		to += job->dropped[i];
	for (int64_t i = all * task / job->tasks; i < all * (task + 1) / job->tasks;
	     i++)
		count += drop_row(job->b, i / rows, i % rows, to ? to + count : NULL);
	if (!to)
		job->dropped[task] = count;
}

/* Keeps what the panels of b leave out. */
static enum nib_status keep_dropped(struct pack_job *job, struct nib_error *err)
{
	struct cpu_packed *packed = job->packed;
	int64_t count = 0;

	free(packed->dropped);
	packed->dropped = NULL;
	packed->n_dropped = 0;
	job->dropped = calloc((size_t)job->tasks, sizeof(*job->dropped));
	if (!job->dropped)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for packed weights");
	cpu_parallel(job->device, job->tasks, drop_some, job);
	for (int i = 0; i < job->tasks; i++)
		count += job->dropped[i];
	if (count > 0) {
		packed->dropped = calloc((size_t)count, sizeof(*packed->dropped));
		if (packed->dropped)
			cpu_parallel(job->device, job->tasks, drop_some, job);
	}
	free(job->dropped);
	if (count > 0 && !packed->dropped)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for %" PRId64
				" blocks of packed weights whose scale is 0",
				count);
	packed->n_dropped = count;
	packed->base.bytes = (size_t)(packed->all_panels * packed->panel_stride_bytes) +
			     (size_t)count * sizeof(*packed->dropped);
	return NIB_STATUS_OK;
}

/* ---- packing --------------------------------------------------------------- */

/* 2^36 panels with data would be 2^43 bytes. */
#define MAX_PANELS ((int64_t)1 << 36)

/*
 * Allocates memory for the panels, if there are any.  Kernels prefetch past the last
 * one, which is allowed: a prefetch of an unmapped address does nothing.
 */
static enum nib_status allocate(struct cpu_packed *packed, struct nib_error *err)
{
	const size_t panels = (size_t)packed->all_panels;
	const size_t bytes = panels * (size_t)packed->panel_stride_bytes;

	packed->nan_columns = calloc(panels, sizeof(*packed->nan_columns));
	packed->data = cpu_lines(bytes);
	if (!packed->nan_columns || !packed->data)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for packed weights (%zu bytes)", bytes);
	return NIB_STATUS_OK;
}

/* The CPU backend reads codes in another order, so they are always copied. */
enum nib_status cpu_pack(struct nib_device *device, const struct nib_fp4 *b,
			 bool shares_codes, void *stream, struct nib_packed **out,
			 struct nib_error *err)
{
	struct cpu_packed *packed = calloc(1, sizeof(*packed));
	enum nib_status status = NIB_STATUS_OK;

	(void)shares_codes;
	(void)stream;
	if (!packed)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for packed weights");
	packed->base.device = device;
	packed->base.rows = b->rows;
	packed->base.k = b->k;
	packed->base.batch = b->batch;
	packed->base.batch_stride_bytes = b->rows * (b->k / 2);
	packed->panels = (b->rows + PANEL_COLS - 1) / PANEL_COLS;
	packed->panel_stride_bytes = cpu_panel_bytes(b->k / NIB_NVFP4_BLOCK);
	/* Weights without values have no panels, for any rows and batch. */
	if (b->k > 0 && b->rows > 0 &&
	    (__builtin_mul_overflow(b->batch, packed->panels, &packed->all_panels) ||
	     packed->all_panels > MAX_PANELS))
		status = nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				  "no memory for packed weights of %" PRId64
				  " rows, batch %" PRId64,
				  b->rows, b->batch);
	else if (packed->all_panels > 0)
		status = allocate(packed, err);
	if (!status)
		status = cpu_packed_update(&packed->base, b, NULL, err);
	if (status) {
		cpu_packed_free(&packed->base);
		return status;
	}
	*out = &packed->base;
	return NIB_STATUS_OK;
}

enum nib_status cpu_packed_update(struct nib_packed *base, const struct nib_fp4 *b,
				  void *stream, struct nib_error *err)
{
	const struct cpu_device *cpu = cpu_device(base->device);
	struct pack_job job = {cpu, (struct cpu_packed *)base, b, cpu->threads, NULL};

	(void)stream;
	if (job.packed->all_panels == 0)
		return NIB_STATUS_OK;
	cpu_parallel(cpu, job.tasks, pack_some, &job);
	return keep_dropped(&job, err);
}

/* ---- unpacking ------------------------------------------------------------- */

struct unpack_job {
	const struct cpu_packed *packed;
	const struct nib_fp4 *to;
	int tasks;
};

/* Writes column n of a panel to a row. */
static void unpack_column(const uint8_t *panel, int64_t n, const struct nib_fp4 *to,
			  int64_t batch, int64_t row)
{
	const int64_t blocks = to->k / NIB_NVFP4_BLOCK;
	uint8_t *codes = nib_fp4_row(to, batch, row);
	uint8_t *scales = nib_fp4_scales(to, batch);

	for (int64_t k = 0; k < blocks; k++, codes += NIB_NVFP4_BLOCK / 2) {
		const uint8_t *from = panel + cpu_codes_at(k) + 4 * n;

		memcpy(codes, from, 4);
		memcpy(codes + 4, from + 64, 4);
		scales[nib_fp4_scale_offset(to, row, k)] =
		    panel[cpu_scales_at(blocks, k) + n];
	}
}

static void unpack_some(void *arg, int task)
{
	const struct unpack_job *job = arg;
	const struct cpu_packed *packed = job->packed;
	const int64_t rows = packed->base.rows;
	const int64_t end = packed->all_panels * (task + 1) / job->tasks;

	for (int64_t i = packed->all_panels * task / job->tasks; i < end; i++) {
		const int64_t row = i % packed->panels * PANEL_COLS;

		for (int64_t n = 0; n < PANEL_COLS && row + n < rows; n++)
			unpack_column(packed->data + i * packed->panel_stride_bytes, n,
				      job->to, i / packed->panels, row + n);
	}
}

enum nib_status cpu_unpack(const struct nib_packed *base, const struct nib_fp4 *to,
			   void *stream, struct nib_error *err)
{
	const struct cpu_device *cpu = cpu_device(base->device);
	const struct cpu_packed *packed = (const struct cpu_packed *)base;
	struct unpack_job job = {packed, to, cpu->threads};

	(void)stream;
	(void)err;
	/* Empty views may have any batch; nothing is written to them. */
	if (packed->all_panels == 0)
		return NIB_STATUS_OK;
	for (int64_t l = 0; l < base->batch; l++)
		if (to->scale_layout != NIB_SCALE_LAYOUT_LINEAR)
			memset(nib_fp4_scales(to, l), 0,
			       nib_scales_bytes(to->scale_layout, to->rows, to->k));
	cpu_parallel(cpu, job.tasks, unpack_some, &job);
	for (int64_t i = 0; i < packed->n_dropped; i++) {
		const struct cpu_dropped *one = &packed->dropped[i];

		memcpy(nib_fp4_row(to, one->batch, one->row) +
			   one->block * (NIB_NVFP4_BLOCK / 2),
		       one->codes, sizeof(one->codes));
	}
	return NIB_STATUS_OK;
}

void cpu_packed_free(struct nib_packed *base)
{
	struct cpu_packed *packed = (struct cpu_packed *)base;

	free(packed->data);
	free(packed->nan_columns);
	free(packed->dropped);
	free(packed);
}
