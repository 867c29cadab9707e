/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - products of any number of rows by the kernels of sm90_gemm.cuh: what
 * a plan keeps (the list of tiles in device memory), and what a run adds
 * (pointers).
 */
#ifndef NIB_CUDA_GEMM_H
#define NIB_CUDA_GEMM_H

#include "backend/cuda/kernels/gemm_params.h"
#include "backend/cuda/tiles.h"
#include "cuda.h"

/* One matrix of a batch of a problem. */
struct gemm_matrix {
	int32_t problem, batch;
};

/* The matrices of one launch: at most NIB_GEMM_PROBLEMS, or an MoE problem. */
struct gemm_chunk {
	int64_t first;	   /* of the plan's matrices */
	size_t first_tile; /* of the plan's tiles */
	struct nib_gemm_args args;
	int32_t clusters;
	int32_t shared_bytes;
	int32_t
	    a_steps; /* of an activation stage: NIB_LARGE_M_STEPS and so on */
	CUfunction multiply; /* the kernel of those */
	int32_t most_k;
	size_t partials_bytes; /* split-k partial results in the workspace */
};

struct cuda_gemm {
	enum nib_op op;
	CUfunction activations;
	struct gemm_matrix *matrices; /* that have elements */
	int64_t n_matrices;
	struct gemm_chunk *chunks;
	int64_t n_chunks;
	CUdeviceptr tiles_data; /* of all chunks */
	/* What the plan reports. */
	size_t workspace_bytes; /* converted activations, split-k partials */
	int64_t tiles;
	int32_t tile_m, k_slices, clusters; /* of the first chunk */
};

/*
 * plan: the fields that the API layer fills are complete; NIB_UNSUPPORTED for
 * strides that the kernels do not take. With the context entered, as the
 * others. Free also what a failed plan left.
 */
enum nib_status cuda_gemm_plan(struct cuda_device *device,
			       const struct nib_plan *plan,
			       struct cuda_gemm *gemm, struct nib_error *err);
/* From any context, also where the device's is lost. */
void cuda_gemm_free(struct nib_device *device, struct cuda_gemm *gemm);

/*
 * Dynamic shared memory of a block of the activation conversion kernel, so that
 * two blocks fit on an SM and a third does not.
 */
static inline int cuda_activations_shared(const struct cuda_device *device)
{
	return device->shared_bytes / 3;
}

/* The addresses in the workspace, into a launch's arguments. */
void cuda_gemm_set_workspace(const struct gemm_chunk *chunk, void *workspace,
			     struct nib_gemm_args *args);

/* How many pairs of CTAs run at once. */
enum nib_status cuda_gemm_clusters(struct cuda_device *device,
				   struct nib_tile_device *clusters,
				   struct nib_error *err);

/* problems, moe: resolved, pointers checked. */
enum nib_status cuda_gemm_launch(const struct cuda_device *device,
				 const struct cuda_gemm *gemm,
				 const struct nib_problem *problems,
				 void *workspace, CUstream stream,
				 struct nib_error *err);
enum nib_status cuda_gemm_launch_moe(const struct cuda_device *device,
				     const struct cuda_gemm *gemm,
				     const struct nib_moe_problem *moe,
				     void *workspace, CUstream stream,
				     struct nib_error *err);

/* ---- pack.c -------------------------------------------------------------- */

/* Weights on the GPU: codes dense, scales in tiles of 128 x 4. */
struct cuda_packed {
	struct nib_packed base;
	CUdeviceptr data;
	struct nib_nvfp4 view;
};

/* The weights of a problem, packed or not. */
static inline const struct nib_nvfp4 *
cuda_weights(const struct nib_nvfp4 *view, const struct nib_packed *packed)
{
	return packed ? &((const struct cuda_packed *)packed)->view : view;
}

#endif
