/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c - the least time that this machine can need: see field.h. */
#include <stdio.h>

#include "field.h"
#include "gemm_rate.h"
#include "rows.h"

/*
 * Products of at most this many rows are held against the rate of a GEMM, not
 * of an instruction: a group of them as a whole, whatever rows each has.
 */
#define FEW_ROWS 8

bool field_multiplies(const struct field *field)
{
	return shape_is_multiply(field->options->shape) &&
	       field->options->timed == JOB_RUN;
}

int64_t field_few_rows_k(const struct field *field)
{
	const struct shape *shape = field->options->shape;
	int64_t k = 0;

	if (shape_flop(shape) <= 0)
		return 0;
	for (int64_t i = 0; i < shape->count; i++) {
		if (shape->sizes[i].m > FEW_ROWS)
			return 0;
		if (shape->sizes[i].k > k)
			k = shape->sizes[i].k;
	}
	return k;
}

/*
 * The limit of this contest.  Bandwidth belongs to the whole machine and
 * changes with its other users: the median of the samples taken in turn with
 * this contest.  The rate of an instruction does not, others can only slow it:
 * the upper quartile of all samples of the run.
 */
static double rate(const struct field *field, enum peak_kind kind)
{
	const struct bench_samples *samples =
	    peaks_samples(field->run->peaks, kind, field->options->threads);

	if (peak_is_memory(kind))
		return bench_samples_median(samples, field->first_sample[kind]);
	return bench_samples_quantile(samples, 0, 0.75);
}

struct limit {
	double s;
	char name[GEMM_RATE_NAME]; /* of a peak's row */
};

static void raise_limit(const struct field *field, struct limit *limit,
			double units, enum peak_kind kind)
{
	double r = rate(field, kind);

	if (r > 0 && units / r > limit->s) {
		limit->s = units / r;
		snprintf(limit->name, sizeof limit->name, "%s",
			 peak_name(kind));
	}
}

/*
 * As raise_limit(); the rate is, as that of an instruction, of the whole run,
 * but the fastest sample: they are few, and longer than a turn of another
 * program.
 */
static void raise_limit_gemm(const struct field *field, struct limit *limit,
			     double flop, int gemm)
{
	const struct measure_options *options = field->options;
	const int64_t k = field_few_rows_k(field);
	const char *backend = job_backend(field->contestants[gemm].job);
	const struct bench_samples *samples = gemm_rates_samples(
	    field->run->gemm_rates, k, options->threads, backend);
	double r = samples ? bench_samples_quantile(samples, 0, 1) : 0;

	if (r > 0 && flop / r > limit->s) {
		limit->s = flop / r;
		gemm_rate_name(k, backend, limit->name);
	}
}

/*
 * The least time that this machine can need: for a multiplication the slower of
 * its multiply-adds and of reading its operands, the sums of all products of a
 * group (not the sum of the slower of each: weights of one may be read while
 * another is computed); for the others the slowest of reading, writing and both
 * together.
 */
static struct limit limit_of(const struct field *field, int i)
{
	const struct job *job = field->contestants[i].job;
	struct limit limit = {0, "read bandwidth"};

	if (!job) {
		int p = field->baseline[i];

		raise_limit(field, &limit, shape_flop(field->options->shape),
			    baseline_limit(p));
		raise_limit(field, &limit,
			    baseline_bytes(p, field->options->shape),
			    PEAK_READ);
	} else if (field_multiplies(field)) {
		if (field->gemm[i] >= 0)
			raise_limit_gemm(field, &limit, job_flop(job),
					 field->gemm[i]);
		else
			raise_limit(field, &limit, job_flop(job),
				    job_peak(job));
		raise_limit(field, &limit,
			    job_bytes_read(job) + job_bytes_written(job),
			    job_read_peak(job));
	} else if (field->run->on_gpu) {
		raise_limit(field, &limit,
			    job_bytes_read(job) + job_bytes_written(job),
			    PEAK_GPU_READ);
	} else if (field->options->timed == JOB_RUN) {
		raise_limit(field, &limit, job_bytes_read(job), PEAK_READ);
		raise_limit(field, &limit, job_bytes_written(job), PEAK_WRITE);
		raise_limit(field, &limit,
			    job_bytes_read(job) + job_bytes_written(job),
			    PEAK_COPY);
	}
	return limit;
}

/* The rates that a row is held against: what a roof is drawn from. */
static void set_limit(const struct field *field, int i, double time_s,
		      json_t *row)
{
	const struct job *job = field->contestants[i].job;
	const struct limit limit = limit_of(field, i);
	double read = rate(field, job ? job_read_peak(job) : PEAK_READ);
	double multiply =
	    !field_multiplies(field)
		? 0
		: rate(field, job ? job_peak(job)
				  : baseline_limit(field->baseline[i]));

	if (multiply > 0)
		row_number(row, "peak_gflops", multiply * 1e-9);
	if (read > 0)
		row_number(row, "peak_gbps", read * 1e-9);
	if (limit.s <= 0)
		return;
	row_number(row, "limit_s", limit.s);
	row_number(row, "fraction_of_limit", limit.s / time_s);
	row_text(row, "limit_kind", limit.name);
}

/* A plain read of the same bytes, and the clock around all of it. */
static void set_gpu(const struct field *field, double time_s, json_t *row)
{
	const struct bench_samples *clock = peaks_samples(
	    field->run->peaks, PEAK_GPU_CLOCK, field->options->threads);
	int first = field->first_sample[PEAK_GPU_CLOCK];

	for (int i = 0; i < field->count; i++) {
		const struct contestant *c = &field->contestants[i];
		double read_s = bench_samples_median(&c->samples_s, 0);

		if (!field->is_read[i] || read_s <= 0)
			continue;
		row_number(row, "read_s", read_s);
		row_number(row, "fraction_of_read", read_s / time_s);
	}
	if (clock->count <= first)
		return;
	row_number(row, "clock_before_mhz", clock->values[first] * 1e-6);
	row_number(row, "clock_after_mhz",
		   clock->values[clock->count - 1] * 1e-6);
}

void field_set_limits(const struct field *field, int i, double time_s,
		      json_t *row)
{
	set_limit(field, i, time_s, row);
	if (field->run->on_gpu)
		set_gpu(field, time_s, row);
}
