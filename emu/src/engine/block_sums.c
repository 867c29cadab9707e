/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_sums.c - see block_sums.h.  Sums of 4-bit elements are made for many
 * columns at once, in loops that compilers turn into vectors: exact integers in
 * double.  Terms of the others are integers of 64 bits.
 */
#include "engine/block_sums.h"

#include <math.h>
#include <string.h>

#include "engine/power.h"

#define FP4_BITS 35 /* behind the largest exponent */
#define MX_BITS	 25
#define GROUP	 16
#define GROUPS	 (EMU_UMMA_MAX_K / GROUP)
#define MX_K	 32

/* ---- numbers taken apart ------------------------------------------------- */

/* significand * 2^(exponent - bits of its fraction) */
struct number {
	int32_t significand;
	int exponent;
	bool is_nan;
};

/* Three bits of fraction. */
static struct number scale_of(uint8_t code, bool is_ue8m0)
{
	const int biased = code >> 3 & 15, fraction = code & 7;
	struct number x = {0};

	if (is_ue8m0) {
		x.significand = 8;
		x.exponent = code - 127;
		x.is_nan = code == 255;
		return x;
	}
	x.is_nan = (code & 0x7F) == 0x7F;
	x.significand = biased ? 8 + fraction : fraction;
	x.exponent = biased ? biased - 7 : -6;
	if (x.significand == 0)
		x.exponent = -126;
	return x;
}

/* 23 bits of fraction; a zero's exponent is the caller's. */
static struct number float_parts(uint32_t code, int exponent_of_zero)
{
	const int biased = (int)(code >> 23 & 0xFF);
	const int32_t fraction = (int32_t)(code & 0x7FFFFF);
	struct number x = {biased ? fraction + (1 << 23) : fraction,
			   (biased ? biased : 1) - 127, false};

	if (code >> 31)
		x.significand = -x.significand;
	if (x.significand == 0)
		x.exponent = exponent_of_zero;
	x.is_nan = biased == 255 && fraction;
	return x;
}

static bool is_infinite(uint32_t code)
{
	return (code & 0x7FFFFFFF) == 0x7F800000;
}

/* x * 2^by, toward zero. */
static int64_t shifted(int64_t x, int by)
{
	if (by >= 0)
		return x * ((int64_t)1 << by);
	if (by <= -63)
		return 0;
	return x < 0 ? -(-x >> -by) : x >> -by;
}

/* sum * 2^e, cut toward zero; |sum| < 2^53. */
static uint32_t result_of(int64_t sum, int e)
{
	return emu_cut_to_f32((double)sum * emu_power_of_2(e), 23);
}

/* ---- operands ------------------------------------------------------------ */

void emu_block_operand_scale(struct emu_block_operand *o, int row,
			     const uint8_t *scales)
{
	memcpy(o->scale[row], scales, (size_t)o->scales);
}

void emu_block_operand_set(struct emu_block_operand *o, int row,
			   enum emu_umma_kind kind, const uint8_t *codes,
			   bool negate)
{
	static const int8_t twice[16] = {0, 1,	2,  3,	4,  6,	8,  12,
					 0, -1, -2, -3, -4, -6, -8, -12};
	static const uint8_t signs[] = {0, 0, 0x80, 0x80, 0x20, 0x20, 8};

	if (kind == EMU_UMMA_MXF4NVF4) {
		for (int k = 0; k < EMU_UMMA_MAX_K; k++)
			o->value[row][k] = negate
					       ? (int16_t)-twice[codes[k] & 15]
					       : twice[codes[k] & 15];
		return;
	}
	for (int k = 0; k < MX_K; k++)
		o->value[row][k] = codes[k] ^ (negate ? signs[o->type] : 0);
}

/* ---- four bits ----------------------------------------------------------- */

#define STRIP 32 /* columns of D that are summed together */

/*
 * Scales of one row, or of the columns of a strip: [group][0] and [group][n].
 * Significand times power of two; NaN has some value that is not used.
 */
