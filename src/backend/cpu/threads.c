/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.c - how many threads a device has, and its tasks onto them or the
 * caller's pool.
 */
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "core/error.h"
#include "cpu.h"
#include "float_mode.h"
#include "pool.h"

/* ---- how many ----------------------------------------------------------- */

/* Processors that the calling thread may use. */
static int count_processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return CPU_COUNT(&set);
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (int)n : 1;
}

/*
 * The first number of a variable such as OMP_NUM_THREADS=4,2, at most `most`;
 * `otherwise` if there is none or it is not positive.
 */
static int variable(const char *name, int most, int otherwise)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (!text)
		return otherwise;
	value = strtol(text, &end, 10);
	while (*end == ' ')
		end++;
	if (end == text || (*end && *end != ',') || value <= 0)
		return otherwise;
	return value < most ? (int)value : most;
}

enum nib_status cpu_threads_open(struct cpu_device *device,
				 const struct nib_device_options *options,
				 struct nib_error *err)
{
	const char *policy = getenv("OMP_WAIT_POLICY");
	const int processors = count_processors();
	int threads = options->threads;

	if (!threads) {
		threads =
		    variable("OMP_NUM_THREADS", POOL_MAX_THREADS, processors);
		threads = variable("OMP_THREAD_LIMIT", threads, threads);
	}
	device->threads =
	    threads < POOL_MAX_THREADS ? threads : POOL_MAX_THREADS;
	device->parallel_for = options->parallel_for;
	device->caller_pool = options->pool;
	device->pool = NULL;
	if (device->threads == 1 || device->parallel_for)
		return NIB_OK;
	/* Threads spin only if each has a processor: else a spinning one keeps
	 * another waiting. */
	device->pool = cpu_pool_new(
	    device->threads, device->threads <= processors &&
				 (!policy || strcasecmp(policy, "passive")));
	if (!device->pool)
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory for %d threads", device->threads);
	return NIB_OK;
}

void cpu_threads_close(struct cpu_device *device)
{
	cpu_pool_free(device->pool);
}

/* ---- tasks -------------------------------------------------------------- */

struct job {
	void (*task)(void *arg, int i);
	void *arg;
};

static void run_task(void *arg, int i)
{
	const struct job *job = arg;
	cpu_float_mode saved = cpu_default_float_mode();

	job->task(job->arg, i);
	cpu_restore_float_mode(&saved);
}

void cpu_parallel(const struct cpu_device *device, int tasks,
		  void (*task)(void *arg, int i), void *arg)
{
	struct job job = {task, arg};

	if (tasks == 1)
		run_task(&job, 0);
	else if (device->parallel_for)
		device->parallel_for(device->caller_pool, tasks, run_task,
				     &job);
	else
		cpu_pool_run(device->pool, tasks, run_task, &job);
}
