/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs on the OpenMP threads of another library (src/backend/cpu/openmp.c), and the
 * cases in which a device uses only the caller's thread (pace.c).
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "common/problem.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"
#include "fake_openmp.h"

/* ThreadSanitizer refuses threads of a child unless told otherwise. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct rng rng = {22};

static const struct job_spec spec = {
    .op = NIB_OP_DUAL_GEMM, .m = 130, .n = 700, .k = 320, .dtype = NIB_DTYPE_FP32};

/* The loaded runtime, and its settings. */
struct runtime {
	void *library;
	struct fake_openmp *settings;
};

static struct runtime load(void)
{
	struct runtime r = {.library = dlopen(FAKE_OPENMP, RTLD_NOW)};

	assert_non_null(r.library);
	r.settings = dlsym(r.library, "fake_openmp");
	assert_non_null(r.settings);
	*r.settings = (struct fake_openmp){16, 0, 0};
	return r;
}

static enum nib_status open_openmp(const char *library, int threads,
				   struct nib_device **device, struct nib_error *err)
{
	const struct nib_device_options options = {
	    .struct_bytes = sizeof(options), .threads = threads, .openmp = library};

	return nib_device_open("cpu", &options, device, err);
}

/* The bits of a job on one thread. */
static struct bits wanted_bits(struct job *job)
{
	struct nib_device *device;
	struct job_how how = {0};
	struct bits bits;

	assert_ok(open_openmp(NULL, 1, &device, NULL));
	how.device = device;
	job_run(job, &how, "one thread");
	bits = job_bits(job);
	nib_device_close(device);
	return bits;
}

/* ---- results ------------------------------------------------------------- */

static void same_bits(void **state)
{
	static const struct {
		int threads, most;
		long late_ns;
	} cases[] = {{2, 16, 0}, {3, 16, 0},	   {16, 16, 0},
		     {4, 1, 0},	 {4, 2, 0},	   {16, 5, 0},
		     {2, 2, 0},	 {3, 16, 3000000}, {16, 16, 1000000}};
	struct runtime runtime = load();
	struct job *job = job_of(&rng, &spec);
	struct bits bits = wanted_bits(job);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct nib_device *device;
		struct job_how how = {0};
		int before = runtime.settings->regions;

		runtime.settings->most_threads = cases[i].most;
		runtime.settings->late_ns = cases[i].late_ns;
		assert_ok(open_openmp(FAKE_OPENMP, cases[i].threads, &device, NULL));
		how.device = device;
		job_run(job, &how, "OpenMP");
		job_has_bits(job, &bits, "OpenMP");
		assert_true(runtime.settings->regions > before);
		nib_device_close(device);
	}
	bits_free(&bits);
	job_free(job);
	dlclose(runtime.library);
}

struct counted {
	_Atomic int calls[64];
};

static void count(void *arg, int i)
{
	struct counted *counted = arg;

	atomic_fetch_add(&counted->calls[i], 1);
}

/* Every task runs once, also those that no thread has the number of. */
static void each_task_once(void **state)
{
	struct runtime runtime = load();
	struct cpu_openmp *openmp;

	assert_ok(cpu_openmp_open(FAKE_OPENMP, &openmp, NULL));
	for (int most = 1; most <= 16; most += 5) {
		for (int tasks = 1; tasks <= 64; tasks += 9) {
			struct counted counted = {0};

			runtime.settings->most_threads = most;
			cpu_openmp_run(openmp, 16, tasks, count, &counted);
			for (int i = 0; i < 64; i++)
				assert_int_equal(counted.calls[i], i < tasks);
		}
	}
	cpu_openmp_close(openmp);
	dlclose(runtime.library);
}

/* ---- the library's life -------------------------------------------------- */

