/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - the order of accesses to global memory: happens-before among the
 * warps of all clusters of one run.  Inside a cluster the checker of shared
 * memory tracks the order (check.h).  Clusters are ordered by a release and an
 * acquire of one address, with .gpu scope or wider, and grids by
 * griddepcontrol.wait.
 *
 * Each warp keeps what it acquired and the value of its clock at that time.  A
 * warp of the same cluster that has seen this value has also seen what was acquired.
 * Each word remembers its last writer and the readers since.
 *
 * The lanes of a warp are checked with their cluster's record (lanes.h), except
 * strong accesses and bulk stores.
 *
 * Limits:
 * - Words have 4 bytes, and keep the last few readers.
 * - Other warps do not distinguish the lanes of a warp.
 * - Bulk copies read when they are issued.
 * - Proxies are not distinguished.
 * - At most 128 MiB of global memory are tracked, of one cluster the last 8 MiB.
 */
#ifndef EMU_ORDER_H
#define EMU_ORDER_H

#include "check/check.h"

struct emu_order;

/*
 * A checker for n grids, with the clusters of each and the warps of its
 * clusters.  NULL: no memory.
 */
struct emu_order *emu_order_open(uint32_t grids, const uint32_t *clusters,
				 const uint32_t *warps);
void emu_order_close(struct emu_order *o);
/*
 * A checker for one cluster after another: grid 0, cluster 0, of `warps` warps.  It
 * forgets the cluster before at emu_order_begin_cluster().
 */
struct emu_order *emu_order_open_cluster(uint32_t warps);
void emu_order_begin_cluster(struct emu_order *o);
/* True if accesses were forgotten or not recorded, because there were too many. */
bool emu_order_is_short(const struct emu_order *o);

/* A warp, numbered through its cluster, and the checker of its cluster. */
struct emu_order_warp {
	uint32_t grid, cluster, warp;
	struct emu_check *check;
};

enum emu_order_kind {
	EMU_ORDER_READ = 0,
	EMU_ORDER_WRITE = 1,
	EMU_ORDER_STRONG = 2,	/* atomic, or with an order: no race with another */
	EMU_ORDER_STORE = 4,	/* of a bulk group: written when it was waited for
			       */
	EMU_ORDER_VOLATILE = 8, /* strong, but meant as data: races with another */
	EMU_ORDER_SAME = 16,	/* writes what the bytes have already */
};

/*
 * False with a sentence in err if nothing orders the access after another
 * warp's.
 */
bool emu_order_access(struct emu_order *o, const struct emu_order_warp *w,
		      uint32_t kind, uint64_t address, uint32_t bytes,
		      struct emu_place place, struct emu_error *err);

/* What lanes store, and the memory before that. */
struct emu_order_stores {
	uint8_t (*value)[32]; /* by lane */
	const uint8_t *data;  /* of address base */
	uint64_t base;
};

/*
 * The same for lanes of a warp, `bytes` bytes at each address; stores: NULL: loads, or
 * values that are not known.  When it returns false, *lane is the lane, and later ones
 * have not been checked.
 */
bool emu_order_access_lanes(struct emu_order *o, const struct emu_order_warp *w,
			    uint32_t kind, uint32_t lanes,
			    const struct emu_order_stores *stores,
			    const uint64_t *address, uint32_t bytes,
			    struct emu_place place, int *lane, struct emu_error *err);

/*
 * Plain reads of clusters that run in parallel.  Global memory does not change
 * during a parallel phase, so emu_order_look() only compares with earlier writes
 * and may be called for several clusters at once, each with its own list.
 * emu_order_add() then records the lists, in the order of the calls, in the
 * tables of words table, table + step, ...: each thread may fill some tables.
 */
#define EMU_ORDER_TABLES 16
struct emu_order_reads {
	struct emu_order_read *list;
	size_t count, capacity;
	size_t lanes; /* whose reads they are */
};

bool emu_order_look(const struct emu_order *o, struct emu_order_reads *reads,
		    const struct emu_order_warp *w, uint64_t address, uint32_t bytes,
		    struct emu_place place, struct emu_error *err);
/*
 * The same for all lanes of a warp, each of which reads the `bytes` bytes after those
 * of the lane before, if no warp of the run has written any of them.  False: nothing
 * was done, and emu_order_look() is to be called for each lane.
 */
bool emu_order_look_row(const struct emu_order *o, struct emu_order_reads *reads,
			const struct emu_order_warp *w, uint64_t address,
			uint32_t bytes, struct emu_place place);
void emu_order_add(struct emu_order *o, const struct emu_order_reads *reads,
		   uint32_t table, uint32_t step);

enum emu_order_scope {
	EMU_ORDER_RELAXED,
	EMU_ORDER_NEAR, /* .cta, .cluster */
	EMU_ORDER_WIDE, /* .gpu, .sys */
};

/*
 * A strong write publishes what the warp has seen, or (RELAXED) what it had seen at
 * its last fence.
 */
void emu_order_release(struct emu_order *o, const struct emu_order_warp *w,
		       uint64_t address, enum emu_order_scope scope, bool is_atomic);
/* A strong read acquires what was published, at once or (RELAXED) at the next fence. */
void emu_order_acquire(struct emu_order *o, const struct emu_order_warp *w,
		       uint64_t address, enum emu_order_scope scope);
void emu_order_fence(struct emu_order *o, const struct emu_order_warp *w,
		     enum emu_order_scope scope);
/* cp.async.bulk.wait_group without .read: all but the last `groups`. */
void emu_order_stored(struct emu_order *o, const struct emu_order_warp *w,
		      uint32_t groups);
/* griddepcontrol.wait: the grids up to this one have ended. */
void emu_order_grids(struct emu_order *o, const struct emu_order_warp *w,
		     uint32_t last);

#endif
