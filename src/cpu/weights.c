/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - packed weights: panels (layout.h) on huge pages. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "api/error.h"
#include "cpu.h"
#include "format/view.h"
#include "multiply.h"

#define HUGE_BYTES ((size_t)2 << 20)

/* Kernels prefetch past the end of a panel; the last one needs no room for it:
 * a prefetch of an unmapped address does nothing. */
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
	const int64_t all = packed->base.batch * packed->panels;
	const int64_t begin = all * task / job->tasks;
	const int64_t end = all * (task + 1) / job->tasks;

	for (int64_t i = begin; i < end; i++) {
		struct cpu_rows rows = cpu_rows_of(job->b, i / packed->panels);

		packed->nan_columns[i] = job->device->ops.gemm.pack_panel(
		    &rows, i % packed->panels * PANEL_COLS, 0, rows.blocks,
		    packed->data + i * packed->panel_stride_bytes);
	}
}

void cpu_advise(void *memory, size_t bytes)
{
	/* A hint: without huge pages everything works, a little slower. */
	if (bytes >= HUGE_BYTES)
		(void)madvise(memory, bytes, MADV_HUGEPAGE);
}

/* A word of memory each; 2^36 panels with data would be 2^43 bytes. */
#define MAX_PANELS (SIZE_MAX >> 28)

enum nib_status cpu_pack(struct nib_device *device, const struct nib_nvfp4 *b,
			 struct nib_packed **out, struct nib_error *err)
{
	const struct cpu_device *cpu = cpu_device(device);
	struct cpu_packed *packed = calloc(1, sizeof(*packed));
	struct job job = {cpu, packed, b, cpu->threads};
	size_t bytes, words;

	if (!packed)
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory for packed weights");
	packed->base.device = device;
	packed->base.rows = b->rows;
	packed->base.k = b->k;
	packed->base.batch = b->batch;
	packed->panels = (b->rows + PANEL_COLS - 1) / PANEL_COLS;
	packed->panel_stride_bytes = cpu_panel_bytes(b->k / NIB_BLOCK);
	/* With k = 0 the sizes are not bounded by memory that exists. */
	if (__builtin_mul_overflow(b->batch, packed->panels, &words) ||
	    words > MAX_PANELS) {
		free(packed);
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory for packed weights of %" PRId64
				" rows, batch %" PRId64,
				b->rows, b->batch);
	}
	bytes = words * (size_t)packed->panel_stride_bytes;
	packed->base.bytes = bytes;
	bytes = (bytes + HUGE_BYTES) / HUGE_BYTES * HUGE_BYTES;
	packed->nan_columns = calloc(words + 1, sizeof(uint16_t));
	packed->data = aligned_alloc(HUGE_BYTES, bytes);
	if (!packed->nan_columns || !packed->data) {
		cpu_packed_free(&packed->base);
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory for packed weights (%zu bytes)",
				bytes);
	}
	cpu_advise(packed->data, bytes);
	cpu_parallel(cpu, job.tasks, pack_some, &job);
	*out = &packed->base;
	return NIB_OK;
}

void cpu_packed_free(struct nib_packed *base)
{
	struct cpu_packed *packed = (struct cpu_packed *)base;

	free(packed->data);
	free(packed->nan_columns);
	free(packed);
}
