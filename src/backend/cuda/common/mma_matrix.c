/* SPDX-License-Identifier: Apache-2.0 */
/* mma_matrix.c - see mma_matrix.h. */
#include "mma_matrix.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/kernels/common/mma_matrix_params.h"
#include "few_rows.h"
#include "format/view.h"
#include "gemm_common.h"
#include "operand.h"
#include "pack.h"

/* What a plan keeps. */
struct mma_matrix {
	CUfunction aligned, any;
	struct mma_matrix_cut cut;
	int64_t batch;
	int32_t shared_bytes, any_shared_bytes;
	size_t counters_at; /* in the workspace */
};

/* ---- the cut ------------------------------------------------------------- */

/* The variants; ctas: that the registers of an SM suffice for. */
static const struct variant {
	int rows, stages, ctas;
} variants[] = {{16, 3, 4}, {32, 3, 3}};
/* The variant for any alignment. */
static const struct variant any_variant = {32, 3, 3};

static const struct variant *variant_of(int64_t m)
{
	const struct variant *v = variants;

	while (v->rows < m)
		v++;
	return v;
}

static int64_t resident_ctas(const struct cuda_device *device, const struct variant *v)
{
	return cuda_resident_ctas(
	    device, nib_mma_matrix_shared_bytes(v->rows, v->stages), v->ctas);
}

/* Bytes that the memory of the device transfers in a microsecond, for each SM. */
static int64_t bytes_per_us(const struct cuda_device *device)
{
	const int64_t bytes =
	    (int64_t)device->memory_clock_khz * 2 * device->memory_bus_bits / 8 / 1000;

	return bytes / device->multiprocessors + 1;
}

/*
 * The predicted time of a product, in bytes that an SM could read meanwhile:
 *
 *   weights of the SM with the most CTAs, longer if these request less at a time than
 *   arrives in 1.5 microseconds
 *   a launch that clears the counters, and the wait for the last slice: 3 microseconds
 *   sums of slices, which the CTAs store and the last one loads
 */
static int64_t cost_of(const struct cuda_device *device, const struct variant *v,
		       int64_t m, int64_t tiles, int64_t steps, int64_t slices)
{
	const int64_t rate = bytes_per_us(device);
	const int64_t ctas = divide_up(tiles * slices, device->multiprocessors);
	const int64_t at_once = resident_ctas(device, v);
	const int64_t requested =
	    (ctas < at_once ? ctas : at_once) * (v->stages - 1) * NIB_MMA_STAGE_BYTES;
	const int64_t needed = rate + rate / 2;
	const int64_t load = ctas * divide_up(steps, slices) * NIB_MMA_STAGE_BYTES;
	const int64_t cost = requested < needed ? load * needed / requested : load;

	if (slices == 1)
		return cost;
	return cost + 3 * rate + (ctas + slices) * nib_mma_partial_bytes((int)m) / 2;
}

struct mma_matrix_cut mma_matrix_cut(const struct cuda_device *device, int64_t m,
				     int64_t n, int64_t k)
{
	const struct variant *v = variant_of(m);
	const int64_t steps = divide_up(k, NIB_MMA_STEP);
	struct mma_matrix_cut cut = {v->rows, v->stages, nib_mma_tiles(n, 1), 1};
	const int64_t most = resident_ctas(device, v) * device->multiprocessors;
	int64_t least = INT64_MAX;

	for (int64_t slices = 1;
	     slices <= steps && (slices == 1 || cut.tiles * slices <= most); slices++) {
		const int64_t cost = cost_of(device, v, m, cut.tiles, steps, slices);

		if (cost < least) {
			least = cost;
			cut.slices = (int)slices;
		}
	}
	return cut;
}

bool cuda_mma_matrix_fits(const struct nib_problem *p)
{
	const struct nib_problem view = cuda_unpacked(p);
	const int64_t tiles = nib_mma_tiles(view.b.rows, 1);

	return view.a.rows >= 1 && view.a.rows <= NIB_MMA_MATRIX_ROWS &&
	       view.b.rows >= 1 && view.b.rows <= INT32_MAX - NIB_MMA_TILE &&
	       view.b.k >= NIB_MMA_K_ALIGN && view.b.k % NIB_MMA_K_ALIGN == 0 &&
	       tiles <= INT32_MAX / (view.b.k / NIB_MMA_K_ALIGN) &&
	       nib_fp4_row_stride_bytes(&view.b) <= INT32_MAX &&
	       nib_fp4_scale_row_stride_bytes(&view.b) <= INT32_MAX &&
	       nib_fp4_row_stride_bytes(&view.a) <= INT32_MAX &&
	       nib_fp4_scale_row_stride_bytes(&view.a) <= INT32_MAX / 64 &&
	       nib_dense_row_stride_elems(&view.x) <= INT32_MAX / 2 &&
	       nib_dense_row_stride_elems(&view.c) <= INT32_MAX;
}

/* ---- the product --------------------------------------------------------- */

static struct nib_mma_matrix_params make_params(const struct nib_problem *problem)
{
	const struct nib_problem p = cuda_unpacked(problem);
	const int64_t batches = nib_fp4_batches(&p.a);
	const int64_t size = (int64_t)nib_dtype_bytes(p.c.dtype);

