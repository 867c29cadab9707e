/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_schedule.c - the CPU backend's schedule: units cover each element of each
 * output exactly once, for any group and number of threads, and a cursor finds
 * them from any unit onwards.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/schedule.h"
#include "common/problem.h"
#include "common/unit.h"

#define MAX_ITEMS 24

static struct rng rng;

static int seed(void **state)
{
	rng = rng_new(test_seed());
	return 0;
}

/* Mostly small, sometimes many units long, sometimes nothing. */
static int64_t random_size(void)
{
	static const int64_t most[] = {1, 2, 9, 70, 70, 300, 300, 1700};

	return rng_below(&rng, most[rng_below(&rng, 8)]);
}

static void random_items(struct cpu_item *items, int64_t count)
{
	memset(items, 0x5a, MAX_ITEMS * sizeof(*items));
	for (int64_t i = 0; i < count; i++) {
		items[i].m = random_size();
		items[i].n = random_size();
	}
}

/* How often each row of each panel of 16 columns was met. */
static void mark(uint8_t *met, const struct cpu_item *item, int64_t m0, int64_t n0)
{
	const int64_t panels = (item->n + PANEL_COLS - 1) / PANEL_COLS;
	const int64_t end_m =
	    m0 + item->unit_rows < item->m ? m0 + item->unit_rows : item->m;
	const int64_t end_n =
	    n0 + item->unit_cols < item->n ? n0 + item->unit_cols : item->n;

	assert_true(m0 >= 0 && m0 < item->m && n0 >= 0 && n0 < item->n);
	assert_int_equal(n0 % PANEL_COLS, 0);
	for (int64_t m = m0; m < end_m; m++)
		for (int64_t n = n0; n < end_n; n += PANEL_COLS)
			met[m * panels + n / PANEL_COLS]++;
}

static void check_cover(const struct cpu_item *items, int64_t count, int64_t units)
{
	struct cpu_cursor cursor = {items, 0};
	uint8_t *met[MAX_ITEMS];
	int64_t m0, n0;

	for (int64_t i = 0; i < count; i++) {
		const int64_t panels = (items[i].n + PANEL_COLS - 1) / PANEL_COLS;

		met[i] = calloc((size_t)(items[i].m * panels) + 1, 1);
		assert_non_null(met[i]);
	}
	for (int64_t unit = 0; unit < units; unit++) {
		const struct cpu_item *item = cpu_find_unit(&cursor, unit, &m0, &n0);

		assert_true(item >= items && item < items + count);
		mark(met[item - items], item, m0, n0);
	}
	for (int64_t i = 0; i < count; i++) {
		const int64_t panels = (items[i].n + PANEL_COLS - 1) / PANEL_COLS;

		for (int64_t j = 0; j < items[i].m * panels; j++)
			if (met[i][j] != 1)
				fail_msg("item %" PRId64 " [%" PRId64 ", %" PRId64
					 "]: row %" PRId64 ", panel %" PRId64
					 " met %d times",
					 i, items[i].m, items[i].n, j / panels,
					 j % panels, met[i][j]);
		free(met[i]);
	}
}

/* What the kernels and the workspace rely on. */
static void check_sizes(const struct cpu_item *items, int64_t count, int64_t tile_rows,
			int64_t units)
{
	const int64_t most = (MAX_UNIT_ROWS + tile_rows - 1) / tile_rows * tile_rows;
	int64_t sum = 0;

	for (int64_t i = 0; i < count; i++) {
		assert_int_equal(items[i].first_unit, sum);
		assert_true(items[i].unit_rows > 0);
		assert_true(items[i].unit_rows <= most);
		assert_int_equal(items[i].unit_rows % tile_rows, 0);
		if (items[i].m == 0 || items[i].n == 0)
			assert_int_equal(items[i].row_units * items[i].col_units, 0);
		sum += items[i].row_units * items[i].col_units;
	}
	assert_int_equal(sum, units);
}

static void every_element_once(void **state)
{
	static const int64_t tiles[] = {1, 4, 6, 8, 16};
	const int rounds = test_is_small() ? 60 : 1200;
	struct cpu_item items[MAX_ITEMS];

	for (int i = 0; i < rounds; i++) {
		const int64_t count = rng_below(&rng, MAX_ITEMS + 1);
		const int threads = 1 + i % 200;
		const int64_t tile_rows = tiles[rng_below(&rng, 5)];
		int64_t units;

		random_items(items, count);
		units = cpu_schedule(items, count, threads, tile_rows, i % 2);
		check_sizes(items, count, tile_rows, units);
		check_cover(items, count, units);
	}
}

/* A thread takes some units only, in order: it finds the same ones. */
static void cursors_skip(void **state)
{
	struct cpu_item items[MAX_ITEMS];

	for (int i = 0; i < 300; i++) {
		struct cpu_cursor few = {items, 0}, all = {items, 0};
		const struct cpu_item *item;
		int64_t units, m0, n0, want_m0, want_n0, next = 0;

		random_items(items, MAX_ITEMS);
		units = cpu_schedule(items, MAX_ITEMS, 1 + i % 200, 8, i % 2);
		for (int64_t unit = 0; unit < units; unit++) {
			item = cpu_find_unit(&all, unit, &want_m0, &want_n0);
			if (unit != next)
				continue;
			assert_ptr_equal(cpu_find_unit(&few, unit, &m0, &n0), item);
			assert_int_equal(m0, want_m0);
			assert_int_equal(n0, want_n0);
			/* Asking again changes nothing. */
			assert_ptr_equal(cpu_find_unit(&few, unit, &m0, &n0), item);
			next = unit + 1 + rng_below(&rng, 1 + i % 40);
		}
	}
}

