/* SPDX-License-Identifier: Apache-2.0 */
/* time.c - warps' clocks: what instructions cost, what barriers carry. */
#include "machine/time.h"

#include <stdlib.h>
#include <string.h>

#include "engine/arena.h"
#include "machine/time_costs.h"
#include "machine/time_state.h"
#include "ptx/bind.h"

static const struct emu_time_table h200 = {
#define EMU_TIME(name, value, unit, sure, source) .name = (value),
#include "machine/time_h200.def"
#undef EMU_TIME
};

/* ---- a machine's time ---------------------------------------------------- */

struct emu_time *emu_time_open(const struct emu_device *device,
			       struct emu_error *err)
{
	const struct emu_device *d = emu_device_or_default(device);
	struct emu_time *t;

	if (d->major != 9) {
		(void)emu_fail(err,
			       "NIBEMU_TIME: there is no table of times for "
			       "%s: h200 has one",
			       d->name);
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (t) {
		t->table = &h200;
		t->n_sms = d->sms;
		t->n_sets = (uint32_t)d->l2_bytes / 128 / EMU_L2_WAYS;
		t->sms = calloc(t->n_sms, sizeof(*t->sms));
		t->lines =
		    calloc((size_t)t->n_sets * EMU_L2_WAYS, sizeof(*t->lines));
	}
	if (t && t->sms && t->lines)
		return t;
	emu_time_close(t);
	(void)emu_fail(err, "NIBEMU_TIME: no memory");
	return NULL;
}

bool emu_time_use_counts(struct emu_time *t, const char *path,
			 struct emu_error *err)
{
	emu_time_costs_free(t->costs);
	t->costs = emu_time_costs_read(path, err);
	return t->costs != NULL;
}

void emu_time_close(struct emu_time *t)
{
	if (!t)
		return;
	emu_time_costs_free(t->costs);
	free(t->sms);
	free(t->lines);
	free(t);
}

double emu_time_ns(const struct emu_time *t)
{
	return t->end / t->table->clock_ghz;
}

void emu_time_describe(const struct emu_time *t, struct emu_error *to)
{
	const double cycles = t->end - t->begin;

	emu_add_text(to,
		     "%s: %.2f us predicted, %.2f of them the launch; busy: "
		     "tensor cores %.0f %%, L2 %.0f %%, HBM %.0f %%, issue "
		     "%.0f %% (%s)",
		     t->name, cycles / t->table->clock_ghz / 1e3,
		     (t->first - t->begin) / t->table->clock_ghz / 1e3,
		     100 * t->tensor_busy / cycles / t->n_sms / EMU_QUARTERS,
		     100 * t->l2_busy / cycles, 100 * t->hbm_busy / cycles,
		     100 * t->issued / cycles / t->n_sms / EMU_QUARTERS,
		     t->has_counts ? "counts of machine code"
				   : "means for names of PTX");
}

/* ---- grids and clusters -------------------------------------------------- */

/* Loads, stores and matrices of shared memory, which take its wavefronts. */
static bool is_served(const struct emu_instr *i)
{
	const char *name = i->opcode ? i->opcode->name : "";

	if (!strcmp(name, "ldmatrix") || !strcmp(name, "stmatrix"))
		return true;
	return (i->space == EMU_SHARED || i->space == EMU_SHARED_CLUSTER) &&
	       (!strcmp(name, "ld") || !strcmp(name, "st"));
}

/* Neither memory, nor waiting, nor control: ptxas moves it freely. */
static bool is_arithmetic(const struct emu_instr *i)
{
	static const char *const others[] = {
	    "ld",      "st",	"atom",	  "red",     "bar",	"mbarrier",
	    "cp",      "wgmma", "mma",	  "bra",     "ret",	"exit",
	    "call",    "brx",	"fence",  "membar",  "vote",	"elect",
	    "trap",    "isspa", "setmax", "grid",    "nano",	"activemask",
	    "cluster", "multi", "prefe",  "discard", "tensorm", "tcgen05",
	    "match",   "apply", "griddep"};
	const char *name = i->opcode ? i->opcode->name : "";

	if (i->space == EMU_PARAM || !strncmp(name, "redux", 5))
		return true;
	for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++)
		if (!strncmp(name, others[k], strlen(others[k])))
			return false;
	return i->target == UINT32_MAX;
}

static void classify(struct emu_instr *i)
{
	i->is_served = is_served(i);
	i->is_arithmetic = is_arithmetic(i);
}

