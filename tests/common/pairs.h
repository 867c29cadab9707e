/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/pairs.h - few test cases that cover every pair of settings: for any two
 * factors, each level of the one is combined with each level of the other.
 */
#ifndef NIB_TESTS_COMMON_PAIRS_H
#define NIB_TESTS_COMMON_PAIRS_H

#include <stdbool.h>

#include "data.h"

#define PAIRS_FACTORS 20
#define PAIRS_LEVELS  32

struct pairs {
	struct rng *rng;
	int factors;
	int levels[PAIRS_FACTORS];
	/* Whether a case may be run at all; NULL: every one may. */
	bool (*is_legal)(const int *levels);
	/* Pairs that have been met, or that no legal case has. */
	bool met[PAIRS_FACTORS][PAIRS_LEVELS][PAIRS_FACTORS][PAIRS_LEVELS];
};

/* Writes the next case, a level for each factor; false: all pairs are met. */
bool pairs_next(struct pairs *pairs, int *levels);

#endif
