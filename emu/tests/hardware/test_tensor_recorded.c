/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tensor_recorded.c - compares the software GPU's tensor copies with the answers
 * of an H200 and its driver: probes/tensor_h200.txt, written by probes/run.sh.
 */
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "probes/tensor_cases.h"

#define RECORDING NIBEMU_RECORDINGS "/tensor_h200.txt"
#define BASE	  (UINT64_C(1) << 20)

static uint8_t global[TENSOR_BYTES], shared[TENSOR_SHARED];

static void fill(void)
{
	for (uint32_t i = 0; i < TENSOR_BYTES; i++)
		global[i] = tensor_global_byte(i);
	for (uint32_t i = 0; i < TENSOR_SHARED; i++)
		shared[i] = tensor_shared_byte(i);
}

/* False: a box at this place is refused. */
static bool load(int i, uint64_t *hash)
{
	struct tensor_case c;

	tensor_case_make(&c, false, i);
	if (emu_tensor_map_refuses(&c.map, c.coordinates, false))
		return false;
	memset(shared, TENSOR_FILL, sizeof(shared));
	tensor_case_load(&c, global, shared);
	*hash = tensor_hash(shared, TENSOR_SHARED);
	return true;
}

static bool store(int i, uint64_t *hash)
{
	struct tensor_case c;

	fill();
	tensor_case_make(&c, true, i);
	if (emu_tensor_map_refuses(&c.map, c.coordinates, true))
		return false;
	tensor_case_store(&c, global, shared);
	*hash = tensor_hash(global, TENSOR_BYTES);
	return true;
}

static bool is_taken(int i)
{
	struct emu_tensor_map map;

	tensor_rule_make(&map, i, BASE);
	return emu_tensor_map_check(&map, NULL) &&
	       emu_tensor_map_check_device(&map, 9, NULL);
}

/* What a recording's line of a copy must be. */
static void describe(bool is_store, int i, char *text, size_t size)
{
	uint64_t hash;

	if (is_store ? !store(i, &hash) : !load(i, &hash))
		snprintf(text, size, "trap cudaErrorIllegalInstruction\n");
	else
		snprintf(text, size, "ok %016llx%s\n", (unsigned long long)hash,
			 is_store ? "" : " 1");
}

static void copies_and_rules_are_the_gpus(void **state)
{
	FILE *recording = fopen(RECORDING, "r");
	char line[200], model[200], taken;

	if (!recording)
		fail_msg("%s is not there", RECORDING);
	assert_non_null(fgets(line, sizeof(line), recording));
	fill();
	for (int i = 0; i < 2 * TENSOR_CASES; i++) {
		const bool is_store = i >= TENSOR_CASES;

		assert_non_null(fgets(line, sizeof(line), recording));
		describe(is_store, i % TENSOR_CASES, model, sizeof(model));
		if (strcmp(line, model) != 0)
			fail_msg("%s %d: GPU %smodel %s", is_store ? "store" : "load",
				 i % TENSOR_CASES, line, model);
	}
	for (int i = 0; i < TENSOR_RULES; i++) {
		assert_int_equal(fscanf(recording, " %c", &taken), 1);
		if (is_taken(i) != (taken == '1'))
			fail_msg("rule %d: the driver's answer is %c", i, taken);
	}
	fclose(recording);
}

/* The cases are those of the recording, and have all kinds that matter. */
static void cases_are_as_they_were(void **state)
{
	uint64_t hash = 0, one = 0;
	int swizzled = 0, outside = 0, taken = 0, refused = 0;

	fill();
	for (int i = 0; i < TENSOR_CASES; i++) {
		struct tensor_case c;
		struct emu_tensor_piece p;

		tensor_case_make(&c, false, i);
		if (!emu_tensor_map_check(&c.map, NULL))
			fail_msg("load %d breaks a rule", i);
		emu_tensor_map_piece(&c.map, c.coordinates, c.begin, 0, &p);
		swizzled += c.map.swizzle != 0;
		outside += p.inside_bytes == 0;
		refused += !load(i, &one);
		hash = hash * 31 + one;
	}
	for (int i = 0; i < TENSOR_CASES; i++) {
		refused += !store(i, &one);
		hash = hash * 31 + one;
	}
	for (int i = 0; i < TENSOR_RULES; i++)
		taken += is_taken(i);
	assert_in_range(swizzled, 100, 240);
	assert_in_range(outside, 30, 150);
	assert_in_range(taken, 100, 400);
	assert_int_equal(refused, 60);
	if (hash != UINT64_C(0x1EABC07F192AB731))
		fail_msg("the cases have changed: %016llx", (unsigned long long)hash);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cases_are_as_they_were),
	    cmocka_unit_test(copies_and_rules_are_the_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
