/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.c - products of few rows on Blackwell; see gemv.h. */
#include "gemv.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/gemm_common.h"
#include "backend/cuda/common/operand.h"
#include "backend/cuda/common/pack.h"
#include "format/view.h"

/* Steps of k from which eight warps may share a tile. */
#define EIGHT_WARPS_STEPS 8

/* Rows of an expert that a unit computes. */
#define MOE_ROWS 4

struct gemv100 {
	/* The kernels for rows of 32-byte pieces (NULL if the rows are not), and for
	 * any alignment. */
	CUfunction aligned, any;
	struct nib_gemv100_params params; /* without pointers */
	struct gemv100_cut cut;
	int any_m;
};

static int kernel_m(int64_t rows)
{
	return rows <= 2 ? 2 : rows <= 4 ? 4 : NIB_GEMV100_MAX_ROWS;
}

/*
 * The order of a sum depends only on n and k: neither rows nor batches change
 * a bit.
 */
static int tile_warps_log2(int64_t tiles, int64_t k, int multiprocessors)
{
	const bool is_small = tiles <= multiprocessors;

	return is_small && k >= EIGHT_WARPS_STEPS * NIB_GEMV_STEP ? 3 : 2;
}

struct gemv100_cut gemv100_cut(int64_t m, int64_t n, int64_t k, int64_t matrices,
			       int64_t rows, bool b_is_tiled, int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(n, b_is_tiled);
	struct gemv100_cut cut = {
	    .m = kernel_m(m		    ? m
			  : rows < MOE_ROWS ? rows
					    : MOE_ROWS),
	    .tiles = (int32_t)tiles,
	    .tile_warps_log2 = tile_warps_log2(tiles, k, multiprocessors),
	};

	/* Only the device knows how many units an MoE problem has. */
	if (m)
		cut.ctas = nib_gemv100_ctas((uint32_t)(tiles * matrices), cut.m,
					    cut.tile_warps_log2, multiprocessors);
	else
		cut.ctas =
		    tiles * rows < multiprocessors ? tiles * rows : multiprocessors;
	cut.shared_bytes = nib_gemv100_shared_bytes(k, cut.m);
	return cut;
}

/* Whether the number of tiles, and that number plus one, fit in 31 bits. */
static bool can_count(const struct nib_fp4 *b, int64_t items)
{
	const int64_t tiles = nib_gemv_tiles(b->rows, true);

	return b->rows >= 1 && b->rows <= INT32_MAX - 128 && items >= 1 &&
	       items <= INT32_MAX / tiles - 2;
}

bool gemv100_takes(enum nib_op op, const struct nib_problem *p)
{
	return op != NIB_OP_DUAL_GEMM && p->a.rows >= 1 &&
	       p->a.rows <= NIB_GEMV100_MAX_ROWS &&
	       can_count(&p->b, nib_fp4_batches(&p->a));
}

bool gemv100_takes_moe(enum nib_op op, const struct nib_moe_problem *moe)
{
	const int64_t rows = moe->problem.a.rows,
		      experts = nib_fp4_batches(&moe->problem.b);

	return op != NIB_OP_DUAL_GEMM && rows >= 1 && rows <= NIB_GEMV100_ITEMS &&
	       (rows <= MOE_ROWS || rows <= experts) && experts < 1 << 24 &&
	       can_count(&moe->problem.b, rows);
}

/* The problem with its weights as views. */
static struct nib_problem problem_of(const struct nib_problem *problems,
				     const struct nib_moe_problem *moe)
{
	return cuda_unpacked(moe ? &moe->problem : problems);
}

bool gemv100_takes_plan(const struct nib_plan *plan)
{
	struct nib_problem p;

	if (plan->is_moe) {
		struct nib_moe_problem moe = plan->moe;

		moe.problem = cuda_unpacked(&moe.problem);
		return gemv100_takes_moe(plan->op, &moe);
	}
	if (plan->count != 1)
		return false;
	p = problem_of(plan->problems, NULL);
	return gemv100_takes(plan->op, &p);
}

/* Whether rows are of 32-byte pieces.  NULL pointers have every alignment. */
static bool is_aligned(const struct nib_gemv100_params *p)
{
	const uint64_t codes = (uintptr_t)p->b.codes | (uint64_t)p->b.batch_stride |
			       (uint64_t)(p->n > 1 ? p->b.row_stride : 0);

	return codes % 32 == 0 && p->b.scales_align >= 4 && p->k % 64 == 0;
}

