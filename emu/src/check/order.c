/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - what warps of several clusters know of each other; see order.h. */
#include <stdlib.h>
#include <string.h>

#include "check/order_state.h"
#include "engine/arena.h"

/* What was released at an address. */
struct sync {
	uint64_t address; /* 0: none */
	uint32_t *wide, *near;
	uint32_t near_cluster; /* + 1, of the run */
	uint32_t version;
};

/* ---- opening ------------------------------------------------------------- */

static uint32_t actors(const struct emu_order *o)
{
	return o->first[o->grids];
}

struct emu_order *emu_order_open(uint32_t grids, const uint32_t *clusters,
				 const uint32_t *warps)
{
	struct emu_order *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->grids = grids;
	o->first = calloc(grids + 1, sizeof(*o->first));
	o->warps = calloc(grids, sizeof(*o->warps));
	for (uint32_t g = 0; o->first && o->warps && g < grids; g++) {
		const uint64_t end =
		    o->first[g] + (uint64_t)clusters[g] * warps[g];

		if (end > 1 << 24) { /* too many to be followed */
			emu_order_close(o);
			return NULL;
		}
		o->warps[g] = warps[g];
		o->first[g + 1] = (uint32_t)end;
	}
	if (o->first && o->warps)
		o->list = calloc(actors(o) + 1u, sizeof(*o->list));
	if (!o->list) {
		emu_order_close(o);
		return NULL;
	}
	return o;
}

void emu_order_close(struct emu_order *o)
{
	if (!o)
		return;
	for (uint32_t i = 0; o->list && i < actors(o); i++) {
		struct actor *a = &o->list[i];

		for (size_t k = 0; k < a->count; k++)
			free(a->acquired[k].clocks);
		free(a->acquired);
		free(a->fenced);
		free(a->pending);
		free(a->stored);
	}
	for (size_t i = 0; i < o->sync_capacity; i++) {
		free(o->syncs[i].wide);
		free(o->syncs[i].near);
	}
	emu_order_free_pages(o);
	free(o->syncs);
	free(o->list);
	free(o->warps);
	free(o->first);
	free(o);
}

/* ---- knowledge ----------------------------------------------------------- */

uint32_t emu_order_grid_of(const struct emu_order *o, uint32_t actor)
{
	uint32_t g = 0;

	while (actor >= o->first[g + 1])
		g++;
	return g;
}

/* The latest acquisition at or before a moment. */
static const struct acquisition *latest(const struct actor *a, uint32_t clock)
{
	size_t n = a->count;

	while (n && a->acquired[n - 1].clock > clock)
		n--;
	return n ? &a->acquired[n - 1] : NULL;
}

bool emu_order_knows(const struct emu_order *o, const struct emu_order_warp *w,
		     uint32_t actor, uint32_t clock)
{
	const uint32_t warps = o->warps[w->grid];
	const uint32_t first = o->first[w->grid] + w->cluster * warps;

	if (actor - first < warps &&
	    emu_check_seen(w->check, w->warp, actor - first) >= clock)
		return true;
	for (uint32_t k = 0; k < warps; k++) {
		const struct acquisition *a;

		if (!o->list[first + k].count)
			continue;
		a = latest(&o->list[first + k],
			   emu_check_seen(w->check, w->warp, k));
		if (a && (a->grids > emu_order_grid_of(o, actor) ||
			  (a->clocks && a->clocks[actor] >= clock)))
			return true;
	}
	return false;
}

static void merge(uint32_t *to, const uint32_t *from, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		to[i] = to[i] > from[i] ? to[i] : from[i];
}

/* Into *to, which is made where it is NULL; nothing without memory. */
static void merge_into(const struct emu_order *o, uint32_t **to,
		       const uint32_t *from)
{
	if (!from)
		return;
	if (!*to)
		*to = calloc(actors(o) + 1u, sizeof(**to));
	if (*to)
		merge(*to, from, actors(o));
}

/* All that w knows now, merged into *to. */
static void take_snapshot(const struct emu_order *o,
			  const struct emu_order_warp *w, uint32_t **to)
{
	const uint32_t warps = o->warps[w->grid];
	const uint32_t first = o->first[w->grid] + w->cluster * warps;

	if (!*to)
		*to = calloc(actors(o) + 1u, sizeof(**to));
	if (!*to)
		return;
	for (uint32_t k = 0; k < warps; k++) {
		const uint32_t seen = emu_check_seen(w->check, w->warp, k);
		const struct acquisition *a = latest(&o->list[first + k], seen);

		if ((*to)[first + k] < seen)
			(*to)[first + k] = seen;
		if (a && a->clocks)
			merge(*to, a->clocks, actors(o));
	}
}

/* One that begins now; NULL without memory. */
static struct acquisition *acquire_now(struct emu_order *o,
				       const struct emu_order_warp *w)
{
	struct actor *a = &o->list[emu_order_actor(o, w)];
	const uint32_t clock = emu_check_seen(w->check, w->warp, w->warp);
	struct acquisition *last = a->count ? &a->acquired[a->count - 1] : NULL;
	struct acquisition *grown;

	if (last && last->clock == clock)
		return last;
	grown = emu_grow(a->acquired, &a->capacity, a->count, sizeof(*grown));
	if (!grown)
		return NULL;
	a->acquired = grown;
	last = a->count ? &grown[a->count - 1] : NULL;
	grown[a->count] = (struct acquisition){.clock = clock,
					       .grids = last ? last->grids : 0};
	merge_into(o, &grown[a->count].clocks, last ? last->clocks : NULL);
	return &grown[a->count++];
}

