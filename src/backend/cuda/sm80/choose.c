/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c - see choose.h.  The mma kernels multiply experts.  Other plans fail with a
 * message, and the build has these kernels only with NIB_CUDA_SM80.
 */
#include "choose.h"

#include "backend/cuda/common/mma.h"
#include "backend/cuda/common/tile_plan.h"
#include "core/error.h"

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

struct cuda_choice sm80_choose(const struct nib_plan *plan)
{
	if (plan->is_moe && cuda_mma_can_load(plan->op, &plan->moe))
		return (struct cuda_choice){.product = &cuda_mma};
	return (struct cuda_choice){.product = &none};
}

enum nib_status sm80_clusters(struct cuda_device *device,
			      struct nib_tile_device *clusters, struct nib_error *err)
{
	*clusters = (struct nib_tile_device){.costs = &device->costs};
	return refuse(device, err);
}
