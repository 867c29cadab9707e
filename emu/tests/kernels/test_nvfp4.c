/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvfp4.c - an NVFP4 multiplication as nvcc compiles it, with one CTA and with
 * pairs, on the software B200: every result bit by bit, on many schedules, with both
 * orders of the checker; and the cost of a tile.
 *
 * NIBEMU_TEST_SCHEDULES: schedules for each size (4).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "kernels/nvfp4.h"

static int schedules(void)
{
	const char *text = getenv("NIBEMU_TEST_SCHEDULES");

	return text ? atoi(text) : 4;
}

static const struct nvfp4_job sizes[] = {
    {.kernel = "nvfp4_1x128",
     .ctas = 1,
     .width = 128,
     .m = 128,
     .n = 128,
     .k = 256,
     .clusters = 1},
    {.kernel = "nvfp4_1x128",
     .ctas = 1,
     .width = 128,
     .m = 200,
     .n = 250,
     .k = 1344,
     .clusters = 2},
    {.kernel = "nvfp4_1x64",
     .ctas = 1,
     .width = 64,
     .m = 130,
     .n = 200,
     .k = 1088,
     .clusters = 3},
    {.kernel = "nvfp4_2x128",
     .ctas = 2,
     .width = 128,
     .m = 256,
     .n = 128,
     .k = 512,
     .clusters = 1},
    {.kernel = "nvfp4_2x128",
     .ctas = 2,
     .width = 128,
     .m = 300,
     .n = 390,
     .k = 1088,
     .clusters = 2},
    {.kernel = "nvfp4_2x64",
     .ctas = 2,
     .width = 64,
     .m = 140,
     .n = 192,
     .k = 1152,
     .clusters = 2},
    {.kernel = "nvfp4_1x128_reused",
     .ctas = 1,
     .width = 128,
     .m = 129,
     .n = 129,
     .k = 1344,
     .clusters = 2},
    {.kernel = "nvfp4_2x128_reused",
     .ctas = 2,
     .width = 128,
     .m = 257,
     .n = 129,
     .k = 1088,
     .clusters = 1},
};

static void must(struct nvfp4_job *job)
{
	struct emu_error err = {{0}};

	if (!nvfp4_run(job, &err))
		fail_msg("%s %dx%dx%d, seed %llu%s: %s", job->kernel, job->m, job->n,
			 job->k, (unsigned long long)job->seed,
			 job->is_strict ? ", strict" : "", err.text);
}

static void test_results(void **state)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int seed = 0; seed < schedules(); seed++) {
			struct nvfp4_job job = sizes[i];

			job.seed = (uint64_t)seed;
			job.data = seed % 2 ? NVFP4_ANY : NVFP4_EXACT;
			must(&job);
		}
}

/* By only PTX's order, scales in columns of their own are right.  Scales that are
 * copied over those of a running multiplication are not. */
static void test_strict(void **state)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int seed = 0; seed < schedules(); seed += 2) {
			struct nvfp4_job job = sizes[i];
			struct emu_error err = {{0}};

			job.seed = (uint64_t)seed;
			job.is_strict = true;
			if (!strstr(job.kernel, "reused")) {
				must(&job);
				continue;
			}
			if (nvfp4_run(&job, &err))
				fail_msg("%s, seed %d: no report", job.kernel, seed);
			if (!strstr(err.text, "tcgen05.cp: tensor memory") ||
			    !strstr(err.text, "reads it as scales"))
				fail_msg("%s", err.text);
		}
}

/* Only prints the cost of 128 x 128 x 256, and the checker's and the warps' shares. */
static void test_cost(void **state)
{
	struct nvfp4_job job = sizes[0], without = sizes[0];

	must(&job);
	without.is_unchecked = true;
	must(&without);
	printf("128 x 128 x 256: %.2f ms, %.2f ms unchecked, %llu instructions "
	       "of threads\n",
	       1e3 * job.seconds, 1e3 * without.seconds,
	       (unsigned long long)job.instructions);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_results),
	    cmocka_unit_test(test_strict),
	    cmocka_unit_test(test_cost),
	};

	if (!nvfp4_text()) {
		printf("skipped: nvcc was not there to compile "
		       "kernels/nvfp4.cu\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