struct fp4_scales {
	double value[GROUPS][STRIP];
	int32_t exponent[GROUPS][STRIP];
	uint32_t is_nan[STRIP]; /* 0 or 1 */
};

/* Columns of B: elements by k, and their scales. */
struct fp4_strip {
	int16_t value[EMU_UMMA_MAX_K][STRIP];
	struct fp4_scales scales;
};

static void take_scales(const struct emu_block_operand *o, int row, int at,
			struct fp4_scales *to)
{
	to->is_nan[at] = 0;
	for (int g = 0; g < GROUPS; g++) {
		const struct number x = scale_of(
		    o->scale[row][g * o->scales / GROUPS], o->scale_is_ue8m0);

		to->exponent[g][at] = x.exponent;
		to->value[g][at] =
		    x.significand * emu_power_of_2(x.exponent - 3);
		to->is_nan[at] |= x.is_nan;
	}
}

static void take_strip(const struct emu_block_operand *o, int first, int count,
		       struct fp4_strip *to)
{
	memset(to, 0, sizeof(*to));
	for (int n = 0; n < count; n++) {
		take_scales(o, first + n, n, &to->scales);
		for (int k = 0; k < EMU_UMMA_MAX_K; k++)
			to->value[k][n] = o->value[first + n][k];
	}
}

/* 4 times the sums of 16 products: at most 16 * 144. */
EMU_FAST_PART void fp4_dots(const int16_t *x, const struct fp4_strip *y,
			    int16_t dots[GROUPS][STRIP])
{
	memset(dots, 0, sizeof(*dots) * GROUPS);
	for (int k = 0; k < EMU_UMMA_MAX_K; k++)
		for (int n = 0; n < STRIP; n++)
			dots[k / GROUP][n] = (int16_t)(dots[k / GROUP][n] +
						       x[k] * y->value[k][n]);
}

/* The largest exponent of the terms and c; of a zero c -126. */
EMU_FAST_PART void fp4_exponents(const struct fp4_scales *x,
				 const struct fp4_scales *y, const uint32_t *c,
				 int32_t *e)
{
	for (int n = 0; n < STRIP; n++) {
		const int32_t biased = (int32_t)(c[n] >> 23 & 0xFF);

		e[n] = (biased > 1 ? biased : 1) - 127;
	}
	for (int g = 0; g < GROUPS; g++)
		for (int n = 0; n < STRIP; n++) {
			const int32_t of_term =
			    x->exponent[g][0] + y->exponent[g][n];

			e[n] = of_term > e[n] ? of_term : e[n];
		}
}

/*
 * Exact results cut toward zero to fp32: where they are normal in the bits, and
 * else in units of 2^-149, where what is cut to nothing is +0.
 */
EMU_FAST_PART void cut_strip(const double *exact, uint32_t *d)
{
	uint64_t bits[STRIP];
	double cut[STRIP];
	float result[STRIP];

	memcpy(bits, exact, sizeof(bits));
	for (int n = 0; n < STRIP; n++)
		bits[n] &= ~(uint64_t)0 << 29;
	memcpy(cut, bits, sizeof(bits));
	for (int n = 0; n < STRIP; n++) {
		const double small = trunc(exact[n] * 0x1p149) * 0x1p-149 + 0.0;

		result[n] = (float)(fabs(exact[n]) < 0x1p-126 ? small : cut[n]);
	}
	memcpy(d, result, sizeof(result));
}

