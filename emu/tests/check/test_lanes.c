/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lanes.c - two lanes of a warp access one word of shared memory, from PTX to
 * the report: what orders them and what does not, on every schedule.
 */
#include <string.h>

#include "check/lanes.h"
#include "common/run.h"
#include "common/unit.h"

#define SEEDS 10
#define BYTES 4096

/* ---- running ------------------------------------------------------------- */

static bool is_strict;

static struct emu_job job_of(uint64_t seed, uint32_t block)
{
	static const uint8_t in[BYTES];
	static uint8_t out[BYTES];

	return (struct emu_job){
	    .in = in,
	    .in_bytes = sizeof(in),
	    .out = out,
	    .out_bytes = sizeof(out),
	    .block = block,
	    .shared_bytes = BYTES,
	    .seed = seed,
	    .budget = 2000000,
	    .is_strict = is_strict,
	};
}

static void runs_in(uint32_t block, const char *body)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = job_of(seed, block);

		emu_must_run(body, &job);
	}
}

static void runs(const char *body)
{
	runs_in(32, body);
}

/* Both lanes' part of the report, which the lock-step makes the same always. */
static void reported_in(uint32_t block, const char *body, const char *now,
			const char *before)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = job_of(seed, block);

		emu_must_fail(body, &job, now, before, "nothing orders the two lanes",
			      "there must be a bar.warp.sync (__syncwarp) with "
			      "both in its mask",
			      NULL);
	}
}

static void reported(const char *body, const char *now, const char *before)
{
	reported_in(32, body, now, before);
}

/* ---- pieces -------------------------------------------------------------- */

/* %r1: shared memory; %r2: the lane's word, %r3: the next lane's; %p1: lane 0.
 */
#define HERE                                                                           \
	"mov.u32 %r1, dynamic;\nsetp.eq.u32 %p1, %tid, 0;\n"                           \
	"mad.lo.u32 %r2, %lane, 4, %r1;\nadd.u32 %r3, %lane, 1;\n"                     \
	"and.b32 %r3, %r3, 31;\nmad.lo.u32 %r3, %r3, 4, %r1;\n"
#define WRITE	   "st.shared.u32 [%r2], %lane;\n"
#define READ	   "ld.shared.u32 %r4, [%r2];\n"
#define READ_NEXT  "ld.shared.u32 %r4, [%r3];\n"
#define MEET	   "bar.warp.sync 0xffffffff;\n"
#define WRITE_NEXT "st.shared.u32 [%r3], %lane;\n"

/* The instructions between the accesses of two lanes. */
struct accesses {
	const char *before, *after, *now, *then;
};

static const struct accesses pairs[] = {
    {HERE WRITE, READ_NEXT, "load of shared memory offset 1028 of CTA rank 0 by lane 0",
     "lane 1 of the same warp wrote it (PTX line"},
    {HERE WRITE MEET READ_NEXT, WRITE,
     "store to shared memory offset 1024 of CTA rank 0 by lane 0",
     "lane 31 of the same warp reads it (PTX line"},
    {HERE WRITE, WRITE_NEXT,
     "store to shared memory offset 1028 of CTA rank 0 by lane 0",
     "lane 1 of the same warp wrote it (PTX line"},
};

#define PAIRS (sizeof(pairs) / sizeof(*pairs))

static const char *joined(const struct accesses *a, const char *between)
{
	static char text[4096];

	text[0] = '\0';
	strcat(text, a->before);
	strcat(text, between);
	strcat(text, a->after);
	return text;
}

static void each_runs(const char *between)
{
	for (size_t i = 0; i < PAIRS; i++)
		runs(joined(&pairs[i], between));
}

static void each_reported(const char *between)
{
	for (size_t i = 0; i < PAIRS; i++)
		reported(joined(&pairs[i], between), pairs[i].now, pairs[i].then);
}

/* ---- what orders lanes --------------------------------------------------- */

static void test_nothing(void **state)
{
	each_reported("");
}

static void test_meetings(void **state)
{
	each_runs(MEET);
	each_runs("bar.sync 0;\n");
	each_runs("barrier.sync 1, 32;\n");
	each_runs("barrier.cluster.arrive.aligned;\n"
		  "barrier.cluster.wait.aligned;\n");
	/* It orders nothing but control. */
	each_reported("barrier.cluster.arrive.relaxed.aligned;\n"
		      "barrier.cluster.wait.aligned;\n");
}

