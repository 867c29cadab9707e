/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_memory.c - memory functions of the runtime interface, and errors. */
#include <stdlib.h>
#include <string.h>

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

/* Copies 3 x 2 x 2 bytes from the middle of a box to the device and back. */
static void test_box(void **state)
{
	const struct cudaExtent whole = {8, 4, 3};
	uint8_t from[3][4][8], to[2][2][3] = {0};
	struct cudaMemcpy3DParms in = {.extent = {3, 2, 2}},
				 out = {.extent = {3, 2, 2}};

	for (size_t i = 0; i < sizeof(from); i++)
		((uint8_t *)from)[i] = (uint8_t)i;
	in.srcPtr = (struct cudaPitchedPtr){from, 8, 8, 4};
	in.srcPos = (struct cudaPos){2, 1, 1};
	assert_int_equal(cudaMalloc3D(&in.dstPtr, whole), CUDA_SUCCESS);
	assert_true(in.dstPtr.pitch >= 8);
	assert_int_equal(in.dstPtr.ysize, 4);
	in.dstPos = (struct cudaPos){5, 2, 1};
	assert_int_equal(cudaMemcpy3D(&in), CUDA_SUCCESS);
	out.srcPtr = in.dstPtr;
	out.srcPos = in.dstPos;
	out.dstPtr = (struct cudaPitchedPtr){to, 3, 3, 2};
	assert_int_equal(cudaMemcpy3DAsync(&out, NULL), CUDA_SUCCESS);
	assert_int_equal(cudaStreamSynchronize(NULL), CUDA_SUCCESS);
	for (int z = 0; z < 2; z++)
		for (int y = 0; y < 2; y++)
			for (int x = 0; x < 3; x++)
				assert_int_equal(to[z][y][x],
						 from[z + 1][y + 1][x + 2]);
	assert_int_equal(cudaFree(in.dstPtr.ptr), CUDA_SUCCESS);
}

static void test_box_refused(void **state)
{
	uint8_t bytes[64];
	struct cudaMemcpy3DParms copy = {.srcPtr = {bytes, 4, 4, 4},
					 .dstPtr = {bytes + 32, 4, 4, 4},
					 .extent = {4, 2, 2}};
	struct cudaMemcpy3DParms bad = copy;

	assert_int_equal(cudaMemcpy3D(NULL), CUDA_ERROR_INVALID_VALUE);
	/* A row that is longer than the pitch. */
	bad.srcPos.x = 1;
	assert_int_equal(cudaMemcpy3D(&bad), CUDA_ERROR_INVALID_VALUE);
	/* Rows past the end of a slice. */
	bad = copy;
	bad.dstPos.y = 3;
	assert_int_equal(cudaMemcpy3D(&bad), CUDA_ERROR_INVALID_VALUE);
	bad = copy;
	bad.srcArray = (CUarray)(void *)bytes;
	assert_int_equal(cudaMemcpy3D(&bad), CUDA_ERROR_INVALID_VALUE);
	/* One row needs neither a pitch nor a height. */
	bad = copy;
	bad.extent = (struct cudaExtent){4, 1, 1};
	bad.srcPtr.pitch = bad.srcPtr.ysize = bad.dstPtr.pitch = bad.dstPtr.ysize = 0;
	memset(bytes, 7, 4);
	assert_int_equal(cudaMemcpy3D(&bad), CUDA_SUCCESS);
	assert_int_equal(bytes[35], 7);
	assert_int_not_equal(
	    cudaMalloc3D(&copy.srcPtr, (struct cudaExtent){1, SIZE_MAX / 2, 4}),
	    CUDA_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_prefetch),
	    cmocka_unit_test(test_advice),
	    cmocka_unit_test(test_box),
	    cmocka_unit_test(test_box_refused),
	};

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
