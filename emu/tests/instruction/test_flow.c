/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_flow.c - branches, divergence, exchange between lanes, barriers of CTAs and
 * clusters, shared memory and atomics on the software GPU.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "machine/rules.h"

#define LANES 32
#define SEEDS 40

#define OUT_4                                                                          \
	"mad.wide.u32 %d41, %tid, 4, %out;\n"                                          \
	"mov.u32 %r60, %ctaid.x;\nmov.u32 %r61, %ntid.x;\n"                            \
	"mul.lo.u32 %r60, %r60, %r61;\nmad.wide.u32 %d41, %r60, 4, %d41;\n"

/* Collatz steps: every lane leaves the loop at its own time. */
static void test_loops(void **state)
{
	static const char *body =
	    OUT_4 "mov.u32 %r2, 0;\nadd.u32 %r1, %tid, 1;\n"
		  "L: setp.eq.u32 %p1, %r1, 1;\n@%p1 bra DONE;\n"
		  "and.b32 %r3, %r1, 1;\nsetp.eq.u32 %p2, %r3, 0;\n"
		  "@%p2 bra EVEN;\nmad.lo.u32 %r1, %r1, 3, 1;\nbra.uni NEXT;\n"
		  "EVEN: shr.u32 %r1, %r1, 1;\n"
		  "NEXT: add.u32 %r2, %r2, 1;\nbra.uni L;\n"
		  "DONE: st.global.u32 [%d41], %r2;\n";
	uint32_t out[96];
	struct emu_job job = {.out = out, .out_bytes = sizeof(out), .block = 96};

	emu_must_run(body, &job);
	for (uint32_t t = 0; t < 96; t++) {
		uint32_t steps = 0;

		for (uint32_t x = t + 1; x != 1; steps++)
			x = x % 2 ? 3 * x + 1 : x / 2;
		assert_int_equal(out[t], steps);
	}
}

/* A block has its own labels and registers; an inner one hides an outer one. */
static void test_scopes(void **state)
{
	static const char *body =
	    OUT_4 "mov.u32 %r1, 0;\n"
		  "{ .reg .u32 x; mov.u32 x, 5;\n"
		  "  { .reg .u32 x; mov.u32 x, 7; bra L; add.u32 x, x, 100;\n"
		  "    L: add.u32 %r1, %r1, x; }\n"
		  "  {.reg.pred p; L: setp.gt.u32 p, %r1, 20; @p bra L2;\n"
		  "    add.u32 %r1, %r1, x; bra L; L2: }\n"
		  "}\nst.global.u32 [%d41], %r1;\n";
	uint32_t out[LANES];
	struct emu_job job = {.out = out, .out_bytes = sizeof(out)};

	emu_must_run(body, &job);
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], 22);
}

/* Lanes that branched apart meet at the instruction that needs them all. */
static void test_shuffle(void **state)
{
	static const char *body =
	    OUT_4 "setp.lt.u32 %p1, %lane, 7;\nmov.u32 %r1, %lane;\n"
		  "@%p1 bra A;\nadd.u32 %r1, %r1, 100;\nbra.uni B;\n"
		  "A: mul.lo.u32 %r1, %r1, 3;\n"
		  "B: shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;\n"
		  "shfl.sync.up.b32 %r3|%p2, %r1, 2, 0, -1;\n"
		  "shfl.sync.idx.b32 %r4, %r1, 3, 0x181f, -1;\n"
		  "shfl.sync.down.b32 %r5|%p3, %r1, 1, 31, -1;\n"
		  "selp.u32 %r6, 1, 0, %p2;\nselp.u32 %r7, 2, 0, %p3;\n"
		  "xor.b32 %r2, %r2, %r3;\nxor.b32 %r2, %r2, %r4;\n"
		  "xor.b32 %r2, %r2, %r5;\nshl.b32 %r2, %r2, 2;\n"
		  "or.b32 %r2, %r2, %r6;\nor.b32 %r2, %r2, %r7;\n"
		  "st.global.u32 [%d41], %r2;\n";
	uint32_t out[LANES], v[LANES];
	struct emu_job job = {.out = out, .out_bytes = sizeof(out)};

	emu_must_run(body, &job);
	for (uint32_t l = 0; l < LANES; l++)
		v[l] = l < 7 ? 3 * l : l + 100;
	for (uint32_t l = 0; l < LANES; l++) {
		const uint32_t up = l >= 2 ? v[l - 2] : v[l];
		const uint32_t down = l < 31 ? v[l + 1] : v[l];
		const uint32_t all = v[l ^ 5] ^ up ^ v[l / 8 * 8 + 3] ^ down;

		assert_int_equal(out[l],
				 all << 2 | (l >= 2 ? 1u : 0u) | (l < 31 ? 2u : 0u));
	}
}

