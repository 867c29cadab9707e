/* SPDX-License-Identifier: Apache-2.0 */
/* alu_bits.c - logic, shifts, bit fields, bytes, selection and comparison. */
#include <string.h>

#include "hardware/floats.h"
#include "instruction/binds.h"
#include "machine/warp.h"

/* A function of up to three sources of one width and one of 32 bits. */
#define BITWISE(name, bits, expression)                                                \
	static void name##_##bits(struct emu_warp *w, const struct emu_instr *i,       \
				  uint32_t lanes)                                      \
	{                                                                              \
		const struct emu_value *o = i->operand;                                \
		const uint##bits##_t *a = emu_row(w, &o[1]);                           \
		const uint##bits##_t *b = i->operands > 2 ? emu_row(w, &o[2]) : a;     \
		const uint##bits##_t *c = i->operands > 3 ? emu_row(w, &o[3]) : a;     \
		uint##bits##_t r[EMU_LANES];                                           \
                                                                                       \
		(void)b;                                                               \
		(void)c;                                                               \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const uint##bits##_t x = a[l];                                 \
			r[l] = (uint##bits##_t)(expression);                           \
		}                                                                      \
		emu_put_##bits(w, &o[0], r, lanes);                                    \
	}
#define ALL_WIDTHS(name, expression)                                                   \
	BITWISE(name, 16, expression)                                                  \
	BITWISE(name, 32, expression)                                                  \
	BITWISE(name, 64, expression)

ALL_WIDTHS(and, x &b[l])
ALL_WIDTHS(or, x | b[l])
ALL_WIDTHS(xor, x ^ b[l])
ALL_WIDTHS(not, ~x)
ALL_WIDTHS(cnot, x == 0)

/* Logic of predicates, on whole words. */
#define PREDICATES(name, expression)                                                   \
	static void name##_pred(struct emu_warp *w, const struct emu_instr *i,         \
				uint32_t lanes)                                        \
	{                                                                              \
		const struct emu_value *o = i->operand;                                \
		const uint32_t x = emu_lanes_of(w, &o[1]);                             \
		const uint32_t y = i->operands > 2 ? emu_lanes_of(w, &o[2]) : 0;       \
                                                                                       \
		(void)y;                                                               \
		emu_put_lanes(w, &o[0], expression, lanes);                            \
	}
PREDICATES(and, x &y)
PREDICATES(or, x | y)
PREDICATES(xor, x ^ y)
PREDICATES(not, ~x)

/* Shifts by amounts of 32 bits, which are clamped to the width. */
#define SHIFT(name, T, bits, beyond, expression)                                       \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		const uint32_t *b = emu_row(w, &i->operand[2]);                        \
		uint##bits##_t r[EMU_LANES];                                           \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const T x = a[l];                                              \
			const uint32_t n = b[l] & (bits - 1);                          \
			r[l] =                                                         \
			    (uint##bits##_t)(b[l] >= bits ? (beyond) : (expression));  \
		}                                                                      \
		emu_put_##bits(w, &i->operand[0], r, lanes);                           \
	}
SHIFT(shl_16, uint16_t, 16, 0, (uint32_t)x << n)
SHIFT(shl_32, uint32_t, 32, 0, x << n)
SHIFT(shl_64, uint64_t, 64, 0, x << n)
SHIFT(shr_u16, uint16_t, 16, 0, x >> n)
SHIFT(shr_u32, uint32_t, 32, 0, x >> n)
SHIFT(shr_u64, uint64_t, 64, 0, x >> n)
SHIFT(shr_s16, int16_t, 16, x >> 15, x >> n)
SHIFT(shr_s32, int32_t, 32, x < 0 ? -1 : 0, x >> n)
SHIFT(shr_s64, int64_t, 64, x < 0 ? -1 : 0, x >> n)

/* Counts: results of 32 bits. */
#define COUNT(name, T, expression)                                                     \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		uint32_t r[EMU_LANES];                                                 \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const T x = a[l];                                              \
			r[l] = (uint32_t)(expression);                                 \
		}                                                                      \
		emu_put_32(w, &i->operand[0], r, lanes);                               \
	}
