/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_faults.c - faults of kernels: each program breaks one rule, and the report
 * names the kernel, CTA, warp, line and rule.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define WHERE "k, cluster 0, CTA (0,0,0), warp"

static void check(const char *body, const char *first, const char *second)
{
	uint32_t in[32] = {0}, out[32];
	struct emu_job job = {.in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .block = 64,
			      .shared_bytes = 1024,
			      .budget = 2000000};

	emu_must_fail(body, &job, first, second, NULL);
}

static void test_memory(void **state)
{
	check("ld.global.u32 %r1, [%in+128];\n", WHERE " 0, lane 0, PTX line 20",
	      "these bytes are not allocated");
	check("st.global.u32 [%in+-4], %r1;\n", WHERE, "these bytes are not allocated");
	check("ld.global.u32 %r1, [%in+2];\n", WHERE, "not a multiple of the size");
	check("ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%in+120];\n", WHERE,
	      "not a multiple of the size");
	check("ld.global.u32 %r1, [%out];\n", WHERE, "never written");
	check("mov.u64 %d1, 0;\nld.u32 %r1, [%d1];\n", "PTX line 21",
	      "these bytes are not allocated");
	check("mov.u64 %d1, 0x7fffffffffff0000;\nld.u32 %r1, [%d1];\n", WHERE,
	      "these bytes are not allocated");
	check("ld.shared.u32 %r1, [dynamic];\n", WHERE, "never written");
	check("ld.shared.u32 %r1, [dynamic+1024];\n", WHERE,
	      "these bytes are not allocated");
	check("mov.u32 %r1, 16;\nst.shared.u32 [%r1], %r1;\n", WHERE,
	      "these bytes are not allocated");
	check("mov.u32 %r1, 0x1000400;\nst.shared::cluster.u32 [%r1], %r1;\n", WHERE,
	      "these bytes are not allocated");
	check("mov.u32 %r1, dynamic;\n"
	      "mapa.shared::cluster.u32 %r2, %r1, 1;\n"
	      "ld.shared::cluster.u32 %r3, [%r2];\n",
	      "CTA rank 1 of a cluster of 1", "these bytes are not allocated");
	check("mov.u32 %r1, dynamic;\n"
	      "mapa.shared::cluster.u32 %r2, %r1, 4096;\n"
	      "ld.shared::cluster.u32 %r3, [%r2];\n",
	      "CTA rank 255 of a cluster of 1", "these bytes are not allocated");
	check("ld.param.u32 %r1, [in+16];\n", WHERE, "these bytes are not allocated");
	check("trap;\n", WHERE, "the kernel has executed trap");
}

static void test_convergence(void **state)
{
	check("setp.lt.u32 %p1, %lane, 9;\n@%p1 bra A;\nbar.sync 0;\n"
	      "bra.uni B;\nA: bar.sync 0;\nB:\n",
	      "PTX line", "it needs lanes ffffffff together");
	check("setp.lt.u32 %p1, %lane, 9;\n@%p1 bar.sync 0;\n", "bar",
	      "it needs all of the warp");
	check("setp.lt.u32 %p1, %lane, 9;\n"
	      "@%p1 shfl.sync.idx.b32 %r1, %lane, 0, 31, -1;\n",
	      "shfl", "do not participate");
	check("shfl.sync.idx.b32 %r1, %lane, 0, 31, 1;\n", "shfl",
	      "not in its own mask");
	check("setp.lt.u32 %p1, %lane, 9;\n@%p1 bra.uni E;\nE:\n", "bra",
	      "only lanes 000001ff");
	check("bar.sync 16;\n", "bar", "barriers are 0 to 15");
	check("bar.sync 1, 33;\n", "bar", "a multiple of 32");
	check("bar.sync 1, 96;\n", "bar", "no more than the CTA has");
	check("barrier.cluster.wait.acquire.aligned;\n", "barrier.cluster",
	      "without an arrive");
	check("barrier.cluster.arrive.release.aligned;\n"
	      "barrier.cluster.arrive.release.aligned;\n",
	      "barrier.cluster", "without a wait");
	check("setmaxnreg.dec.sync.aligned.u32 256;\n", "setmaxnreg", "wants fewer");
}

