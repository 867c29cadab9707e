/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8.h - the definition of NIB_ACTIVATIONS_INT8: 16 floats become integers
 * from -127 to 127 and one scale.
 *
 * A scale is (1 + t/8) * 2^e with t = 0 to 7 and e >= -100, so code * scale has
 * at most 11 significant bits; it may overflow fp32 where x nearly does.
 * Integer code only: the floating-point mode of the calling thread changes
 * nothing.
 *
 * The quotient x / scale of fp32, rounded to nearest, may take the place of the
 * exact one: they are on the same side of every tie.  Proof: docs/numerics.md.
 */
#ifndef NIB_INT8_H
#define NIB_INT8_H

#include <stdint.h>
#include <string.h>

#include "format/half.h"
#include "nibblas.h"

#define NIB_INT8_MAX 127
/* The least scale, also that of a block of zeros, and its exponent field. */
#define NIB_INT8_LEAST_SCALE 0x1p-100f
#define NIB_INT8_LEAST_FIELD (127 - 100)

/*
 * The scale of a block: the smallest that is at least amax / 127.  amax: the
 * largest |x|, finite.
 */
static inline float nib_int8_scale(float amax)
{
	const uint32_t bits = nib_fp32_bits(amax) & 0x7FFFFFFF;
	const uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000;
	/*
	 * The amax of exponent E is mantissa * 2^(E-23).  eighths: the least
	 * number with 127 * eighths * 2^(E-10) >= amax, 9 to 17.
	 */
	const uint32_t unit = NIB_INT8_MAX << 13;
	const uint32_t eighths = (mantissa + unit - 1) / unit;
	/* 8 eighths are 1 of exponent E-7, 16 are 1 of exponent E-6. */
	const int field = (int)(bits >> 23) - 7 + (eighths >= 16);
	const uint32_t fraction = eighths >= 16 ? eighths - 16 : eighths - 8;

	if (field < NIB_INT8_LEAST_FIELD)
		return NIB_INT8_LEAST_SCALE;
	return nib_fp32_from_bits((uint32_t)field << 23 | fraction << 20);
}

/* The integer nearest to x / scale, ties to even.  |x| <= 127 * scale. */
static inline int8_t nib_int8_code(float x, float scale)
{
	const uint32_t bits = nib_fp32_bits(x), of = nib_fp32_bits(scale);
	const uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000;
	/* 2^power <= |x| / 2^(exponent of scale) < 2^(power + 1), or x is
	 * subnormal: then power is -27 at the most. */
	const int power = (int)(bits >> 23 & 0xFF) - (int)(of >> 23);
	uint32_t divisor, code, rest;

	if (power < -1) /* below half of scale */
		return 0;
	divisor = (8 + (of >> 20 & 7)) << (20 - power);
	code = mantissa / divisor;
	rest = mantissa - code * divisor;
	code += 2 * rest > divisor || (2 * rest == divisor && (code & 1));
	return (int8_t)(bits >> 31 ? -(int)code : (int)code);
}

/*
 * Rounds a block of 16 and returns its scale, or NaN if x has an inf or a NaN:
 * then the codes are 0, and the whole row of A is NaN.
 */
static inline float nib_int8_block(int8_t *codes, const float *x)
{
	uint32_t amax = 0;
	float scale;

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		const uint32_t size = nib_fp32_bits(x[i]) & 0x7FFFFFFF;

		amax = size > amax ? size : amax;
	}
	if (amax >= 0x7F800000) {
		memset(codes, 0, NIB_NVFP4_BLOCK);
		return nib_fp32_from_bits(0x7FC00000);
	}
	scale = nib_int8_scale(nib_fp32_from_bits(amax));
	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		codes[i] = nib_int8_code(x[i], scale);
	return scale;
}

#endif
