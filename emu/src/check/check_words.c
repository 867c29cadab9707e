/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_words.c - order in shared memory.  Each word remembers its last writer and
 * the readers since.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check/check_state.h"

/* ---- reports ------------------------------------------------------------- */

/* "lane 5 of ", if a word knows the lanes of a reader: those of its last warp. */
static void describe_readers(const struct word *w, epoch e, char *text, size_t size)
{
	const uint32_t lanes = w->lanes.read_lanes;

	*text = 0;
	if (agent_of(e) != agent_of_warp(w->lanes.reader) || !lanes ||
	    !(w->lanes.read_bytes & e))
		return;
	if (lanes & (lanes - 1))
		snprintf(text, size, "one of the lanes 0x%x of ", (unsigned)lanes);
	else
		snprintf(text, size, "lane %d of ", __builtin_ctz(lanes));
}

/*
 * how: "wrote", "reads"; line 0: not known; w: the word, of a reader, whose lane is
 * then named; or NULL.
 */
static bool object(const struct emu_check *c, const struct access *a, epoch e,
		   const struct word *w, const char *how, uint32_t line,
		   const char *rule)
{
	char lane[40] = "", who[120], where[40] = "";

	emu_check_describe(c, agent_of(e), who, sizeof(who));
	if (w)
		describe_readers(w, e, lane, sizeof(lane));
	if (*lane)
		line = w->lanes.read_line;
	if (line)
		snprintf(where, sizeof(where), " (PTX line %u)", (unsigned)line);
	return emu_fail(
	    a->err, "%s shared memory offset %u of CTA rank %u: %s%s %s it%s, %s",
	    a->what, (unsigned)(a->address & ((1u << EMU_RANK_SHIFT) - 1)),
	    (unsigned)(a->address >> EMU_RANK_SHIFT), lane, who, how, where, rule);
}

static const char *unordered_write(const struct emu_check *c, epoch e, uint32_t warp)
{
	const uint32_t agent = agent_of(e);

	if (is_barrier(c, agent))
		return "and this warp has not waited for the end of that phase";
	if (agent == agent_of_async(warp, EMU_ASYNC_COPY))
		return "and this warp has not waited for its group";
	return "and nothing orders that before this: no barrier, or no wait "
	       "for one";
}

static const char *unordered_read(const struct emu_check *c, epoch e)
{
	if (c->options.has_tensor_memory &&
	    agent_of(e) % AGENTS_PER_WARP == 1 + EMU_ASYNC_WGMMA &&
	    !is_barrier(c, agent_of(e)))
		return "and nothing says that it has: a later "
		       "tcgen05.commit must be waited for";
	if (agent_of(e) % AGENTS_PER_WARP == 1 + EMU_ASYNC_WGMMA &&
	    !is_barrier(c, agent_of(e)))
		return "and nothing says that it has: wgmma.wait_group must "
		       "come before the arrival that releases the bytes";
	return "and nothing orders that before this: no barrier, or no wait "
	       "for one";
}

#define LINE_MASK 0x7FFFFF /* of a word's line */

/* ---- words --------------------------------------------------------------- */

static bool is_of_same_bytes(epoch a, epoch b)
{
	return a & b & 15;
}

/* Adds a reader.  It replaces an earlier reader that it has seen. */
static void add_read(const struct emu_check *c, struct word *w, uint32_t warp, epoch e)
{
	const uint32_t *seen = c->warp[warp].knows.seen;

	for (uint32_t i = 0; i < w->count; i++) {
		if ((w->reads[i] ^ e) < 16) { /* the same epoch */
			w->reads[i] |= e;
			return;
		}
		if (knows(seen, w->reads[i]) && (w->reads[i] & 15 & ~e) == 0) {
			w->reads[i] = e;
			return;
		}
	}
	if (w->count < READERS) {
		w->reads[w->count++] = e;
		return;
	}
	w->reads[w->next] = e;
	w->next = (w->next + 1u) % READERS & 15;
}

/* Records writer e.  Forgets the writer before it, and the readers of its bytes. */
static void set_write(struct word *w, epoch e, uint32_t line)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < w->count; i++)
		if (!is_of_same_bytes(w->reads[i], e))
			w->reads[kept++] = w->reads[i];
	w->count = kept & 15;
	w->next = 0;
	w->write = e;
	w->line = line & LINE_MASK;
	w->needs_no_fence = 0;
}