COUNT(popc_32, uint32_t, __builtin_popcount(x))
COUNT(popc_64, uint64_t, __builtin_popcountll(x))
COUNT(clz_32, uint32_t, x ? __builtin_clz(x) : 32)
COUNT(clz_64, uint64_t, x ? __builtin_clzll(x) : 64)

static uint32_t highest_bit(uint64_t x)
{
	return x ? 63 - (uint32_t)__builtin_clzll(x) : UINT32_MAX;
}
COUNT(bfind_u32, uint32_t, highest_bit(x))
COUNT(bfind_s32, int32_t, highest_bit((uint32_t)(x < 0 ? ~x : x)))
COUNT(bfind_u64, uint64_t, highest_bit(x))
COUNT(bfind_s64, int64_t, highest_bit((uint64_t)(x < 0 ? ~x : x)))

/* The distance of the highest set bit from the top. */
static uint32_t shift_amount(uint64_t x, uint32_t bits)
{
	return x ? bits - 1 - highest_bit(x) : UINT32_MAX;
}
COUNT(shiftamt_u32, uint32_t, shift_amount(x, 32))
COUNT(shiftamt_s32, int32_t, shift_amount((uint32_t)(x < 0 ? ~x : x), 32))
COUNT(shiftamt_u64, uint64_t, shift_amount(x, 64))
COUNT(shiftamt_s64, int64_t, shift_amount((uint64_t)(x < 0 ? ~x : x), 64))

static uint64_t reversed(uint64_t x)
{
	uint64_t r = 0;

	for (int i = 0; i < 64; i++)
		r |= (x >> i & 1) << (63 - i);
	return r;
}
BITWISE(brev, 32, reversed(x) >> 32)
BITWISE(brev, 64, reversed(x))

/* b with bits position .. position + length - 1 replaced by those of a. */
static uint64_t insert(uint64_t a, uint64_t b, uint32_t position, uint32_t length,
		       uint32_t bits)
{
	uint64_t mask;

	position &= 0xFF;
	length &= 0xFF;
	if (position >= bits || length == 0)
		return b;
	mask = length >= 64 ? UINT64_MAX : (UINT64_C(1) << length) - 1;
	return (b & ~(mask << position)) | (a & mask) << position;
}

#define INSERT(bits)                                                                   \
	static void bfi_##bits(struct emu_warp *w, const struct emu_instr *i,          \
			       uint32_t lanes)                                         \
	{                                                                              \
		const uint##bits##_t *a = emu_row(w, &i->operand[1]);                  \
		const uint##bits##_t *b = emu_row(w, &i->operand[2]);                  \
		const uint32_t *c = emu_row(w, &i->operand[3]);                        \
		const uint32_t *d = emu_row(w, &i->operand[4]);                        \
		uint##bits##_t r[EMU_LANES];                                           \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		r[l] = (uint##bits##_t)insert(a[l], b[l], c[l], d[l], bits);           \
		emu_put_##bits(w, &i->operand[0], r, lanes);                           \
	}
INSERT(32)
INSERT(64)

/* PTX ISA, bfe: bits beyond the top are the sign's (signed) or zero. */
static uint64_t extract(uint64_t a, uint32_t position, uint32_t length, uint32_t bits,
			bool is_signed)
{
	const uint32_t msb = bits - 1;
	uint64_t r = 0, sign = 0;

	position &= 0xFF;
	length &= 0xFF;
	if (is_signed && length)
		sign =
		    a >> (position + length - 1 < msb ? position + length - 1 : msb) &
		    1;
	for (uint32_t i = 0; i <= msb; i++)
		r |=
		    (i < length && position + i <= msb ? a >> (position + i) & 1 : sign)
		    << i;
	return r;
}

#define EXTRACT(name, bits, is_signed)                                                 \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const uint##bits##_t *a = emu_row(w, &i->operand[1]);                  \
		const uint32_t *b = emu_row(w, &i->operand[2]);                        \
		const uint32_t *c = emu_row(w, &i->operand[3]);                        \
		uint##bits##_t r[EMU_LANES];                                           \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		r[l] = (uint##bits##_t)extract(a[l], b[l], c[l], bits, is_signed);     \
		emu_put_##bits(w, &i->operand[0], r, lanes);                           \
	}
