/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_error.c - how far two matrices are apart: see tensor_error.h. */
#include "tensor_error.h"

#include <math.h>

#include "parallel.h"

/* The sums of one row; note_worst() finds out where its worst element is. */
static void add_row(struct tensor_error *error, const float *a, const float *b,
		    int64_t k)
{
	double signal = 0, other = 0, dot = 0, noise = 0, worst = 0;
	int64_t finite = 0;

#pragma omp simd reduction(+ : signal, other, dot, noise, finite) reduction(max : worst)
	for (int64_t i = 0; i < k; i++) {
		int is_finite = fabsf(a[i]) < INFINITY && fabsf(b[i]) < INFINITY;
		double x = is_finite ? (double)a[i] : 0;
		double y = is_finite ? (double)b[i] : 0;
		double d = fabs(x - y);

		finite += is_finite;
		signal += x * x;
		other += y * y;
		dot += x * y;
		noise += d * d;
		worst = d > worst ? d : worst;
	}
	*error = (struct tensor_error){
	    .signal = signal,
	    .other = other,
	    .dot = dot,
	    .noise = noise,
	    .worst = worst,
	    .not_finite = k - finite,
	};
}

/* Notes the first element of a row that is off by worst. */
static void note_worst(struct tensor_error *error, double worst, const float *a,
		       const float *b, int64_t k, int64_t row)
{
	int64_t i = 0;

	while (i < k - 1 && fabs((double)a[i] - (double)b[i]) != worst)
		i++;
	error->worst = worst;
	error->worst_row = row;
	error->worst_col = i;
	error->worst_a = (double)a[i];
	error->worst_b = (double)b[i];
}

/* sqrt(noise / signal): 0 for equal rows, inf if only a's values are all zero. */
static double relative(double noise, double signal)
{
	return noise > 0 ? sqrt(noise / signal) : 0;
}

/* Notes a row whose relative error is larger than those of the rows before it. */
static void note_relative(struct tensor_error *error, const struct tensor_error *row,
			  int64_t at)
{
	double x = relative(row->noise, row->signal);

	if (x > error->worst_relative) {
		error->worst_relative = x;
		error->worst_relative_row = at;
	}
}

/*
 * Threads sum whole rows, and the sums of the rows are added in order, so that
 * every number of threads gives the same digits.  The sums of this many rows are
 * 40 KB of stack, which cannot fail as an allocation can.
 */
#define ROWS_AT_ONCE 512

struct rows {
	struct tensor_error *each;
	const float *a, *b;
	int64_t k;
};

static void add_rows(void *arg, int64_t begin, int64_t end)
{
	const struct rows *rows = arg;

	for (int64_t r = begin; r < end; r++)
		add_row(&rows->each[r], rows->a + r * rows->k, rows->b + r * rows->k,
			rows->k);
}

void tensor_error_add(struct tensor_error *error, const float *a, const float *b,
		      int64_t rows, int64_t k, int64_t first)
{
	struct tensor_error each[ROWS_AT_ONCE];

	if (k <= 0)
		return;
	for (int64_t r0 = 0; r0 < rows; r0 += ROWS_AT_ONCE) {
		int64_t n = rows - r0 < ROWS_AT_ONCE ? rows - r0 : ROWS_AT_ONCE;
		struct rows some = {each, a + r0 * k, b + r0 * k, k};

		cli_parallel(n, cli_rows_of_loop(k), add_rows, &some);
		for (int64_t r = 0; r < n; r++) {
			const struct tensor_error *e = &each[r];
			int64_t at = r0 + r;

			error->signal += e->signal;
			error->other += e->other;
			error->dot += e->dot;
			error->noise += e->noise;
			error->not_finite += e->not_finite;
			note_relative(error, e, first + at);
			if (e->worst > error->worst || first + at == 0)
				note_worst(error, e->worst, a + at * k, b + at * k, k,
					   first + at);
		}
	}
}

double tensor_relative(const struct tensor_error *error)
{
	return relative(error->noise, error->signal);
}

double tensor_sqnr_db(const struct tensor_error *error)
{
	if (error->noise <= 0)
		return INFINITY;
	return 10 * log10(error->signal / error->noise);
}

double tensor_cosine(const struct tensor_error *error)
{
	double length = sqrt(error->signal) * sqrt(error->other);

	if (length <= 0)
		return error->signal <= 0 && error->other <= 0 ? 1 : 0;
	return error->dot / length;
}
