/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_emu_mbarrier_recorded.c - the software GPU's mbarrier against what an
 * H200 answered: gpu_probe/mbarrier_h200.txt, written by gpu_probe/run.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "gpu_probe/mbarrier_cases.h"

#define RECORDING NIB_RECORDINGS "/mbarrier_h200.txt"

static struct mbarrier_case made;

static void histories_are_the_gpus(void **state)
{
	FILE *recording = fopen(RECORDING, "r");
	unsigned long long hash;
	char line[200];

	(void)state;
	if (!recording) {
		print_message("%s is not there: no GPU was asked yet\n",
			      RECORDING);
		skip();
	}
	assert_non_null(fgets(line, sizeof(line), recording));
	for (int i = 0; i < MBARRIER_CASES; i++) {
		assert_int_equal(fscanf(recording, "%llx", &hash), 1);
		mbarrier_case_make(&made, i);
		if (mbarrier_case_hash(&made) != hash)
			fail_msg("history %d differs", i);
	}
	fclose(recording);
}

/* What the recording relies on, and that the histories are worth asking. */
static void histories_are_as_they_were(void **state)
{
	uint64_t hash = 0;
	uint32_t phases = 0, waits_for_bytes = 0;

	(void)state;
	for (int i = 0; i < MBARRIER_CASES; i++) {
		mbarrier_case_make(&made, i);
		for (int k = 0; k < MBARRIER_STEPS; k++) {
			hash = (hash ^ made.steps[k].kind) *
			       UINT64_C(0x100000001B3);
			hash = (hash ^ made.steps[k].number) *
			       UINT64_C(0x100000001B3);
			if (k == 0)
				continue;
			phases += (made.results[k] ^ made.results[k - 1]) & 1;
			waits_for_bytes +=
			    made.steps[k].kind == MBARRIER_STEP_EXPECT_TX &&
			    ((made.results[k] ^ made.results[k - 1]) & 1);
		}
	}
	assert_true(phases > 500);
	assert_true(waits_for_bytes > 20);
	assert_true(hash == UINT64_C(0x99DB72127382DD57));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(histories_are_as_they_were),
	    cmocka_unit_test(histories_are_the_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