/* Accesses between an arrival and its wait are not ordered by them. */
static void test_split_barrier(void **state)
{
	reported(HERE "barrier.cluster.arrive.release.aligned;\n" WRITE
		      "barrier.cluster.wait.acquire.aligned;\n" READ_NEXT,
		 "by lane 0", "lane 1 of the same warp wrote it");
}

/* Lanes 31 and 0 have a word in common, as have 15 and 16. */
static void test_masks(void **state)
{
	reported(HERE WRITE "setp.eq.u32 %p2, %lane, 31;\n@%p2 bra L;\n"
			    "bar.warp.sync 0x7fffffff;\n" READ_NEXT "L:\n",
		 "by lane 30", "lane 31 of the same warp wrote it");
	runs(HERE WRITE "setp.ge.u32 %p2, %lane, 30;\n@%p2 bra L;\n"
			"bar.warp.sync 0x3fffffff;\n"
			"setp.eq.u32 %p2, %lane, 29;\n@%p2 bra L;\n" READ_NEXT "L:\n");
	/* Tiles of sixteen lanes. */
	reported(HERE WRITE "setp.lt.u32 %p2, %lane, 16;\n"
			    "selp.b32 %r5, 0xffff, 0xffff0000, %p2;\n"
			    "bar.warp.sync %r5;\n" READ_NEXT,
		 "by lane 15", "lane 16 of the same warp wrote it");
	/* A chain: 0..15, then 15..31, so that 15 orders 16 after 0. */
	runs(HERE "@%p1 st.shared.u32 [%r1], %lane;\n"
		  "setp.lt.u32 %p2, %lane, 16;\n@!%p2 bra A;\n"
		  "bar.warp.sync 0xffff;\nA: setp.lt.u32 %p2, %lane, 15;\n"
		  "@%p2 bra L;\nbar.warp.sync 0xffff8000;\n"
		  "ld.shared.u32 %r4, [%r1];\nL:\n");
	/* The other way round it does not. */
	reported(HERE "@%p1 st.shared.u32 [%r1], %lane;\n"
		      "setp.ge.u32 %p2, %lane, 15;\n@!%p2 bra A;\n"
		      "bar.warp.sync 0xffff8000;\nA: setp.ge.u32 %p2, %lane, 16;"
		      "\n@%p2 bra L;\nbar.warp.sync 0xffff;\nL: "
		      "ld.shared.u32 %r4, [%r1];\n",
		 "by lane 16", "lane 0 of the same warp wrote it");
}

static void test_only_together(void **state)
{
	each_reported("shfl.sync.idx.b32 %r5, %lane, 0, 31, 0xffffffff;\n");
	each_reported("setp.ne.u32 %p2, %lane, 3;\n"
		      "vote.sync.all.pred %p3, %p2, 0xffffffff;\n");
	each_reported("redux.sync.add.u32 %r5, %lane, 0xffffffff;\n");
	each_reported("elect.sync %r5|%p2, 0xffffffff;\n");
	each_reported("fence.acq_rel.cta;\n");
	each_reported("fence.proxy.async;\n");
}

/* A lane's own word needs no order. */
static void test_same_lane(void **state)
{
	runs(HERE WRITE READ WRITE READ "st.shared.v2.u32 [%r1+512], {%r4, "
					"%r4};\n");
	/* Bytes of a word that are different lanes'. */
	runs(HERE "add.u32 %r5, %r1, %lane;\nst.shared.u8 [%r5], %r1;\n"
		  "ld.shared.u8 %r4, [%r5];\nst.shared.u8 [%r5], %r4;\n");
	/* All lanes read; one instruction's stores to one word. */
	runs(HERE "st.shared.u32 [%r1], %lane;\n" MEET
		  "ld.shared.u32 %r4, [%r1];\nld.shared.u32 %r4, [%r1];\n");
}

