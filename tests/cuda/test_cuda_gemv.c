/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_gemv.c - the partition of products of few rows for a GPU: every row is in
 * exactly one tile, every tile in one CTA, and a CTA gets its memory.
 */
#include <stdlib.h>

#include "backend/cuda/common/mma.h"
#include "backend/cuda/common/mma_warps.h"
#include "backend/cuda/common/operand.h"
#include "backend/cuda/common/vector.h"
#include "backend/cuda/kernels/common/mma_params.h"
#include "backend/cuda/sm90/choose.h"
#include "backend/cuda/sm90/gemm.h"
#include "backend/cuda/sm90/skinny.h"
#include "backend/cuda/sm90/wide.h"
#include "common/unit.h"

#define SHARED_BYTES 232448
#define H200_SMS     132

static void each_row_once(void **state)
{
	static const int64_t n[] = {1, 15, 16, 17, 127, 128, 129, 300, 4096};

	for (size_t i = 0; i < sizeof(n) / sizeof(*n); i++) {
		for (int tiled = 0; tiled < 2; tiled++) {
			unsigned char *seen = test_calloc((size_t)n[i], 1);

			for (int64_t t = 0; t < nib_gemv_tiles(n[i], tiled); t++) {
				for (int r = 0; r < NIB_GEMV_TILE_ROWS; r++) {
					const int64_t row = nib_gemv_row(t, r, tiled);

					assert_true(row >= 0);
					if (row < n[i])
						seen[row]++;
				}
			}
			for (int64_t r = 0; r < n[i]; r++)
				assert_int_equal(seen[r], 1);
			test_free(seen);
		}
	}
}

static void check_cut(int64_t m, int64_t n, int64_t k, int64_t batch, bool dense,
		      bool tiled)
{
	const struct vector_cut cut =
	    vector_cut(m, n, k, batch, dense, tiled, H200_SMS, SHARED_BYTES);

	assert_true(cut.m >= m && (cut.m < 2 * m || dense));
	assert_int_equal(cut.tiles, nib_gemv_tiles(n, tiled));
	assert_in_range(cut.tiles_per_cta, 1, NIB_GEMV_MAX_TILES);
	assert_true(cut.ctas * cut.tiles_per_cta >= cut.tiles);
	assert_true((cut.ctas - 1) * cut.tiles_per_cta < cut.tiles);
	assert_true(cut.shared_bytes <= SHARED_BYTES);
	/* The variant for any alignment has M = 4, and as many rows. */
	assert_in_range(cut.any_shared_bytes, cut.shared_bytes, SHARED_BYTES);
	if (!dense)
		assert_int_equal(
		    cut.any_shared_bytes,
		    nib_gemv_shared_bytes(k, m == 1 ? 1 : 4, cut.tiles_per_cta));
	else
		assert_int_equal(
		    cut.any_shared_bytes,
		    nib_gemv_dense_shared_bytes(k, (int)m, 4, cut.tiles_per_cta));
	/* More than the GPU holds at once only if a CTA has all it may. */
	assert_true(cut.ctas * batch <= NIB_GEMV_CTAS * H200_SMS ||
		    cut.tiles_per_cta == NIB_GEMV_MAX_TILES);
}

