/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - allocations, copies, fills, pointers, tensor maps. */
#include <stdlib.h>
#include <string.h>

#include "driver/advice.h"
#include "driver/graph_memory.h"
#include "driver/memory.h"
#include "driver/pool.h"
#include "driver/queue.h"
#include "driver/stream.h"
#include "driver/texture.h"
#include "hardware/tensor_map.h"

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	CUresult result = emu_driver_enter();

	if (!result && (!pointer || bytes == 0))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		*pointer = emu_driver_alloc(bytes);
		if (!*pointer)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return emu_driver_leave(result);
}

/* Freeing waits for the device; what uses the addresses later is other memory. */
static void forget(CUdeviceptr pointer)
{
	uint64_t begin, bytes;

	emu_stream_order_host_all(&emu_driver.order);
	if (!emu_memory_find(emu_driver.machine.memory, pointer, &begin, &bytes))
		return;
	emu_advice_forget(begin, bytes);
	if (emu_driver.order.streams)
		emu_streams_forget(emu_driver.order.streams, begin, bytes);
}

static CUresult free_memory(CUdeviceptr pointer)
{
	struct emu_reservation *r = emu_reservation_find(pointer);
	struct emu_error err = {{0}};
	const CUresult result = emu_driver_flush();

	forget(pointer);
	if (result || r)
		return result ? result : emu_reservation_change(r, false);
	if (!emu_memory_free(emu_driver.machine.memory, pointer, &err))
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s", err.text);
	emu_pool_forget(pointer);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	CUresult result = emu_driver_enter();

	if (!result && emu_memory_of_kernels(emu_driver.machine.memory, pointer))
		result =
		    emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				    "free of 0x%llx: malloc of a kernel returned it, "
				    "so that a kernel frees it",
				    pointer);
	if (!result && pointer)
		result = free_memory(pointer);
	return emu_driver_leave(result);
}

/* ---- copies and fills ---------------------------------------------------- */

static CUresult submit(CUstream stream, const struct emu_work *work, bool waits)
{
	CUresult result = emu_driver_enter();
	struct emu_work *copy;

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result)
		return emu_driver_leave(result);
	copy = malloc(sizeof(*copy));
	if (!copy)
		return emu_driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*copy = *work;
	result = emu_stream_submit(stream, copy);
	if (!result && waits)
		result = emu_driver_flush();
	if (!result && waits)
		emu_stream_order_host_stream(&emu_driver.order,
					     emu_stream_number(stream));
	return emu_driver_leave(result);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	const struct emu_work w = {.kind = EMU_WORK_COPY,
				   .to = to,
				   .from = from,
				   .bytes = bytes,
				   .rows = {.rows = 1, .slices = 1}};

	return submit(stream, &w, false);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	const struct emu_work w = {.kind = EMU_WORK_COPY,
				   .to = to,
				   .from = from,
				   .bytes = bytes,
				   .rows = {.rows = 1, .slices = 1}};

	return submit(NULL, &w, true);
}

