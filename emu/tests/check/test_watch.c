/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_watch.c - order in shared memory, from PTX to the report.  Programs run on
 * every schedule without a report.  When one line is left out or weakened, they are
 * reported on every schedule, whatever the values.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define SEEDS	   20
#define MOST_LINES 40

struct program {
	uint32_t block, cluster;
	const char *lines[MOST_LINES];
};

/* The text, with line `skipped` (1, 2 ...; 0: none) replaced by `instead`. */
static const char *text_of(const struct program *p, int skipped, const char *instead)
{
	static char text[8192];
	size_t used = 0;

	for (int i = 0; i < MOST_LINES && p->lines[i]; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\n",
					 i + 1 == skipped ? instead : p->lines[i]);
	return text;
}

static struct emu_job job_of(const struct program *p, uint64_t seed)
{
	static const uint8_t in[512];
	static uint8_t out[512];

	return (struct emu_job){
	    .in = in,
	    .in_bytes = sizeof(in),
	    .out = out,
	    .out_bytes = sizeof(out),
	    .block = p->block,
	    .grid = p->cluster ? p->cluster : 1,
	    .cluster = p->cluster,
	    .shared_bytes = 4096,
	    .seed = seed,
	    .budget = 2000000,
	};
}

static void runs(const struct program *p)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = job_of(p, seed);

		emu_must_run(text_of(p, 0, ""), &job);
	}
}

/* text has one of the words between bars: "a|b". */
static bool says(const char *text, const char *words)
{
	char word[200];

	for (; *words; words += strspn(words, "|")) {
		const size_t length = strcspn(words, "|");

		snprintf(word, sizeof(word), "%.*s", (int)length, words);
		if (strstr(text, word))
			return true;
		words += length;
	}
	return false;
}

/*
 * The line that begins with `line` is replaced: the report says one of rules,
 * which may depend on who comes first.
 */
static void refused(const struct program *p, const char *line, const char *instead,
		    const char *rules)
{
	int number = 0;

	while (p->lines[number] && strncmp(p->lines[number], line, strlen(line)) != 0)
		number++;
	assert_non_null(p->lines[number]);
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct emu_job job = job_of(p, seed);
		struct emu_error err = {{0}};
		const char *text = text_of(p, number + 1, instead);

		job.ptx = emu_module_text(text);
		if (emu_run_job(&job, &err))
			fail_msg("seed %d: it ran:\n%s", (int)seed, text);
		if (!says(err.text, rules))
			fail_msg("seed %d: '%s' is not in: %s", (int)seed, rules,
				 err.text);
	}
}

static void threads(void **state)
{
	static const struct program p = {
	    64,
	    0,
	    {"mov.u32 %r1, dynamic;", "shl.b32 %r2, %tid, 2;", "add.u32 %r2, %r1, %r2;",
	     "st.shared.u32 [%r2], %tid;", "bar.sync 0;", "xor.b32 %r3, %tid, 32;",
	     "shl.b32 %r3, %r3, 2;", "add.u32 %r3, %r1, %r3;",
	     "ld.shared.u32 %r4, [%r3];", "barrier.sync 1, 64;",
	     "st.shared.u32 [%r2], %r4;"}};

	runs(&p);
	refused(&p, "bar.sync 0", "", "wrote it|never written|reads it");
	refused(&p, "barrier.sync 1", "", "reads it|wrote it");
}

#define INIT                                                                           \
	"mov.u32 %r1, dynamic;", "setp.eq.u32 %p1, %tid, 0;", "mov.u32 %r2, 1;",       \
	    "@%p1 mbarrier.init.shared::cta.b64 [%r1], %r2;", "bar.sync 0;"

static void bulk_loads(void **state)
{
	static const struct program p = {
	    64,
	    0,
	    {INIT, "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;",
	     "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
	     "bytes [%r1+128], [%in], 256, [%r1];",
	     "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;",
	     "@!%p2 bra L;", "shl.b32 %r3, %tid, 2;", "add.u32 %r3, %r1, %r3;",
	     "ld.shared.u32 %r4, [%r3+128];"}};

	runs(&p);
	refused(&p, "bar.sync", "", "mbarrier.init|no mbarrier was");
	refused(&p, "L: ", "setp.eq.u32 %p2, 0, 0;\nL:",
		"waited for|never written|going to write");
	refused(&p, "L: ", "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 1;",
		"waited for|never written|going to write");
	refused(&p, "L: ",
		"L: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p2, "
		"[%r1], 0;",
		"has not waited for the end of that phase");
}

