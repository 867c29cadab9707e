/* SPDX-License-Identifier: Apache-2.0 */
/* graph_memory.c - see graph_memory.h. */
#include "driver/graph_memory.h"

#include <stdlib.h>

static struct emu_reservation *reservations;

/*
 * Bytes that graphs have allocated now, and the pages that the device keeps for them:
 * freed pages are used again, until cuDeviceGraphMemTrim.
 */
static struct {
	uint64_t live, kept, kept_high;
} sums;

static void raise_to(uint64_t *high, uint64_t value)
{
	*high = *high > value ? *high : value;
}

struct emu_reservation *emu_reservation_make(size_t bytes)
{
	struct emu_reservation *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->bytes = bytes;
	r->owners = 1;
	r->address = emu_driver_alloc(bytes);
	if (!r->address) {
		free(r);
		return NULL;
	}
	emu_memory_set_state(emu_driver.machine.memory, r->address, bytes, 0);
	r->next = reservations;
	reservations = r;
	return r;
}

/* Ends a reservation without owners whose memory is free. */
static void end(struct emu_reservation *r)
{
	struct emu_reservation **at = &reservations;

	if (r->owners || r->is_live)
		return;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (emu_driver.order.streams)
		emu_streams_forget(emu_driver.order.streams, r->address, r->bytes);
	(void)emu_memory_free(emu_driver.machine.memory, r->address, NULL);
	free(r);
}

void emu_reservation_leave(struct emu_reservation *r)
{
	if (!r)
		return;
	r->owners--;
	end(r);
}

struct emu_reservation *emu_reservation_find(CUdeviceptr address)
{
	struct emu_reservation *r = reservations;

	while (r && r->address != address)
		r = r->next;
	return r;
}

CUresult emu_reservation_change(struct emu_reservation *r, bool is_alloc)
{
	if (r->is_live == is_alloc)
		return emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE,
		    is_alloc ? "memory of a graph at 0x%llx: a launch has allocated "
			       "it, and nothing has freed it since"
			     : "memory of a graph at 0x%llx: it is freed, and is not "
			       "allocated",
		    r->address);
	emu_memory_set_state(emu_driver.machine.memory, r->address, r->bytes,
			     is_alloc ? EMU_MAPPED : 0);
	r->is_live = is_alloc;
	sums.live += is_alloc ? r->bytes : 0;
	sums.live -= is_alloc ? 0 : r->bytes;
	raise_to(&sums.kept, sums.live);
	raise_to(&sums.kept_high, sums.kept);
	end(r);
	return CUDA_SUCCESS;
}

/* ---- the device's memory for graphs ---------------------------------------- */

enum { USED_CURRENT, USED_HIGH, RESERVED_CURRENT, RESERVED_HIGH };

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult result = emu_driver_enter();

	if (!result && device != 0)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (!result)
		sums.kept = sums.live;
	return emu_driver_leave(result);
}

/* What graphs use and what is reserved for them are the same pages here. */
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	CUresult result = emu_driver_enter();

	if (!result && device != 0)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (!result &&
	    (!value || attribute < USED_CURRENT || attribute > RESERVED_HIGH))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*(uint64_t *)value =
		    attribute == USED_CURRENT || attribute == RESERVED_CURRENT
			? sums.kept
			: sums.kept_high;
	return emu_driver_leave(result);
}

/* The two highest values can be set, to 0: from then on they are those of now. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	CUresult result = emu_driver_enter();

	if (!result && device != 0)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (!result && (!value || *(const uint64_t *)value ||
			(attribute != USED_HIGH && attribute != RESERVED_HIGH)))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuDeviceSetGraphMemAttribute: attribute %d: "
					 "only the two HIGH ones can be set, to 0",
					 attribute);
	if (!result)
		sums.kept_high = sums.kept;
	return emu_driver_leave(result);
}
