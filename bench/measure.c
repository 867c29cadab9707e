/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - from a shape to rows: see measure.h. */
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"
#include "message.h"
#include "progress.h"
#include "text.h"

/* The GEMM whose rate products of few rows are compared with. */
#define GEMM_RATE_ROWS 512
#define GEMM_RATE_COLS 512 /* for each thread */

/* How long to choose a pattern of reads, in times of a row. */
#define CHOOSE_TIMES 4

int measure_begin(struct measure_run *run)
{
	time_t now = time(NULL);
	struct tm utc;

	*run = (struct measure_run){.peaks = peaks_create(), .rows.all = json_array()};
	machine_describe(run->machine, sizeof run->machine);
	snprintf(run->device, sizeof run->device, "cpu");
	strftime(run->date, sizeof run->date, "%Y-%m-%dT%H:%M:%SZ",
		 gmtime_r(&now, &utc));
	return run->peaks && run->rows.all ? CLI_OK : cli_no_memory("measurement");
}

enum nib_status measure_use_gpu(struct measure_run *run, const char *device,
				struct nib_error *err)
{
	snprintf(run->device, sizeof run->device, "%s", device);
	run->on_gpu = true;
	return peaks_use_gpu(run->peaks, device, err);
}

void measure_start_baselines(struct measure_run *run, const struct shape_list *list,
			     const struct data_options *options)
{
	run->list = list;
	for (int i = 0; i < BASELINES; i++)
		run->baselines[i] = baseline_start(baseline_engines[i], list, options);
}

void measure_keep_baselines(struct measure_run *run,
			    bool (*is_wanted)(const struct baseline_engine *engine))
{
	for (int i = 0; i < BASELINES; i++) {
		if (is_wanted(baseline_engines[i]))
			continue;
		baseline_stop(run->baselines[i]);
		run->baselines[i] = NULL;
	}
}

/* A sample takes a fifth of a second: not before every small shape. */
#define LOAD_EVERY_S 5

void measure_load(struct measure_run *run)
{
	const double now_s = cli_now_s();
	pid_t own[BASELINES];
	int count = 0;

	if (run->load.processors > 0 && now_s - run->load_at_s < LOAD_EVERY_S)
		return;
	for (int i = 0; i < BASELINES; i++) {
		if (run->baselines[i])
			own[count++] = baseline_process(run->baselines[i]);
	}
	machine_measure_load(&run->load, own, count);
	run->load_at_s = now_s;
}

void measure_end(struct measure_run *run)
{
	for (int i = 0; i < BASELINES; i++)
		baseline_stop(run->baselines[i]);
	peaks_free(run->peaks);
	json_decref(run->rows.all);
}

/* ---- what is measured --------------------------------------------------- */

static bool multiplies(const struct comparison *c)
{
	return shape_is_multiply(c->options->shape) && c->options->timed == JOB_RUN;
}

/* Has the peak sampled in every round; its series. */
static struct series *want_peak(struct comparison *c, enum peak_kind kind)
{
	const struct measure_options *o = c->options;
	struct series *s = peaks_series(c->run->peaks, kind, o->threads);

	if (kind == PEAK_READ)
		peaks_choose_read(c->run->peaks, o->threads,
				  fmin(PEAKS_CHOOSE_S, CHOOSE_TIMES * o->min_time_s));
	for (int i = 0; i < c->n_peaks; i++) {
		if (c->peaks[i] == kind)
			return s;
	}
	c->first_sample[kind] = s ? s->samples.count : 0;
	c->peaks[c->n_peaks++] = kind;
	return s;
}

static enum nib_status add_entry(struct comparison *c, enum nib_status status,
				 struct job *job, struct entry **out)
{
	struct entry *e = &c->entries[c->count];

	if (status)
		return status;
	c->count++;
	e->job = job;
	e->info = *job_info(job);
	*out = e;
	return NIB_STATUS_OK;
}

