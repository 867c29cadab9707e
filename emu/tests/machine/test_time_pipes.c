/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_time_pipes.c - predicted time of resources that the warps of an SM share: issue
 * slots, pipes, tensor cores, and the registers of two grids.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/run.h"
#include "common/unit.h"
#include "machine/time.h"

#define MOST_TEXT 65536
#define STEPS	  100
#define CLOCK_GHZ 1.755

/* ---- a table of machine code --------------------------------------------- */

/* Gives t a table for a module: kernels, then costs of each line. */
static void use_table(struct emu_time *t, const char *ptx, const char *kernels,
		      const char *costs)
{
	char path[] = "/tmp/nibemu_pipes_XXXXXX";
	uint64_t hash = UINT64_C(0xCBF29CE484222325);
	uint32_t lines = 1;
	struct emu_error err = {{0}};
	const int fd = mkstemp(path);
	FILE *file;

	assert_true(fd >= 0);
	file = fdopen(fd, "w");
	assert_non_null(file);
	for (const char *c = ptx; *c; c++) {
		hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001B3);
		lines += *c == '\n';
	}
	fprintf(file, "module %016" PRIx64 "\n%s", hash, kernels);
	for (uint32_t line = 1; costs && line <= lines; line++)
		fprintf(file, "%" PRIu32 " %s\n", line, costs);
	assert_int_equal(fclose(file), 0);
	if (!emu_time_use_counts(t, path, &err))
		fail_msg("%s", err.text);
	assert_int_equal(remove(path), 0);
}

/* Cycles of a module whose lines have these costs; NULL: the means. */
static double cycles_of(const char *ptx, const char *kernels, const char *costs,
			struct emu_job job)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	double cycles;

	assert_non_null(t);
	job.time = t;
	job.ptx = ptx;
	if (costs || kernels)
		use_table(t, ptx, kernels ? kernels : "", costs);
	if (!emu_run_job(&job, &err))
		fail_msg("%s", err.text);
	cycles = emu_time_ns(t) * CLOCK_GHZ;
	emu_time_close(t);
	return cycles;
}

/* ---- issue slots and pipes ----------------------------------------------- */

static double cycles_of_warps(uint32_t warps, const char *costs)
{
	static char body[MOST_TEXT];

	body[0] = 0;
	for (uint32_t k = 0; k < STEPS; k++)
		strcat(body, "xor.b32 %r1, %r2, %r3;\n");
	return cycles_of(emu_module_text(body), NULL, costs,
			 (struct emu_job){.block = warps * 32});
}

/*
 * Warps 0 and 4 issue from one quarter of the SM: the second one takes the
 * slots that the first leaves.
 */
static void test_slots_between(void **state)
{
	const double one = cycles_of_warps(4, "1 0 0 0 4");
	const double two = cycles_of_warps(5, "1 0 0 0 4");
	const double six = cycles_of_warps(24, "1 0 0 0 4");

	assert_true(two - one < STEPS / 2);
	assert_true(six - one > STEPS);
}

/* A warp waits for a pipe that another one uses: 2.05 cycles of logic each. */
static void test_pipe_of_two(void **state)
{
	const double one = cycles_of_warps(4, "1 1 0 0 1");
	const double two = cycles_of_warps(5, "1 1 0 0 1");

	assert_in_range((uint64_t)(two - one), 2 * STEPS - 10, 3 * STEPS);
}

/* ---- wgmma ---------------------------------------------------------------- */

#define COLUMNS	   128
#define OPERATIONS 4

