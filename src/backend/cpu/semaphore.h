/* SPDX-License-Identifier: Apache-2.0 */
/*
 * semaphore.h - a counting semaphore of one process: that of POSIX, or a mutex and a
 * condition on macOS, where sem_init() is not implemented.
 */
#ifndef NIB_CPU_SEMAPHORE_H
#define NIB_CPU_SEMAPHORE_H

#if defined(__APPLE__)
#include <pthread.h>

typedef struct {
	pthread_mutex_t mutex;
	pthread_cond_t posted;
	unsigned int count;
} cpu_semaphore;

static inline void cpu_semaphore_init(cpu_semaphore *s)
{
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->posted, NULL);
	s->count = 0;
}

static inline void cpu_semaphore_destroy(cpu_semaphore *s)
{
	pthread_cond_destroy(&s->posted);
	pthread_mutex_destroy(&s->mutex);
}

/* The signal is sent under the lock, because a waiter may destroy s once it has it. */
static inline void cpu_semaphore_post(cpu_semaphore *s)
{
	pthread_mutex_lock(&s->mutex);
	s->count++;
	pthread_cond_signal(&s->posted);
	pthread_mutex_unlock(&s->mutex);
}

static inline void cpu_semaphore_wait(cpu_semaphore *s)
{
	pthread_mutex_lock(&s->mutex);
	while (s->count == 0)
		pthread_cond_wait(&s->posted, &s->mutex);
	s->count--;
	pthread_mutex_unlock(&s->mutex);
}
#else
#include <semaphore.h>

typedef sem_t cpu_semaphore;

static inline void cpu_semaphore_init(cpu_semaphore *s)
{
	sem_init(s, 0, 0);
}

static inline void cpu_semaphore_destroy(cpu_semaphore *s)
{
	sem_destroy(s);
}

static inline void cpu_semaphore_post(cpu_semaphore *s)
{
	sem_post(s);
}

static inline void cpu_semaphore_wait(cpu_semaphore *s)
{
	/* Signal handlers of the program interrupt a caller's wait. */
	while (sem_wait(s) != 0)
		;
}
#endif

#endif
