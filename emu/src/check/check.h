/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - the order of accesses to shared memory: happens-before among the
 * warps of a cluster and their asynchronous operations.  A value can be right
 * because of lucky timing; an order cannot.
 *
 * Each warp has a vector clock, which tells up to which clock it has seen the work
 * of every other agent.  A release (an arrival) merges the warp's vector into the
 * barrier's, and an acquire (a wait) merges the barrier's into the warp's.
 * Asynchronous operations have clocks of their own.  An mbarrier's clock counts its
 * phases, because the end of a phase completes the bulk copies that it counts.
 * wgmma, cp.async and bulk stores count groups.  Each word remembers its last
 * writer and the readers since.
 *
 * The asynchronous proxy (bulk copies, wgmma) may access what ordinary
 * instructions wrote only after a fence.proxy.async.  Either the writer executes it
 * before it releases, or the warp that starts the operation after it acquires.
 *
 * The lanes of a warp are checked separately (lanes.h): each word remembers which
 * lane wrote it last, and which lanes of one warp have read it since.
 *
 * Limits:
 * - Other warps do not distinguish the lanes of a warp.  Nor do waits for
 *   asynchronous operations, except cp.async and bulk stores.
 * - Global memory (order.h) and the order that atomics make are not tracked here.
 * - Words have 4 bytes.
 * - A clock stops at 65,535.
 * - A cluster has at most 64 mbarriers a CTA (one CTA: 128).
 *
 * A call that finds an error returns false with a sentence in err, and continues
 * as if the access had been right.  Addresses are those of shared::cluster: rank
 * and offset.  Warps are numbered through the cluster.
 */
#ifndef EMU_CHECK_H
#define EMU_CHECK_H

#include "check/lanes.h"
#include "hardware/emu.h"

struct emu_check;

struct emu_check_options {
	/*
	 * Require a fence.proxy.async between loads of a stage and the bulk copy
	 * that refills it.  PTX requires it, but CUTLASS's kernels do without.
	 */
	bool fence_before_refill;
	/*
	 * Require an order between the lanes' loads and a stmatrix to the bytes
	 * that they loaded.  PTX requires it, but CUTLASS's epilogues do without,
	 * because stmatrix waits until all lanes have finished their loads.
	 */
	bool order_before_stmatrix;
	/*
	 * Require an order between warps that execute one store with one value.
	 * PTX requires it, but a GPU leaves that value, and Triton's kernels have
	 * such stores.
	 */
	bool order_equal_stores;
	/* The CTAs have tensor memory, and no wgmma. */
	bool has_tensor_memory;
	/*
	 * For tcgen05, grant only the order that PTX promises: pairs that it
	 * calls pipelined, and its fences between threads.  Otherwise what one
	 * warp issues to the tensor core is in order, and relaxed arrivals or
	 * those of .cta scope order tensor memory, because kernels that copy
	 * scales during multiplications rely on both.
	 */
	bool is_strict;
};

/* bytes: of each CTA's shared memory.  NULL: out of memory, or too large. */
struct emu_check *emu_check_open(uint32_t ctas, uint32_t warps_of_cta, uint32_t bytes,
				 struct emu_check_options options);
void emu_check_close(struct emu_check *c);

/* True if there was more than it can track, so that it reports nothing any more. */
bool emu_check_is_blind(const struct emu_check *c);

/* ---- for order.h --------------------------------------------------------- */

/* The clock up to which warp has seen what another warp of its cluster did. */
uint32_t emu_check_seen(const struct emu_check *c, uint32_t warp, uint32_t other);
/* Advances the clock of a warp, so that what it does from now on is later. */
void emu_check_tick(struct emu_check *c, uint32_t warp);

/* ---- ordinary instructions ----------------------------------------------- */

bool emu_check_read(struct emu_check *c, uint32_t warp, uint64_t address,
		    uint32_t bytes, struct emu_place place, struct emu_error *err);
bool emu_check_write(struct emu_check *c, uint32_t warp, uint64_t address,
		     uint32_t bytes, struct emu_place place, struct emu_error *err);

