/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/data.h - helpers of many tests: memory that ends at a guard page, random
 * numbers from a printed seed, full-range NVFP4 matrices, and devices of each
 * instruction set.  A helper that fails ends the program.
 */
#ifndef NIB_TESTS_COMMON_DATA_H
#define NIB_TESTS_COMMON_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibblas.h"

/* NIB_TEST_SIZE=small: sanitizers and valgrind have time for less. */
bool test_is_small(void);
/* NIB_TEST_SIZE=tiny, for another processor's code in qemu: small and less. */
bool test_is_tiny(void);

/* ---- random numbers ------------------------------------------------------ */

struct rng {
	uint64_t state;
};

/* NIB_TEST_SEED, else a fixed number; printed once a program. */
uint64_t test_seed(void);
struct rng rng_new(uint64_t seed);
uint64_t rng_next(struct rng *rng);
/* 0 .. n - 1 */
int64_t rng_below(struct rng *rng, int64_t n);
/* 0 <= x < 1, 53 bits */
double rng_uniform(struct rng *rng);
/* mean 0, deviation 1 */
double rng_normal(struct rng *rng);
void rng_fill(struct rng *rng, void *to, size_t bytes);

/* ---- memory -------------------------------------------------------------- */

/* What fresh memory holds: as a float a huge number, as a scale no NaN. */
#define GUARD_POISON 0x7B

/*
 * Memory whose byte after the last is on a page that cannot be touched, as is
 * the page before it.  The start has no alignment beyond what bytes gives it.
 * guard_free() also checks that the bytes before the start are still as they
 * were.  bytes 0 gives a pointer that must not be read or written.
 */
void *guard_new(size_t bytes);
void guard_free(void *data, size_t bytes);
/* The same holding a copy of from. */
void *guard_copy(const void *from, size_t bytes);

/* ---- matrices ------------------------------------------------------------ */

/* An NVFP4 stack in guarded memory of its own. */
struct test_nvfp4 {
	struct nib_fp4 view;
	size_t codes_bytes, scales_bytes;
};

enum test_scales {
	TEST_SCALES_ANY,    /* all 127 finite bytes, each as likely */
	TEST_SCALES_MIDDLE, /* 2^-3 to 2^3: sums stay small */
	TEST_SCALES_ONE,    /* 1.0 */
};

/*
 * Random codes (all 16) and scales; padding of scales is 0x7F, a NaN.
 * row_gap_bytes, scale_gap_bytes: what lies between rows, filled with poison;
 * scale_gap_bytes is for NIB_SCALE_LAYOUT_LINEAR.
 */
struct test_nvfp4 test_nvfp4_new(struct rng *rng, int64_t rows, int64_t k,
				 int64_t batch, enum nib_scale_layout layout,
				 enum test_scales scales, int64_t row_gap_bytes,
				 int64_t scale_gap_bytes);
void test_nvfp4_free(struct test_nvfp4 *matrix);

/* A dense stack in guarded memory, poisoned; row_gap elements between rows. */
struct test_dense {
	struct nib_dense view;
	size_t bytes;
};
struct test_dense test_dense_new(enum nib_dtype dtype, int64_t rows, int64_t cols,
				 int64_t batch, int64_t row_gap);
void test_dense_free(struct test_dense *matrix);

/*
 * Batches that follow the rows, without gaps between batches, become
 * batches between the rows: the same memory as [rows, batch].  Tiled scales
 * stay as they are.
 */
void test_nvfp4_between(struct nib_fp4 *v);
void test_dense_between(struct nib_dense *v);

/* ---- devices ------------------------------------------------------------- */

/* Those of NIB_CPU. */
#define TEST_ISAS 10
extern const char *const test_isas[TEST_ISAS];
/* The set "amx" sums NVFP4 in an order of its own from this many rows on. */
#define TEST_AMX_ROWS 9
bool test_has_own_order(const char *isa);

/*
 * A CPU device of that instruction set (NULL: the best one), or NULL if the
 * machine lacks it; then the reason is printed, once a program.
 */
struct nib_device *test_device(const char *isa, int threads);

#endif