/* A job of shape on one instruction set: *out. */
static enum nib_status add_job(struct comparison *c, const struct shape *shape,
			       const char *isa, bool packed, struct entry **out,
			       struct nib_error *err)
{
	const struct measure_options *o = c->options;
	struct job_options options = {
	    .data = o->data,
	    .threads = o->threads,
	    .isa = isa,
	    .device = c->run->device,
	    .timed = o->timed,
	    .copies = shape != o->shape,
	};
	enum nib_status status;
	struct job *job;

	options.data.packed = packed;
	status = job_new(shape, &options, &job, err);
	return add_entry(c, status, job, out);
}

static enum nib_status add_row(struct comparison *c, const char *isa, bool packed,
			       struct nib_error *err)
{
	const struct measure_options *o = c->options;
	struct entry *e;
	enum nib_status status = add_job(c, o->shape, isa, packed, &e, err);

	if (status)
		return status;
	e->packed = packed;
	if (multiplies(c))
		e->multiply =
		    want_peak(c, peak_multiply(e->info.backend, o->data.activations));
	if (o->timed == JOB_RUN)
		e->read = want_peak(c, peak_read_memory(e->info.backend));
	if (o->check_rows < 0)
		return NIB_STATUS_OK;
	return job_check(e->job, o->check_rows, o->data.seed, &e->check, err);
}

/*
 * The GEMM that the jobs of few rows are compared with, from entry first on, all
 * of this instruction set.
 */
static enum nib_status add_gemm(struct comparison *c, const char *isa, int first,
				struct nib_error *err)
{
	const int threads = c->options->threads;
	struct shape_size size = {
	    .m = GEMM_RATE_ROWS,
	    .n = (int64_t)GEMM_RATE_COLS * threads,
	    .k = limits_few_rows_k(c->options->shape),
	};
	const struct shape shape = {
	    .op = OP_GEMM, .batch = 1, .count = 1, .sizes = &size};
	enum nib_status status;
	struct entry *e;

	if (!multiplies(c) || c->run->on_gpu || size.k == 0)
		return NIB_STATUS_OK;
	status = add_job(c, &shape, isa, true, &e, err);
	if (status)
		return status;
	e->role = GEMM_RATE;
	e->gemm = peaks_gemm(c->run->peaks, e->info.backend, threads, size.k,
			     c->options->data.activations);
	for (int i = first; i < c->count; i++)
		c->entries[i].gemm = e->gemm;
	return NIB_STATUS_OK;
}

/*
 * Small products cannot reach the bandwidth of long reads: a read as long as
 * theirs says how close one can come.
 */
static enum nib_status add_read(struct comparison *c, struct nib_error *err)
{
	const struct job_info *info = &c->entries[0].info;
	double bytes = info->bytes_read + info->bytes_written;
	enum nib_status status;
	struct entry *e;
	struct job *job;

	if (!c->run->on_gpu || c->options->timed != JOB_RUN || bytes <= 0)
		return NIB_STATUS_OK;
	status = job_new_read(c->run->device, bytes, &job, err);
	status = add_entry(c, status, job, &e);
	if (!status)
		e->role = PLAIN_READ;
	return status;
}

static enum nib_status add_jobs(struct comparison *c, struct nib_error *err)
{
	const struct measure_options *o = c->options;
	/* Weights are packed or not only where there are weights. */
	bool weights = shape_is_multiply(o->shape);
	enum nib_status status = NIB_STATUS_OK;

	for (int i = 0; i < o->n_isas && !status; i++) {
		const int first = c->count;

		if (o->packed || !weights)
			status = add_row(c, o->isas[i], weights, err);
		if (o->unpacked && weights && !status)
			status = add_row(c, o->isas[i], false, err);
		if (!status)
			status = add_gemm(c, o->isas[i], first, err);
	}
	return status ? status : add_read(c, err);
}

