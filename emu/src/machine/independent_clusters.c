/* SPDX-License-Identifier: Apache-2.0 */
/* independent_clusters.c - see independent_clusters.h. */
#include "machine/independent_clusters.h"

#include <pthread.h>
#include <stdatomic.h>

#include "machine/cluster.h"
#include "machine/prints.h"
#include "machine/random.h"
#include "machine/scheduler.h"
#include "machine/thread_pool.h"
#include "machine/traffic.h"
#include "machine/watch.h"

struct run {
	const struct emu_machine *before; /* the launch */
	struct emu_machine *after;
	struct emu_grid *grid;
	_Atomic uint64_t instructions;
	_Atomic uint32_t next;	       /* cluster to begin */
	_Atomic uint32_t lowest_fault; /* cluster; UINT32_MAX: none */
	pthread_mutex_t lock;	       /* of after */
};

/* Runs one cluster as if it were a grid. */
static void run_cluster(struct run *t, struct emu_machine *m, uint32_t index,
			uint64_t *clock, struct emu_traffic *traffic)
{
	struct emu_grid grid = *t->grid, *grids[] = {&grid};
	const struct emu_schedule schedule = {
	    .machine = m,
	    .grids = grids,
	    .n_grids = 1,
	    .instructions = &t->instructions,
	    .lowest_fault = &t->lowest_fault,
	    .index = index,
	};

	grid.machine = m;
	grid.traffic = t->grid->traffic ? traffic : NULL;
	grid.begun = grid.ended = index;
	grid.n_clusters = index + 1;
	/* No other cluster runs with it. */
	grid.resident = 1;
	emu_random_begin(m, index + UINT64_C(1));
	m->clock = t->before->clock;
	if (m->order)
		emu_order_begin_cluster(m->order);
	(void)emu_scheduler_run(&schedule);
	*clock += m->clock - t->before->clock;
}

/* Keeps the report of the lowest cluster. */
static void keep_report(struct run *t, const struct emu_machine *m, uint32_t index)
{
	pthread_mutex_lock(&t->lock);
	if (index < atomic_load(&t->lowest_fault)) {
		atomic_store(&t->lowest_fault, index);
		t->after->report = m->report;
		t->after->report_rule = m->report_rule;
		t->after->report_kernel = m->report_kernel;
		t->after->has_failed = true;
	}
	pthread_mutex_unlock(&t->lock);
}

/* Runs clusters until all have been taken, on a machine of this thread. */
static void run_clusters(void *context, uint32_t number)
{
	struct run *t = context;
	struct emu_machine m = *t->before;
	struct emu_traffic traffic = {.n_ranges = 0};
	uint64_t clock = 0;

	(void)number;
	m.blocks = NULL;
	m.instructions = 0;
	m.order = m.races ? emu_watch_cluster_open(t->grid) : NULL;
	while (!m.has_failed) {
		const uint32_t index = atomic_fetch_add(&t->next, 1);

		/* All clusters below the lowest failure have been taken. */
		if (index >= t->grid->n_clusters ||
		    index > atomic_load(&t->lowest_fault))
			break;
		run_cluster(t, &m, index, &clock, &traffic);
		if (m.has_failed)
			keep_report(t, &m, index);
	}
	emu_free_blocks(&m);
	pthread_mutex_lock(&t->lock);
	t->after->unwatched |= m.unwatched;
	if (m.order && emu_order_is_short(m.order))
		t->after->unwatched |= EMU_UNWATCHED_OLD;
	emu_order_close(m.order);
	t->after->instructions += m.instructions;
	t->after->clock += clock;
	if (t->grid->traffic)
		emu_traffic_add(t->grid->traffic, &traffic);
	pthread_mutex_unlock(&t->lock);
}

bool emu_independent_clusters_run(struct emu_machine *m, struct emu_grid *grid)
{
	struct emu_machine after = *m;
	struct run t = {.before = m,
			.after = &after,
			.grid = grid,
			.lowest_fault = UINT32_MAX,
			.lock = PTHREAD_MUTEX_INITIALIZER};
	const uint32_t wanted = m->options.threads ? m->options.threads : 1;
	const uint32_t threads = wanted < grid->n_clusters ? wanted : grid->n_clusters;
	struct emu_thread_pool *pool = emu_thread_pool_open(threads);

	m->races = emu_watch_races_open(&after, grid);
	emu_thread_pool_run(pool, threads, run_clusters, &t);
	emu_thread_pool_close(pool);
	emu_races_close(m->races);
	*m = after;
	if (m->has_failed)
		emu_prints_cut(m->prints, t.lowest_fault);
	grid->begun = grid->ended = grid->n_clusters;
	return !m->has_failed;
}
