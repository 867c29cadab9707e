/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma_queue.c - wgmma that a warp has issued and not waited for.  Their registers
 * may not be accessed before the wait.  Each of the four warps of a warpgroup
 * computes its own rows, and a check compares what they issue.
 */
#include "machine/wgmma_queue.h"

#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "machine/access.h"
#include "machine/async.h"
#include "machine/random.h"
#include "machine/report.h"
#include "machine/time.h"
#include "machine/watch.h"

/* Bytes of k that one instruction multiplies. */
#define K_BYTES (2 * EMU_WGMMA_ROW_BYTES)

/* Words 0 to 3 of A, and the operands of the instruction. */
struct pending {
	const struct emu_instr *instr;
	uint32_t a[4][EMU_LANES];
	uint64_t a_descriptor, b_descriptor;
	bool accumulates;
	uint32_t group;
};

/* Accumulators in flight: those in the registers of one instruction. */
struct accumulator {
	const struct emu_instr *instr; /* the first that used them */
	uint32_t left;		       /* operations */
	uint32_t d[16 * EMU_WGMMA_MAX_N];
};

struct emu_wgmma_queue {
	struct pending *pending;
	size_t count, capacity;
	struct accumulator *sets;
	size_t n_sets, sets_capacity;
	uint32_t group;
	bool is_fenced;
	/* One bit for each register row: results and sources in flight. */
	uint8_t *results, *sources;
	size_t bytes;
	uint64_t issued; /* for the comparison with the other warps */
	struct pending last;
};

static struct emu_wgmma_shape shape_of(const struct emu_instr *i)
{
	struct emu_wgmma_shape s = {
	    .n = (int)(i->option >> 8 & 0x1FF),
	    .a_type = (enum emu_mma_type)(i->option >> 24 & 7),
	    .b_type = (enum emu_mma_type)(i->option >> 27 & 7),
	    .d_is_f16 = i->option & EMU_D_IS_F16,
	    .saturates = i->option & EMU_SATURATES,
	    .a_transposed = i->option >> 20 & 1,
	    .b_transposed = i->option >> 21 & 1,
	    .a_negated = i->option >> 22 & 1,
	    .b_negated = i->option >> 23 & 1,
	};

	s.k = K_BYTES / emu_mma_type_bytes(s.a_type);
	return s;
}

/* A thread has n / 2 elements of the 64 rows, two of fp16 in a register. */
static uint32_t d_registers(const struct emu_instr *i)
{
	return (i->option >> 8 & 0x1FF) / (i->option & EMU_D_IS_F16 ? 4 : 2);
}

/* ---- registers in flight ------------------------------------------------- */

static void mark(uint8_t *bits, uint32_t row, bool on)
{
	const uint32_t at = row / (4 * EMU_LANES);

	if (on)
		bits[at / 8] |= (uint8_t)(1u << at % 8);
	else
		bits[at / 8] &= (uint8_t) ~(1u << at % 8);
}

static bool is_marked(const uint8_t *bits, uint32_t row)
{
	const uint32_t at = row / (4 * EMU_LANES);

	return bits[at / 8] >> at % 8 & 1;
}

bool emu_wgmma_check(struct emu_warp *w, const struct emu_instr *i)
{
	const struct emu_wgmma_queue *q = w->async->wgmma;

	for (uint32_t k = 0; k < i->operands; k++) {
		const struct emu_value *v = &i->operand[k];

		if (v->bank != EMU_REGISTERS || v->bytes < 4 || v->is_async)
			continue;
		if (is_marked(q->results, v->row)) {
			emu_fault(w, i, -1,
				  "operand %u is a result of a wgmma that has "
				  "not been waited for",
				  k);
			return false;
		}
		if (v->is_written && is_marked(q->sources, v->row)) {
			emu_fault(w, i, -1,
				  "operand %u is a source of a wgmma that has "
				  "not been waited for",
				  k);
			return false;
		}
	}
	return true;
}

/*
 * An element whose bytes were never written.  Rows whose results are never stored
 * may be undefined.  They give NaN (integers: -1 or 255), which shows if a result is
 * stored.
 */
