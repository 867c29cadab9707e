/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - the table of the products of Ampere and Ada; see choose.h. */
#include "choose.h"

#include "backend/cuda/common/mma.h"
#include "backend/cuda/common/mma_matrix.h"
#include "backend/cuda/common/vector.h"
#include "backend/cuda/kernels/common/mma_matrix_params.h"
#include "gemm.h"

/* Experts with up to so many rows on average are multiplied by the mma kernels. */
#define MMA_FEW_ROWS 32

/*
 * The first rule that fits computes a matrix, or a batch of them.  The choice affects
 * bits, so it depends on sizes only.
 */
static const struct rule {
	int64_t most_rows;			   /* of A */
	bool (*fits)(const struct nib_problem *p); /* NULL: any size */
	const struct cuda_product *product;
} rules[] = {
    {.most_rows = NIB_GEMV_MAX_ROWS, .product = &cuda_vector},
    {NIB_MMA_MATRIX_ROWS, cuda_mma_matrix_fits, &cuda_mma_matrix},
    {.most_rows = NIB_MMA_MATRIX_ROWS, .product = &cuda_vector},
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
