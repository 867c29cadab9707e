/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - cuts items into units. */
#include "schedule.h"

/* Units for each thread, so that all threads end at about the same time. */
#define UNITS_PER_THREAD 8
/* The fewest rows of a unit when items are divided: with fewer, decoding weights costs
 * more than the better balance gains. */
#define MIN_UNIT_ROWS 128

static int64_t divide_up(int64_t x, int64_t y)
{
	return (x + y - 1) / y;
}

/* Cuts one item into equal units of at most max_rows rows. */
static int64_t cut_item(struct cpu_item *item, int64_t max_rows, int64_t tile_rows)
{
	int64_t rows = divide_up(item->m, max_rows);

	item->unit_rows = tile_rows;
	item->row_units = 0;
	item->col_units = divide_up(item->n, UNIT_COLS);
	if (rows == 0)
		return 0;
	item->unit_rows = divide_up(divide_up(item->m, rows), tile_rows) * tile_rows;
	item->row_units = divide_up(item->m, item->unit_rows);
	return item->row_units * item->col_units;
}

int64_t cpu_schedule(struct cpu_item *items, int64_t count, int threads,
		     int64_t tile_rows)
{
	int64_t units;

	for (int64_t max_rows = MAX_UNIT_ROWS;; max_rows /= 2) {
		units = 0;
		for (int64_t i = 0; i < count; i++) {
			items[i].first_unit = units;
			units += cut_item(&items[i], max_rows, tile_rows);
		}
		if (units >= (int64_t)threads * UNITS_PER_THREAD ||
		    max_rows / 2 < MIN_UNIT_ROWS)
			return units;
	}
}
