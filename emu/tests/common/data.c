/* SPDX-License-Identifier: Apache-2.0 */
/* common/data.c - see data.h. */
#include "data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t test_seed(void)
{
	static uint64_t seed;
	const char *text = getenv("NIBEMU_TEST_SEED");

	if (seed)
		return seed;
	seed = text ? strtoull(text, NULL, 0) : 0;
	if (!seed)
		seed = UINT64_C(0x6E6962626C6173);
	printf("NIBEMU_TEST_SEED=%#" PRIx64 "\n", seed);
	return seed;
}

struct rng rng_new(uint64_t seed)
{
	return (struct rng){seed};
}

/* splitmix64 */
uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

int64_t rng_below(struct rng *rng, int64_t n)
{
	return (int64_t)(rng_next(rng) % (uint64_t)n);
}

void rng_fill(struct rng *rng, void *to, size_t bytes)
{
	uint8_t *at = to;

	while (bytes > 0) {
		const uint64_t word = rng_next(rng);
		const size_t n = bytes < 8 ? bytes : 8;

		memcpy(at, &word, n);
		at += n;
		bytes -= n;
	}
}

bool test_is_small(void)
{
	const char *size = getenv("NIBEMU_TEST_SIZE");

	return size && strcmp(size, "small") == 0;
}
