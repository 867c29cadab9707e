/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_launch_control.c - clusterlaunchcontrol, by which a cluster takes over the work
 * of one that has not begun, and the 128-bit moves for its answer.
 */
#include <string.h>

#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/random.h"
#include "machine/transfer.h"
#include "machine/warp.h"
#include "machine/watch.h"

#define ANSWER_BYTES 16

enum { TO_ALL = 1 };

/* The answer: whether a cluster was taken over, and the ctaid of its first CTA. */
struct answer {
	uint32_t id[3], is_canceled;
};

/* ---- try_cancel ---------------------------------------------------------- */

/* Takes over a cluster that has not begun.  Sometimes fails without a reason. */
static struct answer cancel(struct emu_warp *w)
{
	struct emu_machine *m = emu_machine_of(w);
	struct emu_grid *g = w->cta->cluster->grid;
	const uint32_t nx = g->grid[0] / g->cluster[0];
	const uint32_t ny = g->grid[1] / g->cluster[1];
	struct answer a = {{0, 0, 0}, 0};

	if (g->begun == g->n_clusters ||
	    (m->options.seed && emu_random_below(m, 16) == 0))
		return a;
	a.id[0] = g->begun % nx * g->cluster[0];
	a.id[1] = g->begun / nx % ny * g->cluster[1];
	a.id[2] = g->begun / nx / ny * g->cluster[2];
	a.is_canceled = 1;
	g->begun++;
	g->ended++;
	g->triggered += w->cta->cluster->n_ctas;
	m->effects++;
	return a;
}

static bool send(struct emu_warp *w, const struct emu_instr *i, int lane,
		 const struct answer *a, uint64_t to, uint64_t barrier)
{
	struct emu_piece p = {
	    .bytes = ANSWER_BYTES, .copied = ANSWER_BYTES, .lane = (uint8_t)lane};
	struct emu_transfer *t;

	if (!emu_barrier_at(w, i, lane, barrier) ||
	    !emu_watch_load(w, i, lane, to, ANSWER_BYTES, barrier))
		return false;
	p.to = emu_access(w, i, lane, EMU_SHARED_CLUSTER, to, ANSWER_BYTES, EMU_COPY,
			  &p.to_shadow);
	t = p.to ? emu_transfer_new(w, i, EMU_BULK_LOAD) : NULL;
	if (!t)
		return false;
	t->barrier = barrier;
	t->tx_bytes = ANSWER_BYTES;
	return emu_transfer_send(t, a, &p);
}

static void run_try_cancel(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	const struct emu_cluster *c = w->cta->cluster;
	const uint64_t low = (UINT64_C(1) << EMU_RANK_SHIFT) - 1;
	uint64_t to[EMU_LANES], barrier[EMU_LANES];

	emu_offset_addresses(w, &i->operand[0], i->immediate, to);
	emu_offset_addresses(w, &i->operand[1], i->offset[0], barrier);
	EMU_EACH_LANE(l)
	{
		struct answer a;

		if (!(lanes >> l & 1))
			continue;
		to[l] &= ~EMU_SHARED_WINDOW;
		barrier[l] &= ~EMU_SHARED_WINDOW;
		if ((to[l] | barrier[l]) >> EMU_RANK_SHIFT != w->cta->rank ||
		    to[l] % ANSWER_BYTES) {
			emu_fault(w, i, l,
				  "the answer's 16 bytes and the mbarrier must "
				  "be the CTA's own, the bytes aligned to 16");
			return;
		}
		a = cancel(w);
		if (!(i->option & TO_ALL)) {
			(void)send(w, i, l, &a, to[l], barrier[l]);
			continue;
		}
		for (uint64_t rank = 0; rank < c->n_ctas; rank++)
			if (!send(w, i, l, &a, (to[l] & low) | rank << EMU_RANK_SHIFT,
				  (barrier[l] & low) | rank << EMU_RANK_SHIFT))
				return;
	}
}

bool emu_bind_try_cancel(struct emu_bind *b)
{
	if (!emu_has(b, "async") || !emu_has(b, "mbarrier::complete_tx::bytes") ||
	    b->n_types != 1)
		return emu_bind_fail(b, ".async, "
					".mbarrier::complete_tx::bytes, .b128");
	b->i->option = emu_has(b, "multicast::cluster::all") ? TO_ALL : 0;
	b->i->traits = EMU_TAKES_CLUSTER;
	b->i->run = run_try_cancel;
	return emu_arguments(b, 2, 2) && emu_address(b, emu_argument(b, 0)) &&
	       emu_address(b, emu_argument(b, 1));
}

/* ---- query_cancel -------------------------------------------------------- */

static struct answer answer_of(const struct emu_warp *w, const struct emu_value *v,
			       int lane)
{
	struct answer a;

	memcpy(&a, (const uint8_t *)emu_row(w, v) + ANSWER_BYTES * lane, sizeof(a));
	return a;
}

static void run_is_canceled(struct emu_warp *w, const struct emu_instr *i,
			    uint32_t lanes)
{
	uint32_t is = 0;

	EMU_EACH_LANE(l)
	is |= (uint32_t)(answer_of(w, &i->operand[1], l).is_canceled != 0) << l;
	emu_put_lanes(w, &i->operand[0], is, lanes);
}

