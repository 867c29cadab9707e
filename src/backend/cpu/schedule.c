/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - cuts items into units, and gives each thread its own. */
#include "schedule.h"

/* Units for each thread, so that all threads end at about the same time. */
#define UNITS_PER_THREAD 8

static int64_t divide_up(int64_t x, int64_t y)
{
	return (x + y - 1) / y;
}

/* Cuts one item into equal units of at most max_rows rows. */
static int64_t cut_item(struct cpu_item *item, int64_t max_rows, int64_t tile_rows,
			bool wide)
{
	const int64_t rows = divide_up(item->m, max_rows);

	item->unit_rows = tile_rows;
	item->unit_cols = wide && item->m > MIN_UNIT_ROWS ? WIDE_COLS : UNIT_COLS;
	item->row_units = 0;
	item->col_units = divide_up(item->n, item->unit_cols);
	if (rows == 0)
		return 0;
	item->unit_rows = divide_up(divide_up(item->m, rows), tile_rows) * tile_rows;
	item->row_units = divide_up(item->m, item->unit_rows);
	return item->row_units * item->col_units;
}

/* Cuts all items; fewer rows a unit until there are `enough` units. */
static int64_t cut_items(struct cpu_item *items, int64_t count, int64_t enough,
			 int64_t tile_rows, bool wide)
{
	int64_t max_rows = wide ? MAX_WIDE_ROWS : MAX_UNIT_ROWS;

	for (;; max_rows /= 2) {
		int64_t units = 0;

		for (int64_t i = 0; i < count; i++) {
			items[i].first_unit = units;
			units += cut_item(&items[i], max_rows, tile_rows, wide);
		}
		if (units >= enough || max_rows / 2 < MIN_UNIT_ROWS)
			return units;
	}
}

int64_t cpu_schedule(struct cpu_item *items, int64_t count, int threads,
		     int64_t tile_rows, bool has_wide_units)
{
	const int64_t enough = (int64_t)threads * UNITS_PER_THREAD;

	if (has_wide_units) {
		const int64_t units = cut_items(items, count, enough, tile_rows, true);

		if (units >= enough)
			return units;
	}
	return cut_items(items, count, enough, tile_rows, false);
}

/* ---- queues -------------------------------------------------------------- */

int64_t cpu_unit_cost(const struct cpu_item *item)
{
	const int64_t rows = item->m < item->unit_rows ? item->m : item->unit_rows;

	return (rows < 3 ? 3 : rows) * (item->blocks ? item->blocks : 1) *
	       (item->unit_cols / UNIT_COLS);
}

int64_t cpu_total_cost(const struct cpu_item *items, int64_t count)
{
	int64_t total = 0;

	for (int64_t i = 0; i < count; i++)
		total +=
		    items[i].row_units * items[i].col_units * cpu_unit_cost(&items[i]);
	return total;
}

void cpu_fill_queues(const struct cpu_item *items, int64_t count,
		     struct unit_queue *queues, int tasks)
{
	const int64_t total = cpu_total_cost(items, count);
	int64_t before = 0, task = 0, units = 0;

	for (int64_t i = 0; i < count; i++) {
		const struct cpu_item *item = &items[i];
		const int64_t cost = cpu_unit_cost(item);
		const int64_t after = before + item->row_units * item->col_units * cost;

		for (; task < tasks && total / tasks * task < after; task++)
			atomic_init(&queues[task].next,
				    item->first_unit +
					(total / tasks * task - before) / cost);
		before = after;
		units += item->row_units * item->col_units;
	}
	for (int64_t i = 0; i < tasks; i++)
		queues[i].end = i + 1 < tasks
				    ? atomic_load_explicit(&queues[i + 1].next,
							   memory_order_relaxed)
				    : units;
}
