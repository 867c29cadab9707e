/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_words.c - the words of global memory: their last writer, and the readers
 * since; see order.h.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check/order_state.h"
#include "hardware/arena.h"

/* ---- pages --------------------------------------------------------------- */

static struct page **find_page(struct page **pages, size_t capacity, uint64_t number)
{
	size_t at = number * UINT64_C(0x9E3779B97F4A7C15) >> 32;

	for (at &= capacity - 1; pages[at] && pages[at]->number != number;
	     at = (at + 1) & (capacity - 1))
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

static size_t words_bytes(const struct emu_order *o)
{
	return ((size_t)1 << o->page_shift) / WORD_BYTES * sizeof(struct word);
}

/* Pages of a table from which on their words come from blocks. */
#define MANY_PAGES 32

/* A page without accesses; NULL: no memory. */
static struct page *new_page(struct emu_order *o, struct table *t)
{
	struct page *page = o->spare;

	if (page) {
		o->spare = page->next;
		*page = (struct page){.words = page->words};
		return page;
	}
	page = calloc(1, sizeof(*page));
	if (!page || o->is_of_cluster)
		return page;
	page->is_in_block = t->count >= MANY_PAGES;
	page->words = page->is_in_block ? emu_order_take(t, words_bytes(o))
					: calloc(1, words_bytes(o));
	if (page->words)
		return page;
	free(page);
	return NULL;
}

/* NULL: too many. */
static struct page *page_at(struct emu_order *o, uint64_t number)
{
	struct table *t = &o->tables[number % EMU_ORDER_TABLES];
	struct page **at, *found;

	if (o->last && o->last->number == number)
		return o->last;
	found = known_page(o, number);
	if (!found && t->count == o->most_pages) {
		t->is_short = true;
		if (!o->is_of_cluster)
			return NULL;
		emu_order_forget_pages(o);
	}
	if (!found && 2 * t->count >= t->capacity && !grow_table(t))
		return NULL;
	if (!found) {
		at = find_page(t->pages, t->capacity, number);
		*at = found = new_page(o, t);
		if (!found)
			return NULL;
		found->number = number;
		t->count++;
	}
	if (o->is_of_cluster)
		o->last = found;
	return found;
}

/* The history of word k of a line. */
static struct word word_of_line(const struct line *l, uint32_t k)
{
	const uint32_t lane = l->width ? l->first + k / l->width : 0;
	const bool is_read = l->read.agent;

	return (struct word){
	    .write = l->write,
	    .reads = {l->read},
	    .line = l->write_line & 0x3FFFFFFF,
	    .lanes = {.reader = l->read.agent & (EMU_MOST_WARPS - 1),
		      .read_bytes = is_read ? 15 : 0,
		      .write_lane = lane & 31,
		      .write_instruction = l->write_instruction,
		      .read_lanes = is_read ? 1u << lane : 0,
		      .read_instruction = l->read_instruction,
		      .read_line = l->read_line},
	};
}

/* Gives each word of a line its history; false: no memory. */
static bool split(const struct emu_order *o, struct page *page, uint32_t number)
{
	struct line *line = &page->lines[number];

	if (!page->words)
		page->words = calloc(1, words_bytes(o));
	if (!page->words)
		return false;
	for (uint32_t k = 0; k < LINE_WORDS; k++)
		page->words[number * LINE_WORDS + k] = word_of_line(line, k);
	line->is_split = true;
	return true;
}

/* NULL: no memory. */
static struct word *word_of(const struct emu_order *o, struct page *page,
			    uint64_t address)
{
	const uint64_t offset = address & (((uint64_t)1 << o->page_shift) - 1);
	const uint32_t line = (uint32_t)(offset / LINE_BYTES);

	if (o->is_of_cluster && !page->lines[line].is_split && !split(o, page, line))
		return NULL;
	return &page->words[offset / WORD_BYTES];
}

/* ---- one word ------------------------------------------------------------ */

#define WROTE_SAME "wrote the same value to it"

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

	return clock_of(o, t, &clock) && emu_order_knows(o, w, t->agent - 1, clock);
}

