/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_engines.c - L2, HBM, TMA and tensor cores: when their requests complete.
 */
#include <math.h>
#include <string.h>

#include "machine/time.h"
#include "machine/time_state.h"
#include "machine/time_trace.h"
#include "machine/transfer.h"
#include "ptx/bind.h"

#define LINE_SHIFT   7
#define LINE_BYTES   (1 << LINE_SHIFT)
#define SECTOR_BYTES 32

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

/* Cycles over which the load of HBM is averaged. */
#define LOAD_CYCLES 2000

/* The latency that HBM's load adds to a request for a line at `at`. */
static double hbm_wait(struct emu_time *t, double at, double service)
{
	const double since = at > t->hbm_asked ? at - t->hbm_asked : 0;
	const double kept = since < 8 * LOAD_CYCLES ? exp(-since / LOAD_CYCLES) : 0;

	if (t->table.hbm_loaded <= 0)
		return 0;
	t->hbm_load = t->hbm_load * kept + service / LOAD_CYCLES;
	t->hbm_asked = emu_later(t->hbm_asked, at);
	return t->table.hbm_loaded * (t->hbm_load < 1 ? t->hbm_load : 1);
}

/* Requests sectors of a line at `at`: when their bytes are at the SM. */
static double fetch_line(struct emu_time *t, struct emu_sm *sm, uint64_t line,
			 uint32_t sectors, double at, bool is_store)
{
	const struct emu_time_table *c = &t->table;
	const double bytes = sectors * SECTOR_BYTES;
	const double service = bytes / (is_store ? c->l2_store_rate : c->l2_rate);
	const double sent = emu_serve(&sm->port, at, bytes / c->sm_rate);
	const double from_l2 = emu_serve(&t->l2, sent, service);
	double from_hbm;

	t->l2_busy += service;
	emu_trace_engine(t->trace, 0, EMU_TRACE_L2, from_l2, t->l2);
	if (touch(t, line) || is_store)
		return from_l2 + c->l2_latency;
	t->hbm_busy += LINE_BYTES / c->hbm_rate;
	from_hbm = emu_serve(&t->hbm, from_l2, LINE_BYTES / c->hbm_rate);
	emu_trace_engine(t->trace, 0, EMU_TRACE_HBM, from_hbm, t->hbm);
	return from_hbm + c->hbm_latency +
	       hbm_wait(t, from_hbm, LINE_BYTES / c->hbm_rate);
}

/* The distinct lines that the lanes of one instruction access. */
struct request {
	uint64_t line[EMU_LANES];
	uint8_t sectors[EMU_LANES]; /* a bit each */
	uint32_t count;
};

static void add_bytes(struct request *r, uint64_t address)
{
	const uint64_t line = address >> LINE_SHIFT;
	uint32_t k = r->count;

	while (k > 0 && r->line[k - 1] != line)
		k--;
	if (k == 0) {
		if (r->count == EMU_LANES)
			return;
		r->line[r->count] = line;
		r->sectors[r->count] = 0;
		k = ++r->count;
	}
	r->sectors[k - 1] |=
	    (uint8_t)(1u << (address / SECTOR_BYTES % (LINE_BYTES / SECTOR_BYTES)));
}

/*
 * When the L1 has looked up a load's lines and requests their sectors: lines of which
 * the load reads only parts take longer.
 */
static double look_up(const struct emu_warp *w, const struct request *r)
{
	const struct emu_time *t = emu_time_machine(w);
	double cycles = 0;

	for (uint32_t k = 0; k < r->count; k++)
		if (r->sectors[k] != (1 << LINE_BYTES / SECTOR_BYTES) - 1)
			cycles += t->table.l1_part;
	return emu_serve(&w->cta->clock->sm->l1, t->now, cycles);
}

/* When the last of them has arrived. */
static double fetch(struct emu_warp *w, const struct request *r, double at,
		    bool is_store)
{
	struct emu_sm *sm = w->cta->clock->sm;
	double end = at;

	for (uint32_t k = 0; k < r->count; k++)
		end = emu_later(end,
				fetch_line(emu_time_machine(w), sm, r->line[k],
					   (uint32_t)__builtin_popcount(r->sectors[k]),
					   at, is_store));
	if (!is_store && r->count)
		sm->returned = emu_later(sm->returned, end);
	return end;
}

