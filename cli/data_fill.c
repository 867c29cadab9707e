/* SPDX-License-Identifier: Apache-2.0 */
/* data_fill.c - the random numbers of data.h. */
#include <math.h>
#include <string.h>

#include "data.h"

/* splitmix64: Steele, Lea, Flood 2014. */
uint64_t data_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

void data_fill_codes(void *codes, size_t bytes, enum data_fill fill,
		     uint64_t *seed)
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

void data_fill_scales(void *scales, size_t bytes, enum data_fill fill,
		      uint64_t *seed)
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

/* Exact for the numbers below: normal in fp16. */
static uint16_t half_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, 4);
	if (!(bits << 1))
		return 0;
	return (uint16_t)((bits >> 16 & 0x8000) |
			  ((bits >> 13 & 0x3FFFF) - ((127 - 15) << 10)));
}

void data_fill_floats(void *x, enum nib_dtype dtype, int64_t count,
		      uint64_t *seed)
{
	float scale = 0;

	for (int64_t i = 0; i < count; i++) {
		uint64_t bits = data_random(seed);
		float value;
		uint32_t raw;

		if (i % NIB_BLOCK == 0)
			scale = bits >> 58
				    ? ldexpf(1, (int)(bits >> 32 & 7) - 7)
				    : 0;
		value = (float)((int)(bits & 255) - 128) * scale;
		memcpy(&raw, &value, 4);
		if (dtype == NIB_FP32)
			((float *)x)[i] = value;
		else if (dtype == NIB_BF16)
			((uint16_t *)x)[i] = (uint16_t)(raw >> 16);
		else
			((uint16_t *)x)[i] = half_bits(value);
	}
}
