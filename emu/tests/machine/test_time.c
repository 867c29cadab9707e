/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_time.c - predicted time: the cost of dependent instructions, loads and waits,
 * and that the time is the same in every run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/run.h"
#include "common/unit.h"
#include "machine/time.h"
#include "machine/time_state.h"

#define MOST_TEXT 16384
#define STEPS	  100

/* Predicted nanoseconds of a body. */
static double ns_of(const char *body, uint32_t grid, uint32_t block)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	static const uint32_t in[32];
	uint32_t out[32] = {0};
	struct emu_job job = {.time = t,
			      .in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .keeps_out = true,
			      .grid = grid,
			      .block = block,
			      .shared_bytes = 32768};
	double ns;

	assert_non_null(t);
	emu_must_run(body, &job);
	ns = emu_time_ns(t);
	emu_time_close(t);
	return ns;
}

/* The same text many times, between a start and an end. */
static double ns_of_steps(const char *begin, const char *step, uint32_t steps)
{
	static char text[MOST_TEXT];

	assert_true(strlen(begin) + steps * strlen(step) < sizeof(text));
	strcpy(text, begin);
	for (uint32_t k = 0; k < steps; k++)
		strcat(text, step);
	return ns_of(text, 1, 32);
}

/* 4.5 cycles each if one waits for the other, otherwise the mean, 2.5. */
static void test_dependent_instructions(void **state)
{
	const double none = ns_of_steps("", "", 0);
	const double chain = ns_of_steps("", "fma.rn.f32 %f1, %f1, %f1, %f1;\n", STEPS);
	const double other = ns_of_steps("", "fma.rn.f32 %f1, %f2, %f3, %f2;\n", STEPS);

	assert_in_range((uint64_t)((chain - none) * 1.755), 4 * STEPS - 4, 5 * STEPS);
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

	assert_true((first - none) * 1.755 > 400);
	assert_true((second - first) * 1.755 > 200);
	assert_true(second - first < first - none);
}

/* A load from the L2 returns after a load from memory that was requested earlier. */
static void test_loads_return_in_order(void **state)
{
	const char *load = "ld.global.u32 %r1, [%in];\n"
			   "and.b32 %r1, %r1, 0;\n"
			   "cvt.u64.u32 %d1, %r1;\n"
			   "add.u64 %in, %in, %d1;\n";
	static char text[MOST_TEXT];
	const double none = ns_of_steps("", "", 0);
	const double memory = ns_of_steps("", load, 1) - none;

	strcpy(text, "ld.global.u32 %r2, [%in+4];\n");
	assert_true(ns_of_steps(text, load, 1) - none >= memory);
}

/* A load of a whole line takes less than one of a part of it; both from the L2. */
static void test_parts_of_lines(void **state)
{
	double ns[2][2];

	for (int part = 0; part < 2; part++)
		for (int many = 0; many < 2; many++) {
			static char text[MOST_TEXT];

			snprintf(text, sizeof(text),
				 "and.b32 %%r1, %%tid, %d; mad.wide.u32 %%d1, %%r1, 4, "
				 "%%in;\nld.global.u32 %%r2, [%%d1];\n"
				 "setp.eq.u32 %%p1, %%r2, 99; @%%p1 bra WARM; WARM:\n",
				 part ? 7 : 31);
			for (int k = 0; k < (many ? 33 : 1); k++)
				strcat(text, "ld.global.u32 %r2, [%d1];\n");
			strcat(text, "setp.eq.u32 %p1, %r2, 99; @%p1 bra LAST; "
				     "LAST:\n");
			ns[part][many] = ns_of(text, 1, 128);
		}
	assert_in_range((uint64_t)((ns[1][1] - ns[1][0]) * 1.755), 128 * 3, 128 * 4);
	assert_true((ns[0][1] - ns[0][0]) * 1.755 < 128 * 2);
}

/* A warp that computes for long keeps the others at the barrier. */
static void test_barrier_carries_time(void **state)
{
	static char text[MOST_TEXT];
	double late;

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

	assert_true(ns_of(body, 133, 1024) == ns_of(body, 133, 1024));
}

