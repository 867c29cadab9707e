/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_check_pipeline.c - the checker on a whole pipeline, on random schedules: one
 * warp fills a ring of stages by bulk copies, and two warps multiply from it and
 * store their results through shared memory.  The correct pipeline has no report on
 * 1,000 schedules.  With any one step left out, all schedules have a report.
 */
#include <string.h>

#include "check/check.h"
#include "common/data.h"
#include "common/unit.h"
#include "hardware/mbarrier.h"

#define SCHEDULES   1000
#define STAGES	    3
#define ROUNDS	    10 /* stages filled for a tile */
#define TILES	    2
#define CONSUMERS   2
#define WARPS	    (1 + CONSUMERS)
#define STAGE_BYTES 256
#define STAGING	    32768
#define STEPS_MOST  20000

enum bug {
	NONE,
	NO_BARRIER_AFTER_INIT,
	NO_WAIT_FOR_FULL,
	WAIT_FOR_THE_OTHER_PHASE,
	NO_WAIT_FOR_EMPTY,
	RELEASE_BEFORE_WGMMA_HAS_READ,
	RELEASE_OF_THE_STAGE_IN_FLIGHT,
	RELAXED_RELEASE,
	NO_PROXY_FENCE,
	PROXY_FENCE_BEFORE_THE_STORE,
	NO_BARRIER_BEFORE_THE_STORE,
	STAGING_USED_AGAIN_TOO_EARLY,
	BUGS
};

static const char *const names[BUGS] = {
    "none",
    "no barrier after mbarrier.init",
    "no wait for a full stage",
    "wait for the other phase",
    "no wait for an empty stage",
    "release before wgmma has read",
    "release of the stage in flight",
    "release by a relaxed arrival",
    "no proxy fence",
    "proxy fence before the store",
    "no barrier before the bulk store",
    "staging used again too early",
};

struct copy {
	uint32_t stage;
	bool is_flying;
};

struct pipeline {
	struct emu_check *check;
	struct emu_error err;
	enum bug bug;
	struct rng rng;
	uint64_t full[STAGES], empty[STAGES]; /* the mbarriers' bits */
	struct copy copies[STAGES];
	uint32_t at[WARPS];    /* the next step of each warp */
	uint32_t round[WARPS]; /* stages begun, of all tiles */
	uint32_t joined, opened, left;
	bool is_reported;
};

static uint64_t address_of(const struct pipeline *p, const uint64_t *bar)
{
	const uint64_t number = bar >= p->empty ? STAGES + (uint64_t)(bar - p->empty)
						: (uint64_t)(bar - p->full);

	return 1024 + 8 * number;
}

static void report(struct pipeline *p, bool is_good)
{
	p->is_reported |= !is_good;
}

/* ---- steps that several warps have --------------------------------------- */

static void arrive(struct pipeline *p, uint32_t warp, uint64_t *bar)
{
	const bool is_relaxed = p->bug == RELAXED_RELEASE && warp > 0;
	bool flipped = false;

	report(p,
	       emu_check_arrive(p->check, warp, address_of(p, bar),
				is_relaxed ? EMU_SCOPE_NONE : EMU_SCOPE_CTA, &p->err));
	emu_mbarrier_arrive(bar, 1, &flipped);
	if (flipped)
		emu_check_phase(p->check, address_of(p, bar));
}

/* False: not yet. */
static bool wait(struct pipeline *p, uint32_t warp, uint64_t *bar, uint32_t parity)
{
	if (!emu_mbarrier_test_parity(*bar, parity))
		return false;
	report(p, emu_check_wait(p->check, warp, address_of(p, bar), EMU_SCOPE_CTA,
				 &p->err));
	return true;
}

/* A barrier of the consumers, or the first time of all.  Arrives; true once it is
 * complete. */
static bool join(struct pipeline *p, uint32_t warp, uint32_t number, uint32_t members)
{
	if (!(p->joined >> warp & 1)) {
		p->joined |= 1u << warp;
		emu_check_join(p->check, warp, 0, number, true);
		if ((uint32_t)__builtin_popcount(p->joined) < members)
			return false;
		emu_check_all_joined(p->check, 0, number);
		p->opened = p->joined;
		p->left = 0;
	}
	if (!(p->opened >> warp & 1) || p->left >> warp & 1)
		return false;
	emu_check_leave(p->check, warp, 0, number, true);
	p->left |= 1u << warp;
	if (p->left == p->opened)
		p->joined = p->opened = 0;
	return true;
}

