/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the CPU backend's memory: large blocks are on huge pages. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/error.h"
#include "cpu.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define LINE_BYTES ((size_t)64)

void *cpu_lines(size_t bytes)
{
	const size_t rest = bytes % HUGE_BYTES;
	/* Small pages cost a fifth of the speed, but a model has hundreds of blocks, so
	 * the last huge page is used only if it wastes at most an eighth of the
	 * block. */
	const bool is_rounded = rest && HUGE_BYTES - rest <= bytes / 8;
	const size_t huge = is_rounded ? bytes - rest + HUGE_BYTES : bytes - rest;
	const size_t align = huge ? HUGE_BYTES : LINE_BYTES;
	size_t rounded;
	void *memory;

	if (__builtin_add_overflow(bytes, HUGE_BYTES, &rounded))
		return NULL;
	rounded =
	    is_rounded ? huge : (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
	/* aligned_alloc() requires a multiple of align. */
	if (posix_memalign(&memory, align, rounded))
		return NULL;
#ifdef MADV_HUGEPAGE
	/* Only a hint: without huge pages everything works, but slower. */
	if (huge)
		(void)madvise(memory, huge, MADV_HUGEPAGE);
#endif
	return memory;
}

static enum nib_status new_memory(const char *what, size_t bytes, void **memory,
				  struct nib_error *err)
{
	*memory = cpu_lines(bytes);
	if (*memory)
		return NIB_STATUS_OK;
	return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY, "no memory for %s (%zu bytes)",
			what, bytes);
}

enum nib_status cpu_workspace_new(struct nib_device *device, size_t bytes,
				  void **workspace, struct nib_error *err)
{
	(void)device;
	return new_memory("a workspace", bytes, workspace, err);
}

enum nib_status cpu_alloc(struct nib_device *device, size_t bytes, void **pointer,
			  struct nib_error *err)
{
	(void)device;
	return new_memory("data", bytes, pointer, err);
}

void cpu_free(struct nib_device *device, void *pointer)
{
	(void)device;
	free(pointer);
}

enum nib_status cpu_copy(struct nib_device *device, void *to, const void *from,
			 size_t bytes, void *stream, struct nib_error *err)
{
	(void)device;
	(void)stream;
	(void)err;
	memcpy(to, from, bytes);
	return NIB_STATUS_OK;
}

enum nib_status cpu_wait(struct nib_device *device, void *stream, struct nib_error *err)
{
	(void)device;
	(void)stream;
	(void)err;
	return NIB_STATUS_OK;
}
