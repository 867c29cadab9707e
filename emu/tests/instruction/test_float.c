/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_float.c - floating-point instructions of the software GPU, compared with C's
 * operators in four rounding modes, and conversions of all codes of the small
 * formats.
 */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/floats.h"

#define LANES  32
#define ROUNDS 24

#define IN_OUT "mad.wide.u32 %d40, %tid, 16, %in;\nmad.wide.u32 %d41, %tid, 4, %out;\n"

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return x != x ? 0x7FFFFFFF : bits;
}

static float any_float(void)
{
	static const uint32_t edges[] = {
	    0,		0x80000000, 1,		0x80000001, 0x7F7FFFFF, 0x7F800000,
	    0xFF800000, 0x7FC00000, 0x3F800000, 0x00800000, 0x7FFFFF,	0xBF800000};
	uint32_t bits = emu_test_random();
	float x;

	if (bits % 4 == 0)
		bits = edges[emu_test_random() % 12];
	else if (bits % 4 == 1) /* near 1: sums that round */
		bits = 0x3F000000 + (emu_test_random() & 0x01FFFFFF);
	memcpy(&x, &bits, sizeof(x));
	return x;
}

static void any_floats(float x[LANES][4])
{
	for (int l = 0; l < LANES; l++)
		for (int k = 0; k < 4; k++)
			x[l][k] = any_float();
}

/* Both are arrays. */
#define RUN(body, from, to)                                                            \
	emu_must_run(body, &(struct emu_job){.in = (from),                             \
					     .in_bytes = sizeof(from),                 \
					     .out = (to),                              \
					     .out_bytes = sizeof(to)})

/* ---- arithmetic ---------------------------------------------------------- */

static float one_add(float x, float y, float z)
{
	(void)z;
	return x + y;
}

static float one_sub(float x, float y, float z)
{
	(void)z;
	return x - y;
}

static float one_mul(float x, float y, float z)
{
	(void)z;
	return x * y;
}

static float one_div(float x, float y, float z)
{
	(void)z;
	return x / y;
}

static float one_fma(float x, float y, float z)
{
	return fmaf(x, y, z);
}

static float one_sqrt(float x, float y, float z)
{
	(void)y;
	(void)z;
	return sqrtf(x);
}

static void test_arithmetic(void **state)
{
	static const struct {
		const char *name;
		int sources;
		float (*want)(float x, float y, float z);
	} operations[] = {{"add", 2, one_add}, {"sub", 2, one_sub},
			  {"mul", 2, one_mul}, {"div", 2, one_div},
			  {"fma", 3, one_fma}, {"sqrt", 1, one_sqrt}};
	static const struct {
		const char *word;
		int mode;
	} roundings[] = {{"rn", FE_TONEAREST},
			 {"rz", FE_TOWARDZERO},
			 {"rm", FE_DOWNWARD},
			 {"rp", FE_UPWARD}};

	for (int n = 0; n < 24 * ROUNDS; n++) {
		const int o = n % 6, r = n / 6 % 4;
		char body[600];
		float in[LANES][4];
		uint32_t out[LANES];

		snprintf(body, sizeof(body),
			 "%sld.global.v4.f32 {%%f1, %%f2, %%f3, %%f4}, "
			 "[%%d40];\n%s.%s.f32 %%f5, %%f1%s%s;\n"
			 "st.global.f32 [%%d41], %%f5;\n",
			 IN_OUT, operations[o].name, roundings[r].word,
			 operations[o].sources > 1 ? ", %f2" : "",
			 operations[o].sources > 2 ? ", %f3" : "");
		any_floats(in);
		RUN(body, in, out);
		for (int l = 0; l < LANES; l++) {
			volatile float want;

			fesetround(roundings[r].mode);
			want = operations[o].want(in[l][0], in[l][1], in[l][2]);
			fesetround(FE_TONEAREST);
			if (out[l] != bits_of(want))
				fail_msg("%s.%s %a %a %a: %08x, not %08x",
					 operations[o].name, roundings[r].word,
					 (double)in[l][0], (double)in[l][1],
					 (double)in[l][2], out[l], bits_of(want));
		}
	}
}

/* a or b, as min and max without .NaN choose, in any format. */
static uint32_t chosen(double a, double b, uint32_t a_bits, uint32_t b_bits,
		       uint32_t nan, bool is_max)
{
	bool is_a = is_max ? a > b : a < b;

	if (a != a || b != b)
		return nan;
	if (a == b)
		is_a = (signbit(a) != 0) != is_max;
	return is_a ? a_bits : b_bits;
}

