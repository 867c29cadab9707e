/* SPDX-License-Identifier: Apache-2.0 */
/*
 * races.h - conflicts between clusters of a grid in which no order of clusters can
 * exist: it has no atomic and no ordered access of global memory, and is not
 * cooperative.  Its clusters may run in any order and at the same time, so two
 * accesses of one byte by different clusters are a race if one of them is a write.
 * No clocks are needed, and it does not matter which of the two is seen first.
 *
 * A word of 4 bytes has a history of 8: one writer, the bytes that it has written,
 * one reader, the bytes that only it has read, and the bytes that several clusters
 * have read.  It changes by compare-and-swap, so clusters may run on several threads.
 * A row of 128 bytes that only whole warps access has one such history for all its
 * words, and 32 bytes more once it is written.
 * A word whose bytes belong to several clusters (at the border of two clusters' rows
 * of halves) has its history by byte, in a table with a lock.
 *
 * The order inside a cluster is checked separately (order.h).
 */
#ifndef EMU_RACES_H
#define EMU_RACES_H

#include "hardware/emu.h"

/* Grids of more clusters are not checked. */
#define EMU_RACES_CLUSTERS ((1u << 22) - 2)

struct emu_races;

/*
 * For the device memory of `bytes` bytes at base.  Memory for histories is taken when
 * addresses are used.  is_parallel: clusters run on several threads.  NULL: no memory.
 */
struct emu_races *emu_races_open(uint64_t base, uint64_t bytes, bool is_parallel);
void emu_races_close(struct emu_races *r);

/* Accesses of lanes of a cluster's warp, `bytes` bytes each. */
struct emu_race {
	uint32_t cluster;
	bool is_write;
	uint32_t lanes;
	const uint64_t *address; /* by lane */
	uint32_t bytes;
	uint8_t (*value)[32]; /* by lane, that is written; NULL: not known */
};

/*
 * False with a sentence in err if another cluster has accessed a byte of a lane, and
 * one of the two writes.  Then *lane is that lane, and later ones have not been
 * checked.
 */
bool emu_races_access(struct emu_races *r, const struct emu_race *a, int *lane,
		      struct emu_error *err);

#endif
