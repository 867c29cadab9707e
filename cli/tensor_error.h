/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_error.h - how far a matrix b, quantised, is from its original a: sums in
 * fp64 over rows that are read as fp32 a few at a time.  Every number of threads
 * and every division of the rows into calls gives the same bits.
 */
#ifndef NIB_TENSOR_ERROR_H
#define NIB_TENSOR_ERROR_H

#include <stdint.h>

struct tensor_error {
	double signal, other, dot, noise; /* sums of a*a, b*b, a*b, (a-b)^2 */
	double worst;			  /* largest |a - b| */
	int64_t worst_row, worst_col;
	double worst_a, worst_b;
	/* The largest relative error of a row, sqrt(noise / signal), and the first row
	 * that has it; inf for a row of zeros of a that is not zero in b. */
	double worst_relative;
	int64_t worst_relative_row;
	int64_t not_finite; /* elements where a or b is inf or NaN: left out of sums */
};

/* Adds rows of a and b [rows, k], which begin at row first of their tensor. */
void tensor_error_add(struct tensor_error *error, const float *a, const float *b,
		      int64_t rows, int64_t k, int64_t first);
/* ||a - b|| / ||a|| in the Frobenius norm; 0 when equal, inf when only a is zero. */
double tensor_relative(const struct tensor_error *error);
/* 10 log10(signal / noise); inf when equal. */
double tensor_sqnr_db(const struct tensor_error *error);
double tensor_cosine(const struct tensor_error *error);

#endif