static void test_votes(void **state)
{
	static const char *body = OUT_4 "setp.gt.u32 %p1, %lane, 4;\n"
					"vote.sync.ballot.b32 %r1, %p1, -1;\n"
					"vote.sync.any.pred %p2, %p1, -1;\n"
					"vote.sync.all.pred %p3, %p1, -1;\n"
					"redux.sync.max.u32 %r2, %lane, -1;\n"
					"redux.sync.add.s32 %r3, %lane, -1;\n"
					"elect.sync %r4|%p4, 0xfffffff0;\n";
	static const char *rest = "selp.u32 %r5, 1, 0, %p2;\nselp.u32 %r6, 2, 0, %p3;\n"
				  "add.u32 %r1, %r1, %r2;\nadd.u32 %r1, %r1, %r3;\n"
				  "add.u32 %r1, %r1, %r5;\nadd.u32 %r1, %r1, %r6;\n"
				  "st.global.u32 [%d41], %r1;\n";
	char text[2048];
	uint32_t out[LANES];
	struct emu_job job = {.out = out, .out_bytes = sizeof(out)};

	snprintf(text, sizeof(text), "%.*s%s", (int)(strstr(body, "elect") - body),
		 body, rest);
	emu_must_run(text, &job);
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], 0xFFFFFFE0u + 31 + 496 + 1);
	snprintf(text, sizeof(text), "%s%s", body, rest);
	emu_must_fail(text, &job, "elect", "not in its own mask", NULL);
}

/* redux of floats: NaNs are skipped without .NaN, and -0 is below +0. */
static void test_float_redux(void **state)
{
	static const struct {
		const char *opcode;
		uint32_t in[4], want; /* lane l has in[l % 4] */
	} cases[] = {
	    {"max", {0x3F800000, 0xC0000000, 0x40400000, 0x80000000}, 0x40400000},
	    {"min", {0x3F800000, 0xC0000000, 0x40400000, 0x80000000}, 0xC0000000},
	    {"min", {0, 0x80000000, 0, 0}, 0x80000000},
	    {"max", {0x80000000, 0, 0x80000000, 0x80000000}, 0},
	    {"max", {0x7FC00000, 0xC0000000, 0xFF800000, 0xC0400000}, 0xC0000000},
	    {"max.NaN", {0x7FC00000, 0xC0000000, 0x3F800000, 0}, 0x7FFFFFFF},
	    {"min", {0x7FC00000, 0xFFC00001, 0x7F800001, 0x7FFFFFFF}, 0x7FFFFFFF},
	    {"max.abs", {0x3F800000, 0xC0000000, 0x3F000000, 0x80000000}, 0x40000000},
	    {"min.abs.NaN",
	     {0x3F800000, 0xC0000000, 0xBF000000, 0x40000000},
	     0x3F000000},
	};
	char body[700];
	uint32_t out[LANES];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct emu_job job = {.in = cases[i].in,
				      .in_bytes = 16,
				      .out = out,
				      .out_bytes = sizeof(out),
				      .target = "sm_100a"};

		snprintf(body, sizeof(body),
			 "%sand.b32 %%r1, %%lane, 3;\n"
			 "mad.wide.u32 %%d1, %%r1, 4, %%in;\n"
			 "ld.global.f32 %%f1, [%%d1];\n"
			 "redux.sync.%s.f32 %%f2, %%f1, -1;\n"
			 "st.global.f32 [%%d41], %%f2;\n",
			 OUT_4, cases[i].opcode);
		emu_must_run(body, &job);
		for (int l = 0; l < LANES; l++)
			assert_int_equal(out[l], cases[i].want);
	}
}

