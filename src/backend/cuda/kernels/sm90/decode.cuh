/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.cuh - eight e2m1 codes of a word to four pairs of fp16 or bf16, for the
 * kernels whose products are of 16-bit values.
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
 *   fp16   (0, 2)  (4, 6)  (1, 3)  (5, 7)
 *   bf16   (0, 4)  (1, 5)  (2, 6)  (3, 7)
 *
 * and A is permuted in the same way (permute_as_decoded()), so that each product is
 * of equal k.
 */
#ifndef NIB_SM90_DECODE_CUH
#define NIB_SM90_DECODE_CUH

#include "backend/cuda/kernels/common/ptx.cuh"

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

/* Eight elements of A, in the order of k, to the order of the decoded codes. */
template <bool IS_BF16>
DEVICE uint4 permute_as_decoded(uint4 x)
{
	const uint32_t low = 0x5410, high = 0x7632;

	if (IS_BF16)
		return make_uint4(prmt(x.x, x.z, low), prmt(x.x, x.z, high),
				  prmt(x.y, x.w, low), prmt(x.y, x.w, high));
	return make_uint4(prmt(x.x, x.y, low), prmt(x.z, x.w, low),
			  prmt(x.x, x.y, high), prmt(x.z, x.w, high));
}

#endif
