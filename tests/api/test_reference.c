/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reference.c - nib_reference and nib_check: every element is computed once, at
 * the right place, and the check finds wrong values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/view.h"

static struct rng rng;

/* A problem and the memory of its views. */
struct fixture {
	struct test_nvfp4 a, b, b2;
	struct test_dense c;
	float alpha, alpha2;
	struct nib_problem problem;
};

static struct fixture make(int64_t m, int64_t n, int64_t k, int64_t batch,
			   int64_t b_batch, enum nib_dtype dtype, int64_t gap)
{
	struct fixture f = {.alpha = 0x1.234p-14f, .alpha2 = -0x1.9p-12f};

	f.a = test_nvfp4_new(&rng, m, k, batch, NIB_SCALE_LAYOUT_TILED_128X4,
			     TEST_SCALES_MIDDLE, gap, 0);
	f.b = test_nvfp4_new(&rng, n, k, b_batch, NIB_SCALE_LAYOUT_LINEAR,
			     TEST_SCALES_MIDDLE, gap, gap);
	f.b2 = test_nvfp4_new(&rng, n, k, b_batch, NIB_SCALE_LAYOUT_TILED_128X4,
			      TEST_SCALES_MIDDLE, 0, 0);
	f.c = test_dense_new(dtype, m, n, batch, gap);
	if (gap) { /* and the other way round */
		test_nvfp4_between(&f.a.view);
		test_dense_between(&f.c.view);
	}
	f.problem.a = f.a.view;
	f.problem.b = f.b.view;
	f.problem.b2 = f.b2.view;
	f.problem.c = f.c.view;
	return f;
}

static void point_at_alphas(struct fixture *f)
{
	f->problem.alpha = &f->alpha;
	f->problem.alpha2 = &f->alpha2;
}

static void drop(struct fixture *f)
{
	test_nvfp4_free(&f->a);
	test_nvfp4_free(&f->b);
	test_nvfp4_free(&f->b2);
	test_dense_free(&f->c);
}

static double element(const struct nib_fp4 *v, int64_t batch, int64_t row,
		      int64_t scale_row, int64_t i)
{
	const uint8_t byte = nib_fp4_row(v, batch, row)[i / 2];
	const uint8_t scale = *nib_fp4_scale(v, batch, scale_row, i / 16);

	return 0.5 * nib_e2m1_twice[byte >> (i % 2 * 4) & 15] *
	       (double)nib_e4m3_to_float(scale);
}

/* Exact for the scales and k of these tests: below 2^53 units. */
static double dot(const struct nib_fp4 *a, int64_t a_batch, int64_t a_row,
		  int64_t scale_row, const struct nib_fp4 *b, int64_t b_batch,
		  int64_t b_row)
{
	double sum = 0;

	for (int64_t i = 0; i < a->k; i++)
		sum += element(a, a_batch, a_row, scale_row, i) *
		       element(b, b_batch, b_row, b_row, i);
	return sum;
}

static double dual(double x, double y)
{
	return x / (1 + exp(-x)) * y;
}

static struct nib_check_result check(enum nib_op op, const struct nib_problem *problems,
				     int64_t count, int64_t sample_rows, uint64_t seed)
{
	const struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .sample_rows = sample_rows,
	    .seed = seed,
	};
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	struct nib_error err = {0};

	if (nib_check(op, problems, count, &options, &result, &err))
		fail_msg("nib_check: %s", err.message);
	return result;
}

static bool is_same(float got, float want)
{
	return nib_fp32_bits(got) == nib_fp32_bits(want);
}

/* One rounding apart, as the last bit of dual() is not the oracle's. */
static bool is_near(float got, double want, enum nib_dtype dtype)
{
	const struct nib_float_format f = nib_dtype_format(dtype);
	const double ulp = ldexp(1, -f.fraction_bits);
	const double smallest = ldexp(ulp, 2 - (1 << (f.exponent_bits - 1)));

	return fabs((double)got - want) <= ulp * fabs(want) + smallest;
}

/* ---- writing ------------------------------------------------------------ */

