/* SPDX-License-Identifier: Apache-2.0 */
/* races.c - see races.h. */
#include "check/races.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check/histories.h"
#include "check/lanes.h"

#define WORD_BYTES EMU_WORD_BYTES

/* ---- the history of a word ----------------------------------------------- */

/*
 * Clusters are counted from 1; 0: none.
 *
 *   63     57 56    55  52 51  48 47  26 25   22 21  0
 *   digest    mixed shared read   reader written writer
 *
 * digest: of the value that the writer has stored to the bytes `written`; 0: not
 * known.  Values with different digests differ.
 */
typedef uint64_t history;

#define CLUSTER_BITS 22
#define DIGEST_SHIFT 57
#define IS_MIXED     (UINT64_C(1) << 56)

struct state {
	uint32_t writer, written, digest;
	uint32_t reader, read, shared;
};

static inline struct state unpack(history h)
{
	return (struct state){
	    .writer = h & ((1u << CLUSTER_BITS) - 1),
	    .written = h >> 22 & 15,
	    .reader = h >> 26 & ((1u << CLUSTER_BITS) - 1),
	    .read = h >> 48 & 15,
	    .shared = h >> 52 & 15,
	    .digest = (uint32_t)(h >> DIGEST_SHIFT),
	};
}

static inline history pack(const struct state *s)
{
	return s->writer | (history)s->written << 22 | (history)s->reader << 26 |
	       (history)s->read << 48 | (history)s->shared << 52 |
	       (history)s->digest << DIGEST_SHIFT;
}

/* ---- words whose bytes belong to several clusters ------------------------ */

#define MANY UINT32_MAX

struct mixed {
	uint64_t word; /* + 1; 0: none */
	uint32_t writer[WORD_BYTES], reader[WORD_BYTES];
};

struct emu_races {
	struct emu_histories words, rows, digests;
	bool is_parallel;
	pthread_mutex_t lock; /* of all that follows */
	struct mixed *mixed;  /* open addressing */
	size_t n_mixed, mixed_capacity;
};

static struct mixed *find_mixed(struct mixed *list, size_t capacity, uint64_t word)
{
	size_t at = (word * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (capacity - 1);

	while (list[at].word && list[at].word != word + 1)
		at = (at + 1) & (capacity - 1);
	return &list[at];
}

/* The entry of a word, new ones with word 0; NULL: no memory. */
static struct mixed *mixed_at(struct emu_races *r, uint64_t word)
{
	const size_t capacity = r->mixed_capacity ? 2 * r->mixed_capacity : 64;
	struct mixed *grown;

	if (2 * r->n_mixed < r->mixed_capacity)
		return find_mixed(r->mixed, r->mixed_capacity, word);
	grown = calloc(capacity, sizeof(*grown));
	if (!grown)
		return NULL;
	for (size_t i = 0; i < r->mixed_capacity; i++)
		if (r->mixed[i].word)
			*find_mixed(grown, capacity, r->mixed[i].word - 1) =
			    r->mixed[i];
	free(r->mixed);
	r->mixed = grown;
	r->mixed_capacity = capacity;
	return find_mixed(grown, capacity, word);
}

static void split(const struct state *s, uint64_t word, struct mixed *to)
{
	*to = (struct mixed){.word = word + 1};
	for (uint32_t b = 0; b < WORD_BYTES; b++) {
		to->writer[b] = s->written >> b & 1 ? s->writer : 0;
		to->reader[b] = s->shared >> b & 1 ? MANY
				: s->read >> b & 1 ? s->reader
						   : 0;
	}
}

/* ---- rows ---------------------------------------------------------------- */

/*
 * Most warps access whole rows of 128 bytes, so a row has one history of 8 bytes, and
 * after a write a digest for each word.  It is the history that each of its words
 * would have.  The first access to a part of a row, and the first conflict, split it:
 * its words then have their own histories for good.
 */
#define ROW_WORDS	 32
#define ROW_BYTES	 (ROW_WORDS * WORD_BYTES)
#define DIGEST_HISTORIES (ROW_WORDS / sizeof(history))

/* These bits are of a row's history, whose digest is 0. */
#define IS_SPLIT  IS_MIXED
#define IS_LOCKED (UINT64_C(1) << 57) /* a thread writes its digests, or splits it */

/* ---- opening ------------------------------------------------------------- */

struct emu_races *emu_races_open(uint64_t base, uint64_t bytes, bool is_parallel)
{
	struct emu_races *r = calloc(1, sizeof(*r));
	bool has_all;

