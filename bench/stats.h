/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h - samples, their statistics, and the pause before each of them. */
#ifndef NIB_BENCH_STATS_H
#define NIB_BENCH_STATS_H

#include <stdbool.h>

/* Sleeps, so that threads which spin after their work go to sleep too. */
void bench_settle(void);

/* Values that grow as they come; zero-initialised is empty. */
struct bench_samples {
	double *values;
	int count;
	int capacity;
};

/* False when memory is short; then the samples are unchanged. */
bool bench_samples_add(struct bench_samples *samples, double value);
void bench_samples_free(struct bench_samples *samples);
/*
 * The value below which share (0..1) of the values from index first on lie,
 * between neighbours by proportion; 0 when there are none.
 */
double bench_samples_quantile(const struct bench_samples *samples, int first,
			      double share);
double bench_samples_median(const struct bench_samples *samples, int first);

#endif
