/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_order.c - litmus tests of the checker of global memory: sequences of accesses
 * by warps of clusters and grids, and whether the checker objects.
 */
#include <string.h>

#include "check/order.h"
#include "common/unit.h"
#include "common/verdict.h"

#define CLUSTERS 4
#define WARPS	 2 /* of a cluster of one CTA */
#define LINE	 ((struct emu_place){.line = 77})
#define DATA	 UINT64_C(0x10000)
#define OTHER	 UINT64_C(0x20000)
#define FLAG	 UINT64_C(0x30000)
#define FLAG2	 UINT64_C(0x30040)
#define RELAXED	 EMU_ORDER_RELAXED
#define NEAR	 EMU_ORDER_NEAR
#define WIDE	 EMU_ORDER_WIDE

static struct emu_order *order;
static struct emu_check *checks[2 * CLUSTERS];
static struct emu_error err;

static int setup(void **state)
{
	static const uint32_t clusters[] = {CLUSTERS, CLUSTERS};
	static const uint32_t warps[] = {WARPS, WARPS};
	const struct emu_check_options options = {0};

	order = emu_order_open(2, clusters, warps);
	assert_non_null(order);
	for (int i = 0; i < 2 * CLUSTERS; i++) {
		checks[i] = emu_check_open(1, WARPS, 1024, options);
		assert_non_null(checks[i]);
	}
	return 0;
}

static int teardown(void **state)
{
	emu_order_close(order);
	for (int i = 0; i < 2 * CLUSTERS; i++)
		emu_check_close(checks[i]);
	return 0;
}

/* Warp w of cluster c; of the second grid: c + CLUSTERS. */
static struct emu_order_warp who(uint32_t c, uint32_t w)
{
	return (struct emu_order_warp){c / CLUSTERS, c % CLUSTERS, w, checks[c]};
}

static bool access_of(uint32_t c, uint32_t w, uint32_t kind, uint64_t at,
		      uint32_t bytes)
{
	const struct emu_order_warp x = who(c, w);

	return emu_order_access(order, &x, kind, at, bytes, LINE, &err);
}

static bool load(uint32_t c, uint64_t at)
{
	return access_of(c, 0, EMU_ORDER_READ, at, 16);
}

static bool store(uint32_t c, uint64_t at)
{
	return access_of(c, 0, EMU_ORDER_WRITE, at, 16);
}

static void release(uint32_t c, uint64_t at, enum emu_order_scope scope)
{
	const struct emu_order_warp x = who(c, 0);

	emu_order_release(order, &x, at, scope, false);
}

static void add(uint32_t c, uint64_t at, enum emu_order_scope scope)
{
	const struct emu_order_warp x = who(c, 0);

	emu_order_acquire(order, &x, at, scope);
	emu_order_release(order, &x, at, scope, true);
}

static void acquire(uint32_t c, uint64_t at, enum emu_order_scope scope)
{
	const struct emu_order_warp x = who(c, 0);

	emu_order_acquire(order, &x, at, scope);
}

static void fence(uint32_t c)
{
	const struct emu_order_warp x = who(c, 0);

	emu_order_fence(order, &x, WIDE);
}

/* bar.sync of the cluster's only CTA. */
static void join(uint32_t c)
{
	for (uint32_t w = 0; w < WARPS; w++)
		emu_check_join(checks[c], w, 0, 0, true);
	emu_check_all_joined(checks[c], 0, 0);
	for (uint32_t w = 0; w < WARPS; w++)
		emu_check_leave(checks[c], w, 0, 0, true);
}

/* ---- without an order ---------------------------------------------------- */

static void races_of_two(void **state)
{
	GOOD(store(0, DATA));
	BAD(load(1, DATA), "warp 0 of cluster 0 wrote it (PTX line 77)");
	GOOD(store(0, OTHER));
	BAD(store(1, OTHER), "wrote it");
	GOOD(load(2, FLAG));
	GOOD(load(3, FLAG));
	BAD(store(1, FLAG), "reads it");
}