static void bulk_stores(void **state)
{
	static const struct program p = {
	    64,
	    0,
	    {"mov.u32 %r1, dynamic;", "shl.b32 %r2, %tid, 2;", "add.u32 %r2, %r1, %r2;",
	     "st.shared.u32 [%r2], %tid;", "fence.proxy.async.shared::cta;",
	     "bar.sync 0;", "setp.eq.u32 %p1, %tid, 0;",
	     "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], "
	     "256;",
	     "@%p1 cp.async.bulk.commit_group;",
	     "@%p1 cp.async.bulk.wait_group.read 0;", "bar.sync 1;",
	     "st.shared.u32 [%r2], %tid;", "@%p1 cp.async.bulk.wait_group 0;"}};

	runs(&p);
	refused(&p, "fence.proxy", "", "there was no fence.proxy.async");
	refused(&p, "bar.sync 0", "", "wrote it|reads it");
	refused(&p, "@%p1 cp.async.bulk.wait_group.read", "",
		"a bulk store of warp 0 of CTA rank 0 reads it");
	refused(&p, "bar.sync 1", "",
		"a bulk store of warp 0|reads it by a bulk store|wrote it");
}

static void copies_of_threads(void **state)
{
	static const struct program p = {
	    64,
	    0,
	    {"mov.u32 %r1, dynamic;", "shl.b32 %r2, %tid, 2;", "add.u32 %r3, %r1, %r2;",
	     "cvt.u64.u32 %d1, %r2;", "add.u64 %d1, %in, %d1;",
	     "cp.async.ca.shared.global [%r3], [%d1], 4;", "cp.async.commit_group;",
	     "cp.async.wait_group 0;", "bar.sync 0;", "xor.b32 %r4, %r2, 128;",
	     "add.u32 %r4, %r1, %r4;", "ld.shared.u32 %r5, [%r4];"}};

	runs(&p);
	refused(&p, "cp.async.wait_group", "", "a cp.async of|asynchronous copy");
	refused(&p, "cp.async.wait_group", "cp.async.wait_group 1;",
		"a cp.async of|asynchronous copy");
	refused(&p, "bar.sync", "", "a cp.async of|never written|asynchronous copy");
}

static void copies_that_arrive(void **state)
{
	static const struct program p = {
	    64,
	    0,
	    {"mov.u32 %r1, dynamic;", "setp.eq.u32 %p1, %tid, 0;", "mov.u32 %r2, 64;",
	     "@%p1 mbarrier.init.shared::cta.b64 [%r1], %r2;", "bar.sync 0;",
	     "shl.b32 %r2, %tid, 2;", "add.u32 %r3, %r1, %r2;", "cvt.u64.u32 %d1, %r2;",
	     "add.u64 %d1, %in, %d1;", "cp.async.ca.shared.global [%r3+128], [%d1], 4;",
	     "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];",
	     "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;",
	     "@!%p2 bra L;", "xor.b32 %r4, %r2, 128;", "add.u32 %r4, %r1, %r4;",
	     "ld.shared.u32 %r5, [%r4+128];"}};

	runs(&p);
	refused(&p, "L: ", "setp.eq.u32 %p2, 0, 0;\nL:",
		"waited for|never written|going to write");
}

/* CTA 0 stores into CTA 1 and arrives at its barrier. */
static void clusters(void **state)
{
	static const struct program p = {
	    32,
	    2,
	    {INIT, "barrier.cluster.arrive.release.aligned;",
	     "barrier.cluster.wait.acquire.aligned;", "mov.u32 %r3, %cluster_ctarank;",
	     "setp.ne.u32 %p3, %r3, 0;", "@%p3 bra W;",
	     "mapa.shared::cluster.u32 %r4, %r1, 1;",
	     "@%p1 st.shared::cluster.u32 [%r4+128], %r3;",
	     "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, "
	     "[%r4];",
	     "bra E;", "W:",
	     "L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, "
	     "[%r1], 0;",
	     "@!%p2 bra L;", "ld.shared.u32 %r5, [%r1+128];",
	     "E:", "barrier.cluster.arrive.release.aligned;",
	     "barrier.cluster.wait.acquire.aligned;"}};

	runs(&p);
	refused(&p, "@%p1 mbarrier.arrive.release.cluster",
		"@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4];",
		"warp 0 of CTA rank 0 wrote it");
	refused(&p, "L: ", "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;",
		"warp 0 of CTA rank 0 wrote it");
	refused(&p, "barrier.cluster.arrive.release",
		"barrier.cluster.arrive.relaxed.aligned;", "mbarrier.init");
}

/*
 * A relaxed arrival after a fence, and a fence after a relaxed wait, within a
 * CTA and from another one.
 */
