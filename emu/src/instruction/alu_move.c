/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu_move.c - mov with its vectors and addresses, and the conversion of addresses
 * between windows: cvta, mapa, isspacep.
 */
#include <string.h>

#include "instruction/binds.h"
#include "machine/time.h"
#include "machine/warp.h"

/* ---- mov ----------------------------------------------------------------- */

static void mov_16(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	emu_put_16(w, &i->operand[0], emu_row(w, &i->operand[1]), lanes);
}

static void mov_32(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	emu_put_32(w, &i->operand[0], emu_row(w, &i->operand[1]), lanes);
}

static void mov_64(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	emu_put_64(w, &i->operand[0], emu_row(w, &i->operand[1]), lanes);
}

static void mov_pred(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	emu_put_lanes(w, &i->operand[0], emu_lanes_of(w, &i->operand[1]), lanes);
}

/* The start of a window plus an offset. */
static void mov_address(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint64_t r[EMU_LANES];

	emu_get_wide(w, &i->operand[1], r);
	EMU_EACH_LANE(l) r[l] += (uint64_t)i->immediate;
	emu_put_wide(w, &i->operand[0], r, lanes);
}

/* The clock: the number of instructions that all warps have begun. */
static void mov_clock(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint64_t now =
	    w->clock ? (uint64_t)emu_time_of(w) : emu_machine_of(w)->clock;
	uint64_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = now;
	emu_put_wide(w, &i->operand[0], r, lanes);
}

/* Nanoseconds, or without time the number of instructions of warps. */
static void mov_timer(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint64_t now =
	    w->clock ? (uint64_t)emu_time_ns_of(w) : emu_machine_of(w)->clock;
	uint64_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = now;
	emu_put_wide(w, &i->operand[0], r, lanes);
}

/* {d...} = a, the low part first. */
static void unpack(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_value *from = &i->operand[i->vector];
	const uint64_t mask = (UINT64_C(1) << i->option) - 1;
	uint64_t x[EMU_LANES], r[EMU_LANES];

	emu_get_wide(w, from, x);
	for (int part = 0; part < i->vector; part++) {
		EMU_EACH_LANE(l) r[l] = x[l] & mask;
		EMU_EACH_LANE(l) x[l] >>= i->option;
		emu_put_wide(w, &i->operand[part], r, lanes);
	}
}

/* d = {a...} */
static void pack(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint64_t mask = (UINT64_C(1) << i->option) - 1;
	uint64_t r[EMU_LANES] = {0}, x[EMU_LANES];

	for (int part = 0; part < i->vector; part++) {
		const int shift = part * (int)i->option;

		emu_get_wide(w, &i->operand[1 + part], x);
		EMU_EACH_LANE(l) r[l] |= (x[l] & mask) << shift;
	}
	emu_put_wide(w, &i->operand[0], r, lanes);
}

static bool bind_vector(struct emu_bind *b, const struct emu_argument *vector,
			bool is_pack)
{
	const int bytes = emu_type_bytes(b->types[0]);
	uint32_t count;
	const struct emu_argument *e = emu_elements(b, vector, &count);
	const enum emu_type part = count == 2 && bytes == 8   ? EMU_B32
				   : count == 2 && bytes == 4 ? EMU_B16
				   : count == 4 && bytes == 8 ? EMU_B16
				   : count == 4 && bytes == 4 ? EMU_B8
				   : count == 2 && bytes == 2 ? EMU_B8
							      : EMU_NO_TYPE;

	if (part == EMU_NO_TYPE)
		return emu_bind_fail(b,
				     "a vector of %u parts does not fill %d "
				     "bits",
				     count, 8 * bytes);
	if (is_pack && !emu_dst(b, emu_argument(b, 0), bytes))
		return false;
	for (uint32_t n = 0; n < count; n++)
		if (is_pack
			? !emu_src(b, &e[n], part)
			: !emu_dst(b, &e[n], part == EMU_B8 ? 2 : emu_type_bytes(part)))
			return false;
	b->i->vector = (uint8_t)count;
	b->i->option = 8 * (uint32_t)bytes / count;
	b->i->run = is_pack ? pack : unpack;
	return is_pack || emu_src(b, emu_argument(b, 1), b->types[0]);
}

