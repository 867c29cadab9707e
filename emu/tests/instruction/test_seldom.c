/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_seldom.c - instructions that only some kernels use: carries, mixed precision,
 * comparisons of halves, set, masks, atomics of halves and vectors, and the states
 * of mbarriers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/run.h"
#include "common/unit.h"

#define LANES 32
#define ROWS                                                                           \
	"mad.wide.u32 %d40, %tid, 32, %in;\nmad.wide.u32 %d41, %tid, 32, "             \
	"%out;\n"

__extension__ typedef unsigned __int128 u128;

/* Both are arrays of 32 bytes a lane. */
#define RUN(body, from, to)                                                            \
	emu_must_run(ROWS body, &(struct emu_job){.in = (from),                        \
						  .in_bytes = sizeof(from),            \
						  .out = (to),                         \
						  .out_bytes = sizeof(to)})

/* Half of the words are all ones or zero, so that carries propagate. */
static void any_words(uint64_t in[LANES][4])
{
	for (int l = 0; l < LANES; l++)
		for (int k = 0; k < 4; k++) {
			const uint64_t x = emu_test_random_64();

			in[l][k] = x % 4 == 0	? UINT64_MAX
				   : x % 4 == 1 ? 0
						: emu_test_random_64();
		}
}

#define COPY(groups)                                                                   \
	"mad.wide.u32 %d1, %tid, 16, %in; mov.u32 %r1, dynamic;\n"                     \
	"mad.lo.u32 %r2, %tid, 16, %r1;\n"                                             \
	"cp.async.cg.shared.global [%r2], [%d1], 16;\n"                                \
	"cp.async.commit_group; cp.async.wait_group " groups ";\n"                     \
	"ld.shared.u32 %r3, [%r2]; mad.wide.u32 %d2, %tid, 4, %out;\n"                 \
	"st.global.u32 [%d2], %r3;\n"

/* A larger or a negative number is a wait for all but 63 groups. */
static void test_groups(void **state)
{
	static const char *const most[] = {COPY("63"), COPY("64"), COPY("-8")};
	uint32_t in[LANES][4], out[LANES];
	struct emu_job job = {.in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .shared_bytes = sizeof(in)};

	for (int l = 0; l < LANES; l++)
		in[l][0] = (uint32_t)l + 7;
	emu_must_run(COPY("0"), &job);
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], in[l][0]);
	for (size_t k = 0; k < 3; k++)
		emu_must_fail(most[k], &job, "load of shared memory",
			      "has not waited for its group", NULL);
}

static void test_carry(void **state)
{
	for (int round = 0; round < 20; round++) {
		uint64_t in[LANES][4], out[LANES][4];

		any_words(in);
		RUN("ld.global.v2.b64 {%d1, %d2}, [%d40];\n"
		    "ld.global.v2.b64 {%d3, %d4}, [%d40+16];\n"
		    "add.cc.u64 %d5, %d1, %d3; addc.u64 %d6, %d2, %d4;\n"
		    "sub.cc.u64 %d7, %d1, %d3; subc.u64 %d8, %d2, %d4;\n"
		    "st.global.v2.b64 [%d41], {%d5, %d6};\n"
		    "st.global.v2.b64 [%d41+16], {%d7, %d8};\n",
		    in, out);
		for (int l = 0; l < LANES; l++) {
			const u128 a = (u128)in[l][1] << 64 | in[l][0];
			const u128 b = (u128)in[l][3] << 64 | in[l][2];

			assert_true(out[l][0] == (uint64_t)(a + b));
			assert_true(out[l][1] == (uint64_t)((a + b) >> 64));
			assert_true(out[l][2] == (uint64_t)(a - b));
			assert_true(out[l][3] == (uint64_t)((a - b) >> 64));
		}
	}
}

/* A product of 64 bits from products of 32. */
static void test_products(void **state)
{
	uint64_t in[LANES][4], out[LANES][4];

	any_words(in);
	RUN("ld.global.v2.b64 {%d1, %d2}, [%d40];\n"
	    "mov.b64 {%r1, %r2}, %d1; mov.b64 {%r3, %r4}, %d2;\n"
	    "mul.lo.u32 %r5, %r1, %r3; mul.hi.u32 %r6, %r1, %r3;\n"
	    "mad.lo.cc.u32 %r6, %r1, %r4, %r6; madc.hi.u32 %r7, %r1, %r4, 0;\n"
	    "mad.lo.cc.u32 %r6, %r2, %r3, %r6;\n"
	    "madc.hi.cc.u32 %r7, %r2, %r3, %r7; addc.u32 %r8, 0, 0;\n"
	    "mad.lo.cc.u32 %r7, %r2, %r4, %r7;\n"
	    "madc.hi.u32 %r8, %r2, %r4, %r8;\n"
	    "st.global.v4.b32 [%d41], {%r5, %r6, %r7, %r8};\n"
	    "st.global.v2.b64 [%d41+16], {%d1, %d2};\n",
	    in, out);
	for (int l = 0; l < LANES; l++) {
		const u128 want = (u128)in[l][0] * in[l][1];

		assert_true(out[l][0] == (uint64_t)want);
		assert_true(out[l][1] == (uint64_t)(want >> 64));
	}
}