/* The largest number of different words in a bank for lanes first to end. */
static uint32_t most_in_a_bank(uint32_t lanes, const uint64_t *address, uint32_t bytes,
			       int first, int end)
{
	uint64_t words[EMU_LANES][EMU_LANES];
	uint32_t count[EMU_LANES] = {0}, most = 0;

	for (int l = first; l < end; l++)
		for (uint32_t b = 0; lanes >> l & 1 && b < bytes; b += 4) {
			const uint64_t word = (address[l] + b) / 4;
			const uint32_t bank = word % EMU_LANES;
			uint32_t k = 0;

			while (k < count[bank] && words[bank][k] != word)
				k++;
			if (k == count[bank] && k < EMU_LANES)
				words[bank][count[bank]++] = word;
			most = most > count[bank] ? most : count[bank];
		}
	return most;
}

/* Wavefronts: 16 bytes are served by quarters of the warp, 8 by halves. */
static double wavefronts(uint32_t lanes, const uint64_t *address, uint32_t bytes)
{
	const int parts = bytes >= 16 ? 4 : bytes == 8 ? 2 : 1;
	const int each = EMU_LANES / parts;
	uint32_t sum = 0;

	for (int p = 0; p < parts; p++)
		sum += most_in_a_bank(lanes, address, bytes, p * each, (p + 1) * each);
	return sum > 1 ? sum : 1;
}

static void access_shared(struct emu_warp *w, uint32_t lanes, const uint64_t *address,
			  uint32_t bytes)
{
	struct emu_time *t = emu_time_machine(w);
	struct emu_sm *sm = w->cta->clock->sm;
	const double many = wavefronts(lanes, address, bytes);
	const double begin = emu_serve(&sm->shared, t->now, many);

	emu_trace_engine(t->trace, sm->number, EMU_TRACE_SHARED, begin, begin + many);
	w->clock->result = begin + many - 1 + t->table.shared_latency;
}

/*
 * Parameters come from a constant cache, which is empty when a grid begins.  Machine
 * instructions have them as operands, so the warp waits at once.  With a computed
 * address the access is a load.
 */
static void access_parameter(struct emu_warp *w, const struct emu_instr *i,
			     uint32_t lanes, const uint64_t *address)
{
	const struct emu_time_table *c = &emu_time_machine(w)->table;
	const struct emu_grid *g = w->cta->cluster->grid;
	struct emu_sm *sm = w->cta->clock->sm;
	const uint64_t at =
	    address[__builtin_ctz(lanes)] - (uint64_t)(uintptr_t)g->parameters;
	double *there = &sm->parameters[at / EMU_PARAMETER_LINE % EMU_PARAMETER_LINES];

	if (at >= g->kernel->parameter_bytes)
		return;
	if (*there <= 0)
		*there = w->clock->now + c->parameter_miss;
	emu_time_advance(w, EMU_SPENT_LOADS, *there);
	if (i->operand[i->operands - 1].bank == EMU_REGISTERS)
		w->clock->result = w->clock->now + c->parameter_latency;
}

/* True if the first lane's address in shared memory is in another CTA. */
static bool is_remote(const struct emu_warp *w, uint32_t lanes, const uint64_t *address)
{
	return address[__builtin_ctz(lanes)] >> EMU_RANK_SHIFT != w->cta->rank;
}

void emu_time_access(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, bool is_store)
{
	struct emu_time *t = emu_time_machine(w);
	const struct emu_space *global = &emu_machine_of(w)->global;
	struct request r = {.count = 0};
	double end;

	if (!t || i->space == EMU_CONST)
		return;
	if (i->space == EMU_PARAM) {
		access_parameter(w, i, lanes, address);
		return;
	}
	if (i->space == EMU_SHARED || i->space == EMU_SHARED_CLUSTER) {
		access_shared(w, lanes, address, bytes);
		if (is_store && i->space == EMU_SHARED_CLUSTER &&
		    is_remote(w, lanes, address))
			w->cta->clock->sm->stored = emu_later(w->cta->clock->sm->stored,
							      t->now + t->table.remote);
		return;
	}
	EMU_EACH_LANE(l)
	if (lanes >> l & 1 && address[l] - global->base < global->bytes)
		add_bytes(&r, address[l]);
	end = fetch(w, &r, is_store ? t->now : look_up(w, &r), is_store);
	if (is_store) {
		w->cta->clock->sm->stored = emu_later(w->cta->clock->sm->stored, end);
		/* A grid has ended when its stores have. */
		t->end = emu_later(t->end, end);
	}
	if (is_store)
		return;
	/* Loads and cp.async that were requested earlier return first. */
	if (r.count)
		end = emu_later(end, w->cta->clock->sm->returned);
	if (end <= w->clock->result)
		return;
	w->clock->result = end;
	w->clock->result_of = EMU_SPENT_LOADS;
}