/*
 * False with an objection if the access at epoch e does not follow the last
 * write of the word.
 */
static bool follows_write(const struct emu_check *c, const struct access *a,
			  const struct word *w, epoch e, bool is_async)
{
	const struct frontier *f = &c->warp[a->warp].knows;
	const bool is_same = a->place.is_same && is_generic(c, agent_of(w->write));

	if (!w->write || !is_of_same_bytes(w->write, e))
		return true;
	if (!knows(f->seen, w->write))
		return (is_same && !c->options.order_equal_stores &&
			w->line == (a->place.line & LINE_MASK)) ||
		       object(c, a, w->write, NULL,
			      is_same ? "wrote the same value to" : "wrote", w->line,
			      unordered_write(c, w->write, a->warp));
	if (is_async && is_generic(c, agent_of(w->write)) && !w->needs_no_fence &&
	    !knows(f->fenced, w->write))
		return object(c, a, w->write, NULL, "wrote", w->line,
			      "and there was no fence.proxy.async between: not by the "
			      "writer before it arrived, and not by this warp after it "
			      "waited");
	return true;
}

/* False with an objection if a write at epoch e does not follow a reader. */
static bool follows_reads(const struct emu_check *c, const struct access *a,
			  const struct word *w, epoch e, bool is_async)
{
	const struct frontier *f = &c->warp[a->warp].knows;

	for (uint32_t i = 0; i < w->count; i++) {
		const epoch r = w->reads[i];

		if (!is_of_same_bytes(r, e))
			continue;
		if (!knows(f->seen, r))
			return object(c, a, r, w, "reads", 0, unordered_read(c, r));
		if (is_async && c->options.fence_before_refill &&
		    is_generic(c, agent_of(r)) && !knows(f->fenced, r))
			return object(c, a, r, w, "has read", 0,
				      "and there was no fence.proxy.async between that "
				      "load and the copy");
		if (a->place.lanes && !emu_check_lanes_store(c, a, r))
			return false;
	}
	return true;
}

/* ---- ranges of words ----------------------------------------------------- */

/* REDUCES: other reductions may be in flight to the same bytes. */
enum { READS = 0, WRITES = 1, IS_ASYNC = 2, REDUCES = 4 };

/* What all words of an access have in common. */
struct touch {
	struct access access; /* its address is that of the word */
	struct emu_place by_lanes;
	int kind;
	uint32_t agent, clock;
};

/*
 * A quick test for races of lanes: usually all lanes have seen the accesses to a
 * word.  cp.async counts from its wait.
 */
static bool may_race(const struct emu_lanes *l, const struct word *w, uint32_t warp,
		     bool is_write)
{
	return w->lanes.write_instruction >= l->least ||
	       (is_write && w->lanes.read_instruction >= l->least) ||
	       agent_of(w->write) == agent_of_async(warp, EMU_ASYNC_COPY);
}

/*
 * Checks an access to some bytes of a word, unless there was an objection
 * before, and records it.  False after an objection.
 */
static bool touch_word(const struct emu_check *c, const struct touch *t, struct word *w,
		       uint32_t bytes, bool is_good)
{
	const struct access *a = &t->access;
	const struct emu_lanes *lanes = &c->warp[a->warp].lanes;
	const epoch e = epoch_of(t->agent, t->clock, bytes);
	const bool is_write = t->kind & WRITES, is_async = t->kind & IS_ASYNC;

	/* Readers first, because a refill has to wait for them. */
	if (is_good && is_write)
		is_good = follows_reads(c, a, w, e, is_async);
	if (is_good && !(t->kind & REDUCES && agent_of(w->write) == t->agent &&
			 clock_of(w->write) == t->clock))
		is_good = follows_write(c, a, w, e, is_async);
	if (is_good && a->place.lanes && may_race(lanes, w, a->warp, is_write))
		is_good = emu_check_lanes_order(c, a, w, e, is_write);
	if (is_write) {
		set_write(w, e, a->place.line);
		emu_lane_write(&w->lanes, bytes, t->by_lanes);
		return is_good;
	}
	add_read(c, w, a->warp, e);
	if (t->by_lanes.lanes)
		emu_lane_read(&w->lanes, lanes, a->warp, bytes, a->place);
	return is_good;
}