static void bytes_of_a_word(void **state)
{
	GOOD(access_of(0, 0, EMU_ORDER_WRITE, DATA, 2));
	GOOD(access_of(1, 0, EMU_ORDER_WRITE, DATA + 2, 2));
	GOOD(access_of(1, 0, EMU_ORDER_READ, DATA + 3, 1));
	GOOD(access_of(0, 0, EMU_ORDER_WRITE, DATA + 8, 1));
	BAD(access_of(1, 0, EMU_ORDER_READ, DATA + 4, 8), "0x10008");
}

static void strong_accesses(void **state)
{
	const uint32_t strong_write = EMU_ORDER_WRITE | EMU_ORDER_STRONG;

	GOOD(access_of(0, 0, strong_write, FLAG, 4));
	GOOD(access_of(1, 0, strong_write, FLAG, 4));
	GOOD(access_of(2, 0, EMU_ORDER_STRONG, FLAG, 4));
	BAD(access_of(3, 0, EMU_ORDER_READ, FLAG, 4), "wrote it");
	GOOD(access_of(0, 0, EMU_ORDER_READ, FLAG2, 4));
	BAD(access_of(1, 0, strong_write, FLAG2, 4), "reads it");
}

static void volatile_data(void **state)
{
	const uint32_t kind = EMU_ORDER_STRONG | EMU_ORDER_VOLATILE;

	GOOD(access_of(0, 0, EMU_ORDER_WRITE | kind, DATA, 4));
	GOOD(access_of(1, 0, EMU_ORDER_STRONG, DATA, 4)); /* polls */
	BAD(access_of(1, 0, kind, DATA, 4), "volatile accesses make no order");
	GOOD(access_of(0, 0, kind, DATA, 4));
	GOOD(access_of(0, 0, kind, OTHER, 4));
	BAD(access_of(1, 0, EMU_ORDER_WRITE | kind, OTHER, 4), "reads it");
	BAD(access_of(2, 0, EMU_ORDER_READ, DATA, 4), "no release and acquire");
}

static void equal_values(void **state)
{
	const uint32_t same = EMU_ORDER_WRITE | EMU_ORDER_SAME;

	GOOD(access_of(0, 0, EMU_ORDER_WRITE, DATA, 4));
	BAD(access_of(1, 0, same, DATA, 4), "cluster 0 wrote the same value to it");
	BAD(access_of(1, 1, same, DATA, 4),
	    "warp 0 of the same cluster wrote the same");
	GOOD(load(2, OTHER));
	BAD(access_of(1, 0, same, OTHER, 4), "reads it");
}

/* Lanes of a warp in one call; the reports of clusters that run separately. */
static void lanes_of_a_cluster(void **state)
{
	struct emu_order *o = emu_order_open_cluster(WARPS);
	const struct emu_order_warp w[] = {{0, 0, 0, checks[0]}, {0, 0, 1, checks[0]}};
	const struct emu_place place = {.line = 77, .lanes = 1, .instruction = 1};
	const struct emu_place later = {.line = 78, .lanes = 1, .instruction = 2};
	uint64_t address[32], shifted[32];
	int lane = -1;

	for (uint32_t l = 0; l < 32; l++) {
		address[l] = DATA + 16 * l;
		shifted[l] = DATA + 16 * (l ^ 1);
	}
	assert_non_null(o);
	for (int round = 0; round < 2; round++) {
		GOOD(emu_order_access_lanes(o, &w[0], EMU_ORDER_WRITE, ~0u, NULL,
					    address, 16, place, &lane, &err));
		GOOD(emu_order_access_lanes(o, &w[0], EMU_ORDER_READ, ~0u, NULL,
					    address, 16, later, &lane, &err));
		BAD(emu_order_access_lanes(o, &w[0], EMU_ORDER_READ, ~0u << 5, NULL,
					   shifted, 4, later, &lane, &err),
		    "by lane 5: lane 4 of the same warp wrote it (PTX line 77)");
		assert_int_equal(lane, 5);
		BAD(emu_order_access_lanes(o, &w[1], EMU_ORDER_READ, 2, NULL, address,
					   4, place, &lane, &err),
		    "warp 0 of the same cluster wrote it (PTX line 77), and nothing "
		    "orders that before this: no barrier");
		emu_order_begin_cluster(o);
		GOOD(emu_order_access_lanes(o, &w[1], EMU_ORDER_READ, 2, NULL, address,
					    4, place, &lane, &err));
		emu_order_begin_cluster(o);
	}
	/* It keeps what fits. */
	for (uint32_t k = 0; k < 40000 && !emu_order_is_short(o); k++) {
		address[0] = DATA + 256 * k;
		GOOD(emu_order_access_lanes(o, &w[0], EMU_ORDER_WRITE, 1, NULL, address,
					    4, place, &lane, &err));
	}
	assert_true(emu_order_is_short(o));
	address[0] = DATA;
	GOOD(emu_order_access_lanes(o, &w[1], EMU_ORDER_READ, 1, NULL, address, 4,
				    place, &lane, &err));
	emu_order_close(o);
}

