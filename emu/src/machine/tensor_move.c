/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_move.c - tcgen05.ld, .st, .wait and .fence of whole warps.  The seed selects
 * whether a load or store happens when it is issued or at the wait.  The result
 * registers of a load may not be accessed before the wait, unless it follows in the
 * same basic block.
 */
#include "machine/tensor_move.h"

#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "machine/async.h"
#include "machine/random.h"
#include "machine/report.h"
#include "machine/time_tcgen05.h"
#include "machine/watch.h"
#include "ptx/bind.h"

struct move {
	const struct emu_instr *instr;
	uint32_t address;
	bool is_store, is_done;
	uint32_t *values; /* [registers][lanes] */
};

struct emu_tmem_queue {
	struct move *moves;
	size_t count, capacity;
	uint8_t *results; /* one bit for each register row */
	size_t bytes;
};

static const uint8_t all_bytes = 0xF;

/* ---- registers in flight ------------------------------------------------- */

static bool is_result(const struct emu_tmem_queue *q, const struct emu_value *v)
{
	const uint32_t at = v->row / (4 * EMU_LANES);

	return v->bank == EMU_REGISTERS && v->bytes >= 4 &&
	       q->results[at / 8] >> at % 8 & 1;
}

static void mark_result(struct emu_tmem_queue *q, const struct emu_value *v)
{
	const uint32_t at = v->row / (4 * EMU_LANES);

	if (v->reg != EMU_NO_REGISTER)
		q->results[at / 8] |= (uint8_t)(1u << at % 8);
}

static struct emu_tmem_queue *queue_of(struct emu_warp *w, const struct emu_instr *i)
{
	struct emu_tmem_queue *q = w->async->tmem;

	if (q)
		return q;
	q = calloc(1, sizeof(*q));
	if (q) {
		q->bytes = w->cta->cluster->grid->kernel->register_bytes / 1024 + 1;
		q->results = calloc(1, q->bytes);
	}
	if (!q || !q->results) {
		free(q);
		emu_fault(w, i, -1, "no memory for a load");
		return NULL;
	}
	w->async->tmem = q;
	return q;
}

void emu_tmem_queue_free(struct emu_tmem_queue *q)
{
	if (!q)
		return;
	for (size_t k = 0; k < q->count; k++)
		free(q->moves[k].values);
	free(q->moves);
	free(q->results);
	free(q);
}

/* ---- ld and st ----------------------------------------------------------- */

static enum emu_tmem_shape shape_of(const struct emu_instr *i)
{
	return (enum emu_tmem_shape)(i->option & 7);
}

/* The number of columns that start at the address; for 16x32bx2, of each half. */
static uint32_t columns_of(const struct emu_instr *i)
{
	const enum emu_tmem_shape shape = shape_of(i);
	const uint32_t columns =
	    emu_tmem_shape_columns(shape) * i->vector / emu_tmem_shape_registers(shape);

	return i->option & EMU_TMEM_PACK ? 2 * columns : columns;
}

static uint32_t split_of(const struct emu_instr *i)
{
	return shape_of(i) == EMU_TMEM_16X32BX2 ? (uint32_t)i->offset[0] : 0;
}

/*
 * A warp accesses the 32 lanes of its number in the warpgroup.  The hardware
 * ignores the bits of the address that should name them, and kernels rely on it.
 */
static bool check_place(struct emu_warp *w, const struct emu_instr *i, struct move *m)
{
	const uint32_t lanes = emu_tmem_shape_lanes(shape_of(i));
	const uint32_t lane = emu_tmem_lane(m->address);
	const uint32_t first = w->index % 4 * 32;

	if ((lane / 32 * 32 != first && emu_machine_of(w)->options.is_anywhere) ||
	    lane % lanes) {
		emu_fault(w, i, -1,
			  "tensor memory address 0x%08x, lane %u: warp %u "
			  "reaches lanes %u to %u, this shape from a multiple "
			  "of %u on",
			  m->address, lane, w->index, first, first + 31, lanes);
		return false;
	}
	m->address = (first + lane % 32) << 16 | emu_tmem_column(m->address);
	return emu_tmem_reach(w, i, -1, w->cta->rank, m->address, columns_of(i)) &&
	       (!split_of(i) ||
		emu_tmem_reach(w, i, -1, w->cta->rank, m->address + split_of(i),
			       columns_of(i)));
}

static bool watch_move(struct emu_warp *w, const struct move *m)
{
	const struct emu_instr *i = m->instr;
	const uint32_t split = split_of(i);

	for (uint32_t half = 0; half < (split ? 2u : 1u); half++)
		if (!emu_watch_tmem(
			w, i, -1, m->is_store ? EMU_TMEM_ST : EMU_TMEM_LD, w->cta->rank,
			emu_tmem_lane(m->address), emu_tmem_shape_lanes(shape_of(i)),
			emu_tmem_column(m->address) + half * split, columns_of(i), 0))
			return false;
	return true;
}

