/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_memory.c - ld, st, atom, red, and matrices of 8x8 halves in shared memory.
 * The accesses of a thread take effect immediately and in order; only
 * asynchronous copies are modelled as late (docs/covers.md).
 */
#include <string.h>

#include "hardware/floats.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/traffic.h"
#include "machine/warp.h"
#include "machine/watch.h"
#include "ptx/parse_call.h"

/* ---- ld and st ----------------------------------------------------------- */

/* Bits of the option of ld and st; those of atomics are shifted to the left. */
enum { IS_STRONG = 1, IS_ORDERED = 2, IS_WIDE = 4, RELEASES = 8, ACQUIRES = 16 };

static uint32_t order_of(const struct emu_bind *b)
{
	const bool acquires = emu_has(b, "acquire") || emu_has(b, "acq_rel");
	const bool releases = emu_has(b, "release") || emu_has(b, "acq_rel");
	const bool is_near = emu_has(b, "cta") || emu_has(b, "cluster");

	if (!acquires && !releases && !emu_has(b, "relaxed") && !emu_has(b, "sc") &&
	    !emu_has(b, "volatile"))
		return 0;
	return IS_STRONG | (acquires || releases ? IS_ORDERED : 0) |
	       (is_near ? 0 : IS_WIDE) | (releases ? RELEASES : 0) |
	       (acquires ? ACQUIRES : 0);
}

/* The trait of instructions that wait for all earlier stores. */
static uint8_t release_trait(uint32_t order)
{
	return order & RELEASES && order & IS_WIDE ? EMU_RELEASES : 0;
}

/*
 * The scope of a side (RELEASES or ACQUIRES); relaxed if the access lacks that side.
 */
static enum emu_order_scope scope_of(uint32_t order, uint32_t side)
{
	if (!(order & side))
		return EMU_ORDER_RELAXED;
	return order & IS_WIDE ? EMU_ORDER_WIDE : EMU_ORDER_NEAR;
}

static bool is_signed(enum emu_type t)
{
	return t == EMU_S8T || t == EMU_S16 || t == EMU_S32 || t == EMU_S64;
}

static uint64_t read_element(const uint8_t *from, uint32_t bytes)
{
	uint64_t x = 0;

	switch (bytes) {
	case 1:
		return *from;
	case 2: {
		uint16_t h;

		memcpy(&h, from, 2);
		return h;
	}
	case 4: {
		uint32_t u;

		memcpy(&u, from, 4);
		return u;
	}
	default:
		memcpy(&x, from, 8);
		return x;
	}
}

static void run_ld(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t bytes = (uint32_t)emu_type_bytes((enum emu_type)i->type);
	const uint32_t n = i->vector;
	const int unused = 64 - 8 * (int)bytes;
	uint64_t address[EMU_LANES], value[EMU_LANES];
	uint32_t words[EMU_LANES];
	const uint8_t *from[EMU_LANES];

	emu_addresses(w, i, &i->operand[n], address);
	emu_traffic_lanes(w, i, lanes, address, n * bytes, EMU_TRAFFIC_LOAD);
	if (!emu_load_lanes(w, i, lanes, address, n * bytes, from))
		return;
	for (uint32_t e = 0; e < n; e++) {
		if (bytes == 4 && i->operand[e].bytes == 4) {
			EMU_EACH_LANE(l) memcpy(&words[l], from[l] + 4 * e, 4);
			emu_put_32(w, &i->operand[e], words, lanes);
			continue;
		}
		EMU_EACH_LANE(l)
		value[l] = read_element(from[l] + e * bytes, bytes);
		if (is_signed((enum emu_type)i->type))
			EMU_EACH_LANE(l)
		value[l] = (uint64_t)((int64_t)(value[l] << unused) >> unused);
		emu_put_wide(w, &i->operand[e], value, lanes);
	}
	if (i->option & IS_STRONG) {
		emu_watch_acquire(w, lanes, address, scope_of(i->option, ACQUIRES));
		if (i->option & ACQUIRES)
			emu_watch_lanes_acquire(w, lanes);
		emu_yield(w);
	}
}

