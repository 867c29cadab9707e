/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - device memory: a next-fit allocator over one reserved range.  Freed
 * blocks are remembered until their addresses are needed again, so that a report can
 * name the block of a late access.  Large blocks use memory of the host when they are
 * used (pages.h).
 */
#include "hardware/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hardware/pages.h"

#define ALIGNMENT 256
#define GUARD	  256
/* Fresh bytes: a NaN in every float format, no live mbarrier. */
#define POISON 0xFF
/* An address this near to an allocation is described by its distance from it. */
#define NEAR_BYTES (1 << 20)

struct block {
	uint64_t begin, bytes;
	bool is_live, is_hidden;
	bool is_of_kernels; /* malloc in device code */
	uint64_t mapped;    /* mappings of its bytes and their states (pages.h) */
};

struct emu_memory {
	struct emu_space space;
	struct emu_pages pages;
	struct block *blocks; /* by address, not overlapping */
	size_t count, capacity;
	uint64_t cursor; /* where the next search begins */
};

static uint64_t align_up(uint64_t x, uint64_t to)
{
	return (x + to - 1) / to * to;
}

/* ---- the range ----------------------------------------------------------- */

static void *reserve(uint64_t bytes)
{
	void *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return range == MAP_FAILED ? NULL : range;
}

struct emu_memory *emu_memory_open(uint64_t bytes, struct emu_error *err)
{
	struct emu_memory *memory = calloc(1, sizeof(*memory));

	if (!memory) {
		emu_fail(err, "out of memory");
		return NULL;
	}
	emu_pages_open(&memory->pages);
	bytes = align_up(bytes, memory->pages.page_bytes);
	memory->space.bytes = bytes;
	memory->space.data = reserve(bytes);
	memory->space.shadow = reserve(bytes);
	if (!memory->space.data || !memory->space.shadow) {
		emu_fail(err, "%llu bytes of addresses cannot be reserved: %s",
			 (unsigned long long)bytes, strerror(errno));
		emu_memory_close(memory);
		return NULL;
	}
	memory->space.base = (uint64_t)(uintptr_t)memory->space.data;
	memory->cursor = memory->space.base;
	return memory;
}

void emu_memory_close(struct emu_memory *memory)
{
	if (!memory)
		return;
	if (memory->space.data)
		munmap(memory->space.data, memory->space.bytes);
	if (memory->space.shadow)
		munmap(memory->space.shadow, memory->space.bytes);
	emu_pages_close(&memory->pages);
	free(memory->blocks);
	free(memory);
}

const struct emu_space *emu_memory_space(const struct emu_memory *memory)
{
	return &memory->space;
}

/* ---- the list of blocks -------------------------------------------------- */