static void every_element_is_written(void **state)
{
	static const enum nib_dtype dtypes[3] = {NIB_DTYPE_FP32, NIB_DTYPE_FP16,
						 NIB_DTYPE_BF16};

	for (int i = 0; i < 12; i++) {
		const enum nib_dtype dtype = dtypes[i % 3];
		const bool is_dual = i & 1;
		const int64_t b_batch = i & 2 ? 1 : 3, gap = i & 4 ? 6 : 0;
		struct fixture f = make(35, 7, 48, 3, b_batch, dtype, gap);
		const struct nib_dense *c = &f.problem.c;

		point_at_alphas(&f);
		assert_ok(nib_reference(is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
					&f.problem, 1, NULL));
		for (int64_t j = 0; j < 3 * 35 * 7; j++) {
			const int64_t l = j / 245, m = j / 7 % 35, n = j % 7;
			const int64_t bl = b_batch == 1 ? 0 : l;
			double v = dot(&f.a.view, l, m, m, &f.b.view, bl, n);
			double w = dot(&f.a.view, l, m, m, &f.b2.view, bl, n);

			v *= (double)f.alpha;
			if (is_dual)
				v = dual(v, w * (double)f.alpha2);
			if (is_dual)
				assert_true(
				    is_near(nib_dense_get(c, l, m, n), v, dtype));
			else
				assert_true(
				    is_same(nib_dense_get(c, l, m, n),
					    nib_dtype_to_fp32(
						nib_fp64_to_dtype(v, dtype), dtype)));
		}
		/* The gaps are as they were. */
		for (int64_t m = 0; gap && m + 1 < 35; m++)
			for (int64_t n = 7; n < 7 + gap; n++)
				assert_memory_equal(nib_dense_at(c, 0, m, n),
						    "\x7B\x7B\x7B\x7B",
						    nib_dtype_bytes(dtype));
		drop(&f);
	}
}

static void empty_sizes_and_k_zero(void **state)
{
	struct fixture none = make(0, 5, 16, 1, 1, NIB_DTYPE_FP32, 0);
	struct fixture k0 = make(2, 3, 0, 1, 1, NIB_DTYPE_FP32, 0);

	assert_ok(nib_reference(NIB_OP_GEMM, NULL, 0, NULL));
	assert_ok(nib_reference(NIB_OP_GEMM, &none.problem, 1, NULL));
	if (nib_reference(NIB_OP_GEMM, &k0.problem, 1, NULL) == NIB_STATUS_OK)
		for (int64_t i = 0; i < 6; i++)
			assert_true(
			    is_same(nib_dense_get(&k0.problem.c, 0, i / 3, i % 3), 0));
	assert_int_equal(check(NIB_OP_GEMM, &none.problem, 1, 0, 0).checked, 0);
	drop(&none);
	drop(&k0);
}

static void nan_scales_reach_their_row_and_column_only(void **state)
{
	struct fixture f = make(4, 5, 64, 1, 1, NIB_DTYPE_FP16, 0);
	struct nib_check_result r;

	*nib_fp4_scale(&f.a.view, 0, 2, 3) = 0x7F;
	*nib_fp4_scale(&f.b.view, 0, 4, 0) = 0x7F;
	nib_reference(NIB_OP_GEMM, &f.problem, 1, NULL);
	for (int64_t i = 0; i < 20; i++)
		assert_int_equal(isnan(nib_dense_get(&f.problem.c, 0, i / 5, i % 5)) !=
				     0,
				 i / 5 == 2 || i % 5 == 4);
	assert_int_equal(check(NIB_OP_GEMM, &f.problem, 1, 0, 0).failed, 0);
	nib_dense_set_bits(&f.problem.c, 0, 2, 1, 0);
	nib_dense_set_bits(&f.problem.c, 0, 1, 1, 0x7E00);
	r = check(NIB_OP_GEMM, &f.problem, 1, 0, 0);
	assert_int_equal(r.failed, 2);
	assert_true(isinf(r.worst_fraction));
	drop(&f);
}

/* ---- a mixture of experts ----------------------------------------------- */

/*
 * Four experts with 3, 0, 130 and 2 rows; a starts at row 1 of 140.  With
 * scale_rows the scales of each expert begin at a tile of 128 rows.
 */
