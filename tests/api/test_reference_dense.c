/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reference_dense.c - nib_reference and nib_check with an A that is dense or
 * rounded to int8: rows, columns and rounding are right, and the check finds wrong
 * values.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/int8.h"
#include "format/view.h"

#define DENSE NIB_ACTIVATIONS_DENSE
#define INT8  NIB_ACTIVATIONS_INT8

static struct rng rng;

/* A problem and the memory of its views. */
struct fixture {
	struct test_dense x, c;
	struct test_nvfp4 b, b2;
	float alpha, alpha2;
	struct nib_problem problem;
};

struct sizes {
	int64_t m, n, k, batch, b_batch, gap;
};

static struct fixture make(struct sizes s, enum nib_activations activations,
			   enum nib_dtype x_dtype, enum nib_dtype dtype)
{
	struct fixture f = {.alpha = 0x1.234p-4f, .alpha2 = -0x1.9p-3f};

	f.x = test_dense_new(x_dtype, s.m, s.k, s.batch, s.gap);
	f.b = test_nvfp4_new(&rng, s.n, s.k, s.b_batch, NIB_SCALE_LAYOUT_LINEAR,
			     TEST_SCALES_MIDDLE, s.gap, s.gap);
	f.b2 = test_nvfp4_new(&rng, s.n, s.k, s.b_batch, NIB_SCALE_LAYOUT_TILED_128X4,
			      TEST_SCALES_MIDDLE, 0, 0);
	f.c = test_dense_new(dtype, s.m, s.n, s.batch, s.gap);
	if (s.gap) {
		test_dense_between(&f.x.view);
		test_dense_between(&f.c.view);
	}
	for (int64_t i = 0; i < s.batch * s.m * s.k; i++)
		nib_dense_set_bits(&f.x.view, i / s.k / s.m, i / s.k % s.m, i % s.k,
				   nib_fp64_to_dtype(rng_normal(&rng), x_dtype));
	f.problem.x = f.x.view;
	f.problem.activations = activations;
	/* a is ignored, whatever it holds. */
	memset(&f.problem.a, GUARD_POISON, sizeof(f.problem.a));
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
	test_dense_free(&f->x);
	test_nvfp4_free(&f->b);
	test_nvfp4_free(&f->b2);
	test_dense_free(&f->c);
}

/* ---- the slow way ------------------------------------------------------- */

static double weight(const struct nib_fp4 *v, int64_t batch, int64_t row, int64_t i)
{
	const uint8_t byte = nib_fp4_row(v, batch, row)[i / 2];
	const uint8_t scale = *nib_fp4_scale(v, batch, row, i / 16);

	return 0.5 * nib_e2m1_twice[byte >> (i % 2 * 4) & 15] *
	       (double)nib_e4m3_to_float(scale);
}

static double value(const struct nib_dense *x, enum nib_activations activations,
		    int64_t batch, int64_t row, int64_t i)
{
	float block[NIB_NVFP4_BLOCK];
	int8_t codes[NIB_NVFP4_BLOCK];
	float scale;

	if (activations == DENSE)
		return (double)nib_dense_get(x, batch, row, i);
	for (int64_t j = 0; j < NIB_NVFP4_BLOCK; j++)
		block[j] = nib_dense_get(x, batch, row, i / 16 * 16 + j);
	scale = nib_int8_block(codes, block);
	return codes[i % 16] * (double)scale;
}

/*
 * Within 2^-44: x of deviation 1 and at most 128 terms.  size (may be NULL): of
 * the products.
 */
static double dot(const struct nib_problem *p, int64_t x_batch, int64_t x_row,
		  const struct nib_fp4 *b, int64_t b_batch, int64_t b_row)
{
	double sum = 0;

	for (int64_t i = 0; i < b->k; i++)
		sum += value(&p->x, p->activations, x_batch, x_row, i) *
		       weight(b, b_batch, b_row, i);
	return sum;
}

static double dual(double x, double y)
{
	return x / (1 + exp(-x)) * y;
}

