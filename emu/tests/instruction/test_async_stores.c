/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_async_stores.c - st.async and red.async: values that land in the shared memory
 * of another CTA, whose mbarrier counts their bytes.
 */
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define SEEDS 12

/*
 * Two CTAs of a warp: %r1 is the rank, %r5 the other one's data, %r6 its
 * mbarrier, which expects this many bytes; %r8 this lane's 16 bytes of the data.
 */
#define BEGIN(bytes)                                                                   \
	".shared .align 16 .b8 data[1024]; .shared .align 8 .b64 bar;\n"               \
	"mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %lane, 0;\n"                  \
	"setp.eq.u32 %p4, %r1, 0; selp.b32 %r30, 256, 0, %p4;\n"                       \
	"xor.b32 %r2, %r1, 1; mov.u32 %r3, data; mov.u32 %r4, bar;\n"                  \
	"mapa.shared::cluster.u32 %r5, %r3, %r2;\n"                                    \
	"mapa.shared::cluster.u32 %r6, %r4, %r2;\n"                                    \
	"shl.b32 %r7, %lane, 4; add.u32 %r5, %r5, %r7;\n"                              \
	"add.u32 %r8, %r3, %r7; mov.u32 %r9, 0;\n"                                     \
	"st.shared.v4.u32 [%r8], {%r9, %r9, %r9, %r9};\n"                              \
	"@%p1 mbarrier.init.shared::cta.b64 [bar], 1;\n"                               \
	"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], " bytes              \
	";\nfence.mbarrier_init.release.cluster;\n" MEET
#define MEET                                                                           \
	"barrier.cluster.arrive.release.aligned;\n"                                    \
	"barrier.cluster.wait.acquire.aligned;\n"
/* Values of this lane and CTA, from 1000 x rank + 8 x lane on. */
#define VALUES                                                                         \
	"mul.lo.u32 %r10, %r1, 1000; shl.b32 %r11, %lane, 3;\n"                        \
	"add.u32 %r10, %r10, %r11; add.u32 %r11, %r10, 1;\n"                           \
	"add.u32 %r12, %r10, 2; add.u32 %r13, %r10, 3;\n"                              \
	"mov.b64 %d1, {%r10, %r11}; mov.b64 %d2, {%r12, %r13};\n"
#define SEND "st.async.shared::cluster.mbarrier::complete_tx::bytes."
#define REDUCE                                                                         \
	"red.async.relaxed.cluster.shared::cluster"                                    \
	".mbarrier::complete_tx::bytes."
#define WAIT                                                                           \
	"W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, "            \
	"[bar], 0;\n@!%p2 bra W;\n"
/* out: 16 bytes a thread of the grid. */
#define STORE                                                                          \
	"ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r8];\n"                          \
	"shl.b32 %r24, %r1, 9; add.u32 %r24, %r24, %r7;\n"                             \
	"cvt.u64.u32 %d9, %r24; add.u64 %d9, %d9, %out;\n"                             \
	"st.global.v4.u32 [%d9], {%r20, %r21, %r22, %r23};\n"

static uint32_t out[256];

static struct emu_job job_of(uint64_t seed)
{
	memset(out, 0, sizeof(out));
	return (struct emu_job){.out = out,
				.out_bytes = sizeof(out),
				.grid = 2,
				.cluster = 2,
				.seed = seed};
}

/* Each CTA has the first n values of the other. */
static void expect_values(const char *body, uint32_t n)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = job_of(seed);

		emu_must_run(body, &job);
		for (uint32_t k = 0; k < 256; k++) {
			const uint32_t rank = k / 128, lane = k / 4 % 32;
			const uint32_t value = 1000 * (1 - rank) + 8 * lane + k % 4;

			assert_int_equal(out[k], k % 4 < n ? value : 0);
		}
	}
}

