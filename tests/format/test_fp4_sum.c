/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fp4_sum.c - compares the bound of NIB_ARITHMETIC_FP4_TENSOR with a literal model
 * of the tensor core's rule (docs/numerics.md, section 5) in both its readings.  Random
 * data is within the bound, chosen data is close to it, and slightly smaller bounds
 * would be exceeded.
 */
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sums.h"
#include "common/unit.h"
#include "format/bound.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/exact.h"
#include "format/half.h"
#include "format/view.h"

#define STEP   64
#define BLOCKS (STEP / NIB_NVFP4_BLOCK)
/* Codes in units of 2^-1, scales in units of 2^-9, both sides. */
#define UNIT  (-20)
#define NAN_D 0x7FFFFFFFu
#define FP4   NIB_ARITHMETIC_FP4_TENSOR

static struct rng rng;

/* ---- the model ----------------------------------------------------------- */

/*
 * What a block counts whose 16 products are all zero: nothing, or the exponent
 * of its scales, which then may cut c even where there is nothing to add.  The
 * second reading also cuts blocks as a whole in both cases.
 */
enum reading { IDLE_IS_NOTHING, IDLE_COUNTS };

/* 64 codes and 4 scales of both sides, fp32 bits of the accumulator. */
struct step {
	uint8_t a[STEP], b[STEP], scale_a[BLOCKS], scale_b[BLOCKS];
	uint32_t c;
};

/* Exponents as they are stored; a subnormal's is that of the least normal. */
static int code_exponent(int code)
{
	return code >> 1 & 3 ? (code >> 1 & 3) - 1 : 0;
}

static int scale_exponent(uint8_t byte)
{
	return byte >> 3 & 15 ? (byte >> 3 & 15) - 7 : -6;
}

static int float_exponent(uint32_t bits)
{
	return bits >> 23 & 255 ? (int)(bits >> 23 & 255) - 127 : -126;
}

/* x * 2^from in units of 2^to, toward zero. */
static int64_t cut(int64_t x, int from, int to)
{
	const int64_t size = x < 0 ? -x : x;
	const int by = to - from;
	const int64_t units = by >= 63 || size == 0 ? 0
			      : by >= 0		    ? size >> by
						    : size * (INT64_C(1) << -by);

	return x < 0 ? -units : units;
}

static int64_t product(const struct step *s, int i)
{
	const int g = i / NIB_NVFP4_BLOCK;

	return (int64_t)nib_e2m1_twice[s->a[i]] * nib_e2m1_twice[s->b[i]] *
	       nib_e4m3_integer(s->scale_a[g]) * nib_e4m3_integer(s->scale_b[g]);
}

static int max(int a, int b)
{
	return a > b ? a : b;
}

/* sum * 2^unit toward zero to fp32, normal or subnormal. */
static uint32_t float_of(int64_t sum, int unit)
{
	const uint64_t size = sum < 0 ? -(uint64_t)sum : (uint64_t)sum;
	const uint32_t sign = sum < 0 ? 0x80000000u : 0;
	int exponent;
	uint32_t fraction;

	if (size == 0)
		return 0;
	exponent = max(63 - __builtin_clzll(size) + unit, -126);
	assert_true(exponent < 128);
	fraction = (uint32_t)cut((int64_t)size, unit, exponent - 23);
	if (fraction < 1u << 23)
		return sign | fraction;
	return sign | (uint32_t)(exponent + 127) << 23 | (fraction & 0x7FFFFF);
}

/* The exponents that decide what is cut; INT_MIN: there is none. */
struct exponents {
	int product; /* the largest of a product that is not zero */
	int scales;  /* of the scales of a block that counts */
};

static struct exponents exponents_of(const struct step *s, enum reading reading)
{
	struct exponents e = {INT_MIN, INT_MIN};

	for (int i = 0; i < STEP; i++) {
		const int g = i / NIB_NVFP4_BLOCK;
		const int scales =
		    scale_exponent(s->scale_a[g]) + scale_exponent(s->scale_b[g]);

		if (product(s, i) != 0)
			e.product = max(e.product, scales + code_exponent(s->a[i]) +
						       code_exponent(s->b[i]));
		if (product(s, i) != 0 ||
		    (reading == IDLE_COUNTS && s->scale_a[g] && s->scale_b[g]))
			e.scales = max(e.scales, scales);
	}
	return e;
}

