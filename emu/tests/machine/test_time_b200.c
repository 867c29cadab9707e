/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_time_b200.c - predicted time on a B200: its table is complete and is used, and
 * each instruction of tcgen05 has the cost that the sources of the table give.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tcgen05.h"
#include "common/unit.h"
#include "machine/time.h"

#define GHZ 1.85

#define MMA                                                                            \
	"@%one tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 "           \
	"[%r3], %d2, %d3, %r8, [%r11], [%r12], %p3;\n"
#define MMA_PAIR                                                                       \
	"@%one tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16 "           \
	"[%r3], %d2, %d3, %r8, [%r11], [%r12], %p3;\n"
#define MMA_F16                                                                        \
	"@%one tcgen05.mma.cta_group::1.kind::f16 [%r3], %d2, %d3, %r8, "              \
	"%p3;\n"
#define MMA_TMEM                                                                       \
	"@%one tcgen05.mma.cta_group::1.kind::f16 [%r3], [%r11], %d3, %r8, "           \
	"%p3;\n"
#define COPY	  "@%one tcgen05.cp.cta_group::1.32x128b.warpx4 [%r11], %d6;\n"
#define COPY_PAIR "@%one tcgen05.cp.cta_group::2.32x128b.warpx4 [%r11], %d6;\n"
#define COPY_2	  "@%one tcgen05.cp.cta_group::1.64x128b.warpx2::02_13 [%r11], %d6;\n"
#define COMMIT(group)                                                                  \
	"@%one tcgen05.commit.cta_group::" group                                       \
	".mbarrier::arrive::one.shared::cluster.b64 [bar];\n"                          \
	"@!%one bra V;\n"                                                              \
	"W: mbarrier.try_wait.parity.shared::cta.b64 %p5, [bar], 0;\n"                 \
	"@!%p5 bra W;\nV:\n"
#define STORE "tcgen05.st.sync.aligned.32x32b.x16.b32 "
#define SIXTEEN                                                                        \
	"{%%x0,%%x1,%%x2,%%x3,%%x4,%%x5,%%x6,%%x7,%%x8,%%x9,%%x10,%%x11,"              \
	"%%x12,%%x13,%%x14,%%x15}"

/* Instruction descriptors: mxf4nvf4's, and kind::f16's with bf16 operands. */
static uint32_t shape_fp4(uint32_t m, uint32_t n)
{
	return 1u << 7 | 1u << 10 | n / 8 << 17 | m / 128 << 27;
}

static uint32_t shape_f16(uint32_t m, uint32_t n)
{
	return 1u << 4 | 1u << 7 | 1u << 10 | n / 8 << 17 | m / 16 << 24;
}

static struct input *in;
static uint32_t out[128];

static int setup(void **state)
{
	in = calloc(2, sizeof(*in));
	return in ? 0 : -1;
}

static int teardown(void **state)
{
	free(in);
	return 0;
}

/* A program, `many` times `step`, then `end`: its cycles. */
static double cycles_of(int ctas, uint32_t shape, const char *step, uint32_t many,
			const char *end)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(emu_device_find("b200"), &err);
	struct emu_job job = emu_tcgen05_job(ctas);
	double ns;

	assert_non_null(t);
	job.in = in;
	job.in_bytes = 2 * sizeof(*in);
	job.out = out;
	job.out_bytes = sizeof(out);
	job.time = t;
	emu_text[0] = 0;
	emu_bring(ctas);
	emu_append("mov.u32 %%r10, dynamic; shr.u32 %%r10, %%r10, 4;\n"
		   "cvt.u64.u32 %%d4, %%r10; add.s64 %%d2, %%d4, 0x%llx;\n"
		   "add.s64 %%d3, %%d2, 0x%x; mov.u32 %%r8, 0x%x;\n"
		   "add.s64 %%d6, %%d4, 0x400800000000;\n"
		   "add.u32 %%r11, %%r3, 256; add.u32 %%r12, %%r3, 260;\n"
		   "mov.pred %%p3, 0;\n",
		   6ull << 61 | 1ull << 46 | 16ull << 32, IMAGE / 2 / 16, shape);
	for (uint32_t k = 0; k < many; k++)
		emu_add(step);
	emu_append("%s"
		   "barrier.cluster.arrive.release.aligned;\n"
		   "barrier.cluster.wait.acquire.aligned;\n@%%w bra Z;\n"
		   "tcgen05.dealloc.cta_group::%d.sync.aligned.b32 %%r3, 512;\n"
		   "Z:\n",
		   end, ctas);
	emu_must_run(emu_text, &job);
	ns = emu_time_ns(t);
	emu_time_close(t);
	return ns * GHZ;
}

/* The cost of each of many steps, in cycles. */
static double each_of(int ctas, uint32_t shape, const char *step, const char *end)
{
	return (cycles_of(ctas, shape, step, 40, end) -
		cycles_of(ctas, shape, step, 20, end)) /
	       20;
}

