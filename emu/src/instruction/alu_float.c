/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu_float.c - floating-point arithmetic.  The host computes IEEE operations, and a
 * NaN becomes the GPU's.  fp16 and bf16 are computed in double and rounded once.
 * Functions that a GPU approximates are in alu_approximate.c.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "hardware/floats.h"
#include "hardware/halves.h"
#include "instruction/binds.h"
#include "machine/warp.h"

static void put_f32(struct emu_warp *w, const struct emu_value *o, const float *from,
		    uint32_t lanes)
{
	uint32_t r[EMU_LANES];

	memcpy(r, from, sizeof(r));
	EMU_EACH_LANE(l)
	r[l] = from[l] != from[l] ? EMU_NAN_F32 : r[l];
	emu_put_32(w, o, r, lanes);
}

static void put_f64(struct emu_warp *w, const struct emu_value *o, const double *from,
		    uint32_t lanes)
{
	uint64_t r[EMU_LANES];

	memcpy(r, from, sizeof(r));
	emu_put_64(w, o, r, lanes);
}

#define FLOATING(fast, name, T, put, expression)                                       \
	fast static void name(struct emu_warp *w, const struct emu_instr *i,           \
			      uint32_t lanes)                                          \
	{                                                                              \
		const struct emu_value *o = i->operand;                                \
		const T *a = emu_row(w, &o[1]);                                        \
		const T *b = i->operands > 2 ? emu_row(w, &o[2]) : a;                  \
		const T *c = i->operands > 3 ? emu_row(w, &o[3]) : a;                  \
		T r[EMU_LANES];                                                        \
                                                                                       \
		(void)b;                                                               \
		(void)c;                                                               \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const T x = a[l];                                              \
			r[l] = expression;                                             \
		}                                                                      \
		put(w, &o[0], r, lanes);                                               \
	}
/* Not of doubles: which NaN of two sources remains depends on the instruction set. */
#define F32(name, expression) FLOATING(EMU_FAST, name##_f32, float, put_f32, expression)
#define F64(name, expression) FLOATING(, name##_f64, double, put_f64, expression)

/* The smaller of two numbers; if one is NaN, the other.  -0 is below +0. */
static float least_f32(float x, float y)
{
	if (x != x)
		return y;
	if (y != y)
		return x;
	return x < y || (x == y && signbit(x)) ? x : y;
}

static float most_f32(float x, float y)
{
	if (x != x)
		return y;
	if (y != y)
		return x;
	return x > y || (x == y && !signbit(x)) ? x : y;
}

F32(add, x + b[l])
F32(sub, x - b[l])
F32(mul, x *b[l])
F32(div, x / b[l])
F32(fma, fmaf(x, b[l], c[l]))
F32(min, least_f32(x, b[l]))
F32(max, most_f32(x, b[l]))
F32(min_nan, x != x || b[l] != b[l] ? NAN : least_f32(x, b[l]))
F32(max_nan, x != x || b[l] != b[l] ? NAN : most_f32(x, b[l]))
F32(sqrt, sqrtf(x))
F32(rcp, 1 / x)
/* The sign of the product, and the magnitude of the smaller or larger number. */
F32(min_sign, copysignf(least_f32(fabsf(x), fabsf(b[l])),
			signbit(x) != signbit(b[l]) ? -1.0f : 1.0f))
F32(max_sign, copysignf(most_f32(fabsf(x), fabsf(b[l])),
			signbit(x) != signbit(b[l]) ? -1.0f : 1.0f))
F32(min_3, least_f32(least_f32(x, b[l]), c[l]))
F32(max_3, most_f32(most_f32(x, b[l]), c[l]))
F32(min_3_nan,
    x != x || b[l] != b[l] || c[l] != c[l] ? NAN : least_f32(least_f32(x, b[l]), c[l]))
F32(max_3_nan,
    x != x || b[l] != b[l] || c[l] != c[l] ? NAN : most_f32(most_f32(x, b[l]), c[l]))
F64(add, x + b[l])
F64(sub, x - b[l])
F64(mul, x *b[l])
F64(div, x / b[l])
F64(fma, fma(x, b[l], c[l]))
F64(min, fmin(x, b[l]))
F64(max, fmax(x, b[l]))
F64(sqrt, sqrt(x))
F64(rcp, 1 / x)

