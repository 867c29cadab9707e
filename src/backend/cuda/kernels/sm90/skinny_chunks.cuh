/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny_chunks.cuh - what the producer warps of skinny.cuh do: they load chunks of A,
 * permute them as decoded codes are (decode.cuh) and store them in shared memory.
 *
 * A chunk is k256 of the rows of A in pieces of 16 bytes, each half a block (8 values)
 * of a row.  A piece is at
 *
 *   tile * CHUNK_N_TILE + k64 * CHUNK_K64 + half * CHUNK_HALF + row * 64 + block * 16
 *
 *   tile 0, k64 0      half 0: row 0: blocks 0 1 2 3, row 1: blocks 0 1 2 3, ... row 7
 *                      half 1: row 0: blocks 0 1 2 3, ...
 *   tile 0, k64 1      half 0: ...
 *
 * where tile is the n8 tile and blocks are counted in the k64.  Lane 4g + t of a
 * consumer warp reads block t of row g, so that the lanes read 512 consecutive bytes.
 * Lane 8j + 2t + h of a producer writes half h of block t of k64 j.
 */
#ifndef NIB_SKINNY_CHUNKS_CUH
#define NIB_SKINNY_CHUNKS_CUH

#include "backend/cuda/kernels/common/decode.cuh"
#include "backend/cuda/kernels/common/gemv_load.cuh"
#include "backend/cuda/kernels/common/ptx_mma16.cuh"
#include "ptx_wgmma.cuh"
#include "skinny_rounds.cuh"

/* Strides of a chunk in bytes. */
#define CHUNK_N_TILE 4096
#define CHUNK_K64    1024
#define CHUNK_HALF   512

/* ---- chunks of A --------------------------------------------------------- */

/* Eight elements at any address. */
DEVICE uint4 load_elements(const uint8_t *from)
{
	const uint16_t *x = (const uint16_t *)from;
	uint32_t word[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		word[i] = x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Four bytes at any address. */
DEVICE uint32_t load_bytes(const uint8_t *from)
{
	return from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;
}

/* NaN of e4m3. */
#define NO_SCALE 0x7Fu

/* A's scale of a block of a row; NaN for row -1 (scales of an expert that leave their
 * tensor). */
template <class TRAITS>
DEVICE uint32_t load_scale(const struct nib_gemv_params &p,
			   const struct nib_gemv_operand &a, int row, int block)
{
	const int64_t columns = (p.k / 16 + 3) / 4;

	if (TRAITS::IS_MOE && row < 0)
		return NO_SCALE;
	if (!a.is_tiled)
		return a.scales[row * a.scale_row_stride + block];
	return a.scales[(row / 128 * columns + block / 4) * 512 + row % 32 * 16 +
			row % 128 / 32 * 4 + block % 4];
}

/* Eight NVFP4 values of a row from k on: x has their codes, y the scale. */
template <class TRAITS>
DEVICE uint4 load_nvfp4(const struct nib_gemv_params &p,
			const struct nib_gemv_operand &a, const struct cta &cta,
			int row, int k)
{
	const uint8_t *from = a.codes + row * a.row_stride + k / 2;
	uint4 x = make_uint4(0, 0, 0, 0);

	x.x = TRAITS::ALIGNED ? *(const uint32_t *)from : load_bytes(from);
	x.y = load_scale<TRAITS>(p, a, TRAITS::IS_MOE ? cta.scale_rows[row] : row,
				 k / 16);
	return x;
}

/* x[i]: the lane's 8 values of row i of the round, at this step; zeros outside A. */
template <class TRAITS>
DEVICE void load_chunk(const struct nib_gemv_params &p,
		       const struct nib_gemv_operand &a, const struct cta &cta,
		       const struct position &pos, uint4 (&x)[TRAITS::M])
{
	const int k = pos.step * NIB_GEMV_STEP + threadIdx.x % 32 * 8;

#pragma unroll
	for (int i = 0; i < TRAITS::M; i++) {
		const int row = TRAITS::IS_MOE ? pos.round.row + i : i;
		const uint8_t *from = a.codes + row * a.row_stride + (int64_t)k * 2;

		x[i] = make_uint4(0, 0, 0, 0);
		/* k is a multiple of 16. */
		if (i >= pos.round.rows || k >= p.k)
			continue;
		if (TRAITS::IS_NVFP4)
			x[i] = load_nvfp4<TRAITS>(p, a, cta, row, k);
		else
			x[i] = TRAITS::ALIGNED ? *(const uint4 *)from
					       : load_elements(from);
	}
}

/* A piece of the chunk from what load_chunk() has loaded. */
template <class TRAITS>
DEVICE uint4 operand_piece(uint4 x)
{
	uint32_t w[4], s[2];

	if constexpr (TRAITS::IS_NVFP4) {
		widen_scales<false>(x.y, s);
		decode<false>(x.x, mul_f16x2(s[0], F16_64), w);
		return make_uint4(w[0], w[1], w[2], w[3]);
	}
	return permute_as_decoded<TRAITS::IS_BF16>(x);
}

/* Stores the lane's pieces of all rows. */
template <class TRAITS>
DEVICE void store_chunk(uint32_t chunk, const uint4 (&x)[TRAITS::M])
{
	const int lane = threadIdx.x % 32;
	const uint32_t to =
	    chunk + lane / 8 * CHUNK_K64 + lane % 2 * CHUNK_HALF + lane / 2 % 4 * 16;

#pragma unroll
	for (int row = 0; row < TRAITS::M; row++)
		sts_128(to + row / 8 * CHUNK_N_TILE + row % 8 * 64,
			operand_piece<TRAITS>(x[row]));
	__syncwarp();
}

/* A producer warp: every chunk number CHUNKS + producer, + NIB_SKINNY_PRODUCERS, ... of
 * all rounds. */
template <class TRAITS>
DEVICE void produce_chunks(const struct nib_skinny_params &params,
			   const struct nib_gemv_operand &a, const struct cta &cta)
{
	const int steps = all_steps(params.p);
	const int producer = threadIdx.x / 32 - NIB_SKINNY_WARPS;
	struct position pos = {round_at<TRAITS>(params, cta, cta.tile),
			       TRAITS::CHUNKS + producer};

	find_position<TRAITS>(params, cta, steps, &pos);
#pragma unroll 1
	for (int i = TRAITS::CHUNKS + producer; pos.round.count > 0;
	     i += NIB_SKINNY_PRODUCERS) {
		const int chunk = i % TRAITS::CHUNKS;
		uint4 x[TRAITS::M];

		load_chunk<TRAITS>(params.p, a, cta, pos, x);
		wait(empty<TRAITS>(cta.shared, chunk), i / TRAITS::CHUNKS % 2 ^ 1);
		store_chunk<TRAITS>(
		    cta.shared + TRAITS::CHUNKS_AT + chunk * TRAITS::CHUNK_BYTES, x);
		mbarrier_arrive(full<TRAITS>(cta.shared, chunk));
		pos.step += NIB_SKINNY_PRODUCERS;
		find_position<TRAITS>(params, cta, steps, &pos);
	}
}

#endif
