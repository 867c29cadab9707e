/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c - the B200 of NIBEMU_DEVICE: its properties and the modules that
 * it loads; and the modules that each device accepts by its rules.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"
#include "machine/device.h"

static void test_targets(void **state)
{
	static const struct {
		const char *device, *target;
		bool is_taken;
	} cases[] = {
	    {"h200", "sm_90a", true},	   {"h200", "sm_90", true},
	    {"h100", "sm_90a", true},	   {"h100", "sm_100", false},
	    {"h200", "sm_80", true},	   {"h200", "sm_100a", false},
	    {"h200", "sm_100", false},	   {"h200", "sm_89a", false},
	    {"b200", "sm_100a", true},	   {"b200", "sm_100f", true},
	    {"b200", "sm_100", true},	   {"b200", "sm_90", true},
	    {"b200", "sm_90a", false},	   {"b200", "sm_103a", false},
	    {"b200", "sm_103f", false},	   {"b200", "sm_120a", false},
	    {"b200", "compute", false},	   {"b200", "sm_", false},
	    {"b200", "sm_100x", false},	   {"b200", "sm_20", false},
	    {"rtx5090", "sm_120a", true},  {"rtx5090", "sm_120f", true},
	    {"rtx5090", "sm_89", true},	   {"rtx5090", "sm_121a", false},
	    {"rtx5090", "sm_100a", false}, {"rtx5090", "sm_90a", false},
	    {"a100", "sm_80", true},	   {"a100", "sm_75", true},
	    {"a100", "sm_86", false},	   {"a100", "sm_80a", false},
	    {"a100", "sm_90", false},	   {"rtx4090", "sm_89", true},
	    {"rtx4090", "sm_86", true},	   {"rtx4090", "sm_89f", false},
	    {"rtx4090", "sm_90", false},   {"h200", "sm_90f", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct emu_error err = {{0}};

		if (emu_device_takes(emu_device_find(cases[i].device), cases[i].target,
				     &err) != cases[i].is_taken)
			fail_msg("%s, %s: %s", cases[i].device, cases[i].target,
				 err.text);
		if (!cases[i].is_taken)
			assert_non_null(strstr(err.text, cases[i].target));
	}
	assert_null(emu_device_find("b300"));
	assert_string_equal(emu_device_default()->name, "h200");
}

static int attribute(int which)
{
	int value = -1;

	assert_int_equal(cuDeviceGetAttribute(&value, which, 0), 0);
	return value;
}

static void test_properties(void **state)
{
	char name[40];

	assert_int_equal(cuDeviceGetName(name, sizeof(name), 0), 0);
	assert_string_equal(name, "B200 in software");
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 10);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 148);
	assert_int_equal(
	    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 232448);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 132644864);
}

static CUresult load(const char *target)
{
	char text[200];
	CUmodule module;
	CUresult result;

	snprintf(text, sizeof(text),
		 ".version 9.0\n.target %s\n.address_size 64\n"
		 ".visible .entry k() { ret; }\n",
		 target);
	result = cuModuleLoadDataEx(&module, text, 0, NULL, NULL);
	if (!result)
		assert_int_equal(cuModuleUnload(module), 0);
	return result;
}

static void test_modules(void **state)
{
	const char *why = NULL;

	assert_int_equal(load("sm_100a"), CUDA_SUCCESS);
	assert_int_equal(load("sm_90"), CUDA_SUCCESS);
	assert_int_equal(load("sm_90a"), CUDA_ERROR_INVALID_PTX);
	(void)cuGetErrorString(CUDA_ERROR_INVALID_PTX, &why);
	assert_string_equal(why,
			    ".target sm_90a needs another device than the B200 in "
			    "software (compute capability 10.0): nibemu run --device "
			    "h200");
	assert_int_equal(load("sm_110a"), CUDA_ERROR_INVALID_PTX);
	(void)cuGetErrorString(CUDA_ERROR_INVALID_PTX, &why);
	assert_non_null(
	    strstr(why, "(compute capability 10.0): none that is emulated"));
}

/* ---- fat binaries -------------------------------------------------------- */

/* One entry after another; kind 1 is PTX, 2 machine code. */
static struct fat {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes;
	uint8_t entries[1024];
} fat;

