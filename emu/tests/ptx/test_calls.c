/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_calls.c - functions of a module and their calls, .shared variables of the
 * module, and the functions of CUDA's run-time library.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"

#define LANES 32

/* A module: functions, then a kernel k around the body. */
static const char *module_of(const char *functions, const char *body)
{
	static char text[16384];

	snprintf(text, sizeof(text),
		 ".version 9.0\n.target sm_90a\n.address_size 64\n%s"
		 ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
		 ".reg .b32 %%r<9>;\n.reg .b64 %%d<9>;\n.reg .pred %%p<4>;\n"
		 "ld.param.u64 %%d1, [out]; mov.u32 %%r1, %%laneid;\n"
		 "mad.wide.u32 %%d1, %%r1, 4, %%d1;\n%sret;\n}\n",
		 functions, body);
	return text;
}

static void must_give(const char *functions, const char *body,
		      uint32_t (*want)(uint32_t lane))
{
	uint32_t out[LANES];
	struct emu_error err = {{0}};
	struct emu_job job = {
	    .ptx = module_of(functions, body), .out = out, .out_bytes = sizeof(out)};

	if (!emu_run_job(&job, &err))
		fail_msg("%s", err.text);
	for (uint32_t l = 0; l < LANES; l++)
		assert_int_equal(out[l], want(l));
}

static void must_fail(const char *functions, const char *body, const char *why)
{
	struct emu_error err = {{0}};
	struct emu_job job = {.ptx = module_of(functions, body)};

	assert_false(emu_run_job(&job, &err));
	if (!strstr(err.text, why))
		fail_msg("'%s' is not in: %s", why, err.text);
}

#define CALL(lane, name)                                                               \
	"{ .param .b32 param0; st.param.b32 [param0], " lane ";\n"                     \
	".param .b32 retval0;\ncall.uni (retval0), " name ", (param0);\n"              \
	"ld.param.b32 %r2, [retval0]; }\n"

/* outer(x): 100 for x < 7, otherwise 3x + 1 by a call of triple(), so lanes return at
 * different places.  outer() is declared before it is defined. */
static const char functions[] =
    ".func (.param .b32 func_retval0) outer(.param .b32 outer_param_0);\n"
    ".func (.param .b32 func_retval0) triple(.param .b32 triple_param_0)\n"
    "{ .reg .b32 %r<3>;\nld.param.u32 %r1, [triple_param_0];\n"
    "mul.lo.s32 %r2, %r1, 3; st.param.b32 [func_retval0], %r2; ret; }\n"
    ".func (.param .b32 func_retval0) outer(.param .b32 outer_param_0)\n"
    "{ .reg .b32 %r<4>; .reg .pred %p<2>;\n"
    "ld.param.u32 %r1, [outer_param_0]; setp.lt.u32 %p1, %r1, 7;\n"
    "@%p1 bra SMALL;\n" CALL(
	"%r1", "triple") "add.u32 %r3, %r2, 1; st.param.b32 [func_retval0], %r3; ret;\n"
			 "SMALL: st.param.b32 [func_retval0], 100; ret; }\n";

static uint32_t want_outer(uint32_t lane)
{
	return lane < 7 ? 100 : 3 * lane + 1;
}

static uint32_t want_twice(uint32_t lane)
{
	return want_outer(want_outer(lane));
}

static uint32_t want_guarded(uint32_t lane)
{
	return lane % 2 ? want_outer(lane) : 5;
}

static void test_calls(void **state)
{
	must_give(functions, CALL("%r1", "outer") "st.global.u32 [%d1], %r2;\n",
		  want_outer);
	must_give(functions,
		  CALL("%r1", "outer")
		      CALL("%r2", "outer") "st.global.u32 [%d1], %r2;\n",
		  want_twice);
	must_give(functions,
		  "mov.u32 %r2, 5; and.b32 %r3, %r1, 1;\n"
		  "setp.eq.u32 %p1, %r3, 1;\n"
		  "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;\n"
		  "@%p1 call (b), outer, (a);\n"
		  "@%p1 ld.param.b32 %r2, [b]; }\nst.global.u32 [%d1], %r2;\n",
		  want_guarded);
}

