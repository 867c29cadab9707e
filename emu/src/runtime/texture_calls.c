/* SPDX-License-Identifier: Apache-2.0 */
/* texture_calls.c - arrays, textures and surfaces of the runtime interface. */
#include <string.h>

#include "hardware/texture.h"
#include "runtime/cudart.h"

/* ---- formats ---------------------------------------------------------------- */

/* The driver's format and channels.  False: no array has such elements. */
static bool format_of(const struct cudaChannelFormatDesc *d, int *format,
		      unsigned *channels)
{
	const int bits[] = {d->x, d->y, d->z, d->w};
	int first;

	*channels = 0;
	while (*channels < 4 && bits[*channels])
		++*channels;
	for (unsigned c = 0; c < *channels; c++)
		if (bits[c] != d->x)
			return false;
	first = d->x == 8 ? 0 : d->x == 16 ? 1 : d->x == 32 ? 2 : -1;
	if (first < 0)
		return false;
	if (d->f == cudaChannelFormatKindFloat)
		*format = first == 2 ? EMU_TEXEL_F32 : EMU_TEXEL_F16;
	else
		*format = first + (d->f == cudaChannelFormatKindSigned ? EMU_TEXEL_S8
								       : EMU_TEXEL_U8);
	return *channels > 0 && (d->f == cudaChannelFormatKindFloat
				     ? first > 0
				     : d->f == cudaChannelFormatKindSigned ||
					   d->f == cudaChannelFormatKindUnsigned);
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int f)
{
	return (struct cudaChannelFormatDesc){x, y, z, w, f};
}

static struct cudaChannelFormatDesc desc_of(int format, unsigned channels)
{
	const int bits = (int)emu_texel_bytes((uint32_t)format) * 8;
	const bool is_float = format == EMU_TEXEL_F16 || format == EMU_TEXEL_F32;

	return (struct cudaChannelFormatDesc){.x = bits,
					      .y = channels > 1 ? bits : 0,
					      .z = channels > 2 ? bits : 0,
					      .w = channels > 3 ? bits : 0,
					      .f = is_float ? cudaChannelFormatKindFloat
						   : format >= EMU_TEXEL_S8
						       ? cudaChannelFormatKindSigned
						       : cudaChannelFormatKindUnsigned};
}

/* ---- arrays ------------------------------------------------------------------ */

cudaError_t cudaMalloc3DArray(CUarray *array, const struct cudaChannelFormatDesc *desc,
			      struct cudaExtent extent, unsigned flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = extent.width,
				     .Height = extent.height,
				     .Depth = extent.depth,
				     .Flags = flags};
	CUresult result = emu_runtime_begin();

	if (!result && (!desc || !format_of(desc, &d.Format, &d.NumChannels)))
		result = CUDA_ERROR_INVALID_VALUE;
	return emu_runtime_keep(result ? result : cuArray3DCreate_v2(array, &d));
}

cudaError_t cudaMallocArray(CUarray *array, const struct cudaChannelFormatDesc *desc,
			    size_t width, size_t height, unsigned flags)
{
	const struct cudaExtent extent = {width, height, 0};

	return cudaMalloc3DArray(array, desc, extent, flags);
}

cudaError_t cudaFreeArray(CUarray array)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(result || !array ? result : cuArrayDestroy(array));
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *desc,
			     struct cudaExtent *extent, unsigned *flags, CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};
	const CUresult result = cuArray3DGetDescriptor_v2(&d, array);

	if (!result && desc)
		*desc = desc_of(d.Format, d.NumChannels);
	if (!result && extent)
		*extent = (struct cudaExtent){d.Width, d.Height, d.Depth};
	if (!result && flags)
		*flags = d.Flags;
	return emu_runtime_keep(result);
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *desc, CUarray array)
{
	return cudaArrayGetInfo(desc, NULL, NULL, array);
}

/* ---- copies of rows ----------------------------------------------------------- */

cudaError_t cudaMemcpy2DToArrayAsync(CUarray to, size_t x, size_t y, const void *from,
				     size_t pitch, size_t width, size_t height,
				     int kind, CUstream stream)
{
	const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				    .srcDevice = (uintptr_t)from,
				    .srcPitch = pitch,
				    .dstMemoryType = CU_MEMORYTYPE_ARRAY,
				    .dstArray = to,
				    .dstXInBytes = x,
				    .dstY = y,
				    .WidthInBytes = width,
				    .Height = height};
	const CUresult result = emu_runtime_begin();

	(void)kind;
	return emu_runtime_keep(result ? result : cuMemcpy2DAsync_v2(&copy, stream));
}

cudaError_t cudaMemcpy2DToArray(CUarray to, size_t x, size_t y, const void *from,
				size_t pitch, size_t width, size_t height, int kind)
{
	const cudaError_t result =
	    cudaMemcpy2DToArrayAsync(to, x, y, from, pitch, width, height, kind, NULL);

	return result ? result : cudaDeviceSynchronize();
}

cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, CUarray from, size_t x,
				  size_t y, size_t width, size_t height, int kind)
{
	const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
				    .srcArray = from,
				    .srcXInBytes = x,
				    .srcY = y,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = (uintptr_t)to,
				    .dstPitch = pitch,
				    .WidthInBytes = width,
				    .Height = height};
	const CUresult result = emu_runtime_begin();

	(void)kind;
	return emu_runtime_keep(result ? result : cuMemcpy2D_v2(&copy));
}

/* Bytes of a row of an array; 0: there is no such array. */
static size_t row_bytes(CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};

	if (cuArray3DGetDescriptor_v2(&d, array))
		return 0;
	return d.Width * d.NumChannels * emu_texel_bytes((uint32_t)d.Format);
}

/* Consecutive bytes, which fill rows: the rest of the first one, then whole ones. */
cudaError_t cudaMemcpyToArray(CUarray to, size_t x, size_t y, const void *from,
			      size_t bytes, int kind)
{
	const size_t row = row_bytes(to);
	const char *at = from;
	cudaError_t result = row && x < row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	while (bytes && !result) {
		const size_t rows = x ? 1 : bytes >= row ? bytes / row : 1;
		const size_t width = bytes < row - x ? bytes : row - x;

		result = cudaMemcpy2DToArray(to, x, y, at, width, width, rows, kind);
		at += width * rows;
		bytes -= width * rows;
		y += rows;
		x = 0;
	}
	return emu_runtime_keep(result);
}

cudaError_t cudaMemcpyFromArray(void *to, CUarray from, size_t x, size_t y,
				size_t bytes, int kind)
{
	const size_t row = row_bytes(from);
	char *at = to;
	cudaError_t result = row && x < row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	while (bytes && !result) {
		const size_t rows = x ? 1 : bytes >= row ? bytes / row : 1;
		const size_t width = bytes < row - x ? bytes : row - x;

		result =
		    cudaMemcpy2DFromArray(at, width, from, x, y, width, rows, kind);
		at += width * rows;
		bytes -= width * rows;
		y += rows;
		x = 0;
	}
	return emu_runtime_keep(result);
}

/* ---- objects ------------------------------------------------------------------- */

/* False: the elements have a format that is not modelled. */
static bool resource_of(const struct cudaResourceDesc *r, CUDA_RESOURCE_DESC *to)
{
	*to = (CUDA_RESOURCE_DESC){.resType = r->resType, .flags = r->flags};
	switch (r->resType) {
	case CU_RESOURCE_TYPE_LINEAR:
		to->res.linear.devPtr = (uintptr_t)r->res.linear.devPtr;
		to->res.linear.sizeInBytes = r->res.linear.sizeInBytes;
		return format_of(&r->res.linear.desc, &to->res.linear.format,
				 &to->res.linear.numChannels);
	case CU_RESOURCE_TYPE_PITCH2D:
		to->res.pitch2D.devPtr = (uintptr_t)r->res.pitch2D.devPtr;
		to->res.pitch2D.width = r->res.pitch2D.width;
		to->res.pitch2D.height = r->res.pitch2D.height;
		to->res.pitch2D.pitchInBytes = r->res.pitch2D.pitchInBytes;
		return format_of(&r->res.pitch2D.desc, &to->res.pitch2D.format,
				 &to->res.pitch2D.numChannels);
	default:
		to->res.array.hArray = r->res.array.array;
		return true;
	}
}

cudaError_t cudaCreateTextureObject(unsigned long long *object,
				    const struct cudaResourceDesc *r,
				    const struct cudaTextureDesc *d, const void *view)
{
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture = {0};
	CUresult result = emu_runtime_begin();

	if (!result && (!r || !d || !resource_of(r, &resource)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		return emu_runtime_keep(result);
	memcpy(texture.addressMode, d->addressMode, sizeof(texture.addressMode));
	memcpy(texture.borderColor, d->borderColor, sizeof(texture.borderColor));
	texture.filterMode = d->filterMode;
	texture.flags = (d->readMode ? 0 : CU_TRSF_READ_AS_INTEGER) |
			(d->normalizedCoords ? CU_TRSF_NORMALIZED_COORDINATES : 0) |
			(d->sRGB ? CU_TRSF_SRGB : 0);
	return emu_runtime_keep(cuTexObjectCreate(object, &resource, &texture, view));
}

cudaError_t cudaDestroyTextureObject(unsigned long long object)
{
	return emu_runtime_keep(cuTexObjectDestroy(object));
}

cudaError_t cudaCreateSurfaceObject(unsigned long long *object,
				    const struct cudaResourceDesc *r)
{
	CUDA_RESOURCE_DESC resource;
	CUresult result = emu_runtime_begin();

	if (!result && (!r || !resource_of(r, &resource)))
		result = CUDA_ERROR_INVALID_VALUE;
	return emu_runtime_keep(result ? result
				       : cuSurfObjectCreate(object, &resource));
}

cudaError_t cudaDestroySurfaceObject(unsigned long long object)
{
	return emu_runtime_keep(cuSurfObjectDestroy(object));
}
