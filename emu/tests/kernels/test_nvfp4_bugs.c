/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvfp4_bugs.c - the multiplication of kernels/nvfp4.cu with one planted bug at
 * a time: each must be reported on every schedule, by a rule that fits.  Prints a
 * table: the bug, the number of schedules, and the report.
 *
 * NIBEMU_TEST_SCHEDULES: schedules for each bug (3).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "kernels/nvfp4.h"
#include "ptx/replace.h"

#define WAIT	  "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
#define NO_WAIT	  WAIT "=>}//"
#define UNORDERED "nothing orders|going to be written|never written|deadlock"

static const struct {
	const char *bug, *rule, *words; /* one of them, between | */
	int ctas;
	bool is_strict; /* found only by PTX's order */
} bugs[] = {
    /* barriers */
    {"results do not wait for the commit", NO_WAIT "#1", UNORDERED, 1, false},
    {"results do not wait for the commit", NO_WAIT "#1", UNORDERED, 2, false},
    {"the accumulator is not waited for", NO_WAIT "#2", UNORDERED, 1, false},
    {"the accumulator is not waited for", NO_WAIT "#2", UNORDERED, 2, false},
    {"operands are not waited for", NO_WAIT "#3",
     "has not waited for|to write these|never written|bulk copy to", 1, false},
    {"operands are not waited for", NO_WAIT "#3",
     "has not waited for|to write these|never written|bulk copy to", 2, false},
    {"a stage is filled before its multiplications ended", NO_WAIT "#4",
     "bulk copy to|another asynchronous copy|more arrivals", 1, false},
    {"a stage is filled before its multiplications ended", NO_WAIT "#4",
     "bulk copy to|another asynchronous copy|more arrivals", 2, false},
    {"waits acquire nothing",
     "try_wait.parity.acquire.cluster=>try_wait.parity.relaxed.cluster",
     "nothing orders|has not waited", 2, false},
    {"waits of .cta scope",
     "try_wait.parity.acquire.cluster=>try_wait."
     "parity.acquire.cta",
     "nothing orders", 2, true},
    {"arrivals of .cta scope at the other CTA's barrier",
     "mbarrier.arrive.release.cluster=>mbarrier.arrive.release.cta", "nothing orders",
     2, true},
    {"arrivals release nothing",
     "mbarrier.arrive.release.cluster=>mbarrier.arrive.relaxed.cluster",
     "nothing orders", 1, true},
    {"each CTA signals itself", "-16777224=>-8", "deadlock|transactions|they may", 2,
     false},
    {"bytes are not expected", "mbarrier.arrive.expect_tx=>mbarrier.arrive",
     "more arrivals", 2, false},
    {"no barrier of the cluster before alloc", "barrier.cluster.arrive=>//#1",
     "must come before|mbarrier.init of warp", 2, true},
    /* commits */
    {"no commit of a stage", "tcgen05.commit=>//#1", "deadlock", 1, false},
    {"no commit of the accumulator", "tcgen05.commit=>//#2", "deadlock", 2, false},
    {"the commit's mask is one CTA's", "mov.b16 \t%rs2, 3=>mov.b16 \t%rs2, 1",
     "deadlock", 2, false},
    /* tensor memory */
    {"no dealloc", "tcgen05.dealloc=>//", "dealloc is missing", 1, false},
    {"no dealloc", "tcgen05.dealloc=>//", "dealloc is missing", 2, false},
    {"no alloc", "tcgen05.alloc=>//", "never written", 2, false},
    {"too few columns", "], 512;=>], 128;", "is not allocated|there are 512", 1, false},
    {"fewer columns are given back", ", 512;=>, 256;#2", "of an allocation of 512", 1,
     false},
    {"no barrier between alloc and use", "barrier.cluster.arrive=>//#2",
     "never written|nothing orders", 2, false},
    {"no barrier before dealloc", "barrier.cluster.arrive=>//#3",
     "tcgen05.dealloc: |tcgen05.dealloc of|has ended|is not allocated", 2, false},
    {"no barrier before dealloc", "bar.sync=>//#3", "tcgen05.dealloc: ", 1, false},
    {"no wait::ld", "tcgen05.wait::ld=>//", "result of a tcgen05.ld", 1, false},
    {"the shape of a load", "ld.sync.aligned.32x32b=>ld.sync.aligned.16x64b", UNORDERED,
     1, false},
    /* the tensor core */
    {"scales of A are not copied", "tcgen05.cp=>//#1", "nan, not", 1, false},
    {"scales of B are not copied", "tcgen05.cp=>//#2", "nan, not", 2, false},
    {"all lanes multiply",
     "elect.sync _|p, 0xffffffff;=>setp.eq.u32 p, 0, "
     "0;#3",
     "one thread issues it", 1, false},
    {"one CTA's copies in a pair",
     "cp.async.bulk.tensor.2d.cta_group::2=>"
     "cp.async.bulk.tensor.2d.cta_group::1",
     "with .cta_group::2", 2, false},
    {"an instruction of one CTA in a kernel of pairs",
     "tcgen05.cp.cta_group::2=>tcgen05.cp.cta_group::1", "the other .cta_group", 2,
     false},
    {"the stride of a tile", "4611756662049472512=>4611756524610519040",
     "row 0, column", 1, false},
    {"the descriptor's version", "4611756662049472512=>4611686293305294848",
     "bits 46 to 48", 1, false},
    /* fences, by PTX's order */
    {"no fence after the wait for results", "tcgen05.fence::after=>//#2",
     "no tcgen05.fence::after_thread_sync", 1, true},
    {"no fence after any wait", "tcgen05.fence::after=>//",
     "no tcgen05.fence::after_thread_sync", 2, true},
    {"no fence before the accumulator is given back", "tcgen05.fence::before=>//#2",
     "no tcgen05.fence::before_thread_sync", 2, true},
};

