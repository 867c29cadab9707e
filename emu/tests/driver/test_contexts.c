/* SPDX-License-Identifier: Apache-2.0 */
/* test_contexts.c - contexts that programs create, and the calls that they refuse. */
#include <pthread.h>
#include <stdlib.h>

#include "common/unit.h"
#include "driver/cuda_api.h"

/* A new context is current; a destroyed one is neither current nor a handle. */
static void test_create(void **state)
{
	CUcontext one, two, now;
	CUdevice device = -1;

	assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuCtxCreate_v4(&one, NULL, 0, 0), CUDA_SUCCESS);
	assert_int_equal(cuCtxGetCurrent(&now), CUDA_SUCCESS);
	assert_ptr_equal(now, one);
	assert_int_equal(cuCtxGetDevice(&device), CUDA_SUCCESS);
	assert_int_equal(device, 0);
	assert_int_equal(cuCtxCreate_v2(&two, 4, 0), CUDA_SUCCESS);
	assert_ptr_not_equal(one, two);
	assert_int_equal(cuCtxPopCurrent_v2(&now), CUDA_SUCCESS);
	assert_ptr_equal(now, two);
	assert_int_equal(cuCtxSetCurrent(two), CUDA_SUCCESS);
	assert_int_equal(cuCtxDestroy_v2(two), CUDA_SUCCESS);
	assert_int_equal(cuCtxDestroy_v2(two), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuCtxPushCurrent_v2(two), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuCtxSetCurrent(two), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuCtxGetCurrent(&now), CUDA_SUCCESS);
	assert_null(now);
	assert_int_equal(cuCtxPushCurrent_v2(one), CUDA_SUCCESS);
	assert_int_equal(cuCtxDestroy_v2(one), CUDA_SUCCESS);
	assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
}

static void *destroy(void *context)
{
	return cuCtxDestroy_v2(context) ? context : NULL;
}

/* A context that another thread destroys stays current, and is refused. */
static void test_destroyed(void **state)
{
	CUcontext context;
	CUdevice device;
	pthread_t thread;
	void *failed;

	assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	assert_int_equal(pthread_create(&thread, NULL, destroy, context), 0);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(cuCtxPopCurrent_v2(NULL), CUDA_SUCCESS);
}

static void test_refused(void **state)
{
	CUcontext context;
	CUctxCreateParams unused = {.numExecAffinityParams = 1};

	assert_int_equal(cuCtxCreate_v2(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuCtxCreate_v2(&context, 0x100, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuCtxCreate_v2(&context, 0, 1), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cuCtxCreate_v4(&context, &unused, 0, 0),
			 CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cuCtxCreate_v3(&context, &unused, 1, 0, 0),
			 CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
	/* The primary context is released, not destroyed. */
	assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	assert_int_equal(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

static void test_capability(void **state)
{
	int major = 0, minor = -1;

	assert_int_equal(cuDeviceComputeCapability(&major, &minor, 0), CUDA_SUCCESS);
	assert_int_equal(major, 9);
	assert_int_equal(minor, 0);
	assert_int_equal(cuDeviceComputeCapability(&major, &minor, 1),
			 CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cuDeviceComputeCapability(NULL, &minor, 0),
			 CUDA_ERROR_INVALID_VALUE);
}

/* The look-up of cuCtxCreate by a program of a version of CUDA. */
static void *look_up(int version)
{
	void *found = NULL;

	assert_int_equal(cuGetProcAddress_v2("cuCtxCreate", &found, version, 0, NULL),
			 CUDA_SUCCESS);
	return found;
}

/* A program gets the function that has the arguments of its version of CUDA. */
static void test_versions(void **state)
{
	CUresult (*v2)(CUcontext *, unsigned, CUdevice) = cuCtxCreate_v2;
	CUresult (*v3)(CUcontext *, void *, int, unsigned, CUdevice) = cuCtxCreate_v3;
	CUresult (*v4)(CUcontext *, void *, unsigned, CUdevice) = cuCtxCreate_v4;
	void *found;

	found = look_up(11030);
	assert_memory_equal(&found, &v2, sizeof(found));
	found = look_up(12040);
	assert_memory_equal(&found, &v3, sizeof(found));
	found = look_up(13000);
	assert_memory_equal(&found, &v4, sizeof(found));
}

/* The look-up itself got an argument in CUDA 12. */
static void test_look_up(void **state)
{
	CUresult (*v1)(const char *, void **, int, uint64_t) = cuGetProcAddress;
	CUresult (*v2)(const char *, void **, int, uint64_t, int *) =
	    cuGetProcAddress_v2;
	void *found = NULL;

	assert_int_equal(cuGetProcAddress("cuGetProcAddress", &found, 11030, 0),
			 CUDA_SUCCESS);
	assert_memory_equal(&found, &v1, sizeof(found));
	assert_int_equal(cuGetProcAddress("cuGetProcAddress", &found, 12000, 0),
			 CUDA_SUCCESS);
	assert_memory_equal(&found, &v2, sizeof(found));
}

/* NVRTC finds it by dlsym(), and calls it; a static runtime library does not get it. */
static void test_no_private_tables(void **state)
{
	const CUuuid id = {{0}};
	const void *table = &id;
	void *found = &table;
	int status = 0;

	assert_int_equal(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
	assert_null(table);
	assert_int_equal(cuGetExportTable(NULL, &id), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(
	    cuGetProcAddress_v2("cuGetExportTable", &found, 13000, 0, &status),
	    CUDA_ERROR_NOT_FOUND);
	assert_null(found);
	assert_int_equal(status, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_create),
	    cmocka_unit_test(test_destroyed),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_capability),
	    cmocka_unit_test(test_versions),
	    cmocka_unit_test(test_look_up),
	    cmocka_unit_test(test_no_private_tables),
	};

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0 || cuInit(0) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