static void check_choices(const uint32_t *in, const uint32_t *out)
{
	float x, y;

	memcpy(&x, &in[0], 4);
	memcpy(&y, &in[1], 4);
	for (int is_max = 0; is_max < 2; is_max++) {
		const uint32_t *got = out + 3 * is_max;

		assert_int_equal(got[0],
				 chosen(x, y, in[0], in[1], 0x7FFFFFFF, is_max));
		for (int k = 0; k < 4; k++) {
			const struct emu_format *f =
			    k < 2 ? &emu_format_f16 : &emu_format_bf16;
			const uint32_t a = in[0] >> k % 2 * 16 & 0xFFFF;
			const uint32_t b = in[1] >> k % 2 * 16 & 0xFFFF;

			assert_int_equal(got[1 + k / 2] >> k % 2 * 16 & 0xFFFF,
					 chosen(emu_widen(f, a), emu_widen(f, b), a, b,
						0x7FFF, is_max));
		}
	}
}

/* .NaN: if one is NaN, so is the result. */
static void test_choices_of_nan(void **state)
{
	static const char *body =
	    IN_OUT "ld.global.v2.u32 {%r1, %r2}, [%d40];\n"
		   "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\n"
		   "min.NaN.f32 %f3, %f1, %f2;\nmax.NaN.f32 %f4, %f1, %f2;\n"
		   "min.NaN.f16x2 %r3, %r1, %r2;\nmax.NaN.f16x2 %r4, %r1, %r2;\n"
		   "min.NaN.bf16x2 %r5, %r1, %r2;\nmax.NaN.bf16x2 %r6, %r1, %r2;\n"
		   "mad.wide.u32 %d42, %tid, 24, %out;\n"
		   "st.global.f32 [%d42], %f3;\nst.global.u32 [%d42+4], %r3;\n"
		   "st.global.u32 [%d42+8], %r5;\nst.global.f32 [%d42+12], %f4;\n"
		   "st.global.u32 [%d42+16], %r4;\nst.global.u32 [%d42+20], %r6;\n";
	static const uint32_t special[] = {0,	       0x80000000, 0x7F800001,
					   0xFFC00000, 0x7C017C01, 0x80007F80,
					   0x7E000000, 0xFF800000};

	for (int round = 0; round < ROUNDS; round++) {
		uint32_t in[LANES][4], out[LANES][6];

		for (int l = 0; l < LANES; l++)
			for (int k = 0; k < 4; k++)
				in[l][k] = emu_test_random() % 4
					       ? emu_test_random()
					       : special[emu_test_random() % 8];
		RUN(body, in, out);
		for (int l = 0; l < LANES; l++)
			check_choices(in[l], out[l]);
	}
}

/* min and max choose the number over NaN, and -0 is less than +0; .sat is 0 to 1. */
static void test_choices(void **state)
{
	static const char *body =
	    IN_OUT "ld.global.v2.f32 {%f1, %f2}, [%d40];\nmin.f32 %f3, %f1, %f2;\n"
		   "max.f32 %f4, %f1, %f2;\nadd.sat.f32 %f5, %f1, %f2;\n"
		   "neg.f32 %f6, %f1;\nabs.f32 %f7, %f1;\n"
		   "setp.lt.f32 %p1, %f1, %f2;\nsetp.neu.f32 %p2, %f1, %f2;\n"
		   "setp.nan.f32 %p3, %f1, %f2;\nsetp.ge.f32 %p4, %f1, %f2;\n"
		   "selp.u32 %r1, 1, 0, %p1;\nselp.u32 %r2, 2, 0, %p2;\n"
		   "selp.u32 %r3, 4, 0, %p3;\nselp.u32 %r4, 8, 0, %p4;\n"
		   "or.b32 %r1, %r1, %r2;\nor.b32 %r3, %r3, %r4;\n"
		   "or.b32 %r1, %r1, %r3;\nmad.wide.u32 %d42, %tid, 24, %out;\n"
		   "st.global.v2.f32 [%d42], {%f3, %f4};\n"
		   "st.global.v2.f32 [%d42+8], {%f5, %f6};\n"
		   "st.global.f32 [%d42+16], %f7;\nst.global.u32 [%d42+20], %r1;\n";

	for (int round = 0; round < ROUNDS; round++) {
		float in[LANES][4];
		uint32_t out[LANES][6];

		any_floats(in);
		RUN(body, in, out);
		for (int l = 0; l < LANES; l++) {
			const float x = in[l][0], y = in[l][1], sum = x + y;
			const bool first =
			    x < y || y != y || (x == y && signbit(x) != 0);
			const bool last =
			    x > y || y != y || (x == y && signbit(x) == 0);
			uint32_t raw;

			memcpy(&raw, &x, sizeof(raw));
			assert_int_equal(out[l][0], bits_of(x != x  ? y
							    : first ? x
								    : y));
			assert_int_equal(out[l][1], bits_of(x != x ? y : last ? x : y));
			assert_int_equal(out[l][2],
					 bits_of(sum > 0 ? fminf(sum, 1) : 0));
			assert_int_equal(out[l][3], raw ^ 0x80000000);
			assert_int_equal(out[l][4], raw & 0x7FFFFFFF);
			assert_int_equal(out[l][5], (x < y ? 1u : 0u) |
							(x == y ? 0u : 2u) |
							(x != x || y != y ? 4u : 0u) |
							(x >= y ? 8u : 0u));
		}
	}
}