/* The number of blocks that begin at or before address. */
static size_t blocks_until(const struct emu_memory *memory, uint64_t address)
{
	size_t low = 0, high = memory->count;

	while (low < high) {
		const size_t middle = (low + high) / 2;

		if (memory->blocks[middle].begin <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The block that holds address, live or freed. */
static struct block *block_of(const struct emu_memory *memory, uint64_t address)
{
	const size_t i = blocks_until(memory, address);
	struct block *block = memory->blocks;

	if (i == 0 || !block)
		return NULL;
	block += i - 1;
	return address - block->begin < block->bytes ? block : NULL;
}

/* Puts a block where no live one is; freed ones in its way are forgotten. */
static bool insert(struct emu_memory *memory, const struct block *block)
{
	struct block *list = memory->blocks;
	size_t at, behind;

	if (memory->count == memory->capacity) {
		const size_t capacity = memory->capacity ? memory->capacity * 2 : 64;

		list = realloc(list, capacity * sizeof(*list));
		if (!list)
			return false;
		memory->blocks = list;
		memory->capacity = capacity;
	}
	at = blocks_until(memory, block->begin);
	if (at > 0 && list[at - 1].begin + list[at - 1].bytes > block->begin)
		at--;
	behind = at;
	while (behind < memory->count &&
	       list[behind].begin < block->begin + block->bytes)
		behind++;
	memmove(list + at + 1, list + behind, (memory->count - behind) * sizeof(*list));
	memory->count += at + 1 - behind;
	list[at] = *block;
	return true;
}

/* ---- allocations --------------------------------------------------------- */

/*
 * The address of the first gap of this many bytes at or after from, GUARD away from
 * the ends and from live blocks; 0 if none exists.
 */
static uint64_t find_gap(const struct emu_memory *memory, uint64_t from, uint64_t bytes)
{
	const struct emu_space *s = &memory->space;
	uint64_t at =
	    align_up(from < s->base + GUARD ? s->base + GUARD : from, ALIGNMENT);
	size_t i = blocks_until(memory, at);

	for (i -= i > 0; i < memory->count; i++) {
		const struct block *b = &memory->blocks[i];

		if (!b->is_live || b->begin + b->bytes + GUARD <= at)
			continue;
		if (b->begin >= at && b->begin - at >= bytes + GUARD)
			return at;
		at = align_up(b->begin + b->bytes + GUARD, ALIGNMENT);
	}
	return at + bytes + GUARD <= s->base + s->bytes ? at : 0;
}

uint64_t emu_memory_alloc(struct emu_memory *memory, uint64_t bytes,
			  struct emu_error *err)
{
	const struct emu_space *s = &memory->space;
	struct block block = {.bytes = bytes, .is_live = true};

	if (bytes == 0) {
		emu_fail(err, "0 bytes: an allocation has at least one");
		return 0;
	}
	if (bytes < s->bytes) {
		block.begin = find_gap(memory, memory->cursor, bytes);
		if (!block.begin)
			block.begin = find_gap(memory, s->base, bytes);
	}
	if (!block.begin || !insert(memory, &block)) {
		emu_fail(err, "no memory for %llu bytes in a device memory of %llu",
			 (unsigned long long)bytes, (unsigned long long)s->bytes);
		return 0;
	}
	memory->cursor = block.begin + bytes + GUARD;
	emu_memory_set(memory, block.begin, bytes, POISON);
	emu_memory_set_state(memory, block.begin, bytes, EMU_MAPPED);
	return block.begin;
}

/* Sets bytes of data or shadow, of which at is the byte of address. */
static void set(struct emu_memory *memory, uint8_t *at, uint64_t address,
		uint64_t bytes, uint8_t value)
{
	const uint64_t mapped = emu_pages_set(&memory->pages, at, bytes, value);
	struct block *block = block_of(memory, address);

	if (block)
		block->mapped += mapped;
}

void emu_memory_set(struct emu_memory *memory, uint64_t address, uint64_t bytes,
		    uint8_t value)
{
	const struct emu_space *s = &memory->space;

	set(memory, s->data + (address - s->base), address, bytes, value);
}

void emu_memory_set_state(struct emu_memory *memory, uint64_t address, uint64_t bytes,
			  uint8_t state)
{
	const struct emu_space *s = &memory->space;

	set(memory, s->shadow + (address - s->base), address, bytes, state);
}

void emu_memory_hide(struct emu_memory *memory, uint64_t address)
{
	struct block *block = block_of(memory, address);

	if (block)
		block->is_hidden = true;
}

uint64_t emu_memory_used(const struct emu_memory *memory)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < memory->count; i++)
		bytes += memory->blocks[i].is_live ? memory->blocks[i].bytes : 0;
	return bytes;
}

bool emu_memory_free(struct emu_memory *memory, uint64_t address, struct emu_error *err)
{
	const struct emu_space *s = &memory->space;
	struct block *block = block_of(memory, address);
	char where[200];

	if (!block || !block->is_live || block->begin != address) {
		emu_memory_describe(memory, address, where, sizeof(where));
		return emu_fail(err, "no allocation begins at 0x%llx, which is %s",
				(unsigned long long)address, where);
	}
	block->is_live = false;
	emu_pages_clear(&memory->pages, s->data + (address - s->base), block->bytes,
			block->mapped);
	emu_pages_clear(&memory->pages, s->shadow + (address - s->base), block->bytes,
			0);
	return true;
}

bool emu_memory_find(const struct emu_memory *memory, uint64_t address, uint64_t *begin,
		     uint64_t *bytes)
{
	const struct block *block = block_of(memory, address);

	if (!block || !block->is_live)
		return false;
	*begin = block->begin;
	*bytes = block->bytes;
	return true;
}

void emu_memory_give_to_kernels(struct emu_memory *memory, uint64_t address)
{
	struct block *block = block_of(memory, address);

	if (block)
		block->is_of_kernels = true;
}

uint64_t emu_memory_of_kernels(const struct emu_memory *memory, uint64_t address)
{
	const struct block *block = block_of(memory, address);

	return block && block->is_live && block->is_of_kernels &&
		       block->begin == address
		   ? block->bytes
		   : 0;
}

/* ---- reports ------------------------------------------------------------- */

/* The nearest block before or after address that a report may name; NULL: none. */
static const struct block *neighbour(const struct emu_memory *memory, uint64_t address,
				     bool is_after)
{
	size_t i = blocks_until(memory, address);

	if (is_after) {
		while (i < memory->count && memory->blocks[i].is_hidden)
			i++;
		return i < memory->count ? &memory->blocks[i] : NULL;
	}
	while (i > 0 && memory->blocks[i - 1].is_hidden)
		i--;
	return i > 0 ? &memory->blocks[i - 1] : NULL;
}

void emu_memory_describe(const struct emu_memory *memory, uint64_t address, char *text,
			 size_t size)
{
	const struct block *b = block_of(memory, address);
	const struct block *before = neighbour(memory, address, false);
	const struct block *after = neighbour(memory, address, true);
	const uint64_t past =
	    before ? address - before->begin - before->bytes : NEAR_BYTES;
	const uint64_t ahead = after ? after->begin - address : NEAR_BYTES;
	const char *where;
	uint64_t distance;

	if (b) {
		distance = address - b->begin;
		where = NULL;
	} else if (before && past < NEAR_BYTES && past <= ahead) {
		b = before;
		distance = past;
		where = "past the end of";
	} else if (after && ahead < NEAR_BYTES) {
		b = after;
		distance = ahead;
		where = "before";
	} else {
		snprintf(text, size, "in no allocation");
		return;
	}
	snprintf(text, size, "%s%llu%s %s the %sallocation of %llu bytes at 0x%llx",
		 where ? "" : "byte ", (unsigned long long)distance,
		 !where		 ? ""
		 : distance == 1 ? " byte"
				 : " bytes",
		 where ? where : "of", b->is_live ? "" : "freed ",
		 (unsigned long long)b->bytes, (unsigned long long)b->begin);
}
