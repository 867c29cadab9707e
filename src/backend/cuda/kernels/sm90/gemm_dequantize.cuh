/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_dequantize.cuh - weights from codes to the A operand of wgmma, in
 * registers.  A value is e2m1 * scale * 2^-6, or in bf16 * 2^-7, exact; the
 * epilogue multiplies by the inverse (UNSCALE).
 */
#ifndef NIB_GEMM_DEQUANTIZE_CUH
#define NIB_GEMM_DEQUANTIZE_CUH

#include "gemm_shared.cuh"

/* What accumulators are multiplied by. */
#define UNSCALE(a) ((a) == NIB_A_BF16 ? 128.0f : 64.0f)

/* The even, the odd codes of a word, each times 2^-6, as e4m3 bytes. */
DEVICE uint32_t even_as_e4m3(uint32_t q)
{
	return (q << 4 & 0x80808080u) | (q << 2 & 0x1C1C1C1Cu);
}

DEVICE uint32_t odd_as_e4m3(uint32_t q)
{
	return (q & 0x80808080u) | (q >> 2 & 0x1C1C1C1Cu);
}

/*
 * Codes of a word as fp16 times 2^-6 times scale, exact: a code becomes an e4m3
 * (its two exponent bits and one of mantissa in place, sign on top), which is
 * the value times 2^-6.  out: codes (0,2), (4,6), (1,3), (5,7).
 */
DEVICE void dequantize8(uint32_t q, uint32_t scale, uint32_t *out)
{
	const uint32_t even = even_as_e4m3(q);
	const uint32_t odd = odd_as_e4m3(q);

	out[0] = mul_f16x2(cvt_f16x2_e4m3x2(even), scale);
	out[1] = mul_f16x2(cvt_f16x2_e4m3x2_high(even), scale);
	out[2] = mul_f16x2(cvt_f16x2_e4m3x2(odd), scale);
	out[3] = mul_f16x2(cvt_f16x2_e4m3x2_high(odd), scale);
}

/*
 * The same as bf16: a code's exponent and fraction bits become the lowest ones of
 * bf16's exponent and the highest one of its fraction, which is the value times
 * 2^-126; scale has the inverse of most of that.  As many instructions of logic
 * as conversions of fp16 take.  out: codes (0,4), (2,6), (1,5), (3,7).
 */
DEVICE void dequantize8_bf16(uint32_t q, uint32_t scale, uint32_t *out)
{
	out[0] = mul_bf16x2((q << 12 & 0x80008000u) | (q << 6 & 0x01C001C0u), scale);
	out[1] = mul_bf16x2((q << 4 & 0x80008000u) | (q >> 2 & 0x01C001C0u), scale);
	out[2] = mul_bf16x2((q << 8 & 0x80008000u) | (q << 2 & 0x01C001C0u), scale);
	out[3] = mul_bf16x2((q & 0x80008000u) | (q >> 6 & 0x01C001C0u), scale);
}

template <int A>
DEVICE void dequantize(uint32_t q, uint32_t scale, uint32_t *out)
{
	if constexpr (A == NIB_A_BF16)
		dequantize8_bf16(q, scale, out);
	else
		dequantize8(q, scale, out);
}

/*
 * Two scales, bytes of e4m3, as a pair to multiply by: fp16; or bf16 times 2^119,
 * of which 448 is the most.
 */
template <int A>
DEVICE uint32_t scale_pair(uint32_t bytes)
{
	const uint32_t halves = cvt_f16x2_e4m3x2(bytes);

	if constexpr (A == NIB_A_BF16)
		return cvt_bf16x2_f32(low_f32_f16x2(halves) * 0x1p119f,
				      high_f32_f16x2(halves) * 0x1p119f);
	return halves;
}

#endif
