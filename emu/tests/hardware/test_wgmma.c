/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wgmma.c - compares the sums of the software GPU's tensor core with a second
 * implementation of the same rules in integers, and with sums whose result is known
 * without the rules.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/data.h"
#include "common/unit.h"
#include "hardware/wgmma.h"

#define ROWS  16
#define MAX_N EMU_WGMMA_MAX_N
#define MAX_K EMU_MMA_MAX_K

static struct rng rng;

static int setup(void **state)
{
	rng = rng_new(test_seed());
	return 0;
}

static uint32_t float_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static struct emu_wgmma_shape shape_of(enum emu_mma_type type, int n)
{
	return (struct emu_wgmma_shape){
	    .n = n, .k = 32 / emu_mma_type_bytes(type), .a_type = type, .b_type = type};
}

/* ---- the rules again, with integers -------------------------------------- */

/* significand * 2^(exponent - bits), or no finite number. */
struct number {
	int64_t significand;
	int exponent, bits;
	bool is_nan;
	int infinity; /* its sign */
};

struct layout {
	int exponent_bits, fraction_bits, dropped_bits;
	bool has_infinity;
};

static const struct layout layouts[] = {
    [EMU_F16] = {5, 10, 0, true},   [EMU_BF16] = {8, 7, 0, true},
    [EMU_TF32] = {8, 10, 13, true}, [EMU_E4M3] = {4, 3, 0, false},
    [EMU_E5M2] = {5, 2, 0, true},
};
static const struct layout fp32 = {8, 23, 0, true};

static struct number number_of(const struct layout *l, uint32_t code)
{
	const int fraction_bits = l->fraction_bits;
	const int bias = (1 << (l->exponent_bits - 1)) - 1;
	const int top = (1 << l->exponent_bits) - 1;
	const uint32_t bits = code >> l->dropped_bits;
	const int fraction = (int)(bits & ((1u << fraction_bits) - 1));
	const int biased = (int)(bits >> fraction_bits) & top;
	const int sign = bits >> (fraction_bits + l->exponent_bits) & 1 ? -1 : 1;
	struct number x = {.bits = fraction_bits};

	if (biased == top && l->has_infinity) {
		x.is_nan = fraction != 0;
		x.infinity = fraction ? 0 : sign;
	} else if (biased == top && fraction == (1 << fraction_bits) - 1) {
		x.is_nan = true;
	} else {
		x.significand = fraction;
		if (biased)
			x.significand += 1 << fraction_bits;
		x.significand *= sign;
		x.exponent = (biased ? biased : 1) - bias;
	}
	return x;
}

static struct number product(struct number a, struct number b)
{
	struct number x = {.bits = a.bits + b.bits,
			   .exponent = a.exponent + b.exponent,
			   .significand = a.significand * b.significand};

	x.is_nan = a.is_nan || b.is_nan;
	if (a.infinity || b.infinity) {
		x.infinity = (a.infinity ? a.infinity
					 : (a.significand > 0) - (a.significand < 0)) *
			     (b.infinity ? b.infinity
					 : (b.significand > 0) - (b.significand < 0));
		x.is_nan |= x.infinity == 0;
	}
	return x;
}

/* x / 2^shift toward zero. */
static int64_t shift_to_zero(int64_t x, int shift)
{
	if (shift <= 0)
		return x * ((int64_t)1 << -shift);
	if (shift > 62)
		return 0;
	return x < 0 ? -(-x >> shift) : x >> shift;
}

/* sum * 2^e truncated to a float with `kept` bits after the point. */
static uint32_t cut(int64_t sum, int e, int kept)
{
	const uint32_t sign = sum < 0 ? 0x80000000 : 0;
	uint64_t x = (uint64_t)(sum < 0 ? -sum : sum);
	int top = 0;

	if (sum == 0)
		return 0;
	while (x >> top > 1)
		top++;
	e += top; /* exponent of the leading bit */
	if (e > 127)
		return sign | 0x7F800000;
	/* To bits after the leading one, or after 2^-126. */
	kept -= e < -126 ? -126 - e : 0;
	if (kept < 0)
		return sign;
	x = top > kept ? x >> (top - kept) << (top - kept) : x;
	x = top > 23 ? x >> (top - 23) : x << (23 - top);
	if (e < -126)
		return sign | (uint32_t)(x >> (-126 - e));
	return sign | (((uint32_t)(e + 126) << 23) + (uint32_t)x);
}

