/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu_integer.c - integer arithmetic, a row of 32 lanes at a time.  Signed values are
 * computed as unsigned ones, because they wrap.  Division by zero, which PTX leaves
 * undefined, gives all ones, as on the hardware.
 */
#include "instruction/binds.h"
#include "machine/warp.h"

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

#define BITS_uint16_t 16
#define BITS_int16_t  16
#define BITS_uint32_t 32
#define BITS_int32_t  32
#define BITS_uint64_t 64
#define BITS_int64_t  64
#define JOIN_(a, b)   a##b
#define JOIN(a, b)    JOIN_(a, b)
#define BITS(T)	      JOIN(BITS_, T)
#define UINT_(n)      uint##n##_t
#define UINT(n)	      UINT_(n)

/* d = expression of x: one source. */
#define UNARY(name, T, expression)                                                     \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		UINT_FOR(T) r[EMU_LANES];                                              \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const T x = a[l];                                              \
			r[l] = (UINT_FOR(T))(expression);                              \
		}                                                                      \
		JOIN(emu_put_, BITS(T))(w, &i->operand[0], r, lanes);                  \
	}
#define UINT_FOR(T)	 JOIN(UINT_OF_, T)
#define UINT_OF_uint16_t uint16_t
#define UINT_OF_int16_t	 uint16_t
#define UINT_OF_uint32_t uint32_t
#define UINT_OF_int32_t	 uint32_t
#define UINT_OF_uint64_t uint64_t
#define UINT_OF_int64_t	 uint64_t

#define BINARY(name, T, expression)                                                    \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		const T *b = emu_row(w, &i->operand[2]);                               \
		UINT_FOR(T) r[EMU_LANES];                                              \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const T x = a[l], y = b[l];                                    \
			r[l] = (UINT_FOR(T))(expression);                              \
		}                                                                      \
		JOIN(emu_put_, BITS(T))(w, &i->operand[0], r, lanes);                  \
	}

#define TERNARY(name, T, expression)                                                   \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		const T *b = emu_row(w, &i->operand[2]);                               \
		const T *c = emu_row(w, &i->operand[3]);                               \
		UINT_FOR(T) r[EMU_LANES];                                              \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const T x = a[l], y = b[l], z = c[l];                          \
			r[l] = (UINT_FOR(T))(expression);                              \
		}                                                                      \
		JOIN(emu_put_, BITS(T))(w, &i->operand[0], r, lanes);                  \
	}

/* Results of twice the width. */
#define WIDE(name, T, W)                                                               \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		const T *b = emu_row(w, &i->operand[2]);                               \
		UINT_FOR(W) r[EMU_LANES];                                              \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		r[l] = (UINT_FOR(W))((W)a[l] * (W)b[l]);                               \
		JOIN(emu_put_, BITS(W))(w, &i->operand[0], r, lanes);                  \
	}

#define WIDE_ADD(name, T, W)                                                           \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		const T *b = emu_row(w, &i->operand[2]);                               \
		const UINT_FOR(W) *c = emu_row(w, &i->operand[3]);                     \
		UINT_FOR(W) r[EMU_LANES];                                              \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		r[l] = (UINT_FOR(W))((W)a[l] * (W)b[l]) + c[l];                        \
		JOIN(emu_put_, BITS(W))(w, &i->operand[0], r, lanes);                  \
	}

/* 16-bit products are computed as unsigned 32-bit ones: promoted to int they would
 * overflow. */
