/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - what warps of several clusters have seen of each other, and the words
 * of global memory that they accessed; see order.h.
 */
#include "check/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"

/* ---- state --------------------------------------------------------------- */

/* What a warp has seen from a value of its clock on: a clock for each agent. */
struct acquisition {
	uint32_t clock;
	uint32_t grids;	  /* grids below this index have ended */
	uint32_t *clocks; /* by agent; NULL: none */
};

/* What a warp of the run has seen; each warp is an agent. */
struct agent {
	struct acquisition *acquired;
	size_t count, capacity;
	uint32_t *fenced;  /* what a later relaxed write publishes */
	uint32_t *pending; /* what relaxed reads found, for a fence */
	/* When bulk groups had been waited for: clock + 1; 0: not yet. */
	uint32_t *stored;
	size_t n_stored, stored_capacity;
	/* The last address that it acquired, so that polling costs nothing. */
	uint64_t polled;
	uint32_t polled_version;
};

struct emu_order {
	uint32_t grids;
	uint32_t *first;    /* agent, by grid; then how many there are */
	uint32_t *warps;    /* of a cluster, by grid */
	struct agent *list; /* by agent */
	struct sync *syncs; /* open addressing */
	size_t n_syncs, sync_capacity;
	struct table {
		struct page **pages; /* open addressing, by number */
		size_t count, capacity;
	} tables[EMU_ORDER_TABLES]; /* by number */
};

/* What was released at an address. */
struct sync {
	uint64_t address; /* 0: none */
	uint32_t *wide, *near;
	uint32_t near_cluster; /* + 1, of the run */
	uint32_t version;
};

#define PAGE_BYTES 4096
#define WORD_BYTES 4
#define READERS	   3
#define MOST_PAGES (32768 / EMU_ORDER_TABLES) /* of a table */

#define MOST_AGENTS (1u << 24)

/* An epoch: a value of an agent's clock, and the bytes of the access. */
struct touch {
	uint32_t agent : 25; /* + 1; 0: none */
	uint32_t bytes : 4, kind : 3;
	uint32_t clock; /* of STORE: its group */
};

/* There are many of them, so each has only 56 bytes. */
struct word {
	struct touch write, reads[READERS];
	uint32_t line : 30; /* of the write */
	uint32_t next : 2;  /* reader to be forgotten */
	struct emu_lane_word lanes;
};

struct page {
	uint64_t number;
	bool is_written;
	struct word words[PAGE_BYTES / WORD_BYTES];
};

static uint32_t agent_number(const struct emu_order *o, const struct emu_order_warp *w)
{
	return o->first[w->grid] + w->cluster * o->warps[w->grid] + w->warp;
}

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

static void free_pages(struct emu_order *o)
{
	for (size_t k = 0; k < EMU_ORDER_TABLES; k++) {
		for (size_t i = 0; i < o->tables[k].capacity; i++)
			free(o->tables[k].pages[i]);
		free(o->tables[k].pages);
	}
}

