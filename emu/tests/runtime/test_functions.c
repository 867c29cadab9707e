/* SPDX-License-Identifier: Apache-2.0 */
/* test_functions.c - functions of devices and of the driver, launches, occupancy. */
#include "graph_unit.h"

static void test_attributes(void **state)
{
	struct cudaFuncAttributes a;
	const char *name = NULL;
	size_t offset = 9, bytes = 0;

	OK(cudaFuncGetAttributes(&a, put_kernel));
	assert_int_equal(a.maxThreadsPerBlock, 1024);
	assert_int_equal(a.ptxVersion, 80);
	assert_int_equal(a.constSizeBytes, 0);
	assert_int_equal(a.preferredShmemCarveout, -1);
	assert_int_equal(a.nonPortableClusterSizeAllowed, 0);
	assert_int_equal(a.clusterDimMustBeSet, 0);
	OK(cudaFuncSetAttribute(
	    put_kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
	OK(cudaFuncSetAttribute(
	    put_kernel, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	OK(cudaFuncSetAttribute(
	    put_kernel, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 1));
	OK(cudaFuncGetAttributes(&a, put_kernel));
	assert_int_equal(a.preferredShmemCarveout, 50);
	assert_int_equal(a.nonPortableClusterSizeAllowed, 1);
	FAILS(cudaFuncSetAttribute(put_kernel, CU_FUNC_ATTRIBUTE_NUM_REGS, 8),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "put: function attribute 4 cannot be set");
	FAILS(cudaFuncSetAttribute(
		  put_kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cudaFuncGetName(&name, put_kernel));
	assert_string_equal(name, "put");
	OK(cudaFuncGetParamInfo(put_kernel, 1, &offset, &bytes));
	assert_int_equal(offset, 8);
	assert_int_equal(bytes, 4);
	FAILS(cudaFuncGetParamInfo(put_kernel, 2, &offset, &bytes),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cudaFuncSetSharedMemConfig(put_kernel, 1));
	OK(cudaKernelSetAttributeForDevice(
	    put_kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, 0));
	OK(cudaFuncGetAttributes(&a, put_kernel));
	assert_int_equal(a.maxDynamicSharedSizeBytes, 60000);
}

static void test_occupancy(void **state)
{
	const cudaLaunchConfig_t config = {.gridDim = {16, 1, 1},
					   .blockDim = {128, 1, 1}};
	int grid = 0, block = 0, ctas = 0;
	CUfunction function;
	size_t bytes = 0;

	OK(cuKernelGetFunction(&function, put_kernel));
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
	assert_int_equal(block, 1024);
	assert_int_equal(grid, 2 * 132);
	OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, function, NULL, 0,
						     100, 0));
	assert_int_equal(block, 64);
	OK(cudaOccupancyMaxPotentialClusterSize(&ctas, add_kernel, &config));
	assert_int_equal(ctas, 8);
	OK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, add_kernel, 4, 128));
	assert_int_equal(bytes, 233472 / 4 - 1024);
}

/* Attributes that change no result, and those that are refused by name. */
static void test_launch(void **state)
{
	CUlaunchAttribute attributes[] = {
	    {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = -1}},
	    {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW},
	    {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN},
	    {.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT},
	};
	cudaLaunchConfig_t config = {.gridDim = {1, 1, 1},
				     .blockDim = {1, 1, 1},
				     .attrs = attributes,
				     .numAttrs = 4};
	void *word = new_word(0);
	uint32_t n = 3;
	void *arguments[] = {&word, &n};

	OK(cudaLaunchKernelExC(&config, put_kernel, arguments));
	assert_int_equal(word_at(word), 3);
	attributes[3].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
	FAILS(cudaLaunchKernelExC(&config, put_kernel, arguments),
	      CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "put: launch attribute 12 (LAUNCH_COMPLETION_EVENT)");
	attributes[3].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
	FAILS(cudaLaunchKernelExC(&config, put_kernel, arguments),
	      CUDA_ERROR_NOT_SUPPORTED);
	attributes[3].id = 60;
	FAILS(cudaLaunchKernelExC(&config, put_kernel, arguments),
	      CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "launch attribute 60 is not known here");
	FAILS(cudaLaunchKernel(put_kernel, config.gridDim, config.blockDim, NULL, 0,
			       NULL),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "put: it has 2 parameters, and kernelParams is NULL");
	n = 4;
	OK(cudaLaunchCooperativeKernel(put_kernel, config.gridDim, config.blockDim,
				       arguments, 0, NULL));
	assert_int_equal(word_at(word), 4);
	OK(cudaFree(word));
}

static void *find(const char *name, unsigned version)
{
	void *function = NULL;
	int status = -1;

	OK(cudaGetDriverEntryPointByVersion(name, &function, version, 0, &status));
	return function;
}

/* A version of CUDA finds the functions whose arguments its header has. */
static void test_versions(void **state)
{
	assert_ptr_equal(find("cuGraphGetEdges", 12030),
			 (void *)(uintptr_t)cuGraphGetEdges);
	assert_ptr_equal(find("cuGraphGetEdges", 13000),
			 (void *)(uintptr_t)cuGraphGetEdges_v2);
	assert_ptr_equal(find("cuGraphGetEdges_v2", 12030),
			 (void *)(uintptr_t)cuGraphGetEdges_v2);
	assert_ptr_equal(find("cuGraphInstantiate", 13000),
			 (void *)(uintptr_t)cuGraphInstantiateWithFlags);
	assert_ptr_equal(find("cuStreamGetCaptureInfo", 12000),
			 (void *)(uintptr_t)cuStreamGetCaptureInfo_v2);
}

static void test_streams(void **state)
{
	unsigned long long first = 0, second = 0;
	CUstream one, two;
	int device = -1;

	OK(cudaStreamCreate(&one));
	OK(cudaStreamCreate(&two));
	OK(cudaStreamGetId(one, &first));
	OK(cudaStreamGetId(two, &second));
	assert_true(first != second && first > 2);
	OK(cudaStreamGetDevice(one, &device));
	assert_int_equal(device, 0);
	OK(cudaStreamDestroy(one));
	OK(cudaStreamDestroy(two));
	FAILS(cudaStreamGetId(one, &first), CUDA_ERROR_INVALID_HANDLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attributes), cmocka_unit_test(test_occupancy),
	    cmocka_unit_test(test_launch),     cmocka_unit_test(test_versions),
	    cmocka_unit_test(test_streams),
	};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
