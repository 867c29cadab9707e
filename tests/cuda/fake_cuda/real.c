/* SPDX-License-Identifier: Apache-2.0 */
/* real.c - declared.h by CUDA's own cuda.h; nothing if that is not installed. */
#include "real.h"

#include <stddef.h>

#ifdef NIB_HAVE_CUDA_H
#include <cuda.h>

#include "declared.h"

int real_count(void)
{
	return (int)(sizeof(declared) / sizeof(*declared));
}

long long real_value(int i)
{
	return declared[i].value;
}

#define STRING(x) #x
#define NAME(x)	  STRING(x)
/* The exported names of functions whose suffix changes between versions. */
const char *const real_names[] = {
    NAME(cuMemAlloc),
    NAME(cuMemFree),
    NAME(cuCtxPushCurrent),
    NAME(cuCtxPopCurrent),
    NAME(cuDeviceTotalMem),
    NAME(cuDevicePrimaryCtxRelease),
    NAME(cuStreamSynchronize),
    NAME(cuThreadExchangeStreamCaptureMode),
    NAME(cuPointerGetAttributes),
    NAME(cuMemAllocAsync),
    NAME(cuMemFreeAsync),
    NAME(cuMemcpy),
    NAME(cuMemcpyAsync),
    NAME(cuMemsetD8Async),
    NAME(cuModuleLoadDataEx),
    NAME(cuModuleGetFunction),
    NAME(cuFuncSetAttribute),
    NAME(cuLaunchKernelEx),
    NAME(cuOccupancyMaxActiveClusters),
    NAME(cuTensorMapEncodeTiled),
    NAME(cuDeviceGetAttribute),
    NAME(cuDevicePrimaryCtxRetain),
    NULL,
};
#else
const char *const real_names[] = {NULL};

int real_count(void)
{
	return 0;
}

long long real_value(int i)
{
	return i;
}
#endif
