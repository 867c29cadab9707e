/* SPDX-License-Identifier: Apache-2.0 */
/* data_fill.c - the random numbers of data.h. */
#include <math.h>
#include <string.h>

#include "data.h"

/* splitmix64: Steele, Lea, Flood 2014. */
void data_fill_codes(void *codes, size_t bytes, enum data_fill fill, uint64_t *seed)
{
	/* Two codes a byte; the contest clears bit 2 of each: +-1.5 at most. */
	const uint64_t mask =
	    fill == DATA_CONTEST ? UINT64_C(0xBBBBBBBBBBBBBBBB) : UINT64_MAX;
	char *out = codes;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t bits = data_random(seed) & mask;

		memcpy(out + i, &bits, bytes - i < 8 ? bytes - i : 8);
	}
}

void data_fill_scales(void *scales, size_t bytes, enum data_fill fill, uint64_t *seed)
{
	uint8_t *out = scales;
	uint64_t bits = 0;

	for (size_t i = 0; i < bytes; i++, bits >>= 8) {
		if (i % 8 == 0)
			bits = data_random(seed);
		if (fill == DATA_CONTEST)
			out[i] = bits & 1 ? 0x40 : 0x38; /* 2 : 1 */
		else
			/* 0 .. 126: every finite e4m3 without sign. */
			out[i] = (uint8_t)((bits & 0xFF) * 127 >> 8);
	}
}

/* x, below 2^16 in size, cut to fp16. */
static uint16_t half_bits(float x)
{
	uint32_t bits, magnitude;

	memcpy(&bits, &x, 4);
	magnitude = (bits >> 13 & 0x3FFFF) - ((127 - 15) << 10);
	if (fabsf(x) < 0x1p-14f)
		magnitude = (uint32_t)(fabsf(x) * 0x1p24f);
	return (uint16_t)((bits >> 16 & 0x8000) | magnitude);
}

/* Element i of an array of dtype; what the type does not hold is cut off. */
static void put_float(void *x, enum nib_dtype dtype, int64_t i, float value)
{
	uint32_t bits;

	memcpy(&bits, &value, 4);
	if (dtype == NIB_DTYPE_FP32)
		((float *)x)[i] = value;
	else if (dtype == NIB_DTYPE_BF16)
		((uint16_t *)x)[i] = (uint16_t)(bits >> 16);
	else
		((uint16_t *)x)[i] = half_bits(value);
}

void data_fill_floats(void *x, enum nib_dtype dtype, int64_t count, uint64_t *seed)
{
	float scale = 0;

	for (int64_t i = 0; i < count; i++) {
		uint64_t bits = data_random(seed);

		if (i % NIB_NVFP4_BLOCK == 0)
			scale = bits >> 58 ? ldexpf(1, (int)(bits >> 32 & 7) - 7) : 0;
		put_float(x, dtype, i, (float)((int)(bits & 255) - 128) * scale);
	}
}

/* ---- activations --------------------------------------------------------- */

/* Four uniform numbers added up, of variance 1. */
static float normal_value(uint64_t bits)
{
	const int sum = (int)(bits & 0xFFFF) + (int)(bits >> 16 & 0xFFFF) +
			(int)(bits >> 32 & 0xFFFF) + (int)(bits >> 48);

	return (float)(sum - 2 * 0xFFFF) * (1.7320508f / 0x10000);
}

/* 0, 0.5, 1 or 1.5 with a sign, times 1 or 2. */
static float contest_value(uint64_t bits)
{
	const float value = 0.5f * (float)(bits & 3) * (bits & 4 ? 2 : 1);

	return bits & 8 ? -value : value;
}

/* A value of this exponent or up to 14 below it; or zero, of either sign. */
static float wide_value(uint64_t bits, int exponent)
{
	const int below = (int)((bits >> 28 & 15) * (bits >> 32 & 15) / 16);
	float value = 1 + (float)(bits & 0x7FFFFF) * 0x1p-23f;

	value = bits >> 24 & 15 ? ldexpf(value, exponent - below) : 0;
	return bits >> 23 & 1 ? -value : value;
}

int data_top_exponent(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP16 ? 16 : 11;
}

/* The exponent of a row's largest values. */
static int row_exponent(enum nib_dtype dtype, uint64_t bits)
{
	const int least = dtype == NIB_DTYPE_FP16 ? -14 : -126;

	if (bits % 8 == 0)
		return least + (int)(bits >> 8 & 3);
	return data_top_exponent(dtype) - 1 - (int)((bits >> 8) % 24);
}

void data_fill_x(const struct nib_dense *x, enum data_fill fill,
		 enum data_values values, uint64_t *seed)
{
	const int64_t count = x->batch * x->rows * x->cols;
	int exponent = 0, is_zero = 0;

	for (int64_t i = 0; i < count; i++) {
		uint64_t bits;
		float value;

		if (i % x->cols == 0)
			exponent = row_exponent(x->dtype, data_random(seed));
		bits = data_random(seed);
		if (i % NIB_NVFP4_BLOCK == 0)
			is_zero = bits >> 60 == 0;
		if (fill == DATA_CONTEST)
			value = contest_value(bits);
		else if (values == DATA_NORMAL)
			value = normal_value(bits);
		else
			value = is_zero ? 0 : wide_value(bits, exponent);
		put_float(x->data, x->dtype, i, value);
	}
}
