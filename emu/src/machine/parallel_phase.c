/* SPDX-License-Identifier: Apache-2.0 */
/* parallel_phase.c - see parallel_phase.h. */
#include "machine/parallel_phase.h"

#include <stdlib.h>

#include "check/order.h"
#include "machine/random.h"
#include "machine/traffic.h"
#include "machine/warp.h"

/* Lanes' reads up to which waking other threads costs more than it saves. */
#define FEW_READS 500

/* ---- a cluster's context ------------------------------------------------- */

/* The cluster's grid and machine in a parallel phase. */
struct emu_cluster_context {
	struct emu_grid grid;
	struct emu_machine machine;
	struct emu_order_reads reads;
	struct emu_traffic traffic;
};

bool emu_cluster_context_open(struct emu_cluster *c, uint64_t stream)
{
	struct emu_cluster_context *x = calloc(1, sizeof(*x));

	if (!x)
		return false;
	x->grid = *c->grid;
	x->machine = *c->grid->machine;
	x->grid.machine = &x->machine;
	x->grid.traffic = c->grid->traffic ? &x->traffic : NULL;
	x->grid.triggered = 0;
	x->machine.reads = &x->reads;
	x->machine.blocks = NULL;
	emu_random_begin(&x->machine, stream);
	c->context = x;
	return true;
}

void emu_cluster_context_close(struct emu_cluster *c)
{
	if (!c->context)
		return;
	if (c->grid->traffic)
		emu_traffic_add(c->grid->traffic, &c->context->traffic);
	free(c->context->reads.list);
	free(c->context);
	c->context = NULL;
}

static void prepare(struct emu_cluster_context *x, const struct emu_machine *m)
{
	x->machine.order = m->order;
	x->machine.clock = m->clock;
	x->machine.effects = x->machine.instructions = 0;
}

/* Adds what the turn has counted. */
static void take(struct emu_machine *m, const struct emu_turn *t, uint64_t clock_before)
{
	struct emu_cluster_context *x = t->cluster->context;
	const struct emu_machine *from = &x->machine;

	m->effects += from->effects;
	m->instructions += from->instructions;
	m->clock += from->clock - clock_before;
	t->cluster->grid->triggered += x->grid.triggered;
	x->grid.triggered = 0;
	if (!from->has_failed || m->has_failed)
		return;
	m->has_failed = true;
	m->report = from->report;
	m->report_rule = from->report_rule;
	m->report_kernel = from->report_kernel;
}

/* ---- a turn -------------------------------------------------------------- */

/* A warp that can run, searched from the one after w. */
static struct emu_warp *next_warp(struct emu_cluster *c, const struct emu_warp *w)
{
	const uint32_t each = c->ctas[0].n_warps;
	const uint32_t at = w->cta->rank * each + w->index;

	for (uint32_t n = 1; n <= c->n_ctas * each; n++) {
		const uint32_t number = (at + n) % (c->n_ctas * each);
		struct emu_warp *next = &c->ctas[number / each].warps[number % each];

		if (next->wait == EMU_RUNNABLE)
			return next;
	}
	return NULL;
}

static void run_turn(struct emu_turn *t)
{
	struct emu_cluster *c = t->cluster;
	struct emu_grid *grid = c->grid;
	struct emu_warp *w = t->warp;

	c->grid = &c->context->grid;
	for (uint32_t n = 0; w && n < t->most; n++) {
		emu_warp_run(w, t->length);
		if (w->wait != EMU_AT_SERIAL_PHASE && !w->has_polled)
			t->has_computed = true;
		w = c->context->machine.has_failed ? NULL : next_warp(c, w);
	}
	c->grid = grid;
}

/* ---- the phase ----------------------------------------------------------- */

struct phase {
	struct emu_turn *turns;
	uint32_t count;
	struct emu_order *order;
	uint32_t n_shares; /* of the tables of reads */
};

static void run_task(void *context, uint32_t number)
{
	const struct phase *p = context;

	run_turn(&p->turns[number]);
}

/* Records the reads of the turns in one thread's share of the tables. */
static void add_task(void *context, uint32_t number)
{
	const struct phase *p = context;

	for (uint32_t k = 0; k < p->count; k++)
		emu_order_add(p->order, &p->turns[k].cluster->context->reads, number,
			      p->n_shares);
}

void emu_parallel_phase_run(struct emu_thread_pool *pool, struct emu_machine *m,
			    struct emu_turn *turns, uint32_t count)
{
	struct phase phase = {
	    .turns = turns, .count = count, .order = m->order, .n_shares = 1};
	const uint64_t clock = m->clock;
	size_t reads = 0;

	for (uint32_t k = 0; k < count; k++)
		prepare(turns[k].cluster->context, m);
	emu_thread_pool_run(pool, count, run_task, &phase);
	for (uint32_t k = 0; k < count; k++) {
		take(m, &turns[k], clock);
		reads += turns[k].cluster->context->reads.lanes;
	}
	if (reads) {
		if (reads > FEW_READS)
			phase.n_shares = emu_thread_pool_threads(pool);
		emu_thread_pool_run(pool, phase.n_shares, add_task, &phase);
	}
	for (uint32_t k = 0; k < count; k++) {
		struct emu_order_reads *r = &turns[k].cluster->context->reads;

		r->count = r->lanes = 0;
	}
}
