/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.h - from a shape to rows: makes the jobs, measures them with the
 * baselines, computes the limits, checks the results.  A row is a JSON object
 * with the keys of bench/README.md; `nib bench` prints it, `nib report` draws
 * it.
 */
#ifndef NIB_BENCH_MEASURE_H
#define NIB_BENCH_MEASURE_H

#include "baseline.h"
#include "machine.h"
#include "rounds.h"
#include "rows.h"

/* What all rows of a run share. */
struct measure_run {
	struct peaks *peaks;
	struct baseline *baselines[BASELINES]; /* NULL = not wanted */
	const struct shape_list *list;	       /* what the baselines know */
	struct rows rows;
	char machine[160];
	char date[32];	 /* UTC */
	char device[32]; /* "cpu", "cuda:0" */
	bool on_gpu;
	bool predicts; /* the GPU in software: predict.h */
	double done;   /* shapes, for the progress bar */
	/* Measured before a shape, unless that was a moment ago. */
	struct machine_load load;
	double load_at_s;
};

/* CLI_OK, or prints and returns; measure_end() in every case. */
int measure_begin(struct measure_run *run);
/* From now on shapes and peaks are those of this GPU, "cuda:0". */
enum nib_status measure_use_gpu(struct measure_run *run, const char *device,
				struct nib_error *err);
/*
 * Starts the baselines: before any thread exists, so before the first
 * measurement.  list must not change afterwards.
 */
void measure_start_baselines(struct measure_run *run, const struct shape_list *list,
			     const struct data_options *options);
/* Ends the baselines that are not wanted. */
void measure_keep_baselines(struct measure_run *run,
			    bool (*is_wanted)(const struct baseline_engine *engine));
/* Sets run->load, unless that was done a moment ago. */
void measure_load(struct measure_run *run);
void measure_end(struct measure_run *run);

struct measure_options {
	/* One of the list that the baselines were started with, if any. */
	const struct shape *shape;
	int threads;
	struct data_options data; /* packed is ignored */
	const char *const *isas;  /* NULL entries: the best here */
	int n_isas;
	bool packed, unpacked; /* weights; one of them or both */
	enum job_timed timed;
	double min_time_s;
	int min_samples;
	int chain;	    /* runs of a prediction: predict.h */
	int64_t check_rows; /* of each matrix; -1 = no check, 0 = all */
};

/* A row without a time: what is common to those of a shape. */
json_t *measure_start_row(const struct measure_run *run,
			  const struct measure_options *options, const char *backend);

/*
 * Measures one shape on all backends asked for and on the baselines that run
 * has, and adds their rows to run->rows.  CLI_OK, or prints and returns.
 */
int measure_shape(struct measure_run *run, const struct measure_options *options);

/*
 * Appends a row for every peak that has been sampled, with op "peak"; its time
 * is that of 1e9 operations or bytes.
 */
void measure_peak_rows(const struct measure_run *run, json_t *rows);

/* ---- limits.c ------------------------------------------------------------ */

/* One shape: what is measured, and which peaks are sampled meanwhile. */
struct comparison {
	const struct measure_run *run;
	const struct measure_options *options;
	struct entry *entries;
	int count;
	char skipped[BASELINES][BASELINE_REASON]; /* "" = is measured */
	enum peak_kind peaks[PEAK_KINDS];
	int n_peaks;
	int first_sample[PEAK_KINDS + 1]; /* of this comparison, by kind */
};

/*
 * The longest k of a multiplication of so few rows that it is compared with the
 * rate of a GEMM, not of an instruction (a group of them as a whole, whatever
 * rows each has); 0: it is none, or no work.
 */
int64_t limits_few_rows_k(const struct shape *shape);
/*
 * Writes to the row of an entry the rates that it is compared with, its limit,
 * and for a GPU a plain read of the same bytes and the clocks.
 */
void limits_set(const struct comparison *comparison, const struct entry *entry,
		double time_s, json_t *row);

/* The least time of a plan: what nib plan divides by. */
struct limits {
	double gflops, gbps;
	const char *compute_name, *memory_name; /* "vpdpbusd" */
};

/*
 * Measures them in some 100 ms.  What cannot be measured is infinite: it limits
 * nothing.  A GPU in software is not measured: its limits are those of the
 * GPU's clocks.
 */
void limits_measure(const struct nib_device *device, enum cli_activations activations,
		    struct limits *limits);

#endif
