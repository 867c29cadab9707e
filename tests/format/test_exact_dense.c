/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_exact_dense.c - exact sums of floats times NVFP4 and their rounding, compared
 * with sums that count powers of two one by one.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/bignum.h"
#include "common/data.h"
#include "common/float_mode.h"
#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/exact_dense.h"
#include "format/int8.h"
#include "format/view.h"

static struct rng rng;

/* ---- rows ---------------------------------------------------------------- */

/* A row of A, a row of B, and both decoded. */
struct rows {
	int64_t k;
	struct test_nvfp4 b;
	struct test_dense x;
	struct nib_exact_dense a;
	struct nib_exact_weights w;
};

static struct rows rows_new(int64_t k, enum nib_dtype dtype, enum test_scales scales)
{
	const size_t n = (size_t)k;
	struct rows r = {.k = k};

	r.b = test_nvfp4_new(&rng, 3, k, 2, NIB_SCALE_LAYOUT_TILED_128X4, scales, 0, 0);
	r.x = test_dense_new(dtype, 3, k, 2, 5);
	r.a.x = guard_new(n * sizeof(double));
	r.a.is_narrow = guard_new(n / NIB_NVFP4_BLOCK);
	r.w.row.twice = guard_new(n * sizeof(int16_t));
	r.w.row.scale = guard_new(n / NIB_NVFP4_BLOCK * sizeof(int32_t));
	r.w.twice = guard_new(n * sizeof(double));
	return r;
}

static void rows_free(struct rows *r)
{
	const size_t n = (size_t)r->k;

	guard_free(r->a.x, n * sizeof(double));
	guard_free(r->a.is_narrow, n / NIB_NVFP4_BLOCK);
	guard_free(r->w.row.twice, n * sizeof(int16_t));
	guard_free(r->w.row.scale, n / NIB_NVFP4_BLOCK * sizeof(int32_t));
	guard_free(r->w.twice, n * sizeof(double));
	test_nvfp4_free(&r->b);
	test_dense_free(&r->x);
}

/* The row that all tests look at is the last one of the second batch. */
#define BATCH 1
#define ROW   2

static void set_x(const struct rows *r, int64_t i, float x)
{
	nib_dense_set_bits(&r->x.view, BATCH, ROW, i,
			   nib_fp64_to_dtype(nib_fp32_to_fp64(x), r->x.view.dtype));
}

static float get_x(const struct rows *r, int64_t i)
{
	return nib_dense_get(&r->x.view, BATCH, ROW, i);
}

static void set_w(const struct rows *r, int64_t i, unsigned code, uint8_t scale)
{
	uint8_t *byte = nib_fp4_row(&r->b.view, BATCH, ROW) + i / 2;

	*byte = (uint8_t)(i & 1 ? (*byte & 15) | code << 4 : (*byte & 0xF0) | code);
	*nib_fp4_scale(&r->b.view, BATCH, ROW, i / NIB_NVFP4_BLOCK) = scale;
}

/* e2m1 * e4m3 in units of 2^-10. */
static int64_t get_w(const struct rows *r, int64_t i)
{
	static const int twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
	const int code = nib_fp4_row(&r->b.view, BATCH, ROW)[i / 2] >> (i % 2 * 4) & 15;
	const int byte = *nib_fp4_scale(&r->b.view, BATCH, ROW, i / NIB_NVFP4_BLOCK);
	const int64_t scale =
	    byte < 8 ? byte : (int64_t)(8 + byte % 8) << (byte / 8 - 1);

	return (code & 8 ? -1 : 1) * twice[code & 7] * scale;
}

static struct nib_exact_wide dot(struct rows *r, enum nib_activations activations)
{
	struct nib_exact_wide s;

	memset(&s, GUARD_POISON, sizeof(s));
	nib_exact_decode_dense(&r->a, &r->x.view, activations, BATCH, ROW);
	nib_exact_decode_weights(&r->w, &r->b.view, BATCH, ROW);
	nib_exact_dot_dense(&s, &r->a, &r->w, r->k);
	return s;
}

/* ---- the slow way -------------------------------------------------------- */

struct slow {
	struct bignum sum, products, magnitude;
};

/* 2^-10, the unit of get_w(). */
static void unit(struct bignum *s)
{
	*s = bignum_times(s, 0x1p-10f);
}

/* x[i] * factor[i] are the values of A, as values() has them. */
static struct slow *slow_dot(const struct rows *r, const float *x, const int8_t *factor)
{
	struct slow *s = calloc(1, sizeof(*s));
	struct bignum block;

