/* SPDX-License-Identifier: Apache-2.0 */
/* mma_warps.c - see mma_warps.h. */
#include "mma_warps.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/kernels/common/mma_warps_params.h"
#include "few_rows.h"
#include "format/view.h"
#include "gemm_common.h"
#include "operand.h"
#include "pack.h"

/* Rows of B of a tile of the variant for any alignment. */
#define ANY_B_ROWS 32

/* What a plan keeps. */
struct mma_warps {
	CUfunction aligned, any;
	struct mma_warps_cut cut;
	int64_t batch;
};

/* ---- the cut ------------------------------------------------------------- */

/* Warps whose rings an SM has space for. */
static int64_t resident_warps(const struct cuda_device *device, int b_rows)
{
	return device->shared_bytes / nib_mma_warps_shared_bytes(b_rows, 1);
}

/*
 * The time of a product in units that compare tiles of 32 and 64 rows of B: the bytes
 * that an SM loads, as the mean of all SMs, which share the memory, and the one with
 * the most tiles.  A, from the L2, counts half.
 */
static int64_t cost_of(const struct cuda_device *device, int64_t m, int64_t n,
		       int b_rows)
{
	const int64_t sms = device->multiprocessors;
	const int64_t tiles = nib_mma_warps_tiles(n, b_rows);
	const int64_t most = divide_up(tiles, sms) * sms;

	return ((tiles > sms ? tiles : sms) + most) * (b_rows * 9 + m * 16);
}

/*
 * As many warps in a CTA as let all CTAs be resident at once.  The fewest have two,
 * so that some CTAs load while others end.
 */
static int warps_of(const struct cuda_device *device, const struct mma_warps_cut *cut,
		    int64_t k)
{
	const int64_t ctas = divide_up(cut->tiles, device->multiprocessors);
	const int64_t steps = divide_up(k, NIB_MMA_WARPS_STEP);
	int64_t warps = resident_warps(device, cut->b_rows) / ctas;

	if (warps > NIB_MMA_WARPS_MOST)
		warps = NIB_MMA_WARPS_MOST;
	if (warps > steps)
		warps = steps;
	return (int)(warps > 2 ? warps : steps > 1 ? 2 : 1);
}

struct mma_warps_cut mma_warps_cut(const struct cuda_device *device, int64_t m,
				   int64_t n, int64_t k)
{
	struct mma_warps_cut cut = {.b_rows = 64};

	if (cost_of(device, m, n, 32) < cost_of(device, m, n, 64))
		cut.b_rows = 32;
	cut.tiles = nib_mma_warps_tiles(n, cut.b_rows);
	cut.warps = warps_of(device, &cut, k);
	return cut;
}

bool cuda_mma_warps_fits(const struct nib_problem *p)
{
	const struct nib_problem view = cuda_unpacked(p);

	return view.a.rows >= 1 && view.a.rows <= NIB_MMA_WARPS_ROWS &&
	       view.b.rows >= 1 && view.b.rows <= INT32_MAX / 4 && view.b.k >= 1 &&
	       view.b.k % NIB_MMA_WARPS_K_ALIGN == 0 &&
	       nib_fp4_row_stride_bytes(&view.b) <= INT32_MAX &&
	       nib_fp4_scale_row_stride_bytes(&view.b) <= INT32_MAX &&
	       nib_fp4_row_stride_bytes(&view.a) <= INT32_MAX &&
	       nib_fp4_scale_row_stride_bytes(&view.a) <= INT32_MAX &&
	       nib_dense_row_stride_elems(&view.x) <= INT32_MAX / 2;
}

/* ---- the product --------------------------------------------------------- */

static struct nib_mma_warps_params make_params(const struct nib_problem *problem)
{
	const struct nib_problem p = cuda_unpacked(problem);
	const int64_t batches = nib_fp4_batches(&p.a);

