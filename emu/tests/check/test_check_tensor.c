/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_check_tensor.c - litmus tests of the order of tensor memory.  Each rule has
 * the shortest history that keeps it and the shortest that breaks it, with the
 * hardware's order and with PTX's.
 */
#include <stdlib.h>

#include "common/litmus.h"

/* Two CTAs of four warps; warp 0 issues the work of the tensor core. */
static void open_check(bool is_strict)
{
	const struct emu_check_options options = {.has_tensor_memory = true,
						  .is_strict = is_strict};

	emu_check_close(c);
	c = emu_check_open(2, WARPS, BYTES, options);
	assert_non_null(c);
	barriers();
}

static bool use(uint32_t warp, enum emu_tmem_use use, uint32_t column, uint32_t tag)
{
	const struct emu_tmem_access a = {.use = use,
					  .lanes = 128,
					  .column = column,
					  .columns = 4,
					  .tag = tag,
					  .line = 77};

	return emu_check_tmem(c, warp, &a, &err);
}

static bool mma(uint32_t warp)
{
	return use(warp, EMU_TMEM_MMA, 0, 1);
}

static bool ld(uint32_t warp)
{
	return use(warp, EMU_TMEM_LD, 0, 0);
}

static bool scales(uint32_t warp)
{
	return use(warp, EMU_TMEM_MMA_SCALE, 64, 0);
}

static bool cp(uint32_t warp)
{
	return use(warp, EMU_TMEM_CP, 64, 0);
}

static void commit(uint32_t warp, uint64_t bar)
{
	struct emu_check_mark *m = emu_check_mark(c, warp);

	assert_non_null(m);
	emu_check_mark_arrive(c, m, bar);
	emu_check_phase(c, bar);
	free(m);
}

static void wait_ld(uint32_t warp)
{
	emu_check_tmem_wait(c, warp, EMU_ASYNC_TMEM_LD);
}

static void before(uint32_t warp)
{
	emu_check_tmem_before(c, warp);
}

static void after(uint32_t warp)
{
	emu_check_tmem_after(c, warp);
}

#define UNWAITED "a later tcgen05.commit must be waited for"

/* mma -> commit -> wait -> ld */
static void test_results(void **state)
{
	open_check(false);
	GOOD(mma(0));
	BAD(ld(0), UNWAITED);
	open_check(false);
	GOOD(mma(0));
	commit(0, BAR);
	BAD(ld(1), UNWAITED);
	open_check(false);
	GOOD(mma(0));
	commit(0, BAR);
	wait(1, BAR);
	GOOD(ld(1));
	BAD(ld(2), UNWAITED);
	/* A commit covers what was before it. */
	open_check(false);
	commit(0, BAR);
	GOOD(mma(0));
	wait(1, BAR);
	BAD(ld(1), UNWAITED);
	/* Another warp's commit does not. */
	open_check(false);
	GOOD(mma(0));
	commit(1, BAR);
	wait(2, BAR);
	BAD(ld(2), UNWAITED);
	/* To the other CTA. */
	open_check(false);
	GOOD(mma(0));
	commit(0, REMOTE(BAR));
	wait(FAR(1), REMOTE(BAR));
	GOOD(ld(FAR(1)));
}

/* ld -> wait::ld -> arrive -> wait -> mma */
static void give_back(uint32_t warp, bool waits, bool fences)
{
	GOOD(mma(0));
	commit(0, BAR);
	wait(warp, BAR);
	after(warp);
	GOOD(ld(warp));
	if (waits)
		wait_ld(warp);
	if (fences)
		before(warp);
	hand_over(warp, OTHER_BAR, CTA_SCOPE);
	wait(0, OTHER_BAR);
}

static void test_reuse(void **state)
{
	open_check(false);
	give_back(1, true, false);
	GOOD(mma(0));
	open_check(false);
	give_back(1, false, false);
	BAD(mma(0), "tcgen05.wait::ld");
	open_check(false);
	GOOD(mma(0));
	commit(0, BAR);
	wait(1, BAR);
	GOOD(ld(1));
	wait_ld(1);
	BAD(mma(0), "tcgen05.ld of warp 1");
	/* A warp's own load is not ordered with its multiplication. */
	open_check(false);
	GOOD(mma(0));
	commit(0, BAR);
	wait(0, BAR);
	GOOD(ld(0));
	BAD(mma(0), "tcgen05.wait::ld");
	open_check(false);
	GOOD(use(0, EMU_TMEM_ST, 0, 0));
	BAD(ld(0), "tcgen05.wait::st");
	emu_check_tmem_wait(c, 0, EMU_ASYNC_TMEM_ST);
	GOOD(ld(0));
}

