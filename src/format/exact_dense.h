/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact_dense.h - the dot product of a row of floats and an NVFP4 row: no
 * rounding, no order of summation.  exact.h has that of two NVFP4 rows.
 *
 * A product x * e2m1 * e4m3 is a multiple of 2^-159 and below 2^140, so a sum
 * of NIB_MAX_K lies below 2^160.  It is kept in digits of 32 bits.
 */
#ifndef NIB_EXACT_DENSE_H
#define NIB_EXACT_DENSE_H

#include <stdbool.h>
#include <stdint.h>

#include "format/exact.h"
#include "nibblas.h"

/* A row of A after rounding (see below); the arrays are the caller's. */
struct nib_exact_dense {
	double *x;	    /* k values, exact */
	uint8_t *is_narrow; /* k/16: see exact_dense.c */
	double largest;	    /* of the finite |x| */
	bool has_subnormal; /* some |x| is below 2^-126, and not 0 */
	bool has_nan;	    /* of NIB_ACTIVATIONS_INT8: the row is NaN */
};

/* A row of B; the arrays are the caller's. */
struct nib_exact_weights {
	struct nib_exact_row row;
	double *twice;	/* k: 2 * e2m1 */
	double largest; /* of |e2m1 * e4m3| */
	double total;	/* sum of |e2m1 * e4m3| */
	double scales;	/* sum of e4m3 over all k */
};

#define NIB_EXACT_DIGITS 13

struct nib_exact_wide {
	/* The sum of the finite products: digit[i] * 2^(32 i) in units of
	 * 2^-234, each digit with a sign of its own. */
	int64_t digit[NIB_EXACT_DIGITS];
	/*
	 * Sums over the finite products, at most 2^-30 of themselves too large:
	 * of |products| and of |block partials|.  For a block that is not
	 * narrow, which NIB_ACTIVATIONS_INT8 never has, the second has its
	 * |products| too.
	 */
	double products, magnitude;
	double largest_x, largest_w; /* of the rows */
	double scales;		     /* the row of B's, summed over all k */
	/* At least the error of the sum if every |x| below 2^-126 counts as 0. */
	double subnormal;
	int infinite; /* 1 or -1: the sum is infinite, ignore digit */
	bool is_nan;  /* ignore the sum */
};

/* Row `row` of v rounded as activations says: DENSE not at all. */
void nib_exact_decode_dense(struct nib_exact_dense *out, const struct nib_dense *v,
			    enum nib_activations activations, int64_t batch,
			    int64_t row);
void nib_exact_decode_weights(struct nib_exact_weights *out, const struct nib_fp4 *v,
			      int64_t batch, int64_t row);

void nib_exact_dot_dense(struct nib_exact_wide *s, const struct nib_exact_dense *a,
			 const struct nib_exact_weights *b, int64_t k);

/* As nib_exact_round() and nib_exact_double(). */
uint32_t nib_exact_wide_round(const struct nib_exact_wide *s, float alpha,
			      enum nib_dtype dtype);
double nib_exact_wide_double(const struct nib_exact_wide *s, float alpha);

#endif