/* The history of a block that is not split. */
static inline struct word *whole_block(const struct words *words, uint64_t block)
{
	if (words->state[block] == BLOCK_UNUSED) {
		words->block[block] = (struct word){0};
		words->state[block] = BLOCK_WHOLE;
	}
	return &words->block[block];
}

/* Gives each word of a block the history of the block. */
static void split(const struct words *words, uint64_t block)
{
	const struct word history = *whole_block(words, block);

	for (uint64_t i = 0; i < BLOCK_WORDS; i++)
		words->word[block * BLOCK_WORDS + i] = history;
	words->state[block] = BLOCK_SPLIT;
}

/* The words of a block that are in [at, end) of the CTA's memory. */
static bool touch_block(const struct emu_check *c, struct touch *t, uint64_t cta,
			uint64_t block, uint64_t at, uint64_t end, bool is_good)
{
	struct words *words = &c->words[cta];
	const uint64_t begin = block * BLOCK_BYTES;
	const bool is_whole = at <= begin && begin + BLOCK_BYTES <= end;
	uint64_t word = begin < at ? at / WORD_BYTES : begin / WORD_BYTES;

	t->access.address = cta << EMU_RANK_SHIFT | word * WORD_BYTES;
	if (is_whole && words->state[block] != BLOCK_SPLIT)
		return touch_word(c, t, whole_block(words, block), 15, is_good);
	if (words->state[block] != BLOCK_SPLIT)
		split(words, block);
	for (; word < (block + 1) * BLOCK_WORDS && word * WORD_BYTES < end; word++) {
		t->access.address = cta << EMU_RANK_SHIFT | word * WORD_BYTES;
		is_good =
		    touch_word(c, t, &words->word[word],
			       emu_bytes_of_word(at, end, word * WORD_BYTES), is_good);
	}
	/* Its words, written by one access, have one history again. */
	if (is_whole && t->kind & WRITES) {
		words->block[block] = words->word[block * BLOCK_WORDS];
		words->state[block] = BLOCK_WHOLE;
	}
	return is_good;
}

/*
 * Checks one access by agent at clock and records it in all its words, also
 * after an objection; the first objection stays in err.
 */
static bool touch(struct emu_check *c, const struct access *first, int kind,
		  uint32_t agent, uint32_t clock, uint32_t bytes)
{
	const uint64_t cta = first->address >> EMU_RANK_SHIFT;
	const uint64_t at = first->address & ((1u << EMU_RANK_SHIFT) - 1);
	struct touch t = {.access = *first,
			  .by_lanes = first->place,
			  .kind = kind,
			  .agent = agent,
			  .clock = clock};
	bool is_good = true;

	if (cta >= c->ctas || at >= c->bytes || bytes > c->bytes - at || bytes == 0 ||
	    c->is_blind)
		return true; /* the caller checks bounds */
	if (kind & IS_ASYNC)
		t.by_lanes.lanes = 0;
	for (uint64_t i = at / BLOCK_BYTES; i * BLOCK_BYTES < at + bytes; i++)
		is_good = touch_block(c, &t, cta, i, at, at + bytes, is_good);
	return is_good;
}

/* ---- the lanes of a warp -------------------------------------------------- */

/* What the accesses of one instruction's lanes have in common. */
struct plain {
	const struct emu_check *check;
	uint32_t warp, self, copies, stores; /* the agents of the warp */
	epoch epoch;
	const uint32_t *seen;
	const struct emu_lanes *lanes;
	uint32_t instruction, line;
};

/* True if nothing has to be said about the last write to a word: the warp has seen it,
 * and all lanes have, or only this one wrote it. */
static inline bool has_seen_write(const struct plain *p, const struct word *w,
				  uint32_t lane)
{
	const uint32_t agent = agent_of(w->write);

	if (!w->write)
		return true;
	return knows(p->seen, w->write) && agent != p->copies &&
	       (agent != p->self || w->lanes.write_instruction < p->lanes->least ||
		emu_lane_writers(&w->lanes) == lane);
}

