/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_tile.h - the tiles of a product, shared by the planner (tile_plan.h) and the
 * kernels of all architectures.  Each architecture's gemm_params.h adds its own
 * parameters.
 */
#ifndef NIB_GEMM_TILE_H
#define NIB_GEMM_TILE_H

#include <stdint.h>

/* The most problems in one launch for the planner; a kernel may support fewer. */
#define NIB_TILE_PROBLEMS 48
/* The most experts of a mixture-of-experts (MoE) problem. */
#define NIB_GEMM_EXPERTS 1024

/*
 * A tile of one CTA: 128 rows of B (dual: 64 of B and 64 of B2) by up to 256
 * rows of A.
 */
#define NIB_TILE_N     128
#define NIB_TILE_M_MAX 256
/* Rows of A of a tile: a multiple of 16, above 128 of 32. */
#define NIB_TILE_M_STEP 16
/* k of a step, the unit of the table of costs. */
#define NIB_STEP_K 64
/* k of a weight stage; split-k slices have whole stages. */
#define NIB_WEIGHT_STAGE_K     256
#define NIB_WEIGHT_STAGE_STEPS (NIB_WEIGHT_STAGE_K / NIB_STEP_K)
/* CTAs of a cluster, which share rows of A. */
#define NIB_GEMM_PAIR 2

/*
 * A tile of a pair of CTAs, in a problem or a matrix of a batch.  Its rows of B begin
 * at unit * 2 * NIB_TILE_N (dual: unit * NIB_TILE_N); its rows of A are row .. row +
 * rows - 1.
 */
struct nib_gemm_tile {
	int32_t problem;
	int32_t unit;
	int32_t row;
	int16_t rows;	 /* a multiple of 16; 0: end of the list */
	int16_t k_slice; /* split-k slice: 0 .. k_slices - 1 */
};

#endif
