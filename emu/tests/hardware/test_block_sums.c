/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_block_sums.c - compares the software B200's sums with a second implementation
 * of the same rules in floating point, as in MMA-Sim, and with sums whose result is
 * known without the rules.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "hardware/block_sums.h"

#define ROWS 24
#define COLS 40

static struct rng rng;

static int setup(void **state)
{
	rng = rng_new(test_seed());
	return 0;
}

/* ---- the rules again, in floating point ---------------------------------- */

struct parts {
	double significand; /* 1 to 2, or less where subnormal */
	int exponent;
};

static struct parts parts_of(double x, int smallest, int of_zero)
{
	struct parts p;

	if (x == 0)
		return (struct parts){0, of_zero};
	p.significand = 2 * frexp(x, &p.exponent);
	p.exponent--;
	if (p.exponent < smallest) {
		p.significand = ldexp(p.significand, p.exponent - smallest);
		p.exponent = smallest;
	}
	return p;
}

/* A format without infinities: e exponent and f fraction bits. */
static double small_value(uint32_t code, int e, int f)
{
	const int biased = (int)(code >> f) & ((1 << e) - 1);
	const double fraction = ldexp(code & ((1u << f) - 1), -f);
	const int bias = (1 << (e - 1)) - 1;
	const double x =
	    biased ? ldexp(1 + fraction, biased - bias) : ldexp(fraction, 1 - bias);

	return code >> (e + f) & 1 ? -x : x;
}

static double scale_value(uint8_t code, bool is_ue8m0)
{
	if (is_ue8m0)
		return code == 255 ? NAN : ldexp(1, code - 127);
	return (code & 0x7F) == 0x7F ? NAN : fabs(small_value(code, 4, 3));
}

static uint32_t cut(double x)
{
	struct parts p;

	if (fabs(x) >= 0x1p128)
		return bits_of_float(x < 0 ? -INFINITY : INFINITY);
	p = parts_of(x, -126, -126);
	return bits_of_float(
	    (float)ldexp(trunc(ldexp(p.significand, 23)), p.exponent - 23) + 0.0F);
}

static uint32_t fused(const struct parts *terms, int count, int fraction_bits)
{
	double sum = 0;
	int e = terms[0].exponent;

	for (int i = 1; i < count; i++)
		e = terms[i].exponent > e ? terms[i].exponent : e;
	for (int i = 0; i < count; i++)
		sum += trunc(
		    ldexp(terms[i].significand, fraction_bits + terms[i].exponent - e));
	return cut(ldexp(sum, e - fraction_bits));
}

static uint32_t fp4_reference(const uint8_t *x, const uint8_t *y, const uint8_t *sx,
			      const uint8_t *sy, int scales, bool is_ue8m0, uint32_t c)
{
	struct parts terms[5] = {parts_of(float_of_bits(c), -126, -126)};
	const int smallest = is_ue8m0 ? -127 : -6;
	bool all_idle = true;

	if (isnan(float_of_bits(c)))
		return EMU_NAN_F32;
	for (int g = 0; g < 4; g++) {
		const double a = scale_value(sx[g * scales / 4], is_ue8m0);
		const double b = scale_value(sy[g * scales / 4], is_ue8m0);
		const struct parts pa = parts_of(a, smallest, -126);
		const struct parts pb = parts_of(b, smallest, -126);
		double sum = 0;
		bool is_used = false;

		if (isnan(a) || isnan(b))
			return EMU_NAN_F32;
		for (int k = 16 * g; k < 16 * g + 16; k++) {
			const double product =
			    small_value(x[k], 2, 1) * small_value(y[k], 2, 1);

			sum += product;
			is_used |= product * a * b != 0;
		}
		terms[1 + g].significand = sum * pa.significand * pb.significand;
		terms[1 + g].exponent = is_used ? pa.exponent + pb.exponent : -126;
		all_idle &= !is_used;
	}
	if (isinf(float_of_bits(c)) || all_idle)
		return c;
	return fused(terms, 5, 35);
}

