/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ampere.c - the A100 and the RTX 4090 of NIBEMU_DEVICE: their limits, what they
 * refuse by name, and one program of sm_80 that runs on every device, with the races
 * that are found in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/unit.h"
#include "driver/cuda_api.h"
#include "machine/device.h"

static const struct emu_device *device;

/*
 * y[i] = 16 products of x[i] and 1: cp.async to shared memory, an mbarrier of sm_80,
 * mma.sync.  bug: without the wait for the copies.
 */
#define TEXT(target, wait)                                                             \
	".version 9.0\n.target " target "\n.address_size 64\n"                         \
	".visible .entry k(.param .u64 x, .param .u64 y)\n{\n"                         \
	"\t.reg .b64 %d<6>; .reg .b32 %r<12>; .reg .f32 %f<8>; .reg .pred %p1;\n"      \
	"\t.shared .align 16 .b8 stage[512];\n\t.shared .align 8 .b64 bar;\n"          \
	"\tld.param.u64 %d1, [x];\n\tld.param.u64 %d2, [y];\n"                         \
	"\tmov.u32 %r1, %tid.x;\n\tmov.u32 %r2, stage;\n\tmov.u32 %r3, bar;\n"         \
	"\tsetp.ne.u32 %p1, %r1, 0;\n"                                                 \
	"\t@!%p1 mbarrier.init.shared.b64 [%r3], 32;\n\tbar.sync 0;\n"                 \
	"\tmad.wide.u32 %d3, %r1, 16, %d1;\n\tmad.lo.u32 %r4, %r1, 16, %r2;\n"         \
	"\tcp.async.cg.shared.global [%r4], [%d3], 16;\n" wait                         \
	"\tmad.lo.u32 %r5, %r1, 4, %r2;\n"                                             \
	"\tld.shared.u32 %r6, [%r5];\n\tld.shared.u32 %r7, [%r5+128];\n"               \
	"\tld.shared.u32 %r8, [%r5+256];\n\tld.shared.u32 %r9, [%r5+384];\n"           \
	"\tmov.u32 %r10, 0x3C003C00;\n\tmov.f32 %f0, 0f00000000;\n"                    \
	"\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "                         \
	"{%f1, %f2, %f3, %f4}, {%r6, %r7, %r8, %r9}, {%r10, %r10}, "                   \
	"{%f0, %f0, %f0, %f0};\n"                                                      \
	"\tmad.wide.u32 %d4, %r1, 16, %d2;\n"                                          \
	"\tst.global.v4.f32 [%d4], {%f1, %f2, %f3, %f4};\n\tret;\n}\n"
#define WAIT                                                                           \
	"\tcp.async.mbarrier.arrive.noinc.shared.b64 [%r3];\n"                         \
	"L:\tmbarrier.test_wait.parity.shared.b64 %p1, [%r3], 0;\n\t@!%p1 bra L;\n"

static int attribute(int which)
{
	int value = -1;

	assert_int_equal(cuDeviceGetAttribute(&value, which, 0), 0);
	return value;
}

static CUfunction load(const char *text)
{
	CUmodule module;
	CUfunction function;

	assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), 0);
	assert_int_equal(cuModuleGetFunction(&function, module, "k"), 0);
	return function;
}

/* The last failure's text has the words. */
static void check_text(CUresult result, const char *words)
{
	const char *why = NULL;

	(void)cuGetErrorString(result, &why);
	if (!why || !strstr(why, words))
		fail_msg("%s: '%s' is not in: %s", device->name, words, why);
}

/* ---- one program on all devices ------------------------------------------ */

static CUresult run(const char *text, CUdeviceptr x, CUdeviceptr y)
{
	void *arguments[] = {&x, &y};
	CUresult result =
	    cuLaunchKernel(load(text), 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);

	return result ? result : cuCtxSynchronize();
}

static void same_program(void **state)
{
	uint16_t x[256];
	float y[128];
	CUdeviceptr from, to;

	for (int i = 0; i < 256; i++)
		x[i] = (uint16_t)(0x3C00 + (i % 4) * 0x400); /* 1, 2, 4, 8 */
	assert_int_equal(cuMemAlloc_v2(&from, sizeof(x)), 0);
	assert_int_equal(cuMemAlloc_v2(&to, sizeof(y)), 0);
	assert_int_equal(cuMemcpyHtoD_v2(from, x, sizeof(x)), 0);
	assert_int_equal(run(TEXT("sm_80", WAIT), from, to), 0);
	assert_int_equal(cuMemcpyDtoH_v2(y, to, sizeof(y)), 0);
	/* Each row has four of each of 1, 2, 4 and 8. */
	for (int i = 0; i < 128; i++)
		assert_true(y[i] == 60);
	assert_int_not_equal(run(TEXT("sm_80", ""), from, to), 0);
}

