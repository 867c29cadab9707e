/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_copy.cuh - which rows, steps and bytes of b a warp of sm90_gemv.cu
 * copies, and in what order.
 */
#ifndef NIB_GEMV_COPY_CUH
#define NIB_GEMV_COPY_CUH

#include "gemv_params.h"
#include "ptx.cuh"

#define STEP_BLOCKS (NIB_GEMV_STEP / 16)
/* Codes of a row of a stage. */
#define ROW_BYTES (NIB_GEMV_STEP / 2)
#define CODES_BYTES (NIB_GEMV_TILE_ROWS * ROW_BYTES)
/* The next step to be copied, or multiplied. */
struct cursor {
	int tile, step, begin, end; /* begin, end: steps of the phase */
};

template <int TOKENS> __device__ int phase_steps(void)
{
	return NIB_GEMV_PHASE(TOKENS) / NIB_GEMV_STEP;
}

__device__ static int all_steps(const struct nib_gemv_params &p)
{
	return (p.k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP;
}

__device__ static int64_t scale_offset(const struct nib_gemv_operand &v,
				       int64_t row, int block, int blocks)
{
	if (!v.is_tiled)
		return row * v.scale_row_stride + block;
	return (row / 128 * ((blocks + 3) / 4) + block / 4) * 512 +
	       row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

/* 16 bytes into shared memory; of the source the first bytes, then zeros. */
__device__ static void copy_16(uint32_t to, const uint8_t *from, int bytes,
			       int align)
{
	uint32_t word[4] = {0, 0, 0, 0};

	if (align >= 16) {
		cp_async_16(to, from, bytes);
	} else if (align >= 4) {
		for (int i = 0; i < 16; i += 4)
			cp_async_4(to + i, from + i,
				   min(max(bytes - i, 0), 4));
	} else {
#pragma unroll
		for (int i = 0; i < 16; i++)
			if (i < bytes)
				word[i / 4] |= (uint32_t)from[i]
					       << (i % 4 * 8);
		sts_128(to, make_uint4(word[0], word[1], word[2], word[3]));
	}
}

/*
 * A stage: rows of 128 bytes of codes, whose 16-byte pieces are swapped in
 * pairs in odd rows (banks); then 16 pieces of scales: those of a row (LINEAR), or of
 * four rows of a tile column (TILED).  A lane copies piece lane % 8 of the rows
 * lane / 8 + 4i, and one piece of scales if lane < 16.
 */
__device__ static uint32_t lane_target(void)
{
	const int lane = threadIdx.x % 32, piece = lane % 8, r = lane / 8;

	return r * ROW_BYTES + (piece ^ r % 2) * 16;
}

/* A TILED step is four tile columns of 512 bytes. */
__device__ static int scale_step_bytes(const struct nib_gemv_operand &b)
{
	return b.is_tiled ? 2048 : STEP_BLOCKS;
}

/* What a lane copies of a tile, at k = 0; fixed for all its steps. */
struct source {
	const uint8_t *codes, *scales;
	int rows;   /* of its four rows of codes, those that are there */
	int bytes;  /* of a row of codes from its own piece on */
	int blocks; /* scales from its own on; 0: none to copy */
	int whole;  /* steps of which all 16 rows are there in full */
	int64_t pitch; /* from one of its rows of codes to the next */
};

__device__ static struct source source_of(const struct nib_gemv_params &p,
					  const struct nib_gemv_operand &b,
					  int tile)
{
	const int lane = threadIdx.x % 32, blocks = p.k / 16;
	const int64_t row = nib_gemv_row(tile, lane / 8, b.is_tiled);
	/* Rows r + 4i: next to each other in a tile column of scales. */
	const int64_t left = (p.n - row + (b.is_tiled ? 0 : 3)) /
			     (b.is_tiled ? 1 : 4);
	struct source s;

	s.rows = (int)min(max(left, (int64_t)0), (int64_t)4);
	s.codes = b.codes + row * b.row_stride + lane % 8 * 16;
	s.bytes = p.k / 2 - lane % 8 * 16;
	if (b.is_tiled) {
		const int64_t scale_row =
			nib_gemv_row(tile, lane % 16 / 4 * 4, true);

		s.scales = b.scales +
			   scale_offset(b, scale_row, lane % 4 * 4, blocks);
		s.blocks = (blocks + 3) / 4 * 4 - lane % 4 * 4;
	} else {
		const int64_t scale_row =
			nib_gemv_row(tile, lane % 16, false);

		s.scales = b.scales + scale_offset(b, scale_row, 0, blocks);
		s.blocks = scale_row < p.n ? blocks : 0;
	}
	if (lane >= 16)
		s.blocks = 0;
	s.whole = nib_gemv_row(tile, NIB_GEMV_TILE_ROWS - 1, b.is_tiled) < p.n
			  ? p.k / NIB_GEMV_STEP
			  : 0;
	s.pitch = b.is_tiled ? b.row_stride : 4 * b.row_stride;
	return s;
}

/* A step without edges, of aligned pieces. */
__device__ static void copy_whole_step(const struct nib_gemv_operand &b,
				       const struct source &from,
				       uint32_t codes_to, uint32_t scales_to,
				       int step)
{
	const uint8_t *codes = from.codes + step * ROW_BYTES;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		cp_async_16_l2_256(codes_to + i * 4 * ROW_BYTES, codes);
		codes += from.pitch;
	}
	if (from.blocks > 0)
		cp_async_16_l2_256(scales_to,
				   from.scales + step * scale_step_bytes(b));
}

/* Any step: rows and bytes behind the matrix become zeros. */
template <bool ALIGNED>
__device__ static void copy_step(const struct nib_gemv_operand &b,
				 const struct source &from, uint32_t codes_to,
				 uint32_t scales_to, int step)
{
	const uint8_t *codes = from.codes + step * ROW_BYTES;
	const int bytes = from.bytes - step * ROW_BYTES;
	const int scales = from.blocks - step * STEP_BLOCKS;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (ALIGNED)
			cp_async_16_or_zero(codes_to + i * 4 * ROW_BYTES, codes,
					    i < from.rows && bytes > 0);
		else
			copy_16(codes_to + i * 4 * ROW_BYTES,
				i < from.rows && bytes > 0 ? codes : b.codes,
				i < from.rows ? min(max(bytes, 0), 16) : 0,
				b.codes_align);
		codes += from.pitch;
	}
	if (threadIdx.x % 32 >= 16)
		return;
	copy_16(scales_to,
		scales > 0 ? from.scales + step * scale_step_bytes(b)
			   : b.scales,
		b.is_tiled && scales > 0 ? 16 : min(max(scales, 0), 16),
		ALIGNED ? 16 : b.scales_align);
}

/*
 * Moves on to the warp's next step and says if that is in another tile;
 * step >= all_steps() is the end.
 */
template <int TOKENS>
__device__ static bool advance(struct cursor *at, int tiles, int steps)
{
	at->step += NIB_GEMV_WARPS;
	if (at->step < at->end)
		return false;
	if (++at->tile == tiles) {
		at->tile = 0;
		at->begin += phase_steps<TOKENS>();
		at->end = min(at->begin + phase_steps<TOKENS>(), steps);
	}
	at->step = at->begin + threadIdx.x / 32;
	return true;
}

#endif
