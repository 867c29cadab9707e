/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_ref.c - the definition of quantising, in plain C. */
#include "format/quantize_ref.h"

#include <math.h>

#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"

/* The largest value of a tensor: e2m1 6 times e4m3 448. */
#define LARGEST (6.0f * 448.0f)

float nib_global_ref(float amax)
{
	float global;

	if (amax == 0)
		return 1.0f;
	global = amax / LARGEST;
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

int nib_quantize_block_ref(const float x[NIB_NVFP4_BLOCK], float global,
			   enum nib_zero_scale zero_scale, int saturate,
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
