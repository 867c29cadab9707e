/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tensor_edges.c - the behaviour of an H200 at the edges of tensors and for TF32
 * elements (probes/tensor_h200.txt), in PTX.
 */
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/tensor_map.h"

#define MAP_BYTES 128 /* in front of the tensor */

static struct emu_tensor_map map; /* its address is set by prepare */
static uint8_t in[MAP_BYTES + 256];

static void put_map(uint64_t address, uint8_t *at)
{
	struct emu_error err = {""};

	map.address = address + MAP_BYTES;
	if (!emu_tensor_map_check(&map, &err))
		fail_msg("%s", err.text);
	emu_tensor_map_encode(&map, at);
}

/* One row of elements, a box of 32 bytes. */
static struct emu_job job_of(int type, uint64_t elements, uint32_t box, size_t bytes)
{
	map = (struct emu_tensor_map){
	    .type = type,
	    .rank = 1,
	    .sizes = {elements},
	    .box = {box},
	    .element_strides = {1},
	};
	return (struct emu_job){.in = in,
				.in_bytes = MAP_BYTES + bytes,
				.shared_bytes = 1024,
				.prepare = put_map};
}

/* The box at %r1 to shared memory. */
#define LOAD_BYTES(bytes)                                                              \
	".shared .align 8 .b8 bar[8];\nmov.u32 %r2, dynamic;\n"                        \
	"setp.ne.u32 %p1, %tid, 0;\nmov.u32 %r3, 1;\n"                                 \
	"@!%p1 mbarrier.init.shared::cta.b64 [bar], %r3;\n"                            \
	"@!%p1 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"                    \
	"@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], " bytes ";\n"       \
	"@!%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile"                    \
	".mbarrier::complete_tx::bytes [%r2], [%in, {%r1}], [bar];\n"                  \
	"L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n"                 \
	"@!%p2 bra L;\n"
#define LOAD LOAD_BYTES("32")

/* 32 bytes with 3 * tid + 1, to the box at %r1; then the tensor's bytes, to out. */
#define STORE                                                                          \
	"mov.u32 %r2, dynamic;\nadd.u32 %r3, %r2, %tid;\n"                             \
	"mad.lo.u32 %r4, %tid, 3, 1;\nst.shared.u8 [%r3], %r4;\n"                      \
	"fence.proxy.async.shared::cta;\nbar.sync 0;\n"                                \
	"setp.ne.u32 %p1, %tid, 0;\n"                                                  \
	"@!%p1 cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group "            \
	"[%in, {%r1}], [%r2];\n"                                                       \
	"@!%p1 cp.async.bulk.commit_group;\n"                                          \
	"@!%p1 cp.async.bulk.wait_group 0;\nbar.sync 0;\n"                             \
	"cvt.u64.u32 %d1, %tid;\nadd.s64 %d2, %in, %d1;\n"                             \
	"add.s64 %d3, %out, %d1;\nld.global.u8 %r5, [%d2 + 128];\n"                    \
	"st.global.u8 [%d3], %r5;\n"

static void tf32_is_rounded_on_its_way_in(void **state)
{
	static const uint32_t elements[8] = {0x3F801000, 0x3F803000, 0x00003000,
					     0xFFC00001, 0x7F7FFFFF, 0x12345678,
					     0xBF8017FF, 0xAAAAAAAA};
	static const uint32_t rounded[8] = {0x3F800000, 0x3F804000, 0x00004000,
					    0x7FFFE000, 0x7F800000, 0x12346000,
					    0xBF802000, 0};

	for (uint64_t seed = 0; seed < 10; seed++) {
		uint32_t out[8];
		struct emu_job job =
		    job_of(EMU_TENSOR_TF32 + (int)(seed & 1), 7, 8, 32);

		memcpy(in + MAP_BYTES, elements, sizeof(elements));
		job.seed = seed;
		job.out = out;
		job.out_bytes = sizeof(out);
		emu_must_run("mov.u32 %r1, 0;\n" LOAD "mad.lo.u32 %r5, %tid, 4, %r2;\n"
			     "mul.wide.u32 %d1, %tid, 4;\n"
			     "add.s64 %d1, %d1, %out;\n"
			     "setp.gt.u32 %p3, %tid, 7;\n"
			     "@!%p3 ld.shared.u32 %r6, [%r5];\n"
			     "@!%p3 st.global.u32 [%d1], %r6;\n",
			     &job);
		assert_memory_equal(out, rounded, sizeof(rounded));
	}
}

