/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advice.c - prefetches and advice.  They change where data is, which has no effect
 * here: they are checked, and kept for cuMemRangeGetAttribute.
 */
#include "driver/advice.h"

#include <stdlib.h>
#include <string.h>

#include "driver/stream.h"

enum { NO_DEVICE = -2, THE_HOST = -1 };

enum kind { READ_MOSTLY, PREFERRED, ACCESSED, PREFETCHED };

/* What was said of a range; a newer record counts where it overlaps an older one. */
static struct record {
	uint64_t begin, end;
	enum kind kind;
	CUmemLocation where; /* type 0: no longer, or nowhere */
	struct record *next;
} * records;

/* ---- keeping ------------------------------------------------------------------- */

static void forget(uint64_t begin, uint64_t end, const enum kind *kind)
{
	for (struct record **at = &records, *r = *at; r; r = *at) {
		if (r->begin < begin || r->end > end || (kind && r->kind != *kind)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		free(r);
	}
}

void emu_advice_forget(uint64_t begin, uint64_t bytes)
{
	forget(begin, begin + bytes, NULL);
}

static CUresult keep(CUdeviceptr pointer, size_t bytes, enum kind kind,
		     CUmemLocation where)
{
	struct record *r = malloc(sizeof(*r));

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	forget(pointer, pointer + bytes, &kind);
	*r = (struct record){pointer, pointer + bytes, kind, where, records};
	records = r;
	return CUDA_SUCCESS;
}

/* What holds for all of a range; type 0: nothing, or not all of it. */
static CUmemLocation find(CUdeviceptr pointer, size_t bytes, enum kind kind)
{
	const CUmemLocation none = {0, NO_DEVICE};

	for (const struct record *r = records; r; r = r->next)
		if (r->kind == kind && r->begin < pointer + bytes && pointer < r->end)
			return r->begin <= pointer && pointer + bytes <= r->end
				   ? r->where
				   : none;
	return none;
}

/* ---- calls --------------------------------------------------------------------- */

/* Fails if the range is not in one allocation.  The lock must be held. */
static CUresult check_range(const char *call, CUdeviceptr pointer, size_t bytes)
{
	uint64_t begin = 0, size = 0;

	if (bytes &&
	    emu_memory_find(emu_driver.machine.memory, pointer, &begin, &size) &&
	    bytes <= size - (pointer - begin))
		return CUDA_SUCCESS;
	return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
			       "%s: %zu bytes at 0x%llx are not in an allocation", call,
			       bytes, pointer);
}