static void add_baselines(struct comparison *c)
{
	const struct measure_options *o = c->options;

	for (int i = 0; i < BASELINES && multiplies(c); i++) {
		struct baseline *baseline = c->run->baselines[i];
		const struct baseline_engine *engine = baseline_engines[i];
		const struct shape_widths widths = {engine->a_bytes, engine->b_bytes,
						    sizeof(float)};
		struct entry *e = &c->entries[c->count];

		if (!baseline ||
		    !baseline_prepare(baseline, o->shape - c->run->list->shapes,
				      o->threads, c->skipped[i]))
			continue;
		c->count++;
		e->baseline = baseline;
		e->info.backend = engine->backend;
		e->info.copies = baseline_copies(baseline);
		e->info.flop = shape_flop(o->shape);
		shape_bytes(o->shape, widths, &e->info.bytes_read,
			    &e->info.bytes_written);
		/* A dual GEMM is two multiplications, each with a result. */
		if (shape_ops[o->shape->op].op == NIB_OP_DUAL_GEMM)
			e->info.bytes_written *= 2;
		e->multiply = want_peak(c, peak_widest(engine->limit));
		e->read = want_peak(c, PEAK_READ);
	}
}

static void want_other_peaks(struct comparison *c)
{
	if (c->options->timed != JOB_RUN)
		return;
	if (c->run->on_gpu) {
		want_peak(c, PEAK_GPU_CLOCK);
	} else if (!multiplies(c)) {
		want_peak(c, PEAK_WRITE);
		want_peak(c, PEAK_COPY);
	}
}

/* ---- rows ---------------------------------------------------------------- */

/* The line that gives the row again. */
static void set_command(const struct comparison *c, const struct entry *e, json_t *row)
{
	const struct measure_options *o = c->options;
	bool is_job = e->job != NULL;
	char arguments[4096], line[4608], where[48] = "";

	shape_arguments(o->shape, arguments, sizeof arguments);
	/* Backends are called "cpu-" and the instruction set's name. */
	if (c->run->on_gpu)
		snprintf(where, sizeof where, " --device %s", c->run->device);
	else if (is_job)
		snprintf(where, sizeof where, " --isa %s",
			 strchr(e->info.backend, '-') + 1);
	snprintf(line, sizeof line,
		 "nib bench %s --threads %d%s --layout %s --activations %s "
		 "--out %s --dtype %s "
		 "--%s --data %s --seed %llu --min-time %g --samples %d%s%s",
		 arguments, o->threads, where, cli_layout_names[o->data.layout],
		 cli_activations_names[o->data.activations],
		 cli_dtype_names[o->data.out], cli_dtype_names[o->data.dtype],
		 is_job && !e->packed ? "unpacked" : "packed",
		 o->data.fill == DATA_FULL ? "full" : "contest",
		 (unsigned long long)o->data.seed, o->min_time_s, o->min_samples,
		 o->timed != JOB_RUN ? " --plan" : "", is_job ? "" : " --baselines");
	row_text(row, "command", line);
}

/* What every row has. */
static json_t *new_row(const struct measure_run *run, const char *op, const char *shape,
		       const char *backend, int threads)
{
	json_t *row =
	    json_pack("{ss ss ss si ss ss ss}", "op", op, "shape", shape, "backend",
		      backend, "threads", threads, "version", nib_version(), "machine",
		      run->machine, "date", run->date);

	if (run->load.processors > 0) {
		row_number(row, "processors", run->load.processors);
		row_number(row, "load_average", run->load.average);
		if (run->load.others >= 0)
			row_number(row, "others_busy", run->load.others);
	}
	return row;
}

json_t *measure_start_row(const struct measure_run *run,
			  const struct measure_options *o, const char *backend)
{
	const enum shape_op op = o->shape->op;
	const char *dtype = cli_dtype_names[o->data.dtype];
	char text[SHAPE_TEXT], with_op[SHAPE_TEXT + 16];
	json_t *row;

	shape_text(o->shape, text);
	snprintf(with_op, sizeof with_op, "%s %s", shape_op_names[op], text);
	if (o->timed == JOB_RUN)
		row = new_row(run, shape_op_names[op], text, backend, o->threads);
	else
		row = new_row(run, o->timed == JOB_PLAN ? "plan" : "queue", with_op,
			      backend, o->threads);
	if (*o->shape->name)
		row_text(row, "name", o->shape->name);
	row_bool(row, "predicted", run->predicts);
	row_text(row, "layout", cli_layout_names[o->data.layout]);
	row_text(row, "out",
		 op == OP_CONVERT      ? cli_layout_names[!o->data.layout]
		 : op == OP_QUANTIZE   ? "nvfp4"
		 : op == OP_DEQUANTIZE ? dtype
				       : cli_dtype_names[o->data.out]);
	if (op == OP_QUANTIZE)
		row_text(row, "dtype", dtype);
	return row;
}