/* The cell of register r of a thread; if two are packed, the first of them. */
static void place_of(const struct move *m, int thread, uint32_t r, uint32_t *lane,
		     uint32_t *column)
{
	const struct emu_instr *i = m->instr;
	const uint32_t wide = i->option & EMU_TMEM_PACK ? 2 : 1;

	emu_tmem_fragment(shape_of(i), thread, (int)r, lane, column);
	*lane += emu_tmem_lane(m->address);
	*column = *column * wide + emu_tmem_column(m->address) +
		  (thread >= 16 ? split_of(i) : 0);
}

/* Reads a cell for a load.  False after a fault. */
static bool load_cell(struct emu_warp *w, const struct move *m,
		      const struct emu_tmem *t, int thread, uint32_t lane,
		      uint32_t column, uint32_t *value)
{
	*value = t->cell[lane][column];
	if (t->pending[lane][column]) {
		emu_fault(w, m->instr, thread,
			  "tensor memory lane %u, column %u is going to be "
			  "written: that has not been waited for",
			  lane, column);
		return false;
	}
	if (t->written[lane][column] != all_bytes) {
		emu_fault(w, m->instr, thread,
			  "tensor memory lane %u, column %u was never written", lane,
			  column);
		return false;
	}
	return true;
}

static void store_cell(struct emu_tmem *t, uint32_t lane, uint32_t column,
		       uint32_t value)
{
	t->cell[lane][column] = value;
	t->written[lane][column] = all_bytes;
	t->pending[lane][column]--;
}

/* Moves register r of a thread.  False after a fault. */
static bool move_one(struct emu_warp *w, struct move *m, struct emu_tmem *t, int thread,
		     uint32_t r)
{
	const struct emu_instr *i = m->instr;
	const bool packs = i->option & EMU_TMEM_PACK;
	uint32_t *value = &m->values[r * EMU_LANES + (uint32_t)thread];
	uint32_t lane, column, low, high = 0;

	place_of(m, thread, r, &lane, &column);
	if (m->is_store) {
		store_cell(t, lane, column, packs ? *value & 0xFFFF : *value);
		if (packs)
			store_cell(t, lane, column + 1, *value >> 16);
		return true;
	}
	if (!load_cell(w, m, t, thread, lane, column, &low) ||
	    (packs && !load_cell(w, m, t, thread, lane, column + 1, &high)))
		return false;
	*value = packs ? (low & 0xFFFF) | high << 16 : low;
	return true;
}

static bool do_move(struct emu_warp *w, struct move *m)
{
	struct emu_tmem *t = emu_tmem_of(w, m->instr, w->cta->rank);

	for (uint32_t r = 0; r < m->instr->vector && !m->is_done; r++)
		EMU_EACH_LANE(l)
	if (!move_one(w, m, t, l, r))
		return false;
	m->is_done = true;
	emu_machine_of(w)->effects++;
	return true;
}

/*
 * Marks the cells of a store as pending, so that a load before the store happens is
 * reported.
 */
static void mark_store(struct emu_warp *w, const struct move *m)
{
	struct emu_tmem *t = emu_tmem_of(w, m->instr, w->cta->rank);
	const bool packs = m->instr->option & EMU_TMEM_PACK;

	for (uint32_t r = 0; r < m->instr->vector; r++)
		EMU_EACH_LANE(l)
		{
			uint32_t lane, column;

			place_of(m, l, r, &lane, &column);
			t->pending[lane][column]++;
			if (packs)
				t->pending[lane][column + 1]++;
		}
}

static void mark_results(struct emu_tmem_queue *q, const struct move *m)
{
	for (uint32_t r = 0; r < m->instr->vector; r++)
		mark_result(q, &m->instr->operand[r]);
}

static void issue(struct emu_warp *w, const struct emu_instr *i, bool is_store,
		  const struct emu_value *address, uint32_t first_register)
{
	struct emu_machine *machine = emu_machine_of(w);
	struct emu_tmem_queue *q = queue_of(w, i);
	struct move *grown, *m;
	uint32_t base;

	if (!q || !emu_is_whole_warp(w, i) ||
	    !emu_uniform(w, i, address, "the address", &base))
		return;
	grown = emu_grow(q->moves, &q->capacity, q->count, sizeof(*grown));
	if (grown)
		q->moves = grown;
	m = grown ? &grown[q->count] : NULL;
	if (m)
		*m = (struct move){.instr = i,
				   .address = base + (uint32_t)i->immediate,
				   .is_store = is_store,
				   .values = malloc(4 * EMU_LANES * (size_t)i->vector)};
	if (!m || !m->values) {
		emu_fault(w, i, -1, "no memory for a load");
		return;
	}
	q->count++;
	if (!check_place(w, i, m) || !watch_move(w, m))
		return;
	for (uint32_t r = 0; is_store && r < i->vector; r++)
		memcpy(m->values + r * EMU_LANES,
		       emu_row(w, &i->operand[first_register + r]), 4 * EMU_LANES);
	if (is_store) {
		mark_store(w, m);
	} else {
		mark_results(q, m);
		w->in_flight = true;
	}
	if (!machine->options.seed || emu_random_below(machine, 2))
		(void)do_move(w, m);
	emu_time_tmem_move(w, shape_of(i), i->vector, emu_tmem_column(m->address),
			   is_store);
}

