/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule.h - divides items (matrix products) into units (rectangles of output), which
 * threads multiply in order.
 */
#ifndef NIB_CPU_SCHEDULE_H
#define NIB_CPU_SCHEDULE_H

#include <stdatomic.h>

#include "gemm_ops.h"

/* The most rows of a unit: 64 columns of sums then fill 128 KiB of a core's L2, and
 * those of a wide unit as much. */
#define MAX_UNIT_ROWS 512
#define MAX_WIDE_ROWS (MAX_UNIT_ROWS * UNIT_COLS / WIDE_COLS)
/* The fewest rows of a unit when items are divided: with fewer, decoding weights costs
 * more than the better balance gains.  Wide units have more rows. */
#define MIN_UNIT_ROWS 128

/*
 * Sets the division into units of every item (m, n given) and returns the number of
 * units.  Each element of an output is in exactly one unit.  Units are wide where
 * has_wide_units allows, the item has more than MIN_UNIT_ROWS rows, and all threads
 * still have enough of them.
 */
int64_t cpu_schedule(struct cpu_item *items, int64_t count, int threads,
		     int64_t tile_rows, bool has_wide_units);

/*
 * The cost of one unit of an item, counted in rows of a block of UNIT_COLS columns.
 * One and two rows cost as much as three, because all of them wait for the weights
 * from memory.
 */
int64_t cpu_unit_cost(const struct cpu_item *item);
/* The cost of all units. */
int64_t cpu_total_cost(const struct cpu_item *items, int64_t count);

/* The units of a thread, in order; each queue has its own cache line. */
struct unit_queue {
	_Atomic int64_t next;
	int64_t end;
	/* The least time that the thread took for a unit of cost 1; 0: none. */
	double least_ns;
	char line[40];
};

/*
 * Gives each of `tasks` queues units of about the same total cost.  Those of one matrix
 * are nearly the panels that cpu_first_panel() gives the same task.
 */
void cpu_fill_queues(const struct cpu_item *items, int64_t count,
		     struct unit_queue *queues, int tasks);

/*
 * The first panel that a task packs, of `panels` in all: equal parts, in order.  So a
 * thread first touches most of the pages that it reads in products of few rows.
 */
static inline int64_t cpu_first_panel(int64_t panels, int task, int tasks)
{
	return panels * task / tasks;
}

/* A position in the schedule; moves forward only. */
struct cpu_cursor {
	const struct cpu_item *items;
	int64_t item;
};

/* The item of unit, which must not be before that of the previous call. */
static inline const struct cpu_item *
cpu_find_unit(struct cpu_cursor *cursor, int64_t unit, int64_t *m0, int64_t *n0)
{
	const struct cpu_item *item = &cursor->items[cursor->item];
	int64_t local;

	while (unit >= item->first_unit + item->row_units * item->col_units)
		item = &cursor->items[++cursor->item];
	local = unit - item->first_unit;
	*m0 = local / item->col_units * item->unit_rows;
	*n0 = local % item->col_units * item->unit_cols;
	return item;
}

#endif
