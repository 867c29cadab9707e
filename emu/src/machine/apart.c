/* SPDX-License-Identifier: Apache-2.0 */
/* apart.c - see apart.h. */
#include "machine/apart.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "check/order.h"
#include "machine/random.h"
#include "machine/traffic.h"
#include "machine/warp.h"

#define MOST_THREADS 64
/* Looks for the others before a thread sleeps: some tens of microseconds. */
#define SPINS 100
/* Reads that are not worth waking other threads. */
#define FEW_READS 500

/* ---- a cluster's own -------------------------------------------------------
 */

/* The cluster's grid and machine while it runs apart. */
struct emu_own {
	struct emu_grid grid;
	struct emu_machine machine;
	struct emu_order_reads reads;
	struct emu_traffic traffic;
};

bool emu_apart_begin(struct emu_cluster *c, uint64_t stream)
{
	struct emu_own *own = calloc(1, sizeof(*own));

	if (!own)
		return false;
	own->grid = *c->grid;
	own->machine = *c->grid->machine;
	own->grid.machine = &own->machine;
	own->grid.traffic = c->grid->traffic ? &own->traffic : NULL;
	own->grid.triggered = 0;
	own->machine.reads = &own->reads;
	own->machine.blocks = NULL;
	emu_random_begin(&own->machine, stream);
	c->own = own;
	return true;
}

void emu_apart_end(struct emu_cluster *c)
{
	if (!c->own)
		return;
	if (c->grid->traffic)
		emu_traffic_add(c->grid->traffic, &c->own->traffic);
	free(c->own->reads.list);
	free(c->own);
	c->own = NULL;
}

static void prepare(struct emu_own *own, const struct emu_machine *m)
{
	own->machine.order = m->order;
	own->machine.clock = m->clock;
	own->machine.effects = own->machine.instructions = 0;
}

/* What the turn has counted. */
static void take(struct emu_machine *m, const struct emu_turn *t, uint64_t clock_before)
{
	struct emu_own *own = t->cluster->own;
	const struct emu_machine *from = &own->machine;

	m->effects += from->effects;
	m->instructions += from->instructions;
	m->clock += from->clock - clock_before;
	t->cluster->grid->triggered += own->grid.triggered;
	own->grid.triggered = 0;
	if (!from->has_failed || m->has_failed)
		return;
	m->has_failed = true;
	m->report = from->report;
	m->report_rule = from->report_rule;
}

/* ---- a turn ----------------------------------------------------------------
 */

/* A warp that can run, the ones behind w first. */
static struct emu_warp *next_warp(struct emu_cluster *c, const struct emu_warp *w)
{
	const uint32_t each = c->ctas[0].n_warps;
	const uint32_t at = w->cta->rank * each + w->index;

	for (uint32_t n = 1; n <= c->n_ctas * each; n++) {
		const uint32_t number = (at + n) % (c->n_ctas * each);
		struct emu_warp *next = &c->ctas[number / each].warps[number % each];

		if (next->wait == EMU_RUNNABLE)
			return next;
	}
	return NULL;
}

static void run_turn(struct emu_turn *t)
{
	struct emu_cluster *c = t->cluster;
	struct emu_grid *grid = c->grid;
	struct emu_warp *w = t->warp;

	c->grid = &c->own->grid;
	for (uint32_t n = 0; w && n < t->most; n++) {
		emu_warp_run(w, t->length);
		if (w->wait != EMU_AT_OTHERS && !w->has_polled)
			t->has_computed = true;
		w = c->own->machine.has_failed ? NULL : next_warp(c, w);
	}
	c->grid = grid;
}

/* ---- threads ---------------------------------------------------------------
 */

struct emu_crew {
	pthread_t threads[MOST_THREADS];
	uint32_t wanted, n_threads;
	pthread_mutex_t lock;
	pthread_cond_t begins, ends;
	bool is_open, is_closed;
	_Atomic uint32_t round; /* grows when there are tasks */
	_Atomic uint32_t next;	/* task to begin */
	_Atomic uint32_t busy;	/* threads that have come, without the caller's */
	/* What they do: a task of each number below n_tasks. */
	void (*task)(struct emu_crew *crew, uint32_t number);
	uint32_t n_tasks;
	struct emu_turn *turns;
	uint32_t count;
	struct emu_order *order;
};

static void run_task(struct emu_crew *crew, uint32_t number)
{
	run_turn(&crew->turns[number]);
}

/* What the turns have read, for the tables of one thread. */
static void add_task(struct emu_crew *crew, uint32_t number)
{
	for (uint32_t k = 0; k < crew->count; k++)
		emu_order_add(crew->order, &crew->turns[k].cluster->own->reads, number,
			      crew->n_tasks);
}

static void run_tasks(struct emu_crew *crew)
{
	uint32_t k;

	while ((k = atomic_fetch_add(&crew->next, 1)) < crew->n_tasks)
		crew->task(crew, k);
}