EXTRACT(bfe_u32, 32, false)
EXTRACT(bfe_s32, 32, true)
EXTRACT(bfe_u64, 64, false)
EXTRACT(bfe_s64, 64, true)

/* Byte i of the result: byte c[4i+2:4i] of b:a, or its sign eight times. */
static uint32_t permute(uint32_t a, uint32_t b, uint32_t c)
{
	const uint64_t bytes = (uint64_t)b << 32 | a;
	uint32_t r = 0;

	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t pick = c >> (4 * i) & 15;
		uint32_t byte = (uint32_t)(bytes >> (8 * (pick & 7))) & 0xFF;

		if (pick & 8)
			byte = byte & 0x80 ? 0xFF : 0;
		r |= byte << (8 * i);
	}
	return r;
}
BITWISE(prmt, 32, permute(x, b[l], c[l]))

/* c + the absolute differences of the four bytes of a and b. */
static uint32_t differences4(uint32_t a, uint32_t b, uint32_t c)
{
	for (uint32_t i = 0; i < 32; i += 8) {
		const uint32_t x = a >> i & 0xFF, y = b >> i & 0xFF;

		c += x > y ? x - y : y - x;
	}
	return c;
}
BITWISE(vabsdiff4, 32, differences4(x, b[l], c[l]))

static uint32_t lookup(uint32_t x, uint32_t y, uint32_t z, uint32_t table)
{
	uint32_t r = 0;

	for (uint32_t i = 0; i < 8; i++)
		if (table >> i & 1)
			r |= (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
	return r;
}
BITWISE(lop3, 32, lookup(x, b[l], c[l], i->option))

#define SELECT(bits)                                                                   \
	static void selp_##bits(struct emu_warp *w, const struct emu_instr *i,         \
				uint32_t lanes)                                        \
	{                                                                              \
		const uint##bits##_t *a = emu_row(w, &i->operand[1]);                  \
		const uint##bits##_t *b = emu_row(w, &i->operand[2]);                  \
		const uint32_t p = emu_lanes_of(w, &i->operand[3]);                    \
		uint##bits##_t r[EMU_LANES];                                           \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		r[l] = p >> l & 1 ? a[l] : b[l];                                       \
		emu_put_##bits(w, &i->operand[0], r, lanes);                           \
	}
SELECT(16)
SELECT(32)
SELECT(64)

