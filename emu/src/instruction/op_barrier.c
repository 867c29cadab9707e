/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_barrier.c - barriers of a CTA and of a cluster, setmaxnreg, and
 * griddepcontrol, by which a grid waits for the grid before it.
 */
#include <string.h>

#include "instruction/binds.h"
#include "machine/barrier.h"
#include "machine/report.h"
#include "machine/time.h"
#include "machine/warp.h"
#include "machine/watch.h"

/* ---- bar ----------------------------------------------------------------- */

enum {
	ARRIVES_ONLY = 1,
	HAS_COUNT = 2, /* operand 1 */
	POPC = 4,
	AND = 8,
	OR = 16,
	REDUCES = POPC | AND | OR, /* the last two operands: source, destination */
	ALIGNED = 32,
};

/* bar is barrier.aligned. */
static uint32_t alignment_of(const struct emu_bind *b)
{
	return strcmp(b->i->opcode->name, "bar") == 0 || emu_has(b, "aligned") ? ALIGNED
									       : 0;
}

/*
 * Reports an aligned barrier that lanes of the warp have not executed, because they
 * have ended.  Hardware does not wait for them.  True if the launch continues.
 */
static bool has_all_lanes(struct emu_warp *w, const struct emu_instr *i,
			  bool is_aligned)
{
	return !is_aligned || w->live == w->begun ||
	       emu_object(w, i, -1,
			  "lanes %08x are here, and lanes %08x of this warp have "
			  "ended without this barrier",
			  w->live, w->begun & ~w->live);
}

/* The result of bar.red, in all lanes. */
static void put_reduced(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
			uint32_t yes, uint32_t no)
{
	const struct emu_value *to = &i->operand[i->operands - 1];
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = yes;
	if (i->option & POPC)
		emu_put_32(w, to, r, lanes);
	else if (i->option & REDUCES)
		emu_put_lanes(w, to,
			      (i->option & AND ? no == 0 : yes > 0) ? UINT32_MAX : 0,
			      lanes);
}

/* Counts the warp's lanes by their predicates. */
static void add_predicates(const struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes, struct emu_named_barrier *b)
{
	uint32_t yes;

	if (!(i->option & REDUCES))
		return;
	yes = emu_lanes_of(w, &i->operand[i->operands - 2]) & lanes;
	b->yes += (uint32_t)__builtin_popcount(yes);
	b->no += (uint32_t)__builtin_popcount(lanes & ~yes);
}

static void run_bar(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *number = emu_row(w, &i->operand[0]);
	const uint32_t lane = (uint32_t)__builtin_ctz(lanes);
	struct emu_named_barrier *b;
	uint32_t expected = EMU_ALL_LIVE;

	if (w->has_waited) {
		w->has_waited = false;
		emu_watch_leave(w, number[lane], true);
		put_reduced(w, i, lanes, w->yes, w->no);
		return;
	}
	if (i->option & HAS_COUNT)
		expected = ((const uint32_t *)emu_row(w, &i->operand[1]))[lane];
	if (number[lane] >= EMU_BARRIERS ||
	    (i->option & HAS_COUNT && (expected == 0 || expected % EMU_LANES ||
				       expected > w->cta->n_warps * EMU_LANES))) {
		emu_fault(w, i, -1,
			  "barrier %u of %u threads: barriers are 0 to 15, "
			  "threads a multiple of 32 and no more than the CTA "
			  "has (%u)",
			  number[lane], expected, w->cta->threads);
		return;
	}
	if (!has_all_lanes(w, i, i->option & ALIGNED))
		return;
	b = &w->cta->barriers[number[lane]];
	if (b->expected && b->expected != expected) {
		emu_fault(w, i, -1,
			  "barrier %u: warps that came before expect another "
			  "number of threads",
			  number[lane]);
		return;
	}
	b->expected = expected;
	b->arrived += EMU_LANES;
	add_predicates(w, i, lanes, b);
	emu_watch_join(w, number[lane], true);
	if (emu_barrier_is_full(w->cta, b)) {
		put_reduced(w, i, lanes, b->yes, b->no);
		emu_barrier_complete(w->cta, b);
		if (!(i->option & ARRIVES_ONLY))
			emu_watch_leave(w, number[lane], true);
		emu_machine_of(w)->effects++;
	} else if (!(i->option & ARRIVES_ONLY)) {
		b->waiting |= 1u << w->index;
		emu_wait_for(w, i, EMU_AT_BARRIER, number[lane]);
	}
}

bool emu_bind_bar(struct emu_bind *b)
{
	const bool arrives = emu_has(b, "arrive");

	if (emu_has(b, "sync") == arrives)
		return emu_bind_fail(b, "it needs .sync or .arrive, not both");
	if (!emu_arguments(b, arrives ? 2 : 1, 2))
		return false;
	for (uint32_t n = 0; n < b->s->n_arguments; n++)
		if (!emu_src(b, emu_argument(b, n), EMU_U32))
			return false;
	b->i->option = (arrives ? ARRIVES_ONLY : 0) |
		       (b->s->n_arguments > 1 ? HAS_COUNT : 0) | alignment_of(b);
	b->i->is_converged = true;
	b->i->run = run_bar;
	return true;
}

/* bar.red.op d, a[, b], c */
bool emu_bind_bar_red(struct emu_bind *b)
{
	static const char *const operations[] = {"popc", "and", "or"};
	const uint32_t last = b->s->n_arguments - 1;
	uint32_t operation = 0;

	if (!emu_has(b, "red") || !emu_has_one(b, operations, 3, &operation) ||
	    b->n_types != 1 || (b->types[0] == EMU_PRED) != (operation > 0))
		return emu_bind_fail(b, "it needs .popc.u32, .and.pred or "
					".or.pred");
	if (!emu_arguments(b, 3, 4))
		return false;
	for (uint32_t n = 1; n < last; n++)
		if (!emu_src(b, emu_argument(b, n), EMU_U32))
			return false;
	b->i->option =
	    (uint32_t)POPC << operation | (last > 2 ? HAS_COUNT : 0) | alignment_of(b);
	b->i->is_converged = true;
	b->i->run = run_bar;
	return emu_predicate(b, emu_argument(b, last)) &&
	       emu_dst(b, emu_argument(b, 0), operation ? 1 : 4);
}