/* Only the sign: NaN keeps its bits. */
#define SIGN(name, bits, expression)                                                   \
	static void name##_##bits(struct emu_warp *w, const struct emu_instr *i,       \
				  uint32_t lanes)                                      \
	{                                                                              \
		const uint##bits##_t sign = (uint##bits##_t)1 << (bits - 1);           \
		const uint##bits##_t *a = emu_row(w, &i->operand[1]);                  \
		uint##bits##_t r[EMU_LANES];                                           \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const uint##bits##_t x = a[l];                                 \
			r[l] = (uint##bits##_t)(expression);                           \
		}                                                                      \
		emu_put_##bits(w, &i->operand[0], r, lanes);                           \
	}
SIGN(abs, 16, x & ~sign)
SIGN(neg, 16, x ^ sign)
SIGN(abs, 32, x & ~sign)
SIGN(neg, 32, x ^ sign)
SIGN(abs, 64, x & ~sign)
SIGN(neg, 64, x ^ sign)

/* The magnitude of the second source with the sign of the first. */
#define COPYSIGN(bits)                                                                 \
	static void copysign_##bits(struct emu_warp *w, const struct emu_instr *i,     \
				    uint32_t lanes)                                    \
	{                                                                              \
		const uint##bits##_t sign = (uint##bits##_t)1 << (bits - 1);           \
		const uint##bits##_t *a = emu_row(w, &i->operand[1]);                  \
		const uint##bits##_t *b = emu_row(w, &i->operand[2]);                  \
		uint##bits##_t r[EMU_LANES];                                           \
                                                                                       \
		EMU_EACH_LANE(l) r[l] = (a[l] & sign) | (b[l] & ~sign);                \
		emu_put_##bits(w, &i->operand[0], r, lanes);                           \
	}
COPYSIGN(32)
COPYSIGN(64)

static void neg_x2(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *a = emu_row(w, &i->operand[1]);
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = a[l] ^ 0x80008000;
	emu_put_32(w, &i->operand[0], r, lanes);
}

static void abs_x2(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *a = emu_row(w, &i->operand[1]);
	uint32_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = a[l] & 0x7FFF7FFF;
	emu_put_32(w, &i->operand[0], r, lanes);
}

/* ---- halves -------------------------------------------------------------- */

static uint32_t half_add(const struct emu_format *f, uint32_t a, uint32_t b, uint32_t c)
{
	(void)c;
	return emu_narrow(f, emu_fma_odd(emu_widen(f, a), 1, emu_widen(f, b)), EMU_RN,
			  false);
}

static uint32_t half_sub(const struct emu_format *f, uint32_t a, uint32_t b, uint32_t c)
{
	(void)c;
	return emu_narrow(f, emu_fma_odd(emu_widen(f, a), 1, -emu_widen(f, b)), EMU_RN,
			  false);
}

static uint32_t half_mul(const struct emu_format *f, uint32_t a, uint32_t b, uint32_t c)
{
	(void)c;
	return emu_narrow(f, emu_widen(f, a) * emu_widen(f, b), EMU_RN, false);
}

static uint32_t half_fma(const struct emu_format *f, uint32_t a, uint32_t b, uint32_t c)
{
	return emu_narrow(
	    f, emu_fma_odd(emu_widen(f, a), emu_widen(f, b), emu_widen(f, c)), EMU_RN,
	    false);
}

static uint32_t half_min(const struct emu_format *f, uint32_t a, uint32_t b, uint32_t c)
{
	(void)c;
	return emu_narrow(f, least_f32((float)emu_widen(f, a), (float)emu_widen(f, b)),
			  EMU_RN, false);
}

static uint32_t half_max(const struct emu_format *f, uint32_t a, uint32_t b, uint32_t c)
{
	(void)c;
	return emu_narrow(f, most_f32((float)emu_widen(f, a), (float)emu_widen(f, b)),
			  EMU_RN, false);
}

/* .NaN: NaN if one of the two is. */
static uint32_t half_min_nan(const struct emu_format *f, uint32_t a, uint32_t b,
			     uint32_t c)
{
	return isnan(emu_widen(f, a)) || isnan(emu_widen(f, b)) ? f->nan
								: half_min(f, a, b, c);
}

