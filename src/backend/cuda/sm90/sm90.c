/* SPDX-License-Identifier: Apache-2.0 */
/* sm90.c - Hopper's row of the table of architectures (arch.h). */
#include <stdlib.h>

#include "backend/cuda/common/arch.h"
#include "backend/cuda/kernels/common/probe_params.h"
#include "core/error.h"
#include "gemm.h"
#include "gemv.h"

/* ---- products of few rows ------------------------------------------------ */

static enum nib_status few_plan(struct cuda_device *device, const struct nib_plan *p,
				struct cuda_few *few, struct nib_error *err)
{
	struct cuda_gemv *gemv = malloc(sizeof(*gemv));
	enum nib_status status;

	if (!gemv)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for a plan (%zu bytes)", sizeof(*gemv));
	few->state = gemv;
	status = cuda_gemv_plan(device, p, gemv, err);
	few->ctas = gemv->ctas * gemv->batch;
	few->kernel = gemv->threads == NIB_GEMV_THREADS ? "vector" : "skinny";
	return status;
}

static enum nib_status few_launch(const struct cuda_device *device,
				  const struct cuda_few *few, const struct nib_run *run,
				  struct nib_error *err)
{
	return cuda_gemv_launch(device, few->state, run, err);
}

/* ---- the product in tiles ------------------------------------------------ */

static enum nib_status plan(struct cuda_device *device, const struct nib_plan *p,
			    struct cuda_tiled *tiled, struct nib_error *err)
{
	struct cuda_gemm *gemm = calloc(1, sizeof(*gemm));
	enum nib_status status;

	if (!gemm)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for a plan (%zu bytes)", sizeof(*gemm));
	tiled->state = gemm;
	status = cuda_gemm_plan(device, p, gemm, err);
	tiled->workspace_bytes = gemm->workspace_bytes;
	tiled->launches = gemm->n_chunks;
	tiled->tiles = gemm->tiles;
	tiled->tile_m = gemm->tile_m;
	tiled->k_slices = gemm->k_slices;
	tiled->clusters = gemm->clusters;
	tiled->most_matrices = gemm->most_matrices;
	tiled->kernels = "two kernels (activation conversion, then the product, "
			 "which begins meanwhile)";
	return status;
}

static void free_plan(struct nib_device *device, struct cuda_tiled *tiled)
{
	if (tiled->state)
		cuda_gemm_free(device, tiled->state);
	free(tiled->state);
}

static enum nib_status launch(const struct cuda_device *device,
			      const struct cuda_tiled *tiled,
			      const struct nib_problem *problems, void *workspace,
			      CUstream stream, struct nib_error *err)
{
	return cuda_gemm_launch(device, tiled->state, problems, workspace, stream, err);
}

static enum nib_status launch_moe(const struct cuda_device *device,
				  const struct cuda_tiled *tiled,
				  const struct nib_moe_problem *moe, void *workspace,
				  CUstream stream, struct nib_error *err)
{
	return cuda_gemm_launch_moe(device, tiled->state, moe, workspace, stream, err);
}

const struct cuda_arch cuda_sm90 = {
    .name = "cuda-sm90",
    .tag = "sm90",
    .capabilities = {90},
    .hardware = "9.0 (H100, H200)",
    .arithmetic = NIB_ARITHMETIC_FP16_TENSOR,
    .costs = &nib_sm90_costs,
    .takes_dense = true,
    .row_align = 8,
    .probe_flop = NIB_PROBE_MULTIPLY_FLOP,
    .probe_threads = NIB_PROBE_MULTIPLY_THREADS,
    .few_takes = cuda_gemv_takes,
    .few_plan = few_plan,
    .few_launch = few_launch,
    .layer = cuda_gemv_layer,
    .clusters = cuda_gemm_clusters,
    .plan = plan,
    .free = free_plan,
    .launch = launch,
    .launch_moe = launch_moe,
};
