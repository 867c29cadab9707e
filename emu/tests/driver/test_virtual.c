/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_virtual.c - addresses that are reserved first and mapped later, and launches of
 * the most resident threads.
 */
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"

#define MIB (UINT64_C(1) << 20)

static const CUmemAllocationProp prop = {.type = 1,
					 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 3};

static void test_mapped(void **state)
{
	unsigned long long a, b;
	CUdeviceptr at;
	char bytes[16] = "";
	size_t step = 0;

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuMemGetAllocationGranularity(&step, &prop, 0), 0);
	assert_int_equal(step, 2 * MIB);
	assert_int_equal(cuMemCreate(&a, step + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemCreate(&a, step, &prop, 0), 0);
	assert_int_equal(cuMemCreate(&b, 2 * step, &prop, 0), 0);
	assert_int_equal(cuMemAddressReserve(&at, 4 * step, 0, 0, 0), 0);
	/* Not mapped, partly mapped, and all of it. */
	assert_int_equal(cuMemsetD8_v2(at, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(at, step, 0, a, 0), 0);
	assert_int_equal(cuMemMap(at + step, 2 * step, 0, b, 0), 0);
	assert_int_equal(cuMemMap(at + 3 * step, step, 0, a, 0),
			 CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cuMemSetAccess(at, 3 * step, &access, 1), 0);
	assert_int_equal(cuMemSetAccess(at, 5 * step, &access, 1),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemsetD8_v2(at + step - 8, 7, 16), 0);
	assert_int_equal(cuMemcpyDtoH_v2(bytes, at + step - 8, sizeof(bytes)), 0);
	assert_int_equal(bytes[0] + bytes[15], 14);
	assert_int_equal(cuMemRelease(a), 0);
	assert_int_equal(cuMemRelease(a), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemUnmap(at, 3 * step), 0);
	assert_int_equal(cuMemRelease(b), 0);
	assert_int_equal(cuMemRelease(b), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressFree(at, step), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressFree(at, 4 * step), 0);
}

static size_t shared_of(int threads)
{
	return (size_t)threads * 512;
}

/* 2,048 threads and 227 KiB of shared memory an SM. */
static void test_most_threads(void **state)
{
	static const char text[] = ".version 9.0\n.target sm_90a\n.address_size 64\n"
				   ".visible .entry k()\n{\nret;\n}\n";
	CUmodule module;
	CUfunction k;
	int ctas = 0, threads = 0;

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), 0);
	assert_int_equal(cuModuleGetFunction(&k, module, "k"), 0);
	assert_int_equal(
	    cuOccupancyMaxPotentialBlockSize(&ctas, &threads, k, NULL, 0, 0), 0);
	assert_int_equal(threads, 1024);
	assert_int_equal(ctas % 2, 0);
	assert_int_equal(
	    cuOccupancyMaxPotentialBlockSize(&ctas, &threads, k, NULL, 0, 256), 0);
	assert_int_equal(threads, 256);
	assert_int_equal(
	    cuOccupancyMaxPotentialBlockSize(&ctas, &threads, k, shared_of, 0, 0), 0);
	assert_true(threads * 512 <= 227 * 1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_mapped),
	    cmocka_unit_test(test_most_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