static void run_st(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t bytes = (uint32_t)emu_type_bytes((enum emu_type)i->type);
	const uint32_t n = i->vector;
	uint64_t address[EMU_LANES], value[EMU_LANES];
	uint8_t element[EMU_LANES][32];

	emu_addresses(w, i, &i->operand[0], address);
	emu_traffic_lanes(w, i, lanes, address, n * bytes, EMU_TRAFFIC_STORE);
	for (uint32_t e = 0; e < n; e++) {
		if (bytes == 4 && i->operand[1 + e].bytes == 4) {
			const uint32_t *words = emu_row(w, &i->operand[1 + e]);

			EMU_EACH_LANE(l) memcpy(element[l] + 4 * e, &words[l], 4);
			continue;
		}
		emu_get_wide(w, &i->operand[1 + e], value);
		EMU_EACH_LANE(l) memcpy(element[l] + e * bytes, &value[l], bytes);
	}
	if (i->option & IS_STRONG)
		emu_watch_release(w, lanes, address, scope_of(i->option, RELEASES),
				  false);
	if (i->option & RELEASES)
		emu_watch_lanes_release(w, lanes);
	if (emu_store_lanes(w, i, lanes, address, n * bytes, element))
		emu_machine_of(w)->effects++;
}

/* True for .v8 of 32 bits and .v4 of 64 bits: PTX ISA 8.8, ld. */
static bool has_priority(const struct emu_bind *b)
{
	return emu_has(b, "L2::evict_first") || emu_has(b, "L2::evict_last") ||
	       emu_has(b, "L2::evict_normal");
}

static bool bind_access(struct emu_bind *b, uint32_t *count)
{
	if (b->n_types != 1 || emu_type_bytes(b->types[0]) > 8 ||
	    b->types[0] == EMU_PRED)
		return emu_bind_fail(b, "the opcode does not accept "
					"this type");
	*count = emu_has(b, "v2") ? 2 : emu_has(b, "v4") ? 4 : emu_has(b, "v8") ? 8 : 1;
	if (*count * (uint32_t)emu_type_bytes(b->types[0]) > 32)
		return emu_bind_fail(b, "a vector has at most 32 bytes");
	if (*count * (uint32_t)emu_type_bytes(b->types[0]) == 32 &&
	    !emu_bind_needs(b, "100", "a vector of 32 bytes"))
		return false;
	if (has_priority(b) && *count * (uint32_t)emu_type_bytes(b->types[0]) != 32)
		return emu_bind_fail(b, "only 32 bytes of global memory have a "
					"priority in the L2");
	b->i->vector = (uint8_t)*count;
	b->i->space = (uint8_t)emu_space_of(b);
	b->i->option = order_of(b);
	b->i->traits = (b->i->option & IS_STRONG ? EMU_STRONG : 0) |
		       (emu_has(b, "volatile") ? EMU_VOLATILE : 0) |
		       release_trait(b->i->option);
	return true;
}

/* Parameters of a call, and those of a function inside it, are in local memory
 * (parse_call.h); those of a kernel are not. */
static void use_local_parameters(struct emu_bind *b, uint32_t address)
{
	const struct emu_argument *base =
	    &b->s->elements[emu_argument(b, address)->first];
	const bool is_local =
	    base->kind == EMU_ARG_SYMBOL
		? base->space == EMU_LOCAL
		: emu_in_function(b->parser) && !emu_has(b, "param::entry");

	if (b->i->space == EMU_PARAM && is_local)
		b->i->space = EMU_LOCAL;
}

/* The second argument may be a cache policy, which has no effect here. */
bool emu_bind_ld(struct emu_bind *b)
{
	const uint32_t policy = emu_has(b, "L2::cache_hint");
	const struct emu_argument *d;
	uint32_t count = 0, n = 0;

	if (!bind_access(b, &count) || !emu_arguments(b, 2 + policy, 2 + policy))
		return false;
	d = emu_elements(b, emu_argument(b, 0), &n);
	if (n != count)
		return emu_bind_fail(b, "%u registers for %u values", n, count);
	for (uint32_t e = 0; e < n; e++)
		if (!emu_wide_dst(b, &d[e], emu_type_bytes(b->types[0])))
			return false;
	b->i->run = run_ld;
	if (!emu_address(b, emu_argument(b, 1)))
		return false;
	use_local_parameters(b, 1);
	return true;
}

