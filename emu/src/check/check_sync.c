/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_sync.c - happens-before: fences, groups of asynchronous operations,
 * mbarriers and barriers of threads; see check.h.
 */
#include <stdlib.h>
#include <string.h>

#include "check/check_state.h"

/* ---- frontiers ----------------------------------------------------------- */

static bool frontier_new(const struct emu_check *c, struct frontier *f)
{
	f->seen = calloc(c->vectors * (size_t)c->agents, sizeof(f->seen[0]));
	f->fenced = f->seen ? f->seen + c->agents : NULL;
	if (f->seen && c->vectors > 2)
		f->before = f->fenced + c->agents;
	return f->seen;
}

static void merge_clocks(uint32_t *to, const uint32_t *from, uint32_t agents)
{
	for (uint32_t i = 0; i < agents; i++)
		to[i] = to[i] > from[i] ? to[i] : from[i];
}

/* The vectors of a frontier follow each other in memory. */
static void merge(const struct emu_check *c, struct frontier *to,
		  const struct frontier *from)
{
	merge_clocks(to->seen, from->seen, c->vectors * c->agents);
}

static void copy(const struct emu_check *c, struct frontier *to,
		 const struct frontier *from)
{
	memcpy(to->seen, from->seen, c->vectors * c->agents * sizeof(to->seen[0]));
}

/* Makes what the warp does from now on later than what it did. */
static void tick(struct emu_check *c, uint32_t warp)
{
	uint32_t *clock = &c->warp[warp].knows.seen[agent_of_warp(warp)];

	*clock += *clock < MOST_CLOCK;
}

uint32_t emu_check_seen(const struct emu_check *c, uint32_t warp, uint32_t other)
{
	/* What cannot be tracked is assumed to be in order. */
	return c->is_blind ? UINT32_MAX
			   : c->warp[warp].knows.seen[agent_of_warp(other)];
}

bool emu_check_is_blind(const struct emu_check *c)
{
	return c->is_blind;
}

void emu_check_tick(struct emu_check *c, uint32_t warp)
{
	tick(c, warp);
}

uint32_t emu_check_committed(const struct emu_check *c, uint32_t warp,
			     enum emu_async_kind kind)
{
	return c->warp[warp].committed[kind];
}

static bool sync_new(const struct emu_check *c, struct sync *s, bool has_far)
{
	return frontier_new(c, &s->arrived) && frontier_new(c, &s->opened) &&
	       (!has_far ||
		(frontier_new(c, &s->far_arrived) && frontier_new(c, &s->far_opened)));
}

static void sync_free(struct sync *s)
{
	free(s->arrived.seen);
	free(s->opened.seen);
	free(s->far_arrived.seen);
	free(s->far_opened.seen);
}

/* ---- opening ------------------------------------------------------------- */

/* Barriers that are tracked in each CTA of a cluster; twice as many without one. */
#define BARRIERS_PER_CTA 64

static uint32_t joins_of(const struct emu_check *c)
{
	return c->ctas * EMU_CLUSTER_BARRIER + 1;
}

static bool make_warps(struct emu_check *c)
{
	c->warp = calloc(c->warps, sizeof(c->warp[0]));
	if (!c->warp)
		return false;
	for (uint32_t i = 0; i < c->warps; i++) {
		c->warp[i].cta = i / (c->warps / c->ctas);
		if (!frontier_new(c, &c->warp[i].knows))
			return false;
		if (c->vectors > 2)
			c->warp[i].after = calloc(c->agents, sizeof(*c->warp[i].after));
		if (c->vectors > 2 && !c->warp[i].after)
			return false;
		tick(c, i);
	}
	return true;
}

static bool make_words(struct words *w, size_t blocks)
{
	w->memory = malloc((blocks + 1) * sizeof(*w->memory));
	if (!w->memory)
		return false;
	/* Each history is one cache line. */
	w->block = (struct word *)(void *)((char *)w->memory +
					   (64 - (uintptr_t)w->memory % 64) % 64);
	w->word = malloc(blocks * BLOCK_WORDS * sizeof(*w->word));
	w->state = calloc(blocks, sizeof(*w->state));
	return w->word && w->state;
}

