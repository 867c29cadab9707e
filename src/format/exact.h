/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact.h - the dot product of two NVFP4 rows as an integer: no rounding, no
 * order of summation.
 *
 * The unit is 2^-20: twice an e2m1 times twice an e2m1 counts 2^-2, an e4m3
 * times an e4m3 counts 2^-18.  One block is at most 16*12*12 * 229376^2 <
 * 2^46.8, so 2^16 blocks (k = NIB_MAX_K) stay below 2^62.8: an int64 holds the
 * sum, and the sums of absolute values.  The caller refuses a larger k.
 */
#ifndef NIB_EXACT_H
#define NIB_EXACT_H

#include <stdbool.h>
#include <stdint.h>

#include "nibblas.h"

/* log2 of the unit of nib_exact_sum. */
#define NIB_EXACT_UNIT (-20)

/* A decoded row; the arrays are the caller's. */
struct nib_exact_row {
	int16_t *twice; /* k: 2 * e2m1 */
	int32_t *scale; /* k/16: e4m3 * 2^9, 0 for NaN */
	bool has_nan;	/* some scale is NaN */
};

struct nib_exact_sum {
	int64_t sum;	   /* of the block partials */
	int64_t magnitude; /* sum of |block partials| */
	int64_t products;  /* sum of |products|, see nib_exact_products() */
	int64_t large;	   /* blocks, see nib_exact_large_blocks() */
	bool is_nan;	   /* a NaN scale is used: ignore the numbers */
};

/*
 * Decodes a row of v.  scale_row: the row of its scales, which differs from row
 * with the scale_rows of a mixture of experts.
 */
void nib_exact_decode(struct nib_exact_row *out, const struct nib_fp4 *v, int64_t batch,
		      int64_t row, int64_t scale_row);

/* Leaves products and large 0. */
struct nib_exact_sum nib_exact_dot(const struct nib_exact_row *a,
				   const struct nib_exact_row *b, int64_t k);
/*
 * The sum of |products|, which only the bound of NIB_ARITHMETIC_FP16_TENSOR
 * needs: it costs as much as the dot product.
 */
int64_t nib_exact_products(const struct nib_exact_row *a, const struct nib_exact_row *b,
			   int64_t k);
/*
 * How many blocks have a scale of at least 256 on both sides.  Only the bound
 * of NIB_ARITHMETIC_FP4_TENSOR needs it.
 */
int64_t nib_exact_large_blocks(const struct nib_exact_row *a,
			       const struct nib_exact_row *b, int64_t k);

/*
 * alpha * sum, rounded once, to nearest even: the bits of dtype, or a double.
 * alpha may be anything, inf * 0 is NaN, and so is a sum that is_nan.  Overflow
 * gives infinity.  A zero sum counts as +0, so alpha = -1 gives -0.
 */
uint32_t nib_exact_round(const struct nib_exact_sum *s, float alpha,
			 enum nib_dtype dtype);
double nib_exact_double(const struct nib_exact_sum *s, float alpha);

/*
 * silu(x) = x / (1 + exp(-x)) with its limits at both infinities, -0 and +inf,
 * and without the overflow of exp(-x); NaN gives NaN.  Within 2^-50 of
 * itself, but for results below 2^-1010.
 */
double nib_exact_silu(double x);

#endif