#define LOGIC(name)                                                                    \
	{#name, EMU_B16, "ttt", name##_16}, {#name, EMU_B32, "ttt", name##_32},        \
	    {#name, EMU_B64, "ttt", name##_64},                                        \
	{                                                                              \
#name, EMU_PRED, "ttt", name##_pred                                    \
	}

const struct emu_alu emu_bits_alu[] = {
    LOGIC(and),
    LOGIC(or),
    LOGIC(xor),
    {"not", EMU_B16, "tt", not_16},
    {"not", EMU_B32, "tt", not_32},
    {"not", EMU_B64, "tt", not_64},
    {"not", EMU_PRED, "tt", not_pred},
    {"cnot", EMU_B16, "tt", cnot_16},
    {"cnot", EMU_B32, "tt", cnot_32},
    {"cnot", EMU_B64, "tt", cnot_64},
    {"shl", EMU_B16, "ttu", shl_16},
    {"shl", EMU_B32, "ttu", shl_32},
    {"shl", EMU_B64, "ttu", shl_64},
    {"shr", EMU_B16, "ttu", shr_u16},
    {"shr", EMU_B32, "ttu", shr_u32},
    {"shr", EMU_B64, "ttu", shr_u64},
    {"shr", EMU_U16, "ttu", shr_u16},
    {"shr", EMU_U32, "ttu", shr_u32},
    {"shr", EMU_U64, "ttu", shr_u64},
    {"shr", EMU_S16, "ttu", shr_s16},
    {"shr", EMU_S32, "ttu", shr_s32},
    {"shr", EMU_S64, "ttu", shr_s64},
    {"popc", EMU_B32, "ut", popc_32},
    {"popc", EMU_B64, "ut", popc_64},
    {"clz", EMU_B32, "ut", clz_32},
    {"clz", EMU_B64, "ut", clz_64},
    {"bfind", EMU_U32, "ut", bfind_u32},
    {"bfind", EMU_S32, "ut", bfind_s32},
    {"bfind", EMU_U64, "ut", bfind_u64},
    {"bfind", EMU_S64, "ut", bfind_s64},
    {"bfind.shiftamt", EMU_U32, "ut", shiftamt_u32},
    {"bfind.shiftamt", EMU_S32, "ut", shiftamt_s32},
    {"bfind.shiftamt", EMU_U64, "ut", shiftamt_u64},
    {"bfind.shiftamt", EMU_S64, "ut", shiftamt_s64},
    {"brev", EMU_B32, "tt", brev_32},
    {"brev", EMU_B64, "tt", brev_64},
    {"bfi", EMU_B32, "tttuu", bfi_32},
    {"bfi", EMU_B64, "tttuu", bfi_64},
    {"bfe", EMU_U32, "ttuu", bfe_u32},
    {"bfe", EMU_S32, "ttuu", bfe_s32},
    {"bfe", EMU_U64, "ttuu", bfe_u64},
    {"bfe", EMU_S64, "ttuu", bfe_s64},
    {"prmt", EMU_B32, "tttt", prmt_32},
    {"vabsdiff4", EMU_U32, "tttt", vabsdiff4_32},
    {"lop3", EMU_B32, "ttttz", lop3_32},
    {"selp", EMU_B16, "tttp", selp_16},
    {"selp", EMU_U16, "tttp", selp_16},
    {"selp", EMU_S16, "tttp", selp_16},
    {"selp", EMU_B32, "tttp", selp_32},
    {"selp", EMU_U32, "tttp", selp_32},
    {"selp", EMU_S32, "tttp", selp_32},
    {"selp", EMU_F32, "tttp", selp_32},
    {"selp", EMU_B64, "tttp", selp_64},
    {"selp", EMU_U64, "tttp", selp_64},
    {"selp", EMU_S64, "tttp", selp_64},
    {"selp", EMU_F64, "tttp", selp_64},
    {NULL, EMU_NO_TYPE, NULL, NULL},
};

/* ---- funnel shift -------------------------------------------------------- */

enum { SHF_RIGHT = 1, SHF_CLAMP = 2 };

static void run_shf(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *a = emu_row(w, &i->operand[1]);
	const uint32_t *b = emu_row(w, &i->operand[2]);
	const uint32_t *c = emu_row(w, &i->operand[3]);
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l)
	{
		const uint64_t both = (uint64_t)b[l] << 32 | a[l];
		const uint32_t n =
		    i->option & SHF_CLAMP ? (c[l] < 32 ? c[l] : 32) : c[l] & 31;

		r[l] = i->option & SHF_RIGHT ? (uint32_t)(both >> n)
					     : (uint32_t)(both << n >> 32);
	}
	emu_put_32(w, &i->operand[0], r, lanes);
}

bool emu_bind_shf(struct emu_bind *b)
{
	if (!emu_arguments(b, 4, 4) || !emu_dst(b, emu_argument(b, 0), 4))
		return false;
	for (uint32_t n = 1; n < 4; n++)
		if (!emu_src(b, emu_argument(b, n), EMU_B32))
			return false;
	if (emu_has(b, "l") == emu_has(b, "r") ||
	    emu_has(b, "wrap") == emu_has(b, "clamp"))
		return emu_bind_fail(b, "it needs .l or .r, and .wrap or "
					".clamp");
	b->i->option =
	    (emu_has(b, "r") ? SHF_RIGHT : 0) | (emu_has(b, "clamp") ? SHF_CLAMP : 0);
	b->i->run = run_shf;
	return true;
}

/* ---- sums of products ------------------------------------------------------ */

/* dp2a multiplies the halves of a and two bytes of b, dp4a the bytes of both. */
enum { A_SIGNED = 1, B_SIGNED = 2, HALVES = 4, HIGH_BYTES = 8 };

/* Part i of x, with its sign or without. */
static int64_t part(uint32_t x, uint32_t i, uint32_t bits, bool is_signed)
{
	const int64_t value = x >> (i * bits) & ((1u << bits) - 1);

	return is_signed && value >> (bits - 1) ? value - (1 << bits) : value;
}

static void run_dot(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *a = emu_row(w, &i->operand[1]);
	const uint32_t *b = emu_row(w, &i->operand[2]);
	const uint32_t *c = emu_row(w, &i->operand[3]);
	const uint32_t n = i->option & HALVES ? 2 : 4;
	const uint32_t first = i->option & HIGH_BYTES ? 2 : 0;
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l)
	{
		int64_t sum = c[l];

		for (uint32_t k = 0; k < n; k++)
			sum += part(a[l], k, 32 / n, i->option & A_SIGNED) *
			       part(b[l], first + k, 8, i->option & B_SIGNED);
		r[l] = (uint32_t)sum;
	}
	emu_put_32(w, &i->operand[0], r, lanes);
}