static bool object(const struct emu_order *o, const struct emu_order_warp *w,
		   const struct touch *t, const struct touch *new, const char *how,
		   uint64_t address, uint32_t line, struct emu_error *err)
{
	const uint32_t agent = t->agent - 1;
	const uint32_t grid = emu_order_grid_of(o, agent);
	const uint32_t in_grid = agent - o->first[grid];
	const uint32_t cluster = in_grid / o->warps[grid];
	const bool is_near = grid == w->grid && cluster == w->cluster;
	uint32_t clock;

	emu_fail(err, "global memory 0x%" PRIx64 ": warp %u of ", address,
		 in_grid % o->warps[grid]);
	if (is_near)
		emu_add_text(err, "the same cluster");
	else
		emu_add_text(err, "cluster %u", cluster);
	if (grid != w->grid)
		emu_add_text(err, " of another grid");
	emu_add_text(err, " %s", how);
	if (line)
		emu_add_text(err, " (PTX line %u)", line);
	if (!clock_of(o, t, &clock))
		emu_add_text(err, " by a bulk store, and its group has not "
				  "been waited for (without .read)");
	else if (grid != w->grid)
		emu_add_text(err, ", and the later grid has not waited for "
				  "the other: griddepcontrol.wait");
	else if (t->kind & new->kind & EMU_ORDER_VOLATILE)
		emu_add_text(err, ", and nothing orders that before this: volatile "
				  "accesses make no order");
	else if (is_near)
		emu_add_text(err, ", and nothing orders that before this: no "
				  "barrier, or no wait for one");
	else
		emu_add_text(err, ", and nothing orders that before this: no "
				  "release and acquire of .gpu scope");
	return false;
}

static bool races(const struct touch *old, const struct touch *new)
{
	const uint32_t both = old->kind & new->kind;

	return old->agent && old->bytes & new->bytes &&
	       (!(both & EMU_ORDER_STRONG) || both & EMU_ORDER_VOLATILE);
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
			  const struct touch *new, bool is_same, uint64_t address,
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
	/* Stores of one instruction are no race: one of them is kept (CUDA's guide). */
	if (word->write.agent != new->agent || !(word->write.bytes & new->bytes) ||
	    !word->lanes.write_instruction ||
	    word->lanes.write_instruction == place.instruction ||
	    !emu_lanes_race(l, place.lanes, emu_lane_writers(&word->lanes),
			    word->lanes.write_instruction, &p))
		return true;
	emu_fail(err, "%s global memory 0x%" PRIx64, what, address);
	return emu_lanes_object(err, p, is_same ? WROTE_SAME : "wrote it", word->line,
				EMU_LANES_SYNC_RULE);
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
			  bool is_same, uint64_t address, struct emu_place place,
			  struct emu_error *err)
{
	if (place.lanes && !follows_lanes(w, word, new, is_same, address, place, err))
		return false;
	return !races(&word->write, new) || is_before(o, w, &word->write) ||
	       object(o, w, &word->write, new, is_same ? WROTE_SAME : "wrote it",
		      address, word->line, err);
}

static bool touch(const struct emu_order *o, const struct emu_order_warp *w,
		  struct word *word, const struct touch *new, bool is_same,
		  uint64_t address, struct emu_place place, struct emu_error *err)
{
	bool ok = follows_write(o, w, word, new, is_same, address, place, err);

	add_lanes(w, word, new, place);
	if (!(new->kind &EMU_ORDER_WRITE)) {
		add_read(o, w, word, new);
		return ok;
	}
	for (int i = 0; i < READERS && ok; i++)
		if (races(&word->reads[i], new) && !is_before(o, w, &word->reads[i]))
			ok = object(o, w, &word->reads[i], new, "reads it", address, 0,
				    err);
	set_write(word, new, place.line);
	return ok;
}

/* ---- ranges -------------------------------------------------------------- */

