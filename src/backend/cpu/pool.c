/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - a fixed pool of threads (pool.h).
 *
 *   caller                          worker i - 1
 *   post job to its slot  ------->  takes the job out of its slot
 *   runs task 0                     runs task i
 *   withdraws and runs what         job.left -= 1
 *   no worker has taken
 *   waits for job.left == 0  <----
 *
 * A job is on its caller's stack.  A worker may use it from taking it until
 * it has decremented job.left, except that the last one wakes a caller that
 * sleeps.  Worker and caller spin before they sleep, because a sleeping thread
 * takes 5 to 50 us to wake and runs follow each other closely.
 */
#include "pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "semaphore.h"

/* About 100 us of pauses. */
#define SPINS 4000
/* Two cache lines: processors fetch them in pairs. */
#define SLOT_BYTES 128
/* Flag in job.left: the caller sleeps until the last worker wakes it. */
#define CALLER_SLEEPS 0x80000000u

struct pool_job {
	void (*task)(void *arg, int i);
	void *arg;
	/* tasks except task 0 that have not ended, and the flag */
	_Atomic uint32_t left;
	cpu_semaphore done;
};

struct worker {
	/* Posted and not yet taken; written by callers, taken by the worker. */
	_Alignas(SLOT_BYTES) _Atomic(struct pool_job *) job;
	_Atomic bool sleeps;
	int task;
	const struct cpu_pool *pool;
	cpu_semaphore wake;
	pthread_t thread;
};

struct cpu_pool {
	/*
	 * 2 * `process` while a caller of this process starts threads, and 1
	 * more when `workers` of them run.  Any other value: none was started,
	 * or a process before the fork started them, so none runs here.
	 */
	_Atomic uint32_t state;
	int threads, workers;
	int spins;	       /* before a thread sleeps */
	struct worker slots[]; /* threads - 1 */
};

/* Posted to end a worker. */
static struct pool_job end_job;

/* ---- processes ---------------------------------------------------------- */

/* Counts the forks between the program's start and this process. */
static _Atomic uint32_t process = 1;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool sees_forks;

static void in_child(void)
{
	atomic_fetch_add(&process, 1);
}

static void watch_forks(void)
{
	sees_forks = pthread_atfork(NULL, NULL, in_child) == 0;
}

uint32_t cpu_process(void)
{
	pthread_once(&fork_once, watch_forks);
	return sees_forks ? atomic_load(&process) : 0;
}

/* ---- workers ------------------------------------------------------------ */

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

static struct pool_job *take_job(struct worker *worker)
{
	for (int i = 0; i < worker->pool->spins; i++) {
		if (atomic_load_explicit(&worker->job, memory_order_relaxed))
			break;
		pause_briefly();
	}
	return atomic_exchange(&worker->job, NULL);
}

/* Wakes the worker if it sleeps, or is about to. */
static void wake(struct worker *worker)
{
	if (atomic_load(&worker->sleeps) && atomic_exchange(&worker->sleeps, false))
		cpu_semaphore_post(&worker->wake);
}

static struct pool_job *next_job(struct worker *worker)
{
	for (;;) {
		struct pool_job *job = take_job(worker);

		if (job)
			return job;
		atomic_store(&worker->sleeps, true);
		/*
		 * A caller that posted a job before the store may not have seen that
		 * the worker sleeps, so the worker reads its slot again.  A caller that
		 * posts a job after the store wakes the worker, even if it withdraws
		 * the job.
		 */
		if (atomic_load(&worker->job) &&
		    atomic_exchange(&worker->sleeps, false))
			continue;
		cpu_semaphore_wait(&worker->wake);
	}
}

static void finish_task(struct pool_job *job)
{
	if (atomic_fetch_sub(&job->left, 1) == (CALLER_SLEEPS | 1))
		cpu_semaphore_post(&job->done);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct pool_job *job;

	while ((job = next_job(worker)) != &end_job) {
		job->task(job->arg, worker->task);
		finish_task(job);
	}
	return NULL;
}

/* ---- the pool ----------------------------------------------------------- */

struct cpu_pool *cpu_pool_new(int threads, bool spins)
{
	const size_t bytes =
	    sizeof(struct cpu_pool) + (size_t)(threads - 1) * sizeof(struct worker);
	struct cpu_pool *pool = aligned_alloc(SLOT_BYTES, (bytes + SLOT_BYTES - 1) /
							      SLOT_BYTES * SLOT_BYTES);

	if (!pool)
		return NULL;
	memset(pool, 0, bytes);
	pool->threads = threads;
	pool->spins = spins ? SPINS : 0;
	return pool;
}