static void test_branches(void **state)
{
	reported(HERE "@!%p1 bra L;\nst.shared.u32 [%r1], %tid;\n"
		      "L: ld.shared.u32 %r4, [%r1];\n",
		 "by lane 1", "lane 0 of the same warp wrote it");
	runs(HERE "@!%p1 bra L;\nst.shared.u32 [%r1], %tid;\nL: " MEET
		  "ld.shared.u32 %r4, [%r1];\n");
	/* Both sides of a branch. */
	reported(HERE WRITE MEET "setp.lt.u32 %p2, %lane, 16;\n"
				 "xor.b32 %r5, %r2, 64;\n@%p2 bra A;\n"
				 "st.shared.u32 [%r2], %tid;\nbra L;\n"
				 "A: ld.shared.u32 %r4, [%r5];\nL:\n",
		 "of shared memory offset 10", "of the same warp");
	/* One lane is a round of a loop ahead. */
	reported(HERE "mov.u32 %r5, 0;\n"
		      "L: @%p1 st.shared.u32 [%r1], %r5;\n" MEET
		      "ld.shared.u32 %r4, [%r1];\nadd.u32 %r5, %r5, 1;\n"
		      "setp.lt.u32 %p2, %r5, 3;\n@%p2 bra L;\n",
		 "by lane 0", "lane 1 of the same warp reads it");
}

/* ---- release and acquire ------------------------------------------------- */

#define INIT(count)                                                                    \
	"@%p1 mbarrier.init.shared::cta.b64 [%r1+256], " count ";\nbar.sync "          \
	"0;\n"
#define ARRIVE "mbarrier.arrive.shared::cta.b64 _, [%r1+256];\n"
#define WAIT                                                                           \
	"{ .reg .pred q;\nW: mbarrier.try_wait.parity.shared::cta.b64 q, "             \
	"[%r1+256], 0;\n@!q bra W; }\n"

static void test_mbarriers(void **state)
{
	runs(HERE INIT("32") WRITE ARRIVE WAIT READ_NEXT);
	runs(HERE INIT("32") WRITE MEET READ_NEXT ARRIVE WAIT WRITE);
	/* One arrives after all have synchronised. */
	runs(HERE INIT("1") WRITE MEET "@%p1 " ARRIVE WAIT READ_NEXT);
	reported(HERE INIT("1") WRITE "@%p1 " ARRIVE WAIT READ_NEXT, "by lane 0",
		 "lane 1 of the same warp wrote it");
	/* One waits for all. */
	reported(HERE INIT("32") WRITE ARRIVE "@!%p1 bra L;\n" WAIT "L: " READ_NEXT,
		 "by lane 1:", "lane 2 of the same warp wrote it");
	runs(HERE INIT("32") WRITE ARRIVE "@!%p1 bra L;\n" WAIT "L: " MEET READ_NEXT);
	/* After the arrival. */
	reported(HERE INIT("32") ARRIVE WRITE WAIT READ_NEXT, "by lane 0",
		 "lane 1 of the same warp wrote it");
	reported(HERE INIT("32") WRITE
		 "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r1+256];\n" WAIT
		     READ_NEXT,
		 "by lane 0", "lane 1 of the same warp wrote it");
}

/* Lane 0 passes its word to lane 1 by a flag. */
#define FLAG(set, fence, look, joined)                                                 \
	HERE "@%p1 st.shared.u32 [%r1+128], 0;\nbar.sync 0;\n"                         \
	     "@!%p1 bra POLL;\nst.shared.u32 [%r1], %tid;\n" fence                     \
	     "mov.u32 %r5, 1;\n" set                                                   \
	     ".shared.u32 [%r1+128], %r5;\nbra END;\nPOLL: " look                      \
	     ".shared.u32 %r6, [%r1+128];\nsetp.eq.u32 %p2, %r6, 0;\n"                 \
	     "@%p2 bra POLL;\n" joined "ld.shared.u32 %r4, [%r1];\nEND:\n"

