/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_tables.c - computes every boundary and value exactly, once a call.  They are
 * few: for a global scale there are 126 scales, each with 7 boundaries and 8 values.
 */
#include "quantize_tables.h"

#include <math.h>
#include <string.h>

#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/quantize_ref.h"

/* Between code c and c + 1; a tie goes to the even code. */
static const float boundary[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

/* The largest fp32 magnitude whose code is <= c; d = scale * global, exact. */
static uint32_t fp32_limit(double d, int c)
{
	const double edge = (double)boundary[c] * d; /* 31 bits: exact */
	const float nearest = (float)edge;
	const bool tie_goes_up = c & 1;
	const bool beyond =
	    tie_goes_up ? (double)nearest >= edge : (double)nearest > edge;

	/* nearest is beyond edge only if it is > 0, because edge is > 0. */
	return nib_fp32_bits(nearest) - beyond;
}

/* The largest fp16 magnitude that is <= the finite fp32 magnitude given. */
static uint32_t fp16_floor(uint32_t bits)
{
	const float x = nib_fp32_from_bits(bits);
	const uint16_t nearest = nib_fp32_to_fp16(x);

	return nearest - (uint32_t)(nib_fp16_to_fp32(nearest) > x);
}

void cpu_quantizer_init(struct cpu_quantizer *z, enum nib_dtype dtype, float global,
			enum nib_zero_scale zero_scale, enum nib_scales scales)
{
	/* The search looks at values as fp32. */
	if (scales != NIB_SCALES_AMAX)
		dtype = NIB_DTYPE_FP32;
	memset(z, 0, sizeof(*z));
	z->global = global;
	z->largest_code = 6.0f * global;
	z->zero_scale = zero_scale;
	z->scales = scales;
	z->zero_byte = nib_scale_ref(0.0f, global, zero_scale);

	/* Only blocks of zeros have scale 0; limits of 0 give them code 0. */
	for (int s = NIB_E4M3_MIN; s <= NIB_E4M3_MAX; s++) {
		const double d = (double)nib_e4m3_to_float((uint8_t)s) * (double)global;

		for (int c = 0; c < 7; c++) {
			const uint32_t bits = fp32_limit(d, c);

			if (dtype == NIB_DTYPE_FP32)
				z->limit.wide[s][c] = (int32_t)bits;
			else if (dtype == NIB_DTYPE_BF16)
				z->limit.narrow[s][c] = (int16_t)(bits >> 16);
			else
				z->limit.narrow[s][c] = (int16_t)fp16_floor(bits);
		}
		for (int c = 0; c < 8 && scales != NIB_SCALES_AMAX; c++)
			z->value[s][c] = (float)(0.5 * nib_e2m1_twice[c] * d);
	}
}

/*
 * The bits of an exact value rounded once to dtype: nib_dequantize_ref() for finite
 * values only.  bf16 goes through an fp32 rounded to odd, which records on which side
 * of a tie the value is.
 */
static uint32_t value_bits(double value, enum nib_dtype dtype)
{
	const float nearest = (float)value;
	uint32_t bits = nib_fp32_bits(nearest);

	if (dtype == NIB_DTYPE_FP32)
		return bits;
	if (dtype == NIB_DTYPE_FP16)
		return nib_fp64_to_fp16(value);
	bits -= fabs((double)nearest) > fabs(value);
	bits |= (double)nearest != value;
	return nib_fp32_to_bf16(nib_fp32_from_bits(bits));
}

static void set_value(struct cpu_dequantizer *table, enum nib_dtype dtype, int scale,
		      int code, uint32_t bits)
{
	if (dtype == NIB_DTYPE_FP32) {
		table->value.wide[scale][code] = bits;
		return;
	}
	table->value.narrow.word[scale][code] = (uint16_t)bits;
	table->value.narrow.plane[scale][code] = (uint8_t)bits;
	table->value.narrow.plane[scale][16 + code] = (uint8_t)(bits >> 8);
}

void cpu_dequantizer_init(struct cpu_dequantizer *table, enum nib_dtype dtype,
			  float global)
{
	const uint32_t sign = dtype == NIB_DTYPE_FP32 ? 0x80000000 : 0x8000;

	for (int s = 0; s < 128; s++) {
		const double d = (double)nib_e4m3_to_float((uint8_t)s) * (double)global;

		for (int c = 0; c < 8; c++) {
			const double value = 0.5 * nib_e2m1_twice[c] * d;
			uint32_t plus, minus;

			if (isnan(value)) {
				plus = minus = nib_dequantize_ref(
				    (unsigned)c, (uint8_t)s, global, dtype);
			} else {
				plus = value_bits(value, dtype);
				minus = plus ^ sign;
			}
			/* A scale's sign bit acts as the code's does. */
			set_value(table, dtype, s, c, plus);
			set_value(table, dtype, s, c + 8, minus);
			set_value(table, dtype, s + 128, c, minus);
			set_value(table, dtype, s + 128, c + 8, plus);
		}
	}
}
