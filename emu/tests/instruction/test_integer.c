/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_integer.c - integer instructions of the software GPU against C's
 * operators, on random values and the edges, all lanes and some of them.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/floats.h"

#define LANES  32
#define ROUNDS 24

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

/* Sources have 64 bits; want() truncates them to the instruction's width. */
struct operation {
	const char *opcode;
	int bits; /* of sources */
	int result_bits;
	int sources;	/* the last may be of 32 bits: see shift */
	int third_bits; /* of the third source; 0: bits */
	bool shift;	/* the second source has 32 bits */
	uint64_t (*want)(uint64_t x, uint64_t y, uint64_t z);
};

#define WANT(name, expression)                                                         \
	static uint64_t name(uint64_t x, uint64_t y, uint64_t z)                       \
	{                                                                              \
		(void)y;                                                               \
		(void)z;                                                               \
		return (uint64_t)(expression);                                         \
	}
#define S16(v) ((int64_t)(int16_t)(v))
#define S32(v) ((int64_t)(int32_t)(v))
#define S64(v) ((int64_t)(v))
#define U16(v) ((uint64_t)(uint16_t)(v))
#define U32(v) ((uint64_t)(uint32_t)(v))

WANT(add, x + y)
WANT(sub, x - y)
WANT(mul, x *y)
WANT(mad, x *y + z)
WANT(mul_hi_u16, U16(x) * U16(y) >> 16)
WANT(mul_hi_s16, S16(x) * S16(y) >> 16)
WANT(mul_hi_u32, U32(x) * U32(y) >> 32)
WANT(mul_hi_s32, S32(x) * S32(y) >> 32)
WANT(mul_hi_u64, (u128)x *y >> 64)
WANT(mul_hi_s64, (s128)S64(x) * S64(y) >> 64)
WANT(wide_u16, U16(x) * U16(y))
WANT(wide_s16, S16(x) * S16(y))
WANT(wide_u32, U32(x) * U32(y))
WANT(wide_s32, S32(x) * S32(y))
WANT(mad_wide_u32, U32(x) * U32(y) + z)
WANT(mad_wide_s32, (uint64_t)(S32(x) * S32(y)) + z)
WANT(mad_wide_u16, U16(x) * U16(y) + z)
WANT(div_u16, U16(y) ? U16(x) / U16(y) : UINT16_MAX)
WANT(div_u32, U32(y) ? U32(x) / U32(y) : UINT32_MAX)
WANT(div_u64, y ? x / y : UINT64_MAX)
WANT(div_s16, S16(y) ? S16(x) / S16(y) : -1)
WANT(div_s32, S32(y) ? S32(x) / S32(y) : -1)
WANT(div_s64, y ? (y == UINT64_MAX ? (int64_t)(0 - x) : S64(x) / S64(y)) : -1)
WANT(rem_u32, U32(y) ? U32(x) % U32(y) : U32(x))
WANT(rem_s32, S32(y) ? S32(x) % S32(y) : S32(x))
WANT(rem_u64, y ? x % y : x)
WANT(rem_s64, y ? (y == UINT64_MAX ? 0 : S64(x) % S64(y)) : S64(x))
WANT(min_u32, U32(x) < U32(y) ? x : y)
WANT(min_s32, S32(x) < S32(y) ? x : y)
WANT(max_u32, U32(x) > U32(y) ? x : y)
WANT(max_s32, S32(x) > S32(y) ? x : y)
WANT(min_u64, x < y ? x : y)
WANT(min_s64, S64(x) < S64(y) ? x : y)
WANT(max_u64, x > y ? x : y)
WANT(max_s64, S64(x) > S64(y) ? x : y)
WANT(min_s16, S16(x) < S16(y) ? x : y)
WANT(max_u16, U16(x) > U16(y) ? x : y)
#define HALVES(f) ((U16(f(x, y)) & 0xFFFF) | (U16(f(x >> 16, y >> 16)) & 0xFFFF) << 16)