/* Time, work and limit of an entry. */
static void set_times(const struct comparison *c, const struct entry *e, json_t *row)
{
	const struct job_info *info = &e->info;
	double bytes = info->bytes_read + info->bytes_written;
	double time_s = bench_samples_median(&e->samples_s, 0);

	row_number(row, "time_s", time_s);
	row_samples(row, &e->samples_s);
	if (c->options->timed != JOB_RUN || time_s <= 0)
		return;
	row_number(row, "flop", info->flop);
	row_number(row, "bytes", bytes);
	if (info->flop > 0)
		row_number(row, "gflops", info->flop / time_s * 1e-9);
	row_number(row, "gbps", bytes / time_s * 1e-9);
	limits_set(c, e, time_s, row);
}

static void set_check(const struct nib_check_result *check, json_t *row)
{
	if (check->checked == 0)
		return;
	row_number(row, "error", check->worst_error);
	row_number(row, "bound", check->worst_bound);
	row_number(row, "error_fraction", check->worst_fraction);
	row_number(row, "checked", (double)check->checked);
	row_bool(row, "ok", check->failed == 0);
}

/* How many times faster than each baseline: as an object and as words. */
static void set_speedup(const struct comparison *c, const struct entry *of, json_t *row)
{
	double time_s = bench_samples_median(&of->samples_s, 0);
	json_t *ratios = json_object();
	char words[256] = "";

	for (int j = 0; j < c->count; j++) {
		const struct entry *e = &c->entries[j];
		double ratio = bench_samples_median(&e->samples_s, 0) / time_s;
		const char *name;
		size_t used = strlen(words);

		if (!e->baseline || !(time_s > 0) || !(ratio > 0))
			continue;
		name = e->info.backend + strlen("baseline:");
		json_object_set_new(ratios, name, json_real(ratio));
		snprintf(words + used, sizeof words - used, "%s%.2f x %s",
			 used ? ", " : "", ratio, name);
	}
	if (*words)
		row_text(row, "against_baselines", words);
	json_object_set_new(row, "speedup", ratios);
}

static void add_rows(const struct comparison *c, struct rows *rows)
{
	const char *activations = cli_activations_names[c->options->data.activations];
	char words[BASELINE_REASON + 16];
	json_t *row;

	for (int i = 0; i < c->count; i++) {
		const struct entry *e = &c->entries[i];

		if (e->role != ROW)
			continue;
		row = measure_start_row(c->run, c->options, e->info.backend);
		set_times(c, e, row);
		set_command(c, e, row);
		if (e->baseline)
			row_text(row, "version", baseline_version(e->baseline));
		if (e->job && shape_is_multiply(c->options->shape)) {
			row_bool(row, "packed", e->packed);
			row_text(row, "activations", activations);
		}
		if (e->job) {
			row_integer(row, "copies", e->info.copies);
			row_text(row, "plan", e->info.explanation);
			set_check(&e->check, row);
			set_speedup(c, e, row);
		}
		rows_add(rows, row);
	}
	for (int i = 0; i < BASELINES; i++) {
		if (!c->skipped[i][0])
			continue;
		row =
		    measure_start_row(c->run, c->options, baseline_engines[i]->backend);
		row_text(row, "skipped", c->skipped[i]);
		snprintf(words, sizeof words, "skipped: %s", c->skipped[i]);
		row_text(row, "against_baselines", words);
		rows_add(rows, row);
	}
}

/* ---- the whole ----------------------------------------------------------- */

