/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline.h - other libraries on the same shapes, in the same run.
 *
 * Each baseline lives in a process of its own, forked before any thread is started:
 * oneDNN decides on its instruction set once in a process, the libraries'
 * thread pools do not meet, and a baseline that is missing or crashes is a row that
 * says so.  The process sleeps between its turns.  A baseline gets the operands of
 * data.h dequantised to its own type beforehand, weights packed beforehand if
 * it can.
 */
#ifndef NIB_BENCH_BASELINE_H
#define NIB_BENCH_BASELINE_H

#include <stdbool.h>
#include <stddef.h>

#include "data.h"
#include "peaks.h"
#include "shapes.h"

#define BASELINE_REASON	     160
#define BASELINE_MAX_SAMPLES 64

struct baseline;

/* Entries of the list of baselines, built in or not. */
int baseline_count(void);
/* "baseline:onednn-bf16", static. */
const char *baseline_backend(int index);
/* The instruction that the baseline multiplies with: the limit of its rows. */
enum peak_kind baseline_limit(int index);
/* Bytes that the baseline moves for shape: operands in its type, results f32. */
double baseline_bytes(int index, const struct shape *shape);

/*
 * Forks the process of a baseline; no thread may have been started before.  list
 * must not change afterwards.  NULL when there is no process to be had.
 */
struct baseline *baseline_start(int index, const struct shape_list *list,
				const struct data_options *options);
/* Ends the process; NULL is fine. */
void baseline_stop(struct baseline *baseline);

/*
 * Makes the operands of list->shapes[shape] on threads threads and checks one
 * result against sums in double.  False with the reason: not built, not
 * installed, unsupported, too large.
 */
bool baseline_prepare(struct baseline *baseline, int64_t shape, int threads,
		      char reason[BASELINE_REASON]);
/*
 * One turn: two untimed calls, then timed ones until budget_s is spent, at
 * least one and at most max_samples (<= BASELINE_MAX_SAMPLES).  A sample of a short
 * call is the mean of several.  The number of samples, and the timed seconds; 0
 * if the process died.
 */
int baseline_turn(struct baseline *baseline, double budget_s, int max_samples,
		  double samples_s[BASELINE_MAX_SAMPLES], double *spent_s);
/* Frees the operands of the last prepare. */
void baseline_release(struct baseline *baseline);

#endif
