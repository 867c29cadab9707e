/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_load.cuh - how a warp of the vector, skinny and wide kernels loads B: a stage is
 * a step of k256 of a tile of 16 rows, codes and then scales.
 *
 *   offset 0        codes: 16 rows of 128 bytes, 8 pieces of 16 bytes each
 *
 *     slot          0  1  2  3  4  5  6  7
 *     even rows     0  1  2  3  4  5  6  7      pieces are swapped in pairs, so that
 *     odd rows      1  0  3  2  5  4  7  6      lanes 4g + t, which read pieces 2t and
 *                                               2t + 1 of row g, use different banks
 *     (skinny.cuh has another swizzle for its reads of 8 bytes.)
 *
 *   offset 2048     scales: 16 pieces of 16 bytes
 *
 *     linear        piece r: the 16 scales of row r
 *     tiled         piece 4a + j: 4 scales of k64 number j for rows 4a .. 4a + 3, which
 *                   are 32 rows apart in the matrix (nib_gemv_row())
 *
 * A lane loads piece lane % 8 of rows lane / 8 + 4i for i = 0 .. 3, and if lane < 16
 * piece `lane` of the scales.
 */
#ifndef NIB_GEMV_LOAD_CUH
#define NIB_GEMV_LOAD_CUH

#include "gemv_params.h"
#include "ptx.cuh"

#define STEP_BLOCKS (NIB_GEMV_STEP / 16)
/* Codes of a row of a stage. */
#define ROW_BYTES   (NIB_GEMV_STEP / 2)
#define CODES_BYTES (NIB_GEMV_TILE_ROWS * ROW_BYTES)
/* A position of a warp in its stream of steps. */
struct cursor {
	int tile, step, begin, end; /* begin, end: steps of the phase */
};

