/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - memory that is freed all at once, for the parts of a module. */
#ifndef EMU_ARENA_H
#define EMU_ARENA_H

#include "hardware/emu.h"

struct emu_arena;

struct emu_arena *emu_arena_new(void);
void emu_arena_free(struct emu_arena *arena);
/* Zeros, aligned to 16; NULL where there is no memory. */
void *emu_arena_take(struct emu_arena *arena, size_t bytes);
/* A copy of length characters, ended by zero. */
char *emu_arena_text(struct emu_arena *arena, const char *text, size_t length);

/*
 * A growing array: space for one more element of `size` bytes, or NULL.  Its
 * memory is the caller's to free.
 */
void *emu_grow(void *array, size_t *capacity, size_t count, size_t size);

#endif
