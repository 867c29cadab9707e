/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_params.h - the parameters of the mma.sync kernels (mma.cuh), and the sizes that
 * host (common/mma.c) and kernels share.
 */
#ifndef NIB_MMA_PARAMS_H
#define NIB_MMA_PARAMS_H

#include "gemv_operand.h"

#define NIB_MMA_WARPS	4
#define NIB_MMA_THREADS (32 * NIB_MMA_WARPS)
/* A tile has TILE rows of B; a CTA loads and multiplies STEP k of it at a time. */
#define NIB_MMA_TILE 128
#define NIB_MMA_STEP 128
/* Codes and scales of B of a step. */
#define NIB_MMA_STAGE_BYTES (NIB_MMA_TILE * NIB_MMA_STEP / 16 * 9)
/* k is a multiple of this. */
#define NIB_MMA_K_ALIGN 64
/* The most experts: a CTA has tables of them in shared memory. */
#define NIB_MMA_EXPERTS 1024

/*
 * A mixture of experts; the scales of b are tiled.  Each CTA of the grid multiplies a
 * range of the tiles of all experts.
 */
struct nib_mma_params {
	struct nib_gemv_operand a, b, b2; /* b2: of a dual product */
	const float *alpha, *alpha2;	  /* of each expert; NULL = 1 */
	void *c;
	int64_t c_row_stride; /* elements */
	int32_t n, k, c_dtype;
	int32_t tiles;		 /* of an expert, across the rows of B */
	int32_t multiprocessors; /* of the device */
	int32_t experts, rows, scale_rows_total;
	const int32_t *row_offsets, *scale_rows;
};

/* Tiles across the rows of B.  With two matrices a tile has 64 rows of each. */
NIB_GEMV_FN int64_t nib_mma_tiles(int64_t n, int matrices)
{
	return (n / NIB_MMA_TILE + (n % NIB_MMA_TILE != 0)) * matrices;
}

/*
 * Dynamic shared memory: the stages of B and A (`rows` rows), then the tables of the
 * experts: first row, first tile, first row of scales.
 */
NIB_GEMV_FN int32_t nib_mma_shared_bytes(int rows, int stages, int experts)
{
	return stages * (NIB_MMA_STAGE_BYTES + rows * NIB_MMA_STEP * 2) +
	       (3 * experts + 2) * 4;
}

#endif
