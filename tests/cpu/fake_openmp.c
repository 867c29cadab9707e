/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_openmp.c - a library with the two functions of an OpenMP runtime that the CPU
 * backend calls.  Tests set the most threads that a parallel region gets, and the delay
 * of each.
 */
#include "fake_openmp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#define MAX_THREADS 16

struct fake_openmp fake_openmp = {MAX_THREADS, 0, 0};

static _Thread_local int number;

struct member {
	void (*body)(void *data);
	void *data;
	int number;
	pthread_t thread;
};

static void *run(void *arg)
{
	struct member *member = arg;
	const struct timespec late = {0, fake_openmp.late_ns};

	number = member->number;
	nanosleep(&late, NULL);
	member->body(member->data);
	return NULL;
}

int omp_get_thread_num(void)
{
	return number;
}

void GOMP_parallel(void (*body)(void *data), void *data, unsigned threads,
		   unsigned flags)
{
	struct member members[MAX_THREADS];
	int others = (int)threads - 1;

	(void)flags;
	atomic_fetch_add(&fake_openmp.regions, 1);
	if (others > fake_openmp.most_threads - 1)
		others = fake_openmp.most_threads - 1;
	for (int i = 0; i < others; i++) {
		members[i] = (struct member){body, data, i + 1, 0};
		pthread_create(&members[i].thread, NULL, run, &members[i]);
	}
	body(data);
	for (int i = 0; i < others; i++)
		pthread_join(members[i].thread, NULL);
}
