/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_search.h - packs the tiles of a group so that all clusters end at about the same
 * time (for tile_plan.c).  It does not use split-k.
 */
#ifndef NIB_CUDA_TILE_SEARCH_H
#define NIB_CUDA_TILE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/kernels/common/gemm_tile.h"
#include "tile_shape.h"

/*
 * Equal pieces of one problem: piece i belongs to row unit i % units and begins at row
 * + i / units * stride.
 */
struct nib_tile_piece {
	double cycles; /* of its next tile */
	double work;   /* cycles of all its tiles, cut as equally as possible */
	int32_t problem;
	int32_t rows; /* of each piece, not yet cut into tiles */
	int32_t row, units, stride;
	int32_t first, count; /* pieces first .. first + count - 1 */
};

/* A range of clusters, each of which gets `each` tiles, one after another. */
struct nib_tile_load {
	struct nib_tile_piece piece;
	int32_t cluster, clusters, each;
};

#define NIB_TILE_LOADS (8 * NIB_TILE_PROBLEMS)
struct nib_tile_loads {
	struct nib_tile_load list[NIB_TILE_LOADS];
	int32_t count;
	int32_t rounds, tile_m;
	int64_t tiles;
	double cycles; /* of the busiest cluster */
};

/* The memory of a search: one allocation, for free(). */
struct nib_tile_search;

/*
 * *loads: the best packing, or NULL if none was found; it is part of the search and is
 * freed with it.  Returns NULL if the allocation fails.  device->costs must be set.
 */
struct nib_tile_search *nib_tile_search(const struct nib_tile_device *device,
					const struct nib_tile_shape *shapes,
					int32_t count, bool dual,
					const struct nib_tile_loads **loads);

/* Writes the list of tiles to `tiles`, an array of rounds * clusters zeroed entries.
 * rounds_of: scratch space for one number per cluster. */
void nib_tile_loads_list(const struct nib_tile_loads *loads, int32_t clusters,
			 int32_t *rounds_of, struct nib_gemm_tile *tiles);

static inline int32_t divide_up(int32_t a, int32_t b)
{
	return a / b + (a % b != 0);
}

/* The number of row units of a problem; a unit is the rows of B of a pair of CTAs. */
static inline int32_t nib_tile_units(const struct nib_tile_shape *s, bool dual)
{
	return divide_up(s->n, dual ? NIB_TILE_N : 2 * NIB_TILE_N);
}

#endif