static void await_round(struct emu_crew *crew, uint32_t last)
{
	for (int n = 0; n < SPINS; n++) {
		if (atomic_load(&crew->round) != last)
			return;
		sched_yield();
	}
	pthread_mutex_lock(&crew->lock);
	while (atomic_load(&crew->round) == last)
		pthread_cond_wait(&crew->begins, &crew->lock);
	pthread_mutex_unlock(&crew->lock);
}

static void *work(void *argument)
{
	struct emu_crew *crew = argument;
	uint32_t round = 0;
	bool is_closed = false;

	while (!is_closed) {
		bool takes_part;

		await_round(crew, round);
		pthread_mutex_lock(&crew->lock);
		round = atomic_load(&crew->round);
		is_closed = crew->is_closed;
		takes_part = crew->is_open;
		if (takes_part)
			atomic_fetch_add(&crew->busy, 1);
		pthread_mutex_unlock(&crew->lock);
		if (!takes_part)
			continue;
		run_tasks(crew);
		pthread_mutex_lock(&crew->lock);
		if (atomic_fetch_sub(&crew->busy, 1) == 1)
			pthread_cond_signal(&crew->ends);
		pthread_mutex_unlock(&crew->lock);
	}
	return NULL;
}

static void begin_round(struct emu_crew *crew, bool is_open)
{
	pthread_mutex_lock(&crew->lock);
	atomic_store(&crew->next, 0);
	crew->is_open = is_open;
	atomic_fetch_add(&crew->round, 1);
	pthread_cond_broadcast(&crew->begins);
	pthread_mutex_unlock(&crew->lock);
}

/* A thread that comes when all tasks have been taken is not waited for. */
static void end_round(struct emu_crew *crew)
{
	pthread_mutex_lock(&crew->lock);
	crew->is_open = false;
	pthread_mutex_unlock(&crew->lock);
	for (int n = 0; n < SPINS && atomic_load(&crew->busy); n++)
		sched_yield();
	pthread_mutex_lock(&crew->lock);
	while (atomic_load(&crew->busy))
		pthread_cond_wait(&crew->ends, &crew->lock);
	pthread_mutex_unlock(&crew->lock);
}

struct emu_crew *emu_crew_open(uint32_t threads)
{
	struct emu_crew *crew = calloc(1, sizeof(*crew));

	if (!crew)
		return NULL;
	pthread_mutex_init(&crew->lock, NULL);
	pthread_cond_init(&crew->begins, NULL);
	pthread_cond_init(&crew->ends, NULL);
	crew->wanted = threads < MOST_THREADS ? threads : MOST_THREADS;
	return crew;
}

/* They begin when there is work for two. */
static void hire(struct emu_crew *crew)
{
	while (crew->n_threads + 1 < crew->wanted &&
	       pthread_create(&crew->threads[crew->n_threads], NULL, work, crew) == 0)
		crew->n_threads++;
	crew->wanted = 0;
}

void emu_crew_close(struct emu_crew *crew)
{
	if (!crew)
		return;
	pthread_mutex_lock(&crew->lock);
	crew->is_closed = true;
	pthread_mutex_unlock(&crew->lock);
	begin_round(crew, false);
	for (uint32_t k = 0; k < crew->n_threads; k++)
		pthread_join(crew->threads[k], NULL);
	pthread_cond_destroy(&crew->ends);
	pthread_cond_destroy(&crew->begins);
	pthread_mutex_destroy(&crew->lock);
	free(crew);
}

static void share_out(struct emu_crew *crew, uint32_t n_tasks,
		      void (*task)(struct emu_crew *crew, uint32_t number))
{
	crew->task = task;
	crew->n_tasks = n_tasks;
	if (n_tasks > 1 && crew->n_threads) {
		begin_round(crew, true);
		run_tasks(crew);
		end_round(crew);
	} else {
		atomic_store(&crew->next, 0);
		run_tasks(crew);
	}
}

void emu_apart_run(struct emu_crew *crew, struct emu_machine *m, struct emu_turn *turns,
		   uint32_t count)
{
	const uint64_t clock = m->clock;
	size_t reads = 0;

	for (uint32_t k = 0; k < count; k++)
		prepare(turns[k].cluster->own, m);
	if (count > 1)
		hire(crew);
	crew->turns = turns;
	crew->count = count;
	crew->order = m->order;
	share_out(crew, count, run_task);
	for (uint32_t k = 0; k < count; k++) {
		take(m, &turns[k], clock);
		reads += turns[k].cluster->own->reads.count;
	}
	if (reads)
		share_out(crew, reads > FEW_READS ? crew->n_threads + 1 : 1, add_task);
	for (uint32_t k = 0; k < count; k++)
		turns[k].cluster->own->reads.count = 0;
}
