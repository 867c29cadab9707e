/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - from a shape to rows: see measure.h. */
#include "field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gemm_rate.h"
#include "machine.h"
#include "rows.h"

bool measure_begin(struct measure_run *run)
{
	time_t now = time(NULL);
	struct tm utc;

	*run = (struct measure_run){0};
	run->peaks = peaks_create();
	run->baselines =
	    calloc((size_t)baseline_count(), sizeof(*run->baselines));
	run->gemm_rates = gemm_rates_create();
	machine_describe(run->machine, sizeof run->machine);
	snprintf(run->device, sizeof run->device, "cpu");
	strftime(run->date, sizeof run->date, "%Y-%m-%dT%H:%M:%SZ",
		 gmtime_r(&now, &utc));
	return run->peaks && run->baselines && run->gemm_rates;
}

enum nib_status measure_use_gpu(struct measure_run *run, const char *device,
				struct nib_error *err)
{
	snprintf(run->device, sizeof run->device, "%s", device);
	run->on_gpu = true;
	return peaks_use_gpu(run->peaks, device, err);
}

void measure_start_baselines(struct measure_run *run,
			     const struct shape_list *list,
			     const struct data_options *options)
{
	for (int i = 0; i < baseline_count(); i++)
		run->baselines[i] = baseline_start(i, list, options);
}

void measure_end(struct measure_run *run)
{
	for (int i = 0; run->baselines && i < baseline_count(); i++)
		baseline_stop(run->baselines[i]);
	free(run->baselines);
	gemm_rates_free(run->gemm_rates);
	peaks_free(run->peaks);
	*run = (struct measure_run){0};
}

/* -------------------------------------------------------------------------- */

static void want_peak(struct field *field, enum peak_kind kind)
{
	for (int i = 0; i < field->n_peaks; i++) {
		if (field->peaks[i] == kind)
			return;
	}
	field->first_sample[kind] =
	    peaks_samples(field->run->peaks, kind, field->options->threads)
		->count;
	field->peaks[field->n_peaks++] = kind;
}

static enum nib_status add_job(struct field *field, const char *isa,
			       bool packed, struct nib_error *err)
{
	const struct measure_options *options = field->options;
	struct job_options job = {
	    .data = options->data,
	    .threads = options->threads,
	    .isa = isa,
	    .device = field->run->device,
	    .timed = options->timed,
	};
	int i = field->count;
	enum nib_status status;

	if (i == MAX_CONTESTANTS)
		return NIB_OK;
	job.data.packed = packed;
	status = job_new(options->shape, &job, &field->contestants[i].job, err);
	if (status)
		return status;
	field->baseline[i] = -1;
	field->gemm[i] = -1;
	field->isa[i] = isa;
	field->packed[i] = packed;
	field->count++;
	if (field_multiplies(field))
		want_peak(field, job_peak(field->contestants[i].job));
	if (options->check_rows < 0)
		return NIB_OK;
	return job_check(field->contestants[i].job, options->check_rows,
			 options->data.seed, &field->check[i], err);
}

/* The GEMM that the jobs of backend isa, from index first on, are held against. */
static enum nib_status add_gemm(struct field *field, const char *isa, int first,
				struct nib_error *err)
{
	const struct measure_options *options = field->options;
	const int64_t k = field_few_rows_k(field);
	int i = field->count;
	enum nib_status status;

	if (!field_multiplies(field) || field->run->on_gpu || k == 0 ||
	    i == MAX_CONTESTANTS)
		return NIB_OK;
	status = gemm_rate_job(k, options->threads, isa, &options->data,
			       &field->contestants[i].job, err);
	if (status)
		return status;
	field->baseline[i] = -1;
	field->gemm[i] = -1;
	field->is_gemm[i] = true;
	field->count++;
	for (int j = first; j < i; j++)
		field->gemm[j] = i;
	return NIB_OK;
}

/* Small products cannot reach the bandwidth of long reads: a read as long as
 * theirs says how near one can come. */
static enum nib_status add_read(struct field *field, struct nib_error *err)
{
	const struct job *job = field->contestants[0].job;
	int i = field->count;
	enum nib_status status;
	double bytes;

	if (!field->run->on_gpu || field->options->timed != JOB_RUN || i == 0 ||
	    i == MAX_CONTESTANTS)
		return NIB_OK;
	bytes = job_bytes_read(job) + job_bytes_written(job);
	if (bytes <= 0)
		return NIB_OK;
	status = job_new_read(field->run->device, bytes,
			      &field->contestants[i].job, err);
	if (status)
		return status;
	field->baseline[i] = -1;
	field->gemm[i] = -1;
	field->is_read[i] = true;
	field->count++;
	return NIB_OK;
}

/* What the contest says of the rates of its GEMMs. */
static void add_gemm_samples(const struct field *field)
{
	const struct measure_options *options = field->options;
	const int64_t k = field_few_rows_k(field);

	for (int i = 0; i < field->count; i++) {
		const struct contestant *c = &field->contestants[i];
		struct bench_samples *to;

		if (!field->is_gemm[i])
			continue;
		to = gemm_rates_samples(field->run->gemm_rates, k,
					options->threads, job_backend(c->job));
		for (int j = 0; to && j < c->samples_s.count; j++)
			bench_samples_add(to, job_flop(c->job) /
						  c->samples_s.values[j]);
	}
}