/* One MMA of k = 64. */
static uint32_t add_step(const struct step *s, enum reading reading)
{
	const struct exponents e = exponents_of(s, reading);
	const int exponent = float_exponent(s->c);
	const bool is_first_case = (s->c & 0x7FFFFFFF) != 0 && exponent >= e.product;
	const int together =
	    is_first_case || reading == IDLE_COUNTS ? NIB_NVFP4_BLOCK : 4;
	int64_t sum, part = 0, c = s->c & 0x7FFFFF;
	int unit;

	for (int g = 0; g < BLOCKS; g++)
		if (nib_e4m3_is_nan(s->scale_a[g]) || nib_e4m3_is_nan(s->scale_b[g]))
			return NAN_D;
	if ((s->c & 0x7FFFFFFF) == 0x7F800000 ||
	    (e.product == INT_MIN && reading == IDLE_IS_NOTHING))
		return s->c;
	if (reading == IDLE_COUNTS)
		unit = max(exponent, e.scales) - 35;
	else if (is_first_case)
		unit = exponent - 35;
	else
		unit = max(max(e.product, exponent) - 39, e.scales - 35);
	c |= s->c >> 23 & 255 ? 1 << 23 : 0;
	sum = cut(s->c >> 31 ? -c : c, exponent - 23, unit);
	for (int i = 0; i < STEP; i++) {
		part += product(s, i);
		if (i % together != together - 1)
			continue;
		sum += cut(part, UNIT, unit);
		part = 0;
	}
	return float_of(sum, unit);
}

/* How a backend cuts k up: parts are summed separately, then added in fp32. */
struct order {
	int parts;
	enum reading reading;
};

/* Steps begin..end-1; codes and scales after k are zero. */
static float part_of_sum(const struct nib_fp4 *a, int64_t m, const struct nib_fp4 *b,
			 int64_t n, int64_t begin, int64_t end, enum reading reading)
{
	struct step s = {.c = 0};

	for (int64_t first = begin * STEP; first < end * STEP; first += STEP) {
		for (int i = 0; i < STEP; i++) {
			const int64_t at = first + i;
			const bool is_in = at < a->k;

			s.a[i] = is_in ? (uint8_t)sums_code(a, m, at) : 0;
			s.b[i] = is_in ? (uint8_t)sums_code(b, n, at) : 0;
		}
		for (int g = 0; g < BLOCKS; g++) {
			const int64_t at = first / NIB_NVFP4_BLOCK + g;
			const bool is_in = at < a->k / NIB_NVFP4_BLOCK;

			s.scale_a[g] = is_in ? *nib_fp4_scale(a, 0, m, at) : 0;
			s.scale_b[g] = is_in ? *nib_fp4_scale(b, 0, n, at) : 0;
		}
		s.c = add_step(&s, reading);
	}
	return nib_fp32_from_bits(s.c);
}

static float dot(const struct nib_fp4 *a, int64_t m, const struct nib_fp4 *b, int64_t n,
		 const void *order_)
{
	const struct order *order = order_;
	const int64_t steps = (a->k + STEP - 1) / STEP;
	float sum = 0;

	for (int i = 0; i < order->parts; i++) {
		const float part =
		    part_of_sum(a, m, b, n, steps * i / order->parts,
				steps * (i + 1) / order->parts, order->reading);

		sum = i ? sum + part : part;
	}
	return sum;
}

static double worst_of(double worst, enum nib_op op, const struct sums *f,
		       struct order order)
{
	return sums_worst(worst, op, &f->problem, FP4, dot, &order);
}

/* ---- values of a B200 ---------------------------------------------------- */

static void read_hex(uint8_t *to, const char *text, int digits)
{
	const int n = (int)strlen(text) / digits;

	for (int i = 0; i < n; i++) {
		char digit[3] = {0};

		memcpy(digit, text + i * digits, (size_t)digits);
		to[i] = (uint8_t)strtoul(digit, NULL, 16);
	}
}

