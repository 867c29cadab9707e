/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_queue.c - operations that one thread issues to the tensor core:
 * tcgen05.mma, .cp and .commit.  They wait in a queue of their warp.  tensor_math.c
 * does the arithmetic.
 */
#include "machine/tensor_queue.h"

#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "machine/access.h"
#include "machine/random.h"
#include "machine/report.h"
#include "machine/tensor_math.h"
#include "machine/time_tcgen05.h"
#include "machine/transfer.h"
#include "machine/watch.h"

/* The most turns of the scheduler that an operation usually takes. */
#define USUAL_DELAY 40
#define LONG_DELAY  2000

enum op_kind { OP_MMA, OP_COPY, OP_COMMIT };

struct emu_tensor_op {
	enum op_kind kind;
	struct emu_warp *warp;
	const struct emu_instr *instr;
	uint64_t due;
	struct emu_umma_work mma;
	/* copy */
	struct emu_umma_matrix from;
	uint32_t to;
	/* commit */
	uint64_t barrier;
	uint32_t mask; /* of CTAs; 0: only the barrier's */
	struct emu_check_mark *mark;
};

/* ---- the cells that an operation writes ---------------------------------- */

static uint32_t group_size(const struct emu_tensor_op *op)
{
	return op->instr->option & EMU_TCGEN05_PAIR ? 2 : 1;
}

/* The rank of the CTA that is number `k` of the operation's group. */
static uint32_t rank_of(const struct emu_tensor_op *op, uint32_t k)
{
	return group_size(op) == 2 ? (op->warp->cta->rank & ~1u) + k
				   : op->warp->cta->rank;
}

static void add_pending(struct emu_tmem *t, uint32_t lane, uint32_t column,
			uint32_t columns, int by)
{
	for (uint32_t c = 0; c < columns; c++)
		t->pending[lane][column + c] =
		    (uint8_t)(t->pending[lane][column + c] + by);
}

static void pending_copy(const struct emu_tensor_op *op, struct emu_tmem *t, int by)
{
	const enum emu_tmem_copy copy = (enum emu_tmem_copy)op->instr->vector;
	const uint32_t base = emu_tmem_lane(op->to);

	for (uint32_t row = 0; row < emu_tmem_copy_rows(copy); row++) {
		uint32_t lanes[4];
		const uint32_t n = emu_tmem_copy_lanes(copy, row, lanes);

		for (uint32_t k = 0; k < n; k++)
			add_pending(t, base + lanes[k], emu_tmem_column(op->to),
				    4 * emu_tmem_copy_pieces(copy), by);
	}
}

/* Marks cells, so that a load before the operation has ended is reported. */
static void set_pending(const struct emu_tensor_op *op, int by)
{
	for (uint32_t k = 0; k < group_size(op); k++) {
		struct emu_tmem *t = emu_tmem_of(op->warp, op->instr, rank_of(op, k));

		if (t && op->kind == OP_COPY)
			pending_copy(op, t, by);
		for (int lane = 0; t && op->kind == OP_MMA && lane < 128; lane++)
			if (emu_umma_has_lane(&op->mma, lane))
				add_pending(
				    t, (uint32_t)lane, emu_tmem_column(op->mma.d),
				    (uint32_t)emu_umma_d_columns(&op->mma.umma), by);
	}
}

/* ---- doing them ---------------------------------------------------------- */

static void put_piece(struct emu_tmem *t, uint32_t lane, uint32_t column,
		      const uint8_t *from, const uint8_t *shadow)
{
	for (uint32_t word = 0; word < 4; word++) {
		uint8_t written = 0;

		for (uint32_t b = 0; b < 4; b++)
			if (shadow[4 * word + b] & EMU_WRITTEN)
				written |= (uint8_t)(1u << b);
		memcpy(&t->cell[lane][column + word], from + 4 * word, 4);
		t->written[lane][column + word] = written;
	}
}