static void assert_near(double value, double wanted, double by)
{
	if (value < wanted - by || value > wanted + by)
		fail_msg("%.2f, and not %.2f", value, wanted);
}

/* ---- the table ----------------------------------------------------------- */

struct line {
	const char *name, *source;
	double value;
	char sure;
};

#define EMU_TIME(name, value, unit, sure, source) {#name, source, value, #sure[0]},
static const struct line b200[] = {
#include "machine/time_b200.def"
};
static const struct line h200[] = {
#include "machine/time_h200.def"
};
#undef EMU_TIME

/* An assumption names, after a semicolon, what would replace it. */
static void test_each_line_has_a_source(void **state)
{
	for (size_t k = 0; k < sizeof(b200) / sizeof(*b200); k++) {
		const struct line *l = &b200[k];
		const bool has_replacement = strchr(l->source, ';') != NULL;
		const bool has_mark = strchr(l->source, '[') || has_replacement;

		/* An assumption may be that something takes no time. */
		if (!(l->value > 0 || (l->sure == 'C' && l->value == 0)) ||
		    !(l->sure == 'C'   ? has_replacement
		      : l->sure == 'A' ? strchr(l->source, '[') != NULL
				       : has_mark))
			fail_msg("%s: %g, sure %c, \"%s\"", l->name, l->value, l->sure,
				 l->source);
	}
}

static void test_all_names_are_there(void **state)
{
	for (size_t k = 0; k < sizeof(h200) / sizeof(*h200); k++) {
		size_t i = 0;

		while (i < sizeof(b200) / sizeof(*b200) &&
		       strcmp(b200[i].name, h200[k].name) != 0)
			i++;
		if (i == sizeof(b200) / sizeof(*b200))
			fail_msg("%s has no line of a B200", h200[k].name);
	}
}

/* A kernel of one warp, without the common start of the others. */
static double cycles_of_little(const char *body)
{
	struct emu_error err = {{0}};
	struct emu_time *t = emu_time_open(emu_device_find("b200"), &err);
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .in = in,
			      .in_bytes = sizeof(*in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .keeps_out = true,
			      .grid = 1,
			      .block = 32,
			      .time = t};
	double ns;

	assert_non_null(t);
	emu_must_run(body, &job);
	ns = emu_time_ns(t);
	emu_time_close(t);
	return ns * GHZ;
}

/* An empty kernel is its launch and parameters; an H200's launch is 768 ns. */
static void test_the_table_is_used(void **state)
{
	assert_near(cycles_of_little("") / GHZ, 560 + 130, 60);
}

/* ---- tcgen05 ------------------------------------------------------------- */

/* Cycles from one to the next: the larger of the times for columns and bytes. */
static void test_multiplications(void **state)
{
	static const struct {
		const char *step;
		int ctas;
		uint32_t shape;
		double cycles;
	} cases[] = {
	    {MMA, 1, 0, 48},	  {MMA, 1, 1, 64},	{MMA, 1, 2, 128},
	    {MMA_PAIR, 2, 0, 43}, {MMA_PAIR, 2, 1, 64}, {MMA_PAIR, 2, 2, 128},
	};

	for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++)
		assert_near(each_of(cases[k].ctas,
				    shape_fp4(128u * (uint32_t)cases[k].ctas,
					      64u << cases[k].shape),
				    cases[k].step,
				    cases[k].ctas == 2 ? COMMIT("2") : COMMIT("1")),
			    cases[k].cycles, 0.5);
	/* Other kinds are as fast: 32 bytes of a row. */
	assert_near(each_of(1, shape_f16(128, 64), MMA_F16, COMMIT("1")), 48, 0.5);
	assert_near(each_of(1, shape_f16(64, 64), MMA_F16, COMMIT("1")), 32, 0.5);
	assert_near(each_of(1, shape_f16(128, 64), MMA_TMEM, COMMIT("1")), 32, 0.5);
}

/* Issue, commit and wait, apart from some cycles of the instructions around them. */
static void test_one_multiplication(void **state)
{
	const double none = cycles_of(1, shape_fp4(128, 128), "", 0, "");
	const double of_128 = cycles_of(1, shape_fp4(128, 128), MMA, 1, COMMIT("1"));
	const double of_256 = cycles_of(1, shape_fp4(128, 256), MMA, 1, COMMIT("1"));
	const double of_pair =
	    cycles_of(2, shape_fp4(256, 128), MMA_PAIR, 1, COMMIT("2")) -
	    cycles_of(2, shape_fp4(256, 128), "", 0, "");

	assert_near(of_128 - none, 137 + 64, 30);
	assert_near(of_256 - of_128, 64, 1);
	assert_near(of_pair - (of_128 - none), 173 - 137, 10);
}

