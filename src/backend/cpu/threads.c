/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.c - the number of threads of a device, and which threads run its tasks: those
 * of the caller's pool, the OpenMP threads of another library, or the device's pool.
 */
#include <limits.h>
#ifdef __linux__
#include <sched.h>
#endif
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
#ifdef __linux__
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return CPU_COUNT(&set);
#endif
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

/* The number of threads that the options or the environment request. */
static int wanted_threads(int wanted, int processors)
{
	if (!wanted) {
		wanted = variable("OMP_NUM_THREADS", POOL_MAX_THREADS, processors);
		wanted = variable("OMP_THREAD_LIMIT", wanted, wanted);
	}
	return wanted < POOL_MAX_THREADS ? wanted : POOL_MAX_THREADS;
}

enum nib_status cpu_threads_open(struct cpu_device *device,
				 const struct nib_device_options *options,
				 struct nib_error *err)
{
	const char *policy = getenv("OMP_WAIT_POLICY");
	const int processors = count_processors();
	enum nib_status status = NIB_STATUS_OK;

	device->threads = wanted_threads(options->threads, processors);
	device->parallel_for = options->parallel_for;
	device->caller_pool = options->pool;
	if (options->parallel_for && options->openmp)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "options.openmp",
		    " = '%.96s': must be NULL where options.parallel_for is "
		    "not",
		    options->openmp);
	if (options->openmp)
		status = cpu_openmp_open(options->openmp, &device->openmp, err);
	if (status || device->threads == 1 || device->parallel_for)
		return status;
	/* Threads spin only if each has a processor; otherwise a spinning thread would
	 * keep another from running. */
	device->pool = cpu_pool_new(device->threads,
				    device->threads <= processors &&
					(!policy || strcasecmp(policy, "passive")));
	device->pace = calloc(1, sizeof(*device->pace));
	if (device->pool && device->pace)
		return NIB_STATUS_OK;
	cpu_threads_close(device);
	return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY, "no memory for %d threads",
			device->threads);
}

void cpu_threads_close(struct cpu_device *device)
{
	cpu_pool_free(device->pool);
	cpu_openmp_close(device->openmp);
	free(device->pace);
}

/* ---- tasks -------------------------------------------------------------- */

struct task_call {
	void (*task)(void *arg, int i);
	void *arg;
};

static void run_task(void *arg, int i)
{
	const struct task_call *call = arg;
	cpu_float_mode saved = cpu_default_float_mode();

	call->task(call->arg, i);
	cpu_restore_float_mode(&saved);
}

bool cpu_parallel(const struct cpu_device *device, int tasks,
		  void (*task)(void *arg, int i), void *arg)
{
	struct task_call call = {task, arg};

	if (device->parallel_for && tasks > 1) {
		device->parallel_for(device->caller_pool, tasks, run_task, &call);
	} else if (tasks == 1 ||
		   cpu_pace_uses_caller_only(device->pace, cpu_now_ns())) {
		for (int i = 0; i < tasks; i++)
			run_task(&call, i);
		return false;
	} else if (device->openmp && cpu_openmp_usable(device->openmp)) {
		cpu_openmp_run(device->openmp, device->threads, tasks, run_task, &call);
	} else {
		cpu_pool_run(device->pool, tasks, run_task, &call);
	}
	return true;
}
