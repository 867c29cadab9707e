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
	return gemv100_cut(m, n, k, batch, 0, false, B200_SMS);
}

static void cuts_fit(void **state)
{
	static const int64_t n[] = {1, 16, 129, 2112, 7168, 1 << 20};
	static const int64_t k[] = {0, 16, 2048, 7168, 16384, 1 << 20};

	for (int64_t m = 1; m <= NIB_GEMV100_MAX_ROWS; m++)
		for (int i = 0; i < 72; i++) {
			const int64_t batch = 1 + i / 36 * 7;
			const struct gemv100_cut cut = gemv100_cut(
			    m, n[i % 6], k[i / 6 % 6], batch, 0, i & 1, B200_SMS);
			const int64_t units = cut.tiles * batch;
			const int64_t groups =
			    NIB_GEMV100_WARPS(cut.m) >> cut.tile_warps_log2;

			assert_true(cut.m >= m && (cut.m < 2 * m || m == 1));
			assert_int_equal(cut.tiles, nib_gemv_tiles(n[i % 6], i & 1));
			assert_true(cut.shared_bytes <= SHARED_BYTES);
			assert_in_range(cut.ctas, 1, B200_SMS);
			/* As many rounds as on all multiprocessors. */
			assert_int_equal(divide_up(divide_up(units, cut.ctas), groups),
					 divide_up(units, groups * B200_SMS));
		}
}

/* A warp's steps go on from one phase to the next, whatever the kernel. */
static void phases_are_whole(void **state)
{
	for (int m = 2; m <= NIB_GEMV100_MAX_ROWS; m *= 2) {
		assert_int_equal(NIB_GEMV100_PHASE(m) %
				     (NIB_GEMV_STEP << NIB_GEMV100_TILE_WARPS_LOG2_MAX),
				 0);
		assert_true(nib_gemv100_kept(1 << 20, m) == NIB_GEMV100_PHASE(m));
		assert_int_equal(nib_gemv100_kept(16, m), NIB_GEMV_STEP);
		assert_int_equal(nib_gemv100_kept(0, m), 0);
	}
}

/* Neither rows nor batches nor MoE change the order of a sum. */
static void order_is_of_n_and_k(void **state)
{
	static const int64_t n[] = {16, 2368, 2369, 7168};
	static const int64_t k[] = {1024, 2032, 2048, 16384};

	for (int i = 0; i < 16; i++) {
		const int64_t ni = n[i % 4], ki = k[i / 4];
		const int log2 = ni <= 16 * B200_SMS && ki >= 2048 ? 3 : 2;

		for (int64_t m = 1; m <= NIB_GEMV100_MAX_ROWS; m++)
			for (int64_t batch = 1; batch < 100; batch += 33)
				assert_int_equal(
				    cut_of(m, ni, ki, batch).tile_warps_log2, log2);
		assert_int_equal(
		    gemv100_cut(0, ni, ki, 64, 64, false, B200_SMS).tile_warps_log2,
		    log2);
	}
}

/* The contest's shapes. */
static void known_cuts(void **state)
{
	/* 448 tiles for 592 groups of warps: one or none each. */
	assert_int_equal(cut_of(1, 7168, 16384, 1).ctas, B200_SMS);
	/* 2,048 and 1,792 tiles: four for every group. */
	assert_int_equal(cut_of(1, 4096, 7168, 8).ctas, 128);
	assert_int_equal(cut_of(1, 7168, 2048, 4).ctas, 112);
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
	/* Two rows need no kernel for more; the grid has space for all. */
	assert_int_equal(gemv100_cut(0, 64, 64, 8, 2, false, B200_SMS).m, 2);
	assert_int_equal(gemv100_cut(0, 64, 64, 8, 2, false, B200_SMS).ctas, 8);
	assert_int_equal(gemv100_cut(0, 64, 64, 8, 3, false, B200_SMS).m, 4);
	assert_int_equal(gemv100_cut(0, 9999, 64, 8, 16, false, B200_SMS).ctas,
			 B200_SMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cuts_fit),
	    cmocka_unit_test(phases_are_whole),
	    cmocka_unit_test(order_is_of_n_and_k),
	    cmocka_unit_test(known_cuts),
	    cmocka_unit_test(what_is_taken),
	    cmocka_unit_test(what_is_taken_of_moe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