static const int8_t layouts[][2] = {
    [EMU_UMMA_TYPE_E4M3] = {4, 3}, [EMU_UMMA_TYPE_E5M2] = {5, 2},
    [EMU_UMMA_TYPE_E2M3] = {2, 3}, [EMU_UMMA_TYPE_E3M2] = {3, 2},
    [EMU_UMMA_TYPE_E2M1] = {2, 1},
};

static double element(enum emu_umma_type type, uint32_t code)
{
	if (type == EMU_UMMA_TYPE_E4M3 && (code & 0x7F) == 0x7F)
		return NAN;
	if (type == EMU_UMMA_TYPE_E5M2 && (code & 0x7C) == 0x7C)
		return code & 3 ? NAN : code & 0x80 ? -INFINITY : INFINITY;
	return small_value(code, layouts[type][0], layouts[type][1]);
}

static uint32_t mx_reference(enum emu_umma_type ta, enum emu_umma_type tb,
			     const uint8_t *x, const uint8_t *y, uint8_t sx, uint8_t sy,
			     uint32_t c)
{
	const double scale = scale_value(sx, true) * scale_value(sy, true);
	struct parts terms[33] = {parts_of(float_of_bits(c), -126, EMU_ZERO_EXPONENT)};
	double plain = scale + (double)float_of_bits(c);

	for (int k = 0; k < 32; k++) {
		const double a = element(ta, x[k]), b = element(tb, y[k]);
		const struct parts pa = parts_of(a, 2 - (1 << (layouts[ta][0] - 1)), 0);
		const struct parts pb = parts_of(b, 2 - (1 << (layouts[tb][0] - 1)), 0);

		plain += a * b * scale;
		terms[1 + k].significand = pa.significand * pb.significand;
		terms[1 + k].exponent = a == 0 || b == 0 ? EMU_ZERO_EXPONENT
							 : pa.exponent + pb.exponent +
							       (int)lrint(log2(scale));
	}
	if (isnan(plain))
		return EMU_NAN_F32;
	if (isinf(plain))
		return bits_of_float(plain < 0 ? -INFINITY : INFINITY);
	return fused(terms, 33, 25);
}

/* ---- random operands ----------------------------------------------------- */

struct problem {
	uint8_t a[ROWS][64], b[COLS][64];
	uint8_t sa[ROWS][4], sb[COLS][4];
	uint32_t c[ROWS * COLS], d[ROWS * COLS];
	struct emu_block_operand x, y;
};

/* TINY: sums near the least numbers of fp32, where scales are ue8m0. */
enum data { ANY, NARROW, SPARSE, TINY, DATA_KINDS };

static uint8_t scale_code(enum data data, bool is_ue8m0)
{
	if (data == ANY)
		return (uint8_t)rng_below(&rng, 256);
	if (is_ue8m0 && data == TINY)
		return (uint8_t)(24 + rng_below(&rng, 44));
	if (is_ue8m0)
		return (uint8_t)(120 + rng_below(&rng, data == NARROW ? 3 : 14));
	return data == SPARSE && rng_below(&rng, 4) == 0
		   ? 0
		   : (uint8_t)(8 * 6 + rng_below(&rng, data == NARROW ? 16 : 40));
}

static uint32_t c_code(enum data data)
{
	if (data == ANY)
		return (uint32_t)rng_next(&rng);
	if (data == TINY)
		return rng_below(&rng, 2) ? (uint32_t)rng_next(&rng) & 0x80FFFFFF : 0;
	if (data == SPARSE && rng_below(&rng, 2))
		return 0;
	return bits_of_float(
	    ldexpf((float)(int32_t)rng_next(&rng), (int)rng_below(&rng, 24) - 40));
}