static void model_gives_values_of_a_b200(void **state)
{
	/* random.Random(700) of Python: codes, accumulator, scales. */
	static const struct {
		const char *a, *b, *scale_a, *scale_b;
		uint32_t c, d;
	} golden[] = {
	    {"56e6a0257a959aac7221bc1d1f25d3c1dd69bb19ff54c54dd0ec01d866402c79",
	     "cc65fb01dd3122ca5ebdf507cd408b2d48d0bf9e74d585f8c693b2e47c74ebe9",
	     "0c047447", "17502461", 0xB23210EB, 0x4429730B},
	    {"27f0bd2b4d3f41a211cf03c8ad764f05ed5a3aa53e4fad3903c2604fdf6b9e1a",
	     "ca2c1d615cf7d2b03a55d133f4a689f45714941325bdbfe804a29ddfe565ebc2",
	     "660e730d", "16480316", 0x89769172, 0xC30545D3},
	};

	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		for (int reading = 0; reading < 2; reading++) {
			struct step s = {.c = golden[i].c};

			read_hex(s.a, golden[i].a, 1);
			read_hex(s.b, golden[i].b, 1);
			read_hex(s.scale_a, golden[i].scale_a, 2);
			read_hex(s.scale_b, golden[i].scale_b, 2);
			assert_true(add_step(&s, (enum reading)reading) == golden[i].d);
			s.scale_b[3] = NIB_E4M3_NAN;
			assert_true(add_step(&s, (enum reading)reading) == NAN_D);
		}
	}
}

/* Every product is x * y * scale * scale. */
static struct step even(int x, int y, uint8_t scale)
{
	struct step s;

	memset(s.a, x, sizeof(s.a));
	memset(s.b, y, sizeof(s.b));
	memset(s.scale_a, scale, sizeof(s.scale_a));
	memset(s.scale_b, scale, sizeof(s.scale_b));
	s.c = 0;
	return s;
}

static uint32_t sum_of(struct step s, float c, enum reading reading)
{
	s.c = nib_fp32_bits(c);
	return add_step(&s, reading);
}

static void model_is_the_rule(void **state)
{
	struct step s = even(5, 3, 0x38);

	for (int i = 0; i < 2; i++) {
		const enum reading reading = (enum reading)i;

		s = even(5, 3, 0x38); /* 3, 1.5, 1 */
		assert_true(sum_of(s, 0, reading) == nib_fp32_bits(288));
		s = even(5, 3, 0x50); /* 8 */
		assert_true(sum_of(s, 0, reading) == nib_fp32_bits(18432));
		s = even(0, 3, 0x38);
		assert_true(sum_of(s, -0.0f, reading) ==
			    (reading == IDLE_COUNTS ? 0 : 0x80000000));
		assert_true(sum_of(s, -3, reading) == nib_fp32_bits(-3));
		/* Toward zero, of either sign. */
		s = even(0, 2, 0x38);
		s.a[17] = 1;
		assert_true(sum_of(s, 0x1p24f, reading) == nib_fp32_bits(0x1p24f));
		assert_true(sum_of(s, -0x1p24f, reading) ==
			    nib_fp32_bits(-0x1.fffffep23f));
		/* 2^-20 is 36 bits behind c: cut, or the sum were less. */
		s = even(0, 1, 0x38);
		s.a[0] = 9;
		s.scale_a[0] = s.scale_b[0] = 1;
		assert_true(sum_of(s, 0x1p16f, reading) == nib_fp32_bits(0x1p16f));
		assert_true(sum_of(s, 0x1p15f, reading) ==
			    nib_fp32_bits(0x1.fffffep14f));
		/* The sum's second case: four products are cut together. */
		s = even(0, 1, 0x01);
		s.a[16] = s.a[17] = 1;
		s.scale_a[0] = s.scale_b[0] = 0x78; /* 2^16, to 2^-19 */
		s.a[0] = s.a[1] = 1;
		s.b[1] = 9;
		assert_true(sum_of(s, 0, reading) == nib_fp32_bits(0x1p-19f));
		s.a[17] = 0;
		assert_true(sum_of(s, 0, reading) == 0);
		s.a[20] = 1;
		assert_true(sum_of(s, 0, reading) ==
			    (reading == IDLE_COUNTS ? nib_fp32_bits(0x1p-19f) : 0));
		/* An idle block. */
		s.a[0] = s.a[1] = s.a[20] = 0;
		assert_true(sum_of(s, 0, reading) ==
			    (reading == IDLE_COUNTS ? 0 : nib_fp32_bits(0x1p-20f)));
		/* Pads are idle and have no scale. */
		s.scale_a[0] = 0;
		assert_true(sum_of(s, 0, reading) == nib_fp32_bits(0x1p-20f));
	}
}