static void test_copies(void **state)
{
	const uint32_t shape = shape_fp4(128, 256);

	assert_near(each_of(1, shape, COPY, COMMIT("1")), 18.3, 0.2);
	assert_near(each_of(2, shape_fp4(256, 256), COPY_PAIR, COMMIT("2")), 18.3, 0.2);
	assert_near(each_of(1, shape, COPY_2, COMMIT("1")), 20.3, 0.2);
	/* During multiplications of 128 cycles they cost nothing. */
	assert_near(each_of(1, shape, COPY MMA, COMMIT("1")), 128, 2);
}

/* So many loads of 16 columns, each to its own registers, and their wait. */
static double cycles_of_loads(uint32_t many, const char *column)
{
	static char text[EMU_TEXT_BYTES / 2];
	size_t used = 0;

	used += (size_t)sprintf(text, ".reg .b32 %%y<%u>;\n", 16 * many);
	for (uint32_t k = 0; k < many; k++) {
		used += (size_t)sprintf(text + used,
					"tcgen05.ld.sync.aligned.32x32b.x16.b32 {");
		for (uint32_t r = 0; r < 16; r++)
			used += (size_t)sprintf(text + used, "%s%%y%u", r ? "," : "",
						16 * k + r);
		used += (size_t)sprintf(text + used, "}, [%%r7%s];\n", column);
	}
	(void)sprintf(text + used, "tcgen05.wait::ld.sync.aligned;\n");
	return cycles_of(1, 0, "", 0, text);
}

static double cycles_of_stores(uint32_t many)
{
	static char text[4096];
	size_t used = 0;

	for (uint32_t k = 0; k < many; k++)
		used += (size_t)sprintf(text + used, STORE "[%%r7+%u], " SIXTEEN ";\n",
					16 * k);
	(void)sprintf(text + used, "tcgen05.wait::st.sync.aligned;\n");
	return cycles_of(1, 0, "", 0, text);
}

/* 256 bytes a cycle for each 32 lanes; an odd first column costs a cycle. */
static void test_loads_and_stores(void **state)
{
	const double none = cycles_of(1, 0, "", 0, "");
	const double one = cycles_of_loads(1, "");

	assert_near(one - none, 24.5, 6);
	assert_near(cycles_of_loads(33, "") - one, 32 * 8, 2);
	assert_near(cycles_of_loads(33, "+1") - cycles_of_loads(1, "+1"), 32 * 9, 2);
	assert_near(cycles_of_stores(12) - cycles_of_stores(4), 8 * 8, 2);
	assert_near(cycles_of_stores(1) - none, 8 + 13, 6);
}

/* Cycles that a thread takes to issue this many multiplications of 128 cycles. */
static double cycles_to_issue(uint32_t many)
{
	static char step[EMU_TEXT_BYTES / 2];

	strcpy(step, "@%one mov.u64 %d1, %clock64;\n");
	for (uint32_t k = 0; k < many; k++)
		strcat(step, MMA);
	strcat(step, "@%one mov.u64 %d5, %clock64;\n"
		     "@%one sub.u64 %d5, %d5, %d1;\n"
		     "@%one st.global.u32 [%out], %d5;\n");
	(void)cycles_of(1, shape_fp4(128, 256), step, 1, COMMIT("1"));
	return out[0];
}

/* It stalls while the queue of its quarter, six of them, is full. */
static void test_queue(void **state)
{
	assert_near(cycles_to_issue(4), 3 * 7, 20);
	assert_near(cycles_to_issue(30) - cycles_to_issue(20), 10 * 128, 10);
	assert_near(cycles_to_issue(30), 23 * 128, 30);
}

/* Each takes 253 cycles. */
static void test_allocation(void **state)
{
	assert_near(
	    cycles_of_little(".shared .align 4 .b32 base;\n"
			     "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta"
			     ".b32 [base], 32;\nld.shared.b32 %r1, [base];\n"
			     "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, "
			     "32;\n") -
		cycles_of_little(""),
	    2 * 253, 60);
}

/* The answer of a try_cancel comes after its latency. */
static void test_launch_control(void **state)
{
	const char *ask =
	    "mov.u32 %r14, dynamic;\n"
	    "@%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;\n"
	    "@%one clusterlaunchcontrol.try_cancel.async.shared::cta"
	    ".mbarrier::complete_tx::bytes.b128 [%r14], [bar];\n"
	    "W: mbarrier.try_wait.parity.shared::cta.b64 %p5, [bar], 0;\n"
	    "@!%p5 bra W;\n";

	assert_near(cycles_of(1, 0, "", 0, ask) - cycles_of(1, 0, "", 0, ""), 600, 120);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_each_line_has_a_source),
	    cmocka_unit_test(test_all_names_are_there),
	    cmocka_unit_test(test_the_table_is_used),
	    cmocka_unit_test(test_multiplications),
	    cmocka_unit_test(test_one_multiplication),
	    cmocka_unit_test(test_copies),
	    cmocka_unit_test(test_loads_and_stores),
	    cmocka_unit_test(test_queue),
	    cmocka_unit_test(test_allocation),
	    cmocka_unit_test(test_launch_control),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
