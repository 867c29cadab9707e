/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_block.cuh - conversions of values and blocks as bits: halves to floats,
 * floats to halves, a block to its scale and codes.  quantize.cuh explains the method.
 */
#ifndef NIB_QUANTIZE_BLOCK_CUH
#define NIB_QUANTIZE_BLOCK_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx.cuh"

#define INFINITY_BITS 0x7F800000u

/*
 * fp16 or bf16 bits as those of a fp32.  Not DEVICE: inlined earlier, it changes the
 * machine code of moe_combine and moe_quantize on Blackwell.
 */
static __device__ uint32_t widen(uint32_t half, int dtype)
{
	const __half_raw raw = {(unsigned short)half};

	if (dtype == 2)
		return half << 16;
	return __float_as_uint(__half2float(__half(raw)));
}

/* The bits of x rounded to a dtype. */
DEVICE uint32_t round_to(float x, int dtype)
{
	if (dtype == 0)
		return __float_as_uint(x);
	if (dtype == 1)
		return __half_as_ushort(__float2half_rn(x));
	return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* The bits of the smallest fp32 > t (beyond) or >= t and > 0 (not_below); t >= 0. */
DEVICE uint32_t beyond(double t)
{
	return __float_as_uint(__double2float_rd(t)) + 1;
}

DEVICE uint32_t not_below(double t)
{
	return max(__float_as_uint(__double2float_ru(t)), 1u);
}

/*
 * bound[i]: the bits of the smallest |x| whose code is at least i, for values in units
 * of d.  Ties go to the even code:
 *
 *   code        0     1     2     3     4     5     6     7
 *   value       0    0.5    1    1.5    2     3     4     6
 *   boundary      0.25  0.75  1.25  1.75  2.5   3.5   5
 *   at a tie       0     2     2     4     4     6     6
 */
DEVICE void set_bounds(double d, uint32_t bound[8])
{
	bound[1] = beyond(0.25 * d);
	bound[2] = not_below(0.75 * d);
	bound[3] = beyond(1.25 * d);
	bound[4] = not_below(1.75 * d);
	bound[5] = beyond(2.5 * d);
	bound[6] = not_below(3.5 * d);
	bound[7] = beyond(5.0 * d);
}

DEVICE uint32_t encode(uint32_t bits, const uint32_t bound[8])
{
	const uint32_t size = bits & 0x7FFFFFFF;
	const bool upper = size >= bound[4];
	const bool middle = size >= (upper ? bound[6] : bound[2]);
	const uint32_t last =
	    upper ? (middle ? bound[7] : bound[5]) : (middle ? bound[3] : bound[1]);
	const uint32_t code = upper * 4 + middle * 2 + (size >= last);

	return size > INFINITY_BITS ? 0 : code | bits >> 31 << 3;
}

DEVICE void encode_by_bounds(const uint32_t bits[16], double d, uint32_t codes[2])
{
	uint32_t bound[8];

	set_bounds(d, bound);
#pragma unroll
	for (int i = 0; i < 16; i++)
		codes[i / 8] |= encode(bits[i], bound) << i % 8 * 4;
}

/* The largest |bits|, NaN and inf included; *amax: the largest without NaN. */
DEVICE uint32_t worst_of(const uint32_t bits[16], uint32_t *amax)
{
	uint32_t worst = 0;

	*amax = 0;
#pragma unroll
	for (int i = 0; i < 16; i++) {
		const uint32_t size = bits[i] & 0x7FFFFFFF;

		worst = max(worst, size);
		*amax = max(*amax, size > INFINITY_BITS ? 0 : size);
	}
	return worst;
}

/* amax: the bits of the largest |x| of a block. */
DEVICE uint32_t scale_of_block(uint32_t amax, float global, uint32_t zero_scale)
{
	if (!amax)
		return zero_scale;
	return max(cvt_satfinite_e4m3_f32(
		       __fdiv_rn(__uint_as_float(amax), __fmul_rn(6.0f, global))),
		   1u);
}

#endif
