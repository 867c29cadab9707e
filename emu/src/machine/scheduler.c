/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scheduler.c - runs clusters interleaved.  In each round every cluster has a
 * turn, in which its warps run for a random number of instructions and late
 * copies may land.  The turns of a round are a parallel phase and a serial one
 * (parallel_phase.h).  If no warp can run, the scheduler reports a deadlock.
 */
#include "machine/scheduler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "machine/barrier.h"
#include "machine/cluster.h"
#include "machine/parallel_phase.h"
#include "machine/random.h"
#include "machine/rules.h"
#include "machine/tensor_queue.h"
#include "machine/time.h"
#include "machine/transfer.h"
#include "machine/waits.h"
#include "machine/warp.h"

/* With seed 0: instructions of a warp in the parallel and in the serial phase,
 * and warps of a cluster that run in a round. */
#define PARALLEL_TURN 4096
#define SERIAL_TURN   16
#define USUAL_TURNS   16
/* Clusters that run at once, as long as they do not wait for others. */
#define USUAL_CLUSTERS 4
/* Rounds without a visible effect after which the run is deadlocked. */
#define DEADLOCK_ROUNDS 16
/* Rounds of polling after which another cluster begins: the poll may wait for it. */
#define STALE_ROUNDS 64
/* Rounds in which all warps only poll, after which the run is deadlocked. */
#define POLLING_ROUNDS 20000

/* ---- the scheduler ------------------------------------------------------- */

struct run {
	const struct emu_schedule *schedule;
	struct emu_machine *m;
	struct emu_grid *const *grids;
	uint32_t n_grids;
	struct emu_cluster **live;
	size_t n_live, capacity, most; /* clusters at once */
	/* NULL: its only cluster runs with others on other threads. */
	struct emu_thread_pool *pool;
	struct emu_turn *turns; /* of a round */
	size_t turn_capacity;
	struct emu_warp *delayed; /* runs only when all others wait, and seldom */
	uint64_t last_effects, counted;
	uint32_t idle_rounds;
	/* Rounds in which warps ran without an effect that others can see. */
	uint64_t stale_effects;
	uint32_t stale_rounds;
	/* The same, and every turn ended with a load that polls. */
	bool has_computed;
	uint32_t polling_rounds;
	bool is_unordered; /* with time: live is no heap */
};

static bool may_begin(const struct emu_grid *g)
{
	const struct emu_grid *before = g->before;

	return !before || before->ended == before->n_clusters ||
	       before->triggered == before->grid[0] * before->grid[1] * before->grid[2];
}

static bool fail_memory(struct run *r)
{
	r->m->has_failed = true;
	return emu_fail(&r->m->report, "no memory for clusters");
}

/* Gives the cluster its own random numbers; false after a report. */
static bool open_context(struct run *r, struct emu_cluster *c, uint32_t grid)
{
	const uint64_t stream = 1 + c->index + ((uint64_t)grid << 32);

	if (!r->pool || emu_cluster_context_open(c, stream))
		return true;
	emu_cluster_free(c);
	return fail_memory(r);
}

/* Begins one more cluster; false if none may begin. */
static bool begin_cluster(struct run *r)
{
	for (uint32_t k = 0; k < r->n_grids; k++) {
		struct emu_grid *g = r->grids[k];
		struct emu_cluster **grown;

		if (g->begun == g->n_clusters || g->begun - g->ended >= g->resident ||
		    !may_begin(g))
			continue;
		grown = emu_grow(r->live, &r->capacity, r->n_live, sizeof(*grown));
		if (!grown)
			return fail_memory(r);
		r->live = grown;
		grown[r->n_live] = emu_cluster_new(g, g->begun);
		if (!grown[r->n_live] || !open_context(r, grown[r->n_live], k))
			return false;
		g->begun++;
		r->n_live++;
		r->m->effects++;
		return true;
	}
	return false;
}

