/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_time.c - virtual time: what dependent instructions, loads and waits
 * cost, and that time is the same at every run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/run.h"
#include "machine/time.h"

#define MOST_TEXT 16384
#define STEPS	  100

/* Predicted nanoseconds of a body. */
static double ns_of(const char *body, uint32_t grid, uint32_t block)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	static const uint32_t in[32];
	struct emu_job job = {.time = t,
			      .in = in,
			      .in_bytes = sizeof(in),
			      .grid = grid,
			      .block = block,
			      .shared_bytes = 256};
	double ns;

	assert_non_null(t);
	emu_must_run(body, &job);
	ns = emu_time_ns(t);
	emu_time_close(t);
	return ns;
}

/* The same text many times, between a begin and an end. */
static double ns_of_steps(const char *begin, const char *step, uint32_t steps)
{
	static char text[MOST_TEXT];

	assert_true(strlen(begin) + steps * strlen(step) < sizeof(text));
	strcpy(text, begin);
	for (uint32_t k = 0; k < steps; k++)
		strcat(text, step);
	return ns_of(text, 1, 32);
}

/* 4.5 cycles each where one waits for the other, else the mean, 2.5. */
static void test_dependent_instructions(void **state)
{
	const double none = ns_of_steps("", "", 0);
	const double chain =
	    ns_of_steps("", "fma.rn.f32 %f1, %f1, %f1, %f1;\n", STEPS);
	const double other =
	    ns_of_steps("", "fma.rn.f32 %f1, %f2, %f3, %f2;\n", STEPS);

	(void)state;
	assert_in_range((uint64_t)((chain - none) * 1.755), 4 * STEPS - 4,
			5 * STEPS);
	assert_true((chain - none) > 1.5 * (other - none));
}

/* The second load of a line finds it in the L2, whose latency is shorter. */
static void test_loads(void **state)
{
	const char *load = "ld.global.u32 %r1, [%in];\n"
			   "and.b32 %r1, %r1, 0;\n"
			   "cvt.u64.u32 %d1, %r1;\n"
			   "add.u64 %in, %in, %d1;\n";
	const double none = ns_of_steps("", "", 0);
	const double first = ns_of_steps("", load, 1);
	const double second = ns_of_steps("", load, 2);

	(void)state;
	assert_true((first - none) * 1.755 > 400);
	assert_true((second - first) * 1.755 > 200);
	assert_true(second - first < first - none);
}

/* A warp that computes for long keeps the others at the barrier. */
static void test_barrier_carries_time(void **state)
{
	static char text[MOST_TEXT];
	double late;

	(void)state;
	strcpy(text, "setp.ne.u32 %p1, %warp, 0; @%p1 bra HERE;\n");
	for (uint32_t k = 0; k < STEPS; k++)
		strcat(text, "fma.rn.f32 %f1, %f1, %f1, %f1;\n");
	strcat(text, "HERE: bar.sync 0;\n");
	late = ns_of(text, 1, 128);
	strcat(text, "@!%p1 bra THERE;\n");
	for (uint32_t k = 0; k < STEPS; k++)
		strcat(text, "fma.rn.f32 %f1, %f1, %f1, %f1;\n");
	strcat(text, "THERE:\n");
	assert_true((ns_of(text, 1, 128) - late) * 1.755 > 4 * STEPS - 4);
}

/* 133 CTAs of a whole SM's threads each: the last waits for an SM. */
static void test_same_at_every_run(void **state)
{
	const char *body = "ld.global.u32 %r1, [%in]; add.u32 %r1, %r1, 1;\n";

	(void)state;
	assert_true(ns_of(body, 133, 1024) == ns_of(body, 133, 1024));
}

/* Writes a file of its own; its name lives until the next call. */
static const char *file_with(const char *text)
{
	static char path[] = "/tmp/nibemu_time_XXXXXX";
	FILE *file;
	int fd;

	strcpy(path, "/tmp/nibemu_time_XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	file = fdopen(fd, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	return path;
}

/* What is no table is refused with its line; a table is taken. */
static void test_counts_from_a_file(void **state)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	static const char *const wrong[] = {
	    "7 1 0 0 0 2\n", "module 1f\n7 1 0 0 0\n",
	    "module 1f\n7 1 0 0 0 -1\n",
	    "module 1f\n8 1 0 0 0 2\n7 1 0 0 0 2\n", "module x\n"};

	(void)state;
	assert_non_null(t);
	for (size_t k = 0; k < sizeof(wrong) / sizeof(*wrong); k++) {
		const char *path = file_with(wrong[k]);

		err.text[0] = 0;
		assert_false(emu_time_use_counts(t, path, &err));
		assert_non_null(strstr(err.text, ", line "));
		assert_int_equal(remove(path), 0);
	}
	assert_true(emu_time_use_counts(
	    t, file_with("module 1f\n7 1.5 0.25 0 0 3\n9 1 0 0 1 2\n"), &err));
	emu_time_close(t);
}

/* The report says that it predicts, and names what was waited for. */
static void test_report(void **state)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	static const uint32_t in[32];
	struct emu_job job = {.time = t,
			      .in = in,
			      .in_bytes = sizeof(in),
			      .grid = 1,
			      .block = 32,
			      .shared_bytes = 256};
	char *report;

	(void)state;
	assert_non_null(t);
	emu_time_mark(t);
	emu_must_run("ld.global.u32 %r1, [%in]; setp.ne.u32 %p1, %r1, 0;\n"
		     "@%p1 bra HERE; HERE:\n",
		     &job);
	report = emu_time_report(t);
	assert_non_null(report);
	assert_non_null(strstr(report, "\"predicted\": true"));
	assert_non_null(strstr(report, "\"longest_wait\": {\"instruction\": "
				       "\"bra"));
	free(report);
	emu_time_close(t);
}

static void test_devices_without_a_table(void **state)
{
	struct emu_error err = {{0}};

	(void)state;
	assert_null(emu_time_open(emu_device_find("b200"), &err));
	assert_non_null(strstr(err.text, "no table of times for b200"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_dependent_instructions),
	    cmocka_unit_test(test_loads),
	    cmocka_unit_test(test_barrier_carries_time),
	    cmocka_unit_test(test_same_at_every_run),
	    cmocka_unit_test(test_counts_from_a_file),
	    cmocka_unit_test(test_report),
	    cmocka_unit_test(test_devices_without_a_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