BINARY(add_16, uint16_t, x + y)
BINARY(add_32, uint32_t, x + y)
BINARY(add_64, uint64_t, x + y)
BINARY(sub_16, uint16_t, x - y)
BINARY(sub_32, uint32_t, x - y)
BINARY(sub_64, uint64_t, x - y)
BINARY(mul_lo_16, uint16_t, (uint32_t)x *y)
BINARY(mul_lo_32, uint32_t, x *y)
BINARY(mul_lo_64, uint64_t, x *y)
BINARY(mul_hi_u16, uint16_t, (uint32_t)x *y >> 16)
BINARY(mul_hi_s16, int16_t, (int32_t)x *y >> 16)
BINARY(mul_hi_u32, uint32_t, (uint64_t)x *y >> 32)
BINARY(mul_hi_s32, int32_t, (int64_t)x *y >> 32)
BINARY(mul_hi_u64, uint64_t, (u128)x *y >> 64)
BINARY(mul_hi_s64, int64_t, (s128)x *y >> 64)
WIDE(mul_wide_u16, uint16_t, uint32_t)
WIDE(mul_wide_s16, int16_t, int32_t)
WIDE(mul_wide_u32, uint32_t, uint64_t)
WIDE(mul_wide_s32, int32_t, int64_t)
TERNARY(mad_lo_16, uint16_t, (uint32_t)x *y + z)
TERNARY(mad_lo_32, uint32_t, x *y + z)
TERNARY(mad_lo_64, uint64_t, x *y + z)
TERNARY(mad_hi_u32, uint32_t, (uint32_t)((uint64_t)x *y >> 32) + z)
TERNARY(mad_hi_s32, int32_t, (uint32_t)((int64_t)x *y >> 32) + (uint32_t)z)
TERNARY(mad_hi_u64, uint64_t, (uint64_t)((u128)x *y >> 64) + z)
WIDE_ADD(mad_wide_u16, uint16_t, uint32_t)
WIDE_ADD(mad_wide_s16, int16_t, int32_t)
WIDE_ADD(mad_wide_u32, uint32_t, uint64_t)
WIDE_ADD(mad_wide_s32, int32_t, int64_t)

#define DIV_SIGNED(x, y, U)                                                            \
	((y) == 0 ? (U)-1 : (y) == -1 ? (U)(0 - (U)(x)) : (U)((x) / (y)))
#define REM_SIGNED(x, y, U) ((y) == 0 ? (U)(x) : (y) == -1 ? (U)0 : (U)((x) % (y)))
BINARY(div_u16, uint16_t, y ? x / y : UINT16_MAX)
BINARY(div_s16, int16_t, DIV_SIGNED(x, y, uint16_t))
BINARY(div_u32, uint32_t, y ? x / y : UINT32_MAX)
BINARY(div_s32, int32_t, DIV_SIGNED(x, y, uint32_t))
BINARY(div_u64, uint64_t, y ? x / y : UINT64_MAX)
BINARY(div_s64, int64_t, DIV_SIGNED(x, y, uint64_t))
BINARY(rem_u16, uint16_t, y ? x % y : x)
BINARY(rem_s16, int16_t, REM_SIGNED(x, y, uint16_t))
BINARY(rem_u32, uint32_t, y ? x % y : x)
BINARY(rem_s32, int32_t, REM_SIGNED(x, y, uint32_t))
BINARY(rem_u64, uint64_t, y ? x % y : x)
BINARY(rem_s64, int64_t, REM_SIGNED(x, y, uint64_t))

#define LEAST(x, y) ((x) < (y) ? (x) : (y))
#define MOST(x, y)  ((x) > (y) ? (x) : (y))
BINARY(min_u16, uint16_t, LEAST(x, y))
BINARY(min_s16, int16_t, LEAST(x, y))
BINARY(min_u32, uint32_t, LEAST(x, y))
BINARY(min_s32, int32_t, LEAST(x, y))
BINARY(min_u64, uint64_t, LEAST(x, y))
BINARY(min_s64, int64_t, LEAST(x, y))
BINARY(max_u16, uint16_t, MOST(x, y))
BINARY(max_s16, int16_t, MOST(x, y))
BINARY(max_u32, uint32_t, MOST(x, y))
BINARY(max_s32, int32_t, MOST(x, y))
BINARY(max_u64, uint64_t, MOST(x, y))
BINARY(max_s64, int64_t, MOST(x, y))