void emu_run_tmem_ld(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	(void)lanes;
	issue(w, i, false, &i->operand[i->vector], 0);
}

void emu_run_tmem_st(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	(void)lanes;
	issue(w, i, true, &i->operand[0], 1);
}

/* ---- wait and fence ------------------------------------------------------ */

static bool finish(struct emu_warp *w, struct move *m)
{
	if (!do_move(w, m))
		return false;
	for (uint32_t r = 0; !m->is_store && r < m->instr->vector; r++)
		emu_put_32(w, &m->instr->operand[r], m->values + r * EMU_LANES,
			   UINT32_MAX);
	free(m->values);
	m->values = NULL;
	return true;
}

/* Writes the registers.  They may still not be used before the wait. */
static bool deliver(struct emu_warp *w, struct emu_tmem_queue *q)
{
	for (size_t k = 0; k < q->count; k++)
		if (!q->moves[k].is_store && q->moves[k].values &&
		    !finish(w, &q->moves[k]))
			return false;
	return true;
}

/*
 * nvcc copies the results of inline assembly to other registers at once, and ptxas
 * merges the two registers.  So a copy of a result also counts as a result.
 */
static bool copy_result(struct emu_warp *w, struct emu_tmem_queue *q,
			const struct emu_instr *i)
{
	if (!i->opcode->is_move || i->operands != 2 || is_result(q, &i->operand[0]) ||
	    i->operand[0].bytes < 4 || !deliver(w, q))
		return false;
	mark_result(q, &i->operand[0]);
	return true;
}

/*
 * True if a tcgen05.wait::ld follows in the same basic block.  Compilers move the use
 * of a result above the wait that the source has before it, because the wait does not
 * name the registers: Triton's kernels do so.  ptxas knows the registers.
 */
static bool is_waited_for(const struct emu_warp *w, const struct emu_instr *i)
{
	const struct emu_kernel *k = w->cta->cluster->grid->kernel;

	if (emu_machine_of(w)->options.is_strict)
		return false;
	for (i++; i < k->code + k->count && !i->is_leader; i++)
		if (i->run == emu_run_tmem_wait && !(i->option & EMU_TMEM_STORES) &&
		    i->guard_reg == EMU_NO_REGISTER)
			return true;
	return false;
}

bool emu_tmem_check_registers(struct emu_warp *w, const struct emu_instr *i)
{
	struct emu_tmem_queue *q = w->async->tmem;

	for (uint32_t k = 0; q && k < i->operands; k++) {
		if (!is_result(q, &i->operand[k]))
			continue;
		if (copy_result(w, q, i))
			return true;
		if (is_waited_for(w, i)) {
			memset(q->results, 0, q->bytes);
			return deliver(w, q);
		}
		if (!emu_object(w, i, -1,
				"operand %u is a result of a tcgen05.ld that "
				"has not been waited for",
				k) ||
		    !deliver(w, q))
			return false;
		/*
		 * Continue as after a wait; otherwise every later use would be
		 * reported too.  On a GPU the registers have their values when
		 * they are used.
		 */
		memset(q->results, 0, q->bytes);
		emu_watch_tmem_wait(w, false);
	}
	return true;
}

void emu_run_tmem_wait(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const bool stores = i->option & EMU_TMEM_STORES;
	struct emu_tmem_queue *q = queue_of(w, i);
	size_t left = 0;

	(void)lanes;
	if (!q || !emu_is_whole_warp(w, i))
		return;
	for (size_t k = 0; k < q->count; k++) {
		if (q->moves[k].is_store != stores)
			q->moves[left++] = q->moves[k];
		else if (q->moves[k].values && !finish(w, &q->moves[k]))
			return;
	}
	q->count = left;
	if (!stores) {
		memset(q->results, 0, q->bytes);
		w->in_flight = false;
	}
	emu_watch_tmem_wait(w, stores);
	emu_time_tmem_wait(w, stores);
}

void emu_run_tmem_before(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	(void)i;
	(void)lanes;
	emu_watch_tmem_before(w);
}

void emu_run_tmem_after(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	(void)i;
	(void)lanes;
	emu_watch_tmem_after(w);
}
