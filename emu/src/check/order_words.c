/* SPDX-License-Identifier: Apache-2.0 */
/* order_words.c - words of global memory, and who touched them; see order.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check/order_state.h"

#define PAGE_BYTES 4096
#define WORD_BYTES 4
#define READERS	   3
#define MOST_PAGES 32768

/* A moment of an actor, and the bytes that it was about. */
struct touch {
	uint32_t actor; /* + 1; 0: none */
	uint32_t clock; /* of STORE: its group */
	uint8_t bytes, kind;
};

struct word {
	struct touch write, reads[READERS];
	uint32_t line; /* of the write */
	uint8_t next;  /* reader to be forgotten */
	struct emu_lane_word lanes;
};

struct page {
	uint64_t number;
	struct word words[PAGE_BYTES / WORD_BYTES];
};

void emu_order_free_pages(struct emu_order *o)
{
	for (size_t i = 0; i < o->page_capacity; i++)
		free(o->pages[i]);
	free(o->pages);
}

static struct page **find_page(struct page **pages, size_t capacity,
			       uint64_t number)
{
	size_t at = number * UINT64_C(0x9E3779B97F4A7C15) >> 32;

	for (at %= capacity; pages[at] && pages[at]->number != number;
	     at = (at + 1) % capacity)
		;
	return &pages[at];
}

static bool grow_pages(struct emu_order *o)
{
	const size_t capacity = o->page_capacity ? 2 * o->page_capacity : 256;
	struct page **grown = calloc(capacity, sizeof(*grown));

	if (!grown)
		return false;
	for (size_t i = 0; i < o->page_capacity; i++)
		if (o->pages[i])
			*find_page(grown, capacity, o->pages[i]->number) =
			    o->pages[i];
	free(o->pages);
	o->pages = grown;
	o->page_capacity = capacity;
	return true;
}

/* NULL: too many. */
static struct page *page_at(struct emu_order *o, uint64_t number)
{
	struct page **at, *found = NULL;

	if (o->page_capacity)
		found = *find_page(o->pages, o->page_capacity, number);
	if (found)
		return found;
	if (o->n_pages == MOST_PAGES ||
	    (2 * o->n_pages >= o->page_capacity && !grow_pages(o)))
		return NULL;
	at = find_page(o->pages, o->page_capacity, number);
	*at = calloc(1, sizeof(**at));
	if (*at) {
		(*at)->number = number;
		o->n_pages++;
	}
	return *at;
}

/* ---- one word ------------------------------------------------------------ */

/* The clock at which a bulk store's bytes were there; false: not yet. */
static bool clock_of(const struct emu_order *o, const struct touch *t,
		     uint32_t *clock)
{
	const struct actor *a = &o->list[t->actor - 1];

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

	return clock_of(o, t, &clock) &&
	       emu_order_knows(o, w, t->actor - 1, clock);
}

static bool object(const struct emu_order *o, const struct emu_order_warp *w,
		   const struct touch *t, const char *how, uint64_t address,
		   uint32_t line, struct emu_error *err)
{
	const uint32_t actor = t->actor - 1;
	const uint32_t grid = emu_order_grid_of(o, actor);
	const uint32_t in_grid = actor - o->first[grid];
	uint32_t clock;

	emu_fail(err, "global memory 0x%" PRIx64 ": warp %u of cluster %u",
		 address, in_grid % o->warps[grid], in_grid / o->warps[grid]);
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
	return old->actor && old->bytes & new->bytes &&
	       !(old->kind & new->kind &EMU_ORDER_STRONG);
}

static void add_read(const struct emu_order *o, const struct emu_order_warp *w,
		     struct word *word, const struct touch *new)
{
	int at = -1;

	for (int i = 0; i < READERS && at < 0; i++)
		if (!word->reads[i].actor ||
		    (word->reads[i].actor == new->actor &&
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
		word->next = (uint8_t)((at + 1) % READERS);
	}
	word->reads[at] = *new;
}

static void set_write(struct word *word, const struct touch *new, uint32_t line)
{
	for (int i = 0; i < READERS; i++)
		if (word->reads[i].bytes & new->bytes)
			word->reads[i].actor = 0;
	word->write = *new;
	word->line = line;
}

/* Another lane of the warp, without an order: false with a sentence. */
static bool follows_lanes(const struct emu_order_warp *w,
			  const struct word *word, const struct touch *new,
			  uint64_t address, struct emu_place place,
			  struct emu_error *err)
{
	const struct emu_lanes *l = emu_check_lanes(w->check, w->warp);
	const bool is_write = new->kind &EMU_ORDER_WRITE;
	const char *what = is_write ? "store to" : "load of";
	struct emu_lane_pair p;

