/* SPDX-License-Identifier: Apache-2.0 */
/* memory_calls.c - allocations, copies and fills of the runtime interface. */
#include <string.h>

#include "driver/memory.h"
#include "hardware/texture.h"
#include "runtime/cudart.h"

static CUdeviceptr address_of(const void *pointer)
{
	return (uintptr_t)pointer;
}

/* Stores the address of a successful call in *to.  Returns the runtime's error code. */
static cudaError_t return_address(CUresult result, CUdeviceptr from, void **to)
{
	if (!result)
		*to = (void *)(uintptr_t)from;
	return emu_runtime_keep(result);
}

/* ---- allocations --------------------------------------------------------- */

/* cudaMalloc of 0 bytes succeeds with NULL; cuMemAlloc would refuse it. */
cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
	CUdeviceptr at = 0;
	CUresult result = emu_runtime_begin();

	if (!result && bytes)
		result = cuMemAlloc_v2(&at, bytes);
	return return_address(result, at, pointer);
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, CUstream stream)
{
	CUdeviceptr at = 0;
	CUresult result = emu_runtime_begin();

	if (!result && bytes)
		result = cuMemAllocAsync(&at, bytes, stream);
	return return_address(result, at, pointer);
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags)
{
	CUdeviceptr at = 0;
	CUresult result = emu_runtime_begin();

	if (!result)
		result = cuMemAllocManaged(&at, bytes, flags);
	return return_address(result, at, pointer);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
	return cudaMallocManaged(pointer, bytes, flags);
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
	return cudaMallocManaged(pointer, bytes, 0);
}

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
	CUdeviceptr at = 0;
	CUresult result = emu_runtime_begin();

	if (!result)
		result = cuMemAllocPitch_v2(&at, pitch, width, height, 16);
	return return_address(result, at, pointer);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *to, struct cudaExtent extent)
{
	struct cudaPitchedPtr p = {.xsize = extent.width, .ysize = extent.height};
	CUresult result = emu_runtime_begin();
	CUdeviceptr at = 0;

	if (!result && extent.depth && extent.height > SIZE_MAX / extent.depth)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = cuMemAllocPitch_v2(&at, &p.pitch, extent.width,
					    extent.height * extent.depth, 16);
	p.ptr = (void *)(uintptr_t)at;
	if (!result)
		*to = p;
	return emu_runtime_keep(result);
}

cudaError_t cudaFree(void *pointer)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(result ? result : cuMemFree_v2(address_of(pointer)));
}

cudaError_t cudaFreeAsync(void *pointer, CUstream stream)
{
	return emu_runtime_keep(cuMemFreeAsync(address_of(pointer), stream));
}

cudaError_t cudaFreeHost(void *pointer)
{
	return cudaFree(pointer);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *bytes)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(result ? result : cuMemGetInfo_v2(free_bytes, bytes));
}

/* ---- registered memory ----------------------------------------------------- */

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(result ? result
				       : cuMemHostRegister_v2(pointer, bytes, flags));
}

cudaError_t cudaHostUnregister(void *pointer)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(result ? result : cuMemHostUnregister(pointer));
}

cudaError_t cudaHostGetDevicePointer(void **to, void *pointer, unsigned flags)
{
	CUdeviceptr at = 0;
	CUresult result = emu_runtime_begin();

	if (!result)
		result = to ? cuMemHostGetDevicePointer_v2(&at, pointer, flags)
			    : CUDA_ERROR_INVALID_VALUE;
	return return_address(result, at, to);
}

/* ---- advice ------------------------------------------------------------------ */

cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t bytes, CUmemLocation to,
				 unsigned flags, CUstream stream)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(
	    result
		? result
		: cuMemPrefetchAsync_v2(address_of(pointer), bytes, to, flags, stream));
}

cudaError_t cudaMemAdvise(const void *pointer, size_t bytes, int advice,
			  CUmemLocation to)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(
	    result ? result : cuMemAdvise_v2(address_of(pointer), bytes, advice, to));
}

cudaError_t cudaMemRangeGetAttribute(void *data, size_t data_bytes, int attribute,
				     const void *pointer, size_t bytes)
{
	EMU_CALL(cuMemRangeGetAttribute(data, data_bytes, attribute,
					address_of(pointer), bytes));
}

cudaError_t cudaMemRangeGetAttributes(void **data, size_t *data_bytes, int *attributes,
				      size_t count, const void *pointer, size_t bytes)
{
	EMU_CALL(cuMemRangeGetAttributes(data, data_bytes, attributes, count,
					 address_of(pointer), bytes));
}

cudaError_t cudaStreamAttachMemAsync(CUstream stream, void *pointer, size_t bytes,
				     unsigned flags)
{
	EMU_CALL(cuStreamAttachMemAsync(stream, address_of(pointer), bytes, flags));
}

/* ---- copies -------------------------------------------------------------- */

