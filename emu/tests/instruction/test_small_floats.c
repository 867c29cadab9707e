/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_small_floats.c - conversions between floats and the formats of 8 bits and
 * less, over all codes.  The values of codes come from the definitions of the formats
 * (sign, exponent, mantissa), and the results for floats from a search for the
 * nearest of all values.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/data.h"
#include "common/run.h"
#include "common/unit.h"

#define LANES 32

struct small {
	const char *name;
	int exponent_bits, mantissa_bits, bias;
	int codes;    /* without sign */
	uint32_t nan; /* the code of a NaN that is read; 0: none */
	bool has_inf; /* of the last exponent, codes after the first are NaN */
};

static const struct small smalls[] = {
    {"e2m1", 2, 1, 1, 8, 0, false},   {"e2m3", 2, 3, 1, 32, 0, false},
    {"e3m2", 3, 2, 3, 32, 0, false},  {"e4m3", 4, 3, 7, 128, 0x7F, false},
    {"e5m2", 5, 2, 15, 128, 0, true},
};

#define SMALLS (sizeof(smalls) / sizeof(*smalls))

static double value_of(const struct small *s, int code)
{
	const int exponent = code >> s->mantissa_bits;
	const int mantissa = code & ((1 << s->mantissa_bits) - 1);
	const double ones = ldexp(1, s->mantissa_bits);

	if (s->nan && (uint32_t)code == s->nan)
		return NAN;
	if (s->has_inf && exponent == (1 << s->exponent_bits) - 1)
		return mantissa ? NAN : INFINITY;
	return exponent ? ldexp(1 + mantissa / ones, exponent - s->bias)
			: ldexp(mantissa / ones, 1 - s->bias);
}

/* The bits of fp16 of a magnitude that it can represent. */
static uint32_t half_of(double size)
{
	int exponent;

	if (isinf(size))
		return 0x7C00;
	if (size < 0x1p-14)
		return (uint32_t)(size * 0x1p24);
	(void)frexp(size, &exponent);
	return (uint32_t)ldexp(size, 11 - exponent) - 0x400 +
	       ((uint32_t)(exponent + 14) << 10);
}

/* The code of the finite value nearest to a magnitude; of two the even one. */
static int nearest(const struct small *s, double size)
{
	int best = 0;

	/* Above the largest value of every format, so that differences are exact. */
	if (size > 0x1p17)
		size = 0x1p17;
	for (int c = 1; c < s->codes; c++) {
		const double v = value_of(s, c);
		const double here = fabs(size - v);
		const double there = fabs(size - value_of(s, best));

		if (isfinite(v) && (here < there || (here == there && c % 2 == 0)))
			best = c;
	}
	return best;
}

/* Floats of each kind: any magnitude, and neighbours of values and of midpoints. */
static float any_float(const struct small *s)
{
	const int c = (int)(emu_test_random() % (uint32_t)(s->codes - 1));
	const double v = value_of(s, c), next = value_of(s, c + 1);
	float x = (float)v;

	switch (emu_test_random() % 5) {
	case 0:
		x = (float)((v + next) / 2);
		break;
	case 1:
		x = nextafterf((float)((v + next) / 2), 0);
		break;
	case 2:
		x = nextafterf((float)((v + next) / 2), INFINITY);
		break;
	case 3:
		x = float_of_bits(emu_test_random());
		break;
	default:
		break;
	}
	if (isnan(x) || isinf(x))
		x = 1e30f;
	return emu_test_random() % 2 ? -x : x;
}

#define IN_OUT "mad.wide.u32 %d40, %tid, 8, %in;\nmad.wide.u32 %d41, %tid, 4, %out;\n"

