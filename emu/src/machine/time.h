/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time.h - predicted time (NIBEMU_TIME): a clock for each warp, in cycles of an
 * SM, and engines that serve one request after another.  A synchronisation that
 * orders two accesses also passes the time from one clock to the other.  Without
 * predicted time every call does nothing.  docs/time.md describes the model.
 */
#ifndef EMU_MACHINE_TIME_H
#define EMU_MACHINE_TIME_H

#include "check/check.h"
#include "machine/machine.h"

struct emu_transfer;

/* The clocks of a device; NULL with an error if it has no table or memory is short. */
struct emu_time *emu_time_open(const struct emu_device *device, struct emu_error *err);
/* Reads the costs of instructions from a table (tools/sass_costs.py). */
bool emu_time_use_counts(struct emu_time *t, const char *path, struct emu_error *err);
/* A timeline of the SMs listed as "0,5" (NULL: of SM 0): time_trace.h. */
bool emu_time_use_trace(struct emu_time *t, const char *path, const char *sms,
			struct emu_error *err);
void emu_time_close(struct emu_time *t);
/* Predicted nanoseconds since it was opened. */
double emu_time_ns(const struct emu_time *t);
/* Begins a prediction: the L2 is empty, and earlier grids do not count. */
void emu_time_mark(struct emu_time *t);
/* What happened since emu_time_mark(), as JSON for free(); NULL: no memory. */
char *emu_time_report(const struct emu_time *t);
/* A line about the last grid, marked as a prediction. */
void emu_time_describe(const struct emu_time *t, struct emu_error *to);

void emu_time_begin_grid(struct emu_grid *g);
void emu_time_end_grid(struct emu_grid *g);
/* Keeps the report's data of the grid that has ended. */
void emu_time_keep(struct emu_time *t);
/* Gives a cluster the SMs that become free first; false: no memory. */
bool emu_time_begin_cluster(struct emu_cluster *c);
void emu_time_end_cluster(struct emu_cluster *c);
/* The cycle that a runnable warp has reached, and that time in nanoseconds. */
double emu_time_of(const struct emu_warp *w);
double emu_time_ns_of(const struct emu_warp *w);
/*
 * The time up to which the warp may run before others get a turn, if all warps of
 * other SMs have reached `end`.
 */
double emu_time_turn(const struct emu_warp *w, double end);

/*
 * False if operands or units are not ready.  The warp's clock then advances to the
 * time at which they are, and warps with smaller clocks run first.
 */
bool emu_time_is_due(struct emu_warp *w, const struct emu_instr *i);
/* Before and after an instruction. */
void emu_time_issue(struct emu_warp *w, const struct emu_instr *i);
void emu_time_retire(struct emu_warp *w, const struct emu_instr *i);
/* Lanes load or store `bytes` each at device addresses. */
void emu_time_access(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, bool is_store);
/*
 * Sets the time at which a copy completes.  Arrivals at barriers count from that time
 * until emu_time_copied().
 */
void emu_time_copy(struct emu_transfer *t);
void emu_time_copied(struct emu_warp *w);
/* One warp's quarter of a wgmma of n columns. */
void emu_time_wgmma(struct emu_warp *w, uint32_t n, bool a_is_shared);
void emu_time_commit(struct emu_warp *w, enum emu_async_kind kind);
void emu_time_wait_group(struct emu_warp *w, enum emu_async_kind kind, uint32_t newest);

/* An mbarrier, by its shared::cluster address: arrival, end of a phase, wait. */
void emu_time_arrive(struct emu_warp *w, uint64_t barrier);
void emu_time_phase(struct emu_cluster *c, uint64_t barrier);
void emu_time_wait(struct emu_warp *w, uint64_t barrier);
/* Barriers of a CTA (bar.*) and of the cluster, with the checker's numbers. */
void emu_time_join(struct emu_warp *w, uint32_t number);
void emu_time_all_joined(const struct emu_cta *c, uint32_t number);
void emu_time_leave(struct emu_warp *w, uint32_t number);
/* The running warp ends the wait of warp w. */
void emu_time_wake(struct emu_warp *w);
/* griddepcontrol.wait is over. */
void emu_time_grids(struct emu_warp *w);
void emu_time_trigger(struct emu_warp *w);

#endif
