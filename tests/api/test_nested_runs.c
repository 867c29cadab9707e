/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nested_runs.c - the caller's thread pools that nest work: while a run waits for
 * its tasks, its thread executes other jobs of the program, which run the same plan.
 * No run may wait for ever, and every result must be right.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arguments.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"

/* Seconds after which a run is taken to hang: SIGALRM ends the test. */
#define PATIENCE 60
#define DEPTH	 3

static const struct job_spec spec = {.op = NIB_OP_GEMM, .m = 40, .n = 70, .k = 64};

/* Jobs of one shape with the plan that all of them run. */
struct shared {
	struct nib_plan *plan;
	struct job *jobs[DEPTH];
	struct bits want[DEPTH];
	int depth; /* of runs on this thread */
};

static void check_bits(struct shared *s, int i, const char *what)
{
	job_has_bits(s->jobs[i], &s->want[i], what);
}

/* A pool that runs the next job before its own first task. */
static void helping_for(void *pool, int tasks, void (*task)(void *arg, int i),
			void *arg)
{
	struct shared *s = pool;

	if (s->depth + 1 < DEPTH && s->plan) {
		const int i = ++s->depth;

		job_run_plan(s->jobs[i], s->plan, NULL, "inside another run");
		s->depth--;
	}
	for (int i = 0; i < tasks; i++)
		task(arg, i);
}

static void open_shared(struct shared *s, nib_parallel_for parallel_for)
{
	struct nib_device_options options = {.struct_bytes = sizeof(options),
					     .threads = 4,
					     .parallel_for = parallel_for,
					     .pool = s};

	assert_ok(nib_device_open("cpu", &options, &device, NULL));
	for (int i = 0; i < DEPTH; i++) {
		s->jobs[i] = job_of(&rng, &spec);
		job_run(s->jobs[i], &(struct job_how){.device = device}, "alone");
		s->want[i] = job_bits(s->jobs[i]);
		job_poison(s->jobs[i]);
	}
	s->plan = job_plan(s->jobs[0], device, false);
}

static void close_shared(struct shared *s)
{
	for (int i = 0; i < DEPTH; i++) {
		bits_free(&s->want[i]);
		job_free(s->jobs[i]);
	}
	nib_plan_free(s->plan);
	nib_device_close(device);
}

static void a_thread_inside_its_own_run(void **state)
{
	struct shared s = {0};

	open_shared(&s, helping_for);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < DEPTH; i++)
			job_poison(s.jobs[i]);
		job_run_plan(s.jobs[0], s.plan, NULL, "the outer run");
		for (int i = 0; i < DEPTH; i++)
			check_bits(&s, i, "nested");
	}
	close_shared(&s);
}

/* A second workspace that there is no memory for: the outer run goes on. */
static enum nib_status status_without_memory;

static void starving_for(void *pool, int tasks, void (*task)(void *arg, int i),
			 void *arg)
{
	struct shared *s = pool;

	if (s->plan && s->depth++ == 0) {
		struct nib_error err;

		test_alloc_fail(1, TEST_ALLOC_FROM);
		status_without_memory =
		    nib_run(s->plan, s->jobs[1]->problems, 1, NULL, &err);
		test_alloc_stop();
	}
	for (int i = 0; i < tasks; i++)
		task(arg, i);
}

static void no_memory_for_another_workspace(void **state)
{
	struct shared s = {0};
	long live;

	if (!test_alloc_works())
		skip();
	open_shared(&s, starving_for);
	live = test_alloc_live();
	status_without_memory = NIB_STATUS_OK;
	job_run_plan(s.jobs[0], s.plan, NULL, "the outer run");
	assert_int_equal(status_without_memory, NIB_STATUS_OUT_OF_MEMORY);
	assert_int_equal(test_alloc_live(), live);
	check_bits(&s, 0, "the outer run");
	/* Nothing was written by the run that failed. */
	output_untouched(&s.jobs[1]->c[0], 0, 0, "the inner run");
	close_shared(&s);
}

/* ---- two threads that wait for each other ---------------------------------- */

static pthread_barrier_t both_are_inside;

/* Nobody leaves before both threads are inside a run of the plan. */
static void meeting_for(void *pool, int tasks, void (*task)(void *arg, int i),
			void *arg)
{
	struct shared *s = pool;

	if (s->plan && s->depth)
		pthread_barrier_wait(&both_are_inside);
	for (int i = 0; i < tasks; i++)
		task(arg, i);
}

struct runner {
	struct shared *shared;
	int index;
};

static void *run_one(void *arg)
{
	const struct runner *r = arg;

	job_run_plan(r->shared->jobs[r->index], r->shared->plan, NULL,
		     "next to another thread's");
	return NULL;
}

static void two_threads_inside_one_plan(void **state)
{
	struct shared s = {0};
	struct runner runners[2] = {{&s, 0}, {&s, 1}};
	pthread_t thread;

	open_shared(&s, meeting_for);
	s.depth = 1;
	assert_int_equal(pthread_barrier_init(&both_are_inside, NULL, 2), 0);
	for (int round = 0; round < 20; round++) {
		job_poison(s.jobs[0]);
		job_poison(s.jobs[1]);
		assert_int_equal(pthread_create(&thread, NULL, run_one, &runners[0]),
				 0);
		run_one(&runners[1]);
		assert_int_equal(pthread_join(thread, NULL), 0);
		check_bits(&s, 0, "two threads");
		check_bits(&s, 1, "two threads");
	}
	pthread_barrier_destroy(&both_are_inside);
	s.depth = 0;
	close_shared(&s);
}

/* More runs at once than a plan keeps workspaces for: the rest are freed. */
static void more_than_are_kept(void **state)
{
	enum { RUNS = 80 };
	struct shared s = {0};
	struct runner runners[2] = {{&s, 0}, {&s, 1}};
	pthread_t threads[RUNS];

	open_shared(&s, meeting_for);
	s.depth = 1;
	/* All write the same two results. */
	assert_int_equal(pthread_barrier_init(&both_are_inside, NULL, RUNS), 0);
	for (int i = 0; i < RUNS; i++)
		assert_int_equal(
		    pthread_create(&threads[i], NULL, run_one, &runners[i % 2]), 0);
	for (int i = 0; i < RUNS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	check_bits(&s, 0, "many threads");
	check_bits(&s, 1, "many threads");
	pthread_barrier_destroy(&both_are_inside);
	s.depth = 0;
	close_shared(&s);
}

static int start(void **state)
{
	rng = rng_new(test_seed());
	alarm(PATIENCE);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_thread_inside_its_own_run),
	    cmocka_unit_test(no_memory_for_another_workspace),
	    cmocka_unit_test(two_threads_inside_one_plan),
	    cmocka_unit_test(more_than_are_kept),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
