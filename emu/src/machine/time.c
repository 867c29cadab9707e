/* SPDX-License-Identifier: Apache-2.0 */
/* time.c - clocks of warps: costs of instructions, times of barriers. */
#include "machine/time.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "machine/time_costs.h"
#include "machine/time_state.h"
#include "machine/time_trace.h"
#include "ptx/bind.h"

static const struct emu_time_table h200 = {
#define EMU_TIME(name, value, unit, sure, source) .name = (value),
#include "machine/time_h200.def"
#undef EMU_TIME
};

static const struct emu_time_table b200 = {
#define EMU_TIME(name, value, unit, sure, source) .name = (value),
#include "machine/time_b200.def"
#undef EMU_TIME
};

static void set_h100(struct emu_time_table *table)
{
	*table = h200;
#define EMU_TIME(name, value, unit, sure, source) table->name = (value);
#include "machine/time_h100.def"
#undef EMU_TIME
}

/* False: the device has no table. */
static bool set_table(struct emu_time_table *table, const struct emu_device *d)
{
	if (!strcmp(d->name, "h100"))
		set_h100(table);
	else if (!strcmp(d->name, "h200"))
		*table = h200;
	else if (!strcmp(d->name, "b200"))
		*table = b200;
	else
		return false;
	return true;
}

#define SM_SHARED_BYTES (228u << 10)
#define SM_THREADS	2048u
#define SM_REGISTERS	65536u

/* ---- a machine's time ---------------------------------------------------- */

struct emu_time *emu_time_open(const struct emu_device *device, struct emu_error *err)
{
	const struct emu_device *d = emu_device_or_default(device);
	struct emu_time_table table;
	struct emu_time *t;

	if (!set_table(&table, d)) {
		(void)emu_fail(err,
			       "NIBEMU_TIME: there is no table of times for "
			       "%s: only h200, h100 and b200 have one",
			       d->name);
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (t) {
		t->table = table;
		t->n_sms = d->sms;
		t->n_sets = (uint32_t)d->l2_bytes / 128 / EMU_L2_WAYS;
		t->sms = calloc(t->n_sms, sizeof(*t->sms));
		t->lines = calloc((size_t)t->n_sets * EMU_L2_WAYS, sizeof(*t->lines));
	}
	if (t && t->sms && t->lines)
		return t;
	emu_time_close(t);
	(void)emu_fail(err, "NIBEMU_TIME: no memory");
	return NULL;
}

bool emu_time_use_counts(struct emu_time *t, const char *path, struct emu_error *err)
{
	emu_time_costs_free(t->costs);
	t->costs = emu_time_costs_read(path, err);
	return t->costs != NULL;
}

bool emu_time_use_trace(struct emu_time *t, const char *path, const char *sms,
			struct emu_error *err)
{
	t->trace = emu_trace_open(path, sms, t->table.clock_ghz, err);
	return t->trace != NULL;
}

void emu_time_close(struct emu_time *t)
{
	if (!t)
		return;
	emu_time_costs_free(t->costs);
	emu_trace_close(t->trace);
	free(t->waits);
	free(t->grids);
	free(t->sms);
	free(t->lines);
	free(t);
}

double emu_time_ns(const struct emu_time *t)
{
	return t->end / t->table.clock_ghz;
}

/* ---- grids and clusters -------------------------------------------------- */

static enum emu_unit unit_of(const struct emu_instr *i)
{
	const enum emu_unit unit = (enum emu_unit)i->opcode->unit;

