/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wgmma_recorded.c - compares the software GPU's tensor core with the answers of
 * an H200: probes/wgmma_h200.txt, written by probes/run.sh.  The recording has a hash
 * of the 512 sums of each instruction, and the offset of each piece of 16 bytes that
 * a descriptor addresses.
 */
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "probes/wgmma_cases.h"

#define RECORDING NIBEMU_RECORDINGS "/wgmma_h200.txt"

static FILE *recording;

static int setup(void **state)
{
	recording = fopen(RECORDING, "r");
	if (!recording)
		print_message("%s does not exist: run probes/run.sh\n", RECORDING);
	return 0;
}

static int teardown(void **state)
{
	if (recording)
		fclose(recording);
	return 0;
}

/* Reads up to the line `title`, included; fails if there is none. */
static void find(const char *title)
{
	char line[256];

	rewind(recording);
	while (fgets(line, sizeof(line), recording))
		if (strncmp(line, title, strlen(title)) == 0 &&
		    line[strlen(title)] == '\n')
			return;
	fail_msg("%s has no \"%s\"", RECORDING, title);
}

static void sums_are_the_gpus(void **state)
{
	static struct wgmma_case made;
	uint32_t d[WGMMA_SUMS];
	char title[80];
	int wrong = 0;

	if (!recording)
		skip();
	for (int group = 0; group < WGMMA_VARIANTS * WGMMA_DATA; group++) {
		const int variant = group / WGMMA_DATA;
		const int data = group % WGMMA_DATA;

		snprintf(title, sizeof(title), "sums %s %s",
			 wgmma_variant_name(variant), wgmma_data_name(data));
		find(title);
		for (int i = 0; i < WGMMA_REPEATS; i++) {
			unsigned long long hash;

			assert_int_equal(fscanf(recording, "%llx", &hash), 1);
			wgmma_case_make(&made, variant, data, i);
			wgmma_case_model(&made, d);
			if (wgmma_hash(d, WGMMA_SUMS) == hash)
				continue;
			if (wrong++ < 20)
				print_message("%s, case %d differs\n", title, i);
		}
	}
	assert_int_equal(wrong, 0);
}

static void places_are_the_gpus(void **state)
{
	uint32_t offsets[WGMMA_PIECES];
	struct emu_error err;
	char title[80];

	if (!recording)
		skip();
	for (int i = 0; i < wgmma_places(); i++) {
		snprintf(title, sizeof(title), "place %d", i);
		find(title);
		if (!wgmma_place_model(wgmma_place_make(i), offsets, &err))
			fail_msg("%s: %s", title, err.text);
		for (int piece = 0; piece < WGMMA_PIECES; piece++) {
			unsigned offset;

			assert_int_equal(fscanf(recording, "%x", &offset), 1);
			if (offset != offsets[piece])
				fail_msg("%s, piece %d: at %u, not %u", title, piece,
					 offset, offsets[piece]);
		}
	}
}

/* The recording relies on cases that are the same everywhere and always. */
static void cases_are_as_they_were(void **state)
{
	static struct wgmma_case made;
	uint64_t hash = 0;

	for (int variant = 0; variant < WGMMA_VARIANTS; variant++)
		for (int data = 0; data < WGMMA_DATA; data++) {
			wgmma_case_make(&made, variant, data, 1);
			hash ^= wgmma_hash(made.a, WGMMA_M * made.shape.k);
			hash ^= wgmma_hash(made.b, WGMMA_N * made.shape.k) << 1;
			hash ^= wgmma_hash(made.c, WGMMA_SUMS) << 2;
		}
	assert_true(hash == UINT64_C(0x05C8BCE341169A47));
}

/* All places are inside the probe's memory. */
static void places_are_in_memory(void **state)
{
	uint32_t offsets[WGMMA_PIECES];
	struct emu_error err;

	for (int i = 0; i < wgmma_places(); i++) {
		if (!wgmma_place_model(wgmma_place_make(i), offsets, &err))
			fail_msg("place %d: %s", i, err.text);
		for (int piece = 0; piece < WGMMA_PIECES; piece++)
			if (offsets[piece] > WGMMA_PLACE_BYTES - 16)
				fail_msg("place %d, piece %d: at %u", i, piece,
					 offsets[piece]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cases_are_as_they_were),
	    cmocka_unit_test(places_are_in_memory),
	    cmocka_unit_test(sums_are_the_gpus),
	    cmocka_unit_test(places_are_the_gpus),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
