/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_int8.c - the rounding of A to 8 bits: compares the scale and codes with their
 * definition, which is a search here, and with fp32 arithmetic.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/data.h"
#include "common/float_mode.h"
#include "common/unit.h"
#include "format/int8.h"

static struct rng rng;

/* ---- the definition ----------------------------------------------------- */

/* Products of scales and integers of 8 bits are exact in a double. */
static double slow_scale(double amax)
{
	for (int e = -100;; e++)
		for (int t = 0; t < 8; t++)
			if (127 * ldexp(8 + t, e - 3) >= amax)
				return ldexp(8 + t, e - 3);
}

/* Is code the integer nearest to x / scale, ties to even? */
static bool is_nearest(double x, double scale, int code)
{
	const double low = (2 * code - 1) * scale;
	const double high = (2 * code + 1) * scale;

	if (code % 2)
		return low < 2 * x && 2 * x < high;
	return low <= 2 * x && 2 * x <= high;
}

static float random_of_exponent(int exponent)
{
	const uint32_t bits = (uint32_t)rng_next(&rng);

	return nib_fp32_from_bits((bits & 0x807FFFFF) | (uint32_t)(exponent + 127)
							    << 23);
}

static void block_is_right(const float *x)
{
	int8_t codes[NIB_NVFP4_BLOCK];
	const float scale = nib_int8_block(codes, x);
	double amax = 0;

	/* Not fmax(), for which gcc 12 for aarch64 has an internal error. */
	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		if (fabs((double)x[i]) > amax)
			amax = fabs((double)x[i]);
	if ((double)scale != slow_scale(amax))
		fail_msg("amax %a: scale is %a, not %a", amax, (double)scale,
			 slow_scale(amax));
	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		if (!is_nearest((double)x[i], (double)scale, codes[i]))
			fail_msg("%a / %a is not %d", (double)x[i], (double)scale,
				 codes[i]);
}

/* ---- tests -------------------------------------------------------------- */

static void blocks_of_every_size_are_right(void **state)
{
	float x[NIB_NVFP4_BLOCK];

	for (int exponent = -127; exponent < 128; exponent++) {
		for (int i = 0; i < 200; i++) {
			for (int j = 0; j < NIB_NVFP4_BLOCK; j++) {
				int less = (int)rng_below(&rng, 12);

				if (exponent - less < -127)
					less = 0;
				x[j] = random_of_exponent(exponent - less);
			}
			block_is_right(x);
		}
	}
	for (int i = 0; i < 100000; i++) {
		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			x[j] = random_of_exponent((int)rng_below(&rng, 255) - 127);
		block_is_right(x);
	}
}

/* Tests every mantissa, because the scale changes at only 8 of the 2^23. */
static void every_amax_has_its_scale(void **state)
{
	const uint32_t step = test_is_small() ? 61 : 1;
	float last = (float)slow_scale(1);

	for (uint32_t bits = 0x3F800000; bits <= 0x40000000; bits += step) {
		const float amax = nib_fp32_from_bits(bits);
		const float scale = nib_int8_scale(amax);

		if (scale == last && 127 * (double)last >= (double)amax)
			continue;
		if ((double)scale != slow_scale((double)amax))
			fail_msg("amax %a: scale is %a", (double)amax, (double)scale);
		last = scale;
	}
	assert_true(nib_int8_scale(0) == 0x1p-100f);
	assert_true(nib_int8_scale(0x1p-149f) == 0x1p-100f);
	assert_true(nib_int8_scale(0x1.FCp-94f) == 0x1p-100f);
	assert_true(nib_int8_scale(0x1.FC0002p-94f) == 0x1.2p-100f);
	assert_true(nib_int8_scale(127) == 1);
	assert_true(nib_int8_scale(nextafterf(127, 128)) == 1.125f);
	assert_true(nib_int8_scale(FLT_MAX) == 0x1.2p121f);
}

/* (n + 1/2) * scale and its two neighbours, for every n and fraction of a scale. */
static void ties_go_to_even(void **state)
{
	static const int exponents[] = {-100, -99, -23, 0, 5, 120};

	for (int i = 0; i < 6 * 8 * 127; i++) {
		const int e = exponents[i / 127 / 8], t = i / 127 % 8;
		const float scale = ldexpf((float)(8 + t), e - 3);
		const int n = i % 127, even = n + n % 2;
		const float tie = scale * ((float)n + 0.5f);
		const float above = nextafterf(tie, INFINITY);
		const float below = nextafterf(tie, 0);

		assert_int_equal(nib_int8_code(tie, scale), even);
		assert_int_equal(nib_int8_code(-tie, scale), -even);
		assert_int_equal(nib_int8_code(above, scale), n + 1);
		assert_int_equal(nib_int8_code(-below, scale), -n);
		/* Division in fp32 rounds to the same code. */
		assert_true(nearbyintf(tie / scale) == (float)even);
		assert_true(nearbyintf(above / scale) == (float)(n + 1));
		assert_true(nearbyintf(below / scale) == (float)n);
	}
}

/* Divides values from 64 to 127 by scales of every fraction. */
static void quotients_of_fp32_round_alike(void **state)
{
	const uint32_t step = test_is_small() ? 997 : 7;

	for (uint32_t bits = 0x42800000; bits <= 0x42FE0000; bits += step) {
		const int t = (int)(bits % 8);
		const float scale = 1 + (float)t * 0.125f;
		const float x = nib_fp32_from_bits(bits);

		if (nib_int8_code(x, scale) != (int)nearbyintf(x / scale))
			fail_msg("%a / %a", (double)x, (double)scale);
	}
}

static void inf_and_nan_are_nan(void **state)
{
	static const uint32_t bad[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF,
				       0x7F800001};
	int8_t codes[NIB_NVFP4_BLOCK];
	float x[NIB_NVFP4_BLOCK];

	for (int i = 0; i < 5 * NIB_NVFP4_BLOCK; i++) {
		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			x[j] = (float)j;
		x[i % NIB_NVFP4_BLOCK] = nib_fp32_from_bits(bad[i / NIB_NVFP4_BLOCK]);
		memset(codes, 1, sizeof(codes));
		assert_true(isnan(nib_int8_block(codes, x)));
		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			assert_int_equal(codes[j], 0);
	}
}

static void float_modes_change_nothing(void **state)
{
	static const int modes[] = {MODE_DOWN, MODE_UP, MODE_ZERO, MODE_FLUSH};

	for (int i = 0; i < 4000; i++) {
		int8_t want[NIB_NVFP4_BLOCK], got[NIB_NVFP4_BLOCK];
		float x[NIB_NVFP4_BLOCK], scale, again;

		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			x[j] = random_of_exponent(-127 + i % 254 +
						  (int)rng_below(&rng, 2));
		scale = nib_int8_block(want, x);
		test_mode_set(modes[i % 4]);
		again = nib_int8_block(got, x);
		test_mode_set(0);
		assert_true(scale == again);
		assert_memory_equal(want, got, sizeof(got));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(blocks_of_every_size_are_right),
	    cmocka_unit_test(every_amax_has_its_scale),
	    cmocka_unit_test(ties_go_to_even),
	    cmocka_unit_test(quotients_of_fp32_round_alike),
	    cmocka_unit_test(inf_and_nan_are_nan),
	    cmocka_unit_test(float_modes_change_nothing),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
