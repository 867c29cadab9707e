/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu_convert.c - cvt between all types that are known: a pass that reads a row
 * as 64-bit integers or doubles, and one that rounds and writes it.
 */
#include <math.h>
#include <string.h>

#include "hardware/floats.h"
#include "hardware/halves.h"
#include "instruction/binds.h"
#include "machine/warp.h"

/* SATURATES: clamp to [0, 1], or to the integers of the type.  IS_FINITE: clamp to
 * the largest finite number. */
enum {
	SATURATES = 8,
	TO_INTEGER = 16,
	HAS_ROUNDING = 32,
	IS_FINITE = 64,
	IS_RELU = 128
};

static bool is_float(enum emu_type t)
{
	return t == EMU_F32 || t == EMU_F64 || t == EMU_T_F16 || t == EMU_T_BF16;
}

static bool is_signed(enum emu_type t)
{
	return t == EMU_S8T || t == EMU_S16 || t == EMU_S32 || t == EMU_S64;
}

static const struct emu_format *format_of(enum emu_type t)
{
	switch (t) {
	case EMU_T_F16:
	case EMU_F16X2:
		return &emu_format_f16;
	case EMU_T_BF16:
	case EMU_BF16X2:
		return &emu_format_bf16;
	case EMU_E4M3X2:
		return &emu_format_e4m3;
	case EMU_E5M2X2:
		return &emu_format_e5m2;
	case EMU_E2M1X2:
		return &emu_format_e2m1;
	case EMU_E2M3X2:
		return &emu_format_e2m3;
	case EMU_E3M2X2:
		return &emu_format_e3m2;
	default:
		return &emu_format_tf32;
	}
}

/* ---- rows in ------------------------------------------------------------- */

/* The low bits of the type, extended by its sign. */
static void get_integers(const struct emu_warp *w, const struct emu_value *o,
			 enum emu_type type, uint64_t *to)
{
	const int unused = 64 - 8 * emu_type_bytes(type);

	emu_get_wide(w, o, to);
	if (is_signed(type))
		EMU_EACH_LANE(l)
	to[l] = (uint64_t)((int64_t)(to[l] << unused) >> unused);
	else EMU_EACH_LANE(l) to[l] = to[l] << unused >> unused;
}

static void get_floats(const struct emu_warp *w, const struct emu_value *o,
		       enum emu_type type, double *to)
{
	const void *row = emu_row(w, o);

	if (type == EMU_F64) {
		memcpy(to, row, sizeof(*to) * EMU_LANES);
	} else if (type == EMU_F32) {
		float from[EMU_LANES];

		memcpy(from, row, sizeof(from));
		EMU_EACH_LANE(l) to[l] = (double)from[l];
	} else {
		uint64_t bits[EMU_LANES];

		emu_get_wide(w, o, bits);
		EMU_EACH_LANE(l)
		to[l] = emu_widen(format_of(type), bits[l] & 0xFFFF);
	}
}

/* ---- rows out ------------------------------------------------------------ */

static void put_floats(struct emu_warp *w, const struct emu_instr *i,
		       const double *from, uint32_t lanes)
{
	const enum emu_type type = (enum emu_type)i->type;
	const enum emu_rounding rounding = (enum emu_rounding)(i->option & 7);
	uint64_t r[EMU_LANES];
	double x[EMU_LANES];

	memcpy(x, from, sizeof(x));
	if (i->option & SATURATES)
		EMU_EACH_LANE(l) x[l] = x[l] > 0 ? (x[l] < 1 ? x[l] : 1) : 0;
	if (i->option & IS_RELU)
		EMU_EACH_LANE(l) x[l] = x[l] <= 0 ? 0 : x[l];
	if (type == EMU_F64)
		memcpy(r, x, sizeof(r));
	else if (type == EMU_F32)
		EMU_EACH_LANE(l) r[l] = emu_narrow_f32(x[l], rounding);
	else
		EMU_EACH_LANE(l)
	r[l] = emu_narrow(format_of(type), x[l], rounding, i->option & IS_FINITE);
	/* The upper bits of a float. */
	if (type == EMU_T_TF32)
		EMU_EACH_LANE(l) r[l] <<= 13;
	emu_put_wide(w, &i->operand[0], r, lanes);
}