static enum nib_status add_jobs(struct field *field, struct nib_error *err)
{
	const struct measure_options *options = field->options;
	enum nib_status status = NIB_OK;
	/* Weights are packed or not only where there are weights. */
	bool weights = shape_is_multiply(options->shape);

	for (int i = 0; i < options->n_isas && !status; i++) {
		const int first = field->count;

		if (options->packed || !weights)
			status = add_job(field, options->isas[i], weights, err);
		if (options->unpacked && weights && !status)
			status = add_job(field, options->isas[i], false, err);
		if (!status)
			status = add_gemm(field, options->isas[i], first, err);
	}
	return status ? status : add_read(field, err);
}

static void add_baselines(struct field *field)
{
	for (int p = 0; p < baseline_count() && p < MAX_CONTESTANTS; p++) {
		struct baseline *baseline = field->run->baselines[p];
		int i = field->count;

		if (!baseline || i == MAX_CONTESTANTS)
			continue;
		if (!baseline_prepare(baseline, field->options->shape_index,
				      field->options->threads,
				      field->skipped[p]))
			continue;
		field->contestants[i].baseline = baseline;
		field->baseline[i] = p;
		field->count++;
		want_peak(field, baseline_limit(p));
	}
}

static void want_memory_peaks(struct field *field)
{
	if (field->options->timed != JOB_RUN)
		return;
	if (field->run->on_gpu) {
		want_peak(field, PEAK_GPU_READ);
		want_peak(field, PEAK_GPU_CLOCK);
		return;
	}
	want_peak(field, PEAK_READ);
	if (!field_multiplies(field)) {
		want_peak(field, PEAK_WRITE);
		want_peak(field, PEAK_COPY);
	}
}

static void free_field(struct field *field)
{
	for (int i = 0; i < field->count; i++) {
		struct contestant *c = &field->contestants[i];

		bench_samples_free(&c->samples_s);
		job_free(c->job);
		if (c->baseline)
			baseline_release(c->baseline);
	}
}

/* The line that gives row i again. */
static void set_command(const struct field *field, int i, json_t *row)
{
	const struct measure_options *o = field->options;
	const struct contestant *c = &field->contestants[i];
	char arguments[4096], line[4608], isa[48] = "";

	shape_arguments(o->shape, arguments, sizeof arguments);
	/* Backends are called "cpu-" and the instruction set's name. */
	if (field->run->on_gpu)
		snprintf(isa, sizeof isa, " --device %s", field->run->device);
	else if (c->job)
		snprintf(isa, sizeof isa, " --isa %s",
			 strchr(job_backend(c->job), '-') + 1);
	snprintf(line, sizeof line,
		 "nib bench %s --threads %d%s --layout %s --out %s --dtype %s "
		 "--%s --data %s --seed %llu --min-time %g --samples %d%s%s",
		 arguments, o->threads, isa, cli_layout_names[o->data.layout],
		 cli_dtype_names[o->data.out], cli_dtype_names[o->data.dtype],
		 c->job && !field->packed[i] ? "unpacked" : "packed",
		 o->data.fill == DATA_FULL ? "full" : "contest",
		 (unsigned long long)o->data.seed, o->min_time_s,
		 o->min_samples, o->timed != JOB_RUN ? " --plan" : "",
		 c->job ? "" : " --baselines");
	row_text(row, "command", line);
}

static void set_check(const struct field *field, int i, json_t *row)
{
	const struct nib_check_result *check = &field->check[i];

	if (check->checked == 0)
		return;
	row_number(row, "error", check->worst_error);
	row_number(row, "bound", check->worst_bound);
	row_number(row, "error_fraction", check->worst_fraction);
	row_number(row, "checked", (double)check->checked);
	row_bool(row, "ok", check->failed == 0);
}

static json_t *start_row(const struct field *field, const char *backend)
{
	const struct measure_options *o = field->options;
	char text[256];
	json_t *row = row_new();
	const char *op = o->timed == JOB_PLAN	 ? "plan"
			 : o->timed == JOB_QUEUE ? "queue"
						 : shape_op_names[o->shape->op];

	shape_text(o->shape, text);
	if (o->timed != JOB_RUN) {
		char with_op[256];

		snprintf(with_op, sizeof with_op, "%s %.200s",
			 shape_op_names[o->shape->op], text);
		memcpy(text, with_op, sizeof text);
	}
	row_text(row, "op", op);
	row_text(row, "shape", text);
	row_text(row, "backend", backend);
	row_integer(row, "threads", o->threads);
	row_text(row, "layout", cli_layout_names[o->data.layout]);
	if (o->shape->op == OP_CONVERT)
		row_text(row, "out", cli_layout_names[!o->data.layout]);
	else if (o->shape->op == OP_QUANTIZE)
		row_text(row, "out", "nvfp4");
	else
		row_text(row, "out",
			 cli_dtype_names[o->shape->op == OP_DEQUANTIZE
					     ? o->data.dtype
					     : o->data.out]);
	if (o->shape->op == OP_QUANTIZE)
		row_text(row, "dtype", cli_dtype_names[o->data.dtype]);
	row_text(row, "version", nib_version());
	row_text(row, "machine", field->run->machine);
	row_text(row, "date", field->run->date);
	return row;
}

