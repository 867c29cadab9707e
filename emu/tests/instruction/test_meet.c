/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_meet.c - instructions by which threads exchange values when they synchronise:
 * match, and barriers with a reduction.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define WARPS	4
#define THREADS (WARPS * 32)
#define SEEDS	4

/* Each thread has a word of in at %r1, and writes a word of out: %r2. */
#define BODY(text)                                                                     \
	"mul.wide.u32 %d1, %tid, 8; add.s64 %d2, %d1, %in;\n"                          \
	"ld.global.u64 %d3, [%d2]; cvt.u32.u64 %r1, %d3;\n" text                       \
	"mul.wide.u32 %d1, %tid, 4; add.s64 %d1, %d1, %out;\n"                         \
	"st.global.u32 [%d1], %r2;\n"

static uint64_t in[THREADS];
static uint32_t out[THREADS];

static void run(const char *body, uint64_t seed)
{
	emu_must_run(body, &(struct emu_job){.in = in,
					     .in_bytes = sizeof(in),
					     .out = out,
					     .out_bytes = sizeof(out),
					     .block = THREADS,
					     .seed = seed});
}

/* Few values, so that lanes share them; in odd warps all lanes have the same. */
static void choose(uint64_t base)
{
	for (uint32_t t = 0; t < THREADS; t++)
		in[t] = t / 32 % 2 ? base + t / 32 : base + emu_test_random() % 3;
}

/* Lanes of `mask` in t's warp that have t's value. */
static uint32_t like(uint32_t t, uint32_t mask)
{
	uint32_t lanes = 0;

	for (uint32_t l = 0; l < 32; l++)
		if (mask >> l & 1 && in[t / 32 * 32 + l] == in[t])
			lanes |= UINT32_C(1) << l;
	return lanes;
}

static void test_movmatrix(void **state)
{
	for (uint32_t t = 0; t < THREADS; t++)
		in[t] = emu_test_random() & UINT32_MAX;
	run(BODY("movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;\n"), 0);
	for (uint32_t t = 0; t < THREADS; t++) {
		const uint64_t *of_warp = in + t / 32 * 32;
		const uint32_t row = t % 32 / 4, half = row % 2 * 16;

		for (uint32_t j = 0; j < 2; j++) {
			/* Row `column` of the matrix, whose element is `row`. */
			const uint32_t column = t % 4 * 2 + j;
			const uint64_t pair = of_warp[4 * column + row / 2];

			assert_int_equal(out[t] >> 16 * j & 0xFFFF,
					 pair >> half & 0xFFFF);
		}
	}
}

static void test_match(void **state)
{
	choose(7);
	run(BODY("match.any.sync.b32 %r2, %r1, -1;\n"), 0);
	for (uint32_t t = 0; t < THREADS; t++)
		assert_int_equal(out[t], like(t, UINT32_MAX));
	run(BODY("match.all.sync.b32 %r2, %r1, -1;\n"), 0);
	for (uint32_t t = 0; t < THREADS; t++)
		assert_int_equal(out[t],
				 like(t, UINT32_MAX) == UINT32_MAX ? UINT32_MAX : 0);
	/* Values that differ only in their upper halves. */
	choose(0);
	for (uint32_t t = 0; t < THREADS; t++)
		in[t] = in[t] << 40 | 5;
	run(BODY("match.all.sync.b64 %r3|%p1, %d3, -1;\n"
		 "selp.u32 %r2, 1, 0, %p1;\n"),
	    0);
	for (uint32_t t = 0; t < THREADS; t++)
		assert_int_equal(out[t], like(t, UINT32_MAX) == UINT32_MAX);
	/* Half a warp, by its own mask. */
	run(BODY("setp.lt.u32 %p1, %lane, 16; mov.u32 %r2, 0;\n"
		 "@%p1 match.any.sync.b64 %r2, %d3, 65535;\n"),
	    0);
	for (uint32_t t = 0; t < THREADS; t++)
		assert_int_equal(out[t], t % 32 < 16 ? like(t, 0xFFFF) : 0);
}

