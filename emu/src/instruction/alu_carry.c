/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu_carry.c - arithmetic with the carry of each lane (add.cc, addc, ...), and
 * integer functions that kernels seldom use.
 */
#include "instruction/binds.h"
#include "machine/warp.h"

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

/* ---- carry ------------------------------------------------------------------ */

enum { TAKES = 1, GIVES = 2, SUBTRACTS = 4 };

/*
 * x + y, or x - y, in `bits` bits, with the lane's carry (for SUBTRACTS: its
 * borrow).
 */
static uint64_t with_carry(struct emu_warp *w, int lane, uint32_t how, int bits,
			   uint64_t x, uint64_t y)
{
	const uint32_t in = how & TAKES ? w->carry >> lane & 1 : 0;
	const u128 r = how & SUBTRACTS ? (u128)x - y - in : (u128)x + y + in;

	if (how & GIVES)
		w->carry = (w->carry & ~(1u << lane)) | (uint32_t)(r >> bits & 1)
							    << lane;
	return (uint64_t)r;
}

static void sum(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		uint32_t how)
{
	const int bits = 8 * i->operand[0].bytes;
	uint64_t x[EMU_LANES], y[EMU_LANES];

	emu_get_wide(w, &i->operand[1], x);
	emu_get_wide(w, &i->operand[2], y);
	EMU_EACH_LANE(l)
	if (lanes >> l & 1)
		x[l] = with_carry(w, l, how, bits, x[l], y[l]);
	emu_put_wide(w, &i->operand[0], x, lanes);
}

/* The upper half of a product. */
static uint64_t upper(enum emu_type type, uint64_t x, uint64_t y)
{
	switch (type) {
	case EMU_S32:
		return (uint64_t)((int64_t)(int32_t)x * (int32_t)y >> 32) & UINT32_MAX;
	case EMU_U32:
		return x * y >> 32;
	case EMU_S64:
		return (uint64_t)((s128)(int64_t)x * (int64_t)y >> 64);
	default:
		return (uint64_t)((u128)x * y >> 64);
	}
}

static void product(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		    uint32_t how, bool is_upper)
{
	const int bits = 8 * i->operand[0].bytes;
	uint64_t x[EMU_LANES], y[EMU_LANES], z[EMU_LANES];

	emu_get_wide(w, &i->operand[1], x);
	emu_get_wide(w, &i->operand[2], y);
	emu_get_wide(w, &i->operand[3], z);
	EMU_EACH_LANE(l)
	{
		const uint64_t part = is_upper
					  ? upper((enum emu_type)i->type, x[l], y[l])
				      : bits == 32 ? (uint32_t)(x[l] * y[l])
						   : x[l] * y[l];

		if (lanes >> l & 1)
			x[l] = with_carry(w, l, how, bits, part, z[l]);
	}
	emu_put_wide(w, &i->operand[0], x, lanes);
}

#define SUM(name, how)                                                                 \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		sum(w, i, lanes, how);                                                 \
	}
#define PRODUCT(name, how, is_upper)                                                   \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		product(w, i, lanes, how, is_upper);                                   \
	}
SUM(add_cc, GIVES)
SUM(addc, TAKES)
SUM(addc_cc, TAKES | GIVES)
SUM(sub_cc, SUBTRACTS | GIVES)
SUM(subc, SUBTRACTS | TAKES)
SUM(subc_cc, SUBTRACTS | TAKES | GIVES)
PRODUCT(mad_lo_cc, GIVES, false)
PRODUCT(mad_hi_cc, GIVES, true)
PRODUCT(madc_lo, TAKES, false)
PRODUCT(madc_hi, TAKES, true)
PRODUCT(madc_lo_cc, TAKES | GIVES, false)
PRODUCT(madc_hi_cc, TAKES | GIVES, true)

/* ---- others ----------------------------------------------------------------- */

/* d = expression of x, y and z, sources of 32 bits. */
#define WORDS(name, T, expression)                                                     \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const T *a = emu_row(w, &i->operand[1]);                               \
		const T *b = emu_row(w, &i->operand[2]);                               \
		const T *c = i->operands > 3 ? emu_row(w, &i->operand[3]) : b;         \
		uint32_t r[EMU_LANES];                                                 \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const T x = a[l], y = b[l], z = c[l];                          \
                                                                                       \
			(void)z;                                                       \
			r[l] = (uint32_t)(expression);                                 \
		}                                                                      \
		emu_put_32(w, &i->operand[0], r, lanes);                               \
	}

/* y ones from bit x on. */
static uint32_t mask_of(uint64_t x, uint64_t y)
{
	if (x > 31)
		return 0;
	return (uint32_t)(((UINT64_C(1) << (y > 32 ? 32 : y)) - 1) << x);
}

/* The low `bits` bits of x; extended by their sign. */
static uint32_t extended(uint32_t x, uint32_t bits, bool has_sign)
{
	if (bits >= 32)
		return x;
	if (bits == 0)
		return 0;
	x <<= 32 - bits;
	return has_sign ? (uint32_t)((int32_t)x >> (32 - bits)) : x >> (32 - bits);
}

