/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_copies.c - copies and fills by every function of the driver interface that
 * programs use for them, and the sizes and handles that it refuses.
 */
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"

#define BYTES 1000

static void test_copies(void **state)
{
	uint8_t from[BYTES], to[BYTES] = {0};
	CUdeviceptr a, b;

	for (int i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i * 7 + 1);
	assert_int_equal(cuMemAlloc_v2(&a, BYTES), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&b, BYTES), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyHtoD_v2(a, from, BYTES), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyDtoD_v2(b, a, BYTES), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyDtoH_v2(to, b, BYTES), CUDA_SUCCESS);
	assert_memory_equal(to, from, BYTES);
	assert_int_equal(cuMemsetD8_v2(a, 5, BYTES), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyDtoDAsync_v2(b, a, BYTES, NULL), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyDtoHAsync_v2(to, b, BYTES, NULL), CUDA_SUCCESS);
	assert_int_equal(cuStreamSynchronize(NULL), CUDA_SUCCESS);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(to[i], 5);
	assert_int_equal(cuMemcpyHtoDAsync_v2(a, from, BYTES, NULL), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyDtoH_v2(to, a, BYTES), CUDA_SUCCESS);
	assert_memory_equal(to, from, BYTES);
	/* One byte too many, on either side. */
	assert_int_equal(cuMemcpyHtoD_v2(a + 1, from, BYTES), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpyDtoH_v2(to, a + 1, BYTES), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
}

static void test_module(void **state)
{
	static const char *const text =
	    ".version 9.0\n.target sm_90\n.address_size 64\n"
	    ".visible .entry k() { ret; }\n";
	CUcontext context;
	CUdevice device = -1;
	CUmodule module;

	assert_int_equal(cuModuleLoadData(&module, text), CUDA_SUCCESS);
	assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
	assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
	assert_int_equal(cuCtxGetDevice(&device), CUDA_SUCCESS);
	assert_int_equal(device, 0);
}

/* Sizes that wrap, and the amount of free memory. */
static void test_sizes(void **state)
{
	size_t pitch, free_before, free_after, bytes;
	uint64_t used = 1;
	CUmemoryPool pool;
	CUdeviceptr a;

	assert_int_equal(cuMemAllocPitch_v2(&a, &pitch, 512, ((size_t)1 << 55) + 1, 4),
			 CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAllocPitch_v2(&a, &pitch, SIZE_MAX, 1, 4),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemGetInfo_v2(&free_before, &bytes), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocPitch_v2(&a, &pitch, 513, 3, 4), CUDA_SUCCESS);
	assert_int_equal(pitch, 1024);
	assert_int_equal(cuMemGetInfo_v2(&free_after, &bytes), CUDA_SUCCESS);
	assert_int_equal(free_before - free_after, 3072);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	/* CU_MEMPOOL_ATTR_USED_MEM_CURRENT has 64 bits. */
	assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemPoolGetAttribute(pool, 7, &used), CUDA_SUCCESS);
	assert_int_equal(used, 0);
}

/* Handles of objects that were destroyed, or never existed. */
static void test_handles(void **state)
{
	static const char *const text =
	    ".version 9.0\n.target sm_90\n.address_size 64\n"
	    ".visible .entry k() { ret; }\n";
	CUfunction function;
	CUlibrary library;
	CUkernel kernel;
	CUmodule module;
	const char *name;

	assert_int_equal(
	    cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0),
	    CUDA_SUCCESS);
	assert_int_equal(cuLibraryGetKernel(NULL, library, "k"),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuLibraryGetKernel(&kernel, library, "k"), CUDA_SUCCESS);
	assert_int_equal(cuKernelGetFunction(NULL, kernel), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
	assert_int_equal(cuFuncGetName(&name, function), CUDA_SUCCESS);
	assert_string_equal(name, "k");
	assert_int_equal(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
	assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
	assert_int_equal(cuFuncGetName(&name, function), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cuKernelGetFunction(&function, kernel),
			 CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cuFuncSetCacheConfig(function, 0), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cuLibraryGetModule(&module, library),
			 CUDA_ERROR_INVALID_HANDLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_copies),
	    cmocka_unit_test(test_module),
	    cmocka_unit_test(test_sizes),
	    cmocka_unit_test(test_handles),
	};

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0 || cuInit(0) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
