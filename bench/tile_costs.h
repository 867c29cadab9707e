/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_costs.h - measures what a GPU's planner chooses by: the cycles of tiles
 * (struct nib_costs).
 */
#ifndef NIB_BENCH_TILE_COSTS_H
#define NIB_BENCH_TILE_COSTS_H

#include "job.h"

struct tile_costs_options {
	const char *device; /* "cuda:0" */
	double min_time_s;  /* of each product */
	int min_samples;
};

/* Steps of the progress bar that tile_costs_measure() moves. */
int tile_costs_steps(const struct nib_costs *costs);

/* What came out. */
struct tile_costs {
	/* Those of the device, what was measured in their place. */
	struct nib_costs costs;
	/* Steps and tile that were not: noise gave no cost of 1 to 10^6. */
	int missed;
	/* False also where the device does not divide k. */
	bool has_split;
	/* How many times as fast groups are as with the device's costs. */
	double gain;
};

/* before: as the device has them. */
enum nib_status tile_costs_measure(const struct tile_costs_options *options,
				   const struct nib_costs *before,
				   struct tile_costs *out, struct nib_error *err);

#endif
