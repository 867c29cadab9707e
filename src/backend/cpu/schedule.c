/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - cuts items into units. */
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
