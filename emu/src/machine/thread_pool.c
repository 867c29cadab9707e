/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_pool.c - see thread_pool.h.  Each run is a generation: threads wait for it,
 * and join it while it is open.
 */
#include "machine/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define MOST_THREADS 64
/* Polls before a thread sleeps: some tens of microseconds. */
#define SPINS 100

struct emu_thread_pool {
	pthread_t threads[MOST_THREADS];
	uint32_t wanted;    /* threads to start, the caller's included */
	uint32_t n_threads; /* started, without the caller's */
	pthread_mutex_t lock;
	pthread_cond_t begins, ends;
	bool is_open, is_closed;
	_Atomic uint32_t generation; /* incremented by each run and by close */
	_Atomic uint32_t next;	     /* task to begin */
	_Atomic uint32_t busy;	     /* threads in run_tasks(), without the caller's */
	emu_task *task;
	void *context;
	uint32_t n_tasks;
};

static void run_tasks(struct emu_thread_pool *pool)
{
	uint32_t k;

	while ((k = atomic_fetch_add(&pool->next, 1)) < pool->n_tasks)
		pool->task(pool->context, k);
}

static void await_generation(struct emu_thread_pool *pool, uint32_t last)
{
	for (int n = 0; n < SPINS; n++) {
		if (atomic_load(&pool->generation) != last)
			return;
		sched_yield();
	}
	pthread_mutex_lock(&pool->lock);
	while (atomic_load(&pool->generation) == last)
		pthread_cond_wait(&pool->begins, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

static void *run_thread(void *argument)
{
	struct emu_thread_pool *pool = argument;
	uint32_t generation = 0;
	bool is_closed = false;

	while (!is_closed) {
		bool takes_part;

		await_generation(pool, generation);
		pthread_mutex_lock(&pool->lock);
		generation = atomic_load(&pool->generation);
		is_closed = pool->is_closed;
		takes_part = pool->is_open;
		if (takes_part)
			atomic_fetch_add(&pool->busy, 1);
		pthread_mutex_unlock(&pool->lock);
		if (!takes_part)
			continue;
		run_tasks(pool);
		pthread_mutex_lock(&pool->lock);
		if (atomic_fetch_sub(&pool->busy, 1) == 1)
			pthread_cond_signal(&pool->ends);
		pthread_mutex_unlock(&pool->lock);
	}
	return NULL;
}

static void begin_generation(struct emu_thread_pool *pool, bool is_open)
{
	pthread_mutex_lock(&pool->lock);
	atomic_store(&pool->next, 0);
	pool->is_open = is_open;
	atomic_fetch_add(&pool->generation, 1);
	pthread_cond_broadcast(&pool->begins);
	pthread_mutex_unlock(&pool->lock);
}

/* Waits only for threads that have joined; the others find the generation closed. */
static void end_generation(struct emu_thread_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->is_open = false;
	pthread_mutex_unlock(&pool->lock);
	for (int n = 0; n < SPINS && atomic_load(&pool->busy); n++)
		sched_yield();
	pthread_mutex_lock(&pool->lock);
	while (atomic_load(&pool->busy))
		pthread_cond_wait(&pool->ends, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

struct emu_thread_pool *emu_thread_pool_open(uint32_t threads)
{
	struct emu_thread_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->begins, NULL);
	pthread_cond_init(&pool->ends, NULL);
	pool->wanted = threads < MOST_THREADS ? threads : MOST_THREADS;
	return pool;
}

static void start_threads(struct emu_thread_pool *pool)
{
	while (pool->n_threads + 1 < pool->wanted &&
	       pthread_create(&pool->threads[pool->n_threads], NULL, run_thread,
			      pool) == 0)
		pool->n_threads++;
	pool->wanted = 0; /* if some could not start, do without */
}

void emu_thread_pool_close(struct emu_thread_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->is_closed = true;
	pthread_mutex_unlock(&pool->lock);
	begin_generation(pool, false);
	for (uint32_t k = 0; k < pool->n_threads; k++)
		pthread_join(pool->threads[k], NULL);
	pthread_cond_destroy(&pool->ends);
	pthread_cond_destroy(&pool->begins);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

uint32_t emu_thread_pool_threads(const struct emu_thread_pool *pool)
{
	return pool->n_threads + 1;
}

void emu_thread_pool_run(struct emu_thread_pool *pool, uint32_t count, emu_task *task,
			 void *context)
{
	if (!pool) {
		for (uint32_t k = 0; k < count; k++)
			task(context, k);
		return;
	}
	pool->task = task;
	pool->context = context;
	pool->n_tasks = count;
	if (count > 1)
		start_threads(pool);
	if (count > 1 && pool->n_threads) {
		begin_generation(pool, true);
		run_tasks(pool);
		end_generation(pool);
	} else {
		atomic_store(&pool->next, 0);
		run_tasks(pool);
	}
}
