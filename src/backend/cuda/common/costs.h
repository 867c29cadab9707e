/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h - the one table that the tile planner chooses by: what a tile of each
 * size costs.  Built in with the architecture (arch.h), or set by the caller
 * (device_costs.c), who may have it from `nib tune`.
 */
#ifndef NIB_CUDA_COSTS_H
#define NIB_CUDA_COSTS_H

#include <stdint.h>

#include "backend/cuda/kernels/common/gemm_tile.h"

/*
 * Rows of A of a tile: 16, 32, ... 128, 160, ... 256; the first sizes grow by a
 * step, the others by two.
 */
#define NIB_TILE_SIZES	    12
#define NIB_TILE_FINE_SIZES 8

static inline int32_t nib_tile_size(int i)
{
	const int coarse = i < NIB_TILE_FINE_SIZES ? 0 : i + 1 - NIB_TILE_FINE_SIZES;

	return (i + 1 + coarse) * NIB_TILE_M_STEP;
}

/* The smallest tile that holds so many rows of A, at most 256. */
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
 * In cycles of a multiprocessor's clock, 1 to NIB_COSTS_MAX; the planner
 * compares sums of them, so that only their ratios matter.
 */
#define NIB_COSTS_MAX 1000000
struct nib_cuda_costs {
	int32_t step[NIB_TILE_SIZES]; /* 64 of k of a tile */
	int32_t tile;  /* a tile outside its k loop: first loads, epilogue */
	int32_t split; /* reduction of two split-k slices of 128 rows of A */
};

/* The cycles of a tile of size i with so many times 64 of k. */
static inline double nib_tile_cycles(const struct nib_cuda_costs *costs, int i,
				     int32_t steps)
{
	return costs->tile + (double)steps * costs->step[i];
}

/*
 * Raise the revision with every change of the kernels' speed: costs of another one
 * are refused.
 */
#define NIB_COSTS_REVISION 4

#endif
