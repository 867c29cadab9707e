/* SPDX-License-Identifier: Apache-2.0 */
/*
 * odd_sums.h - sums by Arm's bfdot and bfmmla with FPCR.EBF = 0, as the Arm
 * Architecture Reference Manual defines them (BFDotAdd, BFMulH, FPAdd_BF16): every
 * product and addition rounds to odd, takes subnormal operands as zero and flushes
 * subnormal results.  Operands are finite.
 */
#ifndef NIB_TEST_ODD_SUMS_H
#define NIB_TEST_ODD_SUMS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* high + low, where |low| is at most half a unit in the last place of high. */
static inline float odd_round(double high, double low)
{
	const uint64_t rest = (UINT64_C(1) << 29) - 1;
	uint64_t bits;

	memcpy(&bits, &high, sizeof(bits));
	if (low != 0)
		bits = (bits - ((low < 0) != (high < 0))) | 1;
	bits = bits & rest ? (bits & ~rest) | (rest + 1) : bits;
	memcpy(&high, &bits, sizeof(high));
	return fabs(high) < 0x1p-126 ? (float)copysign(0, high) : (float)high;
}

static inline float odd_add(float x, float y)
{
	const double sum = (double)x + (double)y;
	const double of_y = sum - (double)x;

	return odd_round(sum, ((double)x - (sum - of_y)) + ((double)y - of_y));
}

static inline float odd_multiply(float x, float w)
{
	x = fabsf(x) < FLT_MIN ? 0 : x;
	w = fabsf(w) < FLT_MIN ? 0 : w;
	return odd_round((double)x * (double)w, 0);
}

/* sum + x[i] * w[i] + x[j] * w[j]: a lane of bfdot. */
static inline float odd_pair(float sum, const float *x, const float *w, int i, int j)
{
	return odd_add(sum,
		       odd_add(odd_multiply(x[i], w[i]), odd_multiply(x[j], w[j])));
}

/* The 16 products of a block are added to sum in the order of the set neonbf16. */
static inline float odd_block(float sum, const float *x, const float *w)
{
	for (int z = 0; z < 16; z += 8)
		for (int odd = 0; odd < 2; odd++)
			for (int half = 0; half < 8; half += 4)
				sum = odd_pair(sum, x + z + half, w + z + half, odd,
					       odd + 2);
	return sum;
}

/* Tiles: weights have their scale in them. */
static inline float odd_sum(const float *x, const float *w, int64_t k)
{
	float sum = 0;

	for (int64_t g = 0; g < k; g += 16)
		sum = odd_block(sum, x + g, w + g);
	return sum;
}

/* Few rows: the scale multiplies the sum of a block with 1/128 of the codes. */
static inline float odd_sum_of_blocks(const float *x, const float *codes,
				      const float *scales, int64_t k)
{
	float sum = 0;

	for (int64_t g = 0; g < k; g += 16) {
		float code[16];

		for (int i = 0; i < 16; i++)
			code[i] = codes[g + i] / 128;
		sum = fmaf(odd_block(0, x + g, code), scales[g] * 128, sum);
	}
	return sum;
}

#endif