/* option: the dimension, or 3: all, in vector elements. */
static void run_first_ctaid(struct emu_warp *w, const struct emu_instr *i,
			    uint32_t lanes)
{
	const uint32_t count = i->option == 3 ? 4 : 1;
	const struct emu_value *from = &i->operand[count];
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l)
	if (lanes >> l & 1 && !answer_of(w, from, l).is_canceled) {
		emu_fault(w, i, l,
			  "no cluster was canceled, so the answer has no "
			  "ctaid: ask .is_canceled first");
		return;
	}
	for (uint32_t k = 0; k < count; k++) {
		const uint32_t which = i->option == 3 ? k : i->option;

		EMU_EACH_LANE(l)
		r[l] = which < 3 ? answer_of(w, from, l).id[which] : 0;
		emu_put_32(w, &i->operand[k], r, lanes);
	}
}

bool emu_bind_query_cancel(struct emu_bind *b)
{
	static const char *const words[] = {"get_first_ctaid::x", "get_first_ctaid::y",
					    "get_first_ctaid::z", "get_first_ctaid",
					    "is_canceled"};
	const struct emu_argument *d = emu_argument(b, 0);
	uint32_t which = 0, n;

	if (!emu_has_one(b, words, 5, &which) || emu_has(b, "v4") != (which == 3) ||
	    b->n_types != 2 || b->types[0] != (which == 4 ? EMU_PRED : EMU_B32) ||
	    b->types[1] != EMU_B128)
		return emu_bind_fail(b, ".is_canceled.pred.b128, "
					".get_first_ctaid.v4.b32.b128 or "
					".get_first_ctaid::x.b32.b128");
	if (!emu_arguments(b, 2, 2))
		return false;
	b->i->option = which;
	b->i->run = which == 4 ? run_is_canceled : run_first_ctaid;
	d = emu_elements(b, d, &n);
	if (n != (which == 3 ? 4u : 1u))
		return emu_bind_fail(b,
				     "%u results: .v4 has four, the others "
				     "have one",
				     n);
	for (uint32_t k = 0; k < n; k++)
		if (!emu_dst(b, &d[k], which == 4 ? 1 : 4))
			return false;
	return emu_src(b, emu_argument(b, 1), EMU_B128);
}

/* ---- registers of 128 bits ----------------------------------------------- */

static void run_ld_128(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint8_t *to = emu_row(w, &i->operand[0]);
	uint64_t address[EMU_LANES];

	emu_addresses(w, i, &i->operand[1], address);
	EMU_EACH_LANE(l)
	{
		const uint8_t *from;

		if (!(lanes >> l & 1))
			continue;
		from = emu_access(w, i, l, (enum emu_state_space)i->space, address[l],
				  16, EMU_READ, NULL);
		if (!from)
			return;
		memcpy(to + 16 * l, from, 16);
	}
}

bool emu_bind_ld_128(struct emu_bind *b)
{
	const struct emu_argument *d = emu_argument(b, 0);

	b->i->space = (uint8_t)emu_space_of(b);
	b->i->run = run_ld_128;
	if (!emu_arguments(b, 2, 2))
		return false;
	if (d->kind != EMU_ARG_REGISTER)
		return emu_bind_fail(b, "a result that is no register");
	return emu_dst(b, d, 16) && emu_address(b, emu_argument(b, 1));
}

/* Moves two 64-bit halves to a register, a register to halves, or to a register. */
static void run_mov_128(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t results = i->operand[0].bytes == 16 ? 1 : 2;
	const uint32_t sources = i->operands - results;

	EMU_EACH_LANE(l)
	{
		uint8_t value[16];

		if (!(lanes >> l & 1))
			continue;
		for (uint32_t k = 0; k < sources; k++)
			memcpy(value + 16 / sources * k,
			       (uint8_t *)emu_row(w, &i->operand[results + k]) +
				   16 / sources * (uint32_t)l,
			       16 / sources);
		for (uint32_t k = 0; k < results; k++)
			memcpy((uint8_t *)emu_row(w, &i->operand[k]) +
				   16 / results * (uint32_t)l,
			       value + 16 / results * k, 16 / results);
	}
}

bool emu_bind_mov_128(struct emu_bind *b)
{
	for (uint32_t n = 0; n < 2; n++) {
		uint32_t count;
		const struct emu_argument *e;

		if (!emu_arguments(b, 2, 2))
			return false;
		e = emu_elements(b, emu_argument(b, n), &count);
		if (count > 2)
			return emu_bind_fail(b, "%u parts, not two of 64 bits", count);
		for (uint32_t k = 0; k < count; k++) {
			if (n == 0 && e[k].kind != EMU_ARG_REGISTER)
				return emu_bind_fail(b, "a result that is no "
							"register");
			if (n == 0
				? !emu_dst(b, &e[k], count == 2 ? 8 : 16)
				: !emu_src(b, &e[k], count == 2 ? EMU_B64 : EMU_B128))
				return false;
		}
	}
	b->i->run = run_mov_128;
	return true;
}