/* Time, work and limit of contestant i. */
static void set_times(const struct field *field, int i, json_t *row)
{
	const struct contestant *c = &field->contestants[i];
	double time_s = bench_samples_median(&c->samples_s, 0);
	double flop =
	    c->job ? job_flop(c->job) : shape_flop(field->options->shape);
	double bytes =
	    c->job ? job_bytes_read(c->job) + job_bytes_written(c->job)
		   : baseline_bytes(field->baseline[i], field->options->shape);

	row_number(row, "time_s", time_s);
	row_samples(row, "samples_s", &c->samples_s);
	row_spread(row, &c->samples_s);
	if (field->options->timed != JOB_RUN || time_s <= 0)
		return;
	row_number(row, "flop", flop);
	row_number(row, "bytes", bytes);
	if (flop > 0)
		row_number(row, "gflops", flop / time_s * 1e-9);
	row_number(row, "gbps", bytes / time_s * 1e-9);
	field_set_limits(field, i, time_s, row);
}

/* How many times faster than each baseline: as an object and as words. */
static void set_speedup(const struct field *field, int i, json_t *row)
{
	double time_s =
	    bench_samples_median(&field->contestants[i].samples_s, 0);
	json_t *ratios = json_object();
	char words[256] = "";

	for (int j = 0; j < field->count; j++) {
		const struct contestant *c = &field->contestants[j];
		double baseline_s = bench_samples_median(&c->samples_s, 0);
		const char *backend;
		size_t used = strlen(words);

		if (!c->baseline || baseline_s <= 0 || time_s <= 0)
			continue;
		backend =
		    baseline_backend(field->baseline[j]) + strlen("baseline:");
		json_object_set_new(ratios, backend,
				    json_real(baseline_s / time_s));
		snprintf(words + used, sizeof words - used, "%s%.2f x %s",
			 used ? ", " : "", baseline_s / time_s, backend);
	}
	if (*words)
		row_text(row, "against_baselines", words);
	json_object_set_new(row, "speedup", ratios);
}

static void append_rows(const struct field *field, json_t *rows)
{
	char words[BASELINE_REASON + 16];
	json_t *row;

	for (int i = 0; i < field->count; i++) {
		const struct contestant *c = &field->contestants[i];

		if (field->is_gemm[i] || field->is_read[i])
			continue;
		row = start_row(field,
				c->job ? job_backend(c->job)
				       : baseline_backend(field->baseline[i]));
		set_times(field, i, row);
		set_command(field, i, row);
		if (c->job) {
			if (shape_is_multiply(field->options->shape))
				row_bool(row, "packed", field->packed[i]);
			row_integer(row, "copies", job_copies_held(c->job));
			row_text(row, "plan", job_explanation(c->job));
			set_check(field, i, row);
			set_speedup(field, i, row);
		}
		json_array_append_new(rows, row);
	}
	for (int p = 0; p < baseline_count() && p < MAX_CONTESTANTS; p++) {
		if (!field->skipped[p][0])
			continue;
		row = start_row(field, baseline_backend(p));
		row_text(row, "skipped", field->skipped[p]);
		snprintf(words, sizeof words, "skipped: %s", field->skipped[p]);
		row_text(row, "against_baselines", words);
		json_array_append_new(rows, row);
	}
}

enum nib_status measure_shape(struct measure_run *run,
			      const struct measure_options *options,
			      json_t *rows, struct nib_error *err)
{
	struct field *field = calloc(1, sizeof *field);
	struct contest_options contest = {
	    .threads = options->threads,
	    .min_time_s = options->min_time_s,
	    .min_samples = options->min_samples,
	    .tick = options->tick,
	    .arg = options->arg,
	};
	enum nib_status status;

	if (!field) {
		err->status = NIB_OUT_OF_MEMORY;
		snprintf(err->message, sizeof err->message,
			 "no memory for a measurement");
		return NIB_OUT_OF_MEMORY;
	}
	field->run = run;
	field->options = options;
	status = add_jobs(field, err);
	if (!status && field_multiplies(field))
		add_baselines(field);
	if (!status) {
		want_memory_peaks(field);
		contest.peaks = field->peaks;
		contest.n_peaks = field->n_peaks;
		status = contest_run(field->contestants, field->count,
				     run->peaks, &contest, err);
	}
	if (!status) {
		if (run->on_gpu)
			peaks_sample(run->peaks, PEAK_GPU_CLOCK,
				     options->threads);
		add_gemm_samples(field);
		append_rows(field, rows);
	}
	free_field(field);
	free(field);
	return status;
}
