/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half.h - fp16, bf16, fp32 and fp64 as bits: widening is exact, narrowing is
 * one rounding to nearest even, straight from the exact value.
 *
 * Integer code only: the rounding mode, flush-to-zero and denormals-are-zero of
 * the calling thread change nothing.  NaN stays NaN, made quiet, with its sign
 * and the leading bits of its payload, as the x86 conversions do.
 */
#ifndef NIB_HALF_H
#define NIB_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "nibblas.h"

/* An IEEE binary format: 1 sign bit, exponent, fraction. */
struct nib_float_format {
	int exponent_bits;
	int fraction_bits;
};

static const struct nib_float_format nib_format_fp16 = {5, 10};
static const struct nib_float_format nib_format_bf16 = {8, 7};
static const struct nib_float_format nib_format_fp32 = {8, 23};
static const struct nib_float_format nib_format_fp64 = {11, 52};

static inline struct nib_float_format nib_dtype_format(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP16	 ? nib_format_fp16
	       : dtype == NIB_DTYPE_BF16 ? nib_format_bf16
					 : nib_format_fp32;
}

static inline uint32_t nib_fp32_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline float nib_fp32_from_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint64_t nib_fp64_bits(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline double nib_fp64_from_bits(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Infinity of a format, without its sign. */
static inline uint64_t nib_infinity_bits(struct nib_float_format f)
{
	return ((UINT64_C(1) << f.exponent_bits) - 1) << f.fraction_bits;
}

static inline uint64_t nib_sign_bits(struct nib_float_format f, bool negative)
{
	return (uint64_t)negative << (f.exponent_bits + f.fraction_bits);
}

/*
 * Rounds mantissa * 2^exponent to f, to nearest even, overflow to infinity.
 * sticky: the true value is larger than that by less than one unit of mantissa,
 * which must then have bit 63 set.
 */
static inline uint64_t nib_round_bits(bool negative, uint64_t mantissa, int exponent,
				      bool sticky, struct nib_float_format f)
{
	const int bias = (1 << (f.exponent_bits - 1)) - 1;
	const uint64_t sign = nib_sign_bits(f, negative);
	uint64_t kept, rest, half;
	int leading, drop;

	if (mantissa == 0)
		return sign;
	leading = exponent + 63 - __builtin_clzll(mantissa);
	if (leading > bias)
		return sign | nib_infinity_bits(f);

	/* The last bit of the result weighs at least 2^(1 - bias - fraction) */
	drop = (leading < 1 - bias ? 1 - bias : leading) - f.fraction_bits - exponent;
	if (drop > 64)
		return sign;
	if (drop <= 0) {
		kept = mantissa << -drop;
	} else {
		kept = drop == 64 ? 0 : mantissa >> drop;
		half = UINT64_C(1) << (drop - 1);
		rest = drop == 64 ? mantissa : mantissa - (kept << drop);
		kept += rest > half || (rest == half && (sticky || (kept & 1)));
	}
	/* kept holds the leading one, which adds 1 to the exponent field; a
	 * carry out of the fraction moves on by itself, up to infinity. */
	if (leading >= 1 - bias)
		kept += (uint64_t)(leading + bias - 1) << f.fraction_bits;
	return sign | kept;
}

/* Converts the bits of a value of format from to format to. */
static inline uint64_t nib_convert_bits(uint64_t bits, struct nib_float_format from,
					struct nib_float_format to)
{
	const int bias = (1 << (from.exponent_bits - 1)) - 1;
	const int shift = to.fraction_bits - from.fraction_bits;
	const uint64_t infinity = nib_infinity_bits(from);
	const bool negative = bits >> (from.exponent_bits + from.fraction_bits);
	const uint64_t size = bits & (nib_sign_bits(from, true) - 1);
	uint64_t fraction = size & ((UINT64_C(1) << from.fraction_bits) - 1);
	int exponent = (int)(size >> from.fraction_bits);

	if (size >= infinity) {
		bits = nib_sign_bits(to, negative) | nib_infinity_bits(to);
		if (size == infinity)
			return bits;
		fraction = shift < 0 ? fraction >> -shift : fraction << shift;
		return bits | fraction | UINT64_C(1) << (to.fraction_bits - 1);
	}
	if (exponent)
		fraction |= UINT64_C(1) << from.fraction_bits;
	else
		exponent = 1;
	return nib_round_bits(negative, fraction, exponent - bias - from.fraction_bits,
			      false, to);
}

static inline float nib_fp16_to_fp32(uint16_t bits)
{
	return nib_fp32_from_bits(
	    (uint32_t)nib_convert_bits(bits, nib_format_fp16, nib_format_fp32));
}

static inline uint16_t nib_fp32_to_fp16(float x)
{
	return (uint16_t)nib_convert_bits(nib_fp32_bits(x), nib_format_fp32,
					  nib_format_fp16);
}

/* A signalling NaN stays one here: these are the upper bits of an fp32. */
static inline float nib_bf16_to_fp32(uint16_t bits)
{
	return nib_fp32_from_bits((uint32_t)bits << 16);
}

static inline uint16_t nib_fp32_to_bf16(float x)
{
	const uint32_t bits = nib_fp32_bits(x);

	if ((bits & 0x7FFFFFFF) > 0x7F800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

static inline float nib_fp64_to_fp32(double x)
{
	return nib_fp32_from_bits((uint32_t)nib_convert_bits(
	    nib_fp64_bits(x), nib_format_fp64, nib_format_fp32));
}

static inline uint16_t nib_fp64_to_fp16(double x)
{
	return (uint16_t)nib_convert_bits(nib_fp64_bits(x), nib_format_fp64,
					  nib_format_fp16);
}

static inline uint16_t nib_fp64_to_bf16(double x)
{
	return (uint16_t)nib_convert_bits(nib_fp64_bits(x), nib_format_fp64,
					  nib_format_bf16);
}

static inline double nib_fp32_to_fp64(float x)
{
	return nib_fp64_from_bits(
	    nib_convert_bits(nib_fp32_bits(x), nib_format_fp32, nib_format_fp64));
}

/* The bits of x rounded once to dtype, in the low 16 or 32 bits. */
static inline uint32_t nib_fp64_to_dtype(double x, enum nib_dtype dtype)
{
	return (uint32_t)nib_convert_bits(nib_fp64_bits(x), nib_format_fp64,
					  nib_dtype_format(dtype));
}

/* The exact value of an element's bits. */
static inline float nib_dtype_to_fp32(uint32_t bits, enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP16	 ? nib_fp16_to_fp32((uint16_t)bits)
	       : dtype == NIB_DTYPE_BF16 ? nib_bf16_to_fp32((uint16_t)bits)
					 : nib_fp32_from_bits(bits);
}

#endif