/* ---- clusters ------------------------------------------------------------ */

enum { CLUSTER_ARRIVE, CLUSTER_WAIT, CLUSTER_ALIGNED = 2 };

static void run_cluster(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	struct emu_cluster *c = w->cta->cluster;

	(void)lanes;
	if (!has_all_lanes(w, i, i->option & CLUSTER_ALIGNED))
		return;
	if (!(i->option & CLUSTER_WAIT)) {
		if (w->has_arrived) {
			emu_fault(w, i, -1,
				  "a second arrive without a wait "
				  "between: each warp arrives once a "
				  "phase");
			return;
		}
		w->has_arrived = true;
		w->cluster_phase = c->barrier_phase;
		c->barrier_arrived++;
		emu_watch_join(w, EMU_CLUSTER_BARRIER, !i->vector);
		emu_machine_of(w)->effects++;
		emu_cluster_advance(c);
	} else if (!w->has_arrived) {
		emu_fault(w, i, -1,
			  "a wait without an arrive before it: a "
			  "warp waits for a phase at which it has "
			  "arrived");
	} else if (c->barrier_phase == w->cluster_phase) {
		emu_wait_for(w, i, EMU_AT_CLUSTER, 0);
	} else {
		w->has_arrived = false;
		emu_watch_leave(w, EMU_CLUSTER_BARRIER, true);
	}
}

bool emu_bind_barrier_cluster(struct emu_bind *b)
{
	const bool arrives = emu_has(b, "arrive");

	if (emu_has(b, "wait") == arrives ||
	    (arrives ? emu_has(b, "acquire") : emu_has(b, "release")))
		return emu_bind_fail(b, "it needs .arrive, with .release or "
					".relaxed, or .wait, with .acquire");
	b->i->option = (arrives ? CLUSTER_ARRIVE : CLUSTER_WAIT) |
		       (emu_has(b, "aligned") ? CLUSTER_ALIGNED : 0);
	b->i->vector = emu_has(b, "relaxed");
	/* No memory has to be waited for. */
	if (!arrives || b->i->vector)
		b->i->traits = EMU_NEAR_FENCE;
	b->i->is_converged = true;
	b->i->run = run_cluster;
	return emu_arguments(b, 0, 0);
}

/* ---- registers ----------------------------------------------------------- */

enum { REGISTERS_INC = 1 };

static void run_setmaxnreg(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	const uint32_t wanted = (uint32_t)i->immediate;
	const bool is_inc = i->option & REGISTERS_INC;

	(void)lanes;
	if (is_inc ? wanted < w->registers_each : wanted > w->registers_each) {
		emu_fault(w, i, -1, "from %u to %u registers: .%s wants %s",
			  w->registers_each, wanted, is_inc ? "inc" : "dec",
			  is_inc ? "more" : "fewer");
		return;
	}
	if (is_inc) {
		const uint32_t more = (wanted - w->registers_each) * EMU_LANES;

		if (more > w->cta->register_pool) {
			emu_wait_for(w, i, EMU_AT_REGISTERS, more);
			return;
		}
		w->cta->register_pool -= more;
	} else {
		w->cta->register_pool += (w->registers_each - wanted) * EMU_LANES;
		emu_wake(w->cta->cluster, EMU_AT_REGISTERS);
	}
	w->registers_each = wanted;
}

bool emu_bind_setmaxnreg(struct emu_bind *b)
{
	int64_t number;

	if (emu_has(b, "inc") == emu_has(b, "dec") || !emu_has(b, "sync") ||
	    !emu_has(b, "aligned"))
		return emu_bind_fail(b, "it needs .inc or .dec, and "
					".sync.aligned");
	if (!emu_arguments(b, 1, 1) ||
	    !emu_number(b, emu_argument(b, 0), 24, 256, &number))
		return false;
	if (number % 8)
		return emu_bind_fail(b,
				     "%lld registers: it must be a multiple "
				     "of 8",
				     (long long)number);
	b->i->immediate = number;
	b->i->option = emu_has(b, "inc") ? REGISTERS_INC : 0;
	b->i->is_converged = true;
	b->i->run = run_setmaxnreg;
	return true;
}

/* ---- grids --------------------------------------------------------------- */

static void run_grid_wait(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_grid *before = w->cta->cluster->grid->before;

	(void)lanes;
	if (before && before->ended < before->n_clusters)
		emu_wait_for(w, i, EMU_AT_GRID, before->id);
	else
		emu_watch_grids(w);
}

/* Counts CTAs that let the next grid begin.  A CTA that ends also counts. */
static void run_grid_launch(struct emu_warp *w, const struct emu_instr *i,
			    uint32_t lanes)
{
	(void)i;
	(void)lanes;
	if (!w->cta->has_triggered)
		w->cta->cluster->grid->triggered++;
	emu_time_trigger(w);
	w->cta->has_triggered = true;
}

bool emu_bind_griddepcontrol(struct emu_bind *b)
{
	if (emu_has(b, "wait") == emu_has(b, "launch_dependents"))
		return emu_bind_fail(b, "it needs .wait or .launch_dependents");
	b->i->run = emu_has(b, "wait") ? run_grid_wait : run_grid_launch;
	return emu_arguments(b, 0, 0);
}