/* dp2a and dp4a name the types of a and b. */
bool emu_bind_dot(struct emu_bind *b)
{
	const bool is_of_halves = strcmp(b->i->opcode->name, "dp2a") == 0;

	if (b->n_types != 2 || emu_has(b, "lo") + emu_has(b, "hi") != is_of_halves)
		return emu_bind_fail(b, "it needs two types, and dp2a .lo or .hi");
	if (!emu_arguments(b, 4, 4) || !emu_dst(b, emu_argument(b, 0), 4))
		return false;
	for (uint32_t n = 1; n < 4; n++)
		if (!emu_src(b, emu_argument(b, n), EMU_B32))
			return false;
	b->i->option = (b->types[0] == EMU_S32 ? A_SIGNED : 0) |
		       (b->types[1] == EMU_S32 ? B_SIGNED : 0) |
		       (is_of_halves ? HALVES : 0) |
		       (emu_has(b, "hi") ? HIGH_BYTES : 0);
	b->i->run = run_dot;
	return true;
}

/* ---- setp ---------------------------------------------------------------- */

/* Bits of option: which of less, equal, greater and unordered give true. */
enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };
enum { WITH_AND = 16, WITH_OR = 32, WITH_XOR = 64, TWO_RESULTS = 128 };

#define COMPARE(name, T)                                                               \
	EMU_FAST static uint32_t name(const void *left, const void *right,             \
				      uint32_t wanted)                                 \
	{                                                                              \
		const T *a = left, *b = right;                                         \
		uint32_t less = 0, equal = 0, greater = 0;                             \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			less |= (uint32_t)(a[l] < b[l]) << l;                          \
			equal |= (uint32_t)(a[l] == b[l]) << l;                        \
			greater |= (uint32_t)(a[l] > b[l]) << l;                       \
		}                                                                      \
		return (wanted & LESS ? less : 0) | (wanted & EQUAL ? equal : 0) |     \
		       (wanted & GREATER ? greater : 0) |                              \
		       (wanted & UNORDERED ? ~(less | equal | greater) : 0);           \
	}
COMPARE(compare_u16, uint16_t)
COMPARE(compare_s16, int16_t)
COMPARE(compare_u32, uint32_t)
COMPARE(compare_s32, int32_t)
COMPARE(compare_u64, uint64_t)
COMPARE(compare_s64, int64_t)
COMPARE(compare_f32, float)
COMPARE(compare_f64, double)

static bool is_half(enum emu_type type)
{
	return type == EMU_T_F16 || type == EMU_T_BF16;
}

static bool is_half_pair(enum emu_type type)
{
	return type == EMU_F16X2 || type == EMU_BF16X2;
}

/* Halves of a row, every step-th from the first, as floats. */
static void widen_halves(enum emu_type type, const uint16_t *from, int step, float *to)
{
	const struct emu_format *f =
	    type == EMU_T_F16 || type == EMU_F16X2 ? &emu_format_f16 : &emu_format_bf16;

	EMU_EACH_LANE(l) to[l] = (float)emu_widen(f, from[step * l]);
}

static uint32_t compare_halves(enum emu_type type, const void *a, const void *b,
			       uint32_t wanted, int half)
{
	const int step = is_half_pair(type) ? 2 : 1;
	float x[EMU_LANES], y[EMU_LANES];

	widen_halves(type, (const uint16_t *)a + half, step, x);
	widen_halves(type, (const uint16_t *)b + half, step, y);
	return compare_f32(x, y, wanted);
}

