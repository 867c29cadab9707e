/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_tile.h - the tiles of a product, as the planner (tile_plan.h) and the kernels
 * of all architectures count them.  Each architecture's gemm_params.h adds its own
 * parameters.
 */
#ifndef NIB_GEMM_TILE_H
#define NIB_GEMM_TILE_H

#include <stdint.h>

/* Problems that the planner can cut for one launch; a kernel may have fewer. */
#define NIB_TILE_PROBLEMS 48
/* Experts of a mixture-of-experts (MoE) problem. */
#define NIB_GEMM_EXPERTS 1024

/*
 * A tile of one CTA: 128 rows of B (dual: 64 of B and 64 of B2) by up to 256
 * rows of A.
 */
#define NIB_TILE_N     128
#define NIB_TILE_M_MAX 256
/* Rows of A of a tile: multiples of 16, above 128 of 32. */
#define NIB_TILE_M_STEP 16
/* k of a step, which the table of costs counts in. */
#define NIB_STEP_K 64
/* k of the weights' stages: split-k slices have whole ones. */
#define NIB_WEIGHT_STAGE_K     256
#define NIB_WEIGHT_STAGE_STEPS (NIB_WEIGHT_STAGE_K / NIB_STEP_K)
/* CTAs of a cluster, which share rows of A. */
#define NIB_GEMM_PAIR 2

/*
 * A tile of one pair of CTAs, of a problem or of a batch's matrix: rows of B
 * from unit * 2 * NIB_TILE_N on (dual: unit * NIB_TILE_N), rows of A from row to
 * row + rows.
 */
struct nib_gemm_tile {
	int32_t problem;
	int32_t unit;
	int32_t row;
	int16_t rows;	 /* a multiple of 16; 0: end of the list */
	int16_t k_slice; /* which split-k slice, of args.k_slices */
};

#endif
