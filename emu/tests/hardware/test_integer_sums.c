/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_integer_sums.c - compares sums of kind::i8 with plain C in 64 bits, also at
 * both ends of the 32-bit range.
 */
#include "common/data.h"
#include "common/unit.h"
#include "hardware/integer_sums.h"

#define M 5
#define N 7
#define K EMU_INTEGER_K

static uint8_t a_bytes[M][K], b_bytes[N][K];
static uint32_t c[M * N], d[M * N];

static int64_t plainly(int m, int n, bool a_signed, bool b_signed)
{
	int64_t sum = (int32_t)c[m * N + n];

	for (int k = 0; k < K; k++) {
		const int x = a_signed ? (int8_t)a_bytes[m][k] : a_bytes[m][k];
		const int y = b_signed ? (int8_t)b_bytes[n][k] : b_bytes[n][k];

		sum += x * y;
	}
	return sum;
}

static void check(bool a_signed, bool b_signed, bool saturates, int *over)
{
	const struct emu_integer_operand a = {M, a_signed,
					      (const uint8_t(*)[EMU_INTEGER_K])a_bytes};
	const struct emu_integer_operand b = {N, b_signed,
					      (const uint8_t(*)[EMU_INTEGER_K])b_bytes};

	emu_integer_sums(&a, &b, saturates, c, d);
	for (int m = 0; m < M; m++)
		for (int n = 0; n < N; n++) {
			const int64_t exact = plainly(m, n, a_signed, b_signed);
			int64_t want = exact;

			if (saturates && exact > INT32_MAX)
				want = INT32_MAX;
			if (saturates && exact < INT32_MIN)
				want = INT32_MIN;
			*over += (int32_t)exact != exact;
			if (d[m * N + n] != (uint32_t)want)
				fail_msg("row %d, column %d: %08x, not %08x", m, n,
					 d[m * N + n], (uint32_t)want);
		}
}

static void test_sums(void **state)
{
	struct rng rng = rng_new(test_seed());
	int over = 0;

	for (int round = 0; round < 800; round++) {
		rng_fill(&rng, a_bytes, sizeof(a_bytes));
		rng_fill(&rng, b_bytes, sizeof(b_bytes));
		for (int i = 0; i < M * N; i++) {
			const uint32_t near = (uint32_t)rng_below(&rng, 400000);

			c[i] = round % 3 == 0	? (uint32_t)rng_next(&rng)
			       : round % 3 == 1 ? 0x7FFFFFFF - near
						: 0x80000000 + near;
		}
		check(round & 1, round & 2, round & 4, &over);
	}
	assert_in_range(over, 1000, 20000);
}

static void test_ends(void **state)
{
	int over = 0;

	for (int i = 0; i < M * K; i++)
		a_bytes[i / K][i % K] = 0x80;
	for (int i = 0; i < N * K; i++)
		b_bytes[i / K][i % K] = 0xFF;
	for (int i = 0; i < M * N; i++)
		c[i] = 0x80000000;
	for (int i = 0; i < 8; i++)
		check(i & 1, i & 2, i & 4, &over);
	assert_int_equal(over, 4 * M * N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums),
					   cmocka_unit_test(test_ends)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
