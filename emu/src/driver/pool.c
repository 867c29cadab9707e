/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - see pool.h. */
#include "driver/pool.h"

#include <stdlib.h>
#include <string.h>

/* CU_MEMPOOL_ATTR_...: the first three are int and settings, the others are 64 bits. */
enum {
	REUSE_FIRST = 1,
	REUSE_LAST = 3,
	RELEASE_THRESHOLD = 4,
	RESERVED_CURRENT = 5,
	RESERVED_HIGH = 6,
	USED_CURRENT = 7,
	USED_HIGH = 8,
};

enum { ACCESS_NONE = 0, ACCESS_READ_WRITE = 3 };

struct CUmemPoolHandle_st {
	int reuse[REUSE_LAST + 1];
	uint64_t release_threshold, used, high;
	struct CUmemPoolHandle_st *next;
};

static struct CUmemPoolHandle_st default_pool = {.reuse = {0, 1, 1, 1}};
static struct CUmemPoolHandle_st *pools = &default_pool;
static CUmemoryPool current = &default_pool;

/* Memory of pools. */
static struct block {
	CUdeviceptr address;
	size_t bytes;
	CUmemoryPool pool; /* NULL: destroyed */
	struct block *next;
} * blocks;

/* ---- memory ---------------------------------------------------------------- */

bool emu_pool_is_valid(const struct CUmemPoolHandle_st *pool)
{
	const struct CUmemPoolHandle_st *p = pools;

	while (p && p != pool)
		p = p->next;
	return p;
}

CUmemoryPool emu_pool_current(void)
{
	CUmemoryPool pool;

	(void)emu_driver_enter();
	pool = current;
	(void)emu_driver_leave(CUDA_SUCCESS);
	return pool;
}

CUresult emu_pool_alloc(CUmemoryPool pool, CUdeviceptr *pointer, size_t bytes)
{
	struct block *b = malloc(sizeof(*b));
	const CUdeviceptr at = b ? emu_driver_alloc(bytes) : 0;

	if (!at) {
		free(b);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*b = (struct block){at, bytes, pool, blocks};
	blocks = b;
	pool->used += bytes;
	if (pool->high < pool->used)
		pool->high = pool->used;
	*pointer = at;
	return CUDA_SUCCESS;
}

void emu_pool_forget(CUdeviceptr pointer)
{
	struct block **at = &blocks, *b;

	while (*at && (*at)->address != pointer)
		at = &(*at)->next;
	b = *at;
	if (!b)
		return;
	*at = b->next;
	if (b->pool)
		b->pool->used -= b->bytes;
	free(b);
}

/* ---- pools ----------------------------------------------------------------- */

static CUresult begin(CUmemoryPool pool)
{
	const CUresult result = emu_driver_enter();

	return !result && !emu_pool_is_valid(pool)
		   ? emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				     "the pool %p is not one, or was destroyed",
				     (void *)pool)
		   : result;
}

static CUresult check_properties(const CUmemPoolProps *p)
{
	if (!p || p->allocType != 1)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "cuMemPoolCreate: allocType is not "
				       "CU_MEM_ALLOCATION_TYPE_PINNED");
	if (p->handleTypes)
		return emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
				       "cuMemPoolCreate: handleTypes %d: memory is not "
				       "shared between processes",
				       p->handleTypes);
	if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE || p->location.id != 0)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "cuMemPoolCreate: location %d, %d: pools are of "
				       "device 0",
				       p->location.type, p->location.id);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
	CUresult result = emu_driver_enter();
	CUmemoryPool p = NULL;

	if (!result && !pool)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = check_properties(properties);
	if (!result) {
		p = malloc(sizeof(*p));
		result = p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result) {
		*p = (struct CUmemPoolHandle_st){.reuse = {0, 1, 1, 1}, .next = pools};
		pools = *pool = p;
	}
	return emu_driver_leave(result);
}

/* As on a GPU, memory of the pool stays until it is freed. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = begin(pool);
	struct CUmemPoolHandle_st **at = &pools;

	if (!result && pool == &default_pool)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuMemPoolDestroy: it is the default pool");
	if (result)
		return emu_driver_leave(result);
	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	for (struct block *b = blocks; b; b = b->next)
		if (b->pool == pool)
			b->pool = NULL;
	if (current == pool)
		current = &default_pool;
	free(pool);
	return emu_driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = &default_pool;
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = emu_pool_current();
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	CUresult result = begin(pool);

	if (!result && device != 0)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (!result)
		current = pool;
	return emu_driver_leave(result);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes)
{
	(void)bytes;
	return emu_driver_leave(begin(pool));
}

/* ---- settings and sums --------------------------------------------------------- */

