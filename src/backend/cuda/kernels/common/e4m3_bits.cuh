/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e4m3_bits.cuh - conversions of e4m3 by arithmetic on bits, for GPUs before sm_89,
 * which have no instruction for them (ptx.cuh).  The same bits as the instructions.
 *
 *   e4m3        s eeee mmm                  exponent bias 7
 *   fp16        s 0eeee mmm0000000          bias 15: 2^-8 times its value
 *
 * The product with 2^8 is exact, also for numbers below 2^-6, which are subnormal in
 * both formats.
 */
#ifndef NIB_E4M3_BITS_CUH
#define NIB_E4M3_BITS_CUH

#include "device.cuh"

DEVICE uint32_t mul_f16x2(uint32_t a, uint32_t b); /* ptx.cuh */

/*
 * The low bytes of the two halves of x as two halves; 0x7F and 0xFF give 0x7FFF.  The
 * magnitude 0x3F80 of NaN plus 0x80 carries into bit 14, and no other does.
 */
DEVICE uint32_t halves_of_e4m3(uint32_t x)
{
	const uint32_t size = x << 7 & 0x3F803F80u;
	const uint32_t is_nan = (size + 0x00800080u) & 0x40004000u;
	const uint32_t sign = x << 8 & 0x80008000u & ~(is_nan << 1);
	const uint32_t h = mul_f16x2(size | sign, 0x5C005C00u);

	return h | is_nan | (is_nan - (is_nan >> 14));
}

/* To nearest even, beyond 448 to 448; NaN gives 0x7F. */
DEVICE uint32_t e4m3_of_f32(float x)
{
	const uint32_t bits = __float_as_uint(x), size = bits & 0x7FFFFFFF;
	const uint32_t sign = bits >> 31 << 7;
	uint32_t code;

	if (size > 0x7F800000u)
		return 0x7F;
	/* Below 2^-6 in units of 2^-9; 8 is 2^-6. */
	if (size < 0x3C800000u)
		return sign | (uint32_t)__float2int_rn(__uint_as_float(size) * 512.0f);
	code = (size + 0x7FFFFu + (size >> 20 & 1)) >> 20;
	return sign | min(code - (120u << 3), 0x7Eu);
}

#endif