static bool make_memory(struct emu_check *c)
{
	c->words = calloc(c->ctas, sizeof(c->words[0]));
	c->barrier_ids = calloc(c->ctas, sizeof(c->barrier_ids[0]));
	if (!c->words || !c->barrier_ids)
		return false;
	for (uint32_t i = 0; i < c->ctas; i++) {
		const bool is_made =
		    make_words(&c->words[i], c->bytes / BLOCK_BYTES + 1);

		c->barrier_ids[i] =
		    calloc(c->bytes / 8 + 1, sizeof(c->barrier_ids[i][0]));
		if (!is_made || !c->barrier_ids[i])
			return false;
	}
	return true;
}

static bool make_joins(struct emu_check *c)
{
	c->joins = calloc(joins_of(c), sizeof(c->joins[0]));
	for (uint32_t i = 0; c->joins && i < joins_of(c); i++)
		if (!sync_new(c, &c->joins[i], false))
			return false;
	return c->joins;
}

struct emu_check *emu_check_open(uint32_t ctas, uint32_t warps_of_cta, uint32_t bytes,
				 struct emu_check_options options)
{
	const uint32_t agents = ctas * warps_of_cta * AGENTS_PER_WARP;
	struct emu_check *c = calloc(1, sizeof(*c));

	if (!c || ctas == 0 || warps_of_cta == 0 || ctas > EMU_CLUSTER_MAX ||
	    agents + MOST_BARRIERS > MOST_AGENTS) {
		free(c);
		return NULL;
	}
	c->options = options;
	c->vectors = options.is_strict ? 3 : 2;
	c->ctas = ctas;
	c->warps = ctas * warps_of_cta;
	c->bytes = bytes;
	c->agents = agents + (ctas < 2 ? 2 : ctas) * BARRIERS_PER_CTA;
	if (!make_warps(c) || !make_memory(c) || !make_joins(c)) {
		emu_check_close(c);
		return NULL;
	}
	return c;
}

void emu_check_close(struct emu_check *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; c->warp && i < c->warps; i++) {
		free(c->warp[i].knows.seen);
		free(c->warp[i].released.seen);
		free(c->warp[i].far_released.seen);
		free(c->warp[i].found.seen);
		free(c->warp[i].after);
	}
	emu_check_tmem_close(c);
	for (uint32_t i = 0; c->words && i < c->ctas; i++) {
		free(c->words[i].memory);
		free(c->words[i].word);
		free(c->words[i].state);
	}
	for (uint32_t i = 0; c->barrier_ids && i < c->ctas; i++)
		free(c->barrier_ids[i]);
	for (uint32_t i = 0; i < c->barrier_count; i++)
		sync_free(&c->barriers[i].sync);
	for (uint32_t i = 0; c->joins && i < joins_of(c); i++)
		sync_free(&c->joins[i]);
	free(c->warp);
	free(c->words);
	free(c->barrier_ids);
	free(c->joins);
	free(c);
}

/* ---- fences and engines' groups ------------------------------------------ */

void emu_check_fence_proxy(struct emu_check *c, uint32_t warp)
{
	struct frontier *f = &c->warp[warp].knows;

	memcpy(f->fenced, f->seen, c->agents * sizeof(f->seen[0]));
	tick(c, warp);
}

void emu_check_fence_init(struct emu_check *c, uint32_t warp)
{
	struct warp *w = &c->warp[warp];

	w->init_clock = w->knows.seen[agent_of_warp(warp)];
	tick(c, warp);
}

/* True if there is memory for it; otherwise the checker reports nothing any more. */
static bool make_once(struct emu_check *c, struct frontier *f)
{
	if (!f->seen && !frontier_new(c, f))
		c->is_blind = true;
	return f->seen;
}

void emu_check_fence_release(struct emu_check *c, uint32_t warp, enum emu_scope scope)
{
	struct warp *w = &c->warp[warp];

	if (make_once(c, &w->released))
		copy(c, &w->released, &w->knows);
	if (scope == EMU_SCOPE_CLUSTER && make_once(c, &w->far_released))
		copy(c, &w->far_released, &w->knows);
	tick(c, warp);
}

void emu_check_fence_acquire(struct emu_check *c, uint32_t warp)
{
	struct warp *w = &c->warp[warp];

	if (w->found.seen)
		merge(c, &w->knows, &w->found);
}

