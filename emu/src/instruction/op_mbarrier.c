/* SPDX-License-Identifier: Apache-2.0 */
/* op_mbarrier.c - mbarrier.* for the lanes of a warp.  mbarrier.h has the state
 * machine. */
#include <string.h>

#include "hardware/mbarrier.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/barrier.h"
#include "machine/random.h"
#include "machine/transfer.h"
#include "machine/warp.h"
#include "machine/watch.h"

enum mbarrier_op {
	MBARRIER_INIT,
	MBARRIER_INVAL,
	MBARRIER_ARRIVE,
	MBARRIER_ARRIVE_EXPECT,
	MBARRIER_EXPECT,
	MBARRIER_TRY_WAIT,
	MBARRIER_TEST_WAIT,
};

static void report(struct emu_warp *w, const struct emu_instr *i, int lane,
		   enum emu_mbarrier_fault fault, uint64_t state)
{
	char text[200];

	emu_mbarrier_describe(state, text, sizeof(text));
	emu_fault(w, i, lane, "%s (%s)", emu_mbarrier_fault_text(fault), text);
}

/* ---- init and inval ------------------------------------------------------ */

static void run_init(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *count = emu_row(w, &i->operand[1]);
	uint64_t address[EMU_LANES];

	emu_addresses(w, i, &i->operand[0], address);
	EMU_EACH_LANE(l)
	{
		enum emu_mbarrier_fault fault;
		uint8_t *shadow;
		uint8_t *at;

		if (!(lanes >> l & 1))
			continue;
		at = emu_access(w, i, l, EMU_SHARED, address[l], 8, EMU_WRITE, &shadow);
		if (!at)
			return;
		fault = emu_mbarrier_init((uint64_t *)(void *)at, count[l]);
		if (fault) {
			report(w, i, l, fault, 0);
			return;
		}
		memset(shadow, EMU_MAPPED | EMU_WRITTEN | EMU_BARRIER, 8);
		if (!emu_watch_init(w, i, l, address[l]))
			return;
	}
	emu_machine_of(w)->effects++;
}

static void run_inval(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint64_t address[EMU_LANES];

	emu_addresses(w, i, &i->operand[0], address);
	EMU_EACH_LANE(l)
	{
		uint8_t *shadow;
		uint64_t *bar;

		if (!(lanes >> l & 1))
			continue;
		bar = emu_barrier_at(w, i, l, address[l]);
		if (!bar)
			return;
		(void)emu_mbarrier_invalidate(bar);
		(void)emu_access(w, i, l, EMU_SHARED, address[l], 8, EMU_PEEK, &shadow);
		memset(shadow, EMU_MAPPED, 8);
		emu_watch_inval(w, address[l]);
	}
}

/* Expects bytes.  This ends the phase if they have already arrived. */
static bool expect(struct emu_warp *w, const struct emu_instr *i, int lane,
		   uint64_t address, uint64_t *bar, uint32_t bytes)
{
	const bool before = emu_mbarrier_test_parity(*bar, 0);
	const enum emu_mbarrier_fault fault = emu_mbarrier_expect_tx(bar, bytes);

	if (fault) {
		report(w, i, lane, fault, *bar);
		return false;
	}
	if (emu_mbarrier_test_parity(*bar, 0) != before) {
		emu_watch_phase(w->cta->cluster, address);
		emu_wake_at(w->cta->cluster, address);
	}
	return true;
}

/* How run_arrive finds its operands: address, number, state. */
enum { HAS_NUMBER = 1, HAS_STATE = 2 };

/* ---- arrive -------------------------------------------------------------- */