#define UNDEFINED UINT32_MAX

/* ---- running one --------------------------------------------------------- */

/* An element of this many bytes, little endian, of memory that was written. */
static uint32_t element_at(const uint8_t *from, const uint8_t *shadow, int bytes)
{
	uint32_t code = 0;
	bool is_written = true;

	for (int k = 0; k < bytes; k++) {
		code |= (uint32_t)from[k] << 8 * k;
		is_written = is_written && (shadow[k] & EMU_WRITTEN);
	}
	return is_written ? code : UNDEFINED;
}

/* 16 bytes of an operand in shared memory, an element a word. */
static bool read_piece(struct emu_warp *w, const struct pending *p, uint64_t descriptor,
		       bool is_transposed, int row, int piece, uint32_t *to,
		       size_t step)
{
	const struct emu_wgmma_shape s = shape_of(p->instr);
	const int bytes = emu_mma_type_bytes(s.a_type);
	struct emu_error err;
	uint32_t offset;
	uint8_t *shadow;
	const uint8_t *from;

	if (!emu_wgmma_offset(descriptor, &s, is_transposed, row, piece, &offset,
			      &err)) {
		emu_fault(w, p->instr, -1, "%s", err.text);
		return false;
	}
	from = emu_access(w, p->instr, -1, EMU_SHARED,
			  offset | (uint64_t)w->cta->rank << EMU_RANK_SHIFT,
			  EMU_WGMMA_ROW_BYTES, EMU_COPY, &shadow);
	if (!from)
		return false;
	for (int at = 0; at < EMU_WGMMA_ROW_BYTES; at += bytes, to += step)
		*to = element_at(from + at, shadow + at, bytes);
	return true;
}

/* to: [rows][k]; transposed, the rows of shared memory are those of k. */
static bool read_operand(struct emu_warp *w, const struct pending *p,
			 uint64_t descriptor, bool is_transposed, int first, int rows,
			 uint32_t *to)
{
	const int k = shape_of(p->instr).k;

	if (is_transposed) {
		for (int i = 0; i < k; i++)
			for (int r = 0; r < rows; r += 8)
				if (!read_piece(w, p, descriptor, true, i,
						(first + r) / 8, to + r * k + i,
						(size_t)k))
					return false;
		return true;
	}
	for (int r = 0; r < rows; r++)
		for (int piece = 0; piece < 2; piece++)
			if (!read_piece(w, p, descriptor, false, first + r, piece,
					to + r * k + piece * k / 2, 1))
				return false;
	return true;
}

static void a_from_registers(const struct pending *p, uint32_t *a)
{
	const struct emu_wgmma_shape s = shape_of(p->instr);
	const int bits = 8 * emu_mma_type_bytes(s.a_type);

	for (int i = 0; i < 4; i++)
		EMU_EACH_LANE(l)
		{
			int row, k;

			emu_wgmma_a_place(&s, l, i, &row, &k);
			for (int at = 0; at < 32; at += bits, k++)
				a[row * s.k + k] =
				    p->a[i][l] << (32 - bits - at) >> (32 - bits);
		}
}

/*
 * Reports the operands to the checker when the instruction is issued, because they
 * may be read from then on.
 */
static bool watch_operand(struct emu_warp *w, const struct pending *p,
			  uint64_t descriptor, bool is_transposed, int first, int rows)
{
	const struct emu_wgmma_shape s = shape_of(p->instr);
	const int pieces = is_transposed ? rows / 8 : 2;
	const int count = (is_transposed ? s.k : rows) * pieces;
	uint64_t from[EMU_WGMMA_MAX_N * 2];

	for (int k = 0; k < count; k++) {
		const int row = k / pieces + (is_transposed ? 0 : first);
		const int piece = k % pieces + (is_transposed ? first / 8 : 0);
		struct emu_error err = {{0}};
		uint32_t offset;

		if (!emu_wgmma_offset(descriptor, &s, is_transposed, row, piece,
				      &offset, &err)) {
			emu_fault(w, p->instr, -1, "%s", err.text);
			return false;
		}
		from[k] = (uint64_t)w->cta->rank << EMU_RANK_SHIFT | offset;
	}
	return emu_watch_operand(w, p->instr, from, count);
}

