/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_plan.h - the schedule of tiles on clusters.  It is arithmetic on sizes, without
 * calls of CUDA, and is tested without a GPU.
 */
#ifndef NIB_CUDA_TILE_PLAN_H
#define NIB_CUDA_TILE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/kernels/common/gemm_tile.h"
#include "costs.h"
#include "tile_shape.h"

struct nib_tile_plan {
	int32_t k_slices; /* split-k slices of each tile */
	int32_t clusters; /* to launch */
	int32_t rounds;	  /* tiles of the busiest cluster */
	int32_t tile_m;	  /* most rows of A of a tile */
	int64_t tiles;	  /* in all, split-k slices counted */
	double cycles;	  /* of the busiest cluster, by the model */
	bool is_packed;	  /* by tile_search.c, otherwise equal tiles by LPT */
};

/* The number of tiles if all have the largest size. */
int64_t nib_tiles_least(const struct nib_tile_shape *shapes, int32_t count, bool dual);

/*
 * Chooses tile sizes, the split of k and the clusters' loads.  may_split: k of a single
 * problem may be split; k of a group never is, so that the bits of a problem do not
 * depend on the others.  tiles: NULL, or receives an array of plan->rounds *
 * plan->clusters entries from malloc().  False: out of memory.  nib_tiles_least() of
 * the shapes must be at most INT32_MAX.
 */
bool nib_tiles_plan(const struct nib_tile_device *device,
		    const struct nib_tile_shape *shapes, int32_t count, bool dual,
		    bool may_split, struct nib_tile_plan *plan,
		    struct nib_gemm_tile **tiles);

#endif
