/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale_layout.h - where the scale of a block lies: (row, group) -> byte.
 * group = column / 16.  Sizes are taken as valid; see scale_layout.c for those
 * that are not.
 */
#ifndef NIB_SCALE_LAYOUT_H
#define NIB_SCALE_LAYOUT_H

#include <stdint.h>

#include "nibblas.h"

/* NIB_TILED_128X4: a tile of 128 rows by 4 groups is 512 bytes. */
#define NIB_SCALE_TILE_ROWS   128
#define NIB_SCALE_TILE_GROUPS 4
#define NIB_SCALE_TILE_BYTES  512

/* Byte of a scale inside its tile; row < 128, group < 4. */
static inline int64_t nib_scale_offset_in_tile(int64_t row, int64_t group)
{
	return row % 32 * 16 + row / 32 * 4 + group;
}

/* groups = k / 16 of the whole matrix. */
static inline int64_t nib_scale_offset_tiled(int64_t groups, int64_t row,
					     int64_t group)
{
	const int64_t tiles_across = (groups + 3) / 4;
	const int64_t tile = row / 128 * tiles_across + group / 4;

	return tile * NIB_SCALE_TILE_BYTES +
	       nib_scale_offset_in_tile(row % 128, group % 4);
}

#endif
