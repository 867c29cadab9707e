/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.c - the entries of a comparison, measured in rounds. */
#include "rounds.h"

#include <math.h>
#include <time.h>

#include "progress.h"

/* Rounds that the least time is cut into. */
#define ROUNDS 5

/* Samples of each peak in a round. */
#define PEAKS_A_ROUND 2
/* A peak's sample takes no larger share of an entry's least time: with the usual 0.4 s
 * this is no limit; a run that is to be short is not one of peaks. */
#define PEAK_SHARE 0.25

/* OpenBLAS's threads but the first spin for 2^26 cycles after their work. */
#define BASELINE_SETTLE_NS 40000000

void entries_free(struct entry *entries, int count)
{
	for (int i = 0; i < count; i++) {
		bench_samples_free(&entries[i].samples_s);
		job_free(entries[i].job);
		if (entries[i].baseline)
			baseline_release(entries[i].baseline);
	}
}

static bool is_done(const struct entry *entry, const struct rounds_options *options)
{
	int few = options->min_samples < 3 ? options->min_samples : 3;
	int count = entry->samples_s.count;

	if (entry->spent_s >= 5 * options->min_time_s && count >= few)
		return true;
	return entry->spent_s >= options->min_time_s && count >= options->min_samples;
}

static double share_done(const struct entry *entries, int count,
			 const struct rounds_options *options)
{
	double sum = 0;

	for (int i = 0; i < count; i++) {
		double time = entries[i].spent_s / options->min_time_s;
		double samples =
		    (double)entries[i].samples_s.count / options->min_samples;

		sum += is_done(&entries[i], options) ? 1 : fmin(fmin(samples, time), 1);
	}
	return sum / count;
}

/* Samples until budget_s is spent, and least ones if they do not take long. */
static enum nib_status run_job(struct entry *entry, double budget_s, int least,
			       struct nib_error *err)
{
	double seconds, spent = 0;
	int runs, taken = 0;
	enum nib_status status = job_warm_up(entry->job, &runs, err);

	while (!status) {
		status = job_sample(entry->job, runs, &seconds, err);
		spent += seconds;
		if (!bench_samples_add(&entry->samples_s, seconds / runs) ||
		    (++taken >= least && spent >= budget_s) || spent >= 5 * budget_s)
			break;
	}
	entry->spent_s += spent;
	return status;
}

/* False when its process has died. */
static bool run_baseline(struct entry *entry, double budget_s, int threads)
{
	double samples[BASELINE_MAX_SAMPLES], spent_s = 0;
	struct timespec settle = {0, BASELINE_SETTLE_NS};
	int n = baseline_run(entry->baseline, budget_s, samples, &spent_s);

	for (int i = 0; i < n; i++)
		bench_samples_add(&entry->samples_s, samples[i]);
	entry->spent_s += spent_s;
	if (threads > 1)
		nanosleep(&settle, NULL);
	return n > 0;
}

static void sample_peaks(struct peaks *peaks, const struct rounds_options *options)
{
	for (int i = 0; i < options->n_peaks; i++) {
		bench_settle();
		for (int j = 0; j < PEAKS_A_ROUND; j++)
			peaks_sample(peaks, options->peaks[i], options->threads);
	}
}

enum nib_status rounds_run(struct entry *entries, int count, struct peaks *peaks,
			   const struct rounds_options *options, struct nib_error *err)
{
	double budget_s = options->min_time_s / ROUNDS;
	int least = (options->min_samples + ROUNDS - 1) / ROUNDS;
	enum nib_status status = NIB_STATUS_OK;
	bool all_done = false;

	peaks_limit_samples(peaks, options->min_time_s * PEAK_SHARE);
	while (!all_done && !status) {
		all_done = true;
		sample_peaks(peaks, options);
		for (int i = 0; i < count && !status; i++) {
			struct entry *entry = &entries[i];

			if (is_done(entry, options))
				continue;
			if (options->item)
				progress_update(options->done +
						    share_done(entries, count, options),
						options->item);
			bench_settle();
			if (entry->job)
				status = run_job(entry, budget_s, least, err);
			else if (!run_baseline(entry, budget_s, options->threads))
				continue;
			all_done = all_done && is_done(entry, options);
		}
	}
	return status;
}