/*
 * The address of a variable, as an integer of 32 or 64 bits.  In 32 bits the address
 * of a parameter is its offset, which cvta.param makes an address of 64 bits.
 */
static bool bind_symbol(struct emu_bind *b, const struct emu_argument *a)
{
	const int bytes = emu_type_bytes(b->types[0]);
	const bool is_parameter = a->special == EMU_PARAM_BASE;
	struct emu_argument base = *a;

	if (bytes < 4 || (bytes == 4 && a->special != EMU_SHARED_BASE &&
			  a->space != EMU_LOCAL && !is_parameter))
		return emu_bind_fail(b, "an address needs a register of 64 bits, or of "
					"32 for shared memory and parameters");
	if (!emu_dst(b, emu_argument(b, 0), bytes))
		return false;
	b->i->immediate = (int64_t)a->value;
	b->i->run = mov_address;
	base.kind = a->special >= 0 && !(is_parameter && bytes == 4) ? EMU_ARG_SPECIAL
								     : EMU_ARG_INTEGER;
	base.value = 0;
	if (a->special == EMU_SHARED_BASE && bytes == 8)
		base.special = EMU_SHARED_BASE_64;
	return emu_src(b, &base, b->types[0]);
}

bool emu_bind_mov(struct emu_bind *b)
{
	const struct emu_argument *d = emu_argument(b, 0);
	const struct emu_argument *a = emu_argument(b, 1);
	const int bytes = emu_type_bytes(b->types[0]);

	if (b->n_types != 1 || bytes > 8)
		return emu_bind_fail(b, "the opcode does not accept "
					"this type");
	if (!emu_arguments(b, 2, 2))
		return false;
	if (d->kind == EMU_ARG_VECTOR)
		return bind_vector(b, d, false);
	if (a->kind == EMU_ARG_VECTOR)
		return bind_vector(b, a, true);
	if (a->kind == EMU_ARG_SYMBOL)
		return bind_symbol(b, a);
	b->i->run = bytes == 1	 ? mov_pred
		    : bytes == 2 ? mov_16
		    : bytes == 4 ? mov_32
				 : mov_64;
	if (a->kind == EMU_ARG_SPECIAL &&
	    (a->special == EMU_CLOCK || a->special == EMU_CLOCK64))
		b->i->run = mov_clock;
	if (a->kind == EMU_ARG_SPECIAL && a->special == EMU_GLOBALTIMER)
		b->i->run = mov_timer;
	return emu_dst(b, d, bytes) && emu_src(b, a, b->types[0]);
}

/* ---- windows ------------------------------------------------------------- */

static uint64_t window_of(enum emu_state_space space)
{
	switch (space) {
	case EMU_SHARED:
	case EMU_SHARED_CLUSTER:
		return EMU_SHARED_WINDOW;
	case EMU_LOCAL:
		return EMU_LOCAL_WINDOW;
	default:
		return 0; /* device memory is at its generic address */
	}
}

static void cvta(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint64_t *a = emu_row(w, &i->operand[1]);
	uint64_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = a[l] + (uint64_t)i->immediate;
	emu_put_64(w, &i->operand[0], r, lanes);
}

/* An offset (bind_symbol), or already an address. */
static void cvta_param(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint64_t *a = emu_row(w, &i->operand[1]);
	const uint64_t *base = emu_row(w, &i->operand[2]);
	uint64_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = a[l] <= UINT32_MAX ? base[l] + a[l] : a[l];
	emu_put_64(w, &i->operand[0], r, lanes);
}