static void check_skinny(int64_t m, int64_t n, int64_t k, int64_t batch, bool tiled)
{
	const struct skinny_cut cut = skinny_cut(m, n, k, batch, tiled, H200_SMS);
	const int64_t most = (cut.tiles + cut.ctas - 1) / cut.ctas;
	int64_t rounds;

	assert_int_equal(cut.eights, m <= 8 ? 1 : 2);
	assert_int_equal(cut.tiles, nib_gemv_tiles(n, tiled));
	assert_in_range(cut.ctas, 1, H200_SMS);
	assert_in_range(cut.ctas, 1, cut.tiles);
	assert_in_range((cut.tiles_at_once + cut.half_tiles) * cut.k_groups, 1,
			NIB_SKINNY_WARPS);
	/* Half tiles fill the schedulers: as many warps on each. */
	assert_in_range(cut.half_tiles, 0, cut.eights == 1 ? 2 : 0);
	if (cut.half_tiles) {
		assert_int_equal(cut.half_tiles * cut.k_groups, 2);
		assert_int_equal(
		    (cut.tiles_at_once + cut.half_tiles) * cut.k_groups % 4, 0);
	}
	/* Every group has steps, and its chunk of A. */
	assert_in_range(cut.k_groups, 1, k > 256 ? (k + 255) / 256 : 1);
	assert_int_equal(NIB_SKINNY_CHUNKS(cut.eights) % cut.k_groups, 0);
	/* Equal rounds. */
	rounds = (most + NIB_SKINNY_WARPS / cut.k_groups - 1) /
		 (NIB_SKINNY_WARPS / cut.k_groups);
	assert_int_equal(cut.tiles_at_once, (most + rounds - 1) / rounds);
	assert_true(nib_skinny_shared_bytes(cut.eights, true) <= SHARED_BYTES);
	/* The order of sums. */
	assert_int_equal(cut.k_groups,
			 skinny_cut(m, n, k, 1, !tiled, H200_SMS).k_groups);
}

static void skinny_cuts_fit(void **state)
{
	static const int64_t n[] = {1, 16, 129, 2112, 2113, 28672, 1 << 20};
	static const int64_t k[] = {0, 16, 256, 272, 2048, 8192, 1 << 20};
	const struct skinny_cut wide = skinny_cut(8, 28672, 8192, 1, true, H200_SMS);
	const struct skinny_cut narrow = skinny_cut(16, 4096, 4096, 1, false, H200_SMS);
	/* One tile for each multiprocessor, and four more to fill the scale tiles. */
	const struct skinny_cut full = skinny_cut(8, 2112, 4096, 1, true, H200_SMS);

	for (int64_t m = 3; m <= NIB_SKINNY_MAX_ROWS; m++)
		for (int i = 0; i < 196; i++)
			check_skinny(m, n[i % 7], k[i / 7 % 7],
				     i < 98 ? 1 : 1 + i * 7 % 300, i & 1);
	assert_int_equal(wide.tiles_at_once, 14);
	assert_int_equal(wide.k_groups, 1);
	assert_int_equal(wide.half_tiles, 2);
	assert_int_equal(narrow.tiles_at_once, 2);
	assert_int_equal(narrow.k_groups, 6);
	assert_int_equal(narrow.half_tiles, 0);
	assert_int_equal(narrow.ctas, H200_SMS);
	assert_int_equal(full.tiles, 136);
	assert_int_equal(full.k_groups, 16);
}

static void check_wide(int64_t m, int64_t n, int64_t k, bool tiled)
{
	const struct wide_cut cut = wide_cut(m, n, k, tiled, H200_SMS);
	const struct wide_cut other = wide_cut(m, n, k, !tiled, H200_SMS);
	const int64_t units = (cut.tiles + 3) / 4;
	const int64_t at_once = cut.tiles_at_once / 4;

	assert_int_equal(cut.eights, m <= 32 ? 4 : 8);
	assert_int_equal(cut.tiles, nib_gemv_tiles(n, tiled));
	/* All warps have a tile, if the cluster has all its units. */
	assert_int_equal(cut.tiles_at_once * cut.k_groups, NIB_SKINNY_WARPS);
	assert_int_equal(cut.tiles_at_once % 4, 0);
	assert_int_equal(NIB_WIDE_CHUNKS(cut.eights) % cut.k_groups, 0);
	/* Every slice has a step; each unit a cluster. */
	assert_in_range(cut.k_slices, 1, k > 256 ? (k + 255) / 256 : 1);
	assert_int_equal(cut.ctas, (units + at_once - 1) / at_once * cut.k_slices);
	assert_true(cut.k_slices == 1 || cut.ctas <= H200_SMS + 4);
	/* What the other CTAs of the cluster send. */
	assert_true((cut.k_slices - 1) * cut.tiles_at_once * 8 * cut.eights /
			cut.k_slices * NIB_GEMV_TILE_ROWS * 4 <=
		    NIB_WIDE_EXCHANGE_BYTES);
	assert_true(nib_wide_shared_bytes(cut.eights) <= SHARED_BYTES);
	/* The order of sums. */
	assert_int_equal(cut.k_groups, other.k_groups);
	assert_int_equal(cut.k_slices, other.k_slices);
}