static void test_flags(void **state)
{
	const char *by = "lane 0 of the same warp wrote it";

	runs(FLAG("st.release.cta", "", "ld.acquire.cta", ""));
	runs(FLAG("st.volatile", "fence.acq_rel.cta;\n", "ld.volatile",
		  "fence.acq_rel.cta;\n"));
	runs(FLAG("st.volatile", "membar.cta;\n", "ld.volatile", "membar.cta;\n"));
#define RELEASED "fence.release.sync_restrict::shared::cta.cluster;\n"
#define ACQUIRED "fence.acquire.sync_restrict::shared::cluster.cluster;\n"
	runs(FLAG("st.volatile", RELEASED, "ld.volatile", ACQUIRED));
	reported(FLAG("st.volatile", ACQUIRED, "ld.volatile", RELEASED), "by lane 1",
		 by);
	reported(FLAG("st.relaxed.cta", "", "ld.acquire.cta", ""), "by lane 1", by);
	reported(FLAG("st.release.cta", "", "ld.relaxed.cta", ""), "by lane 1", by);
	reported(FLAG("st.volatile", "", "ld.volatile", ""), "by lane 1", by);
}

/* The last of the lanes that count finds what all wrote. */
static void test_atomics(void **state)
{
#define COUNT(order)                                                                   \
	HERE "@%p1 st.shared.u32 [%r1+128], 0;\nbar.sync 0;\n" WRITE "atom" order      \
	     ".shared.add.u32 %r5, [%r1+128], 1;\n"                                    \
	     "setp.ne.u32 %p2, %r5, 31;\n@%p2 bra END;\n"                              \
	     "ld.shared.u32 %r4, [%r1];\nEND:\n"
	runs(COUNT(".acq_rel.cta"));
	reported(COUNT(".relaxed.cta"), "by lane 31",
		 "lane 0 of the same warp wrote it");
}

/* ---- engines ------------------------------------------------------------- */

#define COPY                                                                           \
	"mad.wide.u32 %d1, %lane, 4, %in;\n"                                           \
	"cp.async.ca.shared.global [%r2], [%d1], 4;\n"                                 \
	"cp.async.commit_group;\n"
#define COPIED "cp.async.wait_group 0;\n"

static void test_copies_of_lanes(void **state)
{
	runs(HERE COPY COPIED MEET READ_NEXT);
	runs(HERE COPY COPIED READ);
	reported(HERE COPY COPIED READ_NEXT, "by lane 0",
		 "lane 1 of the same warp copied to it by cp.async (PTX line");
	/* A bar.warp.sync before the wait does not count after it. */
	reported(HERE COPY MEET COPIED READ_NEXT, "by lane 0",
		 "lane 1 of the same warp copied to it by cp.async (PTX line");
	runs(HERE INIT("32") COPY
	     "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1+256];\n" WAIT COPIED
		 READ_NEXT);
	/* A table in a ring that is still empty: all lanes read their neighbours'
	 * words, then the first copies overwrite these words. */
#define TABLE(between) HERE WRITE MEET READ_NEXT between COPY COPIED
	runs(TABLE(MEET));
	reported(TABLE(""),
		 "cp.async to shared memory offset 1024 of CTA rank 0 by lane 0",
		 "lane 31 of the same warp reads it (PTX line");
}

#define LOAD                                                                           \
	"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+256], 128;\n"               \
	"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "           \
	"[%r1], [%in], 128, [%r1+256];\n"

static void test_bulk_loads(void **state)
{
#define REFILL(between)                                                                \
	HERE INIT("1") WRITE "fence.proxy.async;\n" MEET READ_NEXT between             \
			     "@!%p1 bra L;\n" LOAD "L: " WAIT READ_NEXT
	runs(REFILL(MEET));
	reported(REFILL(""),
		 "bulk copy to shared memory offset 1024 of CTA rank 0 by lane 0",
		 "lane 31 of the same warp reads it (PTX line");
	reported(REFILL("shfl.sync.idx.b32 %r5, %r4, 0, 31, 0xffffffff;\n"),
		 "by lane 0", "lane 31 of the same warp reads it (PTX line");
}

#define STORE                                                                          \
	"cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 128;\n"            \
	"cp.async.bulk.commit_group;\n"
#define STORED "cp.async.bulk.wait_group.read 0;\n"

static void test_bulk_stores(void **state)
{
#define STAGING(before, after)                                                         \
	HERE WRITE "fence.proxy.async;\n" before "@!%p1 bra L;\n" STORE STORED         \
		   "L: " after WRITE "cp.async.bulk.wait_group 0;\n"
	runs(STAGING(MEET, MEET));
	reported(STAGING("", MEET),
		 "bulk store of shared memory offset 1028 of CTA rank 0 by lane 0",
		 "lane 1 of the same warp wrote it (PTX line");
	reported(STAGING(MEET, ""),
		 "store to shared memory offset 1028 of CTA rank 0 by lane 1",
		 "lane 0 of the same warp reads it by a bulk store");
	/* The others' waits are for groups of their own. */
	reported(HERE WRITE "fence.proxy.async;\n" MEET "@!%p1 bra L;\n" STORE
			    "L: " STORED WRITE,
		 "by lane 1", "lane 0 of the same warp reads it by a bulk store");
}