bool emu_bind_st(struct emu_bind *b)
{
	const uint32_t policy = emu_has(b, "L2::cache_hint");
	const struct emu_argument *a;
	uint32_t count = 0, n = 0;

	if (!bind_access(b, &count) || !emu_arguments(b, 2 + policy, 2 + policy) ||
	    !emu_address(b, emu_argument(b, 0)))
		return false;
	use_local_parameters(b, 0);
	if (b->i->space == EMU_PARAM || b->i->space == EMU_CONST)
		return emu_bind_fail(b, "nothing is stored there");
	a = emu_elements(b, emu_argument(b, 1), &n);
	if (n != count)
		return emu_bind_fail(b, "%u registers for %u values", n, count);
	for (uint32_t e = 0; e < n; e++)
		if (!emu_wide_src(b, &a[e], b->types[0]))
			return false;
	b->i->run = run_st;
	return true;
}

/* ---- atom and red -------------------------------------------------------- */

enum atomic {
	ATOMIC_ADD,
	ATOMIC_MIN,
	ATOMIC_MAX,
	ATOMIC_AND,
	ATOMIC_OR,
	ATOMIC_XOR,
	ATOMIC_EXCH,
	ATOMIC_CAS,
	ATOMIC_INC,
	ATOMIC_DEC,
	ATOMICS
};

static const char *const atomic_words[ATOMICS] = {"add", "min",	 "max", "and", "or",
						  "xor", "exch", "cas", "inc", "dec"};

#define NO_RESULT   16
#define ORDER_SHIFT 8

static uint64_t add_floats(enum emu_type type, uint64_t x, uint64_t y)
{
	uint64_t r = 0;

	if (type == EMU_F32) {
		const uint32_t xs = (uint32_t)x, ys = (uint32_t)y;
		float a, b;

		memcpy(&a, &xs, 4);
		memcpy(&b, &ys, 4);
		a += b;
		memcpy(&r, &a, 4);
	} else {
		double a, b;

		memcpy(&a, &x, 8);
		memcpy(&b, &y, 8);
		a += b;
		memcpy(&r, &a, 8);
	}
	return r;
}

/* add, min or max of one half. */
static uint32_t combined_half(const struct emu_format *f, uint32_t operation,
			      uint32_t x, uint32_t y)
{
	const double a = emu_widen(f, x), b = emu_widen(f, y);

	if (operation == ATOMIC_ADD)
		return emu_narrow(f, emu_fma_odd(a, 1, b), EMU_RN, false);
	if (a != a || b != b)
		return a == a ? x : b == b ? y : f->nan;
	/* -0 is below +0. */
	if (a == b)
		return (operation == ATOMIC_MIN) == (x > y) ? x : y;
	return (operation == ATOMIC_MIN) == (a < b) ? x : y;
}

static uint64_t combined_halves(uint32_t operation, enum emu_type type, uint64_t x,
				uint64_t y)
{
	const struct emu_format *f =
	    type == EMU_T_F16 || type == EMU_F16X2 ? &emu_format_f16 : &emu_format_bf16;
	uint64_t r = 0;

	for (int shift = 0; shift < 8 * emu_type_bytes(type); shift += 16)
		r |= (uint64_t)combined_half(f, operation,
					     (uint32_t)(x >> shift) & 0xFFFF,
					     (uint32_t)(y >> shift) & 0xFFFF)
		     << shift;
	return r;
}

static bool is_of_halves(enum emu_type t)
{
	return t == EMU_T_F16 || t == EMU_T_BF16 || t == EMU_F16X2 || t == EMU_BF16X2;
}

