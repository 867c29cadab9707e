/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_check.c - the checker of the order of shared memory: threads and barriers.
 * Each rule has a few steps that keep it, and the same steps with one missing.
 */
#include "common/alloc.h"
#include "common/litmus.h"

/* ---- threads ------------------------------------------------------------- */

static void a_store_and_a_load(void **state)
{
	GOOD(store(0, DATA));
	GOOD(load(0, DATA));
	block_barrier();
	GOOD(load(1, DATA));
	block_barrier();
	GOOD(store(0, DATA));
	BAD(load(1, DATA), "load of shared memory offset 4096 of CTA rank 0: "
			   "warp 0 of CTA rank 0 wrote it (PTX line 77), and "
			   "nothing orders that");
	/* Other words do not matter. */
	GOOD(load(1, DATA + 16));
}

static void two_stores(void **state)
{
	GOOD(store(0, DATA));
	BAD(store(1, DATA), "store to shared memory offset 4096");
	/* After the report the later one counts. */
	GOOD(load(1, DATA));
	block_barrier();
	GOOD(store(2, DATA));
}

/* Warps that execute one store with one value need no order, unless it is asked for. */
static void equal_stores(void **state)
{
	const struct emu_place first = {.line = 7},
			       again = {.line = 7, .is_same = true};
	const struct emu_place other = {.line = 8, .is_same = true};

	GOOD(emu_check_write(c, 0, DATA, 4, first, &err));
	GOOD(emu_check_write(c, 1, DATA, 4, again, &err));
	BAD(emu_check_write(c, 2, DATA, 4, other, &err), "wrote the same value to it");
	BAD(load(0, DATA), "warp 2");
	block_barrier();
	GOOD(load(0, DATA));
	BAD(emu_check_write(c, 1, DATA, 4, again, &err), "reads it");
}

static void a_load_and_a_store(void **state)
{
	GOOD(store(0, DATA));
	block_barrier();
	GOOD(load(0, DATA));
	GOOD(load(1, DATA));
	GOOD(load(2, DATA));
	BAD(store(1, DATA), "reads it, and nothing orders");
	block_barrier();
	GOOD(store(1, DATA));
}

/* The lane that reads is named if its warp was the last one to read the word. */
static void the_lane_that_reads(void **state)
{
	const struct emu_place five = {.line = 9, .lanes = 1 << 5, .instruction = 3},
			       six = {.line = 9, .lanes = 1 << 6, .instruction = 3},
			       none = {.line = 8};

	GOOD(emu_check_read(c, 0, DATA, 4, five, &err));
	BAD(emu_check_write(c, 1, DATA, 4, none, &err),
	    "offset 4096 of CTA rank 0: lane 5 of warp 0 of CTA rank 0 "
	    "reads it (PTX line 9), and nothing orders");
	GOOD(emu_check_read(c, 0, DATA + 4, 4, five, &err));
	GOOD(emu_check_read(c, 0, DATA + 4, 4, six, &err));
	BAD(emu_check_write(c, 1, DATA + 4, 4, none, &err),
	    "one of the lanes 0x60 of warp 0 of CTA rank 0 reads");
	/* Another warp has read it since. */
	GOOD(emu_check_read(c, 0, DATA + 8, 4, five, &err));
	GOOD(emu_check_read(c, 2, DATA + 8, 4, six, &err));
	BAD(emu_check_write(c, 2, DATA + 8, 4, none, &err),
	    "offset 4104 of CTA rank 0: warp 0 of CTA rank 0 reads "
	    "it, and nothing orders");
	/* Other bytes. */
	GOOD(emu_check_read(c, 0, DATA + 12, 2, five, &err));
	GOOD(emu_check_write(c, 1, DATA + 14, 2, six, &err));
}

static void bytes_of_one_word(void **state)
{
	for (uint32_t w = 0; w < WARPS; w++)
		GOOD(emu_check_write(c, w, DATA + w, 1, LINE, &err));
	BAD(emu_check_read(c, 0, DATA + 3, 1, LINE, &err), "warp 3");
	block_barrier();
	for (uint32_t w = 0; w < WARPS; w++)
		GOOD(emu_check_read(c, w, DATA + w, 1, LINE, &err));
	GOOD(emu_check_write(c, 2, DATA + 2, 1, LINE, &err));
	BAD(emu_check_write(c, 1, DATA + 1, 2, LINE, &err), "warp 2");
}