static void put_integers(struct emu_warp *w, const struct emu_instr *i,
			 const uint64_t *from, uint32_t lanes)
{
	const enum emu_type type = (enum emu_type)i->type;
	const int unused = 64 - 8 * emu_type_bytes(type);
	uint64_t r[EMU_LANES];

	/*
	 * Fills a register that is wider than the type with the sign or zeros.
	 */
	if (is_signed(type))
		EMU_EACH_LANE(l)
	r[l] = (uint64_t)((int64_t)(from[l] << unused) >> unused);
	else EMU_EACH_LANE(l) r[l] = from[l] << unused >> unused;
	emu_put_wide(w, &i->operand[0], r, lanes);
}

/* ---- the four directions ------------------------------------------------- */

static uint64_t clamp_integer(uint64_t x, bool from_signed, enum emu_type to)
{
	const int bits = 8 * emu_type_bytes(to);
	const uint64_t most =
	    is_signed(to) ? UINT64_MAX >> (65 - bits) : UINT64_MAX >> (64 - bits);

	if (from_signed && (int64_t)x < 0) {
		const int64_t least = is_signed(to) ? -(int64_t)most - 1 : 0;

		return (int64_t)x < least ? (uint64_t)least : x;
	}
	return x > most ? most : x;
}

static void integer_to_integer(struct emu_warp *w, const struct emu_instr *i,
			       uint32_t lanes)
{
	uint64_t x[EMU_LANES];

	get_integers(w, &i->operand[1], (enum emu_type)i->type2, x);
	if (i->option & SATURATES)
		EMU_EACH_LANE(l)
	x[l] = clamp_integer(x[l], is_signed((enum emu_type)i->type2),
			     (enum emu_type)i->type);
	put_integers(w, i, x, lanes);
}

/* Converts a 64-bit integer to a double that narrows as the integer would: if bits
 * are lost, the double is odd. */
static double odd_double(uint64_t magnitude)
{
	const int extra = magnitude >> 54 ? 64 - 54 - __builtin_clzll(magnitude) : 0;
	const uint64_t kept = magnitude >> extra;

	return ldexp((double)(kept | (kept << extra != magnitude)), extra);
}

static void integer_to_float(struct emu_warp *w, const struct emu_instr *i,
			     uint32_t lanes)
{
	const bool has_sign = is_signed((enum emu_type)i->type2);
	uint64_t x[EMU_LANES];
	double r[EMU_LANES];

	get_integers(w, &i->operand[1], (enum emu_type)i->type2, x);
	EMU_EACH_LANE(l)
	{
		const bool minus = has_sign && (int64_t)x[l] < 0;
		const uint64_t size = minus ? 0 - x[l] : x[l];

		r[l] = i->type == EMU_F64 ? (double)size : odd_double(size);
		if (minus)
			r[l] = -r[l];
	}
	put_floats(w, i, r, lanes);
}

/* To a whole number. */
static double whole(double x, enum emu_rounding rounding)
{
	switch (rounding) {
	case EMU_RZ:
		return trunc(x);
	case EMU_RM:
		return floor(x);
	case EMU_RP:
		return ceil(x);
	default:
		return rint(x);
	}
}

static uint64_t to_integer(double x, enum emu_type type)
{
	const int bits = 8 * emu_type_bytes(type);
	const double end = ldexp(1, is_signed(type) ? bits - 1 : bits);

	if (isnan(x))
		return bits == 64 ? UINT64_C(1) << 63 : 0;
	if (x >= end)
		return is_signed(type) ? UINT64_MAX >> (65 - bits)
				       : UINT64_MAX >> (64 - bits);
	if (!is_signed(type))
		return x < 0 ? 0 : (uint64_t)x;
	return x < -end ? (uint64_t)INT64_MIN >> (64 - bits) : (uint64_t)(int64_t)x;
}

