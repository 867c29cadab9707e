/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_check_async.c - the checker of the order of shared memory: bulk copies,
 * wgmma, cp.async and the fences between proxies, with each step and without it.
 */
#include "common/litmus.h"

/* ---- bulk copies --------------------------------------------------------- */

static void a_bulk_copy_and_its_readers(void **state)
{
	barriers();
	GOOD(bulk(0, DATA, BAR));
	BAD(load(1, DATA), "a bulk copy counted at the mbarrier at offset 1024 "
			   "of CTA rank 0 wrote it (PTX line 77), and this "
			   "warp has not waited for the end of that phase");
	BAD(load(0, DATA), "has not waited");
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	GOOD(load(1, DATA));
	GOOD(wgmma(1, DATA));
	/* The end of another barrier's phase does not order them. */
	GOOD(bulk(0, DATA + 1024, BAR));
	hand_over(0, OTHER_BAR, CTA_SCOPE);
	wait(2, OTHER_BAR);
	BAD(wgmma(2, DATA + 1024), "has not waited");
	/* But a warp that has waited may pass it on. */
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	hand_over(1, OTHER_BAR, CTA_SCOPE);
	wait(2, OTHER_BAR);
	GOOD(wgmma(2, DATA + 1024));
}

/* The wait was for the phase before. */
static void a_wait_for_the_wrong_phase(void **state)
{
	barriers();
	GOOD(bulk(0, DATA, BAR));
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	GOOD(bulk(0, DATA + 128, BAR));
	wait(1, BAR);
	GOOD(load(1, DATA));
	BAD(load(1, DATA + 128), "has not waited");
}

static void a_stage_is_filled_again(void **state)
{
	barriers();
	GOOD(bulk(0, DATA, BAR));
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	GOOD(load(1, DATA));
	BAD(bulk(0, DATA, BAR), "warp 1 of CTA rank 0 reads it");
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	GOOD(load(1, DATA));
	hand_over(1, OTHER_BAR, CTA_SCOPE);
	wait(0, OTHER_BAR);
	GOOD(bulk(0, DATA, BAR));
}

static void a_refill_with_the_strict_rule(void **state)
{
	emu_check_close(c);
	begin(true);
	barriers();
	for (int has_fence = 1; has_fence >= 0; has_fence--) {
		GOOD(bulk(0, DATA, BAR));
		hand_over(0, BAR, CTA_SCOPE);
		wait(1, BAR);
		GOOD(load(1, DATA));
		if (has_fence)
			fence(1);
		hand_over(1, OTHER_BAR, CTA_SCOPE);
		wait(0, OTHER_BAR);
	}
	BAD(bulk(0, DATA, BAR), "has read it, and there was no fence.proxy");
}

static void two_bulk_copies_to_one_place(void **state)
{
	barriers();
	GOOD(bulk(0, DATA, BAR));
	BAD(bulk(1, DATA, OTHER_BAR), "a bulk copy counted at");
	BAD(bulk(0, DATA, BAR), "a bulk copy counted at");
}

/* To both CTAs, counted at each one's barrier. */
static void a_multicast_copy(void **state)
{
	barriers();
	GOOD(bulk(0, DATA, BAR));
	GOOD(bulk(0, REMOTE(DATA), REMOTE(BAR)));
	hand_over(0, BAR, CTA_SCOPE);
	BAD(wgmma(FAR(2), REMOTE(DATA)), "CTA rank 1 wrote it");
	hand_over(FAR(0), REMOTE(BAR), CTA_SCOPE);
	wait(FAR(1), REMOTE(BAR));
	GOOD(wgmma(FAR(1), REMOTE(DATA)));
	emu_check_commit(c, FAR(1), EMU_ASYNC_WGMMA);
	/* The other CTA may fill it again when that wgmma has ended. */
	emu_check_wait_group(c, FAR(1), EMU_ASYNC_WGMMA, 0, 0);
	hand_over(FAR(1), OTHER_BAR, CTA_SCOPE);
	wait(0, OTHER_BAR);
	BAD(bulk(0, REMOTE(DATA), REMOTE(BAR)), "a wgmma of warp 2 of CTA");
}

/* ---- proxies ------------------------------------------------------------- */

static void a_store_and_an_engine(void **state)
{
	/* The writer fences, then releases. */
	GOOD(store(0, DATA));
	fence(0);
	block_barrier();
	GOOD(wgmma(1, DATA));
	GOOD(bulk_store(2, DATA));
	/* The reader fences after the barrier. */
	GOOD(store(0, DATA + 1024));
	block_barrier();
	BAD(wgmma(1, DATA + 1024), "wgmma reads shared memory offset 5120 of "
				   "CTA rank 0: warp 0 of CTA rank 0 wrote it "
				   "(PTX line 77), and there was no fence.proxy");
	fence(1);
	GOOD(wgmma(1, DATA + 1024));
	BAD(bulk_store(2, DATA + 1024), "bulk store of shared memory");
	/* A fence before the store has no effect. */
	fence(0);
	GOOD(store(0, DATA + 2048));
	block_barrier();
	BAD(wgmma(3, DATA + 2048), "fence.proxy");
	/* Nor does it order anything. */
	GOOD(store(0, DATA + 4096));
	fence(0);
	fence(1);
	BAD(wgmma(1, DATA + 4096), "nothing orders");
	/* A warp's own stores also need one. */
	GOOD(store(1, DATA + 8192));
	BAD(wgmma(1, DATA + 8192), "fence.proxy");
}