static uint32_t want_sum(uint32_t lane)
{
	return 10 * lane + 10;
}

/* A call in a loop, with a structure passed by value. */
static void test_structures(void **state)
{
	must_give(".func add(.param .align 8 .b8 s[16], .param .b64 to)\n"
		  "{ .reg .b32 %r<3>; .reg .b64 %d<4>;\n"
		  "ld.param.v2.b64 {%d1, %d2}, [s]; ld.param.b64 %d3, [to];\n"
		  "cvt.u32.u64 %r1, %d1; ld.global.u32 %r2, [%d3];\n"
		  "add.u32 %r1, %r1, %r2; cvt.u32.u64 %r2, %d2;\n"
		  "add.u32 %r1, %r1, %r2; st.global.u32 [%d3], %r1; }\n",
		  "st.global.u32 [%d1], 0; mov.u32 %r4, 0; cvt.u64.u32 %d2, %r1;\n"
		  "LOOP: { .param .align 8 .b8 p[16]; .param .b64 q;\n"
		  "st.param.b64 [p], %d2; st.param.b64 [p+8], 1;\n"
		  "st.param.b64 [q], %d1; call.uni add, (p, q); }\n"
		  "add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 10;\n"
		  "@%p1 bra LOOP;\n",
		  want_sum);
}

static void test_refused(void **state)
{
	must_fail("", CALL("%r1", "nowhere"), "defines no such function");
	must_fail(".func f() { call f; ret; }\n", "call f;\n", "recursion");
	must_fail(".func f() { ret; }\n", CALL("%r1", "f"),
		  "with 2 parameters of a function with 0");
	must_fail(".func f(.param .b32 x) { ret; }\n", "call f;\n",
		  "with 0 parameters of a function with 1");
	must_fail("", "call %d1;\n", "no function whose address is used");
	must_fail(
	    ".extern .func (.param .b64 r) cudaGetParameterBufferV2(.param .b64 a);\n",
	    "{ .param .b64 r; .param .b64 a;\n"
	    "call (r), cudaGetParameterBufferV2, (a); }\n",
	    "dynamic parallelism is not modelled");
	must_fail(".func f() { .shared .b32 x; ret; }\n", "call f;\n",
		  "static .shared of a function");
	must_fail(".func f(.param .b64 x) { ret; }\n",
		  "{ .param .b32 a; call f, (a); }\n",
		  "has 4 bytes in the call and 8 in the function");
}