static void float_to_integer(struct emu_warp *w, const struct emu_instr *i,
			     uint32_t lanes)
{
	const enum emu_rounding rounding = (enum emu_rounding)(i->option & 7);
	double x[EMU_LANES];
	uint64_t r[EMU_LANES];

	get_floats(w, &i->operand[1], (enum emu_type)i->type2, x);
	EMU_EACH_LANE(l)
	r[l] = to_integer(whole(x[l], rounding), (enum emu_type)i->type);
	put_integers(w, i, r, lanes);
}

static void float_to_float(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	double x[EMU_LANES];

	get_floats(w, &i->operand[1], (enum emu_type)i->type2, x);
	if (i->option & TO_INTEGER)
		EMU_EACH_LANE(l)
	x[l] = whole(x[l], (enum emu_rounding)(i->option & 7));
	put_floats(w, i, x, lanes);
}

/* ---- pairs --------------------------------------------------------------- */

static double widen_element(enum emu_type type, uint32_t bits)
{
	return type == EMU_UE8M0X2 ? emu_widen_ue8m0(bits)
				   : emu_widen(format_of(type), bits);
}

/* One element of the instruction's result. */
static uint64_t narrow_element(const struct emu_instr *i, double x)
{
	const enum emu_type type = (enum emu_type)i->type;
	const enum emu_rounding rounding = (enum emu_rounding)(i->option & 7);
	const bool is_finite = i->option & IS_FINITE;

	if (i->option & IS_RELU && x <= 0)
		x = 0;
	return type == EMU_UE8M0X2
		   ? emu_narrow_ue8m0(x, rounding == EMU_RP, is_finite)
		   : emu_narrow(format_of(type), x, rounding, is_finite);
}

/* Converts two floats to a pair; the first argument becomes the high value. */
static void floats_to_pair(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	const int bits = 4 * emu_type_bytes((enum emu_type)i->type);
	double hi[EMU_LANES], lo[EMU_LANES];
	uint64_t r[EMU_LANES];

	get_floats(w, &i->operand[1], EMU_F32, hi);
	get_floats(w, &i->operand[2], EMU_F32, lo);
	EMU_EACH_LANE(l)
	r[l] = narrow_element(i, hi[l]) << bits | narrow_element(i, lo[l]);
	emu_put_wide(w, &i->operand[0], r, lanes);
}

/* Converts E4M3 to fp16 without loss. */
static void e4m3_to_f16(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint8_t codes[2 * EMU_LANES];
	uint16_t halves[2 * EMU_LANES];
	uint64_t x[EMU_LANES];
	uint32_t r[EMU_LANES];

	emu_get_wide(w, &i->operand[1], x);
	EMU_EACH_LANE(l)
	{
		codes[2 * l] = (uint8_t)x[l];
		codes[2 * l + 1] = (uint8_t)(x[l] >> 8);
	}
	emu_halves_from_e4m3(codes, halves, 2 * EMU_LANES);
	EMU_EACH_LANE(l)
	r[l] = halves[2 * l] | (uint32_t)halves[2 * l + 1] << 16;
	emu_put_32(w, &i->operand[0], r, lanes);
}

/* Converts E2M1 to fp16 without loss; the low code becomes the low half. */
static void e2m1_to_f16(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	static const uint16_t halves[16] = {
	    0x0000, 0x3800, 0x3C00, 0x3E00, 0x4000, 0x4200, 0x4400, 0x4600,
	    0x8000, 0xB800, 0xBC00, 0xBE00, 0xC000, 0xC200, 0xC400, 0xC600};
	const uint16_t *x = emu_row(w, &i->operand[1]);
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l)
	r[l] = halves[x[l] & 15] | (uint32_t)halves[x[l] >> 4 & 15] << 16;
	emu_put_32(w, &i->operand[0], r, lanes);
}