static uint32_t reference(const struct emu_wgmma_shape *s, const uint32_t *a,
			  const uint32_t *b, uint32_t c)
{
	const int kept = s->k == 32 ? 13 : 23, terms = s->k == 32 ? 13 : 25;
	struct number x[MAX_K + 1];
	int e = -133;
	bool is_nan = false, plus = false, minus = false;
	int64_t sum = 0;
	uint32_t bits;

	for (int i = 0; i < s->k; i++)
		x[i] = product(number_of(&layouts[s->a_type], a[i]),
			       number_of(&layouts[s->b_type], b[i]));
	x[s->k] = number_of(&fp32, c);
	for (int i = 0; i <= s->k; i++) {
		is_nan |= x[i].is_nan;
		plus |= x[i].infinity > 0;
		minus |= x[i].infinity < 0;
		if (x[i].significand && x[i].exponent > e)
			e = x[i].exponent;
	}
	if (is_nan || (plus && minus))
		return 0x7FFFFFFF;
	if (plus || minus)
		return plus ? 0x7F800000 : 0xFF800000;
	for (int i = 0; i <= s->k; i++)
		if (x[i].significand)
			sum += shift_to_zero(x[i].significand,
					     e - x[i].exponent + x[i].bits - terms);
	bits = cut(sum, e - terms, kept);
	/* A value that is truncated to zero is +0. */
	return bits == 0x80000000 ? 0 : bits;
}

/* ---- random operands ----------------------------------------------------- */

enum data {
	ANY,	/* all codes, infinities and NaN among them */
	FINITE, /* all finite codes */
	NARROW, /* exponents near each other: sums cancel */
	SPARSE, /* mostly zeros, the rest tiny or huge */
	DATA_KINDS
};

static uint32_t code_of(enum emu_mma_type type, enum data data)
{
	const struct layout *l = &layouts[type];
	const int width = 1 + l->exponent_bits + l->fraction_bits;
	const uint32_t mask = (uint32_t)((UINT64_C(1) << width) - 1);
	const uint32_t bias = (1u << (l->exponent_bits - 1)) - 1;
	uint32_t code = (uint32_t)rng_next(&rng) & mask;
	struct number x;

	if (data == NARROW) {
		code &= ~(((1u << l->exponent_bits) - 1) << l->fraction_bits);
		code |= (bias - 1 + (uint32_t)rng_below(&rng, 3)) << l->fraction_bits;
	}
	if (data == SPARSE)
		code = rng_below(&rng, 4)   ? code & 1u << (width - 1)
		       : rng_below(&rng, 2) ? code & ~(1u << (width - 2))
					    : code;
	x = number_of(l, code << l->dropped_bits);
	if (data != ANY && (x.is_nan || x.infinity))
		code = 0;
	if (data == ANY && (x.is_nan || x.infinity) && rng_below(&rng, 4))
		code = 1;
	/* Dropped bits are not read. */
	return code << l->dropped_bits |
	       ((uint32_t)rng_next(&rng) & ((1u << l->dropped_bits) - 1));
}

static uint32_t random_c(enum data data)
{
	const uint32_t bits = (uint32_t)rng_next(&rng);

	if (rng_below(&rng, 4) == 0)
		return bits & 0x80000000;
	if (data == NARROW)
		return (bits & 0x807FFFFF) | (124 + (uint32_t)rng_below(&rng, 6)) << 23;
	if (data != ANY && (bits & 0x7F800000) == 0x7F800000)
		return 0;
	return bits;
}

