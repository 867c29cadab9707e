/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_costs.c - see tile_costs.h.
 *
 * The model: a product that gives each multiprocessor the same number of tiles, each of
 * m rows, takes
 *
 *	launch(m, k) + tiles * (tile + k / 64 * step)
 *
 * cycles.  Products with one and with two tiles per multiprocessor differ by the term
 * in brackets, because launch(), which includes the conversion of A, cancels.  Two
 * values of k then give step and tile.  Each round measures the four products one after
 * the other.  Their weights stay in the L2, so that the cost of a tile does not include
 * DRAM bandwidth.
 *
 * The model is approximate, so the measured costs may make the planner choose worse
 * tiles than the costs in use.  Therefore two groups are timed with both.
 */
#include "tile_costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine.h"
#include "progress.h"
#include "rounds.h"

#define STEP_K 64
/* With two tiles per multiprocessor of an H200, HIGH_K has 29 MB of weights, which fit
 * in the L2. */
#define LOW_K  512
#define HIGH_K 1536
/* k and rows of the product that is measured with and without split-k. */
#define SPLIT_K	   2048
#define SPLIT_ROWS 128

/* The most rows that a kernel without tiles supports. */
#define FEW_ROWS 64

/* Extreme costs: the planner avoids NEVER and prefers ALWAYS. */
#define NEVER  1000000
#define ALWAYS 1

/* The number of groups that are timed: the first of the preset "seeds", of eight
 * products each. */
#define N_GROUPS 2

struct tuner {
	const struct tile_costs_options *options;
	struct peaks *peaks;
	double done;
};

static const enum peak_kind clock_kind = PEAK_GPU_CLOCK;

int tile_costs_steps(const struct nib_costs *costs)
{
	return costs->sizes + 1 + N_GROUPS;
}

/* Rounds x to *cost if it is a valid cost; otherwise returns false. */
static bool set_cost(double x, int *cost)
{
	if (!(x >= 0.5 && x <= NEVER))
		return false;
	*cost = (int)lround(x);
	return true;
}

/* Costs with which the planner must choose tiles of this size and no split-k. */
static struct nib_costs only_size(const struct nib_costs *costs, int size)
{
	struct nib_costs only = *costs;

	for (int i = 0; i < only.sizes; i++)
		only.step_cycles[i] = i == size ? ALWAYS : NEVER;
	only.tile_cycles = ALWAYS;
	only.split_cycles = NEVER;
	return only;
}

static enum nib_status add_shape(const struct tuner *tuner,
				 const struct nib_costs *costs,
				 const struct shape *shape, struct entry *entry,
				 struct nib_error *err)
{
	const struct job_options options = {
	    .data = {.out = NIB_DTYPE_BF16, .packed = true, .seed = 1},
	    .threads = 1,
	    .device = tuner->options->device,
	    .timed = JOB_RUN,
	    .copies = 1,
	    .costs = costs,
	};

	return job_new(shape, &options, &entry->job, err);
}

/* A single product of few rows would run in a kernel without tiles.  A group of two,
 * with half of the columns each, runs in tiles. */
static enum nib_status add_product(const struct tuner *tuner,
				   const struct nib_costs *costs,
				   struct shape_size size, struct entry *entry,
				   struct nib_error *err)
{
	const int64_t half = size.n / costs->tile_cols / 2 * costs->tile_cols;
	struct shape_size halves[2] = {{size.m, half, size.k},
				       {size.m, size.n - half, size.k}};
	const bool is_few = size.m <= FEW_ROWS && half > 0;
	const struct shape shape = {.op = is_few ? OP_GROUP_GEMM : OP_GEMM,
				    .batch = 1,
				    .count = is_few ? 2 : 1,
				    .sizes = is_few ? halves : &size};

	return add_shape(tuner, costs, &shape, entry, err);
}

/* cycles: the median time of each entry times the median clock. */
static enum nib_status measure_cycles(struct tuner *tuner, struct entry *entries,
				      int count, double *cycles, struct nib_error *err)
{
	const struct tile_costs_options *o = tuner->options;
	const struct rounds_options rounds = {
	    .threads = 1,
	    .min_time_s = o->min_time_s,
	    .min_samples = o->min_samples,
	    .peaks = &clock_kind,
	    .n_peaks = 1,
	};
	const struct series *clock = peaks_series(tuner->peaks, clock_kind, 1);
	const int first = clock ? clock->samples.count : 0;
	enum nib_status status = rounds_run(entries, count, tuner->peaks, &rounds, err);

	for (int i = 0; i < count; i++)
		cycles[i] = bench_samples_median(&entries[i].samples_s, 0) *
			    (clock ? bench_samples_median(&clock->samples, first) : 0);
	return status;
}

/* Fits a line to the cycles of a tile at two numbers of k steps: *step is its slope,
 * *tile its value at 0 steps. */
static enum nib_status measure_size(struct tuner *tuner, const struct nib_costs *costs,
				    int size, double *step, double *tile,
				    struct nib_error *err)
{
	const struct nib_costs only = only_size(costs, size);
	const int64_t n = (int64_t)costs->tile_cols * costs->tiles_at_once;
	struct entry products[4] = {0};
	double cycles[4] = {0}, low, high;
	char what[64];
	enum nib_status status = NIB_STATUS_OK;

