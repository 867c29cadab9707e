/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_gemv100.c - the partition of products of few rows for a B200: the arguments
 * of the kernels, the order of their sums, the number of CTAs, and their resources.
 */
#include "backend/cuda/sm100/gemv.h"
#include "common/unit.h"

#define SHARED_BYTES 232448
#define B200_SMS     148

static struct gemv100_cut cut_of(int64_t m, int64_t n, int64_t k, int64_t batch)
{
	const struct gemv100_sizes sizes = {n, k, batch, false};

	return gemv100_cut_of(gemv100_kernel_m(m, false), &sizes, B200_SMS);
}

static void cuts_fit(void **state)
{
	static const int64_t n[] = {1, 16, 129, 2112, 7168, 1 << 20};
	static const int64_t k[] = {0, 16, 2048, 7168, 16384, 1 << 20};

	for (int64_t m = 1; m <= NIB_GEMV100_MAX_ROWS; m++)
		for (int i = 0; i < 72; i++) {
			const struct gemv100_sizes sizes = {n[i % 6], k[i / 6 % 6],
							    1 + i / 36 * 7, i & 1};
			const struct gemv100_cut cut = gemv100_cut_of(
			    gemv100_kernel_m(m, false), &sizes, B200_SMS);

			assert_true(cut.m >= m && (cut.m < 2 * m || m == 1));
			assert_int_equal(cut.tiles, nib_gemv_tiles(n[i % 6], i & 1));
			assert_true(cut.shared_bytes <= SHARED_BYTES);
			assert_in_range(cut.ctas, 1, B200_SMS);
			/* All CTAs have work, all units a CTA. */
			assert_true(cut.share >= 1);
			assert_int_equal(cut.ctas * cut.share + cut.rest,
					 cut.tiles * sizes.items);
			assert_in_range(cut.slots, 1, NIB_GEMV100_SLOTS);
			assert_true(1 << cut.unit_warps_log2 <=
				    NIB_GEMV100_WARPS(cut.m));
		}
}

/* The warps of a group have a range each, and windows consist of whole ranges. */
static void ranges_are_whole(void **state)
{
	for (int m = 2; m <= NIB_GEMV100_MAX_ROWS; m *= 2) {
		assert_int_equal(NIB_GEMV100_WINDOW(m) % NIB_GEMV100_RANGE, 0);
		assert_int_equal(nib_gemv100_window_steps(1 << 20, m),
				 NIB_GEMV100_WINDOW(m));
		assert_int_equal(nib_gemv100_window_steps(1, m), 1);
		assert_int_equal(nib_gemv100_window_steps(0, m), 0);
		for (int units = 1; units < 100; units++)
			for (int steps = 1; steps < 100; steps++)
				assert_true(1 << nib_gemv100_unit_warps_log2(
						(uint32_t)units, steps, m) <=
					    (steps + 1) / NIB_GEMV100_RANGE);
		assert_int_equal(nib_gemv100_unit_warps_log2(1, 0, m), 0);
	}
}

/* The contest's shapes: all multiprocessors, all units at once. */
static void known_cuts(void **state)
{
	struct gemv100_cut cut = cut_of(1, 7168, 16384, 1);

	assert_int_equal(cut.ctas, B200_SMS);
	assert_int_equal(cut.unit_warps_log2, 2);
	cut = cut_of(1, 4096, 7168, 8);
	assert_int_equal(cut.ctas, B200_SMS);
	assert_int_equal(cut.share, 13);
	assert_int_equal(cut.unit_warps_log2, 0);
	assert_int_equal(cut.slots, 2);
	cut = cut_of(1, 7168, 2048, 4);
	assert_int_equal(cut.share, 12);
	assert_int_equal(cut.rest, 16);
	assert_int_equal(cut.unit_warps_log2, 0);
	assert_int_equal(cut_of(1, 1, 16, 1).ctas, 1);
}

static bool takes(enum nib_op op, int64_t m, int64_t n, int64_t batch)
{
	const struct nib_problem p = {
	    .a = {.rows = m, .k = 64, .batch = batch},
	    .b = {.rows = n, .k = 64, .batch = 1},
	};

	return gemv100_takes(op, &p);
}

static void what_is_taken(void **state)
{
	assert_false(takes(NIB_OP_GEMM, 0, 16, 1));
	assert_true(takes(NIB_OP_GEMM, 1, 16, 1));
	assert_true(takes(NIB_OP_GEMM, 8, 16, 1));
	assert_false(takes(NIB_OP_GEMM, 9, 16, 1));
	assert_true(takes(NIB_OP_GEMV, 1, 16, 65536));
	assert_false(takes(NIB_OP_DUAL_GEMM, 1, 16, 1));
	assert_false(takes(NIB_OP_GEMM, 1, 0, 1));
	/* Tiles of all matrices have a number of 31 bits. */
	assert_true(takes(NIB_OP_GEMM, 1, INT32_MAX - 128, 1));
	assert_false(takes(NIB_OP_GEMM, 1, INT32_MAX - 127, 1));
	assert_true(takes(NIB_OP_GEMM, 1, 128, (INT32_MAX / 8) - 2));
	assert_false(takes(NIB_OP_GEMM, 1, 128, (INT32_MAX / 8) - 1));
}

static bool takes_moe(enum nib_op op, int64_t rows, int64_t experts)
{
	const struct nib_moe_problem moe = {
	    .problem.a = {.rows = rows, .k = 64, .batch = 1},
	    .problem.b = {.rows = 16, .k = 64, .batch = experts},
	};

	return gemv100_takes_moe(op, &moe);
}

static void what_is_taken_of_moe(void **state)
{
	assert_false(takes_moe(NIB_OP_GEMM, 0, 8));
	assert_true(takes_moe(NIB_OP_GEMM, 4, 1));
	assert_false(takes_moe(NIB_OP_GEMM, 5, 1));
	assert_true(takes_moe(NIB_OP_GEMM, 64, 64));
	assert_false(takes_moe(NIB_OP_GEMM, 65, 64));
	assert_true(takes_moe(NIB_OP_GEMM, NIB_GEMV100_ITEMS, 1024));
	assert_false(takes_moe(NIB_OP_GEMM, NIB_GEMV100_ITEMS + 1, 1024));
	assert_false(takes_moe(NIB_OP_DUAL_GEMM, 4, 32));
	/* Two rows need no kernel for more. */
	assert_int_equal(gemv100_kernel_m(2, true), 2);
	assert_int_equal(gemv100_kernel_m(3, true), 4);
	assert_int_equal(gemv100_kernel_m(64, true), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cuts_fit),
	    cmocka_unit_test(ranges_are_whole),
	    cmocka_unit_test(known_cuts),
	    cmocka_unit_test(what_is_taken),
	    cmocka_unit_test(what_is_taken_of_moe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
