/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - reports the accesses of warps and asynchronous operations to the
 * checkers of shared memory (check.h) and of global memory (order.h). Without a
 * checker every call does nothing; those that return false have reported a
 * fault.
 */
#ifndef EMU_WATCH_H
#define EMU_WATCH_H

#include "check/check.h"
#include "check/order.h"
#include "check/races.h"
#include "check/streams.h"
#include "machine/machine.h"

/*
 * Order between the lanes of a warp (lanes.h): bar.warp.sync, and releases and
 * acquires in any memory.
 */
struct emu_place emu_watch_place(const struct emu_warp *w, const struct emu_instr *i,
				 int lane);
void emu_watch_meet(struct emu_warp *w, uint32_t lanes);
void emu_watch_lanes_release(struct emu_warp *w, uint32_t lanes);
void emu_watch_lanes_acquire(struct emu_warp *w, uint32_t lanes);

/*
 * A load, store or atomic of a lane.  Only the cluster's shared memory and global
 * memory are checked.  value: what a store writes; NULL: not known.
 */
bool emu_watch_access(struct emu_warp *w, const struct emu_instr *i, int lane,
		      const struct emu_space *space, uint64_t at, uint32_t bytes,
		      bool is_write, const void *value);

/*
 * Loads or stores of the lanes in the shared memory of their CTA, `bytes` bytes at the
 * offsets at[lane].  value: by lane, what is stored; NULL: loads.
 */
bool emu_watch_shared(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		      const uint64_t *at, uint32_t bytes, uint8_t (*value)[32]);

/* cp.async of a lane, a bulk load to one CTA, and bytes that an engine reads. */
bool emu_watch_copy(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t to, uint32_t bytes);
bool emu_watch_load(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t to, uint32_t bytes, uint64_t barrier);
bool emu_watch_async_read(struct emu_warp *w, const struct emu_instr *i, int lane,
			  enum emu_async_kind kind, uint64_t from, uint32_t bytes);
/*
 * A copy may overwrite the word that tcgen05.alloc has written without a proxy
 * fence.  PTX forbids that, but production kernels do it.
 */
void emu_watch_needs_no_fence(struct emu_warp *w, uint64_t address);
/* The tensor core reads `count` pieces of 16 bytes of an operand. */
bool emu_watch_operand(struct emu_warp *w, const struct emu_instr *i,
		       const uint64_t *from, int count);
void emu_watch_commit(struct emu_warp *w, enum emu_async_kind kind);
void emu_watch_wait_group(struct emu_warp *w, enum emu_async_kind kind,
			  uint32_t groups);

/* cp.async.mbarrier.arrive: the copies that it covers, and its later arrival. */
uint32_t emu_watch_copy_mark(struct emu_warp *w);
void emu_watch_copy_arrive(struct emu_warp *w, uint32_t mark, uint64_t barrier);

bool emu_watch_init(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t barrier);
void emu_watch_inval(struct emu_warp *w, uint64_t barrier);
bool emu_watch_arrive(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint64_t barrier, enum emu_scope scope);
void emu_watch_phase(struct emu_cluster *c, uint64_t barrier);
bool emu_watch_wait(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t barrier, enum emu_scope scope);

void emu_watch_fence_proxy(struct emu_warp *w);
void emu_watch_fence_init(struct emu_warp *w);
void emu_watch_fence_release(struct emu_warp *w, enum emu_scope scope);
void emu_watch_fence_acquire(struct emu_warp *w);

/* Tensor memory (check.h); lane < 0: the warp. */
bool emu_watch_tmem(struct emu_warp *w, const struct emu_instr *i, int lane,
		    enum emu_tmem_use use, uint32_t cta, uint32_t first_lane,
		    uint32_t lanes, uint32_t column, uint32_t columns, uint32_t tag);
void emu_watch_tmem_wait(struct emu_warp *w, bool stores);
void emu_watch_tmem_before(struct emu_warp *w);
void emu_watch_tmem_after(struct emu_warp *w);
void emu_watch_tmem_pair(struct emu_warp *w, struct emu_warp *other);
/* NULL: no checker, or no memory. */
struct emu_check_mark *emu_watch_mark(struct emu_warp *w);
void emu_watch_mark_arrive(struct emu_warp *w, const struct emu_check_mark *mark,
			   uint64_t barrier);

/* bar.* by number, the cluster's by EMU_CLUSTER_BARRIER. */
void emu_watch_join(struct emu_warp *w, uint32_t number, bool is_release);
void emu_watch_all_joined(const struct emu_cta *c, uint32_t number);
void emu_watch_leave(struct emu_warp *w, uint32_t number, bool is_acquire);

/* ---- global memory ------------------------------------------------------- */

/* Bytes of device memory; kind: of enum emu_order_kind. */
bool emu_watch_global(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint32_t kind, uint64_t address, uint32_t bytes);
/*
 * Plain loads or stores of the lanes of a cluster that runs separately.  value: by
 * lane, what is stored; NULL: loads.
 */
bool emu_watch_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, uint8_t (*value)[32]);
/*
 * Plain loads of the lanes in a parallel phase.  False: nothing was done, and
 * emu_watch_access() is to be called for each.
 */
bool emu_watch_look(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		    const uint64_t *address, uint32_t bytes);
/* Strong accesses of the lanes, before they write or after they have read. */
void emu_watch_release(struct emu_warp *w, uint32_t lanes, const uint64_t *address,
		       enum emu_order_scope scope, bool is_atomic);
void emu_watch_acquire(struct emu_warp *w, uint32_t lanes, const uint64_t *address,
		       enum emu_order_scope scope);
void emu_watch_fence(struct emu_warp *w, enum emu_order_scope scope);
void emu_watch_stored(struct emu_warp *w, uint32_t groups);
/* griddepcontrol.wait is over. */
void emu_watch_grids(struct emu_warp *w);

/* For the grids of a run that follows; NULL: none, or no memory. */
struct emu_order *emu_watch_order_open(struct emu_grid *const *grids, uint32_t count);
void emu_watch_order_close(struct emu_machine *m);
/* A cluster has ended: notes whether its checker could track all of it. */
void emu_watch_end(const struct emu_cluster *c);
/*
 * For the clusters of a grid that run separately: races between all of them, and the
 * order inside those that a thread runs one after the other.
 */
struct emu_races *emu_watch_races_open(struct emu_machine *m, struct emu_grid *grid);
struct emu_order *emu_watch_cluster_open(const struct emu_grid *grid);

/* What launches have not watched, although their kernels may break its rules. */
enum emu_unwatched {
	EMU_UNWATCHED_ALL = 1,
	EMU_UNWATCHED_MEMORY = 2,
	EMU_UNWATCHED_RACES = 4,
	EMU_UNWATCHED_OLD = 8,
	EMU_UNWATCHED_CLUSTER = 16,
	EMU_UNWATCHED_STREAMS = 32,
};
#define EMU_UNWATCHED_ORDER "the order of accesses (--time, NIBEMU_UNCHECKED)"
/* By bit. */
#define EMU_UNWATCHED_TEXTS                                                            \
	EMU_UNWATCHED_ORDER,                                                           \
	    "global memory past 128 MiB, or 2^24 warps, of grids that communicate",    \
	    "races between the CTAs of a grid of more than 4 million",                 \
	    "global memory that a CTA used before its last 8 MiB",                     \
	    "clusters with more warps or mbarriers than the checker supports",         \
	    "the order of more than 62 streams, or of a million launches of one"

#endif