static CUresult check_place(CUmemLocation to)
{
	if (to.type < CU_MEM_LOCATION_TYPE_DEVICE ||
	    to.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	return to.type == CU_MEM_LOCATION_TYPE_DEVICE && to.id != 0
		   ? CUDA_ERROR_INVALID_DEVICE
		   : CUDA_SUCCESS;
}

/* The place that a number of older functions means: -1 is the host. */
static CUmemLocation place_of(CUdevice device)
{
	if (device == THE_HOST)
		return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
	return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation to,
			       unsigned flags, CUstream stream)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && flags)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = check_range("cuMemPrefetchAsync", pointer, bytes);
	if (!result)
		result = check_place(to);
	if (!result)
		result = keep(pointer, bytes, PREFETCHED, to);
	return emu_driver_leave(result);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device,
			    CUstream stream)
{
	return cuMemPrefetchAsync_v2(pointer, bytes, place_of(device), 0, stream);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation to)
{
	static const enum kind kinds[] = {READ_MOSTLY, READ_MOSTLY, PREFERRED,
					  PREFERRED,   ACCESSED,    ACCESSED};
	const bool is_set = advice % 2;
	CUresult result = emu_driver_enter();

	if (!result && (advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
			advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY))
		result = CUDA_ERROR_INVALID_VALUE;
	/* CUDA ignores the place for these. */
	if (advice == CU_MEM_ADVISE_SET_READ_MOSTLY ||
	    advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY ||
	    advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
		to = place_of(0);
	if (!result)
		result = check_range("cuMemAdvise", pointer, bytes);
	if (!result)
		result = check_place(to);
	if (!result)
		result = keep(pointer, bytes, kinds[advice - 1],
			      is_set ? to : (CUmemLocation){0, NO_DEVICE});
	return emu_driver_leave(result);
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device)
{
	return cuMemAdvise_v2(pointer, bytes, advice, place_of(device));
}

/* ---- attributes of ranges -------------------------------------------------------- */

/* CU_MEM_RANGE_ATTRIBUTE_... */
enum {
	RANGE_READ_MOSTLY = 1,
	RANGE_PREFERRED = 2,
	RANGE_ACCESSED = 3,
	RANGE_PREFETCHED = 4,
	RANGE_PREFERRED_TYPE = 5,
	RANGE_PREFERRED_ID = 6,
	RANGE_PREFETCHED_TYPE = 7,
	RANGE_PREFETCHED_ID = 8,
};

/* The number of a device, or of the host, as older attributes have it. */
static int device_of(CUmemLocation where)
{
	if (!where.type)
		return NO_DEVICE;
	return where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : THE_HOST;
}

static int value_of(int attribute, CUdeviceptr pointer, size_t bytes)
{
	switch (attribute) {
	case RANGE_READ_MOSTLY:
		return find(pointer, bytes, READ_MOSTLY).type != 0;
	case RANGE_PREFERRED:
		return device_of(find(pointer, bytes, PREFERRED));
	case RANGE_ACCESSED:
		return device_of(find(pointer, bytes, ACCESSED));
	case RANGE_PREFETCHED:
		return device_of(find(pointer, bytes, PREFETCHED));
	case RANGE_PREFERRED_TYPE:
		return find(pointer, bytes, PREFERRED).type;
	case RANGE_PREFERRED_ID:
		return find(pointer, bytes, PREFERRED).id;
	case RANGE_PREFETCHED_TYPE:
		return find(pointer, bytes, PREFETCHED).type;
	default:
		return find(pointer, bytes, PREFETCHED).id;
	}
}

/* ACCESSED_BY fills an array, whose other elements are no device. */
CUresult cuMemRangeGetAttribute(void *data, size_t data_bytes, int attribute,
				CUdeviceptr pointer, size_t bytes)
{
	CUresult result = emu_driver_enter();
	int *values = data;

	if (!result &&
	    (!data || !data_bytes || data_bytes % sizeof(int) ||
	     attribute < RANGE_READ_MOSTLY || attribute > RANGE_PREFETCHED_ID ||
	     (attribute != RANGE_ACCESSED && data_bytes != sizeof(int))))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuMemRangeGetAttribute: attribute %d of %zu "
					 "bytes: the attributes are 1 to 8, and have 4 "
					 "bytes, ACCESSED_BY a multiple",
					 attribute, data_bytes);
	if (!result)
		result = check_range("cuMemRangeGetAttribute", pointer, bytes);
	for (size_t i = 0; !result && i < data_bytes / sizeof(int); i++)
		values[i] = i ? NO_DEVICE : value_of(attribute, pointer, bytes);
	return emu_driver_leave(result);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *data_bytes, int *attributes,
				 size_t count, CUdeviceptr pointer, size_t bytes)
{
	CUresult result = data && data_bytes && attributes && count
			      ? CUDA_SUCCESS
			      : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; !result && i < count; i++)
		result = cuMemRangeGetAttribute(data[i], data_bytes[i], attributes[i],
						pointer, bytes);
	return result;
}

enum { ATTACH_SINGLE = 4 };

/* Managed memory is always of all streams and of the host. */
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr pointer, size_t bytes,
				unsigned flags)
{
	CUresult result = emu_driver_enter();
	uint64_t begin = 0, size = 0;

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && flags != 1 && flags != 2 && flags != ATTACH_SINGLE)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuStreamAttachMemAsync: flags %#x are not "
					 "GLOBAL, HOST or SINGLE (1, 2, 4)",
					 flags);
	if (!result && flags == ATTACH_SINGLE && (uintptr_t)stream <= 2)
		result =
		    emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				    "cuStreamAttachMemAsync: SINGLE needs a stream "
				    "that was created");
	if (!result &&
	    (!emu_memory_find(emu_driver.machine.memory, pointer, &begin, &size) ||
	     begin != pointer || (bytes && bytes != size)))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuStreamAttachMemAsync: %zu bytes at 0x%llx "
					 "are not an allocation; 0 bytes are all of it",
					 bytes, pointer);
	return emu_driver_leave(result);
}
