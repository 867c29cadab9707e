/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_decode.cuh - e2m1 codes times e4m3 scales as fp16 or bf16, in the order of k, so
 * that A needs no permutation.  All products are exact.
 *
 *   a word of codes    c7  c6  c5  c4  c3  c2  c1  c0     (bit 31 to 0)
 *   decoded            (c0, c1)  (c2, c3)  (c4, c5)  (c6, c7)
 *
 * The magnitude of a code selects a byte of a table by prmt: the high byte of fp16,
 * whose low byte is zero, or both bytes of bf16.  Another prmt moves signs to the same
 * bytes.  For eight codes these are 15 instructions (bf16: 17), and 4 multiply by the
 * scale.  Shifts and masks need 16 and more for pairs (c0, c4), and 25 for this order.
 */
#ifndef NIB_SM80_GEMM_DECODE_CUH
#define NIB_SM80_GEMM_DECODE_CUH

#include "backend/cuda/kernels/common/ptx.cuh"

/* Codes c0 to c3 of a word (half = 0), or c4 to c7, times their scale, a pair of equal
 * values. */
template <bool IS_BF16>
DEVICE void decode_half(uint32_t codes, int half, uint32_t scale, uint32_t values[2])
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

template <bool IS_BF16>
DEVICE void decode_in_order(uint32_t codes, uint32_t scale, uint32_t values[4])
{
	decode_half<IS_BF16>(codes, 0, scale, values);
	decode_half<IS_BF16>(codes, 1, scale, values + 2);
}

/* Bits of a scale in each half of widen_two_scales(), which a mask selects. */
#define SCALE_MASK(is_bf16) ((is_bf16) ? 0x07F007F0u : 0x3F803F80u)

/*
 * The e4m3 scales a (low half) and b in A's type, of fp16 2^-6 times their values.
 * Code 0x7F gives NaN.  mask: SCALE_MASK(), or 0 for scales that do not exist, which
 * gives zeros.
 */
template <bool IS_BF16>
DEVICE uint32_t widen_two_scales(uint32_t a, uint32_t b, uint32_t mask)
{
	const uint32_t both = a + (b << 16);

	if constexpr (IS_BF16) {
		/* 2^-120 times the values. */
		const uint32_t size = both << 4 & mask;
		const uint32_t is_nan = (size + 0x00100010u) & 0x08000800u;

		return mul_bf16x2(is_nan * 15 + size, 0x7B807B80u);
	} else {
		const uint32_t size = both << 7 & mask;

		/* 2^-8 times the values, times 4. */
		return mul_f16x2(size | ((size + 0x00800080u) & 0x40004000u),
				 0x44004400u);
	}
}

#endif
