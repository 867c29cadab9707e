/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - packed weights: panels (layout.h) on huge pages. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "cpu.h"
#include "format/view.h"
#include "multiply.h"

struct job {
	const struct cpu_device *device;
	struct cpu_packed *packed;
	const struct nib_nvfp4 *b;
	int tasks;
};

static void pack_some(void *arg, int task)
{
	const struct job *job = arg;
	struct cpu_packed *packed = job->packed;
	const int64_t begin = packed->all_panels * task / job->tasks;
	const int64_t end = packed->all_panels * (task + 1) / job->tasks;

	for (int64_t i = begin; i < end; i++) {
		struct cpu_rows rows = cpu_rows_of(job->b, i / packed->panels);

		packed->nan_columns[i] = job->device->ops.gemm.pack_panel(
		    &rows, i % packed->panels * PANEL_COLS, 0, rows.blocks,
		    packed->data + i * packed->panel_stride_bytes);
	}
}

/* 2^36 panels with data would be 2^43 bytes. */
#define MAX_PANELS ((int64_t)1 << 36)

/*
 * Memory for the panels, if there are any.  Nothing is added after the last one, although
 * kernels prefetch past it: a prefetch of an unmapped address does nothing.
 */
static enum nib_status allocate(struct cpu_packed *packed,
				struct nib_error *err)
{
	const size_t panels = (size_t)packed->all_panels;
	const size_t bytes = panels * (size_t)packed->panel_stride_bytes;

	packed->nan_columns = calloc(panels, sizeof(*packed->nan_columns));
	packed->data = cpu_lines(bytes);
	if (!packed->nan_columns || !packed->data)
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory for packed weights (%zu bytes)",
				bytes);
	packed->base.bytes = bytes;
	return NIB_OK;
}

/* A CPU reads codes in an order of its own: they are always copied. */
enum nib_status cpu_pack(struct nib_device *device, const struct nib_nvfp4 *b,
			 bool shares_codes, struct nib_packed **out,
			 struct nib_error *err)
{
	struct cpu_packed *packed = calloc(1, sizeof(*packed));
	enum nib_status status = NIB_OK;

	(void)shares_codes;
	if (!packed)
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory for packed weights");
	packed->base.device = device;
	packed->base.rows = b->rows;
	packed->base.k = b->k;
	packed->base.batch = b->batch;
	packed->base.batch_stride_bytes = b->rows * (b->k / 2);
	packed->panels = (b->rows + PANEL_COLS - 1) / PANEL_COLS;
	packed->panel_stride_bytes = cpu_panel_bytes(b->k / NIB_BLOCK);
	/* Weights without values have no panels, whatever rows and batch are. */
	if (b->k > 0 && b->rows > 0 &&
	    (__builtin_mul_overflow(b->batch, packed->panels,
				    &packed->all_panels) ||
	     packed->all_panels > MAX_PANELS))
		status = nib_fail(err, NIB_OUT_OF_MEMORY,
				  "no memory for packed weights of %" PRId64
				  " rows, batch %" PRId64,
				  b->rows, b->batch);
	else if (packed->all_panels > 0)
		status = allocate(packed, err);
	if (!status)
		status = cpu_packed_update(&packed->base, b, err);
	if (status) {
		cpu_packed_free(&packed->base);
		return status;
	}
	*out = &packed->base;
	return NIB_OK;
}

enum nib_status cpu_packed_update(struct nib_packed *base,
				  const struct nib_nvfp4 *b,
				  struct nib_error *err)
{
	const struct cpu_device *cpu = cpu_device(base->device);
	struct job job = {cpu, (struct cpu_packed *)base, b, cpu->threads};

	(void)err;
	cpu_parallel(cpu, job.tasks, pack_some, &job);
	return NIB_OK;
}

void cpu_packed_free(struct nib_packed *base)
{
	struct cpu_packed *packed = (struct cpu_packed *)base;

	free(packed->data);
	free(packed->nan_columns);
	free(packed);
}