	if (unit == EMU_UNIT_CLUSTER_RELEASE)
		return i->traits & EMU_NEAR_FENCE ? EMU_UNIT_NONE : unit;
	if (unit == EMU_UNIT_FENCE || unit == EMU_UNIT_FENCE_PROXY)
		return i->traits & EMU_NEAR_FENCE ? EMU_UNIT_FENCE_CTA : unit;
	if (unit != EMU_UNIT_NONE && unit != EMU_UNIT_ATOMIC)
		return unit;
	if (i->traits & EMU_RELEASES)
		return EMU_UNIT_FENCE;
	return i->space == EMU_SHARED ? EMU_UNIT_NONE : unit;
}

static bool reads_clock(const struct emu_instr *i)
{
	static const enum emu_special clocks[] = {EMU_CLOCK, EMU_CLOCK64,
						  EMU_GLOBALTIMER};

	for (size_t k = 0; k < sizeof(clocks) / sizeof(*clocks); k++)
		if (i->operands == 2 && i->operand[1].bank == EMU_REGISTERS &&
		    i->operand[1].row == emu_special_row(clocks[k]))
			return true;
	return false;
}

static void classify(struct emu_instr *i)
{
	i->unit = (uint8_t)unit_of(i);
	i->is_arithmetic =
	    !reads_clock(i) && (i->space == EMU_PARAM ||
				(!i->opcode->is_pinned && i->target == UINT32_MAX));
	i->ends_block = i->opcode->ends_block || reads_clock(i) || i->is_leader ||
			i->target != UINT32_MAX;
}

static uint32_t shared_of(const struct emu_grid *g)
{
	return g->kernel->shared_bytes + g->dynamic_bytes + 1024;
}

static uint32_t threads_of(const struct emu_grid *g)
{
	return g->block[0] * g->block[1] * g->block[2];
}

/* Registers of a CTA; a lane gets them in groups of eight.  0: not known. */
static uint32_t registers_of(const struct emu_time *t, const struct emu_grid *g)
{
	const uint32_t each = emu_time_costs_registers(t->costs, g->kernel);
	const uint32_t warps = (threads_of(g) + EMU_LANES - 1) / EMU_LANES;

	return (each + 7) / 8 * 8 * EMU_LANES * warps;
}

/* True if a CTA of each grid fits in one SM at the same time. */
static bool fit_together(const struct emu_time *t, const struct emu_grid *a,
			 const struct emu_grid *b)
{
	return shared_of(a) + shared_of(b) <= SM_SHARED_BYTES &&
	       threads_of(a) + threads_of(b) <= SM_THREADS &&
	       registers_of(t, a) + registers_of(t, b) <= SM_REGISTERS;
}

void emu_time_begin_grid(struct emu_grid *g)
{
	struct emu_time *t = g->machine->time;
	bool waits;

	if (!t)
		return;
	for (uint32_t k = 0; k < g->kernel->count; k++)
		classify(&g->kernel->code[k]);
	t->has_counts = emu_time_costs_set(t->costs, g->kernel);
	t->begin = t->end;
	t->first = t->end + t->table.launch;
	if (g->before && g->before->time_trigger > 0)
		t->first = g->before->time_trigger + t->table.dependent_launch;
	t->tensor_busy = t->l2_busy = t->hbm_busy = t->issued = 0;
	t->last_end = 0;
	t->cta_slots = (g->resident * g->cluster[0] * g->cluster[1] * g->cluster[2] +
			t->n_sms - 1) /
		       t->n_sms;
	t->cta_slots = t->cta_slots > EMU_CTA_SLOTS ? EMU_CTA_SLOTS : t->cta_slots;
	/* A CTA shares an SM with a CTA of the grid before, if both fit. */
	waits = g->before && !fit_together(t, g->before, g);
	for (uint32_t k = 0; k < t->n_sms; k++) {
		struct emu_sm *sm = &t->sms[k];

		for (uint32_t i = 0; i < t->cta_slots; i++)
			sm->slot_free[i] =
			    waits ? emu_later(sm->end, t->first) : t->first;
		sm->end = t->first;
		sm->number = k;
		memset(sm->parameters, 0, sizeof(sm->parameters));
	}
	(void)strncpy(t->name, g->kernel->name, sizeof(t->name) - 1);
	t->kernel = g->kernel;
	free(t->waits);
	t->waits = calloc(g->kernel->count + 1u, sizeof(*t->waits));
}

void emu_time_end_grid(struct emu_grid *g)
{
	if (!g->machine->time)
		return;
	g->time_end = g->machine->time->end;
	emu_time_keep(g->machine->time);
	emu_trace_flush(g->machine->time->trace);
}

static bool begin_warp(struct emu_warp *w, double at)
{
	const size_t rows = w->cta->cluster->grid->kernel->register_bytes / 16;

	w->clock = calloc(1, sizeof(*w->clock));
	if (!w->clock)
		return false;
	w->clock->ready = calloc(rows + 1, sizeof(double));
	w->clock->why = calloc(rows + 1, 1);
	if (!w->clock->ready || !w->clock->why)
		return false;
	w->clock->now = w->now = at;
	return true;
}

/* The CTA slot of an SM that becomes free first. */
static uint32_t first_slot(const struct emu_time *t, const struct emu_sm *sm)
{
	uint32_t best = 0;

	for (uint32_t k = 1; k < t->cta_slots; k++)
		if (sm->slot_free[k] < sm->slot_free[best])
			best = k;
	return best;
}

static double free_from(const struct emu_time *t, const struct emu_sm *sm)
{
	return sm->slot_free[first_slot(t, sm)] + sm->running * 1e-3;
}

/* The SMs of a cluster: neighbours, those that become free first. */
static struct emu_sm *take_sms(struct emu_time *t, uint32_t n_ctas)
{
	struct emu_sm *best = t->sms;

