/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_ref.c - the definition of quantising, in plain C. */
#include "format/quantize_ref.h"

#include <math.h>
#include <stdbool.h>

#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"

/* The largest value of a tensor: e2m1 6 times e4m3 448, or 256 where 256 * 1.5 is
 * tried too. */
#define LARGEST		 (6.0f * 448.0f)
#define LARGEST_SEARCHED (6.0f * 256.0f)

float nib_largest(enum nib_scales scales)
{
	return scales == NIB_SCALES_AMAX ? LARGEST : LARGEST_SEARCHED;
}

float nib_global_ref(float amax, enum nib_scales scales)
{
	float global;

	if (amax == 0)
		return 1.0f;
	global = amax / nib_largest(scales);
	return global > 0 ? global : 0x1p-149f;
}

uint8_t nib_scale_ref(float amax, float global, enum nib_zero_scale zero_scale)
{
	float largest_code;

	if (amax == 0)
		return zero_scale == NIB_ZERO_SCALE_MODELOPT ? NIB_E4M3_ONE
		       : zero_scale == NIB_ZERO_SCALE_COMPRESSED_TENSORS
			   ? NIB_E4M3_EIGHTH
			   : 0;
	largest_code = 6.0f * global;
	return nib_e4m3_encode(amax / largest_code);
}

/* Under scale byte s; x is finite or NaN.  weights: NULL for 1. */
static float squared_error(const float x[NIB_NVFP4_BLOCK], const float *weights,
			   float unit, uint8_t s, float global)
{
	const double d = (double)nib_e4m3_to_float(s) * (double)global;
	float e[NIB_NVFP4_BLOCK];

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		const float size = isnan(x[i]) ? 0.0f : fabsf(x[i]);
		const unsigned code = nib_e2m1_encode_ratio(size, d);

		/* 30 bits before the one rounding to fp32. */
		e[i] = (size - (float)(0.5 * nib_e2m1_twice[code] * d)) * unit;
		e[i] *= e[i];
		if (weights)
			e[i] *= weights[i];
	}
	for (int half = NIB_NVFP4_BLOCK / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			e[i] += e[i + half];
	return e[0];
}

/* The scale of a block whose scale would be byte six; amax > 0. */
static uint8_t choose_scale(const float x[NIB_NVFP4_BLOCK], const float *weights,
			    float amax, float global, enum nib_scales scales,
			    uint8_t six)
{
	const uint8_t four = nib_e4m3_encode(amax / (4.0f * global));
	const float unit = nib_error_unit(amax);
	const bool is_mse = scales == NIB_SCALES_MSE;
	const int lowest = is_mse ? six - NIB_SCALES_BELOW : six;
	const int highest = is_mse ? six + NIB_SCALES_ABOVE : six;
	float least = INFINITY, error;
	uint8_t best = six;

	/* From above, because the larger scale wins a tie. */
	for (int s = highest; s >= lowest; s--) {
		if (s < NIB_E4M3_MIN || s > NIB_E4M3_MAX)
			continue;
		error = squared_error(x, weights, unit, (uint8_t)s, global);
		if (error < least) {
			least = error;
			best = (uint8_t)s;
		}
	}
	if (!is_mse && squared_error(x, weights, unit, four, global) < least)
		best = four;
	return best;
}

int nib_quantize_block_ref(const float x[NIB_NVFP4_BLOCK], float global,
			   enum nib_zero_scale zero_scale, enum nib_scales scales,
			   const float *weights, int saturate,
			   uint8_t codes[NIB_NVFP4_BLOCK / 2], uint8_t *scale)
{
	unsigned code[NIB_NVFP4_BLOCK];
	float amax = 0;
	double d;

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		if (!saturate && !isfinite(x[i]))
			return i;
		if (fabsf(x[i]) > amax) /* false for NaN */
			amax = fabsf(x[i]);
	}
	*scale = nib_scale_ref(amax, global, zero_scale);
	if (scales != NIB_SCALES_AMAX && amax > 0 && amax < INFINITY)
		*scale = choose_scale(x, weights, amax, global, scales, *scale);
	/* 4 bits times 24 bits: exact. */
	d = (double)nib_e4m3_to_float(*scale) * (double)global;
	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		code[i] = isnan(x[i]) ? 0 : nib_e2m1_encode_ratio(x[i], d);
	for (int i = 0; i < NIB_NVFP4_BLOCK / 2; i++)
		codes[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
	return -1;
}

uint32_t nib_dequantize_ref(unsigned code, uint8_t scale, float global,
			    enum nib_dtype dtype)
{
	const struct nib_float_format format = nib_dtype_format(dtype);
	double value = 0.5 * nib_e2m1_twice[code & 15];

	if (code == 8)
		value = -0.0;
	/* 2 bits times 4 bits times 24 bits: exact. */
	value *= (double)nib_e4m3_to_float(scale);
	value *= (double)global;
	if (isnan(value))
		return (uint32_t)(nib_infinity_bits(format) |
				  UINT64_C(1) << (format.fraction_bits - 1));
	return nib_fp64_to_dtype(value, dtype);
}
