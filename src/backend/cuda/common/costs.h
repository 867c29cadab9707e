/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h - the table that the tile planner uses: the cost of a tile of each size.
 * Each architecture has one (arch.h); the caller may set another (device_costs.c), such
 * as one measured by `nib tune`.
 */
#ifndef NIB_CUDA_COSTS_H
#define NIB_CUDA_COSTS_H

#include <stdint.h>

#include "backend/cuda/kernels/common/gemm_tile.h"

/*
 * Rows of A of a tile: 16, 32, ... 128, then 160, ... 256.  The first sizes grow by one
 * NIB_TILE_M_STEP, the others by two.
 */
#define NIB_TILE_SIZES	    12
#define NIB_TILE_FINE_SIZES 8

static inline int32_t nib_tile_size(int i)
{
	const int coarse = i < NIB_TILE_FINE_SIZES ? 0 : i + 1 - NIB_TILE_FINE_SIZES;

	return (i + 1 + coarse) * NIB_TILE_M_STEP;
}

/* The smallest tile size for this number of rows of A, at most 256. */
static inline int nib_tile_size_of(int32_t rows)
{
	const int steps = (rows + NIB_TILE_M_STEP - 1) / NIB_TILE_M_STEP;

	if (rows >= NIB_TILE_M_MAX)
		return NIB_TILE_SIZES - 1;
	if (steps <= NIB_TILE_FINE_SIZES)
		return steps < 1 ? 0 : steps - 1;
	return NIB_TILE_FINE_SIZES + (steps - NIB_TILE_FINE_SIZES - 1) / 2;
}

/*
 * Costs in cycles of a multiprocessor, 1 to NIB_COSTS_MAX.  The planner compares sums
 * of them, so only their ratios matter.
 */
#define NIB_COSTS_MAX 1000000
struct nib_cuda_costs {
	int32_t step[NIB_TILE_SIZES]; /* of k64 of a tile */
	int32_t tile;  /* of a tile outside the k loop: first loads, epilogue */
	int32_t split; /* of the reduction of two split-k slices of 128 rows of A */
};

/* The cycles of a tile of size i with this number of k64 steps. */
static inline double nib_tile_cycles(const struct nib_cuda_costs *costs, int i,
				     int32_t steps)
{
	return costs->tile + (double)steps * costs->step[i];
}

/*
 * Increase it with every change of the kernels' speed: costs of another revision are
 * refused.
 */
#define NIB_COSTS_REVISION 5

#endif