static bool watch_operands(struct emu_warp *w, const struct pending *p)
{
	const struct emu_wgmma_shape s = shape_of(p->instr);

	if (!w->cta->cluster->check)
		return true;
	return (!(p->instr->option & EMU_A_IN_SHARED) ||
		watch_operand(w, p, p->a_descriptor, s.a_transposed,
			      (int)(w->index % 4) * 16, 16)) &&
	       watch_operand(w, p, p->b_descriptor, s.b_transposed, 0, s.n);
}

static struct accumulator *find_set(struct emu_wgmma_queue *q,
				    const struct emu_instr *i)
{
	for (size_t k = 0; k < q->n_sets; k++)
		if (q->sets[k].instr->operand[0].row == i->operand[0].row)
			return &q->sets[k];
	return NULL;
}

static bool run_one(struct emu_warp *w, const struct pending *p)
{
	const struct emu_wgmma_shape s = shape_of(p->instr);
	const int first = (int)(w->index % 4) * 16;
	struct accumulator *set = find_set(w->async->wgmma, p->instr);
	uint32_t a[16 * EMU_MMA_MAX_K];
	uint32_t b[EMU_WGMMA_MAX_N * EMU_MMA_MAX_K];

	if (!(p->instr->option & EMU_A_IN_SHARED))
		a_from_registers(p, a);
	else if (!read_operand(w, p, p->a_descriptor, s.a_transposed, first, 16, a))
		return false;
	if (!read_operand(w, p, p->b_descriptor, s.b_transposed, 0, s.n, b))
		return false;
	emu_wgmma_rows(&s, a, b, p->accumulates ? set->d : NULL, set->d);
	set->left--;
	emu_machine_of(w)->effects++;
	return true;
}

/* An element of a lane, counted in its registers' order. */
static uint32_t *place_in_set(struct accumulator *set, int lane, int element)
{
	int row, column;

	emu_wgmma_d_place(lane, element, &row, &column);
	return &set->d[row * shape_of(set->instr).n + column];
}

/* Moves accumulators from registers to a set, or back. */
static void move_set(struct emu_warp *w, struct accumulator *set, bool back)
{
	const bool is_f16 = set->instr->option & EMU_D_IS_F16;

	for (uint32_t k = 0; k < d_registers(set->instr); k++) {
		uint32_t *row = emu_row(w, &set->instr->operand[k]);
		const int e = (int)k * (is_f16 ? 2 : 1);

		EMU_EACH_LANE(l)
		{
			uint32_t *low = place_in_set(set, l, e);
			uint32_t *high = is_f16 ? place_in_set(set, l, e + 1) : NULL;

			if (back)
				row[l] = *low | (high ? *high << 16 : 0);
			else
				*low = is_f16 ? row[l] & 0xFFFF : row[l];
			if (!back && high)
				*high = row[l] >> 16;
		}
	}
}

static void mark_set(struct emu_wgmma_queue *q, const struct accumulator *set, bool on)
{
	for (uint32_t k = 0; k < d_registers(set->instr); k++)
		mark(q->results, set->instr->operand[k].row, on);
}

/* Executes the `count` oldest operations. */
static bool run_oldest(struct emu_warp *w, size_t count)
{
	struct emu_wgmma_queue *q = w->async->wgmma;

	for (size_t k = 0; k < count; k++)
		if (!run_one(w, &q->pending[k]))
			return false;
	if (count == 0)
		return true;
	q->count -= count;
	memmove(q->pending, q->pending + count, q->count * sizeof(*q->pending));
	return true;
}

/* ---- issuing ------------------------------------------------------------- */

/*
 * The set in flight of an instruction's accumulators, or a new one.  A new set must
 * not overlap one in flight.
 */
static struct accumulator *open_set(struct emu_warp *w, const struct emu_instr *i)
{
	struct emu_wgmma_queue *q = w->async->wgmma;
	struct accumulator *set = find_set(q, i), *grown;