/* Relaxed, and .cta scope across CTAs: the hardware orders them. */
static void test_weak_arrivals(void **state)
{
	for (int strict = 0; strict < 2; strict++)
		for (int far = 0; far < 2; far++) {
			const uint32_t warp = far ? FAR(1) : 1;

			open_check(strict);
			GOOD(mma(0));
			commit(0, far ? REMOTE(BAR) : BAR);
			wait(warp, far ? REMOTE(BAR) : BAR);
			after(warp);
			GOOD(ld(warp));
			wait_ld(warp);
			before(warp);
			hand_over(warp, OTHER_BAR, far ? CTA_SCOPE : EMU_SCOPE_NONE);
			wait(0, OTHER_BAR);
			after(0);
			if (strict)
				BAD(mma(0), "nothing orders");
			else
				GOOD(mma(0));
		}
}

/* One warp's work: all in order, or only the pairs that PTX names. */
static void test_pipelines(void **state)
{
	open_check(false);
	GOOD(cp(0));
	GOOD(scales(0));
	GOOD(cp(0));
	GOOD(mma(0));
	GOOD(use(0, EMU_TMEM_MMA, 0, 2));
	GOOD(use(0, EMU_TMEM_MMA_A, 0, 0));
	BAD(cp(1), UNWAITED);
	open_check(true);
	GOOD(cp(0));
	GOOD(scales(0));
	BAD(cp(0), UNWAITED);
	open_check(true);
	GOOD(cp(0));
	BAD(cp(0), UNWAITED);
	open_check(true);
	GOOD(mma(0));
	GOOD(mma(0));
	BAD(use(0, EMU_TMEM_MMA, 0, 2), UNWAITED);
	open_check(true);
	GOOD(mma(0));
	BAD(use(0, EMU_TMEM_MMA_A, 0, 0), UNWAITED);
	/* Once a commit has been waited for, no fence within a thread. */
	open_check(true);
	GOOD(scales(0));
	commit(0, BAR);
	wait(0, BAR);
	GOOD(cp(0));
}

static void test_fences(void **state)
{
	open_check(true);
	GOOD(mma(0));
	commit(0, BAR);
	wait(1, BAR);
	BAD(ld(1), "no tcgen05.fence::after_thread_sync");
	open_check(true);
	GOOD(mma(0));
	commit(0, BAR);
	after(1);
	wait(1, BAR);
	BAD(ld(1), "no tcgen05.fence::after_thread_sync");
	open_check(true);
	give_back(1, true, false);
	after(0);
	BAD(mma(0), "no tcgen05.fence::before_thread_sync");
	open_check(true);
	give_back(1, true, true);
	BAD(mma(0), "no tcgen05.fence::after_thread_sync");
	open_check(true);
	give_back(1, true, true);
	after(0);
	GOOD(mma(0));
	/* A fence before the wait for the load does not cover it. */
	open_check(true);
	GOOD(mma(0));
	commit(0, BAR);
	wait(1, BAR);
	after(1);
	GOOD(ld(1));
	before(1);
	wait_ld(1);
	hand_over(1, OTHER_BAR, CTA_SCOPE);
	wait(0, OTHER_BAR);
	after(0);
	BAD(mma(0), "no tcgen05.fence::before_thread_sync");
}

/* alloc -> barrier -> use -> barrier -> dealloc */
static void test_lifecycle(void **state)
{
	for (int strict = 0; strict < 2; strict++) {
		open_check(strict);
		GOOD(use(3, EMU_TMEM_ALLOC, 0, 0));
		BAD(mma(0), "tcgen05.alloc of warp 3");
		open_check(strict);
		GOOD(use(3, EMU_TMEM_ALLOC, 0, 0));
		block_barrier();
		GOOD(mma(0));
		BAD(use(3, EMU_TMEM_DEALLOC, 0, 0), UNWAITED);
		open_check(strict);
		GOOD(use(3, EMU_TMEM_ALLOC, 0, 0));
		block_barrier();
		GOOD(mma(0));
		commit(0, BAR);
		wait(1, BAR);
		after(1);
		GOOD(ld(1));
		wait_ld(1);
		BAD(use(3, EMU_TMEM_DEALLOC, 0, 0), "nothing orders");
		open_check(strict);
		GOOD(mma(0));
		commit(0, BAR);
		wait(1, BAR);
		block_barrier();
		GOOD(use(3, EMU_TMEM_DEALLOC, 0, 0));
	}
}

/* A warp of either CTA deallocates the columns of both CTAs. */
static bool give_back_pair(uint32_t warp)
{
	struct emu_tmem_access a = {
	    .use = EMU_TMEM_DEALLOC, .cta = warp / WARPS, .lanes = 128, .columns = 4};
	const bool is_good = emu_check_tmem(c, warp, &a, &err);

	a.cta ^= 1;
	return is_good && emu_check_tmem(c, warp, &a, &err);
}

