/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_rate.c - the rate of a GEMM of many rows: see gemm_rate.h. */
#include "gemm_rate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct series {
	struct gemm_rate gemm;
	struct bench_samples samples;
};

/* Each series by itself: samples are pointed to while the list grows. */
struct gemm_rates {
	struct series **series;
	int count;
};

const char *gemm_rate_name(int64_t k, const char *backend,
			   char name[GEMM_RATE_NAME])
{
	/* Backends are called "cpu-" and the instruction set's name. */
	snprintf(name, GEMM_RATE_NAME, "gemm %s k=%lld",
		 strchr(backend, '-') + 1, (long long)k);
	return name;
}

struct gemm_rates *gemm_rates_create(void)
{
	return calloc(1, sizeof(struct gemm_rates));
}

void gemm_rates_free(struct gemm_rates *rates)
{
	for (int i = 0; rates && i < rates->count; i++) {
		bench_samples_free(&rates->series[i]->samples);
		free(rates->series[i]);
	}
	if (rates)
		free(rates->series);
	free(rates);
}

enum nib_status gemm_rate_job(int64_t k, int threads, const char *isa,
			      const struct data_options *data, struct job **job,
			      struct nib_error *err)
{
	struct shape_size size = {
	    .m = GEMM_RATE_ROWS,
	    .n = (int64_t)GEMM_RATE_COLS * threads,
	    .k = k,
	};
	const struct shape shape = {
	    .op = OP_GEMM, .batch = 1, .count = 1, .sizes = &size};
	struct job_options options = {
	    .data = *data,
	    .threads = threads,
	    .isa = isa,
	    .timed = JOB_RUN,
	    .warm = true,
	};

	options.data.packed = true;
	return job_new(&shape, &options, job, err);
}

struct bench_samples *gemm_rates_samples(struct gemm_rates *rates, int64_t k,
					 int threads, const char *backend)
{
	struct series **list, *s;

	for (int i = 0; i < rates->count; i++) {
		s = rates->series[i];
		if (s->gemm.k == k && s->gemm.threads == threads &&
		    !strcmp(s->gemm.backend, backend))
			return &s->samples;
	}
	list = realloc(rates->series,
		       (size_t)(rates->count + 1) * sizeof(struct series *));
	if (!list)
		return NULL;
	rates->series = list;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->gemm.k = k;
	s->gemm.threads = threads;
	snprintf(s->gemm.backend, sizeof(s->gemm.backend), "%s", backend);
	list[rates->count++] = s;
	return &s->samples;
}

int gemm_rates_count(const struct gemm_rates *rates)
{
	return rates->count;
}

const struct bench_samples *gemm_rates_at(const struct gemm_rates *rates, int i,
					  struct gemm_rate *gemm)
{
	*gemm = rates->series[i]->gemm;
	return &rates->series[i]->samples;
}
