/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranges.c - fills of rows and slices, and advice that ranges of memory keep. */
#include "graph_unit.h"

/* 2 slices of 3 rows of 8 bytes, of which each has 5 in the first 3 bytes of 2 rows. */
static void test_slices(void **state)
{
	struct cudaPitchedPtr p = {.pitch = 8, .xsize = 8, .ysize = 3};
	const struct cudaExtent extent = {3, 2, 2};
	unsigned char bytes[48];

	OK(cudaMalloc(&p.ptr, 48));
	OK(cudaMemset(p.ptr, 1, 48));
	OK(cudaMemset3D(p, 5, extent));
	OK(cudaMemcpy(bytes, p.ptr, 48, cudaMemcpyDefault));
	for (int i = 0; i < 48; i++)
		assert_int_equal(bytes[i], i % 8 < 3 && i / 8 % 3 < 2 ? 5 : 1);
	OK(cudaMemset3DAsync(p, 6, (struct cudaExtent){8, 3, 2}, NULL));
	OK(cudaMemcpy(bytes, p.ptr, 48, cudaMemcpyDefault));
	assert_int_equal(bytes[47], 6);
	/* More rows than a slice has, a pitch below a row, one byte too many. */
	FAILS(cudaMemset3D(p, 5, (struct cudaExtent){3, 4, 2}),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "slices of 3 rows");
	FAILS(cudaMemset3D(p, 5, (struct cudaExtent){9, 2, 1}),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaMemset2D((char *)p.ptr + 1, 8, 5, 8, 6), CUDA_ERROR_INVALID_VALUE);
	OK(cudaMemset2DAsync(p.ptr, 8, 7, 1, 6, NULL));
	OK(cudaMemcpy(bytes, p.ptr, 48, cudaMemcpyDefault));
	assert_int_equal(bytes[40], 7);
	assert_int_equal(bytes[41], 6);
	OK(cudaFree(p.ptr));
}

static void test_elements(void **state)
{
	uint16_t halves[8];
	uint32_t words[4];
	CUdeviceptr at;

	OK(cuMemAlloc_v2(&at, 16));
	OK(cuMemsetD2D32_v2(at, 8, 0x11112222, 2, 2));
	OK(cuMemsetD2D16_v2(at, 8, 0x3333, 1, 2));
	OK(cuMemcpyDtoH_v2(halves, at, 16));
	assert_int_equal(halves[0], 0x3333);
	assert_int_equal(halves[1], 0x1111);
	assert_int_equal(halves[4], 0x3333);
	OK(cuMemsetD2D32Async(at, 8, 9, 1, 2, NULL));
	OK(cuMemsetD2D16Async(at + 12, 8, 4, 2, 1, NULL));
	OK(cuMemcpyDtoH_v2(words, at, 16));
	assert_int_equal(words[0], 9);
	assert_int_equal(words[2], 9);
	assert_int_equal(words[3], 0x00040004);
	FAILS(cuMemsetD2D16_v2(at + 1, 8, 4, 1, 1), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemsetD2D32_v2(at, 6, 4, 1, 2), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(at));
}

static int value_of(int attribute, const void *pointer, size_t bytes)
{
	int value = 77;

	OK(cudaMemRangeGetAttribute(&value, sizeof(value), attribute, pointer, bytes));
	return value;
}

/* Advice: 1 and 2 read mostly, 3 and 4 the place, 5 and 6 who accesses it. */
static void test_advice(void **state)
{
	const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
	int values[3] = {1, 1, 1}, one = 0, attributes[] = {1, 2};
	void *data[] = {values, &one};
	size_t sizes[] = {sizeof(int), sizeof(int)};
	char *p = NULL;

	OK(cudaMallocManaged((void **)&p, 1000, 1));
	assert_int_equal(value_of(1, p, 1000), 0);
	assert_int_equal(value_of(2, p, 1000), -2);
	OK(cudaMemAdvise(p, 1000, 1, device));
	OK(cudaMemAdvise(p, 1000, 3, host));
	OK(cudaMemAdvise(p, 1000, 5, device));
	OK(cudaMemPrefetchAsync(p, 500, device, 0, NULL));
	assert_int_equal(value_of(1, p + 10, 100), 1);
	assert_int_equal(value_of(2, p, 1000), -1);
	assert_int_equal(value_of(5, p, 1000), CU_MEM_LOCATION_TYPE_HOST);
	assert_int_equal(value_of(6, p, 1000), 0);
	/* Not all of the range was prefetched. */
	assert_int_equal(value_of(4, p, 500), 0);
	assert_int_equal(value_of(7, p, 500), CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_equal(value_of(8, p, 500), 0);
	assert_int_equal(value_of(4, p, 501), -2);
	OK(cudaMemRangeGetAttribute(values, sizeof(values), 3, p, 1000));
	assert_int_equal(values[0], 0);
	assert_int_equal(values[1], -2);
	assert_int_equal(values[2], -2);
	OK(cudaMemRangeGetAttributes(data, sizes, attributes, 2, p, 1000));
	assert_int_equal(values[0], 1);
	assert_int_equal(one, -1);
	OK(cudaMemAdvise(p, 1000, 2, device));
	OK(cudaMemAdvise(p, 1000, 6, device));
	assert_int_equal(value_of(1, p, 1000), 0);
	assert_int_equal(value_of(3, p, 1000), -2);
	FAILS(cudaMemRangeGetAttribute(&one, 4, 1, p, 1001), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaMemRangeGetAttribute(&one, 4, 9, p, 1000), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaMemRangeGetAttribute(values, 8, 1, p, 1000),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "attribute 1 of 8 bytes");
	OK(cudaFree(p));
}

static void test_attach(void **state)
{
	CUstream stream;
	void *p;

	OK(cudaStreamCreate(&stream));
	OK(cudaMallocManaged(&p, 100, 1));
	OK(cudaStreamAttachMemAsync(stream, p, 0, 4));
	OK(cudaStreamAttachMemAsync(NULL, p, 100, 1));
	FAILS(cudaStreamAttachMemAsync(NULL, p, 0, 4), CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "SINGLE needs a stream");
	FAILS(cudaStreamAttachMemAsync(stream, p, 50, 4), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaStreamAttachMemAsync(stream, p, 0, 3), CUDA_ERROR_INVALID_VALUE);
	OK(cudaFree(p));
	OK(cudaStreamDestroy(stream));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_slices),
	    cmocka_unit_test(test_elements),
	    cmocka_unit_test(test_advice),
	    cmocka_unit_test(test_attach),
	};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