static uint64_t combined(uint32_t operation, enum emu_type type, uint64_t x, uint64_t y,
			 uint64_t z)
{
	const int unused = 64 - 8 * emu_type_bytes(type);
	const int64_t sx = (int64_t)(x << unused) >> unused;
	const int64_t sy = (int64_t)(y << unused) >> unused;
	const bool less = is_signed(type) ? sx < sy : x < y;

	if (is_of_halves(type))
		return combined_halves(operation, type, x, y);
	switch (operation) {
	case ATOMIC_ADD:
		return type == EMU_F32 || type == EMU_F64 ? add_floats(type, x, y)
							  : x + y;
	case ATOMIC_MIN:
		return less ? x : y;
	case ATOMIC_MAX:
		return less ? y : x;
	case ATOMIC_AND:
		return x & y;
	case ATOMIC_OR:
		return x | y;
	case ATOMIC_XOR:
		return x ^ y;
	case ATOMIC_CAS:
		return x == y ? z : x;
	case ATOMIC_INC:
		return x >= y ? 0 : x + 1;
	case ATOMIC_DEC:
		return x == 0 || x > y ? y : x - 1;
	default:
		return y;
	}
}

/* Combines one lane's elements one by one; true if memory has changed. */
static bool combine_lane(const struct emu_instr *i, int lane, uint8_t *at,
			 uint64_t before[][EMU_LANES], uint64_t y[][EMU_LANES],
			 const uint64_t *z)
{
	const enum emu_type type = (enum emu_type)i->type;
	const uint32_t bytes = (uint32_t)emu_type_bytes(type);
	bool has_changed = false;

	for (uint32_t e = 0; e < i->vector; e++, at += bytes) {
		uint64_t after;

		before[e][lane] = read_element(at, bytes);
		after = combined(i->option & 15, type, before[e][lane], y[e][lane],
				 z[lane]);
		has_changed |= (after ^ before[e][lane]) << (64 - 8 * bytes) != 0;
		memcpy(at, &after, bytes);
	}
	return has_changed;
}

/* What the lanes' atomics publish, before they happen. */
static void watch_atom(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		       const uint64_t *address)
{
	const uint32_t order = i->option >> ORDER_SHIFT;
	const uint32_t bytes =
	    i->vector * (uint32_t)emu_type_bytes((enum emu_type)i->type);

	emu_traffic_lanes(w, i, lanes, address, bytes, EMU_TRAFFIC_LOAD);
	emu_traffic_lanes(w, i, lanes, address, bytes, EMU_TRAFFIC_STORE);
	emu_watch_acquire(w, lanes, address, scope_of(order, ACQUIRES));
	emu_watch_release(w, lanes, address, scope_of(order, RELEASES), true);
	/*
	 * The lanes' atomics are executed one after the other, so each may
	 * acquire what the one before released.
	 */
	if (order & RELEASES)
		emu_watch_lanes_release(w, lanes);
	if (order & ACQUIRES)
		emu_watch_lanes_acquire(w, lanes);
}

/* The bytes of a lane's atomic; NULL after a fault. */
static uint8_t *access_atom(struct emu_warp *w, const struct emu_instr *i, int lane,
			    uint64_t address, uint32_t bytes)
{
	const enum emu_state_space space = (enum emu_state_space)i->space;
	uint8_t *at =
	    emu_access(w, i, lane, space, address, bytes,
		       i->option & EMU_IGNORES_OLD ? EMU_WRITE : EMU_READ, NULL);

	if (at)
		(void)emu_access(w, i, lane, space, address, bytes, EMU_WRITE, NULL);
	return at;
}

static void run_atom(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t results = i->option & NO_RESULT ? 0 : i->vector;
	const struct emu_value *o = i->operand + results;
	const uint32_t bytes =
	    i->vector * (uint32_t)emu_type_bytes((enum emu_type)i->type);
	uint64_t address[EMU_LANES], z[EMU_LANES] = {0};
	uint64_t y[8][EMU_LANES] = {{0}}, before[8][EMU_LANES] = {{0}};
	uint8_t *plain[EMU_LANES];
	bool has_changed = false, is_plain;

	emu_addresses(w, i, &o[0], address);
	for (uint32_t e = 0; e < i->vector; e++)
		emu_get_wide(w, &o[1 + e], y[e]);
	if ((i->option & 15) == ATOMIC_CAS)
		emu_get_wide(w, &o[2], z);
	watch_atom(w, i, lanes, address);
	is_plain = emu_plain_atomics(w, i, lanes, address, bytes, plain);
	EMU_EACH_LANE(l)
	{
		uint8_t *at;

		if (!(lanes >> l & 1))
			continue;
		at = is_plain ? plain[l] : access_atom(w, i, l, address[l], bytes);
		if (!at)
			return;
		has_changed = combine_lane(i, l, at, before, y, z) || has_changed;
	}
	for (uint32_t e = 0; e < results; e++)
		emu_put_wide(w, &i->operand[e], before[e], lanes);
	emu_machine_of(w)->effects += has_changed;
	if (has_changed)
		w->must_yield = true;
	else
		emu_yield(w);
}

