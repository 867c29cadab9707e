/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_lanes.c - the order between two lanes of a warp at one word of shared
 * memory (lanes.h); see check.h.
 */
#include <stdio.h>

#include "check/check_state.h"

/* ---- reports ------------------------------------------------------------- */

static bool object(const struct access *a, struct emu_lane_pair p, const char *did,
		   uint32_t line, const char *rule)
{
	emu_fail(a->err, "%s shared memory offset %u of CTA rank %u", a->what,
		 (unsigned)(a->address & ((1u << EMU_RANK_SHIFT) - 1)),
		 (unsigned)(a->address >> EMU_RANK_SHIFT));
	return emu_lanes_object(a->err, p, did, line, rule);
}

/* ---- groups of copies ---------------------------------------------------- */

static struct group *group_of(struct warp *w, enum emu_async_kind kind, uint32_t clock)
{
	return kind == EMU_ASYNC_COPY ? &w->copies[clock % RING]
				      : &w->stores[clock % RING];
}

void emu_check_lanes_begin(struct emu_check *c, uint32_t warp, enum emu_async_kind kind,
			   uint32_t clock, uint32_t lanes)
{
	struct group *g = group_of(&c->warp[warp], kind, clock);

	if (g->clock != clock)
		*g = (struct group){.clock = clock};
	g->lanes |= lanes;
}

void emu_check_lanes_waited(struct emu_check *c, uint32_t warp,
			    enum emu_async_kind kind, uint32_t first, uint32_t end,
			    uint32_t now)
{
	if (kind != EMU_ASYNC_COPY && kind != EMU_ASYNC_STORE)
		return;
	if (end - first > RING)
		first = end - RING;
	for (; first < end; first++) {
		struct group *g = group_of(&c->warp[warp], kind, first);

		if (g->clock == first)
			g->waited = now;
	}
}

/* When the lanes that started a group had waited for it; 0: not known. */
static const struct group *waited_for(const struct emu_check *c, uint32_t warp,
				      enum emu_async_kind kind, epoch e)
{
	const struct group *g = group_of(&c->warp[warp], kind, clock_of(e));

	return g->clock == clock_of(e) && g->waited ? g : NULL;
}

/* ---- words --------------------------------------------------------------- */

static bool follows_write(const struct emu_check *c, const struct access *a,
			  const struct word *w, epoch e)
{
	const uint32_t agent = agent_of(w->write);
	const bool is_copy = agent == agent_of_async(a->warp, EMU_ASYNC_COPY);
	uint32_t instruction = w->lanes.write_instruction;
	const struct group *g;
	struct emu_lane_pair p;

	/* Any store of one instruction may be the last one (CUDA's guide). */
	if (!instruction || !(w->write & e & 15) ||
	    instruction == a->place.instruction ||
	    (agent != agent_of_warp(a->warp) && !is_copy))
		return true;
	if (is_copy) {
		g = waited_for(c, a->warp, EMU_ASYNC_COPY, w->write);
		if (!g)
			return true;
		instruction = g->waited;
	}
	if (!emu_lanes_race(&c->warp[a->warp].lanes, a->place.lanes,
			    emu_lane_writers(&w->lanes), instruction, &p))
		return true;
	if (is_copy)
		return object(a, p, "copied to it by cp.async", w->line,
			      "between that lane's wait for its group and this there "
			      "must be a bar.warp.sync (__syncwarp)");
	return object(a, p,
		      a->place.is_same ? "wrote the same value to it" : "wrote it",
		      w->line, EMU_LANES_SYNC_RULE);
}

bool emu_check_lanes_order(const struct emu_check *c, const struct access *a,
			   const struct word *w, epoch e, bool is_write)
{
	const bool is_matrix = a->place.lanes == UINT32_MAX;
	struct emu_lane_pair p;

	if (is_write && (!is_matrix || c->options.order_before_stmatrix) &&
	    emu_lane_overtakes(&w->lanes, &c->warp[a->warp].lanes, a->warp, e & 15,
			       a->place, &p))
		return object(a, p, "reads it", w->lanes.read_line,
			      EMU_LANES_SYNC_RULE);
	return follows_write(c, a, w, e);
}

bool emu_check_lanes_store(const struct emu_check *c, const struct access *a,
			   epoch read)
{
	const struct group *g =
	    agent_of(read) == agent_of_async(a->warp, EMU_ASYNC_STORE)
		? waited_for(c, a->warp, EMU_ASYNC_STORE, read)
		: NULL;
	struct emu_lane_pair p;

	/*
	 * Where several lanes have stores in the group, the owner of this one
	 * is not known.
	 */
	if (!g || g->lanes & (g->lanes - 1) ||
	    !emu_lanes_race(&c->warp[a->warp].lanes, a->place.lanes, g->lanes,
			    g->waited, &p))
		return true;
	return object(
	    a, p, "reads it by a bulk store", 0,
	    "between that lane's cp.async.bulk.wait_group and this there must "
	    "be a bar.warp.sync (__syncwarp)");
}

/* ---- what orders lanes --------------------------------------------------- */

const struct emu_lanes *emu_check_lanes(const struct emu_check *c, uint32_t warp)
{
	return &c->warp[warp].lanes;
}

void emu_check_lanes_sync(struct emu_check *c, uint32_t warp, uint32_t lanes,
			  uint32_t live, uint32_t now)
{
	emu_lanes_sync(&c->warp[warp].lanes, lanes, live, now);
}

void emu_check_lanes_release(struct emu_check *c, uint32_t warp, uint32_t lanes,
			     uint32_t now)
{
	emu_lanes_release(&c->warp[warp].lanes, lanes, now);
}

void emu_check_lanes_acquire(struct emu_check *c, uint32_t warp, uint32_t lanes,
			     uint32_t live)
{
	emu_lanes_acquire(&c->warp[warp].lanes, lanes, live);
}