/* Converts a pair to one of another format. */
static void pair_to_pair(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const enum emu_type from = (enum emu_type)i->type2;
	const int to_bits = 4 * emu_type_bytes((enum emu_type)i->type);
	const int from_bits = 4 * emu_type_bytes(from);
	const uint32_t mask = (1u << from_bits) - 1;
	uint64_t x[EMU_LANES];

	emu_get_wide(w, &i->operand[1], x);
	EMU_EACH_LANE(l)
	{
		const double lo = widen_element(from, (uint32_t)x[l] & mask);
		const double hi =
		    widen_element(from, (uint32_t)(x[l] >> from_bits) & mask);

		x[l] = narrow_element(i, hi) << to_bits | narrow_element(i, lo);
	}
	emu_put_wide(w, &i->operand[0], x, lanes);
}

/* ---- binding ------------------------------------------------------------- */

/* True for pairs of values of 8 bits or less. */
static bool is_small_pair(enum emu_type t)
{
	return t == EMU_E4M3X2 || t == EMU_E5M2X2 || t == EMU_E2M1X2 ||
	       t == EMU_E2M3X2 || t == EMU_E3M2X2 || t == EMU_UE8M0X2;
}

static bool is_pair(enum emu_type t)
{
	return t == EMU_F16X2 || t == EMU_BF16X2 || is_small_pair(t);
}

