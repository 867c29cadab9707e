/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.c - order between the lanes of a warp; see lanes.h. */
#include "check/lanes.h"

#include <string.h>

static void raise(uint32_t *to, const uint32_t *from)
{
	for (uint32_t a = 0; a < EMU_LANES; a++)
		to[a] = to[a] > from[a] ? to[a] : from[a];
}

/* Merges what a lane has seen into to. */
static void raise_by(const struct emu_lanes *l, uint32_t lane, uint32_t *to)
{
	raise(to, l->all);
	if (l->ahead >> lane & 1)
		raise(to, l->seen[lane]);
}

static void find_least(struct emu_lanes *l)
{
	l->least = l->all[0];
	for (uint32_t a = 1; a < EMU_LANES; a++)
		l->least = l->least < l->all[a] ? l->least : l->all[a];
}

void emu_lanes_sync(struct emu_lanes *l, uint32_t lanes, uint32_t live, uint32_t now)
{
	uint32_t row[EMU_LANES] = {0};

	if ((lanes & live) == live) {
		for (uint32_t a = 0; a < EMU_LANES; a++)
			l->all[a] = now;
		l->least = now;
		l->ahead = 0;
		return;
	}
	for (uint32_t left = lanes; left; left &= left - 1)
		raise_by(l, (uint32_t)__builtin_ctz(left), row);
	for (uint32_t left = lanes; left; left &= left - 1)
		row[__builtin_ctz(left)] = now;
	for (uint32_t left = lanes; left; left &= left - 1)
		memcpy(l->seen[__builtin_ctz(left)], row, sizeof(row));
	l->ahead |= lanes;
}

void emu_lanes_release(struct emu_lanes *l, uint32_t lanes, uint32_t now)
{
	raise(l->released, l->all);
	for (uint32_t left = lanes & l->ahead; left; left &= left - 1)
		raise(l->released, l->seen[__builtin_ctz(left)]);
	for (uint32_t left = lanes; left; left &= left - 1)
		l->released[__builtin_ctz(left)] = now;
}

void emu_lanes_acquire(struct emu_lanes *l, uint32_t lanes, uint32_t live)
{
	if ((lanes & live) == live) {
		raise(l->all, l->released);
		find_least(l);
		return;
	}
	for (uint32_t left = lanes; left; left &= left - 1) {
		const uint32_t lane = (uint32_t)__builtin_ctz(left);
		uint32_t row[EMU_LANES];

		memcpy(row, l->released, sizeof(row));
		raise_by(l, lane, row);
		memcpy(l->seen[lane], row, sizeof(row));
		l->ahead |= 1u << lane;
	}
}

bool emu_lanes_find(const struct emu_lanes *l, uint32_t lanes, uint32_t others,
		    uint32_t instruction, struct emu_lane_pair *pair)
{
	for (; lanes; lanes &= lanes - 1) {
		const uint32_t b = (uint32_t)__builtin_ctz(lanes);

		for (uint32_t left = others & ~(1u << b); left; left &= left - 1) {
			const uint32_t a = (uint32_t)__builtin_ctz(left);

			if (instruction < l->all[a] ||
			    (l->ahead >> b & 1 && instruction < l->seen[b][a]))
				continue;
			*pair = (struct emu_lane_pair){b, a};
			return true;
		}
	}
	return false;
}

/* ---- words of memory ----------------------------------------------------- */

void emu_lane_read(struct emu_lane_word *word, const struct emu_lanes *l, uint32_t warp,
		   uint32_t bytes, struct emu_place place)
{
	const uint32_t common = word->read_bytes & bytes & 15;
	struct emu_lane_pair p;

	/*
	 * Readers that this lane has not seen stay, all with the earliest
	 * instruction and the bytes that they share.  That may miss a race, but
	 * never reports a correct program.
	 */
	if (common && word->reader == warp &&
	    (word->read_instruction == place.instruction ||
	     emu_lanes_race(l, place.lanes, word->read_lanes, word->read_instruction,
			    &p))) {
		word->read_lanes |= place.lanes;
		word->read_bytes = common & 15;
		return;
	}
	word->read_lanes = place.lanes;
	word->read_bytes = bytes & 15;
	word->reader = warp & (EMU_MOST_WARPS - 1);
	word->read_instruction = place.instruction;
	word->read_line = place.line;
}

bool emu_lanes_object(struct emu_error *err, struct emu_lane_pair pair, const char *did,
		      uint32_t line, const char *rule)
{
	emu_add_text(err, " by lane %u: lane %u of the same warp %s",
		     (unsigned)pair.lane, (unsigned)pair.other, did);
	if (line)
		emu_add_text(err, " (PTX line %u)", (unsigned)line);
	emu_add_text(err,
		     ", and nothing orders the two lanes: %s with both in its "
		     "mask",
		     rule);
	return false;
}