DEVICE int all_steps(const struct nib_gemv_params &p)
{
	return (p.k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP;
}

/* Loads 16 bytes into shared memory: the first `bytes` of the source, then zeros. */
DEVICE void load_16(uint32_t to, const uint8_t *from, int bytes, int align)
{
	uint32_t word[4] = {0, 0, 0, 0};

	if (align >= 16) {
		cp_async_16(to, from, bytes);
	} else if (align >= 4) {
		for (int i = 0; i < 16; i += 4)
			cp_async_4(to + i, from + i, min(max(bytes - i, 0), 4));
	} else {
#pragma unroll
		for (int i = 0; i < 16; i++)
			if (i < bytes)
				word[i / 4] |= (uint32_t)from[i] << (i % 4 * 8);
		sts_128(to, make_uint4(word[0], word[1], word[2], word[3]));
	}
}

/* The offset in a stage of the first piece of codes that a lane loads. */
DEVICE uint32_t lane_target(void)
{
	const int lane = threadIdx.x % 32, piece = lane % 8, r = lane / 8;

	return r * ROW_BYTES + (piece ^ r % 2) * 16;
}

/* From the scales of a step to the next; a tiled step is four tiles of 512 bytes. */
DEVICE int scale_step_bytes(const struct nib_gemv_operand &b)
{
	return b.is_tiled ? 2048 : STEP_BLOCKS;
}

/* From one of a lane's rows of codes to the next. */
DEVICE int64_t row_pitch(const struct nib_gemv_operand &b)
{
	return b.is_tiled ? b.row_stride : 4 * b.row_stride;
}

/* What a lane loads of a tile at k = 0. */
struct source {
	const uint8_t *codes, *scales;
	int rows;   /* of its four rows of codes, those inside the matrix */
	int bytes;  /* of a row of codes from the lane's piece on */
	int blocks; /* scales from the lane's piece on; 0: none */
};

DEVICE struct source source_of(const struct nib_gemv_params &p,
			       const struct nib_gemv_operand &b, uint32_t tile)
{
	const int lane = threadIdx.x % 32, blocks = p.k / 16;
	/* Block of 128 rows, and tile in it; used for tiled scales. */
	const int64_t block = tile / 8, in_block = tile % 8;
	const int64_t row = nib_gemv_row(tile, lane / 8, b.is_tiled);
	struct source source;

	source.codes = b.codes + (row < p.n ? row : 0) * b.row_stride +
		       (lane % 8 * 32 < p.k ? lane % 8 * 16 : 0);
	source.bytes = p.k / 2 - lane % 8 * 16;
	if (b.is_tiled) {
		const int64_t columns = (blocks + 3) / 4;

		/* The lane's four rows are neighbours in the matrix. */
		source.rows = (int)min(max(p.n - row, (int64_t)0), (int64_t)4);
		source.scales =
		    b.scales +
		    (block * columns + (lane % 4 < columns ? lane % 4 : 0)) * 512 +
		    in_block * 64 + lane / 4 * 16;
		source.blocks = (int)columns * 4 - lane % 4 * 4;
	} else {
		const int64_t scale_row = nib_gemv_row(tile, lane, false);

		source.rows = (int)min(max(p.n - row + 3, (int64_t)0) >> 2, (int64_t)4);
		source.scales =
		    b.scales + (scale_row < p.n ? scale_row : 0) * b.scale_row_stride;
		source.blocks = scale_row < p.n ? blocks : 0;
	}
	return source;
}

/*
 * Loads a step of aligned pieces.  Rows and codes outside the matrix are replaced by
 * others: these rows are not stored, and these codes are multiplied by zeros of A.
 */
DEVICE void load_aligned_step(const struct nib_gemv_operand &b,
			      const struct source &from, uint32_t codes_to,
			      uint32_t scales_to, int step)
{
	const int at = step * ROW_BYTES;
	const int scales = from.blocks - step * STEP_BLOCKS;
	const uint8_t *codes = from.codes + (at < from.bytes ? at : 0);

#pragma unroll
	for (int i = 0; i < 4; i++) {
		cp_async_16_l2_256(codes_to + i * 4 * ROW_BYTES, codes);
		if (i + 1 < from.rows)
			codes += row_pitch(b);
	}
	/* The reader masks the scales beyond the last block. */
	if (threadIdx.x % 32 < 16)
		cp_async_16(scales_to,
			    from.scales + (scales > 0 ? step * scale_step_bytes(b) : 0),
			    b.is_tiled ? 16 : min(max(scales, 0), 16));
}

/* Loads a step of any alignment: rows and bytes outside the matrix become zeros. */
DEVICE void load_any_step(const struct nib_gemv_operand &b, const struct source &from,
			  uint32_t codes_to, uint32_t scales_to, int step)
{
	const uint8_t *codes = from.codes + step * ROW_BYTES;
	const int bytes = from.bytes - step * ROW_BYTES;
	const int scales = from.blocks - step * STEP_BLOCKS;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		load_16(codes_to + i * 4 * ROW_BYTES,
			i < from.rows && bytes > 0 ? codes : b.codes,
			i < from.rows ? min(max(bytes, 0), 16) : 0, b.codes_align);
		codes += row_pitch(b);
	}
	if (threadIdx.x % 32 >= 16)
		return;
	load_16(
	    scales_to, scales > 0 ? from.scales + step * scale_step_bytes(b) : b.scales,
	    b.is_tiled && scales > 0 ? 16 : min(max(scales, 0), 16), b.scales_align);
}

/* Moves to the warp's next step; step >= all_steps() is the end.  Returns whether it is
 * in another tile.  phase: the steps of a phase. */
DEVICE bool advance(struct cursor *cursor, int tiles, int steps, int phase)
{
	cursor->step += NIB_GEMV_WARPS;
	if (cursor->step < cursor->end)
		return false;
	if (++cursor->tile == tiles) {
		cursor->tile = 0;
		cursor->begin += phase;
		cursor->end = min(cursor->begin + phase, steps);
	}
	cursor->step = cursor->begin + threadIdx.x / 32;
	return true;
}

#endif
