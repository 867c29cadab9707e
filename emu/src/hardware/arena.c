/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - see arena.h. */
#include "hardware/arena.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)1 << 18)

struct block {
	struct block *next;
	size_t used, bytes;
};

struct emu_arena {
	struct block *blocks;
};

/* Data follows the header, aligned. */
#define HEADER ((sizeof(struct block) + 15) / 16 * 16)

struct emu_arena *emu_arena_new(void)
{
	return calloc(1, sizeof(struct emu_arena));
}

void emu_arena_free(struct emu_arena *arena)
{
	struct block *next;

	if (!arena)
		return;
	for (struct block *b = arena->blocks; b; b = next) {
		next = b->next;
		free(b);
	}
	free(arena);
}

void *emu_arena_take(struct emu_arena *arena, size_t bytes)
{
	struct block *b = arena->blocks;
	const size_t need = (bytes + 15) / 16 * 16;
	void *at;

	if (need < bytes)
		return NULL;
	if (!b || b->bytes - b->used < need) {
		const size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;

		b = calloc(1, HEADER + size);
		if (!b)
			return NULL;
		b->bytes = size;
		b->next = arena->blocks;
		arena->blocks = b;
	}
	at = (char *)b + HEADER + b->used;
	b->used += need;
	return at;
}

char *emu_arena_text(struct emu_arena *arena, const char *text, size_t length)
{
	char *copy = emu_arena_take(arena, length + 1);

	if (copy)
		memcpy(copy, text, length);
	return copy;
}

void *emu_grow(void *array, size_t *capacity, size_t count, size_t size)
{
	size_t more;
	void *grown;

	if (count < *capacity)
		return array;
	more = *capacity ? 2 * *capacity : 64;
	grown = realloc(array, more * size);
	if (grown)
		*capacity = more;
	return grown;
}