void emu_time_begin_grid(struct emu_grid *g)
{
	struct emu_time *t = g->machine->time;

	if (!t)
		return;
	for (uint32_t k = 0; k < g->kernel->count; k++)
		classify(&g->kernel->code[k]);
	t->has_counts = emu_time_costs_set(t->costs, g->kernel);
	t->begin = t->end;
	t->first = t->end + t->table->launch;
	if (g->before && g->before->time_trigger > 0)
		t->first = emu_later(g->before->time_trigger,
				     t->sms[0].cta - t->table->cta_begin) +
			   t->table->dependent_launch;
	t->tensor_busy = t->l2_busy = t->hbm_busy = t->issued = 0;
	for (uint32_t k = 0; k < t->n_sms; k++)
		t->sms[k].cta = t->first;
	(void)strncpy(t->name, g->kernel->name, sizeof(t->name) - 1);
}

void emu_time_end_grid(struct emu_grid *g)
{
	if (g->machine->time)
		g->time_end = g->machine->time->end;
}

static bool begin_warp(struct emu_warp *w, double at)
{
	const size_t rows = w->cta->cluster->grid->kernel->register_bytes / 16;

	w->clock = calloc(1, sizeof(*w->clock));
	if (w->clock)
		w->clock->ready = calloc(rows + 1, sizeof(double));
	if (!w->clock || !w->clock->ready)
		return false;
	w->clock->now = at;
	return true;
}

/* The SMs of a cluster: neighbours, those that are free first. */
static struct emu_sm *take_sms(struct emu_time *t, uint32_t n_ctas)
{
	struct emu_sm *best = t->sms;

	for (uint32_t k = 0; k + n_ctas <= t->n_sms; k += n_ctas)
		if (t->sms[k].cta < best->cta)
			best = &t->sms[k];
	return best;
}

bool emu_time_begin_cluster(struct emu_cluster *c)
{
	struct emu_time *t = c->grid->machine->time;
	struct emu_sm *sms;
	double at;

	if (!t)
		return true;
	sms = take_sms(t, c->n_ctas);
	at = sms->cta;
	c->clock = calloc(1, sizeof(*c->clock));
	for (uint32_t k = 0; k < c->n_ctas; k++) {
		struct emu_cta *a = &c->ctas[k];

		a->clock = calloc(1, sizeof(*a->clock));
		if (!a->clock || !c->clock)
			return false;
		a->clock->sm = &sms[k % t->n_sms];
		/* Others of a full wave go elsewhere first. */
		a->clock->sm->cta += 1e-3;
		for (uint32_t i = 0; i < a->n_warps; i++)
			if (!begin_warp(&a->warps[i], at))
				return false;
	}
	return true;
}