static void fences_and_relaxed_arrivals(void **state)
{
	static const struct program p = {
	    64,
	    2,
	    {INIT,
	     "barrier.cluster.arrive.release.aligned;",
	     "barrier.cluster.wait.acquire.aligned;",
	     "mov.u32 %r3, %cluster_ctarank;",
	     "mov.u32 %r5, TO;",
	     "mapa.shared::cluster.u32 %r4, %r1, %r5;",
	     "setp.eq.u32 %p3, %warp, 1;",
	     "@%p3 bra W;",
	     "setp.ne.u32 %p4, %r3, 0;",
	     "@%p4 bra E;",
	     "@%p1 st.shared::cluster.u32 [%r4+128], %r3;",
	     "fence.acq_rel.cluster;",
	     "@%p1 mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, "
	     "[%r4];",
	     "bra E;",
	     "W: setp.ne.u32 %p4, %r3, %r5;",
	     "@%p4 bra E;",
	     "L: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p2, "
	     "[%r1], 0;",
	     "@!%p2 bra L;",
	     "fence.acquire.cluster;",
	     "ld.shared.u32 %r6, [%r1+128];",
	     "E:",
	     "barrier.cluster.arrive.release.aligned;",
	     "barrier.cluster.wait.acquire.aligned;"}};
	static const char *const ranks[] = {"mov.u32 %r5, 0;", "mov.u32 %r5, 1;"};

	for (int to = 0; to < 2; to++) {
		struct program q = p;
		int at = 0;

		while (!strstr(q.lines[at], "TO"))
			at++;
		q.lines[at] = ranks[to];
		runs(&q);
		refused(&q, "fence.acq_rel", "", "wrote it");
		refused(&q, "fence.acq_rel", "fence.acquire.cluster;", "wrote it");
		refused(&q, "fence.acquire", "", "wrote it");
		refused(&q, "fence.acquire", "fence.release.cluster;", "wrote it");
		if (to == 1)
			refused(&q, "fence.acq_rel", "fence.acq_rel.cta;", "wrote it");
	}
}

/* A relaxed barrier after a fence that makes the init visible. */
static void fences_of_init(void **state)
{
	static const char *const fences[] = {
	    "fence.mbarrier_init.release.cluster;",
	    "fence.release.sync_restrict::shared::cta.cluster;",
	    "fence.acquire.sync_restrict::shared::cluster.cluster;",
	};
	struct program p = {
	    32,
	    2,
	    {INIT, "", "barrier.cluster.arrive.relaxed.aligned;",
	     "barrier.cluster.wait.acquire.aligned;", "mov.u32 %r3, %cluster_ctarank;",
	     "mapa.shared::cluster.u32 %r4, %r1, 1;", "setp.ne.u32 %p3, %r3, 0;",
	     "@%p3 bra E;",
	     "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, "
	     "[%r4];",
	     "E:", "barrier.cluster.arrive.release.aligned;",
	     "barrier.cluster.wait.acquire.aligned;"}};
	int at = 0;

	while (p.lines[at][0])
		at++;
	for (int i = 0; i < 3; i++) {
		p.lines[at] = fences[i];
		if (i < 2)
			runs(&p);
		else
			refused(&p, fences[i], fences[i], "mbarrier.init");
	}
}

/* b: eight rows of 16 k, zeros, without swizzle. */
static void operands_of_wgmma(void **state)
{
	static const struct program p = {
	    128,
	    0,
	    {"mov.u32 %r1, dynamic;", "shl.b32 %r2, %tid, 2;", "add.u32 %r2, %r1, %r2;",
	     "mov.u32 %r3, 0;", "setp.lt.u32 %p1, %tid, 64;",
	     "@%p1 st.shared.u32 [%r2], %r3;", "fence.proxy.async;", "bar.sync 0;",
	     "shr.u32 %r4, %r1, 4;", "cvt.u64.u32 %d1, %r4;",
	     "or.b64 %d1, %d1, 0x800080000;", "setp.ne.u32 %p2, 0, 0;",
	     "wgmma.fence.sync.aligned;",
	     "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
	     "{%f0, %f1, %f2, %f3}, {%r3, %r3, %r3, %r3}, %d1, %p2, 1, 1, 0;",
	     "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
	     "bar.sync 1;", "@%p1 st.shared.u32 [%r2], %r3;",
	     "wgmma.wait_group.sync.aligned 0;"}};

	runs(&p);
	refused(&p, "fence.proxy", "", "there was no fence.proxy.async");
	refused(&p, "bar.sync 0", "", "wrote it|reads it");
	refused(&p, "wgmma.wait_group", "", "a wgmma of warp ");
	refused(&p, "bar.sync 1", "", "a wgmma of warp |wrote it");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(threads),
	    cmocka_unit_test(bulk_loads),
	    cmocka_unit_test(bulk_stores),
	    cmocka_unit_test(copies_of_threads),
	    cmocka_unit_test(copies_that_arrive),
	    cmocka_unit_test(clusters),
	    cmocka_unit_test(fences_of_init),
	    cmocka_unit_test(fences_and_relaxed_arrivals),
	    cmocka_unit_test(operands_of_wgmma),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
