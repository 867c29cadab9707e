/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - a reproducible stream of random bits (splitmix64). */
#ifndef NIB_RANDOM_H
#define NIB_RANDOM_H

#include <stdint.h>

/* 64 random bits; *state moves on. */
static inline uint64_t data_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

#endif