/* Terms and c as multiples of 2^(e - 35), which double holds exactly. */
EMU_FAST_PART void fp4_row(const int16_t *values, const struct fp4_scales *x,
			   const struct fp4_strip *y, const uint32_t *c,
			   uint32_t *d)
{
	int16_t dots[GROUPS][STRIP];
	int32_t e[STRIP];
	uint64_t bits[STRIP];
	double up[STRIP], sum[STRIP];
	float from[STRIP];

	fp4_dots(values, y, dots);
	fp4_exponents(x, &y->scales, c, e);
	for (int n = 0; n < STRIP; n++)
		bits[n] = (uint64_t)(1023 + FP4_BITS - e[n]) << 52;
	memcpy(up, bits, sizeof(up));
	memcpy(from, c, sizeof(from));
	for (int n = 0; n < STRIP; n++)
		sum[n] = 0.0 + trunc(from[n] * up[n]);
	for (int g = 0; g < GROUPS; g++)
		for (int n = 0; n < STRIP; n++)
			sum[n] += trunc(
			    dots[g][n] * 0.25 *
			    (x->value[g][0] * y->scales.value[g][n]) * up[n]);
	for (int n = 0; n < STRIP; n++)
		bits[n] = (uint64_t)(1023 - FP4_BITS + e[n]) << 52;
	memcpy(up, bits, sizeof(up));
	for (int n = 0; n < STRIP; n++)
		sum[n] *= up[n];
	cut_strip(sum, d);
	for (int n = 0; n < STRIP; n++) {
		const uint32_t magnitude = c[n] & 0x7FFFFFFF;

		d[n] = magnitude == 0x7F800000 ? c[n] : d[n];
		d[n] = magnitude > 0x7F800000 || x->is_nan[0] ||
			       y->scales.is_nan[n]
			   ? EMU_NAN_F32
			   : d[n];
	}
}

EMU_FAST void emu_fp4_sums(const struct emu_block_operand *a,
			   const struct emu_block_operand *b, const uint32_t *c,
			   uint32_t *d)
{
	for (int first = 0; first < b->rows; first += STRIP) {
		const int left = b->rows - first;
		const size_t count = (size_t)(left < STRIP ? left : STRIP);
		struct fp4_strip strip;

		take_strip(b, first, (int)count, &strip);
		for (int m = 0; m < a->rows; m++) {
			const int at = m * b->rows + first;
			uint32_t from[STRIP] = {0}, to[STRIP];
			struct fp4_scales scales;

			take_scales(a, m, 0, &scales);
			if (c)
				memcpy(from, c + at, sizeof(*c) * count);
			fp4_row(a->value[m], &scales, &strip, from, to);
			memcpy(d + at, to, sizeof(*d) * count);
		}
	}
}

/* ---- eight, six and four bits -------------------------------------------- */

/* Three bits of fraction in all formats; kind: 0 finite, else infinite, NaN. */
struct element {
	int8_t significand, exponent, kind;
};

enum { FINITE, INFINITE, NOT_A_NUMBER };

static struct element element_of(enum emu_umma_type type, uint32_t code)
{
	static const struct {
		uint8_t exponent_bits, fraction_bits;
	} formats[] = {
	    [EMU_UMMA_TYPE_E4M3] = {4, 3}, [EMU_UMMA_TYPE_E5M2] = {5, 2},
	    [EMU_UMMA_TYPE_E2M3] = {2, 3}, [EMU_UMMA_TYPE_E3M2] = {3, 2},
	    [EMU_UMMA_TYPE_E2M1] = {2, 1},
	};
	const int exponents = formats[type].exponent_bits;
	const int fractions = formats[type].fraction_bits;
	const int bias = (1 << exponents >> 1) - 1;
	const int biased = (int)(code >> fractions) & ((1 << exponents) - 1);
	const int fraction = (int)code & ((1 << fractions) - 1);
	int significand = (biased ? 1 << fractions : 0) + fraction;
	struct element x = {.exponent = (int8_t)((biased ? biased : 1) - bias)};

	significand <<= 3 - fractions;
	if (code >> (exponents + fractions) & 1)
		significand = -significand;
	x.significand = (int8_t)significand;
	if (type == EMU_UMMA_TYPE_E4M3 && (code & 0x7F) == 0x7F)
		x.kind = NOT_A_NUMBER;
	if (type == EMU_UMMA_TYPE_E5M2 && biased == 31)
		x.kind = fraction ? NOT_A_NUMBER : INFINITE;
	return x;
}