static uint32_t half_max_nan(const struct emu_format *f, uint32_t a, uint32_t b,
			     uint32_t c)
{
	return isnan(emu_widen(f, a)) || isnan(emu_widen(f, b)) ? f->nan
								: half_max(f, a, b, c);
}

#define HALF(name, format)                                                             \
	static void name##_##format(struct emu_warp *w, const struct emu_instr *i,     \
				    uint32_t lanes)                                    \
	{                                                                              \
		const struct emu_value *o = i->operand;                                \
		const uint16_t *a = emu_row(w, &o[1]);                                 \
		const uint16_t *b = emu_row(w, &o[2]);                                 \
		const uint16_t *c = i->operands > 3 ? emu_row(w, &o[3]) : a;           \
		uint16_t r[EMU_LANES];                                                 \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		r[l] = (uint16_t)half_##name(&emu_format_##format, a[l], b[l], c[l]);  \
		emu_put_16(w, &o[0], r, lanes);                                        \
	}                                                                              \
	static void name##_##format##x2(struct emu_warp *w, const struct emu_instr *i, \
					uint32_t lanes)                                \
	{                                                                              \
		const struct emu_value *o = i->operand;                                \
		const uint32_t *a = emu_row(w, &o[1]);                                 \
		const uint32_t *b = emu_row(w, &o[2]);                                 \
		const uint32_t *c = i->operands > 3 ? emu_row(w, &o[3]) : a;           \
		uint32_t r[EMU_LANES];                                                 \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		r[l] = half_##name(&emu_format_##format, a[l] & 0xFFFF, b[l] & 0xFFFF, \
				   c[l] & 0xFFFF) |                                    \
		       half_##name(&emu_format_##format, a[l] >> 16, b[l] >> 16,       \
				   c[l] >> 16)                                         \
			   << 16;                                                      \
		emu_put_32(w, &o[0], r, lanes);                                        \
	}
/* fp16 by rows; with pairs a row has 64 values. */
#define HALF_ROW(name, function)                                                       \
	static void name##_f16(struct emu_warp *w, const struct emu_instr *i,          \
			       uint32_t lanes)                                         \
	{                                                                              \
		uint16_t r[EMU_LANES];                                                 \
                                                                                       \
		function(emu_row(w, &i->operand[1]), emu_row(w, &i->operand[2]), r,    \
			 EMU_LANES);                                                   \
		emu_put_16(w, &i->operand[0], r, lanes);                               \
	}                                                                              \
	static void name##_f16x2(struct emu_warp *w, const struct emu_instr *i,        \
				 uint32_t lanes)                                       \
	{                                                                              \
		uint16_t a[2 * EMU_LANES], b[2 * EMU_LANES];                           \
		uint32_t r[EMU_LANES];                                                 \
                                                                                       \
		memcpy(a, emu_row(w, &i->operand[1]), sizeof(a));                      \
		memcpy(b, emu_row(w, &i->operand[2]), sizeof(b));                      \
		function(a, b, a, 2 * EMU_LANES);                                      \
		memcpy(r, a, sizeof(r));                                               \
		emu_put_32(w, &i->operand[0], r, lanes);                               \
	}
HALF_ROW(add, emu_halves_add)
HALF_ROW(sub, emu_halves_subtract)
HALF_ROW(mul, emu_halves_multiply)
HALF(add, bf16)
HALF(sub, bf16)
HALF(mul, bf16)

#define BOTH_HALVES(name) HALF(name, f16) HALF(name, bf16)
BOTH_HALVES(fma)
BOTH_HALVES(min)
BOTH_HALVES(max)
BOTH_HALVES(min_nan)
BOTH_HALVES(max_nan)

