/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_matrix_params.h - the parameters of the mma.sync kernels for one matrix
 * (mma_matrix.cuh), and the sizes that host (common/mma_matrix.c) and kernels share.
 */
#ifndef NIB_MMA_MATRIX_PARAMS_H
#define NIB_MMA_MATRIX_PARAMS_H

#include "mma_params.h"

/* The most rows of A, and groups of warps of a CTA. */
#define NIB_MMA_MATRIX_ROWS   64
#define NIB_MMA_MATRIX_GROUPS 4

/*
 * One matrix, or a batch.  Grid: x = tiles * slices, y = batch.  CTA: x = threads of a
 * group, y = groups that work at the same time.
 */
struct nib_mma_matrix_params {
	/* rows: of A; alpha: one for the batch; nothing of experts. */
	struct nib_mma_params p;
	int64_t c_batch_bytes;
	int32_t slices; /* of k; at most as many as steps */
	int32_t groups; /* which multiply every groups-th step of a slice */
	/* If there are several slices: the sums of each slice of each tile, and a
	 * counter for each tile, which is 0 before and after the launch. */
	float *partials;
	uint32_t *arrivals;
};

/* The first step of a slice; for slice = slices the end. */
NIB_GEMV_FN int nib_mma_first_step(int steps, int slices, int slice)
{
	return (int)((int64_t)steps * slice / slices);
}

/* Dynamic shared memory: the stages of each group, whose sums replace them. */
NIB_GEMV_FN int32_t nib_mma_matrix_shared_bytes(int rows, int stages, int groups)
{
	return groups * stages * (NIB_MMA_STAGE_BYTES + rows * NIB_MMA_STEP * 2);
}

/* The sums of a slice of a tile. */
NIB_GEMV_FN int32_t nib_mma_partial_bytes(int rows)
{
	return (rows + 7) / 8 * 8 * NIB_MMA_TILE * 4;
}

#endif