#define SUM(a, b)   ((a) + (b))
#define MIN_U(a, b) (U16(a) < U16(b) ? (a) : (b))
#define MIN_S(a, b) (S16(a) < S16(b) ? (a) : (b))
#define MAX_U(a, b) (U16(a) > U16(b) ? (a) : (b))
#define MAX_S(a, b) (S16(a) > S16(b) ? (a) : (b))
WANT(add_x2, HALVES(SUM))
WANT(min_u16x2, HALVES(MIN_U))
WANT(min_s16x2, HALVES(MIN_S))
WANT(max_u16x2, HALVES(MAX_U))
WANT(max_s16x2, HALVES(MAX_S))
WANT(neg, 0 - x)
WANT(abs_s32, S32(x) < 0 ? 0 - x : x)
WANT(abs_s64, S64(x) < 0 ? 0 - x : x)
WANT(abs_s16, S16(x) < 0 ? 0 - x : x)
WANT(and_, x &y)
WANT(or_, x | y)
WANT(xor_, x ^ y)
WANT(not_, ~x)
WANT(shl_16, U32(y) > 15 ? 0 : x << y)
WANT(shl_32, U32(y) > 31 ? 0 : x << y)
WANT(shl_64, U32(y) > 63 ? 0 : x << y)
WANT(shr_u16, U32(y) > 15 ? 0 : U16(x) >> y)
WANT(shr_u32, U32(y) > 31 ? 0 : U32(x) >> y)
WANT(shr_u64, U32(y) > 63 ? 0 : x >> y)
WANT(shr_s16, U32(y) > 15 ? S16(x) >> 15 : S16(x) >> y)
WANT(shr_s32, U32(y) > 31 ? S32(x) >> 31 : S32(x) >> y)
WANT(shr_s64, U32(y) > 63 ? S64(x) >> 63 : S64(x) >> y)

static uint64_t bits_set(uint64_t x)
{
	uint64_t n = 0;

	for (; x; x &= x - 1)
		n++;
	return n;
}
WANT(popc_32, bits_set(U32(x)))
WANT(popc_64, bits_set(x))

static uint64_t leading_zeros(uint64_t x, int bits)
{
	uint64_t n = 0;

	while (n < (uint64_t)bits && !(x >> (bits - 1 - (int)n) & 1))
		n++;
	return n;
}
WANT(clz_32, leading_zeros(x, 32))
WANT(clz_64, leading_zeros(x, 64))

static uint64_t turned(uint64_t x, int bits)
{
	uint64_t r = 0;

	for (int i = 0; i < bits; i++)
		if (x >> i & 1)
			r |= UINT64_C(1) << (bits - 1 - i);
	return r;
}
WANT(brev_32, turned(x, 32))
WANT(brev_64, turned(x, 64))

/* Bytes of y:x chosen by z, modes with signs included. */
static uint64_t permuted(uint64_t x, uint64_t y, uint64_t z)
{
	uint64_t r = 0;

	for (int i = 3; i >= 0; i--) {
		const uint64_t nibble = z >> 4 * i & 15;
		const uint64_t from = nibble & 4 ? U32(y) : U32(x);
		const uint8_t byte = (uint8_t)(from >> 8 * (nibble & 3));

		r = r << 8 | (nibble & 8 ? (uint8_t)((int8_t)byte >> 7) : byte);
	}
	return r;
}

static uint64_t differences_of_bytes(uint64_t x, uint64_t y, uint64_t z)
{
	for (int i = 0; i < 4; i++) {
		const int d = (uint8_t)(x >> 8 * i) - (uint8_t)(y >> 8 * i);

		z += (uint64_t)(d < 0 ? -d : d);
	}
	return U32(z);
}

static uint64_t dot_of_bytes(uint64_t x, uint64_t y, uint64_t z)
{
	int64_t r = (int32_t)z;

	for (int i = 0; i < 4; i++)
		r += (int64_t)(int8_t)(x >> 8 * i) * (int8_t)(y >> 8 * i);
	return U32((uint64_t)r);
}

static uint64_t dot_of_unsigned(uint64_t x, uint64_t y, uint64_t z)
{
	for (int i = 0; i < 4; i++)
		z += (uint64_t)(uint8_t)(x >> 8 * i) * (uint8_t)(y >> 8 * i);
	return U32(z);
}