/* One unit apart, as want is not exact; at least 2^-30 of what cancels. */
static bool is_near(float got, double want, enum nib_dtype dtype)
{
	const struct nib_float_format f = nib_dtype_format(dtype);
	const double ulp = ldexp(1, -f.fraction_bits);

	return fabs((double)got - want) <= ulp * fabs(want) + 0x1p-24;
}

static struct nib_check_result check(enum nib_op op, const struct nib_problem *problem)
{
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	struct nib_error err = {0};

	if (nib_check(op, problem, 1, NULL, &result, &err))
		fail_msg("nib_check: %s", err.message);
	return result;
}

/* ---- writing ------------------------------------------------------------ */

static void every_element_is_written(void **state)
{
	for (int i = 0; i < 3 * 3 * 2 * 2 * 2; i++) {
		const enum nib_dtype x_dtype = (enum nib_dtype)(i % 3);
		const enum nib_dtype dtype = (enum nib_dtype)(i / 3 % 3);
		const bool is_dual = i / 9 % 2;
		const struct sizes s = {35,	      7, 48, 3, i / 18 % 2 ? 1 : 3,
					i & 1 ? 6 : 0};
		struct fixture f = make(s, i / 36 ? INT8 : DENSE, x_dtype, dtype);
		const struct nib_dense *c = &f.problem.c;

		point_at_alphas(&f);
		assert_ok(nib_reference(is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
					&f.problem, 1, NULL));
		for (int64_t j = 0; j < 3 * 35 * 7; j++) {
			const int64_t l = j / 245, m = j / 7 % 35, n = j % 7;
			const int64_t bl = s.b_batch == 1 ? 0 : l;
			double v =
			    dot(&f.problem, l, m, &f.b.view, bl, n) * (double)f.alpha;

			if (is_dual)
				v = dual(v, dot(&f.problem, l, m, &f.b2.view, bl, n) *
						(double)f.alpha2);
			assert_true(is_near(nib_dense_get(c, l, m, n), v, dtype));
		}
		for (int64_t m = 0; s.gap && m + 1 < 35; m++)
			for (int64_t n = 7; n < 7 + s.gap; n++)
				assert_memory_equal(nib_dense_at(c, 0, m, n),
						    "\x7B\x7B\x7B\x7B",
						    nib_dtype_bytes(dtype));
		assert_int_equal(
		    check(is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, &f.problem).failed,
		    0);
		drop(&f);
	}
}

static void empty_sizes_and_k_zero(void **state)
{
	struct fixture none = make((struct sizes){0, 5, 16, 1, 1, 0}, DENSE,
				   NIB_DTYPE_BF16, NIB_DTYPE_FP32);
	struct fixture k0 = make((struct sizes){2, 3, 0, 1, 1, 0}, INT8, NIB_DTYPE_FP16,
				 NIB_DTYPE_FP32);

	assert_ok(nib_reference(NIB_OP_GEMM, &none.problem, 1, NULL));
	assert_int_equal(check(NIB_OP_GEMM, &none.problem).checked, 0);
	for (int i = 0; i < 2; i++) {
		k0.problem.activations = i ? DENSE : INT8;
		memset(k0.c.view.data, GUARD_POISON, k0.c.bytes);
		assert_ok(nib_reference(NIB_OP_GEMM, &k0.problem, 1, NULL));
		for (int64_t j = 0; j < 6; j++)
			assert_int_equal(
			    nib_dense_get_bits(&k0.problem.c, 0, j / 3, j % 3), 0);
		assert_int_equal(check(NIB_OP_GEMM, &k0.problem).failed, 0);
	}
	drop(&none);
	drop(&k0);
}

