/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode_by_k.cuh - codes times scales in the order of k, so that A needs no
 * permutation; decode.cuh has the order that needs the fewest instructions.
 *
 *   a word of codes    c7  c6  c5  c4  c3  c2  c1  c0     (bit 31 to 0)
 *   decoded            (c0, c1)  (c2, c3)  (c4, c5)  (c6, c7)
 *
 * With conversions of e4m3 that costs two more instructions for eight codes.  Without
 * them a table is used, which takes one instruction less than the shifts of decode().
 */
#ifndef NIB_DECODE_BY_K_CUH
#define NIB_DECODE_BY_K_CUH

#include "decode.cuh"

/* Codes c0 to c3 of a word (half = 0), or c4 to c7, times their scale: a code selects
 * its value's high byte of fp16, or both bytes of bf16, in a table. */
template <bool IS_BF16>
DEVICE void decode_half_by_k(uint32_t codes, int half, uint32_t scale,
			     uint32_t values[2])
{
	const uint32_t sizes = (half ? codes >> 16 : codes) & 0x7777u;
	const uint32_t signs =
	    prmt(codes << 4, codes, half ? 0x7362 : 0x5140) & 0x80808080u;

	if constexpr (IS_BF16) {
		const uint32_t low = prmt(0xC0800000u, 0xC0804000u, sizes);
		const uint32_t high = prmt(0x3F3F3F00u, 0x40404040u, sizes) | signs;

		values[0] = mul_bf16x2(prmt(low, high, 0x5140), scale);
		values[1] = mul_bf16x2(prmt(low, high, 0x7362), scale);
	} else {
		const uint32_t high = prmt(0x3E3C3800u, 0x46444240u, sizes) | signs;

		values[0] = mul_f16x2(prmt(high, 0, 0x1404), scale);
		values[1] = mul_f16x2(prmt(high, 0, 0x3424), scale);
	}
}

/* decode() with pairs (0, 1)  (2, 3)  (4, 5)  (6, 7), for scales of
 * widen_scales_by_k(). */
template <bool IS_BF16>
DEVICE void decode_by_k(uint32_t codes, uint32_t scale, uint32_t values[4])
{
	if constexpr (IS_BF16 || !HAS_CVT_E4M3) {
		decode_half_by_k<IS_BF16>(codes, 0, scale, values);
		decode_half_by_k<IS_BF16>(codes, 1, scale, values + 2);
	} else {
		const uint32_t even = even_as_e4m3(codes);
		const uint32_t odd = odd_as_e4m3(codes);
		const uint32_t low = prmt(even, odd, 0x5140);
		const uint32_t high = prmt(even, odd, 0x7362);

		values[0] = mul_f16x2(cvt_f16x2_e4m3x2(low), scale);
		values[1] = mul_f16x2(cvt_f16x2_e4m3x2_high(low), scale);
		values[2] = mul_f16x2(cvt_f16x2_e4m3x2(high), scale);
		values[3] = mul_f16x2(cvt_f16x2_e4m3x2_high(high), scale);
	}
}

template <bool IS_BF16>
DEVICE void widen_scales_by_k(uint32_t x, uint32_t s[2])
{
	if constexpr (IS_BF16) {
		const uint32_t both = cvt_f16x2_e4m3x2(x);
		const float a = low_f32_f16x2(both), b = high_f32_f16x2(both);

		s[0] = cvt_bf16x2_f32(a * 0x1p-7f, a * 0x1p-7f);
		s[1] = cvt_bf16x2_f32(b * 0x1p-7f, b * 0x1p-7f);
	} else {
		widen_scales<false>(x, s);
		if (!HAS_CVT_E4M3) {
			s[0] = mul_f16x2(s[0], 0x24002400u); /* 2^-6 */
			s[1] = mul_f16x2(s[1], 0x24002400u);
		}
	}
}

#endif
