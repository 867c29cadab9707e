/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many threads a device has, when they start and end, and what signals and
 * cancellation do to them: src/backend/cpu/threads.c, pool.c.
 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/pool.h"
#include "common/problem.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"

static struct rng rng = {20};

static const struct job_spec spec = {
    .op = NIB_OP_GEMM, .m = 130, .n = 700, .k = 320, .dtype = NIB_DTYPE_FP32};

static int opened_threads(int wanted)
{
	struct nib_device *device = test_device(NULL, wanted);
	const struct nib_device_info info = test_device_info(device);

	nib_device_close(device);
	assert_int_equal(info.multiprocessors, 0);
	return info.threads;
}

static void set_variable(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* ---- how many ------------------------------------------------------------ */

static void openmp_variables(void **state)
{
	static const struct {
		const char *threads, *limit;
		int asked, got; /* got 0: the processors */
	} cases[] = {
	    {NULL, NULL, 0, 0},
	    {"1", NULL, 0, 1},
	    {"3", NULL, 0, 3},
	    {"5,2", NULL, 0, 5},
	    {" 7 ", NULL, 0, 7},
	    {"", NULL, 0, 0},
	    {"0", NULL, 0, 0},
	    {"-3", NULL, 0, 0},
	    {"two", NULL, 0, 0},
	    {"2x", NULL, 0, 0},
	    {"6", "4", 0, 4},
	    {"3", "4", 0, 3},
	    {NULL, "1", 0, 1},
	    {NULL, "x", 0, 0},
	    {"1", NULL, 4, 4},
	    {NULL, "1", 4, 4},
	    {"2", "1", 3, 3},
	    {"9999999", NULL, 0, 4096},
	    {"99999999999999999999", NULL, 0, 4096},
	};
	int processors;

	set_variable("OMP_NUM_THREADS", NULL);
	set_variable("OMP_THREAD_LIMIT", NULL);
	processors = opened_threads(0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		set_variable("OMP_NUM_THREADS", cases[i].threads);
		set_variable("OMP_THREAD_LIMIT", cases[i].limit);
		assert_int_equal(opened_threads(cases[i].asked),
				 cases[i].got ? cases[i].got : processors);
	}
	set_variable("OMP_NUM_THREADS", NULL);
	set_variable("OMP_THREAD_LIMIT", NULL);
}

static void affinity_mask(void **state)
{
	cpu_set_t all, some;
	size_t first = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&some);
	CPU_SET(first, &some);
	assert_int_equal(sched_setaffinity(0, sizeof(some), &some), 0);
	assert_int_equal(opened_threads(0), 1);
	assert_int_equal(opened_threads(2), 2);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(opened_threads(0), CPU_COUNT(&all));
}

/* ---- their life ---------------------------------------------------------- */

/* Threads of this process; a joined one may take a moment to leave the list. */
static int count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *entry;
	int count = 0;

	assert_non_null(tasks);
	while ((entry = readdir(tasks)))
		count += entry->d_name[0] != '.';
	closedir(tasks);
	return count;
}

static void wait_for_threads(int wanted)
{
	const struct timespec pause = {0, 1000000};

	for (int i = 0; i < 5000 && count_threads() != wanted; i++)
		nanosleep(&pause, NULL);
	assert_int_equal(count_threads(), wanted);
}

static void *do_nothing(void *arg)
{
	return arg;
}

static void threads_end_with_their_device(void **state)
{
	const int before = count_threads();

	for (int i = 0; i < 10; i++) {
		const struct job_how how = {.device = test_device(NULL, 3)};
		struct job *job = job_of(&rng, &spec);

		assert_int_equal(count_threads(), before);
		job_run(job, &how, "three threads");
		assert_int_equal(count_threads(), before + 2);
		nib_device_close(how.device);
		wait_for_threads(before);
		job_check(job, "three threads");
		job_free(job);
	}
}

static void runs_without_threads(void **state)
{
	const int before = count_threads();
	struct job_how how = {.device = NULL};
	struct nib_plan *plan;
	struct job *job;

	if (!test_alloc_works())
		skip();
	how.device = test_device(NULL, 3);
	job = job_of(&rng, &spec);
	plan = job_plan(job, how.device, false);
	job_poison(job);
	/* No memory for a thread: the first run is the one that starts them. */
	test_alloc_fail(1, TEST_ALLOC_FROM);
	job_run_plan(job, plan, NULL, "no threads");
	test_alloc_stop();
	job_check(job, "no threads");
	nib_plan_free(plan);
	nib_device_close(how.device);
	wait_for_threads(before);
	job_free(job);
}

/* ---- signals and cancellation -------------------------------------------- */

static void signals_are_the_programs(void **state)
{
	const struct job_how how = {.device = test_device(NULL, 3)};
	struct job *job = job_of(&rng, &spec);
	sigset_t ours, saved, pending;
	int signal;

	job_run(job, &how, "three threads");
	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &ours, &saved), 0);
	/* A signal of the process ends it in any thread that does not block it. */
	kill(getpid(), SIGTERM);
	kill(getpid(), SIGUSR1);
	job_run(job, &how, "signals pending");
	assert_int_equal(sigpending(&pending), 0);
	assert_true(sigismember(&pending, SIGTERM));
	assert_true(sigismember(&pending, SIGUSR1));
	assert_int_equal(sigwait(&ours, &signal), 0);
	assert_int_equal(sigwait(&ours, &signal), 0);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &saved, NULL), 0);
	nib_device_close(how.device);
	job_free(job);
}

