/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.h - what the lanes of a warp have seen of each other's accesses.  They
 * run together here, but need not on a GPU, so two lanes have only the order
 * that the program asks for:
 *
 * - lanes that meet - bar.warp.sync, a barrier of the block or of the cluster -
 *   have seen all that any of them had done or seen;
 * - a lane that acquires has seen what lanes of its warp have released, and
 *   what those had seen: an arrival and a wait at an mbarrier, fences, stores,
 *   loads and atomics of an order.  Which barrier or address is not asked,
 *   because what hands over may be a chain through other warps: an order that
 *   is there is never missed, one that is not may be taken for granted.
 *
 * shfl, vote, match, redux, elect and all else that needs lanes together order
 * no memory (PTX ISA; CUDA programming guide, "do not imply a memory barrier").
 *
 * Moments are numbers of the warp's instructions, in their order, counted by
 * the caller from 1.
 */
#ifndef EMU_LANES_H
#define EMU_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/emu.h"

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

/* Zeros: nothing has been done. */
struct emu_lanes {
	/* By lane: until when (not included) all lanes have seen its accesses;
	 * the least of these. */
	uint32_t all[EMU_LANES], least;
	uint32_t released[EMU_LANES]; /* until when somebody may have */
	uint32_t ahead; /* lanes that have seen more than `all`, in `seen` */
	uint32_t seen[EMU_LANES][EMU_LANES];
};

/* live: the lanes that have not exited. */
void emu_lanes_meet(struct emu_lanes *l, uint32_t lanes, uint32_t live, uint32_t now);
void emu_lanes_release(struct emu_lanes *l, uint32_t lanes, uint32_t now);
void emu_lanes_acquire(struct emu_lanes *l, uint32_t lanes, uint32_t live);

/* What the checkers are told of an access. */
struct emu_place {
	uint32_t line; /* of the PTX source */
	/* Lanes that do it, all or one; 0: their order is not looked at. */
	uint32_t lanes;
	uint32_t moment; /* the number of the warp's instruction */
};

/* Two lanes without an order: one now, another one before. */
struct emu_lane_pair {
	uint32_t lane, other;
};

/*
 * True if a lane of the access has not seen what another one of `others` did at
 * a moment; *pair are the first such two.
 */
bool emu_lanes_find(const struct emu_lanes *l, uint32_t lanes, uint32_t others,
		    uint32_t moment, struct emu_lane_pair *pair);

static inline bool emu_lanes_race(const struct emu_lanes *l, uint32_t lanes,
				  uint32_t others, uint32_t moment,
				  struct emu_lane_pair *pair)
{
	return moment >= l->least && emu_lanes_find(l, lanes, others, moment, pair);
}

/* ---- words of memory ----------------------------------------------------- */

#define EMU_MOST_WARPS (1u << 22)

/*
 * Which lane wrote a word, and which lanes of one warp have read bytes of it
 * since.  Warps are numbered by the caller, who knows whose the write was.
 */
struct emu_lane_word {
	uint32_t reader : 22, read_bytes : 4;
	uint32_t write_lane : 6; /* EMU_LANES: all of them */
	uint32_t write_moment;	 /* 0: no lane's */
	uint32_t read_lanes, read_moment, read_line;
};

/* The word was read, or written, by a warp's lanes (place.lanes 0: by others).
 */
void emu_lane_read(struct emu_lane_word *word, const struct emu_lanes *l, uint32_t warp,
		   uint32_t bytes, struct emu_place place);
static inline void emu_lane_write(struct emu_lane_word *word, uint32_t bytes,
				  struct emu_place place)
{
	word->write_moment = place.lanes ? place.moment : 0;
	word->write_lane = place.lanes == UINT32_MAX ? EMU_LANES
			   : place.lanes ? (uint32_t)__builtin_ctz(place.lanes) & 31
					 : 0;
	if (word->read_bytes & bytes)
		word->read_lanes = word->read_bytes = 0;
}

/* Lanes that wrote it. */
static inline uint32_t emu_lane_writers(const struct emu_lane_word *word)
{
	return word->write_lane == EMU_LANES ? UINT32_MAX : 1u << word->write_lane;
}

/* A write by lanes of a warp, and another lane that has read the bytes. */
static inline bool emu_lane_overtakes(const struct emu_lane_word *word,
				      const struct emu_lanes *l, uint32_t warp,
				      uint32_t bytes, struct emu_place place,
				      struct emu_lane_pair *pair)
{
	return word->read_lanes && word->reader == warp && word->read_bytes & bytes &&
	       emu_lanes_race(l, place.lanes, word->read_lanes, word->read_moment,
			      pair);
}

#define EMU_LANES_MEET "between them there must be a bar.warp.sync (__syncwarp)"

/*
 * The end of a report's sentence, behind what was accessed: did ("reads it", at
 * line; 0: not known), and what there must be.  Returns false.
 */
bool emu_lanes_object(struct emu_error *err, struct emu_lane_pair pair, const char *did,
		      uint32_t line, const char *rule);

#endif