static CUresult set(CUmemoryPool pool, int attribute, const void *value)
{
	uint64_t number;

	if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST) {
		memcpy(&pool->reuse[attribute], value, sizeof(int));
		return CUDA_SUCCESS;
	}
	memcpy(&number, value, sizeof(number));
	if (attribute == RELEASE_THRESHOLD)
		pool->release_threshold = number;
	else if ((attribute == RESERVED_HIGH || attribute == USED_HIGH) && !number)
		pool->high = pool->used;
	else
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "cuMemPoolSetAttribute: attribute %d cannot be "
				       "set, or only to 0",
				       attribute);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	CUresult result = begin(pool);

	if (!result && !value)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = set(pool, attribute, value);
	return emu_driver_leave(result);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	CUresult result = begin(pool);
	uint64_t number = 0;

	if (!result && (!value || attribute < REUSE_FIRST || attribute > USED_HIGH))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		return emu_driver_leave(result);
	if (attribute <= REUSE_LAST) {
		memcpy(value, &pool->reuse[attribute], sizeof(int));
		return emu_driver_leave(CUDA_SUCCESS);
	}
	if (attribute == RELEASE_THRESHOLD)
		number = pool->release_threshold;
	else if (attribute == RESERVED_CURRENT || attribute == USED_CURRENT)
		number = pool->used;
	else
		number = pool->high;
	memcpy(value, &number, sizeof(number));
	return emu_driver_leave(CUDA_SUCCESS);
}

/* Device 0 always has access to its pools, and there is no other device. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *accesses,
			    size_t count)
{
	CUresult result = begin(pool);

	if (!result && count && !accesses)
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; !result && i < count; i++)
		if (accesses[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    accesses[i].location.id != 0)
			result = emu_driver_fail(
			    CUDA_ERROR_INVALID_DEVICE,
			    "cuMemPoolSetAccess: access %zu is of location %d, %d: "
			    "there is only device 0",
			    i, accesses[i].location.type, accesses[i].location.id);
		else if (accesses[i].flags != ACCESS_READ_WRITE)
			result = emu_driver_fail(
			    CUDA_ERROR_INVALID_VALUE,
			    "cuMemPoolSetAccess: access %zu: a device keeps access to "
			    "its own pool",
			    i);
	return emu_driver_leave(result);
}

CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
	CUresult result = begin(pool);

	if (!result && (!flags || !location))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*flags =
		    location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == 0
			? ACCESS_READ_WRITE
			: ACCESS_NONE;
	return emu_driver_leave(result);
}

/* ---- other processes ------------------------------------------------------------ */

static CUresult refuse_sharing(const char *call)
{
	(void)emu_driver_enter();
	return emu_driver_leave(emu_driver_fail(
	    CUDA_ERROR_NOT_SUPPORTED,
	    "%s: memory and events are not shared between processes", call));
}

/* The handles have 64 bytes in CUDA and are not read. */
CUresult cuIpcGetEventHandle(void *handle, CUevent event)
{
	(void)handle;
	(void)event;
	return refuse_sharing("cuIpcGetEventHandle");
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcHandle handle)
{
	(void)event;
	(void)handle;
	return refuse_sharing("cuIpcOpenEventHandle");
}

CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr pointer)
{
	(void)handle;
	(void)pointer;
	return refuse_sharing("cuIpcGetMemHandle");
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcHandle handle, unsigned flags)
{
	(void)pointer;
	(void)handle;
	(void)flags;
	return refuse_sharing("cuIpcOpenMemHandle");
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	(void)pointer;
	return refuse_sharing("cuIpcCloseMemHandle");
}

CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, int type,
					  unsigned long long flags)
{
	(void)handle;
	(void)pool;
	(void)type;
	(void)flags;
	return refuse_sharing("cuMemPoolExportToShareableHandle");
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type,
					    unsigned long long flags)
{
	(void)pool;
	(void)handle;
	(void)type;
	(void)flags;
	return refuse_sharing("cuMemPoolImportFromShareableHandle");
}

CUresult cuMemPoolExportPointer(void *data, CUdeviceptr pointer)
{
	(void)data;
	(void)pointer;
	return refuse_sharing("cuMemPoolExportPointer");
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, void *data)
{
	(void)pointer;
	(void)pool;
	(void)data;
	return refuse_sharing("cuMemPoolImportPointer");
}
