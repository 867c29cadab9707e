/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openmp.c - runs tasks on the OpenMP threads of another library of the process
 * (openmp.h).
 *
 * GOMP_parallel(body, data, threads, flags) is what GCC calls for `#pragma omp
 * parallel num_threads(threads)`: body(data) runs on the caller, which is
 * thread 0, and on threads - 1 others, and the call ends when all have returned.
 * (libgomp ABI, "Implementing PARALLEL construct", GCC's libgomp manual.)
 */
#include "openmp.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "pool.h"

struct cpu_openmp {
	void *library;
	void (*parallel)(void (*body)(void *data), void *data, unsigned threads,
			 unsigned flags);
	int (*thread_num)(void);
	uint32_t process; /* that opened it */
};

/* POSIX allows the address of a function in a void pointer; ISO C does not. */
static bool find(void *library, const char *name, void *function)
{
	void *address = dlsym(library, name);

	memcpy(function, &address, sizeof(address));
	return address != NULL;
}

enum nib_status cpu_openmp_open(const char *library, struct cpu_openmp **openmp,
				struct nib_error *err)
{
	struct cpu_openmp *o = calloc(1, sizeof(*o));

	*openmp = NULL;
	if (!o)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for OpenMP's functions");
	o->library = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (!o->library) {
		free(o);
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, "options.openmp",
					 " = '%.96s': must be a library that is loaded",
					 library);
	}
	if (!find(o->library, "GOMP_parallel", &o->parallel) ||
	    !find(o->library, "omp_get_thread_num", &o->thread_num)) {
		cpu_openmp_close(o);
		return nib_fail_argument(
		    err, NIB_STATUS_NO_DEVICE, "options.openmp",
		    " = '%.96s': neither it nor a library that it needs has "
		    "GOMP_parallel and omp_get_thread_num",
		    library);
	}
	o->process = cpu_process();
	*openmp = o;
	return NIB_STATUS_OK;
}

void cpu_openmp_close(struct cpu_openmp *openmp)
{
	if (!openmp)
		return;
	dlclose(openmp->library);
	free(openmp);
}

bool cpu_openmp_usable(const struct cpu_openmp *openmp)
{
	return openmp->process && openmp->process == cpu_process();
}

/* ---- runs ---------------------------------------------------------------- */

struct region {
	const struct cpu_openmp *openmp;
	void (*task)(void *arg, int i);
	void *arg;
	int tasks;
	_Atomic uint64_t begun[POOL_MAX_THREADS / 64]; /* a bit a task */
};

/* Runs a task unless another thread has begun it. */
static void run_once(struct region *region, int i)
{
	const uint64_t bit = UINT64_C(1) << i % 64;

	if (!(atomic_load(&region->begun[i / 64]) & bit) &&
	    !(atomic_fetch_or(&region->begun[i / 64], bit) & bit))
		region->task(region->arg, i);
}

/* What each thread does: the task of its number, then tasks that no thread has
 * begun. */
static void take_tasks(void *arg)
{
	struct region *region = arg;
	const int number = region->openmp->thread_num();

	if (number < region->tasks)
		run_once(region, number);
	for (int i = 0; i < region->tasks; i++)
		run_once(region, i);
}

void cpu_openmp_run(const struct cpu_openmp *openmp, int threads, int tasks,
		    void (*task)(void *arg, int i), void *arg)
{
	struct region region;
	int cancel;

	region.openmp = openmp;
	region.task = task;
	region.arg = arg;
	region.tasks = tasks;
	for (int i = 0; i < (tasks + 63) / 64; i++)
		atomic_init(&region.begun[i], 0);
	/* A cancelled caller would take the region away from its threads. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	openmp->parallel(take_tasks, &region, (unsigned)threads, 0);
	pthread_setcancelstate(cancel, NULL);
}
