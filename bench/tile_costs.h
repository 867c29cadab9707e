/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_costs.h - measures the cycles of tiles (struct nib_costs), from which a GPU's
 * planner chooses tile sizes and split-k.
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

struct tile_costs {
	/* The measured costs; those that could not be measured are the device's. */
	struct nib_costs costs;
	/* Costs of steps and of the tile that could not be measured: because of noise
	 * they were not from 1 to 10^6. */
	int missed;
	/* False if the cost of split-k could not be measured, for example because the
	 * device does not support split-k. */
	bool has_split;
	/* The speedup of groups over the device's costs. */
	double gain;
};

/* before: the device's costs. */
enum nib_status tile_costs_measure(const struct tile_costs_options *options,
				   const struct nib_costs *before,
				   struct tile_costs *out, struct nib_error *err);

#endif
