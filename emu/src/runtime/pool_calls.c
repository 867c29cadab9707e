/* SPDX-License-Identifier: Apache-2.0 */
/* pool_calls.c - pools, memory of graphs, and what would be of other processes. */
#include "runtime/cudart.h"

/* ---- pools -------------------------------------------------------------------- */

cudaError_t cudaDeviceGetDefaultMemPool(CUmemoryPool *pool, int device)
{
	EMU_CALL(cuDeviceGetDefaultMemPool(pool, device));
}

cudaError_t cudaDeviceGetMemPool(CUmemoryPool *pool, int device)
{
	EMU_CALL(cuDeviceGetMemPool(pool, device));
}

cudaError_t cudaDeviceSetMemPool(int device, CUmemoryPool pool)
{
	EMU_CALL(cuDeviceSetMemPool(device, pool));
}

cudaError_t cudaMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
	EMU_CALL(cuMemPoolCreate(pool, properties));
}

cudaError_t cudaMemPoolDestroy(CUmemoryPool pool)
{
	EMU_CALL(cuMemPoolDestroy(pool));
}

cudaError_t cudaMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	EMU_CALL(cuMemPoolSetAttribute(pool, attribute, value));
}

cudaError_t cudaMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	EMU_CALL(cuMemPoolGetAttribute(pool, attribute, value));
}

cudaError_t cudaMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *accesses,
				 size_t count)
{
	EMU_CALL(cuMemPoolSetAccess(pool, accesses, count));
}

cudaError_t cudaMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
	EMU_CALL(cuMemPoolGetAccess(flags, pool, location));
}

cudaError_t cudaMemPoolTrimTo(CUmemoryPool pool, size_t bytes)
{
	EMU_CALL(cuMemPoolTrimTo(pool, bytes));
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, CUmemoryPool pool,
				    CUstream stream)
{
	CUdeviceptr at = 0;
	CUresult result = emu_runtime_begin();

	if (!result && bytes)
		result = cuMemAllocFromPoolAsync(&at, bytes, pool, stream);
	if (!result)
		*pointer = (void *)(uintptr_t)at;
	return emu_runtime_keep(result);
}

/* ---- memory of graphs ----------------------------------------------------------- */

cudaError_t cudaDeviceGraphMemTrim(int device)
{
	EMU_CALL(cuDeviceGraphMemTrim(device));
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value)
{
	EMU_CALL(cuDeviceGetGraphMemAttribute(device, attribute, value));
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value)
{
	EMU_CALL(cuDeviceSetGraphMemAttribute(device, attribute, value));
}

/* ---- other processes, all of it refused ------------------------------------------ */

cudaError_t cudaMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
					       int type, unsigned flags)
{
	EMU_CALL(cuMemPoolExportToShareableHandle(handle, pool, type, flags));
}

cudaError_t cudaIpcGetEventHandle(void *handle, CUevent event)
{
	EMU_CALL(cuIpcGetEventHandle(handle, event));
}

cudaError_t cudaIpcOpenEventHandle(CUevent *event, CUipcHandle handle)
{
	EMU_CALL(cuIpcOpenEventHandle(event, handle));
}

cudaError_t cudaIpcGetMemHandle(void *handle, void *pointer)
{
	EMU_CALL(cuIpcGetMemHandle(handle, (uintptr_t)pointer));
}

cudaError_t cudaIpcOpenMemHandle(void **pointer, CUipcHandle handle, unsigned flags)
{
	EMU_CALL(cuIpcOpenMemHandle_v2((CUdeviceptr *)(void *)pointer, handle, flags));
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
	EMU_CALL(cuIpcCloseMemHandle((uintptr_t)pointer));
}

cudaError_t cudaMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
						 int type, unsigned flags)
{
	EMU_CALL(cuMemPoolImportFromShareableHandle(pool, handle, type, flags));
}

cudaError_t cudaMemPoolExportPointer(void *data, void *pointer)
{
	EMU_CALL(cuMemPoolExportPointer(data, (uintptr_t)pointer));
}

cudaError_t cudaMemPoolImportPointer(void **pointer, CUmemoryPool pool, void *data)
{
	EMU_CALL(cuMemPoolImportPointer((CUdeviceptr *)(void *)pointer, pool, data));
}
