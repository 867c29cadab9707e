/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.c - addresses that are reserved first and mapped later (cuMemAddressReserve,
 * cuMemCreate, cuMemMap).  A reservation is an allocation whose bytes are not mapped;
 * mapping makes them so, with undefined values.  One difference to a GPU follows: the
 * data of a handle is not kept when it is unmapped, and a handle is mapped once.
 */
#include <stdlib.h>

#include "driver/queue.h"

#define GRANULARITY (UINT64_C(2) << 20)

static struct physical {
	CUmemAllocationProp prop;
	size_t bytes;
	CUdeviceptr mapped; /* 0: not */
	bool is_released;   /* it lives until it is unmapped */
	struct physical *next;
} * handles;

/* The lock must be held; NULL: unknown. */
static struct physical **find(unsigned long long handle)
{
	struct physical **at = &handles;

	while (*at && (uintptr_t)*at != handle)
		at = &(*at)->next;
	return *at ? at : NULL;
}

static void drop(struct physical **at)
{
	struct physical *p = *at;

	*at = p->next;
	free(p);
}

static bool is_multiple(size_t bytes)
{
	return bytes && bytes % GRANULARITY == 0;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
				       int option)
{
	(void)option;
	if (!bytes || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = GRANULARITY;
	return CUDA_SUCCESS;
}

/* A handle in the list; NULL: no memory. */
static struct physical *new_physical(const CUmemAllocationProp *prop, size_t bytes)
{
	struct physical *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->prop = *prop;
	p->bytes = bytes;
	p->next = handles;
	handles = p;
	return p;
}

CUresult cuMemCreate(unsigned long long *handle, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result = emu_driver_enter();
	struct physical *p = NULL;

	if (!result && (!handle || !prop || flags || !is_multiple(bytes)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && prop->requestedHandleTypes)
		result = emu_driver_fail(
		    CUDA_ERROR_NOT_SUPPORTED,
		    "cuMemCreate: memory for other processes is not modelled");
	if (!result && !(p = new_physical(prop, bytes)))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		*handle = (uintptr_t)p;
	return emu_driver_leave(result);
}

CUresult cuMemRelease(unsigned long long handle)
{
	CUresult result = emu_driver_enter();
	struct physical **at = find(handle);

	if (!result && (!at || (*at)->is_released))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && (*at)->mapped)
		(*at)->is_released = true;
	else if (!result)
		drop(at);
	return emu_driver_leave(result);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						unsigned long long handle)
{
	CUresult result = emu_driver_enter();
	struct physical **at = find(handle);

	if (!result && (!prop || !at))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*prop = (*at)->prop;
	return emu_driver_leave(result);
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t align,
			     CUdeviceptr wanted, unsigned long long flags)
{
	CUresult result = emu_driver_enter();

	(void)align;
	(void)wanted;
	if (!result && (!pointer || flags || !is_multiple(bytes)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !(*pointer = emu_driver_alloc(bytes)))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		emu_memory_set_state(emu_driver.machine.memory, *pointer, bytes, 0);
	return emu_driver_leave(result);
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
	CUresult result = emu_driver_enter();
	uint64_t begin = 0, size = 0;

	if (!result &&
	    (!emu_memory_find(emu_driver.machine.memory, pointer, &begin, &size) ||
	     begin != pointer || size != bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	result = emu_driver_leave(result);
	return result ? result : cuMemFree_v2(pointer);
}

/* Checks that a reservation holds the range. */
static CUresult check_range(CUdeviceptr pointer, size_t bytes)
{
	uint64_t begin = 0, size = 0;

	return emu_memory_find(emu_driver.machine.memory, pointer, &begin, &size) &&
		       bytes <= size - (pointer - begin) && is_multiple(bytes)
		   ? CUDA_SUCCESS
		   : emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				     "%zu bytes at 0x%llx are not in a range of "
				     "cuMemAddressReserve",
				     bytes, pointer);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
		  unsigned long long handle, unsigned long long flags)
{
	CUresult result = emu_driver_enter();
	struct physical **at = find(handle);

	if (!result && (!at || offset || flags || bytes != (*at)->bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && (*at)->mapped)
		result = emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
					 "cuMemMap: the memory is mapped at 0x%llx "
					 "already, and two addresses of one memory are "
					 "not modelled",
					 (*at)->mapped);
	if (!result)
		result = check_range(pointer, bytes);
	if (!result) {
		(*at)->mapped = pointer;
		emu_memory_set_state(emu_driver.machine.memory, pointer, bytes,
				     EMU_MAPPED);
	}
	return emu_driver_leave(result);
}

/* All of the handles that are mapped in the range. */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
	CUresult result = emu_driver_enter();

	if (!result)
		result = emu_driver_flush();
	if (!result)
		result = check_range(pointer, bytes);
	if (result)
		return emu_driver_leave(result);
	emu_memory_set_state(emu_driver.machine.memory, pointer, bytes, 0);
	for (struct physical **at = &handles; *at;) {
		const bool is_inside =
		    (*at)->mapped >= pointer && (*at)->mapped < pointer + bytes;

		if (is_inside)
			(*at)->mapped = 0;
		if (is_inside && (*at)->is_released)
			drop(at);
		else
			at = &(*at)->next;
	}
	return emu_driver_leave(result);
}

/* The only device may access all that is mapped. */
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes,
			const CUmemAccessDesc *access, size_t count)
{
	CUresult result = emu_driver_enter();

	if (!result && (!access || !count))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t k = 0; k < count && !result; k++)
		if (access[k].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    access[k].location.id != 0)
			result = CUDA_ERROR_INVALID_DEVICE;
	return emu_driver_leave(result ? result : check_range(pointer, bytes));
}