static struct emu_place line(uint32_t number)
{
	return (struct emu_place){.line = number};
}

static bool begin(struct pipeline *p, uint32_t warp)
{
	if (warp == 0 && !(p->joined & 1))
		for (uint32_t s = 0; s < STAGES; s++) {
			emu_mbarrier_init(&p->full[s], 1);
			emu_mbarrier_init(&p->empty[s], CONSUMERS);
			report(p,
			       emu_check_init(p->check, 0, address_of(p, &p->full[s]),
					      line(1), &p->err));
			report(p,
			       emu_check_init(p->check, 0, address_of(p, &p->empty[s]),
					      line(1), &p->err));
		}
	if (p->bug != NO_BARRIER_AFTER_INIT)
		return join(p, warp, 0, WARPS);
	/* The barriers are initialised in time, by luck. */
	return emu_mbarrier_is_live(p->empty[STAGES - 1]);
}

/* ---- the producer -------------------------------------------------------- */

static bool produce(struct pipeline *p)
{
	const uint32_t round = p->round[0], s = round % STAGES;

	if (p->bug != NO_WAIT_FOR_EMPTY &&
	    !wait(p, 0, &p->empty[s], (round / STAGES & 1) ^ 1))
		return false;
	if (p->copies[s].is_flying ||
	    !emu_mbarrier_test_parity(p->full[s], (round / STAGES & 1) ^ 1))
		return false; /* the phase before must end, bug or not */
	emu_mbarrier_expect_tx(&p->full[s], STAGE_BYTES);
	report(p, emu_check_load(p->check, 0, 4096 + s * STAGE_BYTES, STAGE_BYTES,
				 address_of(p, &p->full[s]), line(2), &p->err));
	p->copies[s] = (struct copy){s, true};
	arrive(p, 0, &p->full[s]);
	p->round[0]++;
	return true;
}

static void land(struct pipeline *p)
{
	const uint32_t s = (uint32_t)rng_below(&p->rng, STAGES);
	bool flipped = false;

	if (!p->copies[s].is_flying)
		return;
	p->copies[s].is_flying = false;
	emu_mbarrier_complete_tx(&p->full[s], STAGE_BYTES, &flipped);
	if (flipped)
		emu_check_phase(p->check, address_of(p, &p->full[s]));
}

/* ---- a consumer ---------------------------------------------------------- */

/* Two wgmma are in flight: stage k is released when that of k + 1 has begun. */
static void release(struct pipeline *p, uint32_t warp, uint32_t round)
{
	arrive(p, warp, &p->empty[round % STAGES]);
}

static bool consume(struct pipeline *p, uint32_t warp)
{
	const uint32_t round = p->round[warp], s = round % STAGES;
	const uint32_t parity =
	    (round / STAGES & 1) ^ (p->bug == WAIT_FOR_THE_OTHER_PHASE);

	if (p->bug != NO_WAIT_FOR_FULL && !wait(p, warp, &p->full[s], parity))
		return false;
	report(p, emu_check_async_read(p->check, warp, EMU_ASYNC_WGMMA,
				       4096 + s * STAGE_BYTES, STAGE_BYTES, line(3),
				       &p->err));
	emu_check_commit(p->check, warp, EMU_ASYNC_WGMMA);
	if (p->bug == RELEASE_OF_THE_STAGE_IN_FLIGHT)
		release(p, warp, round);
	if (p->bug != RELEASE_BEFORE_WGMMA_HAS_READ)
		emu_check_wait_group(p->check, warp, EMU_ASYNC_WGMMA, 1, 0);
	if (round % ROUNDS > 0 && p->bug != RELEASE_OF_THE_STAGE_IN_FLIGHT)
		release(p, warp, round - 1);
	p->round[warp]++;
	return true;
}

/* Releases the tile's last stage, and writes the result to the staging buffer. */
static bool drain(struct pipeline *p, uint32_t warp)
{
	emu_check_wait_group(p->check, warp, EMU_ASYNC_WGMMA, 0, 0);
	if (p->bug != RELEASE_OF_THE_STAGE_IN_FLIGHT)
		release(p, warp, p->round[warp] - 1);
	return true;
}

