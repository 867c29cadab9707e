/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_sums.c - see block_sums.h.  Terms are integers of 64 bits; where
 * nothing can be cut, as with all scales and sums of usual size, sums in double
 * are exact and faster.
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

struct row_scales {
	struct number group[GROUPS];
	double value[GROUPS];
	int high, low; /* exponents, of those that are not zero */
	bool is_nan;
};

static void take_scales(const struct emu_block_operand *o, int row,
			struct row_scales *to)
{
	to->is_nan = false;
	to->high = to->low = 0;
	for (int g = 0, seen = 0; g < GROUPS; g++) {
		const struct number x = scale_of(
		    o->scale[row][g * o->scales / GROUPS], o->scale_is_ue8m0);

		to->group[g] = x;
		to->value[g] = x.significand * emu_power_of_2(x.exponent - 3);
		to->is_nan |= x.is_nan;
		if (x.significand == 0)
			continue;
		to->high =
		    !seen || x.exponent > to->high ? x.exponent : to->high;
		to->low = !seen || x.exponent < to->low ? x.exponent : to->low;
		seen = 1;
	}
}

static int32_t dot(const int16_t *x, const int16_t *y)
{
	int32_t sum = 0;

	for (int k = 0; k < GROUP; k++)
		sum += x[k] * y[k];
	return sum;
}

/* A term: 4 times the sum, 64 times the scales: units of 2^(exponent - 8). */
static uint32_t fp4_sum(const int16_t *x, const int16_t *y,
			const struct row_scales *sx,
			const struct row_scales *sy, uint32_t c)
{
	const struct number parts = float_parts(c, -126);
	int64_t terms[GROUPS], sum;
	int exponents[GROUPS], e = parts.exponent;

	if (parts.is_nan || sx->is_nan || sy->is_nan)
		return EMU_NAN_F32;
	if (is_infinite(c))
		return c;
	for (int g = 0; g < GROUPS; g++) {
		exponents[g] = sx->group[g].exponent + sy->group[g].exponent;
		e = exponents[g] > e ? exponents[g] : e;
		terms[g] =
		    (int64_t)dot(x + GROUP * g, y + GROUP * g) *
		    (sx->group[g].significand * sy->group[g].significand);
	}
	sum = shifted(parts.significand, FP4_BITS - 23 + parts.exponent - e);
	for (int g = 0; g < GROUPS; g++)
		sum += shifted(terms[g], FP4_BITS - 8 + exponents[g] - e);
	return result_of(sum, e - FP4_BITS);
}

/*
 * The same where no term has bits below 2^(e - 35): terms are multiples of
 * 2^(exponent - 8), c of 2^(exponent - 23).
 */
static bool is_plain(const struct row_scales *sx, const struct row_scales *sy,
		     uint32_t c)
{
	const int high = sx->high + sy->high, low = sx->low + sy->low;
	const int e = (int)(c >> 23 & 0xFF) - 127;

	if (sx->is_nan || sy->is_nan || high - low > FP4_BITS - 8)
		return false;
	return (c & 0x7FFFFFFF) == 0 ||
	       (e > -127 && e < 128 && high - e <= FP4_BITS - 23 &&
		e - low <= FP4_BITS - 8);
}

static uint32_t plain_sum(const int16_t *x, const int16_t *y,
			  const struct row_scales *sx,
			  const struct row_scales *sy, uint32_t c)
{
	float from;
	double sum;
	uint64_t bits;

	memcpy(&from, &c, sizeof(from));
	sum = from;
	for (int g = 0; g < GROUPS; g++)
		sum += dot(x + GROUP * g, y + GROUP * g) * 0.25 *
		       (sx->value[g] * sy->value[g]);
	if (!(fabs(sum) >= 0x1p-126 && fabs(sum) < 0x1p128))
		return emu_cut_to_f32(sum, 23);
	memcpy(&bits, &sum, sizeof(bits));
	bits &= ~(uint64_t)0 << 29;
	memcpy(&sum, &bits, sizeof(sum));
	from = (float)sum;
	memcpy(&c, &from, sizeof(c));
	return c;
}

void emu_fp4_sums(const struct emu_block_operand *a,
		  const struct emu_block_operand *b, const uint32_t *c,
		  uint32_t *d)
{
	struct row_scales sa, sb[EMU_UMMA_MAX_ROWS];

	for (int n = 0; n < b->rows; n++)
		take_scales(b, n, &sb[n]);
	for (int m = 0; m < a->rows; m++) {
		take_scales(a, m, &sa);
		for (int n = 0; n < b->rows; n++) {
			const int at = m * b->rows + n;
			const uint32_t from = c ? c[at] : 0;

			d[at] = is_plain(&sa, &sb[n], from)
				    ? plain_sum(a->value[m], b->value[n], &sa,
						&sb[n], from)
				    : fp4_sum(a->value[m], b->value[n], &sa,
					      &sb[n], from);
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