static void wide_cuts_fit(void **state)
{
	static const int64_t n[] = {1, 64, 129, 2112, 4096, 7168, 1 << 20};
	static const int64_t k[] = {0, 16, 256, 272, 2048, 4096, 8192};
	const struct wide_cut square = wide_cut(64, 4096, 4096, true, H200_SMS);
	const struct wide_cut flat = wide_cut(32, 7168, 2048, false, H200_SMS);

	for (int64_t m = 17; m <= NIB_WIDE_MAX_ROWS; m++)
		for (int i = 0; i < 98; i++)
			check_wide(m, n[i % 7], k[i / 7 % 7], i & 1);
	assert_int_equal(square.tiles_at_once, 4);
	assert_int_equal(square.k_groups, 4);
	assert_int_equal(square.k_slices, 2);
	assert_int_equal(square.ctas, 128);
	assert_int_equal(flat.tiles_at_once, 8);
	assert_int_equal(flat.k_groups, 2);
	assert_int_equal(flat.k_slices, 2);
	assert_int_equal(flat.ctas, 112);
}

static void cuts_fit(void **state)
{
	static const int64_t n[] = {1, 16, 129, 2112, 7168, 1 << 20};
	static const int64_t k[] = {0, 16, 2048, 7168, 16384, 1 << 20};

	for (int64_t m = 1; m <= NIB_GEMV_MAX_ROWS; m++)
		for (int i = 0; i < 144; i++)
			check_cut(m, n[i % 6], k[i / 6 % 6], 1 + i / 36 % 2 * 7,
				  i >= 72, i & 1);
}

/* The shapes of the speed table: all CTAs at once, nearly evenly. */
static void known_cuts(void **state)
{
	const struct vector_cut v1 =
	    vector_cut(1, 7168, 16384, 1, false, false, H200_SMS, SHARED_BYTES);
	const struct vector_cut v2 =
	    vector_cut(1, 4096, 7168, 8, false, false, H200_SMS, SHARED_BYTES);
	const struct vector_cut v3 =
	    vector_cut(1, 7168, 2048, 4, false, true, H200_SMS, SHARED_BYTES);

	assert_int_equal(v1.tiles_per_cta, 1);
	assert_int_equal(v1.ctas, 448);
	assert_int_equal(v2.tiles_per_cta, 4);
	assert_int_equal(v2.ctas, 64);
	assert_int_equal(v3.tiles_per_cta, 4);
	assert_int_equal(v3.ctas, 112);
}

/* 32 KiB of A a CTA leave three of them on a multiprocessor. */
static void dense_cuts(void **state)
{
	const struct vector_cut short_k =
	    vector_cut(1, 7168, 2048, 1, true, false, H200_SMS, SHARED_BYTES);
	const struct vector_cut long_k =
	    vector_cut(4, 8192, 16384, 1, true, false, H200_SMS, SHARED_BYTES);

	assert_int_equal(short_k.m, 2);
	assert_int_equal(short_k.tiles_per_cta, 1);
	assert_int_equal(long_k.m, 4);
	assert_int_equal(long_k.tiles_per_cta, 2);
	assert_int_equal(nib_gemv_dense_kept(16384, 1), 16384);
	assert_int_equal(nib_gemv_dense_kept(16384, 2), 8192);
	assert_int_equal(nib_gemv_dense_kept(16384, 4), 4096);
	assert_int_equal(nib_gemv_dense_kept(272, 4), 512);
}