static uint64_t dot_of_both(uint64_t x, uint64_t y, uint64_t z)
{
	for (int i = 0; i < 4; i++)
		z += (uint64_t)((int64_t)(int8_t)(x >> 8 * i) * (uint8_t)(y >> 8 * i));
	return U32(z);
}
WANT(dot_low, z + (x & 0xFFFF) * (y & 0xFF) + (x >> 16 & 0xFFFF) * (y >> 8 & 0xFF))
WANT(dot_high, z + (uint64_t)((int64_t)(int16_t)x * (int8_t)(y >> 16)) +
		   (uint64_t)((int64_t)(int16_t)(x >> 16) * (int8_t)(y >> 24)))
WANT(lop3_e8, (x & y) | (x & z) | (y & z))
WANT(lop3_96, x ^ y ^ z)

static const struct operation operations[] = {
    {"add.u16", 16, 16, 2, 0, false, add},
    {"add.s32", 32, 32, 2, 0, false, add},
    {"add.s64", 64, 64, 2, 0, false, add},
    {"sub.u16", 16, 16, 2, 0, false, sub},
    {"sub.u32", 32, 32, 2, 0, false, sub},
    {"sub.u64", 64, 64, 2, 0, false, sub},
    {"mul.lo.u16", 16, 16, 2, 0, false, mul},
    {"mul.lo.s32", 32, 32, 2, 0, false, mul},
    {"mul.lo.u64", 64, 64, 2, 0, false, mul},
    {"mul.hi.u16", 16, 16, 2, 0, false, mul_hi_u16},
    {"mul.hi.s16", 16, 16, 2, 0, false, mul_hi_s16},
    {"mul.hi.u32", 32, 32, 2, 0, false, mul_hi_u32},
    {"mul.hi.s32", 32, 32, 2, 0, false, mul_hi_s32},
    {"mul.hi.u64", 64, 64, 2, 0, false, mul_hi_u64},
    {"mul.hi.s64", 64, 64, 2, 0, false, mul_hi_s64},
    {"mul.wide.u16", 16, 32, 2, 0, false, wide_u16},
    {"mul.wide.s16", 16, 32, 2, 0, false, wide_s16},
    {"mul.wide.u32", 32, 64, 2, 0, false, wide_u32},
    {"mul.wide.s32", 32, 64, 2, 0, false, wide_s32},
    {"mad.lo.u16", 16, 16, 3, 0, false, mad},
    {"mad.lo.s32", 32, 32, 3, 0, false, mad},
    {"mad.lo.s64", 64, 64, 3, 0, false, mad},
    {"mad.wide.u32", 32, 64, 3, 64, false, mad_wide_u32},
    {"mad.wide.s32", 32, 64, 3, 64, false, mad_wide_s32},
    {"mad.wide.u16", 16, 32, 3, 32, false, mad_wide_u16},
    {"div.u16", 16, 16, 2, 0, false, div_u16},
    {"div.u32", 32, 32, 2, 0, false, div_u32},
    {"div.u64", 64, 64, 2, 0, false, div_u64},
    {"div.s16", 16, 16, 2, 0, false, div_s16},
    {"div.s32", 32, 32, 2, 0, false, div_s32},
    {"div.s64", 64, 64, 2, 0, false, div_s64},
    {"rem.u32", 32, 32, 2, 0, false, rem_u32},
    {"rem.s32", 32, 32, 2, 0, false, rem_s32},
    {"rem.u64", 64, 64, 2, 0, false, rem_u64},
    {"rem.s64", 64, 64, 2, 0, false, rem_s64},
    {"min.u32", 32, 32, 2, 0, false, min_u32},
    {"min.s32", 32, 32, 2, 0, false, min_s32},
    {"max.u32", 32, 32, 2, 0, false, max_u32},
    {"max.s32", 32, 32, 2, 0, false, max_s32},
    {"min.u64", 64, 64, 2, 0, false, min_u64},
    {"min.s64", 64, 64, 2, 0, false, min_s64},
    {"max.u64", 64, 64, 2, 0, false, max_u64},
    {"max.s64", 64, 64, 2, 0, false, max_s64},
    {"min.s16", 16, 16, 2, 0, false, min_s16},
    {"max.u16", 16, 16, 2, 0, false, max_u16},
    {"add.u16x2", 32, 32, 2, 0, false, add_x2},
    {"add.s16x2", 32, 32, 2, 0, false, add_x2},
    {"min.u16x2", 32, 32, 2, 0, false, min_u16x2},
    {"min.s16x2", 32, 32, 2, 0, false, min_s16x2},
    {"max.u16x2", 32, 32, 2, 0, false, max_u16x2},
    {"max.s16x2", 32, 32, 2, 0, false, max_s16x2},
    {"neg.s16", 16, 16, 1, 0, false, neg},
    {"neg.s32", 32, 32, 1, 0, false, neg},
    {"neg.s64", 64, 64, 1, 0, false, neg},
    {"abs.s16", 16, 16, 1, 0, false, abs_s16},
    {"abs.s32", 32, 32, 1, 0, false, abs_s32},
    {"abs.s64", 64, 64, 1, 0, false, abs_s64},
    {"and.b16", 16, 16, 2, 0, false, and_},
    {"and.b32", 32, 32, 2, 0, false, and_},
    {"and.b64", 64, 64, 2, 0, false, and_},
    {"or.b16", 16, 16, 2, 0, false, or_},
    {"or.b32", 32, 32, 2, 0, false, or_},
    {"or.b64", 64, 64, 2, 0, false, or_},
    {"xor.b16", 16, 16, 2, 0, false, xor_},
    {"xor.b32", 32, 32, 2, 0, false, xor_},
    {"xor.b64", 64, 64, 2, 0, false, xor_},
    {"not.b16", 16, 16, 1, 0, false, not_},
    {"not.b32", 32, 32, 1, 0, false, not_},
    {"not.b64", 64, 64, 1, 0, false, not_},
    {"shl.b16", 16, 16, 2, 0, true, shl_16},
    {"shl.b32", 32, 32, 2, 0, true, shl_32},
    {"shl.b64", 64, 64, 2, 0, true, shl_64},
    {"shr.u16", 16, 16, 2, 0, true, shr_u16},
    {"shr.u32", 32, 32, 2, 0, true, shr_u32},
    {"shr.b64", 64, 64, 2, 0, true, shr_u64},
    {"shr.s16", 16, 16, 2, 0, true, shr_s16},
    {"shr.s32", 32, 32, 2, 0, true, shr_s32},
    {"shr.s64", 64, 64, 2, 0, true, shr_s64},
    {"popc.b32", 32, 32, 1, 0, false, popc_32},
    {"popc.b64", 64, 32, 1, 0, false, popc_64},
    {"clz.b32", 32, 32, 1, 0, false, clz_32},
    {"clz.b64", 64, 32, 1, 0, false, clz_64},
    {"brev.b32", 32, 32, 1, 0, false, brev_32},
    {"brev.b64", 64, 64, 1, 0, false, brev_64},
    {"prmt.b32", 32, 32, 3, 0, false, permuted},
    {"dp4a.s32.s32", 32, 32, 3, 0, false, dot_of_bytes},
    {"dp4a.u32.u32", 32, 32, 3, 0, false, dot_of_unsigned},
    {"dp4a.s32.u32", 32, 32, 3, 0, false, dot_of_both},
    {"dp2a.lo.u32.u32", 32, 32, 3, 0, false, dot_low},
    {"dp2a.hi.s32.s32", 32, 32, 3, 0, false, dot_high},
    {"vabsdiff4.u32.u32.u32.add", 32, 32, 3, 0, false, differences_of_bytes},
};

