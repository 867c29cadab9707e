/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/sums.h - helpers of the tests of error bounds: small problems, data that
 * cancels, a product computed by a model of hardware sums, and its check.
 */
#ifndef NIB_TESTS_COMMON_SUMS_H
#define NIB_TESTS_COMMON_SUMS_H

#include "common/data.h"

#define SUMS_ROWS 4
#define SUMS_COLS 12

/* A product, or two: A linear, B in tiles, B2 linear. */
struct sums {
	struct test_nvfp4 a, b, b2;
	struct test_dense c;
	float alpha, alpha2;
	struct nib_problem problem;
};

void sums_new(struct sums *s, struct rng *rng, int64_t m, int64_t n, int64_t k,
	      enum test_scales scales, enum nib_dtype dtype);
void sums_free(struct sums *s);

/* Code i of a row. */
void sums_set(const struct nib_fp4 *v, int64_t row, int64_t i, int code);
int sums_code(const struct nib_fp4 *v, int64_t row, int64_t i);
/* The second half of each block of b undoes the first. */
void sums_cancel(struct sums *s);

/* Row m of a times row n of b as the hardware sums; order: the caller's. */
typedef float sums_dot(const struct nib_fp4 *a, int64_t m, const struct nib_fp4 *b,
		       int64_t n, const void *order);
/* What a backend of that arithmetic writes to c. */
void sums_multiply(enum nib_op op, const struct nib_problem *p, sums_dot *dot,
		   const void *order);
/* nib_check() of all elements. */
struct nib_check_result sums_check(enum nib_op op, const struct nib_problem *p,
				   enum nib_arithmetic arithmetic);
/*
 * Multiplies and checks: nothing may be outside the bound.  The larger of worst
 * and the largest fraction of it.
 */
double sums_worst(double worst, enum nib_op op, const struct nib_problem *p,
		  enum nib_arithmetic arithmetic, sums_dot *dot, const void *order);

#endif