/* As many CTAs as the GPU holds at once are one tile each; one more is not. */
static void cuts_at_the_edge(void **state)
{
	const int64_t by_registers = 16 * NIB_GEMV_CTAS * H200_SMS;
	/* Three CTAs of M = 4 and 1,024 bytes of the system for each, exactly. */
	const int64_t by_shared = 16 * 3 * H200_SMS;
	const int64_t bytes = 3 * (nib_gemv_shared_bytes(32768, 4, 1) + 1024) - 1024;

	assert_int_equal(
	    vector_cut(1, by_registers, 256, 1, false, false, H200_SMS, SHARED_BYTES)
		.tiles_per_cta,
	    1);
	assert_int_equal(vector_cut(1, by_registers + 1, 256, 1, false, false, H200_SMS,
				    SHARED_BYTES)
			     .tiles_per_cta,
			 2);
	assert_int_equal(
	    vector_cut(4, by_shared, 32768, 1, false, false, H200_SMS, bytes)
		.tiles_per_cta,
	    1);
	assert_int_equal(
	    vector_cut(4, by_shared, 32768, 1, false, false, H200_SMS, bytes - 1)
		.tiles_per_cta,
	    2);
	assert_int_equal(
	    vector_cut(4, by_shared + 1, 32768, 1, false, false, H200_SMS, bytes)
		.tiles_per_cta,
	    2);
}

/* The product of one matrix, or of experts, by the table. */
static const struct cuda_product *of(const struct sm90_size *size)
{
	return sm90_choose_size(size).product;
}

static bool takes(bool is_dual, int64_t m, int64_t n, int64_t batch)
{
	const struct sm90_size size = {
	    .is_dual = is_dual, .rows = m, .n = n, .k = 64, .batch = batch};

	return of(&size) != &sm90_tiles;
}

static void check_moe_cut(int64_t rows, int64_t experts, int64_t n, int64_t k)
{
	const struct skinny_cut cut = skinny_cut_experts(rows, experts, n, k, H200_SMS);

	assert_int_equal(cut.eights, 1);
	assert_int_equal(cut.tiles, nib_gemv_tiles(n, true));
	assert_in_range(cut.ctas, 1, H200_SMS);
	assert_in_range((cut.tiles_at_once + cut.half_tiles) * cut.k_groups, 1,
			NIB_SKINNY_WARPS);
	assert_in_range(cut.k_groups, 1, k > 256 ? (k + 255) / 256 : 1);
	assert_int_equal(NIB_SKINNY_CHUNKS(1) % cut.k_groups, 0);
}

static const struct cuda_product *of_experts(bool is_dual, int64_t rows,
					     int64_t experts, int64_t n, int64_t k)
{
	const struct sm90_size size = {.is_dual = is_dual,
				       .rows = rows,
				       .n = n,
				       .k = k,
				       .batch = 1,
				       .experts = experts};

	return of(&size);
}

static const struct cuda_product *of_dense(int64_t rows, int64_t experts)
{
	const struct sm90_size size = {.is_dense = true,
				       .rows = rows,
				       .n = 64,
				       .k = 2048,
				       .batch = 1,
				       .experts = experts};

	return of(&size);
}

/* All CTAs are on the GPU at once, unless one takes the most tiles. */
static void check_vector_cut(int64_t rows, int matrices, int64_t n, int64_t k,
			     bool is_dense)
{
	const struct vector_cut cut = vector_cut_experts(rows, matrices, n, k, is_dense,
							 true, H200_SMS, SHARED_BYTES);

	assert_int_equal(cut.m, is_dense ? 2 : 1);
	assert_int_equal(cut.tiles, nib_gemv_tiles(n, true));
	assert_true(cut.ctas * cut.tiles_per_cta >= cut.tiles);
	assert_true((cut.ctas - 1) * cut.tiles_per_cta < cut.tiles);
	assert_true(cut.ctas * rows <= (int64_t)H200_SMS * NIB_GEMV_CTAS ||
		    cut.tiles_per_cta == NIB_GEMV_MAX_TILES);
	assert_int_equal(
	    cut.shared_bytes,
	    is_dense
		? nib_gemv_dense_shared_bytes(k, 1, 2, cut.tiles_per_cta * matrices)
		: nib_gemv_shared_bytes(k, 1, cut.tiles_per_cta * matrices));
}

