/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c - plans and runs of the CUDA backend: which of the architecture's
 * kernels (arch.h), those for few rows or those in tiles.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arch.h"
#include "backend/cuda/kernels/common/gemm_tile.h"
#include "core/error.h"
#include "cuda.h"

struct cuda_plan {
	struct nib_plan base;
	void *known_workspace; /* the caller's that was last checked */
	bool is_few;
	struct cuda_few few;
	struct cuda_tiled tiled;
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

static void explain(struct cuda_plan *p, const struct cuda_device *device)
{
	struct nib_plan *plan = &p->base;
	const char *what = plan->op == NIB_OP_DUAL_GEMM ? "dual GEMM" : "GEMM";
	char launches[80] = "1 launch";

	/* What a kernel's parameters hold, or the L2 of a batch's rows. */
	if (p->tiled.launches > 1)
		snprintf(launches, sizeof(launches),
			 "%lld launches, of %d matrices and one type at most,",
			 (long long)p->tiled.launches, p->tiled.most_matrices);
	if (p->is_few)
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "%s kernel on %s: %lld blocks read the weights%s, as "
			 "the memory gives them",
			 p->few.kernel, device->name, (long long)plan->tasks,
			 plan->is_moe ? "" : " once");
	else if (p->tiled.launches == 0)
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "nothing to compute");
	else
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "%s on %s: tiles of %d rows of B x up to %d rows of A "
			 "on %d clusters, k in %d slice%s, %s of %s",
			 what, device->name, NIB_TILE_N, p->tiled.tile_m,
			 p->tiled.clusters, p->tiled.k_slices,
			 p->tiled.k_slices == 1 ? "" : "s", launches, p->tiled.kernels);
}

/* A that the architecture's kernels take. */
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
	plan->threads = device->multiprocessors;
	p->is_few = device->arch->few_takes(plan);
	if (p->is_few) {
		status = device->arch->few_plan(device, plan, &p->few, err);
		plan->tasks = p->few.ctas;
	} else {
		status = device->arch->plan(device, plan, &p->tiled, err);
		plan->tasks = p->tiled.tiles;
		if (p->tiled.launches)
			plan->k_slices = p->tiled.k_slices;
		plan->workspace_bytes = p->tiled.workspace_bytes;
	}
	cuda_leave(device);
	if (!status)
		explain(p, device);
	return status;
}

void cuda_plan_free(struct nib_plan *plan)
{
	struct cuda_plan *p = cuda_plan_of(plan);

	cuda_device(plan->device)->arch->free(plan->device, &p->tiled);
	free(p->few.state);
	free(p);
}

/* With the context entered. */
static enum nib_status launch(struct cuda_plan *p, const struct nib_run *run,
			      struct nib_error *err)
{
	const struct cuda_device *device = cuda_device(p->base.device);

	if (p->is_few)
		return device->arch->few_launch(device, &p->few, run, err);
	if (run->moe)
		return device->arch->launch_moe(device, &p->tiled, run->moe,
						run->workspace, run->stream, err);
	return device->arch->launch(device, &p->tiled, run->problems, run->workspace,
				    run->stream, err);
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
		status = launch(p, run, err);
	cuda_leave(device);
	return status;
}
