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

/* Rows of B in the rings of all warps of an SM: enough to keep the memory busy.
 * More made products slower. */
#define ROWS_AT_ONCE 512
/* An SM has four schedulers. */
#define WARPS_STEP 4

/*
 * Tiles of 32 rows balance better; with 64, A is loaded half as often.  32 rows are
 * faster if each SM has at most one such tile, and if there are many tiles.  Between
 * these, 64 rows are faster unless A has few bytes.
 */
int mma_warps_b_rows(int multiprocessors, bool is_dense, int64_t m, int64_t n)
{
	const int64_t large = nib_mma_warps_tiles(n, 64);

	if (nib_mma_warps_tiles(n, 32) <= multiprocessors)
		return 32;
	if (is_dense)
		return large <= 2 * (int64_t)multiprocessors ? 64 : 32;
	return m > 8 && large <= multiprocessors ? 64 : 32;
}

/*
 * A multiple of four warps, if the memory suffices for so many: with other numbers,
 * some schedulers have one warp more than the others.
 */
static int warps_of(const struct cuda_device *device, const struct mma_warps_cut *cut,
		    int64_t k)
{
	const int64_t ctas = divide_up(cut->tiles, device->multiprocessors);
	const int64_t steps = divide_up(k, NIB_MMA_WARPS_STEP);
	const int64_t rings =
	    device->shared_bytes /
	    nib_mma_warps_shared_bytes(cut->rows, cut->b_rows, cut->is_dense, 1);
	int64_t warps = ROWS_AT_ONCE / cut->b_rows / ctas;

	if (warps > NIB_MMA_WARPS_MOST)
		warps = NIB_MMA_WARPS_MOST;
	if (warps > rings / (ctas > 1 ? 2 : 1))
		warps = rings / (ctas > 1 ? 2 : 1);
	warps = warps / WARPS_STEP * WARPS_STEP;
	if (warps < WARPS_STEP)
		warps = rings < WARPS_STEP ? rings : WARPS_STEP;
	return (int)(warps < steps ? warps : steps);
}

struct mma_warps_cut mma_warps_cut(const struct cuda_device *device, bool is_dense,
				   int64_t m, int64_t n, int64_t k)
{
	struct mma_warps_cut cut = {
	    .is_dense = is_dense,
	    .rows = m <= 8 ? 8 : 16,
	    .b_rows = mma_warps_b_rows(device->multiprocessors, is_dense, m, n),
	};

	cut.tiles = nib_mma_warps_tiles(n, cut.b_rows);
	cut.warps = warps_of(device, &cut, k);
	return cut;
}

/* The shared memory of a CTA whose tile has so many rows of B. */
static int32_t shared_bytes(const struct mma_warps_cut *cut, int b_rows)
{
	return nib_mma_warps_shared_bytes(cut->rows, b_rows, cut->is_dense, cut->warps);
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
	mma->cut = mma_warps_cut(device, p.activations == NIB_ACTIVATIONS_DENSE,
				 p.a.rows, p.b.rows, p.b.k);
	mma->batch = nib_fp4_batches(&p.a);
	product->tasks = cut->tiles * mma->batch;
	snprintf(name, sizeof(name), "nib_mma_warps_%d_%d%s", cut->rows, cut->b_rows,
		 type);
	status = few_rows_find(device, name, shared_bytes(cut, cut->b_rows),
			       &mma->aligned, err);
	if (status)
		return status;
	snprintf(name, sizeof(name), "nib_mma_warps_%d_any%s", cut->rows, type);
	return few_rows_find(device, name, shared_bytes(cut, ANY_B_ROWS), &mma->any,
			     err);
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
	    .sharedMemBytes = (unsigned)shared_bytes(cut, b_rows),
	    .hStream = run->stream,
	    .attrs = attributes,
	};
	enum nib_status status = NIB_STATUS_OK;

	cuda_may_overlap(device, &config);
	params.b_is_constant = run->problems->b_packed != NULL;
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
