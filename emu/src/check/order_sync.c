/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_sync.c - what warps of several clusters have seen of each other; see order.h.
 */
#include "check/order_state.h"

#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"

/* Bytes that are tracked. */
#define MOST_BYTES	   (128u << 20)
#define CLUSTER_MOST_BYTES (8u << 20)

/* ---- opening ------------------------------------------------------------- */

static uint32_t agents(const struct emu_order *o)
{
	return o->first[o->grids];
}

struct emu_order *emu_order_open(uint32_t grids, const uint32_t *clusters,
				 const uint32_t *warps)
{
	struct emu_order *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->page_shift = PAGE_SHIFT;
	o->most_pages = (MOST_BYTES >> PAGE_SHIFT) / EMU_ORDER_TABLES;
	o->grids = grids;
	o->first = calloc(grids + 1, sizeof(*o->first));
	o->warps = calloc(grids, sizeof(*o->warps));
	for (uint32_t g = 0; o->first && o->warps && g < grids; g++) {
		const uint64_t end = o->first[g] + (uint64_t)clusters[g] * warps[g];

		if (end >= MOST_AGENTS) { /* too many to be followed */
			emu_order_close(o);
			return NULL;
		}
		o->warps[g] = warps[g];
		o->first[g + 1] = (uint32_t)end;
	}
	if (o->first && o->warps)
		o->list = calloc(agents(o) + 1u, sizeof(*o->list));
	if (!o->list) {
		emu_order_close(o);
		return NULL;
	}
	return o;
}

struct emu_order *emu_order_open_cluster(uint32_t warps)
{
	static const uint32_t one = 1;
	struct emu_order *o = emu_order_open(1, &one, &warps);

	if (!o)
		return NULL;
	o->is_of_cluster = true;
	o->page_shift = CLUSTER_PAGE_SHIFT;
	o->most_pages = (CLUSTER_MOST_BYTES >> CLUSTER_PAGE_SHIFT) / EMU_ORDER_TABLES;
	return o;
}

bool emu_order_is_short(const struct emu_order *o)
{
	for (size_t k = 0; k < EMU_ORDER_TABLES; k++)
		if (o->tables[k].is_short)
			return true;
	return false;
}

/* Frees what warps have seen and released. */
static void free_knowledge(struct emu_order *o)
{
	for (uint32_t i = 0; o->list && i < agents(o); i++) {
		struct agent *a = &o->list[i];

		for (size_t k = 0; k < a->count; k++)
			free(a->acquired[k].clocks);
		free(a->acquired);
		free(a->fenced);
		free(a->pending);
		free(a->stored);
		*a = (struct agent){0};
	}
	for (size_t i = 0; i < o->sync_capacity; i++) {
		free(o->syncs[i].wide);
		free(o->syncs[i].near);
	}
	free(o->syncs);
	o->syncs = NULL;
	o->n_syncs = o->sync_capacity = 0;
}

void emu_order_begin_cluster(struct emu_order *o)
{
	free_knowledge(o);
	emu_order_forget_pages(o);
}

void emu_order_close(struct emu_order *o)
{
	if (!o)
		return;
	free_knowledge(o);
	emu_order_free_pages(o);
	free(o->list);
	free(o->warps);
	free(o->first);
	free(o);
}

/* ---- knowledge ----------------------------------------------------------- */

uint32_t emu_order_grid_of(const struct emu_order *o, uint32_t agent)
{
	uint32_t g = 0;

	while (agent >= o->first[g + 1])
		g++;
	return g;
}

/* The latest acquisition at or before a value of the clock. */
static const struct acquisition *latest(const struct agent *a, uint32_t clock)
{
	size_t n = a->count;

	while (n && a->acquired[n - 1].clock > clock)
		n--;
	return n ? &a->acquired[n - 1] : NULL;
}

bool emu_order_knows(const struct emu_order *o, const struct emu_order_warp *w,
		     uint32_t agent, uint32_t clock)
{
	const uint32_t warps = o->warps[w->grid];
	const uint32_t first = o->first[w->grid] + w->cluster * warps;

	if (agent - first < warps &&
	    emu_check_seen(w->check, w->warp, agent - first) >= clock)
		return true;
	for (uint32_t k = 0; k < warps; k++) {
		const struct acquisition *a;

		if (!o->list[first + k].count)
			continue;
		a = latest(&o->list[first + k], emu_check_seen(w->check, w->warp, k));
		if (a && (a->grids > emu_order_grid_of(o, agent) ||
			  (a->clocks && a->clocks[agent] >= clock)))
			return true;
	}
	return false;
}