static void test_bits(void **state)
{
	uint32_t in[LANES][8] = {{0}}, out[LANES][8];

	for (uint32_t l = 0; l < LANES; l++) {
		in[l][0] = emu_test_random() >> l;
		in[l][1] = l;
		in[l][2] = emu_test_random() % 40;
		in[l][3] = emu_test_random();
	}
	RUN("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d40];\n"
	    "bmsk.clamp.b32 %r5, %r2, %r3; bfind.shiftamt.u32 %r6, %r1;\n"
	    "szext.clamp.s32 %r7, %r4, %r3; fns.b32 %r8, %r4, %r2, 2;\n"
	    "sad.s32 %r9, %r1, %r4, %r3; slct.s32.s32 %r10, %r1, %r2, %r4;\n"
	    "mul24.lo.s32 %r11, %r1, %r4; set.lt.u32.s32 %r12, %r4, %r1;\n"
	    "st.global.v4.u32 [%d41], {%r5, %r6, %r7, %r8};\n"
	    "st.global.v4.u32 [%d41+16], {%r9, %r10, %r11, %r12};\n",
	    in, out);
	for (uint32_t l = 0; l < LANES; l++) {
		const uint32_t x = in[l][0], n = in[l][2], y = in[l][3];
		const int64_t sx = (int32_t)x, sy = (int32_t)y;
		uint32_t mask = 0, left = x, shift = 0, place = UINT32_MAX;
		int64_t field = 0;
		int seen = 0;

		for (uint32_t b = l; b < 32 && b < l + n; b++)
			mask |= 1u << b;
		for (; left && !(left >> 31); left <<= 1)
			shift++;
		for (uint32_t b = 0; b < n && b < 32; b++)
			field |= (int64_t)(y >> b & 1) << b;
		if (n && field >> ((n < 32 ? n : 32) - 1) & 1)
			field -= INT64_C(1) << (n < 32 ? n : 32);
		for (uint32_t b = l; b < 32 && place == UINT32_MAX; b++)
			if (y >> b & 1 && ++seen == 2)
				place = b;
		assert_int_equal(out[l][0], mask);
		assert_int_equal(out[l][1], x ? shift : UINT32_MAX);
		assert_int_equal(out[l][2], (uint32_t)field);
		assert_int_equal(out[l][3], place);
		assert_int_equal(out[l][4], (uint32_t)(llabs(sx - sy) + (int64_t)n));
		assert_int_equal(out[l][5], sy >= 0 ? x : l);
		assert_int_equal(out[l][6],
				 (uint32_t)(((int32_t)(x << 8) >> 8) *
					    (int64_t)((int32_t)(y << 8) >> 8)));
		assert_int_equal(out[l][7], sy < sx ? UINT32_MAX : 0);
	}
}

