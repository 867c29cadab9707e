/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.cuh - eight e2m1 codes of a word to four pairs of fp16 or bf16, and these
 * times their scale, for the kernels whose products are of 16-bit values.
 *
 *   a word of codes      c7   c6   c5   c4   c3   c2   c1   c0      (bit 31 to 0)
 *   a code               s e e m
 *   as e4m3 (for fp16)   s 0 0 e e m 0 0                    2^-6 times its value
 *     even_as_e4m3()     c6        c4        c2        c0   one byte each
 *     odd_as_e4m3()      c7        c5        c3        c1
 *   as bf16              s 0 0 0 0 0 0 e e m 0 0 0 0 0 0    2^-126 times its value
 *     bf16_pair()        c[i + 4]            c[i]           two bytes each
 *
 * Both are exact.  Pairs come in the order that needs the fewest instructions, which
 * is not the order of k: (first half, second half) of each word of the result,
 *
 *   fp16 by conversions of e4m3        (0, 2)  (4, 6)  (1, 3)  (5, 7)
 *   bf16, and fp16 before these exist  (0, 4)  (1, 5)  (2, 6)  (3, 7)
 *
 * and A is permuted in the same way (permute_as_decoded()), so that each product is
 * of equal k.
 */
#ifndef NIB_DECODE_CUH
#define NIB_DECODE_CUH

#include "ptx.cuh"

/* What A is; NVFP4 becomes fp16. */
enum a_type { A_NVFP4, A_F16, A_BF16 };

/*
 * bf16_pair() gives 2^-126 times the values.  Scales are multiplied by most of the
 * inverse; more would overflow at the largest scale, 448.
 */
#define BF16_CODES 0x1p119f
/* Sums are 1 / WEIGHT_SCALE of their values. */
#define WEIGHT_SCALE(is_bf16) ((is_bf16) ? 128 : 64)
/* The fp16 pair (64, 64). */
#define F16_64 0x54005400u

DEVICE uint32_t even_as_e4m3(uint32_t codes)
{
	return (codes << 4 & 0x80808080u) | (codes << 2 & 0x1C1C1C1Cu);
}

DEVICE uint32_t odd_as_e4m3(uint32_t codes)
{
	return (codes & 0x80808080u) | (codes >> 2 & 0x1C1C1C1Cu);
}

/* sign, magnitude: the word, shifted so that the sign of code 3 and its other bits
 * are in place. */
DEVICE uint32_t bf16_pair(uint32_t sign, uint32_t magnitude)
{
	return (sign & 0x80008000u) | (magnitude & 0x01C001C0u);
}

/*
 * The same for fp16, in which the bits are 2^-14 times the value: 2^-6 times it, as by
 * e4m3, with fewer instructions where none converts e4m3.
 */
DEVICE uint32_t f16_pair(uint32_t sign, uint32_t magnitude)
{
	return mul_f16x2((sign & 0x80008000u) | (magnitude & 0x0E000E00u), 0x5C005C00u);
}

DEVICE void f16_pairs(uint32_t codes, uint32_t values[4])
{
	values[0] = f16_pair(codes << 12, codes << 9);
	values[1] = f16_pair(codes << 8, codes << 5);
	values[2] = f16_pair(codes << 4, codes << 1);
	values[3] = f16_pair(codes, codes >> 3);
}

/* Eight elements of A, in the order of k, to the order of the decoded codes. */
template <bool IS_BF16>
DEVICE uint4 permute_as_decoded(uint4 x)
{
	const uint32_t low = 0x5410, high = 0x7632;

	if (IS_BF16 || !HAS_CVT_E4M3)
		return make_uint4(prmt(x.x, x.z, low), prmt(x.x, x.z, high),
				  prmt(x.y, x.w, low), prmt(x.y, x.w, high));
	return make_uint4(prmt(x.x, x.y, low), prmt(x.z, x.w, low),
			  prmt(x.x, x.y, high), prmt(x.z, x.w, high));
}

/* Eight codes times their scale in A's type, 1 / WEIGHT_SCALE of the values. */
template <bool IS_BF16>
DEVICE void decode(uint32_t codes, uint32_t scale, uint32_t values[4])
{
	if constexpr (IS_BF16) {
		values[0] = mul_bf16x2(bf16_pair(codes << 12, codes << 6), scale);
		values[1] = mul_bf16x2(bf16_pair(codes << 8, codes << 2), scale);
		values[2] = mul_bf16x2(bf16_pair(codes << 4, codes >> 2), scale);
		values[3] = mul_bf16x2(bf16_pair(codes, codes >> 6), scale);
	} else if constexpr (!HAS_CVT_E4M3) {
		f16_pairs(codes, values);
#pragma unroll
		for (int i = 0; i < 4; i++)
			values[i] = mul_f16x2(values[i], scale);
	} else {
		const uint32_t even = even_as_e4m3(codes);
		const uint32_t odd = odd_as_e4m3(codes);

		values[0] = mul_f16x2(cvt_f16x2_e4m3x2(even), scale);
		values[1] = mul_f16x2(cvt_f16x2_e4m3x2_high(even), scale);
		values[2] = mul_f16x2(cvt_f16x2_e4m3x2(odd), scale);
		values[3] = mul_f16x2(cvt_f16x2_e4m3x2_high(odd), scale);
	}
}

/* s[i]: byte i of x, an e4m3 scale, as a pair of equal values in A's type. */
template <bool IS_BF16>
DEVICE void widen_scales(uint32_t x, uint32_t s[2])
{
	const uint32_t both = cvt_f16x2_e4m3x2(x);

	if constexpr (IS_BF16) {
		const float a = low_f32_f16x2(both), b = high_f32_f16x2(both);

		s[0] = cvt_bf16x2_f32(a * BF16_CODES, a * BF16_CODES);
		s[1] = cvt_bf16x2_f32(b * BF16_CODES, b * BF16_CODES);
	} else {
		s[0] = low_halves(both);
		s[1] = high_halves(both);
	}
}

/* Multiplies in an order in which nothing overflows unless the result does. */
template <bool IS_BF16>
DEVICE float result(float sum, float alpha)
{
	const float up = WEIGHT_SCALE(IS_BF16);

	return fabsf(alpha) < 1 ? sum * (up * alpha) : up * sum * alpha;
}

#endif
