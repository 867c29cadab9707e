/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.h - the order of accesses by the lanes of one warp.  The lanes run
 * in lockstep here but need not on a GPU, so the program must order them:
 *
 * - After lanes synchronise (bar.warp.sync, a barrier of the CTA or of the
 *   cluster), each has seen all that any of them had done or seen.
 * - A lane that acquires has seen what lanes of its warp have released, and what
 *   those had seen.  Releases and acquires are arrivals and waits at an
 *   mbarrier, fences, and stores, loads and atomics with an order.  The barrier
 *   or address is not compared, because the order may go through other warps.
 *   So an order that exists is never missed, and one that does not exist may be
 *   assumed: false negatives are possible, false positives are not.
 *
 * shfl, vote, match, redux, elect and the other instructions that need several
 * lanes do not order memory (PTX ISA; CUDA programming guide, "do not imply a
 * memory barrier").
 *
 * Time is the number of the warp's instruction, counted from 1 by the caller.
 */
#ifndef EMU_LANES_H
#define EMU_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "hardware/emu.h"

/* The bytes of the word of four at `word` that are in [at, end), as four bits. */
static inline uint32_t emu_bytes_of_word(uint64_t at, uint64_t end, uint64_t word)
{
	uint32_t mask = 15;

	if (word < at)
		mask &= 15u << (at - word);
	if (end < word + 4)
		mask &= 15u >> (word + 4 - end);
	return mask;
}

/* True if all lanes access, each the `bytes` bytes after those of the lane before. */
static inline bool emu_is_row(uint32_t lanes, const uint64_t *address, uint32_t bytes)
{
	uint64_t other = 0;

	/* Callers with one lane have one address. */
	if (lanes != UINT32_MAX)
		return false;
	for (uint32_t l = 0; l < EMU_LANES; l++)
		other |= address[l] ^ (address[0] + (uint64_t)l * bytes);
	return !other;
}

/* All zeros is the state before the first access. */
struct emu_lanes {
	/* By lane: all lanes have seen its accesses before this instruction.
	 * least: the smallest of these numbers. */
	uint32_t all[EMU_LANES], least;
	/* By lane: it has released its accesses before this instruction. */
	uint32_t released[EMU_LANES];
	uint32_t ahead; /* lanes that have seen more than `all`: see `seen` */
	uint32_t seen[EMU_LANES][EMU_LANES];
};

/* live: the lanes that have not exited. */
void emu_lanes_sync(struct emu_lanes *l, uint32_t lanes, uint32_t live, uint32_t now);
void emu_lanes_release(struct emu_lanes *l, uint32_t lanes, uint32_t now);
void emu_lanes_acquire(struct emu_lanes *l, uint32_t lanes, uint32_t live);

/* Where and when an access happens, for the checkers. */
struct emu_place {
	uint32_t line; /* of the PTX source */
	/* The lanes that access, all or one; 0: their order is not checked. */
	uint32_t lanes;
	uint32_t instruction; /* the number of the warp's instruction */
	bool is_same;	      /* a store of the value that the bytes have */
};

/* Two lanes without an order: the one that accesses, and an earlier one. */
struct emu_lane_pair {
	uint32_t lane, other;
};

/*
 * True if a lane of `lanes` has not seen what another lane, of `others`, did at an
 * instruction.  *pair is the first such pair.
 */
bool emu_lanes_find(const struct emu_lanes *l, uint32_t lanes, uint32_t others,
		    uint32_t instruction, struct emu_lane_pair *pair);

static inline bool emu_lanes_race(const struct emu_lanes *l, uint32_t lanes,
				  uint32_t others, uint32_t instruction,
				  struct emu_lane_pair *pair)
{
	return instruction >= l->least &&
	       emu_lanes_find(l, lanes, others, instruction, pair);
}

/* ---- words of memory ----------------------------------------------------- */

#define EMU_MOST_WARPS (1u << 22)

/*
 * Which lane wrote a word last, and which lanes of one warp have read bytes of it
 * since.  The caller numbers the warps and knows which one wrote.
 */
struct emu_lane_word {
	uint32_t reader : 22, read_bytes : 4;
	uint32_t write_lane : 6;    /* EMU_LANES: all of them */
	uint32_t write_instruction; /* 0: no lane's */
	uint32_t read_lanes, read_instruction, read_line;
};

/* The word was read, or written, by a warp's lanes (place.lanes 0: by others).
 */
void emu_lane_read(struct emu_lane_word *word, const struct emu_lanes *l, uint32_t warp,
		   uint32_t bytes, struct emu_place place);
static inline void emu_lane_write(struct emu_lane_word *word, uint32_t bytes,
				  struct emu_place place)
{
	word->write_instruction = place.lanes ? place.instruction : 0;
	word->write_lane = place.lanes == UINT32_MAX ? EMU_LANES
			   : place.lanes ? (uint32_t)__builtin_ctz(place.lanes) & 31
					 : 0;
	if (word->read_bytes & bytes)
		word->read_lanes = word->read_bytes = 0;
}

/* The lanes that wrote it. */
static inline uint32_t emu_lane_writers(const struct emu_lane_word *word)
{
	return word->write_lane == EMU_LANES ? UINT32_MAX : 1u << word->write_lane;
}

/* True if lanes of a warp write bytes that another lane has read. */
static inline bool emu_lane_overtakes(const struct emu_lane_word *word,
				      const struct emu_lanes *l, uint32_t warp,
				      uint32_t bytes, struct emu_place place,
				      struct emu_lane_pair *pair)
{
	return word->read_lanes && word->reader == warp && word->read_bytes & bytes &&
	       emu_lanes_race(l, place.lanes, word->read_lanes, word->read_instruction,
			      pair);
}

#define EMU_LANES_SYNC_RULE "between them there must be a bar.warp.sync (__syncwarp)"

/*
 * Ends a report's sentence: what the other lane did ("reads it", at line; 0: not
 * known), and the rule.  Returns false.
 */
bool emu_lanes_object(struct emu_error *err, struct emu_lane_pair pair, const char *did,
		      uint32_t line, const char *rule);

#endif
