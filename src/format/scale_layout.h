/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale_layout.h - where the scale of a block is stored: (row, group) -> byte.
 * group = column / 16.  Sizes must be valid; core/sizes.c checks them.
 */
#ifndef NIB_SCALE_LAYOUT_H
#define NIB_SCALE_LAYOUT_H

#include <stdint.h>

#include "core/sizes.h"

/* Byte of a scale inside its tile; row < 128, group < 4. */
static inline int64_t nib_scale_offset_in_tile(int64_t row, int64_t group)
{
	return row % 32 * 16 + row / 32 * 4 + group;
}

/* groups = k / 16 of the whole matrix. */
static inline int64_t nib_scale_offset_tiled(int64_t groups, int64_t row, int64_t group)
{
	const int64_t tiles_across = (groups + 3) / 4;
	const int64_t tile = row / 128 * tiles_across + group / 4;

	return tile * NIB_SCALE_TILE_BYTES +
	       nib_scale_offset_in_tile(row % 128, group % 4);
}

#endif