bool emu_is_exchange(const struct emu_instr *i)
{
	return i->run == run_atom && (i->option & 15) == ATOMIC_EXCH &&
	       !(i->option & NO_RESULT) && i->vector == 1;
}

static bool takes(uint32_t operation, enum emu_type t)
{
	const bool is_float = t == EMU_F32 || t == EMU_F64;
	const bool is_bits = t == EMU_B32 || t == EMU_B64;

	if (t == EMU_B16)
		return operation == ATOMIC_CAS || operation == ATOMIC_EXCH;
	if (is_of_halves(t))
		return operation <= ATOMIC_MAX;
	switch (operation) {
	case ATOMIC_ADD:
		return !is_bits;
	case ATOMIC_MIN:
	case ATOMIC_MAX:
		return !is_bits && !is_float;
	case ATOMIC_INC:
	case ATOMIC_DEC:
		return t == EMU_U32;
	default:
		return is_bits;
	}
}

/* The number of elements; of vectors only floats, in global memory. */
static bool bind_atomic_vector(struct emu_bind *b, uint32_t operation)
{
	const enum emu_type t = b->types[0];

	b->i->vector = emu_has(b, "v2")	  ? 2
		       : emu_has(b, "v4") ? 4
		       : emu_has(b, "v8") ? 8
					  : 1;
	if (b->i->vector == 1)
		return true;
	return (b->i->space == EMU_GLOBAL && operation <= ATOMIC_MAX &&
		(is_of_halves(t) || (t == EMU_F32 && operation == ATOMIC_ADD)) &&
		b->i->vector * emu_type_bytes(t) <= 16) ||
	       emu_bind_fail(b, "a vector is of .f16, .bf16 or pairs of them, "
				"or for .add of .f32, in .global, of 16 bytes "
				"at most");
}

/* As many registers as the vector has elements. */
static bool bind_elements(struct emu_bind *b, uint32_t argument, bool is_written)
{
	uint32_t n = 0;
	const struct emu_argument *e = emu_elements(b, emu_argument(b, argument), &n);

	if (n != b->i->vector)
		return emu_bind_fail(b, "%u registers for %u values", n, b->i->vector);
	for (uint32_t k = 0; k < n; k++)
		if (is_written ? !emu_dst(b, &e[k], emu_type_bytes(b->types[0]))
			       : !emu_src(b, &e[k], b->types[0]))
			return false;
	return true;
}

static bool bind_atomic(struct emu_bind *b, bool has_result)
{
	const uint32_t policy = emu_has(b, "L2::cache_hint");
	uint32_t operation = 0, n = has_result, count;

	if (!emu_has_one(b, atomic_words, ATOMICS, &operation) || b->n_types != 1 ||
	    !takes(operation, b->types[0]))
		return emu_bind_fail(b, "it needs one operation that its type "
					"has");
	b->i->option =
	    operation | (has_result ? 0 : NO_RESULT) | order_of(b) << ORDER_SHIFT;
	b->i->space = (uint8_t)emu_space_of(b);
	b->i->traits = EMU_ATOMIC | EMU_STRONG | release_trait(order_of(b));
	b->i->run = run_atom;
	count = n + (operation == ATOMIC_CAS ? 3 : 2) + policy;
	if (!bind_atomic_vector(b, operation) || !emu_arguments(b, count, count) ||
	    (has_result && !bind_elements(b, 0, true)) ||
	    !emu_address(b, emu_argument(b, n)) || !bind_elements(b, n + 1, false))
		return false;
	return operation != ATOMIC_CAS ||
	       emu_src(b, emu_argument(b, n + 2), b->types[0]);
}

