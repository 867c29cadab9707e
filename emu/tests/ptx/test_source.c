/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_source.c - the lines of the source that belong to instructions: where functions
 * of CUDA's headers or of a Python package were inlined, the line of the user's call.
 */
#include <stdio.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "instruction/decode.h"
#include "ptx/bind.h"

#define BEGIN                                                                          \
	".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n"      \
	".reg .b32 %r<4>;\n"
#define ADD "add.u32 %r1, %r2, %r3;\n"
/* nvcc writes the files after the code. */
#define END                                                                            \
	"ret;\n}\n.file 1 \"/src/app/kernel.cu\"\n"                                    \
	".file 2 \"/usr/local/cuda/bin/../targets/x86_64-linux/include/"               \
	"device_atomic_functions.hpp\"\n"                                              \
	".file 3 \"/usr/local/cuda/include/cccl/cub/block/block_reduce.cuh\"\n"        \
	".file 4 \"/src/app/include/cuda_helpers.h\"\n"                                \
	".file 5 \"/venv/lib/python3.11/site-packages/warp/native/array.h\"\n"         \
	".file 6 \"/usr/lib/python3/dist-packages/triton/language/standard.py\"\n"     \
	".section .debug_str\n{\n$L__info_string0:\n.b8 0\n}\n"

static const struct {
	const char *locs, *file;
	uint32_t line;
} cases[] = {
    {"", NULL, 0},
    {".loc 1 7 3\n", "/src/app/kernel.cu", 7},
    /* One call of a header's function, and a function of the user's own. */
    {".loc 2 107 3, function_name $L__info_string0, inlined_at 1 14 2\n",
     "/src/app/kernel.cu", 14},
    {".loc 4 30 1, function_name $L__info_string0, inlined_at 1 15 2\n",
     "/src/app/include/cuda_helpers.h", 30},
    /* Two levels of headers; and in a function of the user's. */
    {".loc 3 518 5, function_name $L__info_string0, inlined_at 1 10 3\n" ADD
     ".loc 2 107 3, function_name $L__info_string0+9, inlined_at 3 518 5\n",
     "/src/app/kernel.cu", 10},
    {".loc 4 31 1, function_name $L__info_string0, inlined_at 1 12 2\n" ADD
     ".loc 3 518 5, function_name $L__info_string0, inlined_at 4 31 1\n",
     "/src/app/include/cuda_helpers.h", 31},
    /* The same line of a header, called twice: the newest call. */
    {".loc 3 518 5, function_name $L__info_string0, inlined_at 1 10 3\n" ADD
     ".loc 3 518 5, function_name $L__info_string0, inlined_at 1 11 3\n" ADD
     ".loc 2 107 3, function_name $L__info_string0, inlined_at 3 518 5\n",
     "/src/app/kernel.cu", 11},
    /* A function of a package, in a kernel of the user's and in one of the package. */
    {".loc 5 1192 5, function_name $L__info_string0, inlined_at 1 16 3\n",
     "/src/app/kernel.cu", 16},
    {".loc 6 290 1, function_name $L__info_string0, inlined_at 5 7 3\n" ADD
     ".loc 2 107 3, function_name $L__info_string0, inlined_at 6 290 1\n",
     "/usr/lib/python3/dist-packages/triton/language/standard.py", 290},
    /* A kernel of a header has no line of the user's. */
    {".loc 3 99 5\n", "/usr/local/cuda/include/cccl/cub/block/block_reduce.cuh", 99},
};

static void test_lines(void **state)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct emu_error err = {{0}};
		const struct emu_instr *last;
		struct emu_module *m;
		char text[4096];

		snprintf(text, sizeof(text), "%s%s%s", BEGIN, cases[i].locs, ADD END);
		m = emu_module_read(text, NULL, NULL, &err);
		if (!m)
			fail_msg("%s", err.text);
		/* Before ret and the end of the body. */
		last = &m->kernels[0]->code[m->kernels[0]->count - 3];
		assert_string_equal(last->opcode->name, "add");
		assert_int_equal(last->source_line, cases[i].line);
		if (cases[i].file)
			assert_string_equal(m->files[last->source_file], cases[i].file);
		emu_module_free(m);
	}
}

/* A report of two accesses names the source lines of both. */
static void test_two_lines(void **state)
{
	static const char *const text =
	    ".version 9.0\n.target sm_90a\n.address_size 64\n"
	    ".visible .entry k(.param .u64 in, .param .u64 out) {\n"
	    ".reg .pred %p1;\n.reg .b32 %r<4>;\n.shared .align 4 .b32 word;\n"
	    "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@!%p1 bra READ;\n"
	    ".loc 1 7 3\nst.shared.u32 [word], 1;\nret;\n"
	    "READ:\n.loc 1 9 3\nld.shared.u32 %r2, [word];\n" END;
	struct emu_job job = {.ptx = text, .block = 64};
	struct emu_error err = {{0}};

	assert_false(emu_run_job(&job, &err));
	if (!strstr(err.text, "PTX line 16, /src/app/kernel.cu:9: ld: ") ||
	    !strstr(err.text,
		    "wrote it (PTX line 12, kernel.cu:7), and nothing orders"))
		fail_msg("%s", err.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_lines),
	    cmocka_unit_test(test_two_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
