/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_calls.c - libraries, callbacks and pools of the runtime interface. */
#include <stdlib.h>

#include "common/unit.h"
#include "runtime/cudart.h"

/* Stores its argument to a variable. */
static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
			   ".visible .global .u32 kept;\n"
			   ".visible .entry keep(.param .u32 value) {\n"
			   ".reg .u32 %r; .reg .u64 %a;\n"
			   "ld.param.u32 %r, [value];\n"
			   "mov.u64 %a, kept;\n"
			   "st.global.u32 [%a], %r;\n"
			   "ret;\n}\n";

static void test_library(void **state)
{
	const emu_dim3 one = {1, 1, 1};
	uint32_t value = 42, seen = 0;
	void *arguments[] = {&value}, *kept = NULL;
	unsigned count = 0;
	size_t bytes = 0;
	CUlibrary library;
	CUkernel kernel, list[1];

	assert_int_equal(
	    cudaLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0),
	    CUDA_SUCCESS);
	assert_int_equal(cudaLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
	assert_int_equal(count, 1);
	assert_int_equal(cudaLibraryGetKernel(&kernel, library, "keep"), CUDA_SUCCESS);
	assert_int_equal(cudaLibraryEnumerateKernels(list, 1, library), CUDA_SUCCESS);
	assert_ptr_equal(list[0], kernel);
	assert_int_equal(cudaLibraryGetGlobal(&kept, &bytes, library, "kept"),
			 CUDA_SUCCESS);
	assert_int_equal(bytes, 4);
	assert_int_equal(cudaLaunchKernel(kernel, one, one, arguments, 0, NULL),
			 CUDA_SUCCESS);
	assert_int_equal(cudaMemcpy(&seen, kept, 4, 2), CUDA_SUCCESS);
	assert_int_equal(seen, 42);
	assert_int_equal(cudaLibraryGetKernel(&kernel, library, "lost"),
			 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cudaLibraryGetGlobal(&kept, &bytes, library, "lost"),
			 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cudaLibraryUnload(library), CUDA_SUCCESS);
	assert_int_equal(cudaLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cudaLaunchKernel(list[0], one, one, arguments, 0, NULL),
			 cudaErrorInvalidDeviceFunction);
	assert_int_equal(
	    cudaLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0),
	    CUDA_ERROR_INVALID_VALUE);
}

static CUstream called_for;

static void note(CUstream stream, cudaError_t status, void *argument)
{
	called_for = stream;
	*(int *)argument = status == CUDA_SUCCESS ? 1 : 2;
}

static void count_call(void *argument)
{
	++*(int *)argument;
}

static void test_callbacks(void **state)
{
	CUstream stream;
	int calls = 0;

	assert_int_equal(cudaStreamCreate(&stream), CUDA_SUCCESS);
	assert_int_equal(cudaStreamAddCallback(stream, note, &calls, 0), CUDA_SUCCESS);
	assert_int_equal(cudaLaunchHostFunc(stream, count_call, &calls), CUDA_SUCCESS);
	assert_int_equal(cudaStreamSynchronize(stream), CUDA_SUCCESS);
	assert_ptr_equal(called_for, stream);
	assert_int_equal(calls, 2);
	assert_int_equal(cudaStreamAddCallback(stream, note, &calls, 1),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaStreamAddCallback(stream, NULL, &calls, 0),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaLaunchHostFunc(stream, NULL, &calls),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaStreamDestroy(stream), CUDA_SUCCESS);
	assert_int_equal(calls, 2);
}

/* A stream keeps its priority, cut to the range. */
static void test_priorities(void **state)
{
	int least = -1, greatest = 1, priority = -1;
	unsigned flags = 0;
	CUstream stream;

	assert_int_equal(cudaDeviceGetStreamPriorityRange(&least, &greatest),
			 CUDA_SUCCESS);
	assert_int_equal(least, 0);
	assert_int_equal(greatest, -5);
	assert_int_equal(cudaStreamCreateWithPriority(&stream, 1, -9), CUDA_SUCCESS);
	assert_int_equal(cudaStreamGetPriority(stream, &priority), CUDA_SUCCESS);
	assert_int_equal(priority, greatest);
	assert_int_equal(cudaStreamGetFlags(stream, &flags), CUDA_SUCCESS);
	assert_int_equal(flags, 1);
	assert_int_equal(cudaStreamDestroy(stream), CUDA_SUCCESS);
}

static void test_pools(void **state)
{
	CUmemoryPool pool, same;
	uint64_t threshold = UINT64_MAX;

	assert_int_equal(cudaDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
	assert_int_equal(cudaDeviceGetMemPool(&same, 0), CUDA_SUCCESS);
	assert_ptr_equal(pool, same);
	assert_int_equal(cudaMemPoolSetAttribute(pool, 4, &threshold), CUDA_SUCCESS);
	assert_int_equal(cudaMemPoolGetAttribute(pool, 7, &threshold), CUDA_SUCCESS);
	assert_int_equal(threshold, 0);
	assert_int_equal(cudaMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
	assert_int_equal(cudaMemPoolTrimTo(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaDeviceGetDefaultMemPool(&pool, 1),
			 CUDA_ERROR_INVALID_DEVICE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_library),
	    cmocka_unit_test(test_callbacks),
	    cmocka_unit_test(test_priorities),
	    cmocka_unit_test(test_pools),
	};

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