/* 128 elements of 4 bits: 8 bytes of each 16, which are counted, and 8 of
 * padding, which are not. */
static void packed_elements_are_spread(void **state)
{
	for (int i = 0; i < 64; i++)
		in[MAP_BYTES + i] = (uint8_t)(7 * i + 1);
	for (uint64_t seed = 0; seed < 10; seed++) {
		uint8_t out[128];
		struct emu_job job = job_of(EMU_TENSOR_16U4_ALIGN16B, 128, 128, 64);

		job.target = "sm_100a";
		job.seed = seed;
		job.out = out;
		job.out_bytes = sizeof(out);
		emu_must_run("mov.u32 %r1, 0;\n" LOAD_BYTES(
				 "64") "mad.lo.u32 %r5, %tid, 4, %r2;\n"
				       "mul.wide.u32 %d1, %tid, 4;\n"
				       "add.s64 %d1, %d1, %out;\n"
				       "ld.shared.u32 %r6, [%r5];\n"
				       "st.global.u32 [%d1], %r6;\n",
			     &job);
		for (int i = 0; i < 128; i++)
			assert_int_equal(
			    out[i],
			    i % 16 < 8 ? in[MAP_BYTES + i / 16 * 8 + i % 16] : 0);
	}
}

/* 20 bytes of 64 are the tensor's: the store writes 32 of the box's 32. */
static void stores_write_whole_16_bytes(void **state)
{
	memset(in, 0xEE, sizeof(in));
	for (uint64_t seed = 0; seed < 10; seed++) {
		struct emu_job job = job_of(EMU_TENSOR_U8, 20, 32, 64);
		uint8_t out[32];

		job.seed = seed;
		job.out = out;
		job.out_bytes = sizeof(out);
		emu_must_run("mov.u32 %r1, 0;\n" STORE, &job);
		for (int i = 0; i < 32; i++)
			assert_int_equal(out[i], 3 * i + 1);
		emu_must_run("mov.u32 %r1, 16;\n" STORE, &job);
		for (int i = 0; i < 32; i++)
			assert_int_equal(out[i], i < 16 ? 0xEE : 3 * (i - 16) + 1);
		emu_must_run("mov.u32 %r1, 32;\n" STORE, &job);
		for (int i = 0; i < 32; i++)
			assert_int_equal(out[i], 0xEE);
	}
}

static void stores_past_the_memory_are_reported(void **state)
{
	struct emu_job job = job_of(EMU_TENSOR_U8, 20, 32, 20);
	uint8_t out[32];

	job.out = out;
	job.out_bytes = sizeof(out);
	emu_must_fail("mov.u32 %r1, 0;\n" STORE, &job, "the tensor's last row ends at",
		      "a store writes whole 16 bytes, 12 more", NULL);
}

static void boxes_that_the_gpu_refuses_are_reported(void **state)
{
	struct emu_job job = job_of(EMU_TENSOR_U8, 64, 32, 64);
	uint8_t out[32];

	job.out = out;
	job.out_bytes = sizeof(out);
	emu_must_fail("mov.u32 %r1, -16;\n" STORE, &job, "coordinates {-16}",
		      "stored may not begin at a negative coordinate", NULL);
	emu_must_fail("mov.u32 %r1, 8;\n" STORE, &job, "coordinates {8}",
		      "multiple of 16 bytes", NULL);
	emu_must_fail("mov.u32 %r1, 8;\n" LOAD, &job, "coordinates {8}",
		      "multiple of 16 bytes", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tf32_is_rounded_on_its_way_in),
	    cmocka_unit_test(packed_elements_are_spread),
	    cmocka_unit_test(stores_write_whole_16_bytes),
	    cmocka_unit_test(stores_past_the_memory_are_reported),
	    cmocka_unit_test(boxes_that_the_gpu_refuses_are_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