/* cvt into e2m1x2 writes 8 bits. */
static const char *to_small(const struct small *s, const char *words)
{
	static char body[600];
	const bool is_byte = s->exponent_bits + s->mantissa_bits == 3;

	snprintf(body, sizeof(body),
		 "%sld.global.v2.f32 {%%f1, %%f2}, [%%d40];\n%s"
		 "cvt.rn.satfinite%s.%sx2.f32 %s, %%f2, %%f1;\n%s"
		 "st.global.u32 [%%d41], %%r1;\n%s",
		 IN_OUT, is_byte ? "{ .reg .b8 byte;\n" : "", words, s->name,
		 is_byte ? "byte" : "%h1",
		 is_byte ? "cvt.u32.u8 %r1, byte;\n" : "cvt.u32.u16 %r1, %h1;\n",
		 is_byte ? "}\n" : "");
	return body;
}

static uint32_t want_small(const struct small *s, float x, bool is_relu)
{
	const int sign = 1 << (s->exponent_bits + s->mantissa_bits);
	const int code = nearest(s, fabs((double)x));

	if (is_relu && x <= 0)
		return 0;
	return (uint32_t)(code | (signbit(x) ? sign : 0));
}

static void check_to_small(const struct small *s, bool is_relu)
{
	const int bits = s->exponent_bits + s->mantissa_bits == 3 ? 4 : 8;

	for (int round = 0; round < 40; round++) {
		float in[LANES][2];
		uint32_t out[LANES];

		for (int l = 0; l < LANES; l++) {
			in[l][0] = any_float(s);
			in[l][1] = any_float(s);
		}
		emu_must_run(to_small(s, is_relu ? ".relu" : ""),
			     &(struct emu_job){.in = in,
					       .in_bytes = sizeof(in),
					       .out = out,
					       .out_bytes = sizeof(out),
					       .target = "sm_100a"});
		for (int l = 0; l < LANES; l++) {
			const uint32_t want = want_small(s, in[l][0], is_relu) |
					      want_small(s, in[l][1], is_relu) << bits;

			if (out[l] != want)
				fail_msg("%s of %a and %a: %x, not %x", s->name,
					 (double)in[l][0], (double)in[l][1], out[l],
					 want);
		}
	}
}

static void test_to_small(void **state)
{
	for (size_t i = 0; i < SMALLS; i++) {
		check_to_small(&smalls[i], false);
		check_to_small(&smalls[i], true);
	}
}

/* All codes, with their sign, as the low element; 1.0's code is the high one.
 */
static void check_from_small(const struct small *s, bool is_relu)
{
	const int bits = s->exponent_bits + s->mantissa_bits == 3 ? 4 : 8;
	const uint32_t sign = 1u << (s->exponent_bits + s->mantissa_bits);
	const uint32_t one = (uint32_t)s->bias << s->mantissa_bits;
	char body[600];

	snprintf(body, sizeof(body),
		 "%sld.global.u32 %%r1, [%%d40];\n"
		 "cvt.u16.u32 %%h1, %%r1;\n%s"
		 "cvt.rn%s.f16x2.%sx2 %%r2, %s;\n%s"
		 "st.global.u32 [%%d41], %%r2;\n",
		 IN_OUT, bits == 4 ? "{ .reg .b8 byte; cvt.u8.u16 byte, %h1;\n" : "",
		 is_relu ? ".relu" : "", s->name, bits == 4 ? "byte" : "%h1",
		 bits == 4 ? "}\n" : "");
	for (uint32_t first = 0; first < 2 * sign; first += LANES) {
		uint32_t in[LANES][2] = {{0}}, out[LANES];

		for (uint32_t l = 0; l < LANES; l++)
			in[l][0] = one << bits | ((first + l) & (2 * sign - 1));
		emu_must_run(body, &(struct emu_job){.in = in,
						     .in_bytes = sizeof(in),
						     .out = out,
						     .out_bytes = sizeof(out),
						     .target = "sm_100a"});
		for (uint32_t l = 0; l < LANES; l++) {
			const uint32_t code = (first + l) & (2 * sign - 1);
			const double v = value_of(s, (int)(code & (sign - 1)));
			uint32_t want;

			if (isnan(v))
				want = 0x7FFF;
			else if (is_relu && code & sign)
				want = 0;
			else
				want = half_of(v) | (code & sign ? 0x8000 : 0);
			if (out[l] != (0x3C00u << 16 | want))
				fail_msg("%s code %x: %x, not 3c00%04x", s->name, code,
					 out[l], want);
		}
	}
}

