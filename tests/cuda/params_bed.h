/* SPDX-License-Identifier: Apache-2.0 */
/*
 * params_bed.h - random problems on the fake driver, whose kernels' parameters the
 * tests test_cuda_params*.c look at.
 */
#ifndef NIB_TEST_PARAMS_BED_H
#define NIB_TEST_PARAMS_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_bed.h"
#include "nibblas.h"

#define CASES	  300
#define SM_BYTES  (227 << 10)
#define INPUTS	  ((size_t)1 << 24)
#define MOST	  3 /* problems of a group */
#define MEMORY	  (INPUTS + MOST * OUTPUT)
#define OUTPUT	  ((size_t)1 << 22)
#define WORKSPACE ((size_t)1 << 26)

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	uint8_t *memory, *workspace, *global;
	enum nib_op op;
	struct nib_problem problems[MOST];
	int64_t count;
	struct nib_plan *plan;
	struct nib_error err;
};

static uint64_t seed = 88172645463325252;

static inline int64_t rnd(int64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (int64_t)(seed >> 16) % n;
}

static inline int64_t up(int64_t n, int64_t step)
{
	return (n + step - 1) / step * step;
}

static inline void *device_memory(struct bed *bed, size_t bytes)
{
	void *memory = NULL;

	assert_int_equal(nib_device_alloc(bed->device, bytes, &memory, NULL),
			 NIB_STATUS_OK);
	return memory;
}

static inline void make_bed(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	assert_int_equal(nib_device_open("cuda", NULL, &bed->device, NULL),
			 NIB_STATUS_OK);
	bed->memory = device_memory(bed, MEMORY);
	bed->workspace = device_memory(bed, WORKSPACE);
	bed->global = device_memory(bed, 4096);
}

static inline void free_bed(struct bed *bed)
{
	nib_plan_free(bed->plan);
	nib_device_free(bed->device, bed->memory);
	nib_device_free(bed->device, bed->workspace);
	nib_device_free(bed->device, bed->global);
	nib_device_close(bed->device);
	assert_int_equal(bed->fake->allocations, 0);
}

/* ---- views with and without strides -------------------------------------- */

static inline uint8_t *anywhere(const struct bed *bed)
{
	return bed->memory + 256 * rnd(64);
}

static inline struct nib_fp4 rnd_nvfp4(const struct bed *bed, int64_t rows, int64_t k,
				       int64_t batch)
{
	struct nib_fp4 v = {.codes = anywhere(bed),
			    .scales = anywhere(bed),
			    .rows = rows,
			    .k = k,
			    .batch = batch};
	int64_t scales;

	v.scale_layout =
	    rnd(2) ? NIB_SCALE_LAYOUT_TILED_128X4 : NIB_SCALE_LAYOUT_LINEAR;
	if (rnd(2))
		v.row_stride_bytes = up(k / 2, 8) + 8 * rnd(4);
	if (batch > 1 && rnd(2))
		v.batch_stride_bytes =
		    rows * (v.row_stride_bytes ? v.row_stride_bytes : k / 2) +
		    8 * rnd(4);
	scales = (int64_t)nib_scales_bytes(v.scale_layout, rows, k);
	if (v.scale_layout == NIB_SCALE_LAYOUT_LINEAR && rnd(2)) {
		v.scale_row_stride_bytes = k / 16 + rnd(5);
		scales = rows * v.scale_row_stride_bytes;
	}
	if (batch > 1 && rnd(2))
		v.scale_batch_stride_bytes =
		    scales + (v.scale_layout == NIB_SCALE_LAYOUT_LINEAR ? rnd(5) : 512);
	/* A batch of 8-byte pieces, also where the library fills it in. */
	if (batch > 1 && k / 2 * rows % 8)
		v.batch_stride_bytes =
		    up(rows * (v.row_stride_bytes ? v.row_stride_bytes : k / 2), 8);
	return v;
}

/* The at-th of a group's outputs, which lie apart. */
static inline struct nib_dense rnd_dense(const struct bed *bed, int64_t at,
					 int64_t rows, int64_t cols, int64_t batch)
{
	struct nib_dense v = {.data = bed->memory + INPUTS + (size_t)at * OUTPUT +
				      256 * rnd(64),
			      .dtype = (enum nib_dtype)rnd(3),
			      .rows = rows,
			      .cols = cols,
			      .batch = batch};

	if (rnd(2))
		v.row_stride_elems = cols + rnd(9);
	if (rnd(2)) /* of one matrix it means nothing */
		v.batch_stride_elems =
		    rows * (v.row_stride_elems ? v.row_stride_elems : cols) + rnd(9);
	return v;
}

static inline int64_t row_bytes(const struct nib_fp4 *v)
{
	return v->row_stride_bytes ? v->row_stride_bytes : v->k / 2;
}

static inline int64_t batch_bytes(const struct nib_fp4 *v)
{
	return v->batch_stride_bytes ? v->batch_stride_bytes : v->rows * row_bytes(v);
}

static inline int64_t scale_row_bytes(const struct nib_fp4 *v)
{
	if (v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		return 0;
	return v->scale_row_stride_bytes ? v->scale_row_stride_bytes : v->k / 16;
}

/* Tiles have no rows: their stride is not looked at. */
static inline void check_scale_rows(const struct nib_fp4 *v, int64_t stride)
{
	if (v->scale_layout == NIB_SCALE_LAYOUT_LINEAR)
		assert_int_equal(stride, scale_row_bytes(v));
}

static inline int64_t scale_batch_bytes(const struct nib_fp4 *v)
{
	if (v->scale_batch_stride_bytes)
		return v->scale_batch_stride_bytes;
	return v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4
		   ? up(v->rows, 128) * up(v->k / 16, 4)
		   : v->rows * scale_row_bytes(v);
}

static inline int64_t dense_row(const struct nib_dense *v)
{
	return v->row_stride_elems ? v->row_stride_elems : v->cols;
}

static inline int64_t dense_batch(const struct nib_dense *v)
{
	return v->batch_stride_elems ? v->batch_stride_elems : v->rows * dense_row(v);
}

static inline int64_t size_of(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP32 ? 4 : 2;
}

static inline void run(struct bed *bed)
{
	const struct nib_run_options options = {.struct_bytes = sizeof(options),
						.workspace = bed->workspace,
						.workspace_bytes = WORKSPACE};

	nib_plan_free(bed->plan);
	bed->plan = NULL;
	if (nib_plan_create(bed->device, bed->op, bed->problems, bed->count, NULL,
			    &bed->plan, &bed->err) ||
	    nib_run(bed->plan, bed->problems, bed->count, &options, &bed->err))
		fail_msg("%s", bed->err.message);
}

#endif