/* A branch to the label of a list that the index of each lane selects. */
static void test_indexed_branches(void **state)
{
	static const char *body =
	    OUT_4 "and.b32 %r1, %lane, 3;\nmov.u32 %r2, 100;\n"
		  "setp.ne.u32 %p1, %lane, 9;\n"
		  "LIST: .branchtargets A, B, C, A;\n"
		  "@%p1 brx.idx %r1, LIST;\nadd.u32 %r2, %r2, 50;\nbra END;\n"
		  "A: add.u32 %r2, %r2, 1;\nbra.uni END;\n"
		  "B: add.u32 %r2, %r2, 2;\nbra.uni END;\n"
		  "C: add.u32 %r2, %r2, 3;\n"
		  "END: bar.warp.sync -1;\nst.global.u32 [%d41], %r2;\n";
	uint32_t out[LANES];
	struct emu_job job = {.out = out, .out_bytes = sizeof(out)};

	emu_must_run(body, &job);
	for (uint32_t l = 0; l < LANES; l++)
		assert_int_equal(out[l], l == 9 ? 150 : l % 4 == 3 ? 101 : 101 + l % 4);
	emu_must_fail("LIST: .branchtargets A, B;\nbrx.idx %lane, LIST;\nA: B:\n", &job,
		      "brx.idx", "index 2: its list has 2 labels", NULL);
	emu_must_fail("brx.idx %lane, LIST;\n", &job,
		      "a list of .branchtargets is missing", NULL);
	emu_must_fail("LIST: .branchtargets A;\nbrx.idx %lane, LIST;\n", &job,
		      "label A is not in sight", NULL);
}

/* The address of a parameter in 32 bits, as LLVM passes a tensor map. */
static void test_narrow_parameter(void **state)
{
	static const char *body =
	    OUT_4 "mov.b32 %r1, in;\nmov.b32 %r2, out;\n"
		  "cvt.u64.u32 %d1, %r1;\ncvta.param.u64 %d1, %d1;\n"
		  "cvt.u64.u32 %d2, %r2;\ncvta.param.u64 %d2, %d2;\n"
		  "ld.u64 %d3, [%d1];\nld.param.u64 %d4, [in];\n"
		  "setp.eq.u64 %p1, %d3, %d4;\n"
		  "ld.u64 %d3, [%d2];\n"
		  "setp.eq.and.u64 %p1, %d3, %out, %p1;\n"
		  "selp.u32 %r3, 1, 0, %p1;\n"
		  "st.global.u32 [%d41], %r3;\n";
	uint32_t out[LANES];
	struct emu_job job = {
	    .in = out, .in_bytes = sizeof(out), .out = out, .out_bytes = sizeof(out)};

	memset(out, 0, sizeof(out));
	emu_must_run(body, &job);
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], 1);
}

/*
 * One store of several warps with one value is reported only in the strict mode; other
 * values, and another store of the same value, always.
 */
static void test_equal_stores(void **state)
{
	static const char *const begin = ".shared .b64 word;\nmov.u64 %d1, 12345;\n";
	static const char *const end =
	    "bar.sync 0;\nld.shared.u64 %d2, [word];\nmul.wide.u32 %d3, %tid, 8;\n"
	    "add.s64 %d3, %d3, %out;\nst.global.u64 [%d3], %d2;\n";
	static const char *const stores[] = {
	    "st.shared.u64 [word], %d1;\n",
	    "cvt.u64.u32 %d1, %warp;\nst.shared.u64 [word], %d1;\n",
	    ("setp.eq.u32 %p1, %warp, 1;\n@%p1 st.shared.u64 [word], %d1;\n"
	     "@!%p1 st.shared.u64 [word], %d1;\n"),
	};
	uint64_t out[64];
	char text[1024];

	for (int i = 0; i < 24; i++) {
		struct emu_job job = {.out = out,
				      .out_bytes = sizeof(out),
				      .block = 64,
				      .seed = (uint64_t)i / 6,
				      .is_strict = i / 3 % 2};

		snprintf(text, sizeof(text), "%s%s%s", begin, stores[i % 3], end);
		if (i % 3 == 0 && !job.is_strict) {
			emu_must_run(text, &job);
			for (int t = 0; t < 64; t++)
				assert_int_equal(out[t], 12345);
			continue;
		}
		emu_must_fail(text, &job, "st: store to shared memory",
			      i % 3 == 1 ? "wrote it" : "wrote the same value to it",
			      "nothing orders that before this", NULL);
	}
}

