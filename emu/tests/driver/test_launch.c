/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_launch.c - cooperative grids through the driver interface: a barrier of the
 * grid, and grids that do not fit on the GPU at once.
 */
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"

/* NIBEMU_SMS is 4; two CTAs of 100 KiB fit on each SM. */
#define SHARED_BYTES (100 << 10)
#define FIT	     8

static const char *const text =
    ".version 9.0\n.target sm_90a\n.address_size 64\n"
    ".const .align 4 .b8 table[20];\n"
    ".common .global .align 8 .u64 environment;\n"
    ".visible .entry k(.param .u64 counter)\n{\n"
    "\t.reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<2>;\n"
    "\tld.param.u64 %d1, [counter];\n"
    "\tatom.add.release.gpu.global.u32 %r1, [%d1], 1;\n"
    "\tmov.u32 %r2, %nctaid.x;\n"
    "L:\tld.acquire.gpu.global.u32 %r3, [%d1];\n"
    "\tsetp.lt.u32 %p1, %r3, %r2;\n\t@%p1 bra L;\n\tret;\n}\n"
    /* grid.sync() of cooperative_groups: the barrier is four bytes into the
     * workspace that %envreg1 and 2 name, and its top bit turns.  Each CTA then
     * adds the cell of the next one to the counter, the first of 9 cells. */
    ".visible .entry g(.param .u64 counter)\n{\n"
    "\t.reg .b64 %d<8>; .reg .b32 %r<16>; .reg .pred %p<2>;\n"
    "\tld.param.u64 %d1, [counter];\n"
    "\tmov.u32 %r1, %ctaid.x;\n\tmov.u32 %r2, %nctaid.x;\n"
    "\tmad.wide.u32 %d2, %r1, 4, %d1;\n\tadd.u32 %r3, %r1, 1;\n"
    "\tst.global.u32 [%d2+4], %r3;\n"
    "\tmov.u32 %r4, %envreg1;\n\tmov.u32 %r5, %envreg2;\n"
    "\tmov.b64 %d3, {%r5, %r4};\n"
    "\tsub.u32 %r6, 0x80000001, %r2;\n\tsetp.ne.u32 %p1, %r1, 0;\n"
    "\t@%p1 mov.u32 %r6, 1;\n"
    "\tatom.add.release.gpu.u32 %r7, [%d3+4], %r6;\n"
    "L:\tld.acquire.gpu.u32 %r8, [%d3+4];\n\txor.b32 %r8, %r8, %r7;\n"
    "\tsetp.ge.s32 %p1, %r8, 0;\n\t@%p1 bra L;\n"
    "\trem.u32 %r3, %r3, %r2;\n\tmad.wide.u32 %d2, %r3, 4, %d1;\n"
    "\tld.global.u32 %r9, [%d2+4];\n"
    "\tred.relaxed.gpu.global.add.u32 [%d1], %r9;\n\tret;\n}\n";

static CUfunction kernel(const char *name)
{
	CUmodule module;
	CUfunction function;

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), 0);
	assert_int_equal(cuModuleGetFunction(&function, module, name), 0);
	assert_int_equal(cuFuncSetAttribute(
			     function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			     SHARED_BYTES),
			 0);
	return function;
}

static CUresult launch(CUfunction function, unsigned ctas, int cooperative,
		       CUdeviceptr counter)
{
	CUlaunchAttribute attribute;
	CUlaunchConfig config = {ctas,	       1,    1,		 1, 1, 1,
				 SHARED_BYTES, NULL, &attribute, 1};
	void *arguments[] = {&counter};

	memset(&attribute, 0, sizeof(attribute));
	attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
	attribute.value.cooperative = cooperative;
	return cuLaunchKernelEx(&config, function, arguments, NULL);
}

static void test_cooperative(void **state)
{
	uint32_t zero = 0, count = 0;
	const CUfunction function = kernel("k");
	CUdeviceptr counter;
	const char *why;

	assert_int_equal(cuMemAlloc_v2(&counter, sizeof(count)), 0);
	assert_int_equal(cuMemcpy(counter, (uintptr_t)&zero, sizeof(zero)), 0);
	assert_int_equal(launch(function, FIT + 1, 1, counter),
			 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	assert_int_equal(
	    cuGetErrorString(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, &why), 0);
	assert_non_null(strstr(why, "a cooperative grid of 9 CTAs"));
	assert_non_null(strstr(why, "holds 8 at once"));
	assert_int_equal(launch(function, FIT, 1, counter), 0);
	assert_int_equal(cuMemcpy((uintptr_t)&count, counter, sizeof(count)), 0);
	assert_int_equal(count, FIT);
	/* Not cooperative, and too many to wait for each other. */
	assert_int_equal(cuMemcpy(counter, (uintptr_t)&zero, sizeof(zero)), 0);
	assert_int_equal(launch(function, FIT + 1, 0, counter), 0);
	assert_int_equal(cuMemcpy((uintptr_t)&count, counter, sizeof(count)),
			 CUDA_ERROR_LAUNCH_FAILED);
	assert_int_equal(cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &why), 0);
	assert_non_null(strstr(why, "1 clusters have not begun"));
}

