/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_grids.c - CTAs of a grid on the software GPU that wait for each other
 * through global memory, that cannot all be resident, or that run on several
 * threads of the host.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define SEEDS 20
#define CTAS  24

/*
 * Ten rounds: each CTA adds 1 to the cell of its neighbour on the left, and all
 * wait for all.  out: a cell a CTA, then the counter.
 */
static const char *const barrier_body =
    "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %nctaid.x;\n"
    "mul.wide.u32 %d1, %r2, 4;\nadd.s64 %d2, %out, %d1;\n" /* the counter */
    "mov.u32 %r3, 0;\nadd.u32 %r4, %r1, 0;\nmov.u32 %r9, 0;\n"
    "ROUND: add.u32 %r4, %r4, 1;\nrem.u32 %r4, %r4, %r2;\n"
    "mul.wide.u32 %d3, %r4, 4;\nadd.s64 %d4, %out, %d3;\n"
    "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra JOIN;\n"
    "ld.global.u32 %r5, [%d4];\nadd.u32 %r5, %r5, 1;\n"
    "st.global.u32 [%d4], %r5;\n"
    "red.release.gpu.global.add.u32 [%d2], 1;\n"
    "add.u32 %r9, %r9, %r2;\n"
    "WAIT: ld.acquire.gpu.global.u32 %r6, [%d2];\n"
    "setp.lt.u32 %p2, %r6, %r9;\n@%p2 bra WAIT;\n"
    "JOIN: bar.sync 0;\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p3, %r3, 10;\n"
    "@%p3 bra ROUND;\n";

static void test_a_barrier_of_the_grid(void **state)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint32_t out[CTAS + 1] = {0};
		struct emu_job job = {.out = out,
				      .out_bytes = sizeof(out),
				      .keeps_out = true,
				      .grid = CTAS,
				      .block = 64,
				      .is_cooperative = seed % 2,
				      .seed = seed};

		emu_must_run(barrier_body, &job);
		for (int i = 0; i < CTAS; i++)
			assert_int_equal(out[i], 10);
		assert_int_equal(out[CTAS], 10 * CTAS);
	}
}

/* On a GPU that holds fewer, the others never arrive. */
static void test_a_grid_too_large(void **state)
{
	uint32_t out[CTAS + 1] = {0};
	struct emu_job job = {.out = out,
			      .out_bytes = sizeof(out),
			      .keeps_out = true,
			      .grid = CTAS,
			      .resident = CTAS - 1};

	emu_must_fail(barrier_body, &job, "deadlock", "polls memory",
		      "1 clusters have not begun", "holds 23 at once", "ld", NULL);
}

/* A lock of atom.cas: threads that poll must not keep others from releasing it. */
static void test_a_lock(void **state)
{
	static const char *const body =
	    "LOCK: atom.acquire.gpu.global.cas.b32 %r1, [%out], 0, 1;\n"
	    "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra LOCK;\n"
	    "ld.global.u32 %r2, [%out+4];\nadd.u32 %r2, %r2, 1;\n"
	    "st.global.u32 [%out+4], %r2;\n"
	    "atom.release.gpu.global.exch.b32 %r3, [%out], 0;\n";

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint32_t out[2] = {0};
		struct emu_job job = {.out = out,
				      .out_bytes = sizeof(out),
				      .keeps_out = true,
				      .grid = 9,
				      .block = 40,
				      .seed = seed};

		emu_must_run(body, &job);
		assert_int_equal(out[0], 0);
		assert_int_equal(out[1], 9 * 40);
	}
}

/* Lanes that wait for a lane whose code follows theirs. */
static void test_lanes_that_wait_for_later_code(void **state)
{
	static const char *const body =
	    "setp.eq.u32 %p1, %lane, 5;\n@%p1 bra WRITE;\n"
	    "SPIN: ld.volatile.global.u32 %r1, [%out];\n"
	    "setp.ne.u32 %p2, %r1, 77;\n@%p2 bra SPIN;\nbra END;\n"
	    "WRITE: mov.u32 %r2, 77;\nst.volatile.global.u32 [%out], %r2;\n"
	    "END: bar.warp.sync -1;\n";
	uint32_t out[1] = {0};
	struct emu_job job = {.out = out, .out_bytes = sizeof(out), .keeps_out = true};

	emu_must_run(body, &job);
	assert_int_equal(out[0], 77);
}

/* ---- threads of the host ------------------------------------------------- */

/* Waits at an mbarrier for a late copy: how long depends on the schedule. */
static const char *const late_body =
    "mov.u32 %r1, dynamic;\nmov.u32 %r2, 32;\nsetp.eq.u32 %p1, %tid, 0;\n"
    "@%p1 mbarrier.init.shared::cta.b64 [%r1], %r2;\nbar.sync 0;\n"
    "mad.lo.u32 %r3, %tid, 16, %r1;\nmad.wide.u32 %d1, %tid, 16, %in;\n"
    "cp.async.cg.shared.global [%r3+128], [%d1], 16;\n"
    "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];\n"
    "mov.u32 %r7, 0;\n"
    "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;\n"
    "add.u32 %r7, %r7, 1;\n@!%p2 bra L;\nld.shared.u32 %r4, [%r3+128];\n"
    "mov.u32 %r5, %ctaid.x;\nmad.lo.u32 %r5, %r5, 32, %tid;\n"
    "mul.wide.u32 %d3, %r5, 4;\nadd.s64 %d4, %out, %d3;\n"
    "st.global.u32 [%d4], %r7;\n";