/* ---- limits -------------------------------------------------------------- */

static const char *const plain = ".version 9.0\n.target sm_80\n.address_size 64\n"
				 ".visible .entry k() { ret; }\n";

static void limits(void **state)
{
	const int which = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	const int most = (int)device->cta_shared_bytes;
	const bool is_a100 = device->minor == 0;
	CUfunction function = load(plain);
	int ctas = 0;

	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
			 is_a100 ? 108 : 128);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
			 is_a100 ? 0 : 9);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
			 (is_a100 ? 40 : 72) << 20);
	assert_int_equal(
	    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
	    (is_a100 ? 163 : 99) << 10);
	assert_int_equal(attribute(120), 0); /* clusters */
	/* 2.0 and 1.0 TB/s. */
	assert_int_equal((int64_t)attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * 2 *
			     attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) /
			     8 / 1000000,
			 is_a100 ? 2039 : 1008);
	assert_int_equal(cuFuncSetAttribute(function, which, most), 0);
	assert_int_equal(cuFuncSetAttribute(function, which, most + 1),
			 CUDA_ERROR_INVALID_VALUE);
	check_text(CUDA_ERROR_INVALID_VALUE,
		   is_a100 ? "at most 166912" : "at most 101376");
	check_text(CUDA_ERROR_INVALID_VALUE, device->title);
	/* By threads, by CTAs, by shared memory. */
	assert_int_equal(
	    cuOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function, 512, 0), 0);
	assert_int_equal(ctas, is_a100 ? 4 : 3);
	assert_int_equal(
	    cuOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function, 32, 0), 0);
	assert_int_equal(ctas, is_a100 ? 32 : 24);
	assert_int_equal(
	    cuOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, function, 128, 48 << 10),
	    0);
	assert_int_equal(ctas, is_a100 ? 3 : 2);
	assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(
			     &ctas, function, 32, device->cta_shared_bytes),
			 0);
	assert_int_equal(ctas, 1);
}

/* Registers limit the CTAs of kernels that bound them. */
static void occupancy_by_registers(void **state)
{
	static const struct {
		const char *bounds;
		int threads, a100, rtx4090;
	} cases[] = {
	    {".maxntid 128 .minnctapersm 5", 128, 5, 5},
	    {".maxntid 128 .minnctapersm 5", 96, 5, 5},
	    {".maxntid 256 .minnctapersm 1", 256, 1, 1},
	    {".maxntid 352 .minnctapersm 1", 352, 1, 1},
	    {".maxnreg 64", 256, 4, 4},
	    {".maxnreg 32", 256, 8, 6},
	    {".maxntid 256", 256, 8, 6},
	};
	char text[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int want = device->minor == 0 ? cases[i].a100 : cases[i].rtx4090;
		int ctas = 0;

		snprintf(text, sizeof(text),
			 ".version 9.0\n.target sm_80\n.address_size 64\n"
			 ".visible .entry k() %s { ret; }\n",
			 cases[i].bounds);
		assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(
				     &ctas, load(text), cases[i].threads, 0),
				 0);
		if (ctas != want)
			fail_msg("%s, %d threads: %d CTAs, not %d", cases[i].bounds,
				 cases[i].threads, ctas, want);
	}
}

/* ---- launches that the devices refuse ------------------------------------ */

static CUresult launch(CUfunction function, uint32_t ctas, uint32_t shared_bytes,
		       CUlaunchAttribute *with)
{
	const CUlaunchConfig config = {ctas,	     1,	   1,	 32,	      1, 1,
				       shared_bytes, NULL, with, with ? 1 : 0};

	return cuLaunchKernelEx(&config, function, NULL, NULL);
}

