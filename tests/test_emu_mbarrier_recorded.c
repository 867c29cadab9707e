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

/*
 * Where the GPU answers, so does the software GPU, or it has reported (a rule
 * of PTX that the GPU does not enforce); where the GPU traps, it has reported
 * at that step or before.
 */
static void check_history(int i, const char *answer)
{
	unsigned long long hash;
	unsigned steps;
	bool is_same;
	char name[80];

	mbarrier_case_make(&made, i);
	mbarrier_case_name(i, name, sizeof(name));
	if (sscanf(answer, "trap %u %llx", &steps, &hash) == 2)
		is_same = made.fault_step < steps ||
			  (made.fault_step == steps &&
			   mbarrier_case_hash(&made, steps) == hash);
	else if (sscanf(answer, "ok %llx", &hash) == 1)
		is_same =
		    (made.fault_step < made.n_steps && i >= MBARRIER_RANDOM) ||
		    mbarrier_case_hash(&made, made.n_steps) == hash;
	else
		is_same = false;
	if (!is_same)
		fail_msg("history %d (%s): the GPU answers %s", i, name,
			 answer);
}

static void histories_are_the_gpus(void **state)
{
	FILE *recording = fopen(RECORDING, "r");
	char line[200];

	(void)state;
	if (!recording) {
		print_message("%s is not there: no GPU was asked yet\n",
			      RECORDING);
		skip();
	}
	assert_non_null(fgets(line, sizeof(line), recording));
	for (int i = 0; i < mbarrier_cases(); i++) {
		assert_non_null(fgets(line, sizeof(line), recording));
		check_history(i, line);
	}
	assert_null(fgets(line, sizeof(line), recording));
	fclose(recording);
}

/* What the recording relies on, and that the histories are worth asking. */
static void histories_are_as_they_were(void **state)
{
	uint64_t hash = 0;
	uint32_t phases = 0, waits_for_bytes = 0, faults = 0;

	(void)state;
	for (int i = 0; i < mbarrier_cases(); i++) {
		mbarrier_case_make(&made, i);
		faults += made.fault_step < made.n_steps;
		if (i < MBARRIER_RANDOM && made.fault_step < made.n_steps)
			fail_msg("history %d breaks a rule", i);
		for (uint32_t k = 0; k < made.n_steps; k++) {
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
	assert_int_equal(faults, 5);
	assert_true(hash == UINT64_C(0x0D864C0CA79F5619));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(histories_are_as_they_were),
	    cmocka_unit_test(histories_are_the_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