static void problems_of_a_group_keep_their_k(void **state)
{
	struct fixture f[2] = {make((struct sizes){3, 2, 16, 1, 1, 0}, DENSE,
				    NIB_DTYPE_FP16, NIB_DTYPE_FP32),
			       make((struct sizes){20, 5, 128, 1, 1, 0}, DENSE,
				    NIB_DTYPE_FP16, NIB_DTYPE_FP32)};
	const struct nib_problem problems[2] = {f[0].problem, f[1].problem};

	assert_ok(nib_reference(NIB_OP_GEMM, problems, 2, NULL));
	for (int i = 0; i < 2; i++)
		for (int64_t j = 0; j < f[i].c.view.rows * f[i].c.view.cols; j++) {
			const int64_t cols = f[i].c.view.cols;

			assert_true(is_near(
			    nib_dense_get(&f[i].c.view, 0, j / cols, j % cols),
			    dot(&problems[i], 0, j / cols, &problems[i].b, 0, j % cols),
			    NIB_DTYPE_FP32));
		}
	drop(&f[0]);
	drop(&f[1]);
}

/* ---- inf and NaN -------------------------------------------------------- */

static void special_values_stay_in_their_rows(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct fixture f =
		    make((struct sizes){4, 5, 64, 1, 1, 0}, i ? INT8 : DENSE,
			 NIB_DTYPE_BF16, NIB_DTYPE_FP32);

		nib_dense_set_bits(&f.x.view, 0, 1, 20, 0xFF80); /* -inf */
		nib_dense_set_bits(&f.x.view, 0, 3, 63, 0x7FC0);
		*nib_fp4_scale(&f.b.view, 0, 4, 0) = 0x7F;
		nib_reference(NIB_OP_GEMM, &f.problem, 1, NULL);
		for (int64_t j = 0; j < 20; j++) {
			const int64_t row = j / 5, col = j % 5;
			const double w = weight(&f.b.view, 0, col, 20);
			const float got = nib_dense_get(&f.c.view, 0, row, col);

			if (row == 3 || col == 4 || (row == 1 && (i || w == 0)))
				assert_true(isnan(got));
			else if (row == 1)
				assert_true(got == (w > 0 ? -INFINITY : INFINITY));
			else
				assert_true(isfinite(got));
		}
		assert_int_equal(check(NIB_OP_GEMM, &f.problem).failed, 0);
		nib_dense_set_bits(&f.c.view, 0, 1, 0, 0x7F7FFFFF);
		nib_dense_set_bits(&f.c.view, 0, 3, 1, 0);
		nib_dense_set_bits(&f.c.view, 0, 2, 2, 0x7FC00000);
		assert_int_equal(check(NIB_OP_GEMM, &f.problem).failed, 3);
		drop(&f);
	}
}

/* ---- a mixture of experts ----------------------------------------------- */

static void moe_equals_its_experts(void **state)
{
	static const int32_t offsets[5] = {1, 4, 4, 36, 38};
	static const float alpha[4] = {1, 2, 0.5f, -1}, alpha2[4] = {1, 3, 1, 0.125f};

	for (int i = 0; i < 12; i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		struct fixture f =
		    make((struct sizes){40, 6, 80, 1, 4, 0}, i & 2 ? INT8 : DENSE,
			 (enum nib_dtype)(i / 4), NIB_DTYPE_FP32);
		const struct nib_moe_problem moe = {
		    .problem.x = f.x.view,
		    .problem.activations = f.problem.activations,
		    .problem.b = f.b.view,
		    .problem.b2 = f.b2.view,
		    .problem.alpha = alpha,
		    .problem.alpha2 = alpha2,
		    .problem.c = f.c.view,
		    .row_offsets = offsets,
		};
		struct nib_check_result r = {.struct_bytes = sizeof(r)};

		assert_ok(nib_moe_reference(op, &moe, NULL));
		for (int64_t j = 0; j < 40 * 6; j++) {
			const int64_t m = j / 6, n = j % 6;
			const int e = m < 4 ? 0 : m < 36 ? 2 : 3;
			const float got = nib_dense_get(&f.c.view, 0, m, n);
			double v;

			if (m < 1 || m >= 38) {
				assert_int_equal(nib_fp32_bits(got), 0x7B7B7B7B);
				continue;
			}
			v = dot(&f.problem, 0, m, &f.b.view, e, n) * (double)alpha[e];
			if (i & 1)
				v = dual(v, dot(&f.problem, 0, m, &f.b2.view, e, n) *
						(double)alpha2[e]);
			assert_true(is_near(got, v, NIB_DTYPE_FP32));
		}
		assert_ok(nib_moe_check(op, &moe, NULL, &r, NULL));
		assert_int_equal(r.checked, 37 * 6);
		assert_int_equal(r.failed, 0);
		nib_dense_set_bits(&f.c.view, 0, 36, 5, 0x4CBEBC20);
		assert_ok(nib_moe_check(op, &moe, NULL, &r, NULL));
		assert_int_equal(r.failed, 1);
		assert_int_equal(r.problem, 3);
		assert_int_equal(r.row, 36);
		assert_int_equal(r.col, 5);
		drop(&f);
	}
}

