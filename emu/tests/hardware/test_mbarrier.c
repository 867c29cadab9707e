/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mbarrier.c - the software GPU's mbarrier: phases, transactions that land
 * early, calls that the rules forbid, and random histories compared with plain
 * counters.
 */
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "hardware/mbarrier.h"

#define OK(call) assert_int_equal(call, EMU_MBARRIER_OK)

static uint64_t new_barrier(uint32_t arrivals)
{
	uint64_t bar = ~(uint64_t)0;

	OK(emu_mbarrier_init(&bar, arrivals));
	return bar;
}

/* Arrives; true if the phase ended. */
static bool arrive(uint64_t *bar, uint32_t count)
{
	bool flipped = false;

	OK(emu_mbarrier_arrive(bar, count, &flipped));
	return flipped;
}

static bool land(uint64_t *bar, uint32_t bytes)
{
	bool flipped = false;

	OK(emu_mbarrier_complete_tx(bar, bytes, &flipped));
	return flipped;
}

static void phases_end_with_the_last_arrival(void **state)
{
	uint64_t bar = new_barrier(3);

	for (uint32_t phase = 0; phase < 5; phase++) {
		const uint32_t parity = phase & 1;

		assert_true(emu_mbarrier_test_parity(bar, parity ^ 1));
		assert_false(emu_mbarrier_test_parity(bar, parity));
		assert_false(arrive(&bar, 1));
		assert_false(arrive(&bar, 1));
		assert_false(emu_mbarrier_test_parity(bar, parity));
		assert_true(arrive(&bar, 1));
		assert_true(emu_mbarrier_test_parity(bar, parity));
		/* Only bit 0 of the parity is read. */
		assert_true(emu_mbarrier_test_parity(bar, parity + 2));
	}
	assert_true(arrive(&bar, 3));
}

/* A wait that is two phases late gets the same answer as at first. */
static void two_phases_look_like_none(void **state)
{
	uint64_t bar = new_barrier(1);
	const bool before = emu_mbarrier_test_parity(bar, 0);

	arrive(&bar, 1);
	assert_int_not_equal(emu_mbarrier_test_parity(bar, 0), before);
	arrive(&bar, 1);
	assert_int_equal(emu_mbarrier_test_parity(bar, 0), before);
}

static void phases_wait_for_bytes(void **state)
{
	uint64_t bar = new_barrier(1);

	OK(emu_mbarrier_expect_tx(&bar, 4096));
	assert_false(arrive(&bar, 1));
	assert_false(land(&bar, 4080));
	assert_false(emu_mbarrier_test_parity(bar, 0));
	assert_true(land(&bar, 16));
	assert_true(emu_mbarrier_test_parity(bar, 0));
	/* The next phase starts without bytes to come. */
	assert_true(arrive(&bar, 1));
}

static void bytes_may_land_before_they_are_expected(void **state)
{
	uint64_t bar = new_barrier(1);
	char text[100];

	assert_false(land(&bar, 64));
	emu_mbarrier_describe(bar, text, sizeof(text));
	assert_string_equal(text,
			    "phase parity 0, 1 of 1 arrivals and -64 bytes to come");
	OK(emu_mbarrier_expect_tx(&bar, 64));
	assert_false(emu_mbarrier_test_parity(bar, 0));
	assert_true(arrive(&bar, 1));
	/* And if nothing else is pending, the expectation ends the phase. */
	assert_false(land(&bar, 64));
	assert_false(arrive(&bar, 1));
	OK(emu_mbarrier_expect_tx(&bar, 64));
	assert_true(emu_mbarrier_test_parity(bar, 1));
}

static void dropped_arrivals_are_not_expected_again(void **state)
{
	uint64_t bar = new_barrier(3);
	bool flipped = true;

	OK(emu_mbarrier_arrive_drop(&bar, 1, &flipped));
	assert_false(flipped);
	assert_true(arrive(&bar, 2));
	assert_true(arrive(&bar, 2));
	OK(emu_mbarrier_arrive_drop(&bar, 2, &flipped));
	assert_true(flipped);
	/* No arrival is expected any more. */
	assert_int_equal(emu_mbarrier_arrive(&bar, 1, NULL), EMU_MBARRIER_OVER);
}

static void pending_arrivals_can_be_added(void **state)
{
	uint64_t bar = new_barrier(1);

	OK(emu_mbarrier_add_pending(&bar));
	assert_false(arrive(&bar, 1));
	assert_true(arrive(&bar, 1));
	/* Only of that phase. */
	assert_true(arrive(&bar, 1));
}

/* A call that a rule forbids returns the fault and changes nothing. */
#define REFUSED(call, fault)                                                           \
	do {                                                                           \
		const uint64_t before = bar;                                           \
		assert_int_equal(call, fault);                                         \
		assert_int_equal(bar, before);                                         \
	} while (0)