	for (uint32_t k = 0; k + n_ctas <= t->n_sms; k += n_ctas)
		if (free_from(t, &t->sms[k]) < free_from(t, best))
			best = &t->sms[k];
	return best;
}

/* Takes a slot for a CTA; returns the time from which the CTA has it. */
static double take_slot(struct emu_time *t, struct emu_cta_clock *c)
{
	double from;

	c->slot = first_slot(t, c->sm);
	from = c->sm->slot_free[c->slot];
	c->sm->slot_free[c->slot] = INFINITY;
	c->sm->running++;
	return from;
}

bool emu_time_begin_cluster(struct emu_cluster *c)
{
	struct emu_time *t = c->grid->machine->time;
	struct emu_sm *sms;
	double at;

	if (!t)
		return true;
	sms = take_sms(t, c->n_ctas);
	at = sms->slot_free[first_slot(t, sms)];
	if (at == INFINITY)
		at = t->now;
	c->clock = calloc(1, sizeof(*c->clock));
	for (uint32_t k = 0; k < c->n_ctas; k++) {
		struct emu_cta *a = &c->ctas[k];

		a->clock = calloc(1, sizeof(*a->clock));
		if (!a->clock || !c->clock)
			return false;
		a->clock->sm = &sms[k % t->n_sms];
		(void)take_slot(t, a->clock);
		a->clock->sm->cta[a->clock->slot] = a;
		for (uint32_t i = 0; i < a->n_warps; i++)
			if (!begin_warp(&a->warps[i], at))
				return false;
	}
	return true;
}

static void end_warp(struct emu_time *t, struct emu_warp *w)
{
	emu_trace_warp_end(t->trace, w);
	t->end = emu_later(t->end, w->clock->now);
	if (w->clock->now < t->last_end)
		return;
	t->last_end = w->clock->now;
	memcpy(t->last, w->clock->spent, sizeof(t->last));
}

static void leave_slot(const struct emu_time *t, struct emu_cta_clock *c, double end)
{
	c->sm->slot_free[c->slot] = end + t->table.cta_begin;
	c->sm->cta[c->slot] = NULL;
	c->sm->end = emu_later(c->sm->end, c->sm->slot_free[c->slot]);
	c->sm->running--;
}

void emu_time_end_cluster(struct emu_cluster *c)
{
	struct emu_time *t = c->grid->machine->time;

	for (uint32_t k = 0; t && c->ctas && k < c->n_ctas; k++) {
		struct emu_cta *a = &c->ctas[k];
		double end = 0;

		for (uint32_t i = 0; a->warps && i < a->n_warps; i++) {
			struct emu_warp_clock *w = a->warps[i].clock;

			if (!w)
				continue;
			end_warp(t, &a->warps[i]);
			end = emu_later(end, w->now);
			free(w->ready);
			free(w->why);
			free(w);
		}
		if (a->clock)
			leave_slot(t, a->clock, end);
		free(a->clock);
	}
	if (c->clock)
		free(c->clock->barriers);
	free(c->clock);
	c->clock = NULL;
}

double emu_time_of(const struct emu_warp *w)
{
	return w->clock->now;
}

/*
 * A warp runs until another warp of its SM has a smaller clock, and LOOKAHEAD
 * cycles longer if that warp issues from another quarter, because quarters seldom
 * compete for what they share.
 */
static double limit_turn(const struct emu_warp *w, const struct emu_cta *c, double end)
{
	for (uint32_t i = 0; i < c->n_warps; i++) {
		const struct emu_warp *other = &c->warps[i];
		const double at =
		    other->now + ((i ^ w->index) % EMU_QUARTERS ? EMU_LOOKAHEAD : 0);

		if (other != w && other->wait == EMU_RUNNABLE && at < end)
			end = at;
	}
	return end;
}

double emu_time_turn(const struct emu_warp *w, double end)
{
	const struct emu_sm *sm = w->cta->clock->sm;

	end += EMU_LOOKAHEAD;
	for (uint32_t k = 0; k < emu_time_machine(w)->cta_slots; k++)
		if (sm->cta[k])
			end = limit_turn(w, sm->cta[k], end);
	return end;
}

double emu_time_ns_of(const struct emu_warp *w)
{
	return w->clock->now / emu_time_machine(w)->table.clock_ghz;
}

void emu_time_advance(struct emu_warp *w, enum emu_spent kind, double at)
{
	struct emu_warp_clock *c = w->clock;
	struct emu_time *t = emu_time_machine(w);

	if (at <= c->now)
		return;
	c->spent[kind] += at - c->now;
	if (t->waits && kind != EMU_SPENT_ISSUE)
		t->waits[c->pc] += at - c->now;
	emu_trace_warp(t->trace, w, kind, c->now, at);
	c->now = w->now = at;
}

/* ---- instructions -------------------------------------------------------- */

/* When the operands are ready; *why: what the last of them waits for. */
static double operands_of(const struct emu_warp *w, const struct emu_instr *i,
			  enum emu_spent *why)
{
	const struct emu_warp_clock *c = w->clock;
	double at = c->now;

