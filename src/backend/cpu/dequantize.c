/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize.c - codes back to floats. */
#include <string.h>

#include "core/error.h"
#include "cpu.h"
#include "format/view.h"
#include "quantize_tables.h"

/* 4 KiB of fp32 are collected on the stack before they are streamed. */
#define RUN_BLOCKS 64
/* Waking a thread costs more than dequantising fewer blocks than this. */
#define TASK_BLOCKS 2048
/* Outputs of at least this size are streamed; they would evict all else from the
 * caches. */
#define STREAM_BYTES (16 << 20)

struct dequantize_job {
	const struct cpu_quantize_ops *ops;
	struct nib_fp4 q;
	struct nib_dense y;
	const struct cpu_dequantizer *table;
	bool stream;
	int tasks;
	int64_t batch, rows, groups; /* as cut into runs */
	int64_t runs_a_row, runs;
};

/* An empty matrix gets batch 0, so that products of the sizes cannot overflow. */
static void set_sizes(struct dequantize_job *job, const struct nib_fp4 *v)
{
	const bool is_empty = v->rows == 0 || v->k == 0;

	job->batch = is_empty ? 0 : nib_fp4_batches(v);
	job->rows = v->rows;
	job->groups = nib_fp4_groups(v);
}

static void cut(struct dequantize_job *job, const struct cpu_device *device,
		int64_t run_groups)
{
	const int64_t worth = job->batch * job->rows * job->groups / TASK_BLOCKS + 1;

	job->runs_a_row = (job->groups + run_groups - 1) / run_groups;
	job->tasks = worth < device->threads ? (int)worth : device->threads;
}

/* ---- dequantise --------------------------------------------------------- */

static void get_tiled(const struct dequantize_job *job, int64_t batch, int64_t row,
		      int64_t group, int64_t n, uint8_t *scales)
{
	const uint8_t *from = nib_fp4_scale(&job->q, batch, row, group);

	for (int64_t g = 0; g < n; g += 4)
		memcpy(scales + g, from + g / 4 * NIB_SCALE_TILE_BYTES, 4);
}

static void dequantize_run(const struct dequantize_job *job, int64_t index)
{
	const int64_t line = index / job->runs_a_row;
	const int64_t batch = line / job->rows, row = line % job->rows;
	const int64_t group = index % job->runs_a_row * RUN_BLOCKS;
	const int64_t left = job->groups - group;
	const int64_t n = left < RUN_BLOCKS ? left : RUN_BLOCKS;
	const int64_t bytes =
	    n * NIB_NVFP4_BLOCK * (int64_t)nib_dtype_bytes(job->y.dtype);
	const uint8_t *codes = nib_fp4_row(&job->q, batch, row) + group * 8;
	const uint8_t *scales;
	uint8_t local[RUN_BLOCKS], staged[RUN_BLOCKS * NIB_NVFP4_BLOCK * 4];
	uint8_t *y = nib_dense_at(&job->y, batch, row, group * NIB_NVFP4_BLOCK);

	if (job->q.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4) {
		get_tiled(job, batch, row, group, n, local);
		scales = local;
	} else {
		scales = nib_fp4_scale(&job->q, batch, row, group);
	}
	job->ops->dequantize[job->y.dtype](job->table, codes, scales, n,
					   job->stream ? staged : y);
	if (job->stream)
		job->ops->stream(y, staged, (size_t)bytes);
}

static void dequantize_task(void *arg, int i)
{
	const struct dequantize_job *job = arg;
	const int64_t end = job->runs * (i + 1) / job->tasks;

	for (int64_t at = job->runs * i / job->tasks; at < end; at++)
		dequantize_run(job, at);
	if (job->stream)
		job->ops->drain();
}

struct setup {
	struct cpu_dequantizer *table;
	enum nib_dtype dtype;
	float global;
};

static void setup_task(void *arg, int i)
{
	const struct setup *setup = arg;

	(void)i;
	cpu_dequantizer_init(setup->table, setup->dtype, setup->global);
}

enum nib_status cpu_dequantize(struct nib_device *device, const struct nib_fp4 *q,
			       float global, const struct nib_dense *y,
			       const struct nib_dequantize_options *options,
			       struct nib_error *err)
{
	const struct cpu_device *cpu = cpu_device(device);
	struct cpu_dequantizer table;
	struct setup setup = {&table, y->dtype, global};
	struct dequantize_job job;

	(void)options;
	(void)err;
	memset(&job, 0, sizeof(job));
	job.ops = &cpu->ops.quantize;
	job.q = *q;
	job.y = *y;
	job.table = &table;
	set_sizes(&job, q);
	job.stream = job.batch * job.rows * q->k * (int64_t)nib_dtype_bytes(y->dtype) >=
		     STREAM_BYTES;
	if (q->scale_layout == NIB_SCALE_LAYOUT_LINEAR &&
	    nib_dense_row_stride_elems(y) == q->k &&
	    nib_fp4_row_stride_bytes(q) == q->k / 2 &&
	    nib_fp4_scale_row_stride_bytes(q) == job.groups) {
		job.groups *= job.rows;
		job.rows = job.rows != 0;
	}
	cut(&job, cpu, RUN_BLOCKS);
	job.runs = job.batch * job.rows * job.runs_a_row;
	if (job.runs == 0)
		return NIB_STATUS_OK;
	cpu_parallel(cpu, 1, setup_task, &setup);
	cpu_parallel(cpu, job.tasks, dequantize_task, &job);
	return NIB_STATUS_OK;
}
