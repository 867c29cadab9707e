/* SPDX-License-Identifier: Apache-2.0 */
/* order_state.h - what order.c (knowledge) and order_words.c (memory) share. */
#ifndef EMU_ORDER_STATE_H
#define EMU_ORDER_STATE_H

#include "check/order.h"

/* From a moment of a warp on it knows, of all actors, until which clock. */
struct acquisition {
	uint32_t clock;
	uint32_t grids;	  /* the first so many have ended */
	uint32_t *clocks; /* by actor; NULL: none */
};

/* Of a warp of the run, which is an actor. */
struct actor {
	struct acquisition *acquired;
	size_t count, capacity;
	uint32_t *fenced;  /* what a later relaxed write hands over */
	uint32_t *pending; /* what relaxed reads found, for a fence */
	/* When bulk groups had been waited for: clock + 1; 0: not yet. */
	uint32_t *stored;
	size_t n_stored, stored_capacity;
	/* The last address that it acquired, so that polling costs nothing. */
	uint64_t polled;
	uint32_t polled_version;
};

struct page;

struct emu_order {
	uint32_t grids;
	uint32_t *first;    /* actor, by grid; then how many there are */
	uint32_t *warps;    /* of a cluster, by grid */
	struct actor *list; /* by actor */
	struct sync *syncs; /* open addressing */
	size_t n_syncs, sync_capacity;
	struct page **pages; /* open addressing, by address */
	size_t n_pages, page_capacity;
};

static inline uint32_t emu_order_actor(const struct emu_order *o,
				       const struct emu_order_warp *w)
{
	return o->first[w->grid] + w->cluster * o->warps[w->grid] + w->warp;
}

/* True if what actor did until clock happens before what w does now. */
bool emu_order_knows(const struct emu_order *o, const struct emu_order_warp *w,
		     uint32_t actor, uint32_t clock);
uint32_t emu_order_grid_of(const struct emu_order *o, uint32_t actor);
void emu_order_free_pages(struct emu_order *o);

#endif
