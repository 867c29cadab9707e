/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_traffic.c - the bytes of global memory that the software GPU counts for
 * threads, bulk copies and tensor maps, on any schedule and with several threads of
 * the host.
 */
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/tensor_map.h"
#include "machine/traffic.h"

#define SEEDS	  10
#define CTAS	  6
#define MAP_BYTES 128

static struct emu_traffic counted;

static uint64_t loaded_of(uint64_t bytes)
{
	for (uint32_t k = 0; k < counted.n_ranges; k++)
		if (counted.ranges[k].bytes == bytes)
			return counted.ranges[k].loaded;
	return 0;
}

/* Each lane loads 8 bytes of in, all of them the first 4, stores 4 to out. */
static void test_of_threads(void **state)
{
	static const char *const body =
	    "ld.global.u32 %r1, [%in];\nmul.wide.u32 %d1, %lane, 8;\n"
	    "add.s64 %d2, %in, %d1;\nld.global.v2.u32 {%r2, %r3}, [%d2];\n"
	    "mul.wide.u32 %d3, %lane, 4;\nadd.s64 %d3, %out, %d3;\n"
	    "st.global.u32 [%d3], %r2;\n"
	    "setp.eq.u32 %p1, %lane, 3;\n@%p1 red.global.add.u32 [%out], 0;\n";
	static const uint8_t in[32 * 8];

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint32_t out[32];
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .out = out,
				      .out_bytes = sizeof(out),
				      .seed = seed,
				      .traffic = &counted};

		memset(&counted, 0, sizeof(counted));
		emu_must_run(body, &job);
		assert_int_equal(counted.bytes[EMU_TRAFFIC_LOAD], 4 + 32 * 8 + 4);
		assert_int_equal(counted.bytes[EMU_TRAFFIC_STORE], 32 * 4 + 4);
		assert_int_equal(loaded_of(sizeof(in)), 4 + 32 * 8);
		assert_int_equal(loaded_of(sizeof(out)), 4);
	}
}

/* Shared memory and parameters are not global memory. */
static void test_of_other_spaces(void **state)
{
	static const char *const body =
	    ".shared .b32 s[32];\nmov.u32 %r1, s;\n"
	    "mad.lo.u32 %r1, %lane, 4, %r1;\nst.shared.u32 [%r1], %lane;\n"
	    "ld.shared.u32 %r2, [%r1];\ncvt.u64.u32 %d1, %r1;\n"
	    "cvta.shared.u64 %d1, %d1;\nst.u32 [%d1], %r2;\n"
	    "ld.u32 %r3, [%d1];\n";
	struct emu_job job = {.traffic = &counted};

	memset(&counted, 0, sizeof(counted));
	emu_must_run(body, &job);
	for (int k = 0; k < EMU_TRAFFIC_KINDS; k++)
		assert_int_equal(counted.bytes[k], 0);
	assert_int_equal(counted.n_ranges, 0);
}

#define BARRIER                                                                        \
	".shared .align 8 .b8 bar[8];\nmov.u32 %r2, dynamic;\n"                        \
	"setp.ne.u32 %p1, %tid, 0;\nmov.u32 %r3, 1;\n"                                 \
	"@!%p1 mbarrier.init.shared::cta.b64 [bar], %r3;\n"                            \
	"@!%p1 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
#define WAIT                                                                           \
	"L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n"                 \
	"@!%p2 bra L;\n"

/* Also on clusters that run in several threads of the host. */
static void test_of_bulk_copies(void **state)
{
	static const char *const body =
	    BARRIER "@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 48;\n"
		    "@!%p1 cp.async.bulk.shared::cluster.global"
		    ".mbarrier::complete_tx::bytes [%r2], [%in], 48, [bar];\n" WAIT
		    "mul.wide.u32 %d1, %lane, 4;\nadd.s64 %d1, %in, %d1;\n"
		    "mad.lo.u32 %r4, %lane, 4, %r2;\n"
		    "cp.async.ca.shared.global [%r4+64], [%d1], 4;\n"
		    "cp.async.wait_all;\n";
	static const uint8_t in[256];

	for (uint32_t threads = 1; threads < 4; threads++) {
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .grid = CTAS,
				      .shared_bytes = 1024,
				      .threads = threads,
				      .traffic = &counted};

		memset(&counted, 0, sizeof(counted));
		emu_must_run(body, &job);
		assert_int_equal(counted.bytes[EMU_TRAFFIC_BULK], CTAS * 48);
		assert_int_equal(counted.bytes[EMU_TRAFFIC_CP_ASYNC], CTAS * 128);
		assert_int_equal(counted.bytes[EMU_TRAFFIC_LOAD], 0);
		assert_int_equal(loaded_of(sizeof(in)), CTAS * (48 + 128));
	}
}

static struct emu_tensor_map map;

static void put_map(uint64_t address, uint8_t *at)
{
	struct emu_error err = {""};

	map.address = address + MAP_BYTES;
	if (!emu_tensor_map_check(&map, &err))
		fail_msg("%s", err.text);
	emu_tensor_map_encode(&map, at);
}

/* 20 of a box's 32 elements exist; they count once for a pair of CTAs. */
static void test_of_tensor_maps(void **state)
{
	static const char *const bodies[] = {
	    BARRIER "@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 32;\n"
		    "@!%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile"
		    ".mbarrier::complete_tx::bytes [%r2], [%in, {0}], [bar];\n" WAIT,
	    BARRIER "@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 32;\n"
		    "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
		    "mov.u32 %r5, %cluster_ctarank;\nsetp.ne.u32 %p4, %r5, 0;\n"
		    "or.pred %p3, %p1, %p4;\nmov.u16 %h1, 3;\n"
		    "@!%p3 cp.async.bulk.tensor.1d.shared::cluster.global.tile"
		    ".mbarrier::complete_tx::bytes.multicast::cluster"
		    " [%r2], [%in, {0}], [bar], %h1;\n" WAIT
		    "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
	};
	static uint8_t in[MAP_BYTES + 32];

	map = (struct emu_tensor_map){
	    .type = EMU_TENSOR_U8,
	    .rank = 1,
	    .sizes = {20},
	    .box = {32},
	    .element_strides = {1},
	};
	for (uint32_t i = 0; i < 2 * SEEDS; i++) {
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .grid = 1 + i % 2,
				      .cluster = 1 + i % 2,
				      .shared_bytes = 1024,
				      .prepare = put_map,
				      .seed = i / 2,
				      .traffic = &counted};

		memset(&counted, 0, sizeof(counted));
		emu_must_run(bodies[i % 2], &job);
		assert_int_equal(counted.bytes[EMU_TRAFFIC_TENSOR], 20);
		assert_int_equal(loaded_of(sizeof(in)), 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_of_threads),
	    cmocka_unit_test(test_of_other_spaces),
	    cmocka_unit_test(test_of_bulk_copies),
	    cmocka_unit_test(test_of_tensor_maps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