static const uint64_t edges[] = {0,
				 1,
				 2,
				 0x7F,
				 0x80,
				 0x7FFF,
				 0x8000,
				 0xFFFF,
				 0x7FFFFFFF,
				 0x80000000,
				 UINT32_MAX,
				 INT64_MAX,
				 UINT64_C(1) << 63,
				 UINT64_MAX,
				 UINT64_MAX - 1,
				 31};

static uint64_t any_value(bool is_shift)
{
	if (is_shift)
		return emu_test_random() % 80;
	if (emu_test_random() % 3 == 0)
		return edges[emu_test_random() % 16];
	return emu_test_random_64() >> emu_test_random() % 64;
}

static const char *letter(int bits)
{
	return bits == 16 ? "h" : bits == 32 ? "r" : "d";
}

/* in: three 64-bit values for each lane; guarded: lanes with an odd first value. */
static void write_body(const struct operation *o, bool guarded, char *body, size_t size)
{
	const int widths[] = {o->bits, o->shift ? 32 : o->bits,
			      o->third_bits ? o->third_bits : o->bits};
	size_t used;

	used = (size_t)snprintf(
	    body, size,
	    "mad.wide.u32 %%d40, %%lane, 24, %%in;\n"
	    "mad.wide.u32 %%d41, %%lane, 8, %%out;\n"
	    "mov.b64 %%d10, 0x5555555555555555; mov.b32 %%r10, 0x55555555;\n"
	    "mov.b16 %%h10, 0x5555;\n"
	    "ld.global.u64 %%d42, [%%d40]; and.b64 %%d42, %%d42, 1;\n"
	    "setp.eq.s64 %%p1, %%d42, 1;\n");
	for (int i = 0; i < o->sources; i++)
		used += (size_t)snprintf(body + used, size - used,
					 "ld.global.b%d %%%s%d, [%%d40+%d];\n",
					 widths[i], letter(widths[i]), i + 1, 8 * i);
	used +=
	    (size_t)snprintf(body + used, size - used, "%s%s %%%s10",
			     guarded ? "@%p1 " : "", o->opcode, letter(o->result_bits));
	for (int i = 0; i < o->sources; i++)
		used += (size_t)snprintf(body + used, size - used, ", %%%s%d",
					 letter(widths[i]), i + 1);
	snprintf(body + used, size - used, ";\nst.global.b%d [%%d41], %%%s10;\n",
		 o->result_bits, letter(o->result_bits));
}

