/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_flush.c - .ftz, pairs of floats, and the functions and forms of nvcc's
 * --use_fast_math, compared with C's own functions, also for subnormal numbers.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/data.h"
#include "common/run.h"
#include "common/unit.h"

#define LANES  32
#define IN_OUT "mad.wide.u32 %d40, %tid, 16, %in;\nmad.wide.u32 %d41, %tid, 4, %out;\n"

static float flushed(float x)
{
	return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

static uint32_t bits_or_nan(float x)
{
	return x != x ? 0x7FFFFFFF : bits_of_float(x);
}

/* Floats of every kind; a third is near the smallest normal number. */
static float any_float(void)
{
	static const uint32_t edges[] = {
	    0,		0x80000000, 1,		0x80000001, 0x7F800000, 0xFF800000,
	    0x7FC00000, 0x3F800000, 0x00800000, 0x007FFFFF, 0x80800001, 0x7E800001};
	const uint32_t random = emu_test_random();

	if (random % 3 == 0)
		return float_of_bits(edges[emu_test_random() % 12]);
	if (random % 3 == 1)
		return float_of_bits(emu_test_random() & 0x81FFFFFF);
	return float_of_bits(emu_test_random());
}

static float add(float x, float y, float z)
{
	(void)z;
	return x + y;
}

static float sub(float x, float y, float z)
{
	(void)z;
	return x - y;
}

static float mul(float x, float y, float z)
{
	(void)z;
	return x * y;
}

static float larger(float x, float y, float z)
{
	(void)z;
	return x != x ? y : y != y ? x : x > y || (x == y && !signbit(x)) ? x : y;
}

static float smaller(float x, float y, float z)
{
	(void)z;
	return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? x : y;
}

static float sign_smaller(float x, float y, float z)
{
	const float size = smaller(fabsf(x), fabsf(y), z);

	return signbit(x) != signbit(y) ? -size : size;
}

static float largest(float x, float y, float z)
{
	return larger(larger(x, y, 0), z, 0);
}

static float root(float x, float y, float z)
{
	(void)y;
	(void)z;
	return sqrtf(x);
}

static float sine(float x, float y, float z)
{
	(void)y;
	(void)z;
	return (float)sin(x);
}

static float quotient(float x, float y, float z)
{
	(void)z;
	return x / y;
}

static float signed_as(float x, float y, float z)
{
	(void)z;
	return copysignf(y, x);
}

static float twos_power(float x, float y, float z)
{
	(void)y;
	(void)z;
	return (float)exp2(x);
}

static const struct {
	const char *text;
	bool is_flushed;
	float (*want)(float x, float y, float z);
} cases[] = {
    {"add.ftz.f32 %f4, %f1, %f2", true, add},
    {"sub.rn.ftz.f32 %f4, %f1, %f2", true, sub},
    {"mul.ftz.f32 %f4, %f1, %f2", true, mul},
    {"fma.rn.ftz.f32 %f4, %f1, %f2, %f3", true, fmaf},
    {"fma.rn.f32 %f4, %f1, %f2, %f3", false, fmaf},
    {"max.ftz.f32 %f4, %f1, %f2", true, larger},
    {"min.ftz.f32 %f4, %f1, %f2", true, smaller},
    {"min.xorsign.abs.f32 %f4, %f1, %f2", false, sign_smaller},
    {"max.f32 %f4, %f1, %f2, %f3", false, largest},
    {"max.ftz.f32 %f4, %f1, %f2, %f3", true, largest},
    {"copysign.f32 %f4, %f1, %f2", false, signed_as},
    {"sqrt.approx.ftz.f32 %f4, %f1", true, root},
    {"sin.approx.ftz.f32 %f4, %f1", true, sine},
    {"ex2.approx.ftz.f32 %f4, %f1", true, twos_power},
    {"div.full.f32 %f4, %f1, %f2", false, quotient},
    {"div.full.ftz.f32 %f4, %f1, %f2", true, quotient},
};

static void any_floats(float in[LANES][4])
{
	for (int l = 0; l < LANES; l++)
		for (int k = 0; k < 4; k++)
			in[l][k] = any_float();
}

static void test_flush(void **state)
{
	char body[400];

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++)
		for (int round = 0; round < 24; round++) {
			float in[LANES][4];
			uint32_t out[LANES];

			any_floats(in);
			snprintf(body, sizeof(body),
				 "%sld.global.v4.f32 {%%f1, %%f2, %%f3, %%f5}, "
				 "[%%d40];\n%s;\nst.global.f32 [%%d41], "
				 "%%f4;\n",
				 IN_OUT, cases[c].text);
			emu_must_run(body, &(struct emu_job){.in = in,
							     .in_bytes = sizeof(in),
							     .out = out,
							     .out_bytes = sizeof(out)});
			for (int l = 0; l < LANES; l++) {
				float x[3], want;

				for (int k = 0; k < 3; k++)
					x[k] = cases[c].is_flushed ? flushed(in[l][k])
								   : in[l][k];
				want = cases[c].want(x[0], x[1], x[2]);
				if (cases[c].is_flushed)
					want = flushed(want);
				if (bits_or_nan(float_of_bits(out[l])) !=
				    bits_or_nan(want))
					fail_msg("%s of %a, %a, %a: %x, not %a",
						 cases[c].text, (double)x[0],
						 (double)x[1], (double)x[2], out[l],
						 (double)want);
			}
		}
}