static void test_mbarriers(void **state)
{
	static const char *init = "setp.eq.u32 %p1, %tid, 0;\n"
				  "mov.u32 %r1, dynamic;\nmov.u32 %r2, 2;\n"
				  "@%p1 mbarrier.init.shared::cta.b64 [%r1], "
				  "%r2;\nbar.sync 0;\n";
	char text[2048];

	check("mov.u32 %r1, dynamic;\n"
	      "mbarrier.arrive.shared::cta.b64 _, [%r1];\n",
	      "mbarrier.arrive", "no mbarrier was initialised at offset 1024");
	snprintf(text, sizeof(text), "%sld.shared.u32 %%r3, [%%r1];\n", init);
	check(text, "ld", "these bytes belong to a live mbarrier");
	snprintf(text, sizeof(text),
		 "%s@%%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r1], "
		 "64;\n"
		 "L: mbarrier.try_wait.parity.shared::cta.b64 %%p2, [%%r1], 0;\n"
		 "@!%%p2 bra L;\n",
		 init);
	check(text, "deadlock",
	      "\n  cluster 0, CTA (0,0,0), warps 0-1 wait at the mbarrier at offset "
	      "1024 for parity 0");
	snprintf(text, sizeof(text),
		 "%s@%%p1 bra E;\nbar.sync 1;\nE: bar.sync 2, 64;\n", init);
	check(text, "PTX line", "it needs");
	check("setp.lt.u32 %p1, %tid, 32;\n@%p1 bra A;\nbar.sync 1, 64;\nA:\n",
	      "deadlock", "warp 1 waits at barrier 1 (32 of 64 threads)");
	check("setp.lt.u32 %p1, %tid, 32;\n@%p1 bra A;\nbar.sync 1, 64;\nA:\n",
	      "deadlock", "\n  cluster 0, CTA (0,0,0), warp 0 has ended");
	check("mov.u32 %r1, dynamic;\nmov.u32 %r2, 1;\n"
	      "setp.eq.u32 %p1, %tid, 0;\n"
	      "@%p1 mbarrier.init.shared::cta.b64 [%r1], %r2;\nbar.sync 0;\n"
	      "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
	      "bytes [%r1+16], [%in], 24, [%r1];\n",
	      "cp.async.bulk", "all must be multiples of 16");
}

static void test_copies(void **state)
{
	static const char *seeds[] = {"mov.u32 %r1, dynamic;\n"
				      "cp.async.ca.shared.global [%r1], [%in], "
				      "16;\nld.shared.u32 %r2, [%r1];\n"};
	uint32_t in[32] = {0}, found = 0;

	/* Whether the bytes have arrived or not, no warp has waited for them. */
	for (uint64_t seed = 0; seed < 40; seed++) {
		struct emu_error err = {{0}};
		struct emu_job job = {.ptx = emu_module_text(seeds[0]),
				      .in = in,
				      .in_bytes = sizeof(in),
				      .block = 1,
				      .shared_bytes = 64,
				      .seed = seed};

		if (!emu_run_job(&job, &err)) {
			assert_non_null(strstr(err.text, "waited for"));
			found++;
		}
	}
	assert_int_equal(found, 40);
	check("mov.u32 %r1, dynamic;\n"
	      "cp.async.ca.shared.global [%r1], [%in], 4, 5;\n",
	      "cp.async", "src-size is 5 and cp-size 4");
	check("mov.u32 %r1, dynamic;\n"
	      "cp.async.ca.shared.global [%r1], [%in+2], 4;\n",
	      "cp.async", "not a multiple of 4");
}

static void test_endless(void **state)
{
	check("L: bra L;\n", "k: it has not ended after 2000000 thread",
	      "\n  cluster 0, CTA (0,0,0), warp 0 is at PTX line ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_memory),    cmocka_unit_test(test_convergence),
	    cmocka_unit_test(test_mbarriers), cmocka_unit_test(test_copies),
	    cmocka_unit_test(test_endless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
