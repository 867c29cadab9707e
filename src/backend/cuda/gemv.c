/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.c - products of up to 4 rows on a GPU; see gemv.h. */
#include "gemv.h"

#include <stdio.h>
#include <string.h>

#include "format/view.h"

/* Shared memory that the system reserves for each CTA. */
#define CTA_SHARED_BYTES 1024
/*
 * The M of the variant for any alignment; a product of one NVFP4 row has a
 * variant of its own.
 */
#define ANY_M 4
/* The limit of gridDim.y: a larger batch is several launches. */
#define MAX_BATCH 65535

/* Dense A of one row is the first of two. */
static int variant_m(int64_t m, bool is_dense)
{
	return m == 1 && !is_dense ? 1 : m <= 2 ? 2 : 4;
}

static int variant_any_m(int64_t m, bool is_dense)
{
	return m == 1 && !is_dense ? 1 : ANY_M;
}

/* Shared memory of the variant of so many rows. */
static int64_t shared_bytes_of(int64_t m, int64_t k, bool is_dense, int variant,
			       int tiles_per_cta)
{
	return is_dense ? nib_gemv_dense_shared_bytes(k, (int)m, variant,
						      tiles_per_cta)
			: nib_gemv_shared_bytes(k, variant, tiles_per_cta);
}

/* CTAs that an SM has at once. */
static int64_t resident(const struct gemv_cut *cut, int64_t shared_bytes)
{
	const int64_t by_shared = (shared_bytes + CTA_SHARED_BYTES) /
				  (cut->shared_bytes + CTA_SHARED_BYTES);
	const int64_t by_registers = NIB_GEMV_CTAS;

	return by_shared < by_registers ? by_shared : by_registers;
}

struct gemv_cut gemv_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			 bool a_is_dense, bool b_is_tiled, int multiprocessors,
			 int64_t shared_bytes)
{
	const int any_m = variant_any_m(m, a_is_dense);
	struct gemv_cut cut = {.m = variant_m(m, a_is_dense)};

	cut.tiles = (int32_t)nib_gemv_tiles(n, b_is_tiled);
	for (int tiles = 1; tiles <= NIB_GEMV_MAX_TILES; tiles++) {
		cut.tiles_per_cta = tiles;
		cut.ctas = divide_up(cut.tiles, tiles);
		cut.shared_bytes =
		    shared_bytes_of(m, k, a_is_dense, cut.m, tiles);
		if (cut.ctas * batch <=
		    resident(&cut, shared_bytes) * multiprocessors)
			break;
	}
	/* Their numbers differ by one at most. */
	cut.tiles_per_cta = (int32_t)divide_up(cut.tiles, cut.ctas);
	cut.any_shared_bytes =
	    shared_bytes_of(m, k, a_is_dense, any_m, cut.tiles_per_cta);
	return cut;
}

bool gemv_takes(enum nib_op op, const struct nib_problem *p)
{
	return op != NIB_DUAL_GEMM && p->a.rows >= 1 &&
	       p->a.rows <= CUDA_GEMV_MAX_ROWS && p->b.rows >= 1 &&
	       nib_gemv_tiles(p->b.rows, true) <= INT32_MAX &&
	       nib_nvfp4_batches(&p->a) <= INT32_MAX;
}

/* 16, 4 or 1: what x is a multiple of. */
static int16_t align_of(uint64_t x)
{
	return x % 16 == 0 ? 16 : x % 4 == 0 ? 4 : 1;
}

struct nib_gemv_operand cuda_gemv_operand(const struct nib_nvfp4 *v,
					  int64_t batches)
{
	struct nib_gemv_operand o = {
	    .codes = v->codes,
	    .scales = v->scales,
	    .row_stride = nib_nvfp4_row_stride_bytes(v),
	    .batch_stride = nib_nvfp4_batch_stride_bytes(v),
	    .scale_row_stride = nib_nvfp4_scale_row_stride_bytes(v),
	    .scale_batch_stride = nib_nvfp4_scale_batch_stride_bytes(v),
	    .is_tiled = v->scale_layout == NIB_TILED_128X4,
	};
	uint64_t codes = (uintptr_t)v->codes, scales = (uintptr_t)v->scales;

	/* One matrix, or row, has no stride to speak of. */
	if (nib_nvfp4_batches(v) == 1)
		o.batch_stride = o.scale_batch_stride = 0;
	if (v->rows > 1)
		codes |= (uint64_t)o.row_stride;
	if (v->rows > 1 && !o.is_tiled)
		scales |= (uint64_t)o.scale_row_stride;
	if (batches > 1) {
		codes |= (uint64_t)o.batch_stride;
		scales |= (uint64_t)o.scale_batch_stride;
	}
	o.codes_align = align_of(codes);
	o.scales_align = align_of(scales);
	return o;
}

struct nib_gemv_operand cuda_gemv_dense(const struct nib_dense *x,
					int64_t batches)
{
	const int64_t size = (int64_t)nib_dtype_bytes(x->dtype);
	struct nib_gemv_operand o = {
	    .codes = x->data,
	    .row_stride = nib_dense_row_stride_elems(x) * size,
	    .batch_stride =
		batches > 1 ? nib_dense_batch_stride_elems(x) * size : 0,
	    .scales_align = 16,
	};
	uint64_t data = (uintptr_t)x->data | (uint64_t)o.batch_stride;

	if (x->rows > 1)
		data |= (uint64_t)o.row_stride;
	o.codes_align = align_of(data);
	return o;
}

