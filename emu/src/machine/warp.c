/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warp.c - how a warp goes from instruction to instruction.
 *
 * Lanes that have the same next instruction form a path. The path with the
 * smallest pc runs, and paths at the same pc merge: compilers place the
 * instruction at which lanes reconverge after the branches, so lanes that leave
 * a loop early wait for the others. A path that reaches an instruction which
 * needs lanes of other paths is blocked there. A path that polls without
 * success yields to the others.
 */
#include "machine/warp.h"

#include <stdio.h>
#include <string.h>

#include "machine/async.h"
#include "machine/barrier.h"
#include "machine/tensor_move.h"
#include "machine/time.h"
#include "machine/wgmma_queue.h"

/* Instructions after which a path yields to another one of the warp. */
#define PATH_INSTRUCTIONS 4096

/* ---- paths --------------------------------------------------------------- */

static void remove_path(struct emu_warp *w, uint32_t index)
{
	w->paths[index] = w->paths[--w->n_paths];
}

static void add_path(struct emu_warp *w, uint32_t pc, uint32_t lanes)
{
	struct emu_path *p;

	for (uint32_t k = 0; k < w->n_paths; k++)
		if (w->paths[k].pc == pc) {
			p = &w->paths[k];
			p->lanes |= lanes;
			p->is_blocked = p->has_yielded = false;
			return;
		}
	p = &w->paths[w->n_paths++];
	*p = (struct emu_path){.pc = pc, .lanes = lanes};
}

/* Sets next_pc: when the running path reaches it, it must merge with another path or
 * switch to it. */
static void find_next_pc(struct emu_warp *w)
{
	w->next_pc = EMU_NO_PC;
	for (uint32_t k = 0; k < w->n_paths; k++) {
		const struct emu_path *p = &w->paths[k];

		if (p->is_blocked || p->has_yielded ? p->pc >= w->pc : true)
			w->next_pc = p->pc < w->next_pc ? p->pc : w->next_pc;
	}
}

/* The path to run: those that have not yielded first, then the smallest pc. */
static int best_path(const struct emu_warp *w)
{
	int best = -1;

	for (uint32_t k = 0; k < w->n_paths; k++) {
		const struct emu_path *p = &w->paths[k];
		const struct emu_path *b = best < 0 ? NULL : &w->paths[best];

		if (p->is_blocked)
			continue;
		if (!b || (b->has_yielded && !p->has_yielded) ||
		    (b->has_yielded == p->has_yielded && p->pc < b->pc))
			best = (int)k;
	}
	return best;
}

/* Switches to the best of the waiting paths; false if all are blocked. */
static bool switch_path(struct emu_warp *w)
{
	const int best = best_path(w);

	if (best < 0)
		return false;
	w->pc = w->paths[best].pc;
	w->lanes = w->paths[best].lanes;
	remove_path(w, (uint32_t)best);
	find_next_pc(w);
	return true;
}

/* Merges with a path at the same pc, or switches to one with a smaller pc. */
static void merge_or_switch(struct emu_warp *w)
{
	add_path(w, w->pc, w->lanes);
	w->lanes = 0;
	(void)switch_path(w);
}

static void yield_path(struct emu_warp *w)
{
	bool all_yielded = true;

	add_path(w, w->pc, w->lanes);
	for (uint32_t k = 0; k < w->n_paths; k++)
		if (w->paths[k].pc == w->pc)
			w->paths[k].has_yielded = true;
	for (uint32_t k = 0; k < w->n_paths; k++)
		all_yielded =
		    all_yielded && (w->paths[k].has_yielded || w->paths[k].is_blocked);
	(void)switch_path(w);
	if (all_yielded) {
		for (uint32_t k = 0; k < w->n_paths; k++)
			w->paths[k].has_yielded = false;
		find_next_pc(w);
		w->must_yield = true;
	}
}

static bool others_can_run(const struct emu_warp *w)
{
	for (uint32_t k = 0; k < w->n_paths; k++)
		if (!w->paths[k].is_blocked)
			return true;
	return false;
}

void emu_branch(struct emu_warp *w, uint32_t target, uint32_t lanes)
{
	if (lanes == w->lanes) {
		w->pc = target;
	} else {
		add_path(w, target, lanes);
		w->lanes &= ~lanes;
	}
	if (w->n_paths)
		find_next_pc(w);
}

void emu_exit_lanes(struct emu_warp *w, uint32_t lanes)
{
	w->live &= ~lanes;
	w->lanes &= ~lanes;
	/* A blocked path may have waited for lanes that have now exited. */
	for (uint32_t k = 0; k < w->n_paths; k++)
		w->paths[k].is_blocked = false;
	if (w->lanes) {
		if (w->n_paths)
			find_next_pc(w);
		return;
	}
	if (switch_path(w))
		return;
	w->wait = EMU_EXITED;
	w->must_yield = true;
	emu_warp_has_ended(w);
}

/* ---- waiting ------------------------------------------------------------- */