/* ---- addresses ----------------------------------------------------------- */

static struct sync *find_sync(struct sync *syncs, size_t capacity,
			      uint64_t address)
{
	size_t at = address / 4 * UINT64_C(0x9E3779B97F4A7C15) >> 32;

	for (at %= capacity; syncs[at].address; at = (at + 1) % capacity)
		if (syncs[at].address == address)
			break;
	return &syncs[at];
}

static bool grow_syncs(struct emu_order *o)
{
	const size_t capacity = o->sync_capacity ? 2 * o->sync_capacity : 64;
	struct sync *grown = calloc(capacity, sizeof(*grown));

	if (!grown)
		return false;
	for (size_t i = 0; i < o->sync_capacity; i++)
		if (o->syncs[i].address)
			*find_sync(grown, capacity, o->syncs[i].address) =
			    o->syncs[i];
	free(o->syncs);
	o->syncs = grown;
	o->sync_capacity = capacity;
	return true;
}

/* Of an address that a strong write had; a new one where asked for. */
static struct sync *sync_at(struct emu_order *o, uint64_t address, bool makes)
{
	struct sync *s = o->sync_capacity
			     ? find_sync(o->syncs, o->sync_capacity, address)
			     : NULL;

	if (s && s->address)
		return s;
	if (!makes || (2 * o->n_syncs >= o->sync_capacity && !grow_syncs(o)))
		return NULL;
	s = find_sync(o->syncs, o->sync_capacity, address);
	s->address = address;
	o->n_syncs++;
	return s;
}

/* ---- release and acquire ------------------------------------------------- */

static uint32_t cluster_of(const struct emu_order *o,
			   const struct emu_order_warp *w)
{
	return o->first[w->grid] + w->cluster * o->warps[w->grid] + 1;
}

void emu_order_release(struct emu_order *o, const struct emu_order_warp *w,
		       uint64_t address, enum emu_order_scope scope,
		       bool is_atomic)
{
	struct actor *a = &o->list[emu_order_actor(o, w)];
	struct sync *s = sync_at(o, address, true);

	if (!s)
		return;
	/* A plain write ends what earlier ones have released; an atomic one
	 * goes on with it. */
	if (!is_atomic) {
		free(s->wide);
		free(s->near);
		s->wide = s->near = NULL;
	}
	s->version++;
	if (scope == EMU_ORDER_WIDE) {
		take_snapshot(o, w, &s->wide);
	} else if (scope == EMU_ORDER_NEAR) {
		take_snapshot(o, w, &s->near);
		s->near_cluster = cluster_of(o, w);
	} else {
		merge_into(o, &s->wide, a->fenced);
	}
	emu_check_tick(w->check, w->warp);
}

void emu_order_acquire(struct emu_order *o, const struct emu_order_warp *w,
		       uint64_t address, enum emu_order_scope scope)
{
	struct actor *a = &o->list[emu_order_actor(o, w)];
	const struct sync *s = sync_at(o, address, false);
	struct acquisition *now;

	if (!s || (a->polled == address && a->polled_version == s->version))
		return;
	a->polled = address;
	a->polled_version = s->version;
	if (scope == EMU_ORDER_RELAXED) {
		merge_into(o, &a->pending, s->wide);
		return;
	}
	now = acquire_now(o, w);
	if (!now)
		return;
	if (scope == EMU_ORDER_WIDE)
		merge_into(o, &now->clocks, s->wide);
	if (s->near_cluster == cluster_of(o, w)) {
		merge_into(o, &now->clocks, s->wide);
		merge_into(o, &now->clocks, s->near);
	}
}

void emu_order_fence(struct emu_order *o, const struct emu_order_warp *w,
		     enum emu_order_scope scope)
{
	struct actor *a = &o->list[emu_order_actor(o, w)];
	struct acquisition *now;

	if (scope != EMU_ORDER_WIDE)
		return;
	if (a->pending) {
		now = acquire_now(o, w);
		if (now)
			merge_into(o, &now->clocks, a->pending);
		free(a->pending);
		a->pending = NULL;
	}
	take_snapshot(o, w, &a->fenced);
	emu_check_tick(w->check, w->warp);
}

void emu_order_stored(struct emu_order *o, const struct emu_order_warp *w,
		      uint32_t groups)
{
	struct actor *a = &o->list[emu_order_actor(o, w)];
	const uint32_t committed =
	    emu_check_committed(w->check, w->warp, EMU_ENGINE_STORE);
	const uint32_t clock = emu_check_seen(w->check, w->warp, w->warp);

	while (a->n_stored + groups < committed) {
		uint32_t *grown = emu_grow(a->stored, &a->stored_capacity,
					   a->n_stored, sizeof(*grown));

		if (!grown)
			return;
		a->stored = grown;
		grown[a->n_stored++] = clock + 1;
	}
}

void emu_order_grids(struct emu_order *o, const struct emu_order_warp *w,
		     uint32_t last)
{
	struct acquisition *now = acquire_now(o, w);

	if (now && now->grids < last + 1)
		now->grids = last + 1;
}