static void moe_equals_its_experts(void **state)
{
	static const int32_t offsets[5] = {1, 4, 4, 134, 136};
	static const int32_t scale_rows[4] = {128, 256, 256, 0};
	static const int64_t starts[4] = {1, 4, 4, 134};
	float alpha[4] = {1, 2, 0.5f, -1}, alpha2[4] = {1, 3, 1, 0.125f};

	for (int i = 0; i < 4; i++) {
		const bool is_dual = i & 1, is_padded = i & 2;
		struct fixture f = make(140, 6, 80, 1, 4, NIB_DTYPE_FP32, 0);
		struct test_nvfp4 scales =
		    test_nvfp4_new(&rng, 512, 80, 1, NIB_SCALE_LAYOUT_TILED_128X4,
				   TEST_SCALES_MIDDLE, 0, 0);
		struct nib_moe_problem moe = {
		    .problem.a = f.a.view,
		    .problem.b = f.b.view,
		    .problem.b2 = f.b2.view,
		    .problem.alpha = alpha,
		    .problem.alpha2 = alpha2,
		    .problem.c = f.c.view,
		    .row_offsets = offsets,
		};
		struct nib_check_result r = {.struct_bytes = sizeof(r)};
		struct nib_check_options options = {
		    .struct_bytes = sizeof(options),
		    .sample_rows = 7,
		    .seed = 1,
		};
		const enum nib_op op = is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;

		if (is_padded) {
			moe.problem.a.scales = scales.view.scales;
			moe.scale_rows = scale_rows;
			moe.scale_rows_total = 512;
		}
		assert_ok(nib_moe_reference(op, &moe, NULL));
		for (int64_t m = 0; m < 140; m++) {
			const int e = m < 4 ? 0 : m < 134 ? 2 : 3;
			const int64_t s = is_padded ? m - starts[e] + scale_rows[e] : m;

			for (int64_t n = 0; n < 6; n++) {
				const float got = nib_dense_get(&f.c.view, 0, m, n);
				double v, w;

				if (m < 1 || m >= 136) {
					assert_int_equal(nib_fp32_bits(got),
							 0x7B7B7B7B);
					continue;
				}
				v = (double)alpha[e] *
				    dot(&moe.problem.a, 0, m, s, &moe.problem.b, e, n);
				w = (double)alpha2[e] *
				    dot(&moe.problem.a, 0, m, s, &moe.problem.b2, e, n);
				if (is_dual)
					assert_true(
					    is_near(got, dual(v, w), NIB_DTYPE_FP32));
				else
					assert_true(is_same(got, (float)v));
			}
		}
		assert_ok(nib_moe_check(op, &moe, NULL, &r, NULL));
		assert_int_equal(r.checked, 135 * 6);
		assert_int_equal(r.failed, 0);
		nib_dense_set_bits(&f.c.view, 0, 134, 5, 0x4CBEBC20);
		assert_ok(nib_moe_check(op, &moe, NULL, &r, NULL));
		assert_int_equal(r.failed, 1);
		assert_int_equal(r.problem, 3);
		assert_int_equal(r.row, 134);
		assert_int_equal(r.col, 5);
		assert_ok(nib_moe_check(op, &moe, &options, &r, NULL));
		assert_int_equal(r.checked, 7 * 6);
		test_nvfp4_free(&scales);
		drop(&f);
	}
}

/* ---- checking ----------------------------------------------------------- */

/* What a backend would do: dequantise, multiply and add in fp32. */
static float plain_backend(const struct fixture *f, int64_t row, int64_t col,
			   bool is_dual)
{
	float x = 0, y = 0;

	for (int64_t g = 0; g < f->a.view.k; g += 16) {
		float p = 0, q = 0; /* exact */

		for (int64_t i = g; i < g + 16; i++) {
			float v = (float)element(&f->a.view, 0, row, row, i);

			p += v * (float)element(&f->b.view, 0, col, col, i);
			q += v * (float)element(&f->b2.view, 0, col, col, i);
		}
		x += p;
		y += q;
	}
	x *= f->alpha;
	y *= f->alpha2;
	return is_dual ? x / (1 + expf(-x)) * y : x;
}

