/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_rate.h - the rate of a GEMM of many rows, packed and warm: what products
 * of few rows are held against.  An instruction's rate would be no limit for
 * them, since every block needs its scales multiplied as well.
 */
#ifndef NIB_BENCH_GEMM_RATE_H
#define NIB_BENCH_GEMM_RATE_H

#include "job.h"
#include "stats.h"

#define GEMM_RATE_ROWS 512
#define GEMM_RATE_COLS 512 /* for each thread */

/* A series of samples. */
struct gemm_rate {
	int64_t k;
	int threads;
	char backend[32];
};

/* "gemm avx512 k=2048": the limit_kind of rows. */
#define GEMM_RATE_NAME 64
const char *gemm_rate_name(int64_t k, const char *backend,
			   char name[GEMM_RATE_NAME]);

struct gemm_rates;

/* NULL when memory is short. */
struct gemm_rates *gemm_rates_create(void);
void gemm_rates_free(struct gemm_rates *rates); /* NULL is fine */

/* A job that multiplies GEMM_RATE_ROWS rows over this k. */
enum nib_status gemm_rate_job(int64_t k, int threads, const char *isa,
			      const struct data_options *data, struct job **job,
			      struct nib_error *err);

/* All samples, in FLOP a second, of such jobs; NULL when memory is short. */
struct bench_samples *gemm_rates_samples(struct gemm_rates *rates, int64_t k,
					 int threads, const char *backend);

/* All series, in the order of the first time. */
int gemm_rates_count(const struct gemm_rates *rates);
const struct bench_samples *gemm_rates_at(const struct gemm_rates *rates, int i,
					  struct gemm_rate *gemm);

#endif