/*
 * Requests the pieces of a copy from `begin` on, and returns when the last is
 * complete.  The pieces of a cp.async belong to the warp's lanes.
 */
static double fetch_pieces(const struct emu_transfer *c, double begin)
{
	struct emu_time *t = emu_time_machine(c->warp);
	const struct emu_space *global = &emu_machine_of(c->warp)->global;
	const bool is_store = c->kind == EMU_BULK_STORE;
	struct request r = {.count = 0};
	uint64_t last = UINT64_MAX;
	double end = begin;

	for (size_t k = 0; k < c->n_pieces; k++) {
		const struct emu_piece *p = &c->pieces[k];
		const uint64_t at = (uintptr_t)(is_store ? p->to : p->from);

		if (!p->copied || at - (uintptr_t)global->data >= global->bytes)
			continue;
		if (c->kind == EMU_CP_ASYNC) {
			add_bytes(&r, at);
			continue;
		}
		if (at >> LINE_SHIFT == last)
			continue;
		last = at >> LINE_SHIFT;
		end = emu_later(end,
				fetch_line(t, c->warp->cta->clock->sm, last,
					   LINE_BYTES / SECTOR_BYTES, begin, is_store));
	}
	return emu_later(end, fetch(c->warp, &r, begin, is_store));
}

/*
 * The number of lines of 128 bytes, or parts of lines, that a copy of the rows of a
 * box reads.  Parts outside the tensor count by their bytes.
 */
static double rows_of(const struct emu_transfer *c)
{
	uint64_t last = UINT64_MAX;
	double rows = 0;

	for (size_t k = 0; k < c->n_pieces; k++) {
		const struct emu_piece *p = &c->pieces[k];
		const uint64_t line = (uintptr_t)p->from >> LINE_SHIFT;

		if (!p->copied) {
			rows += (double)p->bytes / LINE_BYTES;
			continue;
		}
		rows += line != last;
		last = line;
	}
	return rows;
}

/* Cycles of the TMA for a load.  In a table without tma_row only bytes count. */
static double load_service(const struct emu_transfer *c, double bytes)
{
	const struct emu_time_table *t = &emu_time_machine(c->warp)->table;

	return c->instr->opcode->is_tensor_copy && t->tma_row > 0
		   ? rows_of(c) * t->tma_row
		   : bytes / t->tma_rate;
}

static double load_bulk(const struct emu_transfer *c, double bytes)
{
	struct emu_time *t = emu_time_machine(c->warp);
	struct emu_sm *sm = c->warp->cta->clock->sm;
	const double service = load_service(c, bytes);
	const double begin = emu_serve(&sm->tma, c->warp->clock->now, service);

	emu_trace_engine(t->trace, sm->number, EMU_TRACE_TMA, begin, begin + service);
	return emu_later(fetch_pieces(c, begin), begin + service) +
	       t->table.tma_latency;
}

static double store_bulk(const struct emu_transfer *c, double bytes)
{
	struct emu_time *t = emu_time_machine(c->warp);
	struct emu_sm *sm = c->warp->cta->clock->sm;
	/* An MMA that streams from shared memory leaves half of its bandwidth. */
	const double factor = sm->tcgen05.mma > c->warp->clock->now ? 2 : 1;
	const double service = factor * bytes / t->table.tma_store_rate;
	const double begin = emu_serve(&sm->tma_store, c->warp->clock->now, service);

	(void)fetch_pieces(c, begin);
	return begin + service + t->table.tma_store_latency;
}