static uint32_t rounding_of(const struct emu_bind *b)
{
	static const struct {
		const char *word;
		uint32_t option;
	} words[] = {
	    {"rn", EMU_RN | HAS_ROUNDING},
	    {"rz", EMU_RZ | HAS_ROUNDING},
	    {"rm", EMU_RM | HAS_ROUNDING},
	    {"rp", EMU_RP | HAS_ROUNDING},
	    {"rna", EMU_RNA | HAS_ROUNDING},
	    {"rni", EMU_RN | HAS_ROUNDING | TO_INTEGER},
	    {"rzi", EMU_RZ | HAS_ROUNDING | TO_INTEGER},
	    {"rmi", EMU_RM | HAS_ROUNDING | TO_INTEGER},
	    {"rpi", EMU_RP | HAS_ROUNDING | TO_INTEGER},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (emu_has(b, words[i].word))
			return words[i].option;
	return 0;
}

/* Checks the rounding of a pair: ue8m0 takes .rp or .rz, other types .rn or .rz. */
static bool check_pair(struct emu_bind *b)
{
	const enum emu_type to = b->types[0], from = b->types[1];
	const uint32_t rounding = b->i->option & 7;
	const bool has_rounding = b->i->option & HAS_ROUNDING;

	if (to == EMU_UE8M0X2) {
		if (!has_rounding || (rounding != EMU_RP && rounding != EMU_RZ))
			return emu_bind_fail(b, "a conversion to .ue8m0x2 "
						"needs .rp or .rz");
		return (from == EMU_F32 || from == EMU_BF16X2) ||
		       emu_bind_fail(b, "PTX has no such conversion");
	}
	if (from == EMU_UE8M0X2 && to != EMU_BF16X2)
		return emu_bind_fail(b, "PTX has no such conversion");
	if (!has_rounding || rounding > EMU_RZ)
		return emu_bind_fail(b, "a conversion of pairs needs .rn or "
					".rz");
	return !is_small_pair(to) || emu_has(b, "satfinite") ||
	       emu_bind_fail(b, ".satfinite is missing");
}

static bool bind_pair(struct emu_bind *b)
{
	const enum emu_type to = b->types[0], from = b->types[1];
	const bool is_plain = !(b->i->option & IS_RELU);

	/* A register of 8 bits has two bytes here. */
	if (!check_pair(b) ||
	    !emu_dst(b, emu_argument(b, 0), to == EMU_E2M1X2 ? 2 : emu_type_bytes(to)))
		return false;
	if (from == EMU_F32) {
		b->i->run = floats_to_pair;
		return emu_arguments(b, 3, 3) && emu_src(b, emu_argument(b, 1), from) &&
		       emu_src(b, emu_argument(b, 2), from);
	}
	if (!is_pair(from) || to == from)
		return emu_bind_fail(b, "PTX has no such conversion");
	b->i->run = pair_to_pair;
	if (to == EMU_F16X2 && from == EMU_E4M3X2 && is_plain)
		b->i->run = e4m3_to_f16;
	else if (to == EMU_F16X2 && from == EMU_E2M1X2 && is_plain)
		b->i->run = e2m1_to_f16;
	return emu_arguments(b, 2, 2) && emu_src(b, emu_argument(b, 1), from);
}

static bool check_rounding(struct emu_bind *b, bool to_float, bool from_float)
{
	const uint32_t option = b->i->option;
	const int to = emu_type_bytes(b->types[0]);
	const int from = emu_type_bytes(b->types[1]);

	if (from_float && !to_float && !(option & TO_INTEGER))
		return emu_bind_fail(b, "a conversion to an integer needs "
					".rni, .rzi, .rmi or .rpi");
	if (!from_float && !to_float && option & HAS_ROUNDING)
		return emu_bind_fail(b, "a conversion between integers takes "
					"no rounding");
	if (to_float && (!from_float || from > to) && !(option & HAS_ROUNDING))
		return emu_bind_fail(b, "a rounding is missing");
	return true;
}

/* Binds conversions of single values. */
static bool bind_single(struct emu_bind *b)
{
	const enum emu_type to = b->types[0], from = b->types[1];
	const bool is_half = to == EMU_T_F16 || to == EMU_T_BF16 || to == EMU_T_TF32;
	const bool to_float = is_float(to) || to == EMU_T_TF32;
	const bool from_float = is_float(from);

	if (is_pair(from) || from == EMU_T_TF32 ||
	    (to == EMU_T_TF32 && from != EMU_F32))
		return emu_bind_fail(b, "PTX has no such conversion");
	if (!check_rounding(b, to_float, from_float))
		return false;
	if (emu_has(b, "sat"))
		b->i->option |= SATURATES;
	if (b->i->option & (IS_FINITE | IS_RELU) && (!is_half || !from_float))
		return emu_bind_fail(b, ".satfinite and .relu belong to "
					"conversions of floats to smaller "
					"ones");
	b->i->run = to_float ? (from_float ? float_to_float : integer_to_float)
			     : (from_float ? float_to_integer : integer_to_integer);
	return emu_arguments(b, 2, 2) &&
	       emu_wide_dst(b, emu_argument(b, 0), emu_type_bytes(to)) &&
	       emu_wide_src(b, emu_argument(b, 1), from);
}

/* What needs a newer .target than each of the opcode's words. */
static bool check_targets(struct emu_bind *b)
{
	const enum emu_type to = b->types[0], from = b->types[1];

	/* sm_80 converts bf16 only from and to fp32. */
	if ((to == EMU_T_BF16 || from == EMU_T_BF16) && to != EMU_F32 &&
	    from != EMU_F32 && !emu_bind_needs(b, "90", "this conversion of .bf16"))
		return false;
	if (to != EMU_T_TF32 || emu_has(b, "rna"))
		return true;
	return emu_bind_needs(b, emu_has(b, "satfinite") ? "100" : "90",
			      "this rounding to .tf32");
}

bool emu_bind_cvt(struct emu_bind *b)
{
	if (b->n_types != 2)
		return emu_bind_fail(b, "it needs two types");
	if (!check_targets(b))
		return false;
	b->i->option = rounding_of(b);
	if (emu_has(b, "satfinite"))
		b->i->option |= IS_FINITE;
	if (emu_has(b, "relu"))
		b->i->option |= IS_RELU;
	return (is_pair(b->types[0]) ? bind_pair(b) : bind_single(b)) &&
	       emu_flush_f32_by_words(b);
}
