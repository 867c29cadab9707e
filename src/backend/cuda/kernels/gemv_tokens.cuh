/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_tokens.cuh - sm90_gemv.cu's tokens: what a CTA keeps of A in shared
 * memory, codes as int8 (twice their values) and scales as fp32.
 *
 * They are asked for before anything of B, which would be served first, and
 * converted while B is on its way: as they come they lie in the upper half of
 * the codes' place and the upper quarter of the scales'.
 */
#ifndef NIB_GEMV_TOKENS_CUH
#define NIB_GEMV_TOKENS_CUH

#include "gemv_copy.cuh"

/* Twice the values of codes 0..3 and 4..7. */
#define TWICE_LOW  0x03020100u
#define TWICE_HIGH 0x0C080604u
#define SIGNS	   0x88888888u

/* Where a CTA's shared memory has what. */
struct layout {
	uint32_t ring, zeros, codes, scales;
	int kept; /* k of each token in codes and scales */
};

/*
 * Eight codes as int8: those with clear sign bits, the others as zero.  low:
 * table_low(), or TWICE_LOW itself where speed does not matter.
 */
__device__ static void look_up(uint32_t codes, uint32_t low, uint32_t *first,
			       uint32_t *second)
{
	*first = prmt(low, TWICE_HIGH, codes);
	*second = prmt(low, TWICE_HIGH, codes >> 16);
}

/* Where a token's codes and scales lie as they come. */
__device__ static uint32_t raw_codes(const struct layout &at, int token)
{
	return at.codes + token * at.kept + at.kept / 2;
}

__device__ static uint32_t raw_scales(const struct layout &at, int token)
{
	return at.scales + token * (at.kept / 4) + at.kept / 16 * 3;
}

/* Four scales; of the source the first `bytes`, then zeros. */
template <bool ALIGNED>
__device__ static void copy_4(uint32_t to, const uint8_t *from, int bytes)
{
	if constexpr (ALIGNED) {
		cp_async_4(to, from, bytes);
	} else {
		uint32_t word = 0;

		for (int i = 0; i < bytes; i++)
			word |= (uint32_t)from[i] << i * 8;
		sts_32(to, word);
	}
}

/* Asks for a token's phase of `blocks` blocks; zeros behind them. */
template <bool ALIGNED>
__device__ static void copy_token(const struct nib_gemv_operand &a,
				  const uint8_t *codes, const uint8_t *scales,
				  uint32_t to, uint32_t scales_to, int blocks,
				  int kept)
{
	const int pitch = a.is_tiled ? 512 : 4;

#pragma unroll 1
	for (int i = threadIdx.x; i < kept / 32; i += NIB_GEMV_THREADS) {
		const int bytes = min(max(blocks * 8 - i * 16, 0), 16);

		copy_16(to + i * 16, bytes ? codes + i * 16 : a.codes, bytes,
			ALIGNED ? 16 : a.codes_align);
	}
#pragma unroll 1
	for (int i = threadIdx.x; i < kept / 64; i += NIB_GEMV_THREADS) {
		const int bytes = min(max(blocks - i * 4, 0), 4);

		copy_4<ALIGNED>(scales_to + i * 4,
				bytes ? scales + i * pitch : a.scales, bytes);
	}
}

/* Asks for a phase, which begins with block `first`. */
template <int TOKENS, bool ALIGNED>
__device__ static void copy_tokens(const struct nib_gemv_params &p,
				   const struct nib_gemv_operand &a,
				   const struct layout &at, int first)
{
#pragma unroll 1
	for (int token = 0; token < TOKENS; token++)
		copy_token<ALIGNED>(
			a, a.codes + token * a.row_stride + first * 8,
			a.scales + (a.is_tiled ? first * 128 + token * 16
					       : token * a.scale_row_stride +
							 first),
			raw_codes(at, token), raw_scales(at, token),
			token < p.m ? p.k / 16 - first : 0, at.kept);
}

/* Four codes of each kind, of which one is zero; bytes do not borrow. */
__device__ static uint32_t difference(uint32_t positive, uint32_t negative)
{
	return ((positive | 0x80808080u) - negative) ^ 0x80808080u;
}

__device__ static void store_block(uint32_t to, uint32_t low, uint32_t high)
{
	uint32_t plus[4], minus[4];

	look_up(low, TWICE_LOW, &plus[0], &plus[1]);
	look_up(high, TWICE_LOW, &plus[2], &plus[3]);
	look_up(low ^ SIGNS, TWICE_LOW, &minus[0], &minus[1]);
	look_up(high ^ SIGNS, TWICE_LOW, &minus[2], &minus[3]);
	sts_128(to, make_uint4(difference(plus[0], minus[0]),
			       difference(plus[1], minus[1]),
			       difference(plus[2], minus[2]),
			       difference(plus[3], minus[3])));
}

/*
 * Where a block of 16 codes lies.  For one token the lanes of a quad read
 * neighbours: block b of lane t of a step is number 4t + b, place 4b + t.
 */
template <int TOKENS> __device__ uint32_t place_of_block(unsigned block)
{
	return 16 * (TOKENS > 1
			     ? block
			     : block / 16 * 16 + block % 4 * 4 + block / 4 % 4);
}

/*
 * A token in rounds of NIB_GEMV_THREADS pairs of blocks.  What a round writes
 * lies below what later rounds read, as a pair is half as long before.
 */
template <int TOKENS>
__device__ static void convert_token(const struct layout &at, int token)
{
	const uint32_t codes = at.codes + token * at.kept;
	const uint32_t scales = at.scales + token * (at.kept / 4);

#pragma unroll 1
	for (unsigned first = 0; first < at.kept / 32u;
	     first += NIB_GEMV_THREADS) {
		const unsigned i = first + threadIdx.x;
		const bool is_there = i < at.kept / 32u;
		uint4 x = make_uint4(0, 0, 0, 0);
		uint32_t h = 0;

		if (is_there) {
			x = lds_128(raw_codes(at, token) + i * 16);
			h = lds_u16(raw_scales(at, token) + i * 2);
		}
		__syncthreads();
		if (is_there) {
			h = cvt_f16x2_e4m3x2(h);
			store_block(codes + place_of_block<TOKENS>(2 * i), x.x,
				    x.y);
			store_block(codes + place_of_block<TOKENS>(2 * i + 1),
				    x.z, x.w);
			sts_f32(scales + i * 8,
				__low2float(*(const __half2 *)&h));
			sts_f32(scales + i * 8 + 4,
				__high2float(*(const __half2 *)&h));
		}
	}
}

/* What this thread copied is there. */
template <int TOKENS>
__device__ static void convert_tokens(const struct layout &at)
{
	__syncthreads();
#pragma unroll 1
	for (int token = 0; token < TOKENS; token++)
		convert_token<TOKENS>(at, token);
	__syncthreads();
}

#endif