void emu_time_copy(struct emu_transfer *c)
{
	struct emu_time *t = emu_time_machine(c->warp);
	struct emu_warp_clock *clock = c->warp->clock;
	double bytes = 0, end;

	if (!t)
		return;
	if (c->kind == EMU_CP_ARRIVE) {
		clock->arrival = emu_later(clock->open[EMU_ASYNC_COPY], clock->now);
		return;
	}
	if (c->kind == EMU_CP_ASYNC) {
		double *quarter =
		    &c->warp->cta->clock->sm->async[c->warp->index % EMU_QUARTERS];

		for (size_t k = 0; k < c->n_pieces; k++)
			bytes += c->pieces[k].bytes;
		end = fetch_pieces(
		    c, emu_serve(quarter, clock->now, bytes / t->table.cp_async_rate));
		/* Later operations wait until it begins. */
		emu_time_advance(c->warp, EMU_SPENT_PIPE, *quarter);
		clock->open[EMU_ASYNC_COPY] =
		    emu_later(clock->open[EMU_ASYNC_COPY], end);
		return;
	}
	/* From registers, or the answer of clusterlaunchcontrol.try_cancel. */
	if (c->n_pieces && c->pieces[0].from == c->inline_bytes) {
		clock->arrival = clock->now + (c->instr->traits & EMU_OF_THREADS
						   ? t->table.remote
						   : t->table.try_cancel);
		return;
	}
	for (size_t k = 0; k < c->n_pieces; k++)
		bytes += c->pieces[k].bytes;
	/* A multicast is issued and read once, and lands in several CTAs. */
	if (c->kind == EMU_BULK_LOAD && c->n_pieces &&
	    clock->load_from == c->pieces[0].from && clock->load_issued == clock->now) {
		clock->arrival = clock->load_there;
		return;
	}
	if (c->kind == EMU_BULK_LOAD) {
		end = load_bulk(c, bytes);
		clock->arrival = end;
	} else {
		end = store_bulk(c, bytes);
		clock->open[EMU_ASYNC_STORE] =
		    emu_later(clock->open[EMU_ASYNC_STORE], end);
	}
	emu_time_advance(c->warp, EMU_SPENT_ISSUE, clock->now + t->table.tma_issue);
	if (c->kind == EMU_BULK_LOAD && c->n_pieces) {
		clock->load_from = c->pieces[0].from;
		clock->load_issued = clock->now;
		clock->load_there = end;
	}
	t->end = emu_later(t->end, end);
}

void emu_time_copied(struct emu_warp *w)
{
	if (w->clock)
		w->clock->arrival = 0;
}

void emu_time_wgmma(struct emu_warp *w, uint32_t n, bool a_is_shared)
{
	struct emu_time *t = emu_time_machine(w);
	double begin, service;

	if (!t)
		return;
	service = emu_later(n / 2.0, a_is_shared ? t->table.wgmma_shared_least + n / 4.0
						 : t->table.wgmma_least);
	begin = emu_serve(&w->cta->clock->sm->tensor[w->index % EMU_QUARTERS],
			  w->clock->now, service);
	t->tensor_busy += n / 2.0;
	emu_trace_engine(t->trace, w->cta->clock->sm->number, EMU_TRACE_TENSOR, begin,
			 begin + service);
	w->cta->clock->sm->accumulates[w->index % EMU_QUARTERS] = begin + n / 2.0;
	w->clock->open[EMU_ASYNC_WGMMA] = begin + service + t->table.wgmma_latency;
	/*
	 * A from registers is not queued: the warp stalls until the
	 * tensor cores take the operation, and is free while they run it
	 * (docs/notes/0031: four of n columns, then LOP3, take 3 n / 2 cycles
	 * and those of the LOP3).
	 */
	if (!a_is_shared)
		emu_time_advance(w, EMU_SPENT_TENSOR, begin);
}

void emu_time_commit(struct emu_warp *w, enum emu_async_kind kind)
{
	struct emu_warp_clock *c = w->clock;

	if (!emu_time_machine(w))
		return;
	/* Groups end in order. */
	c->group[kind][c->groups[kind]++ % EMU_GROUPS] = c->open[kind];
}

void emu_time_wait_group(struct emu_warp *w, enum emu_async_kind kind, uint32_t newest)
{
	struct emu_warp_clock *c = w->clock;
	double end;

	if (!emu_time_machine(w) || newest >= EMU_GROUPS || newest > c->groups[kind])
		return;
	end = newest == 0 ? c->open[kind]
	      : newest == c->groups[kind]
		  ? 0
		  : c->group[kind][(c->groups[kind] - newest - 1) % EMU_GROUPS];
	emu_time_advance(
	    w, kind == EMU_ASYNC_WGMMA ? EMU_SPENT_TENSOR : EMU_SPENT_COPIES, end);
}