/* ---- release and acquire ------------------------------------------------- */

static void a_message(void **state)
{
	GOOD(store(0, DATA));
	release(0, FLAG, WIDE);
	acquire(1, FLAG, WIDE);
	GOOD(load(1, DATA));
	GOOD(store(1, DATA));
	/* Writes after the release are not published by it. */
	GOOD(store(0, OTHER));
	acquire(1, FLAG, WIDE);
	BAD(load(1, OTHER), "nothing orders");
}

static void another_address(void **state)
{
	GOOD(store(0, DATA));
	release(0, FLAG, WIDE);
	acquire(1, FLAG2, WIDE);
	BAD(load(1, DATA), "no release and acquire");
}

static void half_a_message(void **state)
{
	GOOD(store(0, DATA));
	release(0, FLAG, RELAXED);
	acquire(1, FLAG, WIDE);
	BAD(load(1, DATA), "nothing orders");
	GOOD(store(2, OTHER));
	release(2, FLAG2, WIDE);
	acquire(3, FLAG2, RELAXED);
	BAD(load(3, OTHER), "nothing orders");
}

static void scopes(void **state)
{
	GOOD(store(0, DATA));
	release(0, FLAG, NEAR);
	acquire(1, FLAG, WIDE);
	BAD(load(1, DATA), "nothing orders");
	GOOD(store(2, OTHER));
	release(2, FLAG2, WIDE);
	acquire(3, FLAG2, NEAR);
	BAD(load(3, OTHER), "nothing orders");
}

/* Within a cluster .cta is enough. */
static void a_scope_of_the_own_cta(void **state)
{
	const struct emu_order_warp second = who(0, 1);

	GOOD(store(0, DATA));
	release(0, FLAG, NEAR);
	emu_order_acquire(order, &second, FLAG, NEAR);
	GOOD(access_of(0, 1, EMU_ORDER_READ, DATA, 16));
	GOOD(store(0, OTHER));
	BAD(access_of(0, 1, EMU_ORDER_READ, OTHER + 8, 4), "wrote it");
}

static void fences(void **state)
{
	GOOD(store(0, DATA));
	fence(0);
	GOOD(store(0, OTHER));
	release(0, FLAG, RELAXED);
	acquire(1, FLAG, RELAXED);
	fence(1);
	GOOD(load(1, DATA));
	BAD(load(1, OTHER), "nothing orders");
}

/* Counters: each arrival continues the releases of the earlier ones, and a plain
 * store ends them. */
static void release_sequences(void **state)
{
	GOOD(store(0, DATA));
	add(0, FLAG, WIDE);
	GOOD(store(1, OTHER));
	add(1, FLAG, RELAXED);
	acquire(2, FLAG, WIDE);
	GOOD(load(2, DATA));
	BAD(load(2, OTHER), "nothing orders");
	release(3, FLAG, RELAXED);
	acquire(1, FLAG, WIDE);
	BAD(store(1, DATA), "wrote it");
}