/* Small bf16 numbers, whose sums and products are exact. */
static void test_halves(void **state)
{
	uint32_t in[LANES][8] = {{0}}, out[LANES][8];

	for (int l = 0; l < LANES; l++)
		for (int k = 0; k < 3; k++)
			in[l][k] =
			    bits_of_float((float)(int)(emu_test_random() % 9) - 4);
	RUN("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d40];\n"
	    "mov.b32 {%h9, %h1}, %r1; mov.b32 {%h9, %h2}, %r2;\n"
	    "mov.b32 %f3, %r3; add.rn.f32.bf16 %f4, %h1, %f3;\n"
	    "fma.rn.f32.bf16 %f5, %h1, %h2, %f3;\n"
	    "setp.lt.bf16 %p1, %h1, %h2; selp.u32 %r5, 1, 0, %p1;\n"
	    "mov.b32 %r6, {%h1, %h2}; mov.b32 %r7, {%h2, %h1};\n"
	    "setp.gt.bf16x2 %p2|%p3, %r6, %r7;\n"
	    "selp.u32 %r8, 1, 0, %p2; selp.u32 %r9, 1, 0, %p3;\n"
	    "set.ge.bf16x2.bf16x2 %r10, %r6, %r7;\n"
	    "st.global.v2.f32 [%d41], {%f4, %f5};\n"
	    "st.global.v2.u32 [%d41+8], {%r5, %r8};\n"
	    "st.global.v4.u32 [%d41+16], {%r9, %r10, %r9, %r9};\n",
	    in, out);
	for (int l = 0; l < LANES; l++) {
		const float x = float_of_bits(in[l][0]);
		const float y = float_of_bits(in[l][1]);
		const float z = float_of_bits(in[l][2]);

		assert_int_equal(out[l][0], bits_of_float(x + z));
		assert_int_equal(out[l][1], bits_of_float(x * y + z));
		assert_int_equal(out[l][2], x < y);
		assert_int_equal(out[l][3], x > y);
		assert_int_equal(out[l][4], y > x);
		assert_int_equal(out[l][5],
				 (x >= y ? 0x3F80 : 0) | (y >= x ? 0x3F80 << 16 : 0));
	}
}

/* All lanes add to one address: 32 times {1, 2}, 1.0 and -2.0, and the largest. */
static void test_atomics(void **state)
{
	const uint32_t in[8] = {0};
	uint32_t out[8] = {0};

	emu_must_run("atom.global.add.v2.f32 {%f1, %f2}, [%out], {0f3F800000, "
		     "0f40000000};\n"
		     "mov.u32 %r1, 0xC0003C00; red.global.add.noftz.f16x2 [%out+8], "
		     "%r1;\n"
		     "cvt.rn.f32.u32 %f3, %lane; cvt.rn.bf16.f32 %h1, %f3;\n"
		     "mov.u16 %h2, 0; mov.b32 %r2, {%h1, %h2};\n"
		     "atom.global.max.noftz.bf16x2 %r3, [%out+12], %r2;\n"
		     "cvt.u16.u32 %h3, %lane; add.u16 %h4, %h3, 1;\n"
		     "atom.global.cas.b16 %h5, [%out+16], %h3, %h4;\n",
		     &(struct emu_job){.in = in,
				       .in_bytes = sizeof(in),
				       .out = out,
				       .out_bytes = sizeof(out),
				       .keeps_out = true});
	assert_int_equal(out[0], bits_of_float(32));
	assert_int_equal(out[1], bits_of_float(64));
	assert_int_equal(out[2], 0xD4005000);
	assert_int_equal(out[3], bits_of_float(31) >> 16);
	assert_int_equal(out[4], 32);
}

/* Lane 0 arrives last; each lane waits for the phase of its own arrival. */
static void test_states(void **state)
{
	uint32_t out[8];

	emu_must_run("mov.u32 %r1, dynamic; setp.eq.u32 %p1, %lane, 0;\n"
		     "@%p1 mbarrier.init.shared::cta.b64 [%r1], 32;\n"
		     "bar.warp.sync -1; mov.u32 %r9, 0;\n"
		     "AGAIN: mbarrier.arrive.shared::cta.b64 %d1, [%r1];\n"
		     "WAIT: mbarrier.try_wait.shared::cta.b64 %p2, [%r1], %d1;\n"
		     "@!%p2 bra WAIT;\nadd.u32 %r9, %r9, 1;\n"
		     "setp.lt.u32 %p3, %r9, 3; @%p3 bra AGAIN;\n"
		     "@%p1 st.global.u32 [%out], %r9;\n",
		     &(struct emu_job){
			 .out = out, .out_bytes = sizeof(out), .shared_bytes = 64});
	assert_int_equal(out[0], 3);
	emu_must_fail(
	    "mov.u32 %r1, dynamic; setp.eq.u32 %p1, %lane, 0;\n"
	    "@%p1 mbarrier.init.shared::cta.b64 [%r1], 33;\n"
	    "bar.warp.sync -1;\n"
	    "mbarrier.arrive.shared::cta.b64 %d1, [%r1];\n"
	    "WAIT: mbarrier.try_wait.shared::cta.b64 %p2, [%r1], "
	    "%d1;\n@!%p2 bra WAIT;\n",
	    &(struct emu_job){.out = out, .out_bytes = sizeof(out), .shared_bytes = 64},
	    "1 of 33 arrivals", NULL);
}

/*
 * Rows of 16 packed elements: lane t has four of row t / 4 of each matrix, a
 * byte each; nothing has written the padding.
 */
