/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_emu_launch.c - cooperative grids through the driver's interface: a
 * barrier of the grid, and grids that the GPU cannot hold at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "emu/driver.h"

#define F(name, arguments) EMU_EXPORT CUresult name arguments;
#include "cuda/driver.def"
#include "driver_more.def"
#undef F

/* Of NIBEMU_SMS = 4: two CTAs of 100 KiB each on one. */
#define SHARED_BYTES (100 << 10)
#define FIT	     8

static const char *const text =
    ".version 9.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry k(.param .u64 counter)\n{\n"
    "\t.reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<2>;\n"
    "\tld.param.u64 %d1, [counter];\n"
    "\tatom.add.release.gpu.global.u32 %r1, [%d1], 1;\n"
    "\tmov.u32 %r2, %nctaid.x;\n"
    "L:\tld.acquire.gpu.global.u32 %r3, [%d1];\n"
    "\tsetp.lt.u32 %p1, %r3, %r2;\n\t@%p1 bra L;\n\tret;\n}\n";

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
	CUmodule module;
	CUfunction function;
	CUdeviceptr counter;
	const char *why;

	(void)state;
	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), 0);
	assert_int_equal(cuModuleGetFunction(&function, module, "k"), 0);
	assert_int_equal(
	    cuFuncSetAttribute(function,
			       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			       SHARED_BYTES),
	    0);
	assert_int_equal(cuMemAlloc_v2(&counter, sizeof(count)), 0);
	assert_int_equal(cuMemcpy(counter, (uintptr_t)&zero, sizeof(zero)), 0);
	assert_int_equal(launch(function, FIT + 1, 1, counter),
			 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	assert_int_equal(
	    cuGetErrorString(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, &why), 0);
	assert_non_null(strstr(why, "a cooperative grid of 9 CTAs"));
	assert_non_null(strstr(why, "holds 8 at once"));
	assert_int_equal(launch(function, FIT, 1, counter), 0);
	assert_int_equal(cuMemcpy((uintptr_t)&count, counter, sizeof(count)),
			 0);
	assert_int_equal(count, FIT);
	/* Not cooperative, and too many to wait for each other. */
	assert_int_equal(cuMemcpy(counter, (uintptr_t)&zero, sizeof(zero)), 0);
	assert_int_equal(launch(function, FIT + 1, 0, counter), 0);
	assert_int_equal(cuMemcpy((uintptr_t)&count, counter, sizeof(count)),
			 CUDA_ERROR_LAUNCH_FAILED);
	assert_int_equal(cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &why), 0);
	assert_non_null(strstr(why, "1 clusters have not begun"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cooperative)};

	if (setenv("NIBEMU_SMS", "4", 1) != 0 ||
	    setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