static bool is_aligned(const struct nib_gemv_params *p)
{
	return p->a.codes_align == 16 && p->a.scales_align >= 4 &&
	       p->b.codes_align == 16 && p->b.scales_align == 16 &&
	       p->k % 32 == 0;
}

static void set_pointers(struct nib_gemv_params *params,
			 const struct nib_problem *p)
{
	const int64_t batches = nib_nvfp4_batches(&p->a);

	params->a = p->activations == NIB_ACTIVATIONS_DENSE
			? cuda_gemv_dense(&p->x, batches)
			: cuda_gemv_operand(&p->a, batches);
	params->b = cuda_gemv_operand(&p->b, batches);
	params->alpha = p->alpha;
	params->c = p->c.data;
}

static void skip_operand(struct nib_gemv_operand *o, int64_t count)
{
	o->codes = nib_offset_bytes(o->codes, count * o->batch_stride);
	o->scales = nib_offset_bytes(o->scales, count * o->scale_batch_stride);
}

/* To the matrices behind so many. */
static void skip_matrices(struct nib_gemv_params *params, int64_t count)
{
	const int64_t size =
	    (int64_t)nib_dtype_bytes((enum nib_dtype)params->c_dtype);

	skip_operand(&params->a, count);
	skip_operand(&params->b, count);
	params->c =
	    nib_offset_bytes(params->c, count * params->c_batch_stride * size);
}

/* All of an SM's memory as shared memory: several CTAs are meant to be there.
 */
static enum nib_status find_kernel(struct cuda_device *device, const char *name,
				   int64_t shared_bytes, CUfunction *function,
				   struct nib_error *err)
{
	CUresult result;
	enum nib_status status =
	    cuda_kernel(device, name, (int)shared_bytes, function, err);

	if (status)
		return status;
	result = device->driver->cuFuncSetAttribute(
	    *function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
	return result ? cuda_fail(device->driver, result, name, err) : NIB_OK;
}

/* All of params but pointers. */
static void set_sizes(struct nib_gemv_params *params,
		      const struct nib_problem *p)
{
	struct nib_problem shape = *p;

	shape.a.codes = shape.a.scales = shape.b.codes = shape.b.scales = NULL;
	shape.x.data = shape.c.data = NULL;
	shape.alpha = NULL;
	set_pointers(params, &shape);
	params->c_row_stride = nib_dense_row_stride_elems(&p->c);
	params->c_batch_stride = nib_dense_batch_stride_elems(&p->c);
	params->n = p->b.rows;
	params->m = (int32_t)p->a.rows;
	params->k = (int32_t)p->b.k;
	params->c_dtype = (int32_t)p->c.dtype;
}

enum nib_status cuda_gemv_plan(struct cuda_device *device,
			       const struct nib_problem *p,
			       struct cuda_gemv *gemv, struct nib_error *err)
{
	const bool is_dense = p->activations == NIB_ACTIVATIONS_DENSE;
	const char *type = !is_dense		    ? ""
			   : p->x.dtype == NIB_FP16 ? "_f16"
						    : "_bf16";
	struct nib_gemv_params *params = &gemv->params;
	struct gemv_cut *cut = &gemv->cut;
	enum nib_status status = NIB_OK;
	char name[32];

	memset(gemv, 0, sizeof(*gemv));
	set_sizes(params, p);
	gemv->batch = nib_nvfp4_batches(&p->a);
	*cut = gemv_cut(params->m, params->n, params->k, gemv->batch, is_dense,
			params->b.is_tiled, device->multiprocessors,
			device->shared_bytes);
	params->tiles = cut->tiles;
	params->tiles_per_cta = cut->tiles_per_cta;
	if (is_aligned(params)) {
		snprintf(name, sizeof(name), "nib_gemv_%d%s", cut->m, type);
		status = find_kernel(device, name, cut->shared_bytes,
				     &gemv->aligned, err);
	}
	if (status)
		return status;
	snprintf(name, sizeof(name), "nib_gemv_%d_any%s",
		 variant_any_m(params->m, is_dense), type);
	return find_kernel(device, name, cut->any_shared_bytes, &gemv->any,
			   err);
}

enum nib_status cuda_gemv_launch(const struct cuda_device *device,
				 const struct cuda_gemv *gemv,
				 const struct nib_problem *p, CUstream stream,
				 struct nib_error *err)
{
	struct nib_gemv_params params = gemv->params;
	void *arguments[] = {&params};
	CUlaunchConfig config = {0};
	CUfunction function = gemv->aligned;
	int64_t shared_bytes = gemv->cut.shared_bytes;
	enum nib_status status = NIB_OK;

	set_pointers(&params, p);
	if (!function || !is_aligned(&params)) {
		function = gemv->any;
		shared_bytes = gemv->cut.any_shared_bytes;
	}
	config.gridDimX = (unsigned)gemv->cut.ctas;
	config.blockDimX = NIB_GEMV_THREADS;
	config.sharedMemBytes = (unsigned)shared_bytes;
	config.hStream = stream;
	for (int64_t done = 0; done < gemv->batch && !status;) {
		const int64_t left = gemv->batch - done;
		const int64_t count = left < MAX_BATCH ? left : MAX_BATCH;

		config.gridDimY = (unsigned)count;
		status = cuda_launch(device, function, config, arguments, err);
		skip_matrices(&params, count);
		done += count;
	}
	return status;
}
