/* SPDX-License-Identifier: Apache-2.0 */
/*
 * litmus.h - steps of the litmus tests of the checker (test_check*.c): the operations
 * of the warps of two CTAs (four in each), in the order in which they happen.
 */
#ifndef EMU_TESTS_LITMUS_H
#define EMU_TESTS_LITMUS_H

#include <string.h>

#include "check/check.h"
#include "common/unit.h"
#include "common/verdict.h"

#define WARPS 4 /* of a CTA */
#define BYTES 65536
#define LINE  ((struct emu_place){.line = 77})

/* Another CTA's warps and memory. */
#define FAR(warp)  (WARPS + (warp))
#define REMOTE(at) (UINT64_C(1) << EMU_RANK_SHIFT | (at))
#define DATA	   4096
#define BAR	   1024
#define OTHER_BAR  1032
#define NAMED	   3
#define CTA_SCOPE  EMU_SCOPE_CTA
#define FAR_SCOPE  EMU_SCOPE_CLUSTER

static struct emu_check *c;
static struct emu_error err;

static inline void begin(bool fence_before_refill)
{
	const struct emu_check_options options = {.fence_before_refill =
						      fence_before_refill};

	c = emu_check_open(2, WARPS, BYTES, options);
	assert_non_null(c);
}

static inline int setup(void **state)
{
	begin(false);
	return 0;
}

static inline int teardown(void **state)
{
	emu_check_close(c);
	c = NULL;
	return 0;
}

/* ---- short names --------------------------------------------------------- */

static inline bool load(uint32_t warp, uint64_t at)
{
	return emu_check_read(c, warp, at, 16, LINE, &err);
}

static inline bool store(uint32_t warp, uint64_t at)
{
	return emu_check_write(c, warp, at, 16, LINE, &err);
}

static inline bool bulk(uint32_t warp, uint64_t at, uint64_t bar)
{
	return emu_check_load(c, warp, at, 128, bar, LINE, &err);
}

static inline bool wgmma(uint32_t warp, uint64_t at)
{
	return emu_check_async_read(c, warp, EMU_ASYNC_WGMMA, at, 128, LINE, &err);
}

static inline bool bulk_store(uint32_t warp, uint64_t at)
{
	return emu_check_async_read(c, warp, EMU_ASYNC_STORE, at, 128, LINE, &err);
}

static inline void fence(uint32_t warp)
{
	emu_check_fence_proxy(c, warp);
}

/* bar.sync of all warps of CTA 0. */
static inline void block_barrier(void)
{
	for (uint32_t w = 0; w < WARPS; w++)
		emu_check_join(c, w, 0, 0, true);
	emu_check_all_joined(c, 0, 0);
	for (uint32_t w = 0; w < WARPS; w++)
		emu_check_leave(c, w, 0, 0, true);
}

static inline void cluster_barrier(bool is_release)
{
	for (uint32_t w = 0; w < 2 * WARPS; w++)
		emu_check_join(c, w, w / WARPS, EMU_CLUSTER_BARRIER, is_release);
	emu_check_all_joined(c, 0, EMU_CLUSTER_BARRIER);
	for (uint32_t w = 0; w < 2 * WARPS; w++)
		emu_check_leave(c, w, w / WARPS, EMU_CLUSTER_BARRIER, true);
}

/* Barriers of one arrival, whose init all warps of both CTAs have seen. */
static inline void barriers(void)
{
	GOOD(emu_check_init(c, 0, BAR, LINE, &err));
	GOOD(emu_check_init(c, 0, OTHER_BAR, LINE, &err));
	GOOD(emu_check_init(c, FAR(0), REMOTE(BAR), LINE, &err));
	cluster_barrier(true);
}

/* The only arrival: ends the phase. */
static inline void hand_over(uint32_t warp, uint64_t bar, enum emu_scope scope)
{
	GOOD(emu_check_arrive(c, warp, bar, scope, &err));
	emu_check_phase(c, bar);
}

static inline void wait(uint32_t warp, uint64_t bar)
{
	GOOD(emu_check_wait(c, warp, bar, CTA_SCOPE, &err));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