/*
 * A race of x += 1 is reported as an update, with advice for it.  Other races are not:
 * a neighbour's word that is read too early, and a word that only one line stores.
 */
static void test_updates(void **state)
{
	static const char *const begin =
	    ".shared .b32 words[96];\nmov.u32 %r1, words;\nmad.lo.u32 %r2, %tid, 4, %r1;\n"
	    "st.shared.u32 [%r2], %tid;\nxor.b32 %r3, %r2, 128;\nbar.sync 0;\n";
	static const struct {
		const char *body;
		bool is_update;
	} cases[] = {
	    {"ld.shared.u32 %r4, [%r1+8];\nadd.u32 %r4, %r4, 1;\n"
	     "st.shared.u32 [%r1+8], %r4;\n",
	     true},
	    {"ld.shared.u32 %r4, [%r2];\nld.shared.u32 %r5, [%r3];\n"
	     "add.u32 %r4, %r4, %r5;\nst.shared.u32 [%r2], %r4;\n",
	     false},
	    {"st.shared.u32 [%r1+8], %tid;\n", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (uint64_t seed = 0; seed < 4; seed++) {
			struct emu_job job = {.block = 64, .seed = seed};
			struct emu_error err = {{0}};
			char text[1024];

			snprintf(text, sizeof(text), "%s%s", begin, cases[i].body);
			job.ptx = emu_module_text(text);
			assert_false(emu_run_job(&job, &err));
			assert_int_equal(strstr(err.text, EMU_UPDATE) != NULL,
					 cases[i].is_update);
		}
}

/* The hardware reads the last bit of a parity; -1 is accepted, and nothing else. */
static void test_parities(void **state)
{
	char text[1024];
	struct emu_job job = {.in_bytes = 0};

	for (int i = 0; i < 4; i++) {
		job.is_strict = i % 2;
		snprintf(
		    text, sizeof(text),
		    ".shared .b64 bar;\nmov.u32 %%r1, 1;\nsetp.eq.u32 %%p1, %%lane, 0;\n"
		    "@%%p1 mbarrier.init.shared::cta.b64 [bar], %%r1;\n"
		    "bar.warp.sync -1;\nmov.u32 %%r2, %d;\n"
		    "mbarrier.test_wait.parity.shared::cta.b64 %%p2, [bar], %%r2;\n"
		    "@!%%p2 trap;\n",
		    i / 2 ? 2 : -1);
		if (i == 0)
			emu_must_run(text, &job);
		else
			emu_must_fail(text, &job, "0 or 1 is the parity", NULL);
	}
}

/* Constants as predicates hold for every lane; by lane, and as a guard. */
static void test_constant_predicates(void **state)
{
	static const char *body =
	    OUT_4 "mov.pred %p1, -1;\nmov.pred %p2, 0;\nmov.pred %p3, 1;\n"
		  "vote.sync.ballot.b32 %r1, %p1, -1;\n"
		  "vote.sync.ballot.b32 %r2, %p2, -1;\n"
		  "vote.sync.ballot.b32 %r3, %p3, -1;\n"
		  "xor.b32 %r1, %r1, %lane;\nadd.u32 %r1, %r1, %r2;\n"
		  "@%p3 xor.b32 %r1, %r1, %r3;\n"
		  "@%p2 mov.u32 %r1, 77;\nst.global.u32 [%d41], %r1;\n";
	uint32_t out[LANES];
	struct emu_job job = {.out = out, .out_bytes = sizeof(out)};

	emu_must_run(body, &job);
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], l);
}

/* A sum over 256 threads in shared memory, with barriers, on many schedules. */
static void test_barriers(void **state)
{
	static const char *body =
	    OUT_4 ".shared .align 4 .b8 sums[1024];\n"
		  "mov.u32 %r1, sums;\nmad.lo.u32 %r2, %tid, 4, %r1;\n"
		  "st.shared.u32 [%r2], %tid;\nmov.u32 %r3, 128;\n"
		  "L: bar.sync 0;\nsetp.ge.u32 %p1, %tid, %r3;\n@%p1 bra NEXT;\n"
		  "mad.lo.u32 %r4, %r3, 4, %r2;\nld.shared.u32 %r5, [%r4];\n"
		  "ld.shared.u32 %r6, [%r2];\nadd.u32 %r5, %r5, %r6;\n"
		  "st.shared.u32 [%r2], %r5;\n"
		  "NEXT: shr.u32 %r3, %r3, 1;\nsetp.ne.u32 %p2, %r3, 0;\n"
		  "@%p2 bra L;\nbar.sync 3, 256;\n"
		  "ld.shared.u32 %r7, [sums];\nst.global.u32 [%d41], %r7;\n";
	uint32_t out[256];

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = {
		    .out = out, .out_bytes = sizeof(out), .block = 256, .seed = seed};

		emu_must_run(body, &job);
		for (int t = 0; t < 256; t++)
			assert_int_equal(out[t], 255 * 128);
	}
}