static bool bind_cvta_param(struct emu_bind *b, const struct emu_argument *a)
{
	const struct emu_argument base = {.kind = EMU_ARG_SPECIAL,
					  .special = EMU_PARAM_BASE};

	b->i->run = cvta_param;
	return emu_dst(b, emu_argument(b, 0), 8) && emu_src(b, a, EMU_U64) &&
	       emu_src(b, &base, EMU_U64);
}

bool emu_bind_cvta(struct emu_bind *b)
{
	const struct emu_argument *a = emu_argument(b, 1);
	const uint64_t window = window_of(emu_space_of(b));

	if (emu_space_of(b) == EMU_GENERIC || b->types[0] != EMU_U64)
		return emu_bind_fail(b, "it needs a state space and .u64");
	if (!emu_arguments(b, 2, 2))
		return false;
	if (a->kind == EMU_ARG_SYMBOL) {
		if (!bind_symbol(b, a))
			return false;
		b->i->immediate += (int64_t)window;
		return true;
	}
	if (emu_space_of(b) == EMU_PARAM && !emu_has(b, "to"))
		return bind_cvta_param(b, a);
	b->i->immediate = (int64_t)(emu_has(b, "to") ? 0 - window : window);
	b->i->run = cvta;
	return emu_dst(b, emu_argument(b, 0), 8) && emu_src(b, a, EMU_U64);
}

#define NO_RANK 255 /* of an address of 32 bits */

/*
 * A rank that the cluster does not have gives an address without memory.  In CUTLASS
 * all lanes of a warp map their ranks, and only the ones that exist are used.
 */
static void mapa(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *rank = emu_row(w, &i->operand[2]);
	const uint64_t low = (UINT64_C(1) << EMU_RANK_SHIFT) - 1;
	const uint64_t high = i->space == EMU_GENERIC ? EMU_SHARED_WINDOW : 0;
	uint64_t r[EMU_LANES];

	emu_get_wide(w, &i->operand[1], r);
	EMU_EACH_LANE(l)
	{
		const uint64_t at = rank[l] < NO_RANK ? rank[l] : NO_RANK;

		r[l] = high | (r[l] & low) | at << EMU_RANK_SHIFT;
	}
	emu_put_wide(w, &i->operand[0], r, lanes);
}

bool emu_bind_mapa(struct emu_bind *b)
{
	const struct emu_argument *a = emu_argument(b, 1);
	const int bytes = emu_type_bytes(b->types[0]);

	b->i->run = mapa;
	b->i->space = (uint8_t)emu_space_of(b);
	if (b->n_types != 1 || (b->i->space == EMU_GENERIC && bytes != 8) ||
	    a->kind == EMU_ARG_SYMBOL)
		return emu_bind_fail(b, "this form is not modelled");
	return emu_arguments(b, 3, 3) && emu_dst(b, emu_argument(b, 0), bytes) &&
	       emu_src(b, a, b->types[0]) && emu_src(b, emu_argument(b, 2), EMU_U32);
}

static void isspacep(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint64_t *a = emu_row(w, &i->operand[1]);
	uint32_t is = 0;

	EMU_EACH_LANE(l)
	{
		const uint64_t window = a[l] & (EMU_SHARED_WINDOW | EMU_LOCAL_WINDOW);
		const bool own = (a[l] >> EMU_RANK_SHIFT & 0xFF) == w->cta->rank;

		is |= (uint32_t)(window == window_of((enum emu_state_space)i->space) &&
				 (i->space != EMU_SHARED || own))
		      << l;
	}
	emu_put_lanes(w, &i->operand[0], is, lanes);
}

bool emu_bind_isspacep(struct emu_bind *b)
{
	b->i->run = isspacep;
	b->i->space = (uint8_t)emu_space_of(b);
	if (b->i->space == EMU_GENERIC)
		return emu_bind_fail(b, "the state space is missing");
	return emu_arguments(b, 2, 2) && emu_dst(b, emu_argument(b, 0), 1) &&
	       emu_src(b, emu_argument(b, 1), EMU_U64);
}