/* A group of wgmma, then some logic; A is in registers or in shared memory. */
static double cycles_of_wgmma(bool in_shared, uint32_t operations, uint32_t logic,
			      uint32_t threads)
{
	static char body[MOST_TEXT];
	size_t used =
	    (size_t)snprintf(body, sizeof(body),
			     ".reg .f32 %%a<%d>;\nmov.u32 %%r1, dynamic;\n"
			     "shr.u32 %%r1, %%r1, 4;\ncvt.u64.u32 %%d1, %%r1;\n"
			     "or.b64 %%d1, %%d1, 0x4000004000010000;\n"
			     "mov.u32 %%r2, 0;\nsetp.ne.u32 %%p1, %%r2, 0;\n"
			     "setp.lt.u32 %%p2, %%warp, 4;\n@!%%p2 bra LOGIC;\n"
			     "wgmma.fence.sync.aligned;\n",
			     COLUMNS / 2);

	for (uint32_t k = 0; k < operations; k++) {
		used += (size_t)snprintf(
		    body + used, sizeof(body) - used,
		    "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {%%a0",
		    COLUMNS);
		for (int i = 1; i < COLUMNS / 2; i++)
			used += (size_t)snprintf(body + used, sizeof(body) - used,
						 ",%%a%d", i);
		used += (size_t)snprintf(body + used, sizeof(body) - used,
					 "}, %s, %%d1, %%p1, 1, 1%s;\n",
					 in_shared ? "%d1" : "{%r2,%r2,%r2,%r2}",
					 in_shared ? ", 0, 0" : ", 0");
	}
	used += (size_t)snprintf(body + used, sizeof(body) - used,
				 "wgmma.commit_group.sync.aligned;\n%s",
				 threads > 128 ? "bra END;\n" : "");
	used += (size_t)snprintf(body + used, sizeof(body) - used, "LOGIC:\n");
	for (uint32_t k = 0; k < logic; k++)
		used += (size_t)snprintf(body + used, sizeof(body) - used,
					 "xor.b32 %%r3, %%r4, %%r5;\n");
	snprintf(body + used, sizeof(body) - used, "%sEND:\n%s",
		 threads > 128 ? "bra OUT;\n" : "",
		 threads > 128 ? "wgmma.wait_group.sync.aligned 0;\nOUT:\n"
			       : "wgmma.wait_group.sync.aligned 0;\n");
	return cycles_of(emu_module_text(body), NULL, "1 1 0 0 1",
			 (struct emu_job){.block = threads, .shared_bytes = 32768});
}

/*
 * A warp waits for three of four operations with A in registers, and its logic
 * overlaps the fourth.  With A in shared memory its logic overlaps all four.
 */
static void test_registers_are_not_queued(void **state)
{
	const uint32_t each = COLUMNS / 2, logic = 100;
	const double alone = cycles_of_wgmma(false, OPERATIONS, 0, 128);
	const double both = cycles_of_wgmma(false, OPERATIONS, logic, 128);
	const double shared_alone = cycles_of_wgmma(true, OPERATIONS, 0, 128);
	const double shared = cycles_of_wgmma(true, OPERATIONS, logic, 128);

	assert_true(both - alone > 2 * logic - 1.5 * each);
	assert_true(shared - shared_alone < each);
}

/* Another warp's logic takes twice as long while tensor cores accumulate. */
static void test_accumulators_take_registers(void **state)
{
	const double least = cycles_of_wgmma(false, 1, 400, 160);
	const double most = cycles_of_wgmma(false, 8, 400, 160);

	assert_true(most - least > 150);
}

/* ---- two grids ------------------------------------------------------------ */

/*
 * Kernel a keeps one quarter of each SM busy.  Kernel b works as long in the other
 * quarters, and may begin at the same time if registers allow.
 */
static double cycles_of_chain(const char *kernels)
{
	static const char text[] =
	    ".version 8.8\n.target sm_90a\n.address_size 64\n"
	    ".visible .entry a(.param .u64 in, .param .u64 out)\n{\n"
	    ".reg .u32 %r<3>;\n.reg .pred %p<2>;\n"
	    "griddepcontrol.launch_dependents;\n"
	    "mov.u32 %r2, %tid.x;\nsetp.ge.u32 %p1, %r2, 32;\n@%p1 ret;\n"
	    "mov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1;\n"
	    "setp.lt.u32 %p1, %r1, 100;\n@%p1 bra L;\nret;\n}\n"
	    ".visible .entry b(.param .u64 in, .param .u64 out)\n{\n"
	    ".reg .u32 %r<3>;\n.reg .pred %p<2>;\n"
	    "mov.u32 %r2, %tid.x;\nand.b32 %r2, %r2, 96;\n"
	    "setp.eq.u32 %p1, %r2, 0;\n@%p1 ret;\n"
	    "mov.u32 %r1, 0;\nM: add.u32 %r1, %r1, 1;\n"
	    "setp.lt.u32 %p1, %r1, 100;\n@%p1 bra M;\nret;\n}\n";
	struct emu_job job = {.is_chain = true, .grid = 132, .block = 384};

	return cycles_of(text, kernels, "1 0 0 0 15", job);
}

/* 384 threads of 168 registers leave no space for as many of 8. */
static void test_registers_of_two_grids(void **state)
{
	/* FNV-1a of "a" and of "b". */
	const double few = cycles_of_chain("kernel af63dc4c8601ec8c 8\n"
					   "kernel af63df4c8601f1a5 80\n");
	const double many = cycles_of_chain("kernel af63dc4c8601ec8c 8\n"
					    "kernel af63df4c8601f1a5 168\n");

	assert_true(many - few > 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_slots_between),
	    cmocka_unit_test(test_pipe_of_two),
	    cmocka_unit_test(test_registers_are_not_queued),
	    cmocka_unit_test(test_accumulators_take_registers),
	    cmocka_unit_test(test_registers_of_two_grids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
