/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h - the one table that the tile planner chooses by: what a tile of each
 * size costs.  Built in, or measured by `nib tune` and read from a file when a
 * device is opened (costs_file.c).
 */
#ifndef NIB_CUDA_COSTS_H
#define NIB_CUDA_COSTS_H

#include <stdint.h>

/* Tokens of a tile: 16, 32, ... 128, 160, ... 256. */
#define NIB_TILE_SIZES 12
int32_t nib_tile_size(int i);
/* The smallest tile that holds so many tokens, at most 256. */
int nib_tile_size_of(int32_t tokens);

/*
 * In cycles of a multiprocessor's clock, 1 to NIB_COSTS_MAX; the planner
 * compares sums of them, so that only their ratios matter.
 */
#define NIB_COSTS_MAX 1000000
struct nib_cuda_costs {
	int32_t step[NIB_TILE_SIZES]; /* 64 of k of a tile */
	int32_t tile;  /* a tile outside its k loop: first loads, epilogue */
	int32_t split; /* a tile of 128 tokens, k in two parts: to join them */
};

/*
 * Measured on an H200 (docs/notes/0030-hopper-gemm.md).  Raise the revision
 * with every change of the kernels' speed: files of another one are not read.
 */
#define NIB_COSTS_REVISION 2
extern const struct nib_cuda_costs nib_cuda_costs;

#endif