static void end_cluster(struct run *r, size_t index)
{
	struct emu_cluster *c = r->live[index];

	c->grid->ended++;
	r->m->effects++;
	(void)emu_cluster_end(c);
	r->live[index] = r->live[--r->n_live];
	if (r->delayed && r->delayed->cta->cluster == c)
		r->delayed = NULL;
	emu_cluster_context_close(c);
	emu_cluster_free(c);
	/* Warps that wait for the grid before test it again. */
	for (size_t k = 0; k < r->n_live; k++)
		emu_wake(r->live[k], EMU_AT_GRID);
}

/* A warp that can run, from a random one on; NULL: none. */
static struct emu_warp *pick_warp(struct run *r, struct emu_cluster *c)
{
	uint32_t count = 0, at;
	struct emu_warp *spare = NULL;

	for (uint32_t k = 0; k < c->n_ctas; k++)
		count += c->ctas[k].n_warps;
	at = emu_random_below(r->m, count);
	for (uint32_t n = 0; n < count; n++) {
		const uint32_t number = (at + n) % count;
		const struct emu_cta *cta = &c->ctas[number / c->ctas[0].n_warps];
		struct emu_warp *w = &cta->warps[number % c->ctas[0].n_warps];

		if (w->wait != EMU_RUNNABLE)
			continue;
		if (w != r->delayed)
			return w;
		spare = w;
	}
	return spare;
}

/* Wakes warps that sleep at a barrier now and then, without a reason. */
static void wake_sleepers(struct emu_cluster *c, bool all)
{
	struct emu_machine *m = c->grid->machine;

	for (uint32_t k = 0; k < c->n_ctas; k++)
		for (uint32_t i = 0; i < c->ctas[k].n_warps; i++) {
			struct emu_warp *w = &c->ctas[k].warps[i];

			if (w->wait == EMU_AT_MBARRIER &&
			    (all || emu_random_below(m, 64) == 0))
				w->wait = EMU_RUNNABLE;
		}
}

static void choose_delayed_warp(struct run *r, struct emu_cluster *c)
{
	const struct emu_cta *cta;

	if (!r->m->options.seed || emu_random_below(r->m, 512))
		return;
	cta = &c->ctas[emu_random_below(r->m, c->n_ctas)];
	r->delayed = emu_random_below(r->m, 4)
			 ? &cta->warps[emu_random_below(r->m, cta->n_warps)]
			 : NULL;
}

/* ---- deadlock ------------------------------------------------------------ */

static void report_deadlock(struct run *r)
{
	if (r->m->has_failed)
		return;
	r->m->has_failed = true;
	r->m->report_rule = emu_rule_for("deadlock");
	emu_fail(&r->m->report,
		 "%s: deadlock: no copy is in flight, and no warp can run:",
		 r->live[0]->grid->kernel->name);
	for (size_t k = 0; k < r->n_live; k++)
		emu_describe_waits(r->live[k], &r->m->report);
}

/* Lets time pass for operations in flight; false if there are none. */
static bool step(struct emu_cluster *c, bool is_idle)
{
	const bool has_tensor = emu_tensor_step(c, is_idle);

	return emu_transfers_step(c, is_idle) || has_tensor;
}

/* When no warp can run: lets time pass, begins a cluster, or wakes the sleepers. */
static void idle(struct run *r)
{
	bool on_its_way = false;

	for (size_t k = 0; k < r->n_live; k++)
		on_its_way = step(r->live[k], true) || on_its_way;
	if (r->m->effects != r->last_effects) {
		r->last_effects = r->m->effects;
		r->idle_rounds = 0;
		return;
	}
	if (on_its_way)
		return;
	if (begin_cluster(r)) {
		r->most = r->n_live;
		return;
	}
	if (++r->idle_rounds > DEADLOCK_ROUNDS) {
		report_deadlock(r);
		return;
	}
	for (size_t k = 0; k < r->n_live; k++)
		wake_sleepers(r->live[k], true);
}

/* ---- turns --------------------------------------------------------------- */

static uint32_t turn_length(struct run *r)
{
	if (!r->m->options.seed)
		return PARALLEL_TURN;
	return 1 + emu_random_below(r->m, emu_random_below(r->m, 8) ? 256 : 16);
}

