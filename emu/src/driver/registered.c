/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registered.c - memory of the host that the program registers.  Copies accept it as
 * they do any memory of the host.  When the program gets a device pointer to it, its
 * pages are mapped a second time, into memory of the device.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/queue.h"

enum {
	REGISTER_PORTABLE = 1,
	REGISTER_DEVICEMAP = 2,
	REGISTER_IOMEMORY = 4,
	REGISTER_READ_ONLY = 8,
};

static struct registration {
	uint64_t begin, bytes;
	CUdeviceptr block;     /* of device memory that has the pages; 0: not mapped */
	uint64_t first, pages; /* the pages in it, and their bytes */
	struct registration *next;
} * registrations;

/* ---- registering --------------------------------------------------------- */

/* True if every page of the range exists. */
static bool exists(uint64_t begin, uint64_t bytes)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char in_core;

	if (bytes > UINT64_MAX - begin - page)
		return false;
	for (uint64_t at = begin / page * page; at < begin + bytes; at += page)
		if (mincore((void *)(uintptr_t)at, page, &in_core) != 0)
			return false;
	return true;
}

/* True if a byte of the range is registered, or is memory that CUDA allocated. */
static bool is_taken(uint64_t begin, uint64_t bytes)
{
	const struct registration *r = registrations;

	while (r && (r->begin >= begin + bytes || begin >= r->begin + r->bytes))
		r = r->next;
	return r || emu_is_device(begin);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
	const uint64_t begin = (uintptr_t)pointer;
	CUresult result = emu_driver_enter();
	struct registration *r;

	if (!result && flags & (REGISTER_IOMEMORY | REGISTER_READ_ONLY))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!result && (!pointer || !bytes || !exists(begin, bytes) ||
			flags & ~(unsigned)(REGISTER_PORTABLE | REGISTER_DEVICEMAP)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && is_taken(begin, bytes))
		result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (result)
		return emu_driver_leave(result);
	r = calloc(1, sizeof(*r));
	if (!r)
		return emu_driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
	r->begin = begin;
	r->bytes = bytes;
	r->next = registrations;
	registrations = r;
	return emu_driver_leave(CUDA_SUCCESS);
}

/* The pages stay shared: other registrations may have a page in common with them. */
CUresult cuMemHostUnregister(void *pointer)
{
	CUresult result = emu_driver_enter();
	struct registration **at = &registrations, *r;
	CUdeviceptr block;

	if (result == CUDA_ERROR_NOT_INITIALIZED || !pointer)
		return emu_driver_leave(result ? result : CUDA_ERROR_INVALID_VALUE);
	while (*at && (*at)->begin != (uintptr_t)pointer)
		at = &(*at)->next;
	r = *at;
	if (!r)
		return emu_driver_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	if (!result)
		result = emu_driver_flush();
	*at = r->next;
	block = r->block;
	if (block && mmap((void *)(uintptr_t)r->first, r->pages, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
			  0) == MAP_FAILED)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	free(r);
	result = emu_driver_leave(result);
	return result || !block ? result : cuMemFree_v2(block);
}

/* ---- device pointers ----------------------------------------------------- */

/* Not memcpy(): AddressSanitizer forbids what is next to the caller's bytes. */
__attribute__((no_sanitize_address)) static void
copy_pages(uint64_t *to, const volatile uint64_t *from, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / sizeof(*to); i++)
		to[i] = from[i];
}

/*
 * Moves pages of the host to a file of memory, in place.  What another thread writes
 * to them at the same time may be lost.
 */
static bool make_shared(void *pages, uint64_t bytes)
{
	const int fd = memfd_create("nibemu", MFD_CLOEXEC);
	void *copy = MAP_FAILED;
	bool ok = false;

	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
		copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (copy != MAP_FAILED) {
		copy_pages(copy, pages, bytes);
		ok = mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) !=
		     MAP_FAILED;
	}
	if (!ok && copy != MAP_FAILED)
		munmap(copy, bytes);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* Maps shared pages a second time; false for private ones. */
static bool map_again(void *pages, uint64_t bytes, uint64_t to)
{
	return mremap(pages, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		      (void *)(uintptr_t)to) != MAP_FAILED;
}

static CUresult map(struct registration *r)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t begin = r->begin / page * page;
	const uint64_t bytes = (r->begin + r->bytes - begin + page - 1) / page * page;
	const uint64_t here = (uintptr_t)__builtin_frame_address(0);
	struct emu_memory *memory = emu_driver.machine.memory;
	void *pages = (void *)(uintptr_t)begin;
	CUdeviceptr block;

	/* The pages of this call's own variables cannot be replaced. */
	if (here + page > begin && here < begin + bytes + page)
		return emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
				       "a device pointer to memory on the stack");
	block = emu_driver_alloc(bytes + page);
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r->first = (block + page - 1) / page * page;
	r->pages = bytes;
	if (!map_again(pages, bytes, r->first) &&
	    (!make_shared(pages, bytes) || !map_again(pages, bytes, r->first))) {
		(void)emu_memory_free(memory, block, NULL);
		return emu_driver_fail(CUDA_ERROR_OUT_OF_MEMORY,
				       "pages of the host cannot be mapped again");
	}
	r->block = block;
	emu_memory_set_state(memory, block, bytes + page, 0);
	emu_memory_set_state(memory, r->first + (r->begin - begin), r->bytes,
			     EMU_MAPPED | EMU_WRITTEN);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *pointer, unsigned flags)
{
	const uint64_t at = (uintptr_t)pointer;
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct registration *r;
	CUresult result = emu_driver_enter();
	uint64_t begin, bytes;

	if (result || !to || flags)
		return emu_driver_leave(result ? result : CUDA_ERROR_INVALID_VALUE);
	/* Memory of cuMemHostAlloc has one address. */
	if (emu_memory_find(emu_driver.machine.memory, at, &begin, &bytes)) {
		*to = at;
		return emu_driver_leave(CUDA_SUCCESS);
	}
	for (r = registrations; r && at - r->begin >= r->bytes;)
		r = r->next;
	if (!r)
		return emu_driver_leave(CUDA_ERROR_INVALID_VALUE);
	if (!r->block)
		result = map(r);
	if (!result)
		*to = r->first + (at - r->begin / page * page);
	return emu_driver_leave(result);
}
