/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_warp.c - exchange between the lanes of a warp: shfl, vote, redux, elect,
 * match, movmatrix.
 */
#include <string.h>

#include "hardware/floats.h"
#include "instruction/binds.h"
#include "machine/warp.h"
#include "machine/watch.h"

/*
 * The lanes of a membermask must execute together, and each must be in its own mask.
 * True if they do; otherwise the path waits or the launch fails.
 */
static bool has_members(struct emu_warp *w, const struct emu_instr *i,
			const struct emu_value *mask, uint32_t lanes)
{
	const uint32_t *masks = emu_row(w, mask);
	uint32_t all = 0;

	EMU_EACH_LANE(l)
	{
		if (!(lanes >> l & 1))
			continue;
		if (!(masks[l] >> l & 1)) {
			emu_fault(w, i, l, "the lane is not in its own mask %08x",
				  masks[l]);
			return false;
		}
		all |= masks[l];
	}
	if (!emu_converge(w, i, all))
		return false;
	if ((all & w->live) == (all & w->live & lanes))
		return true;
	emu_fault(w, i, -1, "lanes %08x are in the mask and do not participate",
		  all & w->live & ~lanes);
	return false;
}

/* ---- shfl ---------------------------------------------------------------- */

enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX, HAS_PREDICATE = 4 };

/* PTX ISA, shfl: j is the source lane; p is false if it is outside. */
static int source_lane(int lane, uint32_t mode, uint32_t b, uint32_t c, bool *inside)
{
	const int clamp = (int)(c & 31), segment = (int)(c >> 8 & 31);
	const int value = (int)(b & 31);
	const int most = (lane & segment) | (clamp & ~segment);
	const int least = lane & segment;
	int j;

	switch (mode) {
	case SHFL_UP:
		j = lane - value;
		*inside = j >= most;
		break;
	case SHFL_DOWN:
		j = lane + value;
		*inside = j <= most;
		break;
	case SHFL_BFLY:
		j = lane ^ value;
		*inside = j <= most;
		break;
	default:
		j = least | (value & ~segment);
		*inside = j <= most;
	}
	return *inside ? j : lane;
}

static void run_shfl(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t mode = i->option & 3;
	const struct emu_value *o = i->operand + (i->option & HAS_PREDICATE ? 2 : 1);
	const uint32_t *a = emu_row(w, &o[0]), *b = emu_row(w, &o[1]);
	const uint32_t *c = emu_row(w, &o[2]), *masks = emu_row(w, &o[3]);
	uint32_t r[EMU_LANES], inside = 0;

	if (!has_members(w, i, &o[3], lanes))
		return;
	EMU_EACH_LANE(l)
	{
		bool is_inside;
		const int from = source_lane(l, mode, b[l], c[l], &is_inside);

		r[l] = a[from];
		inside |= (uint32_t)is_inside << l;
		if ((lanes >> l & 1) && !((masks[l] & lanes) >> from & 1)) {
			emu_fault(w, i, l,
				  "it reads lane %d, which does not participate", from);
			return;
		}
	}
	emu_put_32(w, &i->operand[0], r, lanes);
	if (i->option & HAS_PREDICATE)
		emu_put_lanes(w, &i->operand[1], inside, lanes);
}

bool emu_bind_shfl(struct emu_bind *b)
{
	static const char *const modes[] = {"up", "down", "bfly", "idx"};
	const struct emu_argument *d = emu_argument(b, 0);

	if (!emu_has_one(b, modes, 4, &b->i->option) || !emu_has(b, "sync"))
		return emu_bind_fail(b, "it needs .sync and one of .up .down "
					".bfly .idx");
	if (!emu_arguments(b, 5, 5) || !emu_dst(b, d, 4))
		return false;
	if (d->second) {
		b->i->option |= HAS_PREDICATE;
		if (!emu_dst(b, &b->s->elements[d->second - 1], 1))
			return false;
	}
	for (uint32_t n = 1; n < 5; n++)
		if (!emu_src(b, emu_argument(b, n), EMU_B32))
			return false;
	b->i->run = run_shfl;
	return true;
}

/* ---- vote, redux, elect -------------------------------------------------- */

enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };

static void run_vote(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t yes = emu_lanes_of(w, &i->operand[1]);
	const uint32_t *masks = emu_row(w, &i->operand[2]);
	uint32_t r[EMU_LANES], result = 0;

	if (!has_members(w, i, &i->operand[2], lanes))
		return;
	EMU_EACH_LANE(l)
	{
		const uint32_t mask = masks[l] & lanes;
		const uint32_t of = yes & mask;

		r[l] = of;
		result |= (uint32_t)(i->option == VOTE_ALL   ? of == mask
				     : i->option == VOTE_ANY ? of != 0
							     : of == mask || of == 0)
			  << l;
	}
	if (i->option == VOTE_BALLOT)
		emu_put_32(w, &i->operand[0], r, lanes);
	else
		emu_put_lanes(w, &i->operand[0], result, lanes);
}