static int schedules(void)
{
	const char *text = getenv("NIBEMU_TEST_SCHEDULES");

	return text ? atoi(text) : 3;
}

/* Long enough that every ring is filled twice. */
static struct nvfp4_job job_of(int ctas)
{
	return (struct nvfp4_job){.kernel = ctas == 2 ? "nvfp4_2x128" : "nvfp4_1x128",
				  .ctas = ctas,
				  .width = 128,
				  .m = 512,
				  .n = 130,
				  .k = 1088,
				  .clusters = 1,
				  .data = NVFP4_EXACT};
}

static bool has_one(const char *text, const char *words)
{
	char word[120];

	while (*words) {
		const size_t n = strcspn(words, "|");

		snprintf(word, sizeof(word), "%.*s", (int)n, words);
		if (strstr(text, word))
			return true;
		words += n;
		words += *words == '|';
	}
	return false;
}

/* The report without the place. */
static const char *said(const char *text)
{
	const char *line = strstr(text, "PTX line ");
	const char *colon = line ? strstr(line, ": ") : NULL;

	return colon ? colon + 2 : text;
}

static bool try_bug(size_t which)
{
	const int ctas = bugs[which].ctas;
	struct nvfp4_job job = job_of(ctas);
	char *text = nvfp4_kernel_text(job.kernel);
	struct emu_error err = {{0}};
	int found = 0;

	job.text = emu_replace(text, bugs[which].rule, &err);
	if (!job.text)
		fail_msg("%s: %s", bugs[which].bug, err.text);
	if (strcmp(text, job.text) == 0)
		fail_msg("%s: its rule changes nothing", bugs[which].bug);
	for (int seed = 0; seed < schedules(); seed++) {
		err.text[0] = 0;
		job.seed = (uint64_t)seed;
		job.is_strict = bugs[which].is_strict;
		if (nvfp4_run(&job, &err))
			printf("seed %d, %s: nothing\n", seed, bugs[which].bug);
		else if (!has_one(err.text, bugs[which].words))
			printf("seed %d, %s: %s\n", seed, bugs[which].bug, err.text);
		else
			found++;
	}
	printf("| %s%s%s | %d of %d | %.150s |\n", bugs[which].bug,
	       ctas == 2 ? ", pair" : "", bugs[which].is_strict ? ", strict" : "",
	       found, schedules(), said(err.text));
	free((char *)job.text);
	free(text);
	return found == schedules();
}

static void test_bugs(void **state)
{
	const char *only = getenv("NIBEMU_TEST_BUG");
	int missed = 0;

	for (size_t i = 0; i < sizeof(bugs) / sizeof(*bugs); i++)
		if (bugs[i].ctas && (!only || strstr(bugs[i].bug, only)))
			missed += !try_bug(i);
	assert_int_equal(missed, 0);
}

/* A single kernel without a bug has no report, with either order. */
static void test_none(void **state)
{
	for (int ctas = 1; ctas <= 2; ctas++)
		for (int seed = 0; seed < schedules(); seed++) {
			struct nvfp4_job job = job_of(ctas);
			struct emu_error err = {{0}};
			char *text = nvfp4_kernel_text(job.kernel);

			job.text = text;
			job.seed = (uint64_t)seed;
			job.is_strict = seed % 2;
			if (!nvfp4_run(&job, &err))
				fail_msg("seed %d: %s", seed, err.text);
			free(text);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_none),
	    cmocka_unit_test(test_bugs),
	};

	if (!nvfp4_text()) {
		printf("skipped: nvcc was not there to compile "
		       "kernels/nvfp4.cu\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