static void merge(uint32_t *to, const uint32_t *from, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		to[i] = to[i] > from[i] ? to[i] : from[i];
}

/*
 * Merges clocks into *to, which is allocated where it is NULL; does nothing
 * without memory.
 */
static void merge_into(const struct emu_order *o, uint32_t **to, const uint32_t *from)
{
	if (!from)
		return;
	if (!*to)
		*to = calloc(agents(o) + 1u, sizeof(**to));
	if (*to)
		merge(*to, from, agents(o));
}

/* Merges all that w has seen now into *to. */
static void take_snapshot(const struct emu_order *o, const struct emu_order_warp *w,
			  uint32_t **to)
{
	const uint32_t warps = o->warps[w->grid];
	const uint32_t first = o->first[w->grid] + w->cluster * warps;

	if (!*to)
		*to = calloc(agents(o) + 1u, sizeof(**to));
	if (!*to)
		return;
	for (uint32_t k = 0; k < warps; k++) {
		const uint32_t seen = emu_check_seen(w->check, w->warp, k);
		const struct acquisition *a = latest(&o->list[first + k], seen);

		if ((*to)[first + k] < seen)
			(*to)[first + k] = seen;
		if (a && a->clocks)
			merge(*to, a->clocks, agents(o));
	}
}

/* An acquisition that begins now; NULL without memory. */
static struct acquisition *acquire_now(struct emu_order *o,
				       const struct emu_order_warp *w)
{
	struct agent *a = &o->list[emu_order_agent(o, w)];
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
	grown[a->count] =
	    (struct acquisition){.clock = clock, .grids = last ? last->grids : 0};
	merge_into(o, &grown[a->count].clocks, last ? last->clocks : NULL);
	return &grown[a->count++];
}

/* ---- addresses ----------------------------------------------------------- */

static struct sync *find_sync(struct sync *syncs, size_t capacity, uint64_t address)
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
			*find_sync(grown, capacity, o->syncs[i].address) = o->syncs[i];
	free(o->syncs);
	o->syncs = grown;
	o->sync_capacity = capacity;
	return true;
}

/* The release at an address; a new one if wanted, else NULL. */
static struct sync *sync_at(struct emu_order *o, uint64_t address, bool makes)
{
	struct sync *s =
	    o->sync_capacity ? find_sync(o->syncs, o->sync_capacity, address) : NULL;

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

static uint32_t cluster_of(const struct emu_order *o, const struct emu_order_warp *w)
{
	return o->first[w->grid] + w->cluster * o->warps[w->grid] + 1;
}

void emu_order_release(struct emu_order *o, const struct emu_order_warp *w,
		       uint64_t address, enum emu_order_scope scope, bool is_atomic)
{
	struct agent *a = &o->list[emu_order_agent(o, w)];
	struct sync *s = sync_at(o, address, true);

	if (!s)
		return;
	/* A plain write ends the release of earlier writes; an atomic one
	 * continues it. */
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
	struct agent *a = &o->list[emu_order_agent(o, w)];
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
	struct agent *a = &o->list[emu_order_agent(o, w)];
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
	struct agent *a = &o->list[emu_order_agent(o, w)];
	const uint32_t committed =
	    emu_check_committed(w->check, w->warp, EMU_ASYNC_STORE);
	const uint32_t clock = emu_check_seen(w->check, w->warp, w->warp);

	while (a->n_stored + groups < committed) {
		uint32_t *grown = emu_grow(a->stored, &a->stored_capacity, a->n_stored,
					   sizeof(*grown));

		if (!grown)
			return;
		a->stored = grown;
		grown[a->n_stored++] = clock + 1;
	}
}

void emu_order_grids(struct emu_order *o, const struct emu_order_warp *w, uint32_t last)
{
	struct acquisition *now = acquire_now(o, w);

	if (now && now->grids < last + 1)
		now->grids = last + 1;
}
