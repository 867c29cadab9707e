/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - see team.h. */
#include "machine/team.h"

#include <pthread.h>
#include <stdatomic.h>

#include "machine/cluster.h"
#include "machine/prints.h"
#include "machine/random.h"
#include "machine/schedule.h"
#include "machine/traffic.h"

#define MOST_THREADS 64

struct team {
	const struct emu_machine *before; /* the launch */
	struct emu_machine *after;
	struct emu_grid *grid;
	_Atomic uint64_t instructions;
	_Atomic uint32_t next;	       /* cluster to begin */
	_Atomic uint32_t lowest_fault; /* cluster; UINT32_MAX: none */
	pthread_mutex_t lock;	       /* of after */
};

/* One cluster, as if it were a grid, on a machine of this thread's. */
static void run_cluster(struct team *t, struct emu_machine *m, uint32_t index,
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
	/* It has no other cluster beside it. */
	grid.resident = 1;
	emu_random_begin(m, index + UINT64_C(1));
	m->clock = t->before->clock;
	(void)emu_schedule_run(&schedule);
	*clock += m->clock - t->before->clock;
}

/* The report of the lowest cluster stays. */
static void tell(struct team *t, const struct emu_machine *m, uint32_t index)
{
	pthread_mutex_lock(&t->lock);
	if (index < atomic_load(&t->lowest_fault)) {
		atomic_store(&t->lowest_fault, index);
		t->after->report = m->report;
		t->after->report_rule = m->report_rule;
		t->after->has_failed = true;
	}
	pthread_mutex_unlock(&t->lock);
}

static void *work(void *argument)
{
	struct team *t = argument;
	struct emu_machine m = *t->before;
	struct emu_traffic traffic = {.n_ranges = 0};
	uint64_t clock = 0;

	m.blocks = NULL;
	m.instructions = 0;
	while (!m.has_failed) {
		const uint32_t index = atomic_fetch_add(&t->next, 1);

		/* Those below the lowest one are all taken. */
		if (index >= t->grid->n_clusters ||
		    index > atomic_load(&t->lowest_fault))
			break;
		run_cluster(t, &m, index, &clock, &traffic);
		if (m.has_failed)
			tell(t, &m, index);
	}
	emu_free_blocks(&m);
	pthread_mutex_lock(&t->lock);
	t->after->instructions += m.instructions;
	t->after->clock += clock;
	if (t->grid->traffic)
		emu_traffic_add(t->grid->traffic, &traffic);
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

bool emu_team_run(struct emu_machine *m, struct emu_grid *grid)
{
	struct emu_machine after = *m;
	struct team t = {.before = m,
			 .after = &after,
			 .grid = grid,
			 .lowest_fault = UINT32_MAX,
			 .lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t threads[MOST_THREADS];
	uint32_t most = m->options.threads, begun = 0;

	if (most > grid->n_clusters)
		most = grid->n_clusters;
	if (most > MOST_THREADS)
		most = MOST_THREADS;
	/* One fewer: this thread works, too. */
	while (begun + 1 < most && pthread_create(&threads[begun], NULL, work, &t) == 0)
		begun++;
	(void)work(&t);
	for (uint32_t i = 0; i < begun; i++)
		pthread_join(threads[i], NULL);
	*m = after;
	if (m->has_failed)
		emu_prints_cut(m->prints, t.lowest_fault);
	grid->begun = grid->ended = grid->n_clusters;
	return !m->has_failed;
}