static bool copy_to(const struct emu_tensor_op *op, uint32_t rank)
{
	const enum emu_tmem_copy copy = (enum emu_tmem_copy)op->instr->vector;
	struct emu_tmem *t = emu_tmem_of(op->warp, op->instr, rank);

	for (uint32_t row = 0; t && row < emu_tmem_copy_rows(copy); row++)
		for (uint32_t p = 0; p < emu_tmem_copy_pieces(copy); p++) {
			const uint64_t at =
			    emu_umma_offset(&op->from, false, (int)row, (int)p);
			uint32_t lanes[4];
			const uint32_t n = emu_tmem_copy_lanes(copy, row, lanes);
			uint8_t *shadow;
			const uint8_t *from =
			    emu_access(op->warp, op->instr, -1, EMU_SHARED_CLUSTER,
				       at | (uint64_t)rank << EMU_RANK_SHIFT, 16,
				       EMU_COPY, &shadow);

			if (!from)
				return false;
			for (uint32_t k = 0; k < n; k++)
				put_piece(t, emu_tmem_lane(op->to) + lanes[k],
					  emu_tmem_column(op->to) + 4 * p, from,
					  shadow);
		}
	return t;
}

static bool arrive(const struct emu_tensor_op *op, uint64_t barrier)
{
	emu_watch_mark_arrive(op->warp, op->mark, barrier);
	return emu_arrive_at(op->warp, op->instr, -1, barrier, 1, 0);
}

static void commit(const struct emu_tensor_op *op)
{
	const uint64_t low = (UINT64_C(1) << EMU_RANK_SHIFT) - 1;

	if (!(op->instr->option & EMU_COMMIT_MASK)) {
		(void)arrive(op, op->barrier);
		return;
	}
	for (uint64_t rank = 0; rank < op->warp->cta->cluster->n_ctas; rank++)
		if (op->mask >> rank & 1 &&
		    !arrive(op, (op->barrier & low) | rank << EMU_RANK_SHIFT))
			return;
}

/* Reports a pair whose other CTA has ended before the operation. */
static bool has_group(const struct emu_tensor_op *op)
{
	const struct emu_cluster *c = op->warp->cta->cluster;

	for (uint32_t k = 0; k < group_size(op); k++)
		if (c->ctas[rank_of(op, k)].n_live == 0) {
			emu_fault(op->warp, op->instr, -1,
				  "CTA rank %u has ended, and this operation "
				  "has not",
				  rank_of(op, k));
			return false;
		}
	return true;
}

static void free_op(struct emu_tensor_op *op)
{
	free(op->mark);
	free(op);
}

static void perform(struct emu_tensor_op *op)
{
	struct emu_machine *m = emu_machine_of(op->warp);

	if (op->kind == OP_COMMIT) {
		emu_time_tmem_commit(op->warp);
		commit(op);
		emu_time_tmem_committed(op->warp);
	} else if (has_group(op)) {
		if (m->options.seed)
			set_pending(op, -1);
		for (uint32_t k = 0; k < group_size(op); k++)
			if (op->kind == OP_COPY && !copy_to(op, rank_of(op, k)))
				break;
		if (op->kind == OP_COPY)
			emu_time_tmem_copy(op->warp,
					   (enum emu_tmem_copy)op->instr->vector,
					   group_size(op));
		else
			emu_time_umma(op->warp, &op->mma.umma);
		if (op->kind == OP_MMA)
			(void)emu_umma_run(op->warp, op->instr, &op->mma);
	}
	m->effects++;
	free_op(op);
}

/* ---- the queue ----------------------------------------------------------- */

static void enqueue(struct emu_tensor_op *op)
{
	struct emu_machine *m = emu_machine_of(op->warp);
	struct emu_tensor *x = op->warp->cta->cluster->tensor;
	struct emu_tensor_op **grown;

	if (!m->options.seed) {
		perform(op);
		return;
	}
	grown = emu_grow(x->ops, &x->capacity, x->count, sizeof(*grown));
	if (!grown) {
		emu_fault(op->warp, op->instr, -1, "no memory for its queue");
		free_op(op);
		return;
	}
	x->ops = grown;
	op->due = x->tick + emu_random_below(m, emu_random_below(m, 16) ? USUAL_DELAY
									: LONG_DELAY);
	if (op->kind != OP_COMMIT)
		set_pending(op, 1);
	grown[x->count++] = op;
}