static void compare(enum emu_mma_type a_type, enum emu_mma_type b_type, enum data data,
		    int n)
{
	struct emu_wgmma_shape s = shape_of(a_type, n);
	static uint32_t a[ROWS * MAX_K], b[MAX_N * MAX_K];
	static uint32_t c[ROWS * MAX_N], d[ROWS * MAX_N];

	s.b_type = b_type;
	for (int i = 0; i < ROWS * s.k; i++)
		a[i] = code_of(a_type, data);
	for (int i = 0; i < n * s.k; i++)
		b[i] = code_of(b_type, data);
	for (int i = 0; i < ROWS * n; i++)
		c[i] = random_c(data);
	emu_wgmma_rows(&s, a, b, c, d);
	for (int i = 0; i < ROWS * n; i++) {
		const uint32_t want =
		    reference(&s, a + i / n * s.k, b + i % n * s.k, c[i]);

		if (d[i] != want)
			fail_msg("types %d %d data %d sum %d of n %d: 0x%08x, not "
				 "0x%08x",
				 a_type, b_type, data, i, n, d[i], want);
	}
	/* Without c, and in place. */
	emu_wgmma_rows(&s, a, b, NULL, d);
	memset(c, 0, sizeof(c));
	emu_wgmma_rows(&s, a, b, c, c);
	assert_memory_equal(c, d, sizeof(uint32_t) * (size_t)(ROWS * n));
}

static void sums_follow_the_rules(void **state)
{
	static const int sizes[] = {8, 16, 72, 256};

	for (int round = 0; round < 12; round++)
		for (int data = 0; data < DATA_KINDS; data++)
			for (int t = EMU_F16; t <= EMU_E5M2; t++)
				compare((enum emu_mma_type)t, (enum emu_mma_type)t,
					(enum data)data, sizes[round % 4]);
	for (int data = 0; data < DATA_KINDS; data++) {
		compare(EMU_E4M3, EMU_E5M2, (enum data)data, 24);
		compare(EMU_E5M2, EMU_E4M3, (enum data)data, 24);
	}
}

/* ---- sums known without the rules ---------------------------------------- */

/* One sum of fp16 (type EMU_F16) or bf16 products; 1.0 is ONE(type). */
#define ONE(type) ((type) == EMU_F16 ? 0x3C00u : 0x3F80u)

static uint32_t one_sum(enum emu_mma_type type, const uint32_t *a, const uint32_t *b,
			uint32_t c)
{
	const struct emu_wgmma_shape s = shape_of(type, 8);
	uint32_t all_a[ROWS * 16] = {0}, all_b[8 * 16] = {0};
	uint32_t d[ROWS * 8] = {0};

	memcpy(all_a + 5 * 16, a, sizeof(uint32_t) * 16);
	memcpy(all_b + 3 * 16, b, sizeof(uint32_t) * 16);
	d[5 * 8 + 3] = c;
	emu_wgmma_rows(&s, all_a, all_b, d, d);
	for (int i = 0; i < ROWS * 8; i++)
		if (i / 8 != 5 && i % 8 != 3)
			assert_int_equal(d[i], 0);
	return d[5 * 8 + 3];
}

static void cut_of_one_term(void **state)
{
	uint32_t a[16] = {ONE(EMU_F16)}, b[16] = {ONE(EMU_F16)};

	/* 1 + 2^-24: the sum has the bit, fp32 has not.  Toward zero. */
	a[1] = 0x0C00, b[1] = 0x0C00; /* 2^-12 */
	assert_int_equal(one_sum(EMU_F16, a, b, 0), 0x3F800000);
	a[0] |= 0x8000; /* -1 + 2^-24 = -(1 - 2^-24) */
	assert_int_equal(one_sum(EMU_F16, a, b, 0), 0xBF7FFFFF);
	/* Next to 1, each of the terms 2^-26 is truncated to zero ... */
	a[0] = ONE(EMU_F16);
	for (int i = 1; i < 16; i++)
		a[i] = b[i] = 0x0800; /* 2^-13 */
	assert_int_equal(one_sum(EMU_F16, a, b, 0x33800000), 0x3F800000);
	/* ... and sixteen times 2^-25 are not: 15 * 2^-25 = 7.5 * 2^-24. */
	for (int i = 1; i < 16; i++)
		b[i] = 0x0C00;
	assert_int_equal(one_sum(EMU_F16, a, b, 0), 0x3F800003);
}

