/* SPDX-License-Identifier: Apache-2.0 */
/* mma.c - see mma.h. */
#include "mma.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/kernels/common/mma_params.h"
#include "few_rows.h"
#include "format/view.h"
#include "gemm_common.h"
#include "operand.h"
#include "pack.h"

/* What a plan keeps. */
struct mma_plan {
	CUfunction function;
	int matrices;
	int64_t ctas;
	int32_t shared_bytes;
};

/* ---- the variant --------------------------------------------------------- */

struct mma_variant mma_variant(int64_t rows, int64_t experts, int64_t k, bool is_dual,
			       bool has_four)
{
	if (rows > 8 * experts)
		return (struct mma_variant){32, 3, has_four ? 4 : 3};
	if (2 * rows > 3 * experts)
		return (struct mma_variant){16, 3, 4};
	if (is_dual || k > MMA_LONG_K)
		return (struct mma_variant){8, 4, 4};
	return (struct mma_variant){8, 3, 5};
}

/* ---- the product --------------------------------------------------------- */

static struct nib_mma_params make_params(const struct nib_moe_problem *moe)
{
	const struct nib_problem p = cuda_unpacked(&moe->problem);

	return (struct nib_mma_params){
	    .a = cuda_a_operand(&p, 1),
	    .b = cuda_operand(&p.b, nib_fp4_batches(&p.b)),
	    .b2 = cuda_operand(&p.b2, nib_fp4_batches(&p.b2)),
	    .alpha = p.alpha,
	    .alpha2 = p.alpha2,
	    .c = p.c.data,
	    .c_row_stride = nib_dense_row_stride_elems(&p.c),
	    .n = (int32_t)p.b.rows,
	    .k = (int32_t)p.b.k,
	    .c_dtype = (int32_t)p.c.dtype,
	    .experts = (int32_t)nib_fp4_batches(&p.b),
	    .rows = (int32_t)p.a.rows,
	    .scale_rows_total = (int32_t)moe->scale_rows_total,
	    .row_offsets = moe->row_offsets,
	    .scale_rows = moe->scale_rows,
	};
}

static bool can_load_weights(const struct nib_gemv_operand *b)
{
	return b->codes_align == 16 && b->scales_align == 16 && b->is_tiled &&
	       b->row_stride <= INT32_MAX;
}

bool cuda_mma_can_load(enum nib_op op, const struct nib_moe_problem *moe)
{
	struct nib_moe_problem shape = *moe;
	struct nib_problem *p = &shape.problem;
	struct nib_mma_params params;
	int64_t units;

	*p = cuda_unpacked(p);
	p->a.codes = p->a.scales = p->b.codes = p->b.scales = NULL;
	p->b2.codes = p->b2.scales = NULL;
	p->x.data = NULL;
	if (p->b.k % NIB_MMA_K_ALIGN || p->b.k < 1 || p->b.rows < 1 || p->a.rows < 1 ||
	    nib_fp4_batches(&p->b) > NIB_MMA_EXPERTS)
		return false;
	params = make_params(&shape);
	/* The most units of rows of A, even if the offsets do not ascend. */
	units = (params.rows / 8 + 1) * (int64_t)params.experts;
	return params.a.codes_align == 16 && params.a.scales_align >= 4 &&
	       can_load_weights(&params.b) &&
	       (op != NIB_OP_DUAL_GEMM || can_load_weights(&params.b2)) &&
	       p->b.rows <= INT32_MAX - NIB_MMA_TILE &&
	       nib_mma_tiles(p->b.rows, 2) <= INT32_MAX / units &&
	       params.a.row_stride <= INT32_MAX &&
	       params.a.scale_row_stride <= INT32_MAX / 32 &&
	       params.c_row_stride <= INT32_MAX;
}

static bool is_f16(const struct nib_problem *p)
{
	return p->activations == NIB_ACTIVATIONS_DENSE && p->x.dtype == NIB_DTYPE_FP16;
}

/* Whether registers suffice for four CTAs of 32 rows; NVFP4 needs the conversions of
 * e4m3 that GPUs before sm_89 lack. */
static bool has_four_ctas(const struct cuda_device *device, const struct nib_problem *p)
{
	return is_f16(p) || (p->activations != NIB_ACTIVATIONS_DENSE &&
			     device->arch->capabilities[0] >= 90);
}

/*
 * The most CTAs on an SM.  Five are faster than four only where the previous kernel
 * overlaps: 128 rows, 128 experts of 1536 x 2048 take 60.3 and 59.0 us on an H100 with
 * code of 8.9, experts of 2048 x 768 36.2 and 35.0.
 */
static int most_ctas(const struct cuda_device *device, const struct mma_variant *v)
{
	return device->arch->capabilities[0] < 90 && v->ctas > 4 ? 4 : v->ctas;
}

static enum nib_status find(struct cuda_device *device, const struct nib_problem *p,
			    bool is_dual, const struct mma_variant *v,
			    struct mma_plan *mma, struct nib_error *err)
{
	char name[48];

	snprintf(name, sizeof(name), "nib_mma_%s_%d_%d%s", is_dual ? "dual" : "experts",
		 v->rows, v->stages, few_rows_type(p->activations, p->x.dtype));
	return few_rows_find(device, name, mma->shared_bytes, &mma->function, err);
}

static enum nib_status plan_mma(struct cuda_device *device, const struct nib_plan *plan,
				struct cuda_product_plan *product,
				struct nib_error *err)
{
	const struct nib_problem p = cuda_unpacked(&plan->moe.problem);
	const int64_t experts = nib_fp4_batches(&p.b);
	const bool is_dual = plan->op == NIB_OP_DUAL_GEMM;
	const struct mma_variant v =
	    mma_variant(p.a.rows, experts, p.b.k, is_dual, has_four_ctas(device, &p));
	struct mma_plan *mma = calloc(1, sizeof(*mma));
	int64_t units, most;

	product->state = mma;
	product->kernel = "mma";
	if (!mma)
		return cuda_no_memory(sizeof(*mma), err);
	mma->shared_bytes = nib_mma_shared_bytes(v.rows, v.stages, (int)experts);
	/* At most one CTA for each half tile, or tile of a dual product. */
	units = nib_mma_tiles(p.b.rows, 2) * p.a.rows;
	most = (int64_t)device->multiprocessors *
	       cuda_resident_ctas(device, mma->shared_bytes, most_ctas(device, &v));
	mma->ctas = units < most ? units : most;
	mma->matrices = is_dual ? 2 : 1;
	product->tasks = mma->ctas;
	return find(device, &p, is_dual, &v, mma, err);
}

static enum nib_status launch_mma(const struct cuda_device *device,
				  const struct cuda_product_plan *product,
				  const struct nib_run *run, struct nib_error *err)
{
	const struct mma_plan *mma = product->state;
	struct nib_mma_params params = make_params(run->moe);
	void *arguments[] = {&params};
	CUlaunchAttribute attributes[2] = {{0}};
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)mma->ctas,
	    .blockDimX = NIB_MMA_THREADS,
	    .sharedMemBytes = (unsigned)mma->shared_bytes,
	    .hStream = run->stream,
	    .attrs = attributes,
	};

	params.tiles = (int32_t)nib_mma_tiles(params.n, mma->matrices);
	params.multiprocessors = device->multiprocessors;
	cuda_may_overlap(device, &config);
	return cuda_launch(device, mma->function, config, arguments, err);
}

const struct cuda_product cuda_mma = {plan_mma, launch_mma, cuda_product_free};