/*
 * Loads or stores of the lanes of a warp, `bytes` bytes at the offsets at[lane] of the
 * memory of CTA rank cta; place.lanes is not used.  Records, in the order of the lanes,
 * accesses that are usual and allowed, and returns the lanes from the first other one
 * on: emu_check_read() or emu_check_write() is to be called for that one.
 */
uint32_t emu_check_plain(struct emu_check *c, uint32_t warp, uint32_t cta,
			 uint32_t lanes, const uint64_t *at, uint32_t bytes,
			 bool is_write, struct emu_place place);

/* fence.proxy.async, and fence.mbarrier_init. */
void emu_check_fence_proxy(struct emu_check *c, uint32_t warp);
void emu_check_fence_init(struct emu_check *c, uint32_t warp);

/* ---- asynchronous operations --------------------------------------------- */

/* Operations of a warp that complete in groups. */
enum emu_async_kind {
	EMU_ASYNC_WGMMA,   /* reads operands; tcgen05.mma and .cp do, too */
	EMU_ASYNC_COPY,	   /* cp.async: writes, as threads do */
	EMU_ASYNC_STORE,   /* bulk groups: reads shared memory */
	EMU_ASYNC_TMEM_LD, /* tcgen05.ld and .st */
	EMU_ASYNC_TMEM_ST,
	EMU_ASYNC_KINDS
};

/* A bulk load begins: its bytes are complete when the barrier's phase ends. */
bool emu_check_load(struct emu_check *c, uint32_t warp, uint64_t address,
		    uint32_t bytes, uint64_t barrier, struct emu_place place,
		    struct emu_error *err);
/*
 * The same for st.async, and for red.async (reduces: others may be in flight to
 * the same bytes).  Both belong to the generic proxy.
 */
bool emu_check_async_store(struct emu_check *c, uint32_t warp, uint64_t address,
			   uint32_t bytes, uint64_t barrier, bool reduces,
			   struct emu_place place, struct emu_error *err);
/* A cp.async begins. */
bool emu_check_copy(struct emu_check *c, uint32_t warp, uint64_t address,
		    uint32_t bytes, struct emu_place place, struct emu_error *err);
/* The last write to a word needs no proxy fence before a copy. */
void emu_check_needs_no_fence(struct emu_check *c, uint64_t address);
/* Prefetches the history of an address that is about to be read.  It is at a random
 * place in memory, and waiting for it took a third of the checker's time. */
void emu_check_prefetch(const struct emu_check *c, uint64_t address);
/* wgmma or a bulk store begins to read. */
bool emu_check_async_read(struct emu_check *c, uint32_t warp, enum emu_async_kind kind,
			  uint64_t address, uint32_t bytes, struct emu_place place,
			  struct emu_error *err);
/* commit_group, and wait_group (of bulk stores: .read) for all but the last `groups`.
 * now: the number of the warp's instruction. */
void emu_check_commit(struct emu_check *c, uint32_t warp, enum emu_async_kind kind);
void emu_check_wait_group(struct emu_check *c, uint32_t warp, enum emu_async_kind kind,
			  uint32_t groups, uint32_t now);
/* The number of groups that the warp has committed. */
uint32_t emu_check_committed(const struct emu_check *c, uint32_t warp,
			     enum emu_async_kind kind);
/* cp.async.wait_all, committed or not. */
void emu_check_wait_all(struct emu_check *c, uint32_t warp);

/* ---- mbarriers ----------------------------------------------------------- */

enum emu_scope { EMU_SCOPE_NONE /* .relaxed */, EMU_SCOPE_CTA, EMU_SCOPE_CLUSTER };

/*
 * fence.release and .acquire, or both.  A relaxed arrival after a release fence
 * and a relaxed wait before an acquire fence order as an arrival and a wait of
 * the fences' scope do.
 */
void emu_check_fence_release(struct emu_check *c, uint32_t warp, enum emu_scope scope);
void emu_check_fence_acquire(struct emu_check *c, uint32_t warp);

bool emu_check_init(struct emu_check *c, uint32_t warp, uint64_t barrier,
		    struct emu_place place, struct emu_error *err);
void emu_check_inval(struct emu_check *c, uint64_t barrier);
/*
 * Called before the arrival counts.  At another CTA's barrier, an arrival of
 * .cta scope publishes only that the warp's wgmma have read their operands.
 */
