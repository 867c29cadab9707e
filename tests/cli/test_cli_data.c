/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cli_data.c - the random operands of the command: that "full" data has
 * every code and every finite scale, and nothing else.
 */
#include <math.h>

#include "cli/shared/data_fill.c"
#include "common/unit.h"
#include "format/half.h"

#define BYTES 16411 /* not a multiple of 8 */

static void count(const uint8_t *data, int seen[256])
{
	memset(seen, 0, 256 * sizeof(*seen));
	for (int i = 0; i < BYTES; i++)
		seen[data[i]]++;
	/* Not written after the end. */
	assert_int_equal(data[BYTES], 0xEE);
}

static void test_full(void **state)
{
	static uint8_t data[BYTES + 1] = {[BYTES] = 0xEE};
	uint64_t seed = 1;
	int seen[256];

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

	data_fill_floats(f32, NIB_DTYPE_FP32, COUNT, &seeds[0]);
	data_fill_floats(f16, NIB_DTYPE_FP16, COUNT, &seeds[1]);
	data_fill_floats(bf16, NIB_DTYPE_BF16, COUNT, &seeds[2]);
	for (int i = 0; i < COUNT; i++) {
		assert_true(fabsf(f32[i]) <= 128);
		assert_true(nib_fp16_to_fp32(f16[i]) == f32[i]);
		assert_true(nib_bf16_to_fp32(bf16[i]) == f32[i]);
		subnormal += f32[i] != 0 && fabsf(f32[i]) < 0x1p-8f;
	}
	for (int i = 0; i < COUNT; i += NIB_NVFP4_BLOCK) {
		float amax = 0;

		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			amax = fmaxf(amax, fabsf(f32[i + j]));
		zero_blocks += amax == 0;
	}
	assert_in_range(zero_blocks, 1, 30);
	assert_int_equal(subnormal, 0);
}

/* What float i of x is. */
static float x_at(const void *x, enum nib_dtype dtype, int i)
{
	const uint16_t *halves = x;

	if (dtype == NIB_DTYPE_FP32)
		return ((const float *)x)[i];
	return dtype == NIB_DTYPE_FP16 ? nib_fp16_to_fp32(halves[i])
				       : nib_bf16_to_fp32(halves[i]);
}

#define X_ROWS 600
#define X_COLS 160

static float x_data[X_ROWS * X_COLS + 1];

static void fill_x(enum nib_dtype dtype, enum data_fill fill, enum data_values values)
{
	const struct nib_dense x = {.data = x_data,
				    .dtype = dtype,
				    .rows = X_ROWS / 2,
				    .cols = X_COLS,
				    .batch = 2};
	const size_t bytes = X_ROWS * X_COLS * nib_dtype_bytes(dtype);
	uint64_t seed = 4;

	memset(x_data, 0xEE, sizeof(x_data));
	data_fill_x(&x, fill, values, &seed);
	for (size_t i = bytes; i < bytes + 4; i++)
		assert_int_equal(((uint8_t *)x_data)[i], 0xEE);
}

/* Counts of what wide values must have some of, and of rows. */
struct seen {
	int zero[2], subnormal, negative, zero_blocks, low_rows;
	int exponents; /* different ones of the largest of a row */
};

static struct seen look_at(enum nib_dtype dtype)
{
	const float top = ldexpf(1, data_top_exponent(dtype));
	const float least = dtype == NIB_DTYPE_FP16 ? 0x1p-14f : 0x1p-126f;
	uint8_t met[512] = {0};
	struct seen seen = {0};

	for (int r = 0; r < X_ROWS; r++) {
		float amax = 0, block = 0;

		for (int i = 0; i < X_COLS; i++) {
			float v = x_at(x_data, dtype, r * X_COLS + i);

			assert_true(fabsf(v) < top);
			block = i % NIB_NVFP4_BLOCK ? fmaxf(block, fabsf(v)) : fabsf(v);
			seen.zero_blocks +=
			    i % NIB_NVFP4_BLOCK == NIB_NVFP4_BLOCK - 1 && block == 0;
			seen.zero[signbit(v) != 0] += v == 0;
			seen.negative += v < 0;
			seen.subnormal += v != 0 && fabsf(v) < least;
			amax = fmaxf(amax, fabsf(v));
		}
		assert_true(amax > 0);
		seen.low_rows += amax < 16 * least;
		seen.exponents += !met[ilogbf(amax) + 256];
		met[ilogbf(amax) + 256] = 1;
	}
	return seen;
}

static void test_wide_activations(void **state)
{
	for (enum nib_dtype dtype = NIB_DTYPE_FP32; dtype <= NIB_DTYPE_BF16; dtype++) {
		struct seen seen;

		fill_x(dtype, DATA_FULL, DATA_WIDE);
		seen = look_at(dtype);
		assert_in_range(seen.zero[0], 2000, 12000);
		assert_in_range(seen.zero[1], 1000, 12000);
		assert_in_range(seen.negative, 35000, 48000);
		assert_in_range(seen.subnormal, 2000, 20000);
		assert_in_range(seen.zero_blocks, 200, 800);
		assert_in_range(seen.low_rows, 40, 120);
		assert_in_range(seen.exponents, 20, 40);
	}
	/* fp16 up to its largest numbers. */
	assert_int_equal(data_top_exponent(NIB_DTYPE_FP16), 16);
}

static void test_normal_activations(void **state)
{
	for (enum nib_dtype dtype = NIB_DTYPE_FP32; dtype <= NIB_DTYPE_BF16; dtype++) {
		double sum = 0, squares = 0;

		fill_x(dtype, DATA_FULL, DATA_NORMAL);
		for (int i = 0; i < X_ROWS * X_COLS; i++) {
			double v = (double)x_at(x_data, dtype, i);

			assert_true(fabs(v) < 3.5);
			sum += v;
			squares += v * v;
		}
		assert_true(fabs(sum) / (X_ROWS * X_COLS) < 0.02);
		assert_true(fabs(squares / (X_ROWS * X_COLS) - 1) < 0.03);
	}
}

static void test_contest_activations(void **state)
{
	for (enum nib_dtype dtype = NIB_DTYPE_FP32; dtype <= NIB_DTYPE_BF16; dtype++) {
		int seen[13] = {0};

		fill_x(dtype, DATA_CONTEST, DATA_WIDE);
		for (int i = 0; i < X_ROWS * X_COLS; i++) {
			float twice = 2 * x_at(x_data, dtype, i);

			assert_true(fabsf(twice) <= 6 && twice == rintf(twice));
			seen[(int)twice + 6]++;
		}
		for (int i = -6; i <= 6; i++)
			assert_int_equal(seen[i + 6] > 0, i != 5 && i != -5);
	}
}

static void test_the_seed_decides(void **state)
{
	uint8_t a[64], b[64], c[64];
	uint64_t seeds[] = {5, 5, 6};

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
	    cmocka_unit_test(test_wide_activations),
	    cmocka_unit_test(test_normal_activations),
	    cmocka_unit_test(test_contest_activations),
	    cmocka_unit_test(test_the_seed_decides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