/* Lets time pass for a cluster and chooses a warp; NULL: none can run. */
static struct emu_warp *begin_turn(struct run *r, struct emu_cluster *c)
{
	struct emu_warp *w;

	choose_delayed_warp(r, c);
	w = pick_warp(r, c);
	if (r->m->options.seed && emu_random_below(r->m, 64) == 0)
		wake_sleepers(c, false);
	(void)step(c, false);
	return w;
}

static void run_warp(struct run *r, struct emu_warp *w, uint32_t length)
{
	emu_warp_run(w, length);
	r->has_computed = r->has_computed || !w->has_polled;
}

/* The serial phase: runs the warps of a turn that stopped before an effect that
 * other clusters may see. */
static void run_serial_phase(struct run *r, const struct emu_turn *t)
{
	const uint32_t length = r->m->options.seed ? t->length : SERIAL_TURN;
	const struct emu_cluster *c = t->cluster;

	for (uint32_t k = 0; k < c->n_ctas; k++)
		for (uint32_t i = 0; i < c->ctas[k].n_warps; i++) {
			struct emu_warp *w = &c->ctas[k].warps[i];

			if (w->wait != EMU_AT_SERIAL_PHASE)
				continue;
			w->wait = EMU_RUNNABLE;
			if (!r->m->has_failed)
				run_warp(r, w, length);
		}
}

static void end_if_done(struct run *r, const struct emu_cluster *c)
{
	for (size_t k = 0; k < r->n_live && c->n_live == 0; k++)
		if (r->live[k] == c) {
			end_cluster(r, k);
			return;
		}
}

/* Runs turns of several clusters: the parallel phase, then the serial one. */
static bool run_turns(struct run *r, uint32_t count)
{
	bool has_run = false;

	emu_parallel_phase_run(r->pool, r->m, r->turns, count);
	for (uint32_t k = 0; k < count && !r->m->has_failed; k++) {
		const struct emu_turn *t = &r->turns[k];

		has_run = has_run || t->warp;
		r->has_computed = r->has_computed || t->has_computed;
		run_serial_phase(r, t);
		end_if_done(r, t->cluster);
	}
	return has_run;
}

/* Runs the only cluster of a schedule; false if none of its warps could run. */
static bool turn_of_one(struct run *r)
{
	struct emu_cluster *c = r->live[0];
	struct emu_warp *w = begin_turn(r, c);

	if (!w)
		return false;
	run_warp(r, w, turn_length(r));
	end_if_done(r, c);
	return true;
}

/* The first warp that polls memory; NULL: none. */
static const struct emu_warp *polling_warp(const struct run *r)
{
	for (size_t n = 0; n < r->n_live; n++)
		for (uint32_t k = 0; k < r->live[n]->n_ctas; k++)
			for (uint32_t i = 0; i < r->live[n]->ctas[k].n_warps; i++) {
				const struct emu_warp *w =
				    &r->live[n]->ctas[k].warps[i];

				if (w->has_polled && w->wait == EMU_RUNNABLE)
					return w;
			}
	return NULL;
}

static void report_polling(struct run *r)
{
	struct emu_error *report = &r->m->report;
	const struct emu_warp *w = polling_warp(r);
	uint32_t waiting = 0;

	for (uint32_t k = 0; k < r->n_grids; k++)
		waiting += r->grids[k]->n_clusters - r->grids[k]->begun;
	r->m->has_failed = true;
	r->m->report_rule = emu_rule_for("deadlock");
	emu_fail(report,
		 "%s: deadlock: every warp that runs polls memory that no warp writes",
		 r->live[0]->grid->kernel->name);
	if (waiting)
		emu_add_text(
		    report,
		    "; %u clusters have not begun, because the GPU holds %u at "
		    "once",
		    waiting, r->live[0]->grid->resident);
	emu_add_text(report, "; the first warp that polls:");
	if (w)
		emu_describe_poll(w, report);
}