	assert_non_null(s);
	for (int64_t g = 0; g < r->k; g += NIB_NVFP4_BLOCK) {
		int sign;

		memset(&block, 0, sizeof(block));
		for (int64_t i = g; i < g + NIB_NVFP4_BLOCK; i++) {
			const int64_t w = get_w(r, i) * factor[i];

			bignum_add(&block, x[i], w);
			bignum_add(&s->sum, x[i], w);
			bignum_add(&s->products, fabsf(x[i]), w < 0 ? -w : w);
		}
		sign = bignum_sign(&block);
		for (int i = 0; i < BIGNUM_BITS; i++)
			s->magnitude.count[i] += sign * block.count[i];
	}
	unit(&s->sum);
	unit(&s->products);
	unit(&s->magnitude);
	return s;
}

static float *values(const struct rows *r, enum nib_activations activations,
		     int8_t *factor)
{
	float *x = malloc((size_t)r->k * sizeof(*x) + 1);

	assert_non_null(x);
	for (int64_t i = 0; i < r->k; i++) {
		x[i] = get_x(r, i);
		factor[i] = 1;
	}
	if (activations == NIB_ACTIVATIONS_DENSE)
		return x;
	for (int64_t g = 0; g < r->k; g += NIB_NVFP4_BLOCK) {
		const float scale = nib_int8_block(factor + g, x + g);

		for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
			x[g + i] = scale;
	}
	return x;
}

static void rounds_alike(const struct nib_exact_wide *got, const struct bignum *want,
			 float alpha)
{
	static const enum nib_dtype dtypes[3] = {NIB_DTYPE_FP32, NIB_DTYPE_FP16,
						 NIB_DTYPE_BF16};
	const struct bignum scaled = bignum_times(want, alpha);
	const bool is_minus_zero = bignum_sign(want) == 0 && signbit(alpha);

	for (int i = 0; i < 3; i++) {
		const struct nib_float_format f = nib_dtype_format(dtypes[i]);
		uint64_t bits = bignum_round(&scaled, f);

		/* alpha 0 keeps the sign of the sum. */
		if (alpha == 0 && bignum_sign(want))
			bits = nib_sign_bits(f, (bignum_sign(want) < 0) !=
						    (signbit(alpha) != 0));
		if (is_minus_zero)
			bits = nib_sign_bits(f, true);
		assert_int_equal(nib_exact_wide_round(got, alpha, dtypes[i]), bits);
	}
	assert_true(nib_exact_wide_double(got, alpha) == bignum_double(&scaled));
}

/* size: of an upper bound that must be tight. */
static void is_just_above(double size, const struct bignum *want)
{
	const double exact = bignum_double(want);

	assert_true(size >= exact && size <= exact * (1 + 0x1p-30));
}

static void dot_is_right(struct rows *r, enum nib_activations activations)
{
	static const float alphas[] = {
	    1,	     -1,      0,	-0.0f,	  0x1p-149f, -0x1.8p-140f,
	    FLT_MIN, FLT_MAX, -FLT_MAX, 1.0f / 3, 0x1p100f,  0x1.FFFFFEp-40f};
	const struct nib_exact_wide s = dot(r, activations);
	int8_t *factor = malloc((size_t)r->k + 1);
	float *x = values(r, activations, factor);
	struct slow *want = slow_dot(r, x, factor);

	assert_false(s.is_nan);
	assert_int_equal(s.infinite, 0);
	for (int i = 0; i < 12; i++)
		rounds_alike(&s, &want->sum, alphas[i]);
	for (int i = 0; i < 4; i++) {
		const uint32_t bits = (uint32_t)rng_next(&rng);

		if ((bits & 0x7F800000) != 0x7F800000)
			rounds_alike(&s, &want->sum, nib_fp32_from_bits(bits));
	}
	is_just_above(s.products, &want->products);
	if (activations == NIB_ACTIVATIONS_INT8)
		is_just_above(s.magnitude, &want->magnitude);
	else
		assert_true(s.magnitude >= bignum_double(&want->magnitude) &&
			    s.magnitude <= s.products);
	free(want);
	free(x);
	free(factor);
}

/* ---- data ---------------------------------------------------------------- */

enum data {
	DATA_NORMAL,
	DATA_ANY,    /* every finite bit pattern as likely */
	DATA_TINY,   /* subnormals and what is near them */
	DATA_LARGE,  /* the largest numbers of the type */
	DATA_STEPS,  /* exponents that spread a little more from block to block
                */
	DATA_CANCEL, /* all but a last bit of the whole sum */
	DATA_ZEROS,  /* mostly, of both signs */
	DATA_COUNT
};