static void begin_fat(void)
{
	fat = (struct fat){0xBA55ED50, 1, 16, 0, {0}};
}

static void add_entry(uint16_t kind, uint32_t sm, const char *text)
{
	uint8_t *to = fat.entries + fat.bytes;
	const uint32_t header = 64;
	const uint64_t payload = (strlen(text) + 1 + 7) / 8 * 8;

	memcpy(to, &kind, 2);
	memcpy(to + 4, &header, 4);
	memcpy(to + 8, &payload, 8);
	memcpy(to + 28, &sm, 4);
	memcpy(to + header, text, strlen(text));
	fat.bytes += header + payload;
}

static void add_ptx(uint32_t sm, const char *target, const char *kernel)
{
	char text[200];

	snprintf(text, sizeof(text),
		 ".version 9.0\n.target %s\n.address_size 64\n"
		 ".visible .entry %s() { ret; }\n",
		 target, kernel);
	add_entry(1, sm, text);
}

/* Whether the binary loads, and has only this kernel. */
static void check_chosen(const char *kernel)
{
	CUmodule module;
	CUfunction function;
	unsigned count = 0;

	assert_int_equal(cuModuleLoadData(&module, &fat), CUDA_SUCCESS);
	assert_int_equal(cuModuleGetFunction(&function, module, kernel), CUDA_SUCCESS);
	assert_int_equal(cuLibraryGetKernelCount(&count, (CUlibrary)(void *)module), 0);
	assert_int_equal(count, 1);
	assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
}

/* The newest PTX that a B200 accepts is chosen, at any position. */
static void test_fat_binaries(void **state)
{
	begin_fat();
	add_ptx(80, "sm_80", "old");
	add_entry(2, 100, "\177ELF");
	add_ptx(100, "sm_100a", "newest");
	add_ptx(100, "sm_100", "new");
	add_ptx(120, "sm_120", "newer");
	add_ptx(90, "sm_90a", "hopper");
	check_chosen("newest");
	begin_fat();
	add_ptx(90, "sm_90", "older");
	add_ptx(80, "sm_80", "old");
	check_chosen("older");
}

/* Machine code fails as in a driver that finds no code for its GPU. */
static void test_machine_code(void **state)
{
	CUmodule module;
	const char *why = NULL;

	assert_int_equal(cuModuleLoadData(&module, "\177ELF\2\1\1"),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	(void)cuGetErrorString(CUDA_ERROR_NO_BINARY_FOR_GPU, &why);
	assert_string_equal(why, "the module is a cubin: build with PTX "
				 "(-gencode arch=compute_100a,"
				 "code=compute_100a)");
	begin_fat();
	assert_int_equal(cuModuleLoadData(&module, &fat), CUDA_ERROR_NO_BINARY_FOR_GPU);
	add_entry(2, 100, "\177ELF");
	add_ptx(90, "sm_90a", "hopper");
	assert_int_equal(cuModuleLoadData(&module, &fat), CUDA_ERROR_NO_BINARY_FOR_GPU);
	/* An entry that ends past the end of the binary is not read. */
	begin_fat();
	add_ptx(100, "sm_100a", "cut");
	fat.bytes -= 8;
	assert_int_equal(cuModuleLoadData(&module, &fat), CUDA_ERROR_NO_BINARY_FOR_GPU);
	fat.header_bytes = 0;
	assert_int_equal(cuModuleLoadData(&module, &fat), CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_int_equal(cuModuleLoadData(&module, "\200\201\202\203"),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_int_equal(cuModuleLoadData(&module, "P"), CUDA_ERROR_INVALID_PTX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_targets),	 cmocka_unit_test(test_properties),
	    cmocka_unit_test(test_modules),	 cmocka_unit_test(test_fat_binaries),
	    cmocka_unit_test(test_machine_code),
	};

	if (setenv("NIBEMU_DEVICE", "b300", 1) != 0 ||
	    setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0 ||
	    cuInit(0) != CUDA_ERROR_INVALID_DEVICE ||
	    setenv("NIBEMU_DEVICE", "b200", 1) != 0 || cuInit(0) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