/* Four CTAs of a cluster write into each other's memory. */
static void test_clusters(void **state)
{
	static const char *body =
	    OUT_4 "mov.u32 %r1, dynamic;\nmov.u32 %r2, %cluster_ctarank;\n"
		  "add.u32 %r3, %r2, 1;\nand.b32 %r3, %r3, 3;\n"
		  "mapa.shared::cluster.u32 %r4, %r1, %r3;\n"
		  "mad.lo.u32 %r4, %lane, 4, %r4;\nmad.lo.u32 %r5, %r2, 100, %lane;\n"
		  "st.shared::cluster.u32 [%r4], %r5;\n"
		  "barrier.cluster.arrive.release.aligned;\n"
		  "barrier.cluster.wait.acquire.aligned;\n"
		  "mad.lo.u32 %r6, %lane, 4, %r1;\nld.shared.u32 %r7, [%r6];\n"
		  "st.global.u32 [%d41], %r7;\n";
	uint32_t out[256];

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = {.out = out,
				      .out_bytes = sizeof(out),
				      .grid = 8,
				      .cluster = 4,
				      .shared_bytes = 128,
				      .seed = seed};

		emu_must_run(body, &job);
		for (uint32_t t = 0; t < 256; t++)
			assert_int_equal(out[t], (t / 32 + 3) % 4 * 100 + t % 32);
	}
}

/* Generic addresses reach all windows; a pointer to a parameter too. */
static void test_generic(void **state)
{
	static const char *body =
	    OUT_4 ".local .align 8 .b8 depot[16];\n"
		  "mov.u64 %d1, dynamic;\ncvta.shared.u64 %d1, %d1;\n"
		  "mad.wide.u32 %d2, %lane, 4, %d1;\nst.u32 [%d2], %lane;\n"
		  "ld.u32 %r1, [%d2];\ncvta.to.shared.u64 %d3, %d2;\n"
		  "ld.shared.u32 %r2, [%d3];\nisspacep.shared %p1, %d2;\n"
		  "isspacep.shared %p2, %out;\nselp.u32 %r3, 1, 0, %p1;\n"
		  "selp.u32 %r4, 2, 0, %p2;\nadd.u32 %r1, %r1, %r2;\n"
		  "mov.b64 %d4, out;\ncvta.param.u64 %d4, %d4;\nld.u64 %d5, [%d4];\n"
		  "setp.eq.u64 %p3, %d5, %out;\nselp.u32 %r5, 1000, 0, %p3;\n"
		  "st.local.u32 [depot+8], %r1;\nld.local.u32 %r1, [depot+8];\n"
		  "add.u32 %r1, %r1, %r3;\nadd.u32 %r1, %r1, %r4;\n"
		  "add.u32 %r1, %r1, %r5;\nst.global.u32 [%d41], %r1;\n";
	uint32_t out[LANES];
	struct emu_job job = {
	    .out = out, .out_bytes = sizeof(out), .shared_bytes = 128};

	emu_must_run(body, &job);
	for (uint32_t l = 0; l < LANES; l++)
		assert_int_equal(out[l], 2 * l + 1 + 1000);
}

