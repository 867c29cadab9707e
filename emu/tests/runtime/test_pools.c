/* SPDX-License-Identifier: Apache-2.0 */
/* test_pools.c - pools of memory, and what would be shared with other processes. */
#include "graph_unit.h"

enum { RELEASE_THRESHOLD = 4, RESERVED = 5, USED = 7, USED_HIGH = 8 };

static const CUmemPoolProps properties = {.allocType = 1,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static uint64_t value_of(CUmemoryPool pool, int attribute)
{
	uint64_t value = 99;

	OK(cudaMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static void test_pool(void **state)
{
	uint64_t threshold = 1 << 20, zero = 0;
	CUmemoryPool pool, found;
	void *a, *b;
	int reuse = 0;

	OK(cudaMemPoolCreate(&pool, &properties));
	OK(cudaMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
	assert_int_equal(value_of(pool, RELEASE_THRESHOLD), 1 << 20);
	OK(cudaMemPoolGetAttribute(pool, 1, &reuse));
	assert_int_equal(reuse, 1);
	reuse = 0;
	OK(cudaMemPoolSetAttribute(pool, 1, &reuse));
	OK(cudaMallocFromPoolAsync(&a, 1000, pool, NULL));
	assert_int_equal(value_of(pool, USED), 1000);
	assert_int_equal(value_of(pool, RESERVED), 1000);
	/* The pool of a device is the one of cudaMallocAsync. */
	OK(cudaDeviceSetMemPool(0, pool));
	OK(cudaDeviceGetMemPool(&found, 0));
	assert_ptr_equal(found, pool);
	OK(cudaMallocAsync(&b, 24, NULL));
	assert_int_equal(value_of(pool, USED), 1024);
	OK(cudaFreeAsync(a, NULL));
	OK(cudaMemPoolTrimTo(pool, 0));
	assert_int_equal(value_of(pool, USED), 24);
	assert_int_equal(value_of(pool, USED_HIGH), 1024);
	FAILS(cudaMemPoolSetAttribute(pool, USED, &zero), CUDA_ERROR_INVALID_VALUE);
	OK(cudaMemPoolSetAttribute(pool, USED_HIGH, &zero));
	assert_int_equal(value_of(pool, USED_HIGH), 24);
	FAILS(cudaMemPoolGetAttribute(pool, 9, &zero), CUDA_ERROR_INVALID_VALUE);
	/* Memory stays when its pool ends, and the default pool is the device's. */
	OK(cudaMemPoolDestroy(pool));
	OK(cudaMemset(b, 3, 24));
	OK(cudaFree(b));
	OK(cudaDeviceGetMemPool(&found, 0));
	OK(cudaDeviceGetDefaultMemPool(&pool, 0));
	assert_ptr_equal(found, pool);
	FAILS(cudaMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "it is the default pool");
}

static void test_refused(void **state)
{
	CUmemPoolProps shared = properties, elsewhere = properties;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 3};
	CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
	CUmemoryPool pool;
	void *pointer;
	int flags = -1;

	shared.handleTypes = 1;
	elsewhere.location.id = 1;
	FAILS(cudaMemPoolCreate(&pool, &shared), CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "handleTypes 1");
	FAILS(cudaMemPoolCreate(&pool, &elsewhere), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaMemPoolCreate(&pool, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cudaMemPoolCreate(&pool, &properties));
	OK(cudaMemPoolSetAccess(pool, &access, 1));
	OK(cudaMemPoolGetAccess(&flags, pool, &access.location));
	assert_int_equal(flags, 3);
	OK(cudaMemPoolGetAccess(&flags, pool, &host));
	assert_int_equal(flags, 0);
	access.flags = 0;
	FAILS(cudaMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_VALUE);
	access.location.id = 1;
	FAILS(cudaMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_DEVICE);
	OK(cudaMemPoolDestroy(pool));
	FAILS(cudaMallocFromPoolAsync(&pointer, 8, pool, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
}

static void test_processes(void **state)
{
	CUipcHandle handle = {{0}};
	CUevent event;
	void *pointer = NULL;

	FAILS(cudaIpcGetMemHandle(&handle, pointer), CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "cuIpcGetMemHandle: memory and events are not shared");
	FAILS(cudaIpcOpenMemHandle(&pointer, handle, 1), CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "cuIpcOpenMemHandle");
	FAILS(cudaIpcCloseMemHandle(pointer), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaIpcGetEventHandle(&handle, NULL), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaIpcOpenEventHandle(&event, handle), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaMemPoolExportToShareableHandle(&handle, NULL, 1, 0),
	      CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaMemPoolImportFromShareableHandle(NULL, &handle, 1, 0),
	      CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaMemPoolExportPointer(&handle, pointer), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaMemPoolImportPointer(&pointer, NULL, &handle),
	      CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cuLaunchCooperativeKernelMultiDevice(NULL, 2, 0),
	      CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "there is one device");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_pool),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_processes),
	};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
