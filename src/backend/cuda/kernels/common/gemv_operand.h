/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_operand.h - operands of the kernels for few rows of A, and the tiles of 16
 * rows of B that they multiply.  gemv_params.h and sm100/gemv_params.h add the other
 * parameters.
 */
#ifndef NIB_GEMV_OPERAND_H
#define NIB_GEMV_OPERAND_H

#include <stdint.h>

#ifdef __CUDACC__
#define NIB_GEMV_FN static inline __host__ __device__
#else
#define NIB_GEMV_FN static inline
#endif

/* Rows of b of a tile. */
#define NIB_GEMV_TILE_ROWS 16
/* k that a warp loads and multiplies at a time. */
#define NIB_GEMV_STEP 256

/*
 * An NVFP4 operand in device memory; strides are in bytes.  For a dense A, codes are
 * its elements, and there are no scales.
 */
struct nib_gemv_operand {
	const uint8_t *codes, *scales;
	int64_t row_stride, batch_stride;
	int64_t scale_row_stride, scale_batch_stride;
	int32_t is_tiled;
	/* The alignment of codes, scales and their strides: 16, 4 or 1. */
	int16_t codes_align, scales_align;
};

/*
 * The number of tiles of n >= 0 rows.  With NIB_SCALE_LAYOUT_TILED_128X4 these are the
 * tiles of whole blocks of 128 rows.  Each of the eight tiles of a block has 16 rows
 * whose scales are neighbours.
 */
NIB_GEMV_FN int64_t nib_gemv_tiles(int64_t n, int is_tiled)
{
	const int64_t rows = is_tiled ? 128 : NIB_GEMV_TILE_ROWS;
	const int64_t blocks = n / rows + (n % rows != 0);

	return is_tiled ? blocks * 8 : blocks;
}

/* The row of b that is row r < 16 of a tile; it may be n or more. */
NIB_GEMV_FN int64_t nib_gemv_row(int64_t tile, int r, int is_tiled)
{
	if (is_tiled)
		return tile / 8 * 128 + tile % 8 * 4 + r / 4 + r % 4 * 32;
	return tile * NIB_GEMV_TILE_ROWS + r;
}

#endif