/* Looks for warps that poll memory without any effect. */
static void check_stale(struct run *r)
{
	if (r->stale_effects != r->m->effects) {
		r->stale_effects = r->m->effects;
		r->stale_rounds = r->polling_rounds = 0;
		return;
	}
	r->polling_rounds = r->has_computed ? 0 : r->polling_rounds + 1;
	if (++r->stale_rounds > STALE_ROUNDS && begin_cluster(r)) {
		r->most = r->n_live;
		r->stale_rounds = 0;
	} else if (r->polling_rounds > POLLING_ROUNDS && r->n_live &&
		   !r->m->has_failed) {
		report_polling(r);
	}
}

/* True if a cluster of a later grid is live, so that this one may be delayed. */
static bool is_overtaken(const struct run *r, const struct emu_cluster *c)
{
	for (size_t k = 0; k < r->n_live; k++)
		if (r->live[k]->grid->id > c->grid->id)
			return true;
	return false;
}

/* Adds a turn to a round; false: no memory. */
static bool add_turn(struct run *r, uint32_t count, struct emu_cluster *c)
{
	struct emu_turn *grown =
	    emu_grow(r->turns, &r->turn_capacity, count, sizeof(*grown));

	if (!grown)
		return fail_memory(r);
	r->turns = grown;
	grown[count] = (struct emu_turn){
	    .cluster = c,
	    .warp = begin_turn(r, c),
	    .length = turn_length(r),
	    .most = r->m->options.seed ? 1 : USUAL_TURNS,
	};
	return true;
}

static bool turns(struct run *r, bool of_latest)
{
	const size_t start = emu_random_below(r->m, (uint32_t)r->n_live);
	uint32_t count = 0;

	if (!r->pool)
		return turn_of_one(r);
	for (size_t n = 0; n < r->n_live && !r->m->has_failed; n++) {
		struct emu_cluster *c = r->live[(start + n) % r->n_live];

		if ((!of_latest || !is_overtaken(r, c)) && add_turn(r, count, c))
			count++;
	}
	return !r->m->has_failed && run_turns(r, count);
}

/* Adds to the count of the launch, over all threads of the host that run it. */
static void count_instructions(struct run *r)
{
	const uint64_t all = atomic_fetch_add(r->schedule->instructions,
					      r->m->instructions - r->counted) +
			     r->m->instructions - r->counted;

	r->counted = r->m->instructions;
	/* Without a live cluster to name, the next round reports it. */
	if (!r->n_live || all <= r->m->options.budget || r->m->has_failed)
		return;
	r->m->has_failed = true;
	r->m->report_rule = emu_rule_for("NIBEMU_BUDGET");
	emu_fail(&r->m->report,
		 "%s: it has not ended after %" PRIu64
		 " thread instructions (NIBEMU_BUDGET); the first warp that runs:",
		 r->live[0]->grid->kernel->name, r->m->options.budget);
	emu_describe_running(r->live[0], &r->m->report);
}

/* ---- with time ----------------------------------------------------------- */

/* The most instructions of a turn, if no other warp can run. */
#define TIMED_TURN 4096

static void find_earliest(struct emu_cluster *c)
{
	c->earliest = NULL;
	c->earliest_at = INFINITY;
	for (uint32_t k = 0; k < c->n_ctas; k++) {
		struct emu_cta *a = &c->ctas[k];

		a->earliest_at = INFINITY;
		for (uint32_t i = 0; i < a->n_warps; i++) {
			struct emu_warp *w = &a->warps[i];

			if (w->wait != EMU_RUNNABLE || w->now >= a->earliest_at)
				continue;
			a->earliest_at = w->now;
			if (w->now >= c->earliest_at)
				continue;
			c->earliest = w;
			c->earliest_at = w->now;
		}
	}
}

/* The live clusters are a heap: the parent of k is (k - 1) / 2. */
static void sink(struct run *r, size_t k)
{
	struct emu_cluster *c = r->live[k];
	const double at = c->earliest_at;

	for (size_t child = 2 * k + 1; child < r->n_live; child = 2 * k + 1) {
		if (child + 1 < r->n_live &&
		    r->live[child + 1]->earliest_at < r->live[child]->earliest_at)
			child++;
		if (r->live[child]->earliest_at >= at)
			break;
		r->live[k] = r->live[child];
		k = child;
	}
	r->live[k] = c;
}