#define PACKED(form, third)                                                            \
	"ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d40];\nmov .u32 %r5, "               \
	"dynamic; mad.lo.u32 %r5, %lane, 16, %r5;\n"                                   \
	"st.shared.v2.b32 [%r5], {%r1, %r2};\n" third "bar.warp.sync -1;\n"            \
	"ldmatrix.sync.aligned.m8n16.x4.shared." form " {%r6, %r7, %r8, "              \
	"%r9}, [%r5];\nst.global.v4.b32 [%d41], {%r6, %r7, %r8, %r9};\n"
#define SIX PACKED("b8x16.b6x16_p32", "st.shared.b32 [%r5+8], %r3;\n")

static void test_packed_matrices(void **state)
{
	uint8_t in[LANES][32], out[LANES][32];

	for (int bits = 4; bits <= 6; bits += 2) {
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .out = out,
				      .out_bytes = sizeof(out),
				      .shared_bytes = 512};

		for (int l = 0; l < LANES; l++)
			for (int k = 0; k < 32; k++)
				in[l][k] = (uint8_t)emu_test_random();
		emu_must_run(bits == 6 ? ROWS SIX : ROWS PACKED("b8x16.b4x16_p64", ""),
			     &job);
		for (int k = 0; k < LANES * 16; k++) {
			const int l = k / 16, m = k / 4 % 4;
			const int row = 8 * m + l / 4;
			const int first = bits * (4 * (l % 4) + k % 4);
			int want = 0;

			for (int b = first; b < first + bits; b++)
				want |= (in[row][b / 8] >> b % 8 & 1) << (b - first);
			assert_int_equal(out[l][k % 16], want);
		}
	}
	emu_must_fail(ROWS PACKED("b8x16.b6x16_p32", ""),
		      &(struct emu_job){.in = in,
					.in_bytes = sizeof(in),
					.out = out,
					.out_bytes = sizeof(out),
					.shared_bytes = 512},
		      "never written", NULL);
}

/* The rows' addresses may be generic, and are then in the window of shared memory. */
#define GENERIC(base)                                                                  \
	"ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d40];\nmov.u32 %r5, dynamic;\n"      \
	"mad.lo.u32 %r5, %lane, 16, %r5; st.shared.v2.b32 [%r5], {%r1, %r2};\n"        \
	"st.shared.v2.b32 [%r5+8], {%r3, %r4}; bar.warp.sync -1;\n" base               \
	"ldmatrix.sync.aligned.m8n8.x4.b16 {%r6, %r7, %r8, %r9}, [%d1];\n"             \
	"stmatrix.sync.aligned.m8n8.x4.b16 [%d1], {%r6, %r7, %r8, %r9};\n"             \
	"bar.warp.sync -1; ld.shared.v4.b32 {%r6, %r7, %r8, %r9}, [%r5];\n"            \
	"st.global.v4.b32 [%d41], {%r6, %r7, %r8, %r9};\n"

static void test_generic_matrices(void **state)
{
	uint8_t in[LANES][32], out[LANES][32];
	struct emu_job job = {.in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .shared_bytes = 512};

	for (int l = 0; l < LANES; l++)
		for (int k = 0; k < 32; k++)
			in[l][k] = (uint8_t)emu_test_random();
	emu_must_run(ROWS GENERIC("cvt.u64.u32 %d1, %r5; cvta.shared.u64 %d1, %d1;\n"),
		     &job);
	for (int l = 0; l < LANES; l++)
		assert_memory_equal(out[l], in[l], 16);
	emu_must_fail(ROWS GENERIC("cvt.u64.u32 %d1, %r5;\n"), &job,
		      "is not in shared memory", NULL);
}

/* variable[n] is the address of an element. */
static void test_elements(void **state)
{
	uint32_t out[LANES];

	emu_must_run(
	    ".shared .align 4 .b32 words[40]; .shared .align 4 .b8 bytes[64];\n"
	    "mov.u32 %r1, words[3]; mov.u32 %r2, words;\n"
	    "mov.u32 %r3, bytes[8]; mov.u32 %r4, bytes;\n"
	    "sub.u32 %r1, %r1, %r2; sub.u32 %r3, %r3, %r4;\n"
	    "st.shared.u32 [words[4]+4], 77; bar.warp.sync -1;\n"
	    "ld.shared.u32 %r5, [%r2+20];\n"
	    "mad.lo.u32 %r1, %r1, 100, %r3; mad.lo.u32 %r1, %r5, 10000, %r1;\n"
	    "mad.wide.u32 %d3, %lane, 4, %out; st.global.u32 [%d3], %r1;\n",
	    &(struct emu_job){.out = out, .out_bytes = sizeof(out)});
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], 771208);
}