/* Writes a new file.  The name is valid until the next call. */
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

/* A file that is no table is refused with its line; a table is accepted. */
static void test_counts_from_a_file(void **state)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	static const char *const wrong[] = {"7 1 0 0 0 2\n",
					    "module 1f\n7 1 0 0 0\n",
					    "module 1f\n7 1 0 0 0 -1\n",
					    "module 1f\n8 1 0 0 0 2\n7 1 0 0 0 2\n",
					    "module x\n",
					    "kernel 1f 40\n",
					    "module 1f\nkernel 1f\n",
					    "module 1f\nkernel k 40\n"};

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

/* The time of 100 instructions whose lines have these costs. */
static double ns_with_costs(const char *costs)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	struct emu_job job = {.time = t, .grid = 1, .block = 32};
	static char body[MOST_TEXT], table[MOST_TEXT];
	uint64_t hash = UINT64_C(0xCBF29CE484222325);
	const char *path;
	size_t used;
	double ns;

	body[0] = 0;
	for (uint32_t k = 0; k < STEPS; k++)
		strcat(body, "fma.rn.f32 %f1, %f2, %f3, %f2;\n");
	for (const char *c = emu_module_text(body); *c; c++)
		hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001B3);
	used = (size_t)snprintf(table, sizeof(table), "module %016" PRIx64 "\n", hash);
	for (uint32_t line = 1; line < 2 * STEPS; line++)
		used += (size_t)snprintf(table + used, sizeof(table) - used,
					 "%" PRIu32 " %s\n", line, costs);
	path = file_with(table);
	assert_non_null(t);
	assert_true(emu_time_use_counts(t, path, &err));
	assert_int_equal(remove(path), 0);
	emu_must_run(body, &job);
	ns = emu_time_ns(t);
	emu_time_close(t);
	return ns;
}

/* A warp issues its next instruction after the stall that ptxas encoded. */
static void test_stalls(void **state)
{
	const double brief = ns_with_costs("1 0 0 0 1");
	const double late = ns_with_costs("1 0 0 0 9");

	assert_in_range((uint64_t)((late - brief) * 1.755), 8 * STEPS,
			8 * (STEPS + 20));
}

/* A fence of the CTA is short; wider ones, and releases, are not. */
static void test_fences(void **state)
{
	const double none = ns_of_steps("", "", 0);
	const double cta = ns_of_steps("", "fence.acq_rel.cta;\n", 10);
	const double gpu = ns_of_steps("", "fence.acq_rel.gpu;\n", 10);
	const double proxy = ns_of_steps("", "fence.proxy.async;\n", 10);
	const double shared = ns_of_steps("", "fence.proxy.async.shared::cta;\n", 10);
	const double relaxed =
	    ns_of_steps("", "red.relaxed.gpu.global.add.u32 [%out], 1;\n", 10);
	const double release =
	    ns_of_steps("", "red.release.gpu.global.add.u32 [%out], 1;\n", 10);

	assert_true((cta - none) * 1.755 < 500);
	assert_true((shared - none) * 1.755 < 500);
	assert_true((gpu - none) * 1.755 > 6800);
	assert_true((proxy - none) * 1.755 > 5600);
	assert_true((release - relaxed) * 1.755 > 6000);
}

/* A fence waits for the stores before it, as does the end of a grid. */
static void test_stores_are_waited_for(void **state)
{
	const char *store = "st.global.v4.u32 [%out], {%r1, %r1, %r1, %r1};\n";
	const double none = ns_of_steps("", "", 0);
	const double stores = ns_of_steps("", store, 1);
	const double fence = ns_of_steps("", "fence.acq_rel.gpu;\n", 1);
	const double both = ns_of_steps(store, "fence.acq_rel.gpu;\n", 1);

	assert_true((stores - none) * 1.755 > 280);
	assert_true((both - fence) * 1.755 > 280);
}

/*
 * An arrival with .release takes time from what follows it, and waits for stores; the
 * whole barrier takes as long as without.
 */
