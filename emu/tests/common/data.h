/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/data.h - random numbers from a printed seed, and the size of a test.
 */
#ifndef EMU_TESTS_DATA_H
#define EMU_TESTS_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rng {
	uint64_t state;
};

/* NIBEMU_TEST_SEED, or a fixed number.  Each program prints it once. */
uint64_t test_seed(void);
struct rng rng_new(uint64_t seed);
uint64_t rng_next(struct rng *rng);
/* 0 .. n - 1 */
int64_t rng_below(struct rng *rng, int64_t n);
void rng_fill(struct rng *rng, void *to, size_t bytes);

/* NIBEMU_TEST_SIZE=small: smaller tests, for sanitizers and valgrind. */
bool test_is_small(void);

static inline uint32_t bits_of_float(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline float float_of_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

#endif
