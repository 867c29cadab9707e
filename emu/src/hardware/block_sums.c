/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_sums.c - see block_sums.h.  Computes the sums of many columns at once, as
 * exact integers in double, in loops that compilers vectorise.
 */
#include "hardware/block_sums.h"

#include <math.h>
#include <string.h>

#include "hardware/power.h"

/* Terms are truncated to multiples of 2^(e - BITS); e is the largest exponent. */
#define FP4_BITS 35
#define MX_BITS	 25
#define GROUP	 16
#define GROUPS	 (EMU_UMMA_MAX_K / GROUP)
#define MX_K	 32

/* ---- significands and exponents ------------------------------------------ */

/* significand * 2^(exponent - 3): the fraction has three bits */
struct number {
	int32_t significand;
	int exponent;
	bool is_nan;
};

/* Decodes a scale. */
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

/* ---- operands ------------------------------------------------------------ */

void emu_block_operand_scale(struct emu_block_operand *o, int row,
			     const uint8_t *scales)
{
	memcpy(o->scale[row], scales, (size_t)o->scales);
}

void emu_block_operand_set(struct emu_block_operand *o, int row,
			   enum emu_umma_kind kind, const uint8_t *codes, bool negate)
{
	static const int8_t twice[16] = {0, 1,	2,  3,	4,  6,	8,  12,
					 0, -1, -2, -3, -4, -6, -8, -12};
	static const uint8_t signs[] = {0, 0, 0x80, 0x80, 0x20, 0x20, 8};

	if (kind == EMU_UMMA_MXF4NVF4) {
		for (int g = 0; g < GROUPS; g++) {
			uint32_t used = 0;

			for (int k = 0; k < GROUP; k++)
				used |= (uint32_t)((codes[GROUP * g + k] & 7) != 0)
					<< k;
			o->used[row][g] = (uint16_t)used;
		}
		for (int k = 0; k < EMU_UMMA_MAX_K; k++)
			o->value[row][k] = negate ? (int16_t)-twice[codes[k] & 15]
						  : twice[codes[k] & 15];
		return;
	}
	for (int k = 0; k < MX_K; k++)
		o->value[row][k] = codes[k] ^ (negate ? signs[o->type] : 0);
}

/* ---- four bits ----------------------------------------------------------- */

#define STRIP 32 /* columns of D that are summed together */

/*
 * Scales of one row ([group][0]) or of the columns of a strip ([group][n]), as a
 * significand times a power of two.  The value of a NaN is not used.
 */
struct fp4_scales {
	double value[GROUPS][STRIP];
	int32_t exponent[GROUPS][STRIP];
	uint32_t is_nan[STRIP]; /* 0 or 1 */
	/* One bit for each element that is not zero; no bits if the scale is zero. */
	uint32_t used[GROUPS][STRIP];
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
		const struct number x =
		    scale_of(o->scale[row][g * o->scales / GROUPS], o->scale_is_ue8m0);