static void test_cluster_release(void **state)
{
	static const char wait[] = "barrier.cluster.wait.aligned;\n";
	static const char *const arrive[] = {
	    "barrier.cluster.arrive.relaxed.aligned;\n",
	    "barrier.cluster.arrive.aligned;\n"};
	double bare[2], busy[2], stores[2];

	for (int k = 0; k < 2; k++) {
		static char text[MOST_TEXT];

		snprintf(text, sizeof(text), "%s%s", arrive[k], wait);
		bare[k] = ns_of_steps(text, "", 0);
		busy[k] =
		    ns_of_steps(arrive[k], "fma.rn.f32 %f1, %f1, %f1, %f1;\n", STEPS);
		snprintf(text, sizeof(text), "st.global.u32 [%%out], %%r1;\n%s%s",
			 arrive[k], wait);
		stores[k] = ns_of_steps(text, "", 0);
	}
	assert_true((bare[1] - bare[0]) * 1.755 < 10);
	assert_in_range((uint64_t)((busy[1] - busy[0]) * 1.755), 260, 270);
	assert_true((stores[1] - stores[0]) * 1.755 > 250);
}

/* The first parameter is a cache miss; its neighbours are hits. */
static void test_parameters(void **state)
{
	const double none = ns_of_steps("", "", 0);
	const double ten = ns_of_steps("", "ld.param.u64 %d1, [in];\n", 10);

	assert_true(none * 1.755 - 1348 > 120);
	assert_true((ten - none) * 1.755 < 100);
}

/* cp.async of 16 bytes a lane keep a quarter busy for 17 cycles each. */
static void test_async_copies(void **state)
{
	static char text[2][MOST_TEXT];

	for (uint32_t k = 0; k < 2; k++) {
		size_t used = (size_t)snprintf(
		    text[k], MOST_TEXT,
		    "mov.u32 %%r1, dynamic; mad.lo.u32 %%r1, %%tid, 16, %%r1;\n");

		for (uint32_t i = 0; i < (k ? 64 : 24); i++)
			used +=
			    (size_t)snprintf(text[k] + used, MOST_TEXT - used,
					     "cp.async.cg.shared.global [%%r1+%" PRIu32
					     "], [%%in], 16;\n",
					     i * 512);
		strcpy(text[k] + used, "cp.async.wait_all;\n");
	}
	assert_in_range(
	    (uint64_t)((ns_of(text[1], 1, 32) - ns_of(text[0], 1, 32)) * 1.755),
	    40 * 16, 40 * 22);
}

/* Eight bulk copies of CTA 0 to the CTAs of a mask. */
static double ns_of_multicast(unsigned mask)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	static const uint32_t in[32];
	static char text[MOST_TEXT];
	struct emu_job job = {.time = t,
			      .in = in,
			      .in_bytes = sizeof(in),
			      .grid = 2,
			      .cluster = 2,
			      .shared_bytes = 4096};
	size_t used = (size_t)snprintf(
	    text, sizeof(text),
	    "mov.u32 %%r1, dynamic; mov.u32 %%r2, %%cluster_ctarank;\n"
	    "setp.eq.u32 %%p1, %%tid, 0; setp.eq.and.u32 %%p2, %%r2, 0, %%p1;\n"
	    "setp.le.and.u32 %%p3, %%r2, %u, %%p1; mov.b16 %%h1, %u;\n"
	    "@%%p1 mbarrier.init.shared::cta.b64 [%%r1], 1;\n"
	    "fence.mbarrier_init.release.cluster;\n"
	    "@%%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r1], 1024;\n"
	    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n",
	    mask >> 1, mask);
	double ns;

	for (int k = 1; k <= 8; k++)
		used += (size_t)snprintf(
		    text + used, sizeof(text) - used,
		    "@%%p2 cp.async.bulk.shared::cluster.global.mbarrier::"
		    "complete_tx::bytes.multicast::cluster [%%r1+%d], [%%in], "
		    "128, [%%r1], %%h1;\n",
		    128 * k);
	snprintf(text + used, sizeof(text) - used,
		 "@!%%p3 bra DONE;\n"
		 "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %%p4, [%%r1], "
		 "0;\n@!%%p4 bra WAIT;\n"
		 "DONE: barrier.cluster.arrive.aligned;\n"
		 "barrier.cluster.wait.aligned;\n");
	assert_non_null(t);
	emu_must_run(text, &job);
	ns = emu_time_ns(t);
	emu_time_close(t);
	return ns;
}

