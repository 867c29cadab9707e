/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - a shape on one backend of nibblas, ready to be run again and again.
 *
 * A run finds the plan, the packed weights and the workspace ready, but no
 * operand in the caches: a job holds several copies of the operands, with
 * different values, and every run takes the next one.
 */
#ifndef NIB_BENCH_JOB_H
#define NIB_BENCH_JOB_H

#include <stdbool.h>

#include "data.h"
#include "nibblas_tune.h"

/* What of a job is timed. */
enum job_timed {
	JOB_RUN,   /* the operation */
	JOB_PLAN,  /* nib_plan_create() for it */
	JOB_QUEUE, /* on a GPU: the host's part, until the run is enqueued */
};

struct job_options {
	struct data_options data;
	int threads;
	const char *isa;    /* NULL = the best here */
	const char *device; /* NULL = "cpu" */
	enum job_timed timed;
	/* Copies of the operands.  0: four times the largest caches.  1: they may stay
	 * in the caches. */
	int copies;
	/* A GPU's costs to plan by; NULL = the device's own. */
	const struct nib_costs *costs;
};

struct job;

/* On failure *job is NULL. */
enum nib_status job_new(const struct shape *shape, const struct job_options *options,
			struct job **job, struct nib_error *err);
/*
 * A plain read of this many bytes of a GPU, not in its caches either: what a run
 * that moves them can take at least.
 */
enum nib_status job_new_read(const char *device, double bytes, struct job **job,
			     struct nib_error *err);
void job_free(struct job *job); /* NULL is fine */

/* What a job is; lives as long as it. */
struct job_info {
	const char *backend;	 /* "cpu-avx512vnni" */
	const char *explanation; /* the plan's own; "" without a plan */
	double flop;
	int k_slices; /* of the plan; 0 without one */
	/* What one run must read and write, each operand once. */
	double bytes_read, bytes_written;
	int64_t copies;
};
const struct job_info *job_info(const struct job *job);

/* Two untimed runs; *runs: how many runs make a sample. */
enum nib_status job_warm_up(struct job *job, int *runs, struct nib_error *err);
/* One sample: *seconds of runs runs, one after the other. */
enum nib_status job_sample(struct job *job, int runs, double *seconds,
			   struct nib_error *err);
/*
 * Runs on poisoned outputs and compares sample_rows rows (0 = all) of each
 * matrix with the oracle.  *result says that nothing was checked unless JOB_RUN
 * of a multiplication is timed.
 */
enum nib_status job_check(struct job *job, int64_t sample_rows, uint64_t seed,
			  struct nib_check_result *result, struct nib_error *err);

/*
 * How often operands of this many bytes of a CPU are held, so that together they are
 * four times the caches: 1 when one copy is already that large, at most 256.
 */
int64_t job_copies(double bytes, double cache_bytes);
/*
 * How many runs of run_s seconds make one sample of the CPU: more than one
 * where the clock's own cost would show.
 */
int job_runs_a_sample(double run_s);

#endif
