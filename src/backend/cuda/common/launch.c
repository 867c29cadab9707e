/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c - plans and runs of the CUDA backend.  The architecture chooses the
 * product (arch.h), which plans and launches itself.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arch.h"
#include "backend/cuda/kernels/common/gemm_tile.h"
#include "core/error.h"
#include "cuda.h"

struct cuda_plan {
	struct nib_plan base;
	void *known_workspace; /* the last one of a caller that was checked */
	struct cuda_choice choice;
	struct cuda_product_plan product;
};

static struct cuda_plan *cuda_plan_of(struct nib_plan *plan)
{
	return (struct cuda_plan *)plan;
}

struct nib_plan *cuda_plan_new(void)
{
	struct cuda_plan *plan = calloc(1, sizeof(*plan));

	return (struct nib_plan *)plan;
}

void cuda_product_free(struct nib_device *device, struct cuda_product_plan *product)
{
	(void)device;
	free(product->state);
}

/* Rows of B of a tile of a single CTA. */
#define WIDE_TILE_N (NIB_GEMM_PAIR * NIB_TILE_N)

static void explain(struct cuda_plan *p, const struct cuda_device *device)
{
	struct nib_plan *plan = &p->base;
	const struct cuda_product_plan *product = &p->product;
	const char *what = plan->op == NIB_OP_DUAL_GEMM ? "dual GEMM" : "GEMM";
	const char *reason = p->choice.reason;
	const bool has_pairs = !device->arch->has_wide_tiles;
	char launches[80] = "1 launch";

	/* Limited by the kernel's parameters, or by the L2 for the rows of a batch. */
	if (product->launches > 1)
		snprintf(launches, sizeof(launches),
			 "%lld launches, of %d matrices and one type at most,",
			 (long long)product->launches, product->most_matrices);
	if (product->kernel)
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "%s kernel on %s: %lld blocks read the weights%s%s%s%s",
			 product->kernel, device->name, (long long)product->tasks,
			 plan->is_moe ? "" : " once", reason ? " (" : "",
			 reason ? reason : "", reason ? ")" : "");
	else if (product->launches == 0)
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "nothing to compute");
	else
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "%s on %s: tiles of %d rows of B x up to %d rows of A "
			 "on %d %s, k in %d slice%s, %s of %s",
			 what, device->name, has_pairs ? NIB_TILE_N : WIDE_TILE_N,
			 product->tile_m, product->clusters,
			 has_pairs ? "clusters" : "CTAs", product->k_slices,
			 product->k_slices == 1 ? "" : "s", launches, product->kernels);
}

/* Whether the architecture's kernels support this A. */
static enum nib_status check_activations(const struct nib_plan *plan,
					 const struct cuda_arch *arch,
					 struct nib_error *err)
{
	const enum nib_activations kind = nib_plan_activations(plan);

	if (kind == NIB_ACTIVATIONS_NVFP4)
		return NIB_STATUS_OK;
	if (!arch->takes_dense)
		return nib_no_activations(plan, "must be NVFP4 on this GPU", err);
	if (kind != NIB_ACTIVATIONS_DENSE || nib_plan_x_dtype(plan) == NIB_DTYPE_FP32)
		return nib_no_activations(
		    plan,
		    "must be NVFP4, or dense with x of fp16 or bf16, on "
		    "a GPU",
		    err);
	return NIB_STATUS_OK;
}

enum nib_status cuda_plan(struct nib_plan *plan, struct nib_error *err)
{
	struct cuda_plan *p = cuda_plan_of(plan);
	struct cuda_device *device = cuda_device(plan->device);
	enum nib_status status = check_activations(plan, device->arch, err);

	if (!status)
		status = cuda_enter(device, err);
	if (status)
		return status;
	plan->backend_name = device->arch->name;
	plan->threads = 1;
	p->choice = device->arch->choose(plan);
	status = p->choice.product->plan(device, plan, &p->product, err);
	plan->tasks = p->product.tasks;
	if (p->product.launches)
		plan->k_slices = p->product.k_slices;
	plan->workspace_bytes = p->product.workspace_bytes;
	cuda_leave(device);
	if (!status)
		explain(p, device);
	return status;
}

void cuda_plan_free(struct nib_plan *plan)
{
	struct cuda_plan *p = cuda_plan_of(plan);

	if (p->choice.product)
		p->choice.product->free(plan->device, &p->product);
	free(p);
}

enum nib_status cuda_run(struct nib_plan *plan, const struct nib_run *run,
			 struct nib_error *err)
{
	struct cuda_plan *p = cuda_plan_of(plan);
	const struct cuda_device *device = cuda_device(plan->device);
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	status = cuda_check_run(plan, run, &p->known_workspace, err);
	if (!status)
		status = p->choice.product->launch(device, &p->product, run, err);
	cuda_leave(device);
	return status;
}
