/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the threads of a CPU device.
 *
 * A pool starts its threads in its first run and ends them when it is freed, so
 * that a program may unload the library once its devices are closed.  After
 * fork() a child's first run starts threads of its own.  The threads block all
 * signals, which are the program's.
 */
#ifndef NIB_CPU_POOL_H
#define NIB_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

/* The API layer refuses more in options.threads. */
#define POOL_MAX_THREADS 4096

struct cpu_pool;

/*
 * A pool of the calling thread and threads - 1 others; NULL if memory is short.  spins:
 * a waiting thread spins for about 100 us before it sleeps.
 */
struct cpu_pool *cpu_pool_new(int threads, bool spins);

/*
 * Calls task(arg, 0 .. tasks-1) and returns when all have returned; tasks is at
 * most the pool's threads.  The caller runs task 0 and thread i task i, so that
 * tasks of successive runs find their data in the same caches; a task that no
 * thread has begun when the caller is ready is run by the caller.  Several
 * callers may run at once.
 */
void cpu_pool_run(struct cpu_pool *pool, int tasks, void (*task)(void *arg, int i),
		  void *arg);

/* Ends the threads and waits for them.  No run may be in progress. */
void cpu_pool_free(struct cpu_pool *pool);

/*
 * A number of this process that its forks do not have; 0 if the system cannot detect
 * forks.
 */
uint32_t cpu_process(void);

#endif
