/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - samples and their statistics. */
#include "stats.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * libgomp's threads spin for some 4 ms after a parallel region before they
 * sleep; until then they would slow what is measured next.
 */
#define SETTLE_NS 6000000

void bench_settle(void)
{
	struct timespec t = {0, SETTLE_NS};

	nanosleep(&t, NULL);
}

bool bench_samples_add(struct bench_samples *samples, double value)
{
	if (samples->count == samples->capacity) {
		int capacity = samples->capacity ? 2 * samples->capacity : 32;
		double *values =
		    realloc(samples->values, (size_t)capacity * sizeof *values);

		if (!values)
			return false;
		samples->values = values;
		samples->capacity = capacity;
	}
	samples->values[samples->count++] = value;
	return true;
}

void bench_samples_free(struct bench_samples *samples)
{
	free(samples->values);
	*samples = (struct bench_samples){0};
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_samples_quantile(const struct bench_samples *samples, int first,
			      double share)
{
	int count = samples->count - first;
	double *sorted, at, value;
	int below;

	if (count <= 0)
		return 0;
	sorted = malloc((size_t)count * sizeof *sorted);
	if (!sorted)
		return samples->values[samples->count - 1];
	memcpy(sorted, samples->values + first, (size_t)count * sizeof *sorted);
	qsort(sorted, (size_t)count, sizeof *sorted, compare);
	at = share * (count - 1);
	below = (int)at;
	value = sorted[below];
	if (below + 1 < count)
		value += (at - below) * (sorted[below + 1] - value);
	free(sorted);
	return value;
}

double bench_samples_median(const struct bench_samples *samples, int first)
{
	return bench_samples_quantile(samples, first, 0.5);
}
