/* SPDX-License-Identifier: Apache-2.0 */
/* contest.c - backends and baselines on one shape, measured in turns. */
#include "contest.h"

#include <time.h>

/* Turns that the least time is cut into. */
#define ROUNDS 5

/* Samples of each peak in a round. */
#define PEAKS_A_ROUND 2

/* OpenBLAS's threads spin for 2^26 cycles after their work. */
#define BASELINE_SETTLE_NS 40000000

static bool is_done(const struct contestant *c,
		    const struct contest_options *options)
{
	int few = options->min_samples < 3 ? options->min_samples : 3;

	if (c->spent_s >= 5 * options->min_time_s && c->samples_s.count >= few)
		return true;
	return c->spent_s >= options->min_time_s &&
	       c->samples_s.count >= options->min_samples;
}

/* Samples until budget_s is spent, and least ones if they do not take long. */
static enum nib_status job_turn(struct contestant *c, double budget_s,
				int least, struct nib_error *err)
{
	enum nib_status status = job_run(c->job, err);
	double begin, end, spent = 0;
	int runs, taken = 0;

	/* The first run of a turn is slow; the second says how long one is. */
	if (!status)
		status = job_wait(c->job, err);
	begin = bench_now_s();
	if (!status)
		status = job_run(c->job, err);
	if (!status)
		status = job_wait(c->job, err);
	runs = job_runs(c->job, bench_now_s() - begin);
	while (!status) {
		begin = bench_now_s();
		for (int i = 0; i < runs && !status; i++)
			status = job_run(c->job, err);
		if (!status && job_sample_waits(c->job))
			status = job_wait(c->job, err);
		end = bench_now_s();
		if (!status && !job_sample_waits(c->job))
			status = job_wait(c->job, err);
		spent += end - begin;
		if (!bench_samples_add(&c->samples_s, (end - begin) / runs) ||
		    (++taken >= least && spent >= budget_s) ||
		    spent >= 5 * budget_s)
			break;
	}
	c->spent_s += spent;
	return status;
}

static bool baseline_has_turn(struct contestant *c, double budget_s)
{
	double samples[BASELINE_MAX_SAMPLES];
	struct timespec settle = {0, BASELINE_SETTLE_NS};
	double spent_s = 0;
	int n = baseline_turn(c->baseline, budget_s, BASELINE_MAX_SAMPLES,
			      samples, &spent_s);

	for (int i = 0; i < n; i++)
		bench_samples_add(&c->samples_s, samples[i]);
	c->spent_s += spent_s;
	nanosleep(&settle, NULL);
	return n > 0;
}

static double share_done(const struct contestant *contestants, int count,
			 const struct contest_options *options)
{
	double sum = 0;

	for (int i = 0; i < count; i++) {
		double time = contestants[i].spent_s / options->min_time_s;
		double part = (double)contestants[i].samples_s.count /
			      options->min_samples;

		part = part < time ? part : time;
		if (is_done(&contestants[i], options) || part > 1)
			part = 1;
		sum += part;
	}
	return sum / count;
}

enum nib_status contest_run(struct contestant *contestants, int count,
			    struct peaks *peaks,
			    const struct contest_options *options,
			    struct nib_error *err)
{
	double budget_s = options->min_time_s / ROUNDS;
	int least = (options->min_samples + ROUNDS - 1) / ROUNDS;
	enum nib_status status = NIB_OK;
	bool all_done = false;

	while (!all_done && !status) {
		all_done = true;
		for (int i = 0; i < options->n_peaks; i++) {
			bench_settle();
			for (int j = 0; j < PEAKS_A_ROUND; j++)
				peaks_sample(peaks, options->peaks[i],
					     options->threads);
		}
		for (int i = 0; i < count && !status; i++) {
			struct contestant *c = &contestants[i];

			if (is_done(c, options))
				continue;
			if (options->tick)
				options->tick(
				    options->arg,
				    share_done(contestants, count, options));
			bench_settle();
			if (c->job)
				status = job_turn(c, budget_s, least, err);
			else if (!baseline_has_turn(c, budget_s))
				continue;
			all_done = all_done && is_done(c, options);
		}
	}
	return status;
}