static void run_arrive(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const bool expects = i->option != MBARRIER_ARRIVE;
	const struct emu_value *o = i->operand;
	const bool has_number = i->offset[0] & HAS_NUMBER;
	const uint32_t *number = emu_row(w, &o[has_number]);
	uint64_t address[EMU_LANES], told = UINT64_MAX;
	uint64_t states[EMU_LANES] = {0};

	emu_addresses(w, i, &o[0], address);
	EMU_EACH_LANE(l)
	{
		uint64_t *bar;

		if (!(lanes >> l & 1))
			continue;
		bar = emu_barrier_at(w, i, l, address[l]);
		if (!bar)
			return;
		/* The parity of the phase that the arrival belongs to. */
		states[l] = emu_mbarrier_test_parity(*bar, 0);
		if (expects && !expect(w, i, l, address[l], bar, number[l]))
			return;
		/* The checker orders warps, so each address is reported once. */
		if (i->option != MBARRIER_EXPECT && address[l] != told &&
		    !emu_watch_arrive(w, i, l, address[l], (enum emu_scope)i->vector))
			return;
		told = address[l];
		if (i->option != MBARRIER_EXPECT &&
		    !emu_arrive_at(w, i, l, address[l],
				   !expects && has_number ? number[l] : 1, 0))
			return;
	}
	if (i->offset[0] & HAS_STATE)
		emu_put_64(w, &o[i->operands - 1], states, lanes);
	if (i->option != MBARRIER_EXPECT && i->vector != EMU_SCOPE_NONE)
		emu_watch_lanes_release(w, lanes);
	emu_machine_of(w)->effects++;
}

/* complete_tx: counts bytes as a completed copy does; relaxed. */
static void run_complete(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *bytes = emu_row(w, &i->operand[1]);
	uint64_t address[EMU_LANES];

	emu_addresses(w, i, &i->operand[0], address);
	EMU_EACH_LANE(l)
	{
		if (!(lanes >> l & 1))
			continue;
		if (!emu_barrier_at(w, i, l, address[l]) ||
		    !emu_watch_arrive(w, i, l, address[l], EMU_SCOPE_NONE))
			return;
		if (bytes[l] && !emu_arrive_at(w, i, l, address[l], 0, bytes[l]))
			return;
	}
}

/* ---- waits --------------------------------------------------------------- */

/*
 * One in 8 waits that could succeed returns false, as PTX allows at any time.
 */
static bool is_false_alarm(struct emu_machine *m)
{
	return m->options.seed && emu_random_below(m, 8) == 0;
}

/*
 * The hardware reads the last bit of a parity.  Triton's kernels for Hopper pass -1,
 * the sign of a counter.
 */
static void accept_minus_one(const struct emu_warp *w, uint64_t *parity)
{
	EMU_EACH_LANE(l)
	if (parity[l] == UINT32_MAX && !emu_machine_of(w)->options.is_anywhere)
		parity[l] = 1;
}

static void run_wait(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint64_t parity[EMU_LANES];
	const bool doubts =
	    i->option == MBARRIER_TRY_WAIT && is_false_alarm(emu_machine_of(w));
	uint64_t address[EMU_LANES], told = UINT64_MAX;
	uint32_t done = 0;
	int undone = -1;

	emu_get_wide(w, &i->operand[2], parity);
	accept_minus_one(w, parity);
	emu_addresses(w, i, &i->operand[1], address);
	EMU_EACH_LANE(l)
	{
		const uint64_t *bar;

		if (!(lanes >> l & 1))
			continue;
		bar = emu_barrier_at(w, i, l, address[l]);
		if (!bar)
			return;
		if (parity[l] > 1) {
			emu_fault(w, i, l,
				  "parity %llu: 0 or 1 is the parity of "
				  "a phase",
				  (unsigned long long)parity[l]);
			return;
		}
		if (!emu_mbarrier_test_parity(*bar, (uint32_t)parity[l]) || doubts) {
			undone = l;
			continue;
		}
		done |= 1u << l;
		if (address[l] != told &&
		    !emu_watch_wait(w, i, l, address[l], (enum emu_scope)i->vector))
			return;
		told = address[l];
	}
	if (done && i->vector != EMU_SCOPE_NONE)
		emu_watch_lanes_acquire(w, done);
	emu_put_lanes(w, &i->operand[0], done, lanes);
	if (doubts)
		w->must_yield = true;
	else if (undone >= 0 && i->option == MBARRIER_TRY_WAIT)
		emu_sleep_at(w, address[undone], (uint32_t)parity[undone]);
	else if (undone >= 0)
		emu_yield(w);
}

