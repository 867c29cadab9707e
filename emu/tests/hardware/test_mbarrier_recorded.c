/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mbarrier_recorded.c - compares the software GPU's mbarrier with the answers of
 * an H200: probes/mbarrier_h200.txt, written by probes/run.sh.
 */
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "probes/mbarrier_cases.h"

#define RECORDING NIBEMU_RECORDINGS "/mbarrier_h200.txt"

static struct mbarrier_case made;

/* Rules of PTX that the software GPU reports, and the GPU does not enforce. */
static const char *const excuses[] = {
    "one byte more than most", /* counts on */
    "no arrival",	       /* changes nothing */
};

static bool is_excused(const char *name)
{
	for (size_t i = 0; i < sizeof(excuses) / sizeof(*excuses); i++)
		if (strcmp(name, excuses[i]) == 0)
			return true;
	return false;
}

/*
 * The same results up to the same step, where the GPU traps and the software
 * GPU has reported.  Counts the excused.
 */
static void check_history(int i, const char *answer, uint32_t *excused)
{
	unsigned long long hash;
	unsigned steps;
	bool is_same = false;
	char name[80];

	mbarrier_case_make(&made, i);
	mbarrier_case_name(i, name, sizeof(name));
	steps = made.n_steps;
	if (sscanf(answer, "trap %u %llx", &steps, &hash) == 2) {
		is_same = made.fault_step == steps && steps < made.n_steps &&
			  mbarrier_case_hash(&made, steps) == hash;
	} else if (sscanf(answer, "ok %llx", &hash) == 1) {
		is_same = made.fault_step == steps &&
			  mbarrier_case_hash(&made, steps) == hash;
		if (!is_same && made.fault_step < steps && is_excused(name)) {
			print_message("excused: history %d (%s) ends in a "
				      "report, on the GPU it does not\n",
				      i, name);
			++*excused;
			return;
		}
	}
	if (!is_same)
		fail_msg("history %d (%s): the GPU answers %s", i, name, answer);
}

static void histories_are_the_gpus(void **state)
{
	FILE *recording = fopen(RECORDING, "r");
	uint32_t excused = 0;
	char line[200];

	if (!recording)
		fail_msg("%s is not there", RECORDING);
	assert_non_null(fgets(line, sizeof(line), recording));
	for (int i = 0; i < mbarrier_cases(); i++) {
		assert_non_null(fgets(line, sizeof(line), recording));
		check_history(i, line, &excused);
	}
	assert_null(fgets(line, sizeof(line), recording));
	fclose(recording);
	print_message("%u of %d histories excused\n", (unsigned)excused,
		      mbarrier_cases());
	assert_int_equal(excused, sizeof(excuses) / sizeof(*excuses));
}

/* The histories are those of the recording, and have all cases that matter. */
static void histories_are_as_they_were(void **state)
{
	uint64_t hash = 0;
	uint32_t phases = 0, waits_for_bytes = 0, faults = 0;

	for (int i = 0; i < mbarrier_cases(); i++) {
		mbarrier_case_make(&made, i);
		faults += made.fault_step < made.n_steps;
		if (i < MBARRIER_RANDOM && made.fault_step < made.n_steps &&
		    made.steps[made.fault_step].number <= EMU_MBARRIER_MAX)
			fail_msg("history %d breaks a rule", i);
		for (uint32_t k = 0; k < made.n_steps; k++) {
			hash = (hash ^ made.steps[k].kind) * UINT64_C(0x100000001B3);
			hash = (hash ^ made.steps[k].number) * UINT64_C(0x100000001B3);
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
	assert_int_equal(faults, 6);
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
