/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact_dense.c - exact sums of floats times NVFP4.
 *
 * Most blocks are narrow: all their x are multiples of some 2^l and less than
 * 2^(l+41).  Then 16 products of x and twice a code add up to less than
 * 2^(l+41+7.6), and times a scale, which has 4 significant bits, to 53 bits:
 * all of it is exact in doubles.  The block partial goes to the digits.  A
 * block of fp16 is always narrow.  The products of another block go to the
 * digits one by one.
 *
 * Doubles are exact here or bounds, so the rounding mode changes no sum, and
 * none of them is subnormal.
 */
#include "format/exact_dense.h"

#include <math.h>
#include <string.h>

#include "format/half.h"
#include "format/int8.h"
#include "format/view.h"

__extension__ typedef unsigned __int128 uint128;

#define NARROW_BITS 41
/* Codes count twice, scales in 2^-9: log2 of the unit of their products. */
#define PRODUCT_UNIT (-10)
#define UNIT	     0x1p-10
/* log2 of the unit of digit[0]; the same in units of 2^PRODUCT_UNIT. */
#define DIGIT_UNIT (-234)
#define DIGIT_BIAS (PRODUCT_UNIT - DIGIT_UNIT)
/* More than the roundings of 2^17 additions of positive doubles. */
#define ROUND_UP (1 + 0x1p-32)

/* ---- rows --------------------------------------------------------------- */

/* Is every x a multiple of one power of two and less than 2^NARROW_BITS of it?
 */
static bool is_narrow(const double *x)
{
	int low = INT32_MAX, high = INT32_MIN;

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		const uint64_t bits = nib_fp64_bits(x[i]);
		const int field = (int)(bits >> 52 & 0x7FF);
		const uint64_t mantissa =
		    (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
		const int lowest = field - 52 + __builtin_ctzll(mantissa);

		if (field == 0x7FF)
			return false;
		if (field == 0) /* zero: no double here is subnormal */
			continue;
		low = lowest < low ? lowest : low;
		high = field + 1 > high ? field + 1 : high;
	}
	return high - (int64_t)low <= NARROW_BITS;
}

/* Stores x as a block of out, and updates what out knows of the whole row. */
static void take_block(struct nib_exact_dense *out, const double *x, int64_t block)
{
	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		const double size = fabs(x[i]);

		out->has_subnormal |= size > 0 && size < 0x1p-126;
		if (isfinite(size) && size > out->largest)
			out->largest = size;
	}
	out->is_narrow[block] = is_narrow(x);
	memcpy(out->x + block * NIB_NVFP4_BLOCK, x, NIB_NVFP4_BLOCK * sizeof(*x));
}

/* In doubles: 114 * 1.125 * 2^121, for example, overflows fp32. */
static void round_block(struct nib_exact_dense *out, const float *x, double *rounded)
{
	int8_t codes[NIB_NVFP4_BLOCK];
	const float scale = nib_int8_block(codes, x);

	out->has_nan |= isnan(scale);
	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		rounded[i] = isnan(scale) ? 0 : codes[i] * (double)scale;
}

void nib_exact_decode_dense(struct nib_exact_dense *out, const struct nib_dense *v,
			    enum nib_activations activations, int64_t batch,
			    int64_t row)
{
	double exact[NIB_NVFP4_BLOCK];
	float x[NIB_NVFP4_BLOCK];

	out->largest = 0;
	out->has_subnormal = out->has_nan = false;
	for (int64_t g = 0; g < v->cols / NIB_NVFP4_BLOCK; g++) {
		for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
			x[i] = nib_dense_get(v, batch, row, g * NIB_NVFP4_BLOCK + i);
		if (activations == NIB_ACTIVATIONS_INT8)
			round_block(out, x, exact);
		else
			for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
				exact[i] = nib_fp32_to_fp64(x[i]);
		take_block(out, exact, g);
	}
}