static void results_at_the_ends_of_fp32(void **state)
{
	uint32_t a[16] = {ONE(EMU_BF16)}, b[16] = {ONE(EMU_BF16)};

	/* The smallest subnormal passes through, and half of it is zero. */
	b[0] = 0;
	assert_int_equal(one_sum(EMU_BF16, a, b, 1), 1);
	assert_int_equal(one_sum(EMU_BF16, a, b, 0x80000001), 0x80000001);
	a[0] = 0x0080 /* 2^-126 */, b[0] = 0x3400; /* 2^-23 */
	assert_int_equal(one_sum(EMU_BF16, a, b, 1), 2);
	b[0] = 0x3380; /* 2^-24 */
	assert_int_equal(one_sum(EMU_BF16, a, b, 1), 1);
	/* 2^-148 less a bit just at, and just below, the cut: 2^-158. */
	a[0] = 0x0080, b[0] = 0x3480; /* 2^-126 * 2^-22 */
	a[1] = 0x8080, b[1] = 0x2F80; /* -2^-126 * 2^-32 */
	assert_int_equal(one_sum(EMU_BF16, a, b, 0), 1);
	b[1] = 0x2F00;
	assert_int_equal(one_sum(EMU_BF16, a, b, 0), 2);
	a[1] = b[1] = 0;
	/* Largest float plus its last bit overflows. */
	a[0] = 0x7F00 /* 2^127 */, b[0] = 0x3400;
	assert_int_equal(one_sum(EMU_BF16, a, b, 0x7F7FFFFF), 0x7F800000);
	b[0] = 0x3380;
	assert_int_equal(one_sum(EMU_BF16, a, b, 0x7F7FFFFF), 0x7F7FFFFF);
	/* A zero is +0. */
	a[0] = 0x8000, b[0] = ONE(EMU_BF16);
	assert_int_equal(one_sum(EMU_BF16, a, b, 0x80000000), 0);
}

static void infinities_and_nan(void **state)
{
	uint32_t a[16] = {0x7C00}, b[16] = {ONE(EMU_F16)};

	assert_int_equal(one_sum(EMU_F16, a, b, 0), 0x7F800000);
	assert_int_equal(one_sum(EMU_F16, a, b, 0xFF800000), EMU_NAN_F32);
	b[0] = 0xBC00;
	assert_int_equal(one_sum(EMU_F16, a, b, 0), 0xFF800000);
	b[0] = 0;
	assert_int_equal(one_sum(EMU_F16, a, b, 0), EMU_NAN_F32);
	a[0] = 0xFC01;
	assert_int_equal(one_sum(EMU_F16, a, b, 0), EMU_NAN_F32);
	a[0] = 0;
	assert_int_equal(one_sum(EMU_F16, a, b, 0xFFC12345), EMU_NAN_F32);
	assert_int_equal(one_sum(EMU_F16, a, b, 0xFF800000), 0xFF800000);
}

/* NVFP4 values times powers of two: every sum is an exact integer. */
static void exact_sums_are_exact(void **state)
{
	const struct emu_wgmma_shape s = shape_of(EMU_F16, 64);
	static uint32_t a[ROWS * 16], b[64 * 16], d[ROWS * 64];
	static const uint32_t halves[8] = {0,	   0x3800, 0x3C00, 0x3E00,
					   0x4000, 0x4200, 0x4400, 0x4600};
	static const int twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
	static int64_t want[ROWS * 64];
	static int ia[ROWS * 16], ib[64 * 16];

	memset(d, 0, sizeof(d));
	for (int step = 0; step < 64; step++) {
		for (int i = 0; i < ROWS * 16; i++) {
			ia[i] = (int)rng_below(&rng, 8);
			a[i] = halves[ia[i]];
		}
		for (int i = 0; i < 64 * 16; i++) {
			ib[i] = (int)rng_below(&rng, 8);
			b[i] = halves[ib[i]] | (i % 3 ? 0 : 0x8000);
		}
		for (int i = 0; i < ROWS * 64; i++)
			for (int k = 0; k < 16; k++) {
				const int at = i % 64 * 16 + k;
				const int x = twice[ia[i / 64 * 16 + k]];

				want[i] += x * twice[ib[at]] * (at % 3 ? 1 : -1);
			}
		emu_wgmma_rows(&s, a, b, d, d);
	}
	for (int i = 0; i < ROWS * 64; i++)
		assert_int_equal(d[i], float_bits((float)want[i] / 4));
}