static void experts(void **state)
{
	for (int i = 0; i < 600; i++)
		check_moe_cut(1 + i * 37 % NIB_SKINNY_ROWS, 1 + i * 13 % 256,
			      1 + i * 97 % 9000, 16 * (1 + i * 31 % 500));
	for (int i = 0; i < 600; i++)
		check_vector_cut(1 + i % 8, 1 + i / 8 % 2, 1 + i * 97 % 9000,
				 32 * (1 + i * 31 % 250), i % 3 == 0);
	/* Rows of an expert each, as a rule. */
	assert_ptr_equal(of_experts(false, 1, 1, 64, 16), &cuda_vector_experts);
	assert_ptr_equal(of_experts(false, 8, 8, 14336, 1024), &cuda_vector_experts);
	assert_ptr_equal(of_experts(true, 128, 128, 64, 7168), &cuda_vector_experts);
	assert_ptr_equal(of_experts(false, 8, 4096, 64, 7168), &cuda_vector_experts);
	assert_ptr_equal(of_experts(false, 8, 7, 64, 768), &sm90_skinny);
	assert_ptr_equal(of_experts(true, 8, 7, 64, 768), &sm90_tiles);
	assert_ptr_equal(of_experts(false, 129, 256, 1024, 768), &sm90_tiles);
	assert_ptr_equal(of_experts(false, 129, 256, 384, 2048), &sm90_skinny);
	assert_ptr_equal(of_experts(true, 129, 256, 64, 2048), &sm90_tiles);
	assert_ptr_equal(of_dense(8, 16), &cuda_vector_experts);
	assert_ptr_equal(of_dense(64, 128), &cuda_vector_experts);
	assert_ptr_equal(of_dense(8, 15), &sm90_skinny);
	assert_ptr_equal(of_dense(65, 1024), &sm90_skinny);
	assert_ptr_equal(of_experts(false, 127, 128, 384, 2048), &cuda_vector_experts);
	assert_ptr_equal(of_experts(false, 129, 128, 384, 2048), &sm90_tiles);
	assert_ptr_equal(of_experts(false, 512, 1024, 60, 4096), &sm90_skinny);
	assert_ptr_equal(of_experts(false, 513, 1024, 60, 4096), &sm90_tiles);
	assert_ptr_equal(of_experts(false, 129, 1025, 64, 4096), &sm90_tiles);
	assert_ptr_equal(of_experts(false, 8, 8, 64, 0), &sm90_tiles);
	assert_ptr_equal(of_experts(false, 0, 8, 64, 16), &sm90_tiles);
}