void nib_exact_decode_weights(struct nib_exact_weights *out, const struct nib_fp4 *v,
			      int64_t batch, int64_t row)
{
	const struct nib_exact_row *w = &out->row;

	nib_exact_decode(&out->row, v, batch, row, row);
	out->largest = out->total = out->scales = 0;
	for (int64_t g = 0; g < nib_fp4_groups(v); g++) {
		const double scale = w->scale[g] * UNIT;
		int most = 0, all = 0;

		for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
			const int twice = w->twice[g * NIB_NVFP4_BLOCK + i];
			const int size = twice < 0 ? -twice : twice;

			out->twice[g * NIB_NVFP4_BLOCK + i] = twice;
			most = size > most ? size : most;
			all += size;
		}
		out->largest = fmax(out->largest, most * scale);
		out->total += all * scale; /* exact: less than 2^42 units */
		out->scales += NIB_NVFP4_BLOCK * 2 * scale;
	}
}

/* ---- the sum ------------------------------------------------------------ */

/* product: in PRODUCT_UNIT, no inf or NaN, at least 2^-149 if not zero. */
static void add(struct nib_exact_wide *s, double product)
{
	const uint64_t bits = nib_fp64_bits(product);
	const int64_t sign = -(int64_t)(bits >> 63);
	const int field = (int)(bits >> 52 & 0x7FF);
	const uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1)
									   << 52;
	const int place = field - 1023 - 52 + DIGIT_BIAS;
	const int shift = place & 31;
	const uint64_t low = (mantissa & UINT32_MAX) << shift;
	const uint64_t high = (mantissa >> 32) << shift;
	int64_t *digit;

	if (field == 0)
		return;
	digit = &s->digit[place >> 5];
	digit[0] += ((int64_t)(low & UINT32_MAX) ^ sign) - sign;
	digit[1] += ((int64_t)((low >> 32) + (high & UINT32_MAX)) ^ sign) - sign;
	digit[2] += ((int64_t)(high >> 32) ^ sign) - sign;
}

/*
 * *dot: the sum of x[i] * y[i], exact if the block is narrow.  *size: that of
 * their sizes.  Loops over halves, because gcc vectorises those.
 */
static __attribute__((noinline)) void block_sums(const double *restrict x,
						 const double *restrict y, double *dot,
						 double *size)
{
	double d[NIB_NVFP4_BLOCK], s[NIB_NVFP4_BLOCK];

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		d[i] = x[i] * y[i];
		s[i] = fabs(d[i]);
	}
	for (int i = 0; i < 8; i++) {
		d[i] += d[i + 8];
		s[i] += s[i + 8];
	}
	for (int i = 0; i < 4; i++) {
		d[i] += d[i + 4];
		s[i] += s[i + 4];
	}
	*dot = (d[0] + d[2]) + (d[1] + d[3]);
	*size = (s[0] + s[2]) + (s[1] + s[3]);
}

/* inf * 0 is NaN, and so are infinities of both signs. */
static void add_infinite(struct nib_exact_wide *s, double x, double w)
{
	const int sign = signbit(x) != signbit(w) ? -1 : 1;

	s->is_nan |= isnan(x) || w == 0 || s->infinite == -sign;
	s->infinite = sign;
}

/* A block that is not narrow: its partial counts as a sum of |products|. */
static void add_wide(struct nib_exact_wide *s, const double *x, const double *twice,
		     double scale)
{
	double size = 0;

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		const double w = twice[i] * scale, product = x[i] * w;

		if (!isfinite(x[i])) {
			add_infinite(s, x[i], w);
			continue;
		}
		add(s, product); /* 32 bits */
		size += fabs(product);
	}
	s->products += size;
	s->magnitude += size;
}

void nib_exact_dot_dense(struct nib_exact_wide *s, const struct nib_exact_dense *a,
			 const struct nib_exact_weights *b, int64_t k)
{
	memset(s, 0, sizeof(*s));
	s->is_nan = a->has_nan || b->row.has_nan;
	for (int64_t g = 0; g < k / NIB_NVFP4_BLOCK; g++) {
		const double *x = a->x + g * NIB_NVFP4_BLOCK;
		const double *twice = b->twice + g * NIB_NVFP4_BLOCK;
		const double scale = b->row.scale[g];
		double dot, size, partial;

		if (!a->is_narrow[g]) {
			add_wide(s, x, twice, scale);
			continue;
		}
		block_sums(x, twice, &dot, &size);
		partial = dot * scale;
		add(s, partial);
		s->products += size * scale;
		s->magnitude += fabs(partial);
	}
	s->products *= UNIT * ROUND_UP;
	s->magnitude *= UNIT * ROUND_UP;
	s->largest_x = a->largest;
	s->largest_w = b->largest;
	s->scales = b->scales;
	s->subnormal = a->has_subnormal ? 0x1p-126 * b->total : 0;
}

