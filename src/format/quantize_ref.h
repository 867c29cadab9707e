/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_ref.h - what quantising and dequantising mean, one block at a time.
 * Slow and obvious; every backend gives the same bytes (docs/numerics.md).
 *
 * The fp32 operations below are IEEE, to nearest even, with subnormals kept:
 * the floating-point environment that a C program starts with.
 */
#ifndef NIB_QUANTIZE_REF_H
#define NIB_QUANTIZE_REF_H

#include <stdint.h>

#include "half.h"
#include "nibblas.h"

/*
 * The global scale of a tensor whose largest |x| is amax, finite: amax / 2688
 * in fp32; 1 for amax = 0; if the quotient underflows to 0, 2^-149.  The
 * other rules take amax / 1536: 256 * 1.5 = 384 is a scale, 448 * 1.5 is none.
 */
float nib_global_ref(float amax, enum nib_scales scales);

/* The amax of a tensor whose global scale is 1: 2688 or 1536. */
float nib_largest(enum nib_scales scales);

/*
 * The scale byte of a block: fp32 amax / (fp32 6 * global), two roundings as
 * torch does it, then nib_e4m3_encode().  amax = 0 takes zero_scale's byte.
 * amax may be infinite, but not NaN.  global > 0, and 6 * global finite.
 */
uint8_t nib_scale_ref(float amax, float global, enum nib_zero_scale zero_scale);

/* The scales that NIB_SCALES_MSE tries: so many below and above the byte of
 * nib_scale_ref().  That of amax / 4 is among them. */
#define NIB_SCALES_BELOW 2
#define NIB_SCALES_ABOVE 6

/*
 * The power of two by which errors of a block are multiplied before they are squared,
 * so that no square overflows and those that underflow are negligible: 2^(127 - e)
 * for an exponent field e of amax below 254, then 2^-126.
 */
static inline float nib_error_unit(float amax)
{
	const uint32_t exponent = nib_fp32_bits(amax) >> 23;

	return nib_fp32_from_bits((exponent < 254 ? 254 - exponent : 1) << 23);
}

/* Weights of errors are at most this, so that no sum overflows. */
#define NIB_WEIGHT_MAX 0x1p100f

/*
 * Quantises 16 values.  Code i is nib_e2m1_encode_ratio(x[i], scale * global)
 * with the exact product; sign bits are kept, minus zero is code 8.
 * Returns -1, or the index of the first inf or NaN, and then writes nothing.
 * saturate: NaN is taken as plus zero, inf gives scale 448 and code 6.0, and -1
 * is returned.
 *
 * The error of a scale is that of the magnitudes, in fp32: the dequantised value is
 * subtracted from |x_i|; the difference is multiplied by nib_error_unit(), squared, and
 * multiplied by weights[i] if weights is not NULL.  The sum adds elements i and i + 8,
 * then those at a distance of 4, 2 and 1.
 */
int nib_quantize_block_ref(const float x[NIB_NVFP4_BLOCK], float global,
			   enum nib_zero_scale zero_scale, enum nib_scales scales,
			   const float *weights, int saturate,
			   uint8_t codes[NIB_NVFP4_BLOCK / 2], uint8_t *scale);

/*
 * The bits of code * scale * global, the exact product rounded once to dtype.
 * Minus zero keeps its sign.  A NaN scale or global, and infinity times zero,
 * give the positive quiet NaN: 0x7FC00000, 0x7E00, 0x7FC0.
 */
uint32_t nib_dequantize_ref(unsigned code, uint8_t scale, float global,
			    enum nib_dtype dtype);

#endif