/* The same where all experts have many weights. */
static void experts_mma(void **state)
{
	const int64_t least = (1 << 27) / 64 / 2048; /* of n for 64 experts */
	struct sm90_size dense = {.is_dense = true,
				  .rows = 33,
				  .n = 4096,
				  .k = 4096,
				  .batch = 1,
				  .experts = 128};

	(void)state;
	assert_ptr_equal(of_experts(false, 64, 128, 4096, 4096), &cuda_vector_experts);
	assert_ptr_equal(of_experts(false, 65, 128, 4096, 4096), &cuda_mma);
	assert_ptr_equal(of_experts(true, 65, 128, 4096, 4096), &cuda_mma);
	assert_ptr_equal(of_experts(false, 8, 8, 28672, 4096), &cuda_mma);
	assert_ptr_equal(of_experts(true, 8, 8, 14336, 4096), &cuda_vector_experts);
	assert_ptr_equal(of_experts(true, 9, 8, 14336, 4096), &cuda_mma);
	/* 49 and 50 tiles of 128 rows of B for each of eight experts. */
	assert_ptr_equal(of_experts(false, 8, 8, 6272, 14336), &cuda_vector_experts);
	assert_ptr_equal(of_experts(false, 8, 8, 6273, 14336), &cuda_mma);
	assert_ptr_equal(of_experts(false, 9, 8, 6272, 14336), &cuda_mma);
	assert_ptr_equal(of_experts(false, 64, 64, least, 2048), &cuda_mma);
	assert_ptr_equal(of_experts(false, 64, 64, least - 1, 2048),
			 &cuda_vector_experts);
	assert_ptr_equal(of_experts(false, 8 * 128, 128, 4096, 4096), &cuda_mma);
	assert_ptr_equal(of_experts(false, 8 * 128 + 1, 128, 4096, 4096), &sm90_tiles);
	assert_ptr_equal(of_experts(false, 16 * 128, 128, 4096, 2048), &cuda_mma);
	assert_ptr_equal(of_experts(false, 16 * 128, 128, 4096, 2048 + 64),
			 &sm90_tiles);
	assert_ptr_equal(of_experts(false, 16 * 128 + 1, 128, 4096, 2048), &sm90_tiles);
	/* Dense A. */
	assert_ptr_equal(of(&dense), &cuda_mma);
	dense.rows = 32;
	assert_ptr_equal(of(&dense), &cuda_vector_experts);
	/* Whole k64. */
	assert_ptr_equal(of_experts(true, 512, 128, 4096, 4096 + 32), &sm90_tiles);
	assert_ptr_equal(of_experts(true, 2048, 1025, 4096, 4096), &sm90_tiles);
}

static void variants(void **state)
{
	(void)state;
	assert_int_equal(mma_variant(128, 128, 4096, false, false).rows, 8);
	assert_int_equal(mma_variant(128, 128, 4096, false, false).ctas, 5);
	assert_int_equal(mma_variant(128, 128, 4097, false, false).ctas, 4);
	assert_int_equal(mma_variant(192, 128, 768, true, false).rows, 8);
	assert_int_equal(mma_variant(193, 128, 768, true, false).rows, 16);
	assert_int_equal(mma_variant(1024, 128, 768, false, true).rows, 16);
	assert_int_equal(mma_variant(1025, 128, 768, false, true).rows, 32);
	assert_int_equal(mma_variant(1025, 128, 768, false, true).ctas, 4);
	assert_int_equal(mma_variant(1025, 128, 768, true, false).ctas, 3);
	assert_int_equal(nib_mma_tiles(129, 1), 2);
	assert_int_equal(nib_mma_tiles(129, 2), 4);
	/* As many CTAs on an SM as the variants are made for. */
	assert_true(5 * (nib_mma_shared_bytes(8, 3, 512) + 1024) <= 228 * 1024);
	assert_true(4 * (nib_mma_shared_bytes(32, 3, 256) + 1024) <= 228 * 1024);
}

static const struct cuda_product *of_a(bool is_dense, int64_t m, int64_t n, int64_t k)
{
	const struct sm90_size size = {.is_dense = is_dense,
				       .rows = m,
				       .n = n,
				       .k = k,
				       .batch = 1,
				       .multiprocessors = H200_SMS};

	return of(&size);
}

static const struct cuda_product *of_matrix(int64_t m, int64_t n, int64_t k)
{
	return of_a(false, m, n, k);
}

/* Rows of A for each kernel where k is not a multiple of 64, below 2^25 weights and
 * from there on, and more rows. */
