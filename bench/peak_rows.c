/* SPDX-License-Identifier: Apache-2.0 */
/* peak_rows.c - the limits as rows (op "peak"), sampled on the way or asked
 * for: the last part of measure.h. */
#include <stdio.h>
#include <string.h>

#include "gemm_rate.h"
#include "measure.h"
#include "rows.h"

void measure_peaks(struct measure_run *run, int threads, int n)
{
	for (int i = 0; i < n; i++) {
		for (int kind = 0; kind < PEAK_KINDS; kind++)
			if (peak_is_gpu((enum peak_kind)kind) == run->on_gpu)
				peaks_sample(run->peaks, (enum peak_kind)kind,
					     threads);
	}
}

/* What a rate is of, and how it is measured again. */
struct rate {
	const char *name, *backend, *unit, *command;
	int threads;
	bool is_bytes;
	double quantile; /* of the samples: see limits.c */
};

static json_t *rate_row(const struct measure_run *run, const struct rate *rate,
			const struct bench_samples *samples)
{
	double per_s = bench_samples_quantile(samples, 0, rate->quantile);
	struct bench_samples times = {0};
	json_t *row = row_new();

	for (int i = 0; i < samples->count; i++)
		bench_samples_add(&times, 1e9 / samples->values[i]);
	row_text(row, "op", "peak");
	row_text(row, "shape", rate->name);
	row_text(row, "backend", rate->backend);
	row_integer(row, "threads", rate->threads);
	row_number(row, "time_s", 1e9 / per_s);
	row_samples(row, "samples_s", &times);
	row_spread(row, &times);
	row_number(row, rate->is_bytes ? "bytes" : "flop", 1e9);
	row_number(row, rate->is_bytes ? "gbps" : "gflops", per_s * 1e-9);
	row_text(row, "unit", rate->unit);
	row_text(row, "version", nib_version());
	row_text(row, "machine", run->machine);
	row_text(row, "date", run->date);
	row_text(row, "command", rate->command);
	bench_samples_free(&times);
	return row;
}

static void add_peak(struct measure_run *run, int i, json_t *rows)
{
	enum peak_kind kind;
	int threads;
	const struct bench_samples *samples =
	    peaks_series_at(run->peaks, i, &kind, &threads);
	char command[64];
	const struct rate rate = {
	    .name = peak_name(kind),
	    .backend = peaks_backend(run->peaks, kind),
	    .unit = peak_unit(kind),
	    .command = command,
	    .threads = threads,
	    .is_bytes = peak_is_memory(kind),
	    .quantile = peak_is_memory(kind) ? 0.5 : 0.75,
	};

	if (run->on_gpu)
		snprintf(command, sizeof command,
			 "nib bench --peaks --device %s", run->device);
	else
		snprintf(command, sizeof command,
			 "nib bench --peaks --threads %d", threads);
	if (samples->count)
		json_array_append_new(rows, rate_row(run, &rate, samples));
}

static void add_gemm_rate(struct measure_run *run, int i, json_t *rows)
{
	struct gemm_rate gemm;
	const struct bench_samples *samples =
	    gemm_rates_at(run->gemm_rates, i, &gemm);
	/* Backends are called "cpu-" and the instruction set's name. */
	const char *isa = strchr(gemm.backend, '-') + 1;
	char name[GEMM_RATE_NAME], command[160];
	const struct rate rate = {
	    .name = gemm_rate_name(gemm.k, gemm.backend, name),
	    .backend = gemm.backend,
	    .unit = "FLOP",
	    .command = command,
	    .threads = gemm.threads,
	    .quantile = 1,
	};

	snprintf(command, sizeof command,
		 "nib bench --op gemm --shape %dx%dx%lld --threads %d --isa %s",
		 GEMM_RATE_ROWS, GEMM_RATE_COLS * gemm.threads,
		 (long long)gemm.k, gemm.threads, isa);
	if (samples->count)
		json_array_append_new(rows, rate_row(run, &rate, samples));
}

void measure_peak_rows(struct measure_run *run, json_t *rows)
{
	for (int i = 0; i < peaks_series_count(run->peaks); i++)
		add_peak(run, i, rows);
	for (int i = 0; i < gemm_rates_count(run->gemm_rates); i++)
		add_gemm_rate(run, i, rows);
}