/*
 * Records a load of a whole word as touch_word() does for each of `lanes`, one or all
 * that execute the instruction; false: nothing was done.
 */
static inline bool read_plain(const struct plain *p, struct word *w, uint32_t lanes)
{
	struct emu_lane_word *l = &w->lanes;
	const struct emu_place place = {p->line, lanes, p->instruction, false};
	const bool is_read = l->read_bytes && l->reader == p->warp &&
			     (l->read_instruction == p->instruction ||
			      l->read_instruction >= p->lanes->least);

	if (!has_seen_write(p, w, lanes) || (is_read && lanes & (lanes - 1)))
		return false;
	if (!w->count || (w->reads[0] ^ p->epoch) >= 16)
		add_read(p->check, w, p->warp, p->epoch);
	else
		w->reads[0] |= p->epoch;
	if (is_read) {
		emu_lane_read(l, p->lanes, p->warp, 15, place);
		return true;
	}
	l->reader = p->warp & (EMU_MOST_WARPS - 1);
	l->read_bytes = 15;
	l->read_lanes = lanes;
	l->read_instruction = p->instruction;
	l->read_line = p->line;
	return true;
}

/* The same for a store of one lane. */
static inline bool write_plain(const struct plain *p, struct word *w, uint32_t lane)
{
	struct emu_lane_word *l = &w->lanes;

	if (!has_seen_write(p, w, lane))
		return false;
	for (uint32_t i = 0; i < w->count; i++)
		if (!knows(p->seen, w->reads[i]) || agent_of(w->reads[i]) == p->stores)
			return false;
	if (l->read_lanes & ~lane && l->reader == p->warp &&
	    l->read_instruction >= p->lanes->least)
		return false;
	w->count = w->next = 0;
	w->write = p->epoch;
	w->line = p->line & LINE_MASK;
	w->needs_no_fence = 0;
	l->write_instruction = p->instruction;
	l->write_lane = (uint32_t)__builtin_ctz(lane) & 31;
	l->read_lanes = l->read_bytes = 0;
	return true;
}

/* The history of bytes that begin at a word and share one; NULL: they share none. */
static inline struct word *history_of(const struct words *words, uint64_t at,
				      uint32_t bytes)
{
	const uint64_t block = at / BLOCK_BYTES;

	if (bytes == BLOCK_BYTES && words->state[block] != BLOCK_SPLIT)
		return whole_block(words, block);
	if (bytes != WORD_BYTES)
		return NULL;
	if (words->state[block] != BLOCK_SPLIT)
		split(words, block);
	return &words->word[at / WORD_BYTES];
}

/* The lanes that are left after those that all read one address, if there are any. */
static uint32_t read_one(const struct plain *p, const struct words *words,
			 uint32_t lanes, const uint64_t *at, uint32_t bytes)
{
	const uint64_t first = at[__builtin_ctz(lanes)];
	struct word *w;

	for (uint32_t left = lanes & (lanes - 1); left; left &= left - 1)
		if (at[__builtin_ctz(left)] != first)
			return lanes;
	w = history_of(words, first, bytes);
	return w && read_plain(p, w, lanes) ? 0 : lanes;
}

/*
 * Words of one instruction usually have equal histories but for their lanes.  What
 * became of one of them, with nothing that depended on the lane, then becomes of the
 * next one, without its readers being compared again.
 */
typedef uint64_t parts __attribute__((vector_size(64)));
#define PARTS (sizeof(parts) / sizeof(uint64_t))

struct pattern {
	parts before, after; /* before: only the bits of `compared` */
	bool is_known;
};

/* What an access may depend on, except the lanes. */
static const struct word compared = {
    .write = UINT32_MAX,
    .line = LINE_MASK,
    .needs_no_fence = 1,
    .count = 15,
    .next = 15,
    .reads = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
	      UINT32_MAX, UINT32_MAX, UINT32_MAX},
    .lanes = {.reader = EMU_MOST_WARPS - 1,
	      .read_bytes = 15,
	      .write_instruction = UINT32_MAX,
	      .read_instruction = UINT32_MAX},
};
static const struct word of_lanes = {
    .lanes = {.write_lane = 63, .read_lanes = UINT32_MAX}};