/* ---- random data --------------------------------------------------------- */

/* Makes all codes positive: sums grow, and what is cut off adds up. */
static void make_positive(struct sums *f)
{
	uint8_t *a = f->a.view.codes, *b = f->b.view.codes;

	for (size_t i = 0; i < f->a.codes_bytes; i++)
		a[i] &= 0x77;
	for (size_t i = 0; i < f->b.codes_bytes; i++)
		b[i] &= 0x77;
}

#define N_KS 8
static const int64_t ks[N_KS] = {16, 48, 64, 112, 256, 1040, 7168, 16384};

/* Sanitizers and valgrind have no time for the last two. */
static int n_ks(void)
{
	return test_is_small() ? N_KS - 2 : N_KS;
}

static void random_data_is_inside(void **state)
{
	double worst[3] = {0};

	for (int i = 0; i < N_KS * 4 * 3; i++) {
		const struct order order = {1 + i / N_KS % 4, (enum reading)(i & 1)};
		const enum nib_dtype dtype = (enum nib_dtype)(i / 4 / N_KS);
		struct sums f;

		sums_new(&f, &rng, SUMS_ROWS, SUMS_COLS, ks[i % n_ks()],
			 (enum test_scales)(i % 3), dtype);
		worst[dtype] = worst_of(worst[dtype], NIB_OP_GEMM, &f, order);
		worst_of(0, NIB_OP_DUAL_GEMM, &f, order);
		sums_free(&f);
	}
	printf("random: fp32 %.4f of the bound, fp16 %.4f, bf16 %.4f\n", worst[0],
	       worst[1], worst[2]);
}

/* Not vacuous: a good part of what is granted is used. */
static void random_data_needs_the_bound(void **state)
{
	for (int i = 0; i < n_ks(); i++) {
		double fraction[2][2];

		for (int j = 0; j < 4; j++) {
			const struct order order = {1, IDLE_IS_NOTHING};
			struct sums f;

			sums_new(&f, &rng, SUMS_ROWS, SUMS_COLS, ks[i],
				 j % 2 ? TEST_SCALES_MIDDLE : TEST_SCALES_ANY,
				 NIB_DTYPE_FP32);
			if (j / 2)
				make_positive(&f);
			fraction[j / 2][j % 2] = worst_of(0, NIB_OP_GEMM, &f, order);
			sums_free(&f);
		}
		printf("k = %5d, of the bound: any scales %.4f, middle %.4f; "
		       "positive codes %.4f, %.4f\n",
		       (int)ks[i], fraction[0][0], fraction[0][1], fraction[1][0],
		       fraction[1][1]);
		for (int j = 0; j < 2; j++) {
			assert_true(fraction[0][j] > 0.003);
			assert_true(fraction[1][j] > 0.05);
		}
	}
}

/* The second half of k undoes the first. */
static void cancel_halves(struct sums *f)
{
	struct nib_fp4 *v[2] = {&f->problem.a, &f->problem.b};
	const int64_t half = f->problem.a.k / 2;

	for (int side = 0; side < 2; side++) {
		for (int64_t row = 0; row < v[side]->rows; row++) {
			for (int64_t i = 0; i < half; i++)
				sums_set(v[side], row, half + i,
					 sums_code(v[side], row, i) ^ side * 8);
			for (int64_t g = 0; g < half / NIB_NVFP4_BLOCK; g++)
				*nib_fp4_scale(v[side], 0, row,
					       half / NIB_NVFP4_BLOCK + g) =
				    *nib_fp4_scale(v[side], 0, row, g);
		}
	}
}

