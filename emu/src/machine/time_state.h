/* SPDX-License-Identifier: Apache-2.0 */
/* time_state.h - what clocks and engines of time.h keep; times in cycles. */
#ifndef EMU_TIME_STATE_H
#define EMU_TIME_STATE_H

#include "check/check.h"
#include "machine/machine.h"

struct emu_time_table {
#define EMU_TIME(name, value, unit, sure, source) double name;
#include "machine/time_h200.def"
#undef EMU_TIME
};

#define EMU_QUARTERS 4
/* Groups that a warp may leave unfinished and yet wait for an older one. */
#define EMU_GROUPS 8

/* When each engine of an SM is free. */
struct emu_sm {
	double pipe[EMU_PIPES][EMU_QUARTERS], tensor[EMU_QUARTERS];
	double shared, tma;
	double cta; /* it can hold another CTA */
};

struct emu_warp_clock {
	double now, result; /* result: of the instruction that runs */
	double block;	    /* the last begin in this basic block */
	double arrival;	    /* of an engine at a barrier; 0: the warp's own */
	double *ready;	    /* of each 16 bytes of the warp's registers */
	/* Operations behind the last commit, and the last groups by number. */
	double open[EMU_ENGINES], group[EMU_ENGINES][EMU_GROUPS];
	uint32_t groups[EMU_ENGINES];
};

struct emu_cta_clock {
	struct emu_sm *sm;
	double pending[EMU_CLUSTER_BARRIER + 1], done[EMU_CLUSTER_BARRIER + 1];
};

struct emu_barrier_clock {
	uint64_t address;
	double pending, done; /* of the open phase and the one before */
};

struct emu_cluster_clock {
	struct emu_barrier_clock *barriers;
	size_t count, capacity;
};

#define EMU_L2_WAYS 16

struct emu_time_costs;

struct emu_time {
	const struct emu_time_table *table;
	struct emu_time_costs *costs; /* NULL: means alone */
	struct emu_sm *sms;
	uint32_t n_sms, n_sets;
	uint64_t *lines; /* of the L2: each set's, the latest first */
	double l2, hbm;	 /* free from then on */
	double now;	 /* of the warp that runs */
	double end;	 /* of all grids so far */
	/* The grid that runs: */
	double begin, first;
	double tensor_busy, l2_busy, hbm_busy, issued;
	bool has_counts; /* of its instructions */
	char name[128];
};

static inline struct emu_time *emu_time_machine(const struct emu_warp *w)
{
	return emu_machine_of(w)->time;
}

static inline double emu_later(double a, double b)
{
	return a > b ? a : b;
}

/* An engine takes a request at `at` or when it is free; when it begins. */
static inline double emu_serve(double *free_at, double at, double service)
{
	const double begin = emu_later(*free_at, at);

	*free_at = begin + service;
	return begin;
}

#endif
