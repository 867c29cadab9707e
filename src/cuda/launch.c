/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - packed weights, plans and runs of the CUDA room. */
#include <stdlib.h>

#include "api/error.h"
#include "cuda.h"

static enum nib_status not_yet(const struct nib_device *device,
			       struct nib_error *err)
{
	return nib_fail(err, NIB_UNSUPPORTED,
			"%s: this version multiplies on 'cpu' alone",
			cuda_device(device)->name);
}

enum nib_status cuda_pack(struct nib_device *device, const struct nib_nvfp4 *b,
			  struct nib_packed **packed, struct nib_error *err)
{
	(void)b;
	(void)packed;
	return not_yet(device, err);
}

void cuda_packed_free(struct nib_packed *packed)
{
	free(packed);
}

struct nib_plan *cuda_plan_new(void)
{
	return calloc(1, sizeof(struct nib_plan));
}

enum nib_status cuda_plan(struct nib_plan *plan, struct nib_error *err)
{
	return not_yet(plan->device, err);
}

void cuda_plan_free(struct nib_plan *plan)
{
	free(plan);
}

enum nib_status cuda_run(struct nib_plan *plan,
			 const struct nib_problem *problems,
			 const struct nib_run_options *options,
			 struct nib_error *err)
{
	(void)problems;
	(void)options;
	return not_yet(plan->device, err);
}

enum nib_status cuda_run_moe(struct nib_plan *plan,
			     const struct nib_moe_problem *moe,
			     const struct nib_run_options *options,
			     struct nib_error *err)
{
	(void)moe;
	(void)options;
	return not_yet(plan->device, err);
}