static void test_atomics(void **state)
{
	static const char *body =
	    "atom.global.add.u32 %r1, [%out], %tid;\n"
	    "red.global.max.u32 [%out+4], %tid;\n"
	    "atom.global.cas.b32 %r2, [%out+8], 0, %tid;\n"
	    "atom.global.exch.b32 %r3, [%out+12], 9;\n"
	    "mov.b32 %f1, 0f3F800000;\nred.global.add.f32 [%out+16], %f1;\n"
	    "cvt.s64.s32 %d1, %tid;\nneg.s64 %d1, %d1;\n"
	    "red.global.min.s64 [%out+24], %d1;\n"
	    "atom.global.inc.u32 %r4, [%out+32], 9;\n";
	uint32_t out[10] = {0};
	struct emu_job job = {.out = out,
			      .out_bytes = sizeof(out),
			      .keeps_out = true,
			      .block = 64,
			      .grid = 3};
	float sum;

	emu_must_run(body, &job);
	memcpy(&sum, &out[4], 4);
	assert_int_equal(out[0], 3 * 63 * 32);
	assert_int_equal(out[1], 63);
	assert_true(out[2] != 0);
	assert_int_equal(out[3], 9);
	assert_true(sum == 192);
	assert_int_equal((int32_t)out[6], -63);
	assert_int_equal(out[8], 192 % 10);
}

/* Loads of all widths and signs into wider registers, vectors both ways. */
static void test_loads(void **state)
{
	static const char *body =
	    "mad.wide.u32 %d40, %lane, 16, %in;\n"
	    "mad.wide.u32 %d41, %lane, 32, %out;\n"
	    "ld.global.s8 %r1, [%d40];\nld.global.u8 %r2, [%d40+1];\n"
	    "ld.global.s16 %d3, [%d40+2];\nld.global.u16 %h1, [%d40+2];\n"
	    "ld.global.v2.s16 {%r4, %r5}, [%d40+4];\n"
	    "ld.global.nc.L1::no_allocate.v2.u32 {%r6, %r7}, [%d40+8];\n"
	    "and.b64 %d42, %d40, -32;\n"
	    "ld.global.L1::no_allocate.L2::evict_first.v8.b32 "
	    "{%r11, %r12, %r13, %r14, %r15, %r16, %r17, %r18}, [%d42];\n"
	    "setp.ne.u64 %p1, %d40, %d42;\n"
	    "selp.b32 %r7, %r18, %r14, %p1;\n"
	    "cvt.u32.u16 %r8, %h1;\nmov.b64 {%r9, %r10}, %d3;\n"
	    "st.global.v4.b32 [%d41], {%r1, %r2, %r9, %r10};\n"
	    "st.global.v4.b32 [%d41+16], {%r8, %r4, %r5, %r7};\n";
	uint8_t in[LANES][16];
	uint32_t out[LANES][8];
	struct emu_job job = {.in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .target = "sm_100a"};

	for (int l = 0; l < LANES; l++)
		for (int k = 0; k < 16; k++)
			in[l][k] = (uint8_t)emu_test_random();
	emu_must_run(body, &job);
	for (int l = 0; l < LANES; l++) {
		int16_t half[3];
		uint32_t word;

		memcpy(half, in[l] + 2, sizeof(half));
		memcpy(&word, in[l] + 12, 4);
		assert_int_equal((int32_t)out[l][0], (int8_t)in[l][0]);
		assert_int_equal(out[l][1], in[l][1]);
		assert_int_equal((int32_t)out[l][2], half[0]);
		assert_int_equal((int32_t)out[l][3], half[0] < 0 ? -1 : 0);
		assert_int_equal(out[l][4], (uint16_t)half[0]);
		assert_int_equal((int32_t)out[l][5], half[1]);
		assert_int_equal((int32_t)out[l][6], half[2]);
		assert_int_equal(out[l][7], word);
	}
}

/* One lane waits for another of its warp, so both must make progress. */
static void test_lanes_that_wait(void **state)
{
	static const char *body =
	    OUT_4 "setp.eq.u32 %p1, %lane, 0;\n@%p1 bra SPIN;\n"
		  "setp.eq.u32 %p2, %lane, 9;\nmov.u32 %r1, 77;\n"
		  "@%p2 st.volatile.global.u32 [%out+128], %r1;\nbra.uni END;\n"
		  "SPIN: ld.volatile.global.u32 %r1, [%out+128];\n"
		  "setp.ne.u32 %p3, %r1, 77;\n@%p3 bra SPIN;\n"
		  "END: st.global.u32 [%d41], %r1;\n";
	uint32_t out[LANES + 1] = {0};
	struct emu_job job = {.out = out, .out_bytes = sizeof(out), .keeps_out = true};

	emu_must_run(body, &job);
	for (int l = 0; l < LANES; l++)
		assert_int_equal(out[l], 77);
}

