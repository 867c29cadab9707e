/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_link.c - modules of PTX that are linked when the program runs: names that
 * another module defines, names that stay apart, and inputs that are refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"

#define HEAD		  ".version 8.0\n.target sm_80\n.address_size 64\n"
#define OK(call)	  assert_int_equal(call, CUDA_SUCCESS)
#define FAILS(call, with) assert_int_equal(call, with)

/* k(p): *p = twice(*p) + *table, and adds 1 to count.  bias is of this module. */
static const char kernel_text[] =
    HEAD ".file 1 \"kernel.cu\"\n"
	 ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
	 ".extern .global .align 4 .b8 table[4];\n"
	 ".global .align 4 .u32 bias = 1000;\n"
	 ".visible .global .align 4 .u32 count = 5;\n"
	 ".visible .entry k(.param .u64 p) {\n"
	 ".reg .b32 %r<4>; .reg .b64 %a, %b;\n"
	 "ld.param.u64 %a, [p];\nld.global.u32 %r0, [%a];\n"
	 "{ .param .b32 x; .param .b32 r;\nst.param.b32 [x], %r0;\n"
	 "call.uni (r), twice, (x);\nld.param.b32 %r1, [r]; }\n"
	 "ld.global.u32 %r2, [table];\nadd.u32 %r1, %r1, %r2;\n"
	 "ld.global.u32 %r2, [bias];\nadd.u32 %r1, %r1, %r2;\n"
	 ".loc 1 42 0\n"
	 "st.global.u32 [%a], %r1;\nret;\n}\n";

/* twice(x) = x + x + bias - 1 of its own; it adds 1 to the other module's count. */
static const char function_text[] =
    ".version 8.3\n.target sm_90\n.address_size 64\n"
    ".file 1 \"function.cu\", 7, 9\n"
    ".visible .global .align 4 .u32 table = 300;\n"
    ".global .align 4 .u32 bias = 1;\n"
    ".extern .global .align 4 .u32 count;\n"
    ".visible .func (.param .b32 r) twice(.param .b32 x) {\n"
    ".reg .b32 %r<3>;\n"
    ".loc 1 7 0\n"
    "ld.param.b32 %r0, [x];\nadd.u32 %r0, %r0, %r0;\n"
    "ld.global.u32 %r1, [bias];\nadd.u32 %r0, %r0, %r1;\nsub.u32 %r0, %r0, 1;\n"
    "ld.global.u32 %r2, [count];\nadd.u32 %r2, %r2, 1;\n"
    "st.global.u32 [count], %r2;\n"
    "st.param.b32 [r], %r0;\nret;\n}\n"
    ".section .debug_str { $L__info_string0: .b8 95, 90, 0 }\n";

static CUresult add(CUlinkState state, const char *text, const char *name)
{
	return cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text,
				strlen(text), name, 0, NULL, NULL);
}

static void test_link(void **state)
{
	int options[] = {CU_JIT_WALL_TIME, CU_JIT_INFO_LOG_BUFFER,
			 CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 7, 21};
	char log[100] = "";
	void *values[] = {NULL, log, (void *)sizeof(log), (void *)4, NULL};
	CUlinkState link;
	CUmodule module;
	CUfunction function;
	CUdeviceptr word, count;
	void *image = NULL, *arguments[] = {&word};
	uint32_t value = 20;
	size_t bytes = 0;

	OK(cuLinkCreate_v2(5, options, values, &link));
	OK(add(link, kernel_text, "kernel.ptx"));
	OK(add(link, function_text, "function.ptx"));
	OK(cuLinkComplete(link, &image, &bytes));
	assert_string_equal(log, "linked 2 modules of PTX");
	assert_int_equal((uintptr_t)values[2], strlen(log));
	assert_int_equal(bytes, strlen(image) + 1);
	/* The newest target and version, and files with numbers of their own. */
	assert_non_null(strstr(image, ".version 8.3\n.target sm_90\n"));
	assert_non_null(strstr(image, ".file 2 \"function.cu\", 7, 9\n"));
	assert_non_null(strstr(image, ".loc 2 7 0"));
	assert_non_null(strstr(image, ".loc 1 42 0"));
	assert_null(strstr(image, "debug_str"));
	FAILS(add(link, kernel_text, "late.ptx"), CUDA_ERROR_INVALID_VALUE);
	OK(cuModuleLoadData(&module, image));
	OK(cuLinkDestroy(link));
	OK(cuModuleGetFunction(&function, module, "k"));
	OK(cuMemAlloc_v2(&word, 4));
	OK(cuMemcpyHtoD_v2(word, &value, 4));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	OK(cuMemcpyDtoH_v2(&value, word, 4));
	assert_int_equal(value, 20 + 20 + 300 + 1000);
	OK(cuModuleGetGlobal_v2(&count, &bytes, module, "count"));
	OK(cuMemcpyDtoH_v2(&value, count, 4));
	assert_int_equal(value, 6);
	OK(cuMemFree_v2(word));
	OK(cuModuleUnload(module));
}

