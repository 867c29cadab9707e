/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - tasks onto OpenMP's threads or the caller's pool. */
#include <immintrin.h>

#include "cpu.h"

/* Round to nearest, all exceptions masked, no flush-to-zero. */
#define DEFAULT_MXCSR 0x1f80u

struct job {
	void (*task)(void *arg, int i);
	void *arg;
};

static void run_task(void *arg, int i)
{
	const struct job *job = arg;
	unsigned int saved = _mm_getcsr();

	_mm_setcsr(DEFAULT_MXCSR);
	job->task(job->arg, i);
	_mm_setcsr(saved);
}

void cpu_parallel(const struct cpu_device *device, int tasks,
		  void (*task)(void *arg, int i), void *arg)
{
	struct job job = {task, arg};

	if (tasks == 1) {
		run_task(&job, 0);
	} else if (device->parallel_for) {
		device->parallel_for(device->pool, tasks, run_task, &job);
	} else {
#pragma omp parallel for num_threads(device->threads) schedule(static, 1)
		for (int i = 0; i < tasks; i++)
			run_task(&job, i);
	}
}
