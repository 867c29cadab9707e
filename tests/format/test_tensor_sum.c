/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tensor_sum.c - compares the bound of NIB_ARITHMETIC_FP16_TENSOR with a model of
 * the tensor core in integers: products in steps of 16, a sum that keeps 25 bits after
 * the first bit of the largest term, and the 24 bits of fp32 of the result, both
 * truncated.  Random data is within the bound, chosen data is close to it, and the
 * bound of the CPU's arithmetic would be exceeded.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sums.h"
#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/view.h"

/* One operand of a multiplication is scaled so that fp16 holds it. */
#define UNSCALE 64.0f
/* Unit of the other operand, of the scaled one, of their products. */
#define X_UNIT	      (-10)
#define W_UNIT	      (-16)
#define PRODUCT_UNIT  (-26)
#define FRACTION_BITS 25
/* The exponent of fp16's subnormals, and of zero. */
#define SUBNORMAL (-14)
#define STEP	  16
#define MAX_K	  16384

static struct rng rng;

/* ---- the model ----------------------------------------------------------- */

static int64_t absolute(int64_t x)
{
	return x < 0 ? -x : x;
}

/* floor(log2(x * 2^unit)), but no less than least. */
static int exponent_of(int64_t x, int unit, int least)
{
	int exponent = least;

	if (x != 0)
		exponent = 63 - __builtin_clzll((uint64_t)absolute(x)) + unit;
	return exponent < least ? least : exponent;
}

/* Toward zero, to a multiple of 2^bits. */
static int64_t cut(int64_t x, int bits)
{
	const int64_t size = bits > 0 ? absolute(x) >> bits << bits : absolute(x);

	return x < 0 ? -size : size;
}

struct term {
	int64_t value; /* PRODUCT_UNIT */
	int exponent;
};

/* c + 16 products: one instruction of the tensor core. */
static int64_t add_step(int64_t c, const struct term *products)
{
	int most = exponent_of(c, PRODUCT_UNIT, PRODUCT_UNIT);
	int64_t sum;
	int lost;

	for (int i = 0; i < STEP; i++)
		if (products[i].exponent > most)
			most = products[i].exponent;
	lost = most - FRACTION_BITS - PRODUCT_UNIT;
	sum = cut(c, lost);
	for (int i = 0; i < STEP; i++)
		sum += cut(products[i].value, lost);
	return cut(sum, exponent_of(sum, 0, 0) - 23);
}

/* Decoded: e2m1 * scale, in units of 2^-10. */
static void decode(int64_t *x, const struct nib_fp4 *v, int64_t row)
{
	const uint8_t *codes = nib_fp4_row(v, 0, row);
	const uint8_t *scales = nib_fp4_scales(v, 0);

	for (int64_t i = 0; i < v->k; i++) {
		const int code = codes[i / 2] >> (i % 2 * 4) & 15;
		const uint8_t scale =
		    scales[nib_fp4_scale_offset(v, row, i / NIB_NVFP4_BLOCK)];

		x[i] = (int64_t)nib_e2m1_twice[code] * nib_e4m3_integer(scale);
	}
}

/*
 * The place in its 64 that place j of the backend's order is: a step takes four of
 * each of four blocks.
 */
static int64_t place(int64_t j)
{
	const int64_t step = j % 64 / STEP, block = j % STEP / 4;

	return j / 64 * 64 + block * NIB_NVFP4_BLOCK + step * 4 + j % 4;
}

/* begin..end-1 of k, in steps; the last 64 are padded with zeros. */
static float part_of_sum(const int64_t *w, const int64_t *x, int64_t begin, int64_t end,
			 int64_t k, bool spread)
{
	int64_t c = 0;

	for (int64_t i = begin; i < end; i += STEP) {
		struct term products[STEP];

		for (int64_t j = 0; j < STEP; j++) {
			const int64_t at = spread ? place(i + j) : i + j;
			const int64_t wi = at < k ? w[at] : 0;
			const int64_t xi = at < k ? x[at] : 0;

			products[j].value = wi * xi;
			products[j].exponent = exponent_of(wi, W_UNIT, SUBNORMAL) +
					       exponent_of(xi, X_UNIT, SUBNORMAL);
		}
		c = add_step(c, products);
	}
	return (float)ldexp((double)c, PRODUCT_UNIT);
}