/* Restores the heap after warps of several clusters may have woken. */
static void order_clusters(struct run *r)
{
	for (size_t k = 0; k < r->n_live; k++)
		find_earliest(r->live[k]);
	for (size_t k = r->n_live / 2; k-- > 0;)
		sink(r, k);
}

/* The smallest clock of warps on other SMs than that of the earliest warp. */
static double others_at(const struct run *r)
{
	const struct emu_cluster *c = r->live[0];
	double at = INFINITY;

	for (size_t k = 1; k < 3 && k < r->n_live; k++)
		if (r->live[k]->earliest_at < at)
			at = r->live[k]->earliest_at;
	for (uint32_t k = 0; k < c->n_ctas; k++)
		if (&c->ctas[k] != c->earliest->cta && c->ctas[k].earliest_at < at)
			at = c->ctas[k].earliest_at;
	return at;
}

/* Runs the warp with the smallest clock; false: none can run. */
static bool timed_turn(struct run *r)
{
	struct emu_cluster *c = r->live[0];

	if (!c->earliest)
		return false;
	c->earliest->until = emu_time_turn(c->earliest, others_at(r));
	emu_warp_run(c->earliest, TIMED_TURN);
	if (c->n_live == 0) {
		end_cluster(r, 0);
		r->is_unordered = true;
	} else {
		find_earliest(c);
		sink(r, 0);
	}
	return true;
}

static void timed_round(struct run *r)
{
	while (begin_cluster(r))
		r->is_unordered = true;
	if (r->n_live == 0)
		return;
	if (r->is_unordered)
		order_clusters(r);
	r->is_unordered = false;
	if (!timed_turn(r) && !r->m->has_failed) {
		idle(r);
		r->is_unordered = true;
	}
	count_instructions(r);
}

static void round_of_turns(struct run *r)
{
	const bool delays_first = r->schedule->delays_first;
	bool has_run;

	while (r->n_live < r->most && begin_cluster(r))
		;
	if (r->n_live == 0)
		return;
	r->has_computed = false;
	has_run = turns(r, delays_first && emu_random_below(r->m, 64));
	if (!has_run && delays_first && !r->m->has_failed && r->n_live)
		has_run = turns(r, false);
	if (!has_run && !r->m->has_failed && r->n_live)
		idle(r);
	check_stale(r);
	count_instructions(r);
}

static bool all_ended(const struct run *r)
{
	for (uint32_t k = 0; k < r->n_grids; k++)
		if (r->grids[k]->ended < r->grids[k]->n_clusters)
			return false;
	return true;
}

static bool is_stopped(const struct emu_schedule *s)
{
	return s->lowest_fault && atomic_load(s->lowest_fault) < s->index;
}

/*
 * The clusters of a cooperative grid begin together, because they may wait for
 * each other.
 */
static size_t clusters_at_once(const struct emu_schedule *s)
{
	size_t most = USUAL_CLUSTERS;

	for (uint32_t k = 0; k < s->n_grids; k++)
		if (s->grids[k]->is_cooperative && s->grids[k]->n_clusters > most)
			most = s->grids[k]->n_clusters;
	return most;
}

bool emu_scheduler_run(const struct emu_schedule *s)
{
	struct run r = {.schedule = s,
			.m = s->machine,
			.grids = s->grids,
			.n_grids = s->n_grids,
			.most = clusters_at_once(s),
			.last_effects = UINT64_MAX,
			.counted = s->machine->instructions};

	/* With time, the clocks of warps decide which one runs. */
	if (!s->lowest_fault && !r.m->time) {
		r.pool = emu_thread_pool_open(r.m->options.threads);
		if (!r.pool)
			return fail_memory(&r);
	}
	while (!r.m->has_failed && !all_ended(&r) && !is_stopped(s))
		(r.m->time ? timed_round : round_of_turns)(&r);
	for (size_t k = 0; k < r.n_live; k++) {
		emu_cluster_context_close(r.live[k]);
		emu_cluster_free(r.live[k]);
	}
	emu_thread_pool_close(r.pool);
	free(r.turns);
	free(r.live);
	return !r.m->has_failed;
}