static struct touch touch_of(const struct emu_order *o, const struct emu_order_warp *w,
			     uint32_t kind)
{
	return (struct touch){
	    .agent = (emu_order_agent(o, w) + 1) & (2 * MOST_AGENTS - 1),
	    .clock = kind & EMU_ORDER_STORE
			 ? emu_check_committed(w->check, w->warp, EMU_ASYNC_STORE)
			 : emu_check_seen(w->check, w->warp, w->warp),
	    .kind = kind & 15,
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

static bool access_words(struct emu_order *o, const struct emu_order_warp *w,
			 struct touch new, bool is_same, uint64_t address,
			 uint32_t bytes, struct emu_place place, struct emu_error *err)
{
	const uint64_t end = address + bytes;
	struct page *page = NULL;
	struct word *word;

	for (uint64_t at = address / WORD_BYTES * WORD_BYTES; at < end;
	     at += WORD_BYTES) {
		if (!page || page->number != at >> o->page_shift)
			page = page_at(o, at >> o->page_shift);
		if (!page)
			return true;
		page->is_written |= (new.kind &EMU_ORDER_WRITE) != 0;
		new.bytes = emu_bytes_of_word(address, end, at) & 15;
		word = word_of(o, page, at);
		if (word && !touch(o, w, word, &new, is_same, at, place, err))
			return false;
	}
	return true;
}

bool emu_order_access(struct emu_order *o, const struct emu_order_warp *w,
		      uint32_t kind, uint64_t address, uint32_t bytes,
		      struct emu_place place, struct emu_error *err)
{
	const struct touch new = touch_of(o, w, kind);

	return access_words(o, w, new, kind & EMU_ORDER_SAME, address, bytes,
			    place_of(&new, place), err);
}

/*
 * Records the access of a lane to a word if it is the first, or all before were the
 * lane's own.  False: nothing was done.
 */
static inline bool touch_own(struct emu_order *o, const struct touch *new,
			     uint64_t address, struct emu_place place)
{
	const struct page *page = o->last;
	struct word *word;
	bool is_own;

	if (!page || page->number != address >> o->page_shift || address % WORD_BYTES ||
	    !place.lanes)
		return false;
	word = word_of(o, o->last, address);
	if (!word)
		return false;
	is_own = !word->write.agent ||
		 (word->write.agent == new->agent &&
		  word->lanes.write_instruction &&emu_lane_writers(&word->lanes) ==
		      place.lanes);
	is_own = is_own && !word->reads[1].agent && !word->reads[2].agent &&
		 (!word->reads[0].agent || (word->reads[0].agent == new->agent &&
					    word->lanes.read_lanes == place.lanes));
	if (!is_own)
		return false;
	if (new->kind & EMU_ORDER_WRITE) {
		word->write = *new;
		word->line = place.line & 0x3FFFFFFF;
		word->reads[0].agent = 0;
		emu_lane_write(&word->lanes, 15, place);
		o->last->is_written = true;
		return true;
	}
	word->reads[0] = *new;
	word->lanes.reader = new->agent &(EMU_MOST_WARPS - 1);
	word->lanes.read_bytes = 15;
	word->lanes.read_lanes = place.lanes;
	word->lanes.read_instruction = place.instruction;
	word->lanes.read_line = place.line;
	return true;
}

/* Records the access of a row's lanes to a line; false: nothing was done. */
static bool touch_line(struct line *l, const struct touch *new, uint32_t width,
		       uint32_t first, struct emu_place place)
{
	if (l->is_split || (l->width && (l->width != width || l->first != first)) ||
	    (l->write.agent && l->write.agent != new->agent) ||
	    (l->read.agent && l->read.agent != new->agent))
		return false;
	l->width = (uint8_t)width;
	l->first = (uint8_t)first;
	if (new->kind & EMU_ORDER_WRITE) {
		l->write = *new;
		l->write_line = place.line;
		l->write_instruction = place.instruction;
		l->read.agent = 0;
		return true;
	}
	l->read = *new;
	l->read_line = place.line;
	l->read_instruction = place.instruction;
	return true;
}

/* Records the accesses of a row of lanes, line by line; returns the lanes of lines
 * from the first on that must be split. */
static uint32_t touch_row(struct emu_order *o, const struct touch *new,
			  uint64_t address, uint32_t bytes, struct emu_place place)
{
	const uint32_t width = bytes / WORD_BYTES;

	if (!o->is_of_cluster || !place.lanes || address % LINE_BYTES ||
	    bytes % WORD_BYTES)
		return UINT32_MAX;
	for (uint32_t n = 0; n < width; n++) {
		const uint64_t at = address + (uint64_t)n * LINE_BYTES;
		const uint32_t first = n * EMU_LANES / width;
		struct page *page = page_at(o, at >> CLUSTER_PAGE_SHIFT);

		if (!page || !touch_line(&page->lines[at / LINE_BYTES % CLUSTER_LINES],
					 new, width, first, place))
			return UINT32_MAX << first;
		page->is_written |= (new->kind &EMU_ORDER_WRITE) != 0;
	}
	return 0;
}

/* True if a lane stores what the bytes have. */
static bool is_same(const struct emu_order_stores *s, int lane, uint64_t address,
		    uint32_t bytes)
{
	return s && memcmp(s->data + (address - s->base), s->value[lane], bytes) == 0;
}

bool emu_order_access_lanes(struct emu_order *o, const struct emu_order_warp *w,
			    uint32_t kind, uint32_t lanes,
			    const struct emu_order_stores *stores,
			    const uint64_t *address, uint32_t bytes,
			    struct emu_place place, int *lane, struct emu_error *err)
{
	struct touch new = touch_of(o, w, kind);

	place = place_of(&new, place);
	new.bytes = 15;
	if (emu_is_row(lanes, address, bytes))
		lanes = touch_row(o, &new, address[0], bytes, place);
	for (; lanes; lanes &= lanes - 1) {
		uint32_t done = bytes % WORD_BYTES ? bytes : 0;

		*lane = __builtin_ctz(lanes);
		if (place.lanes)
			place.lanes = 1u << *lane;
		while (done < bytes && touch_own(o, &new, address[*lane] + done, place))
			done += WORD_BYTES;
		if (done == bytes && bytes % WORD_BYTES == 0)
			continue;
		if (!access_words(o, w, new,
				  is_same(stores, *lane, address[*lane], bytes),
				  address[*lane], bytes, place, err))
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
	uint32_t of_lane; /* bytes; 0: all belong to the lanes of place */
};

/* Adds a read of so many lanes to a list, if there is memory for it. */
static void list_read(struct emu_order_reads *reads, struct emu_order_read read,
		      uint32_t lanes)
{
	struct emu_order_read *grown =
	    emu_grow(reads->list, &reads->capacity, reads->count, sizeof(*grown));

	if (!grown)
		return;
	reads->list = grown;
	grown[reads->count++] = read;
	reads->lanes += lanes;
}

/* True if no warp has written a byte of the range's words. */
static bool is_unwritten(const struct emu_order *o, uint64_t address, uint64_t end)
{
	for (uint64_t at = address; at < end; at += WORD_BYTES) {
		struct page *page = known_page(o, at >> o->page_shift);

		if (!page || !page->is_written)
			at |= ((uint64_t)1 << o->page_shift) - WORD_BYTES;
		else if (word_of(o, page, at)->write.agent)
			return false;
	}
	return true;
}

bool emu_order_look_row(const struct emu_order *o, struct emu_order_reads *reads,
			const struct emu_order_warp *w, uint64_t address,
			uint32_t bytes, struct emu_place place)
{
	const struct touch new = touch_of(o, w, EMU_ORDER_READ);

	if (bytes % WORD_BYTES || address % WORD_BYTES ||
	    !is_unwritten(o, address, address + (uint64_t)EMU_LANES * bytes))
		return false;
	list_read(reads,
		  (struct emu_order_read){*w, new, place_of(&new, place), address,
					  EMU_LANES *bytes, bytes},
		  EMU_LANES);
	return true;
}

bool emu_order_look(const struct emu_order *o, struct emu_order_reads *reads,
		    const struct emu_order_warp *w, uint64_t address, uint32_t bytes,
		    struct emu_place place, struct emu_error *err)
{
	const uint64_t end = address + bytes;
	struct touch new = touch_of(o, w, EMU_ORDER_READ);

	place = place_of(&new, place);
	list_read(reads, (struct emu_order_read){*w, new, place, address, bytes, 0}, 1);
	for (uint64_t at = address / WORD_BYTES * WORD_BYTES; at < end;
	     at += WORD_BYTES) {
		struct page *page = known_page(o, at >> o->page_shift);

		if (!page || !page->is_written) {
			/* All of the page. */
			at |= ((uint64_t)1 << o->page_shift) - WORD_BYTES;
			continue;
		}
		new.bytes = emu_bytes_of_word(address, end, at) & 15;
		if (!follows_write(o, w, word_of(o, page, at), &new, false, at, place,
				   err))
			return false;
	}
	return true;
}

/* Records the words of a read that are in a page. */
static void add_in_page(struct emu_order *o, const struct emu_order_read *r,
			uint64_t number)
{
	const uint64_t end = r->address + r->bytes;
	const uint64_t begin = number << o->page_shift;
	const uint64_t page_end = (number + 1) << o->page_shift;
	const uint64_t from = begin > r->address ? begin : r->address;
	const uint64_t to = page_end < end ? page_end : end;
	struct page *page = page_at(o, number);
	struct touch new = r->touch;
	struct emu_place place = r->place;

	for (uint64_t at = from / WORD_BYTES * WORD_BYTES; page && at < to;
	     at += WORD_BYTES) {
		struct word *word = word_of(o, page, at);

		new.bytes = emu_bytes_of_word(r->address, end, at) & 15;
		if (r->of_lane && place.lanes)
			place.lanes = 1u << (at - r->address) / r->of_lane;
		add_lanes(&r->warp, word, &new, place);
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
		const uint64_t last = (r->address + r->bytes - 1) >> o->page_shift;

		for (uint64_t number = r->address >> o->page_shift;
		     r->bytes && number <= last; number++)
			if (number % EMU_ORDER_TABLES % step == table)
				add_in_page(o, r, number);
	}
}