/* Parameters of a launch as one buffer. */
static void test_buffer(void **state)
{
	CUlinkState link;
	CUmodule module;
	CUfunction function;
	CUdeviceptr word;
	size_t size = sizeof(word), less = 4, offset = 9, bytes = 0;
	void *extra[] = {(void *)CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, &word,
			 (void *)CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT, &size, NULL};
	uint32_t value = 1;
	void *image;

	OK(cuLinkCreate_v2(0, NULL, NULL, &link));
	OK(add(link, kernel_text, "kernel.ptx"));
	OK(add(link, function_text, "function.ptx"));
	OK(cuLinkComplete(link, &image, NULL));
	OK(cuModuleLoadData(&module, image));
	OK(cuModuleGetFunction(&function, module, "k"));
	OK(cuFuncGetParamInfo(function, 0, &offset, &bytes));
	assert_int_equal(offset, 0);
	assert_int_equal(bytes, 8);
	FAILS(cuFuncGetParamInfo(function, 1, &offset, &bytes),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAlloc_v2(&word, 4));
	OK(cuMemcpyHtoD_v2(word, &value, 4));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	OK(cuMemcpyDtoH_v2(&value, word, 4));
	assert_int_equal(value, 1302);
	extra[3] = &less;
	FAILS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cuLinkDestroy(link));
	OK(cuMemFree_v2(word));
	OK(cuModuleUnload(module));
}

/* Links one or two texts, which fails with a message in the log. */
static void fails(const char *first, const char *second, const char *text)
{
	int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	char log[300] = "";
	void *values[] = {log, (void *)sizeof(log)};
	CUlinkState link;
	void *image;

	OK(cuLinkCreate_v2(2, options, values, &link));
	OK(add(link, first, "a"));
	if (second)
		OK(add(link, second, "b"));
	FAILS(cuLinkComplete(link, &image, NULL), CUDA_ERROR_INVALID_IMAGE);
	if (!strstr(log, text))
		fail_msg("'%s' is not in '%s'", text, log);
	OK(cuLinkDestroy(link));
}

static void test_unresolved(void **state)
{
	fails(kernel_text, NULL, "a: twice is .extern, and no module defines it");
	fails(function_text, function_text, "a and b: both define table");
	fails("int x;", NULL, "a: PTX line 1: PTX begins with .version");
	fails(HEAD ".common .global .u32 x;", NULL, "a: PTX line 4: a directive");
	fails(HEAD ".visible .func ;", NULL, "has no name");
}

/* A weak definition gives way, and printf is of the device's library. */
static void test_weak(void **state)
{
	static const char weak[] = HEAD
	    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
	    ".extern .shared .align 16 .b8 dynamic[];\n"
	    ".weak .global .align 4 .u32 x = 1;\n.visible .entry k() { ret; }\n";
	static const char strong[] = HEAD
	    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
	    ".extern .shared .align 16 .b8 dynamic[];\n"
	    ".visible .global .align 4 .u32 x = 2;\n";
	CUlinkState link;
	CUdeviceptr x;
	CUmodule module;
	uint32_t value = 0;
	void *image;

	OK(cuLinkCreate_v2(0, NULL, NULL, &link));
	OK(add(link, weak, "weak"));
	OK(add(link, strong, NULL));
	OK(cuLinkComplete(link, &image, NULL));
	OK(cuModuleLoadData(&module, image));
	OK(cuModuleGetGlobal_v2(&x, NULL, module, "x"));
	OK(cuMemcpyDtoH_v2(&value, x, 4));
	assert_int_equal(value, 2);
	OK(cuLinkDestroy(link));
	OK(cuModuleUnload(module));
}

static void test_inputs(void **state)
{
	static char cubin[64] = "\177ELF";
	int option = 99;
	void *value = NULL;
	char path[] = "/tmp/nibemu_link_XXXXXX";
	const int file = mkstemp(path);
	CUlinkState link;
	const char *text;
	void *image;

	assert_true(file >= 0);
	assert_true(dprintf(file, HEAD ".visible .entry k() { ret; }\n") > 0);
	FAILS(cuLinkCreate_v2(1, &option, &value, &link), CUDA_ERROR_INVALID_VALUE);
	OK(cuLinkCreate_v2(0, NULL, NULL, &link));
	FAILS(cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, cubin, sizeof(cubin), "c", 0,
			       NULL, NULL),
	      CUDA_ERROR_NO_BINARY_FOR_GPU);
	OK(cuGetErrorString(CUDA_ERROR_NO_BINARY_FOR_GPU, &text));
	assert_non_null(strstr(text, "c is a cubin: only PTX is linked"));
	FAILS(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, cubin, sizeof(cubin), "c", 0,
			       NULL, NULL),
	      CUDA_ERROR_NO_BINARY_FOR_GPU);
	OK(cuGetErrorString(CUDA_ERROR_NO_BINARY_FOR_GPU, &text));
	assert_non_null(strstr(text, "c: the module is a cubin"));
	FAILS(
	    cuLinkAddData_v2(link, CU_JIT_INPUT_LIBRARY, cubin, 4, NULL, 0, NULL, NULL),
	    CUDA_ERROR_NO_BINARY_FOR_GPU);
	FAILS(cuLinkAddData_v2(link, 6, cubin, 4, "c", 0, NULL, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, NULL, 4, "c", 0, NULL, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, "/nonexistent/x.ptx", 0, NULL,
			       NULL),
	      CUDA_ERROR_FILE_NOT_FOUND);
	FAILS(cuLinkComplete(link, &image, NULL), CUDA_ERROR_INVALID_IMAGE);
	OK(cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
	OK(cuLinkComplete(link, &image, NULL));
	assert_non_null(strstr(image, ".visible .entry k()"));
	OK(cuLinkDestroy(link));
	FAILS(cuLinkDestroy(link), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(remove(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_link),       cmocka_unit_test(test_buffer),
	    cmocka_unit_test(test_unresolved), cmocka_unit_test(test_weak),
	    cmocka_unit_test(test_inputs),
	};

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0 || cuInit(0) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
