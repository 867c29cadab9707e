/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_tcgen05.c - see time_tcgen05.h.
 *
 * An SM has one tensor core. It executes the operations of all warps in order.
 * Each quarter can queue a few, so a warp that issues more stalls.
 *
 * Copies overlap multiplications but begin in order with them: a multiplication
 * waits for its warp's copies, and a later copy begins after it. Public kernels
 * rely on this order when they overwrite scales, and the largest keep the tensor
 * core busy for 94 % of the time (docs/time.md).
 */
#include "machine/time_tcgen05.h"

#include "machine/time.h"
#include "machine/time_state.h"
#include "machine/time_trace.h"

/* The SMs of an operation: its CTA's, and the other one's of a pair. */
static uint32_t sms_of(const struct emu_warp *w, uint32_t ctas, struct emu_sm *sms[2])
{
	const struct emu_cluster *c = w->cta->cluster;

	sms[0] = w->cta->clock->sm;
	sms[1] = sms[0];
	if (ctas != 2)
		return 1;
	sms[1] = c->ctas[w->cta->rank ^ 1].clock->sm;
	return 2;
}

/* Stalls the warp while the queue of its quarter is full. */
static void wait_for_queue(struct emu_warp *w)
{
	const struct emu_time_table *t = &emu_time_machine(w)->table;
	const struct emu_tcgen05_pipe *p = &w->cta->clock->sm->tcgen05;
	const uint32_t q = w->index % EMU_TCGEN05_QUARTERS;
	const uint32_t depth = (uint32_t)t->umma_depth;
	const uint32_t n = p->queued[q];

	if (n >= depth)
		emu_time_advance(w, EMU_SPENT_TCGEN05,
				 p->queue[q][(n - depth) % EMU_TCGEN05_DEPTH]);
}

static void put_in_queue(struct emu_warp *w, double begin)
{
	struct emu_tcgen05_pipe *p = &w->cta->clock->sm->tcgen05;
	const uint32_t q = w->index % EMU_TCGEN05_QUARTERS;

	p->queue[q][p->queued[q]++ % EMU_TCGEN05_DEPTH] = begin;
	emu_time_advance(w, EMU_SPENT_ISSUE,
			 w->clock->now + emu_time_machine(w)->table.umma_issue);
}

/* Cycles from one operation to the next in a stream of equal ones. */
static double interval(const struct emu_time_table *t, const struct emu_umma *u)
{
	const bool is_pair = u->form.ctas == 2;
	const int rows =
	    emu_umma_b_rows(u) + (u->form.a_in_tensor_memory ? 0 : emu_umma_a_rows(u));
	const double columns = is_pair && u->m == 128 ? u->n / 4.0 : u->n / 2.0;
	double fetch = rows * EMU_UMMA_K_BYTES / t->umma_fetch;

	if (is_pair && !u->form.a_in_tensor_memory)
		fetch += u->m == 128 ? t->umma_half_fetch : t->umma_pair_fetch;
	return emu_later(columns, fetch);
}

/* Cycles from the start of a single operation to the arrival of its commit. */
static double latency(const struct emu_time_table *t, const struct emu_umma *u)
{
	const bool is_pair = u->form.ctas == 2;
	const bool is_half = is_pair && u->m == 128;
	double sum = (is_half ? u->n / 4.0 : u->n / 2.0) - t->wake_up;

	sum += is_half	 ? t->umma_half_latency
	       : is_pair ? t->umma_pair_latency
			 : t->umma_latency;
	if (u->form.a_in_tensor_memory)
		sum -= t->umma_tmem_less;
	return u->m == 64 ? sum - t->umma_64_less : sum;
}

void emu_time_umma(struct emu_warp *w, const struct emu_umma *u)
{
	struct emu_time *t = emu_time_machine(w);
	struct emu_tcgen05_clock *c;
	struct emu_sm *sms[2];
	double begin, service;
	uint32_t n;

	if (!t)
		return;
	c = &w->clock->tcgen05;
	n = sms_of(w, (uint32_t)u->form.ctas, sms);
	wait_for_queue(w);
	begin = emu_later(w->clock->now, c->copied);
	for (uint32_t k = 0; k < n; k++)
		begin = emu_later(begin, sms[k]->tcgen05.mma);
	begin = emu_later(begin, sms[0]->tcgen05.begun);
	service = interval(&t->table, u);
	for (uint32_t k = 0; k < n; k++) {
		sms[k]->tcgen05.mma = begin + service;
		sms[k]->tcgen05.begun = begin;
		t->tensor_busy += EMU_QUARTERS * service;
		emu_trace_engine(t->trace, sms[k]->number, EMU_TRACE_TENSOR, begin,
				 begin + service);
	}
	c->done = emu_later(c->done, begin + latency(&t->table, u));
	put_in_queue(w, begin);
}

