/* SPDX-License-Identifier: Apache-2.0 */
/* floats.c - see floats.h. */
#include "hardware/floats.h"

#include <math.h>
#include <string.h>

#include "hardware/power.h"

const struct emu_format emu_format_f16 = {5, 10, true, 0x7FFF, 0x7BFF};
const struct emu_format emu_format_bf16 = {8, 7, true, 0x7FFF, 0x7F7F};
const struct emu_format emu_format_tf32 = {8, 10, true, 0x3FFFF, 0x3FBFF};
const struct emu_format emu_format_e4m3 = {4, 3, false, 0x7F, 0x7E};
const struct emu_format emu_format_e5m2 = {5, 2, true, 0x7F, 0x7B};
/* NaN becomes the largest number. */
const struct emu_format emu_format_e2m1 = {2, 1, false, 7, 7};
const struct emu_format emu_format_e2m3 = {2, 3, false, 0x1F, 0x1F};
const struct emu_format emu_format_e3m2 = {3, 2, false, 0x1F, 0x1F};

static uint32_t sign_bit(const struct emu_format *f)
{
	return UINT32_C(1) << (f->exponent_bits + f->mantissa_bits);
}

static int bias(const struct emu_format *f)
{
	return (1 << (f->exponent_bits - 1)) - 1;
}

/* The exponent of the leading bit; below -1022 for a subnormal double. */
static int exponent_of(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (int)(bits >> 52 & 0x7FF) - 1023;
}

double emu_widen(const struct emu_format *f, uint32_t bits)
{
	const uint32_t magnitude = bits & (sign_bit(f) - 1);
	const uint32_t mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
	const int exponent = (int)(magnitude >> f->mantissa_bits);
	double x;

	if (exponent && magnitude <= f->largest) {
		const uint64_t wide = ((uint64_t)magnitude << (52 - f->mantissa_bits)) +
				      ((uint64_t)(1023 - bias(f)) << 52);

		memcpy(&x, &wide, sizeof(x));
	} else if (f->has_inf && exponent == (1 << f->exponent_bits) - 1)
		x = mantissa ? NAN : INFINITY;
	else if (!f->has_inf && f->nan && magnitude == f->nan)
		x = NAN;
	else
		x = mantissa * emu_power_of_2(1 - bias(f) - f->mantissa_bits);
	return bits & sign_bit(f) ? -x : x;
}

/* True if the rest rounds the magnitude up by one. */
static bool rounds_up(double rest, bool is_odd, bool is_negative,
		      enum emu_rounding rounding)
{
	switch (rounding) {
	case EMU_RZ:
		return false;
	case EMU_RM:
		return rest > 0 && is_negative;
	case EMU_RP:
		return rest > 0 && !is_negative;
	case EMU_RNA:
		return rest >= 0.5;
	default:
		return rest > 0.5 || (rest == 0.5 && is_odd);
	}
}

/* The bits of an infinite or too large value. */
static uint32_t beyond(const struct emu_format *f, bool is_negative, bool is_inf,
		       enum emu_rounding rounding, bool saturates)
{
	const uint32_t infinity = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;

	if (saturates)
		return f->largest;
	if (!f->has_inf)
		return f->nan;
	if (!is_inf && (rounding == EMU_RZ || (rounding == EMU_RM && !is_negative) ||
			(rounding == EMU_RP && is_negative)))
		return f->largest;
	return infinity;
}

/*
 * The common case: to nearest, between the smallest normal number and the largest.
 * Adds half a unit of the last place that stays, less one bit unless that place is
 * odd, so that ties go to even.
 */