/* ---- checking ----------------------------------------------------------- */

/* As a CPU would: fp32 products and sums, int8 by blocks. */
static float plain_backend(const struct fixture *f, int64_t row, int64_t col,
			   const struct nib_fp4 *b)
{
	const struct nib_problem *p = &f->problem;
	float sum = 0;

	for (int64_t g = 0; g < b->k; g += 16) {
		float partial = 0;

		for (int64_t i = g; i < g + 16; i++) {
			const float x = (float)value(&p->x, p->activations, 0, row, i);
			const float w = (float)weight(b, 0, col, i);

			if (p->activations == DENSE)
				sum += x * w;
			else
				partial += x * w; /* exact */
		}
		sum += partial;
	}
	return sum;
}

static float silu(float x)
{
	return x / (1 + expf(-x));
}

static void a_plain_backend_passes_and_one_wrong_bit_does_not(void **state)
{
	for (int i = 0; i < 3 * 2 * 2 * 3; i++) {
		const enum nib_dtype dtype = (enum nib_dtype)(i % 3);
		const bool is_dual = i / 3 % 2;
		const enum nib_op op = is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		struct fixture f =
		    make((struct sizes){33, 9, 128, 1, 1, 3}, i / 6 % 2 ? INT8 : DENSE,
			 (enum nib_dtype)(i / 12), dtype);
		struct nib_check_result r;
		uint32_t bits;

		point_at_alphas(&f);
		for (int64_t j = 0; j < 33 * 9; j++) {
			float c = plain_backend(&f, j / 9, j % 9, &f.b.view) * f.alpha;

			if (is_dual)
				c = silu(c) *
				    (plain_backend(&f, j / 9, j % 9, &f.b2.view) *
				     f.alpha2);
			nib_dense_set_bits(&f.c.view, 0, j / 9, j % 9,
					   nib_fp64_to_dtype((double)c, dtype));
		}
		r = check(op, &f.problem);
		assert_int_equal(r.checked, 33 * 9);
		assert_int_equal(r.failed, 0);
		assert_true(r.worst_fraction > 0 && r.worst_fraction <= 1);
		assert_true(r.worst_error <= r.worst_bound);

		/* 16 bits: two units off; 32 bits: the bound is wider. */
		bits = nib_dense_get_bits(&f.c.view, 0, 30, 8);
		nib_dense_set_bits(&f.c.view, 0, 30, 8,
				   dtype ? bits + 2 : bits ^ 0x40000);
		r = check(op, &f.problem);
		assert_int_equal(r.failed, 1);
		assert_int_equal(r.row, 30);
		assert_int_equal(r.col, 8);
		assert_true(r.worst_fraction > 1);
		drop(&f);
	}
}

/* Eight bits of A are too few for the bound of all bits, and vice versa. */
static void int8_is_not_dense(void **state)
{
	struct fixture f = make((struct sizes){8, 8, 64, 1, 1, 0}, DENSE,
				NIB_DTYPE_FP32, NIB_DTYPE_FP32);

	nib_reference(NIB_OP_GEMM, &f.problem, 1, NULL);
	assert_int_equal(check(NIB_OP_GEMM, &f.problem).failed, 0);
	f.problem.activations = INT8;
	assert_true(check(NIB_OP_GEMM, &f.problem).failed > 56);
	nib_reference(NIB_OP_GEMM, &f.problem, 1, NULL);
	assert_int_equal(check(NIB_OP_GEMM, &f.problem).failed, 0);
	f.problem.activations = DENSE;
	assert_true(check(NIB_OP_GEMM, &f.problem).failed > 56);
	drop(&f);
}

