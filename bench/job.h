/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - a shape on one backend of nibblas, ready to be run again and again.
 *
 * What a run may find ready: the plan, the packed weights, the workspace.  What
 * it may not: operands in the caches.  So a job holds several copies of the
 * operands, with different values, and every run takes the next one.
 */
#ifndef NIB_BENCH_JOB_H
#define NIB_BENCH_JOB_H

#include <stdbool.h>

#include "data.h"
#include "peaks.h"

struct job;

/* What of a job is timed. */
enum job_timed {
	JOB_RUN,  /* the operation */
	JOB_PLAN, /* nib_plan_create() for it */
	/* The host's part of it: on a GPU a call returns when the work is
	 * queued. */
	JOB_QUEUE,
};

struct job_options {
	struct data_options data;
	int threads;
	const char *isa;    /* NULL = the best here */
	const char *device; /* NULL = "cpu" */
	enum job_timed timed;
	/* One copy only: its operands may stay in the caches. */
	bool warm;
	/* Of a GPU, to plan by instead of its own; NULL = its own. */
	const struct nib_costs *costs;
};

/*
 * How often operands of this many bytes are held, so that together they are
 * four times the largest cache: 1 when one copy is already that large.
 */
int64_t job_copies(double bytes, double cache_bytes);

/*
 * How many runs of run_s seconds make one sample: more than one where the
 * clock's own cost would show.
 */
int job_runs_a_sample(double run_s);

/* The same for a job: a GPU's samples also hide what waiting costs. */
int job_runs(const struct job *job, double run_s);

/* Does a sample end with waiting, or before? */
bool job_sample_waits(const struct job *job);

/* On failure *job is NULL. */
enum nib_status job_new(const struct shape *shape,
			const struct job_options *options, struct job **job,
			struct nib_error *err);
void job_free(struct job *job); /* NULL is fine */
/*
 * A plain read of so many bytes of a GPU, not in its caches either: what a run
 * that moves them can take at least.
 */
enum nib_status job_new_read(const char *device, double bytes, struct job **job,
			     struct nib_error *err);

/* One run, on the next copy; on a GPU it is done after job_wait(). */
enum nib_status job_wait(struct job *job, struct nib_error *err);
enum nib_status job_run(struct job *job, struct nib_error *err);

/*
 * Runs on poisoned outputs and compares sample_rows rows (0 = all) of each
 * matrix with the oracle; all but JOB_RUN, and the operations that do not
 * multiply have none: *result then says that nothing was checked.
 */
enum nib_status job_check(struct job *job, int64_t sample_rows, uint64_t seed,
			  struct nib_check_result *result,
			  struct nib_error *err);

/* Whether it runs on the CPU, whose peaks are its limits. */
bool job_is_host(const struct job *job);
/* "cpu-avx512": lives as long as the job. */
const char *job_backend(const struct job *job);
double job_flop(const struct job *job);
/* Bytes that one run must read and write, each operand once. */
double job_bytes_read(const struct job *job);
double job_bytes_written(const struct job *job);
int64_t job_copies_held(const struct job *job);
/* The instruction that bounds the multiplications of this backend, its memory. */
enum peak_kind job_peak(const struct job *job);
enum peak_kind job_read_peak(const struct job *job);
/* The plan's own sentence; "" if the operation has no plan. */
const char *job_explanation(const struct job *job);

#endif