static uint32_t compare(enum emu_type type, const void *a, const void *b,
			uint32_t wanted)
{
	if (is_half(type) || is_half_pair(type))
		return compare_halves(type, a, b, wanted, 0);
	switch (type) {
	case EMU_S16:
		return compare_s16(a, b, wanted);
	case EMU_U16:
	case EMU_B16:
		return compare_u16(a, b, wanted);
	case EMU_S32:
		return compare_s32(a, b, wanted);
	case EMU_S64:
		return compare_s64(a, b, wanted);
	case EMU_U64:
	case EMU_B64:
		return compare_u64(a, b, wanted);
	case EMU_F32:
		return compare_f32(a, b, wanted);
	case EMU_F64:
		return compare_f64(a, b, wanted);
	default:
		return compare_u32(a, b, wanted);
	}
}

static uint32_t combine(uint32_t option, uint32_t x, uint32_t with)
{
	return option & WITH_AND   ? x & with
	       : option & WITH_OR  ? x | with
	       : option & WITH_XOR ? x ^ with
				   : x;
}

static void run_setp(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_value *o = i->operand;
	const uint32_t first = i->option & TWO_RESULTS ? 2 : 1;
	const uint32_t x = compare((enum emu_type)i->type, emu_row(w, &o[first]),
				   emu_row(w, &o[first + 1]), i->option);
	const uint32_t with = i->option & (WITH_AND | WITH_OR | WITH_XOR)
				  ? emu_lanes_of(w, &o[first + 2])
				  : 0;

	/* The second result is the opposite, or for pairs that of the upper values. */
	const uint32_t second =
	    is_half_pair((enum emu_type)i->type)
		? compare_halves((enum emu_type)i->type, emu_row(w, &o[first]),
				 emu_row(w, &o[first + 1]), i->option, 1)
		: ~x;

	emu_put_lanes(w, &o[0], combine(i->option, x, with), lanes);
	if (first == 2)
		emu_put_lanes(w, &o[1], combine(i->option, second, with), lanes);
}

static const struct {
	const char *word;
	uint32_t wanted;
	bool of_floats; /* only */
} comparisons[] = {
    {"eq", EQUAL, false},
    {"ne", LESS | GREATER, false},
    {"lt", LESS, false},
    {"le", LESS | EQUAL, false},
    {"gt", GREATER, false},
    {"ge", GREATER | EQUAL, false},
    {"lo", LESS, false},
    {"ls", LESS | EQUAL, false},
    {"hi", GREATER, false},
    {"hs", GREATER | EQUAL, false},
    {"equ", EQUAL | UNORDERED, true},
    {"neu", LESS | GREATER | UNORDERED, true},
    {"ltu", LESS | UNORDERED, true},
    {"leu", LESS | EQUAL | UNORDERED, true},
    {"gtu", GREATER | UNORDERED, true},
    {"geu", GREATER | EQUAL | UNORDERED, true},
    {"num", LESS | EQUAL | GREATER, true},
    {"nan", UNORDERED, true},
};

/* Binds the comparison that the words name, and the logic that combines its result. */
static bool bind_comparison(struct emu_bind *b, enum emu_type type)
{
	const bool is_float =
	    type == EMU_F32 || type == EMU_F64 || is_half(type) || is_half_pair(type);
	uint32_t found = 0;

	for (size_t i = 0; i < sizeof(comparisons) / sizeof(*comparisons); i++)
		if (emu_has(b, comparisons[i].word)) {
			b->i->option = comparisons[i].wanted;
			found += !comparisons[i].of_floats || is_float;
		}
	b->i->option |= (emu_has(b, "and") ? WITH_AND : 0) |
			(emu_has(b, "or") ? WITH_OR : 0) |
			(emu_has(b, "xor") ? WITH_XOR : 0);
	return found == 1 || emu_bind_fail(b, "it needs one comparison that "
					      "its type has");
}

