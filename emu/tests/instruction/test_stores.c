/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stores.c - bulk copies from shared to global memory, their groups, and cache
 * policies on the software GPU.
 */
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define SEEDS 40
#define WORDS 64 /* of a stage: 256 bytes */

/*
 * Thread 0 stores stage after stage of 256 bytes; all fill the next meanwhile.
 * Two stages: a stage is filled again once its store has read it.
 */
#define FILL_STAGE                                                                     \
	"and.b32 %r6, %r5, 1;\nmad.lo.u32 %r7, %r6, 256, %r1;\n"                       \
	"mad.lo.u32 %r8, %tid, 4, %r7;\nmad.lo.u32 %r9, %r5, 1000, %tid;\n"            \
	"st.shared.u32 [%r8], %r9;\nfence.proxy.async.shared::cta;\n"                  \
	"bar.sync 0;\n"
#define STORE_STAGE                                                                    \
	"mul.wide.u32 %d1, %r5, 256;\nadd.s64 %d2, %out, %d1;\n"                       \
	"@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r7], 256;\n"        \
	"@%p1 cp.async.bulk.commit_group;\n"
#define NEXT_STAGE "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p2, %r5, 10;\n@%p2 bra L;\n"

#define BEGIN "mov.u32 %r1, dynamic;\nsetp.eq.u32 %p1, %tid, 0;\nmov.u32 %r5, 0;\nL: "

static void test_stages(void **state)
{
	static uint32_t out[10][WORDS];

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = {.out = out,
				      .out_bytes = sizeof(out),
				      .block = WORDS,
				      .shared_bytes = 512,
				      .seed = seed};

		emu_must_run(BEGIN FILL_STAGE STORE_STAGE
			     "@%p1 cp.async.bulk.wait_group.read 1;\n"
			     "bar.sync 0;\n" NEXT_STAGE
			     "@%p1 cp.async.bulk.wait_group 0;\n",
			     &job);
		for (uint32_t i = 0; i < 10; i++)
			for (uint32_t t = 0; t < WORDS; t++)
				assert_int_equal(out[i][t], i * 1000 + t);
	}
}

/* Must fail on every schedule. */
static void must_fail(const char *body, const char *words)
{
	static uint32_t out[10][WORDS];

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = {.out = out,
				      .out_bytes = sizeof(out),
				      .block = WORDS,
				      .shared_bytes = 512,
				      .seed = seed};

		emu_must_fail(body, &job, words, NULL);
	}
}

static void test_what_stores_need(void **state)
{
	must_fail(BEGIN FILL_STAGE STORE_STAGE "bar.sync 0;\n" NEXT_STAGE
					       "@%p1 cp.async.bulk.wait_group 0;\n",
		  "reads it");
	must_fail(BEGIN "mov.u32 %r7, %r1;\nmad.lo.u32 %r8, %tid, 4, %r7;\n"
			"st.shared.u32 [%r8], %tid;\nbar.sync 0;\n" STORE_STAGE
			"@%p1 cp.async.bulk.wait_group 0;\n",
		  "no fence.proxy.async between");
	must_fail(BEGIN FILL_STAGE "@%p1 cp.async.bulk.global.shared::cta.bulk_group "
				   "[%out+8], [%r7], 256;\n",
		  "all must be multiples of 16");
	must_fail(BEGIN FILL_STAGE "@%p1 cp.async.bulk.global.shared::cta.bulk_group "
				   "[%out+2320], [%r7], 256;\n",
		  "these bytes are not allocated");
}

/* The wait for the last store is missing.  PTX requires it, production kernels do
 * without, and on a GPU it does no harm. */
static void test_an_end_without_a_wait(void **state)
{
	static uint32_t out[10][WORDS];
	static const char *const body =
	    BEGIN FILL_STAGE STORE_STAGE "@%p1 cp.async.bulk.wait_group.read 1;"
					 "\nbar.sync 0;\n" NEXT_STAGE;
	uint32_t reports = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = {.out = out,
				      .out_bytes = sizeof(out),
				      .block = WORDS,
				      .shared_bytes = 512,
				      .seed = seed};
		struct emu_error err = {{0}};

		emu_must_run(body, &job);
		for (uint32_t t = 0; t < WORDS; t++)
			assert_int_equal(out[9][t], 9 * 1000 + t);
		job.is_strict = true;
		job.ptx = emu_module_text(body);
		if (emu_run_job(&job, &err))
			continue;
		reports++;
		assert_non_null(strstr(err.text, "and this operation has not"));
	}
	assert_true(reports > SEEDS / 2);
}

/* A cache hint has no effect, in every position where it is allowed. */
static void test_policies(void **state)
{
	static const char *const body =
	    "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 "
	    "%d10, 0.5;\n"
	    "createpolicy.fractional.L2::evict_first.b64 %d11;\n"
	    "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 "
	    "%d12, [%in], 64, 128;\n"
	    "createpolicy.cvt.L2.b64 %d13, 0x10000000000000;\n"
	    "mul.wide.u32 %d1, %tid, 4;\nadd.s64 %d2, %in, %d1;\n"
	    "add.s64 %d3, %out, %d1;\n"
	    "ld.global.L2::cache_hint.u32 %r1, [%d2], %d10;\n"
	    "ld.global.L2::cache_hint.u32 %r2, [%d2], %d12;\n"
	    "add.u32 %r1, %r1, %r2;\n"
	    "st.global.L2::cache_hint.u32 [%d3], %r1, %d11;\n"
	    "st.global.L2::cache_hint.u32 [%d3], %r1, %d13;\n";
	uint32_t in[32], out[32];
	struct emu_job job = {
	    .in = in, .in_bytes = sizeof(in), .out = out, .out_bytes = sizeof(out)};

	for (uint32_t l = 0; l < 32; l++)
		in[l] = l * 7;
	emu_must_run(body, &job);
	for (uint32_t l = 0; l < 32; l++)
		assert_int_equal(out[l], l * 14);
	emu_must_fail("createpolicy.fractional.b64 %d1;\n", &job,
		      "createpolicy.fractional", "a priority", NULL);
	emu_must_fail("createpolicy.fractional.L2::evict_last.b64 %r1;\n", &job,
		      "createpolicy.fractional", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_stages),
	    cmocka_unit_test(test_what_stores_need),
	    cmocka_unit_test(test_an_end_without_a_wait),
	    cmocka_unit_test(test_policies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
