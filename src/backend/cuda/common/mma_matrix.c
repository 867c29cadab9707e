/* SPDX-License-Identifier: Apache-2.0 */
/* mma_matrix.c - see mma_matrix.h. */
#include "mma_matrix.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/kernels/common/mma_matrix_params.h"
#include "few_rows.h"
#include "format/view.h"
#include "gemm_common.h"
#include "operand.h"
#include "pack.h"

/* Workspaces of a plan whose runs need not clear the counters of tiles. */
#define WORKSPACES 8

/* What a plan keeps. */
struct mma_matrix {
	CUfunction aligned, any;
	struct mma_matrix_cut cut;
	int64_t batch;
	int32_t shared_bytes, any_shared_bytes;
	size_t partial_bytes; /* of the workspace; counters follow */
	/*
	 * Counters that are 0 between launches, which reset them: a set for each of the
	 * first workspaces that runs use.  Runs with the same workspace do not overlap.
	 */
	CUdeviceptr counters;
	_Atomic(void *) owners[WORKSPACES];
};

/* ---- the cut ------------------------------------------------------------- */

/* The variants; groups: that the registers of an SM suffice for. */
static const struct variant {
	int rows, stages, groups;
} variants[] = {{16, 3, 4}, {32, 3, 3}, {48, 3, 3}, {64, 3, 2}};
/* Those for any alignment, which have one group for the steps of all. */
static const struct variant any_variants[] = {{32, 2, 1}, {64, 2, 1}};

static const struct variant *variant_of(const struct variant *v, int64_t m)
{
	while (v->rows < m)
		v++;
	return v;
}

