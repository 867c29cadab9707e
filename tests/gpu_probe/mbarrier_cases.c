/* SPDX-License-Identifier: Apache-2.0 */
/* mbarrier_cases.c - see mbarrier_cases.h. */
#include "mbarrier_cases.h"

/* SplitMix64, below n. */
static uint32_t below(uint64_t *state, uint32_t n)
{
	uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return (uint32_t)((x >> 32) * n >> 32);
}

/* What the barrier has now, so that no step breaks a rule. */
struct counts {
	uint32_t expected, pending;
	int32_t tx;
};

/* Bytes: small, so that they often cancel; now and then as many as may be. */
static uint32_t bytes(uint64_t *state, uint32_t most)
{
	const uint32_t n =
	    below(state, 24) ? below(state, 4) * 16 : below(state, most + 1);

	return n < most ? n : most;
}

static struct mbarrier_step step_of(const struct counts *now, uint64_t *state)
{
	const uint32_t up = (uint32_t)(EMU_MBARRIER_MAX - now->tx);
	const uint32_t down = (uint32_t)(EMU_MBARRIER_MAX + now->tx);
	struct mbarrier_step s = {below(state, 5), 0};

	if (now->pending == 0 && s.kind != MBARRIER_STEP_COMPLETE_TX)
		s.kind = MBARRIER_STEP_EXPECT_TX;
	/* One arrival is always left, or nothing could follow. */
	if (s.kind == MBARRIER_STEP_DROP && now->expected < 2)
		s.kind = MBARRIER_STEP_ARRIVE;
	switch (s.kind) {
	case MBARRIER_STEP_ARRIVE:
		s.number = 1 + below(state, now->pending);
		break;
	case MBARRIER_STEP_DROP:
	case MBARRIER_STEP_ARRIVE_EXPECT_TX:
		s.number = s.kind == MBARRIER_STEP_DROP ? 1 : bytes(state, up);
		break;
	case MBARRIER_STEP_EXPECT_TX: /* often just what is missing */
		s.number = now->tx < 0 && below(state, 2) ? (uint32_t)-now->tx
							  : bytes(state, up);
		break;
	default:
		s.number = now->tx > 0 && below(state, 2) ? (uint32_t)now->tx
							  : bytes(state, down);
	}
	return s;
}

/* By the rules of PTX, counted here a second time. */
static void follow(struct counts *now, const struct mbarrier_step *s)
{
	const uint32_t arrivals =
	    s->kind == MBARRIER_STEP_ARRIVE ? s->number
	    : s->kind == MBARRIER_STEP_DROP ||
		    s->kind == MBARRIER_STEP_ARRIVE_EXPECT_TX
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

static void take_step(uint64_t *bar, const struct mbarrier_step *s)
{
	switch (s->kind) {
	case MBARRIER_STEP_ARRIVE:
		emu_mbarrier_arrive(bar, s->number, NULL);
		break;
	case MBARRIER_STEP_DROP:
		emu_mbarrier_arrive_drop(bar, s->number, NULL);
		break;
	case MBARRIER_STEP_EXPECT_TX:
		emu_mbarrier_expect_tx(bar, s->number);
		break;
	case MBARRIER_STEP_COMPLETE_TX:
		emu_mbarrier_complete_tx(bar, s->number, NULL);
		break;
	default:
		emu_mbarrier_expect_tx(bar, s->number);
		emu_mbarrier_arrive(bar, 1, NULL);
	}
}

void mbarrier_case_make(struct mbarrier_case *made, int index)
{
	uint64_t state = (uint64_t)index << 32, bar = 0;
	struct counts now;

	made->arrivals = 1 + below(&state, index % 8 ? 6 : 300);
	now = (struct counts){made->arrivals, made->arrivals, 0};
	emu_mbarrier_init(&bar, made->arrivals);
	for (int i = 0; i < MBARRIER_STEPS; i++) {
		struct mbarrier_step *s = &made->steps[i];
		uint32_t pending = now.pending;

		*s = step_of(&now, &state);
		if (s->kind == MBARRIER_STEP_EXPECT_TX ||
		    s->kind == MBARRIER_STEP_COMPLETE_TX)
			pending = 0;
		follow(&now, s);
		take_step(&bar, s);
		made->results[i] = pending << 8 |
				   (uint32_t)emu_mbarrier_test_parity(bar, 1)
				       << 1 |
				   (uint32_t)emu_mbarrier_test_parity(bar, 0);
	}
}

uint64_t mbarrier_case_hash(const struct mbarrier_case *asked)
{
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	for (int i = 0; i < MBARRIER_STEPS; i++)
		hash = (hash ^ asked->results[i]) * UINT64_C(0x100000001B3);
	return hash;
}