/* ---- conversions --------------------------------------------------------- */

/* Every pair of e2m1 codes to fp16; to e2m1: ties to even, 6 at most. */
static void test_e2m1(void **state)
{
	static const char *body =
	    "mul.wide.u32 %d41, %tid, 8;\nadd.u64 %d42, %d41, %in;\n"
	    "add.u64 %d41, %d41, %out;\n"
	    "ld.global.v2.f32 {%f1, %f2}, [%d42];\n"
	    "{\n.reg .b8 b0, b1, b2, b3;\nmov.b32 {b0, b1, b2, b3}, %tid;\n"
	    "cvt.rn.f16x2.e2m1x2 %r3, b0;\n"
	    "cvt.rn.satfinite.e2m1x2.f32 b1, %f1, %f2;\n"
	    "mov.b32 %r4, {b1, b2, b3, b0};\n}\n"
	    "st.global.v2.u32 [%d41], {%r3, %r4};\n";
	static const float values[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
	static const struct {
		float x;
		uint32_t code;
	} given[] = {{0.25F, 0}, {0.75F, 2},	{1.25F, 2},   {1.75F, 4},
		     {2.5F, 4},	 {3.5F, 6},	{5, 6},	      {5.01F, 7},
		     {100, 7},	 {INFINITY, 7}, {-0.0F, 8},   {-0.3F, 9},
		     {-6, 15},	 {NAN, 7},	{0.2501F, 1}, {-INFINITY, 15}};
	static uint32_t out[256][2];
	float in[256][2];
	struct emu_job job = {.in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .block = 256,
			      .target = "sm_100a"};

	for (int i = 0; i < 256; i++) {
		in[i][0] = given[i / 16].x;
		in[i][1] = given[i % 16].x;
	}
	emu_must_run(body, &job);
	for (uint32_t i = 0; i < 256; i++) {
		for (int n = 0; n < 2; n++) {
			const uint32_t code = i >> 4 * n & 15;
			const float x = values[code & 7];

			assert_int_equal(out[i][0] >> 16 * n & 0xFFFF,
					 emu_narrow(&emu_format_f16,
						    (double)(code & 8 ? -x : x), EMU_RN,
						    false));
		}
		assert_int_equal(out[i][1] & 0xFF,
				 given[i / 16].code << 4 | given[i % 16].code);
		assert_int_equal(out[i][1] >> 24, i);
	}
}

/* Every fp16 code to fp32 and back; every pair of e4m3 and e5m2 codes. */
static void test_codes(void **state)
{
	static const char *body =
	    "mov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r1, %r1, 256, %tid;\n"
	    "mad.wide.u32 %d41, %r1, 16, %out;\ncvt.u16.u32 %h1, %r1;\n"
	    "cvt.f32.f16 %f1, %h1;\ncvt.rn.f16.f32 %h2, %f1;\n"
	    "cvt.u32.u16 %r2, %h2;\ncvt.rn.f16x2.e4m3x2 %r3, %h1;\n"
	    "cvt.rn.f16x2.e5m2x2 %r4, %h1;\n"
	    "cvt.rn.satfinite.e4m3x2.f16x2 %h3, %r3;\n"
	    "cvt.rn.satfinite.e5m2x2.f16x2 %h4, %r4;\n"
	    "mov.b32 %r5, {%h3, %h4};\n"
	    "xor.b32 %r6, %r3, %r4;\nst.global.f32 [%d41], %f1;\n"
	    "st.global.u32 [%d41+4], %r2;\nst.global.u32 [%d41+8], %r5;\n"
	    "st.global.u32 [%d41+12], %r6;\n";
	static uint32_t out[65536][4];
	struct emu_job job = {
	    .out = out, .out_bytes = sizeof(out), .grid = 256, .block = 256};

	emu_must_run(body, &job);
	for (uint32_t code = 0; code < 65536; code++) {
		const int exponent = (int)(code >> 10 & 31);
		const uint32_t mantissa = code & 0x3FF;
		const float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
				   : exponent
				       ? ldexpf((float)(mantissa + 1024), exponent - 25)
				       : ldexpf((float)mantissa, -24);
		const bool is_nan = exponent == 31 && mantissa;
		const uint32_t lo = code & 0xFF, hi = code >> 8;
		uint32_t pair = out[code][2] & 0xFFFF;

		assert_int_equal(out[code][0], bits_of(code >> 15 ? -size : size));
		assert_int_equal(out[code][1], is_nan ? 0x7FFF : code);
		/* e4m3 back again; NaN has one code. */
		assert_int_equal(pair & 0xFF, (lo & 0x7F) == 0x7F ? 0x7F : lo);
		assert_int_equal(pair >> 8, (hi & 0x7F) == 0x7F ? 0x7F : hi);
		pair = out[code][2] >> 16;
		if ((lo & 0x7F) <= 0x7B)
			assert_int_equal(pair & 0xFF, lo);
		else
			assert_int_equal(pair & 0x7F,
					 (lo & 0x7F) == 0x7C ? 0x7B : 0x7F);
	}
}

/* A narrowed value is one of the two neighbours, and the right one. */
static void check_narrow(const struct emu_format *f, double x)
{
	static const enum emu_rounding modes[] = {EMU_RZ, EMU_RM, EMU_RP, EMU_RN};
	double got[4];

	for (int i = 0; i < 4; i++)
		got[i] = emu_widen(f, emu_narrow(f, x, modes[i], false));
	assert_true(got[1] <= x && x <= got[2]);
	assert_true(got[0] == (x < 0 ? got[2] : got[1]));
	if (isfinite(got[1]) && isfinite(got[2])) {
		const double below = x - got[1], above = got[2] - x;

		assert_true(got[3] == (below <= above ? got[1] : got[2]) ||
			    (below == above && got[3] == got[2]));
	}
}

/* Directed roundings of the small formats, and ties. */
static void test_narrow(void **state)
{
	static const struct emu_format *const formats[] = {
	    &emu_format_f16, &emu_format_bf16, &emu_format_e5m2, &emu_format_tf32};

	for (int i = 0; i < 20000; i++) {
		const struct emu_format *f = formats[i % 4];
		const uint32_t code = emu_test_random() % (f->largest ? f->largest : 1);
		const double a = emu_widen(f, code), b = emu_widen(f, code + 1);
		const uint32_t tie = emu_narrow(f, (a + b) / 2, EMU_RN, false);

		assert_int_equal(tie, code + (code & 1));
		check_narrow(f, a + (b - a) * (emu_test_random() % 1000) / 999);
		check_narrow(f, -(a + (b - a) * 0.3));
		assert_int_equal(emu_narrow(f, a, EMU_RM, true), code);
	}
	/* Two roundings would give 1 + 2^-10. */
	assert_int_equal(emu_narrow(&emu_format_f16, 1 + ldexp(1, -11) + ldexp(1, -40),
				    EMU_RN, false),
			 0x3C01);
	assert_int_equal(emu_narrow(&emu_format_e4m3, 465, EMU_RN, true), 0x7E);
	assert_int_equal(emu_narrow(&emu_format_e4m3, -1e9, EMU_RN, true), 0xFE);
	assert_int_equal(emu_narrow(&emu_format_f16, 65520, EMU_RN, false), 0x7C00);
	assert_int_equal(emu_narrow(&emu_format_f16, 65519, EMU_RN, false), 0x7BFF);
}

static int32_t clamped(double x)
{
	if (x != x)
		return 0;
	return x >= 2147483647.0    ? INT32_MAX
	       : x <= -2147483648.0 ? INT32_MIN
				    : (int32_t)x;
}

static void test_integers(void **state)
{
	static const char *body =
	    IN_OUT "ld.global.f32 %f1, [%d40];\nld.global.u64 %d1, [%d40+8];\n"
		   "cvt.rzi.s32.f32 %r1, %f1;\ncvt.rni.s32.f32 %r2, %f1;\n"
		   "cvt.rmi.s32.f32 %r3, %f1;\ncvt.rn.f32.u64 %f2, %d1;\n"
		   "cvt.rz.f32.s64 %f3, %d1;\ncvt.u8.u32 %r4, %r1;\n"
		   "cvt.sat.s8.s32 %r5, %r2;\ncvt.f64.f32 %g1, %f1;\n"
		   "cvt.rp.f32.f64 %f4, %g1;\ncvt.rni.f32.f32 %f5, %f1;\n"
		   "mad.wide.u32 %d42, %tid, 32, %out;\n"
		   "st.global.v4.b32 [%d42], {%r1, %r2, %r3, %r4};\n"
		   "st.global.v4.b32 [%d42+16], {%r5, %f2, %f3, %f5};\n";

	for (int round = 0; round < ROUNDS; round++) {
		struct {
			float x;
			uint32_t pad;
			uint64_t n;
		} in[LANES];
		uint32_t out[LANES][8];

		for (int l = 0; l < LANES; l++) {
			in[l].pad = 0;
			in[l].x =
			    l % 2 ? any_float()
				  : (float)((int)(emu_test_random() % 2001) - 1000) / 4;
			in[l].n = emu_test_random_64() >> emu_test_random() % 64;
		}
		RUN(body, in, out);
		for (int l = 0; l < LANES; l++) {
			const double x = (double)in[l].x;
			const int32_t nearest = clamped(rint(x));
			volatile float down;

			fesetround(FE_TOWARDZERO);
			down = (float)(int64_t)in[l].n;
			fesetround(FE_TONEAREST);
			assert_int_equal((int32_t)out[l][0], clamped(trunc(x)));
			assert_int_equal((int32_t)out[l][1], nearest);
			assert_int_equal((int32_t)out[l][2], clamped(floor(x)));
			assert_int_equal(out[l][3], out[l][0] & 0xFF);
			assert_int_equal((int32_t)out[l][4], nearest > 127 ? 127
							     : nearest < -128
								 ? -128
								 : nearest);
			assert_int_equal(out[l][5], bits_of((float)in[l].n));
			assert_int_equal(out[l][6], bits_of(down));
			assert_int_equal(out[l][7], bits_of(rintf(in[l].x)));
		}
	}
}

/* Halves in pairs: one rounding of the exact result. */
static void test_halves(void **state)
{
	static const char *body =
	    IN_OUT "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d40];\n"
		   "mul.rn.f16x2 %r5, %r1, %r2;\nadd.rn.f16x2 %r6, %r1, %r2;\n"
		   "fma.rn.f16x2 %r7, %r1, %r2, %r3;\n"
		   "fma.rn.bf16x2 %r8, %r1, %r2, %r3;\n"
		   "mad.wide.u32 %d42, %tid, 16, %out;\n"
		   "st.global.v4.b32 [%d42], {%r5, %r6, %r7, %r8};\n";

	for (int round = 0; round < ROUNDS; round++) {
		uint32_t in[LANES][4], out[LANES][4];

		for (int l = 0; l < LANES; l++)
			for (int k = 0; k < 4; k++)
				in[l][k] = emu_test_random();
		RUN(body, in, out);
		for (int l = 0; l < 2 * LANES; l++) {
			const struct emu_format *f = &emu_format_f16;
			long double v[3];
			double want[3];
			uint32_t got[3];

			for (int k = 0; k < 3; k++) {
				v[k] = (long double)emu_widen(
				    f, in[l / 2][k] >> l % 2 * 16 & 0xFFFF);
				got[k] = out[l / 2][k] >> l % 2 * 16 & 0xFFFF;
			}
			/* 64 bits hold any product plus a half.  Where they do
			 * not, its sign and sticky bit are far below. */
			want[0] = (double)(v[0] * v[1]);
			want[1] = (double)(v[0] + v[1]);
			want[2] = (double)(v[0] * v[1] + v[2]);
			for (int k = 0; k < 3; k++)
				if (got[k] != emu_narrow(f, want[k], EMU_RN, false))
					fail_msg("half %d: %04x", k, got[k]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_arithmetic),	   cmocka_unit_test(test_choices),
	    cmocka_unit_test(test_choices_of_nan), cmocka_unit_test(test_codes),
	    cmocka_unit_test(test_e2m1),	   cmocka_unit_test(test_narrow),
	    cmocka_unit_test(test_integers),	   cmocka_unit_test(test_halves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
