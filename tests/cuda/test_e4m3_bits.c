/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_e4m3_bits.c - the conversions of e4m3 for GPUs before sm_89, on the CPU: every
 * code, and floats at and next to every boundary, and random ones.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/unit.h"
#include "format/e4m3.h"
#include "format/half.h"

/* ---- what the header needs of CUDA --------------------------------------- */

#define __device__
#define __forceinline__ inline

static uint32_t __float_as_uint(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static float __uint_as_float(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static int __float2int_rn(float x)
{
	return (int)rintf(x);
}

static uint32_t min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

#include "backend/cuda/kernels/common/e4m3_bits.cuh"

static uint32_t mul_f16x2(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (int i = 0; i < 32; i += 16) {
		const float x = nib_fp16_to_fp32((uint16_t)(a >> i)) *
				nib_fp16_to_fp32((uint16_t)(b >> i));

		product |= (uint32_t)nib_fp32_to_fp16(x) << i;
	}
	return product;
}

/* ---- tests --------------------------------------------------------------- */

static void test_every_pair(void **state)
{
	(void)state;
	for (uint32_t pair = 0; pair < 65536; pair++) {
		/* The high byte of each half has no effect. */
		const uint32_t x = (pair & 0xFF) | pair >> 8 << 16 | 0xA500A500u;
		const uint32_t halves = halves_of_e4m3(x);

		for (int i = 0; i < 2; i++) {
			const uint8_t code = (uint8_t)(pair >> 8 * i);
			const uint16_t half = (uint16_t)(halves >> 16 * i);

			if (nib_e4m3_is_nan(code))
				assert_int_equal(half, 0x7FFF);
			else
				assert_int_equal(
				    half, nib_fp32_to_fp16(nib_e4m3_to_float(code)));
		}
	}
}

/* The code of x, by comparison with all values. */
static uint32_t nearest(float x)
{
	const double size = fabs((double)x);
	uint32_t code = 0;

	if (isnan(x))
		return 0x7F;
	while (code < 0x7E) {
		const double low = (double)nib_e4m3_to_float((uint8_t)code);
		const double high = (double)nib_e4m3_to_float((uint8_t)(code + 1));
		const double middle = (low + high) / 2;

		if (size < middle || (size == middle && code % 2 == 0))
			break;
		code++;
	}
	return code | (signbit(x) ? 0x80 : 0);
}

static void check(float x)
{
	assert_int_equal(e4m3_of_f32(x), nearest(x));
	assert_int_equal(e4m3_of_f32(-x), nearest(-x));
}

static void test_boundaries(void **state)
{
	(void)state;
	for (uint32_t code = 0; code < 0x7E; code++) {
		const float low = nib_e4m3_to_float((uint8_t)code);
		const float middle = (low + nib_e4m3_to_float((uint8_t)(code + 1))) / 2;

		check(low);
		check(nextafterf(low, 1000));
		check(nextafterf(low, 0));
		check(middle);
		check(nextafterf(middle, 0));
		check(nextafterf(middle, 1000));
	}
	check(448);
	check(464);
	check(480);
	check(1e30F);
	check(INFINITY);
	check(0);
	check(1e-45F);
	assert_int_equal(e4m3_of_f32(NAN), 0x7F);
	assert_int_equal(e4m3_of_f32(-NAN), 0x7F);
}

static void test_random(void **state)
{
	uint32_t bits = 1;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		bits = bits * 1664525 + 1013904223;
		/* Half of them from 2^-12 to 2^12. */
		check(__uint_as_float(i % 2 ? bits : bits % 0x0C000000 + 0x39800000));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_pair),
	    cmocka_unit_test(test_boundaries),
	    cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