	*why = EMU_SPENT_OPERANDS;
	for (uint32_t k = 0; k <= i->operands; k++) {
		const bool is_guard = k == i->operands;
		uint32_t row;

		if (is_guard ? i->guard_reg == EMU_NO_REGISTER
			     : i->operand[k].bank != EMU_REGISTERS ||
				   i->operand[k].is_written)
			continue;
		row = (is_guard ? i->guard_row : i->operand[k].row) / 16;
		if (c->ready[row] <= at)
			continue;
		at = c->ready[row];
		*why = (enum emu_spent)c->why[row];
	}
	return at;
}

/*
 * Before a fence or a release, all stores of the SM must have arrived.  False: the
 * warp's clock has advanced, and others run first.
 */
static bool wait_for_stores(struct emu_warp *w, const struct emu_instr *i)
{
	const struct emu_time_table *t = &emu_time_machine(w)->table;
	const double cost = i->unit == EMU_UNIT_FENCE		  ? t->fence
			    : i->unit == EMU_UNIT_FENCE_PROXY	  ? t->fence_proxy
			    : i->unit == EMU_UNIT_CLUSTER_RELEASE ? t->cluster_release
								  : t->fence_cta;

	if (w->clock->is_fenced) {
		w->clock->is_fenced = false;
		return true;
	}
	if (i->unit == EMU_UNIT_CLUSTER_RELEASE && cost <= 0)
		return true;
	w->clock->is_fenced = true;
	emu_time_advance(w, EMU_SPENT_FENCE, w->clock->block);
	if (i->unit == EMU_UNIT_FENCE || i->unit == EMU_UNIT_CLUSTER_RELEASE)
		emu_time_advance(w, EMU_SPENT_FENCE, w->cta->clock->sm->stored);
	emu_time_advance(w, EMU_SPENT_FENCE, w->clock->now + cost);
	return false;
}

/*
 * Pipes serve warps in the order of their requests.  True if they serve this one at
 * once; otherwise its clock has advanced to the time at which they do.
 */
static bool request_pipes(struct emu_warp *w, const struct emu_instr *i, int first,
			  int end)
{
	const struct emu_time_table *c = &emu_time_machine(w)->table;
	struct emu_sm *sm = w->cta->clock->sm;
	const uint32_t quarter = w->index % EMU_QUARTERS;
	double at = w->clock->now;

	for (int k = first; k < end; k++)
		if (i->slots[k])
			at = emu_later(at, sm->pipe[k][quarter]);
	/* Pipes are slower while a wgmma of this quarter uses its accumulators. */
	for (int k = first; k < end; k++) {
		const double rate = k == EMU_PIPE_ALU	? c->alu_rate
				    : k == EMU_PIPE_FMA ? c->fma_rate
				    : k == EMU_PIPE_XU	? c->xu_rate
							: c->issue_rate;
		const bool shares = k != EMU_PIPE_XU && sm->accumulates[quarter] > at;

		if (i->slots[k])
			sm->pipe[k][quarter] = at + i->slots[k] * rate / EMU_SLOT *
							(shares ? c->wgmma_share : 1);
	}
	w->clock->requested = end;
	if (at <= w->clock->now)
		return true;
	emu_time_advance(w, EMU_SPENT_PIPE, at);
	return false;
}

/*
 * ptxas orders a basic block so that latencies of arithmetic overlap, and encodes
 * how long a warp waits after each instruction.  So an arithmetic instruction
 * issues when its pipe accepts it, although it begins when its operands are ready.
 * The end of a block waits for all instructions that begin in it.
 */
bool emu_time_is_due(struct emu_warp *w, const struct emu_instr *i)
{
	struct emu_warp_clock *c = w->clock;
	double ready = c->now;
	enum emu_spent why = EMU_SPENT_OPERANDS;

	if (c->requested == 0) {
		c->pc = w->pc;
		if (i->unit >= EMU_UNIT_FENCE_CTA && !wait_for_stores(w, i))
			return false;
		if (!i->is_arithmetic)
			ready = operands_of(w, i, &why);
		if (i->ends_block && c->block > ready) {
			ready = c->block;
			why = c->block_of;
		}
		if (ready > c->now) {
			emu_time_advance(w, why, ready);
			return false;
		}
	}
	if (!i->slots[EMU_PIPE_ISSUE] || c->requested == EMU_PIPE_ISSUE + 1)
		return true;
	if (c->requested == 0 && !request_pipes(w, i, EMU_PIPE_ISSUE + 1, EMU_PIPES))
		return false;
	return request_pipes(w, i, EMU_PIPE_ISSUE, EMU_PIPE_ISSUE + 1);
}

/* Units other than the pipes: when the result is available. */
static void serve_unit(struct emu_warp *w, const struct emu_instr *i, double at)
{
	const struct emu_time_table *c = &emu_time_machine(w)->table;
	struct emu_sm *sm = w->cta->clock->sm;
	double *tensor = &sm->tensor[w->index % EMU_QUARTERS];

	if (i->unit == EMU_UNIT_MATRIX)
		w->clock->result =
		    emu_serve(&sm->shared, at, 4) + 3 + c->shared_latency;
	if (i->unit == EMU_UNIT_SHUFFLE)
		w->clock->result =
		    emu_serve(&sm->shared, at, c->shuffle_rate / EMU_QUARTERS) +
		    c->shuffle_latency;
	if (i->unit == EMU_UNIT_MMA)
		w->clock->result = emu_serve(tensor, at, c->mma_rate) + c->mma_latency;
	if (i->unit == EMU_UNIT_ATOMIC)
		w->clock->result = at + c->atomic_latency;
}

void emu_time_issue(struct emu_warp *w, const struct emu_instr *i)
{
	struct emu_time *t = emu_time_machine(w);
	const struct emu_time_table *c = &t->table;
	const double at = w->clock->now;
	enum emu_spent why = EMU_SPENT_OPERANDS;
	const double begin = i->is_arithmetic ? operands_of(w, i, &why) : at;
	double end;

	t->now = at;
	t->running = w;
	w->clock->requested = 0;
	w->clock->result = begin;
	/* Its result waits for what its operands waited for. */
	w->clock->result_of = begin > at ? why : EMU_SPENT_OPERANDS;
	if (begin > w->clock->block) {
		w->clock->block = begin;
		w->clock->block_of = why;
	}
	if (!i->slots[EMU_PIPE_ISSUE])
		return;
	end = at + i->slots[EMU_PIPE_ISSUE] * c->issue_rate / EMU_SLOT;
	t->issued += end - at;
	emu_time_advance(w, EMU_SPENT_ISSUE, end);
	emu_time_advance(w, EMU_SPENT_OPERANDS, at + (double)i->stall / EMU_SLOT);
	w->clock->result = emu_later(begin, begin + end - at - c->issue_rate) +
			   (i->slots[EMU_PIPE_XU] ? c->xu_latency : c->alu_latency);
	serve_unit(w, i, begin);
}

static void set_ready(struct emu_warp_clock *c, uint32_t row)
{
	c->ready[row] = c->result;
	c->why[row] = (uint8_t)c->result_of;
}

void emu_time_retire(struct emu_warp *w, const struct emu_instr *i)
{
	for (uint32_t k = 0; k < i->operands; k++)
		if (i->operand[k].is_written && i->operand[k].bank == EMU_REGISTERS)
			set_ready(w->clock, i->operand[k].row / 16);
}

/* ---- waiting ------------------------------------------------------------- */

static struct emu_barrier_clock *barrier_at(struct emu_cluster *c, uint64_t address)
{
	struct emu_cluster_clock *k = c->clock;
	struct emu_barrier_clock *grown;

