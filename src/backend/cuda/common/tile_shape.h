/* SPDX-License-Identifier: Apache-2.0 */
/* tile_shape.h - what tile_plan.c and tile_search.c cut into tiles, and for what. */
#ifndef NIB_CUDA_TILE_SHAPE_H
#define NIB_CUDA_TILE_SHAPE_H

#include <stdint.h>

#include "costs.h"

/* One multiplication, or a batch. */
struct nib_tile_shape {
	int32_t m, n, k;
	/*
	 * A batch: so many more matrices of these sizes. It is alone, and the
	 * problem of its tiles is the matrix.
	 */
	int32_t more;
};

struct nib_tile_device {
	int32_t clusters; /* pairs of CTAs that it holds at once */
	const struct nib_cuda_costs *costs;
	/*
	 * Rules beside the sizes of costs.h; zeros are Hopper's.  All tiles of
	 * a problem but its last have a multiple of `align` rows, and each lies
	 * in at most two blocks of 2 * align rows.
	 */
	int32_t align;
	int32_t most_rows; /* of a tile, a multiple of align */
	/*
	 * Row units that equal tiles walk before the next rows of A, so that
	 * clusters side by side share both operands; 0: all units.
	 */
	int32_t raster;
};

/* Most rows of a tile that begins at `row`. */
static inline int32_t nib_tile_most(const struct nib_tile_device *device, int32_t row)
{
	const int32_t most = device->most_rows ? device->most_rows : NIB_TILE_M_MAX;
	const int32_t align = device->align;

	if (align && row % (2 * align) && most > 3 * align)
		return 3 * align;
	return most;
}

/* Rows of a tile that others follow: `rows` is a size of costs.h. */
static inline int32_t nib_tile_aligned(const struct nib_tile_device *device,
				       int32_t rows)
{
	const int32_t align = device->align;

	return align ? (rows + align - 1) / align * align : rows;
}

#endif
