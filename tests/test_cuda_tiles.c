/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_tiles.c - how groups are cut for a GPU: every row unit and token of
 * every problem is in exactly one tile, of a size that the kernels have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common_alloc.h"
#include "cuda/tiles.h"

#define GROUPS	   400
#define STEP	   NIB_TILE_TOKENS_STEP
#define MAX_M	   3001
#define MAX_COUNTS (NIB_GEMM_PROBLEMS * 71 * (MAX_M / STEP + 2))

struct group {
	struct nib_tile_device device;
	struct nib_tile_shape shapes[NIB_GEMM_PROBLEMS];
	int32_t count;
	bool dual, may_split;
};

static uint64_t seed = 88172645463325252;

static int32_t rnd_below(int32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (int32_t)((uint32_t)(seed >> 16) % (uint32_t)n);
}

/* Sizes of all orders, with the ends of the range among them. */
static int32_t rnd_size(int32_t least, int32_t most)
{
	const int32_t range = most - least + 1;
	const int32_t some = rnd_below(3) == 0 ? 1 + rnd_below(range) : range;

	return rnd_below(16) == 0 ? least : least + rnd_below(some);
}

static int32_t divide_up(int32_t a, int32_t b)
{
	return (a + b - 1) / b;
}

static int32_t units_of(const struct group *g, int32_t i)
{
	return divide_up(g->shapes[i].n,
			 g->dual ? NIB_TILE_ROWS : 2 * NIB_TILE_ROWS);
}

static void make_group(struct group *g, int i)
{
	/* An H200, parts of one, one pair of CTAs. */
	static const struct nib_tile_device devices[] = {
	    {.clusters = 66}, {.clusters = 60}, {.clusters = 7},
	    {.clusters = 1},  {.clusters = 2},	{.clusters = 57},
	};

	memset(g, 0, sizeof(*g));
	g->device = devices[i % 6];
	g->count = i % 3 == 0 ? 1 : 1 + rnd_below(NIB_GEMM_PROBLEMS);
	g->dual = i / 2 % 2;
	g->may_split = i % 5 != 0;
	for (int32_t j = 0; j < g->count; j++)
		g->shapes[j] = (struct nib_tile_shape){rnd_size(0, MAX_M - 1),
						       rnd_size(1, 9000),
						       rnd_size(0, 1250) * 16};
}

static void check_tile(const struct group *g, const struct nib_tile_plan *p,
		       const struct nib_gemm_tile *t)
{
	const struct nib_tile_shape *s;
	int32_t step;

	assert_in_range(t->problem, 0, g->count - 1);
	s = &g->shapes[t->problem];
	assert_in_range(t->unit, 0, units_of(g, t->problem) - 1);
	step = t->tokens > 128 ? 2 * STEP : STEP;
	assert_in_range(t->tokens, STEP, NIB_TILE_TOKENS_MAX);
	assert_int_equal(t->tokens % step, 0);
	assert_true(t->tokens <= p->tile_tokens);
	assert_int_equal(t->token % STEP, 0);
	assert_in_range(t->token, 0, s->m - 1);
	/* The prepared tokens end with whole steps. */
	step = s->m > 128 ? 2 * STEP : STEP;
	assert_true(t->token + t->tokens <= divide_up(s->m, step) * step);
	assert_in_range(t->part, 0, p->k_parts - 1);
}

