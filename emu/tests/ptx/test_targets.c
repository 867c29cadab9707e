/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_targets.c - the .target that each instruction needs, and each word of it: what
 * ptxas 13.0 accepts is accepted, and what it refuses is refused by name.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "ptx/target.h"

static const char *const targets[] = {"sm_80",	"sm_86",  "sm_89",  "sm_90",
				      "sm_90a", "sm_100", "sm_100a"};

/* Y: ptxas 13.0 accepted the statement in a module of this target. */
static const struct {
	const char *accepted, *statement;
} cases[] = {
    {"...YYYY", "mul.bf16 %h1, %h2, %h3"},
    {"...YYYY", "mul.bf16x2 %r1, %r2, %r3"},
    {"...YYYY", "mul.rn.bf16x2 %r1, %r2, %r3"},
    {"...YYYY", "add.bf16 %h1, %h2, %h3"},
    {"...YYYY", "add.rn.bf16x2 %r1, %r2, %r3"},
    {"...YYYY", "sub.bf16x2 %r1, %r2, %r3"},
    {"YYYYYYY", "fma.rn.bf16 %h1, %h2, %h3, %h4"},
    {"YYYYYYY", "fma.rn.bf16x2 %r1, %r2, %r3, %r4"},
    {".....YY", "fma.rn.f32x2 %d1, %d2, %d3, %d4"},
    {".....YY", "add.rn.f32x2 %d1, %d2, %d3"},
    {".....YY", "mul.rn.f32x2 %d1, %d2, %d3"},
    {"YYYYYYY", "min.bf16x2 %r1, %r2, %r3"},
    {"YYYYYYY", "min.NaN.f32 %f1, %f2, %f3"},
    {".YYYYYY", "max.xorsign.abs.f32 %f1, %f2, %f3"},
    {"YYYYYYY", "abs.bf16 %h1, %h2"},
    {"YYYYYYY", "neg.bf16x2 %r1, %r2"},
    {"YYYYYYY", "ex2.approx.f16x2 %r1, %r2"},
    {"...YYYY", "tanh.approx.bf16x2 %r1, %r2"},
    {"YYYYYYY", "tanh.approx.f16 %h1, %h2"},
    {"YYYYYYY", "tanh.approx.f32 %f1, %f2"},
    {"...YYYY", "setp.lt.bf16 %p1, %h2, %h3"},
    {"YYYYYYY", "setp.lt.f16 %p1, %h2, %h3"},
    {"...YYYY", "set.lt.u32.bf16 %r1, %h2, %h3"},
    {"...YYYY", "set.lt.bf16.bf16 %h1, %h2, %h3"},
    {"YYYYYYY", "cvt.rn.bf16x2.f32 %r1, %f1, %f2"},
    {"YYYYYYY", "cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2"},
    {"YYYYYYY", "cvt.rn.bf16.f32 %h1, %f1"},
    {"YYYYYYY", "cvt.rz.bf16.f32 %h1, %f1"},
    {"YYYYYYY", "cvt.rn.f16x2.f32 %r1, %f1, %f2"},
    {"YYYYYYY", "cvt.rn.relu.f16x2.f32 %r1, %f1, %f2"},
    {"YYYYYYY", "cvt.rn.satfinite.relu.f16x2.f32 %r1, %f1, %f2"},
    {"YYYYYYY", "cvt.rn.satfinite.f16.f32 %h1, %f1"},
    {"YYYYYYY", "cvt.f32.bf16 %f1, %h1"},
    {"...YYYY", "cvt.f64.bf16 %g1, %h1"},
    {"...YYYY", "cvt.rn.bf16.s32 %h1, %r1"},
    {"...YYYY", "cvt.rn.bf16.f16 %h1, %h2"},
    {"...YYYY", "cvt.rn.f16.bf16 %h1, %h2"},
    {"...YYYY", "cvt.rzi.s32.bf16 %r1, %h1"},
    {"YYYYYYY", "cvt.rna.tf32.f32 %r1, %f1"},
    {"...YYYY", "cvt.rn.tf32.f32 %r1, %f1"},
    {"...YYYY", "cvt.rz.tf32.f32 %r1, %f1"},
    {"YYYYYYY", "cvt.rna.satfinite.tf32.f32 %r1, %f1"},
    {".....YY", "cvt.rn.satfinite.tf32.f32 %r1, %f1"},
    {"..YYYYY", "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2"},
    {"..YYYYY", "cvt.rn.satfinite.e5m2x2.f32 %h1, %f1, %f2"},
    {"..YYYYY", "cvt.rn.satfinite.e4m3x2.f16x2 %h1, %r1"},
    {"..YYYYY", "cvt.rn.f16x2.e4m3x2 %r1, %h1"},
    {"..YYYYY", "cvt.rn.relu.f16x2.e5m2x2 %r1, %h1"},
    {"......Y", "{.reg .b8 a; cvt.rn.satfinite.e2m1x2.f32 a, %f1, %f2;}"},
    {"......Y", "cvt.rp.satfinite.ue8m0x2.f32 %h1, %f1, %f2"},
    {"...YYYY", "mapa.shared::cluster.u32 %r1, %r2, %r3"},
    {"...YYYY", "isspacep.shared::cluster %p1, %d1"},
    {"YYYYYYY", "isspacep.shared::cta %p1, %d1"},
    {"YYYYYYY", "isspacep.param %p1, %d1"},
    {"YYYYYYY", "ld.shared::cta.u32 %r1, [%r2]"},
    {"...YYYY", "ld.shared::cluster.u32 %r1, [%r2]"},
    {"YYYYYYY", "ld.param::entry.u64 %d1, [in]"},
    {"...YYYY", "ld.relaxed.cluster.global.u32 %r1, [%d1]"},
    {"YYYYYYY", "ld.acquire.gpu.global.u32 %r1, [%d1]"},
    {"YYYYYYY", "ld.global.L1::no_allocate.u32 %r1, [%d1]"},
    {"YYYYYYY",
     "ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%r1, %r2, %r3, %r4}, [%d1]"},
    {"YYYYYYY", "ld.global.L2::cache_hint.u32 %r1, [%d1], %d2"},
    {".....YY", "ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1]"},
    {".....YY", "ld.global.v4.b64 {%d2, %d3, %d4, %d5}, [%d1]"},
    {"YYYYYYY", "st.global.L1::no_allocate.u32 [%d1], %r1"},
    {"YYYYYYY", "st.global.L2::cache_hint.u32 [%d1], %r1, %d2"},
    {".....YY", "st.global.v8.b32 [%d1], {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}"},
    {"...YYYY", "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], "
		"%r2, [%r3]"},
    {".....YY", "st.bulk.weak.shared::cta [%r1], %d1, 0"},
    {"...YYYY", "atom.global.add.noftz.bf16 %h1, [%d1], %h2"},
    {"...YYYY", "atom.global.add.noftz.bf16x2 %r1, [%d1], %r2"},
    {"YYYYYYY", "atom.global.add.noftz.f16x2 %r1, [%d1], %r2"},
    {"...YYYY", "atom.global.v2.f32.add {%f1, %f2}, [%d1], {%f3, %f4}"},
    {"...YYYY", "atom.global.add.v2.f32 {%f1, %f2}, [%d1], {%f3, %f4}"},
    {"...YYYY", "atom.relaxed.cluster.global.add.u32 %r1, [%d1], %r2"},
    {"...YYYY", "atom.shared::cluster.add.u32 %r1, [%r3], %r2"},
    {"YYYYYYY", "atom.global.L2::cache_hint.add.u32 %r1, [%d1], %r2, %d2"},
    {"...YYYY", "red.global.add.noftz.bf16x2 [%d1], %r2"},
    {"...YYYY", "red.global.add.v4.f32 [%d1], {%f1, %f2, %f3, %f4}"},
    {"...YYYY", "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
		".add.u32 [%r1], %r2, [%r3]"},
    {"YYYYYYY", "prefetch.global.L2::evict_last [%d1]"},
    {"YYYYYYY", "prefetch.global.L2 [%d1]"},
    {"...YYYY", "prefetch.tensormap [%d1]"},
    {"YYYYYYY", "applypriority.global.L2::evict_normal [%d1], 128"},
    {"...YYYY", "cp.async.bulk.prefetch.L2.global [%d1], %r1"},
    {"YYYYYYY", "createpolicy.fractional.L2::evict_first.b64 %d1, 1.0"},
    {"YYYYYYY", "createpolicy.range.global.L2::evict_last.b64 %d1, [%d2], %r1, %r2"},
    {"...YYYY", "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r2, %r3, %r4, %r5}"},
    {"YYYYYYY", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1]"},
    {"YYYYYYY",
     "ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%r2, %r3, %r4, %r5}, [%r1]"},
    {"YYYYYYY", "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1"},
    {"YYYYYYY", "match.sync.any.b32 %r1, %r2, -1"},
    {"YYYYYYY", "match.sync.all.b32 %r1|%p1, %r2, -1"},
    {"YYYYYYY", "redux.sync.add.u32 %r1, %r2, -1"},
    {"......Y", "redux.sync.max.f32 %f1, %f2, -1"},
    {"......Y", "redux.sync.min.abs.NaN.f32 %f1, %f2, -1"},
    {"...YYYY", "max.u16x2 %r1, %r2, %r3"},
    {"...YYYY", "add.s16x2 %r1, %r2, %r3"},
    {"YYYYYYY", "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2"},
    {"...YYYY", "elect.sync %r1|%p1, -1"},
    {"YYYYYYY", "activemask.b32 %r1"},
    {"...YYYY", "barrier.cluster.arrive.aligned"},
    {"...YYYY", "barrier.cluster.wait.acquire.aligned"},
    {"....Y.Y", "setmaxnreg.inc.sync.aligned.u32 80"},
    {"...YYYY", "griddepcontrol.wait"},
    {"...YYYY", "griddepcontrol.launch_dependents"},
    {"YYYYYYY", "mbarrier.init.shared::cta.b64 [%r1], 1"},
    {"YYYYYYY", "mbarrier.init.shared.b64 [%r1], 1"},
    {"YYYYYYY", "mbarrier.inval.shared.b64 [%r1]"},
    {"YYYYYYY", "mbarrier.arrive.shared.b64 %d1, [%r1]"},
    {"...YYYY", "mbarrier.arrive.shared.b64 %d1, [%r1], 2"},
    {"YYYYYYY", "mbarrier.arrive.shared::cta.b64 _, [%r1]"},
    {"...YYYY", "mbarrier.arrive.shared::cluster.b64 _, [%r1]"},
    {"YYYYYYY", "mbarrier.arrive.release.cta.shared::cta.b64 %d1, [%r1]"},
    {"...YYYY", "mbarrier.arrive.relaxed.cta.shared::cta.b64 %d1, [%r1]"},
    {"...YYYY", "mbarrier.arrive.release.cluster.shared::cta.b64 %d1, [%r1]"},
    {"...YYYY", "mbarrier.arrive.expect_tx.shared.b64 %d1, [%r1], 16"},
    {"...YYYY", "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 16"},
    {"...YYYY", "mbarrier.complete_tx.relaxed.cta.shared.b64 [%r1], 16"},
    {"...YYYY", "mbarrier.try_wait.shared.b64 %p1, [%r1], %d1"},
    {"...YYYY", "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2"},
    {"YYYYYYY", "mbarrier.test_wait.shared.b64 %p1, [%r1], %d1"},
    {"YYYYYYY", "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2"},
    {"YYYYYYY", "mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [%r1], %d1"},
    {"...YYYY", "mbarrier.test_wait.acquire.cluster.shared::cta.b64 %p1, [%r1], %d1"},
    {"YYYYYYY", "cp.async.ca.shared.global [%r1], [%d1], 4"},
    {"YYYYYYY", "cp.async.cg.shared::cta.global.L2::256B [%r1], [%d1], 16"},
    {"YYYYYYY", "cp.async.cg.shared.global.L2::cache_hint [%r1], [%d1], 16, %d2"},
    {"YYYYYYY", "cp.async.commit_group"},
    {"YYYYYYY", "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1]"},
    {"YYYYYYY", "cp.async.mbarrier.arrive.shared::cta.b64 [%r1]"},
    {"...YYYY",
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
     "[%d1], %r2, [%r3]"},
    {"...YYYY", "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], %r2"},
    {"...YYYY", "cp.async.bulk.commit_group"},
    {"...YYYY", "cp.async.bulk.wait_group 0"},
    {"...YYYY",
     "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r1], "
     "%r2"},
    {"...YYYY", "fence.proxy.async"},
    {"...YYYY", "fence.proxy.async.shared::cta"},
    {"...YYYY", "fence.mbarrier_init.release.cluster"},
    {"YYYYYYY", "fence.acq_rel.gpu"},
    {"YYYYYYY", "fence.sc.gpu"},
    {"...YYYY", "fence.acq_rel.cluster"},
    {"...YYYY", "fence.acquire.sync_restrict::shared::cluster.cluster"},
    {"YYYYYYY", "fence.release.gpu"},
    {"YYYYYYY", "fence.acquire.gpu"},
    {"...YYYY", "fence.proxy.tensormap::generic.release.gpu"},
    {"YYYYYYY", "membar.gl"},
    {"YYYYYYY", "nanosleep.u32 10"},
    {"YYYYYYY",
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, "
     "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}"},
    {"YYYYYYY",
     "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, "
     "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}"},
    {"..YYYYY",
     "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, %f4}, "
     "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}"},
    {"..YYYYY",
     "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%r11, %r12}, {%r1, "
     "%r2, %r3, %r4}, {%r5, %r6}, {%r11, %r12}"},
    {"..YYYYY",
     "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32 {%f1, %f2, %f3, %f4}, "
     "{%r1, %r2}, {%r5}, {%f1, %f2, %f3, %f4}"},
    {"YYYYYYY",
     "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r11, %r12, %r13, %r14}, "
     "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r11, %r12, %r13, %r14}"},
    {"YYYYYYY",
     "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r11, %r12, %r13, %r14}, "
     "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r11, %r12, %r13, %r14}"},
    {"YYYYYYY",
     "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%r11, %r12, "
     "%r13, %r14}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r11, %r12, %r13, %r14}"},
    {"YYYYYYY",
     "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%g1, %g2}, {%g3}, {%g4}, "
     "{%g1, %g2}"},
    {"...YYYY",
     "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%g1, %g2, %g3, %g4}, "
     "{%g5, %g6}, {%g7}, {%g1, %g2, %g3, %g4}"},
    {"...YYYY",
     "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%g1, %g2, %g3, %g4}, "
     "{%g5, %g6, %g7, %g8}, {%g7, %g8}, {%g1, %g2, %g3, %g4}"},
    {"...YYYY", "mov.u32 %r1, %cluster_ctarank"},
    {"...YYYY", "mov.u32 %r1, %clusterid.x"},
    {"...YYYY", "mov.u32 %r1, %nclusterid.x"},
    {"YYYYYYY", "mov.u32 %r1, %total_smem_size"},
    {"YYYYYYY", "copysign.f32 %f1, %f2, %f3"},
    {"YYYYYYY", "szext.wrap.u32 %r1, %r2, %r3"},
    {"YYYYYYY", "bmsk.clamp.b32 %r1, %r2, %r3"},
    {"YYYYYYY", "barrier.cta.red.popc.aligned.u32 %r1, 0, %p1"},
    {"....Y.Y", "tensormap.replace.tile.rank.global.b1024.b32 [%d1], 2"},
    {"...YYYY",
     "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu"
     ".sync.aligned [%d1], [%r1], 128"},
};

