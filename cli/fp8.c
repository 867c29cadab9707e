/* SPDX-License-Identifier: Apache-2.0 */
/* fp8.c - rounds rows of fp32 to e4m3: see fp8.h. */
#include "fp8.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "parallel.h"

#define LARGEST	 448.0f
#define SMALLEST 0x1p-6f /* of the normal ones */

/* The magnitude of e4m3 nearest to size, which is 0 .. 448; *code: without a sign. */
static float round_size(float size, uint8_t *code)
{
	/* The last bit of this sum is 2^-9, which is that of the denormals. */
	const float small = size + 0x1p14f;
	uint32_t bits, low;
	float value;

	memcpy(&bits, &size, sizeof(bits));
	memcpy(&low, &small, sizeof(low));
	/* The fraction keeps 3 of its 23 bits. */
	bits = (bits + 0x7FFFF + (bits >> 20 & 1)) & ~UINT32_C(0xFFFFF);
	memcpy(&value, &bits, sizeof(value));
	*code = (uint8_t)(size < SMALLEST ? low & 15 : (bits >> 20) - (120 << 3));
	return size < SMALLEST ? small - 0x1p14f : value;
}

static float scale_of(const float *x, int64_t k)
{
	float amax = 0;

	for (int64_t i = 0; i < k; i++) {
		const float size = fabsf(x[i]);

		/* False for NaN. */
		amax = size > amax && size <= FLT_MAX ? size : amax;
	}
	if (amax <= 0)
		return 1;
	return amax / LARGEST < FLT_MIN ? FLT_MIN : amax / LARGEST;
}

static void quantize_row(const float *x, int64_t k, float scale, uint8_t *codes,
			 float *values)
{
	for (int64_t i = 0; i < k; i++) {
		const float ratio = isnan(x[i]) ? 0 : x[i] / scale;
		const float size = fabsf(ratio);
		const float rounded =
		    round_size(size < LARGEST ? size : LARGEST, &codes[i]);

		codes[i] |= signbit(ratio) ? 0x80 : 0;
		values[i] = copysignf(rounded, ratio) * scale;
	}
}

struct rows {
	const float *x;
	int64_t k;
	uint8_t *codes;
	float *scales, *values;
};

static void quantize_rows(void *arg, int64_t begin, int64_t end)
{
	const struct rows *a = arg;

	for (int64_t r = begin; r < end; r++) {
		const float *x = a->x + r * a->k;

		a->scales[r] = scale_of(x, a->k);
		quantize_row(x, a->k, a->scales[r], a->codes + r * a->k,
			     a->values + r * a->k);
	}
}

void fp8_quantize(const float *x, int64_t rows, int64_t k, uint8_t *codes,
		  float *scales, float *values)
{
	struct rows all = {x, k, codes, scales, values};

	cli_parallel(rows, cli_rows_of_loop(k), quantize_rows, &all);
}
