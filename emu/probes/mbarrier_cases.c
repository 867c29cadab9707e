/* SPDX-License-Identifier: Apache-2.0 */
/* mbarrier_cases.c - see mbarrier_cases.h. */
#include "mbarrier_cases.h"

#include <stdio.h>
#include <string.h>

/* SplitMix64, below n. */
static uint32_t below(uint64_t *state, uint32_t n)
{
	uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return (uint32_t)((x >> 32) * n >> 32);
}

/* ---- random histories ---------------------------------------------------- */

/* The barrier's current counts, so that no step breaks a rule. */
struct counts {
	uint32_t expected, pending;
	int32_t tx;
	enum mbarrier_class class;
};

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Small numbers of bytes, so that they often cancel, and sometimes the largest. */
static uint32_t bytes(const struct counts *now, uint64_t *state, uint32_t most)
{
	if (now->class == MBARRIER_LARGE && below(state, 24) == 0)
		return below(state, most + 1);
	return smaller(below(state, 4) * 16, most);
}

/* A kind of step that the class allows now. */
static uint32_t kind_of(const struct counts *now, uint64_t *state)
{
	uint32_t kind = below(state, 5);
	const bool is_early = now->tx <= 0 && kind == MBARRIER_STEP_COMPLETE_TX;

	if (now->class == MBARRIER_PLAIN && is_early)
		kind = MBARRIER_STEP_ARRIVE_EXPECT_TX;
	if (now->pending == 0 && kind != MBARRIER_STEP_COMPLETE_TX)
		kind = now->class >= MBARRIER_COMPLETE ? MBARRIER_STEP_EXPECT_TX
						       : MBARRIER_STEP_COMPLETE_TX;
	/* One arrival is always left, because otherwise nothing could follow. */
	if (kind == MBARRIER_STEP_DROP && now->expected < 2)
		kind = MBARRIER_STEP_ARRIVE;
	/* The last arrival of a phase whose bytes were not expected yet. */
	if (now->class == MBARRIER_EARLY && now->tx < 0 && now->pending == 1 &&
	    kind != MBARRIER_STEP_COMPLETE_TX)
		kind = MBARRIER_STEP_ARRIVE_EXPECT_TX;
	return kind;
}

/* Bytes that land; in some classes no more than expected. */
static uint32_t landing(const struct counts *now, uint64_t *state)
{
	const uint32_t down = (uint32_t)(EMU_MBARRIER_MAX + now->tx);
	const bool is_bounded = now->class == MBARRIER_PLAIN ||
				(now->class == MBARRIER_EARLY && now->pending == 0);

	if (now->tx > 0 && below(state, 2))
		return (uint32_t)now->tx;
	return bytes(now, state, is_bounded ? (uint32_t)now->tx : down);
}

static struct mbarrier_step step_of(const struct counts *now, uint64_t *state)
{
	const uint32_t up = (uint32_t)(EMU_MBARRIER_MAX - now->tx);
	struct mbarrier_step s = {kind_of(now, state), 0};

	switch (s.kind) {
	case MBARRIER_STEP_ARRIVE:
		s.number = now->class == MBARRIER_EARLY && now->tx < 0
			       ? 1
			       : 1 + below(state, now->pending);
		break;
	case MBARRIER_STEP_DROP:
		s.number = 1;
		break;
	case MBARRIER_STEP_ARRIVE_EXPECT_TX:
		s.number =
		    now->tx < 0 && now->pending == 1 && now->class == MBARRIER_EARLY
			? (uint32_t)-now->tx
			: bytes(now, state, up);
		break;
	case MBARRIER_STEP_EXPECT_TX: /* often just what is missing */
		s.number = now->tx < 0 && below(state, 2) ? (uint32_t)-now->tx
							  : bytes(now, state, up);
		break;
	default:
		s.number = landing(now, state);
	}
	return s;
}

/* Counts by the rules of PTX, a second implementation. */
static void follow(struct counts *now, const struct mbarrier_step *s)
{
	const uint32_t arrivals =
	    s->kind == MBARRIER_STEP_ARRIVE ? s->number
	    : s->kind == MBARRIER_STEP_DROP || s->kind == MBARRIER_STEP_ARRIVE_EXPECT_TX
		? 1
		: 0;

	if (s->kind == MBARRIER_STEP_EXPECT_TX ||
	    s->kind == MBARRIER_STEP_ARRIVE_EXPECT_TX)
		now->tx += (int32_t)s->number;
	if (s->kind == MBARRIER_STEP_COMPLETE_TX)
		now->tx -= (int32_t)s->number;
	now->expected -= s->kind == MBARRIER_STEP_DROP;
	now->pending -= arrivals;
	if (now->pending == 0 && now->tx == 0)
		now->pending = now->expected;
}

static void make_random(struct mbarrier_case *made, int index)
{
	uint64_t state = (uint64_t)index << 32;
	struct counts now;

	made->arrivals = 1 + below(&state, index % 8 ? 6 : 300);
	made->n_steps = MBARRIER_STEPS;
	now = (struct counts){made->arrivals, made->arrivals, 0,
			      (enum mbarrier_class)(index % 4)};
	for (int i = 0; i < MBARRIER_STEPS; i++) {
		made->steps[i] = step_of(&now, &state);
		follow(&now, &made->steps[i]);
	}
}

/* ---- named histories ----------------------------------------------------- */

#define MOST   EMU_MBARRIER_MAX
#define NAMED  (sizeof(named) / sizeof(*named))
#define ARRIVE MBARRIER_STEP_ARRIVE
#define DROP   MBARRIER_STEP_DROP
#define EXPECT MBARRIER_STEP_EXPECT_TX
#define LAND   MBARRIER_STEP_COMPLETE_TX
#define BOTH   MBARRIER_STEP_ARRIVE_EXPECT_TX