/* The third dimension of a block has a smaller limit than the others. */
static void test_block_sizes(void **state)
{
	const CUfunction function = kernel("k");
	const char *why;

	assert_int_equal(
	    cuLaunchKernel(function, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL),
	    CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &why), 0);
	assert_string_equal(why, "k: blockDim.z is 65: 1 to 64 are allowed");
}

/* A preferred cluster size may be used or not; here it is not. */
static void test_preferred_cluster(void **state)
{
	const CUfunction function = kernel("k");
	CUlaunchAttribute attributes[2];
	CUlaunchConfig config = {FIT, 1, 1, 1, 1, 1, SHARED_BYTES, NULL, attributes, 2};
	CUdeviceptr counter;
	void *arguments[] = {&counter};
	uint32_t count = 0;

	memset(attributes, 0, sizeof(attributes));
	attributes[0].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
	attributes[0].value.clusterDim.x = 2;
	attributes[0].value.clusterDim.y = attributes[0].value.clusterDim.z = 1;
	attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
	attributes[1].value.cooperative = 1;
	assert_int_equal(cuMemAlloc_v2(&counter, sizeof(count)), 0);
	assert_int_equal(cuMemcpy(counter, (uintptr_t)&count, sizeof(count)), 0);
	assert_int_equal(cuLaunchKernelEx(&config, function, arguments, NULL), 0);
	assert_int_equal(cuMemcpy((uintptr_t)&count, counter, sizeof(count)), 0);
	assert_int_equal(count, FIT);
	attributes[0].id = 63;
	assert_int_equal(cuLaunchKernelEx(&config, function, arguments, NULL),
			 CUDA_ERROR_NOT_SUPPORTED);
}

/* What programs ask about a kernel before they launch it. */
static void test_attributes(void **state)
{
	const CUfunction function = kernel("k");
	const struct {
		int attribute, value;
	} wants[] = {{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
		     {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0},
		     {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 20},
		     {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0},
		     {CU_FUNC_ATTRIBUTE_PTX_VERSION, 90},
		     {CU_FUNC_ATTRIBUTE_BINARY_VERSION, 90},
		     {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED_BYTES}};
	int value = -1;

	for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
		assert_int_equal(
		    cuFuncGetAttribute(&value, wants[i].attribute, function), 0);
		assert_int_equal(value, wants[i].value);
	}
	assert_int_equal(cuFuncGetAttribute(&value, 1000, function),
			 CUDA_ERROR_INVALID_VALUE);
}

/* A launch whose parameters are one buffer (`extra`). */
static void test_parameter_buffer(void **state)
{
	const CUfunction function = kernel("k");
	CUdeviceptr counter;
	size_t bytes = sizeof(counter);
	uint32_t count = 0;
	void *arguments[] = {&counter};
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &counter,
			 CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
	const char *why;

	assert_int_equal(cuMemAlloc_v2(&counter, sizeof(count)), 0);
	assert_int_equal(cuMemcpy(counter, (uintptr_t)&count, sizeof(count)), 0);
	assert_int_equal(
	    cuLaunchKernel(function, 2, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), 0);
	assert_int_equal(cuMemcpy((uintptr_t)&count, counter, sizeof(count)), 0);
	assert_int_equal(count, 2);
	assert_int_equal(
	    cuLaunchKernel(function, 2, 1, 1, 1, 1, 1, 0, NULL, arguments, extra),
	    CUDA_ERROR_INVALID_VALUE);
	bytes = sizeof(counter) - 1;
	assert_int_equal(
	    cuLaunchKernel(function, 2, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
	    CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &why), 0);
	assert_non_null(strstr(why, "k: extra has a buffer of 7 bytes: the kernel has "
				    "8 bytes of parameters"));
	extra[0] = (void *)(uintptr_t)3;
	assert_int_equal(
	    cuLaunchKernel(function, 2, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
	    CUDA_ERROR_INVALID_VALUE);
}

/* The barrier of CUDA's own headers, used several times because it is never reset. */
static void test_grid_sync(void **state)
{
	uint32_t cells[FIT + 1] = {0};
	const CUfunction function = kernel("g");
	CUdeviceptr counter;

	assert_int_equal(cuMemAlloc_v2(&counter, sizeof(cells)), 0);
	for (uint32_t i = 1; i <= 4; i++) {
		assert_int_equal(cuMemcpy(counter, (uintptr_t)cells, sizeof(cells)), 0);
		assert_int_equal(launch(function, FIT, 1, counter), 0);
		assert_int_equal(cuMemcpy((uintptr_t)cells, counter, sizeof(cells)), 0);
		assert_int_equal(cells[0], i * FIT * (FIT + 1) / 2);
	}
}

int main(void)
{
	/* The last one ends with an error that stays. */
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid_sync),
					   cmocka_unit_test(test_block_sizes),
					   cmocka_unit_test(test_preferred_cluster),
					   cmocka_unit_test(test_parameter_buffer),
					   cmocka_unit_test(test_attributes),
					   cmocka_unit_test(test_cooperative)};

	if (setenv("NIBEMU_SMS", "4", 1) != 0 ||
	    setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