void emu_wait_for(struct emu_warp *w, const struct emu_instr *i, enum emu_wait wait,
		  uint64_t address)
{
	w->pc = (uint32_t)(i - w->code);
	w->wait = wait;
	w->wait_address = address;
	w->must_yield = true;
}

void emu_sleep_at(struct emu_warp *w, uint64_t barrier, uint32_t parity)
{
	if (others_can_run(w)) {
		yield_path(w);
		return;
	}
	w->wait = EMU_AT_MBARRIER;
	w->wait_address = barrier;
	w->wait_parity = parity;
	w->must_yield = true;
}

void emu_yield(struct emu_warp *w)
{
	w->has_polled = true;
	if (others_can_run(w))
		yield_path(w);
	else
		w->must_yield = true;
}

static void report_divergence(struct emu_warp *w, const struct emu_instr *i,
			      uint32_t lanes)
{
	char others[400] = "", place[200];
	size_t used = 0;

	for (uint32_t k = 0; k < w->n_paths; k++) {
		int n;

		if (used + 60 > sizeof(others))
			break;
		emu_describe_place(w, &w->code[w->paths[k].pc], place, sizeof(place));
		n = snprintf(others + used, sizeof(others) - used,
			     "%s lanes %08x at %s", used ? ";" : "", w->paths[k].lanes,
			     place);
		used += n > 0 ? (size_t)n : 0;
	}
	emu_fault(w, i, -1, "lanes %08x are here, and it needs lanes %08x together:%s",
		  w->lanes, lanes, others);
}

bool emu_converge(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t pc = (uint32_t)(i - w->code);

	lanes &= w->live;
	if ((w->lanes & lanes) == lanes)
		return true;
	if (!others_can_run(w)) {
		report_divergence(w, i, lanes);
		return false;
	}
	add_path(w, pc, w->lanes);
	for (uint32_t k = 0; k < w->n_paths; k++)
		if (w->paths[k].pc == pc)
			w->paths[k].is_blocked = true;
	if (!switch_path(w))
		report_divergence(w, i, lanes);
	return false;
}

/* ---- the loop ------------------------------------------------------------ */

/* The lanes of the path for which the instruction's predicate is true. */
static uint32_t guarded(const struct emu_warp *w, const struct emu_instr *i)
{
	uint32_t lanes;

	if (i->guard_reg == EMU_NO_REGISTER)
		return w->lanes;
	lanes = *(const uint32_t *)(w->bank[0] + i->guard_row);
	return w->lanes & (i->guard_is_negated ? ~lanes : lanes);
}

/* True if the path has all live lanes and the predicate excludes none. */
static bool is_whole(struct emu_warp *w, const struct emu_instr *i)
{
	const uint32_t lanes = guarded(w, i);

	if (lanes == 0)
		return true;
	if (!emu_converge(w, i, w->live))
		return false;
	if (guarded(w, i) == w->live)
		return true;
	emu_fault(w, i, -1, "lanes %08x of %08x: it needs all of the warp",
		  guarded(w, i), w->live);
	return false;
}

/*
 * False, after a fault, if the instruction accesses registers that an asynchronous
 * instruction still uses.
 */
static bool can_touch(struct emu_warp *w, const struct emu_instr *i)
{
	if (w->async->wgmma && !emu_wgmma_check(w, i))
		return false;
	return !w->async->tmem || emu_tmem_check_registers(w, i);
}

/* An instruction uses an issue slot even if its predicate is false in all lanes. */
static void run_timed(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	emu_time_issue(w, i);
	if (lanes)
		i->run(w, i, lanes);
	emu_time_retire(w, i);
}

void emu_warp_run(struct emu_warp *w, uint32_t most)
{
	const bool is_parallel = emu_machine_of(w)->reads;
	uint64_t done = 0;

	w->must_yield = w->has_polled = false;
	for (uint32_t n = 0; n < most && !w->must_yield; n++) {
		const struct emu_instr *i;
		uint32_t lanes;

		if (w->pc >= w->next_pc)
			merge_or_switch(w);
		if (w->n_paths && n % PATH_INSTRUCTIONS == PATH_INSTRUCTIONS - 1 &&
		    others_can_run(w)) {
			yield_path(w);
			continue;
		}
		i = &w->code[w->pc];
		if (i->is_cross_cluster && is_parallel && guarded(w, i)) {
			w->wait = EMU_AT_SERIAL_PHASE;
			break;
		}
		emu_machine_of(w)->clock++;
		if (i->is_converged && !is_whole(w, i))
			continue;
		if (w->in_flight && !can_touch(w, i))
			break;
		if (w->clock && !emu_time_is_due(w, i)) {
			if (w->now > w->until)
				break;
			continue;
		}
		lanes = guarded(w, i);
		w->pc++;
		done += w->lanes == UINT32_MAX ? EMU_LANES
					       : (uint32_t)__builtin_popcount(w->lanes);
		if (w->clock) {
			run_timed(w, i, lanes);
			if (w->now > w->until)
				break;
		} else if (lanes)
			i->run(w, i, lanes);
	}
	w->instructions += done;
	emu_machine_of(w)->instructions += done;
}