/* What a sum with infinities or NaN among its terms is. */
static uint32_t special_sum(const struct element *x, const struct element *y,
			    uint32_t c)
{
	bool plus = c == 0x7F800000, minus = c == 0xFF800000;
	bool is_nan = (c & 0x7FFFFFFF) > 0x7F800000;

	for (int k = 0; k < MX_K; k++) {
		const bool finite = !x[k].kind && !y[k].kind;
		const int sign = x[k].significand * y[k].significand;

		if (x[k].kind == NOT_A_NUMBER || y[k].kind == NOT_A_NUMBER ||
		    (!finite && sign == 0))
			is_nan = true;
		else if (!finite && sign > 0)
			plus = true;
		else if (!finite)
			minus = true;
	}
	if (is_nan || (plus && minus))
		return EMU_NAN_F32;
	return plus ? 0x7F800000 : 0xFF800000;
}

/* The bits of an fp16 as those of a float, and of its smallest exponent. */
static struct number half_parts(uint32_t *c)
{
	const double x = emu_widen(&emu_format_f16, *c & 0xFFFF);
	const float exact = (float)x;
	struct number parts;

	memcpy(c, &exact, sizeof(*c));
	parts = float_parts(*c, EMU_ZERO_EXPONENT);
	if (parts.significand && parts.exponent < -14) {
		/* By 10 bits at most: fp16's least number is 2^-24. */
		parts.significand /= 1 << ((-14 - parts.exponent) & 15);
		parts.exponent = -14;
	}
	return parts;
}

/* A special sum's bits as those of an fp16. */
static uint32_t special_half(uint32_t sum)
{
	if (sum == EMU_NAN_F32)
		return EMU_NAN_F16;
	return sum >> 31 ? 0xFC00 : 0x7C00;
}

/* Products of 64 times their value: units of 2^(exponent - 6). */
static uint32_t mx_sum(const struct element *x, const struct element *y,
		       int scale, bool is_f16, uint32_t c)
{
	const struct number parts =
	    is_f16 ? half_parts(&c) : float_parts(c, EMU_ZERO_EXPONENT);
	bool is_special = parts.is_nan || is_infinite(c);
	int e = parts.exponent;
	int64_t sum;

	for (int k = 0; k < MX_K; k++) {
		const int exponent = x[k].exponent + y[k].exponent + scale;

		is_special |= x[k].kind || y[k].kind;
		if (x[k].significand && y[k].significand && exponent > e)
			e = exponent;
	}
	if (is_special && is_f16)
		return special_half(special_sum(x, y, c));
	if (is_special)
		return special_sum(x, y, c);
	sum = shifted(parts.significand, MX_BITS - 23 + parts.exponent - e);
	for (int k = 0; k < MX_K; k++)
		if (x[k].significand && y[k].significand)
			sum += shifted(x[k].significand * y[k].significand,
				       MX_BITS - 6 + x[k].exponent +
					   y[k].exponent + scale - e);
	if (is_f16)
		return emu_round_to_f16((double)sum *
					emu_power_of_2(e - MX_BITS));
	return result_of(sum, e - MX_BITS);
}

static void take_elements(const struct emu_block_operand *o, int row,
			  struct element *to)
{
	for (int k = 0; k < MX_K; k++)
		to[k] = element_of(o->type, (uint32_t)o->value[row][k]);
}

void emu_mx_sums(const struct emu_block_operand *a,
		 const struct emu_block_operand *b, bool d_is_f16,
		 const uint32_t *c, uint32_t *d)
{
	struct element x[MX_K], y[EMU_UMMA_MAX_ROWS][MX_K];

	for (int n = 0; n < b->rows; n++)
		take_elements(b, n, y[n]);
	for (int m = 0; m < a->rows; m++) {
		const struct number sa =
		    scale_of(a->scale[m][0], a->scale_is_ue8m0);

		take_elements(a, m, x);
		for (int n = 0; n < b->rows; n++) {
			const int at = m * b->rows + n;
			const struct number sb =
			    scale_of(b->scale[n][0], b->scale_is_ue8m0);

			d[at] = sa.is_nan || sb.is_nan
				    ? (d_is_f16 ? EMU_NAN_F16 : EMU_NAN_F32)
				    : mx_sum(x, y[n], sa.exponent + sb.exponent,
					     d_is_f16, c ? c[at] : 0);
		}
	}
}