/* How a backend cuts k up. */
struct order {
	int parts;   /* that are summed separately, then added in fp32 */
	bool spread; /* see place() */
};

static float dot(const struct nib_fp4 *a, int64_t m, const struct nib_fp4 *b, int64_t n,
		 const void *order_)
{
	static int64_t w[MAX_K], x[MAX_K];
	const struct order *order = order_;
	const int64_t k = a->k, padded = (k + 255) / 256 * 256;
	float sum = 0;

	decode(x, a, m);
	decode(w, b, n);
	for (int i = 0; i < order->parts; i++) {
		const float part = part_of_sum(
		    w, x, padded / 256 * i / order->parts * 256,
		    padded / 256 * (i + 1) / order->parts * 256, k, order->spread);

		sum = i ? sum + part : part;
	}
	return sum * UNSCALE;
}

static double worst_of(double worst, enum nib_op op, const struct nib_problem *p,
		       struct order order)
{
	return sums_worst(worst, op, p, NIB_ARITHMETIC_FP16_TENSOR, dot, &order);
}

/* ---- data ---------------------------------------------------------------- */

/*
 * 2^20 at first, then in each step of spread places 15 products just below
 * 2^-5, the first bit that is lost, and one just below four times that: the
 * sum gets three units of 2^-5, less than fp32 keeps.
 */
static void lose_all_but_the_first(struct sums *f)
{
	struct nib_fp4 *v[2] = {&f->problem.a, &f->problem.b};

	for (int side = 0; side < 2; side++) {
		for (int64_t i = 0; i < v[side]->k; i++) {
			const int64_t block = i / NIB_NVFP4_BLOCK;

			/* 6 * 1.875 * 2^-6; the fourth block has 3 and 6. */
			sums_set(v[side], 0, i, block % 4 == 3 && i % 4 ? 5 : 7);
			*nib_fp4_scale(v[side], 0, 0, block) =
			    block % 4 == 3 ? 0x17 : 0x0F;
			if (block < 4)
				sums_set(v[side], 0, i, 0);
		}
		sums_set(v[side], 0, 0, 6);		 /* 4 */
		*nib_fp4_scale(v[side], 0, 0, 0) = 0x78; /* 256 */
	}
}

/* ---- tests --------------------------------------------------------------- */

static void model_is_the_definition(void **state)
{
	struct term t[STEP] = {{0}};
	const int64_t one = INT64_C(1) << -PRODUCT_UNIT;

	for (int i = 0; i < STEP; i++)
		t[i].exponent = 2 * SUBNORMAL;
	/* 2^-25 of the largest is kept, and lost again in fp32. */
	t[3] = (struct term){one, 0};
	t[4] = (struct term){2, -25};
	assert_true(add_step(0, t) == one);
	t[5] = (struct term){-one, 0};
	assert_true(add_step(0, t) == 2);
	/* Half of it is not kept, of either sign. */
	t[4] = (struct term){1, -26};
	assert_true(add_step(0, t) == 0);
	t[4] = (struct term){-1, -26};
	assert_true(add_step(0, t) == 0);
	t[4] = (struct term){3, -25};
	assert_true(add_step(5, t) == 6);
	/* A sum whose end is lost to a product. */
	t[4] = (struct term){0, 2 * SUBNORMAL};
	t[3] = (struct term){16 * one, 4};
	t[5] = (struct term){-16 * one, 4};
	assert_true(add_step((1 << 24) - 1, t) == (1 << 24) - 32);
	/* Toward zero in fp32, too. */
	t[3] = (struct term){one, 0};
	t[5] = (struct term){one + 31, 0};
	assert_true(add_step(0, t) == 2 * one + 16);
	t[3].value = -one;
	t[5].value = -one - 31;
	assert_true(add_step(0, t) == -2 * one - 16);
}