		to->exponent[g][at] = x.exponent;
		to->value[g][at] = x.significand * emu_power_of_2(x.exponent - 3);
		to->is_nan[at] |= x.is_nan;
		to->used[g][at] = x.significand ? o->used[row][g] : 0;
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

/* The sums of 16 products, times 4 (both elements are doubled): at most 16 * 144. */
EMU_FAST_PART void fp4_dots(const int16_t *x, const struct fp4_strip *y,
			    int16_t dots[GROUPS][STRIP])
{
	memset(dots, 0, sizeof(*dots) * GROUPS);
	for (int k = 0; k < EMU_UMMA_MAX_K; k++)
		for (int n = 0; n < STRIP; n++)
			dots[k / GROUP][n] =
			    (int16_t)(dots[k / GROUP][n] + x[k] * y->value[k][n]);
}

/*
 * The largest exponent of c and of the terms that have a product other than zero.
 * A c of zero counts as -126.
 */
EMU_FAST_PART void fp4_exponents(const struct fp4_scales *x, const struct fp4_scales *y,
				 const uint32_t *c, int32_t *e)
{
	for (int n = 0; n < STRIP; n++) {
		const int32_t biased = (int32_t)(c[n] >> 23 & 0xFF);

		e[n] = (biased > 1 ? biased : 1) - 127;
	}
	for (int g = 0; g < GROUPS; g++)
		for (int n = 0; n < STRIP; n++) {
			const int32_t of_term = x->exponent[g][0] + y->exponent[g][n];
			const bool is_used = x->used[g][0] & y->used[g][n];

			e[n] = is_used && of_term > e[n] ? of_term : e[n];
		}
}

/*
 * Truncates exact results to fp32: normal results by clearing bits, subnormal ones to
 * multiples of 2^-149.  A result that is truncated to zero is +0.
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

/*
 * One row of D.  Terms and c are truncated to multiples of 2^(e - 35), and double
 * represents their sum exactly.
 */
EMU_FAST_PART void fp4_row(const int16_t *values, const struct fp4_scales *x,
			   const struct fp4_strip *y, const uint32_t *c, uint32_t *d)
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
			sum[n] +=
			    trunc(dots[g][n] * 0.25 *
				  (x->value[g][0] * y->scales.value[g][n]) * up[n]);
	for (int n = 0; n < STRIP; n++)
		bits[n] = (uint64_t)(1023 - FP4_BITS + e[n]) << 52;
	memcpy(up, bits, sizeof(up));
	for (int n = 0; n < STRIP; n++)
		sum[n] *= up[n];
	cut_strip(sum, d);
	for (int n = 0; n < STRIP; n++) {
		const uint32_t magnitude = c[n] & 0x7FFFFFFF;
		uint32_t used = 0;

		for (int g = 0; g < GROUPS; g++)
			used |= x->used[g][0] & y->scales.used[g][n];
		d[n] = magnitude == 0x7F800000 || !used ? c[n] : d[n];
		d[n] = magnitude > 0x7F800000 || x->is_nan[0] || y->scales.is_nan[n]
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

/* The fraction has three bits in all formats; kind: FINITE, INFINITE, NOT_A_NUMBER. */
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

/* The elements of a row, or of columns in strips: [k][0] and [k][n]. */
struct mx_strip {
	float value[MX_K][STRIP]; /* 0: also infinity and NaN */
	int16_t exponent[MX_K][STRIP];
	int32_t scale[STRIP]; /* its exponent */
	uint32_t is_special[STRIP];
	uint32_t is_nan[STRIP]; /* the scale */
};

/* Below every exponent that a product can have. */
#define NO_EXPONENT (-8192)

struct mx_format {
	float value[256];
	int16_t exponent[256];
	uint8_t kind[256];
};

static void make_format(enum emu_umma_type type, struct mx_format *f)
{
	for (uint32_t code = 0; code < 256; code++) {
		const struct element x = element_of(type, code);
		const bool is_number = x.kind == FINITE && x.significand;

		f->kind[code] = (uint8_t)x.kind;
		f->exponent[code] = is_number ? x.exponent : NO_EXPONENT;
		f->value[code] =
		    is_number ? (float)(x.significand * emu_power_of_2(x.exponent - 3))
			      : 0;
	}
}

static void take_mx(const struct emu_block_operand *o, const struct mx_format *f,
		    int row, int at, struct mx_strip *to)
{
	const struct number scale = scale_of(o->scale[row][0], o->scale_is_ue8m0);

	to->scale[at] = scale.exponent;
	to->is_nan[at] = scale.is_nan;
	to->is_special[at] = 0;
	for (int k = 0; k < MX_K; k++) {
		const int code = o->value[row][k] & 0xFF;

		to->value[k][at] = f->value[code];
		to->exponent[k][at] = f->exponent[code];
		to->is_special[at] |= f->kind[code];
	}
}

/* The largest exponent of c and the terms of each column.  A c of zero counts as
 * EMU_ZERO_EXPONENT. */
EMU_FAST_PART void mx_exponents(const struct mx_strip *x, const struct mx_strip *y,
				const float *c, int32_t smallest, int32_t *e)
{
	uint32_t bits[STRIP];
	int16_t top[STRIP];

	for (int n = 0; n < STRIP; n++)
		top[n] = 2 * NO_EXPONENT;
	for (int k = 0; k < MX_K; k++)
		for (int n = 0; n < STRIP; n++) {
			const int16_t of_term =
			    (int16_t)(x->exponent[k][0] + y->exponent[k][n]);

			top[n] = of_term > top[n] ? of_term : top[n];
		}
	memcpy(bits, c, sizeof(bits));
	for (int n = 0; n < STRIP; n++) {
		const int32_t biased = (int32_t)(bits[n] >> 23 & 0xFF) - 127;
		const int32_t of_c = biased > smallest ? biased : smallest;
		const int32_t of_terms = top[n] + x->scale[0] + y->scale[n];

		e[n] = bits[n] & 0x7FFFFFFF ? of_c : EMU_ZERO_EXPONENT;
		e[n] = top[n] > NO_EXPONENT / 2 && of_terms > e[n] ? of_terms : e[n];
	}
}

/*
 * The products as multiples of 2^(e - 25), each truncated.  They are below 2^27,
 * so that the sum of eight fits in 32 bits.  A factor outside the range of a float
 * belongs to products that are zero or truncated to zero.
 */
EMU_FAST_PART void mx_products(const struct mx_strip *x, const struct mx_strip *y,
			       const int32_t *e, double *sum)
{
	uint32_t bits[STRIP];
	float up[STRIP];

	for (int n = 0; n < STRIP; n++) {
		const int32_t by = MX_BITS - e[n] + x->scale[0] + y->scale[n];

		bits[n] = (uint32_t)((by > 127	  ? 127
				      : by < -126 ? -126
						  : by) +
				     127)
			  << 23;
	}
	memcpy(up, bits, sizeof(up));
	for (int first = 0; first < MX_K; first += 8) {
		int32_t part[STRIP] = {0};

		for (int k = first; k < first + 8; k++)
			for (int n = 0; n < STRIP; n++)
				part[n] +=
				    (int32_t)(x->value[k][0] * y->value[k][n] * up[n]);
		for (int n = 0; n < STRIP; n++)
			sum[n] += part[n];
	}
}

/* Exact sums of c and the products, each truncated to a multiple of 2^(e - 25). */
EMU_FAST_PART void mx_row(const struct mx_strip *x, const struct mx_strip *y,
			  const float *c, int32_t smallest, double *sum)
{
	int32_t e[STRIP];
	uint64_t bits[STRIP];
	double factor[STRIP];

	mx_exponents(x, y, c, smallest, e);
	for (int n = 0; n < STRIP; n++)
		bits[n] = (uint64_t)(1023 + MX_BITS - e[n]) << 52;
	memcpy(factor, bits, sizeof(factor));
	for (int n = 0; n < STRIP; n++)
		sum[n] = 0.0 + trunc(c[n] * factor[n]);
	mx_products(x, y, e, sum);
	for (int n = 0; n < STRIP; n++)
		bits[n] = (uint64_t)(1023 - MX_BITS + e[n]) << 52;
	memcpy(factor, bits, sizeof(factor));
	for (int n = 0; n < STRIP; n++)
		sum[n] *= factor[n];
}

/* ---- infinities and NaN -------------------------------------------------- */

/* The sum of terms with infinities or NaN among them. */
static uint32_t special_sum(const struct emu_block_operand *a, int m,
			    const struct emu_block_operand *b, int n, float c)
{
	bool plus = isinf(c) && c > 0, minus = isinf(c) && c < 0;
	bool is_nan = isnan(c);

	for (int k = 0; k < MX_K; k++) {
		const struct element x = element_of(a->type, (uint32_t)a->value[m][k]);
		const struct element y = element_of(b->type, (uint32_t)b->value[n][k]);
		const bool finite = !x.kind && !y.kind;
		const int sign = x.significand * y.significand;

		if (x.kind == NOT_A_NUMBER || y.kind == NOT_A_NUMBER ||
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

/* The fp16 bits of a special sum, which is given as fp32 bits. */
static uint32_t special_half(uint32_t sum)
{
	if (sum == EMU_NAN_F32)
		return EMU_NAN_F16;
	return sum >> 31 ? 0xFC00 : 0x7C00;
}

/* ---- results ------------------------------------------------------------- */

/* Converts c to float, exactly.  Elements from count on become zero. */
static void take_c(const uint32_t *c, size_t count, bool is_f16, float *to)
{
	for (size_t n = 0; n < STRIP; n++) {
		const uint32_t bits = c && n < count ? c[n] : 0;

		if (is_f16)
			to[n] = (float)emu_widen(&emu_format_f16, bits & 0xFFFF);
		else
			memcpy(&to[n], &bits, sizeof(bits));
	}
}

/* Replaces the sums that have a NaN scale, or a term that is infinite or NaN. */
static void set_specials(const struct emu_block_operand *a, int m,
			 const struct emu_block_operand *b, int first,
			 const struct mx_strip *x, const struct mx_strip *y,
			 const float *c, bool is_f16, size_t count, uint32_t *d)
{
	for (size_t n = 0; n < count; n++) {
		if (x->is_nan[0] || y->is_nan[n]) {
			d[n] = is_f16 ? EMU_NAN_F16 : EMU_NAN_F32;
			continue;
		}
		if (!x->is_special[0] && !y->is_special[n] && isfinite(c[n]))
			continue;
		d[n] = special_sum(a, m, b, first + (int)n, c[n]);
		d[n] = is_f16 ? special_half(d[n]) : d[n];
	}
}

/* Multiplies rows of A by one strip of columns of B. */
EMU_FAST static void mx_strip_sums(const struct emu_block_operand *a,
				   const struct mx_format *format,
				   const struct emu_block_operand *b, int first,
				   size_t count, const struct mx_strip *y,
				   bool d_is_f16, const uint32_t *c, uint32_t *d)
{
	for (int m = 0; m < a->rows; m++) {
		const int at = m * b->rows + first;
		struct mx_strip x;
		float from[STRIP];
		double sum[STRIP];
		uint32_t to[STRIP];

		take_mx(a, format, m, 0, &x);
		take_c(c ? c + at : NULL, count, d_is_f16, from);
		mx_row(&x, y, from, d_is_f16 ? -14 : -126, sum);
		if (!d_is_f16)
			cut_strip(sum, to);
		for (size_t n = 0; d_is_f16 && n < count; n++)
			to[n] = emu_round_to_f16(sum[n]);
		set_specials(a, m, b, first, &x, y, from, d_is_f16, count, to);
		memcpy(d + at, to, sizeof(*d) * count);
	}
}

void emu_mx_sums(const struct emu_block_operand *a, const struct emu_block_operand *b,
		 bool d_is_f16, const uint32_t *c, uint32_t *d)
{
	struct mx_format of_a, of_b;
	struct mx_strip y;

	make_format(a->type, &of_a);
	make_format(b->type, &of_b);
	for (int first = 0; first < b->rows; first += STRIP) {
		const int left = b->rows - first;
		const int count = left < STRIP ? left : STRIP;

		memset(&y, 0, sizeof(y));
		for (int n = 0; n < count; n++)
			take_mx(b, &of_b, first + n, n, &y);
		mx_strip_sums(a, &of_a, b, first, (size_t)count, &y, d_is_f16, c, d);
	}
}
