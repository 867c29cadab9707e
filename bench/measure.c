/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - from a shape to rows: see measure.h. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"
#include "rows.h"

/* Rooms times packed and unpacked, and all peers. */
#define MAX_CONTESTANTS 16

bool measure_begin(struct measure_run *run)
{
	time_t now = time(NULL);
	struct tm utc;

	*run = (struct measure_run){0};
	run->peaks = peaks_create();
	run->peers = calloc((size_t)peer_count(), sizeof(*run->peers));
	machine_describe(run->machine, sizeof run->machine);
	strftime(run->date, sizeof run->date, "%Y-%m-%dT%H:%M:%SZ",
		 gmtime_r(&now, &utc));
	return run->peaks && run->peers;
}

void measure_start_peers(struct measure_run *run, const struct shape_list *list,
			 const struct data_options *options)
{
	for (int i = 0; i < peer_count(); i++)
		run->peers[i] = peer_start(i, list, options);
}

void measure_end(struct measure_run *run)
{
	for (int i = 0; run->peers && i < peer_count(); i++)
		peer_stop(run->peers[i]);
	free(run->peers);
	peaks_free(run->peaks);
	*run = (struct measure_run){0};
}

/* -------------------------------------------------------------------------- */

/* One contest: who takes part, and which peaks it is held against. */
struct field {
	const struct measure_run *run;
	const struct measure_options *options;
	struct contestant contestants[MAX_CONTESTANTS];
	int peer[MAX_CONTESTANTS]; /* index of a peer; -1 for a job */
	bool packed[MAX_CONTESTANTS];
	const char *isa[MAX_CONTESTANTS];
	struct nib_check_result check[MAX_CONTESTANTS];
	int count;
	char skipped[MAX_CONTESTANTS]
		    [PEER_REASON]; /* by peer; "" = takes part */
	enum peak_kind peaks[PEAK_KINDS];
	int n_peaks;
	int first_sample[PEAK_KINDS]; /* of this contest in its series */
};

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

static bool is_memory(enum peak_kind kind)
{
	return !strcmp(peak_unit(kind), "B");
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

	if (is_memory(kind))
		return bench_samples_median(samples, field->first_sample[kind]);
	return bench_samples_quantile(samples, 0, 0.75);
}

static bool multiplies(const struct field *field)
{
	return shape_is_multiply(field->options->shape) &&
	       field->options->timed == JOB_RUN;
}