/* `kind` is ignored, because the driver finds the direction from the addresses. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
	const CUresult result = emu_runtime_begin();

	(void)kind;
	return emu_runtime_keep(
	    result ? result : cuMemcpy(address_of(to), address_of(from), bytes));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
			    CUstream stream)
{
	const CUresult result = emu_runtime_begin();

	(void)kind;
	return emu_runtime_keep(
	    result ? result
		   : cuMemcpyAsync(address_of(to), address_of(from), bytes, stream));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
			      size_t from_pitch, size_t width, size_t height, int kind,
			      CUstream stream)
{
	const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				    .srcDevice = address_of(from),
				    .srcPitch = from_pitch,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = address_of(to),
				    .dstPitch = to_pitch,
				    .WidthInBytes = width,
				    .Height = height};
	const CUresult result = emu_runtime_begin();

	(void)kind;
	return emu_runtime_keep(result ? result : cuMemcpy2DAsync_v2(&copy, stream));
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
			 size_t width, size_t height, int kind)
{
	const cudaError_t result = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch,
						     width, height, kind, NULL);

	return result ? result : cudaDeviceSynchronize();
}

/* Bytes of an array's element; 1 for memory, and for an array that does not exist. */
static size_t element_bytes(CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};

	if (!array || cuArray3DGetDescriptor_v2(&d, array))
		return 1;
	return d.NumChannels * emu_texel_bytes((uint32_t)d.Format);
}

/* Places in an array count elements; so do widths, if one side is an array. */
CUDA_MEMCPY3D emu_runtime_box(const struct cudaMemcpy3DParms *p)
{
	const size_t from = element_bytes(p->srcArray), to = element_bytes(p->dstArray);

	return (CUDA_MEMCPY3D){
	    .srcXInBytes = p->srcPos.x * from,
	    .srcY = p->srcPos.y,
	    .srcZ = p->srcPos.z,
	    .srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE,
	    .srcDevice = address_of(p->srcPtr.ptr),
	    .srcArray = p->srcArray,
	    .srcPitch = p->srcPtr.pitch,
	    .srcHeight = p->srcPtr.ysize,
	    .dstXInBytes = p->dstPos.x * to,
	    .dstY = p->dstPos.y,
	    .dstZ = p->dstPos.z,
	    .dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE,
	    .dstDevice = address_of(p->dstPtr.ptr),
	    .dstArray = p->dstArray,
	    .dstPitch = p->dstPtr.pitch,
	    .dstHeight = p->dstPtr.ysize,
	    .WidthInBytes = p->extent.width * (from > to ? from : to),
	    .Height = p->extent.height,
	    .Depth = p->extent.depth,
	};
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, CUstream stream)
{
	CUDA_MEMCPY3D copy;
	CUresult result = emu_runtime_begin();

	if (!result && !p)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		copy = emu_runtime_box(p);
		result = cuMemcpy3DAsync_v2(&copy, stream);
	}
	return emu_runtime_keep(result);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *copy)
{
	const cudaError_t result = cudaMemcpy3DAsync(copy, NULL);

	return result ? result : cudaDeviceSynchronize();
}

CUresult emu_runtime_symbol(const void *symbol, size_t offset, size_t bytes,
			    CUdeviceptr *at)
{
	size_t size = 0;
	const CUresult result = emu_runtime_variable(symbol, at, &size);

	*at += offset;
	if (!result && (offset > size || bytes > size - offset))
		return CUDA_ERROR_INVALID_VALUE;
	return result;
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
			       size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	if (result)
		return emu_runtime_keep(result);
	return cudaMemcpy((void *)(uintptr_t)at, from, bytes, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes,
				 size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	if (result)
		return emu_runtime_keep(result);
	return cudaMemcpy(to, (const void *)(uintptr_t)at, bytes, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
				    size_t offset, int kind, CUstream stream)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	if (result)
		return emu_runtime_keep(result);
	return cudaMemcpyAsync((void *)(uintptr_t)at, from, bytes, kind, stream);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes,
				      size_t offset, int kind, CUstream stream)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	if (result)
		return emu_runtime_keep(result);
	return cudaMemcpyAsync(to, (const void *)(uintptr_t)at, bytes, kind, stream);
}

/* ---- fills, pointers ----------------------------------------------------- */

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, CUstream stream)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(
	    result
		? result
		: cuMemsetD8Async(address_of(to), (unsigned char)value, bytes, stream));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
	const cudaError_t result = cudaMemsetAsync(to, value, bytes, NULL);

	return result ? result : cudaDeviceSynchronize();
}

cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(result ? result
				       : cuMemsetD2D8_v2(address_of(to), pitch,
							 (unsigned char)value, width,
							 height));
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width,
			      size_t height, CUstream stream)
{
	EMU_CALL(cuMemsetD2D8Async(address_of(to), pitch, (unsigned char)value, width,
				   height, stream));
}

static CUresult fill_3d(const struct cudaPitchedPtr *p, int value,
			struct cudaExtent extent, CUstream stream, bool waits)
{
	const size_t sizes[] = {extent.width, extent.height, extent.depth};

	return emu_memset_3d(address_of(p->ptr), p->pitch, p->ysize,
			     (unsigned char)value, sizes, stream, waits);
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr to, int value,
			      struct cudaExtent extent, CUstream stream)
{
	EMU_CALL(fill_3d(&to, value, extent, stream, false));
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr to, int value, struct cudaExtent extent)
{
	EMU_CALL(fill_3d(&to, value, extent, NULL, true));
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *to,
				     const void *pointer)
{
	int attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE, type = 0;
	void *value = &type;
	CUresult result = emu_runtime_begin();

	memset(to, 0, sizeof(*to));
	if (!result)
		result =
		    cuPointerGetAttributes(1, &attribute, &value, address_of(pointer));
	to->type = type;
	to->device = type ? 0 : -2; /* cudaInvalidDeviceId */
	to->devicePointer = type ? (void *)(uintptr_t)pointer : NULL;
	to->hostPointer = type ? NULL : (void *)(uintptr_t)pointer;
	return emu_runtime_keep(result);
}