/* Every part of k of every tile once.  seen: zeros; left so. */
static void check_cover(const struct group *g, const struct nib_tile_plan *p,
			const struct nib_gemm_tile *tiles, unsigned *seen)
{
	const int32_t steps = MAX_M / STEP + 2;
	int64_t used = 0;

	for (int64_t i = 0; i < (int64_t)p->rounds * p->clusters; i++) {
		const struct nib_gemm_tile *t = &tiles[i];
		unsigned *at;

		if (t->tokens == 0) {
			static const struct nib_gemm_tile none;

			assert_memory_equal(t, &none, sizeof(none));
			continue;
		}
		/* A cluster stops at the first entry without work. */
		assert_true(i < p->clusters || tiles[i - p->clusters].tokens);
		check_tile(g, p, t);
		at = seen + (t->problem * 71 + t->unit) * steps;
		for (int32_t j = 0; j < t->tokens / STEP; j++) {
			unsigned *bits = &at[t->token / STEP + j];

			assert_int_equal(*bits >> t->part & 1, 0);
			*bits |= 1u << t->part;
		}
		used++;
	}
	assert_int_equal(used, p->tiles);
	for (int32_t i = 0; i < g->count; i++)
		for (int32_t u = 0; u < units_of(g, i); u++)
			for (int32_t j = 0; j < divide_up(g->shapes[i].m, STEP);
			     j++)
				assert_int_equal(seen[(i * 71 + u) * steps + j],
						 (1u << p->k_parts) - 1);
	memset(seen, 0, MAX_COUNTS * sizeof(*seen));
}

static void check_split(const struct group *g, const struct nib_tile_plan *p)
{
	const int32_t k = g->shapes[0].k;

	assert_int_equal(p->clusters, g->device.clusters);
	assert_in_range(p->k_parts, 1, 16);
	if (p->k_parts == 1)
		return;
	assert_true(g->may_split);
	assert_int_equal(g->count, 1);
	/* Each part has a weight stage, and a cluster one tile at most: parts
	 * wait for each other. */
	assert_true(divide_up(k, NIB_WEIGHT_STAGE_K) >= p->k_parts);
	assert_true(p->rounds <= 1);
}

static bool plan_of(const struct group *g, struct nib_tile_plan *plan,
		    struct nib_gemm_tile **tiles)
{
	return nib_tiles_plan(&g->device, g->shapes, g->count, g->dual,
			      g->may_split, plan, tiles);
}

static void covers(void **state)
{
	unsigned *seen = test_calloc(MAX_COUNTS, sizeof(*seen));
	int splits = 0;

	(void)state;
	for (int i = 0; i < GROUPS; i++) {
		struct nib_gemm_tile *tiles, *again;
		struct nib_tile_plan p, q;
		struct group g;
		int64_t entries;

		make_group(&g, i);
		assert_true(plan_of(&g, &p, &tiles));
		entries = (int64_t)p.rounds * p.clusters;
		check_split(&g, &p);
		check_cover(&g, &p, tiles, seen);
		assert_true(p.tiles == 0 ? p.cycles == 0 : p.cycles > 0);
		/* The same again, and the same figures without a list. */
		assert_true(plan_of(&g, &q, &again));
		assert_memory_equal(tiles, again,
				    (size_t)entries * sizeof(*tiles));
		free(again);
		assert_true(plan_of(&g, &q, NULL));
		assert_int_equal(q.k_parts, p.k_parts);
		assert_int_equal(q.clusters, p.clusters);
		assert_int_equal(q.rounds, p.rounds);
		assert_int_equal(q.tile_tokens, p.tile_tokens);
		assert_int_equal(q.tiles, p.tiles);
		assert_true(q.cycles <= p.cycles && q.cycles >= p.cycles);
		free(tiles);
		splits += p.k_parts > 1;
	}
	/* Both ways were tested. */
	assert_in_range(splits, GROUPS / 50, GROUPS / 2);
	test_free(seen);
}

/* Few rows of B and a long k: k is divided, and that is faster. */
static void divides_a_long_k(void **state)
{
	struct group g = {.device = {.clusters = 66},
			  .shapes = {{64, 2048, 16384}},
			  .count = 1,
			  .may_split = true};
	struct nib_tile_plan p, q;

	(void)state;
	assert_true(plan_of(&g, &p, NULL));
	assert_true(p.k_parts > 1);
	g.may_split = false;
	assert_true(plan_of(&g, &q, NULL));
	assert_int_equal(q.k_parts, 1);
	assert_true(p.cycles < q.cycles);
	/* A second problem, even an empty one, makes it a group. */
	g.may_split = true;
	g.count = 2;
	assert_true(plan_of(&g, &q, NULL));
	assert_int_equal(q.k_parts, 1);
}