	if (set) {
		bool same = d_registers(set->instr) == d_registers(i);

		for (uint32_t k = 0; same && k < d_registers(i); k++)
			same = set->instr->operand[k].row == i->operand[k].row;
		if (same)
			return set;
		emu_fault(w, i, -1,
			  "its accumulators are in flight in "
			  "another shape");
		return NULL;
	}
	for (uint32_t k = 0; k < d_registers(i); k++)
		if (is_marked(q->results, i->operand[k].row)) {
			emu_fault(w, i, -1,
				  "its accumulators are in flight "
				  "in another shape");
			return NULL;
		}
	grown = emu_grow(q->sets, &q->sets_capacity, q->n_sets, sizeof(*grown));
	if (!grown) {
		emu_fault(w, i, -1, "no memory for accumulators");
		return NULL;
	}
	q->sets = grown;
	set = &grown[q->n_sets++];
	set->instr = i;
	set->left = 0;
	move_set(w, set, false);
	mark_set(q, set, true);
	return set;
}

/* Checks that all lanes have the same descriptor and the same scale. */
static bool is_uniform(struct emu_warp *w, const struct emu_instr *i,
		       const struct emu_value *v)
{
	const uint64_t *row = emu_row(w, v);

	EMU_EACH_LANE(l)
	if (row[l] != row[0]) {
		emu_fault(w, i, l,
			  "its descriptor differs between lanes: all "
			  "32 must have the same");
		return false;
	}
	return true;
}

static bool take_operands(struct emu_warp *w, const struct emu_instr *i,
			  struct pending *p)
{
	const uint32_t n = d_registers(i);
	const bool shared = i->option & EMU_A_IN_SHARED;
	const struct emu_value *v = &i->operand[n];
	struct emu_wgmma_queue *q = w->async->wgmma;
	uint32_t scale;

	memset(p, 0, sizeof(*p));
	p->instr = i;
	p->group = q->group;
	if (shared) {
		if (!is_uniform(w, i, &v[0]))
			return false;
		p->a_descriptor = *(const uint64_t *)emu_row(w, &v[0]);
	} else {
		for (int k = 0; k < 4; k++) {
			if (is_marked(q->results, v[k].row)) {
				emu_fault(w, i, -1,
					  "a register of A is a result of a "
					  "wgmma that has not been waited for");
				return false;
			}
			memcpy(p->a[k], emu_row(w, &v[k]), sizeof(p->a[k]));
		}
	}
	v += shared ? 1 : 4;
	if (!is_uniform(w, i, &v[0]))
		return false;
	p->b_descriptor = *(const uint64_t *)emu_row(w, &v[0]);
	scale = v[1].bank == EMU_REGISTERS ? emu_lanes_of(w, &v[1])
					   : *(const uint32_t *)emu_row(w, &v[1]);
	if (scale != 0 && scale != UINT32_MAX) {
		emu_fault(w, i, -1,
			  "scale-d differs between lanes: all 32 "
			  "must have the same");
		return false;
	}
	p->accumulates = scale;
	return true;
}

/* Checks that the other three warps issue the same instructions in the same order. */
static bool check_group(struct emu_warp *w, const struct pending *p)
{
	const uint32_t first = w->index / 4 * 4;
	struct emu_wgmma_queue *mine = w->async->wgmma;

	mine->issued++;
	mine->last = *p;
	if (first + 4 > w->cta->n_warps) {
		emu_fault(w, p->instr, -1,
			  "the CTA has no four warps from "
			  "this warpgroup's first on");
		return false;
	}
	for (uint32_t k = first; k < first + 4; k++) {
		const struct emu_wgmma_queue *q = w->cta->warps[k].async->wgmma;

		if (!q || q->issued != mine->issued || q == mine)
			continue;
		if (q->last.instr == p->instr &&
		    q->last.b_descriptor == p->b_descriptor &&
		    q->last.a_descriptor == p->a_descriptor &&
		    q->last.accumulates == p->accumulates)
			continue;
		emu_fault(w, p->instr, -1,
			  "warp %u of the same warpgroup issued another "
			  "wgmma",
			  k);
		return false;
	}
	return true;
}

