/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cli_data.c - the random operands of the command: that "full" data has
 * every code and every finite scale, and nothing else.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/data_fill.c"
#include "format/half.h"

#define BYTES 16411 /* no multiple of 8 */

static void count(const uint8_t *data, int seen[256])
{
	memset(seen, 0, 256 * sizeof(*seen));
	for (int i = 0; i < BYTES; i++)
		seen[data[i]]++;
	/* Not written behind the end. */
	assert_int_equal(data[BYTES], 0xEE);
}

static void test_full(void **state)
{
	static uint8_t data[BYTES + 1] = {[BYTES] = 0xEE};
	uint64_t seed = 1;
	int seen[256];

	(void)state;
	data_fill_codes(data, BYTES, DATA_FULL, &seed);
	count(data, seen);
	for (int i = 0; i < 256; i++)
		assert_in_range(seen[i], 20, 130);
	data_fill_scales(data, BYTES, DATA_FULL, &seed);
	count(data, seen);
	for (int i = 0; i < 256; i++)
		assert_in_range(seen[i], i < 127 ? 40 : 0, i < 127 ? 350 : 0);
}

static void test_contest(void **state)
{
	static uint8_t data[BYTES + 1] = {[BYTES] = 0xEE};
	uint64_t seed = 2;
	int seen[256];

	(void)state;
	data_fill_codes(data, BYTES, DATA_CONTEST, &seed);
	count(data, seen);
	for (int i = 0; i < 256; i++)
		assert_int_equal(seen[i] > 0, !(i & 0x44));
	data_fill_scales(data, BYTES, DATA_CONTEST, &seed);
	count(data, seen);
	assert_int_equal(seen[0x38] + seen[0x40], BYTES);
	assert_in_range(seen[0x38], BYTES / 3, 2 * BYTES / 3);
}

static void test_floats_are_the_same_in_every_type(void **state)
{
	enum { COUNT = 8192 };
	static float f32[COUNT];
	static uint16_t f16[COUNT], bf16[COUNT];
	uint64_t seeds[] = {3, 3, 3};
	int zero_blocks = 0, subnormal = 0;

	(void)state;
	data_fill_floats(f32, NIB_FP32, COUNT, &seeds[0]);
	data_fill_floats(f16, NIB_FP16, COUNT, &seeds[1]);
	data_fill_floats(bf16, NIB_BF16, COUNT, &seeds[2]);
	for (int i = 0; i < COUNT; i++) {
		assert_true(fabsf(f32[i]) <= 128);
		assert_true(nib_fp16_to_fp32(f16[i]) == f32[i]);
		assert_true(nib_bf16_to_fp32(bf16[i]) == f32[i]);
		subnormal += f32[i] != 0 && fabsf(f32[i]) < 0x1p-8f;
	}
	for (int i = 0; i < COUNT; i += NIB_BLOCK) {
		float amax = 0;

		for (int j = 0; j < NIB_BLOCK; j++)
			amax = fmaxf(amax, fabsf(f32[i + j]));
		zero_blocks += amax == 0;
	}
	assert_in_range(zero_blocks, 1, 30);
	assert_int_equal(subnormal, 0);
}

static void test_the_seed_decides(void **state)
{
	uint8_t a[64], b[64], c[64];
	uint64_t seeds[] = {5, 5, 6};

	(void)state;
	data_fill_codes(a, 64, DATA_FULL, &seeds[0]);
	data_fill_codes(b, 64, DATA_FULL, &seeds[1]);
	data_fill_codes(c, 64, DATA_FULL, &seeds[2]);
	assert_memory_equal(a, b, 64);
	assert_memory_not_equal(a, c, 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_full),
	    cmocka_unit_test(test_contest),
	    cmocka_unit_test(test_floats_are_the_same_in_every_type),
	    cmocka_unit_test(test_the_seed_decides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