void emu_order_close(struct emu_order *o)
{
	if (!o)
		return;
	for (uint32_t i = 0; o->list && i < agents(o); i++) {
		struct agent *a = &o->list[i];

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
	free_pages(o);
	free(o->syncs);
	free(o->list);
	free(o->warps);
	free(o->first);
	free(o);
}

/* ---- knowledge ----------------------------------------------------------- */

static uint32_t grid_of(const struct emu_order *o, uint32_t agent)
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

static bool knows(const struct emu_order *o, const struct emu_order_warp *w,
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
		if (a && (a->grids > grid_of(o, agent) ||
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
	struct agent *a = &o->list[agent_number(o, w)];
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
	struct agent *a = &o->list[agent_number(o, w)];
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
	struct agent *a = &o->list[agent_number(o, w)];
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
	struct agent *a = &o->list[agent_number(o, w)];
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
	struct agent *a = &o->list[agent_number(o, w)];
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

/* ---- words of global memory ---------------------------------------------- */

static struct page **find_page(struct page **pages, size_t capacity, uint64_t number)
{
	size_t at = number * UINT64_C(0x9E3779B97F4A7C15) >> 32;

	for (at %= capacity; pages[at] && pages[at]->number != number;
	     at = (at + 1) % capacity)
		;
	return &pages[at];
}

static bool grow_table(struct table *t)
{
	const size_t capacity = t->capacity ? 2 * t->capacity : 64;
	struct page **grown = calloc(capacity, sizeof(*grown));

	if (!grown)
		return false;
	for (size_t i = 0; i < t->capacity; i++)
		if (t->pages[i])
			*find_page(grown, capacity, t->pages[i]->number) = t->pages[i];
	free(t->pages);
	t->pages = grown;
	t->capacity = capacity;
	return true;
}

/* NULL: no access to it yet. */
static struct page *known_page(const struct emu_order *o, uint64_t number)
{
	const struct table *t = &o->tables[number % EMU_ORDER_TABLES];

	return t->capacity ? *find_page(t->pages, t->capacity, number) : NULL;
}

/* NULL: too many. */
static struct page *page_at(struct emu_order *o, uint64_t number)
{
	struct table *t = &o->tables[number % EMU_ORDER_TABLES];
	struct page **at, *found = known_page(o, number);

	if (found)
		return found;
	if (t->count == MOST_PAGES || (2 * t->count >= t->capacity && !grow_table(t)))
		return NULL;
	at = find_page(t->pages, t->capacity, number);
	*at = calloc(1, sizeof(**at));
	if (*at) {
		(*at)->number = number;
		t->count++;
	}
	return *at;
}

/* ---- one word ------------------------------------------------------------ */

/* The clock at which a bulk store's bytes were written; false: not yet. */
static bool clock_of(const struct emu_order *o, const struct touch *t, uint32_t *clock)
{
	const struct agent *a = &o->list[t->agent - 1];

	*clock = t->clock;
	if (!(t->kind & EMU_ORDER_STORE))
		return true;
	if (t->clock >= a->n_stored)
		return false;
	*clock = a->stored[t->clock] - 1;
	return true;
}

static bool is_before(const struct emu_order *o, const struct emu_order_warp *w,
		      const struct touch *t)
{
	uint32_t clock;

	return clock_of(o, t, &clock) && knows(o, w, t->agent - 1, clock);
}

static bool object(const struct emu_order *o, const struct emu_order_warp *w,
		   const struct touch *t, const char *how, uint64_t address,
		   uint32_t line, struct emu_error *err)
{
	const uint32_t agent = t->agent - 1;
	const uint32_t grid = grid_of(o, agent);
	const uint32_t in_grid = agent - o->first[grid];
	uint32_t clock;

	emu_fail(err, "global memory 0x%" PRIx64 ": warp %u of cluster %u", address,
		 in_grid % o->warps[grid], in_grid / o->warps[grid]);
	if (grid != w->grid)
		emu_add_text(err, " of another grid");
	emu_add_text(err, " %s it", how);
	if (line)
		emu_add_text(err, " (PTX line %u)", line);
	if (!clock_of(o, t, &clock))
		emu_add_text(err, " by a bulk store, and its group has not "
				  "been waited for (without .read)");
	else if (grid != w->grid)
		emu_add_text(err, ", and the later grid has not waited for "
				  "the other: griddepcontrol.wait");
	else
		emu_add_text(err, ", and nothing orders that before this: no "
				  "release and acquire of .gpu scope");
	return false;
}

static bool races(const struct touch *old, const struct touch *new)
{
	return old->agent && old->bytes & new->bytes &&
	       !(old->kind & new->kind &EMU_ORDER_STRONG);
}

static void add_read(const struct emu_order *o, const struct emu_order_warp *w,
		     struct word *word, const struct touch *new)
{
	int at = -1;

	for (int i = 0; i < READERS && at < 0; i++)
		if (!word->reads[i].agent ||
		    (word->reads[i].agent == new->agent &&
		     word->reads[i].kind == new->kind &&
		     (word->reads[i].bytes & ~new->bytes) == 0))
			at = i;
	for (int i = 0; i < READERS && at < 0; i++)
		if ((word->reads[i].bytes & ~new->bytes) == 0 &&
		    word->reads[i].kind == new->kind &&
		    is_before(o, w, &word->reads[i]))
			at = i;
	if (at < 0) {
		at = word->next;
		word->next = (uint32_t)(at + 1) % READERS & 3;
	}
	word->reads[at] = *new;
}

static void set_write(struct word *word, const struct touch *new, uint32_t line)
{
	for (int i = 0; i < READERS; i++)
		if (word->reads[i].bytes & new->bytes)
			word->reads[i].agent = 0;
	word->write = *new;
	word->line = line & 0x3FFFFFFF;
}

/*
 * False with a sentence if another lane of the warp touched the word and
 * nothing orders the two.
 */
static bool follows_lanes(const struct emu_order_warp *w, const struct word *word,
			  const struct touch *new, uint64_t address,
			  struct emu_place place, struct emu_error *err)
{
	const struct emu_lanes *l = emu_check_lanes(w->check, w->warp);
	const bool is_write = new->kind &EMU_ORDER_WRITE;
	const char *what = is_write ? "store to" : "load of";
	struct emu_lane_pair p;

	if (is_write &&
	    emu_lane_overtakes(&word->lanes, l, new->agent, new->bytes, place, &p)) {
		emu_fail(err, "%s global memory 0x%" PRIx64, what, address);
		return emu_lanes_object(err, p, "reads it", word->lanes.read_line,
					EMU_LANES_SYNC_RULE);
	}
	/* Stores of one instruction are no race. */
	if (word->write.agent != new->agent || !(word->write.bytes & new->bytes) ||
	    !word->lanes.write_instruction ||
	    word->lanes.write_instruction == place.instruction ||
	    !emu_lanes_race(l, place.lanes, emu_lane_writers(&word->lanes),
			    word->lanes.write_instruction, &p))
		return true;
	emu_fail(err, "%s global memory 0x%" PRIx64, what, address);
	return emu_lanes_object(err, p, "wrote it", word->line, EMU_LANES_SYNC_RULE);
}

static void add_lanes(const struct emu_order_warp *w, struct word *word,
		      const struct touch *new, struct emu_place place)
{
	if (new->kind & EMU_ORDER_WRITE)
		emu_lane_write(&word->lanes, new->bytes, place);
	else if (place.lanes)
		emu_lane_read(&word->lanes, emu_check_lanes(w->check, w->warp),
			      new->agent, new->bytes, place);
}

/* False with a sentence if the access does not follow the last write. */
static bool follows_write(const struct emu_order *o, const struct emu_order_warp *w,
			  const struct word *word, const struct touch *new,
			  uint64_t address, struct emu_place place,
			  struct emu_error *err)
{
	if (place.lanes && !follows_lanes(w, word, new, address, place, err))
		return false;
	return !races(&word->write, new) || is_before(o, w, &word->write) ||
	       object(o, w, &word->write, "wrote", address, word->line, err);
}

static bool touch(const struct emu_order *o, const struct emu_order_warp *w,
		  struct word *word, const struct touch *new, uint64_t address,
		  struct emu_place place, struct emu_error *err)
{
	bool ok = follows_write(o, w, word, new, address, place, err);

	add_lanes(w, word, new, place);
	if (!(new->kind &EMU_ORDER_WRITE)) {
		add_read(o, w, word, new);
		return ok;
	}
	for (int i = 0; i < READERS && ok; i++)
		if (races(&word->reads[i], new) && !is_before(o, w, &word->reads[i]))
			ok = object(o, w, &word->reads[i], "reads", address, 0, err);
	set_write(word, new, place.line);
	return ok;
}

/* ---- ranges -------------------------------------------------------------- */

static struct touch touch_of(const struct emu_order *o, const struct emu_order_warp *w,
			     uint32_t kind)
{
	return (struct touch){
	    .agent = (agent_number(o, w) + 1) & (2 * MOST_AGENTS - 1),
	    .clock = kind & EMU_ORDER_STORE
			 ? emu_check_committed(w->check, w->warp, EMU_ASYNC_STORE)
			 : emu_check_seen(w->check, w->warp, w->warp),
	    .kind = kind & 7,
	};
}

/* The access in the form that the checks of lanes use. */
static struct emu_place place_of(const struct touch *t, struct emu_place place)
{
	if (t->kind & (EMU_ORDER_STRONG | EMU_ORDER_STORE) ||
	    t->agent >= EMU_MOST_WARPS)
		place.lanes = 0;
	return place;
}

bool emu_order_access(struct emu_order *o, const struct emu_order_warp *w,
		      uint32_t kind, uint64_t address, uint32_t bytes,
		      struct emu_place place, struct emu_error *err)
{
	const uint64_t end = address + bytes;
	struct touch new = touch_of(o, w, kind);
	struct page *page = NULL;

	place = place_of(&new, place);
	for (uint64_t at = address / WORD_BYTES * WORD_BYTES; at < end;
	     at += WORD_BYTES) {
		if (!page || page->number != at / PAGE_BYTES)
			page = page_at(o, at / PAGE_BYTES);
		if (!page)
			return true;
		page->is_written |= (kind & EMU_ORDER_WRITE) != 0;
		new.bytes = emu_bytes_of_word(address, end, at) & 15;
		if (!touch(o, w, &page->words[at % PAGE_BYTES / WORD_BYTES], &new, at,
			   place, err))
			return false;
	}
	return true;
}

/* ---- reads side by side -------------------------------------------------- */

struct emu_order_read {
	struct emu_order_warp warp;
	struct touch touch; /* its clock is that of the read */
	struct emu_place place;
	uint64_t address;
	uint32_t bytes;
};

bool emu_order_look(const struct emu_order *o, struct emu_order_reads *reads,
		    const struct emu_order_warp *w, uint64_t address, uint32_t bytes,
		    struct emu_place place, struct emu_error *err)
{
	const uint64_t end = address + bytes;
	struct touch new = touch_of(o, w, EMU_ORDER_READ);
	struct emu_order_read *grown =
	    emu_grow(reads->list, &reads->capacity, reads->count, sizeof(*grown));

	place = place_of(&new, place);
	if (grown) {
		reads->list = grown;
		grown[reads->count++] =
		    (struct emu_order_read){*w, new, place, address, bytes};
	}
	for (uint64_t at = address / WORD_BYTES * WORD_BYTES; at < end;
	     at += WORD_BYTES) {
		const struct page *page = known_page(o, at / PAGE_BYTES);

		if (!page || !page->is_written) {
			at |= PAGE_BYTES - WORD_BYTES; /* all of the page */
			continue;
		}
		new.bytes = emu_bytes_of_word(address, end, at) & 15;
		if (!follows_write(o, w, &page->words[at % PAGE_BYTES / WORD_BYTES],
				   &new, at, place, err))
			return false;
	}
	return true;
}

/* Records the words of a read that are in a page. */
static void add_in_page(struct emu_order *o, const struct emu_order_read *r,
			uint64_t number)
{
	const uint64_t end = r->address + r->bytes;
	const uint64_t begin = number * PAGE_BYTES;
	const uint64_t from = begin > r->address ? begin : r->address;
	const uint64_t to = begin + PAGE_BYTES < end ? begin + PAGE_BYTES : end;
	struct page *page = page_at(o, number);
	struct touch new = r->touch;

	for (uint64_t at = from / WORD_BYTES * WORD_BYTES; page && at < to;
	     at += WORD_BYTES) {
		struct word *word = &page->words[at % PAGE_BYTES / WORD_BYTES];

		new.bytes = emu_bytes_of_word(r->address, end, at) & 15;
		add_lanes(&r->warp, word, &new, r->place);
		add_read(o, &r->warp, word, &new);
	}
}

/*
 * A warp may have seen more now than at its read.  So an earlier reader may be
 * forgotten with which a race would have been found, but no false race is reported.
 */
void emu_order_add(struct emu_order *o, const struct emu_order_reads *reads,
		   uint32_t table, uint32_t step)
{
	for (size_t i = 0; i < reads->count; i++) {
		const struct emu_order_read *r = &reads->list[i];
		const uint64_t last = (r->address + r->bytes - 1) / PAGE_BYTES;

		for (uint64_t number = r->address / PAGE_BYTES;
		     r->bytes && number <= last; number++)
			if (number % EMU_ORDER_TABLES % step == table)
				add_in_page(o, r, number);
	}
}