static void ways(void **state)
{
	assert_ptr_equal(of_matrix(4, 1, 0), &cuda_vector);
	assert_ptr_equal(of_matrix(4, 4064, 8192 + 16), &cuda_vector);
	assert_ptr_equal(of_matrix(5, 4064, 8192 + 16), &sm90_skinny);
	assert_ptr_equal(of_matrix(16, 4064, 8192 + 16), &sm90_skinny);
	assert_ptr_equal(of_matrix(17, 4096, 4096), &sm90_wide);
	assert_ptr_equal(of_matrix(64, 7168, 2048), &sm90_wide);
	assert_ptr_equal(of_matrix(65, 4096, 4096), &sm90_tiles);
	assert_ptr_equal(of_matrix(17, 4096 + 256, 4096), &sm90_tiles);
	assert_ptr_equal(of_matrix(17, 64, 4096 + 16), &sm90_tiles);
	assert_ptr_equal(of_matrix(17, 1 << 20, 16), &sm90_tiles);
	assert_ptr_equal(of_matrix(2, 4096, 8192 + 16), &cuda_vector);
	assert_ptr_equal(of_matrix(3, 4096, 8192 + 16), &sm90_skinny);
	assert_ptr_equal(of_matrix(8, 4096, 8192 + 16), &sm90_skinny);
	assert_ptr_equal(of_matrix(9, 4096, 8192 + 16), &sm90_tiles);
	assert_ptr_equal(of_a(true, 9, 4096, 8192 + 16), &sm90_skinny);
	assert_ptr_equal(of_matrix(9, INT64_MAX, 16), &sm90_tiles);
	assert_ptr_equal(of_a(true, 1, INT64_MAX / 16, 64), &sm90_tiles);
}

/* The sizes for which the rules choose mma_warps.cuh, whose warps divide k. */
static void warps_ways(void **state)
{
	struct sm90_size batch = {.is_dense = true,
				  .rows = 1,
				  .n = 7168,
				  .k = 2048,
				  .batch = 4,
				  .multiprocessors = H200_SMS};

	(void)state;
	/* Batches only of five to eight rows of NVFP4. */
	assert_ptr_equal(of(&batch), &cuda_vector);
	batch.rows = 5;
	assert_ptr_equal(of(&batch), &sm90_skinny);
	batch.is_dense = false;
	assert_ptr_equal(of(&batch), &cuda_mma_warps);
	batch.rows = 4;
	assert_ptr_equal(of(&batch), &cuda_vector);
	batch.batch = 1;
	assert_ptr_equal(of(&batch), &cuda_mma_warps);
	/* NVFP4: all products but one row, and unless many multiprocessors wait. */
	assert_ptr_equal(of_matrix(1, 4096, 7168), &cuda_vector);
	assert_ptr_equal(of_matrix(2, 4096, 7168), &cuda_mma_warps);
	assert_ptr_equal(of_matrix(8, 1, 64), &cuda_mma_warps);
	assert_ptr_equal(of_matrix(8, 1, 32), &sm90_skinny);
	assert_ptr_equal(of_matrix(8, 28672, 8192), &cuda_mma_warps);
	assert_ptr_equal(of_matrix(8, 10240, 8192), &sm90_skinny);
	assert_ptr_equal(of_matrix(2, 10240, 8192), &cuda_vector);
	assert_ptr_equal(of_matrix(16, 10240, 8192), &cuda_mma_warps);
	assert_ptr_equal(of_matrix(16, 1 << 16, 4096), &cuda_mma_warps);
	assert_ptr_equal(of_matrix(16, (1 << 16) + 1, 4096), &sm90_tiles);
	assert_ptr_equal(of_matrix(17, 8192, 8192), &sm90_tiles);
	/* Dense: from five rows on only if two fifths of the multiprocessors, which are
	 * 53, have a tile of 32 rows. */
	assert_ptr_equal(of_a(true, 1, 4096, 7168), &cuda_mma_warps);
	assert_ptr_equal(of_a(true, 4, 1, 64), &cuda_mma_warps);
	assert_ptr_equal(of_a(true, 4, 1, 48), &cuda_vector);
	assert_ptr_equal(of_a(true, 5, 13 * 128, 4096), &sm90_skinny);
	assert_ptr_equal(of_a(true, 5, 13 * 128 + 1, 4096), &cuda_mma_warps);
	assert_ptr_equal(of_a(true, 8, 152064, 3584), &cuda_mma_warps);
	assert_ptr_equal(of_a(true, 8, 10240, 8192), &sm90_skinny);
	assert_ptr_equal(of_a(true, 8, 10240, 4096), &cuda_mma_warps);
	/* From nine on if also none has two. */
	assert_ptr_equal(of_a(true, 9, 13 * 128, 4096), &sm90_skinny);
	assert_ptr_equal(of_a(true, 9, 13 * 128 + 1, 4096), &cuda_mma_warps);
	assert_ptr_equal(of_a(true, 16, 33 * 128, 4096), &cuda_mma_warps);
	assert_ptr_equal(of_a(true, 16, 33 * 128 + 1, 8192), &sm90_skinny);
	assert_ptr_equal(of_a(true, 16, (1 << 16) + 1, 8192), &sm90_tiles);
}