_Static_assert(READERS == 9 && sizeof(struct word) == sizeof(parts),
	       "compared lists its readers");

/* True if a word has the history that a pattern begins with. */
EMU_FAST_PART bool is_of_pattern(const struct pattern *p, const struct word *w,
				 const parts *mask)
{
	parts now;
	uint64_t other = 0;

	memcpy(&now, w, sizeof(now));
	now = (now & *mask) ^ p->before;
	for (size_t k = 0; k < PARTS; k++)
		other |= now[k];
	return p->is_known && !other;
}

/* Histories that did not repeat, after which no more are compared: in a merge sort the
 * words of few lanes have equal ones. */
#define MOST_PATTERNS 4

/* The words of an instruction's lanes. */
EMU_FAST_PART uint32_t touch_each(const struct plain *p, const struct words *words,
				  uint32_t lanes, const uint64_t *at, uint32_t bytes,
				  bool is_write)
{
	const uint32_t least = p->lanes->least;
	struct pattern known = {.is_known = false};
	parts mask, mask_of_lanes;
	uint32_t patterns = 0;

	memcpy(&mask, &compared, sizeof(mask));
	memcpy(&mask_of_lanes, &of_lanes, sizeof(mask_of_lanes));
	for (; lanes; lanes &= lanes - 1) {
		const uint32_t number = (uint32_t)__builtin_ctz(lanes);
		struct word *w = history_of(words, at[number], bytes);

		if (!w)
			break;
		if (patterns < MOST_PATTERNS && is_of_pattern(&known, w, &mask)) {
			const uint32_t writer = w->lanes.write_lane;

			memcpy(w, &known.after, sizeof(*w));
			w->lanes.write_lane = (is_write ? number : writer) & 63;
			w->lanes.read_lanes = is_write ? 0 : lanes & -lanes;
			continue;
		}
		if (++patterns < MOST_PATTERNS) {
			memcpy(&known.before, w, sizeof(*w));
			known.before &= mask;
		}
		known.is_known = (!w->write || agent_of(w->write) != p->self ||
				  w->lanes.write_instruction < least) &&
				 (w->lanes.reader != p->warp ||
				  (w->lanes.read_instruction != p->instruction &&
				   w->lanes.read_instruction < least));
		if (!(is_write ? write_plain(p, w, lanes & -lanes)
			       : read_plain(p, w, lanes & -lanes)))
			break;
		if (patterns < MOST_PATTERNS) {
			memcpy(&known.after, w, sizeof(*w));
			known.after &= ~mask_of_lanes;
		}
	}
	return lanes;
}

EMU_FAST static uint32_t read_each(const struct plain *p, const struct words *words,
				   uint32_t lanes, const uint64_t *at, uint32_t bytes)
{
	return touch_each(p, words, lanes, at, bytes, false);
}

EMU_FAST static uint32_t write_each(const struct plain *p, const struct words *words,
				    uint32_t lanes, const uint64_t *at, uint32_t bytes)
{
	return touch_each(p, words, lanes, at, bytes, true);
}

uint32_t emu_check_plain(struct emu_check *c, uint32_t warp, uint32_t cta,
			 uint32_t lanes, const uint64_t *at, uint32_t bytes,
			 bool is_write, struct emu_place place)
{
	const uint32_t self = agent_of_warp(warp);
	const uint32_t *seen = c->warp[warp].knows.seen;
	const struct words *words = &c->words[cta];
	const struct plain p = {
	    .check = c,
	    .warp = warp,
	    .self = self,
	    .copies = agent_of_async(warp, EMU_ASYNC_COPY),
	    .stores = agent_of_async(warp, EMU_ASYNC_STORE),
	    .epoch = epoch_of(self, seen[self], 15),
	    .seen = seen,
	    .lanes = &c->warp[warp].lanes,
	    .instruction = place.instruction,
	    .line = place.line,
	};

	if (c->is_blind)
		return 0;
	if (is_write)
		return write_each(&p, words, lanes, at, bytes);
	lanes = read_one(&p, words, lanes, at, bytes);
	return read_each(&p, words, lanes, at, bytes);
}