bool emu_bind_vote(struct emu_bind *b)
{
	static const char *const modes[] = {"all", "any", "uni", "ballot"};

	if (!emu_has_one(b, modes, 4, &b->i->option) || !emu_has(b, "sync"))
		return emu_bind_fail(b, "it needs .sync and one of .all .any "
					".uni .ballot");
	b->i->run = run_vote;
	return emu_arguments(b, 3, 3) &&
	       emu_dst(b, emu_argument(b, 0), b->i->option == VOTE_BALLOT ? 4 : 1) &&
	       emu_predicate(b, emu_argument(b, 1)) &&
	       emu_src(b, emu_argument(b, 2), EMU_B32);
}

/* Both kinds of match: the lanes of l's mask that have l's value. */
static uint32_t lanes_like(const struct emu_value *o, const void *row, int l,
			   uint32_t mask)
{
	uint32_t same = 0;

	for (; mask; mask &= mask - 1) {
		const int k = __builtin_ctz(mask);

		if (o->bytes == 8
			? ((const uint64_t *)row)[k] == ((const uint64_t *)row)[l]
			: ((const uint32_t *)row)[k] == ((const uint32_t *)row)[l])
			same |= UINT32_C(1) << k;
	}
	return same;
}

enum { MATCH_ANY, MATCH_ALL };

static void run_match(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const void *row = emu_row(w, &i->operand[1]);
	const uint32_t *masks = emu_row(w, &i->operand[2]);
	uint32_t r[EMU_LANES] = {0}, is = 0;

	if (!has_members(w, i, &i->operand[2], lanes))
		return;
	EMU_EACH_LANE(l)
	{
		const uint32_t mask = masks[l] & lanes;

		if (!(lanes >> l & 1))
			continue;
		r[l] = lanes_like(&i->operand[1], row, l, mask);
		if (i->option == MATCH_ANY)
			continue;
		is |= (uint32_t)(r[l] == mask) << l;
		r[l] = r[l] == mask ? mask : 0;
	}
	emu_put_32(w, &i->operand[0], r, lanes);
	if (i->operands > 3)
		emu_put_lanes(w, &i->operand[3], is, lanes);
}

/* match.any.sync d, a, mask; match.all.sync d[|p], a, mask */
bool emu_bind_match(struct emu_bind *b)
{
	static const char *const modes[] = {"any", "all"};
	const struct emu_argument *d = emu_argument(b, 0);

	if (!emu_has_one(b, modes, 2, &b->i->option) || !emu_has(b, "sync"))
		return emu_bind_fail(b, "it needs .sync and .any or .all");
	if (d->second && b->i->option == MATCH_ANY)
		return emu_bind_fail(b, ".any has no predicate");
	b->i->run = run_match;
	return emu_arguments(b, 3, 3) && emu_dst(b, d, 4) &&
	       emu_src(b, emu_argument(b, 1), b->types[0]) &&
	       emu_src(b, emu_argument(b, 2), EMU_B32) &&
	       (!d->second || emu_dst(b, &b->s->elements[d->second - 1], 1));
}

enum { REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR };
/* Words of .f32. */
enum { REDUX_ABS = 8, REDUX_NAN = 16 };

static uint32_t reduced(const uint32_t *a, uint32_t mask, uint32_t operation,
			bool is_signed)
{
	const uint32_t flip = is_signed ? UINT32_C(1) << 31 : 0;
	uint32_t r = a[__builtin_ctz(mask)];

	for (mask &= mask - 1; mask; mask &= mask - 1) {
		const uint32_t x = a[__builtin_ctz(mask)];

		switch (operation) {
		case REDUX_ADD:
			r += x;
			break;
		case REDUX_MIN:
			r = (x ^ flip) < (r ^ flip) ? x : r;
			break;
		case REDUX_MAX:
			r = (x ^ flip) > (r ^ flip) ? x : r;
			break;
		case REDUX_AND:
			r &= x;
			break;
		case REDUX_OR:
			r |= x;
			break;
		default:
			r ^= x;
		}
	}
	return r;
}

/*
 * min and max of .f32, whose bits in order are those of an integer: -0 is below +0.
 * NaNs count only with .NaN, or if all values are NaN.
 */
static uint32_t reduced_floats(const uint32_t *a, uint32_t mask, uint32_t option)
{
	const bool is_max = (option & 7) == REDUX_MAX;
	uint32_t best = 0, r = EMU_NAN_F32;
	bool is_first = true;

	for (; mask; mask &= mask - 1) {
		const uint32_t bits = a[__builtin_ctz(mask)];
		const uint32_t x = option & REDUX_ABS ? bits & INT32_MAX : bits;
		const uint32_t order = x >> 31 ? ~x : x | UINT32_C(1) << 31;

		if ((x & INT32_MAX) > UINT32_C(0x7F800000)) {
			if (option & REDUX_NAN)
				return EMU_NAN_F32;
			continue;
		}
		if (is_first || (is_max ? order > best : order < best)) {
			best = order;
			r = x;
		}
		is_first = false;
	}
	return r;
}