static void cancellation_is_inside(void **state)
{
	double worst[2] = {0};

	for (int i = 0; i < 48; i++) {
		const struct order order = {1 + i % 4, (enum reading)(i / 4 % 2)};
		const int halves = i & 1;
		struct sums f;

		sums_new(&f, &rng, SUMS_ROWS, SUMS_COLS, test_is_small() ? 512 : 2048,
			 (enum test_scales)(i % 3), NIB_DTYPE_FP32);
		if (halves)
			cancel_halves(&f);
		else
			sums_cancel(&f);
		worst[halves] = worst_of(worst[halves], NIB_OP_GEMM, &f, order);
		sums_free(&f);
	}
	printf("cancelling in blocks: %.4f of the bound, over k: %.4f\n", worst[0],
	       worst[1]);
	assert_true(worst[1] > 0.002);
}

/* Each of 127 scales with each, in each place of a step; each code so. */
static void all_scales_and_codes_are_inside(void **state)
{
	double worst = 0;

	for (int i = 0; i < (test_is_small() ? 2 : 2 * BLOCKS); i++) {
		const struct order order = {1, (enum reading)(i & 1)};
		const int block = i / 2;
		struct sums f;

		sums_new(&f, &rng, 127, 127, 256, TEST_SCALES_ANY, NIB_DTYPE_FP32);
		f.alpha = 1;
		for (int row = 0; row < 127; row++) {
			*nib_fp4_scale(&f.problem.a, 0, row, block) = (uint8_t)row;
			*nib_fp4_scale(&f.problem.b, 0, row, block) = (uint8_t)row;
			for (int k = 0; k < 256; k++) {
				sums_set(&f.problem.a, row, k, (k + row) / 16 & 15);
				sums_set(&f.problem.b, row, k, k & 15);
			}
		}
		worst = worst_of(worst, NIB_OP_GEMM, &f, order);
		sums_free(&f);
	}
	printf("all scales and codes: %.4f of the bound\n", worst);
	assert_true(worst > 0.05);
}

/*
 * Scales from 2^-9 to 448 on both sides, many blocks idle: windows far above
 * what is summed, sums that vanish.
 */
static void make_extreme(struct sums *f)
{
	static const uint8_t scales[] = {0, 1, 7, 8, 0x38, 0x77, 0x78, 0x7E};
	const int64_t blocks = f->problem.a.k / NIB_NVFP4_BLOCK;

	for (int64_t i = 0; i < SUMS_COLS * blocks; i++) {
		const int64_t row = i / blocks, block = i % blocks;
		const int64_t r = rng_below(&rng, 8);

		*nib_fp4_scale(&f->problem.b, 0, row, block) = scales[r];
		if (row >= SUMS_ROWS)
			continue;
		*nib_fp4_scale(&f->problem.a, 0, row, block) =
		    scales[rng_below(&rng, 8)];
		if (rng_below(&rng, 8) < r)
			for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
				sums_set(&f->problem.a, row,
					 block * NIB_NVFP4_BLOCK + j, 8 * (j & 1));
	}
}

static void extremes_are_inside(void **state)
{
	double worst = 0;
	int differ = 0;

	for (int i = 0; i < 1000; i++) {
		const int64_t k = 16 + 16 * rng_below(&rng, 12);
		const struct order orders[] = {{1 + i % 3, IDLE_IS_NOTHING},
					       {1 + i % 3, IDLE_COUNTS}};
		struct sums f;

		sums_new(&f, &rng, SUMS_ROWS, SUMS_COLS, k, TEST_SCALES_ONE,
			 NIB_DTYPE_FP32);
		f.alpha = 1;
		make_extreme(&f);
		for (int reading = 0; reading < 2; reading++)
			worst = worst_of(worst, NIB_OP_GEMM, &f, orders[reading]);
		for (int64_t e = 0; e < SUMS_ROWS * SUMS_COLS; e++)
			differ += nib_dense_get(&f.problem.c, 0, e / SUMS_COLS,
						e % SUMS_COLS) !=
				  dot(&f.problem.a, e / SUMS_COLS, &f.problem.b,
				      e % SUMS_COLS, &orders[0]);
		sums_free(&f);
	}
	printf("extremes: %.4f of the bound; %d elements differ by reading\n", worst,
	       differ);
	assert_true(differ > 0);
}