static void check_operation(const struct operation *o, bool guarded)
{
	const uint64_t mask =
	    o->result_bits == 64 ? UINT64_MAX : (UINT64_C(1) << o->result_bits) - 1;
	char body[2048];

	write_body(o, guarded, body, sizeof(body));
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t in[LANES][3], out[LANES] = {0};
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .out = out,
				      .out_bytes = sizeof(out)};

		for (int l = 0; l < LANES; l++)
			for (int k = 0; k < 3; k++)
				in[l][k] = any_value(o->shift && k == 1);
		emu_must_run(body, &job);
		for (int l = 0; l < LANES; l++) {
			const uint64_t all = o->want(in[l][0], in[l][1], in[l][2]);
			const uint64_t want = guarded && !(in[l][0] & 1)
						  ? UINT64_C(0x5555555555555555) & mask
						  : all & mask;

			if ((out[l] & mask) != want)
				fail_msg("%s %llx %llx %llx: %llx, not %llx", o->opcode,
					 (long long)in[l][0], (long long)in[l][1],
					 (long long)in[l][2],
					 (long long)(out[l] & mask), (long long)want);
		}
	}
}

static void test_operations(void **state)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		check_operation(&operations[i], false);
		check_operation(&operations[i], true);
	}
}

/* The three instructions with four or five arguments. */
static void test_fields(void **state)
{
	static const char *body =
	    "mad.wide.u32 %d40, %lane, 16, %in;\n"
	    "mad.wide.u32 %d41, %lane, 32, %out;\n"
	    "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d40];\n"
	    "bfi.b32 %r5, %r1, %r2, %r3, %r4;\n"
	    "bfe.u32 %r6, %r1, %r3, %r4;\n"
	    "bfe.s32 %r7, %r1, %r3, %r4;\n"
	    "shf.l.wrap.b32 %r8, %r1, %r2, %r3;\n"
	    "shf.r.clamp.b32 %r9, %r1, %r2, %r3;\n"
	    "lop3.b32 %r10, %r1, %r2, %r3, 0xe8;\n"
	    "lop3.b32 %r11, %r1, %r2, %r3, 0x96;\n"
	    "setp.lt.u32 %p1, %r1, %r2;\n"
	    "selp.b32 %r12, %r3, %r4, %p1;\n"
	    "st.global.v4.u32 [%d41], {%r5, %r6, %r7, %r8};\n"
	    "st.global.v4.u32 [%d41+16], {%r9, %r10, %r11, %r12};\n";

	for (int round = 0; round < 64; round++) {
		uint32_t in[LANES][4], out[LANES][8];
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .out = out,
				      .out_bytes = sizeof(out)};

		for (int l = 0; l < LANES; l++) {
			in[l][0] = (uint32_t)any_value(false);
			in[l][1] = (uint32_t)any_value(false);
			in[l][2] = emu_test_random() % 32;
			in[l][3] = 1 + emu_test_random() % (32 - in[l][2]);
		}
		emu_must_run(body, &job);
		for (int l = 0; l < LANES; l++) {
			const uint32_t x = in[l][0], y = in[l][1];
			const uint32_t at = in[l][2], n = in[l][3];
			const uint32_t mask = n == 32 ? UINT32_MAX : (1u << n) - 1;
			const uint64_t both = (uint64_t)y << 32 | x;
			const uint32_t want[] = {
			    (y & ~(mask << at)) | (x & mask) << at,
			    x >> at & mask,
			    (uint32_t)((int32_t)(x << (32 - n - at)) >> (32 - n)),
			    (uint32_t)(both << at >> 32),
			    (uint32_t)(both >> at),
			    (uint32_t)lop3_e8(x, y, at),
			    (uint32_t)lop3_96(x, y, at),
			    x < y ? at : n};

			assert_memory_equal(out[l], want, sizeof(want));
		}
	}
}