static void forbidden_calls(void **state)
{
	uint64_t bar = new_barrier(2);

	REFUSED(emu_mbarrier_arrive(&bar, 3, NULL), EMU_MBARRIER_OVER);
	REFUSED(emu_mbarrier_arrive(&bar, 0, NULL), EMU_MBARRIER_BAD_COUNT);
	REFUSED(emu_mbarrier_arrive(&bar, 1u << 20, NULL), EMU_MBARRIER_BAD_COUNT);
	REFUSED(emu_mbarrier_init(&bar, 0), EMU_MBARRIER_BAD_COUNT);
	REFUSED(emu_mbarrier_init(&bar, 1u << 20), EMU_MBARRIER_BAD_COUNT);
	REFUSED(emu_mbarrier_expect_tx(&bar, 1u << 20), EMU_MBARRIER_TX_BYTES);
	REFUSED(emu_mbarrier_complete_tx(&bar, UINT32_MAX, NULL),
		EMU_MBARRIER_TX_BYTES);
	OK(emu_mbarrier_expect_tx(&bar, EMU_MBARRIER_MAX));
	REFUSED(emu_mbarrier_expect_tx(&bar, 1), EMU_MBARRIER_TX_RANGE);
	/* Also if the count would stay in range. */
	REFUSED(emu_mbarrier_complete_tx(&bar, 1u << 20, NULL), EMU_MBARRIER_TX_BYTES);
	assert_false(land(&bar, EMU_MBARRIER_MAX));
	assert_false(land(&bar, EMU_MBARRIER_MAX));
	REFUSED(emu_mbarrier_complete_tx(&bar, 1, NULL), EMU_MBARRIER_TX_RANGE);
}

static void what_is_no_barrier(void **state)
{
	static const uint64_t no_barriers[] = {0, ~(uint64_t)0,
					       UINT64_C(0x7B7B7B7B7B7B7B7B)};
	uint64_t bar = new_barrier(7);
	char text[100];

	OK(emu_mbarrier_invalidate(&bar));
	for (int i = -1; i < 3; i++) {
		if (i >= 0)
			bar = no_barriers[i];
		assert_false(emu_mbarrier_is_live(bar));
		REFUSED(emu_mbarrier_arrive(&bar, 1, NULL), EMU_MBARRIER_NOT_LIVE);
		REFUSED(emu_mbarrier_arrive_drop(&bar, 1, NULL), EMU_MBARRIER_NOT_LIVE);
		REFUSED(emu_mbarrier_expect_tx(&bar, 16), EMU_MBARRIER_NOT_LIVE);
		REFUSED(emu_mbarrier_complete_tx(&bar, 16, NULL),
			EMU_MBARRIER_NOT_LIVE);
		REFUSED(emu_mbarrier_add_pending(&bar), EMU_MBARRIER_NOT_LIVE);
		REFUSED(emu_mbarrier_invalidate(&bar), EMU_MBARRIER_NOT_LIVE);
		emu_mbarrier_describe(bar, text, sizeof(text));
		assert_string_equal(text, "no mbarrier");
	}
}

static void faults_have_texts(void **state)
{
	assert_non_null(
	    strstr(emu_mbarrier_fault_text(EMU_MBARRIER_NOT_LIVE), "mbarrier.init"));
	assert_non_null(
	    strstr(emu_mbarrier_fault_text(EMU_MBARRIER_BAD_COUNT), "1 to 1048575"));
	assert_non_null(
	    strstr(emu_mbarrier_fault_text(EMU_MBARRIER_OVER), "more arrivals"));
	assert_non_null(
	    strstr(emu_mbarrier_fault_text(EMU_MBARRIER_TX_RANGE), "-1048575"));
	assert_non_null(
	    strstr(emu_mbarrier_fault_text(EMU_MBARRIER_TX_BYTES), "at most"));
}

/* Random histories: the barrier and three plain counters agree. */
static void random_histories(void **state)
{
	struct rng rng = rng_new(test_seed());

	for (int round = 0; round < 200; round++) {
		const int64_t expected = 1 + rng_below(&rng, 40);
		uint64_t bar = new_barrier((uint32_t)expected);
		int64_t pending = expected, tx = 0, phase = 0;

		for (int step = 0; step < 500; step++) {
			const uint32_t n = (uint32_t)rng_below(&rng, 4) * 16;
			bool flipped = false;

			switch (rng_below(&rng, 4)) {
			case 0:
				OK(emu_mbarrier_expect_tx(&bar, n));
				tx += n;
				break;
			case 1:
				OK(emu_mbarrier_complete_tx(&bar, n, &flipped));
				tx -= n;
				break;
			default:
				if (pending == 0)
					continue;
				OK(emu_mbarrier_arrive(&bar, 1, &flipped));
				pending--;
			}
			if (pending == 0 && tx == 0) {
				phase++;
				pending = expected;
			} else {
				assert_false(flipped);
			}
			assert_int_equal(emu_mbarrier_test_parity(bar, 0), phase & 1);
			assert_int_equal(emu_mbarrier_test_parity(bar, 1),
					 !(phase & 1));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(phases_end_with_the_last_arrival),
	    cmocka_unit_test(two_phases_look_like_none),
	    cmocka_unit_test(phases_wait_for_bytes),
	    cmocka_unit_test(bytes_may_land_before_they_are_expected),
	    cmocka_unit_test(dropped_arrivals_are_not_expected_again),
	    cmocka_unit_test(pending_arrivals_can_be_added),
	    cmocka_unit_test(forbidden_calls),
	    cmocka_unit_test(what_is_no_barrier),
	    cmocka_unit_test(faults_have_texts),
	    cmocka_unit_test(random_histories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