/* Only lanes that run are written, and the sources stay as they were. */
static void test_masked(void **state)
{
	const float in[4] = {0x1p-130f, 1, 0, 0};
	uint32_t out[3 * LANES];

	emu_must_run("ld.global.v2.f32 {%f1, %f2}, [%in];\n"
		     "mov.f32 %f3, 0f00000003;\nsetp.eq.u32 %p1, %lane, 5;\n"
		     "@%p1 add.ftz.f32 %f3, %f1, 0f00000000;\n"
		     "setp.eq.ftz.f32 %p2, %f1, 0f00000000;\n"
		     "setp.eq.f32 %p3, %f1, 0f00000000;\n"
		     "selp.u32 %r1, 1, 0, %p2;\n@%p3 add.u32 %r1, %r1, 2;\n"
		     "mad.wide.u32 %d41, %tid, 12, %out;\n"
		     "st.global.f32 [%d41], %f3;\nst.global.f32 [%d41+4], %f1;\n"
		     "st.global.u32 [%d41+8], %r1;\n",
		     &(struct emu_job){.in = in,
				       .in_bytes = sizeof(in),
				       .out = out,
				       .out_bytes = sizeof(out)});
	for (int l = 0; l < LANES; l++) {
		assert_int_equal(out[3 * l], l == 5 ? 0 : 3);
		assert_int_equal(out[3 * l + 1], bits_of_float(0x1p-130f));
		assert_int_equal(out[3 * l + 2], 1);
	}
}

/* A divisor of over 2^126: 0, or NaN of an infinite dividend. */
static void test_divide(void **state)
{
	static const float in[LANES][4] = {{1, 4, 0, 0},
					   {0x1p127f, 0x1.8p126f, 0, 0},
					   {INFINITY, 0x1p127f, 0, 0},
					   {INFINITY, 2, 0, 0},
					   {-3, 0x1p127f, 0, 0},
					   {3, INFINITY, 0, 0},
					   {5, 0x1p126f, 0, 0}};
	static const float want[7] = {0.25f, 0, NAN, INFINITY, -0.0f, 0, 5 * 0x1p-126f};
	uint32_t out[LANES];

	emu_must_run(IN_OUT "ld.global.v2.f32 {%f1, %f2}, [%d40];\n"
			    "div.approx.f32 %f3, %f1, %f2;\n"
			    "st.global.f32 [%d41], %f3;\n",
		     &(struct emu_job){.in = in,
				       .in_bytes = sizeof(in),
				       .out = out,
				       .out_bytes = sizeof(out)});
	for (int l = 0; l < 7; l++)
		assert_int_equal(out[l], bits_or_nan(want[l]));
}

/* 2^-24 is a normal float: .ftz does not apply to sources of fp16. */
static void test_cvt_of_f16(void **state)
{
	uint32_t in[LANES][4] = {{1}, {0x8001}, {0x3C00}}, out[LANES];

	emu_must_run(IN_OUT ".reg .b16 %h<3>; ld.global.b32 %r9, [%d40];\n"
			    "cvt.u16.u32 %h1, %r9;\n"
			    "cvt.ftz.f32.f16 %f3, %h1;\n"
			    "st.global.f32 [%d41], %f3;\n",
		     &(struct emu_job){.in = in,
				       .in_bytes = sizeof(in),
				       .out = out,
				       .out_bytes = sizeof(out)});
	assert_int_equal(out[0], 0x33800000);
	assert_int_equal(out[1], 0xB3800000);
	assert_int_equal(out[2], 0x3F800000);
}

/* Both floats of a pair, and .ftz of each. */
static void test_pairs(void **state)
{
	static const char *const forms[] = {"", ".ftz"};
	char body[600];

	for (int form = 0; form < 2; form++)
		for (int round = 0; round < 24; round++) {
			float in[LANES][4];
			uint32_t out[LANES][4];

			any_floats(in);
			snprintf(body, sizeof(body),
				 "mad.wide.u32 %%d40, %%tid, 16, %%in;\n"
				 "mad.wide.u32 %%d41, %%tid, 16, %%out;\n"
				 "ld.global.v2.b64 {%%d1, %%d2}, [%%d40];\n"
				 "mul.rn%s.f32x2 %%d3, %%d1, %%d2;\n"
				 "fma.rn%s.f32x2 %%d4, %%d1, %%d2, %%d1;\n"
				 "st.global.v2.b64 [%%d41], {%%d3, %%d4};\n",
				 forms[form], forms[form]);
			emu_must_run(body, &(struct emu_job){.in = in,
							     .in_bytes = sizeof(in),
							     .out = out,
							     .out_bytes = sizeof(out),
							     .target = "sm_100a"});
			for (int l = 0; l < LANES; l++)
				for (int k = 0; k < 2; k++) {
					float x = in[l][k], y = in[l][2 + k];
					float product, sum;

					x = form ? flushed(x) : x;
					y = form ? flushed(y) : y;
					product = x * y;
					sum = fmaf(x, y, x);
					assert_int_equal(
					    out[l][k],
					    bits_or_nan(form ? flushed(product)
							     : product));
					assert_int_equal(
					    out[l][2 + k],
					    bits_or_nan(form ? flushed(sum) : sum));
				}
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_flush),      cmocka_unit_test(test_masked),
	    cmocka_unit_test(test_divide),     cmocka_unit_test(test_pairs),
	    cmocka_unit_test(test_cvt_of_f16),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