static void a_plain_backend_passes_and_one_wrong_bit_does_not(void **state)
{
	static const enum nib_dtype dtypes[3] = {NIB_DTYPE_FP32, NIB_DTYPE_FP16,
						 NIB_DTYPE_BF16};

	for (int i = 0; i < 6; i++) {
		const enum nib_dtype dtype = dtypes[i % 3];
		const bool is_dual = i > 2;
		const enum nib_op op = is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		struct fixture f = make(33, 9, 240, 1, 1, dtype, 3);
		struct nib_check_result r;
		uint32_t bits;

		point_at_alphas(&f);
		for (int64_t j = 0; j < 33 * 9; j++)
			nib_dense_set_bits(
			    &f.c.view, 0, j / 9, j % 9,
			    nib_fp64_to_dtype(
				(double)plain_backend(&f, j / 9, j % 9, is_dual),
				dtype));
		r = check(op, &f.problem, 1, 0, 0);
		assert_int_equal(r.checked, 33 * 9);
		assert_int_equal(r.failed, 0);
		assert_true(r.worst_fraction > 0 && r.worst_fraction <= 1);
		assert_true(r.worst_error <= r.worst_bound);

		/* 16 bits: two units off; 32 bits: the bound is wider. */
		bits = nib_dense_get_bits(&f.c.view, 0, 30, 8);
		nib_dense_set_bits(&f.c.view, 0, 30, 8,
				   dtype ? bits + 2 : bits ^ 0x8000);
		r = check(op, &f.problem, 1, 0, 0);
		assert_int_equal(r.failed, 1);
		assert_int_equal(r.problem, 0);
		assert_int_equal(r.batch, 0);
		assert_int_equal(r.row, 30);
		assert_int_equal(r.col, 8);
		assert_true(r.worst_fraction > 1);
		assert_true(r.got == (double)nib_dense_get(&f.c.view, 0, 30, 8));
		drop(&f);
	}
}

static void silu_of_the_wrong_half_fails(void **state)
{
	struct fixture f = make(8, 8, 64, 1, 1, NIB_DTYPE_BF16, 0);
	struct nib_problem swapped;

	point_at_alphas(&f);
	swapped = f.problem;
	swapped.b = f.problem.b2;
	swapped.b2 = f.problem.b;
	nib_reference(NIB_OP_DUAL_GEMM, &f.problem, 1, NULL);
	assert_int_equal(check(NIB_OP_DUAL_GEMM, &f.problem, 1, 0, 0).failed, 0);
	assert_true(check(NIB_OP_DUAL_GEMM, &swapped, 1, 0, 0).failed > 32);
	assert_true(check(NIB_OP_GEMM, &f.problem, 1, 0, 0).failed > 32);
	drop(&f);
}

/* Poison in c fails everywhere, so failed tells which rows were looked at. */
static void samples_are_distinct_rows_chosen_by_seed(void **state)
{
	struct fixture f[2] = {make(100, 2, 16, 2, 1, NIB_DTYPE_FP32, 0),
			       make(5, 3, 32, 1, 1, NIB_DTYPE_FP32, 0)};
	struct nib_problem problems[2] = {f[0].problem, f[1].problem};
	int64_t hits[100] = {0};

	for (int64_t row = 0; row < 100; row++)
		for (int64_t i = 0; i < 4; i++)
			nib_dense_set_bits(&f[0].c.view, i / 2, row, i % 2, 0x7FC00000);
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct nib_check_result r = check(NIB_OP_GEMM, problems, 2, 10, seed);
		struct nib_check_result again =
		    check(NIB_OP_GEMM, problems, 2, 10, seed);

		assert_int_equal(r.checked, 2 * 10 * 2 + 5 * 3);
		assert_int_equal(r.failed, r.checked);
		assert_memory_equal(&r, &again, sizeof(r));
		hits[r.row]++; /* the first of the sample */
	}
	for (int64_t row = 30; row < 100; row++)
		hits[30] += hits[row];
	assert_true(hits[0] > 5 && hits[0] < 50);
	assert_true(hits[5] > 0 && hits[0] < 200);
	drop(&f[0]);
	drop(&f[1]);
}

/* A seed that is written down names the same rows in a later version. */
static void seeds_name_rows(void **state)
{
	static const int64_t rows[2][8] = {{85, 72, 77, 15, 18, 41, 63, 73},
					   {84, 22, 47, 54, 60, 52, 74, 99}};
	struct fixture f = make(100, 2, 16, 2, 1, NIB_DTYPE_FP32, 0);

	for (int64_t batch = 0; batch < 2; batch++) {
		for (int64_t i = 0; i < 400; i++)
			nib_dense_set_bits(&f.c.view, i / 200, i % 200 / 2, i % 2,
					   i / 200 == batch ? 0x7FC00000 : 0);
		for (uint64_t seed = 0; seed < 8; seed++) {
			const struct nib_check_result r =
			    check(NIB_OP_GEMM, &f.problem, 1, 1, seed);

			assert_int_equal(r.checked, 4);
			assert_int_equal(r.batch, batch);
			assert_int_equal(r.row, rows[batch][seed]);
		}
	}
	drop(&f);
}