/* Sets the pointers, and the alignment of pointers and strides. */
static void set_pointers(struct nib_gemv100_params *params, const struct nib_problem *p,
			 const struct nib_moe_problem *moe)
{
	const int64_t batches = moe ? nib_fp4_batches(&p->b) : nib_fp4_batches(&p->a);

	params->a = cuda_operand(&p->a, batches);
	params->b = cuda_operand(&p->b, batches);
	params->alpha = p->alpha;
	params->c = p->c.data;
	if (moe) {
		params->row_offsets = moe->row_offsets;
		params->scale_rows = moe->scale_rows;
		params->scale_rows_total = (int32_t)moe->scale_rows_total;
	}
}

static enum nib_status find_kernels(struct cuda_device *device, struct gemv100 *g,
				    struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;
	char name[32];

	g->any_m = g->cut.m == 2 ? 2 : NIB_GEMV100_MAX_ROWS;
	if (is_aligned(&g->params)) {
		snprintf(name, sizeof(name), "nib_gemv_%d", g->cut.m);
		status = cuda_kernel(device, name, (int)g->cut.shared_bytes,
				     &g->aligned, err);
	}
	snprintf(name, sizeof(name), "nib_gemv_%d_any", g->any_m);
	return status
		   ? status
		   : cuda_kernel(device, name,
				 (int)nib_gemv100_shared_bytes(g->params.k, g->any_m),
				 &g->any, err);
}

static void set_sizes(struct nib_gemv100_params *params, const struct nib_problem *p,
		      bool is_moe)
{
	params->c_row_stride = nib_dense_row_stride_elems(&p->c);
	params->c_batch_stride = nib_dense_batch_stride_elems(&p->c);
	params->n = p->b.rows;
	params->k = (int32_t)p->b.k;
	params->c_dtype = (int32_t)p->c.dtype;
	if (is_moe) {
		params->rows = (int32_t)p->a.rows;
		params->matrices = (int32_t)nib_fp4_batches(&p->b);
		/* The rows of all experts are rows of one matrix. */
		params->c_batch_stride = 0;
	} else {
		params->m = (int32_t)p->a.rows;
		params->matrices = (int32_t)nib_fp4_batches(&p->a);
	}
}

static enum nib_status plan_vector(struct cuda_device *device,
				   const struct nib_plan *plan,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	const struct nib_moe_problem *moe = plan->is_moe ? &plan->moe : NULL;
	struct nib_problem p = problem_of(plan->problems, moe);
	struct gemv100 *g = calloc(1, sizeof(*g));

	if (!g)
		return cuda_no_memory(sizeof(*g), err);
	product->state = g;
	p.a.codes = p.a.scales = p.b.codes = p.b.scales = NULL;
	p.c.data = NULL;
	p.alpha = NULL;
	set_sizes(&g->params, &p, moe != NULL);
	set_pointers(&g->params, &p, NULL);
	g->cut =
	    gemv100_cut(g->params.m, g->params.n, g->params.k, g->params.matrices,
			g->params.rows, g->params.b.is_tiled, device->multiprocessors);
	g->params.tiles = g->cut.tiles;
	g->params.tile_warps_log2 = g->cut.tile_warps_log2;
	g->params.multiprocessors = device->multiprocessors;
	product->tasks = g->cut.ctas;
	product->kernel = "vector";
	return find_kernels(device, g, err);
}

static enum nib_status launch_vector(const struct cuda_device *device,
				     const struct cuda_product_plan *product,
				     const struct nib_run *run, struct nib_error *err)
{
	const struct gemv100 *g = product->state;
	const struct nib_problem p = problem_of(run->problems, run->moe);
	struct nib_gemv100_params params = g->params;
	void *arguments[] = {&params};
	CUlaunchAttribute attribute = {0};
	CUlaunchConfig config = {.hStream = run->stream, .attrs = &attribute};
	CUfunction function = g->aligned;
	int m = g->cut.m;

	set_pointers(&params, &p, run->moe);
	if (!function || !is_aligned(&params)) {
		function = g->any;
		m = g->any_m;
	}
	config.gridDimX = (unsigned)g->cut.ctas;
	config.blockDimX = (unsigned)NIB_GEMV100_THREADS(m);
	config.sharedMemBytes = (unsigned)nib_gemv100_shared_bytes(params.k, m);
	cuda_may_overlap(device, &config);
	return cuda_launch(device, function, config, arguments, err);
}

const struct cuda_product sm100_vector = {plan_vector, launch_vector,
					  cuda_product_free};
