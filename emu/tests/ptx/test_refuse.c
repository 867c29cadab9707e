/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_refuse.c - text that is no PTX, or PTX that the software GPU does not support,
 * gives an error that names the line, instruction and rule, and never a crash.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "instruction/binds.h"
#include "instruction/opcodes.h"

static void check_text(const char *text, const char *first, const char *second)
{
	struct emu_error err = {{0}};
	struct emu_module *m = emu_module_read(text, NULL, NULL, &err);

	if (m)
		fail_msg("it was taken: %s", text);
	if (!strstr(err.text, first) || !strstr(err.text, second))
		fail_msg("'%s', '%s' are not both in: %s", first, second, err.text);
}

/* The body's first line is line 20 of its module. */
static void check_body(const char *body, const char *why)
{
	check_text(emu_module_text(body), "PTX line 20: ", why);
}

static void test_instructions(void **state)
{
	check_body("frobnicate.u32 %r1, %r2;\n", "opcode is not known here");
	check_body("add.foo.u32 %r1, %r2, %r3;\n", ".foo is not known here");
	check_body("add.f16x3 %r1, %r2, %r3;\n", ".f16x3 is not known here");
	check_body("add.u32 %r1, %r2;\n", "2 arguments: it takes 3 to 3");
	check_body("add.u32 %d1, %r2, %r3;\n", "has 64 bits, not 32");
	check_body("add.u32 %p1, %r2, %r3;\n", "it is a predicate");
	check_body("add.u32 %r64, %r2, %r3;\n", "%r64 is not declared");
	check_body("add.u32 %r01, %r2, %r3;\n", "%r01 is not declared");
	check_body("add.u32 5, %r2, %r3;\n", "a result that is no register");
	check_body("add.u32 %r1, %r2, x;\n", "x is declared nowhere");
	check_body("add.f32 %f1, %f2, 5;\n", "an integer where a float");
	check_body("@%r1 add.u32 %r1, %r2, %r3;\n", "@ wants a predicate");
	check_body("fence.acq_rel.sync_restrict::shared::cta.cluster;\n",
		   ".sync_restrict needs .release");
	check_body("fence.release.sync_restrict::shared::cta.gpu;\n",
		   ".sync_restrict needs .release");
	check_body("add .foo .u32 %r1, %r2, %r3;\n", ".foo is not known here");
	check_body("add .u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32"
		   ".u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32"
		   ".u32.u32.u32.u32.u32.u32.u32.u32.u32.u32.u32 .u32 %r1;\n",
		   "an opcode of over 160 letters");
	check_body("bra NOWHERE;\n", "NOWHERE is not in sight");
	check_body("{ L: } bra L;\n", "L is not in sight");
	check_body("L: L: add.u32 %r1, %r2, %r3;\n", "a second label");
	check_body("mov.u32 %r1, %clock_of_doom;\n", "no special register");
	check_body("ld.global.v4.u32 {%r1, %r2}, [%d3];\n", "2 registers for 4");
	check_body("ld.global.u32 %r1, %d3;\n", "[address] is missing");
	check_body("st.param.u32 [%d1], %r1;\n", "nothing is stored there");
	check_body("cvt.f16.f32 %h1, %f1;\n", "a rounding is missing");
	check_body("cvt.u32.f32 %r1, %f1;\n", ".rni, .rzi");
	check_body("setp.num.u32 %p1, %r1, %r2;\n", "one comparison");
	check_body("setmaxnreg.inc.sync.aligned.u32 100;\n", "multiple of 8");
	check_body("mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %r2;\n",
		   "has 32 bits, not 64");
	check_body("call foo, bar;\n", "'bar' instead of '('");
	check_body("add.u32 %r1, %r2, %r3", "instead of ',' or ';'");
	check_body(".reg .b32 %z<99999999>;\n", "registers in a kernel");
	check_body(".reg .foo %z;\n", "no type of registers");
	check_body(".maxnreg 3;\n", "is not known here");
	check_body(".shared .align 3 .b8 x[4];\n", "not a power of two");
	check_body(".shared .b8 x[9999999];\n", "2^20 bytes");
	check_body("createpolicy.cvt.b64 %d1, %d2;\n", ".L2 is missing");
	check_body("mov.u32 %r1, \"text\";\n", "instead of a number");
}