static void what_is_taken(void **state)
{
	const int64_t most_n = ((int64_t)1 << 35) - 128;

	assert_false(takes(false, 0, 16, 1));
	assert_true(takes(false, 1, 16, 1));
	assert_true(takes(false, 4, 16, 1));
	assert_true(takes(false, 16, 16, 1));
	/* One matrix of as many rows as the wide kernels take. */
	assert_true(takes(false, 17, 16, 1));
	assert_true(takes(false, 64, 16, 1));
	assert_false(takes(false, 65, 16, 1));
	assert_false(takes(false, 17, 16, 2));
	assert_false(takes(true, 17, 16, 1));
	assert_true(takes(false, 1, 16, 1));
	assert_false(takes(true, 1, 16, 1));
	assert_false(takes(false, 1, 0, 1));
	assert_true(takes(false, 1, 1, 1));
	assert_true(takes(false, 1, most_n, 1));
	assert_false(takes(false, 1, most_n + 1, 1));
	assert_true(takes(false, 1, 16, 65535));
	assert_true(takes(false, 1, 16, 65536));
	assert_true(takes(false, 1, 16, INT32_MAX));
	assert_false(takes(false, 1, 16, (int64_t)INT32_MAX + 1));
}

/* Strides in bytes; the alignment of all addresses that a kernel forms. */
static void dense_operands(void **state)
{
	struct nib_dense x = {.data = (void *)4096,
			      .dtype = NIB_DTYPE_BF16,
			      .rows = 2,
			      .cols = 48,
			      .batch = 3,
			      .row_stride_elems = 56,
			      .batch_stride_elems = 120};
	struct nib_gemv_operand o = cuda_dense_operand(&x, 3);

	assert_ptr_equal(o.codes, x.data);
	assert_null(o.scales);
	assert_int_equal(o.row_stride, 112);
	assert_int_equal(o.batch_stride, 240);
	assert_int_equal(o.codes_align, 16);
	assert_int_equal(o.scales_align, 16);
	x.row_stride_elems = 58;
	assert_int_equal(cuda_dense_operand(&x, 3).codes_align, 4);
	x.row_stride_elems = 57;
	assert_int_equal(cuda_dense_operand(&x, 3).codes_align, 1);
	x.rows = 1;
	assert_int_equal(cuda_dense_operand(&x, 3).codes_align, 16);
	x.batch_stride_elems = 122;
	assert_int_equal(cuda_dense_operand(&x, 3).codes_align, 4);
	/* One matrix, or row, has no stride to speak of. */
	x.batch = 1;
	o = cuda_dense_operand(&x, 1);
	assert_int_equal(o.codes_align, 16);
	assert_int_equal(o.batch_stride, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_row_once),
	    cmocka_unit_test(cuts_fit),
	    cmocka_unit_test(skinny_cuts_fit),
	    cmocka_unit_test(wide_cuts_fit),
	    cmocka_unit_test(known_cuts),
	    cmocka_unit_test(cuts_at_the_edge),
	    cmocka_unit_test(ways),
	    cmocka_unit_test(warps_ways),
	    cmocka_unit_test(experts),
	    cmocka_unit_test(experts_mma),
	    cmocka_unit_test(variants),
	    cmocka_unit_test(what_is_taken),
	    cmocka_unit_test(dense_cuts),
	    cmocka_unit_test(dense_operands),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