/* ---- refusals ----------------------------------------------------------- */

static void a_scale_with_a_sign_is_refused(void **state)
{
	struct fixture f = make(3, 4, 32, 2, 2, NIB_DTYPE_FP32, 0);
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	struct nib_error err = {0};

	*nib_fp4_scale(&f.b.view, 1, 3, 1) = 0x80;
	assert_refused(nib_reference(NIB_OP_GEMM, &f.problem, 1, &err),
		       NIB_STATUS_BAD_DATA, &err, "b");
	assert_int_equal(nib_dense_get_bits(&f.c.view, 0, 0, 0), 0x7B7B7B7B);
	assert_int_equal(nib_check(NIB_OP_GEMM, &f.problem, 1, NULL, &r, NULL),
			 NIB_STATUS_BAD_DATA);
	drop(&f);
}

static void bad_arguments_are_refused(void **state)
{
	struct fixture f = make(3, 4, 32, 1, 1, NIB_DTYPE_FP32, 0);
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .sample_rows = -1,
	};
	struct nib_check_options unknown = {
	    .struct_bytes = sizeof(unknown),
	    .arithmetic = (enum nib_arithmetic)3,
	};
	struct nib_problem p;

#define REFUSED(change, op)                                                            \
	do {                                                                           \
		p = f.problem;                                                         \
		change;                                                                \
		assert_int_equal(nib_reference(op, &p, 1, NULL),                       \
				 NIB_STATUS_BAD_ARGUMENT);                             \
		assert_int_equal(nib_check(op, &p, 1, NULL, &r, NULL),                 \
				 NIB_STATUS_BAD_ARGUMENT);                             \
	} while (0)
	REFUSED(p.a.k = 24, NIB_OP_GEMM);
	REFUSED(p.a.k = 16, NIB_OP_GEMM);
	REFUSED(p.b.rows = 5, NIB_OP_GEMM);
	REFUSED(p.c.rows = 2, NIB_OP_GEMM);
	REFUSED(p.c.dtype = (enum nib_dtype)7, NIB_OP_GEMM);
	REFUSED(p.b2.rows = 3, NIB_OP_DUAL_GEMM);
	REFUSED(p.c.data = NULL, NIB_OP_GEMM);
	REFUSED(p.a.codes = NULL, NIB_OP_GEMM);
	REFUSED((void)0, NIB_OP_GEMV);
	REFUSED((void)0, (enum nib_op)9);
	REFUSED(p.b_packed = (const struct nib_packed *)&f, NIB_OP_GEMM);
	REFUSED(p.c.data = f.a.view.codes, NIB_OP_GEMM);
#undef REFUSED
	assert_int_equal(nib_reference(NIB_OP_GEMM, NULL, INT32_MAX, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_reference(NIB_OP_GEMM, NULL, -1, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_ok(nib_reference(NIB_OP_GEMM, NULL, 0, NULL));
	assert_int_equal(nib_check(NIB_OP_GEMM, &f.problem, 1, &options, &r, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_check(NIB_OP_GEMM, &f.problem, 1, &unknown, &r, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	r.struct_bytes = 0;
	assert_int_equal(nib_check(NIB_OP_GEMM, &f.problem, 1, NULL, &r, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_check(NIB_OP_GEMM, &f.problem, 1, NULL, NULL, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	drop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_element_is_written),
	    cmocka_unit_test(empty_sizes_and_k_zero),
	    cmocka_unit_test(nan_scales_reach_their_row_and_column_only),
	    cmocka_unit_test(moe_equals_its_experts),
	    cmocka_unit_test(a_plain_backend_passes_and_one_wrong_bit_does_not),
	    cmocka_unit_test(silu_of_the_wrong_half_fails),
	    cmocka_unit_test(samples_are_distinct_rows_chosen_by_seed),
	    cmocka_unit_test(seeds_name_rows),
	    cmocka_unit_test(a_scale_with_a_sign_is_refused),
	    cmocka_unit_test(bad_arguments_are_refused),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