/* True if no earlier operation of the same warp is left. */
static bool is_first(const struct emu_tensor *x, size_t index)
{
	for (size_t k = 0; k < index; k++)
		if (x->ops[k]->warp == x->ops[index]->warp)
			return false;
	return true;
}

bool emu_tensor_step(struct emu_cluster *c, bool is_idle)
{
	struct emu_tensor *x = c->tensor;
	uint64_t next = UINT64_MAX;
	size_t start;

	if (!x || x->count == 0)
		return false;
	x->tick++;
	for (size_t k = 0; k < x->count && is_idle; k++)
		if (is_first(x, k) && x->ops[k]->due < next)
			next = x->ops[k]->due;
	if (is_idle && next > x->tick)
		x->tick = next;
	start = emu_random_below(c->grid->machine, (uint32_t)x->count);
	for (size_t n = 0; n < x->count; n++) {
		const size_t k = (start + n) % x->count;
		struct emu_tensor_op *op = x->ops[k];

		if (op->due > x->tick || !is_first(x, k))
			continue;
		x->count--;
		memmove(&x->ops[k], &x->ops[k + 1],
			(x->count - k) * sizeof(struct emu_tensor_op *));
		perform(op);
		break;
	}
	return true;
}

void emu_tensor_end(struct emu_cluster *c)
{
	struct emu_tensor *x = c->tensor;

	if (!x)
		return;
	if (x->count)
		(void)emu_object(x->ops[0]->warp, x->ops[0]->instr, -1,
				 "the cluster has ended and this operation has not");
	for (size_t k = 0; k < x->count; k++)
		free_op(x->ops[k]);
	for (uint32_t rank = 0; rank < c->n_ctas; rank++) {
		const struct emu_tmem_owner *o = &x->owner[rank];

		if (x->memory[rank] && emu_tmem_in_use(x->memory[rank]))
			(void)emu_object(
			    o->warp, o->instr, -1,
			    "the CTA has ended and has %u columns of tensor "
			    "memory: tcgen05.dealloc is missing",
			    emu_tmem_in_use(x->memory[rank]));
		free(x->memory[rank]);
	}
	free(x->ops);
	free(x);
	c->tensor = NULL;
}

/* ---- issuing ------------------------------------------------------------- */

/* Begins an operation of one thread, in the even CTA of a pair. */
static struct emu_tensor_op *begin(struct emu_warp *w, const struct emu_instr *i,
				   uint32_t lanes, enum op_kind kind, int *lane)
{
	const uint32_t rank = w->cta->rank, n_ctas = w->cta->cluster->n_ctas;
	const bool is_pair = i->option & EMU_TCGEN05_PAIR;
	struct emu_tensor_op *op;

	*lane = __builtin_ctz(lanes);
	if (lanes & (lanes - 1)) {
		emu_fault(w, i, -1,
			  "lanes %08x: one thread issues it, as elect.sync "
			  "chooses",
			  lanes);
		return NULL;
	}
	if (is_pair && (rank | 1) >= n_ctas) {
		emu_fault(w, i, *lane,
			  "cta_group::2 in a cluster of %u CTAs: CTA rank %u "
			  "has no other one",
			  n_ctas, rank);
		return NULL;
	}
	if (is_pair && rank % 2 && kind == OP_MMA) {
		emu_fault(w, i, *lane, "CTA rank %u: the even CTA of a pair issues it",
			  rank);
		return NULL;
	}
	if (!emu_tmem_of(w, i, rank) || (is_pair && !emu_tmem_of(w, i, rank ^ 1)))
		return NULL;
	op = calloc(1, sizeof(*op));
	if (!op) {
		emu_fault(w, i, *lane, "no memory for its queue");
		return NULL;
	}
	op->kind = kind;
	op->warp = w;
	op->instr = i;
	return op;
}