/* Blocks of 16 bytes are kept as one while they are accessed as one. */
static void parts_of_blocks(void **state)
{
	/* Two blocks and the half of a third. */
	GOOD(emu_check_write(c, 0, DATA, 40, LINE, &err));
	BAD(emu_check_read(c, 1, DATA + 36, 4, LINE, &err), "offset 4132");
	block_barrier();
	GOOD(emu_check_write(c, 1, DATA + 24, 4, LINE, &err));
	GOOD(emu_check_read(c, 2, DATA, 24, LINE, &err));
	BAD(emu_check_read(c, 2, DATA, 40, LINE, &err), "offset 4120");
	BAD(emu_check_write(c, 3, DATA + 20, 4, LINE, &err), "warp 2");
	block_barrier();
	GOOD(emu_check_write(c, 0, DATA + 28, 8, LINE, &err));
	block_barrier();
	/* Written at once, it is one again, and no word has an older reader. */
	GOOD(emu_check_read(c, 3, DATA + 20, 2, LINE, &err));
	block_barrier();
	GOOD(emu_check_write(c, 0, DATA + 16, 16, LINE, &err));
	BAD(emu_check_read(c, 3, DATA + 24, 8, LINE, &err), "offset 4120");
	GOOD(emu_check_read(c, 0, DATA + 16, 16, LINE, &err));
	block_barrier();
	GOOD(emu_check_write(c, 3, DATA + 16, 16, LINE, &err));
}

static void a_barrier_of_some(void **state)
{
	GOOD(store(0, DATA));
	GOOD(store(1, DATA + 16));
	/* Warp 1 arrives, warp 2 waits; 0 and 3 are not involved. */
	emu_check_join(c, 1, 0, NAMED, true);
	emu_check_join(c, 2, 0, NAMED, true);
	emu_check_all_joined(c, 0, NAMED);
	/* Later accesses of warp 1 do not belong to the arrival. */
	GOOD(store(1, DATA + 32));
	emu_check_leave(c, 2, 0, NAMED, true);
	GOOD(load(2, DATA + 16));
	BAD(load(2, DATA + 32), "warp 1");
	BAD(load(2, DATA), "warp 0");
	BAD(load(3, DATA + 16), "warp 1");
}

/* Order is transitive: 0 to 1 by one barrier, 1 to 2 by another. */
static void order_is_transitive(void **state)
{
	barriers();
	GOOD(store(0, DATA));
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	hand_over(1, OTHER_BAR, CTA_SCOPE);
	wait(2, OTHER_BAR);
	GOOD(load(2, DATA));
	BAD(load(3, DATA), "warp 0");
}

static void more_readers_than_are_kept(void **state)
{
	struct emu_check_options options = {false};

	emu_check_close(c);
	c = emu_check_open(1, 32, BYTES, options);
	for (uint32_t w = 0; w < 32; w++)
		GOOD(load(w, DATA));
	BAD(store(0, DATA), "reads it");
}

/* ---- mbarriers ----------------------------------------------------------- */

static void a_wait_teaches_its_phase_alone(void **state)
{
	barriers();
	GOOD(store(0, DATA));
	hand_over(0, BAR, CTA_SCOPE);
	GOOD(store(0, DATA + 16));
	/* An arrival of the next phase, which has not ended. */
	GOOD(emu_check_arrive(c, 0, BAR, CTA_SCOPE, &err));
	wait(1, BAR);
	GOOD(load(1, DATA));
	BAD(load(1, DATA + 16), "warp 0");
	emu_check_phase(c, BAR);
	wait(1, BAR);
	GOOD(load(1, DATA + 16));
}

static void relaxed_calls_hand_nothing_over(void **state)
{
	barriers();
	GOOD(store(0, DATA));
	hand_over(0, BAR, EMU_SCOPE_NONE);
	wait(1, BAR);
	BAD(load(1, DATA), "warp 0");
	GOOD(store(0, DATA + 64));
	hand_over(0, BAR, CTA_SCOPE);
	GOOD(emu_check_wait(c, 1, BAR, EMU_SCOPE_NONE, &err));
	BAD(load(1, DATA + 64), "warp 0");
}