/* ---- refusals ----------------------------------------------------------- */

static enum nib_status check_as(const struct fixture *f,
				enum nib_activations activations,
				enum nib_arithmetic arithmetic)
{
	const struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .arithmetic = arithmetic,
	};
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	struct nib_problem p = f->problem;
	struct nib_error err = {0};
	enum nib_status status;

	p.activations = activations;
	status = nib_check(NIB_OP_GEMM, &p, 1, &options, &r, &err);
	if (status)
		assert_string_equal(err.argument, "options.arithmetic");
	return status;
}

static void only_bounds_that_are_derived_are_checked(void **state)
{
	for (int i = 0; i < 3; i++) {
		const enum nib_status tensor =
		    i ? NIB_STATUS_OK : NIB_STATUS_UNSUPPORTED;
		struct fixture f = make((struct sizes){3, 4, 32, 1, 1, 0}, DENSE,
					(enum nib_dtype)i, NIB_DTYPE_FP32);

		assert_ok(check_as(&f, DENSE, NIB_ARITHMETIC_BLOCKS));
		assert_int_equal(check_as(&f, DENSE, NIB_ARITHMETIC_FP16_TENSOR),
				 tensor);
		assert_int_equal(check_as(&f, DENSE, NIB_ARITHMETIC_FP4_TENSOR),
				 NIB_STATUS_UNSUPPORTED);
		assert_ok(check_as(&f, INT8, NIB_ARITHMETIC_BLOCKS));
		assert_int_equal(check_as(&f, INT8, NIB_ARITHMETIC_FP16_TENSOR),
				 NIB_STATUS_UNSUPPORTED);
		assert_int_equal(check_as(&f, INT8, NIB_ARITHMETIC_FP4_TENSOR),
				 NIB_STATUS_UNSUPPORTED);
		drop(&f);
	}
}

static void bad_data_and_arguments_are_refused(void **state)
{
	struct fixture f = make((struct sizes){3, 4, 32, 2, 2, 0}, DENSE,
				NIB_DTYPE_FP16, NIB_DTYPE_FP32);
	struct nib_problem p;

#define REFUSED(change)                                                                \
	do {                                                                           \
		p = f.problem;                                                         \
		change;                                                                \
		assert_int_equal(nib_reference(NIB_OP_GEMM, &p, 1, NULL),              \
				 NIB_STATUS_BAD_ARGUMENT);                             \
	} while (0)
	REFUSED(p.x.cols = 24);
	REFUSED(p.x.cols = 16);
	REFUSED(p.x.rows = 2);
	REFUSED(p.x.data = NULL);
	REFUSED(p.activations = (enum nib_activations)3);
	REFUSED(p.c.data = p.x.data);
#undef REFUSED
	*nib_fp4_scale(&f.b.view, 1, 3, 1) = 0x80;
	assert_int_equal(nib_reference(NIB_OP_GEMM, &f.problem, 1, NULL),
			 NIB_STATUS_BAD_DATA);
	assert_int_equal(nib_dense_get_bits(&f.c.view, 0, 0, 0), 0x7B7B7B7B);
	drop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_element_is_written),
	    cmocka_unit_test(empty_sizes_and_k_zero),
	    cmocka_unit_test(problems_of_a_group_keep_their_k),
	    cmocka_unit_test(special_values_stay_in_their_rows),
	    cmocka_unit_test(moe_equals_its_experts),
	    cmocka_unit_test(a_plain_backend_passes_and_one_wrong_bit_does_not),
	    cmocka_unit_test(int8_is_not_dense),
	    cmocka_unit_test(only_bounds_that_are_derived_are_checked),
	    cmocka_unit_test(bad_data_and_arguments_are_refused),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
