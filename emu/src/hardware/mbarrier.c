/* SPDX-License-Identifier: Apache-2.0 */
/* mbarrier.c - the 64 bits of an mbarrier; see mbarrier.h. */
#include "hardware/mbarrier.h"

#include <stdio.h>

/*
 * Layout (that of the hardware is not documented, and programs may not depend on it):
 *	[63]	 live
 *	[62]	 phase parity: 0 while the first phase runs
 *	[61:41]	 transaction bytes to come, biased by EMU_MBARRIER_MAX
 *	[40]	 0, so that memory filled with ones is no mbarrier
 *	[39:20]	 arrivals of this phase that are pending
 *	[19:0]	 arrivals that each phase expects
 */
#define LIVE	      (UINT64_C(1) << 63)
#define PARITY	      (UINT64_C(1) << 62)
#define NEVER	      (UINT64_C(1) << 40)
#define TX_SHIFT      41
#define PENDING_SHIFT 20

struct state {
	uint32_t expected, pending;
	int32_t tx;
	bool is_odd;
};

static struct state unpack(uint64_t bar)
{
	return (struct state){
	    .expected = (uint32_t)(bar & EMU_MBARRIER_MAX),
	    .pending = (uint32_t)(bar >> PENDING_SHIFT & EMU_MBARRIER_MAX),
	    .tx = (int32_t)(bar >> TX_SHIFT & 0x1FFFFF) - EMU_MBARRIER_MAX,
	    .is_odd = bar & PARITY,
	};
}

static uint64_t pack(const struct state *s)
{
	return LIVE | (s->is_odd ? PARITY : 0) |
	       (uint64_t)(s->tx + EMU_MBARRIER_MAX) << TX_SHIFT |
	       (uint64_t)s->pending << PENDING_SHIFT | s->expected;
}

/* Ends the phase if nothing is pending, and writes the state. */
static void store(uint64_t *bar, struct state *s, bool *flipped)
{
	const bool is_over = s->pending == 0 && s->tx == 0;

	if (is_over) {
		s->is_odd = !s->is_odd;
		s->pending = s->expected;
	}
	if (flipped)
		*flipped = is_over;
	*bar = pack(s);
}

const char *emu_mbarrier_fault_text(enum emu_mbarrier_fault fault)
{
	switch (fault) {
	case EMU_MBARRIER_NOT_LIVE:
		return "there is no mbarrier: mbarrier.init must come first, "
		       "and none may come after mbarrier.inval";
	case EMU_MBARRIER_BAD_COUNT:
		return "an mbarrier's count must be 1 to 1048575";
	case EMU_MBARRIER_OVER:
		return "more arrivals at the mbarrier than its phase expects";
	case EMU_MBARRIER_TX_RANGE:
		return "an mbarrier's transaction count must stay within "
		       "-1048575 and 1048575";
	case EMU_MBARRIER_TX_BYTES:
		return "one operation counts 1048575 bytes at most";
	default:
		return "no fault";
	}
}

bool emu_mbarrier_is_live(uint64_t bar)
{
	return (bar & (LIVE | NEVER)) == LIVE;
}

enum emu_mbarrier_fault emu_mbarrier_init(uint64_t *bar, uint32_t arrivals)
{
	const struct state s = {.expected = arrivals, .pending = arrivals};

	if (arrivals < 1 || arrivals > EMU_MBARRIER_MAX)
		return EMU_MBARRIER_BAD_COUNT;
	*bar = pack(&s);
	return EMU_MBARRIER_OK;
}

enum emu_mbarrier_fault emu_mbarrier_invalidate(uint64_t *bar)
{
	if (!emu_mbarrier_is_live(*bar))
		return EMU_MBARRIER_NOT_LIVE;
	*bar = 0;
	return EMU_MBARRIER_OK;
}

static enum emu_mbarrier_fault arrive(uint64_t *bar, uint32_t count, uint32_t dropped,
				      bool *flipped)
{
	struct state s = unpack(*bar);

	if (!emu_mbarrier_is_live(*bar))
		return EMU_MBARRIER_NOT_LIVE;
	if (count < 1 || count > EMU_MBARRIER_MAX)
		return EMU_MBARRIER_BAD_COUNT;
	if (count > s.pending || dropped > s.expected)
		return EMU_MBARRIER_OVER;
	s.pending -= count;
	s.expected -= dropped;
	store(bar, &s, flipped);
	return EMU_MBARRIER_OK;
}

enum emu_mbarrier_fault emu_mbarrier_arrive(uint64_t *bar, uint32_t count,
					    bool *flipped)
{
	return arrive(bar, count, 0, flipped);
}

enum emu_mbarrier_fault emu_mbarrier_arrive_drop(uint64_t *bar, uint32_t count,
						 bool *flipped)
{
	return arrive(bar, count, count, flipped);
}

static enum emu_mbarrier_fault change_tx(uint64_t *bar, int64_t bytes, bool *flipped)
{
	struct state s = unpack(*bar);
	const int64_t tx = s.tx + bytes;

	if (!emu_mbarrier_is_live(*bar))
		return EMU_MBARRIER_NOT_LIVE;
	if (bytes < -EMU_MBARRIER_MAX || bytes > EMU_MBARRIER_MAX)
		return EMU_MBARRIER_TX_BYTES;
	if (tx < -EMU_MBARRIER_MAX || tx > EMU_MBARRIER_MAX)
		return EMU_MBARRIER_TX_RANGE;
	s.tx = (int32_t)tx;
	store(bar, &s, flipped);
	return EMU_MBARRIER_OK;
}

enum emu_mbarrier_fault emu_mbarrier_expect_tx(uint64_t *bar, uint32_t bytes)
{
	return change_tx(bar, bytes, NULL);
}

enum emu_mbarrier_fault emu_mbarrier_complete_tx(uint64_t *bar, uint32_t bytes,
						 bool *flipped)
{
	return change_tx(bar, -(int64_t)bytes, flipped);
}

enum emu_mbarrier_fault emu_mbarrier_add_pending(uint64_t *bar)
{
	struct state s = unpack(*bar);

	if (!emu_mbarrier_is_live(*bar))
		return EMU_MBARRIER_NOT_LIVE;
	if (s.pending == EMU_MBARRIER_MAX)
		return EMU_MBARRIER_BAD_COUNT;
	s.pending++;
	*bar = pack(&s);
	return EMU_MBARRIER_OK;
}

bool emu_mbarrier_test_parity(uint64_t bar, uint32_t parity)
{
	return emu_mbarrier_is_live(bar) && unpack(bar).is_odd != (bool)(parity & 1);
}

int32_t emu_mbarrier_bytes(uint64_t bar)
{
	return unpack(bar).tx;
}

void emu_mbarrier_describe(uint64_t bar, char *text, size_t size)
{
	const struct state s = unpack(bar);

	if (!emu_mbarrier_is_live(bar))
		snprintf(text, size, "no mbarrier");
	else
		snprintf(text, size,
			 "phase parity %d, %u of %u arrivals and %d bytes to come",
			 s.is_odd, (unsigned)s.pending, (unsigned)s.expected,
			 (int)s.tx);
}