/* Two 16-bit values in 32 bits. */
#define PAIR(low, high) (((uint32_t)(low)&0xFFFF) | (uint32_t)(high) << 16)
#define LOW(x)		(int16_t)(x)
#define HIGH(x)		(int16_t)((x) >> 16)
#define U16_PAIR(f)	PAIR(f((x & 0xFFFF), (y & 0xFFFF)), f((x >> 16), (y >> 16)))
#define S16_PAIR(f)	PAIR(f(LOW(x), LOW(y)), f(HIGH(x), HIGH(y)))
BINARY(add_16x2, uint32_t, PAIR(x + y, (x >> 16) + (y >> 16)))
BINARY(min_u16x2, uint32_t, U16_PAIR(LEAST))
BINARY(min_s16x2, uint32_t, S16_PAIR(LEAST))
BINARY(max_u16x2, uint32_t, U16_PAIR(MOST))
BINARY(max_s16x2, uint32_t, S16_PAIR(MOST))

UNARY(neg_16, uint16_t, 0 - x)
UNARY(neg_32, uint32_t, 0 - x)
UNARY(neg_64, uint64_t, 0 - x)
UNARY(abs_s16, int16_t, x < 0 ? 0 - x : x)
UNARY(abs_s32, int32_t, x < 0 ? 0 - (uint32_t)x : (uint32_t)x)
UNARY(abs_s64, int64_t, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)

#define THREE(name, signature, f16, f32, f64)                                          \
	{name, EMU_U16, signature, f16}, {name, EMU_S16, signature, f16},              \
	    {name, EMU_U32, signature, f32}, {name, EMU_S32, signature, f32},          \
	    {name, EMU_U64, signature, f64},                                           \
	{                                                                              \
		name, EMU_S64, signature, f64                                          \
	}
#define SIX(name, signature, f)                                                        \
	{name, EMU_U16, signature, f##_u16}, {name, EMU_S16, signature, f##_s16},      \
	    {name, EMU_U32, signature, f##_u32}, {name, EMU_S32, signature, f##_s32},  \
	    {name, EMU_U64, signature, f##_u64},                                       \
	{                                                                              \
		name, EMU_S64, signature, f##_s64                                      \
	}

const struct emu_alu emu_integer_alu[] = {
    THREE("add", "ttt", add_16, add_32, add_64),
    THREE("sub", "ttt", sub_16, sub_32, sub_64),
    THREE("mul.lo", "ttt", mul_lo_16, mul_lo_32, mul_lo_64),
    SIX("mul.hi", "ttt", mul_hi),
    {"mul.wide", EMU_U16, "wtt", mul_wide_u16},
    {"mul.wide", EMU_S16, "wtt", mul_wide_s16},
    {"mul.wide", EMU_U32, "wtt", mul_wide_u32},
    {"mul.wide", EMU_S32, "wtt", mul_wide_s32},
    THREE("mad.lo", "tttt", mad_lo_16, mad_lo_32, mad_lo_64),
    {"mad.hi", EMU_U32, "tttt", mad_hi_u32},
    {"mad.hi", EMU_S32, "tttt", mad_hi_s32},
    {"mad.hi", EMU_U64, "tttt", mad_hi_u64},
    {"mad.wide", EMU_U16, "wttw", mad_wide_u16},
    {"mad.wide", EMU_S16, "wttw", mad_wide_s16},
    {"mad.wide", EMU_U32, "wttw", mad_wide_u32},
    {"mad.wide", EMU_S32, "wttw", mad_wide_s32},
    SIX("div", "ttt", div),
    SIX("rem", "ttt", rem),
    SIX("min", "ttt", min),
    SIX("max", "ttt", max),
    {"add", EMU_U16X2, "ttt", add_16x2},
    {"add", EMU_S16X2, "ttt", add_16x2},
    {"min", EMU_U16X2, "ttt", min_u16x2},
    {"min", EMU_S16X2, "ttt", min_s16x2},
    {"max", EMU_U16X2, "ttt", max_u16x2},
    {"max", EMU_S16X2, "ttt", max_s16x2},
    {"neg", EMU_S16, "tt", neg_16},
    {"neg", EMU_S32, "tt", neg_32},
    {"neg", EMU_S64, "tt", neg_64},
    {"abs", EMU_S16, "tt", abs_s16},
    {"abs", EMU_S32, "tt", abs_s32},
    {"abs", EMU_S64, "tt", abs_s64},
    {NULL, EMU_NO_TYPE, NULL, NULL},
};