/* The address of a host pointer; copies take both kinds. */
static CUdeviceptr address_of(const void *pointer)
{
	return (uintptr_t)pointer;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	return cuMemcpy(to, address_of(from), bytes);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	return cuMemcpy(address_of(to), from, bytes);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return cuMemcpy(to, from, bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
			      CUstream stream)
{
	return cuMemcpyAsync(to, address_of(from), bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return cuMemcpyAsync(address_of(to), from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
			      CUstream stream)
{
	return cuMemcpyAsync(to, from, bytes, stream);
}

/* A fill of rows; the pitch is not used for one row. */
struct fill {
	uint32_t value, value_bytes;
	size_t count, rows, slices; /* count: values of a row */
	size_t pitch, slice;
};

static CUresult fill_rows(CUdeviceptr to, const struct fill *f, CUstream stream,
			  bool waits)
{
	const struct emu_work w = {.kind = EMU_WORK_SET,
				   .to = to,
				   .value = f->value,
				   .value_bytes = f->value_bytes,
				   .bytes = f->count * f->value_bytes,
				   .rows = {.rows = f->rows,
					    .slices = f->slices,
					    .to_pitch = f->pitch,
					    .to_slice = f->slice}};

	if (f->count > SIZE_MAX / 4)
		return CUDA_ERROR_INVALID_VALUE;
	if (to % f->value_bytes || (f->rows * f->slices > 1 &&
				    (f->pitch % f->value_bytes || f->pitch < w.bytes)))
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "fill of %zu rows of %zu bytes at 0x%llx, pitch "
				       "%zu: the address and the pitch are multiples "
				       "of %u, and the pitch is not less than a row",
				       f->rows, w.bytes, to, f->pitch, f->value_bytes);
	return submit(stream, &w, waits);
}

static CUresult fill(CUdeviceptr to, uint32_t value, uint32_t value_bytes, size_t count,
		     CUstream stream, bool waits)
{
	const struct fill f = {value, value_bytes, count, 1, 1, 0, 0};

	return fill_rows(to, &f, stream, waits);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes)
{
	return fill(to, value, 1, bytes, NULL, true);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
			 CUstream stream)
{
	return fill(to, value, 1, bytes, stream, false);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count)
{
	return fill(to, value, 2, count, NULL, true);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
			  CUstream stream)
{
	return fill(to, value, 2, count, stream, false);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
	return fill(to, value, 4, count, NULL, true);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
	return fill(to, value, 4, count, stream, false);
}

static CUresult fill_2d(CUdeviceptr to, struct fill f, CUstream stream, bool waits)
{
	f.slices = 1;
	f.slice = f.pitch * f.rows;
	return fill_rows(to, &f, stream, waits);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value,
			   size_t width, size_t height, CUstream stream)
{
	return fill_2d(to, (struct fill){value, 1, width, height, 1, pitch, 0}, stream,
		       false);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value,
			 size_t width, size_t height)
{
	return fill_2d(to, (struct fill){value, 1, width, height, 1, pitch, 0}, NULL,
		       true);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value,
			    size_t width, size_t height, CUstream stream)
{
	return fill_2d(to, (struct fill){value, 2, width, height, 1, pitch, 0}, stream,
		       false);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value,
			  size_t width, size_t height)
{
	return fill_2d(to, (struct fill){value, 2, width, height, 1, pitch, 0}, NULL,
		       true);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
			    size_t height, CUstream stream)
{
	return fill_2d(to, (struct fill){value, 4, width, height, 1, pitch, 0}, stream,
		       false);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
			  size_t height)
{
	return fill_2d(to, (struct fill){value, 4, width, height, 1, pitch, 0}, NULL,
		       true);
}

CUresult emu_memset_3d(CUdeviceptr to, size_t pitch, size_t rows_of_slice,
		       unsigned char value, const size_t extent[3], CUstream stream,
		       bool waits)
{
	const struct fill f = {
	    value, 1, extent[0], extent[1], extent[2], pitch, pitch * rows_of_slice};

	if (extent[2] > 1 && rows_of_slice < extent[1])
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "fill of %zu slices of %zu rows: the memory has "
				       "slices of %zu rows",
				       extent[2], extent[1], rows_of_slice);
	return fill_rows(to, &f, stream, waits);
}

/* ---- copies of rows ------------------------------------------------------ */

/* One side of a copy: where its first byte is, and the bytes from row to row. */
struct side {
	CUdeviceptr at;
	size_t pitch, slice;
};

/*
 * False if a row or a slice does not fit the pitch or the height, which may be 0 where
 * there is only one.
 */
static bool open_side(struct side *s, const CUDA_MEMCPY3D *c, size_t x, size_t y,
		      size_t z, size_t pitch, size_t height)
{
	const size_t width = c->WidthInBytes;

	if (x > SIZE_MAX - width || y > SIZE_MAX - c->Height)
		return false;
	if (!pitch && c->Height <= 1 && c->Depth <= 1 && !y && !z)
		pitch = x + width;
	if (!height && c->Depth <= 1 && !z)
		height = y + c->Height;
	if (pitch < x + width || height < y + c->Height)
		return false;
	s->pitch = pitch;
	s->slice = pitch * height;
	s->at += z * s->slice + y * pitch + x;
	return true;
}

/* The same for an array; false also if the copy leaves it. */
static bool open_array(struct side *s, const CUDA_MEMCPY3D *c, CUarray array, size_t x,
		       size_t y, size_t z)
{
	const struct emu_image *m;
	size_t width, height, depth;
	bool is_known;

	(void)emu_driver_enter();
	is_known = emu_array_is(array);
	(void)emu_driver_leave(CUDA_SUCCESS);
	if (!is_known)
		return false;
	m = &array->image;
	width = (size_t)m->width * emu_image_bytes(m);
	height = m->height ? m->height : 1;
	depth = m->layers ? m->layers : m->depth ? m->depth : 1;
	if (x > width || c->WidthInBytes > width - x || y > height ||
	    c->Height > height - y || z > depth || c->Depth > depth - z)
		return false;
	s->at = m->address + z * m->slice + y * m->pitch + x;
	s->pitch = m->pitch;
	s->slice = m->slice;
	return true;
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream stream)
{
	struct side from = {0}, to = {0};
	struct emu_work w = {.kind = EMU_WORK_COPY};

	if (!c || c->srcLOD || c->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	from.at = c->srcMemoryType == CU_MEMORYTYPE_HOST ? address_of(c->srcHost)
							 : c->srcDevice;
	to.at = c->dstMemoryType == CU_MEMORYTYPE_HOST ? address_of(c->dstHost)
						       : c->dstDevice;
	if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY
		? !open_array(&from, c, c->srcArray, c->srcXInBytes, c->srcY, c->srcZ)
		: !open_side(&from, c, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch,
			     c->srcHeight))
		return CUDA_ERROR_INVALID_VALUE;
	if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY
		? !open_array(&to, c, c->dstArray, c->dstXInBytes, c->dstY, c->dstZ)
		: !open_side(&to, c, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch,
			     c->dstHeight))
		return CUDA_ERROR_INVALID_VALUE;
	w.to = to.at;
	w.from = from.at;
	w.bytes = c->WidthInBytes;
	w.rows = (struct emu_rows){c->Height, c->Depth,	  to.pitch,
				   to.slice,  from.pitch, from.slice};
	return submit(stream, &w, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
	const CUresult result = cuMemcpy3DAsync_v2(copy, NULL);

	return result ? result : cuCtxSynchronize();
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream)
{
	CUDA_MEMCPY3D copy = {.Depth = 1};

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	copy.srcXInBytes = c->srcXInBytes;
	copy.srcY = c->srcY;
	copy.srcMemoryType = c->srcMemoryType;
	copy.srcHost = c->srcHost;
	copy.srcDevice = c->srcDevice;
	copy.srcArray = c->srcArray;
	copy.srcPitch = c->srcPitch;
	copy.dstXInBytes = c->dstXInBytes;
	copy.dstY = c->dstY;
	copy.dstMemoryType = c->dstMemoryType;
	copy.dstHost = c->dstHost;
	copy.dstDevice = c->dstDevice;
	copy.dstArray = c->dstArray;
	copy.dstPitch = c->dstPitch;
	copy.WidthInBytes = c->WidthInBytes;
	copy.Height = c->Height;
	return cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
	const CUresult result = cuMemcpy2DAsync_v2(copy, NULL);

	return result ? result : cuCtxSynchronize();
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
	return cuMemcpy2D_v2(copy);
}

/* ---- memory in the order of a stream ------------------------------------- */

/* A node of the graph that is being captured. */
static CUresult capture(CUstream stream, enum emu_work_kind kind,
			struct emu_reservation *r)
{
	struct emu_work *w = calloc(1, sizeof(*w));

	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->kind = kind;
	w->reservation = r;
	r->owners++;
	return emu_stream_submit(stream, w);
}

static CUresult reserve(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	struct emu_reservation *r = emu_reservation_make(bytes);
	CUresult result;

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pointer = r->address;
	result = capture(stream, EMU_WORK_ALLOC, r);
	emu_reservation_leave(r);
	return result;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
				 CUstream stream)
{
	CUresult result = emu_driver_enter();
	bool captures;

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && (!pointer || bytes == 0 || !emu_pool_is_valid(pool)))
		result = emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE,
		    "cuMemAllocAsync: %zu bytes: the pointer is NULL, or there are no "
		    "bytes, or the pool is not one",
		    bytes);
	captures = !result && emu_stream_is_capturing(stream);
	if (captures)
		result = reserve(pointer, bytes, stream);
	else if (!result)
		result = emu_pool_alloc(pool, pointer, bytes);
	return emu_driver_leave(result);
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return cuMemAllocFromPoolAsync(pointer, bytes, emu_pool_current(), stream);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	CUresult result = emu_driver_enter();
	struct emu_reservation *r;
	bool captures;

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	captures = !result && emu_stream_is_capturing(stream);
	if (captures) {
		r = emu_reservation_find(pointer);
		result = r ? capture(stream, EMU_WORK_FREE, r)
			   : emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					     "cuMemFreeAsync in a capture: 0x%llx is "
					     "not memory of a graph",
					     pointer);
	}
	result = emu_driver_leave(result);
	return result || captures ? result : cuMemFree_v2(pointer);
}