static float largest_of(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP16	 ? 65504.0f
	       : dtype == NIB_DTYPE_BF16 ? 0x1.FEp127f
					 : FLT_MAX;
}

static float smallest_of(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP16	 ? 0x1p-24f
	       : dtype == NIB_DTYPE_BF16 ? 0x1p-133f
					 : 0x1p-149f;
}

static float random_finite(enum nib_dtype dtype)
{
	for (;;) {
		const float x = nib_dtype_to_fp32((uint32_t)rng_next(&rng), dtype);

		if (isfinite(x))
			return x;
	}
}

static float value_of(enum data data, enum nib_dtype dtype, int64_t i)
{
	const float sign = rng_next(&rng) & 1 ? 1 : -1;
	const float small = smallest_of(dtype), normal = (float)rng_normal(&rng);
	const int spread = (int)(i / NIB_NVFP4_BLOCK) % 60;

	switch (data) {
	case DATA_ANY:
		return random_finite(dtype);
	case DATA_TINY:
		return sign * small * (float)rng_below(&rng, 5000);
	case DATA_LARGE:
		return sign * largest_of(dtype);
	case DATA_STEPS:
		return ldexpf(normal, -(int)rng_below(&rng, spread + 1));
	case DATA_ZEROS:
		return i % 11 ? sign * 0 : normal;
	default:
		return normal;
	}
}

static void fill(const struct rows *r, enum data data)
{
	const enum nib_dtype dtype = r->x.view.dtype;

	for (int64_t i = 0; i < r->k; i++)
		set_x(r, i, value_of(data, dtype, i));
	if (data != DATA_CANCEL || r->k == 0)
		return;
	for (int64_t i = 0; i < r->k; i++) {
		set_x(r, i, i & 1 ? -get_x(r, i - 1) : random_finite(dtype));
		set_w(r, i, 1 + (unsigned)(i / 2) % 7, 0x7E);
	}
	set_x(r, r->k - 1, -0.0f);
	set_x(r, r->k - 2, smallest_of(dtype));
}

static void sums_equal_the_slow_ones(void **state)
{
	static const int64_t ks[] = {0, 16, 48, 1024};
	const int turns = test_is_small() ? 1 : 3;

	for (int i = 0; i < 4 * DATA_COUNT * 3 * turns; i++) {
		const enum nib_dtype dtype = (enum nib_dtype)(i % 3);
		const enum data data = (enum data)(i / 3 % DATA_COUNT);
		struct rows r = rows_new(ks[i / 3 / DATA_COUNT % 4], dtype,
					 (enum test_scales)(i % 2));

		fill(&r, data);
		dot_is_right(&r, NIB_ACTIVATIONS_DENSE);
		dot_is_right(&r, NIB_ACTIVATIONS_INT8);
		rows_free(&r);
	}
}

/* ---- chosen sums --------------------------------------------------------- */

static void largest_and_smallest_sums_are_exact(void **state)
{
	const int64_t k = test_is_small() ? 1 << 14 : NIB_MAX_K;
	struct rows r = rows_new(k, NIB_DTYPE_FP32, TEST_SCALES_ONE);
	const struct bignum zero = {{0}};
	struct bignum want = zero;
	struct nib_exact_wide s;

	for (int64_t i = 0; i < k; i++) {
		set_x(&r, i, -FLT_MAX);
		set_w(&r, i, 7, 0x7E);
	}
	bignum_add(&want, -FLT_MAX, k * 2688);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	rounds_alike(&s, &want, 1);
	rounds_alike(&s, &want, 0x1p-40f);
	assert_true(s.products >= -bignum_double(&want));
	assert_true(s.products <= -bignum_double(&want) * (1 + 0x1p-30));

	/* Half of them undo the others, but for 2^-149 * 2^-10. */
	for (int64_t i = 0; i < k / 2; i++)
		set_x(&r, i, FLT_MAX);
	set_x(&r, 0, 0x1p-149f);
	for (int64_t i = 0; i < NIB_NVFP4_BLOCK; i++) {
		set_w(&r, i, i ? 0 : 1, 1);
		set_w(&r, k - 1 - i, 0, 0x7E);
	}
	want = zero;
	bignum_add(&want, 0x1p-149f, 1);
	want = bignum_times(&want, 0x1p-10f);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	rounds_alike(&s, &want, 1);
	rounds_alike(&s, &want, 0x1p100f);
	rounds_alike(&s, &want, FLT_MAX);
	rows_free(&r);
}

