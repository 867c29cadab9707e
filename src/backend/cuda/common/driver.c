/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - opens libcuda once for each process, and turns its errors into ours.  It
 * is never closed, because other libraries of the process use it too.
 */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/environment.h"
#include "core/error.h"

/* CUDA 12.1 is the first to allow more than 4,096 bytes of kernel parameters.  The
 * kernels of groups have about twice as many (struct nib_gemm_launch). */
#define MIN_VERSION 12010

static struct cuda_driver driver;
static char closed[128]; /* why there is no driver; "" if there is */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
	const char *name;
	size_t at;
} functions[] = {
#define F(name, arguments) {#name, offsetof(struct cuda_driver, name)},
#include "driver.def"
#undef F
};

/* False if the library lacks a function; *missing is its name. */
static bool find_functions(void *library, const char **missing)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = dlsym(library, functions[i].name);

		*missing = functions[i].name;
		if (!function)
			return false;
		/* C has no cast from data to function pointers. */
		memcpy((char *)&driver + functions[i].at, &function, sizeof(function));
	}
	return true;
}

static const char *error_name(const struct cuda_driver *d, CUresult result)
{
	const char *text = NULL;

	if (d->cuGetErrorName(result, &text) || !text)
		return "an unknown error";
	return text;
}

static const char *error_text(const struct cuda_driver *d, CUresult result)
{
	const char *text = NULL;

	if (d->cuGetErrorString(result, &text) || !text)
		return "no text";
	return text;
}

static void close_for(const char *what, CUresult result)
{
	snprintf(closed, sizeof(closed), "%s: %s (%.70s)", what,
		 error_name(&driver, result), error_text(&driver, result));
}

static void start(void)
{
	/* The user chooses the code, so a process with higher rights must ignore the
	 * variable. */
	const char *path = nib_secure_getenv("NIB_CUDA_LIBRARY");
	const char *missing;
	void *library;
	CUresult result;

	if (!path || !*path)
		path = "libcuda.so.1";
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *text = dlerror();

		snprintf(closed, sizeof(closed), "no NVIDIA driver: %.108s",
			 text ? text : path);
		return;
	}
	if (!find_functions(library, &missing)) {
		snprintf(closed, sizeof(closed),
			 "the NVIDIA driver is too old: it has no %s; CUDA "
			 "%d.%d is needed",
			 missing, MIN_VERSION / 1000, MIN_VERSION % 1000 / 10);
		return;
	}
	result = driver.cuInit(0);
	if (!result)
		result = driver.cuDriverGetVersion(&driver.version);
	if (!result)
		result = driver.cuDeviceGetCount(&driver.devices);
	if (result == CUDA_ERROR_NO_DEVICE || (!result && driver.devices < 1))
		snprintf(closed, sizeof(closed), "the NVIDIA driver finds no GPU");
	else if (result)
		close_for("the NVIDIA driver does not start", result);
	else if (driver.version < MIN_VERSION)
		snprintf(closed, sizeof(closed),
			 "the NVIDIA driver is for CUDA %d.%d; %d.%d is needed",
			 driver.version / 1000, driver.version % 1000 / 10,
			 MIN_VERSION / 1000, MIN_VERSION % 1000 / 10);
}

const struct cuda_driver *cuda_driver(const char **reason)
{
	pthread_once(&once, start);
	*reason = closed;
	return closed[0] ? NULL : &driver;
}

/* ---- errors ------------------------------------------------------------- */

/* Whether the context is lost, and the process cannot get another one. */
static bool is_sticky(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
		return true;
	default:
		return result >= CUDA_ERROR_HARDWARE_STACK_ERROR &&
		       result <= CUDA_ERROR_LAUNCH_FAILED;
	}
}

static enum nib_status status_of(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return NIB_STATUS_OUT_OF_MEMORY;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
		return NIB_STATUS_NO_DEVICE;
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
	case CUDA_ERROR_INVALID_SOURCE:
	case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
	case CUDA_ERROR_NOT_SUPPORTED:
		return NIB_STATUS_UNSUPPORTED;
	case CUDA_ERROR_INVALID_HANDLE:
		return NIB_STATUS_BAD_ARGUMENT;
	default:
		if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
		    result <= CUDA_ERROR_CAPTURED_EVENT)
			return NIB_STATUS_BAD_ARGUMENT;
		return NIB_STATUS_DEVICE_FAILED;
	}
}

/* What the caller can do about it. */
static const char *advice(CUresult result)
{
	if (is_sticky(result))
		return "; earlier work failed on the GPU, and every CUDA call "
		       "of this process fails until it is started anew";
	if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return "; somebody reset the GPU (cudaDeviceReset()): close "
		       "its plans, packed weights and device, and open it "
		       "again";
	if (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
		return "; split-k blocks wait for each other, and the stream "
		       "has too few multiprocessors for them (a green "
		       "context, MPS)";
	if (result == CUDA_ERROR_INVALID_HANDLE)
		return "; is the stream destroyed, or of another GPU?";
	if (status_of(result) == NIB_STATUS_BAD_ARGUMENT)
		return "; a stream that is captured cannot be waited for";
	return "";
}

enum nib_status cuda_fail(const struct cuda_driver *d, CUresult result,
			  const char *what, struct nib_error *err)
{
	return nib_fail(err, status_of(result), "%s: %s (%s)%s", what,
			error_name(d, result), error_text(d, result), advice(result));
}