static const struct named {
	const char *name;
	uint32_t arrivals, n_steps;
	struct mbarrier_step steps[4];
} named[] = {
    {"bytes, expected, arrival", 1, 3, {{LAND, 16}, {EXPECT, 16}, {ARRIVE, 1}}},
    {"bytes, then both", 1, 2, {{LAND, 16}, {BOTH, 16}}},
    {"expected, arrival, bytes", 1, 3, {{EXPECT, 16}, {ARRIVE, 1}, {LAND, 16}}},
    {"bytes, arrival, expected", 1, 3, {{LAND, 16}, {ARRIVE, 1}, {EXPECT, 16}}},
    {"arrival, more expected, bytes",
     1,
     4,
     {{EXPECT, 16}, {ARRIVE, 1}, {EXPECT, 16}, {LAND, 32}}},
    {"arrival, more bytes, expected",
     1,
     4,
     {{EXPECT, 16}, {ARRIVE, 1}, {LAND, 32}, {EXPECT, 16}}},
    {"no bytes", 1, 4, {{EXPECT, 0}, {LAND, 0}, {BOTH, 0}, {BOTH, 0}}},
    {"most arrivals at once", MOST, 2, {{ARRIVE, MOST}, {ARRIVE, 1}}},
    {"most bytes expected", 1, 3, {{EXPECT, MOST}, {LAND, MOST}, {ARRIVE, 1}}},
    {"most bytes early", 1, 3, {{LAND, MOST}, {EXPECT, MOST}, {ARRIVE, 1}}},
    {"half of the bytes expected",
     1,
     3,
     {{EXPECT, MOST / 2}, {LAND, MOST / 2}, {ARRIVE, 1}}},
    {"one byte more than most", 1, 2, {{EXPECT, MOST}, {EXPECT, 1}}},
    {"one early byte more than most", 1, 2, {{LAND, MOST}, {LAND, 1}}},
    {"more arrivals than expected", 2, 1, {{ARRIVE, 3}}},
    {"an arrival while bytes are missing",
     1,
     3,
     {{EXPECT, 16}, {ARRIVE, 1}, {ARRIVE, 1}}},
    {"no arrival", 2, 2, {{ARRIVE, 0}, {ARRIVE, 2}}},
    {"the last arrival dropped", 1, 1, {{DROP, 1}}},
};

/* ---- the model ----------------------------------------------------------- */

static enum emu_mbarrier_fault take_step(uint64_t *bar, const struct mbarrier_step *s)
{
	enum emu_mbarrier_fault fault;

	switch (s->kind) {
	case MBARRIER_STEP_ARRIVE:
		return emu_mbarrier_arrive(bar, s->number, NULL);
	case MBARRIER_STEP_DROP:
		return emu_mbarrier_arrive_drop(bar, s->number, NULL);
	case MBARRIER_STEP_EXPECT_TX:
		return emu_mbarrier_expect_tx(bar, s->number);
	case MBARRIER_STEP_COMPLETE_TX:
		return emu_mbarrier_complete_tx(bar, s->number, NULL);
	default:
		fault = emu_mbarrier_expect_tx(bar, s->number);
		return fault ? fault : emu_mbarrier_arrive(bar, 1, NULL);
	}
}

static bool is_arrival(const struct mbarrier_step *s)
{
	return s->kind != MBARRIER_STEP_EXPECT_TX &&
	       s->kind != MBARRIER_STEP_COMPLETE_TX;
}

static void ask_model(struct mbarrier_case *made)
{
	struct counts now = {made->arrivals, made->arrivals, 0, MBARRIER_PLAIN};
	uint64_t bar = 0;

	emu_mbarrier_init(&bar, made->arrivals);
	made->fault_step = made->n_steps;
	for (uint32_t i = 0; i < made->n_steps; i++) {
		const struct mbarrier_step *s = &made->steps[i];
		const uint32_t pending = is_arrival(s) ? now.pending : 0;

		if (take_step(&bar, s) != EMU_MBARRIER_OK) {
			made->fault_step = i;
			return;
		}
		follow(&now, s);
		made->results[i] = pending << 8 |
				   (uint32_t)emu_mbarrier_test_parity(bar, 1) << 1 |
				   (uint32_t)emu_mbarrier_test_parity(bar, 0);
	}
}

int mbarrier_cases(void)
{
	return MBARRIER_RANDOM + (int)NAMED;
}

void mbarrier_case_make(struct mbarrier_case *made, int index)
{
	memset(made, 0, sizeof(*made));
	if (index < MBARRIER_RANDOM) {
		make_random(made, index);
	} else {
		const struct named *from = &named[index - MBARRIER_RANDOM];

		made->arrivals = from->arrivals;
		made->n_steps = from->n_steps;
		memcpy(made->steps, from->steps, sizeof(from->steps));
	}
	ask_model(made);
}

void mbarrier_case_name(int index, char *text, size_t size)
{
	static const char *const classes[] = {"plain", "early", "complete", "large"};

	if (index < MBARRIER_RANDOM)
		snprintf(text, size, "%s %d", classes[index % 4], index);
	else
		snprintf(text, size, "%s", named[index - MBARRIER_RANDOM].name);
}

uint64_t mbarrier_case_hash(const struct mbarrier_case *asked, uint32_t steps)
{
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	for (uint32_t i = 0; i < steps; i++)
		hash = (hash ^ asked->results[i]) * UINT64_C(0x100000001B3);
	return hash;
}