bool emu_check_read(struct emu_check *c, uint32_t warp, uint64_t address,
		    uint32_t bytes, struct emu_place place, struct emu_error *err)
{
	const struct access a = {warp, "load of", address, place, err};
	const uint32_t self = agent_of_warp(warp);

	return touch(c, &a, READS, self, c->warp[warp].knows.seen[self], bytes);
}

bool emu_check_write(struct emu_check *c, uint32_t warp, uint64_t address,
		     uint32_t bytes, struct emu_place place, struct emu_error *err)
{
	const struct access a = {warp, "store to", address, place, err};
	const uint32_t self = agent_of_warp(warp);

	return touch(c, &a, WRITES, self, c->warp[warp].knows.seen[self], bytes);
}

bool emu_check_copy(struct emu_check *c, uint32_t warp, uint64_t address,
		    uint32_t bytes, struct emu_place place, struct emu_error *err)
{
	const struct access a = {warp, "cp.async to", address, place, err};

	emu_check_lanes_begin(c, warp, EMU_ASYNC_COPY, c->warp[warp].marks + 1,
			      place.lanes);
	return touch(c, &a, WRITES, agent_of_async(warp, EMU_ASYNC_COPY),
		     c->warp[warp].marks + 1, bytes);
}

/* An asynchronous write whose bytes a barrier counts. */
static bool lands(struct emu_check *c, const struct access *a, int kind, uint32_t bytes,
		  uint64_t barrier)
{
	const struct barrier *b = emu_check_barrier(c, barrier);
	uint32_t agent;
	bool is_ready;

	if (!b)
		return true; /* the state machine objects */
	agent = c->warps * AGENTS_PER_WARP + (uint32_t)(b - c->barriers);
	is_ready = emu_check_is_ready(c, a->warp, b, a->err);
	return touch(c, a, kind, agent, b->phases + 1, bytes) && is_ready;
}

bool emu_check_load(struct emu_check *c, uint32_t warp, uint64_t address,
		    uint32_t bytes, uint64_t barrier, struct emu_place place,
		    struct emu_error *err)
{
	const struct access a = {warp, "bulk copy to", address, place, err};

	return lands(c, &a, WRITES | IS_ASYNC, bytes, barrier);
}

bool emu_check_async_store(struct emu_check *c, uint32_t warp, uint64_t address,
			   uint32_t bytes, uint64_t barrier, bool reduces,
			   struct emu_place place, struct emu_error *err)
{
	struct access a = {warp, "asynchronous store to", address, place, err};

	a.place.lanes = 0;
	return lands(c, &a, WRITES | (reduces ? REDUCES : 0), bytes, barrier);
}

void emu_check_needs_no_fence(struct emu_check *c, uint64_t address)
{
	const uint64_t cta = address >> EMU_RANK_SHIFT;
	const uint64_t at = address & ((1u << EMU_RANK_SHIFT) - 1);

	/* It was written to only a part of its block, so the block is split. */
	if (cta < c->ctas && at < c->bytes)
		c->words[cta].word[at / WORD_BYTES].needs_no_fence = 1;
}

void emu_check_prefetch(const struct emu_check *c, uint64_t address)
{
	const uint64_t cta = address >> EMU_RANK_SHIFT;
	const uint64_t at = address & ((1u << EMU_RANK_SHIFT) - 1);

	if (cta < c->ctas && at < c->bytes)
		__builtin_prefetch(&c->words[cta].block[at / BLOCK_BYTES], 1);
}

bool emu_check_async_read(struct emu_check *c, uint32_t warp, enum emu_async_kind kind,
			  uint64_t address, uint32_t bytes, struct emu_place place,
			  struct emu_error *err)
{
	const struct access a = {warp,
				 kind != EMU_ASYNC_WGMMA ? "bulk store of"
				 : c->options.has_tensor_memory
				     ? "the tensor core reads"
				     : "wgmma reads",
				 address, place, err};

	if (kind == EMU_ASYNC_STORE)
		emu_check_lanes_begin(c, warp, kind, c->warp[warp].committed[kind] + 1,
				      place.lanes);
	return touch(c, &a, READS | IS_ASYNC, agent_of_async(warp, kind),
		     c->warp[warp].committed[kind] + 1, bytes);
}
