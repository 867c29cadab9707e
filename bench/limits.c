/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c - the least time that this machine can need: see measure.h. */
#include <math.h>
#include <string.h>

#include "device.h"
#include "measure.h"

/*
 * Products of at most this many rows are compared with the rate of a GEMM, not
 * of an instruction: a group of them as a whole, whatever rows each has.
 */
#define FEW_ROWS 8

/* Samples of each rate for nib plan. */
#define QUICK_SAMPLES 3

int64_t limits_few_rows_k(const struct shape *shape)
{
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

/* Bandwidth is that of this comparison, see peaks_rate(). */
static double rate(const struct comparison *c, const struct series *series)
{
	return series ? peaks_rate(c->run->peaks, series, c->first_sample[series->kind])
		      : 0;
}

struct limit {
	double s, units;
	const char *name;      /* of a peak's row */
	struct series *series; /* that it is; NULL: there is none */
};

static void raise_limit(const struct comparison *c, struct limit *limit, double units,
			struct series *series)
{
	double r = rate(c, series);

	if (r > 0 && units / r > limit->s) {
		limit->s = units / r;
		limit->units = units;
		limit->name = series->name;
		limit->series = series;
	}
}

/*
 * The least time that this machine can need: for a multiplication the slower of
 * its multiply-adds and of moving its operands, the sums of all products of a
 * group (not the sum of the slower of each: weights of one may be read while
 * another is computed); for the others the slowest of reading, writing and both
 * together.
 */
static struct limit limit_of(const struct comparison *c, const struct entry *e)
{
	struct peaks *peaks = c->run->peaks;
	double bytes = e->info.bytes_read + e->info.bytes_written;
	struct limit limit = {.name = "read bandwidth"};
	int threads = c->options->threads;

	if (shape_is_multiply(c->options->shape)) {
		raise_limit(c, &limit, e->info.flop, e->gemm ? e->gemm : e->multiply);
		raise_limit(c, &limit, bytes, e->read);
	} else if (c->run->on_gpu) {
		raise_limit(c, &limit, bytes, e->read);
	} else {
		raise_limit(c, &limit, e->info.bytes_read, e->read);
		raise_limit(c, &limit, e->info.bytes_written,
			    peaks_series(peaks, PEAK_WRITE, threads));
		raise_limit(c, &limit, bytes, peaks_series(peaks, PEAK_COPY, threads));
	}
	return limit;
}

/* A plain read of the same bytes, and the clock around all of it. */
static void set_gpu(const struct comparison *c, double time_s, json_t *row)
{
	const struct series *clock =
	    peaks_series(c->run->peaks, PEAK_GPU_CLOCK, c->options->threads);
	int first = c->first_sample[PEAK_GPU_CLOCK];

	for (int i = 0; i < c->count; i++) {
		const struct entry *e = &c->entries[i];
		double read_s = bench_samples_median(&e->samples_s, 0);

		if (e->role != PLAIN_READ || read_s <= 0)
			continue;
		row_number(row, "read_s", read_s);
		row_number(row, "fraction_of_read", read_s / time_s);
	}
	if (!clock || clock->samples.count <= first)
		return;
	row_number(row, "clock_before_mhz", clock->samples.values[first] * 1e-6);
	row_number(row, "clock_after_mhz",
		   clock->samples.values[clock->samples.count - 1] * 1e-6);
}

/* Operands of so many times the caches are mostly not in them. */
#define UNCACHED_TIMES 2

/*
 * Why a row moves data faster than its limit: some of the data is in caches, or the
 * plain loops that measure bandwidth are slower.  The rate is then one that memory
 * has, and the limit of the rows that follow.
 */
static void note_limit(const struct comparison *c, const struct entry *e,
		       const struct limit *limit, double time_s, json_t *row)
{
	const double held = (e->info.bytes_read + e->info.bytes_written) *
			    (double)(e->info.copies > 0 ? e->info.copies : 1);
	struct series *s = limit->series;

	if (!s || !series_is_memory(s) || c->run->on_gpu || limit->s <= time_s)
		return;
	if (held < UNCACHED_TIMES * (double)machine_cache_bytes()) {
		row_text(row, "limit_note", ROWS_CACHED);
		return;
	}
	s->reached = fmax(s->reached, limit->units / time_s);
	row_text(row, "limit_note", "faster than the plain loops");
}

void limits_set(const struct comparison *c, const struct entry *e, double time_s,
		json_t *row)
{
	const struct limit limit = limit_of(c, e);
	double multiply = rate(c, e->multiply), read = rate(c, e->read);

	if (multiply > 0)
		row_number(row, "peak_gflops", multiply * 1e-9);
	if (read > 0)
		row_number(row, "peak_gbps", read * 1e-9);
	if (limit.s > 0) {
		row_number(row, "limit_s", limit.s);
		row_number(row, "fraction_of_limit", limit.s / time_s);
		row_text(row, "limit_kind", limit.name);
		note_limit(c, e, &limit, time_s, row);
	}
	if (c->run->on_gpu)
		set_gpu(c, time_s, row);
}

/* ---- nib plan ------------------------------------------------------------ */

static double best(struct peaks *peaks, enum peak_kind kind, int threads)
{
	double most = 0;

	for (int i = 0; i < QUICK_SAMPLES; i++)
		most = fmax(most, peaks_sample(peaks, kind, threads));
	return most > 0 ? most * 1e-9 : INFINITY;
}

/* What the GPU that a software GPU stands for does at its highest clocks. */
static void limits_by_clock(const struct nib_device_info *info, struct limits *limits)
{
	/*
	 * A multiprocessor and cycle: dense fp16 on Hopper (NVIDIA, H100
	 * architecture), NVFP4 on Blackwell (docs/performance-blackwell.md).
	 */
	const double flop =
	    info->arithmetic == NIB_ARITHMETIC_FP4_TENSOR ? 32768 : 4096;

	limits->compute_name = "clock";
	limits->memory_name = "memory clock";
	limits->gflops = flop * info->multiprocessors * info->clock_khz * 1e-6;
	limits->gbps = 2e-6 * info->memory_clock_khz * info->memory_bus_bits / 8;
}

void limits_measure(const struct nib_device *device, enum cli_activations activations,
		    struct limits *limits)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	enum peak_kind compute = peak_multiply(cli_backend(device), activations);
	enum peak_kind memory = peak_read_memory(cli_backend(device));
	bool on_gpu = peak_is_gpu(memory);
	int threads = cli_threads(device);
	struct peaks *peaks;
	struct nib_error err;

	*limits = (struct limits){
	    .gflops = INFINITY,
	    .gbps = INFINITY,
	    .compute_name = peak_name(compute),
	    .memory_name = peak_name(memory),
	};
	nib_device_get_info(device, &info, NULL);
	if (strstr(info.hardware, " in software")) {
		limits_by_clock(&info, limits);
		return;
	}
	peaks = peaks_create();
	if (peaks && (!on_gpu || !peaks_use_gpu(peaks, info.name, &err))) {
		limits->gflops = best(peaks, compute, threads);
		limits->gbps = best(peaks, memory, threads);
	}
	peaks_free(peaks);
}