static bool stage_result(struct pipeline *p, uint32_t warp)
{
	if (p->bug == PROXY_FENCE_BEFORE_THE_STORE)
		emu_check_fence_proxy(p->check, warp);
	report(p, emu_check_write(p->check, warp, STAGING + warp * 64, 64, line(4),
				  &p->err));
	if (p->bug != NO_PROXY_FENCE && p->bug != PROXY_FENCE_BEFORE_THE_STORE)
		emu_check_fence_proxy(p->check, warp);
	return true;
}

static bool store_result(struct pipeline *p, uint32_t warp)
{
	if (warp != 1)
		return true;
	report(p, emu_check_async_read(p->check, warp, EMU_ASYNC_STORE, STAGING + 64,
				       CONSUMERS * 64, line(5), &p->err));
	emu_check_commit(p->check, warp, EMU_ASYNC_STORE);
	if (p->bug != STAGING_USED_AGAIN_TOO_EARLY)
		emu_check_wait_group(p->check, warp, EMU_ASYNC_STORE, 0, 0);
	return true;
}

/* ---- the schedule -------------------------------------------------------- */

/* Steps of a consumer's tile after its rounds. */
enum { DRAIN = ROUNDS, STAGE, MEET, STORE, MEET_AGAIN, TILE_STEPS };

static bool step_consumer(struct pipeline *p, uint32_t warp)
{
	switch ((p->at[warp] - 1) % TILE_STEPS) {
	default:
		return consume(p, warp);
	case DRAIN:
		return drain(p, warp);
	case STAGE:
		return stage_result(p, warp);
	case MEET:
		return p->bug == NO_BARRIER_BEFORE_THE_STORE ||
		       join(p, warp, 1, CONSUMERS);
	case STORE:
		return store_result(p, warp);
	case MEET_AGAIN:
		return join(p, warp, 2, CONSUMERS);
	}
}

static bool is_done(const struct pipeline *p, uint32_t warp)
{
	return p->at[warp] > (uint32_t)(warp ? TILES * TILE_STEPS : TILES * ROUNDS);
}

static void step(struct pipeline *p)
{
	const uint32_t warp = (uint32_t)rng_below(&p->rng, WARPS);
	bool has_gone_on;

	if (rng_below(&p->rng, 3) == 0)
		land(p);
	if (is_done(p, warp))
		return;
	if (p->at[warp] == 0)
		has_gone_on = begin(p, warp);
	else if (warp == 0)
		has_gone_on = produce(p);
	else
		has_gone_on = step_consumer(p, warp);
	p->at[warp] += has_gone_on;
}

/* True if the checker objects.  hangs: not all steps could be done. */
static bool run(struct pipeline *p, enum bug bug, uint64_t seed, bool *hangs)
{
	const struct emu_check_options options = {false};
	uint32_t steps = 0;

	memset(p, 0, sizeof(*p));
	p->bug = bug;
	p->rng = rng_new(seed);
	p->check = emu_check_open(1, WARPS, 65536, options);
	assert_non_null(p->check);
	while (!(is_done(p, 0) && is_done(p, 1) && is_done(p, 2)) &&
	       ++steps < STEPS_MOST)
		step(p);
	*hangs = steps == STEPS_MOST;
	emu_check_close(p->check);
	return p->is_reported;
}

/* Runs one bug on all schedules, and prints a line of the table. */
static void try_bug(enum bug bug, uint64_t seed)
{
	static struct pipeline p;
	struct emu_error last = {""};
	/* Instrumented builds take ten times as long. */
	const int schedules = test_is_small() ? SCHEDULES / 10 : SCHEDULES;
	int found = 0, hung = 0;

	for (uint64_t i = 0; i < (uint64_t)schedules; i++) {
		bool hangs;

		if (run(&p, bug, seed + i, &hangs)) {
			found++;
			last = p.err;
		} else {
			hung += hangs;
		}
	}
	print_message("%-32s reported %4d, hung %3d%s%s\n", names[bug], found, hung,
		      found ? ": " : "", last.text);
	assert_int_equal(found + hung, bug == NONE ? 0 : schedules);
	assert_true(bug == NONE || found > schedules / 2);
}

static void every_bug_on_every_schedule(void **state)
{
	const uint64_t seed = test_seed();

	for (int bug = 0; bug < BUGS; bug++)
		try_bug((enum bug)bug, seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_bug_on_every_schedule),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
