/* SPDX-License-Identifier: Apache-2.0 */
/* time_state.h - the state of clocks and engines (time.h); times in cycles. */
#ifndef EMU_TIME_STATE_H
#define EMU_TIME_STATE_H

#include "check/check.h"
#include "machine/machine.h"
#include "machine/time_spent.h"

/* The names of the B200's table, which has all.  A name that a table lacks is 0. */
struct emu_time_table {
#define EMU_TIME(name, value, unit, sure, source) double name;
#include "machine/time_b200.def"
#undef EMU_TIME
};

#define EMU_QUARTERS  4
#define EMU_CTA_SLOTS 32 /* CTAs of an SM, at most */
/* Cycles that a warp may be ahead of one that issues from another quarter. */
#define EMU_LOOKAHEAD 8
/* Units of an SM other than its pipes. */
enum emu_unit {
	EMU_UNIT_NONE,
	EMU_UNIT_MATRIX,  /* ldmatrix */
	EMU_UNIT_SHUFFLE, /* shfl, vote: shared memory's, too */
	EMU_UNIT_MMA,	  /* mma.sync */
	EMU_UNIT_ATOMIC,  /* of global memory, with a result */
	/* Fences: of the CTA, of wider scopes, of the proxy of copies. */
	EMU_UNIT_FENCE_CTA,
	EMU_UNIT_FENCE,
	EMU_UNIT_CLUSTER_RELEASE, /* barrier.cluster.arrive with .release */
	EMU_UNIT_FENCE_PROXY,
};
/* A warp may wait for a group if at most this many later ones are unfinished. */
#define EMU_GROUPS 8

/* Parts of a kernel's parameters that the cache loads at once. */
#define EMU_PARAMETER_LINE  64
#define EMU_PARAMETER_LINES 64

#define EMU_TCGEN05_QUARTERS 4
#define EMU_TCGEN05_DEPTH    8 /* at least umma_depth of the table */

/* When the parts of an SM that tcgen05 uses are free. */
struct emu_tcgen05_pipe {
	double mma, copy;
	double begun;			   /* the last mma or copy */
	double port[EMU_TCGEN05_QUARTERS]; /* of 32 lanes */
	/* When the last operations of a quarter's warps began. */
	double queue[EMU_TCGEN05_QUARTERS][EMU_TCGEN05_DEPTH];
	uint32_t queued[EMU_TCGEN05_QUARTERS];
};

/* When the requests of a warp have ended. */
struct emu_tcgen05_clock {
	double done;   /* mma and cp: what a commit waits for */
	double copied; /* cp: what its next mma waits for */
	double copies; /* from when on the warp's next cp can begin */
	double loaded, stored;
};

/* When each engine of an SM is free. */
struct emu_sm {
	double pipe[EMU_PIPES][EMU_QUARTERS], tensor[EMU_QUARTERS];
	double accumulates[EMU_QUARTERS];    /* until then by tensor cores */
	double shared, tma, tma_store, port; /* port: to the L2 */
	double async[EMU_QUARTERS];	     /* cp.async of 16 bytes */
	double l1;	 /* free for the next load that reads parts of lines */
	double returned; /* when the L1 has returned all requests so far */
	double stored;	 /* when the L2 has all that was stored */
	double parameters[EMU_PARAMETER_LINES]; /* cached from then on; 0: not */
	double slot_free[EMU_CTA_SLOTS];	/* from when a CTA can begin there */
	struct emu_cta *cta[EMU_CTA_SLOTS];	/* that runs there; NULL: none */
	double end; /* of its last CTA, and the next may begin */
	struct emu_tcgen05_pipe tcgen05;
	uint32_t running;
	uint32_t number;
};

struct emu_warp_clock {
	double now, result; /* result: of the instruction that runs */
	double block;	    /* the last begin in this basic block */
	enum emu_spent block_of;
	double spent[EMU_SPENTS];
	uint32_t pc;   /* of the instruction that runs */
	int requested; /* it: 0 no pipe yet, 1 all, EMU_PIPES all but its issue */
	struct emu_stretch stretch;
	bool is_named;	/* its row of the trace */
	bool is_fenced; /* it has waited for the fence that is next */
	double arrival; /* of an engine at a barrier; 0: the warp's own */
	/* The last bulk load: its source, when it was issued and will complete. */
	const void *load_from;
	double load_issued, load_there;
	double *ready; /* of each 16 bytes of the warp's registers */
	uint8_t *why;  /* and what they wait for: enum emu_spent */
	enum emu_spent result_of;
	struct emu_tcgen05_clock tcgen05;
	/* Operations after the last commit, and the last groups by number. */
	double open[EMU_ASYNC_KINDS], group[EMU_ASYNC_KINDS][EMU_GROUPS];
	uint32_t groups[EMU_ASYNC_KINDS];
};

struct emu_cta_clock {
	struct emu_sm *sm;
	uint32_t slot;
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
struct emu_trace;

/* The times of a grid, for the report. */
struct emu_time_grid {
	char name[128];
	double begin, first, end;      /* first: its first instruction */
	double tensor, l2, hbm, issue; /* cycles that they were busy */
	double last[EMU_SPENTS];
	const char *wait; /* the instruction of the longest, or NULL */
	uint32_t wait_line, wait_source_line;
	double wait_cycles; /* of all warps together */
	bool has_counts;
};

struct emu_time {
	struct emu_time_table table;
	struct emu_time_costs *costs; /* NULL: only means */
	struct emu_trace *trace;      /* NULL: none */
	struct emu_sm *sms;
	uint32_t n_sms, n_sets;
	uint32_t cta_slots; /* of an SM, for CTAs of the grid that runs */
	uint64_t *lines;    /* of the L2: each set's, the latest first */
	double l2, hbm;	    /* free from then on */
	double hbm_load;    /* a mean of how busy it is, at hbm_asked */
	double hbm_asked;
	double now; /* of the warp that runs */
	struct emu_warp *running;
	double end; /* of all grids so far */
	/* The grid that runs: */
	double begin, first;
	double tensor_busy, l2_busy, hbm_busy, issued;
	bool has_counts;	 /* of its instructions */
	double *waits;		 /* by instruction, over all warps; may be NULL */
	double last[EMU_SPENTS]; /* of the warp that ended last, */
	double last_end;	 /* then; stores may end later */
	const struct emu_kernel *kernel;
	/* Since emu_time_mark(): */
	double mark;
	struct emu_time_grid *grids;
	size_t n_grids, capacity;
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

/* Advances the warp's clock to `at`, if that is later. */
void emu_time_advance(struct emu_warp *w, enum emu_spent kind, double at);

/* An engine accepts a request at `at` or when it is free; returns when it begins. */
static inline double emu_serve(double *free_at, double at, double service)
{
	const double begin = emu_later(*free_at, at);

	*free_at = begin + service;
	return begin;
}

#endif
