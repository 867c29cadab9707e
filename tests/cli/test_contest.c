/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_contest.c - the problems of common/contest.h on the CPU, and shapes that differ
 * from theirs by one step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/contest.h"
#include "common/problem.h"
#include "common/unit.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define GROUP	     8
#define SCALAR_LIMIT 4e9 /* flop that scalar code does in seconds */

static uint64_t seed;
static struct nib_device *device;
static bool is_scalar;

/* The best backend, with all processors. */
static int open_device(void **state)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	seed = test_seed();
	if (nib_device_open("cpu", NULL, &device, NULL) ||
	    nib_device_get_info(device, &info, NULL))
		return -1;
	is_scalar = strcmp(info.backend, "cpu-scalar") == 0;
	printf("%s, %d threads\n", info.backend, info.threads);
	return 0;
}

static int close_device(void **state)
{
	nib_device_close(device);
	return 0;
}

/* ---- problems ------------------------------------------------------------ */

static void run(enum nib_op op, struct nib_problem *problems, int count)
{
	struct nib_error err;
	char text[160];
	double flop = 0;

	for (int i = 0; i < count; i++)
		flop += 2.0 * (double)problems[i].a.rows * (double)problems[i].c.cols *
			(double)problems[i].a.k;
	if (is_scalar && flop > SCALAR_LIMIT) {
		printf("skipped: %g GFLOP by scalar code\n", flop * 1e-9);
	} else {
		assert_ok_err(nib_multiply(device, op, problems, count, &err), &err);
		for (int i = 0; i < count; i++)
			if (contest_check(op, &problems[i], &seed, text, sizeof(text)))
				fail_msg("%s", text);
	}
	for (int i = 0; i < count; i++)
		contest_free(&problems[i]);
}

static void run_spec(const struct contest_spec *spec)
{
	struct nib_problem problems[CONTEST_GROUP];

	for (int i = 0; i < spec->count; i++)
		problems[i] = contest_problem(spec->op, &spec->sizes[i], &seed);
	run(spec->op, problems, spec->count);
}

static void run_shapes(enum nib_op op, const struct contest_size *sizes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		run_spec(&(const struct contest_spec){op, 1, {sizes[i]}});
}

/* ---- tests --------------------------------------------------------------- */

/* One step off every multiple that a kernel may like. */
static void small_specs(void **state)
{
	static const struct contest_size shapes[] = {
	    {1, 128, 256, 1},	{127, 128, 256, 1}, {129, 64, 512, 2},
	    {40, 384, 1024, 1}, {76, 100, 2048, 1}, {168, 256, 272, 3},
	    {300, 65, 80, 1},	{257, 513, 16, 1},  {3, 1000, 1536, 4},
	    {128, 256, 768, 2},
	};
	static const struct contest_spec group = {NIB_OP_GEMM,
						  6,
						  {{76, 200, 528, 1},
						   {0, 200, 528, 1},
						   {128, 200, 528, 1},
						   {1, 200, 528, 1},
						   {129, 200, 528, 1},
						   {40, 200, 528, 1}}};

	run_shapes(NIB_OP_GEMM, shapes, COUNT(shapes));
	run_shapes(NIB_OP_DUAL_GEMM, shapes, COUNT(shapes));
	run_shapes(NIB_OP_GEMV, shapes, COUNT(shapes));
	run_spec(&group);
}

/* [tokens, heads, dim] times weights of each head or shared ones. */
static void heads_in_tokens(void **state)
{
	static const struct contest_size shapes[] = {
	    {129, 64, 128, 8}, {7, 128, 64, 5}, {40, 129, 272, 3}};
	static const enum nib_op ops[] = {NIB_OP_GEMM, NIB_OP_DUAL_GEMM, NIB_OP_GEMV};

	for (size_t i = 0; i < COUNT(shapes) * COUNT(ops); i++) {
		const enum nib_op op = ops[i % COUNT(ops)];
		struct nib_problem p =
		    contest_problem(op, &shapes[i / COUNT(ops)], &seed);

		test_nvfp4_between(&p.a);
		test_nvfp4_between(&p.b);
		test_dense_between(&p.c);
		run(op, &p, 1);
	}
}

static void run_specs(const struct contest_spec *specs, size_t count)
{
	if (test_is_small())
		skip();
	for (size_t i = 0; i < count; i++)
		run_spec(&specs[i]);
}

static void their_tests(void **state)
{
	run_specs(contest_tests, contest_n_tests);
}

static void their_benchmarks(void **state)
{
	run_specs(contest_benchmarks, contest_n_benchmarks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(small_specs),
	    cmocka_unit_test(heads_in_tokens),
	    cmocka_unit_test(their_tests),
	    cmocka_unit_test(their_benchmarks),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