/* ---- the rounding ------------------------------------------------------- */

/* |sum| times a number below 2^24. */
struct product {
	uint32_t digit[NIB_EXACT_DIGITS + 1];
	bool negative; /* the sum is */
	int top;       /* the first digit that is not 0, or -1 */
};

static void multiply(struct product *p, const struct nib_exact_wide *s, uint32_t factor)
{
	uint64_t carry = 0;
	int64_t rest = 0;

	/* Two's complement first: its sign is in the last carry. */
	for (int i = 0; i < NIB_EXACT_DIGITS; i++) {
		rest += s->digit[i];
		p->digit[i] = (uint32_t)rest;
		rest >>= 32;
	}
	p->negative = rest < 0;
	for (int i = 0; p->negative && i < NIB_EXACT_DIGITS; i++) {
		carry = (i ? carry : 1) + (uint32_t)~p->digit[i];
		p->digit[i] = (uint32_t)carry;
		carry >>= 32;
	}
	carry = 0;
	for (int i = 0; i < NIB_EXACT_DIGITS; i++) {
		carry += (uint64_t)p->digit[i] * factor;
		p->digit[i] = (uint32_t)carry;
		carry >>= 32;
	}
	p->digit[NIB_EXACT_DIGITS] = (uint32_t)carry;
	for (p->top = NIB_EXACT_DIGITS; p->top >= 0; p->top--)
		if (p->digit[p->top])
			break;
}

/* p * 2^exponent with the given sign, rounded to f. */
static uint64_t round_product(const struct product *p, bool negative, int exponent,
			      struct nib_float_format f)
{
	uint128 head = 0; /* three digits, of which 64 bits are kept */
	bool sticky;
	int drop;

	if (p->top < 0)
		return nib_sign_bits(f, negative);
	for (int i = p->top; i > p->top - 3; i--)
		head = head << 32 | (i < 0 ? 0 : p->digit[i]);
	drop = 32 - __builtin_clz(p->digit[p->top]);
	sticky = (head & (((uint128)1 << drop) - 1)) != 0;
	for (int i = p->top - 3; i >= 0; i--)
		sticky |= p->digit[i] != 0;
	return nib_round_bits(negative, (uint64_t)(head >> drop),
			      exponent + 32 * (p->top - 2) + drop, sticky, f);
}

static uint64_t round_sum(const struct nib_exact_wide *s, float alpha,
			  struct nib_float_format f)
{
	const uint32_t bits = nib_fp32_bits(alpha), field = bits >> 23 & 0xFF;
	const uint32_t fraction = bits & 0x7FFFFF;
	const uint64_t nan = nib_infinity_bits(f) | UINT64_C(1)
							<< (f.fraction_bits - 1);
	const uint32_t mantissa = field ? fraction | 0x800000 : fraction;
	struct product p;
	bool negative, is_zero;

	multiply(&p, s, 1);
	negative = (bits >> 31) ^ (s->infinite ? s->infinite < 0 : p.negative);
	is_zero = p.top < 0 && !s->infinite;
	if (s->is_nan || (field == 0xFF && (fraction || is_zero)) ||
	    (s->infinite && mantissa == 0))
		return nan;
	if (s->infinite || field == 0xFF)
		return nib_sign_bits(f, negative) | nib_infinity_bits(f);
	multiply(&p, s, mantissa);
	return round_product(&p, negative,
			     (field ? (int)field : 1) - 127 - 23 + DIGIT_UNIT, f);
}

uint32_t nib_exact_wide_round(const struct nib_exact_wide *s, float alpha,
			      enum nib_dtype dtype)
{
	return (uint32_t)round_sum(s, alpha, nib_dtype_format(dtype));
}

double nib_exact_wide_double(const struct nib_exact_wide *s, float alpha)
{
	return nib_fp64_from_bits(round_sum(s, alpha, nib_format_fp64));
}
