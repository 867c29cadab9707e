/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c - integer dot products and their one rounding. */
#include "format/exact.h"

#include <math.h>
#include <stdlib.h>

#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/view.h"

__extension__ typedef unsigned __int128 uint128;

void nib_exact_decode(struct nib_exact_row *out, const struct nib_fp4 *v, int64_t batch,
		      int64_t row, int64_t scale_row)
{
	const uint8_t *codes = nib_fp4_row(v, batch, row);
	const uint8_t *scales = nib_fp4_scales(v, batch);
	const int64_t groups = nib_fp4_groups(v);

	for (int64_t i = 0; i < v->k / 2; i++) {
		out->twice[2 * i] = nib_e2m1_twice[codes[i] & 15];
		out->twice[2 * i + 1] = nib_e2m1_twice[codes[i] >> 4];
	}
	out->has_nan = false;
	for (int64_t g = 0; g < groups; g++) {
		uint8_t byte = scales[nib_fp4_scale_offset(v, scale_row, g)];
		bool is_nan = nib_e4m3_is_nan(byte);

		out->has_nan |= is_nan;
		out->scale[g] = is_nan ? 0 : nib_e4m3_integer(byte);
	}
}

/*
 * At most 16 * 12 * 12.  noinline: gcc vectorises this loop well in a function of
 * its own; inlined, it transposes eight blocks instead, which is slower.
 */
static __attribute__((noinline)) int32_t block_dot(const int16_t *x, const int16_t *y)
{
	int32_t dot = 0;

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		dot += x[i] * y[i];
	return dot;
}

struct nib_exact_sum nib_exact_dot(const struct nib_exact_row *a,
				   const struct nib_exact_row *b, int64_t k)
{
	struct nib_exact_sum s = {.is_nan = a->has_nan || b->has_nan};

	for (int64_t g = 0; g < k / NIB_NVFP4_BLOCK; g++) {
		const int32_t dot = block_dot(a->twice + g * NIB_NVFP4_BLOCK,
					      b->twice + g * NIB_NVFP4_BLOCK);
		const int64_t partial = (int64_t)a->scale[g] * b->scale[g] * dot;

		s.sum += partial;
		s.magnitude += partial < 0 ? -partial : partial;
	}
	return s;
}

/* noinline as block_dot(). */
static __attribute__((noinline)) int32_t block_products(const int16_t *x,
							const int16_t *y)
{
	int32_t sum = 0;

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		sum += abs(x[i] * y[i]);
	return sum;
}

int64_t nib_exact_products(const struct nib_exact_row *a, const struct nib_exact_row *b,
			   int64_t k)
{
	int64_t sum = 0;

	for (int64_t g = 0; g < k / NIB_NVFP4_BLOCK; g++)
		sum += (int64_t)a->scale[g] * b->scale[g] *
		       block_products(a->twice + g * NIB_NVFP4_BLOCK,
				      b->twice + g * NIB_NVFP4_BLOCK);
	return sum;
}

int64_t nib_exact_large_blocks(const struct nib_exact_row *a,
			       const struct nib_exact_row *b, int64_t k)
{
	const int32_t large = 256 << 9; /* units of 2^-9 */
	int64_t count = 0;

	for (int64_t g = 0; g < k / NIB_NVFP4_BLOCK; g++)
		count += (a->scale[g] >= large) & (b->scale[g] >= large);
	return count;
}

static uint64_t round_product(const struct nib_exact_sum *s, float alpha,
			      struct nib_float_format f)
{
	const uint32_t bits = nib_fp32_bits(alpha);
	const bool negative = (bits >> 31) ^ (s->sum < 0);
	const uint64_t size = s->sum < 0 ? -(uint64_t)s->sum : (uint64_t)s->sum;
	const uint64_t nan = nib_infinity_bits(f) | UINT64_C(1)
							<< (f.fraction_bits - 1);
	uint32_t mantissa = bits & 0x7FFFFF;
	int exponent = (bits >> 23) & 0xFF;
	uint128 product;
	int drop;

	if (s->is_nan)
		return nan;
	if (exponent == 0xFF) {
		if (mantissa || size == 0)
			return nan;
		return nib_sign_bits(f, negative) | nib_infinity_bits(f);
	}
	if (exponent)
		mantissa |= 0x800000;
	else
		exponent = 1;
	exponent += NIB_EXACT_UNIT - 127 - 23;
	product = (uint128)size * mantissa;

	/* 63 + 24 bits: keep the upper 64, remember whether lower bits were set. */
	if (!(uint64_t)(product >> 64))
		return nib_round_bits(negative, (uint64_t)product, exponent, false, f);
	drop = 64 - __builtin_clzll((uint64_t)(product >> 64));
	return nib_round_bits(negative, (uint64_t)(product >> drop), exponent + drop,
			      (product & (((uint128)1 << drop) - 1)) != 0, f);
}

uint32_t nib_exact_round(const struct nib_exact_sum *s, float alpha,
			 enum nib_dtype dtype)
{
	return (uint32_t)round_product(s, alpha, nib_dtype_format(dtype));
}

double nib_exact_double(const struct nib_exact_sum *s, float alpha)
{
	return nib_fp64_from_bits(round_product(s, alpha, nib_format_fp64));
}

double nib_exact_silu(double x)
{
	double e;

	if (!(x < 0))
		return x / (1 + exp(-x));
	if (isinf(x))
		return -0.0;
	e = exp(x);
	return x * e / (1 + e);
}