	if (is_write && emu_lane_overtakes(&word->lanes, l, new->actor,
					   new->bytes, place, &p)) {
		emu_fail(err, "%s global memory 0x%" PRIx64, what, address);
		return emu_lanes_object(err, p, "reads it",
					word->lanes.read_line, EMU_LANES_MEET);
	}
	/* Stores of one instruction are no race. */
	if (word->write.actor != new->actor ||
	    !(word->write.bytes & new->bytes) || !word->lanes.write_moment ||
	    word->lanes.write_moment == place.moment ||
	    !emu_lanes_race(l, place.lanes, emu_lane_writers(&word->lanes),
			    word->lanes.write_moment, &p))
		return true;
	emu_fail(err, "%s global memory 0x%" PRIx64, what, address);
	return emu_lanes_object(err, p, "wrote it", word->line, EMU_LANES_MEET);
}

static void add_lanes(const struct emu_order_warp *w, struct word *word,
		      const struct touch *new, struct emu_place place)
{
	if (new->kind & EMU_ORDER_WRITE)
		emu_lane_write(&word->lanes, new->bytes, place);
	else if (place.lanes)
		emu_lane_read(&word->lanes, emu_check_lanes(w->check, w->warp),
			      new->actor, new->bytes, place);
}

static bool touch(const struct emu_order *o, const struct emu_order_warp *w,
		  struct word *word, const struct touch *new, uint64_t address,
		  struct emu_place place, struct emu_error *err)
{
	bool ok =
	    !place.lanes || follows_lanes(w, word, new, address, place, err);

	add_lanes(w, word, new, place);
	if (ok && races(&word->write, new) && !is_before(o, w, &word->write))
		ok = object(o, w, &word->write, "wrote", address, word->line,
			    err);
	if (!(new->kind &EMU_ORDER_WRITE)) {
		add_read(o, w, word, new);
		return ok;
	}
	for (int i = 0; i < READERS && ok; i++)
		if (races(&word->reads[i], new) &&
		    !is_before(o, w, &word->reads[i]))
			ok = object(o, w, &word->reads[i], "reads", address, 0,
				    err);
	set_write(word, new, place.line);
	return ok;
}

/* ---- ranges -------------------------------------------------------------- */

/* The bytes of a word that are in a range, as four bits. */
static uint8_t bytes_of_word(uint64_t at, uint64_t end, uint64_t word)
{
	uint8_t mask = 0;

	for (uint64_t i = 0; i < WORD_BYTES; i++)
		if (word + i >= at && word + i < end)
			mask |= (uint8_t)(1u << i);
	return mask;
}

bool emu_order_access(struct emu_order *o, const struct emu_order_warp *w,
		      uint32_t kind, uint64_t address, uint32_t bytes,
		      struct emu_place place, struct emu_error *err)
{
	const uint64_t end = address + bytes;
	struct touch new = {
	    .actor = emu_order_actor(o, w) + 1,
	    .clock =
		kind & EMU_ORDER_STORE
		    ? emu_check_committed(w->check, w->warp, EMU_ENGINE_STORE)
		    : emu_check_seen(w->check, w->warp, w->warp),
	    .kind = (uint8_t)kind,
	};
	struct page *page = NULL;

	if (kind & (EMU_ORDER_STRONG | EMU_ORDER_STORE) ||
	    new.actor >= EMU_MOST_WARPS)
		place.lanes = 0;
	for (uint64_t at = address / WORD_BYTES * WORD_BYTES; at < end;
	     at += WORD_BYTES) {
		if (!page || page->number != at / PAGE_BYTES)
			page = page_at(o, at / PAGE_BYTES);
		if (!page)
			return true;
		new.bytes = bytes_of_word(address, end, at);
		if (!touch(o, w, &page->words[at % PAGE_BYTES / WORD_BYTES],
			   &new, at, place, err))
			return false;
	}
	return true;
}
