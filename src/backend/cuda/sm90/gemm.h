/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - the state of plans for any number of rows, whose kernels are in
 * kernels/sm90/gemm.cuh.  gemm.c makes plans; gemm_launch.c fills the parameters of a
 * kernel from a plan, the problems of a run and a workspace.
 */
#ifndef NIB_CUDA_GEMM_H
#define NIB_CUDA_GEMM_H

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/cuda.h"
#include "backend/cuda/common/pack.h"
#include "backend/cuda/common/tile_plan.h"
#include "backend/cuda/kernels/sm90/gemm_params.h"
#include "core/error.h"

/* One matrix of a problem, or a batch with a launch of its own. */
struct gemm_matrix {
	int32_t problem;
	int32_t count;
	int64_t batch; /* of the first */
	struct nib_gemm_shape shape;
};

/* Bytes of a value of x: fp16, bf16. */
#define X_BYTES 2

/* Which kernel multiplies, and how it divides its shared memory. */
struct gemm_rings {
	int32_t a_steps; /* of an activation stage: NIB_LARGE_M_STEPS and so on */
	int32_t a_stages, a_stage_bytes, weight_stages;
	int32_t shared_bytes; /* all, rings included */
};

/*
 * One launch of at most NIB_GEMM_PROBLEMS matrices, of a batch at constant
 * strides, or of an MoE problem.
 */
struct gemm_chunk {
	int64_t first; /* of the plan's matrices */
	int32_t count;
	int32_t batch;	    /* matrices of a batch, else 0 */
	int32_t batch_rows; /* of each, in the converted activations */
	int32_t experts;    /* MoE, else 0 */
	int32_t a;	    /* NIB_A_NVFP4, ... */
	int32_t rows;	    /* of A of all matrices */
	int32_t most_k;
	int64_t a_atoms; /* of the converted activations */
	/* Tiles: tile_rounds * clusters of the plan's, from first_tile on. */
	size_t first_tile;
	int32_t tile_rounds, clusters;
	int32_t tile_m; /* most rows of A of a tile */
	int32_t k_slices;
	int32_t n_arrivals;
	struct gemm_rings rings;
	CUfunction convert, multiply;
	/* In the workspace, after the converted activations. */
	size_t partials_at, arrivals_at;
	struct nib_gemm_tile first_round[NIB_GEMM_CLUSTERS];
};

struct sm90_gemm {
	enum nib_op op;
	struct gemm_matrix *matrices; /* with elements; MoE: one */
	int64_t n_matrices;
	struct gemm_chunk *chunks;
	int64_t n_chunks;
	CUdeviceptr tiles_data; /* of all chunks */
};

extern const struct cuda_product sm90_tiles;

/*
 * Dynamic shared memory of a CTA of the activation conversion kernel, chosen so that
 * two CTAs fit on an SM and a third does not.
 */
static inline int sm90_activations_shared(const struct cuda_device *device)
{
	return device->shared_bytes / 3;
}

/* The number of CTA pairs that can be resident at once. */
enum nib_status sm90_clusters(struct cuda_device *device,
			      struct nib_tile_device *clusters, struct nib_error *err);

/* ---- gemm_launch.c ------------------------------------------------------- */

enum nib_status sm90_gemm_launch(const struct cuda_device *device,
				 const struct cuda_product_plan *product,
				 const struct nib_run *run, struct nib_error *err);

#endif