/* ---- binding ------------------------------------------------------------- */

/* The defaults are .release.cta and .acquire.cta. */
static uint8_t scope_of(const struct emu_bind *b)
{
	if (emu_has(b, "relaxed"))
		return EMU_SCOPE_NONE;
	return emu_has(b, "cluster") ? EMU_SCOPE_CLUSTER : EMU_SCOPE_CTA;
}

static bool bind_arrive(struct emu_bind *b, bool is_expect)
{
	const struct emu_argument *d = emu_argument(b, 0);
	const bool has_tx = emu_has(b, "expect_tx") || is_expect;
	const uint32_t first = is_expect ? 0 : 1;

	b->i->option = is_expect ? MBARRIER_EXPECT
		       : has_tx	 ? MBARRIER_ARRIVE_EXPECT
				 : MBARRIER_ARRIVE;
	b->i->vector = scope_of(b);
	b->i->run = run_arrive;
	if (!emu_arguments(b, first + (has_tx ? 2 : 1), first + 2))
		return false;
	if (emu_has(b, "noComplete"))
		return emu_bind_fail(b, ".noComplete is not known here");
	if (!emu_address(b, emu_argument(b, first)))
		return false;
	if (b->s->n_arguments > first + 1) {
		/* Without .noComplete. */
		if (!emu_bind_needs(b, "90", "a count of arrivals"))
			return false;
		b->i->offset[0] |= HAS_NUMBER;
		if (!emu_src(b, emu_argument(b, first + 1), EMU_U32))
			return false;
	}
	if (is_expect || d->kind == EMU_ARG_SINK)
		return true;
	b->i->offset[0] |= HAS_STATE;
	return emu_dst(b, d, 8);
}

static bool bind_wait(struct emu_bind *b, enum mbarrier_op op)
{
	b->i->option = op;
	b->i->vector = scope_of(b);
	b->i->run = run_wait;
	/* The fourth argument, a time limit, has no effect. */
	return emu_arguments(b, 3, 4) && emu_dst(b, emu_argument(b, 0), 1) &&
	       emu_address(b, emu_argument(b, 1)) &&
	       emu_src(b, emu_argument(b, 2), emu_has(b, "parity") ? EMU_U32 : EMU_B64);
}

bool emu_bind_mbarrier_arrive(struct emu_bind *b)
{
	return bind_arrive(b, false);
}

bool emu_bind_mbarrier_expect(struct emu_bind *b)
{
	return bind_arrive(b, true);
}

bool emu_bind_mbarrier_try_wait(struct emu_bind *b)
{
	return bind_wait(b, MBARRIER_TRY_WAIT);
}

bool emu_bind_mbarrier_test_wait(struct emu_bind *b)
{
	return bind_wait(b, MBARRIER_TEST_WAIT);
}

bool emu_bind_mbarrier_inval(struct emu_bind *b)
{
	b->i->run = run_inval;
	return emu_arguments(b, 1, 1) && emu_address(b, emu_argument(b, 0));
}

/* Binds a barrier and a number. */
static bool bind_number(struct emu_bind *b, emu_run *run)
{
	b->i->run = run;
	return emu_arguments(b, 2, 2) && emu_address(b, emu_argument(b, 0)) &&
	       emu_src(b, emu_argument(b, 1), EMU_U32);
}

bool emu_bind_mbarrier_init(struct emu_bind *b)
{
	return bind_number(b, run_init);
}

bool emu_bind_mbarrier_complete(struct emu_bind *b)
{
	return bind_number(b, run_complete);
}