static void a_barrier_needs_its_init(void **state)
{
	GOOD(emu_check_init(c, 0, BAR, LINE, &err));
	GOOD(emu_check_arrive(c, 0, BAR, CTA_SCOPE, &err));
	BAD(emu_check_arrive(c, 1, BAR, CTA_SCOPE, &err),
	    "mbarrier.init of warp 0 of CTA rank 0 does not happen before");
	BAD(emu_check_wait(c, 2, BAR, CTA_SCOPE, &err), "mbarrier.init");
	BAD(bulk(3, DATA, BAR), "mbarrier.init");
	block_barrier();
	GOOD(emu_check_arrive(c, 1, BAR, CTA_SCOPE, &err));
	/* The other CTA has not arrived at the block's barrier. */
	BAD(emu_check_arrive(c, FAR(0), BAR, FAR_SCOPE, &err), "mbarrier.init");
	cluster_barrier(true);
	GOOD(emu_check_arrive(c, FAR(0), BAR, FAR_SCOPE, &err));
}

static void a_fence_of_init_and_a_relaxed_barrier(void **state)
{
	GOOD(emu_check_init(c, 0, BAR, LINE, &err));
	GOOD(emu_check_init(c, 1, OTHER_BAR, LINE, &err));
	emu_check_fence_init(c, 0);
	GOOD(store(0, DATA));
	cluster_barrier(false);
	GOOD(emu_check_arrive(c, FAR(1), BAR, FAR_SCOPE, &err));
	BAD(emu_check_arrive(c, FAR(1), OTHER_BAR, FAR_SCOPE, &err),
	    "mbarrier.init of warp 1");
	BAD(load(2, DATA), "warp 0");
}

static void a_barrier_used_again(void **state)
{
	barriers();
	GOOD(store(0, DATA));
	hand_over(0, BAR, CTA_SCOPE);
	emu_check_inval(c, BAR);
	GOOD(emu_check_init(c, 0, BAR, LINE, &err));
	BAD(emu_check_arrive(c, 1, BAR, CTA_SCOPE, &err), "mbarrier.init");
	block_barrier();
	hand_over(1, BAR, CTA_SCOPE);
	wait(2, BAR);
	GOOD(load(2, DATA));
}

/* ---- two CTAs ------------------------------------------------------------ */

static void another_ctas_data(void **state)
{
	barriers();
	/* A store to the other CTA's memory, released at cluster scope. */
	GOOD(store(0, REMOTE(DATA)));
	hand_over(0, REMOTE(BAR), FAR_SCOPE);
	GOOD(emu_check_wait(c, FAR(0), REMOTE(BAR), FAR_SCOPE, &err));
	GOOD(load(FAR(0), REMOTE(DATA)));
	/* Warps of that CTA may pass it on at .cta scope. */
	GOOD(store(FAR(0), REMOTE(DATA + 64)));
	emu_check_join(c, FAR(0), 1, NAMED, true);
	emu_check_all_joined(c, 1, NAMED);
	emu_check_leave(c, FAR(1), 1, NAMED, true);
	GOOD(load(FAR(1), REMOTE(DATA)));
	GOOD(load(FAR(1), REMOTE(DATA + 64)));
}

static void a_cta_scope_does_not_reach_another_cta(void **state)
{
	barriers();
	GOOD(store(0, REMOTE(DATA)));
	hand_over(0, REMOTE(BAR), CTA_SCOPE);
	GOOD(emu_check_wait(c, FAR(0), REMOTE(BAR), FAR_SCOPE, &err));
	BAD(load(FAR(0), REMOTE(DATA)), "warp 0 of CTA rank 0 wrote it");
	/* Nor does a wait of .cta scope. */
	GOOD(store(1, REMOTE(DATA + 64)));
	hand_over(1, REMOTE(BAR), FAR_SCOPE);
	wait(FAR(0), REMOTE(BAR));
	BAD(load(FAR(0), REMOTE(DATA + 64)), "warp 1 of CTA rank 0");
}

/* ---- limits -------------------------------------------------------------- */