#define HALF_ROWS_OF(opcode, name, signature)                                          \
	{opcode, EMU_T_F16, signature, name##_f16},                                    \
	    {opcode, EMU_T_BF16, signature, name##_bf16},                              \
	    {opcode, EMU_F16X2, signature, name##_f16x2},                              \
	{                                                                              \
		opcode, EMU_BF16X2, signature, name##_bf16x2                           \
	}
#define HALF_ROWS(name, signature) HALF_ROWS_OF(#name, name, signature)
#define FLOAT_ROWS(name, signature)                                                    \
	{#name, EMU_F32, signature, name##_f32},                                       \
	{                                                                              \
#name, EMU_F64, signature, name##_f64                                  \
	}

const struct emu_alu emu_float_alu[] = {
    FLOAT_ROWS(add, "ttt"),
    FLOAT_ROWS(sub, "ttt"),
    FLOAT_ROWS(mul, "ttt"),
    FLOAT_ROWS(div, "ttt"),
    FLOAT_ROWS(fma, "tttt"),
    FLOAT_ROWS(min, "ttt"),
    FLOAT_ROWS(max, "ttt"),
    FLOAT_ROWS(sqrt, "tt"),
    FLOAT_ROWS(rcp, "tt"),
    {"copysign", EMU_F32, "ttt", copysign_32},
    {"copysign", EMU_F64, "ttt", copysign_64},
    {"abs", EMU_F32, "tt", abs_32},
    {"abs", EMU_F64, "tt", abs_64},
    {"abs", EMU_T_F16, "tt", abs_16},
    {"abs", EMU_T_BF16, "tt", abs_16},
    {"abs", EMU_F16X2, "tt", abs_x2},
    {"abs", EMU_BF16X2, "tt", abs_x2},
    {"neg", EMU_F32, "tt", neg_32},
    {"neg", EMU_F64, "tt", neg_64},
    {"neg", EMU_T_F16, "tt", neg_16},
    {"neg", EMU_T_BF16, "tt", neg_16},
    {"neg", EMU_F16X2, "tt", neg_x2},
    {"neg", EMU_BF16X2, "tt", neg_x2},
    HALF_ROWS(add, "ttt"),
    HALF_ROWS(sub, "ttt"),
    HALF_ROWS(mul, "ttt"),
    HALF_ROWS(fma, "tttt"),
    HALF_ROWS(min, "ttt"),
    HALF_ROWS(max, "ttt"),
    {"min.xorsign", EMU_F32, "ttt", min_sign_f32},
    {"max.xorsign", EMU_F32, "ttt", max_sign_f32},
    {"min", EMU_F32, "tttt", min_3_f32},
    {"max", EMU_F32, "tttt", max_3_f32},
    {"min.NaN", EMU_F32, "tttt", min_3_nan_f32},
    {"max.NaN", EMU_F32, "tttt", max_3_nan_f32},
    {"min.NaN", EMU_F32, "ttt", min_nan_f32},
    {"max.NaN", EMU_F32, "ttt", max_nan_f32},
    HALF_ROWS_OF("min.NaN", min_nan, "ttt"),
    HALF_ROWS_OF("max.NaN", max_nan, "ttt"),
    {NULL, EMU_NO_TYPE, NULL, NULL},
};

/* ---- rounding and saturation --------------------------------------------- */

enum { SATURATES = 4 };

/*
 * Runs the instruction in another rounding mode of the host, and clamps to [0,
 * 1] for .sat.
 */
static void run_rounded(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD,
				    FE_UPWARD};
	const int before = fegetround();

	fesetround(modes[i->option & 3]);
	i->inner(w, i, lanes);
	fesetround(before);
	if (i->option & SATURATES) {
		const float *a = emu_row(w, &i->operand[0]);
		float r[EMU_LANES];

		EMU_EACH_LANE(l)
		r[l] = a[l] > 0 ? (a[l] < 1 ? a[l] : 1) : 0;
		put_f32(w, &i->operand[0], r, lanes);
	}
}

bool emu_round_by_words(struct emu_bind *b)
{
	const bool is_float = b->types[0] == EMU_F32 || b->types[0] == EMU_F64 ||
			      b->types[0] == EMU_F32X2;
	uint32_t option = emu_has(b, "rz")   ? EMU_RZ
			  : emu_has(b, "rm") ? EMU_RM
			  : emu_has(b, "rp") ? EMU_RP
					     : EMU_RN;

	if ((option || emu_has(b, "rn") || emu_has(b, "sat")) && !is_float &&
	    (option || emu_has(b, "sat") || emu_type_bytes(b->types[0]) == 8))
		return emu_bind_fail(b, "its type takes no such rounding, or "
					"no .sat");
	if (emu_has(b, "sat")) {
		if (b->types[0] != EMU_F32)
			return emu_bind_fail(b, ".sat belongs to .f32");
		option |= SATURATES;
	}
	if (!option)
		return true;
	b->i->option = option;
	b->i->inner = b->i->run;
	b->i->run = run_rounded;
	return true;
}
