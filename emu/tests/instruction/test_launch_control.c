/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_launch_control.c - clusterlaunchcontrol (clusters that take over the work of
 * others do all of it once), and registers of 128 bits.
 */
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define TARGET "sm_100a"

/*
 * Each CTA counts its own number.  Thread 0 of the cluster's first CTA requests
 * more, and all CTAs count those, until none is left.  out: how often each number
 * was counted, and how many CTAs ran.
 */
#define BEGIN                                                                          \
	".shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar;\n"               \
	".reg .b128 %q; mov.u32 %r1, %ctaid.x; mov.u32 %r2, 0;\n"                      \
	"setp.ne.u32 %p1, %tid, 0; mov.u32 %r9, %cluster_ctarank;\n"                   \
	"setp.ne.u32 %p4, %r9, 0; or.pred %p5, %p1, %p4;\n"                            \
	"@!%p1 mbarrier.init.shared::cta.b64 [bar], 1;\n"                              \
	"@!%p1 red.global.add.u32 [%out+1024], 1;\n"                                   \
	"fence.mbarrier_init.release.cluster;\n"                                       \
	"barrier.cluster.arrive.release.aligned;\n"                                    \
	"barrier.cluster.wait.acquire.aligned;\n"                                      \
	"N: mul.wide.u32 %d1, %r1, 4; add.s64 %d1, %d1, %out;\n"                       \
	"@!%p1 red.global.add.u32 [%d1], 1;\n"                                         \
	"@!%p1 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, "              \
	"[bar], 16;\n"
#define ASK                                                                            \
	"@!%p5 clusterlaunchcontrol.try_cancel.async.shared::cta"                      \
	".mbarrier::complete_tx::bytes.multicast::cluster::all.b128 "                  \
	"[answer], [bar];\n"
#define TAKE                                                                           \
	"W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, "            \
	"[bar], %r2;\n@!%p2 bra W;\nxor.b32 %r2, %r2, 1;\n"                            \
	"ld.shared.b128 %q, [answer];\n"                                               \
	"clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q;\n"           \
	"@!%p3 bra E;\n"                                                               \
	"clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 "               \
	"{%r1, %r4, %r5, _}, %q;\n"                                                    \
	"clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 "               \
	"%r6, %q;\nmin.u32 %r1, %r1, %r6; add.u32 %r1, %r1, %r9;\n"
#define AGAIN                                                                          \
	"fence.proxy.async.shared::cta;\n"                                             \
	"barrier.cluster.arrive.release.aligned;\n"                                    \
	"barrier.cluster.wait.acquire.aligned;\nbra N;\nE:\n"

static void run(uint32_t cluster, uint64_t seed)
{
	uint32_t out[257] = {0};
	struct emu_job job = {.target = TARGET,
			      .out = out,
			      .out_bytes = sizeof(out),
			      .keeps_out = true,
			      .grid = 48 * cluster,
			      .cluster = cluster,
			      .block = 64,
			      .seed = seed};

	emu_must_run(BEGIN ASK TAKE AGAIN, &job);
	for (uint32_t i = 0; i < 48 * cluster; i++)
		assert_int_equal(out[i], 1);
	/* Clusters that ran have taken over some of the others. */
	assert_in_range(out[256], cluster, 47 * cluster);
}

static void test_work(void **state)
{
	for (uint64_t seed = 0; seed < 12; seed++)
		for (uint32_t cluster = 1; cluster <= 4; cluster *= 2)
			run(cluster, seed);
}

static void bad(const char *body, uint64_t seed, const char *why)
{
	uint32_t out[257] = {0};
	struct emu_job job = {.target = TARGET,
			      .out = out,
			      .out_bytes = sizeof(out),
			      .keeps_out = true,
			      .grid = 48,
			      .block = 64,
			      .seed = seed};

	emu_must_fail(body, &job, why, NULL);
}

static void test_faults(void **state)
{
	for (uint64_t seed = 0; seed < 3; seed++) {
		/* The answer is not waited for. */
		bad(BEGIN ASK "bar.sync 0;\nld.shared.b128 %q, [answer];\n"
			      "E:\n",
		    seed, "shared memory");
		/* The answer is overwritten while others still read it. */
		bad(BEGIN ASK TAKE "bra N;\nE:\n", seed, "shared memory offset");
		bad(BEGIN TAKE AGAIN, seed, "deadlock");
	}
	/* No ctaid in a negative answer. */
	bad(".shared .align 16 .b8 answer[16]; .reg .b128 %q;\n"
	    "mov.b64 %d1, 0; mov.b128 %q, {%d1, %d1};\n"
	    "clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 "
	    "%r1, %q;\n",
	    0, "no cluster was canceled");
	bad(".shared .align 16 .b8 answer[32]; .shared .align 8 .b64 bar;\n"
	    "clusterlaunchcontrol.try_cancel.async.shared::cta"
	    ".mbarrier::complete_tx::bytes.b128 [answer+8], [bar];\n",
	    0, "the bytes aligned");
	bad("clusterlaunchcontrol.query_cancel.is_canceled.b32.b128 %r1, "
	    "%d1;\n",
	    0, ".is_canceled.pred.b128");
	bad(".reg .b128 %q; mov.b128 %q, {%r1, %r2};\n", 0, "has 32 bits, not 64");
	bad(".reg .b128 %q; ld.shared.b64 %q, [dynamic];\n", 0, "has 128 bits, not 64");
	bad(".reg .b128 %q; add.u64 %q, %d1, %d2;\n", 0, "has 128 bits, not 64");
}

static void test_registers(void **state)
{
	uint64_t in[64], out[64];
	struct emu_job job = {
	    .in = in, .in_bytes = sizeof(in), .out = out, .out_bytes = sizeof(out)};

	for (int i = 0; i < 64; i++)
		in[i] = emu_test_random_64();
	emu_must_run(".reg .b128 %q<3>; .reg .b64 %a, %b;\n"
		     "mul.wide.u32 %d1, %lane, 16; add.s64 %d2, %d1, %in;\n"
		     "add.s64 %d3, %d1, %out; ld.global.b128 %q0, [%d2];\n"
		     "mov.b128 %q1, %q0; mov.b128 {%a, %b}, %q1;\n"
		     "mov.b128 %q2, {%b, %a}; mov.b128 {%a, %b}, %q2;\n"
		     "st.global.b64 [%d3], %a; st.global.b64 [%d3+8], %b;\n",
		     &job);
	for (int i = 0; i < 64; i++)
		assert_int_equal(out[i], in[i ^ 1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_work),
	    cmocka_unit_test(test_faults),
	    cmocka_unit_test(test_registers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