static void refused_launches(void **state)
{
	CUlaunchAttribute with = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUfunction function = load(plain);
	int ctas = 0;

	memcpy(&with.value, (uint32_t[]){1, 1, 1}, 3 * sizeof(uint32_t));
	assert_int_equal(launch(function, 2, 0, &with), 0);
	memcpy(&with.value, (uint32_t[]){2, 1, 1}, 3 * sizeof(uint32_t));
	assert_int_equal(launch(function, 2, 0, &with), CUDA_ERROR_NOT_SUPPORTED);
	check_text(CUDA_ERROR_NOT_SUPPORTED, "a cluster needs compute capability 9.0");
	with = (CUlaunchAttribute){
	    .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
	assert_int_equal(launch(function, 2, 0, &with), 0);
	with.value.programmaticStreamSerializationAllowed = 1;
	assert_int_equal(launch(function, 2, 0, &with), CUDA_ERROR_NOT_SUPPORTED);
	check_text(CUDA_ERROR_NOT_SUPPORTED,
		   "a dependent launch needs compute capability 9.0");
	/* The resident CTAs of all SMs, and one more. */
	with = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};
	with.value.cooperative = 1;
	assert_int_equal(launch(function, device->sms * device->sm_ctas, 0, &with), 0);
	assert_int_equal(launch(function, device->sms * device->sm_ctas + 1, 0, &with),
			 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	/* Shared memory that was not allowed. */
	assert_int_equal(launch(function, 1, 49153, NULL), CUDA_ERROR_INVALID_VALUE);
	check_text(CUDA_ERROR_INVALID_VALUE, "49153 bytes of shared memory");
	assert_int_equal(cuOccupancyMaxPotentialClusterSize(
			     &ctas, function, &(CUlaunchConfig){.gridDimX = 1}),
			 0);
	assert_int_equal(ctas, 1);
}

static void refused_tensor_maps(void **state)
{
	CUtensorMap map;
	const uint64_t sizes[1] = {256};
	const uint32_t box[1] = {64}, steps[1] = {1};

	assert_int_equal(cuTensorMapEncodeTiled(&map, 0, 1, &map, sizes, NULL, box,
						steps, 0, 0, 0, 0),
			 CUDA_ERROR_NOT_SUPPORTED);
	check_text(CUDA_ERROR_NOT_SUPPORTED, "it needs compute capability 9.0");
}

/* ---- modules that the devices refuse ------------------------------------- */

static void refuse_module(const char *target, const char *statement, const char *words)
{
	char text[600];
	CUmodule module;

	snprintf(text, sizeof(text),
		 ".version 9.0\n.target %s\n.address_size 64\n.visible .entry k()\n{\n"
		 "\t.reg .b16 %%h<4>; .reg .b32 %%r<4>; .reg .b64 %%d<4>;\n"
		 "\t.reg .f32 %%f<4>;\n\t%s;\n\tret;\n}\n",
		 target, statement);
	assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL),
			 CUDA_ERROR_INVALID_PTX);
	check_text(CUDA_ERROR_INVALID_PTX, words);
}

static void refused_modules(void **state)
{
	const char *e4m3 = "cvt.rn.f16x2.e4m3x2 %r1, %h1";
	CUmodule module;

	refuse_module(
	    "sm_80", "griddepcontrol.wait",
	    "griddepcontrol.wait: it needs .target sm_90 or later, not sm_80");
	refuse_module("sm_80", e4m3, ".e4m3x2 needs .target sm_89 or later, not sm_80");
	refuse_module("sm_89", "mov.u32 %r1, %cluster_ctarank",
		      "%cluster_ctarank needs .target sm_90 or later, not sm_89");
	refuse_module("sm_89", "mul.bf16x2 %r1, %r2, %r3",
		      "mul.bf16x2: .bf16x2 needs .target sm_90 or later, not sm_89");
	refuse_module("sm_90", "mul.bf16x2 %r1, %r2, %r3",
		      ".target sm_90 needs another device");
	refuse_module("sm_90a", "mov.u32 %r1, %r2", device->title);
	refuse_module("sm_80a", "mov.u32 %r1, %r2", device->title);
	if (device->minor == 0)
		refuse_module("sm_89", e4m3,
			      "(compute capability 8.0): nibemu run --device rtx4090");
	else
		assert_int_equal(
		    cuModuleLoadDataEx(&module,
				       ".version 9.0\n.target sm_89\n.address_size 64\n"
				       ".visible .entry k() { .reg .b16 %h; .reg .b32 "
				       "%r; mov.b16 %h, 0x3838; "
				       "cvt.rn.f16x2.e4m3x2 %r, %h; ret; }\n",
				       0, NULL, NULL),
		    0);
}

static int test_device(const char *name)
{
	const struct CMUnitTest all[] = {cmocka_unit_test(same_program)};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(limits),
	    cmocka_unit_test(occupancy_by_registers),
	    cmocka_unit_test(refused_launches),
	    cmocka_unit_test(refused_tensor_maps),
	    cmocka_unit_test(refused_modules),
	    cmocka_unit_test(same_program),
	};

	device = emu_device_find(name);
	if (!device || setenv("NIBEMU_DEVICE", name, 1) != 0 ||
	    setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0 || cuInit(0) != 0)
		return 1;
	return device->major == 8 ? cmocka_run_group_tests(tests, NULL, NULL)
				  : cmocka_run_group_tests(all, NULL, NULL);
}

/* A process for each device, which is chosen once. */
int main(void)
{
	const struct emu_device *d;
	int failed = 0;

	for (size_t i = 0; (d = emu_device_at(i)); i++) {
		const pid_t child = fork();
		int status = 1;

		if (child == 0)
			_exit(test_device(d->name));
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			failed = 1;
	}
	return failed;
}
