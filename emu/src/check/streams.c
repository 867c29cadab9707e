/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - see streams.h. */
#include "check/streams.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "check/histories.h"
#include "check/lanes.h"

struct emu_streams {
	struct emu_histories words;
	uint64_t branches; /* bits of streams that are branches of graphs */
};

/*
 * The history of a word has the reader in its upper half and the writer in its lower:
 * stream + 1 (8 bits, 0: none), clock (20), bytes of the word (4).
 */
static uint32_t pack(const struct emu_stream_work *w, uint32_t mask)
{
	return (w->stream + 1) << 24 | w->clock << 4 | mask;
}

static uint32_t stream_of(uint32_t half)
{
	return (half >> 24) - 1;
}

static uint32_t clock_of(uint32_t half)
{
	return half >> 4 & (EMU_STREAM_MOST - 1);
}

/* True if work, if there was any, is of w's stream or before w. */
static bool is_seen(const struct emu_stream_work *w, uint32_t half)
{
	return !half || stream_of(half) == w->stream ||
	       w->seen[stream_of(half)] >= clock_of(half);
}

struct emu_streams *emu_streams_open(uint64_t base, uint64_t bytes)
{
	struct emu_streams *s = calloc(1, sizeof(*s));

	if (s && emu_histories_open(&s->words, base, bytes))
		return s;
	emu_streams_close(s);
	return NULL;
}

void emu_streams_close(struct emu_streams *s)
{
	if (!s)
		return;
	emu_histories_close(&s->words);
	free(s);
}

void emu_streams_mark_branch(struct emu_streams *s, uint32_t stream)
{
	s->branches |= UINT64_C(1) << stream;
}

/* What the word has after an access; *other becomes an unordered one before it. */
static uint64_t touch(const struct emu_stream_work *w, enum emu_stream_access access,
		      uint32_t mask, uint64_t old, uint32_t *other)
{
	const uint32_t writer = (uint32_t)old, reader = (uint32_t)(old >> 32);
	uint32_t mine = pack(w, mask);

	*other = 0;
	if (writer & mask & 15 && !is_seen(w, writer))
		*other = writer;
	if (access == EMU_STREAM_ATOMIC && reader & mask & 15 && !is_seen(w, reader))
		*other = reader;
	if (access == EMU_STREAM_ATOMIC)
		return old;
	if (access == EMU_STREAM_READ) {
		if (!is_seen(w, reader))
			return old;
		if (reader >> 4 == mine >> 4)
			mine |= reader & 15;
		return (uint64_t)mine << 32 | writer;
	}
	if (reader & mask & 15 && !is_seen(w, reader))
		*other = reader;
	if (writer >> 4 == mine >> 4)
		mine |= writer & 15;
	return (reader & mask & 15 ? 0 : (uint64_t)reader << 32) | mine;
}

static bool is_branch(const struct emu_streams *s, uint32_t stream)
{
	return s->branches >> stream & 1;
}

void emu_stream_title(const struct emu_streams *s, uint32_t stream, char *text,
		      size_t size)
{
	if (is_branch(s, stream))
		snprintf(text, size, "branch %u of a graph", stream);
	else if (stream >= EMU_STREAMS_NAMED)
		snprintf(text, size, "created stream %u",
			 stream - EMU_STREAMS_NAMED + 1);
	else
		snprintf(text, size, "the %sdefault stream",
			 stream ? "per-thread " : "");
}

static bool object(const struct emu_stream_work *w, uint64_t address, uint32_t other,
		   bool is_write, struct emu_error *err)
{
	const uint32_t stream = stream_of(other);
	const bool in_graph =
	    is_branch(w->streams, stream) || is_branch(w->streams, w->stream);
	char title[60];

	emu_stream_title(w->streams, stream, title, sizeof(title));
	emu_fail(err,
		 "global memory 0x%" PRIx64 ": operation %u of %s %s it, and nothing "
		 "orders the two streams%s",
		 address, clock_of(other), title, is_write ? "writes" : "reads",
		 in_graph ? " or branches: no edge of a graph, no event, and no wait "
			    "of the host"
			  : ": no event, and no wait of the host");
	return false;
}

bool emu_stream_access(const struct emu_stream_work *w, enum emu_stream_access access,
		       uint64_t address, uint64_t bytes, struct emu_error *err)
{
	const uint64_t end = address + bytes;
	bool is_good = true;

	for (uint64_t at = address / EMU_WORD_BYTES * EMU_WORD_BYTES; at < end;
	     at += EMU_WORD_BYTES) {
		emu_history *word =
		    emu_history_at(&w->streams->words, at - w->streams->words.base);
		const uint32_t mask = emu_bytes_of_word(address, end, at);
		uint32_t other = 0;
		uint64_t old, new;

		if (!word)
			return is_good;
		old = atomic_load_explicit(word, memory_order_relaxed);
		do
			new = touch(w, access, mask, old, &other);
		while (new != old && !atomic_compare_exchange_weak_explicit(
					 word, &old, new, memory_order_relaxed,
					 memory_order_relaxed));
		if (!other || !is_good)
			continue;
		is_good = object(w, at, other, other == (uint32_t)old, err);
	}
	return is_good;
}

void emu_streams_forget(struct emu_streams *s, uint64_t address, uint64_t bytes)
{
	const uint64_t first = address - s->words.base;

	for (uint64_t at = first; at < first + bytes; at += EMU_WORD_BYTES) {
		if (!s->words.chunks[at / EMU_CHUNK_BYTES]) {
			at |= EMU_CHUNK_BYTES - EMU_WORD_BYTES;
			continue;
		}
		*emu_history_at(&s->words, at) = 0;
	}
}
