/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - products of any number of rows by the kernels of sm90_gemm.cuh: a
 * plan's part (the list of tiles in device memory) and a run's (pointers).
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

/* One launch: at most NIB_GEMM_PROBLEMS matrices, or a mixture. */
struct gemm_part {
	int64_t first;	   /* of the plan's matrices */
	size_t first_tile; /* of the plan's tiles */
	struct nib_gemm_args args;
	int32_t clusters;
	int32_t shared_bytes;
	int32_t token_steps; /* of a token stage: NIB_MANY_STEPS and so on */
	CUfunction multiply; /* the kernel of those */
	int32_t most_k;
	size_t sums_bytes; /* of parts of k, in the workspace */
};

struct cuda_gemm {
	enum nib_op op;
	CUfunction tokens;
	struct gemm_matrix *matrices; /* that have elements */
	int64_t n_matrices;
	struct gemm_part *parts;
	int64_t n_parts;
	CUdeviceptr tiles_data; /* of all parts */
	/* What the plan reports. */
	size_t workspace_bytes; /* prepared tokens, sums of parts of k */
	int64_t tiles;
	int32_t tile_tokens, k_parts, clusters; /* of the first part */
};

/*
 * plan: the front door's part is complete; NIB_UNSUPPORTED for strides that the
 * kernels do not take.  With the context entered, as the others.  Free also
 * what a failed plan left.
 */
enum nib_status cuda_gemm_plan(struct cuda_device *device,
			       const struct nib_plan *plan,
			       struct cuda_gemm *gemm, struct nib_error *err);
/* From any context, also where the device's is lost. */
void cuda_gemm_free(struct nib_device *device, struct cuda_gemm *gemm);

/*
 * The part's token steps and rings, where no tile has more than tile_tokens
 * tokens.  in_turns: two pairs of warpgroups may take weight stages in turns,
 * of which each tile has two or more.
 */
void cuda_gemm_rings(const struct cuda_device *device, int32_t tile_tokens,
		     bool in_turns, struct gemm_part *part);

/* Dynamic shared memory of a block of the tokens' kernel of which two fit on a
 * multiprocessor, and a third does not. */
static inline int cuda_tokens_shared(const struct cuda_device *device)
{
	return device->shared_bytes / 3;
}

/* The workspace's places into a launch's arguments. */
void cuda_gemm_place(const struct gemm_part *part, void *workspace,
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