	if (!r)
		return NULL;
	pthread_mutex_init(&r->lock, NULL);
	r->is_parallel = is_parallel;
	/* All three, because emu_races_close() closes all. */
	has_all = emu_histories_open(&r->words, base, bytes);
	has_all = emu_histories_open(&r->rows, 0, bytes / ROW_WORDS) && has_all;
	has_all =
	    emu_histories_open(&r->digests, 0, bytes / ROW_WORDS * DIGEST_HISTORIES) &&
	    has_all;
	if (has_all)
		return r;
	emu_races_close(r);
	return NULL;
}

void emu_races_close(struct emu_races *r)
{
	if (!r)
		return;
	emu_histories_close(&r->words);
	emu_histories_close(&r->rows);
	emu_histories_close(&r->digests);
	pthread_mutex_destroy(&r->lock);
	free(r->mixed);
	free(r);
}

/* ---- one word ------------------------------------------------------------ */

/* What an access finds. */
struct conflict {
	enum { NONE, READ, WROTE, WROTE_SAME } what;
	uint32_t cluster; /* counted from 1; MANY: several */
};

/* Records a read.  False: the bytes belong to several clusters. */
static inline bool add_read(struct state *s, uint32_t cluster, uint32_t mask,
			    struct conflict *found)
{
	uint32_t moved;

	if (s->writer != cluster && s->written & mask)
		*found = (struct conflict){WROTE, s->writer};
	mask &= ~s->shared;
	if (s->reader == cluster) {
		s->read |= mask;
		return true;
	}
	moved = s->read & mask;
	s->shared |= moved;
	s->read &= ~moved;
	mask &= ~moved;
	if (s->read && mask)
		return false;
	if (!s->read) {
		s->reader = mask ? cluster : 0;
		s->read = mask;
	}
	return true;
}

/* Records a write, likewise. */
static inline bool add_write(struct state *s, uint32_t cluster, uint32_t mask,
			     uint32_t digest, struct conflict *found)
{
	const bool is_other = s->writer && s->writer != cluster;

	if (is_other && s->written & mask) {
		const bool is_same =
		    digest && digest == s->digest && mask == s->written;

		*found = (struct conflict){is_same ? WROTE_SAME : WROTE, s->writer};
	}
	if (s->shared & mask)
		*found = (struct conflict){READ, MANY};
	else if (s->reader != cluster && s->read & mask)
		*found = (struct conflict){READ, s->reader};
	if (is_other && found->what == NONE)
		return false;
	s->written = is_other ? mask : s->written | mask;
	s->digest = s->written == mask ? digest : 0;
	s->writer = cluster;
	return true;
}

static void touch_bytes(struct mixed *m, uint32_t cluster, uint32_t mask, bool is_write,
			struct conflict *found)
{
	for (uint32_t b = 0; b < WORD_BYTES; b++) {
		uint32_t *writer = &m->writer[b], *reader = &m->reader[b];

		if (!(mask >> b & 1))
			continue;
		if (*writer && *writer != cluster)
			*found = (struct conflict){WROTE, *writer};
		if (is_write && *reader && *reader != cluster)
			*found = (struct conflict){READ, *reader};
		if (is_write)
			*writer = cluster;
		else
			*reader = *reader && *reader != cluster ? MANY : cluster;
	}
}

/* The same for a word whose bytes belong, or will belong, to several clusters. */
static void touch_mixed(struct emu_races *r, emu_history *at, uint64_t word,
			uint32_t cluster, uint32_t mask, bool is_write,
			struct conflict *found)
{
	struct mixed *m;
	history old;