static void stays_loaded(void **state)
{
	struct runtime runtime = load();
	struct nib_device *device;

	assert_ok(open_openmp(FAKE_OPENMP, 2, &device, NULL));
	dlclose(runtime.library);
	runtime.library = dlopen(FAKE_OPENMP, RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(runtime.library);
	dlclose(runtime.library);
	nib_device_close(device);
	assert_null(dlopen(FAKE_OPENMP, RTLD_NOW | RTLD_NOLOAD));
}

/* A fork runs on threads of the device. */
static void fork_child(void **state)
{
	struct runtime runtime = load();
	struct job *job = job_of(&rng, &spec);
	struct bits bits = wanted_bits(job);
	struct nib_device *device;
	struct job_how how = {0};
	int status;
	pid_t pid;

	assert_ok(open_openmp(FAKE_OPENMP, 2, &device, NULL));
	how.device = device;
	job_run(job, &how, "before the fork");
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const int before = runtime.settings->regions;

		alarm(60);
		job_run(job, &how, "in the child");
		job_has_bits(job, &bits, "in the child");
		_exit(runtime.settings->regions != before);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	job_run(job, &how, "in the parent");
	job_has_bits(job, &bits, "in the parent");
	nib_device_close(device);
	bits_free(&bits);
	job_free(job);
	dlclose(runtime.library);
}

/* ---- refused ------------------------------------------------------------- */

static void serial(void *pool, int tasks, void (*task)(void *arg, int i), void *arg)
{
	(void)pool;
	for (int i = 0; i < tasks; i++)
		task(arg, i);
}

static void refused(void **state)
{
	struct runtime runtime = load();
	struct nib_device_options both = {.struct_bytes = sizeof(both),
					  .parallel_for = serial,
					  .openmp = FAKE_OPENMP};
	struct nib_device *device;
	struct nib_error err;

	assert_int_equal(open_openmp("libabsent.so.7", 2, &device, &err),
			 NIB_STATUS_NO_DEVICE);
	assert_string_equal(err.argument, "options.openmp");
	assert_string_equal(err.message, "options.openmp = 'libabsent.so.7': must be a "
					 "library that is loaded");
	assert_null(device);
	/* Loaded, and without OpenMP. */
	assert_refused(open_openmp("libc.so.6", 2, &device, &err), NIB_STATUS_NO_DEVICE,
		       &err, "'libc.so.6': neither it nor");
	assert_int_equal(nib_device_open("cpu", &both, &device, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "options.openmp");
	dlclose(runtime.library);
}

/* ---- pace ---------------------------------------------------------------- */

#define MS INT64_C(1000000)

/* Losses and gains add up; gains are kept up to 20 ms. */
static void balance(void **state)
{
	struct cpu_pace pace = {0};

	assert_false(cpu_pace_uses_caller_only(&pace, 1000 * MS));
	for (int i = 0; i < 100; i++) {
		cpu_pace_report(&pace, 1000 * MS, 3 * MS, 2 * MS);
		cpu_pace_report(&pace, 1000 * MS, 1 * MS, 2 * MS);
	}
	cpu_pace_report(&pace, 1000 * MS, 3 * MS, 1 * MS);
	assert_false(cpu_pace_uses_caller_only(&pace, 1000 * MS));
	cpu_pace_report(&pace, 1000 * MS, 2 * MS, 1 * MS);
	assert_true(cpu_pace_uses_caller_only(&pace, 1000 * MS));

	pace = (struct cpu_pace){0};
	for (int i = 0; i < 1000; i++)
		cpu_pace_report(&pace, 1000 * MS, 1 * MS, 2 * MS);
	cpu_pace_report(&pace, 1000 * MS, 22 * MS, 1 * MS);
	assert_false(cpu_pace_uses_caller_only(&pace, 1000 * MS));
	cpu_pace_report(&pace, 1000 * MS, 3 * MS, 1 * MS);
	assert_true(cpu_pace_uses_caller_only(&pace, 1000 * MS));
}

/* The time on the caller only ends, doubles at the next loss, and is short again
 * after gains. */
static void tries_again(void **state)
{
	struct cpu_pace pace = {0};
	int64_t now_ns = 1000 * MS, before_ns = 0;

	for (int i = 0; i < 10; i++) {
		const int64_t lost_ns = now_ns;

		cpu_pace_report(&pace, now_ns, 4 * MS, 1 * MS);
		while (cpu_pace_uses_caller_only(&pace, now_ns))
			now_ns += MS;
		assert_true(now_ns - lost_ns >= before_ns);
		assert_true(now_ns - lost_ns >= 2 * before_ns || i >= 5);
		assert_true(now_ns - lost_ns <= 500 * MS);
		before_ns = now_ns - lost_ns;
	}
	for (int i = 0; i < 30; i++)
		cpu_pace_report(&pace, now_ns, 1 * MS, 2 * MS);
	cpu_pace_report(&pace, now_ns, 40 * MS, 1 * MS);
	assert_true(cpu_pace_uses_caller_only(&pace, now_ns));
	assert_false(cpu_pace_uses_caller_only(&pace, now_ns + before_ns / 4));
}

/* A device that does without threads computes the same bits, without other threads. */
static void same_bits_alone(void **state)
{
	struct runtime runtime = load();
	struct job *job = job_of(&rng, &spec);
	struct bits bits = wanted_bits(job);
	struct nib_device *device;
	struct job_how how = {0};
	int regions;

	assert_ok(open_openmp(FAKE_OPENMP, 4, &device, NULL));
	how.device = device;
	atomic_store(&cpu_device(device)->pace->caller_only_until_ns, INT64_MAX);
	regions = runtime.settings->regions;
	job_run(job, &how, "alone");
	job_has_bits(job, &bits, "alone");
	assert_int_equal(runtime.settings->regions, regions);
	nib_device_close(device);
	bits_free(&bits);
	job_free(job);
	dlclose(runtime.library);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_bits),    cmocka_unit_test(each_task_once),
	    cmocka_unit_test(stays_loaded), cmocka_unit_test(fork_child),
	    cmocka_unit_test(refused),	    cmocka_unit_test(balance),
	    cmocka_unit_test(tries_again),  cmocka_unit_test(same_bits_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