	return (struct nib_mma_warps_params){
	    .a = cuda_a_operand(&p, batches),
	    .b = cuda_operand(&p.b, batches),
	    .alpha = p.alpha,
	    .c = p.c.data,
	    .c_row_stride = nib_dense_row_stride_elems(&p.c),
	    .c_batch_stride = nib_dense_batch_stride_elems(&p.c),
	    .rows = (int32_t)p.a.rows,
	    .n = (int32_t)p.b.rows,
	    .k = (int32_t)p.b.k,
	    .c_dtype = (int32_t)p.c.dtype,
	};
}

static enum nib_status plan_warps(struct cuda_device *device,
				  const struct nib_plan *plan,
				  struct cuda_product_plan *product,
				  struct nib_error *err)
{
	const struct nib_problem p = cuda_unpacked(plan->problems);
	const char *type = few_rows_type(p.activations, p.x.dtype);
	struct mma_warps *mma = calloc(1, sizeof(*mma));
	const struct mma_warps_cut *cut = &mma->cut;
	enum nib_status status;
	char name[48];

	product->state = mma;
	product->kernel = "mma";
	if (!mma)
		return cuda_no_memory(sizeof(*mma), err);
	mma->cut = mma_warps_cut(device, p.a.rows, p.b.rows, p.b.k);
	mma->batch = nib_fp4_batches(&p.a);
	product->tasks = cut->tiles * mma->batch;
	snprintf(name, sizeof(name), "nib_mma_warps_%d%s", cut->b_rows, type);
	status = few_rows_find(device, name,
			       nib_mma_warps_shared_bytes(cut->b_rows, cut->warps),
			       &mma->aligned, err);
	if (status)
		return status;
	snprintf(name, sizeof(name), "nib_mma_warps_any%s", type);
	return few_rows_find(device, name,
			     nib_mma_warps_shared_bytes(ANY_B_ROWS, cut->warps),
			     &mma->any, err);
}

/* Advances the pointers by this number of matrices. */
static void skip_matrices(struct nib_mma_warps_params *p, int64_t count)
{
	const int64_t size = (int64_t)nib_dtype_bytes((enum nib_dtype)p->c_dtype);

	cuda_skip_matrices(&p->a, count);
	cuda_skip_matrices(&p->b, count);
	p->c = nib_offset_bytes(p->c, count * p->c_batch_stride * size);
}

static enum nib_status launch_warps(const struct cuda_device *device,
				    const struct cuda_product_plan *product,
				    const struct nib_run *run, struct nib_error *err)
{
	const struct mma_warps *mma = product->state;
	const struct mma_warps_cut *cut = &mma->cut;
	struct nib_mma_warps_params params = make_params(run->problems);
	const bool any = !cuda_are_pieces(&params.a, &params.b);
	const int b_rows = any ? ANY_B_ROWS : cut->b_rows;
	void *arguments[] = {&params};
	CUlaunchAttribute attributes[2] = {{0}};
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)nib_mma_warps_tiles(params.n, b_rows),
	    .blockDimX = 32 * (unsigned)cut->warps,
	    .sharedMemBytes = (unsigned)nib_mma_warps_shared_bytes(b_rows, cut->warps),
	    .hStream = run->stream,
	    .attrs = attributes,
	};
	enum nib_status status = NIB_STATUS_OK;

	cuda_may_overlap(device, &config);
	for (int64_t done = 0; done < mma->batch && !status;) {
		const int64_t left = mma->batch - done;
		const int64_t count =
		    left < FEW_ROWS_MAX_BATCH ? left : FEW_ROWS_MAX_BATCH;

		config.gridDimY = (unsigned)count;
		status = cuda_launch(device, any ? mma->any : mma->aligned, config,
				     arguments, err);
		skip_matrices(&params, count);
		done += count;
	}
	return status;
}

const struct cuda_product cuda_mma_warps = {plan_warps, launch_warps,
					    cuda_product_free};