/* 1 + 2^-24 is a tie, and tiny is far away. */
static void tie_is_broken(struct rows *r, float tiny, bool is_odd)
{
	float want = is_odd ? 0x1.000002p0f : 1;
	struct nib_exact_wide s;

	set_x(r, 0, want);
	set_x(r, 17, 0x1p-24f);
	set_x(r, 40, tiny);
	if (tiny > 0 || (tiny == 0 && is_odd))
		want += 0x1p-23f;
	s = dot(r, NIB_ACTIVATIONS_DENSE);
	for (int sign = -1; sign < 2; sign += 2)
		assert_int_equal(nib_exact_wide_round(&s, (float)sign, NIB_DTYPE_FP32),
				 nib_fp32_bits((float)sign * want));
}

static void last_bits_break_ties(void **state)
{
	struct rows r = rows_new(48, NIB_DTYPE_FP32, TEST_SCALES_ONE);

	for (int64_t i = 0; i < 48; i++) {
		set_x(&r, i, 0);
		set_w(&r, i, 2, 0x38);
	}
	for (int i = 0; i < 2; i++) {
		tie_is_broken(&r, 0, i);
		for (int exponent = -149; exponent < -25; exponent++) {
			tie_is_broken(&r, ldexpf(1, exponent), i);
			tie_is_broken(&r, -ldexpf(1, exponent), i);
		}
	}
	rows_free(&r);
}

/*
 * 15 large products and the least one that is 2^-spread of them.  The next
 * block takes the large ones away: what is left is in the last bit of the first
 * partial, of 53 bits and more.
 */
static void no_bit_of_a_block_is_lost(void **state)
{
	struct rows r = rows_new(32, NIB_DTYPE_FP32, TEST_SCALES_ONE);

	for (int spread = 25; spread < 70; spread++) {
		const float least = ldexpf(1, -spread);
		struct nib_exact_wide s;

		for (int64_t i = 0; i < 32; i++) {
			set_x(&r, i, i < 16 ? 0x1.FFFFFEp-1f : -0x1.FFFFFEp-1f);
			set_w(&r, i, 7, 0x3F); /* 6, 1.875 */
		}
		set_x(&r, 5, least);
		set_w(&r, 5, 1, 0x3F);
		set_x(&r, 20, 0);
		s = dot(&r, NIB_ACTIVATIONS_DENSE);
		assert_true(nib_exact_wide_double(&s, 1) ==
			    (double)least * 0.5 * 1.875);
	}
	rows_free(&r);
}

/* ---- inf and NaN --------------------------------------------------------- */

struct special {
	float x[2];
	unsigned code[2];
	float want; /* of alpha = 1; 0 is NaN */
};

static void infinities_follow_ieee(void **state)
{
	static const struct special cases[] = {
	    {{INFINITY, 0}, {1, 2}, INFINITY},
	    {{-INFINITY, 5}, {1, 2}, -INFINITY},
	    {{INFINITY, -FLT_MAX}, {9, 2}, -INFINITY},
	    {{-INFINITY, 1}, {15, 2}, INFINITY},
	    {{INFINITY, INFINITY}, {1, 2}, INFINITY},
	    {{INFINITY, -INFINITY}, {1, 10}, INFINITY},
	    {{INFINITY, -INFINITY}, {1, 2}, 0},
	    {{INFINITY, INFINITY}, {1, 9}, 0},
	    {{INFINITY, 1}, {0, 2}, 0},
	    {{INFINITY, INFINITY}, {8, 2}, 0},
	    {{NAN, 1}, {1, 2}, 0},
	    {{NAN, INFINITY}, {0, 2}, 0},
	};

	for (int i = 0; i < 12 * 2 * 3; i++) {
		const struct special *c = &cases[i / 6];
		const enum nib_dtype dtype = (enum nib_dtype)(i % 3);
		struct rows r = rows_new(64, dtype, TEST_SCALES_MIDDLE);
		/* In one block, or in two. */
		const int64_t at[2] = {3, i / 3 % 2 ? 4 : 40};
		struct nib_exact_wide s;

		fill(&r, DATA_NORMAL);
		for (int j = 0; j < 2; j++) {
			set_x(&r, at[j], c->x[j]);
			set_w(&r, at[j], c->code[j], 0x38);
		}
		s = dot(&r, NIB_ACTIVATIONS_DENSE);
		assert_true(isfinite(s.products) && isfinite(s.magnitude));
		assert_true(isfinite(s.largest_x));
		if (c->want == 0) {
			assert_true(s.is_nan);
			assert_int_equal(nib_exact_wide_round(&s, 1, NIB_DTYPE_FP16),
					 0x7E00);
			assert_true(isnan(nib_exact_wide_double(&s, 0)));
		} else {
			const double want = (double)c->want;

			assert_false(s.is_nan);
			assert_true(nib_exact_wide_double(&s, 1) == want);
			assert_true(nib_exact_wide_double(&s, -0x1p-149f) == -want);
			assert_true(nib_exact_wide_double(&s, -INFINITY) == -want);
			assert_true(isnan(nib_exact_wide_double(&s, 0)));
			assert_true(isnan(nib_exact_wide_double(&s, NAN)));
		}
		s = dot(&r, NIB_ACTIVATIONS_INT8);
		assert_true(s.is_nan);
		rows_free(&r);
	}
}