/* Each lane holds a part of many rows, whichever lane gives their addresses. */
static void test_matrices(void **state)
{
#define ROWS                                                                           \
	HERE "mad.lo.u32 %r5, %lane, 16, %r1;\n"                                       \
	     "st.shared.v4.u32 [%r5], {%r1, %r1, %r1, %r1};\n"
#define LOAD_MATRIX                                                                    \
	"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, "              \
	"[%r5];\n"
#define STORE_MATRIX                                                                   \
	"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r6, %r7, %r8, "             \
	"%r9};\n"
	runs(ROWS MEET LOAD_MATRIX MEET STORE_MATRIX MEET
	     "ld.shared.u32 %r4, [%r5];\n" MEET STORE_MATRIX);
	reported(ROWS LOAD_MATRIX, "load of shared memory",
		 "of the same warp wrote it (PTX line");
	runs(ROWS MEET LOAD_MATRIX STORE_MATRIX);
	is_strict = true;
	reported(ROWS MEET LOAD_MATRIX STORE_MATRIX, "store to shared memory",
		 "of the same warp reads it (PTX line");
	is_strict = false;
	reported(ROWS MEET LOAD_MATRIX "st.shared.u32 [%r5], %r6;\n",
		 "store to shared memory", "of the same warp reads it (PTX line");
	reported(ROWS MEET STORE_MATRIX "ld.shared.u32 %r4, [%r5];\n", "by lane 0",
		 "lane 1 of the same warp wrote it (PTX line");
}

/* Lanes of another warp do not change the order of these. */
static void test_two_warps(void **state)
{
	const char *text =
	    HERE "@%p1 mbarrier.init.shared::cta.b64 [%r1+256], 32;\n"
		 "@%p1 mbarrier.init.shared::cta.b64 [%r1+264], 32;\nbar.sync "
		 "0;\nsetp.ne.u32 %p2, %warp, 0;\n@%p2 bra REST;\n" WRITE
		 "mbarrier.arrive.shared::cta.b64 _, [%r1+256];\n"
		 "V: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1+264], "
		 "0;\n@!%p3 bra V;\n" READ_NEXT "bra END;\n"
		 "REST: mbarrier.try_wait.parity.shared::cta.b64 %p3, "
		 "[%r1+256], 0;\n@!%p3 bra REST;\nld.shared.u32 %r4, [%r2];\n"
		 "mbarrier.arrive.shared::cta.b64 _, [%r1+264];\nEND:\n";

	/* A chain: through a barrier that only the other warp waits for. */
	runs_in(64, text);
	reported_in(64,
		    HERE "mad.lo.u32 %r2, %warp, 128, %r2;\n"
			 "mad.lo.u32 %r3, %warp, 128, %r3;\n" WRITE
			 "bar.sync 0;\n" READ_NEXT WRITE,
		    "by lane 0", "lane 31 of the same warp reads it");
}

/* ---- global memory ------------------------------------------------------- */

/* The last line counts in global memory, because the order of such grids is checked. */
#define GLOBAL(between)                                                                \
	"mul.wide.u32 %d1, %lane, 4;\nadd.s64 %d2, %out, %d1;\n"                       \
	"xor.b32 %r3, %lane, 1;\nmul.wide.u32 %d1, %r3, 4;\n"                          \
	"add.s64 %d3, %out, %d1;\nst.global.u32 [%d2], %lane;\n" between               \
	"ld.global.u32 %r4, [%d3];\n" COUNTED
#define COUNTED "red.global.add.u32 [%in+2048], 1;\n"