/* Starts as many workers as the system allows; the caller runs the other tasks. */
static void start_workers(struct cpu_pool *pool)
{
	static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
	sigset_t all, saved;
	int i = 0;

	pool->workers = 0;
	if (!cpu_process())
		return;
	/*
	 * Workers block signals, so that the program's threads get them, except those
	 * that a worker raises itself, such as SIGBUS for a mapped file that was
	 * truncated.
	 */
	sigfillset(&all);
	for (size_t f = 0; f < sizeof(faults) / sizeof(*faults); f++)
		sigdelset(&all, faults[f]);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	for (; i < pool->threads - 1; i++) {
		struct worker *worker = &pool->slots[i];

		atomic_init(&worker->job, NULL);
		atomic_init(&worker->sleeps, false);
		worker->task = i + 1;
		worker->pool = pool;
		cpu_semaphore_init(&worker->wake);
		if (pthread_create(&worker->thread, NULL, work, worker) != 0)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	pool->workers = i;
}

/* The workers of this process, started if there are none yet. */
static int ready_workers(struct cpu_pool *pool)
{
	const uint32_t starting = 2 * atomic_load(&process);
	uint32_t state = atomic_load(&pool->state);

	if (state == starting + 1)
		return pool->workers;
	/* If another caller is starting them, this one runs without them. */
	if (state == starting ||
	    !atomic_compare_exchange_strong(&pool->state, &state, starting))
		return 0;
	start_workers(pool);
	atomic_store(&pool->state, starting + 1);
	return pool->workers;
}

void cpu_pool_free(struct cpu_pool *pool)
{
	if (!pool)
		return;
	if (atomic_load(&pool->state) == 2 * atomic_load(&process) + 1) {
		for (int i = 0; i < pool->workers; i++) {
			atomic_store(&pool->slots[i].job, &end_job);
			wake(&pool->slots[i]);
		}
		for (int i = 0; i < pool->workers; i++) {
			pthread_join(pool->slots[i].thread, NULL);
			cpu_semaphore_destroy(&pool->slots[i].wake);
		}
	}
	free(pool);
}

/* ---- runs --------------------------------------------------------------- */

/* Tasks 1 .. tasks-1 that the caller could give to a worker, a bit each. */
struct posted {
	uint64_t bits[POOL_MAX_THREADS / 64];
};

static void post(struct cpu_pool *pool, int tasks, struct pool_job *job,
		 struct posted *posted)
{
	const int workers = ready_workers(pool);

	memset(posted, 0, (size_t)(tasks + 63) / 64 * sizeof(*posted->bits));
	for (int i = 1; i < tasks && i <= workers; i++) {
		struct pool_job *none = NULL;

		/* Taken by the job of another caller: not posted. */
		if (!atomic_compare_exchange_strong(&pool->slots[i - 1].job, &none,
						    job))
			continue;
		posted->bits[i / 64] |= UINT64_C(1) << i % 64;
		wake(&pool->slots[i - 1]);
	}
}

/* Runs the tasks that no worker has taken; returns their number. */
static uint32_t run_rest(struct cpu_pool *pool, int tasks, struct pool_job *job,
			 const struct posted *posted)
{
	uint32_t count = 0;

	for (int i = 1; i < tasks; i++) {
		struct pool_job *mine = job;

		if (posted->bits[i / 64] >> i % 64 & 1 &&
		    !atomic_compare_exchange_strong(&pool->slots[i - 1].job, &mine,
						    NULL))
			continue;
		job->task(job->arg, i);
		count++;
	}
	return count;
}

static void wait_for_workers(const struct cpu_pool *pool, struct pool_job *job,
			     uint32_t finished)
{
	if (atomic_fetch_sub(&job->left, finished) == finished)
		return;
	for (int i = 0; i < pool->spins; i++) {
		if (atomic_load(&job->left) == 0)
			return;
		pause_briefly();
	}
	if (atomic_fetch_or(&job->left, CALLER_SLEEPS) == 0)
		return;
	cpu_semaphore_wait(&job->done);
}

void cpu_pool_run(struct cpu_pool *pool, int tasks, void (*task)(void *arg, int i),
		  void *arg)
{
	struct pool_job job = {.task = task, .arg = arg};
	struct posted posted;
	int cancel;

	assert(tasks <= pool->threads && tasks <= POOL_MAX_THREADS);
	/* A cancelled caller would take the job away from its workers. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	atomic_init(&job.left, (uint32_t)tasks - 1);
	cpu_semaphore_init(&job.done);
	post(pool, tasks, &job, &posted);
	task(arg, 0);
	wait_for_workers(pool, &job, run_rest(pool, tasks, &job, &posted));
	cpu_semaphore_destroy(&job.done);
	pthread_setcancelstate(cancel, NULL);
}