static void fill(struct problem *p, enum emu_umma_kind kind, enum data data, int scales,
		 bool is_ue8m0)
{
	const uint32_t codes = kind == EMU_UMMA_MXF4NVF4 ? 16 : 256;

	for (int k = 0; k < 64; k++) {
		for (int i = 0; i < ROWS; i++)
			p->a[i][k] = (uint8_t)rng_below(&rng, codes);
		for (int i = 0; i < COLS; i++)
			p->b[i][k] = data == SPARSE && rng_below(&rng, 8)
					 ? 0
					 : (uint8_t)rng_below(&rng, codes);
	}
	for (int s = 0; s < 4; s++) {
		for (int i = 0; i < ROWS; i++)
			p->sa[i][s] = scale_code(data, is_ue8m0);
		for (int i = 0; i < COLS; i++)
			p->sb[i][s] = scale_code(data, is_ue8m0);
	}
	for (int i = 0; i < ROWS * COLS; i++)
		p->c[i] = c_code(data);
	p->x.rows = ROWS;
	p->y.rows = COLS;
	p->x.scales = p->y.scales = scales;
	p->x.scale_is_ue8m0 = p->y.scale_is_ue8m0 = is_ue8m0;
}

static void set(struct problem *p, enum emu_umma_kind kind, bool negate)
{
	for (int i = 0; i < ROWS; i++)
		emu_block_operand_set(&p->x, i, kind, p->a[i], negate);
	for (int i = 0; i < ROWS; i++)
		emu_block_operand_scale(&p->x, i, p->sa[i]);
	for (int i = 0; i < COLS; i++)
		emu_block_operand_set(&p->y, i, kind, p->b[i], false);
	for (int i = 0; i < COLS; i++)
		emu_block_operand_scale(&p->y, i, p->sb[i]);
}

static void check(const struct problem *p, int at, uint32_t want)
{
	if (p->d[at] != want)
		fail_msg("row %d, column %d: %08x, not %08x (c %08x)", at / COLS,
			 at % COLS, p->d[at], want, p->c[at]);
}

static void test_fp4(void **state)
{
	struct problem *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	for (int round = 0; round < 72; round++) {
		const bool is_ue8m0 = round % 3 == 1;
		const int scales = is_ue8m0 && round % 2 ? 2 : 4;

		fill(p, EMU_UMMA_MXF4NVF4, (enum data)(round % DATA_KINDS), scales,
		     is_ue8m0);
		set(p, EMU_UMMA_MXF4NVF4, false);
		emu_fp4_sums(&p->x, &p->y, p->c, p->d);
		for (int i = 0; i < ROWS * COLS; i++)
			check(p, i,
			      fp4_reference(p->a[i / COLS], p->b[i % COLS],
					    p->sa[i / COLS], p->sb[i % COLS], scales,
					    is_ue8m0, p->c[i]));
	}
	free(p);
}

static void test_mx(void **state)
{
	static const enum emu_umma_type types[] = {
	    EMU_UMMA_TYPE_E4M3, EMU_UMMA_TYPE_E5M2, EMU_UMMA_TYPE_E2M3,
	    EMU_UMMA_TYPE_E3M2, EMU_UMMA_TYPE_E2M1};
	static const uint8_t masks[] = {0xFF, 0xFF, 0x3F, 0x3F, 0xF};
	struct problem *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	for (int round = 0; round < 100; round++) {
		const int a = round % 5, b = round / 5 % 5;

		fill(p, EMU_UMMA_MXF8F6F4, (enum data)(round % DATA_KINDS), 1, true);
		for (int i = 0; i < ROWS * 64; i++)
			p->a[i / 64][i % 64] &= masks[a];
		for (int i = 0; i < COLS * 64; i++)
			p->b[i / 64][i % 64] &= masks[b];
		p->x.type = types[a];
		p->y.type = types[b];
		set(p, EMU_UMMA_MXF8F6F4, false);
		emu_mx_sums(&p->x, &p->y, false, p->c, p->d);
		for (int i = 0; i < ROWS * COLS; i++)
			check(p, i,
			      mx_reference(types[a], types[b], p->a[i / COLS],
					   p->b[i % COLS], p->sa[i / COLS][0],
					   p->sb[i % COLS][0], p->c[i]));
	}
	free(p);
}

/* ---- sums that are known ------------------------------------------------- */