bool emu_bind_atom(struct emu_bind *b)
{
	return bind_atomic(b, true);
}

bool emu_bind_red(struct emu_bind *b)
{
	return bind_atomic(b, false);
}

bool emu_bind_prefetch(struct emu_bind *b)
{
	return emu_bind_nothing(b);
}

/* ---- matrices ------------------------------------------------------------ */

enum { TRANSPOSED = 1, OF_6_BITS = 2, OF_4_BITS = 4, BY_GENERIC = 8 };

/* The addresses of the rows in shared memory; generic ones must be in its window. */
static bool row_addresses(struct emu_warp *w, const struct emu_instr *i,
			  const struct emu_value *base, uint64_t *address)
{
	emu_addresses(w, i, base, address);
	if (!(i->option & BY_GENERIC))
		return true;
	for (int r = 0; r < 8 * i->vector; r++) {
		if (!(address[r] & EMU_SHARED_WINDOW)) {
			emu_fault(w, i, r,
				  "the row at generic address 0x%llx is not in shared "
				  "memory",
				  (unsigned long long)address[r]);
			return false;
		}
		address[r] &= ~EMU_SHARED_WINDOW;
	}
	return true;
}

/*
 * Lanes 8j .. 8j+7 give the addresses of the rows of matrix j.  Lane t has two
 * elements of each matrix: columns 2 (t % 4) and the next one of row t / 4, or
 * transposed, these rows of column t / 4.
 */
static bool matrix_rows(struct emu_warp *w, const struct emu_instr *i,
			const struct emu_value *base, uint8_t **rows)
{
	uint64_t address[EMU_LANES];

	if (!row_addresses(w, i, base, address))
		return false;
	for (int r = 0; r < 8 * i->vector; r++) {
		rows[r] = emu_access(w, i, r, (enum emu_state_space)i->space,
				     address[r], 16, EMU_READ, NULL);
		if (!rows[r])
			return false;
	}
	return true;
}

/*
 * Unpacks rows of 16 elements of 6 or 4 bits, which are packed at the start of 16
 * bytes, to the low bits of one byte each.  The padding after them is optional.
 */
static bool packed_rows(struct emu_warp *w, const struct emu_instr *i,
			uint8_t (*bytes)[16], uint8_t **rows)
{
	const uint32_t bits = i->option & OF_6_BITS ? 6 : 4;
	const enum emu_state_space space = (enum emu_state_space)i->space;
	uint64_t address[EMU_LANES];

	if (!row_addresses(w, i, &i->operand[i->vector], address))
		return false;
	for (int r = 0; r < 8 * i->vector; r++) {
		const uint64_t at = address[r];
		const uint8_t *from =
		    emu_access(w, i, r, space, at, 16, EMU_PEEK, NULL);

		if (!from || !emu_access(w, i, r, space, at, 8, EMU_READ, NULL) ||
		    (bits == 6 &&
		     !emu_access(w, i, r, space, at + 8, 4, EMU_READ, NULL)))
			return false;
		for (uint32_t k = 0; k < 16; k++) {
			const uint32_t first = bits * k, byte = first / 8;
			/* The last element ends with its byte. */
			const uint32_t two = from[byte] | (uint32_t)from[byte + 1] << 8;

			bytes[r][k] = (uint8_t)(two >> first % 8 & ((1u << bits) - 1));
		}
		rows[r] = bytes[r];
	}
	return true;
}

static uint8_t *element(uint8_t **rows, const struct emu_instr *i, int matrix, int lane,
			int half)
{
	const int major = lane / 4, minor = 2 * (lane % 4) + half;

	if (i->option & TRANSPOSED)
		return rows[8 * matrix + minor] + 2 * major;
	return rows[8 * matrix + major] + 2 * minor;
}

