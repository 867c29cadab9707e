/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_warps_params.h - the parameters of the mma.sync kernels for one matrix
 * (mma_warps.cuh), and the sizes that host (common/mma_warps.c) and kernels share.
 */
#ifndef NIB_MMA_WARPS_PARAMS_H
#define NIB_MMA_WARPS_PARAMS_H

#include "gemv_operand.h"

/* The most rows of A, and the most warps of a CTA. */
#define NIB_MMA_WARPS_ROWS 16
#define NIB_MMA_WARPS_MOST 12
/* A warp loads and multiplies k128 at a time, and has a ring of three stages. */
#define NIB_MMA_WARPS_STEP   128
#define NIB_MMA_WARPS_STAGES 3
/* k is a multiple of this. */
#define NIB_MMA_WARPS_K_ALIGN 64

/*
 * One matrix, or a batch.  Grid: x = tiles, y = batch.  The warps of a CTA divide k, so
 * their number decides the order of sums.
 */
struct nib_mma_warps_params {
	struct nib_gemv_operand a, b;
	const float *alpha; /* one for the batch; NULL = 1 */
	void *c;
	int64_t c_row_stride, c_batch_stride; /* elements */
	int32_t rows, n, k, c_dtype;	      /* rows: of A */
	/* No earlier kernel that may still be running writes B. */
	int32_t b_is_constant;
};

/* A stage: codes and scales of a tile of b_rows rows of B, and 8 or 16 rows of A, of
 * NVFP4 or in 16 bits. */
NIB_GEMV_FN int32_t nib_mma_warps_stage_bytes(int rows, int b_rows, int is_dense)
{
	const int32_t nvfp4_row = NIB_MMA_WARPS_STEP / 16 * 9;

	return b_rows * nvfp4_row +
	       rows * (is_dense ? NIB_MMA_WARPS_STEP * 2 : nvfp4_row);
}

/* Dynamic shared memory: a ring for each warp, which its sums replace. */
NIB_GEMV_FN int32_t nib_mma_warps_shared_bytes(int rows, int b_rows, int is_dense,
					       int warps)
{
	return warps * NIB_MMA_WARPS_STAGES *
	       nib_mma_warps_stage_bytes(rows, b_rows, is_dense);
}

/* Tiles of 32 or 64 rows of B, in whole blocks of 128. */
NIB_GEMV_FN int64_t nib_mma_warps_tiles(int64_t n, int b_rows)
{
	return (n / 128 + (n % 128 != 0)) * (128 / b_rows);
}

#endif