static void test_global(void **state)
{
	runs(GLOBAL("bar.warp.sync -1;\n"));
	runs(GLOBAL("bar.sync 0;\n"));
	reported(GLOBAL(""), "load of global memory 0x",
		 "by lane 0: lane 1 of the same warp wrote it (PTX line");
	reported(GLOBAL("bar.warp.sync -1;\nld.global.u32 %r4, [%d3];\n"
			"st.global.u32 [%d2], %r4;\n"),
		 "store to global memory 0x",
		 "by lane 0: lane 1 of the same warp reads it (PTX line");
	reported(GLOBAL("st.global.u32 [%d3], %lane;\n"), "store to global memory 0x",
		 "by lane 0: lane 1 of the same warp wrote it (PTX line");
	/* A lane's own, one instruction's stores, accesses of an order. */
	runs("mul.wide.u32 %d1, %lane, 4;\nadd.s64 %d2, %out, %d1;\n"
	     "st.global.u32 [%d2], %lane;\nld.global.u32 %r4, [%d2];\n"
	     "st.global.u32 [%d2], %r4;\nst.global.u32 [%out+1024], %lane;\n"
	     "st.relaxed.gpu.global.u32 [%out+512], %lane;\n"
	     "ld.relaxed.gpu.global.u32 %r4, [%out+512];\n" COUNTED);
	/* A copy has read its source when its bytes are written. */
	runs(HERE INIT("1") "@!%p1 bra L;\n" LOAD "L: " WAIT
			    "mad.wide.u32 %d1, %lane, 4, %in;\n"
			    "st.global.u32 [%d1], %lane;\n" COUNTED);
}

/* ---- lanes.h by itself -------------------------------------------------- */

static bool race(const struct emu_lanes *l, uint32_t lane, uint32_t other,
		 uint32_t instruction)
{
	struct emu_lane_pair p;

	return emu_lanes_race(l, 1u << lane, 1u << other, instruction, &p);
}

static void test_engine(void **state)
{
	static struct emu_lanes l;
	struct emu_lane_pair p;

	assert_true(race(&l, 0, 1, 1));
	assert_false(race(&l, 1, 1, 1));
	/* All that live: accesses of an exited lane are also seen. */
	emu_lanes_sync(&l, 0x7FFFFFFF, 0x7FFFFFFF, 5);
	assert_false(race(&l, 0, 31, 4));
	assert_true(race(&l, 0, 31, 5));
	assert_true(emu_lanes_race(&l, 3, 1u << 7 | 2, 5, &p));
	assert_int_equal(p.lane, 0);
	assert_int_equal(p.other, 1);
	/* A part of them: what 2 has seen is passed on to 4, and to no other lane. */
	emu_lanes_sync(&l, 6, UINT32_MAX, 9);
	emu_lanes_sync(&l, 20, UINT32_MAX, 12);
	assert_false(race(&l, 1, 2, 8));
	assert_true(race(&l, 1, 2, 9));
	assert_false(race(&l, 4, 1, 8));
	assert_true(race(&l, 4, 1, 9));
	assert_true(race(&l, 1, 4, 8));
	/* 4 releases what it has seen; 8 acquires it, then all do. */
	emu_lanes_release(&l, 16, 15);
	emu_lanes_acquire(&l, 256, UINT32_MAX);
	assert_false(race(&l, 8, 4, 14));
	assert_false(race(&l, 8, 1, 8));
	assert_true(race(&l, 8, 1, 9));
	assert_true(race(&l, 9, 4, 14));
	emu_lanes_acquire(&l, UINT32_MAX, UINT32_MAX);
	assert_false(race(&l, 9, 4, 14));
	assert_true(race(&l, 9, 4, 15));
	assert_int_equal(l.least, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_engine),     cmocka_unit_test(test_nothing),
	    cmocka_unit_test(test_meetings),   cmocka_unit_test(test_split_barrier),
	    cmocka_unit_test(test_masks),      cmocka_unit_test(test_only_together),
	    cmocka_unit_test(test_same_lane),  cmocka_unit_test(test_branches),
	    cmocka_unit_test(test_mbarriers),  cmocka_unit_test(test_flags),
	    cmocka_unit_test(test_atomics),    cmocka_unit_test(test_copies_of_lanes),
	    cmocka_unit_test(test_bulk_loads), cmocka_unit_test(test_bulk_stores),
	    cmocka_unit_test(test_matrices),   cmocka_unit_test(test_two_warps),
	    cmocka_unit_test(test_global),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