	pthread_mutex_lock(&r->lock);
	m = mixed_at(r, word);
	old = atomic_load(at);
	while (m && !(old & IS_MIXED)) {
		const struct state s = unpack(old);

		r->n_mixed += !m->word;
		split(&s, word, m);
		(void)atomic_compare_exchange_strong(at, &old, IS_MIXED);
	}
	if (m)
		touch_bytes(m, cluster, mask, is_write, found);
	pthread_mutex_unlock(&r->lock);
}

/* Seven bits of the bytes that are written, not 0.  The high half is added, because
 * the factor maps all repeated bytes to 0. */
EMU_FAST_PART uint32_t mix(uint32_t x)
{
	x = (x ^ x >> 16) * 0x9E3779B1u >> 25;
	return x ? x : 1;
}

static inline uint32_t digest_of(const uint8_t *value, uint32_t bytes)
{
	uint32_t x = 0;

	memcpy(&x, value, bytes);
	return mix(x);
}

static inline bool replace(const struct emu_races *r, emu_history *at, history *old,
			   history new)
{
	if (new == *old)
		return true;
	if (r->is_parallel)
		return atomic_compare_exchange_weak_explicit(
		    at, old, new, memory_order_acquire, memory_order_relaxed);
	atomic_store_explicit(at, new, memory_order_relaxed);
	return true;
}

static struct conflict touch(struct emu_races *r, emu_history *at, uint64_t word,
			     uint32_t cluster, uint32_t mask, bool is_write,
			     uint32_t digest)
{
	history old = atomic_load_explicit(at, memory_order_relaxed);

	for (;;) {
		struct conflict found = {NONE, 0};
		struct state s = unpack(old);

		if (old & IS_MIXED ||
		    !(is_write ? add_write(&s, cluster, mask, digest, &found)
			       : add_read(&s, cluster, mask, &found))) {
			touch_mixed(r, at, word, cluster, mask, is_write, &found);
			return found;
		}
		if (replace(r, at, &old, pack(&s)))
			return found;
	}
}

static bool object(bool is_write, uint64_t address, struct conflict found,
		   struct emu_error *err)
{
	emu_fail(err, "%s global memory 0x%" PRIx64 ": ",
		 is_write ? "store to" : "load of", address);
	if (found.cluster == MANY)
		emu_add_text(err, "other clusters read it");
	else
		emu_add_text(err, "cluster %u %s it", found.cluster - 1,
			     found.what == READ		? "reads"
			     : found.what == WROTE_SAME ? "writes the same value to"
							: "writes");
	emu_add_text(err, ", and nothing in this grid can order two clusters");
	return false;
}

/* ---- histories of rows ---------------------------------------------------- */

/* NULL: no memory. */
static inline emu_history *row_at(struct emu_races *r, uint64_t offset)
{
	return emu_history_at(&r->rows, offset / ROW_BYTES * WORD_BYTES);
}

/* A byte for each word of a row; NULL: no memory. */
static uint8_t *digests_at(struct emu_races *r, uint64_t offset)
{
	return (uint8_t *)emu_history_at(&r->digests, offset / ROW_BYTES * WORD_BYTES *
							  DIGEST_HISTORIES);
}

static inline history load_row(const emu_history *row)
{
	history h = atomic_load_explicit(row, memory_order_acquire);

	while (h & IS_LOCKED) {
		sched_yield();
		h = atomic_load_explicit(row, memory_order_acquire);
	}
	return h;
}

/* False: another thread has changed the row, and *old is its history now. */
static inline bool lock_row(const struct emu_races *r, emu_history *row, history *old)
{
	if (replace(r, row, old, *old | IS_LOCKED))
		return true;
	*old = load_row(row);
	return false;
}

static inline void unlock_row(emu_history *row, history new)
{
	atomic_store_explicit(row, new, memory_order_release);
}

/* Gives each word of a row its history; false: no memory. */
static bool split_row(struct emu_races *r, emu_history *row, uint64_t offset)
{
	emu_history *word = emu_history_at(&r->words, offset / ROW_BYTES * ROW_BYTES);
	history old = load_row(row);
	const uint8_t *digests = NULL;

	if (!word)
		return false;
	do {
		if (old & IS_SPLIT)
			return true;
	} while (!lock_row(r, row, &old));
	if (unpack(old).written)
		digests = digests_at(r, offset);
	for (uint32_t k = 0; k < ROW_WORDS; k++) {
		const history digest = digests ? digests[k] : 0;

		atomic_store_explicit(&word[k], old | digest << DIGEST_SHIFT,
				      memory_order_relaxed);
		/* The first store maps the page of a row that was not used before. */
		if (!old)
			break;
	}
	unlock_row(row, IS_SPLIT);
	return true;
}

/* The history of a word of its own; NULL: no memory. */
static inline emu_history *word_at(struct emu_races *r, uint64_t offset)
{
	emu_history *row = row_at(r, offset);

	if (!row || (!(atomic_load_explicit(row, memory_order_acquire) & IS_SPLIT) &&
		     !split_row(r, row, offset)))
		return NULL;
	return emu_history_at(&r->words, offset);
}

/* Writes a row's digests; value: by lane, from its first one on; NULL: not known. */
EMU_FAST static void put_digests(uint8_t *to, uint8_t (*value)[32], uint32_t words)
{
	uint32_t x[ROW_WORDS];

	if (!value) {
		memset(to, 0, ROW_WORDS);
		return;
	}
	for (uint32_t k = 0; k < ROW_WORDS && words == 1; k++)
		memcpy(&x[k], value[k], sizeof(*x));
	for (uint32_t k = 0; k < ROW_WORDS && words != 1; k++)
		memcpy(&x[k], &value[k / words][k % words * WORD_BYTES], sizeof(*x));
	for (uint32_t k = 0; k < ROW_WORDS; k++)
		to[k] = (uint8_t)mix(x[k]);
}

/*
 * The access to a whole row, by lanes of `words` words each; value: of the first one.
 * False: nothing was done, and its words are to be accessed.
 */
static bool touch_row(struct emu_races *r, const struct emu_race *a, uint64_t offset,
		      uint8_t (*value)[32], uint32_t words)
{
	emu_history *row = row_at(r, offset);
	uint8_t *digests = a->is_write ? digests_at(r, offset) : NULL;
	history old = row ? load_row(row) : IS_SPLIT;

	if (a->is_write && !digests)
		return false;
	for (;;) {
		struct conflict found = {NONE, 0};
		struct state s = unpack(old);

		if (old & IS_SPLIT ||
		    !(a->is_write ? add_write(&s, a->cluster + 1, 15, 0, &found)
				  : add_read(&s, a->cluster + 1, 15, &found)) ||
		    found.what != NONE)
			return false;
		if (!a->is_write) {
			if (replace(r, row, &old, pack(&s)))
				return true;
			old = load_row(row);
		} else if (lock_row(r, row, &old)) {
			put_digests(digests, value, words);
			unlock_row(row, pack(&s));
			return true;
		}
	}
}

/* The accesses of all lanes, each after the one before, by rows.  Returns the lanes
 * that are left. */
static uint32_t touch_rows(struct emu_races *r, const struct emu_race *a)
{
	const uint64_t offset = a->address[0] - r->words.base;
	const uint32_t words = a->bytes / WORD_BYTES;

	if (a->bytes % WORD_BYTES || offset % ROW_BYTES || ROW_WORDS % words)
		return UINT32_MAX;
	for (uint32_t n = 0; n < words; n++) {
		const uint32_t lane = n * EMU_LANES / words;

		if (!touch_row(r, a, offset + (uint64_t)n * ROW_BYTES,
			       a->value ? &a->value[lane] : NULL, words))
			return UINT32_MAX << lane;
	}
	return 0;
}

/* ---- words of lanes -------------------------------------------------------- */

/* The access of a lane. */
static bool touch_lane(struct emu_races *r, const struct emu_race *a, int lane,
		       struct emu_error *err)
{
	const uint64_t begin = a->address[lane], end = begin + a->bytes;
	const uint8_t *value = a->value ? a->value[lane] : NULL;
	bool is_good = true;