/* ---- chosen data --------------------------------------------------------- */

/* What the bound says of the first element if its terms were others. */
static double fraction_if(const struct sums *f, int64_t k, int64_t large)
{
	struct nib_exact_row rows[2];
	struct nib_exact_sum s;
	struct nib_expected e;

	for (int i = 0; i < 2; i++) {
		const struct nib_fp4 *v = i ? &f->problem.b : &f->problem.a;
		const size_t n = (size_t)v->k;

		rows[i].twice = malloc(n * sizeof(*rows[i].twice));
		rows[i].scale = malloc(n / NIB_NVFP4_BLOCK * sizeof(*rows[i].scale));
		nib_exact_decode(&rows[i], v, 0, 0, 0);
	}
	s = nib_exact_dot(&rows[0], &rows[1], f->problem.a.k);
	s.large = large;
	e = nib_expect_gemm(&s, *f->problem.alpha, k, FP4);
	for (int i = 0; i < 2; i++) {
		free(rows[i].twice);
		free(rows[i].scale);
	}
	return nib_judge(&e, NIB_DTYPE_FP32, nib_dense_get(&f->problem.c, 0, 0, 0))
	    .fraction;
}

static void set_block(struct sums *f, int64_t block, int count, int code,
		      uint8_t scale_a, uint8_t scale_b)
{
	struct nib_fp4 *v[2] = {&f->problem.a, &f->problem.b};

	for (int side = 0; side < 2; side++) {
		for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
			sums_set(v[side], 0, block * NIB_NVFP4_BLOCK + i,
				 i < count ? code : 0);
		*nib_fp4_scale(v[side], 0, 0, block) = side ? scale_b : scale_a;
	}
}

/*
 * 2^20 at first, then in each step 2^-3 less a little, which is less than the
 * accumulator keeps, and three blocks below 2^-15, which are cut before.
 */
static void chosen_data_comes_close(void **state)
{
	const int64_t k = 65536;

	for (int i = 0; i < 2; i++) {
		const struct order order = {1, (enum reading)i};
		struct sums f;
		double fraction;

		sums_new(&f, &rng, 1, 1, k, TEST_SCALES_ONE, NIB_DTYPE_FP32);
		f.alpha = 1;
		for (int64_t block = 0; block < k / NIB_NVFP4_BLOCK; block++) {
			if (block < BLOCKS)
				set_block(&f, block, 0, 0, 0x38, 0x38);
			else if (block % BLOCKS)
				set_block(&f, block, 1, 2, 0x07, 0x01);
			else /* 5 * 36 * 1.625 * 1.75 * 2^-12 */
				set_block(&f, block, 5, 7, 0x0D, 0x0E);
		}
		set_block(&f, 0, 1, 6, 0x78, 0x78);
		fraction = worst_of(0, NIB_OP_GEMM, &f, order);
		printf("chosen: %.4f of the bound\n", fraction);
		assert_true(fraction > 0.98);
		/* A bound of 3 % less would be wrong. */
		assert_true(fraction_if(&f, k, 1) == fraction);
		assert_true(fraction_if(&f, k / 100 * 97, 1) > 1);
		sums_free(&f);
	}
}

