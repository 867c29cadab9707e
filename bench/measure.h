/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.h - from a shape to rows: makes the jobs, holds the contest, computes
 * the limits, checks the results.  A row is a JSON object with the keys of
 * bench/README.md; `nib bench` prints it, `nib report` draws it.
 */
#ifndef NIB_BENCH_MEASURE_H
#define NIB_BENCH_MEASURE_H

#include <jansson.h>

#include "contest.h"

/* What all rows of a run share. */
struct measure_run {
	struct peaks *peaks;
	struct baseline *
	    *baselines; /* baseline_count() entries, NULL = not wanted */
	struct gemm_rates *gemm_rates;
	char machine[160];
	char date[32];	 /* UTC */
	char device[32]; /* "cpu", "cuda:0" */
	bool on_gpu;
};

/* False without memory. */
bool measure_begin(struct measure_run *run);
/* From now on shapes and peaks are those of this GPU, "cuda:0". */
enum nib_status measure_use_gpu(struct measure_run *run, const char *device,
				struct nib_error *err);
/*
 * Starts the baselines: before any thread exists, so before the first measurement.
 * list must not change afterwards.
 */
void measure_start_baselines(struct measure_run *run,
			     const struct shape_list *list,
			     const struct data_options *options);
void measure_end(struct measure_run *run);

struct measure_options {
	const struct shape *shape;
	int64_t
	    shape_index; /* in the list that the baselines were started with */
	int threads;
	struct data_options data; /* packed is ignored */
	const char *const *isas;  /* NULL entries: the best here */
	int n_isas;
	bool packed, unpacked; /* weights; one of them or both */
	enum job_timed timed;
	double min_time_s;
	int min_samples;
	int64_t check_rows; /* of each matrix; -1 = no check, 0 = all */
	void (*tick)(void *arg, double done);
	void *arg;
};

/*
 * Measures one shape on all backends asked for and on the baselines that run has, and
 * appends their rows to the array rows.
 */
enum nib_status measure_shape(struct measure_run *run,
			      const struct measure_options *options,
			      json_t *rows, struct nib_error *err);

/*
 * Appends a row for every peak that has been sampled, with op "peak"; its time
 * is that of 1e9 operations or bytes.
 */
void measure_peak_rows(struct measure_run *run, json_t *rows);
/* Samples every peak of this machine n times on threads threads. */
void measure_peaks(struct measure_run *run, int threads, int n);

#endif