	for (uint64_t at = begin / WORD_BYTES * WORD_BYTES; at < end;
	     at += WORD_BYTES) {
		const uint64_t first = at > begin ? at : begin;
		const uint64_t last = at + WORD_BYTES < end ? at + WORD_BYTES : end;
		const uint64_t offset = at - r->words.base;
		emu_history *word;
		struct conflict found;
		uint32_t digest = 0;

		/* A bulk copy, whose values are not known. */
		if (offset % ROW_BYTES == 0 && end - at >= ROW_BYTES &&
		    touch_row(r, a, offset, NULL, 1)) {
			at += ROW_BYTES - WORD_BYTES;
			continue;
		}
		word = word_at(r, offset);
		if (!word)
			continue;
		if (value)
			digest = digest_of(value + (first - begin),
					   (uint32_t)(last - first));
		found = touch(r, word, at / WORD_BYTES, a->cluster + 1,
			      emu_bytes_of_word(begin, end, at), a->is_write, digest);
		if (found.what != NONE && is_good)
			is_good = object(a->is_write, at, found, err);
	}
	return is_good;
}

#define READER_BITS (((UINT64_C(1) << 26) - 1) << 26)

/* True if no other cluster has accessed the word. */
static inline bool is_own(history h, uint32_t cluster)
{
	const struct state s = unpack(h);

	return (!s.writer || s.writer == cluster) &&
	       (!s.reader || s.reader == cluster) && !s.shared && !(h & IS_MIXED);
}

/* The history of a word of one cluster after its access to all of the word: as
 * add_read() and add_write() make it. */
static inline history own_after(const struct emu_race *a, history old, history own,
				const uint8_t *value)
{
	if (!a->is_write)
		return old | own;
	own |= old & READER_BITS;
	return value ? own | (history)digest_of(value, WORD_BYTES) << DIGEST_SHIFT
		     : own;
}

/*
 * The same for words as most are: only this cluster has accessed them.  False: the
 * rest of the access is left.
 */
static inline bool touch_own(struct emu_races *r, const struct emu_race *a, int lane,
			     history own)
{
	const uint64_t offset = a->address[lane] - r->words.base;

	if (offset % WORD_BYTES || a->bytes % WORD_BYTES)
		return false;
	for (uint32_t k = 0; k < a->bytes; k += WORD_BYTES) {
		emu_history *word = word_at(r, offset + k);
		history old;

		if (!word)
			return false;
		old = atomic_load_explicit(word, memory_order_relaxed);
		if (!is_own(old, a->cluster + 1) ||
		    !replace(
			r, word, &old,
			own_after(a, old, own, a->value ? &a->value[lane][k] : NULL)))
			return false;
	}
	return true;
}

/* The same for lanes from `lane` on, each after the one before.  False: some of their
 * words are left. */
static bool touch_own_words(struct emu_races *r, const struct emu_race *a,
			    uint32_t lane, history own)
{
	const uint64_t offset = a->address[lane] - r->words.base;
	const uint64_t bytes = (uint64_t)(EMU_LANES - lane) * a->bytes;
	const uint32_t words = a->bytes / WORD_BYTES;
	emu_history *at;

	if (a->bytes % WORD_BYTES || offset % WORD_BYTES ||
	    offset % EMU_CHUNK_BYTES + bytes > EMU_CHUNK_BYTES)
		return false;
	for (uint64_t row = offset / ROW_BYTES; row * ROW_BYTES < offset + bytes; row++)
		if (!word_at(r, row * ROW_BYTES))
			return false;
	at = emu_history_at(&r->words, offset);
	for (uint32_t l = lane; l < EMU_LANES; l++)
		for (uint32_t k = 0; k < words; k++, at++) {
			const uint8_t *value =
			    a->value ? &a->value[l][k * WORD_BYTES] : NULL;
			history old = atomic_load_explicit(at, memory_order_relaxed);

			if (!is_own(old, a->cluster + 1) ||
			    !replace(r, at, &old, own_after(a, old, own, value)))
				return false;
		}
	return true;
}

bool emu_races_access(struct emu_races *r, const struct emu_race *a, int *lane,
		      struct emu_error *err)
{
	const struct state state = {
	    .writer = a->is_write ? a->cluster + 1 : 0,
	    .written = a->is_write ? 15 : 0,
	    .reader = a->is_write ? 0 : a->cluster + 1,
	    .read = a->is_write ? 0 : 15,
	};
	const history own = pack(&state);

	uint32_t left = a->lanes;

	if (emu_is_row(a->lanes, a->address, a->bytes)) {
		left = touch_rows(r, a);
		if (left && touch_own_words(r, a, (uint32_t)__builtin_ctz(left), own))
			left = 0;
	}
	for (; left; left &= left - 1) {
		*lane = __builtin_ctz(left);
		if (!touch_own(r, a, *lane, own) && !touch_lane(r, a, *lane, err))
			return false;
	}
	return true;
}
