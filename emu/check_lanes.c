/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_lanes.c - two lanes of a warp at one word of shared memory: is there an
 * order between them (lanes.h); see check.h.
 */
#include <stdio.h>

#include "check_state.h"

#define ALL_LANES UINT32_MAX
#define WHOLE	  EMU_LANES /* write_lane of all */

/* ---- reports ------------------------------------------------------------- */

struct pair {
	uint32_t lane, other; /* now, and before */
};

/* did: "reads it"; line 0: not known; rule: what there must be. */
static bool object(const struct access *a, struct pair p, const char *did,
		   uint32_t line, const char *rule)
{
	char where[40] = "";

	if (line)
		snprintf(where, sizeof(where), " (PTX line %u)",
			 (unsigned)line);
	return emu_fail(
	    a->err,
	    "%s shared memory offset %u of CTA rank %u by lane %u: lane %u of the same warp %s%s, and nothing orders the two lanes: %s with both in its mask",
	    a->what, (unsigned)(a->address & ((1u << EMU_RANK_SHIFT) - 1)),
	    (unsigned)(a->address >> EMU_RANK_SHIFT), (unsigned)p.lane,
	    (unsigned)p.other, did, where, rule);
}

#define MEET "between them there must be a bar.warp.sync (__syncwarp)"

static bool race(const struct emu_check *c, const struct access *a,
		 uint32_t others, uint32_t moment, struct pair *p)
{
	return emu_lanes_race(&c->warp[a->warp].lanes, a->place.lanes, others,
			      moment, &p->lane, &p->other);
}

/* ---- groups of copies ---------------------------------------------------- */

static struct group *group_of(struct warp *w, enum emu_engine engine,
			      uint32_t clock)
{
	return engine == EMU_ENGINE_COPY ? &w->copies[clock % RING]
					 : &w->stores[clock % RING];
}

void emu_check_lanes_begin(struct emu_check *c, uint32_t warp,
			   enum emu_engine engine, uint32_t clock,
			   uint32_t lanes)
{
	struct group *g = group_of(&c->warp[warp], engine, clock);

	if (g->clock != clock)
		*g = (struct group){.clock = clock};
	g->lanes |= lanes;
}

void emu_check_lanes_waited(struct emu_check *c, uint32_t warp,
			    enum emu_engine engine, uint32_t first,
			    uint32_t end, uint32_t now)
{
	if (engine != EMU_ENGINE_COPY && engine != EMU_ENGINE_STORE)
		return;
	if (end - first > RING)
		first = end - RING;
	for (; first < end; first++) {
		struct group *g = group_of(&c->warp[warp], engine, first);

		if (g->clock == first)
			g->waited = now;
	}
}

/* When those who started a group had waited for it; 0: not known. */
static const struct group *waited_for(const struct emu_check *c, uint32_t warp,
				      enum emu_engine engine, epoch e)
{
	const struct group *g = group_of(&c->warp[warp], engine, clock_of(e));

	return g->clock == clock_of(e) && g->waited ? g : NULL;
}

/* ---- words --------------------------------------------------------------- */

bool emu_check_lanes_write(const struct emu_check *c, const struct access *a,
			   const struct word *w, epoch e)
{
	const uint32_t actor = actor_of(w->write);
	const bool is_copy = actor == actor_of_engine(a->warp, EMU_ENGINE_COPY);
	uint32_t moment = w->write_moment;
	const struct group *g;
	struct pair p;

	/* Stores of one instruction: one of them is the last (CUDA's guide). */
	if (!moment || !(w->write & e & 15) || moment == a->place.moment ||
	    (actor != actor_of_warp(a->warp) && !is_copy))
		return true;
	if (is_copy) {
		g = waited_for(c, a->warp, EMU_ENGINE_COPY, w->write);
		if (!g)
			return true;
		moment = g->waited;
	}
	if (!race(c, a,
		  w->write_lane == WHOLE ? ALL_LANES : 1u << w->write_lane,
		  moment, &p))
		return true;
	if (is_copy)
		return object(
		    a, p, "copied to it by cp.async", w->line,
		    "between that lane's wait for its group and this there must be a bar.warp.sync (__syncwarp)");
	return object(a, p, "wrote it", w->line, MEET);
}

bool emu_check_lanes_reads(const struct emu_check *c, const struct access *a,
			   const struct word *w, epoch e)
{
	struct pair p;

	if (w->read_warp != a->warp || !(w->read_bytes & e) ||
	    !race(c, a, w->read_lanes, w->read_moment, &p))
		return true;
	return object(a, p, "reads it", w->read_line, MEET);
}

bool emu_check_lanes_store(const struct emu_check *c, const struct access *a,
			   epoch read)
{
	const struct group *g =
	    actor_of(read) == actor_of_engine(a->warp, EMU_ENGINE_STORE)
		? waited_for(c, a->warp, EMU_ENGINE_STORE, read)
		: NULL;
	struct pair p;

	/* Of several lanes' stores it is not known whose this was. */
	if (!g || g->lanes & (g->lanes - 1) ||
	    !race(c, a, g->lanes, g->waited, &p))
		return true;
	return object(
	    a, p, "reads it by a bulk store", 0,
	    "between that lane's cp.async.bulk.wait_group and this there must be a bar.warp.sync (__syncwarp)");
}

void emu_check_lanes_set_write(struct word *w, const struct access *a, epoch e,
			       bool is_lane)
{
	const uint32_t lanes = is_lane ? a->place.lanes : 0;

	w->write_moment = lanes ? a->place.moment : 0;
	w->write_lane = lanes == ALL_LANES ? WHOLE
			: lanes		   ? (uint32_t)__builtin_ctz(lanes) & 31
					   : 0;
	if (w->read_bytes & e)
		w->read_lanes = w->read_bytes = 0;
}

void emu_check_lanes_add_read(const struct emu_check *c, const struct access *a,
			      struct word *w, epoch e)
{
	const uint32_t common = w->read_bytes & e & 15;
	struct pair p;

	/*
	 * Readers that this lane has not seen stay, all with the earliest
	 * moment and the bytes that they share: rather too little than an
	 * order that is there taken for none.
	 */
	if (common && w->read_warp == a->warp &&
	    (w->read_moment == a->place.moment ||
	     race(c, a, w->read_lanes, w->read_moment, &p))) {
		w->read_lanes |= a->place.lanes;
		w->read_bytes = common & 15;
		return;
	}
	w->read_lanes = a->place.lanes;
	w->read_bytes = e & 15;
	w->read_warp = a->warp & 0xFFF;
	w->read_moment = a->place.moment;
	w->read_line = a->place.line;
}

/* ---- what orders lanes --------------------------------------------------- */

void emu_check_lanes_meet(struct emu_check *c, uint32_t warp, uint32_t lanes,
			  uint32_t live, uint32_t now)
{
	emu_lanes_meet(&c->warp[warp].lanes, lanes, live, now);
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