static void test_stores(void **state)
{
	expect_values(
	    BEGIN("128") VALUES SEND "u32 [%r5], %r10, [%r6];\n" WAIT STORE MEET, 1);
	expect_values(
	    BEGIN("256") VALUES SEND "b64 [%r5], %d1, [%r6];\n" WAIT STORE MEET, 2);
	expect_values(BEGIN("256") VALUES SEND
		      "v2.s32 [%r5], {%r10, %r11}, [%r6];\n" WAIT STORE MEET,
		      2);
	expect_values(
	    BEGIN("512") VALUES SEND
	    "v4.b32 [%r5], {%r10, %r11, %r12, %r13}, [%r6];\n" WAIT STORE MEET,
	    4);
	expect_values(BEGIN("512") VALUES SEND
		      "v2.u64 [%r5], {%d1, %d2}, [%r6];\n" WAIT STORE MEET,
		      4);
}

/* All lanes of both CTAs to the first word of rank 0. */
#define TO_FIRST                                                                       \
	"mov.u32 %r14, 0; mapa.shared::cluster.u32 %r5, %r3, %r14;\n"                  \
	"mapa.shared::cluster.u32 %r6, %r4, %r14;\n"

static void test_reductions(void **state)
{
	static const struct {
		const char *form;
		uint32_t first; /* the word afterwards */
	} cases[] = {
	    /* 32 x 1000 + 2 x 8 x (0 + ... + 31) */
	    {"add.u32 [%r5], %r10, [%r6];\n", 39936},
	    {"max.s32 [%r5], %r10, [%r6];\n", 1248},
	    {"or.b32 [%r5], %r10, [%r6];\n", 0x7F8},
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++)
		for (uint64_t seed = 0; seed < SEEDS; seed++) {
			char text[8192] = BEGIN("%r30") VALUES TO_FIRST REDUCE;
			struct emu_job job = job_of(seed);

			strcat(text, cases[c].form);
			/* Only rank 0 is waited for. */
			strcat(text, "setp.ne.u32 %p3, %r1, 0;\n"
				     "@%p3 bra LEFT;\n" WAIT "LEFT:\n" STORE MEET);
			emu_must_run(text, &job);
			assert_int_equal(out[0], cases[c].first);
			assert_int_equal(out[1], 0);
		}
}

static void test_rules(void **state)
{
	struct emu_job job;

	/* No warp waits for the bytes. */
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		job = job_of(seed);
		emu_must_fail(BEGIN("128") VALUES SEND
			      "u32 [%r5], %r10, [%r6];\n" STORE MEET,
			      &job, "nothing orders that before this", NULL);
	}
	/* The bytes are counted where they land. */
	job = job_of(0);
	emu_must_fail(BEGIN("128") VALUES SEND "u32 [%r5], %r10, [%r4];\n" MEET, &job,
		      "different CTAs", NULL);
	/* Four bytes at an odd address. */
	job = job_of(0);
	emu_must_fail(BEGIN("128") VALUES SEND "u32 [%r5+2], %r10, [%r6];\n" MEET, &job,
		      "misaligned", NULL);
	/* The owner's own store and the one that arrives are not ordered. */
	job = job_of(0);
	emu_must_fail(BEGIN("128") VALUES "@%p1 st.shared.u32 [data], %r9;\n"
					  "bar.warp.sync -1;\n" SEND
					  "u32 [%r5], %r10, [%r6];\n" WAIT STORE MEET,
		      &job, "this warp has not waited", NULL);
}

static void test_forms(void **state)
{
	struct emu_job job = job_of(0);

	emu_must_fail(BEGIN("0") "red.async.relaxed.cluster.shared::cluster"
				 ".mbarrier::complete_tx::bytes.min.u64 "
				 "[%r5], %d1, [%r6];\n",
		      &job, ".u64 has only .add", NULL);
	emu_must_fail(BEGIN("0") SEND "v4.b64 [%r5], {%d1, %d2, %d3, %d4}, "
				      "[%r6];\n",
		      &job, "more than 16 bytes", NULL);
	emu_must_fail(BEGIN("0") SEND "v2.b32 [%r5], {%r1}, [%r6];\n", &job,
		      "1 registers for 2 values", NULL);
	emu_must_fail(BEGIN("0") "st.async.shared::cluster.u32 [%r5], %r1, "
				 "[%r6];\n",
		      &job, "mbarrier::complete_tx::bytes", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_stores),
	    cmocka_unit_test(test_reductions),
	    cmocka_unit_test(test_rules),
	    cmocka_unit_test(test_forms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
