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

DEVICE uint32_t even_as_e4m3(uint32_t q)
{
	return (q << 4 & 0x80808080u) | (q << 2 & 0x1C1C1C1Cu);
}

/* The even, the odd codes of a word, each times 2^-6, as e4m3 bytes. */
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
 * Four bytes of codes as pairs of fp16, each of the two codes of a byte.  scale:
 * of bytes 0 and 1 the low half, of 2 and 3 the high one.
 */
DEVICE void dequantize_pairs_f16(uint32_t q, uint32_t scale, uint32_t *out)
{
	const uint32_t even = even_as_e4m3(q), odd = odd_as_e4m3(q);
	const uint32_t low = prmt(even, odd, 0x5140);
	const uint32_t high = prmt(even, odd, 0x7362);

	out[0] = mul_f16x2(cvt_f16x2_e4m3x2(low), low_halves(scale));
	out[1] = mul_f16x2(cvt_f16x2_e4m3x2_high(low), low_halves(scale));
	out[2] = mul_f16x2(cvt_f16x2_e4m3x2(high), high_halves(scale));
	out[3] = mul_f16x2(cvt_f16x2_e4m3x2_high(high), high_halves(scale));
}

/*
 * Byte I of codes as a pair of bf16, times 2^-126: a code's exponent and
 * fraction bits are the lowest ones of bf16's exponent and the highest one of
 * its fraction.  odd: q >> 4.
 */
template <uint32_t I>
DEVICE uint32_t pair_as_bf16(uint32_t q, uint32_t odd)
{
	const uint32_t x = prmt(q, odd, I | I << 4 | (4 + I) << 8 |
						(4 + I) << 12);

	return (x << 12 & 0x80008000u) | (x << 6 & 0x01C001C0u);
}

/* The same as bf16; the scales are times 2^119. */
DEVICE void dequantize_pairs_bf16(uint32_t q, uint32_t scale, uint32_t *out)
{
	const uint32_t odd = q >> 4;

	out[0] = mul_bf16x2(pair_as_bf16<0>(q, odd), low_halves(scale));
	out[1] = mul_bf16x2(pair_as_bf16<1>(q, odd), low_halves(scale));
	out[2] = mul_bf16x2(pair_as_bf16<2>(q, odd), high_halves(scale));
	out[3] = mul_bf16x2(pair_as_bf16<3>(q, odd), high_halves(scale));
}

/* Two fp16 as bf16 times 2^119, of which 448 is the most. */
DEVICE uint32_t scales_as_bf16(uint32_t halves)
{
	return cvt_bf16x2_f32(low_f32_f16x2(halves) * 0x1p119f,
			      high_f32_f16x2(halves) * 0x1p119f);
}

/* Bytes t and t + 4 of each of the two groups of 16 codes in x. */
DEVICE uint32_t own_bytes(uint4 x, uint32_t t)
{
	const uint32_t select = t | (t + 4) << 4;

	return prmt(prmt(x.x, x.y, select), prmt(x.z, x.w, select), 0x5410);
}

/*
 * One row's values of two k16, whose 16 bytes of codes are at `codes`: registers
 * HALF and HALF + 2 of the operands.  scales: two fp16.
 */
template <int A, uint32_t HALF>
DEVICE void load_pair_of_groups(uint32_t codes, uint32_t scales,
				uint32_t (*a)[4])
{
	const uint32_t q = own_bytes(lds_128(codes), threadIdx.x % 4);
	uint32_t out[4];

	if constexpr (A == NIB_A_BF16)
		dequantize_pairs_bf16(q, scales_as_bf16(scales), out);
	else
		dequantize_pairs_f16(q, scales, out);
	a[0][HALF] = out[0], a[0][HALF + 2] = out[1];
	a[1][HALF] = out[2], a[1][HALF + 2] = out[3];
}

/*
 * One row's values of the four k16 of a step.  codes: the address of its 32
 * bytes, of which the second 16 have the swizzle's other slot; scales: of its
 * four groups.
 */
template <int A, uint32_t HALF>
DEVICE void load_row_in_order(uint32_t codes, uint32_t scales,
			      uint32_t (*a)[4])
{
	load_pair_of_groups<A, HALF>(codes, cvt_f16x2_e4m3x2(scales), a);
	load_pair_of_groups<A, HALF>(codes ^ 16,
				     cvt_f16x2_e4m3x2_high(scales), a + 2);
}

#endif