/* Groups that are resident on an SM. */
static int resident_groups(const struct cuda_device *device, const struct variant *v)
{
	return cuda_resident_ctas(
	    device, nib_mma_matrix_shared_bytes(v->rows, v->stages, 1), v->groups);
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
 *   a microsecond between CTAs of an SM that are not resident at once
 *   the wait for the last slice, 2 microseconds, and its sums, which the CTAs store and
 *   the last one loads
 */
static int64_t cost_of(const struct cuda_device *device, const struct variant *v,
		       int64_t m, int64_t steps, const struct mma_matrix_cut *cut)
{
	const int64_t rate = bytes_per_us(device);
	const int64_t slices = cut->slices, groups = cut->groups;
	const int64_t ctas = divide_up(cut->tiles * slices, device->multiprocessors);
	const int64_t resident = resident_groups(device, v) / groups;
	const int64_t at_once = ctas < resident ? ctas : resident;
	const int64_t requested =
	    at_once * groups * (v->stages - 1) * NIB_MMA_STAGE_BYTES;
	const int64_t needed = rate + rate / 2;
	const int64_t longest = divide_up(divide_up(steps, slices), groups) * groups;
	const int64_t load = ctas * longest * NIB_MMA_STAGE_BYTES;
	int64_t cost = requested < needed ? load * needed / requested : load;

	cost += (divide_up(ctas, resident) - 1) * rate;
	if (slices > 1)
		cost += 2 * rate + (ctas + slices) * nib_mma_partial_bytes((int)m) / 2;
	return cost;
}

struct mma_matrix_cut mma_matrix_cut(const struct cuda_device *device, int64_t m,
				     int64_t n, int64_t k)
{
	const struct variant *v = variant_of(variants, m);
	const int64_t steps = divide_up(k, NIB_MMA_STEP);
	const int groups = resident_groups(device, v);
	struct mma_matrix_cut cut = {v->rows, v->stages, groups, nib_mma_tiles(n, 1),
				     1};
	const int64_t most = (int64_t)groups * device->multiprocessors;
	struct mma_matrix_cut best = cut;
	int64_t least = INT64_MAX;

	for (; cut.groups > 0; cut.groups--) {
		for (int64_t slices = 1;
		     slices <= steps &&
		     (slices == 1 || cut.tiles * slices * cut.groups <= most);
		     slices++) {
			int64_t cost;

			cut.slices = (int)slices;
			cost = cost_of(device, v, m, steps, &cut);
			if (cost < least) {
				least = cost;
				best = cut;
			}
		}
	}
	return best;
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

/* The counters of all tiles, or 0: there are none. */
static size_t counter_bytes(const struct mma_matrix *mma)
{
	return mma->cut.slices == 1
		   ? 0
		   : (size_t)(mma->cut.tiles * mma->batch) * sizeof(uint32_t);
}

/* Allocates the counters of WORKSPACES workspaces, 0. */
static enum nib_status new_counters(const struct cuda_device *device,
				    struct mma_matrix *mma, struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	const size_t bytes = WORKSPACES * counter_bytes(mma);
	void *zeros = bytes ? calloc(1, bytes) : NULL;
	CUresult result;

	if (!bytes)
		return NIB_STATUS_OK;
	if (!zeros)
		return cuda_no_memory(bytes, err);
	result = cuda_memory_alloc(cu, &mma->counters, bytes);
	if (!result)
		result =
		    cu->cuMemcpy(mma->counters, (CUdeviceptr)(uintptr_t)zeros, bytes);
	/* A copy from pageable memory may return before the data has arrived. */
	if (!result)
		result = cu->cuStreamSynchronize(NULL);
	free(zeros);
	return result ? cuda_fail(cu, result, device->name, err) : NIB_STATUS_OK;
}

static void free_matrix(struct nib_device *device, struct cuda_product_plan *product)
{
	struct mma_matrix *mma = product->state;

	if (mma && mma->counters)
		cuda_free(device, (void *)(uintptr_t)mma->counters);
	cuda_product_free(device, product);
}

static enum nib_status find(struct cuda_device *device, struct mma_matrix *mma,
			    const struct nib_problem *p, struct nib_error *err)
{
	const struct variant *any = variant_of(any_variants, mma->cut.rows);
	const char *type = few_rows_type(p->activations, p->x.dtype);
	enum nib_status status;
	char name[48];

	mma->shared_bytes = nib_mma_matrix_shared_bytes(mma->cut.rows, mma->cut.stages,
							mma->cut.groups);
	mma->any_shared_bytes = nib_mma_matrix_shared_bytes(any->rows, any->stages, 1) +
				nib_mma_partial_bytes(any->rows);
	snprintf(name, sizeof(name), "nib_mma_matrix_%d%s", mma->cut.rows, type);
	status = few_rows_find(device, name, mma->shared_bytes, &mma->aligned, err);
	if (status)
		return status;
	snprintf(name, sizeof(name), "nib_mma_matrix_any_%d%s", any->rows, type);
	return few_rows_find(device, name, mma->any_shared_bytes, &mma->any, err);
}

static enum nib_status plan_matrix(struct cuda_device *device,
				   const struct nib_plan *plan,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	const struct nib_problem p = cuda_unpacked(plan->problems);
	struct mma_matrix *mma = calloc(1, sizeof(*mma));
	int64_t ctas;
	enum nib_status status;

	product->state = mma;
	product->kernel = "mma";
	if (!mma)
		return cuda_no_memory(sizeof(*mma), err);
	mma->cut = mma_matrix_cut(device, p.a.rows, p.b.rows, p.b.k);
	mma->batch = nib_fp4_batches(&p.a);
	ctas = mma->cut.tiles * mma->cut.slices * mma->batch;
	product->tasks = ctas;
	if (mma->cut.slices > 1) {
		mma->partial_bytes =
		    (size_t)ctas * (size_t)nib_mma_partial_bytes((int)p.a.rows);
		product->workspace_bytes = mma->partial_bytes + counter_bytes(mma);
	}
	status = find(device, mma, &p, err);
	return status ? status : new_counters(device, mma, err);
}

/*
 * The counters of a run, which are 0: those of its workspace, else those in the
 * workspace, which are cleared.
 */
static enum nib_status find_counters(const struct cuda_device *device,
				     struct mma_matrix *mma, const struct nib_run *run,
				     uint32_t **counters, struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	const size_t bytes = counter_bytes(mma);
	CUresult result;

	for (int i = 0; i < WORKSPACES; i++) {
		void *owner = NULL;

		if (!atomic_compare_exchange_strong(&mma->owners[i], &owner,
						    run->workspace) &&
		    owner != run->workspace)
			continue;
		*counters = (uint32_t *)(uintptr_t)(mma->counters + (size_t)i * bytes);
		return NIB_STATUS_OK;
	}
	*counters = (uint32_t *)((uint8_t *)run->workspace + mma->partial_bytes);
	result = cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)*counters, 0, bytes,
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
	    tiles * params->slices * (nib_mma_partial_bytes(p->rows) / 4);
	params->arrivals += tiles;
}

static enum nib_status launch_matrix(const struct cuda_device *device,
				     const struct cuda_product_plan *product,
				     const struct nib_run *run, struct nib_error *err)
{
	struct mma_matrix *mma = product->state;
	struct nib_mma_matrix_params params = make_params(run->problems);
	const bool any = !cuda_are_pieces(&params.p.a, &params.p.b);
	void *arguments[] = {&params};
	CUlaunchAttribute attributes[2] = {{0}};
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)(mma->cut.tiles * mma->cut.slices),
	    .blockDimX = NIB_MMA_THREADS,
	    .blockDimY = any ? 1 : (unsigned)mma->cut.groups,
	    .sharedMemBytes =
		(unsigned)(any ? mma->any_shared_bytes : mma->shared_bytes),
	    .hStream = run->stream,
	    .attrs = attributes,
	};
	enum nib_status status = NIB_STATUS_OK;

	params.slices = mma->cut.slices;
	params.groups = mma->cut.groups;
	if (params.slices > 1) {
		params.partials = run->workspace;
		status = find_counters(device, mma, run, &params.arrivals, err);
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

const struct cuda_product cuda_mma_matrix = {plan_matrix, launch_matrix, free_matrix};
