/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds.h - the entries of a comparison, measured in rounds.
 *
 * In every round each entry is run (two untimed runs, then timed ones) and each
 * peak in question is sampled, so that other work on the machine slows them all
 * alike and ratios stay honest.
 */
#ifndef NIB_BENCH_ROUNDS_H
#define NIB_BENCH_ROUNDS_H

#include "baseline.h"
#include "job.h"
#include "peaks.h"

struct entry {
	/* A job or a baseline; the other is NULL. */
	struct job *job;
	struct baseline *baseline;
	struct bench_samples samples_s;
	double spent_s; /* timed */

	/* What a row says of it; only measure.c and limits.c read this. */
	enum {
		ROW,	    /* measured for a row of its own */
		GEMM_RATE,  /* the GEMM that products of few rows are held
			       against */
		PLAIN_READ, /* a GPU's plain read of as many bytes */
	} role;
	struct job_info info; /* of a baseline as well */
	bool packed;
	/* Rates that it is compared with; gemm instead of multiply for few rows,
	 * else NULL. */
	struct series *multiply, *read, *gemm;
	struct nib_check_result check;
};

/* Frees what the entries hold: samples, jobs, a baseline's operands. */
void entries_free(struct entry *entries, int count);

struct rounds_options {
	int threads;
	double min_time_s; /* of timed runs, for each entry */
	int min_samples;
	const enum peak_kind *peaks; /* sampled in every round */
	int n_peaks;
	/* What the progress bar shows, and the steps done before this one; NULL:
	 * nothing. */
	const char *item;
	double done;
};

/*
 * Adds samples to every entry.  An entry that takes long stops early: at five
 * times min_time_s with at least three samples.  A baseline whose process dies
 * keeps what it has.  On failure of a job, its error.
 */
enum nib_status rounds_run(struct entry *entries, int count, struct peaks *peaks,
			   const struct rounds_options *options, struct nib_error *err);

#endif
