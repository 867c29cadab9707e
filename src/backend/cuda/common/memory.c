/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - allocation of GPU memory, for callers without an allocator, copies, and
 * waiting. */
#include <stdio.h>

#include "core/error.h"
#include "cuda.h"

CUresult cuda_memory_alloc(const struct cuda_driver *cu, CUdeviceptr *pointer,
			   size_t bytes)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult result = cu->cuThreadExchangeStreamCaptureMode(&mode);

	if (result)
		return result;
	result = cu->cuMemAlloc_v2(pointer, bytes);
	(void)cu->cuThreadExchangeStreamCaptureMode(&mode);
	return result;
}

CUresult cuda_memory_free(const struct cuda_driver *cu, CUdeviceptr pointer)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult result = cu->cuThreadExchangeStreamCaptureMode(&mode);

	if (result)
		return result;
	result = cu->cuMemFree_v2(pointer);
	(void)cu->cuThreadExchangeStreamCaptureMode(&mode);
	return result;
}

enum nib_status cuda_alloc(struct nib_device *base, size_t bytes, void **pointer,
			   struct nib_error *err)
{
	const struct cuda_device *device = cuda_device(base);
	const struct cuda_driver *cu = device->driver;
	char what[64];
	CUdeviceptr data = 0;
	CUresult result;
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	result = cuda_memory_alloc(cu, &data, bytes);
	if (result) {
		snprintf(what, sizeof(what), "%s: no memory for %zu bytes",
			 device->name, bytes);
		status = cuda_fail(cu, result, what, err);
	} else {
		*pointer = (void *)(uintptr_t)data;
	}
	cuda_leave(device);
	return status;
}

void cuda_free(struct nib_device *base, void *pointer)
{
	const struct cuda_device *device = cuda_device(base);

	if (cuda_enter(device, NULL))
		return;
	(void)cuda_memory_free(device->driver, (CUdeviceptr)(uintptr_t)pointer);
	cuda_leave(device);
}

enum nib_status cuda_copy(struct nib_device *base, void *to, const void *from,
			  size_t bytes, void *stream, struct nib_error *err)
{
	const struct cuda_device *device = cuda_device(base);
	const struct cuda_driver *cu = device->driver;
	CUresult result;
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	result = cu->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to,
				   (CUdeviceptr)(uintptr_t)from, bytes, stream);
	if (!result)
		result = cu->cuStreamSynchronize(stream);
	if (result)
		status = cuda_fail(cu, result, device->name, err);
	cuda_leave(device);
	return status;
}

enum nib_status cuda_wait(struct nib_device *base, void *stream, struct nib_error *err)
{
	const struct cuda_device *device = cuda_device(base);
	CUresult result;
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	result = device->driver->cuStreamSynchronize(stream);
	if (result)
		status = cuda_fail(device->driver, result, device->name, err);
	cuda_leave(device);
	return status;
}