static bool narrow_to_nearest(const struct emu_format *f, double x, uint32_t *to)
{
	const int cut = 52 - f->mantissa_bits;
	const uint64_t least = (uint64_t)(1024 - bias(f)) << 52;
	uint64_t bits, magnitude;

	memcpy(&bits, &x, sizeof(bits));
	magnitude = bits << 1 >> 1;
	if (magnitude < least || magnitude >> 52 > (uint64_t)bias(f) + 1024)
		return false;
	magnitude += (UINT64_C(1) << (cut - 1)) - 1 + (magnitude >> cut & 1);
	magnitude -= (uint64_t)(1023 - bias(f)) << 52;
	*to = (uint32_t)(magnitude >> cut);
	if (*to > f->largest)
		return false;
	*to |= bits >> 63 ? sign_bit(f) : 0;
	return true;
}

uint32_t emu_narrow(const struct emu_format *f, double x, enum emu_rounding rounding,
		    bool saturates)
{
	const bool is_negative = signbit(x) != 0;
	const uint32_t sign = is_negative ? sign_bit(f) : 0;
	const double size = fabs(x);
	uint32_t bits;
	double scaled, whole;
	int exponent;

	if (rounding == EMU_RN && narrow_to_nearest(f, x, &bits))
		return bits;
	if (isnan(x))
		return f->nan;
	if (isinf(x))
		return sign | beyond(f, is_negative, true, rounding, saturates);
	if (size == 0)
		return sign;
	exponent = exponent_of(size);
	if (exponent < 1 - bias(f))
		exponent = 1 - bias(f);
	if (exponent > bias(f) + 1)
		return sign | beyond(f, is_negative, false, rounding, saturates);
	/* In units of the last place: exact. */
	scaled = size * emu_power_of_2(f->mantissa_bits - exponent);
	bits = (uint32_t)scaled;
	whole = bits;
	bits += rounds_up(scaled - whole, bits & 1, is_negative, rounding);
	/* A carry increments the exponent. */
	bits += (uint32_t)(exponent + bias(f) - 1) << f->mantissa_bits;
	if (bits > f->largest)
		return sign | beyond(f, is_negative, false, rounding, saturates);
	return sign | bits;
}

double emu_widen_ue8m0(uint32_t bits)
{
	return bits == 0xFF ? NAN : emu_power_of_2((int)bits - 127);
}

uint32_t emu_narrow_ue8m0(double x, bool rounds_up, bool saturates)
{
	const double size = fabs(x);
	int exponent;

	if (isnan(x))
		return 0xFF;
	if (size <= 0x1p-127)
		return 0;
	exponent = isinf(x) ? 1024 : exponent_of(size);
	if (exponent < 1024 && rounds_up && size > emu_power_of_2(exponent))
		exponent++;
	if (exponent > 127)
		return saturates ? 0xFE : 0xFF;
	return exponent < -127 ? 0 : (uint32_t)(exponent + 127);
}

uint32_t emu_narrow_f32(double x, enum emu_rounding rounding)
{
	static const struct emu_format f32 = {8, 23, true, EMU_NAN_F32, 0x7F7FFFFF};
	float narrow;
	uint32_t bits;

	if (rounding != EMU_RN)
		return emu_narrow(&f32, x, rounding, false);
	narrow = (float)x;
	memcpy(&bits, &narrow, sizeof(bits));
	return isnan(x) ? EMU_NAN_F32 : bits;
}

/*
 * The two-sum algorithm gives the exact result as sum + error (products of two
 * 11-bit numbers are exact).  If the sum is inexact and even, its odd neighbour is
 * returned.
 */
double emu_fma_odd(double a, double b, double c)
{
	const double product = a * b;
	const double sum = product + c;
	const double from_c = sum - product;
	const double error = (product - (sum - from_c)) + (c - from_c);
	uint64_t bits;
	double odd;

	if (!isfinite(sum) || error == 0)
		return sum;
	memcpy(&bits, &sum, sizeof(bits));
	if (bits & 1)
		return sum;
	bits += (error > 0) == (sum > 0) ? 1 : UINT64_MAX;
	memcpy(&odd, &bits, sizeof(odd));
	return odd;
}