static void run_redux(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *a = emu_row(w, &i->operand[1]);
	const uint32_t *masks = emu_row(w, &i->operand[2]);
	uint32_t r[EMU_LANES] = {0};

	if (!has_members(w, i, &i->operand[2], lanes))
		return;
	EMU_EACH_LANE(l)
	if (lanes >> l & 1)
		r[l] =
		    i->type == EMU_F32
			? reduced_floats(a, masks[l] & lanes, i->option)
			: reduced(a, masks[l] & lanes, i->option, i->type == EMU_S32);
	emu_put_32(w, &i->operand[0], r, lanes);
}

bool emu_bind_redux(struct emu_bind *b)
{
	static const char *const operations[] = {"add", "min", "max",
						 "and", "or",  "xor"};

	if (!emu_has_one(b, operations, 6, &b->i->option) || !emu_has(b, "sync") ||
	    b->n_types != 1 ||
	    (b->types[0] == EMU_B32) != (b->i->option >= REDUX_AND) ||
	    (b->types[0] == EMU_F32 && b->i->option == REDUX_ADD) ||
	    (b->types[0] != EMU_F32 && (emu_has(b, "abs") || emu_has(b, "NaN"))))
		return emu_bind_fail(b, "it needs .sync and one operation that "
					"its type has");
	b->i->option |=
	    (emu_has(b, "abs") ? REDUX_ABS : 0) | (emu_has(b, "NaN") ? REDUX_NAN : 0);
	b->i->run = run_redux;
	return emu_arguments(b, 3, 3) && emu_dst(b, emu_argument(b, 0), 4) &&
	       emu_src(b, emu_argument(b, 1), EMU_B32) &&
	       emu_src(b, emu_argument(b, 2), EMU_B32);
}

/* elect.sync d|p, mask: the lowest lane. */
static void run_elect(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *masks = emu_row(w, &i->operand[2]);
	uint32_t r[EMU_LANES] = {0}, is = 0;

	if (!has_members(w, i, &i->operand[2], lanes))
		return;
	EMU_EACH_LANE(l)
	if (lanes >> l & 1) {
		r[l] = (uint32_t)__builtin_ctz(masks[l] & lanes);
		is |= (uint32_t)(r[l] == (uint32_t)l) << l;
	}
	emu_put_32(w, &i->operand[0], r, lanes);
	emu_put_lanes(w, &i->operand[1], is, lanes);
}

bool emu_bind_elect(struct emu_bind *b)
{
	const struct emu_argument *d = emu_argument(b, 0);

	if (!emu_arguments(b, 2, 2))
		return false;
	if (!d->second)
		return emu_bind_fail(b, "d|p is missing");
	b->i->run = run_elect;
	return emu_dst(b, d, 4) && emu_dst(b, &b->s->elements[d->second - 1], 1) &&
	       emu_src(b, emu_argument(b, 1), EMU_B32);
}

static void run_activemask(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = lanes;
	emu_put_32(w, &i->operand[0], r, lanes);
}

bool emu_bind_activemask(struct emu_bind *b)
{
	b->i->run = run_activemask;
	return emu_arguments(b, 1, 1) && emu_dst(b, emu_argument(b, 0), 4);
}

static void run_bar_warp(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *masks = emu_row(w, &i->operand[0]);

	if (!has_members(w, i, &i->operand[0], lanes))
		return;
	/* Tiles of a warp synchronise separately: one call for each mask. */
	for (uint32_t left = lanes; left;) {
		const uint32_t mask = masks[__builtin_ctz(left)] | (left & -left);

		emu_watch_meet(w, mask & lanes);
		left &= ~mask;
	}
}

bool emu_bind_bar_warp(struct emu_bind *b)
{
	b->i->run = run_bar_warp;
	return emu_arguments(b, 1, 1) && emu_src(b, emu_argument(b, 0), EMU_B32);
}

/* ---- movmatrix ------------------------------------------------------------ */

/* A lane has elements 2 * (lane % 4) and the next one of row lane / 4. */
static uint32_t matrix_element(const uint32_t *rows, int row, int column)
{
	return rows[4 * row + column / 2] >> column % 2 * 16 & 0xFFFF;
}

static void run_movmatrix(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *a = emu_row(w, &i->operand[1]);
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l)
	{
		const int row = l / 4, column = l % 4 * 2;

		r[l] = matrix_element(a, column, row) |
		       matrix_element(a, column + 1, row) << 16;
	}
	emu_put_32(w, &i->operand[0], r, lanes);
}

bool emu_bind_movmatrix(struct emu_bind *b)
{
	if (b->shape_m != 8 || b->shape_n != 8 || b->shape_k || !emu_has(b, "trans") ||
	    b->n_types != 1)
		return emu_bind_fail(b, "it needs .m8n8.trans.b16");
	b->i->is_converged = true;
	b->i->run = run_movmatrix;
	return emu_arguments(b, 2, 2) && emu_dst(b, emu_argument(b, 0), 4) &&
	       emu_src(b, emu_argument(b, 1), EMU_B32);
}
