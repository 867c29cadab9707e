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

/* Rows of an expert that a unit computes. */
#define MOE_ROWS 4

/* A kernel, NULL if the problem does not suit it, and what it computes. */
struct variant {
	CUfunction function;
	struct gemv100_cut cut;
};

struct gemv100 {
	/* For rows of 32-byte pieces, and for any alignment. */
	struct variant aligned, any;
	struct nib_gemv100_params params; /* without pointers and cut */
};

int gemv100_kernel_m(int64_t rows, bool is_moe)
{
	if (is_moe && rows > MOE_ROWS)
		rows = MOE_ROWS;
	return rows <= 2 ? 2 : rows <= 4 ? 4 : NIB_GEMV100_MAX_ROWS;
}

/* Slots for the items that the units of a CTA may belong to. */
static int32_t slots_of(const struct gemv100_sizes *sizes,
			const struct gemv100_cut *cut)
{
	const int64_t most = (cut->share + cut->tiles - 1) / cut->tiles + 1;

	return nib_gemv100_slots(nib_gemv100_steps(sizes->k), cut->m,
				 most < sizes->items ? most : sizes->items);
}

struct gemv100_cut gemv100_cut_of(int kernel_m, const struct gemv100_sizes *sizes,
				  int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(sizes->n, sizes->b_is_tiled);
	/* Only the device knows how many units an MoE problem has. */
	const int64_t units = tiles * sizes->items;
	const int32_t steps = nib_gemv100_steps(sizes->k);
	struct gemv100_cut cut = {
	    .m = kernel_m,
	    .tiles = (int32_t)tiles,
	    .ctas = units < multiprocessors ? units : multiprocessors,
	};

	cut.share = (int32_t)(units / cut.ctas);
	cut.rest = (int32_t)(units % cut.ctas);
	cut.unit_warps_log2 = nib_gemv100_unit_warps_log2(
	    (uint32_t)(cut.share + (cut.rest > 0)), steps, cut.m);
	cut.slots = slots_of(sizes, &cut);
	cut.shared_bytes = nib_gemv100_shared_bytes(steps, cut.m, cut.slots);
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

static enum nib_status find_kernel(struct cuda_device *device, const char *suffix,
				   struct variant *variant, struct nib_error *err)
{
	char name[32];

	snprintf(name, sizeof(name), "nib_gemv_%d%s", variant->cut.m, suffix);
	return cuda_kernel(device, name, (int)variant->cut.shared_bytes,
			   &variant->function, err);
}

static enum nib_status find_kernels(struct cuda_device *device, struct gemv100 *g,
				    struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	if (is_aligned(&g->params))
		status = find_kernel(device, "", &g->aligned, err);
	return status ? status : find_kernel(device, "_any", &g->any, err);
}

static void set_sizes(struct nib_gemv100_params *params, const struct nib_problem *p,
		      bool is_moe)
{
	params->c_row_stride = nib_dense_row_stride_elems(&p->c);
	params->c_batch_stride = nib_dense_batch_stride_elems(&p->c);
	params->n = p->b.rows;
	params->k = (int32_t)p->b.k;
	params->steps = nib_gemv100_steps(params->k);
	params->tiles = (int32_t)nib_gemv_tiles(params->n, params->b.is_tiled);
	params->tiles_inverse = UINT32_MAX / (uint32_t)params->tiles;
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

/* What depends on the kernel. */
static void set_cut(struct nib_gemv100_params *params, const struct gemv100_cut *cut)
{
	const int64_t pieces =
	    (int64_t)nib_gemv100_window_steps(params->steps, cut->m) *
	    (NIB_GEMV_STEP / 32);

	params->share = cut->share;
	params->rest = cut->rest;
	params->unit_warps_log2 = cut->unit_warps_log2;
	params->slots = cut->slots;
	params->partial_at = nib_gemv100_partial_at(params->steps, cut->m, cut->slots);
	params->pieces_inverse =
	    pieces ? (uint32_t)((((int64_t)1 << 32) + pieces - 1) / pieces) : 0;
}

static void set_cuts(struct gemv100 *g, bool is_moe, int multiprocessors)
{
	const struct nib_gemv100_params *p = &g->params;
	const struct gemv100_sizes sizes = {p->n, p->k, is_moe ? p->rows : p->matrices,
					    p->b.is_tiled};
	const int m = gemv100_kernel_m(is_moe ? p->rows : p->m, is_moe);

	g->aligned.cut = gemv100_cut_of(m, &sizes, multiprocessors);
	g->any.cut =
	    gemv100_cut_of(m == 2 ? 2 : NIB_GEMV100_MAX_ROWS, &sizes, multiprocessors);
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
	g->params.n = p.b.rows;
	set_pointers(&g->params, &p, NULL);
	set_sizes(&g->params, &p, moe != NULL);
	set_cuts(g, moe != NULL, device->multiprocessors);
	g->params.multiprocessors = device->multiprocessors;
	product->tasks = g->aligned.cut.ctas;
	product->kernel = "vector";
	return find_kernels(device, g, err);
}

static enum nib_status launch_vector(const struct cuda_device *device,
				     const struct cuda_product_plan *product,
				     const struct nib_run *run, struct nib_error *err)
{
	const struct gemv100 *g = product->state;
	const struct nib_problem p = problem_of(run->problems, run->moe);
	const struct variant *variant = &g->aligned;
	struct nib_gemv100_params params = g->params;
	void *arguments[] = {&params};
	CUlaunchAttribute attribute = {0};
	CUlaunchConfig config = {.hStream = run->stream, .attrs = &attribute};

	set_pointers(&params, &p, run->moe);
	if (!variant->function || !is_aligned(&params))
		variant = &g->any;
	set_cut(&params, &variant->cut);
	config.gridDimX = (unsigned)variant->cut.ctas;
	config.blockDimX = (unsigned)NIB_GEMV100_THREADS(variant->cut.m);
	config.sharedMemBytes = (unsigned)variant->cut.shared_bytes;
	cuda_may_overlap(device, &config);
	return cuda_launch(device, variant->function, config, arguments, err);
}

const struct cuda_product sm100_vector = {plan_vector, launch_vector,
					  cuda_product_free};