static void test_threads_change_nothing(void **state)
{
	static uint32_t in[32][4], out[2][40 * 32];
	int different = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint64_t counts[2];

		for (uint32_t i = 0; i < 2; i++) {
			struct emu_job job = {.in = in,
					      .in_bytes = sizeof(in),
					      .out = out[i],
					      .out_bytes = sizeof(out[i]),
					      .grid = 40,
					      .shared_bytes = 1024,
					      .threads = 1 + 4 * i,
					      .seed = seed};

			emu_must_run(late_body, &job);
			counts[i] = job.instructions;
		}
		assert_memory_equal(out[0], out[1], sizeof(out[0]));
		assert_int_equal(counts[0], counts[1]);
		for (int i = 1; i < 40; i++)
			different += out[0][i * 32] != out[0][0];
	}
	/* Each cluster has its own schedule. */
	assert_true(different > 5 * SEEDS);
}

/* Every third CTA breaks a rule, later CTAs earlier.  The reported one does not
 * depend on the number of threads; in order it is the lowest. */
static void test_the_lowest_report(void **state)
{
	static const char *const body =
	    "mov.u32 %r1, %ctaid.x;\nrem.u32 %r2, %r1, 3;\n"
	    "setp.ne.u32 %p1, %r2, 2;\n@%p1 bra END;\n"
	    "sub.u32 %r3, 100, %r1;\nmul.lo.u32 %r3, %r3, 50;\n"
	    "L: add.u32 %r3, %r3, -1;\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra L;\n"
	    "st.global.u32 [%r4], %r1;\nEND:\n";

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_error reports[2] = {{{0}}};

		for (uint32_t i = 0; i < 2; i++) {
			struct emu_job job = {.ptx = emu_module_text(body),
					      .grid = 60,
					      .threads = 1 + 5 * i,
					      .seed = seed};

			assert_false(emu_run_job(&job, &reports[i]));
		}
		assert_string_equal(reports[0].text, reports[1].text);
		if (seed == 0)
			assert_non_null(strstr(reports[0].text, "k, cluster 2,"));
	}
}

/* Clusters that communicate are one schedule with any number of threads. */
static void test_threads_change_no_schedule(void **state)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint32_t out[2][CTAS + 1] = {{0}};
		uint64_t counts[2];

		for (uint32_t i = 0; i < 2; i++) {
			struct emu_job job = {.out = out[i],
					      .out_bytes = sizeof(out[i]),
					      .keeps_out = true,
					      .grid = CTAS,
					      .block = 64,
					      .is_cooperative = seed % 2,
					      .threads = 1 + 4 * i,
					      .seed = seed};

			emu_must_run(barrier_body, &job);
			counts[i] = job.instructions;
		}
		assert_memory_equal(out[0], out[1], sizeof(out[0]));
		/* The number of polls is also the same. */
		assert_int_equal(counts[0], counts[1]);
	}
}

/* Masks addresses but for their last 20 bits, as two runs may have their memory at
 * different places of the host. */
static void mask_addresses(char *text)
{
	for (char *at = strstr(text, "0x"); at; at = strstr(at, "0x")) {
		at += 2;
		for (size_t n = strspn(at, "0123456789abcdef"); n > 5; n--)
			*at++ = '.';
	}
}

/*
 * Every CTA reads what its neighbour writes, and nothing orders the two: the
 * same report, and the same memory, on any number of threads.
 */
static void test_threads_change_no_report(void **state)
{
	static const char *const body =
	    "mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %d1, %r1, 4;\n"
	    "add.s64 %d2, %out, %d1;\nmul.lo.u32 %r2, %r1, 37;\n"
	    "and.b32 %r2, %r2, 63;\nadd.u32 %r2, %r2, 1;\n"
	    "L: add.u32 %r2, %r2, -1;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra L;\n"
	    "ld.global.u32 %r3, [%d2+4];\nadd.u32 %r3, %r3, %r1;\n"
	    "red.relaxed.gpu.global.add.u32 [%out], %r3;\n"
	    "st.global.u32 [%d2+8], %r3;\n";

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint32_t out[2][CTAS + 2] = {{0}};
		struct emu_error reports[2] = {{{0}}};

		for (uint32_t i = 0; i < 2; i++) {
			struct emu_job job = {.ptx = emu_module_text(body),
					      .out = out[i],
					      .out_bytes = sizeof(out[i]),
					      .keeps_out = true,
					      .grid = CTAS,
					      .is_cooperative = true,
					      .threads = 1 + 5 * i,
					      .seed = seed};

			assert_false(emu_run_job(&job, &reports[i]));
			mask_addresses(reports[i].text);
		}
		assert_non_null(strstr(reports[0].text, "nothing orders that"));
		assert_string_equal(reports[0].text, reports[1].text);
		assert_memory_equal(out[0], out[1], sizeof(out[0]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_barrier_of_the_grid),
	    cmocka_unit_test(test_a_grid_too_large),
	    cmocka_unit_test(test_a_lock),
	    cmocka_unit_test(test_lanes_that_wait_for_later_code),
	    cmocka_unit_test(test_threads_change_nothing),
	    cmocka_unit_test(test_the_lowest_report),
	    cmocka_unit_test(test_threads_change_no_schedule),
	    cmocka_unit_test(test_threads_change_no_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
