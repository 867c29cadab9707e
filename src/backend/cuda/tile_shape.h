/* SPDX-License-Identifier: Apache-2.0 */
/* tile_shape.h - what tiles.c and tile_search.c cut into tiles. */
#ifndef NIB_CUDA_TILE_SHAPE_H
#define NIB_CUDA_TILE_SHAPE_H

#include <stdint.h>

/* One multiplication: all batches of a problem are problems of their own. */
struct nib_tile_shape {
	int32_t m, n, k;
};

#endif
