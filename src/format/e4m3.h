/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e4m3.h - the 8-bit float of the block scales: sign, 4 exponent bits (bias 7),
 * 3 fraction bits, subnormals, no infinity; 0x7F and 0xFF are NaN.
 *
 * Every finite value is an integer multiple of 2^-9, from 1 (the smallest
 * subnormal) to 448 * 512 = 229376.
 */
#ifndef NIB_E4M3_H
#define NIB_E4M3_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define NIB_E4M3_NAN	  0x7F
#define NIB_E4M3_MAX	  0x7E /* 448 */
#define NIB_E4M3_MIN	  0x01 /* 2^-9 */
#define NIB_E4M3_ONE	  0x38 /* 1.0 */
#define NIB_E4M3_EIGHTH	  0x20 /* 0.125 */
#define NIB_E4M3_SIGN_BIT 0x80

static inline bool nib_e4m3_is_nan(uint8_t byte)
{
	return (byte & 0x7F) == NIB_E4M3_NAN;
}

/* The value in units of 2^-9, exact.  Not for NaN. */
static inline int32_t nib_e4m3_integer(uint8_t byte)
{
	const int exponent = (byte >> 3) & 15;
	const int32_t fraction = byte & 7;
	const int32_t size = exponent ? (8 + fraction) << (exponent - 1) : fraction;

	return byte & NIB_E4M3_SIGN_BIT ? -size : size;
}

/* The value, exact; NaN is the positive quiet NaN 0x7FC00000. */
static inline float nib_e4m3_to_float(uint8_t byte)
{
	const uint32_t quiet_nan = 0x7FC00000;
	float value;

	if (nib_e4m3_is_nan(byte)) {
		memcpy(&value, &quiet_nan, sizeof(value));
		return value;
	}
	value = (float)nib_e4m3_integer(byte) * 0x1p-9f;
	return byte == NIB_E4M3_SIGN_BIT ? -0.0f : value;
}

/*
 * The scale byte nearest to x, ties to even, clamped to [2^-9, 448]: zero and
 * everything negative gives 2^-9, infinity 448, NaN gives NaN.  Works on the
 * bits of x, so no state of the floating-point unit changes the result.
 */
static inline uint8_t nib_e4m3_encode(float x)
{
	uint32_t bits, kept, rest, half;
	int exponent, drop;

	memcpy(&bits, &x, sizeof(bits));
	if ((bits & 0x7FFFFFFF) > 0x7F800000)
		return NIB_E4M3_NAN;
	if (bits >> 31 || bits < 0x3B000000) /* below 2^-9 */
		return NIB_E4M3_MIN;
	if (bits >= 0x43E00000) /* from 448 */
		return NIB_E4M3_MAX;

	/* The last bit kept weighs 2^(exponent-3), but at least 2^-9. */
	exponent = (int)(bits >> 23) - 127;
	drop = exponent < -6 ? 20 - 6 - exponent : 20;
	kept = (bits & 0x7FFFFF) | 0x800000;
	rest = kept & ((UINT32_C(1) << drop) - 1);
	half = UINT32_C(1) << (drop - 1);
	kept >>= drop;
	kept += rest > half || (rest == half && (kept & 1));
	/* kept holds the leading one, which is the lowest exponent bit. */
	if (exponent > -6)
		kept += (uint32_t)(exponent + 6) << 3;
	return (uint8_t)kept;
}

#endif