static void sizes(void **state)
{
	int32_t last = 0;

	(void)state;
	for (int i = 0; i < NIB_TILE_SIZES; i++) {
		const int32_t n = nib_tile_size(i);

		assert_int_equal(n - last, n > 128 ? 2 * STEP : STEP);
		assert_int_equal(nib_tile_size_of(last + 1), i);
		assert_int_equal(nib_tile_size_of(n), i);
		last = n;
	}
	assert_int_equal(last, NIB_TILE_TOKENS_MAX);
}

static void longer_tiles_cost_more(void **state)
{
	(void)state;
	for (int i = 1; i < NIB_TILE_SIZES; i++)
		assert_true(nib_cuda_costs.step[i - 1] <
			    nib_cuda_costs.step[i]);
}

/* The planner takes the size, and the split, that a given table favours. */
static void reads_the_table(void **state)
{
	struct nib_cuda_costs costs;
	struct group g = {.device = {.clusters = 66, .costs = &costs},
			  .shapes = {{768, 4096, 7168}},
			  .count = 1,
			  .may_split = true};
	struct nib_tile_plan p;

	(void)state;
	for (int i = 0; i < NIB_TILE_SIZES; i++) {
		/* One that divides 768, and so has no smaller rest. */
		if (768 % nib_tile_size(i))
			continue;
		for (int j = 0; j < NIB_TILE_SIZES; j++)
			costs.step[j] = j == i ? 1 : NIB_COSTS_MAX;
		costs.tile = costs.split = 1;
		assert_true(plan_of(&g, &p, NULL));
		assert_int_equal(p.k_parts, 1);
		/* 16 units of 256 rows over 66 clusters, 112 steps each. */
		assert_int_equal(p.tiles, 16 * 768 / nib_tile_size(i));
		assert_int_equal((int64_t)p.cycles,
				 113 * divide_up((int32_t)p.tiles, p.clusters));
	}
	/* Eight units of 64 tokens: parts of k, where adding them up is free.
	 */
	g.shapes[0] = (struct nib_tile_shape){64, 2048, 7168};
	costs = nib_cuda_costs;
	costs.split = 1;
	assert_true(plan_of(&g, &p, NULL));
	/* Of 28 stages, eight parts would have as many as seven. */
	assert_int_equal(p.k_parts, 7);
	costs.split = NIB_COSTS_MAX;
	assert_true(plan_of(&g, &p, NULL));
	assert_int_equal(p.k_parts, 1);
}

static void without_memory(void **state)
{
	struct group g = {.device = {.clusters = 66},
			  .shapes = {{300, 4096, 7168}, {5, 129, 16}},
			  .count = 2};
	struct nib_gemm_tile *tiles = NULL;
	struct nib_tile_plan p;
	long n, live;
	bool ok;

	(void)state;
	if (!test_alloc_works())
		skip();
	live = test_alloc_live();
	for (n = 1;; n++) {
		test_alloc_fail(n, TEST_ALLOC_ONE);
		ok = plan_of(&g, &p, &tiles);
		if (!test_alloc_stop())
			break;
		assert_false(ok);
		assert_int_equal(test_alloc_live(), live);
	}
	assert_true(ok && n > 5);
	free(tiles);
	assert_int_equal(test_alloc_live(), live);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(covers),
	    cmocka_unit_test(divides_a_long_k),
	    cmocka_unit_test(sizes),
	    cmocka_unit_test(longer_tiles_cost_more),
	    cmocka_unit_test(reads_the_table),
	    cmocka_unit_test(without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