void emu_check_commit(struct emu_check *c, uint32_t warp, enum emu_async_kind kind)
{
	struct warp *w = &c->warp[warp];
	const uint32_t group = w->committed[kind]++;

	if (kind == EMU_ASYNC_COPY)
		w->marks_of_groups[group % RING] = ++w->marks;
}

void emu_check_wait_group(struct emu_check *c, uint32_t warp, enum emu_async_kind kind,
			  uint32_t groups, uint32_t now)
{
	struct warp *w = &c->warp[warp];
	const uint32_t known = w->knows.seen[agent_of_async(warp, kind)];
	uint32_t done;

	if (w->committed[kind] <= groups || groups >= RING)
		return;
	done = w->committed[kind] - groups;
	if (kind == EMU_ASYNC_COPY)
		done = w->marks_of_groups[(done - 1) % RING];
	raise_clock(w->knows.seen, agent_of_async(warp, kind), done);
	if (done > known)
		emu_check_lanes_waited(c, warp, kind, known + 1, done + 1, now);
}

uint32_t emu_check_copy_mark(struct emu_check *c, uint32_t warp)
{
	return ++c->warp[warp].marks;
}

void emu_check_wait_all(struct emu_check *c, uint32_t warp)
{
	raise_clock(c->warp[warp].knows.seen, agent_of_async(warp, EMU_ASYNC_COPY),
		    emu_check_copy_mark(c, warp));
}

/* ---- mbarriers ----------------------------------------------------------- */

bool emu_check_init(struct emu_check *c, uint32_t warp, uint64_t barrier,
		    struct emu_place place, struct emu_error *err)
{
	const uint32_t capacity = c->agents - c->warps * AGENTS_PER_WARP;
	const uint32_t self = agent_of_warp(warp);
	const bool is_ordered = emu_check_write(c, warp, barrier, 8, place, err);
	struct barrier *b = emu_check_barrier(c, barrier);
	uint16_t *id = emu_check_id_at(c, barrier);

	if (!b) {
		if (!id || c->barrier_count == capacity) {
			c->is_blind = true;
			return true;
		}
		b = &c->barriers[c->barrier_count];
		if (!sync_new(c, &b->sync, true)) {
			sync_free(&b->sync);
			memset(b, 0, sizeof(*b));
			return emu_fail(err, "out of memory");
		}
		*id = (uint16_t)++c->barrier_count;
	}
	b->address = barrier;
	b->init = epoch_of(self, c->warp[warp].knows.seen[self], 15);
	return is_ordered;
}

void emu_check_inval(struct emu_check *c, uint64_t barrier)
{
	struct barrier *b = emu_check_barrier(c, barrier);

	/* Its clock goes on if it is initialised again. */
	if (b)
		b->init = 0;
}

/* Merges the clocks of wgmma, and of the phases that they have waited for. */
static void merge_wgmma(const struct emu_check *c, uint32_t *to, const uint32_t *from)
{
	const uint32_t barriers = c->warps * AGENTS_PER_WARP;

	for (uint32_t w = 0; w < c->warps; w++) {
		const uint32_t i = agent_of_async(w, EMU_ASYNC_WGMMA);

		raise_clock(to, i, from[i]);
	}
	merge_clocks(to + barriers, from + barriers, c->agents - barriers);
}

/*
 * Tensor memory has no caches.  When a warp has waited for an operation on it, the
 * operation has ended for every warp that waits for this one, whatever the scope
 * of its arrival.  PTX does not promise this.
 */
static void merge_tmem(const struct emu_check *c, uint32_t *to, const uint32_t *from)
{
	static const enum emu_async_kind kinds[] = {EMU_ASYNC_WGMMA, EMU_ASYNC_TMEM_LD,
						    EMU_ASYNC_TMEM_ST};

	if (!c->options.has_tensor_memory || c->options.is_strict)
		return;
	for (uint32_t w = 0; w < c->warps; w++)
		for (uint32_t k = 0; k < 3; k++) {
			const uint32_t i = agent_of_async(w, kinds[k]);

			raise_clock(to, i, from[i]);
		}
}

bool emu_check_arrive(struct emu_check *c, uint32_t warp, uint64_t barrier,
		      enum emu_scope scope, struct emu_error *err)
{
	struct warp *w = &c->warp[warp];
	struct barrier *b = emu_check_barrier(c, barrier);
	const bool is_far = barrier >> EMU_RANK_SHIFT != w->cta;