static struct emu_wgmma_queue *queue_of(struct emu_warp *w, const struct emu_instr *i)
{
	struct emu_wgmma_queue *q = w->async->wgmma;
	const uint32_t rows = w->cta->cluster->grid->kernel->register_bytes / 128 + 1;

	if (q)
		return q;
	q = calloc(1, sizeof(*q));
	if (q) {
		q->bytes = rows / 8 + 1;
		q->results = calloc(2, q->bytes);
		q->sources = q->results + q->bytes;
	}
	if (!q || !q->results) {
		free(q);
		emu_fault(w, i, -1, "no memory for a wgmma");
		return NULL;
	}
	w->async->wgmma = q;
	return q;
}

void emu_run_wgmma(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	struct emu_wgmma_queue *q = queue_of(w, i);
	struct emu_machine *m = emu_machine_of(w);
	struct accumulator *set;
	struct pending *grown;

	(void)lanes;
	if (!q)
		return;
	if (w->live != UINT32_MAX) {
		emu_fault(w, i, -1,
			  "lanes of the warp have exited: it needs "
			  "all 32");
		return;
	}
	if (!q->is_fenced) {
		emu_fault(w, i, -1, "a wgmma.fence must come before the warp's first");
		return;
	}
	grown = emu_grow(q->pending, &q->capacity, q->count, sizeof(*grown));
	if (!grown) {
		emu_fault(w, i, -1, "no memory for a wgmma");
		return;
	}
	q->pending = grown;
	if (!take_operands(w, i, &grown[q->count]))
		return;
	set = open_set(w, i);
	if (!set || !check_group(w, &grown[q->count]) ||
	    !watch_operands(w, &grown[q->count]))
		return;
	set->left++;
	q->count++;
	emu_time_wgmma(w, i->option >> 8 & 0x1ff, i->option & EMU_A_IN_SHARED);
	if (!(i->option & EMU_A_IN_SHARED))
		for (uint32_t k = 0; k < 4; k++)
			mark(q->sources, i->operand[d_registers(i) + k].row, true);
	w->in_flight = true;
	/* The operands are read now, or as late as they may be. */
	if (m->options.seed && emu_random_below(m, 2))
		(void)run_oldest(w, q->count);
}

/* ---- fence, commit, wait ------------------------------------------------- */

/* Writes sets whose last operation is done back to their registers. */
static void close_sets(struct emu_warp *w)
{
	struct emu_wgmma_queue *q = w->async->wgmma;

	for (size_t k = 0; k < q->n_sets;) {
		struct accumulator *set = &q->sets[k];

		if (set->left) {
			k++;
			continue;
		}
		move_set(w, set, true);
		mark_set(q, set, false);
		q->n_sets--;
		if (k < q->n_sets)
			*set = q->sets[q->n_sets];
	}
	/* Sources: those of what is left. */
	memset(q->sources, 0, q->bytes);
	for (size_t k = 0; k < q->count; k++) {
		const struct emu_instr *i = q->pending[k].instr;

		if (!(i->option & EMU_A_IN_SHARED))
			for (uint32_t r = 0; r < 4; r++)
				mark(q->sources, i->operand[d_registers(i) + r].row,
				     true);
	}
	w->in_flight = q->n_sets > 0;
}

void emu_run_wgmma_group(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	struct emu_wgmma_queue *q = queue_of(w, i);
	size_t count = 0;

	(void)lanes;
	if (!q)
		return;
	if (i->option == EMU_WGMMA_FENCE)
		q->is_fenced = true;
	if (i->option == EMU_WGMMA_COMMIT) {
		q->group++;
		emu_watch_commit(w, EMU_ASYNC_WGMMA);
	}
	if (i->option != EMU_WGMMA_WAIT)
		return;
	emu_watch_wait_group(w, EMU_ASYNC_WGMMA, (uint32_t)i->immediate);
	while (count < q->count &&
	       q->pending[count].group + (uint32_t)i->immediate < q->group)
		count++;
	if (run_oldest(w, count))
		close_sets(w);
}

void emu_wgmma_free(struct emu_wgmma_queue *q)
{
	if (!q)
		return;
	free(q->pending);
	free(q->sets);
	free(q->results);
	free(q);
}