/* All comparisons of all types: plain, with a second result, and combined. */
static void test_setp(void **state)
{
	static const struct {
		const char *word;
		int wanted; /* 1 less, 2 equal, 4 greater */
	} words[] = {{"eq", 2}, {"ne", 5}, {"lt", 1}, {"le", 3}, {"gt", 4}, {"ge", 6}};
	static const char *const kinds[] = {"u16", "s16", "u32", "s32", "u64", "s64"};

	for (int t = 0; t < 36; t++) {
		const int kind = t / 6, bits = 16 << kind / 2;
		char body[1024];
		uint64_t in[LANES][2];
		uint32_t out[LANES];
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .out = out,
				      .out_bytes = sizeof(out)};

		snprintf(body, sizeof(body),
			 "mad.wide.u32 %%d40, %%lane, 16, %%in;\n"
			 "mad.wide.u32 %%d41, %%lane, 4, %%out;\n"
			 "ld.global.b%d %%%s1, [%%d40];\n"
			 "ld.global.b%d %%%s2, [%%d40+8];\n"
			 "setp.gt.u32 %%p3, %%lane, 15;\n"
			 "setp.%s.%s %%p1|%%p2, %%%s1, %%%s2;\n"
			 "setp.%s.xor.%s %%p4, %%%s1, %%%s2, !%%p3;\n"
			 "selp.b32 %%r1, 1, 0, %%p1;\n"
			 "selp.b32 %%r2, 2, 0, %%p2;\n"
			 "selp.b32 %%r3, 4, 0, %%p4;\n"
			 "add.u32 %%r1, %%r1, %%r2;\nadd.u32 %%r1, %%r1, %%r3;\n"
			 "st.global.u32 [%%d41], %%r1;\n",
			 bits, letter(bits), bits, letter(bits), words[t % 6].word,
			 kinds[kind], letter(bits), letter(bits), words[t % 6].word,
			 kinds[kind], letter(bits), letter(bits));
		for (int l = 0; l < LANES; l++)
			for (int k = 0; k < 2; k++)
				in[l][k] =
				    k && l % 4 == 0 ? in[l][0] : any_value(false);
		emu_must_run(body, &job);
		for (int l = 0; l < LANES; l++) {
			const int unused = 64 - bits;
			const uint64_t x = in[l][0] << unused, y = in[l][1] << unused;
			const bool less = kind % 2 ? S64(x) < S64(y) : x < y;
			const int is = x == y ? 2 : less ? 1 : 4;
			const uint32_t yes = words[t % 6].wanted & is ? 1 : 0;

			assert_int_equal(out[l], yes + (yes ? 0u : 2u) +
						     4 * (yes ^ (uint32_t)(l <= 15)));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_operations),
	    cmocka_unit_test(test_fields),
	    cmocka_unit_test(test_setp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