/* Cycles from one copy of a thread to its next. */
static double copy_interval(const struct emu_time_table *t, enum emu_tmem_copy copy)
{
	switch (copy) {
	case EMU_TMEM_CP_128X256B:
		return t->copy_256;
	case EMU_TMEM_CP_128X128B:
		return t->copy_128;
	case EMU_TMEM_CP_64X128B_02_13:
	case EMU_TMEM_CP_64X128B_01_23:
		return t->copy_2;
	case EMU_TMEM_CP_32X128B_X4:
		return t->copy_4;
	default:
		return t->copy_small;
	}
}

void emu_time_tmem_copy(struct emu_warp *w, enum emu_tmem_copy copy, uint32_t ctas)
{
	struct emu_time *t = emu_time_machine(w);
	struct emu_tcgen05_clock *c;
	struct emu_sm *sms[2];
	double begin, mine, service;
	uint32_t n;

	if (!t)
		return;
	c = &w->clock->tcgen05;
	n = sms_of(w, ctas, sms);
	wait_for_queue(w);
	mine = copy_interval(&t->table, copy);
	/* The engine is faster than one thread can issue. */
	service = mine * t->table.copy_4_engine / t->table.copy_4;
	begin = emu_later(w->clock->now, c->copies);
	for (uint32_t k = 0; k < n; k++)
		begin = emu_later(
		    begin, emu_later(sms[k]->tcgen05.copy, sms[k]->tcgen05.begun));
	for (uint32_t k = 0; k < n; k++) {
		sms[k]->tcgen05.copy = begin + service;
		sms[k]->tcgen05.begun = begin;
		emu_trace_engine(t->trace, sms[k]->number, EMU_TRACE_SCALES, begin,
				 begin + mine);
	}
	c->copies = begin + mine;
	c->copied = begin + service + t->table.copy_to_umma;
	c->done = emu_later(c->done, begin + mine + t->table.copy_latency);
	put_in_queue(w, begin);
}

/* The commit arrives when all earlier operations of the warp have ended. */
void emu_time_tmem_commit(struct emu_warp *w)
{
	if (emu_time_machine(w))
		w->clock->arrival = emu_later(w->clock->now, w->clock->tcgen05.done);
}

void emu_time_tmem_committed(struct emu_warp *w)
{
	if (emu_time_machine(w))
		w->clock->arrival = 0;
}

/* Cycles of its port that an instruction takes, for this many times its shape. */
static double port_cycles(enum emu_tmem_shape shape, uint32_t registers,
			  uint32_t column)
{
	const double times = (double)registers / emu_tmem_shape_registers(shape);
	/* Two columns a cycle, from an even one on. */
	const uint32_t pairs = (registers + column % 2 + 1) / 2;

	switch (shape) {
	case EMU_TMEM_16X64B:
		return times;
	case EMU_TMEM_16X128B:
		return 2 * times;
	case EMU_TMEM_16X256B:
		return 8 * times;
	default:
		return pairs;
	}
}

void emu_time_tmem_move(struct emu_warp *w, enum emu_tmem_shape shape,
			uint32_t registers, uint32_t column, bool is_store)
{
	struct emu_time *t = emu_time_machine(w);
	struct emu_tcgen05_clock *c;
	struct emu_sm *sm;
	double begin, end;

	if (!t)
		return;
	c = &w->clock->tcgen05;
	sm = w->cta->clock->sm;
	end = port_cycles(shape, registers, column);
	begin = emu_serve(&sm->tcgen05.port[w->index % EMU_TCGEN05_QUARTERS],
			  w->clock->now, end);
	end += begin;
	emu_trace_engine(t->trace, sm->number, EMU_TRACE_TMEM, begin, end);
	if (is_store) {
		c->stored = emu_later(c->stored, end + t->table.tmem_store_latency);
		return;
	}
	end += t->table.tmem_latency;
	c->loaded = emu_later(c->loaded, end);
	w->clock->result = end;
	w->clock->result_of = EMU_SPENT_TCGEN05;
}

void emu_time_tmem_wait(struct emu_warp *w, bool of_stores)
{
	const struct emu_tcgen05_clock *c;

	if (!emu_time_machine(w))
		return;
	c = &w->clock->tcgen05;
	emu_time_advance(w, EMU_SPENT_TCGEN05, of_stores ? c->stored : c->loaded);
}

void emu_time_tmem_alloc(struct emu_warp *w)
{
	struct emu_time *t = emu_time_machine(w);

	if (t)
		emu_time_advance(w, EMU_SPENT_TCGEN05,
				 w->clock->now + t->table.tmem_alloc);
}