static void run_stmatrix(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t all = UINT32_MAX >> (EMU_LANES - 8 * i->vector);
	uint8_t *rows[EMU_LANES], values[EMU_LANES][32];
	uint64_t address[EMU_LANES];

	(void)lanes;
	EMU_EACH_LANE(l) rows[l] = values[l];
	for (int m = 0; m < i->vector; m++) {
		const uint32_t *from = emu_row(w, &i->operand[1 + m]);

		EMU_EACH_LANE(l)
		for (int half = 0; half < 2; half++) {
			const uint16_t x = (uint16_t)(from[l] >> 16 * half);

			memcpy(element(rows, i, m, l, half), &x, 2);
		}
	}
	if (row_addresses(w, i, &i->operand[0], address) &&
	    emu_store_lanes(w, i, all, address, 16, values))
		emu_machine_of(w)->effects++;
}

static void run_ldmatrix(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint8_t *rows[EMU_LANES] = {NULL};
	uint8_t bytes[EMU_LANES][16];

	if (i->option & (OF_6_BITS | OF_4_BITS)
		? !packed_rows(w, i, bytes, rows)
		: !matrix_rows(w, i, &i->operand[i->vector], rows))
		return;
	for (int m = 0; m < i->vector; m++) {
		uint32_t r[EMU_LANES];

		EMU_EACH_LANE(l)
		{
			uint16_t x[2];

			for (int half = 0; half < 2; half++)
				memcpy(&x[half], element(rows, i, m, l, half), 2);
			r[l] = x[0] | (uint32_t)x[1] << 16;
		}
		emu_put_32(w, &i->operand[m], r, lanes);
	}
}

/* .m8n16 of packed elements: its rows of bytes have the places of .m8n8. */
static bool is_packed_matrix(const struct emu_bind *b)
{
	return b->shape_m == 8 && b->shape_n == 16 && b->n_types == 0 &&
	       emu_has(b, "b8x16") && !emu_has(b, "trans") &&
	       emu_has(b, "b6x16_p32") != emu_has(b, "b4x16_p64");
}

static bool bind_matrix(struct emu_bind *b)
{
	const bool is_packed = is_packed_matrix(b);
	const bool is_generic = emu_space_of(b) == EMU_GENERIC;

	if ((!is_packed && (b->shape_m != 8 || b->shape_n != 8 || b->n_types != 1 ||
			    emu_has(b, "b8x16"))) ||
	    b->shape_k)
		return emu_bind_fail(b,
				     "it needs .m8n8 with .b16 or (ldmatrix) "
				     ".m8n16 with .b8x16 and .b6x16_p32 or .b4x16_p64");
	b->i->is_converged = true;
	b->i->traits = EMU_MATRIX;
	b->i->space = (uint8_t)(is_generic ? EMU_SHARED : emu_space_of(b));
	b->i->option = emu_has(b, "trans")	 ? TRANSPOSED
		       : !is_packed		 ? 0
		       : emu_has(b, "b6x16_p32") ? OF_6_BITS
						 : OF_4_BITS;
	b->i->option |= is_generic ? BY_GENERIC : 0;
	b->i->vector = emu_has(b, "x4") ? 4 : emu_has(b, "x2") ? 2 : 1;
	return emu_arguments(b, 2, 2);
}

static bool bind_registers(struct emu_bind *b, uint32_t argument, bool is_written)
{
	uint32_t n;
	const struct emu_argument *e = emu_elements(b, emu_argument(b, argument), &n);

	if (n != b->i->vector)
		return emu_bind_fail(b, "%u registers for %u matrices", n,
				     b->i->vector);
	for (uint32_t k = 0; k < n; k++)
		if (is_written ? !emu_dst(b, &e[k], 4) : !emu_src(b, &e[k], EMU_B32))
			return false;
	return true;
}

bool emu_bind_stmatrix(struct emu_bind *b)
{
	b->i->run = run_stmatrix;
	return bind_matrix(b) && emu_address(b, emu_argument(b, 0)) &&
	       bind_registers(b, 1, false);
}

bool emu_bind_ldmatrix(struct emu_bind *b)
{
	b->i->run = run_ldmatrix;
	return bind_matrix(b) && bind_registers(b, 0, true) &&
	       emu_address(b, emu_argument(b, 1));
}