static enum nib_status compare(struct comparison *c, const char *item,
			       struct nib_error *err)
{
	const struct measure_options *o = c->options;
	struct rounds_options rounds = {
	    .threads = o->threads,
	    .min_time_s = o->min_time_s,
	    .min_samples = o->min_samples,
	    .peaks = c->peaks,
	    .item = item,
	    .done = c->run->done,
	};
	enum nib_status status = add_jobs(c, err);

	if (status)
		return status;
	add_baselines(c);
	want_other_peaks(c);
	rounds.n_peaks = c->n_peaks;
	status = rounds_run(c->entries, c->count, c->run->peaks, &rounds, err);
	if (status)
		return status;
	if (c->run->on_gpu)
		peaks_sample(c->run->peaks, PEAK_GPU_CLOCK, o->threads);
	for (int i = 0; i < c->count; i++) {
		const struct entry *e = &c->entries[i];

		if (e->role != GEMM_RATE || !e->gemm)
			continue;
		for (int j = 0; j < e->samples_s.count; j++)
			bench_samples_add(&e->gemm->samples,
					  e->info.flop / e->samples_s.values[j]);
	}
	return NIB_STATUS_OK;
}

int measure_shape(struct measure_run *run, const struct measure_options *options)
{
	struct comparison c = {.run = run, .options = options};
	/* A backend has rows of packed weights and not, and a GEMM's rate. */
	const size_t most = (size_t)options->n_isas * 3 + 1 + BASELINES;
	struct nib_error err = {0};
	char text[SHAPE_TEXT], item[SHAPE_TEXT + 32];
	enum nib_status status;

	c.entries = calloc(most, sizeof *c.entries);
	if (!c.entries)
		return cli_no_memory("measurement");
	snprintf(item, sizeof item, "%s %s, %d thread%s",
		 shape_op_names[options->shape->op], shape_text(options->shape, text),
		 options->threads, options->threads == 1 ? "" : "s");
	progress_update(run->done, item);
	measure_load(run);
	status = compare(&c, item, &err);
	run->done++;
	if (!status)
		add_rows(&c, &run->rows);
	entries_free(c.entries, c.count);
	free(c.entries);
	return status ? cli_fail_activations(item, &err, options->data.activations,
					     run->on_gpu)
		      : CLI_OK;
}

/* The command that measures the rate again. */
static void rate_command(const struct measure_run *run, const struct series *s,
			 char *text, size_t bytes)
{
	if (s->kind == PEAK_GEMM)
		snprintf(text, bytes,
			 "nib bench --op gemm --shape %dx%dx%lld --threads %d "
			 "--isa %s --activations %s",
			 GEMM_RATE_ROWS, GEMM_RATE_COLS * s->threads, (long long)s->k,
			 s->threads, strchr(s->backend, '-') + 1,
			 cli_activations_names[s->activations]);
	else if (run->on_gpu)
		snprintf(text, bytes, "nib bench --peaks --device %s", run->device);
	else
		snprintf(text, bytes, "nib bench --peaks --threads %d", s->threads);
}

void measure_peak_rows(const struct measure_run *run, json_t *rows)
{
	for (int i = 0; i < peaks_count(run->peaks); i++) {
		const struct series *s = peaks_at(run->peaks, i);
		const double per_s = series_rate(s, 0);
		struct bench_samples times = {0};
		char command[160], pattern[SERIES_PATTERN_TEXT];
		json_t *row;

		if (s->samples.count == 0)
			continue;
		for (int j = 0; j < s->samples.count; j++)
			bench_samples_add(&times, 1e9 / s->samples.values[j]);
		row = new_row(run, "peak", s->name, s->backend, s->threads);
		row_number(row, "time_s", 1e9 / per_s);
		row_samples(row, &times);
		row_number(row, series_is_memory(s) ? "bytes" : "flop", 1e9);
		row_number(row, series_is_memory(s) ? "gbps" : "gflops", per_s * 1e-9);
		row_text(row, "unit", s->unit);
		series_pattern(s, pattern);
		if (*pattern)
			row_text(row, "pattern", pattern);
		rate_command(run, s, command, sizeof command);
		row_text(row, "command", command);
		json_array_append_new(rows, row);
		bench_samples_free(&times);
	}
}
