/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c - see choose.h.  The mma kernels multiply experts, the vector kernels one
 * matrix by few rows.  Other plans fail with a message, and the build has these kernels
 * only with NIB_CUDA_SM80.
 */
#include "choose.h"

#include "backend/cuda/common/mma.h"
#include "backend/cuda/common/tile_plan.h"
#include "backend/cuda/common/vector.h"
#include "core/error.h"

/* The most rows of A of the products of few rows. */
#define FEW_ROWS 64

static enum nib_status refuse(const struct cuda_device *device, struct nib_error *err)
{
	return nib_fail(err, NIB_STATUS_UNSUPPORTED,
			"%s, %s: this build has no such matrix product for "
			"compute capability %d.%d",
			device->name, device->hardware, device->capability / 10,
			device->capability % 10);
}

static enum nib_status plan_none(struct cuda_device *device,
				 const struct nib_plan *plan,
				 struct cuda_product_plan *product,
				 struct nib_error *err)
{
	(void)plan;
	(void)product;
	return refuse(device, err);
}

static enum nib_status launch_none(const struct cuda_device *device,
				   const struct cuda_product_plan *product,
				   const struct nib_run *run, struct nib_error *err)
{
	(void)product;
	(void)run;
	return refuse(device, err);
}

static const struct cuda_product none = {plan_none, launch_none, cuda_product_free};

/* The first rule that fits computes a matrix, or a batch of them. */
static const struct rule {
	int64_t most_rows; /* of A */
	const struct cuda_product *product;
} rules[] = {
    {.most_rows = FEW_ROWS, .product = &cuda_vector},
    {.most_rows = INT64_MAX, .product = &none},
};

static const struct cuda_product *choose_matrix(const struct nib_problem *p)
{
	const struct rule *rule = rules;

	while (p->a.rows > rule->most_rows)
		rule++;
	return rule->product;
}

struct cuda_choice sm80_choose(const struct nib_plan *plan)
{
	if (plan->is_moe && cuda_mma_can_load(plan->op, &plan->moe))
		return (struct cuda_choice){.product = &cuda_mma};
	if (!plan->is_moe && plan->count == 1 && plan->op != NIB_OP_DUAL_GEMM)
		return (struct cuda_choice){.product = choose_matrix(plan->problems)};
	return (struct cuda_choice){.product = &none};
}

enum nib_status sm80_clusters(struct cuda_device *device,
			      struct nib_tile_device *clusters, struct nib_error *err)
{
	*clusters = (struct nib_tile_device){.costs = &device->costs};
	return refuse(device, err);
}