/* ---- pointers ------------------------------------------------------------ */

/* As in a driver, the result for unknown pointers is zeros without an error. */
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values,
				CUdeviceptr pointer)
{
	CUresult result = emu_driver_enter();
	uint64_t begin = 0, bytes = 0;
	const bool is_known = !result && emu_memory_find(emu_driver.machine.memory,
							 pointer, &begin, &bytes);

	for (unsigned i = 0; !result && i < count; i++)
		switch (attributes[i]) {
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
			*(int *)values[i] = is_known ? CU_MEMORYTYPE_DEVICE : 0;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
			*(CUdeviceptr *)values[i] = is_known ? pointer : 0;
			break;
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
			*(int *)values[i] = 0;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)values[i] = is_known ? 0 : -2;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
			*(CUdeviceptr *)values[i] = is_known ? begin : 0;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
			*(size_t *)values[i] = is_known ? bytes : 0;
			break;
		default:
			result = CUDA_ERROR_INVALID_VALUE;
		}
	return emu_driver_leave(result);
}

/* ---- tensor maps --------------------------------------------------------- */

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, uint32_t rank,
				void *address, const uint64_t *sizes,
				const uint64_t *strides_bytes, const uint32_t *box,
				const uint32_t *element_strides, int interleave,
				int swizzle, int l2_promotion, int fill)
{
	struct emu_tensor_map m = {
	    .address = (uintptr_t)address,
	    .type = type,
	    .rank = (int)rank,
	    .interleave = interleave,
	    .swizzle = swizzle,
	    .l2_promotion = l2_promotion,
	    .fill = fill,
	};
	struct emu_error err = {{0}};
	CUresult result = emu_driver_enter();

	if (!result && !emu_device_has_hopper(emu_driver.machine.device))
		return emu_driver_leave(emu_driver_fail(
		    CUDA_ERROR_NOT_SUPPORTED,
		    "tensor map: it needs compute capability 9.0: the device (%s) has "
		    "%d.%d",
		    emu_driver.machine.device->title, emu_driver.machine.device->major,
		    emu_driver.machine.device->minor));
	if (!map || (uintptr_t)map % 64 || !sizes || !box || !element_strides ||
	    (rank > 1 && !strides_bytes) || rank < 1 || rank > EMU_TENSOR_RANK)
		return emu_driver_leave(
		    result ? result
			   : emu_driver_fail(
				 CUDA_ERROR_INVALID_VALUE,
				 "tensor map: a pointer is NULL, the map is not "
				 "aligned to 64 bytes, or rank %u is not 1 to 5",
				 rank));
	if (result)
		return emu_driver_leave(result);
	memcpy(m.sizes, sizes, rank * sizeof(*sizes));
	if (rank > 1)
		memcpy(m.strides_bytes, strides_bytes,
		       (rank - 1) * sizeof(*strides_bytes));
	memcpy(m.box, box, rank * sizeof(*box));
	memcpy(m.element_strides, element_strides, rank * sizeof(*element_strides));
	if (emu_tensor_map_check(&m, &err) &&
	    emu_tensor_map_check_device(&m, emu_driver.machine.device->major, &err))
		emu_tensor_map_encode(&m, map);
	else
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s", err.text);
	return emu_driver_leave(result);
}