static void test_from_small(void **state)
{
	for (size_t i = 0; i < SMALLS; i++) {
		check_from_small(&smalls[i], false);
		check_from_small(&smalls[i], true);
	}
}

/* ---- ue8m0 ----------------------------------------------------------------- */

/* The exponent by comparing with each power; 255: NaN. */
static uint32_t want_power(float x, bool is_up)
{
	const double size = fabs((double)x);
	uint32_t code = 0;

	if (isnan(x))
		return 255;
	while (code < 254 && ldexp(1, (int)code + 1 - 127) <= size)
		code++;
	if (is_up && code < 254 && ldexp(1, (int)code - 127) < size)
		code++;
	return code;
}

static void check_to_power(const char *word, bool is_up)
{
	char body[600];

	snprintf(body, sizeof(body),
		 "%sld.global.v2.f32 {%%f1, %%f2}, [%%d40];\n"
		 "cvt.%s.satfinite.ue8m0x2.f32 %%h1, %%f2, %%f1;\n"
		 "cvt.u32.u16 %%r1, %%h1;\n"
		 "st.global.u32 [%%d41], %%r1;\n",
		 IN_OUT, word);
	for (uint32_t exponent = 0; exponent < 256; exponent += 4) {
		float in[LANES][2];
		uint32_t out[LANES];

		for (uint32_t l = 0; l < LANES; l++) {
			const uint32_t bits = (exponent + l % 4) << 23 |
					      (l < 8	? l / 4
					       : l < 16 ? 0x7FFFFF
							: emu_test_random() >> 9);

			in[l][0] = float_of_bits(bits);
			in[l][1] = float_of_bits(bits | 0x80000000);
		}
		emu_must_run(body, &(struct emu_job){.in = in,
						     .in_bytes = sizeof(in),
						     .out = out,
						     .out_bytes = sizeof(out),
						     .target = "sm_100a"});
		for (uint32_t l = 0; l < LANES; l++) {
			const uint32_t want = want_power(in[l][0], is_up);

			if (out[l] != (want | want << 8))
				fail_msg("%s of %a: %x, not %x", word, (double)in[l][0],
					 out[l], want);
		}
	}
}

static void test_powers(void **state)
{
	uint32_t in[LANES][2] = {{0}}, out[LANES];

	check_to_power("rp", true);
	check_to_power("rz", false);
	for (uint32_t first = 0; first < 256; first += LANES) {
		for (uint32_t l = 0; l < LANES; l++)
			in[l][0] = (first + l) | 127 << 8;
		emu_must_run(IN_OUT "ld.global.u32 %r1, [%d40];\n"
				    "cvt.u16.u32 %h1, %r1;\n"
				    "cvt.rn.bf16x2.ue8m0x2 %r2, %h1;\n"
				    "st.global.u32 [%d41], %r2;\n",
			     &(struct emu_job){.in = in,
					       .in_bytes = sizeof(in),
					       .out = out,
					       .out_bytes = sizeof(out),
					       .target = "sm_100a"});
		for (uint32_t l = 0; l < LANES; l++) {
			const float v = ldexpf(1, (int)(first + l) - 127);
			const uint32_t want =
			    first + l == 255 ? 0x7FFF : bits_of_float(v) >> 16;

			assert_int_equal(out[l], want | 0x3F80u << 16);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_to_small),
	    cmocka_unit_test(test_from_small),
	    cmocka_unit_test(test_powers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
