/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/pairs.c - a greedy search: begins with a pair that is not covered yet, fills
 * the rest at random a number of times, and keeps the case that covers the most new
 * pairs.
 */
#include "pairs.h"

#include <string.h>

#include "unit.h"

#define TRIES 60

static int new_pairs(const struct pairs *p, const int *levels)
{
	int count = 0;

	for (int i = 0; i < p->factors; i++)
		for (int j = i + 1; j < p->factors; j++)
			count += !p->met[i][levels[i]][j][levels[j]];
	return count;
}

static void meet(struct pairs *p, const int *levels)
{
	for (int i = 0; i < p->factors; i++)
		for (int j = i + 1; j < p->factors; j++)
			p->met[i][levels[i]][j][levels[j]] = true;
}

/* A random case with level a of factor i and level b of factor j. */
static bool try_case(const struct pairs *p, int i, int a, int j, int b, int *levels)
{
	for (int f = 0; f < p->factors; f++)
		levels[f] = (int)rng_below(p->rng, p->levels[f]);
	levels[i] = a;
	levels[j] = b;
	return !p->is_legal || p->is_legal(levels);
}

static bool best_case(const struct pairs *p, int i, int a, int j, int b, int *levels)
{
	int best = 0, count, tried[PAIRS_FACTORS];

	for (int t = 0; t < TRIES; t++) {
		if (!try_case(p, i, a, j, b, tried))
			continue;
		count = new_pairs(p, tried);
		if (count <= best)
			continue;
		best = count;
		memcpy(levels, tried, sizeof(tried));
	}
	return best > 0;
}

bool pairs_next(struct pairs *p, int *levels)
{
	assert_in_range(p->factors, 1, PAIRS_FACTORS);
	for (int i = 0; i < p->factors; i++)
		assert_in_range(p->levels[i], 1, PAIRS_LEVELS);
	for (int i = 0; i < p->factors; i++)
		for (int j = i + 1; j < p->factors; j++)
			for (int a = 0; a < p->levels[i]; a++)
				for (int b = 0; b < p->levels[j]; b++) {
					if (p->met[i][a][j][b])
						continue;
					if (best_case(p, i, a, j, b, levels)) {
						meet(p, levels);
						return true;
					}
					p->met[i][a][j][b] = true;
				}
	return false;
}
