/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/bignum.h - exact sums and their rounding, by a slow and simple method: one
 * counter for each power of two.
 */
#ifndef NIB_TESTS_COMMON_BIGNUM_H
#define NIB_TESTS_COMMON_BIGNUM_H

#include <stdbool.h>
#include <stdint.h>

#include "format/half.h"

/* Powers of two from 2^BIGNUM_LEAST on. */
#define BIGNUM_LEAST (-400)
#define BIGNUM_BITS  1000

/* The sum of count[i] * 2^(BIGNUM_LEAST + i). */
struct bignum {
	int64_t count[BIGNUM_BITS];
};

/* s += x * factor.  x is finite. */
void bignum_add(struct bignum *s, float x, int64_t factor);
/* s * x.  x is finite; s must have been added to at most 2^30 times. */
struct bignum bignum_times(const struct bignum *s, float x);
/* -1, 0 or 1 */
int bignum_sign(const struct bignum *s);
/* s rounded to nearest even; a zero is +0. */
uint64_t bignum_round(const struct bignum *s, struct nib_float_format f);
double bignum_double(const struct bignum *s);

#endif