bool emu_check_arrive(struct emu_check *c, uint32_t warp, uint64_t barrier,
		      enum emu_scope scope, struct emu_error *err);
/*
 * cp.async.mbarrier.arrive.  The first call, at the instruction, returns a mark of
 * the copies that it covers.  The second comes when it arrives, before it counts.
 */
uint32_t emu_check_copy_mark(struct emu_check *c, uint32_t warp);
void emu_check_copy_arrive(struct emu_check *c, uint32_t warp, uint32_t mark,
			   uint64_t barrier);
/* A phase has ended.  To be called for every call that ends one. */
void emu_check_phase(struct emu_check *c, uint64_t barrier);
/* A try_wait or test_wait that returned true. */
bool emu_check_wait(struct emu_check *c, uint32_t warp, uint64_t barrier,
		    enum emu_scope scope, struct emu_error *err);

/* ---- tensor memory ------------------------------------------------------- */

enum emu_tmem_use {
	EMU_TMEM_MMA, /* an accumulator */
	EMU_TMEM_MMA_A,
	EMU_TMEM_MMA_SCALE,
	EMU_TMEM_CP,
	EMU_TMEM_LD,
	EMU_TMEM_ST,
	EMU_TMEM_ALLOC,
	EMU_TMEM_DEALLOC,
	EMU_TMEM_USES
};

/* tag: equal for instructions with one accumulator, shape and kind. */
struct emu_tmem_access {
	enum emu_tmem_use use;
	uint32_t cta, lane, lanes, column, columns;
	uint32_t tag, line;
};

/*
 * An access begins.  Accesses of multiplications and copies end before a later
 * commit arrives, those of ld and st at the wait.
 */
bool emu_check_tmem(struct emu_check *c, uint32_t warp,
		    const struct emu_tmem_access *access, struct emu_error *err);
/* tcgen05.wait::ld, ::st. */
void emu_check_tmem_wait(struct emu_check *c, uint32_t warp, enum emu_async_kind kind);
/* tcgen05.fence::before_thread_sync, ::after_thread_sync. */
void emu_check_tmem_before(struct emu_check *c, uint32_t warp);
void emu_check_tmem_after(struct emu_check *c, uint32_t warp);
/* Two warps have allocated as a pair, so each has seen that the other has. */
void emu_check_tmem_pair(struct emu_check *c, uint32_t warp, uint32_t other);

/* tcgen05.commit: the operations that it covers, for free().  NULL: no memory. */
struct emu_check_mark *emu_check_mark(struct emu_check *c, uint32_t warp);
/* The commit arrives.  Called before its arrival counts. */
void emu_check_mark_arrive(struct emu_check *c, const struct emu_check_mark *mark,
			   uint64_t barrier);

/* ---- lanes of a warp (lanes.h) ------------------------------------------- */

/* What the lanes of a warp know of each other. */
const struct emu_lanes *emu_check_lanes(const struct emu_check *c, uint32_t warp);
/* live: lanes that have not exited; now: the number of the warp's instruction.
 */
void emu_check_lanes_sync(struct emu_check *c, uint32_t warp, uint32_t lanes,
			  uint32_t live, uint32_t now);
void emu_check_lanes_release(struct emu_check *c, uint32_t warp, uint32_t lanes,
			     uint32_t now);
void emu_check_lanes_acquire(struct emu_check *c, uint32_t warp, uint32_t lanes,
			     uint32_t live);

/* ---- barriers of threads ------------------------------------------------- */

/* bar.* of a CTA: its number; of the cluster: EMU_CLUSTER_BARRIER. */
#define EMU_CLUSTER_BARRIER 16

/*
 * A warp arrives (releases, unless relaxed); the last warp has arrived; a warp
 * goes on (acquires).
 */
void emu_check_join(struct emu_check *c, uint32_t warp, uint32_t cta, uint32_t number,
		    bool is_release);
void emu_check_all_joined(struct emu_check *c, uint32_t cta, uint32_t number);
void emu_check_leave(struct emu_check *c, uint32_t warp, uint32_t cta, uint32_t number,
		     bool is_acquire);

#endif