static void order_is_transitive(void **state)
{
	GOOD(store(0, DATA));
	release(0, FLAG, WIDE);
	acquire(1, FLAG, WIDE);
	release(1, FLAG2, WIDE);
	acquire(2, FLAG2, WIDE);
	GOOD(store(2, DATA));
}

/* ---- with the warps of a CTA --------------------------------------------- */

static void barriers_before_and_after(void **state)
{
	GOOD(access_of(0, 1, EMU_ORDER_WRITE, DATA, 16));
	join(0);
	release(0, FLAG, WIDE);
	acquire(1, FLAG, WIDE);
	GOOD(load(1, DATA));
	BAD(access_of(1, 1, EMU_ORDER_READ, DATA, 16), "nothing orders");
	join(1);
	GOOD(access_of(1, 1, EMU_ORDER_WRITE, DATA, 16));
}

static void a_barrier_too_late(void **state)
{
	GOOD(access_of(0, 1, EMU_ORDER_WRITE, DATA, 16));
	release(0, FLAG, WIDE);
	join(0);
	acquire(1, FLAG, WIDE);
	BAD(load(1, DATA), "warp 1 of cluster 0 wrote it");
	/* What one warp acquires after a barrier, the others have not acquired. */
	GOOD(store(2, OTHER));
	join(3);
	release(2, FLAG2, WIDE);
	acquire(3, FLAG2, WIDE);
	BAD(access_of(3, 1, EMU_ORDER_READ, OTHER, 16), "nothing orders");
}

/* ---- bulk stores and grids ----------------------------------------------- */

static void bulk_stores(void **state)
{
	const struct emu_order_warp x = who(0, 0);
	const uint32_t kind = EMU_ORDER_WRITE | EMU_ORDER_STORE;

	GOOD(access_of(0, 0, kind, DATA, 64));
	emu_check_commit(checks[0], 0, EMU_ASYNC_STORE);
	GOOD(access_of(0, 0, kind, OTHER, 64));
	emu_check_commit(checks[0], 0, EMU_ASYNC_STORE);
	BAD(load(0, DATA), "has not been waited for");
	emu_order_stored(order, &x, 1);
	GOOD(load(0, DATA));
	BAD(load(0, OTHER), "has not been waited for");
	release(0, FLAG, WIDE);
	emu_order_stored(order, &x, 0);
	acquire(1, FLAG, WIDE);
	GOOD(load(1, DATA));
	release(0, FLAG, WIDE);
	acquire(1, FLAG, WIDE);
	GOOD(load(1, OTHER));
}

static void grids(void **state)
{
	const struct emu_order_warp x = who(CLUSTERS, 0);

	GOOD(store(3, DATA));
	BAD(load(CLUSTERS + 1, DATA), "griddepcontrol.wait");
	emu_order_grids(order, &x, 0);
	GOOD(load(CLUSTERS, DATA));
	BAD(access_of(CLUSTERS, 1, EMU_ORDER_WRITE, DATA, 4),
	    "of another grid wrote it");
	join(CLUSTERS);
	GOOD(access_of(CLUSTERS, 1, EMU_ORDER_WRITE, DATA, 4));
	GOOD(store(CLUSTERS, OTHER));
	BAD(load(0, OTHER), "griddepcontrol.wait");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(races_of_two),
	    TEST(bytes_of_a_word),
	    TEST(strong_accesses),
	    TEST(volatile_data),
	    TEST(equal_values),
	    TEST(lanes_of_a_cluster),
	    TEST(a_message),
	    TEST(another_address),
	    TEST(half_a_message),
	    TEST(scopes),
	    TEST(a_scope_of_the_own_cta),
	    TEST(fences),
	    TEST(release_sequences),
	    TEST(order_is_transitive),
	    TEST(barriers_before_and_after),
	    TEST(a_barrier_too_late),
	    TEST(bulk_stores),
	    TEST(grids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
