/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.h - what the lanes of a warp have seen of each other's accesses.  They
 * run together here and need not on a GPU, so between two lanes there is only
 * the order that the program asks for:
 *
 * - lanes that meet - bar.warp.sync, a barrier of the block or of the cluster -
 *   have seen all that any of them had done or seen;
 * - a lane that acquires has seen what lanes of its warp have released, and
 *   what those had seen: an arrival and a wait at an mbarrier, fences, stores,
 *   loads and atomics of an order.  Which barrier or address is not asked,
 *   because what hands over may be a chain through other warps: an order that
 *   is there is never missed, one that is not may be taken for granted.
 *
 * shfl, vote, match, redux, elect and all else that needs lanes together order
 * no memory (PTX ISA; CUDA programming guide, "do not imply a memory barrier").
 *
 * Moments are numbers of the warp's instructions, in their order, counted by
 * the caller from 1.
 */
#ifndef EMU_LANES_H
#define EMU_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "emu.h"

/* Zeros: nothing has been done. */
struct emu_lanes {
	/* By lane: until when (not included) all lanes have seen its accesses;
	 * the least of these. */
	uint32_t all[EMU_LANES], least;
	uint32_t released[EMU_LANES]; /* until when somebody may have */
	uint32_t ahead;		      /* lanes that have seen more than all: */
	uint32_t seen[EMU_LANES][EMU_LANES];
};

/* live: the lanes that have not exited. */
void emu_lanes_meet(struct emu_lanes *l, uint32_t lanes, uint32_t live,
		    uint32_t now);
void emu_lanes_release(struct emu_lanes *l, uint32_t lanes, uint32_t now);
void emu_lanes_acquire(struct emu_lanes *l, uint32_t lanes, uint32_t live);

/*
 * True if a lane of `lanes` has not seen what another of `others` did at a
 * moment; *lane and *other are the first such two.
 */
bool emu_lanes_find(const struct emu_lanes *l, uint32_t lanes, uint32_t others,
		    uint32_t moment, uint32_t *lane, uint32_t *other);

static inline bool emu_lanes_race(const struct emu_lanes *l, uint32_t lanes,
				  uint32_t others, uint32_t moment,
				  uint32_t *lane, uint32_t *other)
{
	return moment >= l->least &&
	       emu_lanes_find(l, lanes, others, moment, lane, other);
}

#endif
