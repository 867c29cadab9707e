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

#include "backend/cuda/kernels/common/decode_by_k.cuh"

template <bool IS_BF16>
DEVICE void decode_in_order(uint32_t codes, uint32_t scale, uint32_t values[4])
{
	decode_half_by_k<IS_BF16>(codes, 0, scale, values);
	decode_half_by_k<IS_BF16>(codes, 1, scale, values + 2);
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