/* CTAs of a grid that wait for each other, more than usually run at once. */
static void test_ctas_that_wait(void **state)
{
	static const char *body =
	    OUT_4 "setp.ne.u32 %p1, %tid, 0;\n@%p1 bra END;\n"
		  "atom.global.add.u32 %r1, [%in], 1;\n"
		  "SPIN: ld.acquire.gpu.global.u32 %r2, [%in];\n"
		  "setp.lt.u32 %p2, %r2, 10;\n@%p2 bra SPIN;\n"
		  "END: bar.sync 0;\nst.global.u32 [%d41], %tid;\n";
	static uint32_t in, out[10 * LANES];
	struct emu_job job = {.in = &in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .grid = 10};

	emu_must_run(body, &job);
	for (uint32_t t = 0; t < 10 * LANES; t++)
		assert_int_equal(out[t], t % LANES);
}

/* A seed is one schedule: the same polls, the same instructions. */
static void test_replay(void **state)
{
	static const char *body =
	    "mov.u32 %r1, dynamic;\nmov.u32 %r2, 128;\n"
	    "setp.eq.u32 %p1, %tid, 0;\n"
	    "@%p1 mbarrier.init.shared::cta.b64 [%r1], %r2;\nbar.sync 0;\n"
	    "mad.lo.u32 %r3, %tid, 16, %r1;\n"
	    "mad.wide.u32 %d1, %tid, 16, %in;\n"
	    "cp.async.cg.shared.global [%r3+128], [%d1], 16;\n"
	    "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];\n"
	    "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;\n"
	    "@!%p2 bra L;\nld.shared.u32 %r4, [%r3+128];\n" OUT_4
	    "st.global.u32 [%d41], %r4;\n";
	static uint32_t in[128][4], out[128];
	uint64_t counts[SEEDS];
	int different = 0;

	for (uint32_t t = 0; t < 128; t++)
		in[t][0] = t * t;
	for (int run = 0; run < 2 * SEEDS; run++) {
		struct emu_job job = {.in = in,
				      .in_bytes = sizeof(in),
				      .out = out,
				      .out_bytes = sizeof(out),
				      .block = 128,
				      .shared_bytes = 4096,
				      .seed = (uint64_t)run % SEEDS};

		emu_must_run(body, &job);
		for (uint32_t t = 0; t < 128; t++)
			assert_int_equal(out[t], t * t);
		if (run < SEEDS)
			counts[run] = job.instructions;
		else
			assert_true(counts[run - SEEDS] == job.instructions);
		different += counts[run % SEEDS] != counts[0];
	}
	assert_in_range(different, SEEDS, 2 * SEEDS);
}

/* Cost grows with the work: ten times the loop, ten times the instructions. */
static void test_counts(void **state)
{
	uint64_t counts[2];

	for (int i = 0; i < 2; i++) {
		char text[512];
		struct emu_job job = {.block = 128};

		snprintf(text, sizeof(text),
			 "mov.u32 %%r1, %d;\n"
			 "L: add.u32 %%r1, %%r1, -1;\n"
			 "setp.ne.u32 %%p1, %%r1, 0;\n@%%p1 bra L;\n",
			 i ? 10000 : 1000);
		emu_must_run(text, &job);
		counts[i] = job.instructions;
	}
	assert_int_equal(counts[1] - counts[0], 9000 * 3 * 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_loops),
	    cmocka_unit_test(test_scopes),
	    cmocka_unit_test(test_shuffle),
	    cmocka_unit_test(test_votes),
	    cmocka_unit_test(test_float_redux),
	    cmocka_unit_test(test_indexed_branches),
	    cmocka_unit_test(test_narrow_parameter),
	    cmocka_unit_test(test_equal_stores),
	    cmocka_unit_test(test_updates),
	    cmocka_unit_test(test_parities),
	    cmocka_unit_test(test_constant_predicates),
	    cmocka_unit_test(test_barriers),
	    cmocka_unit_test(test_clusters),
	    cmocka_unit_test(test_generic),
	    cmocka_unit_test(test_atomics),
	    cmocka_unit_test(test_loads),
	    cmocka_unit_test(test_lanes_that_wait),
	    cmocka_unit_test(test_ctas_that_wait),
	    cmocka_unit_test(test_replay),
	    cmocka_unit_test(test_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