static void what_cannot_be_followed(void **state)
{
	const struct emu_check_options options = {false};

	assert_null(emu_check_open(0, 1, BYTES, options));
	assert_null(emu_check_open(17, 1, BYTES, options));
	assert_null(emu_check_open(16, 49, BYTES, options));
	/* Accesses wholly or partly outside shared memory are not checked here. */
	GOOD(load(0, BYTES));
	GOOD(store(0, BYTES - 8));
	GOOD(store(0, UINT64_C(2) << EMU_RANK_SHIFT));
	GOOD(emu_check_arrive(c, 0, BYTES, CTA_SCOPE, &err));
	GOOD(emu_check_wait(c, 0, DATA, CTA_SCOPE, &err));
	emu_check_phase(c, DATA);
	emu_check_inval(c, DATA);
	for (uint32_t i = 0; i < 128; i++)
		GOOD(emu_check_init(c, 0, BAR + 8 * i, LINE, &err));
	BAD(emu_check_arrive(c, 1, BAR, CTA_SCOPE, &err), "mbarrier.init");
	GOOD(store(0, DATA));
	BAD(load(1, DATA), "warp 0");
	/*
	 * One more than it can follow: from then on it reports nothing any
	 * more.
	 */
	GOOD(emu_check_init(c, 0, BAR + 8 * 128, LINE, &err));
	GOOD(emu_check_arrive(c, 1, BAR, CTA_SCOPE, &err));
	GOOD(load(2, DATA));
}

/* A cluster of the largest size. */
static void the_largest_cluster(void **state)
{
	const struct emu_check_options options = {false};
	const uint64_t last = UINT64_C(15) << EMU_RANK_SHIFT;

	emu_check_close(c);
	c = emu_check_open(16, 32, 8192, options);
	assert_non_null(c);
	GOOD(store(511, last | 4096));
	BAD(load(0, last | 4096), "warp 31 of CTA rank 15 wrote it");
	for (uint32_t i = 0; i < 1024; i++)
		GOOD(emu_check_init(
		    c, 0, (uint64_t)(i % 16) << EMU_RANK_SHIFT | (1024 + i / 16 * 8),
		    LINE, &err));
	BAD(emu_check_arrive(c, 511, last | (1024 + 63 * 8), FAR_SCOPE, &err),
	    "mbarrier.init of warp 0 of CTA rank 0");
	GOOD(bulk(0, last | 4096 | 256, last | 1024));
	BAD(load(511, last | 4096 | 256), "offset 1024 of CTA rank 15");
}

static void no_memory_of_the_host(void **state)
{
	const struct emu_check_options options = {false};
	bool has_failed = true;

	if (!test_alloc_works())
		skip();
	for (long n = 1; has_failed; n++) {
		struct emu_check *other;

		test_alloc_fail(n, TEST_ALLOC_ONE);
		other = emu_check_open(2, 2, 4096, options);
		has_failed = test_alloc_stop();
		assert_int_equal(other == NULL, has_failed);
		emu_check_close(other);
	}
	test_alloc_fail(2, TEST_ALLOC_ONE);
	BAD(emu_check_init(c, 0, BAR, LINE, &err), "out of memory");
	assert_true(test_alloc_stop());
	GOOD(emu_check_init(c, 0, BAR, LINE, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_store_and_a_load),
	    TEST(two_stores),
	    TEST(equal_stores),
	    TEST(a_load_and_a_store),
	    TEST(the_lane_that_reads),
	    TEST(bytes_of_one_word),
	    TEST(parts_of_blocks),
	    TEST(a_barrier_of_some),
	    TEST(order_is_transitive),
	    TEST(more_readers_than_are_kept),
	    TEST(a_wait_teaches_its_phase_alone),
	    TEST(relaxed_calls_hand_nothing_over),
	    TEST(a_barrier_needs_its_init),
	    TEST(a_fence_of_init_and_a_relaxed_barrier),
	    TEST(a_barrier_used_again),
	    TEST(another_ctas_data),
	    TEST(a_cta_scope_does_not_reach_another_cta),
	    TEST(what_cannot_be_followed),
	    TEST(the_largest_cluster),
	    TEST(no_memory_of_the_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
