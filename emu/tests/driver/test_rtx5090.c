/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rtx5090.c - the RTX 5090 of NIBEMU_DEVICE: its limits, and a kernel for
 * sm_120a through the driver interface.
 */
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"

/* Elements of A are 3, of B 1.5, and scales the parameter's bytes. */
static const char *const text =
    ".version 9.0\n.target sm_120a\n.address_size 64\n"
    ".visible .entry k(.param .u64 out, .param .u32 scales)\n{\n"
    "\t.reg .b64 %d<3>; .reg .b32 %r<8>; .reg .f32 %f<5>;\n"
    "\tld.param.u64 %d1, [out];\n\tld.param.u32 %r1, [scales];\n"
    "\tmov.b32 %r2, 0x55555555;\n\tmov.b32 %r3, 0x33333333;\n"
    "\tmov.f32 %f0, 0f00000000;\n"
    "\tmma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale."
    "scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 {%f1, %f2, %f3, %f4}, "
    "{%r2, %r2, %r2, %r2}, {%r3, %r3}, {%f0, %f0, %f0, %f0}, %r1, {0, 1}, "
    "%r1, {0, 2};\n"
    "\tmov.u32 %r4, %tid.x;\n\tmad.wide.u32 %d2, %r4, 16, %d1;\n"
    "\tst.global.v4.f32 [%d2], {%f1, %f2, %f3, %f4};\n\tret;\n}\n";

static int attribute(int which)
{
	int value = -1;

	assert_int_equal(cuDeviceGetAttribute(&value, which, 0), 0);
	return value;
}

static CUfunction kernel(void)
{
	static CUmodule module;
	CUfunction function;

	if (!module)
		assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), 0);
	assert_int_equal(cuModuleGetFunction(&function, module, "k"), 0);
	return function;
}

static void limits(void **state)
{
	const int which = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {2, 1, 1, 32, 1, 1, 0, NULL, &cluster, 1};
	CUfunction function = kernel();
	CUdeviceptr out = 0;
	uint32_t scales = 0;
	void *arguments[] = {&out, &scales};
	int ctas = 0;

	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 170);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 12);
	assert_int_equal(
	    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 101376);
	assert_int_equal(cuFuncSetAttribute(function, which, 101376), 0);
	assert_int_equal(cuFuncSetAttribute(function, which, 101377),
			 CUDA_ERROR_INVALID_VALUE);
	/* An SM holds 1536 threads. */
	assert_int_equal(
	    cuOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function, 512, 0), 0);
	assert_int_equal(ctas, 3);
	memcpy(&cluster.value, (uint32_t[]){2, 1, 1}, 3 * sizeof(uint32_t));
	assert_int_not_equal(cuLaunchKernelEx(&config, function, arguments, NULL), 0);
}

/* 64 products of 4.5, times 1, and times 8 * 8: values that a GPU gave. */
static void blocks_of_four_bits(void **state)
{
	static const struct {
		uint32_t scales;
		float want;
	} cases[] = {{0x38383838, 288}, {0x50505050, 18432}};
	CUdeviceptr out;
	float sums[128];

	assert_int_equal(cuMemAlloc_v2(&out, sizeof(sums)), 0);
	for (int i = 0; i < 2; i++) {
		uint32_t scales = cases[i].scales;
		void *arguments[] = {&out, &scales};

		assert_int_equal(cuLaunchKernel(kernel(), 1, 1, 1, 32, 1, 1, 0, NULL,
						arguments, NULL),
				 0);
		assert_int_equal(cuMemcpyDtoH_v2(sums, out, sizeof(sums)), 0);
		for (int k = 0; k < 128; k++)
			assert_true(sums[k] == cases[i].want);
	}
	assert_int_equal(cuMemFree_v2(out), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(limits),
	    cmocka_unit_test(blocks_of_four_bits),
	};

	if (setenv("NIBEMU_DEVICE", "rtx5090", 1) != 0 ||
	    setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0 || cuInit(0) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