/* Every thread's word is 1 or 0; only `ones` of them are 1. */
static void choose_ones(uint32_t ones)
{
	memset(in, 0, sizeof(in));
	for (uint32_t k = 0; k < ones; k++)
		in[k * 37 % THREADS] = 1;
}

static void test_barriers(void **state)
{
	static const uint32_t counts[] = {0, 1, 50, THREADS - 1, THREADS};

	for (uint64_t seed = 0; seed < SEEDS; seed++)
		for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
			const uint32_t ones = counts[k];

			choose_ones(ones);
			/* One after the other, on one barrier and on two. */
			run(BODY("setp.ne.u32 %p1, %r1, 0;\n"
				 "bar.red.popc.u32 %r3, 0, %p1;\n"
				 "bar.red.and.pred %p2, 0, %p1;\n"
				 "barrier.red.or.pred %p3, 1, 128, %p1;\n"
				 "barrier.red.popc.aligned.u32 %r4, 1, 128, "
				 "!%p1;\n"
				 "selp.u32 %r5, 1000, 0, %p2;\n"
				 "selp.u32 %r6, 2000, 0, %p3;\n"
				 "mad.lo.u32 %r2, %r4, 10000, %r3;\n"
				 "add.u32 %r2, %r2, %r5;\n"
				 "add.u32 %r2, %r2, %r6;\n"),
			    seed);
			for (uint32_t t = 0; t < THREADS; t++)
				assert_int_equal(out[t],
						 ones + (THREADS - ones) * 10000 +
						     (ones == THREADS ? 1000 : 0) +
						     (ones ? 2000 : 0));
		}
	/* Warps that have ended do not count, and two of four synchronise. */
	choose_ones(THREADS);
	run(BODY("setp.ge.u32 %p1, %warp, 2; mov.u32 %r2, 9; @%p1 bra end;\n"
		 "setp.ne.u32 %p1, %r1, 0;\n"
		 "bar.red.popc.u32 %r2, 3, 64, %p1;\nend:\n"),
	    1);
	for (uint32_t t = 0; t < THREADS; t++)
		assert_int_equal(out[t], t < 64 ? 64 : 9);
}

/* A barrier with a reduction orders memory like any other. */
static void test_order(void **state)
{
	static const char body[] =
	    BODY("mov.u32 %r3, dynamic; mad.lo.u32 %r4, %tid, 4, %r3;\n"
		 "st.shared.u32 [%r4], %tid; setp.ne.u32 %p1, %r1, 0;\n"
		 "bar.red.or.pred %p2, 0, %p1;\n"
		 "sub.u32 %r5, 127, %tid; mad.lo.u32 %r4, %r5, 4, %r3;\n"
		 "ld.shared.u32 %r2, [%r4];\n");

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		emu_must_run(body, &(struct emu_job){.in = in,
						     .in_bytes = sizeof(in),
						     .out = out,
						     .out_bytes = sizeof(out),
						     .block = THREADS,
						     .shared_bytes = 512,
						     .seed = seed});
		for (uint32_t t = 0; t < THREADS; t++)
			assert_int_equal(out[t], THREADS - 1 - t);
	}
}

static void test_refused(void **state)
{
	struct emu_job job = {.out = out, .out_bytes = sizeof(out)};

	emu_must_fail("bar.red.popc.pred %p1, 0, %p2;\n", &job,
		      "it needs .popc.u32, .and.pred or .or.pred", NULL);
	emu_must_fail("bar.red.and.u32 %r1, 0, %p2;\n", &job,
		      "it needs .popc.u32, .and.pred or .or.pred", NULL);
	emu_must_fail("match.any.sync.b32 %r1|%p1, %r2, -1;\n", &job,
		      ".any has no predicate", NULL);
	emu_must_fail("match.all.b32 %r1, %r2, -1;\n", &job,
		      "it needs .sync and .any or .all", NULL);
	/* Lanes that do not execute it. */
	emu_must_fail("setp.lt.u32 %p1, %lane, 16;\n"
		      "@%p1 match.any.sync.b32 %r2, %r1, -1;\n",
		      &job, "match: lanes ffff0000 are in the mask", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_match),    cmocka_unit_test(test_movmatrix),
	    cmocka_unit_test(test_barriers), cmocka_unit_test(test_order),
	    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