static void other_nans_are_seen(void **state)
{
	struct rows r = rows_new(32, NIB_DTYPE_BF16, TEST_SCALES_ONE);
	struct nib_exact_wide s;

	fill(&r, DATA_NORMAL);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	assert_false(s.is_nan);
	assert_true(isnan(nib_exact_wide_double(&s, NAN)));
	assert_true(isinf(nib_exact_wide_double(&s, INFINITY)));
	/* A zero scale makes zeros, a NaN makes NaN, of any x. */
	set_w(&r, 20, 7, 0);
	set_w(&r, 0, 7, 0);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	assert_true(nib_exact_wide_double(&s, 1) == 0 && s.products == 0);
	assert_true(isnan(nib_exact_wide_double(&s, -INFINITY)));
	set_x(&r, 20, INFINITY);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	assert_true(s.is_nan);
	set_x(&r, 20, 0);
	set_w(&r, 20, 7, 0x7F);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	assert_true(s.is_nan);
	s = dot(&r, NIB_ACTIVATIONS_INT8);
	assert_true(s.is_nan);
	rows_free(&r);
}

static void float_modes_change_nothing(void **state)
{
	static const int modes[] = {MODE_DOWN, MODE_UP, MODE_ZERO, MODE_FLUSH};

	for (int i = 0; i < 4 * DATA_COUNT * 3 * 2; i++) {
		const enum nib_activations activations =
		    i % 2 ? NIB_ACTIVATIONS_INT8 : NIB_ACTIVATIONS_DENSE;
		struct rows r =
		    rows_new(256, (enum nib_dtype)(i / 2 % 3), TEST_SCALES_ANY);
		struct nib_exact_wide s, t;

		fill(&r, (enum data)(i / 6 % DATA_COUNT));
		s = dot(&r, activations);
		test_mode_set(modes[i / 6 / DATA_COUNT]);
		t = dot(&r, activations);
		test_mode_set(0);
		for (int j = 0; j < 20; j++) {
			const float alpha = random_finite(NIB_DTYPE_FP32);

			assert_int_equal(
			    nib_exact_wide_round(&s, alpha, NIB_DTYPE_FP32),
			    nib_exact_wide_round(&t, alpha, NIB_DTYPE_FP32));
			assert_true(nib_exact_wide_double(&s, alpha) ==
				    nib_exact_wide_double(&t, alpha));
		}
		assert_true(fabs(s.products - t.products) <= s.products * 0x1p-40);
		rows_free(&r);
	}
}

/* What the bounds are made of. */
static void rows_know_their_extremes(void **state)
{
	struct rows r = rows_new(64, NIB_DTYPE_FP32, TEST_SCALES_ONE);
	struct nib_exact_wide s;

	for (int64_t i = 0; i < 64; i++) {
		set_x(&r, i, (float)(i % 7) - 3);
		set_w(&r, i, i == 5 ? 13 : 2, 0x38);
	}
	set_x(&r, 33, -0x1p-126f);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	assert_true(s.largest_x == 3 && s.largest_w == 3);
	assert_true(s.scales == 64);
	assert_true(s.subnormal == 0);
	set_x(&r, 33, -0x1p-127f);
	set_x(&r, 34, -77);
	s = dot(&r, NIB_ACTIVATIONS_DENSE);
	assert_true(s.largest_x == 77);
	assert_true(s.subnormal == 66 * 0x1p-126);
	s = dot(&r, NIB_ACTIVATIONS_INT8);
	assert_true(s.subnormal == 0);
	rows_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sums_equal_the_slow_ones),
	    cmocka_unit_test(largest_and_smallest_sums_are_exact),
	    cmocka_unit_test(last_bits_break_ties),
	    cmocka_unit_test(no_bit_of_a_block_is_lost),
	    cmocka_unit_test(infinities_follow_ieee),
	    cmocka_unit_test(other_nans_are_seen),
	    cmocka_unit_test(float_modes_change_nothing),
	    cmocka_unit_test(rows_know_their_extremes),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