/* Both CTAs of a pair deallocate after both have ended their uses. */
static void test_pair_gives_back(void **state)
{
	const uint32_t other = FAR(0);

	for (int strict = 0; strict < 2; strict++) {
		open_check(strict);
		GOOD(ld(1));
		wait_ld(1);
		block_barrier();
		BAD(give_back_pair(other), "tcgen05.ld of warp 1 of CTA rank 0");
		open_check(strict);
		GOOD(give_back_pair(other));
		BAD(ld(1), "tcgen05.dealloc of warp 0 of CTA rank 1");
		open_check(strict);
		GOOD(ld(1));
		wait_ld(1);
		cluster_barrier(true);
		GOOD(give_back_pair(other));
		GOOD(give_back_pair(0));
		GOOD(use(0, EMU_TMEM_ALLOC, 0, 0));
	}
}

/* Columns and lanes that do not overlap are independent. */
static void test_places(void **state)
{
	const struct emu_tmem_access other_column = {
	    .use = EMU_TMEM_LD, .lanes = 128, .column = 4, .columns = 4};
	struct emu_tmem_access half = {
	    .use = EMU_TMEM_MMA, .lanes = 16, .columns = 4, .line = 77};

	open_check(false);
	GOOD(mma(0));
	GOOD(emu_check_tmem(c, 1, &other_column, &err));
	open_check(false);
	GOOD(emu_check_tmem(c, 0, &half, &err));
	half.use = EMU_TMEM_LD;
	half.lane = 16;
	GOOD(emu_check_tmem(c, 1, &half, &err));
	half.lane = 0;
	BAD(emu_check_tmem(c, 1, &half, &err), UNWAITED);
	half.cta = 1;
	GOOD(emu_check_tmem(c, 1, &half, &err));
}

/* Operands in shared memory: until a commit is waited for. */
static void test_operands(void **state)
{
	open_check(false);
	GOOD(wgmma(0, DATA));
	BAD(store(0, DATA), UNWAITED);
	open_check(false);
	GOOD(wgmma(0, DATA));
	commit(0, BAR);
	wait(1, BAR);
	GOOD(bulk(1, DATA, OTHER_BAR));
	open_check(false);
	GOOD(wgmma(0, DATA));
	commit(0, BAR);
	BAD(bulk(1, DATA, OTHER_BAR), UNWAITED);
	/* A wait for a commit includes what the commit's warp had waited for. */
	open_check(false);
	GOOD(bulk(1, DATA, OTHER_BAR));
	emu_check_phase(c, OTHER_BAR);
	wait(0, OTHER_BAR);
	GOOD(wgmma(0, DATA));
	commit(0, BAR);
	wait(1, BAR);
	GOOD(bulk(1, DATA, OTHER_BAR));
}

/* Warp 2 writes for the tensor core, warp 1 issues to it, warp 0 refills. */
static void test_operands_of_another_warp(void **state)
{
	for (int is_fenced = 0; is_fenced < 2; is_fenced++) {
		open_check(false);
		GOOD(store(2, DATA));
		if (is_fenced)
			fence(2);
		hand_over(2, OTHER_BAR, CTA_SCOPE);
		wait(1, OTHER_BAR);
		if (is_fenced)
			GOOD(wgmma(1, DATA));
		else
			BAD(wgmma(1, DATA), "no fence.proxy.async");
		/* Not published: what threads of the issuing warp write. */
		GOOD(store(1, DATA + 1024));
		commit(1, BAR);
		wait(0, BAR);
		if (is_fenced)
			GOOD(bulk(0, DATA, OTHER_BAR));
		else
			BAD(bulk(0, DATA, OTHER_BAR), "no fence.proxy.async");
		BAD(load(0, DATA + 1024), "warp 1 of CTA rank 0 wrote it");
	}
}

/* The word of tcgen05.alloc may be overwritten without a proxy fence. */
static void test_the_word_of_alloc(void **state)
{
	open_check(false);
	GOOD(emu_check_write(c, 0, DATA, 4, LINE, &err));
	emu_check_needs_no_fence(c, DATA);
	BAD(emu_check_read(c, 1, DATA, 4, LINE, &err), "warp 0");
	GOOD(emu_check_write(c, 0, DATA + 16, 4, LINE, &err));
	block_barrier();
	GOOD(emu_check_load(c, 1, DATA, 16, OTHER_BAR, LINE, &err));
	BAD(emu_check_load(c, 1, DATA + 16, 16, OTHER_BAR, LINE, &err),
	    "no fence.proxy.async");
	/* The rule applies again to the next write. */
	open_check(false);
	GOOD(emu_check_write(c, 0, DATA, 4, LINE, &err));
	emu_check_needs_no_fence(c, DATA);
	GOOD(emu_check_write(c, 0, DATA, 4, LINE, &err));
	block_barrier();
	BAD(emu_check_load(c, 1, DATA, 16, OTHER_BAR, LINE, &err),
	    "no fence.proxy.async");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_results),
	    TEST(test_reuse),
	    TEST(test_weak_arrivals),
	    TEST(test_pipelines),
	    TEST(test_fences),
	    TEST(test_lifecycle),
	    TEST(test_pair_gives_back),
	    TEST(test_places),
	    TEST(test_operands),
	    TEST(test_operands_of_another_warp),
	    TEST(test_the_word_of_alloc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