static void negated_operands(void **state)
{
	struct emu_wgmma_shape s = shape_of(EMU_BF16, 8);
	uint32_t a[ROWS * 16], b[8 * 16], d[ROWS * 8], minus[ROWS * 8];

	for (int i = 0; i < ROWS * 16; i++)
		a[i] = code_of(EMU_BF16, FINITE);
	for (int i = 0; i < 8 * 16; i++)
		b[i] = code_of(EMU_BF16, FINITE);
	emu_wgmma_rows(&s, a, b, NULL, d);
	for (int which = 1; which < 4; which++) {
		s.a_negated = which & 1;
		s.b_negated = which >> 1;
		emu_wgmma_rows(&s, a, b, NULL, minus);
		for (int i = 0; i < ROWS * 8; i++)
			assert_int_equal(minus[i], d[i] == 0 || which == 3
						       ? d[i]
						       : d[i] ^ 0x80000000);
	}
}

static void fp16_results(void **state)
{
	struct emu_wgmma_shape s = shape_of(EMU_F16, 8);
	/* c + 1 * b: ties to even, a subnormal, overflow, NaN, -0. */
	static const uint32_t c[8] = {0x6800, 0x6801, 0x0001, 0x7BFF,
				      0x7E00, 0x8000, 0xFC00, 0x7BFF};
	static const uint32_t x[8] = {0x3C00, 0x3C00, 0x0001, 0x4C00,
				      0x0000, 0x0000, 0x3C00, 0x4BFF};
	static const uint32_t want[8] = {0x6800, 0x6802, 0x0002, 0x7C00,
					 0x7FFF, 0x0000, 0xFC00, 0x7BFF};
	uint32_t a[ROWS * 16] = {0x3C00}, b[8 * 16] = {0}, d[ROWS * 8] = {0};

	s.d_is_f16 = true;
	for (int i = 0; i < 8; i++) {
		b[i * 16] = x[i];
		d[i] = c[i];
	}
	emu_wgmma_rows(&s, a, b, d, d);
	for (int i = 0; i < 8; i++)
		assert_int_equal(d[i], want[i]);
}

static void integers_are_exact(void **state)
{
	const struct emu_wgmma_shape s = shape_of(EMU_S8, 8);
	uint32_t a[ROWS * 32], b[8 * 32], c[ROWS * 8], d[ROWS * 8];

	for (int i = 0; i < ROWS * 32; i++)
		a[i] = (uint32_t)rng_below(&rng, 256);
	for (int i = 0; i < 8 * 32; i++)
		b[i] = (uint32_t)rng_below(&rng, 256);
	for (int i = 0; i < ROWS * 8; i++)
		c[i] = (uint32_t)rng_next(&rng);
	emu_wgmma_rows(&s, a, b, c, d);
	for (int i = 0; i < ROWS * 8; i++) {
		int64_t sum = (int32_t)c[i];

		for (int k = 0; k < 32; k++)
			sum += ((int)(a[i / 8 * 32 + k] ^ 128) - 128) *
			       ((int)(b[i % 8 * 32 + k] ^ 128) - 128);
		assert_int_equal(d[i], (uint32_t)sum);
	}
}

/* ---- speed --------------------------------------------------------------- */

/* 128 x 128 x 256 of fp16, in the instructions of eight warps. */
static void speed(void **state)
{
	const struct emu_wgmma_shape s = shape_of(EMU_F16, 128);
	static uint32_t a[ROWS * 16], b[128 * 16], d[ROWS * 128];
	struct timespec begin, end;
	double best = 1e9;

	for (int i = 0; i < ROWS * 16; i++)
		a[i] = code_of(EMU_F16, NARROW);
	for (int i = 0; i < 128 * 16; i++)
		b[i] = code_of(EMU_F16, NARROW);
	for (int round = 0; round < 5; round++) {
		double ms;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
		for (int i = 0; i < 8 * 16; i++)
			emu_wgmma_rows(&s, a, b, d, d);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
		ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 +
		     (double)(end.tv_nsec - begin.tv_nsec) * 1e-6;
		best = ms < best ? ms : best;
	}
	print_message("128 x 128 x 256 fp16: %.2f ms\n", best);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sums_follow_the_rules),
	    cmocka_unit_test(cut_of_one_term),
	    cmocka_unit_test(results_at_the_ends_of_fp32),
	    cmocka_unit_test(infinities_and_nan),
	    cmocka_unit_test(exact_sums_are_exact),
	    cmocka_unit_test(negated_operands),
	    cmocka_unit_test(fp16_results),
	    cmocka_unit_test(integers_are_exact),
	    cmocka_unit_test(speed),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
