/* SPDX-License-Identifier: Apache-2.0 */
/*
 * field.h - one contest of measure.c: who takes part, and which peaks it is
 * held against; limits.c computes its limits.
 */
#ifndef NIB_BENCH_FIELD_H
#define NIB_BENCH_FIELD_H

#include "measure.h"

/* Backends times packed and unpacked, a GEMM for each backend, and all baselines. */
#define MAX_CONTESTANTS 20

/* One contest: who takes part, and which peaks it is held against. */
struct field {
	const struct measure_run *run;
	const struct measure_options *options;
	struct contestant contestants[MAX_CONTESTANTS];
	int baseline[MAX_CONTESTANTS]; /* index of a baseline; -1 for a job */
	bool packed[MAX_CONTESTANTS];
	const char *isa[MAX_CONTESTANTS];
	/* The contestant whose GEMM this job is held against, or -1. */
	int gemm[MAX_CONTESTANTS];
	/* Is itself such a GEMM, or a plain read of the jobs' bytes. */
	bool is_gemm[MAX_CONTESTANTS], is_read[MAX_CONTESTANTS];
	struct nib_check_result check[MAX_CONTESTANTS];
	int count;
	char skipped[MAX_CONTESTANTS]
		    [BASELINE_REASON]; /* by baseline; "" = takes part */
	enum peak_kind peaks[PEAK_KINDS];
	int n_peaks;
	int first_sample[PEAK_KINDS]; /* of this contest in its series */
};

bool field_multiplies(const struct field *field);
/*
 * The longest k of a multiplication of so few rows that it is held against the
 * rate of a GEMM, not of an instruction (a group of them as a whole, whatever
 * rows each has); 0: it is none, or no work.
 */
int64_t field_few_rows_k(const struct field *field);
/*
 * Writes to the row of contestant i the rates that it is held against, its
 * limit, and for a GPU a plain read of the same bytes and the clocks.
 */
void field_set_limits(const struct field *field, int i, double time_s,
		      json_t *row);

#endif
