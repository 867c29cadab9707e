/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_large_memory.c - allocations as large as the device: what they take from the
 * host, what kernels read from them, and the error where the host has too little.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/unit.h"
#include "driver/cuda_api.h"

#define GIB (UINT64_C(1) << 30)

/* Copies the word at `from`, in the first argument, to `to`, in the second. */
static const char copy_word[] =
    ".version 9.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry copy_word(.param .u64 from, .param .u64 to) {\n"
    ".reg .b64 %d<2>;\n.reg .b32 %r;\n"
    "ld.param.u64 %d0, [from];\nld.param.u64 %d1, [to];\n"
    "ld.global.u32 %r, [%d0];\nst.global.u32 [%d1], %r;\nret;\n}\n";

static size_t resident_bytes(void)
{
	size_t all, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%zu %zu", &all, &resident), 2);
	fclose(f);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a process of its own: the limit is for all that follows. */
static int allocate_with_few_addresses(void)
{
	const struct rlimit limit = {4 * GIB, 4 * GIB};
	const char *why = NULL;
	CUdeviceptr p;
	CUcontext context;

	if (setrlimit(RLIMIT_AS, &limit) != 0)
		return 1;
	if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 ||
	    cuMemAlloc_v2(&p, 1 << 20) != 0)
		return 2;
	if (cuMemAlloc_v2(&p, 8 * GIB) != CUDA_ERROR_OUT_OF_MEMORY)
		return 3;
	(void)cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &why);
	if (!why || !strstr(why, "no memory for 8589934592 bytes") ||
	    !strstr(why, "may have 4294967296 bytes of addresses (ulimit -v"))
		return 4;
	return 0;
}

static void few_addresses(void **state)
{
	int status = 0;
	pid_t child;

	/* Sanitizers and valgrind need more addresses than that. */
	if (!test_alloc_works())
		skip();
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(allocate_with_few_addresses());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static CUresult run_copy(CUdeviceptr from, CUdeviceptr to)
{
	CUmodule module;
	CUfunction function;
	void *arguments[] = {&from, &to};

	assert_int_equal(cuModuleLoadDataEx(&module, copy_word, 0, NULL, NULL), 0);
	assert_int_equal(cuModuleGetFunction(&function, module, "copy_word"), 0);
	assert_int_equal(
	    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), 0);
	return cuCtxSynchronize();
}

/* An error of a launch ends the process's use of the device: this is the last. */
static void whole_device(void **state)
{
	size_t bytes, before, free_bytes = 0, all_bytes = 0;
	const uint32_t here = 0x1234;
	CUcontext context;
	CUdeviceptr p, result;
	uint32_t word = 0;

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
	assert_int_equal(cuCtxSetCurrent(context), 0);
	assert_int_equal(cuMemAlloc_v2(&result, 4), 0);
	assert_int_equal(cuMemGetInfo_v2(&free_bytes, &all_bytes), 0);
	bytes = (free_bytes - (64 << 20)) / 4 * 4;
	before = resident_bytes();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(cuMemAlloc_v2(&p, bytes), 0);
		assert_int_equal(cuMemcpyDtoH_v2(&word, p + bytes - 4, 4), 0);
		assert_int_equal(word, 0xFFFFFFFF);
		assert_int_equal(cuMemcpyHtoD_v2(p + bytes / 8 * 4, &here, 4), 0);
		assert_int_equal(run_copy(p + bytes / 8 * 4, result), 0);
		assert_int_equal(cuMemcpyDtoH_v2(&word, result, 4), 0);
		assert_int_equal(word, here);
		assert_int_equal(cuMemsetD32_v2(p, 0, bytes / 4), 0);
		assert_int_equal(run_copy(p + bytes / 8 * 4, result), 0);
		assert_int_equal(cuMemcpyDtoH_v2(&word, result, 4), 0);
		assert_int_equal(word, 0);
		assert_int_equal(cuMemFree_v2(p), 0);
	}
	assert_int_equal(cuMemAlloc_v2(&p, bytes), 0);
	assert_int_equal(run_copy(p + bytes / 8 * 4, result), CUDA_ERROR_LAUNCH_FAILED);
	assert_true(resident_bytes() < before + (200 << 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(few_addresses),
	    cmocka_unit_test(whole_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
