/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c - plans and runs of the CUDA backend: which kernels, and when.  One
 * product of up to four rows goes to the memory-bound kernels of gemv.c,
 * everything else to those of gemm.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "gemm.h"
#include "gemv.h"

struct cuda_plan {
	struct nib_plan base;
	void *known_workspace; /* the caller's that was last checked */
	bool is_gemv;
	struct cuda_gemv gemv;
	struct cuda_gemm gemm;
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

/* The problem as if its weights were not packed: a copy lies on the GPU. */
static struct nib_problem unpacked(const struct nib_problem *p)
{
	struct nib_problem view = *p;

	view.b = *cuda_weights(&p->b, p->b_packed);
	view.b_packed = NULL;
	return view;
}

static bool wants_gemv(const struct nib_plan *plan)
{
	struct nib_problem p;

	if (plan->is_moe || plan->count != 1)
		return false;
	p = unpacked(&plan->problems[0]);
	return gemv_takes(plan->op, &p);
}

static void explain(struct cuda_plan *p, const struct cuda_device *device)
{
	struct nib_plan *plan = &p->base;
	const char *what = plan->op == NIB_DUAL_GEMM ? "dual GEMM" : "GEMM";
	char launches[80] = "1 launch";

	/* More do not fit into a kernel's parameters. */
	if (p->gemm.n_chunks > 1)
		snprintf(launches, sizeof(launches),
			 "%lld launches, of %d matrices and one type at most,",
			 (long long)p->gemm.n_chunks, NIB_GEMM_PROBLEMS);
	if (p->is_gemv)
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "vector kernel on %s: %lld blocks read the weights "
			 "once, as the memory gives them",
			 device->name, (long long)plan->tasks);
	else if (p->gemm.n_chunks == 0)
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "nothing to compute");
	else
		snprintf(plan->explanation, sizeof(plan->explanation),
			 "%s on %s: tiles of %d rows of B x up to %d rows of A "
			 "on %d clusters, k in %d slice%s, %s of two kernels "
			 "(activation conversion, then the product, which "
			 "begins meanwhile)",
			 what, device->name, NIB_TILE_N, p->gemm.tile_m,
			 p->gemm.clusters, p->gemm.k_slices,
			 p->gemm.k_slices == 1 ? "" : "s", launches);
}

enum nib_status cuda_plan(struct nib_plan *plan, struct nib_error *err)
{
	struct cuda_plan *p = cuda_plan_of(plan);
	struct cuda_device *device = cuda_device(plan->device);
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	plan->backend_name = CUDA_BACKEND_NAME;
	plan->threads = device->multiprocessors;
	p->is_gemv = wants_gemv(plan);
	if (p->is_gemv) {
		const struct nib_problem view = unpacked(&plan->problems[0]);

		status = cuda_gemv_plan(device, &view, &p->gemv, err);
		plan->tasks = p->gemv.cut.ctas * p->gemv.batch;
	} else {
		status = cuda_gemm_plan(device, plan, &p->gemm, err);
		plan->tasks = p->gemm.tiles;
		plan->workspace_bytes = p->gemm.workspace_bytes;
	}
	cuda_leave(device);
	if (!status)
		explain(p, device);
	return status;
}

void cuda_plan_free(struct nib_plan *plan)
{
	struct cuda_plan *p = cuda_plan_of(plan);

	cuda_gemm_free(plan->device, &p->gemm);
	free(p);
}

/* With the context entered. */
static enum nib_status launch(struct cuda_plan *p, const struct nib_run *run,
			      struct nib_error *err)
{
	const struct cuda_device *device = cuda_device(p->base.device);

	if (p->is_gemv) {
		const struct nib_problem view = unpacked(&run->problems[0]);

		return cuda_gemv_launch(device, &p->gemv, &view, run->stream,
					err);
	}
	if (run->moe)
		return cuda_gemm_launch_moe(device, &p->gemm, run->moe,
					    run->workspace, run->stream, err);
	return cuda_gemm_launch(device, &p->gemm, run->problems, run->workspace,
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