static void *run_cancelled(void *arg)
{
	struct job *job = ((void **)arg)[0];
	struct nib_plan *plan = ((void **)arg)[1];
	_Atomic int *done = ((void **)arg)[2];

	pthread_cancel(pthread_self());
	for (int i = 0; i < 50; i++)
		job_run_plan(job, plan, NULL, "cancelled");
	*done = 1;
	pthread_testcancel();
	return NULL;
}

/* A run whose thread is cancelled ends first, because other threads hold
 * pointers to its stack. */
static void cancellation_waits(void **state)
{
	struct nib_device *device;
	struct job *job = job_of(&rng, &spec);
	struct nib_plan *plan;
	_Atomic int done = 0;
	void *result, *arg[3];
	pthread_t thread;

	/* The caller sleeps at once, because it can only be cancelled while it
	 * waits. */
	setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
	device = test_device(NULL, 4);
	unsetenv("OMP_WAIT_POLICY");
	plan = job_plan(job, device, false);
	arg[0] = job;
	arg[1] = plan;
	arg[2] = &done;
	assert_int_equal(pthread_create(&thread, NULL, run_cancelled, arg), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(done, 1);
	job_check(job, "cancelled");
	nib_plan_free(plan);
	nib_device_close(device);
	job_free(job);
}

/* ---- waiting ------------------------------------------------------------- */

struct meeting {
	_Atomic bool has_begun, has_ended;
};

/* Task 1 is begun by a worker while task 0 runs, and ends long after it. */
static void meet(void *arg, int i)
{
	const struct timespec pause = {0, 2000000};
	struct meeting *meeting = arg;

	if (i == 1) {
		meeting->has_begun = true;
		nanosleep(&pause, NULL);
		meeting->has_ended = true;
		return;
	}
	for (int tries = 0; tries < 5000 && !meeting->has_begun; tries++)
		nanosleep(&pause, NULL);
}

/* Whether it spins or sleeps, a run is over when the last task is. */
static void runs_wait_for_workers(void **state)
{
	for (int spins = 0; spins < 2; spins++) {
		struct cpu_pool *pool = cpu_pool_new(2, spins);

		assert_non_null(pool);
		for (int i = 0; i < 20; i++) {
			struct meeting meeting = {false, false};

			cpu_pool_run(pool, 2, meet, &meeting);
			assert_true(meeting.has_begun && meeting.has_ended);
		}
		cpu_pool_free(pool);
	}
}

/* ---- many at once -------------------------------------------------------- */

enum { CALLERS = 4 };

struct caller {
	struct job *job;
	struct nib_plan *plan;
	struct bits bits;
};

static void *call_often(void *arg)
{
	struct caller *caller = arg;

	for (int i = 0; i < (test_is_tiny() ? 3 : test_is_small() ? 20 : 200); i++) {
		job_poison(caller->job);
		job_run_plan(caller->job, caller->plan, NULL, "many callers");
		job_has_bits(caller->job, &caller->bits, "many callers");
	}
	return NULL;
}

static void callers_share_threads(void **state)
{
	static const char *const policies[] = {"active", "passive"};
	struct caller callers[CALLERS];
	pthread_t threads[CALLERS];

	for (int p = 0; p < 2; p++) {
		struct nib_device *one = test_device(NULL, 1), *device;

		setenv("OMP_WAIT_POLICY", policies[p], 1);
		device = test_device(NULL, 3);
		unsetenv("OMP_WAIT_POLICY");
		for (int i = 0; i < CALLERS; i++) {
			struct caller *c = &callers[i];

			c->job = job_of(&rng, &spec);
			job_run(c->job, &(struct job_how){.device = one}, "one thread");
			c->bits = job_bits(c->job);
			c->plan = job_plan(c->job, device, false);
		}
		for (int i = 0; i < CALLERS; i++)
			assert_int_equal(
			    pthread_create(&threads[i], NULL, call_often, &callers[i]),
			    0);
		for (int i = 0; i < CALLERS; i++) {
			assert_int_equal(pthread_join(threads[i], NULL), 0);
			bits_free(&callers[i].bits);
			nib_plan_free(callers[i].plan);
			job_free(callers[i].job);
		}
		nib_device_close(device);
		nib_device_close(one);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(openmp_variables),
	    cmocka_unit_test(affinity_mask),
	    cmocka_unit_test(threads_end_with_their_device),
	    cmocka_unit_test(runs_without_threads),
	    cmocka_unit_test(signals_are_the_programs),
	    cmocka_unit_test(cancellation_waits),
	    cmocka_unit_test(runs_wait_for_workers),
	    cmocka_unit_test(callers_share_threads),
	};
	pthread_t first;

	/* ThreadSanitizer adds one of its own to the first that is made. */
	if (pthread_create(&first, NULL, do_nothing, NULL) == 0)
		pthread_join(first, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