static void test_matrix_instructions(void **state)
{
	check_body("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f1}, "
		   "%d1, %d2, %p1, 1, 1, 0, 0;\n",
		   "must be m64nNk16 with N 8 to 256 by 8");
	check_body("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {%f1}, "
		   "%d1, %d2, %p1, 1, 1, 0, 0;\n",
		   "A and B of one family");
	check_body("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.u8 {%r1}, "
		   "%d1, %d2, %p1;\n",
		   "by 16");
	check_body("wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 "
		   "{%f1}, %d1, %d2, %p1, 1, 1, 0, 0;\n",
		   "D must be .f32");
	check_body("wgmma.mma_async.sync.aligned.m64n8k32.satfinite.f32.e4m3."
		   "e4m3 {%f1, %f2, %f3, %f4}, %d1, %d2, %p1, 1, 1;\n",
		   ".satfinite is for");
	check_body("tcgen06.alloc.cta_group::1 [%r1], 32;\n",
		   "opcode is not known here");
}

static void test_modules(void **state)
{
	static const char *head = ".version 9.0\n.target sm_90a\n"
				  ".address_size 64\n";
	char text[4096];

	check_text("", "PTX line 1", "the text ends");
	check_text("\177ELF", "PTX line 1", "instead of .version");
	check_text(".version 6.5\n", "PTX line 1", "7.0 and later are known");
	check_text(".version 9.0\n.address_size 32\n", "PTX line 2", "is 64");
	check_text(".version 9.0\n.func f() {\n", "PTX line 3",
		   "before the end of the function");
	snprintf(text, sizeof(text), "%s.entry k(.param .b8 x[40000]) { ret; }", head);
	check_text(text, "PTX line 4", "32764 bytes");
	snprintf(text, sizeof(text), "%s.entry k() { ret;", head);
	check_text(text, "PTX line 4", "ends inside a kernel");
	snprintf(text, sizeof(text), "%s.global .u32 x[2] = {1, 2, 3};", head);
	check_text(text, "PTX line 4", "more initial values");
	snprintf(text, sizeof(text), "%s.extern .global .u32 x;", head);
	check_text(text, "PTX line 4", "other modules");
	snprintf(text, sizeof(text), "%s.entry k()\n{\n", head);
	for (int i = 0; i < 40; i++)
		strcat(text, "{");
	check_text(text, "PTX line 6", "nested over");
}

/* An entry that cannot run does not keep the others from running. */
static void test_one_entry(void **state)
{
	const char *text = ".version 9.0\n.target sm_90a\n.address_size 64\n"
			   ".entry bad(.param .u64 x)\n{\n"
			   "{ .reg .b32 %r<2>;\n frobnicate %r1; } ret;\n}\n"
			   ".entry good(.param .u64 in, .param .u64 out)\n"
			   "{ .reg .b64 %d; .reg .b32 %r;\n"
			   "ld.param.u64 %d, [out]; mov.u32 %r, %laneid;\n"
			   "st.global.u32 [%d], 7; ret; }\n"
			   ".entry worse(.param .texref t) { ret; }\n";
	struct emu_error err = {{0}};
	struct emu_module *m = emu_module_read(text, NULL, NULL, &err);
	struct emu_machine machine = {0};
	struct emu_grid grid = {.machine = &machine};

	assert_non_null(m);
	assert_int_equal(m->n_kernels, 3);
	assert_null(m->kernels[1]->refusal);
	assert_true(m->kernels[1]->count > 0);
	assert_string_equal(m->kernels[0]->refusal,
			    "PTX line 7: frobnicate: this opcode is not known "
			    "here");
	assert_non_null(strstr(m->kernels[2]->refusal, "PTX line 13: "));
	grid.kernel = m->kernels[0];
	assert_false(emu_grid_check(&grid, &err));
	assert_non_null(strstr(err.text, "bad: PTX line 7: frobnicate"));
	emu_module_free(m);
}