	snprintf(what, sizeof(what), "tiles of %d rows", costs->tile_rows[size]);
	progress_update(tuner->done++, what);
	for (int i = 0; i < 4 && !status; i++) {
		const struct shape_size s = {costs->tile_rows[size], n * (1 + i % 2),
					     i < 2 ? LOW_K : HIGH_K};

		status = add_product(tuner, &only, s, &products[i], err);
	}
	if (!status)
		status = measure_cycles(tuner, products, 4, cycles, err);
	low = cycles[1] - cycles[0];
	high = cycles[3] - cycles[2];
	*step = (high - low) / ((double)(HIGH_K - LOW_K) / STEP_K);
	*tile = low - (double)LOW_K / STEP_K * *step;
	entries_free(products, 4);
	return status;
}

static int split_size(const struct nib_costs *costs)
{
	int i = 0;

	while (i < costs->sizes - 1 && costs->tile_rows[i] < SPLIT_ROWS)
		i++;
	return i;
}

/*
 * Times a product with tiles for 3/8 of the multiprocessors, without split-k and with
 * two slices.  *split: the cycles of two slices beyond half of the k steps; NaN if the
 * device does not support split-k.
 */
static enum nib_status measure_split(struct tuner *tuner, const struct nib_costs *costs,
				     double *split, struct nib_error *err)
{
	const int size = split_size(costs);
	const struct shape_size s = {
	    costs->tile_rows[size],
	    (int64_t)costs->tile_cols * (costs->tiles_at_once * 3 / 8), SPLIT_K};
	struct nib_costs only = only_size(costs, size);
	struct entry products[2] = {0};
	double cycles[2] = {0};
	enum nib_status status = NIB_STATUS_OK;

	progress_update(tuner->done++, "split-k");
	for (int i = 0; i < 2 && !status; i++) {
		only.split_cycles = i ? ALWAYS : NEVER;
		status = add_product(tuner, &only, s, &products[i], err);
	}
	*split = NAN;
	if (!status && job_info(products[0].job)->k_slices == 1 &&
	    job_info(products[1].job)->k_slices == 2) {
		status = measure_cycles(tuner, products, 2, cycles, err);
		*split = cycles[1] - cycles[0] +
			 (double)SPLIT_K / STEP_K / 2 * costs->step_cycles[size];
	}
	entries_free(products, 2);
	return status;
}

/* *gain: the geometric mean of the groups' speedups with the measured costs. */
static enum nib_status measure_gain(struct tuner *tuner, const struct nib_costs *before,
				    const struct nib_costs *now, double *gain,
				    struct nib_error *err)
{
	struct shape_list seeds = {0};
	enum nib_status status = NIB_STATUS_OK;

	*gain = 1;
	if (shapes_add_preset(&seeds, "seeds", OP_GROUP_GEMM)) {
		shapes_free(&seeds);
		return machine_no_memory("a measurement", err);
	}
	for (int i = 0; i < N_GROUPS && !status; i++) {
		struct entry products[2] = {0};
		double cycles[2] = {1, 1};

		progress_update(tuner->done++, "a group of eight");
		for (int j = 0; j < 2 && !status; j++)
			status = add_shape(tuner, j ? now : before, &seeds.shapes[i],
					   &products[j], err);
		if (!status)
			status = measure_cycles(tuner, products, 2, cycles, err);
		*gain *= sqrt(cycles[0] / cycles[1]);
		entries_free(products, 2);
	}
	shapes_free(&seeds);
	return status;
}

static enum nib_status measure_all(struct tuner *tuner, const struct nib_costs *before,
				   struct tile_costs *out, struct nib_error *err)
{
	struct nib_costs *costs = &out->costs;
	struct bench_samples tiles = {0};
	double step, tile, split = NAN;
	enum nib_status status = NIB_STATUS_OK;

	for (int i = 0; i < costs->sizes && !status; i++) {
		status = measure_size(tuner, before, i, &step, &tile, err);
		if (!bench_samples_add(&tiles, tile))
			status = machine_no_memory("a measurement", err);
		out->missed += !set_cost(step, &costs->step_cycles[i]);
	}
	if (!status)
		status = measure_split(tuner, costs, &split, err);
	/* The planner has one fixed cost for tiles of all sizes. */
	out->missed += !set_cost(bench_samples_median(&tiles, 0), &costs->tile_cycles);
	out->has_split = set_cost(split, &costs->split_cycles);
	bench_samples_free(&tiles);
	return status ? status : measure_gain(tuner, before, costs, &out->gain, err);
}

enum nib_status tile_costs_measure(const struct tile_costs_options *options,
				   const struct nib_costs *before,
				   struct tile_costs *out, struct nib_error *err)
{
	struct tuner tuner = {.options = options, .peaks = peaks_create()};
	enum nib_status status;

	*out = (struct tile_costs){.costs = *before};
	if (!tuner.peaks)
		return machine_no_memory("a measurement", err);
	status = peaks_use_gpu(tuner.peaks, options->device, err);
	if (!status)
		status = measure_all(&tuner, before, out, err);
	peaks_free(tuner.peaks);
	return status;
}