void emu_time_end_cluster(struct emu_cluster *c)
{
	struct emu_time *t = c->grid->machine->time;

	for (uint32_t k = 0; t && c->ctas && k < c->n_ctas; k++) {
		struct emu_cta *a = &c->ctas[k];

		for (uint32_t i = 0; a->warps && i < a->n_warps; i++) {
			struct emu_warp_clock *w = a->warps[i].clock;

			if (!w)
				continue;
			t->end = emu_later(t->end, w->now);
			if (a->clock)
				a->clock->sm->cta =
				    emu_later(a->clock->sm->cta,
					      w->now + t->table->cta_begin);
			free(w->ready);
			free(w);
		}
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

/* ---- instructions -------------------------------------------------------- */

/* Wavefronts of 128 bytes, as if no two lanes met in a bank. */
static double wavefronts(const struct emu_instr *i)
{
	uint32_t written = 0, read = 0;

	for (uint32_t k = 0; k < i->operands; k++) {
		if (i->operand[k].is_written)
			written += i->operand[k].bytes;
		else
			read += i->operand[k].bytes;
	}
	if (!written) /* a store; its address is an operand, too */
		written = read > 4 ? read - 4 : read;
	return written > 4 ? written / 4.0 : 1;
}

static double wait_for_operands(const struct emu_warp *w,
				const struct emu_instr *i)
{
	double at = w->clock->now;

	for (uint32_t k = 0; k < i->operands; k++)
		if (i->operand[k].bank == EMU_REGISTERS &&
		    !i->operand[k].is_written)
			at = emu_later(at,
				       w->clock->ready[i->operand[k].row / 16]);
	if (i->guard_reg != EMU_NO_REGISTER)
		at = emu_later(at, w->clock->ready[i->guard_row / 16]);
	return at;
}

/*
 * ptxas orders a basic block so that latencies of arithmetic overlap.  So an
 * arithmetic instruction issues at once, though it begins when its operands are
 * ready, and the end of a block waits for all that begin in it.
 */
bool emu_time_is_due(struct emu_warp *w, const struct emu_instr *i)
{
	const struct emu_sm *sm = w->cta->clock->sm;
	const uint32_t quarter = w->index % EMU_QUARTERS;
	double at = w->clock->now;

	if (!i->is_arithmetic)
		at = wait_for_operands(w, i);
	if (i->is_leader || i->target != UINT32_MAX)
		at = emu_later(at, w->clock->block);
	for (int k = 0; k < EMU_PIPES; k++)
		if (i->slots[k])
			at = emu_later(at, sm->pipe[k][quarter]);
	if (at <= w->clock->now)
		return true;
	w->clock->now = at;
	return false;
}

void emu_time_issue(struct emu_warp *w, const struct emu_instr *i)
{
	struct emu_time *t = emu_time_machine(w);
	const struct emu_time_table *c = t->table;
	const double rates[EMU_PIPES] = {1, c->alu_rate, c->fma_rate,
					 c->xu_rate};
	struct emu_sm *sm = w->cta->clock->sm;
	const uint32_t quarter = w->index % EMU_QUARTERS;
	const double at = w->clock->now;
	const double begin = i->is_arithmetic ? wait_for_operands(w, i) : at;
	double end = at;

	t->now = at;
	w->clock->result = begin;
	w->clock->block = emu_later(w->clock->block, begin);
	if (!i->slots[EMU_PIPE_ISSUE])
		return;
	for (int k = 0; k < EMU_PIPES; k++)
		if (i->slots[k])
			sm->pipe[k][quarter] =
			    at + i->slots[k] * rates[k] / EMU_SLOT;
	end = sm->pipe[EMU_PIPE_ISSUE][quarter];
	t->issued += end - at;
	w->clock->now = end;
	w->clock->result =
	    emu_later(begin, begin + end - at - 1) + c->alu_latency;
	if (i->is_served)
		w->clock->result = emu_serve(&sm->shared, at, wavefronts(i)) +
				   wavefronts(i) - 1 + c->shared_latency;
}

void emu_time_retire(struct emu_warp *w, const struct emu_instr *i)
{
	for (uint32_t k = 0; k < i->operands; k++)
		if (i->operand[k].is_written &&
		    i->operand[k].bank == EMU_REGISTERS)
			w->clock->ready[i->operand[k].row / 16] =
			    w->clock->result;
}

/* ---- waiting ------------------------------------------------------------- */

static struct emu_barrier_clock *barrier_at(struct emu_cluster *c,
					    uint64_t address)
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

	if (!emu_time_machine(w))
		return;
	b = barrier_at(w->cta->cluster, barrier);
	if (b)
		b->pending = emu_later(b->pending, w->clock->arrival > 0
						       ? w->clock->arrival
						       : w->clock->now);
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
	if (b && b->done + t->table->wake_up > w->clock->now)
		w->clock->now = b->done + t->table->wake_up;
}

static struct emu_cta_clock *numbered(const struct emu_cta *c, uint32_t number)
{
	return number == EMU_CLUSTER_BARRIER ? c->cluster->ctas[0].clock
					     : c->clock;
}

void emu_time_join(struct emu_warp *w, uint32_t number)
{
	struct emu_cta_clock *c;

	if (!emu_time_machine(w))
		return;
	c = numbered(w->cta, number);
	c->pending[number] = emu_later(c->pending[number], w->clock->now);
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
	cost = number == EMU_CLUSTER_BARRIER ? t->table->cluster_barrier
					     : t->table->barrier;
	w->clock->now = emu_later(
	    w->clock->now, numbered(w->cta, number)->done[number] + cost);
}

void emu_time_wake(struct emu_warp *w)
{
	struct emu_time *t = emu_time_machine(w);

	if (t && w->clock)
		w->clock->now = emu_later(w->clock->now, t->now);
}

void emu_time_grids(struct emu_warp *w)
{
	const struct emu_grid *before = w->cta->cluster->grid->before;

	if (emu_time_machine(w) && before)
		w->clock->now = emu_later(w->clock->now, before->time_end);
}

void emu_time_trigger(struct emu_warp *w)
{
	struct emu_grid *g = w->cta->cluster->grid;

	if (emu_time_machine(w))
		g->time_trigger = emu_later(g->time_trigger, w->clock->now);
}