/* A block of 448 * 448 that cancels, or is idle, hides 2^-20 in the same step. */
static void large_blocks_are_inside(void **state)
{
	const int64_t k = 4096, large = k / STEP;

	for (int i = 0; i < 4; i++) {
		const enum reading reading = (enum reading)(i & 1);
		const struct order order = {1, reading};
		const bool is_idle = i >= 2;
		struct sums f;
		double fraction, without;

		sums_new(&f, &rng, 1, 1, k, TEST_SCALES_ONE, NIB_DTYPE_FP32);
		f.alpha = 1;
		for (int64_t block = 0; block < k / NIB_NVFP4_BLOCK; block++) {
			if (block % BLOCKS == 0) {
				set_block(&f, block, is_idle ? 0 : 2, 7, 0x7E, 0x7E);
				if (!is_idle)
					sums_set(&f.problem.b, 0,
						 block * NIB_NVFP4_BLOCK, 15);
				continue;
			}
			/* 2^-20 once, or in each four. */
			set_block(&f, block, reading == IDLE_COUNTS ? 1 : 16, 1, 0x01,
				  0x01);
			for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
				if (j % 4)
					sums_set(&f.problem.a, 0,
						 block * NIB_NVFP4_BLOCK + j, 0);
		}
		fraction = worst_of(0, NIB_OP_GEMM, &f, order);
		assert_true(fraction == fraction_if(&f, k, large));
		without = fraction_if(&f, k, 0);
		printf("large blocks, %s, reading %d: %.4f of the bound, %g of "
		       "one without them\n",
		       is_idle ? "idle" : "cancelling", i & 1, fraction, without);
		if (is_idle && reading == IDLE_IS_NOTHING)
			assert_true(fraction == 0);
		else
			assert_true(fraction > 0.1 && without > 1000);
		sums_free(&f);
	}
}

/* A kernel for few rows: exact blocks in turn to *lanes sums of fp32. */
static float dot_of_lanes(const struct nib_fp4 *a, int64_t m, const struct nib_fp4 *b,
			  int64_t n, const void *lanes)
{
	const int n_lanes = *(const int *)lanes;
	float sums[32] = {0}, sum = 0;

	for (int64_t g = 0; g < a->k / NIB_NVFP4_BLOCK; g++) {
		const int64_t scales =
		    (int64_t)nib_e4m3_integer(*nib_fp4_scale(a, 0, m, g)) *
		    nib_e4m3_integer(*nib_fp4_scale(b, 0, n, g));
		int64_t block = 0;

		for (int64_t i = g * NIB_NVFP4_BLOCK; i < (g + 1) * NIB_NVFP4_BLOCK;
		     i++)
			block += nib_e2m1_twice[sums_code(a, m, i)] *
				 nib_e2m1_twice[sums_code(b, n, i)];
		sums[g % n_lanes] += (float)ldexp((double)(block * scales), UNIT);
	}
	for (int i = 0; i < n_lanes; i++)
		sum += sums[i];
	return sum;
}

/*
 * 2^20 at first in both lanes, then in each block what rounds off: 2^-4 less a
 * little.  Two lanes keep the bound and one does not.
 */
static void few_rows_need_two_lanes(void **state)
{
	const int64_t k = 65536;
	const int one = 1, two = 2, many = 32;
	struct sums f;
	double fraction;

	sums_new(&f, &rng, 1, 1, k, TEST_SCALES_ONE, NIB_DTYPE_FP32);
	f.alpha = 1;
	for (int64_t block = 0; block < k / NIB_NVFP4_BLOCK; block++)
		set_block(&f, block, 5, 7, 0x0D, 0x07);
	set_block(&f, 0, 1, 6, 0x78, 0x78);
	set_block(&f, 1, 1, 6, 0x78, 0x78);
	fraction = sums_worst(0, NIB_OP_GEMM, &f.problem, FP4, dot_of_lanes, &two);
	printf("few rows, two lanes: %.4f of the bound\n", fraction);
	assert_true(fraction > 0.98);
	sums_worst(0, NIB_OP_GEMM, &f.problem, FP4, dot_of_lanes, &many);
	set_block(&f, 1, 5, 7, 0x0D, 0x07);
	sums_multiply(NIB_OP_GEMM, &f.problem, dot_of_lanes, &one);
	assert_int_equal(sums_check(NIB_OP_GEMM, &f.problem, FP4).failed, 1);
	sums_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(model_gives_values_of_a_b200),
	    cmocka_unit_test(model_is_the_rule),
	    cmocka_unit_test(random_data_is_inside),
	    cmocka_unit_test(random_data_needs_the_bound),
	    cmocka_unit_test(cancellation_is_inside),
	    cmocka_unit_test(all_scales_and_codes_are_inside),
	    cmocka_unit_test(extremes_are_inside),
	    cmocka_unit_test(chosen_data_comes_close),
	    cmocka_unit_test(large_blocks_are_inside),
	    cmocka_unit_test(few_rows_need_two_lanes),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