/* A multicast is issued once, and read from the L2 once. */
static void test_multicast(void **state)
{
	const double one = ns_of_multicast(1), both = ns_of_multicast(3);

	assert_true(one * 1.755 > 8 * 150);
	assert_true((both - one) * 1.755 < 150);
}

/* The report is marked as a prediction, and names what was waited for. */
static void test_report(void **state)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(NULL, &err);
	static const uint32_t in[32];
	uint32_t out[32] = {0};
	struct emu_job job = {.time = t,
			      .in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .grid = 1,
			      .block = 32,
			      .shared_bytes = 256};
	struct emu_error words = {{0}};
	char *report, *loads;

	assert_non_null(t);
	emu_time_mark(t);
	/* The store is in flight when the warp has ended. */
	emu_must_run("ld.global.u32 %r1, [%in]; setp.ne.u32 %p1, %r1, 0;\n"
		     "@%p1 bra HERE; HERE: st.global.u32 [%out], %r1;\n",
		     &job);
	report = emu_time_report(t);
	emu_time_describe(t, &words);
	assert_non_null(strstr(words.text, "of the last warp: "));
	assert_non_null(strstr(words.text, "wait: loads "));
	loads = strstr(report, "\"last_warp\"");
	assert_non_null(loads);
	loads = strstr(loads, "\"wait: loads\": ");
	assert_non_null(loads);
	assert_true(strtod(loads + strlen("\"wait: loads\": "), NULL) > 0.2);
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

	assert_null(emu_time_open(emu_device_find("rtx5090"), &err));
	assert_non_null(strstr(err.text, "no table of times for rtx5090"));
	assert_null(emu_time_open(emu_device_find("a100"), &err));
	assert_non_null(strstr(err.text, "only h200, h100 and b200 have one"));
	assert_null(emu_time_open(emu_device_find("rtx4090"), &err));
}

/* The H100's table is the H200's but for its own lines. */
static void test_h100(void **state)
{
	struct emu_error err = {{0}};
	struct emu_time *h100 = emu_time_open(emu_device_find("h100"), &err);
	struct emu_time *h200 = emu_time_open(emu_device_find("h200"), &err);

	(void)state;
	assert_non_null(h100);
	assert_non_null(h200);
	assert_true(h100->table.hbm_rate < 0.7 * h200->table.hbm_rate);
	assert_true(h100->table.cluster_barrier > h200->table.cluster_barrier);
	assert_true(h100->table.cluster_release > h200->table.cluster_release);
	assert_true(h100->table.l2_rate == h200->table.l2_rate);
	assert_true(h100->table.clock_ghz == h200->table.clock_ghz);
	emu_time_close(h100);
	emu_time_close(h200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_h100),
	    cmocka_unit_test(test_dependent_instructions),
	    cmocka_unit_test(test_loads),
	    cmocka_unit_test(test_loads_return_in_order),
	    cmocka_unit_test(test_parts_of_lines),
	    cmocka_unit_test(test_barrier_carries_time),
	    cmocka_unit_test(test_same_at_every_run),
	    cmocka_unit_test(test_counts_from_a_file),
	    cmocka_unit_test(test_stalls),
	    cmocka_unit_test(test_fences),
	    cmocka_unit_test(test_stores_are_waited_for),
	    cmocka_unit_test(test_cluster_release),
	    cmocka_unit_test(test_parameters),
	    cmocka_unit_test(test_async_copies),
	    cmocka_unit_test(test_multicast),
	    cmocka_unit_test(test_report),
	    cmocka_unit_test(test_devices_without_a_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