static enum nib_status add_job(struct field *field, const char *isa,
			       bool packed, struct nib_error *err)
{
	const struct measure_options *options = field->options;
	struct job_options job = {
	    .data = options->data,
	    .threads = options->threads,
	    .isa = isa,
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
	field->peer[i] = -1;
	field->isa[i] = isa;
	field->packed[i] = packed;
	field->count++;
	if (multiplies(field))
		want_peak(field, job_peak(field->contestants[i].job));
	if (options->check_rows < 0)
		return NIB_OK;
	return job_check(field->contestants[i].job, options->check_rows,
			 options->data.seed, &field->check[i], err);
}

static enum nib_status add_jobs(struct field *field, struct nib_error *err)
{
	const struct measure_options *options = field->options;
	enum nib_status status = NIB_OK;
	/* Weights are packed or not only where there are weights. */
	bool weights = shape_is_multiply(options->shape);

	for (int i = 0; i < options->n_isas && !status; i++) {
		if (options->packed || !weights)
			status = add_job(field, options->isas[i], weights, err);
		if (options->unpacked && weights && !status)
			status = add_job(field, options->isas[i], false, err);
	}
	return status;
}

static void add_peers(struct field *field)
{
	for (int p = 0; p < peer_count() && p < MAX_CONTESTANTS; p++) {
		struct peer *peer = field->run->peers[p];
		int i = field->count;

		if (!peer || i == MAX_CONTESTANTS)
			continue;
		if (!peer_prepare(peer, field->options->shape_index,
				  field->options->threads, field->skipped[p]))
			continue;
		field->contestants[i].peer = peer;
		field->peer[i] = p;
		field->count++;
		want_peak(field, peer_limit(p));
	}
}

static void want_memory_peaks(struct field *field)
{
	if (field->options->timed == JOB_PLAN)
		return;
	want_peak(field, PEAK_READ);
	if (!multiplies(field)) {
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
		if (c->peer)
			peer_release(c->peer);
	}
}

/* -------------------------------------------------------------------------- */

struct limit {
	double s;
	enum peak_kind kind;
};

static void raise_limit(const struct field *field, struct limit *limit,
			double units, enum peak_kind kind)
{
	double r = rate(field, kind);

	if (r > 0 && units / r > limit->s) {
		limit->s = units / r;
		limit->kind = kind;
	}
}

/*
 * The least time that this machine can need: for a multiplication the slower of
 * its multiply-adds and of reading its operands; for the others the slowest of
 * reading, writing and both together.
 */
static struct limit limit_of(const struct field *field, int i)
{
	const struct job *job = field->contestants[i].job;
	struct limit limit = {0, PEAK_READ};

	if (!job) {
		int p = field->peer[i];

		raise_limit(field, &limit, shape_flop(field->options->shape),
			    peer_limit(p));
		raise_limit(field, &limit, peer_bytes(p, field->options->shape),
			    PEAK_READ);
	} else if (multiplies(field)) {
		raise_limit(field, &limit, job_flop(job), job_peak(job));
		raise_limit(field, &limit,
			    job_bytes_read(job) + job_bytes_written(job),
			    PEAK_READ);
	} else if (field->options->timed == JOB_RUN) {
		raise_limit(field, &limit, job_bytes_read(job), PEAK_READ);
		raise_limit(field, &limit, job_bytes_written(job), PEAK_WRITE);
		raise_limit(field, &limit,
			    job_bytes_read(job) + job_bytes_written(job),
			    PEAK_COPY);
	}
	return limit;
}

/* The line that gives row i again. */
static void set_command(const struct field *field, int i, json_t *row)
{
	const struct measure_options *o = field->options;
	const struct contestant *c = &field->contestants[i];
	char arguments[4096], line[4608], isa[32] = "";

	shape_arguments(o->shape, arguments, sizeof arguments);
	/* Rooms are called "cpu-" and the instruction set's name. */
	if (c->job)
		snprintf(isa, sizeof isa, " --isa %s",
			 strchr(job_room(c->job), '-') + 1);
	snprintf(line, sizeof line,
		 "nib bench %s --threads %d%s --layout %s --out %s --dtype %s "
		 "--%s --data %s --seed %llu --min-time %g --samples %d%s%s",
		 arguments, o->threads, isa, cli_layout_names[o->data.layout],
		 cli_dtype_names[o->data.out], cli_dtype_names[o->data.dtype],
		 c->job && !field->packed[i] ? "unpacked" : "packed",
		 o->data.fill == DATA_FULL ? "full" : "contest",
		 (unsigned long long)o->data.seed, o->min_time_s,
		 o->min_samples, o->timed == JOB_PLAN ? " --plan" : "",
		 c->job ? "" : " --peers");
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

static json_t *start_row(const struct field *field, const char *room)
{
	const struct measure_options *o = field->options;
	char text[256];
	json_t *row = row_new();
	bool plan = o->timed == JOB_PLAN;

	shape_text(o->shape, text);
	if (plan) {
		char with_op[256];

		snprintf(with_op, sizeof with_op, "%s %.200s",
			 shape_op_names[o->shape->op], text);
		memcpy(text, with_op, sizeof text);
	}
	row_text(row, "op", plan ? "plan" : shape_op_names[o->shape->op]);
	row_text(row, "shape", text);
	row_text(row, "room", room);
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
	struct limit limit = limit_of(field, i);
	double flop =
	    c->job ? job_flop(c->job) : shape_flop(field->options->shape);
	double bytes = c->job
			   ? job_bytes_read(c->job) + job_bytes_written(c->job)
			   : peer_bytes(field->peer[i], field->options->shape);

	row_number(row, "time_s", time_s);
	row_samples(row, "samples_s", &c->samples_s);
	if (field->options->timed == JOB_PLAN || time_s <= 0)
		return;
	row_number(row, "flop", flop);
	row_number(row, "bytes", bytes);
	if (flop > 0)
		row_number(row, "gflops", flop / time_s * 1e-9);
	row_number(row, "gbps", bytes / time_s * 1e-9);
	row_number(row, "limit_s", limit.s);
	row_number(row, "fraction_of_limit", limit.s / time_s);
	row_text(row, "limit_kind", peak_name(limit.kind));
}

/* How many times faster than each peer: as an object and as words. */
static void set_speedup(const struct field *field, int i, json_t *row)
{
	double time_s =
	    bench_samples_median(&field->contestants[i].samples_s, 0);
	json_t *ratios = json_object();
	char words[256] = "";

	for (int j = 0; j < field->count; j++) {
		const struct contestant *c = &field->contestants[j];
		double peer_s = bench_samples_median(&c->samples_s, 0);
		const char *room;
		size_t used = strlen(words);

		if (!c->peer || peer_s <= 0 || time_s <= 0)
			continue;
		room = peer_room(field->peer[j]) + strlen("peer:");
		json_object_set_new(ratios, room, json_real(peer_s / time_s));
		snprintf(words + used, sizeof words - used, "%s%.2f x %s",
			 used ? ", " : "", peer_s / time_s, room);
	}
	if (*words)
		row_text(row, "against_peers", words);
	json_object_set_new(row, "speedup", ratios);
}

static void append_rows(const struct field *field, json_t *rows)
{
	char words[PEER_REASON + 16];
	json_t *row;

	for (int i = 0; i < field->count; i++) {
		const struct contestant *c = &field->contestants[i];

		row = start_row(field, c->job ? job_room(c->job)
					      : peer_room(field->peer[i]));
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
	for (int p = 0; p < peer_count() && p < MAX_CONTESTANTS; p++) {
		if (!field->skipped[p][0])
			continue;
		row = start_row(field, peer_room(p));
		row_text(row, "skipped", field->skipped[p]);
		snprintf(words, sizeof words, "skipped: %s", field->skipped[p]);
		row_text(row, "against_peers", words);
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
	if (!status && multiplies(field))
		add_peers(field);
	if (!status) {
		want_memory_peaks(field);
		contest.peaks = field->peaks;
		contest.n_peaks = field->n_peaks;
		status = contest_run(field->contestants, field->count,
				     run->peaks, &contest, err);
	}
	if (!status)
		append_rows(field, rows);
	free_field(field);
	free(field);
	return status;
}

/* -------------------------------------------------------------------------- */

void measure_peaks(struct measure_run *run, int threads, int n)
{
	for (int i = 0; i < n; i++) {
		for (int kind = 0; kind < PEAK_KINDS; kind++)
			peaks_sample(run->peaks, (enum peak_kind)kind, threads);
	}
}

static json_t *peak_row(const struct measure_run *run, enum peak_kind kind,
			int threads, const struct bench_samples *samples)
{
	bool is_bytes = is_memory(kind);
	double per_s =
	    bench_samples_quantile(samples, 0, is_bytes ? 0.5 : 0.75);
	struct bench_samples times = {0};
	char line[64];
	json_t *row = row_new();

	for (int i = 0; i < samples->count; i++)
		bench_samples_add(&times, 1e9 / samples->values[i]);
	snprintf(line, sizeof line, "nib bench --peaks --threads %d", threads);
	row_text(row, "op", "peak");
	row_text(row, "shape", peak_name(kind));
	row_text(row, "room", "cpu");
	row_integer(row, "threads", threads);
	row_number(row, "time_s", 1e9 / per_s);
	row_samples(row, "samples_s", &times);
	row_number(row, is_bytes ? "bytes" : "flop", 1e9);
	row_number(row, is_bytes ? "gbps" : "gflops", per_s * 1e-9);
	row_text(row, "unit", peak_unit(kind));
	row_text(row, "version", nib_version());
	row_text(row, "machine", run->machine);
	row_text(row, "date", run->date);
	row_text(row, "command", line);
	bench_samples_free(&times);
	return row;
}

void measure_peak_rows(struct measure_run *run, json_t *rows)
{
	for (int i = 0; i < peaks_series_count(run->peaks); i++) {
		enum peak_kind kind;
		int threads;
		const struct bench_samples *samples =
		    peaks_series_at(run->peaks, i, &kind, &threads);

		if (samples->count)
			json_array_append_new(
			    rows, peak_row(run, kind, threads, samples));
	}
}