/* Cut at every byte, and with bytes replaced: an error or a module. */
static void test_broken(void **state)
{
	const char *whole = emu_module_text(
	    "{ .reg .pred p; .reg .b16 lo, hi;\n"
	    "mov.b32 {lo, hi}, %r1; L: setp.eq.u32 p, %r1, 0f3F800000;\n"
	    "@!p bra L; ld.shared.v2.u32 {%r1, _}, [dynamic+16];\n"
	    ".loc 1 2 3, function_name F, inlined_at 1 2 3\n"
	    "shfl.sync.up.b32 %r3|%p2, %r1, 2, 0, -1; }\n");
	const size_t length = strlen(whole);
	char *text = malloc(length + 1);

	assert_non_null(text);
	/* Up to that point the text is an empty module. */
	for (size_t i = (size_t)(strstr(whole, ".visible") - whole) + 1; i + 2 < length;
	     i++) {
		struct emu_error err = {{0}};

		memcpy(text, whole, length + 1);
		text[i] = '\0';
		if (emu_module_read(text, NULL, NULL, &err))
			fail_msg("%zu of %zu bytes were taken", i, length);
		assert_true(err.text[0] != '\0');
	}
	for (int i = 0; i < 4000; i++) {
		struct emu_error err = {{0}};
		struct emu_module *m;

		memcpy(text, whole, length + 1);
		for (int k = 0; k < 1 + i % 3; k++)
			text[emu_test_random() % length] =
			    (char)(1 + emu_test_random() % 255);
		m = emu_module_read(text, NULL, NULL, &err);
		assert_true(m || err.text[0]);
		emu_module_free(m);
	}
	free(text);
}

/* Appends a dot and one of the blank-separated words of list, if it has any. */
static void append_word(char *text, const char *list)
{
	size_t n = 0, length;

	for (const char *p = list; *p; p += strspn(p, " "), n++)
		p += strcspn(p, " ");
	if (!n)
		return;
	for (n = emu_test_random() % n; n; n--) {
		list += strcspn(list, " ");
		list += strspn(list, " ");
	}
	length = strcspn(list, " ");
	if (length == 5 && memcmp(list, "shape", 5) == 0)
		strcat(text, ".m64n16k16");
	else
		snprintf(text + strlen(text), length + 2, ".%s", list);
}

/* A statement of the row: some of its words and types, any arguments. */
static void write_statement(char *text, const struct emu_opcode *row)
{
	static const char *const arguments[] = {"%r1",
						"%r2",
						"%d1",
						"%f1",
						"%h1",
						"%p1",
						"7",
						"1.5",
						"[%d1]",
						"[%r1]",
						"[dynamic]",
						"_",
						"{%r1, %r2}",
						"!%p1",
						"[%d1, {%r1, %r2}]",
						"%r1|%p1",
						"%g1",
						"dynamic",
						"{%f1, %f2, %f3, %f4}"};
	const uint32_t words = emu_test_random() % 5;
	const uint32_t types = emu_test_random() % 4;
	const uint32_t count = emu_test_random() % 7;

	strcpy(text, row->name);
	for (uint32_t k = 0; k < words; k++)
		append_word(text, row->modifiers);
	for (uint32_t k = 0; k < types; k++)
		append_word(text, row->types);
	for (uint32_t k = 0; k < count; k++) {
		strcat(text, k ? ", " : " ");
		strcat(text, arguments[emu_test_random() %
				       (sizeof(arguments) / sizeof(*arguments))]);
	}
	strcat(text, ";\n");
}

/* Each row of the table, with words and arguments that it seldom takes: who
 * refuses gives a reason. */
static void test_every_opcode(void **state)
{
	char body[1024];

	for (size_t i = 0; i < emu_opcode_count; i++)
		for (int k = 0; k < 200; k++) {
			struct emu_error err = {{0}};
			struct emu_module *m;

			write_statement(body, &emu_opcodes[i]);
			m = emu_module_read(emu_module_text(body), NULL, NULL, &err);
			if (!m && !err.text[0])
				fail_msg("refused without a word: %s", body);
			emu_module_free(m);
		}
}

/* Launches that no GPU accepts. */
static void test_launches(void **state)
{
	static const struct {
		uint32_t grid, block, cluster, shared;
		const char *why;
	} cases[] = {
	    {1, 1025, 1, 0, "blockDim.x is 1025: 1 to 1024 are allowed"},
	    {3, 32, 2, 0, "gridDim.x is 3, not a multiple of clusterDim.x, 2"},
	    {32, 32, 32, 0, "a cluster of 32"},
	    {1, 32, 1, 227 * 1024 + 1, "bytes of shared memory"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct emu_job job = {.grid = cases[i].grid,
				      .block = cases[i].block,
				      .cluster = cases[i].cluster,
				      .shared_bytes = cases[i].shared};

		emu_must_fail("", &job, "k: ", cases[i].why, NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_instructions),
	    cmocka_unit_test(test_matrix_instructions),
	    cmocka_unit_test(test_modules),
	    cmocka_unit_test(test_one_entry),
	    cmocka_unit_test(test_broken),
	    cmocka_unit_test(test_every_opcode),
	    cmocka_unit_test(test_launches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