static void a_store_and_a_bulk_copy_over_it(void **state)
{
	barriers();
	GOOD(store(1, DATA));
	block_barrier();
	BAD(bulk(0, DATA, BAR), "fence.proxy");
	GOOD(store(1, DATA + 1024));
	fence(1);
	block_barrier();
	GOOD(bulk(0, DATA + 1024, BAR));
}

/* ---- wgmma, stores, cp.async --------------------------------------------- */

static void operands_until_the_wait(void **state)
{
	barriers();
	GOOD(bulk(0, DATA, BAR));
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	GOOD(wgmma(1, DATA));
	emu_check_commit(c, 1, EMU_ASYNC_WGMMA);
	GOOD(wgmma(1, DATA + 64));
	emu_check_commit(c, 1, EMU_ASYNC_WGMMA);
	/* Too early: the last group may be in flight. */
	emu_check_wait_group(c, 1, EMU_ASYNC_WGMMA, 1, 0);
	hand_over(1, OTHER_BAR, CTA_SCOPE);
	wait(0, OTHER_BAR);
	BAD(emu_check_load(c, 0, DATA + 128, 64, BAR, LINE, &err),
	    "a wgmma of warp 1 of CTA rank 0 reads it, and nothing says that "
	    "it has: wgmma.wait_group");
	GOOD(emu_check_load(c, 0, DATA, 64, BAR, LINE, &err));
	/* And the same for a store of the warp itself. */
	BAD(emu_check_write(c, 1, DATA + 96, 4, LINE, &err), "a wgmma of");
}

/* An arrival of .cta scope publishes to another CTA only the end of wgmma's reads. */
static void the_end_of_operands_at_another_cta(void **state)
{
	barriers();
	GOOD(bulk(FAR(0), DATA, BAR));
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	GOOD(wgmma(1, DATA));
	emu_check_commit(c, 1, EMU_ASYNC_WGMMA);
	emu_check_wait_group(c, 1, EMU_ASYNC_WGMMA, 0, 0);
	hand_over(1, REMOTE(BAR), CTA_SCOPE);
	wait(FAR(0), REMOTE(BAR));
	GOOD(bulk(FAR(0), DATA, BAR));
	/* It does not publish a load. */
	hand_over(0, BAR, CTA_SCOPE);
	wait(1, BAR);
	GOOD(load(1, DATA));
	hand_over(1, REMOTE(BAR), CTA_SCOPE);
	wait(FAR(0), REMOTE(BAR));
	BAD(bulk(FAR(0), DATA, BAR), "warp 1 of CTA rank 0 reads it");
}

static void a_bulk_store_until_it_has_read(void **state)
{
	GOOD(store(0, DATA));
	fence(0);
	GOOD(bulk_store(0, DATA));
	emu_check_commit(c, 0, EMU_ASYNC_STORE);
	BAD(store(0, DATA), "a bulk store of warp 0");
	GOOD(store(0, DATA + 1024));
	fence(0);
	GOOD(bulk_store(0, DATA + 1024));
	emu_check_commit(c, 0, EMU_ASYNC_STORE);
	emu_check_wait_group(c, 0, EMU_ASYNC_STORE, 0, 0);
	GOOD(store(0, DATA + 1024));
}

static void cp_async_and_its_groups(void **state)
{
	GOOD(emu_check_copy(c, 0, DATA, 16, LINE, &err));
	emu_check_commit(c, 0, EMU_ASYNC_COPY);
	GOOD(emu_check_copy(c, 0, DATA + 16, 16, LINE, &err));
	emu_check_commit(c, 0, EMU_ASYNC_COPY);
	BAD(load(0, DATA), "a cp.async of warp 0 of CTA rank 0 wrote it (PTX "
			   "line 77), and this warp has not waited for its");
	emu_check_wait_group(c, 0, EMU_ASYNC_COPY, 1, 0);
	GOOD(load(0, DATA));
	BAD(load(0, DATA + 16), "has not waited for its group");
	emu_check_wait_group(c, 0, EMU_ASYNC_COPY, 0, 0);
	GOOD(load(0, DATA + 16));
	BAD(load(1, DATA), "a cp.async of");
	block_barrier();
	GOOD(load(1, DATA));
	/* Threads' stores: the asynchronous proxy needs a fence. */
	BAD(wgmma(1, DATA), "fence.proxy");
	fence(1);
	GOOD(wgmma(1, DATA));
	GOOD(emu_check_copy(c, 0, DATA + 128, 16, LINE, &err));
	emu_check_wait_all(c, 0);
	GOOD(load(0, DATA + 128));
}

static void cp_async_and_an_arrival(void **state)
{
	uint32_t mark;

	barriers();
	GOOD(emu_check_copy(c, 0, DATA, 16, LINE, &err));
	mark = emu_check_copy_mark(c, 0);
	GOOD(emu_check_copy(c, 0, DATA + 16, 16, LINE, &err));
	emu_check_copy_arrive(c, 0, mark, BAR);
	emu_check_phase(c, BAR);
	wait(1, BAR);
	GOOD(load(1, DATA));
	BAD(load(1, DATA + 16), "a cp.async of warp 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_bulk_copy_and_its_readers),
	    TEST(a_wait_for_the_wrong_phase),
	    TEST(a_stage_is_filled_again),
	    TEST(a_refill_with_the_strict_rule),
	    TEST(two_bulk_copies_to_one_place),
	    TEST(a_multicast_copy),
	    TEST(a_store_and_an_engine),
	    TEST(a_store_and_a_bulk_copy_over_it),
	    TEST(operands_until_the_wait),
	    TEST(the_end_of_operands_at_another_cta),
	    TEST(a_bulk_store_until_it_has_read),
	    TEST(cp_async_and_its_groups),
	    TEST(cp_async_and_an_arrival),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
