/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork() after a run on several threads: later runs work in the child, on its own
 * threads, and in the parent.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/problem.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"

/* Seconds until a child that hangs is ended. */
#define PATIENCE 60

/* ThreadSanitizer refuses threads of a child unless told otherwise. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct rng rng = {21};

static const struct job_spec spec = {
    .op = NIB_OP_DUAL_GEMM, .m = 70, .n = 500, .k = 320, .dtype = NIB_DTYPE_FP16};

/* A job, its plan and what it must give. */
struct ready {
	struct nib_device *device;
	struct job *job;
	struct nib_plan *plan;
	struct bits bits;
};

static struct ready ready_new(struct nib_device *device)
{
	struct ready r = {.device = device, .job = job_of(&rng, &spec)};

	r.plan = job_plan(r.job, r.device, false);
	job_run_plan(r.job, r.plan, NULL, "before the fork");
	r.bits = job_bits(r.job);
	return r;
}

static void ready_free(struct ready *r)
{
	nib_plan_free(r->plan);
	bits_free(&r->bits);
	job_free(r->job);
}

static bool runs_well(const struct ready *r)
{
	struct bits bits;
	bool is_same;

	job_poison(r->job);
	if (nib_run(r->plan, r->job->problems, 1, NULL, NULL))
		return false;
	bits = job_bits(r->job);
	is_same = bits.n_bytes == r->bits.n_bytes &&
		  memcmp(bits.bytes, r->bits.bytes, bits.n_bytes) == 0;
	bits_free(&bits);
	return is_same;
}

/* fork() for a child that ends by itself if it hangs. */
static pid_t fork_child(void)
{
	const pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		alarm(PATIENCE);
	return pid;
}

static void ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void child_and_parent(void **state)
{
	struct nib_device *device = test_device(NULL, 2);
	struct ready r = ready_new(device);

	for (int i = 0; i < 5; i++) {
		const pid_t pid = fork_child();

		if (pid == 0) {
			/* Twice: the first run starts threads. */
			const bool is_well = runs_well(&r) && runs_well(&r);

			nib_plan_free(r.plan);
			nib_device_close(device);
			_exit(!is_well);
		}
		assert_true(runs_well(&r));
		ends_well(pid);
		assert_true(runs_well(&r));
	}
	ready_free(&r);
	nib_device_close(device);
}

/* A device that a child never uses, or closes first, is no trouble either. */
static void child_closes_first(void **state)
{
	struct nib_device *device = test_device(NULL, 3);
	struct ready r = ready_new(device);
	const pid_t pid = fork_child();

	if (pid == 0) {
		struct ready own;

		nib_plan_free(r.plan);
		nib_device_close(device);
		own = ready_new(test_device(NULL, 3));
		_exit(!runs_well(&own));
	}
	ends_well(pid);
	ready_free(&r);
	nib_device_close(device);
}

static void child_of_a_child(void **state)
{
	struct nib_device *device = test_device(NULL, 2);
	struct ready r = ready_new(device);
	pid_t pid = fork_child();

	if (pid == 0) {
		bool is_well = runs_well(&r);
		int status;

		pid = fork();
		if (pid == 0) {
			alarm(PATIENCE);
			_exit(!runs_well(&r));
		}
		is_well = is_well && waitpid(pid, &status, 0) == pid && status == 0 &&
			  runs_well(&r);
		_exit(!is_well);
	}
	ends_well(pid);
	ready_free(&r);
	nib_device_close(device);
}

struct busy {
	struct ready ready;
	_Atomic bool stop;
	bool is_well;
};

static void *keep_busy(void *arg)
{
	struct busy *busy = arg;

	busy->is_well = true;
	while (!atomic_load(&busy->stop))
		busy->is_well = busy->is_well && runs_well(&busy->ready);
	return NULL;
}

/* The fork comes while threads of the same device are at work. */
static void fork_in_a_run(void **state)
{
	struct nib_device *device;
	struct busy busy = {.is_well = false};
	struct ready r;
	pthread_t thread;

	/* The allocator of GCC's AddressSanitizer stays locked in the child. */
	if (!test_alloc_works())
		skip();
	device = test_device(NULL, 3);
	r = ready_new(device);
	busy.ready = ready_new(device);
	assert_int_equal(pthread_create(&thread, NULL, keep_busy, &busy), 0);
	for (int i = 0; i < (test_is_small() ? 5 : 30); i++) {
		const pid_t pid = fork_child();

		/* The child has its own plan; busy's may be locked. */
		if (pid == 0)
			_exit(!runs_well(&r));
		assert_true(runs_well(&r));
		ends_well(pid);
	}
	atomic_store(&busy.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(busy.is_well);
	ready_free(&busy.ready);
	ready_free(&r);
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(child_and_parent),
	    cmocka_unit_test(child_closes_first),
	    cmocka_unit_test(child_of_a_child),
	    cmocka_unit_test(fork_in_a_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