/* Two lanes clear 64 bytes each, and all lanes read bytes without another store. */
static void test_cleared(void **state)
{
#define CLEARED(bytes, value)                                                          \
	"mov.u32 %r1, dynamic; mad.lo.u32 %r2, %lane, 64, %r1;\n"                      \
	"mad.lo.u32 %r3, %lane, 4, %r1; cvt.u64.u32 %d1, %r2;\n"                       \
	"setp.lt.u32 %p1, %lane, 2; mov.u64 %d2, " bytes ";\n"                         \
	"@%p1 st.bulk.weak.shared::cta [%d1], %d2, " value ";\n"                       \
	"bar.warp.sync -1; ld.shared.u32 %r4, [%r3];\n"                                \
	"mad.wide.u32 %d3, %lane, 4, %out; st.global.u32 [%d3], %r4;\n"
	uint32_t out[LANES];
	struct emu_job job = {.out = out,
			      .out_bytes = sizeof(out),
			      .shared_bytes = 128,
			      .target = "sm_100a"};

	emu_must_run(CLEARED("64", "0"), &job);
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], 0);
	emu_must_fail(CLEARED("56", "0"), &job, "never written", NULL);
	emu_must_fail(CLEARED("60", "0"), &job, "a multiple of 8", NULL);
	emu_must_fail(CLEARED("128", "0"), &job, "these bytes are not allocated", NULL);
	emu_must_fail(CLEARED("64", "1"), &job, "its value must be 0", NULL);
}

/* Bytes that threads count: a phase of 48, which 32 lanes complete. */
#define COUNTED(bytes)                                                                 \
	"mov.u32 %r1, dynamic; setp.eq.u32 %p1, %lane, 0;\n"                           \
	"@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;\n"                               \
	"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 48;\n"               \
	"bar.warp.sync -1; shr.u32 %r2, %lane, 4; add.u32 %r2, %r2, 1;\n"              \
	"@!%p1 mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 "              \
	"[%r1], %r2;\n"                                                                \
	"@%p1 mbarrier.complete_tx.shared::cta.b64 [%r1], 0;\n"                        \
	"@%p1 mbarrier.complete_tx.shared::cta.b64 [%r1], " bytes ";\n"                \
	"WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;\n"              \
	"@!%p2 bra WAIT;\nst.global.u32 [%out], 7;\n"

static void test_bytes(void **state)
{
	uint32_t out[8];
	struct emu_job job = {.out = out, .out_bytes = sizeof(out), .shared_bytes = 64};

	emu_must_run(COUNTED("1"), &job);
	assert_int_equal(out[0], 7);
	emu_must_fail(COUNTED("0"), &job, "1 bytes to come", NULL);
}

/* An exchange gives a variable its first value, if nothing reads the old one. */
static void test_exchange(void **state)
{
	uint32_t out[LANES] = {0};
	struct emu_job job = {
	    .out = out, .out_bytes = sizeof(out), .shared_bytes = 4 * LANES};

	emu_must_run("mov.u32 %r1, dynamic; mad.lo.u32 %r1, %tid, 4, %r1;\n"
		     "atom.shared.exch.b32 %r2, [%r1], 9; ld.shared.u32 %r3, [%r1];\n"
		     "mad.wide.u32 %d1, %tid, 4, %out; st.global.u32 [%d1], %r3;\n",
		     &job);
	assert_int_equal(out[LANES - 1], 9);
	emu_must_fail("mov.u32 %r1, dynamic; mad.lo.u32 %r1, %tid, 4, %r1;\n"
		      "atom.shared.exch.b32 %r2, [%r1], 9;\n"
		      "mad.wide.u32 %d1, %tid, 4, %out; st.global.u32 [%d1], %r2;\n",
		      &job, "never written", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_carry),
	    cmocka_unit_test(test_groups),
	    cmocka_unit_test(test_exchange),
	    cmocka_unit_test(test_products),
	    cmocka_unit_test(test_bits),
	    cmocka_unit_test(test_halves),
	    cmocka_unit_test(test_atomics),
	    cmocka_unit_test(test_states),
	    cmocka_unit_test(test_cleared),
	    cmocka_unit_test(test_bytes),
	    cmocka_unit_test(test_packed_matrices),
	    cmocka_unit_test(test_elements),
	    cmocka_unit_test(test_generic_matrices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
