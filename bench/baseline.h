/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline.h - other libraries on the same shapes, in the same run.
 *
 * Each baseline lives in a process of its own, forked before any thread is
 * started: oneDNN decides on its instruction set once in a process, the
 * libraries' thread pools do not meet, and a baseline that is missing or
 * crashes is a row that says so.  The process sleeps between its rounds.  A
 * baseline gets the operands of data.h dequantised to its own type beforehand,
 * weights packed beforehand if it can.
 */
#ifndef NIB_BENCH_BASELINE_H
#define NIB_BENCH_BASELINE_H

#include <stdbool.h>
#include <sys/types.h>

#include "data.h"
#include "peaks.h"

#define BASELINE_REASON	     160
#define BASELINE_VERSION     80
#define BASELINE_MAX_SAMPLES 64
#define BASELINES	     5

struct baseline;
struct baseline_engine;

/* The list of baselines, built in or not: BASELINES of them. */
extern const struct baseline_engine *const baseline_engines[];

/*
 * Forks the process of a baseline; no thread may have been started before.  list
 * must not change afterwards.  NULL when there is no process to be had.
 */
struct baseline *baseline_start(const struct baseline_engine *engine,
				const struct shape_list *list,
				const struct data_options *options);
pid_t baseline_process(const struct baseline *baseline);
/* Copies of the operands of the last successful baseline_prepare(). */
int64_t baseline_copies(const struct baseline *baseline);
/* "oneDNN 3.6.2", from the first successful baseline_prepare() on; else "". */
const char *baseline_version(const struct baseline *baseline);
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
 * Two untimed calls, then timed ones until budget_s is spent, at least one.  A
 * sample of a short call is the mean of several.  Returns the number of samples
 * and the timed seconds; 0 if the process died.
 */
int baseline_run(struct baseline *baseline, double budget_s,
		 double samples_s[BASELINE_MAX_SAMPLES], double *spent_s);
/* Frees the operands of the last prepare. */
void baseline_release(struct baseline *baseline);

/* ---- what one library must bring ----------------------------------------- */

/* C[m, n] = A[m, k] * B[n, k]^T in floats, all dense and row-major. */
struct baseline_matmul {
	int64_t m, n, k;
	float *a, *b;
	float *c;
	void *packed; /* the engine's own form of a and b, or NULL */
};

struct baseline_engine {
	const char *backend; /* "baseline:onednn-bf16" */
	/* "oneDNN 3", and where it comes from: "tools/get_onednn.sh". */
	const char *library, *package;
	/* The instruction that it multiplies with, or a wider one of the same
	 * operands (peak_widest()): the limit of its rows. */
	enum peak_kind limit;
	double a_bytes, b_bytes; /* of one value */
	/* The largest error of a result over the sum of |products|. */
	double tolerance;
	/* Opens the library, once in the process; false with a reason.  NULL:
	 * its headers were missing where nib was built. */
	bool (*open)(char reason[BASELINE_REASON]);
	/* Its name and version, once it is open; NULL: it does not say. */
	void (*version)(char text[BASELINE_VERSION]);
	void (*set_threads)(int threads);
	/*
	 * Sets matmul->packed if the engine multiplies operands of a form of its
	 * own: a and b are then freed.  False with a reason.  NULL: it never
	 * does.
	 */
	bool (*pack)(struct baseline_matmul *matmul, char reason[BASELINE_REASON]);
	void (*run)(const struct baseline_matmul *matmul);
	void (*unpack)(void *packed); /* frees it */
};

extern const struct baseline_engine baseline_onednn_bf16, baseline_onednn_f32,
    baseline_onednn_f32_avx2, baseline_openblas_f32, baseline_ggml_nvfp4;

/* Sets the reason; returns false. */
__attribute__((format(printf, 2, 3))) bool baseline_refuse(char reason[BASELINE_REASON],
							   const char *format, ...);
/* Opens a library: the first of its names (NULL ends them) that is found. */
void *baseline_dlopen(const char *const *names, char reason[BASELINE_REASON]);

#endif
