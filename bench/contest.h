/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contest.h - backends and baselines on one shape, measured in turns.
 *
 * In every round each contestant has one turn (two untimed runs, then timed
 * ones) and each peak in question is sampled once, so that other work on the
 * machine hits them all alike and ratios stay honest.
 */
#ifndef NIB_BENCH_CONTEST_H
#define NIB_BENCH_CONTEST_H

#include <stdbool.h>

#include "baseline.h"
#include "job.h"
#include "peaks.h"

/* A job or a baseline; the other is NULL. */
struct contestant {
	struct job *job;
	struct baseline *baseline;
	struct bench_samples samples_s;
	double spent_s; /* timed */
};

struct contest_options {
	int threads;
	double min_time_s; /* of timed runs, for each contestant */
	int min_samples;
	const enum peak_kind *peaks; /* sampled in every round */
	int n_peaks;
	/* Called before each turn, with the share that is done; may be NULL. */
	void (*tick)(void *arg, double done);
	void *arg;
};

/*
 * Adds samples to every contestant.  A contestant that takes long stops early:
 * at five times min_time_s with at least three samples.  A baseline whose process
 * dies keeps what it has.  On failure of a job, its error.
 */
enum nib_status contest_run(struct contestant *contestants, int count,
			    struct peaks *peaks,
			    const struct contest_options *options,
			    struct nib_error *err);

#endif