/* Each of 16 functions calls the previous one eight times: 8^16 calls of f0(). */
static void test_growth(void **state)
{
	char all[8192] = ".func f0() { ret; }\n";

	for (int i = 1; i <= 16; i++) {
		const size_t used = strlen(all);

		snprintf(all + used, sizeof(all) - used,
			 ".func f%d() { call f%d; call f%d; call f%d; call "
			 "f%d; call f%d; call f%d; call f%d; call f%d; ret; }\n",
			 i, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
	}
	must_fail(all, "call f16;\n", "65536 calls in a module");
}

static uint32_t want_neighbour(uint32_t lane)
{
	return (lane + 1) % LANES;
}

/* Each lane writes a word of a .shared variable and reads the word of the next lane. */
static void test_module_shared(void **state)
{
	must_give(".shared .align 4 .b8 words[128];\n"
		  ".shared .align 4 .b8 unused[40000];\n",
		  "mov.u32 %r2, words; mad.lo.u32 %r3, %r1, 4, %r2;\n"
		  "st.shared.u32 [%r3], %r1; bar.warp.sync -1;\n"
		  "add.u32 %r4, %r1, 1; and.b32 %r4, %r4, 31;\n"
		  "mad.lo.u32 %r3, %r4, 4, %r2; ld.shared.u32 %r5, [%r3];\n"
		  "st.global.u32 [%d1], %r5;\n",
		  want_neighbour);
}

static const char strings[] =
    ".global .align 1 .b8 format[13] = {120, 61, 37, 100, 32, 37, 115, 32, "
    "37, 46, 49, 102, 0};\n"
    ".global .align 1 .b8 word[4] = {97, 62, 98, 0};\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, "
    ".param .b64 d, .param .b64 e);\n";

static void test_library(void **state)
{
	must_fail(
	    strings,
	    "{ .param .b64 a; .param .b64 b; .param .b64 d; .param .b64 e; .param .b32 c;\n"
	    "mov.u64 %d2, word; st.param.b64 [a], %d2;\n"
	    "st.param.b64 [b], %d2; st.param.b32 [c], 42;\n"
	    "st.param.b64 [d], %d2; st.param.b64 [e], 1;\n"
	    "call.uni __assertfail, (a, b, c, d, e); }\n",
	    "a>b:42: a>b: assertion `a>b' failed");
	must_fail(strings,
		  "{ .local .align 8 .b8 list[24]; .param .b64 a; .param .b64 b;\n"
		  ".param .b32 r; st.local.u32 [list], 0xFFFFFFF9;\n"
		  "mov.u64 %d2, word; st.local.u64 [list+8], %d2;\n"
		  "st.local.f64 [list+16], 0d3FF8000000000000;\n"
		  "mov.u64 %d3, list; cvta.local.u64 %d3, %d3;\n"
		  "mov.u64 %d4, format; st.param.b64 [a], %d4;\n"
		  "st.param.b64 [b], %d3; call.uni (r), vprintf, (a, b);\n"
		  "ld.param.b32 %r3, [r]; trap; }\n",
		  "executed trap, as assert() does, after it printed: x=-7 a>b 1.5");
}

/* Variables whose initial values are addresses. */
static const char addresses[] =
    ".func (.param .b32 r) f(.param .b32 a) { st.param.b32 [r], 3; ret; }\n"
    ".global .align 4 .b32 words[4] = {7, 8, 9, 10};\n"
    ".const .align 4 .b32 more[2] = {11, 12};\n"
    ".global .align 8 .u64 list[4] = {generic(words)+8, words, "
    "generic(more)+4, 5};\n"
    ".global .align 8 .u64 back = list+24;\n"
    ".const .align 8 .u64 last = generic(back)-0;\n"
    ".global .align 8 .u64 table[2] = {words, f};\n";

static uint32_t want_addressed(uint32_t lane)
{
	static const uint32_t words[] = {9, 7, 12, 5};

	return words[lane % 4];
}

static void test_addresses(void **state)
{
	/* Lanes 3, 7, ... read list[3], which is 5, through last and back. */
	must_give(addresses,
		  "and.b32 %r2, %r1, 3; mov.u64 %d2, list;\n"
		  "mad.wide.u32 %d2, %r2, 8, %d2; ld.global.u64 %d3, [%d2];\n"
		  "setp.eq.u32 %p1, %r2, 3; ld.const.u64 %d4, [last];\n"
		  "@%p1 ld.u64 %d3, [%d4];\n"
		  "ld.u32 %r3, [%d3]; st.global.u32 [%d1], %r3;\n",
		  want_addressed);
	must_fail(".global .align 4 .b32 a = words;\n", "", "a number");
	must_fail(".shared .align 4 .b32 s[4];\n"
		  ".global .align 8 .u64 a = generic(s);\n",
		  "", "a .global or .const variable");
}

/* The lanes call add, times and, in a table, again times. */
static const char callees[] =
    ".func (.param .b32 r) add(.param .b32 x)\n"
    "{ .reg .b32 %r<3>; ld.param.u32 %r1, [x]; add.u32 %r2, %r1, 100;\n"
    "st.param.b32 [r], %r2; ret; }\n"
    ".func (.param .b32 r) times(.param .b32 x)\n"
    "{ .reg .b32 %r<3>; .reg .pred %p<2>; ld.param.u32 %r1, [x];\n"
    "setp.gt.u32 %p1, %r1, 20; mov.u32 %r2, 7; @%p1 bra END;\n"
    "mul.lo.u32 %r2, %r1, 3;\nEND: st.param.b32 [r], %r2; ret; }\n"
    ".func other(.param .b64 x) { ret; }\n"
    ".global .align 8 .u64 table[3] = {add, times, other};\n";

static uint32_t want_called(uint32_t lane)
{
	const uint32_t times = lane > 20 ? 7 : 3 * lane;

	return lane % 2 ? times : lane + 100;
}

#define CALL_REGISTER                                                                  \
	"ld.global.u64 %d3, [%d2];\n"                                                  \
	"{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;\n"                     \
	"proto : .callprototype (.param .b32 _) _ (.param .b32 _);\n"                  \
	"call (b), %d3, (a), proto; ld.param.b32 %r2, [b]; }\n"                        \
	"st.global.u32 [%d1], %r2;\n"

static void test_registers(void **state)
{
	must_give(callees,
		  "mov.u64 %d2, table; and.b32 %r3, %r1, 1;\n"
		  "mad.wide.u32 %d2, %r3, 8, %d2;\n" CALL_REGISTER,
		  want_called);
	/* The address as an operand, and a function with other parameters. */
	must_give(callees,
		  "mov.u64 %d3, times; mov.u64 %d4, add; and.b32 %r3, %r1, 1;\n"
		  "setp.eq.u32 %p1, %r3, 1; selp.b64 %d3, %d3, %d4, %p1;\n"
		  "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;\n"
		  "call (b), %d3, (a); ld.param.b32 %r2, [b]; }\n"
		  "st.global.u32 [%d1], %r2;\n",
		  want_called);
	must_fail(callees, "mov.u64 %d2, table; add.u64 %d2, %d2, 16;\n" CALL_REGISTER,
		  "no address of a function with these parameters");
	must_fail(".func f(.param .b64 x)\n"
		  "{ .reg .b64 %d<3>; ld.param.u64 %d1, [x];\n"
		  "{ .param .b64 a; st.param.b64 [a], %d1; call %d1, (a); }\nret; }\n",
		  "mov.u64 %d3, f; { .param .b64 a; st.param.b64 [a], %d3;\n"
		  "call f, (a); }\n",
		  "recursion, which is not known here");
}

#define HEAP                                                                           \
	".extern .func (.param .b64 r) malloc(.param .b64 a);\n"                       \
	".extern .func free(.param .b64 a);\n"
#define MALLOC(bytes)                                                                  \
	"{ .param .b64 r; .param .b64 a; st.param.b64 [a], " bytes ";\n"               \
	"call.uni (r), malloc, (a); ld.param.b64 %d2, [r]; }\n"
#define FREE(at) "{ .param .b64 a; st.param.b64 [a], " at "; call.uni free, (a); }\n"

static uint32_t want_kept(uint32_t lane)
{
	return lane + 5;
}

static uint32_t want_none(uint32_t lane)
{
	return 0;
}

/* Memory of each lane: its size, its states, and its end. */
static void test_heap(void **state)
{
	must_give(HEAP,
		  MALLOC("8") "add.u32 %r2, %r1, 5; st.u32 [%d2+4], %r2;\n"
			      "ld.u32 %r3, [%d2+4];\n" FREE("%d2")
				  FREE("0") "st.global.u32 [%d1], %r3;\n",
		  want_kept);
	/* More than the limit of 8 MiB. */
	must_give(HEAP,
		  MALLOC("8388609") "cvt.u32.u64 %r3, %d2; st.global.u32 [%d1], %r3;\n",
		  want_none);
	must_fail(HEAP, MALLOC("8") "ld.u32 %r3, [%d2+4];\n", "never written");
	must_fail(HEAP, MALLOC("8") "st.u32 [%d2+8], %r1;\n",
		  "0 bytes past the end of the allocation of 8 bytes");
	must_fail(HEAP, MALLOC("8") FREE("%d2") "st.u32 [%d2], %r1;\n",
		  "byte 0 of the freed allocation of 8 bytes");
	must_fail(HEAP, MALLOC("8") FREE("%d2") FREE("%d2"), "which is free already");
	must_fail(HEAP, FREE("%d1"), "which malloc of a kernel did not return");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_calls),	  cmocka_unit_test(test_structures),
	    cmocka_unit_test(test_refused),	  cmocka_unit_test(test_growth),
	    cmocka_unit_test(test_module_shared), cmocka_unit_test(test_library),
	    cmocka_unit_test(test_addresses),	  cmocka_unit_test(test_registers),
	    cmocka_unit_test(test_heap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
