/* SPDX-License-Identifier: Apache-2.0 */
/* tile_shape.h - the shapes that tile_plan.c and tile_search.c cut into tiles, and the
 * device for which they do. */
#ifndef NIB_CUDA_TILE_SHAPE_H
#define NIB_CUDA_TILE_SHAPE_H

#include <stdint.h>

#include "costs.h"

/* One multiplication, or a batch. */
struct nib_tile_shape {
	int32_t m, n, k;
	/*
	 * A batch has this many further matrices of these sizes.  It is the only shape
	 * of its plan, and the problem of a tile is the number of the matrix.
	 */
	int32_t more;
};

struct nib_tile_device {
	int32_t clusters; /* resident pairs of CTAs */
	const struct nib_cuda_costs *costs;
	/*
	 * Rules in addition to the sizes of costs.h; zeros are Hopper's.  All tiles of
	 * a problem but its last have a multiple of `align` rows, and each is in at
	 * most two blocks of 2 * align rows.
	 */
	int32_t align;
	int32_t most_rows; /* of a tile, a multiple of align */
	/*
	 * The number of row units that equal tiles go through before the next rows of
	 * A, so that neighbouring clusters share both operands. 0: all units.
	 */
	int32_t raster;
};

/* The most rows of a tile that begins at `row`. */
static inline int32_t nib_tile_most(const struct nib_tile_device *device, int32_t row)
{
	const int32_t most = device->most_rows ? device->most_rows : NIB_TILE_M_MAX;
	const int32_t align = device->align;

	if (align && row % (2 * align) && most > 3 * align)
		return 3 * align;
	return most;
}

/* Rows of a tile that is not the last one.  `rows` is a size of costs.h. */
static inline int32_t nib_tile_aligned(const struct nib_tile_device *device,
				       int32_t rows)
{
	const int32_t align = device->align;

	return align ? (rows + align - 1) / align * align : rows;
}

#endif