/* The position of the nth set bit from base upwards, or for n < 0 downwards. */
static uint32_t nth_set(uint32_t mask, uint32_t base, int32_t n)
{
	int32_t at = (int32_t)base;

	if (base > 31)
		return UINT32_MAX;
	if (n == 0)
		return mask >> base & 1 ? base : UINT32_MAX;
	for (; at >= 0 && at<32; at += n> 0 ? 1 : -1) {
		if (!(mask >> at & 1))
			continue;
		n += n > 0 ? -1 : 1;
		if (n == 0)
			return (uint32_t)at;
	}
	return UINT32_MAX;
}

static int64_t signed_24(int32_t x)
{
	return (int64_t)((uint64_t)x << 40) >> 40;
}

static uint64_t unsigned_24(uint32_t x)
{
	return x & 0xFFFFFF;
}

WORDS(bmsk_clamp, uint32_t, mask_of(x, y))
WORDS(bmsk_wrap, uint32_t, mask_of(x & 31, y & 31))
WORDS(szext_clamp_u, uint32_t, extended(x, y, false))
WORDS(szext_clamp_s, uint32_t, extended(x, y, true))
WORDS(szext_wrap_u, uint32_t, extended(x, y & 31, false))
WORDS(szext_wrap_s, uint32_t, extended(x, y & 31, true))
WORDS(fns, uint32_t, nth_set(x, y, (int32_t)z))
WORDS(mul24_lo_u, uint32_t, unsigned_24(x) * unsigned_24(y))
WORDS(mul24_lo_s, int32_t, signed_24(x) * signed_24(y))
WORDS(mul24_hi_u, uint32_t, unsigned_24(x) * unsigned_24(y) >> 16)
WORDS(mul24_hi_s, int32_t, signed_24(x) * signed_24(y) >> 16)
WORDS(mad24_lo_u, uint32_t, unsigned_24(x) * unsigned_24(y) + z)
WORDS(mad24_lo_s, int32_t, signed_24(x) * signed_24(y) + z)

/* |x - y| + z, in the type's bits. */
static void sad(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const bool has_sign =
	    i->type == EMU_S16 || i->type == EMU_S32 || i->type == EMU_S64;
	const int unused = 64 - 8 * i->operand[0].bytes;
	uint64_t x[EMU_LANES], y[EMU_LANES], z[EMU_LANES];

	emu_get_wide(w, &i->operand[1], x);
	emu_get_wide(w, &i->operand[2], y);
	emu_get_wide(w, &i->operand[3], z);
	EMU_EACH_LANE(l)
	{
		const bool less =
		    has_sign ? (int64_t)(x[l] << unused) < (int64_t)(y[l] << unused)
			     : x[l] < y[l];

		z[l] += less ? y[l] - x[l] : x[l] - y[l];
	}
	emu_put_wide(w, &i->operand[0], z, lanes);
}

#define FOUR(name, signature, function)                                                \
	{name, EMU_U32, signature, function}, {name, EMU_S32, signature, function},    \
	    {name, EMU_U64, signature, function},                                      \
	{                                                                              \
		name, EMU_S64, signature, function                                     \
	}

const struct emu_alu emu_carry_alu[] = {
    FOUR("add.cc", "ttt", add_cc),
    FOUR("addc", "ttt", addc),
    FOUR("addc.cc", "ttt", addc_cc),
    FOUR("sub.cc", "ttt", sub_cc),
    FOUR("subc", "ttt", subc),
    FOUR("subc.cc", "ttt", subc_cc),
    FOUR("mad.lo.cc", "tttt", mad_lo_cc),
    FOUR("mad.hi.cc", "tttt", mad_hi_cc),
    FOUR("madc.lo", "tttt", madc_lo),
    FOUR("madc.hi", "tttt", madc_hi),
    FOUR("madc.lo.cc", "tttt", madc_lo_cc),
    FOUR("madc.hi.cc", "tttt", madc_hi_cc),
    FOUR("sad", "tttt", sad),
    {"sad", EMU_U16, "tttt", sad},
    {"sad", EMU_S16, "tttt", sad},
    {"bmsk.clamp", EMU_B32, "ttt", bmsk_clamp},
    {"bmsk.wrap", EMU_B32, "ttt", bmsk_wrap},
    {"szext.clamp", EMU_U32, "ttu", szext_clamp_u},
    {"szext.clamp", EMU_S32, "ttu", szext_clamp_s},
    {"szext.wrap", EMU_U32, "ttu", szext_wrap_u},
    {"szext.wrap", EMU_S32, "ttu", szext_wrap_s},
    {"fns", EMU_B32, "tttt", fns},
    {"mul24.lo", EMU_U32, "ttt", mul24_lo_u},
    {"mul24.lo", EMU_S32, "ttt", mul24_lo_s},
    {"mul24.hi", EMU_U32, "ttt", mul24_hi_u},
    {"mul24.hi", EMU_S32, "ttt", mul24_hi_s},
    {"mad24.lo", EMU_U32, "tttt", mad24_lo_u},
    {"mad24.lo", EMU_S32, "tttt", mad24_lo_s},
    {NULL, EMU_NO_TYPE, NULL, NULL},
};
