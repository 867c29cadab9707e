/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - the device, its context, memory that host and device share,
 * occupancy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/stream.h"
#include "machine/prints.h"

/* ---- the device ---------------------------------------------------------- */

static CUresult check_device(CUdevice device)
{
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetUuid_v2(CUuuid *id, CUdevice device)
{
	memcpy(id->bytes, "software GPU 0\0", sizeof(id->bytes));
	return check_device(device);
}

CUresult cuDeviceGetPCIBusId(char *text, int bytes, CUdevice device)
{
	snprintf(text, bytes > 0 ? (size_t)bytes : 0, "0000:00:00.0");
	return check_device(device);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	*can = 0;
	return check_device(device) ? check_device(device) : check_device(peer);
}

/* ---- the context --------------------------------------------------------- */

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	*flags = 0;
	*active = emu_driver.retained > 0;
	return check_device(device);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
	(void)flags;
	return check_device(device);
}

/* Memory and modules stay until they are freed, or the process ends. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return check_device(device) ? check_device(device) : cuCtxSynchronize();
}

CUresult cuCtxGetFlags(unsigned *flags)
{
	*flags = 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
	(void)context;
	*version = 3020;
	return CUDA_SUCCESS;
}

enum { LIMIT_STACK_BYTES = 0, LIMIT_PRINTF_BYTES = 1, LIMIT_HEAP_BYTES = 2 };

CUresult cuCtxGetLimit(size_t *value, int limit)
{
	const struct emu_prints *prints;
	CUresult result = emu_driver_enter();

	prints = emu_driver.machine.prints;
	*value = limit == LIMIT_STACK_BYTES ? 1024
		 : limit == LIMIT_PRINTF_BYTES
		     ? prints ? emu_prints_size(prints) : EMU_PRINTS_BYTES
		 : limit == LIMIT_HEAP_BYTES && emu_driver.machine.heap_limit
		     ? emu_driver.machine.heap_limit
		 : limit == LIMIT_HEAP_BYTES ? EMU_HEAP_BYTES
					     : 0;
	return emu_driver_leave(result);
}

/* The module gives the size of stacks. */
CUresult cuCtxSetLimit(int limit, size_t value)
{
	CUresult result = emu_driver_enter();

	if (!result && limit == LIMIT_PRINTF_BYTES &&
	    !emu_prints_resize(emu_driver.machine.prints, value))
		result =
		    emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				    "the size of printf's buffer: a kernel has printed "
				    "already");
	if (!result && limit == LIMIT_HEAP_BYTES)
		emu_driver.machine.heap_limit = value ? value : 1;
	return emu_driver_leave(result);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = EMU_LEAST_PRIORITY;
	if (greatest)
		*greatest = EMU_GREATEST_PRIORITY;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(int config)
{
	(void)config;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(int *config)
{
	*config = 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	return CUDA_SUCCESS;
}

/* What stays in the L2 cache, and the priority of a stream, have no effect. */
CUresult cuStreamSetAttribute(CUstream stream, int attribute, const void *value)
{
	bool is_stream;

	(void)emu_driver_enter();
	is_stream = emu_stream_is_valid(stream);
	(void)emu_driver_leave(CUDA_SUCCESS);
	if (!is_stream)
		return CUDA_ERROR_INVALID_HANDLE;
	return attribute > 0 && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxDetach(CUcontext context)
{
	return cuCtxDestroy_v2(context);
}

CUresult cuProfilerStart(void)
{
	return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
	return CUDA_SUCCESS;
}

/* ---- memory -------------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *bytes)
{
	CUresult result = emu_driver_enter();

	if (!result && (!free_bytes || !bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		*bytes = emu_driver.machine.global.bytes;
		*free_bytes = *bytes - emu_memory_used(emu_driver.machine.memory);
	}
	return emu_driver_leave(result);
}

/*
 * Memory that host and device share is memory of the device, at the same
 * address for both.  What the host writes cannot be seen, so all of it counts
 * as written.
 */
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
	CUresult result = cuMemAlloc_v2(pointer, bytes);

	(void)flags;
	if (!result)
		result = cuMemsetD8_v2(*pointer, 0, bytes);
	return result;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
	CUdeviceptr at = 0;
	const CUresult result = cuMemAllocManaged(&at, bytes, flags);

	*pointer = (void *)(uintptr_t)at;
	return result;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
	return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
	return cuMemFree_v2((uintptr_t)pointer);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width,
			    size_t height, unsigned element_bytes)
{
	(void)element_bytes;
	if (!pointer || !pitch || width > SIZE_MAX - 511)
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = (width + 511) / 512 * 512;
	if (height && *pitch > SIZE_MAX / height)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return cuMemAlloc_v2(pointer, *pitch * height);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *begin, size_t *bytes, CUdeviceptr pointer)
{
	CUresult result = emu_driver_enter();
	uint64_t at = 0, size = 0;

	if (!result && !emu_memory_find(emu_driver.machine.memory, pointer, &at, &size))
		result = CUDA_ERROR_INVALID_VALUE;
	if (begin)
		*begin = at;
	if (bytes)
		*bytes = size;
	return emu_driver_leave(result);
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer)
{
	return cuPointerGetAttributes(1, &attribute, &value, pointer);
}

/* ---- occupancy ----------------------------------------------------------- */

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int threads, size_t shared_bytes, unsigned flags)
{
	(void)flags;
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads,
							   shared_bytes);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *ctas, CUfunction function,
					    const CUlaunchConfig *config)
{
	const int most =
	    (int)emu_device_or_default(emu_driver.machine.device)->cluster_ctas;

	(void)config;
	*ctas = function->any_cluster ? EMU_CLUSTER_MAX : 8;
	if (*ctas > most)
		*ctas = most;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function,
						 int blocks, int threads)
{
	const struct emu_device *d = emu_device_or_default(emu_driver.machine.device);
	size_t each;

	if (blocks < 1 || threads < 1)
		return CUDA_ERROR_INVALID_VALUE;
	each = d->sm_shared_bytes / (size_t)blocks;
	if (each > d->cta_shared_bytes + 1024u)
		each = d->cta_shared_bytes + 1024u;
	*bytes = each > function->kernel->shared_bytes + 1024u
		     ? each - function->kernel->shared_bytes - 1024u
		     : 0;
	return CUDA_SUCCESS;
}

/* The block whose CTAs fill an SM with the most threads; the larger one of equals. */
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
					  size_t (*shared_bytes)(int), size_t bytes,
					  int most)
{
	int best = 0, limit = 0, blocks = 0, sms = 0;
	CUresult result =
	    grid && block && function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		result = cuFuncGetAttribute(
		    &limit, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
	if (!result)
		result = cuDeviceGetAttribute(
		    &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
	if (most > 0 && most < limit)
		limit = most;
	for (int threads = limit; threads > 0 && !result;
	     threads = (threads - 1) / EMU_LANES * EMU_LANES) {
		result = cuOccupancyMaxActiveBlocksPerMultiprocessor(
		    &blocks, function, threads,
		    shared_bytes ? shared_bytes(threads) : bytes);
		if (blocks * threads > best) {
			best = blocks * threads;
			*block = threads;
			*grid = blocks * sms;
		}
	}
	return !result && !best ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block,
						   CUfunction function,
						   size_t (*shared_bytes)(int),
						   size_t bytes, int most,
						   unsigned flags)
{
	(void)flags;
	return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_bytes,
						bytes, most);
}
