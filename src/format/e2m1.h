/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2m1.h - the 4-bit float: sign, 2 exponent bits, 1 fraction bit.
 *
 * Code 0..7 stands for 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign.  Twice
 * the value is an integer, which is what all exact arithmetic here works on.
 */
#ifndef NIB_E2M1_H
#define NIB_E2M1_H

#include <math.h>
#include <stdint.h>

/* Twice the value of each code; code 8, minus zero, is 0 here. */
static const int8_t nib_e2m1_twice[16] = {0, 1,	 2,  3,	 4,  6,	 8,  12,
					  0, -1, -2, -3, -4, -6, -8, -12};

/*
 * The code nearest to x / d, ties to the even code, beyond 6 clamped to 6; the
 * sign bit is x's, so minus zero and what rounds to it are code 8.  d > 0 with
 * at most 29 significant bits, or d = 0, where any x != 0 clamps.  x is not NaN.
 *
 * The quotient is never formed: |x| is compared with boundary * d, which is
 * exact in a double because the boundaries have at most 3 bits.
 */
static inline unsigned nib_e2m1_encode_ratio(float x, double d)
{
	const double size = fabs((double)x);
	unsigned code = 0;

	code += size > 0.25 * d;  /* tie 0.25 -> 0 */
	code += size >= 0.75 * d; /* tie 0.75 -> 1 */
	code += size > 1.25 * d;
	code += size >= 1.75 * d;
	code += size > 2.5 * d;
	code += size >= 3.5 * d;
	code += size > 5.0 * d;
	if (d == 0)
		code = size > 0 ? 7 : 0;
	return code | (signbit(x) ? 8u : 0u);
}

/* The code nearest to x. */
static inline unsigned nib_e2m1_encode(float x)
{
	return nib_e2m1_encode_ratio(x, 1.0);
}

#endif
