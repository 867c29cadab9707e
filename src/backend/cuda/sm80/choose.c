/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - the table of the products of Ampere and Ada; see choose.h. */
#include "choose.h"

#include "backend/cuda/common/mma.h"
#include "backend/cuda/common/mma_matrix.h"
#include "backend/cuda/common/mma_warps.h"
#include "backend/cuda/common/vector.h"
#include "backend/cuda/kernels/common/mma_matrix_params.h"
#include "format/view.h"
#include "gemm.h"

/* Experts with up to so many rows on average are multiplied by the mma kernels. */
#define MMA_FEW_ROWS 32
/* Rows of A for which the images have kernels of mma_warps.cuh; with more,
 * mma_matrix.cuh is as fast. */
#define MMA_WARPS_ROWS 8
/* Rows of A of any alignment, which Hopper's kernels support as well. */
#define MANY_ROWS  64
#define MANY_NVFP4 48
/* 32 rows of B for each of 64 CTAs. */
#define MANY_COLUMNS 2048

/* Whether the kernels in tiles cannot load A: rows of fp16 or bf16 that are not pieces
 * of 16 bytes. */
static bool has_unaligned_rows(const struct nib_problem *p)
{
	const int64_t row = nib_dense_row_stride_elems(&p->x);
	const int64_t batch =
	    nib_dense_batches(&p->x) > 1 ? nib_dense_batch_stride_elems(&p->x) : 0;

	return p->activations == NIB_ACTIVATIONS_DENSE && (row | batch) % 8;
}

/*
 * Whether the mma kernels whose warps divide k multiply fewer than five rows faster
 * than the vector kernels do: if A is dense, and tiles of B occupy half of a GPU's SMs.
 * H100, rows x n x k: 1 x 8192 x 8192 17.4 us, 19.9 by the vector kernel; 4 x 4096 x
 * 4096 7.1 and 10.6; 1 x 1024 x 4096 10.2 and 5.7.
 */
static bool fits_dense_warps(const struct nib_problem *p)
{
	return p->activations == NIB_ACTIVATIONS_DENSE && p->c.cols >= MANY_COLUMNS &&
	       cuda_mma_warps_fits(p);
}

/*
 * Whether the mma kernels with split-k multiply A.  Each of their tiles converts all of
 * A of NVFP4, so that 64 rows of it are faster in tiles, which convert it before: 64 x
 * 8192 x 8192 takes 48 us on an H100, by these kernels 54.
 */
static bool fits_matrix(const struct nib_problem *p)
{
	return (p->activations == NIB_ACTIVATIONS_DENSE || p->a.rows <= MANY_NVFP4) &&
	       cuda_mma_matrix_fits(p);
}

/*
 * The first rule that fits computes a matrix, or a batch of them.  The choice affects
 * bits, so it depends on sizes only.
 */
static const struct rule {
	int64_t most_rows;			   /* of A */
	bool (*fits)(const struct nib_problem *p); /* NULL: any size */
	const struct cuda_product *product;
} rules[] = {
    {NIB_GEMV_MAX_ROWS, fits_dense_warps, &cuda_mma_warps},
    {.most_rows = NIB_GEMV_MAX_ROWS, .product = &cuda_vector},
    {MMA_WARPS_ROWS, cuda_mma_warps_fits, &cuda_mma_warps},
    {NIB_MMA_MATRIX_ROWS, fits_matrix, &cuda_mma_matrix},
    {MANY_ROWS, has_unaligned_rows, &cuda_vector},
    {.most_rows = INT64_MAX, .product = &sm80_tiles},
};

static const struct cuda_product *choose_matrix(const struct nib_problem *p)
{
	const struct rule *rule = rules;

	while (p->a.rows > rule->most_rows || (rule->fits && !rule->fits(p)))
		rule++;
	return rule->product;
}

struct cuda_choice sm80_choose(const struct nib_plan *plan)
{
	if (plan->is_moe && plan->moe.problem.a.rows <= MMA_FEW_ROWS * plan->count &&
	    cuda_mma_can_load(plan->op, &plan->moe))
		return (struct cuda_choice){.product = &cuda_mma};
	if (!plan->is_moe && plan->count == 1 && plan->op != NIB_OP_DUAL_GEMM &&
	    plan->problems->c.rows > 0 && plan->problems->c.cols > 0)
		return (struct cuda_choice){.product = choose_matrix(plan->problems)};
	return (struct cuda_choice){.product = &sm80_tiles};
}
