/* SPDX-License-Identifier: Apache-2.0 */
/* thread_pool.h - runs tasks on threads of the host. */
#ifndef EMU_THREAD_POOL_H
#define EMU_THREAD_POOL_H

#include <stdint.h>

struct emu_thread_pool;

typedef void emu_task(void *context, uint32_t number);

/*
 * A pool of at most this many threads, the caller's included; NULL: no memory.
 * Threads start with the first run of more than one task.
 */
struct emu_thread_pool *emu_thread_pool_open(uint32_t threads);
void emu_thread_pool_close(struct emu_thread_pool *pool);

/* Threads that have started, the caller's included. */
uint32_t emu_thread_pool_threads(const struct emu_thread_pool *pool);

/*
 * Calls task(context, number) for each number below count, and returns after all
 * calls.  Without a pool (NULL) the caller's thread makes all calls.
 */
void emu_thread_pool_run(struct emu_thread_pool *pool, uint32_t count, emu_task *task,
			 void *context);

#endif