/* Binds two sources and the predicate with which the result is combined. */
static bool bind_compared(struct emu_bind *b, enum emu_type type)
{
	const uint32_t n = b->i->option & (WITH_AND | WITH_OR | WITH_XOR) ? 4 : 3;

	return emu_arguments(b, n, n) && emu_src(b, emu_argument(b, 1), type) &&
	       emu_src(b, emu_argument(b, 2), type) &&
	       (n == 3 || emu_predicate(b, emu_argument(b, 3)));
}

bool emu_bind_setp(struct emu_bind *b)
{
	const struct emu_argument *d = emu_argument(b, 0);

	if (b->n_types != 1)
		return emu_bind_fail(b, "it needs one type");
	if (!bind_comparison(b, b->types[0]))
		return false;
	b->i->option |= d->second ? TWO_RESULTS : 0;
	if (!emu_dst(b, d, 1) ||
	    (d->second && !emu_dst(b, &b->s->elements[d->second - 1], 1)) ||
	    !bind_compared(b, b->types[0]))
		return false;
	b->i->run = run_setp;
	return emu_flush_by_words(b);
}

/* ---- set ----------------------------------------------------------------- */

/* True as a number: all ones, or 1.0. */
static uint32_t true_of(enum emu_type type)
{
	switch (type) {
	case EMU_F32:
		return 0x3F800000;
	case EMU_T_F16:
	case EMU_F16X2:
		return 0x3C00;
	case EMU_T_BF16:
	case EMU_BF16X2:
		return 0x3F80;
	default:
		return UINT32_MAX;
	}
}

static void run_set(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_value *o = i->operand;
	const enum emu_type from = (enum emu_type)i->type2;
	const void *a = emu_row(w, &o[1]), *b = emu_row(w, &o[2]);
	const uint32_t with = i->operands > 3 ? emu_lanes_of(w, &o[3]) : 0;
	const uint32_t one = true_of((enum emu_type)i->type);
	const uint32_t low = combine(i->option, compare(from, a, b, i->option), with);
	uint64_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = low >> l & 1 ? one : 0;
	if (is_half_pair(from)) {
		const uint32_t high =
		    combine(i->option, compare_halves(from, a, b, i->option, 1), with);
		const uint32_t half = one & 0xFFFF;

		EMU_EACH_LANE(l)
		r[l] = (r[l] & 0xFFFF) | (uint64_t)(high >> l & 1 ? half : 0) << 16;
	}
	emu_put_wide(w, &o[0], r, lanes);
}

bool emu_bind_set(struct emu_bind *b)
{
	const enum emu_type to = b->types[0], from = b->types[1];

	if (b->n_types != 2 || emu_type_bytes(to) > 4 ||
	    (is_half_pair(to) && to != from))
		return emu_bind_fail(b, "the opcode does not accept "
					"these types");
	b->i->run = run_set;
	return bind_comparison(b, from) &&
	       emu_dst(b, emu_argument(b, 0), emu_type_bytes(to)) &&
	       bind_compared(b, from) && emu_flush_by_words(b);
}

/* d = a where c >= 0, else b. */
static void run_slct(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_value *o = i->operand;
	const float *x = emu_row(w, &o[3]);
	const int32_t *n = emu_row(w, &o[3]);
	uint64_t a[EMU_LANES], b[EMU_LANES];

	emu_get_wide(w, &o[1], a);
	emu_get_wide(w, &o[2], b);
	EMU_EACH_LANE(l)
	if (!(i->type2 == EMU_F32 ? x[l] >= 0 : n[l] >= 0))
		a[l] = b[l];
	emu_put_wide(w, &o[0], a, lanes);
}

bool emu_bind_slct(struct emu_bind *b)
{
	if (b->n_types != 2 || (b->types[1] != EMU_F32 && b->types[1] != EMU_S32))
		return emu_bind_fail(b, "it needs a type and .s32 or .f32");
	b->i->run = run_slct;
	return emu_arguments(b, 4, 4) &&
	       emu_dst(b, emu_argument(b, 0), emu_type_bytes(b->types[0])) &&
	       emu_src(b, emu_argument(b, 1), b->types[0]) &&
	       emu_src(b, emu_argument(b, 2), b->types[0]) &&
	       emu_src(b, emu_argument(b, 3), b->types[1]);
}