static void check(const char *target, const char *statement, bool is_accepted)
{
	const size_t name = strcspn(statement, " ");
	struct emu_error err = {{0}};
	char body[512];
	struct emu_module *m;

	snprintf(body, sizeof(body), "%s;\n", statement);
	m = emu_module_read(emu_module_text_for(target, body), NULL, NULL, &err);
	if (is_accepted != (m != NULL))
		fail_msg("%s, %s: %s", target, statement, m ? "accepted" : err.text);
	if (m) {
		emu_module_free(m);
		return;
	}
	if (*statement != '{' && !memmem(err.text, strlen(err.text), statement, name))
		fail_msg("%s, %s is not named: %s", target, statement, err.text);
	if (!strstr(err.text, "needs .target sm_") || !strstr(err.text, target))
		fail_msg("%s, %s: without the target: %s", target, statement, err.text);
}

static void test_statements(void **state)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (size_t t = 0; t < sizeof(targets) / sizeof(*targets); t++)
			check(targets[t], cases[i].statement,
			      cases[i].accepted[t] == 'Y');
}

static void test_directives(void **state)
{
	static const char *const directives[] = {
	    ".reqnctapercluster 2, 1, 1", ".maxclusterrank 4", ".explicitcluster"};

	for (int i = 0; i < 3; i++)
		for (int is_new = 0; is_new < 2; is_new++) {
			struct emu_error err = {{0}};
			struct emu_module *m;
			char text[200];

			snprintf(text, sizeof(text),
				 ".version 9.0\n.target %s\n.address_size 64\n"
				 ".entry k() %s { ret; }\n",
				 is_new ? "sm_90" : "sm_89", directives[i]);
			m = emu_module_read(text, NULL, NULL, &err);
			assert_int_equal(m != NULL, is_new);
			if (m)
				emu_module_free(m);
			else
				assert_non_null(strstr(err.text, "sm_90 or later"));
		}
}

static void test_needs(void **state)
{
	char need[8], text[64];

	assert_true(emu_target_of_word("bf16:80 shared::cluster:90", "shared::cluster",
				       15, need));
	assert_string_equal(need, "90");
	assert_false(
	    emu_target_of_word("bf16:80 shared::cluster:90", "shared", 6, need));
	assert_false(emu_target_of_word(NULL, "bf16", 4, need));
	assert_false(emu_target_has(NULL, "80"));
	assert_false(emu_target_has("compute_80", "80"));
	assert_true(emu_target_has("sm_100f", "100f"));
	assert_false(emu_target_has("sm_103a", "100f"));
	assert_true(emu_target_has("sm_120f", "100+"));
	emu_target_describe("100+", text, sizeof(text));
	assert_string_equal(text, "sm_100a or a later one with a or f");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_statements),
	    cmocka_unit_test(test_directives),
	    cmocka_unit_test(test_needs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