/* Many threads get more, smaller units; one large item is not one unit. */
static void threads_have_work(void **state)
{
	struct cpu_item one = {.m = 4096, .n = 4096};
	int64_t few, many;

	few = cpu_schedule(&one, 1, 1, 8, false);
	assert_int_equal(one.unit_rows, MAX_UNIT_ROWS);
	many = cpu_schedule(&one, 1, 200, 8, false);
	assert_true(many > few);
	assert_true(many >= 200);
}

/* Sizes on, below and above each boundary, worked out by hand. */
static void exact_boundaries(void **state)
{
	static const struct {
		int64_t m, n;
		int threads;
		int64_t unit_rows, row_units, units;
	} cases[] = {
	    /* One unit holds up to 512 rows, 64 columns. */
	    {512, 512, 1, 512, 1, 8},
	    {513, 512, 1, 264, 2, 16},
	    {512, 513, 1, 512, 1, 9},
	    {1024, 256, 1, 512, 2, 8},
	    {1025, 256, 1, 344, 3, 12},
	    /* Fewer than 8 units a thread: halves, but not below 128 rows. */
	    {512, 448, 1, 256, 2, 14},
	    {512, 64, 1, 128, 4, 4},
	    {128, 64, 64, 128, 1, 1},
	    {129, 64, 64, 72, 2, 2},
	    {256, 64, 64, 128, 2, 2},
	    {257, 64, 64, 88, 3, 3},
	    {1, 64, 64, 8, 1, 1},
	    {8, 65, 64, 8, 1, 2},
	    {9, 64, 64, 16, 1, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct cpu_item item = {.m = cases[i].m, .n = cases[i].n};

		assert_int_equal(cpu_schedule(&item, 1, cases[i].threads, 8, false),
				 cases[i].units);
		assert_int_equal(item.unit_rows, cases[i].unit_rows);
		assert_int_equal(item.row_units, cases[i].row_units);
	}
}

/* Units are wide if that leaves enough of them, and the item has many rows. */
static void wide_units(void **state)
{
	static const struct {
		int64_t m, n;
		int threads;
		int64_t unit_rows, unit_cols, units;
	} cases[] = {
	    {512, 1024, 1, 256, WIDE_COLS, 16},	   {512, 1025, 1, 256, WIDE_COLS, 18},
	    {512, 1024, 4, 128, WIDE_COLS, 32},	   {512, 1024, 5, 128, UNIT_COLS, 64},
	    {2048, 4096, 16, 256, WIDE_COLS, 256}, {128, 4096, 1, 128, UNIT_COLS, 64},
	    {160, 4096, 1, 160, WIDE_COLS, 32},	   {160, 4096, 16, 96, UNIT_COLS, 128},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct cpu_item item = {.m = cases[i].m, .n = cases[i].n};

		assert_int_equal(cpu_schedule(&item, 1, cases[i].threads, 32, true),
				 cases[i].units);
		assert_int_equal(item.unit_rows, cases[i].unit_rows);
		assert_int_equal(item.unit_cols, cases[i].unit_cols);
	}
}

/*
 * A thread multiplies, as long as no other takes its units, the panels that it packed:
 * exactly if each has as many units, else but for a unit at both ends.
 */
static void packed_where_multiplied(void **state)
{
	for (int i = 0; i < 2000; i++) {
		const int threads = 1 + (int)rng_below(&rng, 64);
		const int64_t rest = i % 2 ? 1 + rng_below(&rng, 700) : 0;
		const int64_t n = threads * UNIT_COLS * (1 + rng_below(&rng, 8)) + rest;
		const int64_t panels = (n + PANEL_COLS - 1) / PANEL_COLS;
		struct cpu_item item = {
		    .m = 1 + rng_below(&rng, 24), .n = n, .blocks = 448};
		struct unit_queue queues[64];

		assert_true(cpu_schedule(&item, 1, threads, 8, true) >= threads);
		cpu_fill_queues(&item, 1, queues, threads);
		for (int task = 0; task < threads; task++) {
			const int64_t width = item.unit_cols / PANEL_COLS;
			const int64_t most = rest ? width + 1 : 0;
			const int64_t read = atomic_load(&queues[task].next) * width;
			const int64_t packed = cpu_first_panel(panels, task, threads);

			assert_true(read - packed <= most && packed - read <= most);
			assert_true(task == 0 ||
				    queues[task - 1].end ==
					(int64_t)atomic_load(&queues[task].next));
		}
		assert_int_equal(queues[threads - 1].end, item.col_units);
	}
}

static void nothing_to_do(void **state)
{
	struct cpu_item items[3] = {{.m = 0, .n = 9}, {.m = 9, .n = 0}, {0}};

	assert_int_equal(cpu_schedule(items, 0, 4, 8, true), 0);
	assert_int_equal(cpu_schedule(items, 3, 4, 8, true), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_element_once),
	    cmocka_unit_test(cursors_skip),
	    cmocka_unit_test(threads_have_work),
	    cmocka_unit_test(exact_boundaries),
	    cmocka_unit_test(wide_units),
	    cmocka_unit_test(packed_where_multiplied),
	    cmocka_unit_test(nothing_to_do),
	};

	return cmocka_run_group_tests(tests, seed, NULL);
}
