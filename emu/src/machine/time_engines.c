/* SPDX-License-Identifier: Apache-2.0 */
/* time_engines.c - L2, HBM, TMA and tensor cores: when what they do is done. */
#include <string.h>

#include "machine/time.h"
#include "machine/time_state.h"
#include "machine/transfer.h"

#define LINE_SHIFT 7
#define LINE_BYTES (1 << LINE_SHIFT)

/* True if the L2 has the line; it has it from now on. */
static bool touch(struct emu_time *t, uint64_t line)
{
	uint64_t *set = t->lines + (line * UINT64_C(0x9E3779B97F4A7C15) >> 32) %
				       t->n_sets * EMU_L2_WAYS;
	uint32_t k = 0;

	while (k < EMU_L2_WAYS - 1 && set[k] != line)
		k++;
	if (set[k] == line) {
		memmove(set + 1, set, k * sizeof(*set));
		set[0] = line;
		return true;
	}
	memmove(set + 1, set, k * sizeof(*set));
	set[0] = line;
	return false;
}

/* A line is asked for at `at`: when its bytes are at the SM. */
static double fetch_line(struct emu_time *t, uint64_t line, double at)
{
	const struct emu_time_table *c = t->table;
	const double from_l2 = emu_serve(&t->l2, at, LINE_BYTES / c->l2_rate);

	t->l2_busy += LINE_BYTES / c->l2_rate;
	if (touch(t, line))
		return from_l2 + c->l2_latency;
	t->hbm_busy += LINE_BYTES / c->hbm_rate;
	return emu_serve(&t->hbm, from_l2, LINE_BYTES / c->hbm_rate) +
	       c->hbm_latency;
}

void emu_time_access(struct emu_warp *w, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, bool is_store)
{
	struct emu_time *t = emu_time_machine(w);
	const struct emu_space *global = &emu_machine_of(w)->global;
	uint64_t last = UINT64_MAX;

	if (!t)
		return;
	EMU_EACH_LANE(l)
	{
		const uint64_t line = address[l] >> LINE_SHIFT;
		double end;

		if (!(lanes >> l & 1) || line == last ||
		    address[l] - global->base >= global->bytes)
			continue;
		last = line;
		end = fetch_line(t, (address[l] + bytes - 1) >> LINE_SHIFT,
				 w->clock->now);
		if (!is_store)
			w->clock->result = emu_later(w->clock->result, end);
	}
}

/* Lines that the pieces of a copy ask for from `begin` on: the last one's. */
static double fetch_pieces(const struct emu_transfer *c, double begin)
{
	struct emu_time *t = emu_time_machine(c->warp);
	const struct emu_space *global = &emu_machine_of(c->warp)->global;
	const bool is_store = c->kind == EMU_BULK_STORE;
	uint64_t last = UINT64_MAX;
	double end = begin;

	for (size_t k = 0; k < c->n_pieces; k++) {
		const struct emu_piece *p = &c->pieces[k];
		const uint64_t at = (uintptr_t)(is_store ? p->to : p->from);

		if (!p->copied ||
		    at - (uintptr_t)global->data >= global->bytes ||
		    at >> LINE_SHIFT == last)
			continue;
		last = at >> LINE_SHIFT;
		end = emu_later(end, fetch_line(t, last, begin));
	}
	return end;
}

void emu_time_copy(struct emu_transfer *c)
{
	struct emu_time *t = emu_time_machine(c->warp);
	struct emu_warp_clock *clock = c->warp->clock;
	double bytes = 0, begin, end;

	if (!t)
		return;
	if (c->kind == EMU_CP_ARRIVE) {
		clock->arrival =
		    emu_later(clock->open[EMU_ENGINE_COPY], clock->now);
		return;
	}
	if (c->kind == EMU_CP_ASYNC) {
		end = fetch_pieces(c, clock->now);
		clock->open[EMU_ENGINE_COPY] =
		    emu_later(clock->open[EMU_ENGINE_COPY], end);
		return;
	}
	for (size_t k = 0; k < c->n_pieces; k++)
		bytes += c->pieces[k].bytes;
	begin = emu_serve(&c->warp->cta->clock->sm->tma, clock->now,
			  bytes / t->table->tma_rate);
	end = fetch_pieces(c, begin);
	end = emu_later(end, begin + bytes / t->table->tma_rate) +
	      t->table->tma_latency;
	if (c->kind == EMU_BULK_LOAD)
		clock->arrival = end;
	else
		clock->open[EMU_ENGINE_STORE] =
		    emu_later(clock->open[EMU_ENGINE_STORE], end);
	t->end = emu_later(t->end, end);
}

void emu_time_copied(struct emu_warp *w)
{
	if (w->clock)
		w->clock->arrival = 0;
}

void emu_time_wgmma(struct emu_warp *w, uint32_t n)
{
	struct emu_time *t = emu_time_machine(w);
	double begin;

	if (!t)
		return;
	begin = emu_serve(&w->cta->clock->sm->tensor[w->index % EMU_QUARTERS],
			  w->clock->now, n / 2.0);
	t->tensor_busy += n / 2.0;
	w->clock->open[EMU_ENGINE_WGMMA] =
	    begin + n / 2.0 + t->table->wgmma_latency;
}

void emu_time_commit(struct emu_warp *w, enum emu_engine engine)
{
	struct emu_warp_clock *c = w->clock;

	if (!emu_time_machine(w))
		return;
	/* Groups end in order. */
	c->group[engine][c->groups[engine]++ % EMU_GROUPS] = c->open[engine];
}

void emu_time_wait_group(struct emu_warp *w, enum emu_engine engine,
			 uint32_t newest)
{
	struct emu_warp_clock *c = w->clock;
	double end;

	if (!emu_time_machine(w) || newest >= EMU_GROUPS ||
	    newest > c->groups[engine])
		return;
	end = newest == 0 ? c->open[engine]
	      : newest == c->groups[engine]
		  ? 0
		  : c->group[engine]
			    [(c->groups[engine] - newest - 1) % EMU_GROUPS];
	c->now = emu_later(c->now, end);
}
