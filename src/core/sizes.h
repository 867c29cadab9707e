/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - the size of a tile of scales. */
#ifndef NIB_SIZES_H
#define NIB_SIZES_H

#include "nibblas.h"

/* NIB_SCALE_LAYOUT_TILED_128X4: a tile of 128 rows by 4 groups is 512 bytes. */
#define NIB_SCALE_TILE_ROWS   128
#define NIB_SCALE_TILE_GROUPS 4
#define NIB_SCALE_TILE_BYTES  512

#endif