void emu_run_umma(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	int lane;
	struct emu_tensor_op *op = begin(w, i, lanes, OP_MMA, &lane);

	if (!op)
		return;
	if (emu_umma_take(w, i, lane, &op->mma))
		enqueue(op);
	else
		free_op(op);
}

static uint64_t wide_operand(const struct emu_warp *w, const struct emu_value *v,
			     int lane)
{
	return ((const uint64_t *)emu_row(w, v))[lane];
}

/* Reports a copy in one CTA to the checker. */
static bool watch_copy(const struct emu_tensor_op *op, int lane, uint32_t rank)
{
	const enum emu_tmem_copy copy = (enum emu_tmem_copy)op->instr->vector;
	const uint32_t pieces = emu_tmem_copy_pieces(copy);

	for (uint32_t k = 0; k < emu_tmem_copy_rows(copy) * pieces; k++)
		if (!emu_watch_async_read(op->warp, op->instr, lane, EMU_ASYNC_WGMMA,
					  (uint64_t)rank << EMU_RANK_SHIFT |
					      emu_umma_offset(&op->from, false,
							      (int)(k / pieces),
							      (int)(k % pieces)),
					  16))
			return false;
	return emu_watch_tmem(op->warp, op->instr, lane, EMU_TMEM_CP, rank, 0,
			      EMU_TMEM_LANES, emu_tmem_column(op->to), 4 * pieces, 0);
}

static bool check_copy(const struct emu_tensor_op *op, int lane)
{
	const enum emu_tmem_copy copy = (enum emu_tmem_copy)op->instr->vector;
	const uint32_t most = copy == EMU_TMEM_CP_4X256B ? 31 : 0;

	if (emu_tmem_lane(op->to) > most) {
		emu_fault(op->warp, op->instr, lane,
			  "tensor memory address 0x%08x: lane %u, this shape "
			  "begins at %s",
			  op->to, emu_tmem_lane(op->to), most ? "0 to 31" : "0");
		return false;
	}
	for (uint32_t k = 0; k < group_size(op); k++)
		if (!emu_tmem_reach(op->warp, op->instr, lane, rank_of(op, k), op->to,
				    4 * emu_tmem_copy_pieces(copy)) ||
		    !watch_copy(op, lane, rank_of(op, k)))
			return false;
	return true;
}

void emu_run_tmem_copy(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	int lane;
	struct emu_tensor_op *op = begin(w, i, lanes, OP_COPY, &lane);
	struct emu_error err;

	if (!op)
		return;
	op->to = ((const uint32_t *)emu_row(w, &i->operand[0]))[lane] +
		 (uint32_t)i->immediate;
	if (!emu_umma_matrix_decode(wide_operand(w, &i->operand[1], lane), &op->from,
				    &err))
		emu_fault(w, i, lane, "%s", err.text);
	else if (check_copy(op, lane)) {
		enqueue(op);
		return;
	}
	free_op(op);
}

void emu_run_tmem_commit(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	int lane;
	struct emu_tensor_op *op = begin(w, i, lanes, OP_COMMIT, &lane);
	const uint32_t n_ctas = w->cta->cluster->n_ctas;
	uint64_t address[EMU_LANES];

	if (!op)
		return;
	emu_addresses(w, i, &i->operand[0], address);
	op->barrier = address[lane];
	if (i->space == EMU_GENERIC)
		op->barrier &= ~EMU_SHARED_WINDOW;
	if (i->option & EMU_COMMIT_MASK)
		op->mask = ((const uint16_t *)emu_row(w, &i->operand[1]))[lane];
	if (i->option & EMU_COMMIT_MASK && (!op->mask || op->mask >> n_ctas)) {
		emu_fault(w, i, lane,
			  "mask %04x of a cluster of %u CTAs: it must name "
			  "some of them",
			  op->mask, n_ctas);
	} else if (emu_barrier_at(w, i, lane, op->barrier)) {
		op->mark = emu_watch_mark(w);
		emu_watch_lanes_release(w, 1u << lane);
		enqueue(op);
		return;
	}
	free_op(op);
}