/*
 * k of all sorts, all splits, every type.  Some of it is outside the CPU's
 * bound, which has no word for what is cut off: how much, depends on the seed.
 */
static void random_data_is_inside(void **state)
{
	static const int64_t ks[] = {16, 48, 64, 112, 256, 1040, 7168, MAX_K};
	double worst[3] = {0}, cpu = 0;
	int64_t broken = 0, checked = 0;

	for (int i = 0; i < 8 * 4 * 3; i++) {
		const struct order order = {1 + i / 8 % 4, i & 1};
		const enum nib_dtype dtype = (enum nib_dtype)(i / 32);
		struct nib_check_result r;
		struct sums f;

		sums_new(&f, &rng, SUMS_ROWS, SUMS_COLS, ks[i % 8],
			 (enum test_scales)(i % 3), dtype);
		worst[dtype] = worst_of(worst[dtype], NIB_OP_GEMM, &f.problem, order);
		if (dtype == NIB_DTYPE_FP32) {
			r = sums_check(NIB_OP_GEMM, &f.problem, NIB_ARITHMETIC_BLOCKS);
			broken += r.failed;
			checked += r.checked;
			cpu = fmax(cpu, r.worst_fraction);
		}
		worst_of(0, NIB_OP_DUAL_GEMM, &f.problem, order);
		sums_free(&f);
	}
	printf("random: fp32 %.4f of the bound, fp16 %.4f, bf16 %.4f; fp32 "
	       "%.4f of the CPU's, %d of %d above it\n",
	       worst[0], worst[1], worst[2], cpu, (int)broken, (int)checked);
	assert_true(worst[0] > 0.01);
}

/* Every block is zero: a CPU gives zero, a tensor core what it lost. */
static void cancellation_is_inside(void **state)
{
	double worst = 0;
	int64_t broken = 0;

	for (int i = 0; i < 24; i++) {
		const struct order order = {1 + i % 4, i / 4 % 2};
		struct sums f;

		sums_new(&f, &rng, SUMS_ROWS, SUMS_COLS, 2048,
			 (enum test_scales)(i % 3), NIB_DTYPE_FP32);
		sums_cancel(&f);
		worst = worst_of(worst, NIB_OP_GEMM, &f.problem, order);
		broken +=
		    sums_check(NIB_OP_GEMM, &f.problem, NIB_ARITHMETIC_BLOCKS).failed;
		sums_free(&f);
	}
	printf("cancelling: %.4f of the bound\n", worst);
	assert_true(worst > 0);
	assert_true(broken > 0);
}

static void chosen_data_comes_close(void **state)
{
	double worst = 0;

	for (int parts = 1; parts <= 4; parts++) {
		const struct order order = {parts, true};
		struct nib_check_result r;
		struct sums f;
		double fraction;

		sums_new(&f, &rng, 1, 1, MAX_K, TEST_SCALES_ONE, NIB_DTYPE_FP32);
		lose_all_but_the_first(&f);
		fraction = worst_of(0, NIB_OP_GEMM, &f.problem, order);
		printf("chosen, %d parts: %.4f of the bound\n", parts, fraction);
		worst = fmax(worst, fraction);
		r = sums_check(NIB_OP_GEMM, &f.problem, NIB_ARITHMETIC_BLOCKS);
		assert_int_equal(r.failed, 1);
		sums_free(&f);
	}
	assert_true(worst > 0.97);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(model_is_the_definition),
	    cmocka_unit_test(random_data_is_inside),
	    cmocka_unit_test(cancellation_is_inside),
	    cmocka_unit_test(chosen_data_comes_close),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
