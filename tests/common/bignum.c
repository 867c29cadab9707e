/* SPDX-License-Identifier: Apache-2.0 */
/* bignum.c - see bignum.h. */
#include "common/bignum.h"

#include <math.h>
#include <string.h>

/* x = mantissa * 2^exponent */
static int64_t split(float x, int *exponent)
{
	const uint32_t bits = nib_fp32_bits(x);
	const int64_t fraction = bits & 0x7FFFFF;
	const int field = (int)(bits >> 23 & 0xFF);
	const int64_t size = field ? fraction + 0x800000 : fraction;

	*exponent = (field ? field : 1) - 150;
	return bits >> 31 ? -size : size;
}

void bignum_add(struct bignum *s, float x, int64_t factor)
{
	int exponent;
	const int64_t product = split(x, &exponent) * factor;
	const uint64_t size = product < 0 ? -(uint64_t)product : (uint64_t)product;

	for (int i = 0; i < 63; i++)
		if (size >> i & 1)
			s->count[exponent - BIGNUM_LEAST + i] += product < 0 ? -1 : 1;
}

/* Digits 0 and 1, and the carry beyond the last of them: 0, or -1 if s < 0. */
static int64_t carry_all(struct bignum *s)
{
	int64_t carry = 0;

	for (int i = 0; i < BIGNUM_BITS; i++) {
		const int64_t here = s->count[i] + carry;

		s->count[i] = here & 1;
		carry = (here - s->count[i]) / 2;
	}
	return carry;
}

struct bignum bignum_times(const struct bignum *s, float x)
{
	struct bignum out;
	int exponent;
	const int64_t mantissa = split(x, &exponent);

	memset(&out, 0, sizeof(out));
	for (int i = 0; i < BIGNUM_BITS; i++)
		for (int bit = 0; bit < 24 && s->count[i]; bit++)
			if ((mantissa < 0 ? -mantissa : mantissa) >> bit & 1)
				out.count[i + bit + exponent] +=
				    mantissa < 0 ? -s->count[i] : s->count[i];
	return out;
}

int bignum_sign(const struct bignum *s)
{
	struct bignum n = *s;

	if (carry_all(&n) < 0)
		return -1;
	for (int i = 0; i < BIGNUM_BITS; i++)
		if (n.count[i])
			return 1;
	return 0;
}

/* The distance of neighbours is 2^last; one unit more may carry. */
uint64_t bignum_round(const struct bignum *s, struct nib_float_format f)
{
	const int bias = (1 << (f.exponent_bits - 1)) - 1;
	const bool negative = bignum_sign(s) < 0;
	struct bignum n = *s;
	uint64_t kept = 0;
	bool half, more = false;
	int top, last, field;

	for (int i = 0; i < BIGNUM_BITS && negative; i++)
		n.count[i] = -n.count[i];
	carry_all(&n);
	for (top = BIGNUM_BITS - 1; top >= 0 && !n.count[top]; top--)
		;
	if (top < 0)
		return 0;
	field = top + BIGNUM_LEAST + bias;
	if (field < 1)
		field = 1;
	last = field - bias - f.fraction_bits - BIGNUM_LEAST;
	for (int i = top; i >= last; i--)
		kept = kept * 2 + (i < 0 ? 0 : (uint64_t)n.count[i]);
	half = last > 0 && n.count[last - 1];
	for (int i = last - 2; i >= 0; i--)
		more |= n.count[i] != 0;
	if (half && (more || (kept & 1)))
		kept++;
	/* The leading one of kept is the lowest bit of the field. */
	kept += (uint64_t)(field - 1) << f.fraction_bits;
	if (kept > nib_infinity_bits(f))
		kept = nib_infinity_bits(f);
	return nib_sign_bits(f, negative) | kept;
}

double bignum_double(const struct bignum *s)
{
	return nib_fp64_from_bits(bignum_round(s, nib_format_fp64));
}