static uint32_t one_sum(uint8_t a, uint8_t b, uint8_t sa, uint8_t sb, uint32_t c,
			bool negate)
{
	static struct problem p;

	fill(&p, EMU_UMMA_MXF4NVF4, NARROW, 4, false);
	memset(p.a[0], a, 64);
	memset(p.b[0], b, 64);
	memset(p.sa[0], sa, 4);
	memset(p.sb[0], sb, 4);
	p.c[0] = c;
	set(&p, EMU_UMMA_MXF4NVF4, negate);
	emu_fp4_sums(&p.x, &p.y, p.c, p.d);
	return p.d[0];
}

/* Large scales of 16 products that are all zero truncate nothing. */
static void test_idle_groups(void **state)
{
	static struct problem p;

	for (int is_of_b = 0; is_of_b < 2; is_of_b++) {
		fill(&p, EMU_UMMA_MXF4NVF4, NARROW, 4, false);
		memset(p.a[0], 1, 64);
		memset(p.b[0], 1, 64);
		memset(is_of_b ? p.b[0] : p.a[0], 0, 16);
		memset(p.sa[0], 1, 4);
		memset(p.sb[0], 1, 4);
		p.sa[0][0] = p.sb[0][0] = 0x7E;
		p.c[0] = bits_of_float(1 + 0x1p-23F);
		set(&p, EMU_UMMA_MXF4NVF4, false);
		emu_fp4_sums(&p.x, &p.y, p.c, p.d);
		assert_int_equal(p.d[0], bits_of_float(1 + 3 * 0x1p-16F + 0x1p-23F));
		/* With one product other than zero, its scales truncate c. */
		(is_of_b ? p.b[0] : p.a[0])[5] = 8 | 1;
		(is_of_b ? p.b[0] : p.a[0])[6] = 1;
		set(&p, EMU_UMMA_MXF4NVF4, false);
		emu_fp4_sums(&p.x, &p.y, p.c, p.d);
		assert_int_equal(p.d[0], bits_of_float(1 + 3 * 0x1p-16F));
	}
}

static void test_known(void **state)
{
	/* 64 times 6 x 6, scales 448 x 448. */
	assert_int_equal(one_sum(7, 7, 0x7E, 0x7E, 0, false),
			 bits_of_float(64 * 36.0F * 448 * 448));
	assert_int_equal(one_sum(7, 15, 0x38, 0x38, 0, false),
			 bits_of_float(-64 * 36.0F));
	assert_int_equal(one_sum(7, 15, 0x38, 0x38, 0, true),
			 bits_of_float(64 * 36.0F));
	/* The sign of a scale is ignored. */
	assert_int_equal(one_sum(1, 1, 0xB8, 0x38, bits_of_float(1), false),
			 bits_of_float(64 * 0.25F + 1));
	/* The smallest scale: 2^-9; exact. */
	assert_int_equal(one_sum(1, 1, 0x01, 0x01, 0, false),
			 bits_of_float(ldexpf(16, -18)));
	assert_int_equal(one_sum(7, 7, 0x7F, 0x38, 0, false), EMU_NAN_F32);
	assert_int_equal(one_sum(0, 0, 0x38, 0x38, 0x7F800001, false), EMU_NAN_F32);
	assert_int_equal(one_sum(7, 7, 0x38, 0x38, 0xFF800000, false), 0xFF800000);
	/* Nothing is added: c stays, a zero with its sign. */
	assert_int_equal(one_sum(0, 0, 0, 0, 0x80000000, false), 0x80000000);
	assert_int_equal(one_sum(7, 7, 0, 0x7E, 0x00000001, false), 1);
	/* c of 2^30 truncates bits below 2^-5, and the result those below 2^7. */
	assert_int_equal(one_sum(1, 1, 0x01, 0x01, bits_of_float(0x1p30F), false),
			 bits_of_float(0x1p30F));
	assert_int_equal(one_sum(7, 15, 0x28, 0x30, bits_of_float(0x1p30F), false),
			 bits_of_float(0x1p30F - 64 * 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_fp4),
	    cmocka_unit_test(test_idle_groups),
	    cmocka_unit_test(test_mx),
	    cmocka_unit_test(test_known),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