	for (size_t n = 0; n < k->count; n++)
		if (k->barriers[n].address == address)
			return &k->barriers[n];
	grown = emu_grow(k->barriers, &k->capacity, k->count, sizeof(*grown));
	if (!grown) {
		c->grid->machine->has_failed = true;
		(void)emu_fail(&c->grid->machine->report,
			       "no memory for the times of barriers");
		return NULL;
	}
	k->barriers = grown;
	grown[k->count] = (struct emu_barrier_clock){.address = address};
	return &grown[k->count++];
}

void emu_time_arrive(struct emu_warp *w, uint64_t barrier)
{
	struct emu_barrier_clock *b;
	double at;

	if (!emu_time_machine(w))
		return;
	b = barrier_at(w->cta->cluster, barrier);
	if (!b)
		return;
	at = w->clock->arrival;
	if (at <= 0)
		at = w->clock->now + (barrier >> EMU_RANK_SHIFT == w->cta->rank
					  ? 0
					  : emu_time_machine(w)->table.remote);
	b->pending = emu_later(b->pending, at);
}

void emu_time_phase(struct emu_cluster *c, uint64_t barrier)
{
	struct emu_barrier_clock *b;

	if (!c->grid->machine->time)
		return;
	b = barrier_at(c, barrier);
	if (!b)
		return;
	b->done = b->pending;
	b->pending = 0;
}

void emu_time_wait(struct emu_warp *w, uint64_t barrier)
{
	struct emu_time *t = emu_time_machine(w);
	const struct emu_barrier_clock *b;

	if (!t)
		return;
	b = barrier_at(w->cta->cluster, barrier);
	if (!b)
		return;
	w->clock->result =
	    emu_later(w->clock->now + t->table.try_wait, b->done + t->table.wake_up);
	w->clock->result_of = EMU_SPENT_MBARRIER;
}

static struct emu_cta_clock *numbered(const struct emu_cta *c, uint32_t number)
{
	return number == EMU_CLUSTER_BARRIER ? c->cluster->ctas[0].clock : c->clock;
}

/* True if the warp runs an arrival at the cluster's barrier with .release. */
static bool releases(const struct emu_warp *w)
{
	return w->cta->cluster->grid->kernel->code[w->clock->pc].unit ==
	       EMU_UNIT_CLUSTER_RELEASE;
}

void emu_time_join(struct emu_warp *w, uint32_t number)
{
	struct emu_cta_clock *c;
	double at;

	if (!emu_time_machine(w))
		return;
	c = numbered(w->cta, number);
	at = w->clock->now;
	/* The table's latency of a cluster barrier includes its release. */
	if (number == EMU_CLUSTER_BARRIER && releases(w))
		at -= emu_time_machine(w)->table.cluster_release;
	c->pending[number] = emu_later(c->pending[number], at);
}

void emu_time_all_joined(const struct emu_cta *cta, uint32_t number)
{
	struct emu_cta_clock *c;

	if (!cta->cluster->grid->machine->time)
		return;
	c = numbered(cta, number);
	c->done[number] = c->pending[number];
	c->pending[number] = 0;
}

void emu_time_leave(struct emu_warp *w, uint32_t number)
{
	struct emu_time *t = emu_time_machine(w);
	double cost;

	if (!t)
		return;
	cost = number == EMU_CLUSTER_BARRIER
		   ? t->table.cluster_barrier
		   : t->table.barrier + w->cta->n_warps * t->table.barrier_warp;
	emu_time_advance(w, EMU_SPENT_BARRIER,
			 numbered(w->cta, number)->done[number] + cost);
}

void emu_time_wake(struct emu_warp *w)
{
	struct emu_time *t = emu_time_machine(w);

	if (!t || !w->clock)
		return;
	emu_time_advance(
	    w, w->wait == EMU_AT_MBARRIER ? EMU_SPENT_MBARRIER : EMU_SPENT_BARRIER,
	    t->now);
	/* It may be earlier than the warp that runs. */
	if (t->running)
		t->running->until = t->now;
}

void emu_time_grids(struct emu_warp *w)
{
	const struct emu_grid *before = w->cta->cluster->grid->before;

	if (emu_time_machine(w) && before)
		emu_time_advance(w, EMU_SPENT_GRID,
				 before->time_end +
				     emu_time_machine(w)->table.grid_wait);
}

void emu_time_trigger(struct emu_warp *w)
{
	struct emu_grid *g = w->cta->cluster->grid;

	if (emu_time_machine(w))
		g->time_trigger = emu_later(g->time_trigger, w->clock->now);
}
