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
};

struct rounds_options {
	int threads;
	double min_time_s; /* of timed runs, for each entry */
	int min_samples;
	const enum peak_kind *peaks; /* sampled in every round */
	int n_peaks;
	/* Called before each entry, with the share that is done; may be NULL. */
	void (*tick)(void *arg, double done);
	void *arg;
};

/*
 * Adds samples to every entry.  An entry that takes long stops early: at five
 * times min_time_s with at least three samples.  A baseline whose process dies
 * keeps what it has.  On failure of a job, its error.
 */
enum nib_status rounds_run(struct entry *entries, int count,
			   struct peaks *peaks,
			   const struct rounds_options *options,
			   struct nib_error *err);

#endif