	return (struct nib_mma_matrix_params){
	    .p =
		{
		    .a = cuda_a_operand(&p, batches),
		    .b = cuda_operand(&p.b, batches),
		    .alpha = p.alpha,
		    .c = p.c.data,
		    .c_row_stride = nib_dense_row_stride_elems(&p.c),
		    .n = (int32_t)p.b.rows,
		    .k = (int32_t)p.b.k,
		    .c_dtype = (int32_t)p.c.dtype,
		    .rows = (int32_t)p.a.rows,
		},
	    .c_batch_bytes = nib_dense_batch_stride_elems(&p.c) * size,
	};
}

static enum nib_status plan_matrix(struct cuda_device *device,
				   const struct nib_plan *plan,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	const struct nib_problem p = cuda_unpacked(plan->problems);
	const char *type = few_rows_type(p.activations, p.x.dtype);
	struct mma_matrix *mma = calloc(1, sizeof(*mma));
	enum nib_status status;
	char name[48];

	product->state = mma;
	product->kernel = "mma";
	if (!mma)
		return cuda_no_memory(sizeof(*mma), err);
	mma->cut = mma_matrix_cut(device, p.a.rows, p.b.rows, p.b.k);
	mma->batch = nib_fp4_batches(&p.a);
	mma->shared_bytes = nib_mma_matrix_shared_bytes(mma->cut.rows, mma->cut.stages);
	mma->any_shared_bytes =
	    nib_mma_matrix_shared_bytes(any_variant.rows, any_variant.stages);
	product->tasks = mma->cut.tiles * mma->cut.slices * mma->batch;
	if (mma->cut.slices > 1) {
		const size_t counters = (size_t)(mma->cut.tiles * mma->batch);

		mma->counters_at = counters * (size_t)mma->cut.slices *
				   (size_t)nib_mma_partial_bytes(any_variant.rows);
		product->workspace_bytes =
		    mma->counters_at + counters * sizeof(uint32_t);
	}
	snprintf(name, sizeof(name), "nib_mma_matrix_%d%s", mma->cut.rows, type);
	status = few_rows_find(device, name, mma->shared_bytes, &mma->aligned, err);
	if (status)
		return status;
	snprintf(name, sizeof(name), "nib_mma_matrix_any%s", type);
	return few_rows_find(device, name, mma->any_shared_bytes, &mma->any, err);
}

/* Sets the counters of tiles to 0; they follow the partial sums. */
static enum nib_status clear_counters(const struct cuda_device *device,
				      const struct mma_matrix *mma,
				      const struct nib_run *run, struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	const CUdeviceptr counters =
	    (CUdeviceptr)(uintptr_t)run->workspace + mma->counters_at;
	const CUresult result = cu->cuMemsetD8Async(
	    counters, 0, (size_t)(mma->cut.tiles * mma->batch) * sizeof(uint32_t),
	    run->stream);

	return result ? cuda_fail(cu, result, "cuMemsetD8Async", err) : NIB_STATUS_OK;
}

/* Advances the pointers by `count` matrices, and the workspace by their tiles. */
static void skip_matrices(struct nib_mma_matrix_params *params,
			  const struct mma_matrix *mma, int64_t count)
{
	struct nib_mma_params *p = &params->p;
	const int64_t tiles = count * mma->cut.tiles;

	cuda_skip_matrices(&p->a, count);
	cuda_skip_matrices(&p->b, count);
	p->c = nib_offset_bytes(p->c, count * params->c_batch_bytes);
	if (!params->partials)
		return;
	params->partials +=
	    tiles * params->slices * (nib_mma_partial_bytes(any_variant.rows) / 4);
	params->arrivals += tiles;
}

static enum nib_status launch_matrix(const struct cuda_device *device,
				     const struct cuda_product_plan *product,
				     const struct nib_run *run, struct nib_error *err)
{
	const struct mma_matrix *mma = product->state;
	struct nib_mma_matrix_params params = make_params(run->problems);
	const bool any = !cuda_are_pieces(&params.p.a, &params.p.b);
	void *arguments[] = {&params};
	CUlaunchAttribute attributes[2] = {{0}};
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)(mma->cut.tiles * mma->cut.slices),
	    .blockDimX = NIB_MMA_THREADS,
	    .sharedMemBytes =
		(unsigned)(any ? mma->any_shared_bytes : mma->shared_bytes),
	    .hStream = run->stream,
	    .attrs = attributes,
	};
	enum nib_status status = NIB_STATUS_OK;

	params.slices = mma->cut.slices;
	if (params.slices > 1) {
		params.partials = run->workspace;
		params.arrivals =
		    (uint32_t *)((uint8_t *)run->workspace + mma->counters_at);
		status = clear_counters(device, mma, run, err);
	} else {
		cuda_may_overlap(device, &config);
	}
	for (int64_t done = 0; done < mma->batch && !status;) {
		const int64_t left = mma->batch - done;
		const int64_t count =
		    left < FEW_ROWS_MAX_BATCH ? left : FEW_ROWS_MAX_BATCH;

		config.gridDimY = (unsigned)count;
		status = cuda_launch(device, any ? mma->any : mma->aligned, config,
				     arguments, err);
		skip_matrices(&params, mma, count);
		done += count;
	}
	return status;
}

const struct cuda_product cuda_mma_matrix = {plan_matrix, launch_matrix,
					     cuda_product_free};