	if (!b)
		return true; /* the state machine objects */
	merge_tmem(c, b->sync.arrived.seen, w->knows.seen);
	if (is_far)
		merge_wgmma(c, b->sync.arrived.seen, w->knows.seen);
	if (scope == EMU_SCOPE_CLUSTER && is_far)
		merge(c, &b->sync.far_arrived, &w->knows);
	else if (scope != EMU_SCOPE_NONE && !is_far)
		merge(c, &b->sync.arrived, &w->knows);
	/* An earlier fence has released what preceded the fence. */
	if (is_far && w->far_released.seen)
		merge(c, &b->sync.far_arrived, &w->far_released);
	if (!is_far && w->released.seen)
		merge(c, &b->sync.arrived, &w->released);
	tick(c, warp);
	return emu_check_is_ready(c, warp, b, err);
}

void emu_check_copy_arrive(struct emu_check *c, uint32_t warp, uint32_t mark,
			   uint64_t barrier)
{
	struct barrier *b = emu_check_barrier(c, barrier);

	if (b)
		raise_clock(b->sync.arrived.seen, agent_of_async(warp, EMU_ASYNC_COPY),
			    mark);
}

void emu_check_phase(struct emu_check *c, uint64_t barrier)
{
	struct barrier *b = emu_check_barrier(c, barrier);
	uint32_t agent;

	if (!b)
		return;
	agent = c->warps * AGENTS_PER_WARP + (uint32_t)(b - c->barriers);
	b->phases += b->phases < MOST_CLOCK;
	b->sync.arrived.seen[agent] = b->phases;
	copy(c, &b->sync.opened, &b->sync.arrived);
	copy(c, &b->sync.far_opened, &b->sync.far_arrived);
}

bool emu_check_wait(struct emu_check *c, uint32_t warp, uint64_t barrier,
		    enum emu_scope scope, struct emu_error *err)
{
	struct warp *w = &c->warp[warp];
	struct barrier *b = emu_check_barrier(c, barrier);
	bool is_ready;

	if (!b)
		return true;
	/* Tested before the wait itself acquires the init. */
	is_ready = emu_check_is_ready(c, warp, b, err);
	merge_tmem(c, w->knows.seen, b->sync.opened.seen);
	if (scope != EMU_SCOPE_NONE)
		merge(c, &w->knows, &b->sync.opened);
	if (scope == EMU_SCOPE_CLUSTER)
		merge(c, &w->knows, &b->sync.far_opened);
	/* Until a fence acquires it. */
	if (scope == EMU_SCOPE_NONE && make_once(c, &w->found)) {
		merge(c, &w->found, &b->sync.opened);
		merge(c, &w->found, &b->sync.far_opened);
	}
	return is_ready;
}

/* ---- barriers of threads ------------------------------------------------- */

static struct sync *join_of(const struct emu_check *c, uint32_t cta, uint32_t number)
{
	if (number >= EMU_CLUSTER_BARRIER)
		return &c->joins[joins_of(c) - 1];
	return &c->joins[cta * EMU_CLUSTER_BARRIER + number];
}

void emu_check_join(struct emu_check *c, uint32_t warp, uint32_t cta, uint32_t number,
		    bool is_release)
{
	struct warp *w = &c->warp[warp];
	struct sync *s = join_of(c, cta, number);

	merge_tmem(c, s->arrived.seen, w->knows.seen);
	if (is_release)
		merge(c, &s->arrived, &w->knows);
	else /* what fence.mbarrier_init has released */
		raise_clock(s->arrived.seen, agent_of_warp(warp), w->init_clock);
	tick(c, warp);
}

void emu_check_all_joined(struct emu_check *c, uint32_t cta, uint32_t number)
{
	struct sync *s = join_of(c, cta, number);

	copy(c, &s->opened, &s->arrived);
}

void emu_check_leave(struct emu_check *c, uint32_t warp, uint32_t cta, uint32_t number,
		     bool is_acquire)
{
	struct frontier *knows = &c->warp[warp].knows;
	const struct sync *s = join_of(c, cta, number);

	merge_tmem(c, knows->seen, s->opened.seen);
	if (is_acquire)
		merge(c, knows, &s->opened);
}
