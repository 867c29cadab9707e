/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_matrix_params.h - the parameters of the mma.sync kernels for one matrix
 * (mma_matrix.cuh), and the sizes that host (common/mma_matrix.c) and kernels share.
 */
#ifndef NIB_MMA_MATRIX_PARAMS_H
#define NIB_MMA_MATRIX_PARAMS_H

#include "mma_params.h"

/* The most rows of A. */
#define NIB_MMA_MATRIX_ROWS 32

/*
 * One matrix, or a batch.  Grid: x = tiles * slices, y = batch.
 */
struct nib_mma_matrix_params {
	/* rows: of A; alpha: one for the batch; nothing of experts. */
	struct nib_mma_params p;
	int64_t c_batch_bytes;
	int32_t slices; /* of k; at most as many as steps */
	/* If there are several slices: the sums of each slice of each tile, and a
	 * counter for each tile, which is 0. */
	float *partials;
	uint32_t *arrivals;
};

/* The first step of a slice; for slice = slices the end. */
NIB_GEMV_FN int nib_mma_first_step(int steps, int slices, int slice)
{
	return (int)((int64_t)steps * slice / slices);
}

/* Dynamic shared memory: the stages. */
NIB_GEMV_FN int32_t nib_mma_matrix_shared_bytes(int rows, int stages)
{
	return stages * (NIB_MMA_STAGE_BYTES + rows * NIB_MMA_STEP * 2);
}

/* The partial sums of a slice of a tile. */
NIB_GEMV_FN int64_t nib_mma_partial_bytes(int rows)
{
	return (int64_t)rows * NIB_MMA_TILE * 4;
}

#endif
