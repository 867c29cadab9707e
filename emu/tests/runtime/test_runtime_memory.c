/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_memory.c - memory functions of the runtime interface, and errors. */
#include <stdlib.h>

#include "common/unit.h"
#include "runtime/cudart.h"

#define BYTES 4096

static const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
static const CUmemLocation other = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
static const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};

static void test_prefetch(void **state)
{
	CUmemLocation nowhere = {0, 0};
	char on_stack[16];
	void *p;

	assert_int_equal(cudaMallocManaged(&p, BYTES, 1), CUDA_SUCCESS);
	assert_int_equal(cudaMemPrefetchAsync(p, BYTES, device, 0, NULL), CUDA_SUCCESS);
	assert_int_equal(cudaMemPrefetchAsync((char *)p + 1, BYTES - 1, host, 0, NULL),
			 CUDA_SUCCESS);
	assert_int_equal(cudaMemPrefetchAsync((char *)p + 1, BYTES, device, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaMemPrefetchAsync(p, 0, device, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaMemPrefetchAsync(p, BYTES, device, 1, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaMemPrefetchAsync(p, BYTES, nowhere, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaMemPrefetchAsync(p, BYTES, other, 0, NULL),
			 CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cudaMemPrefetchAsync(p, BYTES, device, 0, p),
			 CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cudaMemPrefetchAsync(on_stack, 16, device, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGetLastError(), CUDA_ERROR_INVALID_VALUE);
	/* The function that CUDA 12.1 has. */
	assert_int_equal(cuMemPrefetchAsync((uintptr_t)p, BYTES, -1, NULL),
			 CUDA_SUCCESS);
	assert_int_equal(cuMemPrefetchAsync((uintptr_t)p, BYTES, 1, NULL),
			 CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cudaFree(p), CUDA_SUCCESS);
	assert_int_equal(cudaMemPrefetchAsync(p, BYTES, device, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
}

static void test_advice(void **state)
{
	void *p;

	assert_int_equal(cudaMallocManaged(&p, BYTES, 1), CUDA_SUCCESS);
	for (int advice = 1; advice <= 6; advice++) {
		assert_int_equal(cudaMemAdvise(p, BYTES, advice, device), CUDA_SUCCESS);
		assert_int_equal(cudaMemAdvise(p, BYTES, advice, host), CUDA_SUCCESS);
		assert_int_equal(cudaMemAdvise(p, BYTES + 1, advice, device),
				 CUDA_ERROR_INVALID_VALUE);
	}
	assert_int_equal(cudaMemAdvise(p, BYTES, 0, device), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaMemAdvise(p, BYTES, 7, device), CUDA_ERROR_INVALID_VALUE);
	/* The place matters only where the advice is about one. */
	assert_int_equal(cudaMemAdvise(p, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, other),
			 CUDA_SUCCESS);
	assert_int_equal(
	    cudaMemAdvise(p, BYTES, CU_MEM_ADVISE_UNSET_ACCESSED_BY, other),
	    CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cuMemAdvise((uintptr_t)p, BYTES, 3, -1), CUDA_SUCCESS);
	assert_int_equal(cudaFree(p), CUDA_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_prefetch),
	    cmocka_unit_test(test_advice),
	};

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
