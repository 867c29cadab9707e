/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - the memory of the device: one reserved range of the host's addresses,
 * and as many of shadow.  Guard bands separate the allocations.  An allocation of
 * EMU_PAGES_LEAST bytes or more gets memory of the host page by page, when its bytes
 * or their states are first written.
 */
#ifndef EMU_MEMORY_H
#define EMU_MEMORY_H

#include "hardware/emu.h"

struct emu_memory;

/* Reserves bytes of addresses (and as many of shadow); NULL with err. */
struct emu_memory *emu_memory_open(uint64_t bytes, struct emu_error *err);
void emu_memory_close(struct emu_memory *memory);

/* The whole range; stays the same for the life of memory. */
const struct emu_space *emu_memory_space(const struct emu_memory *memory);

/*
 * A multiple of 256, MAPPED and not WRITTEN, of bytes 0xFF; 0 with err if there is
 * no memory.  At least 256 bytes before and after it are not mapped.
 */
uint64_t emu_memory_alloc(struct emu_memory *memory, uint64_t bytes,
			  struct emu_error *err);

/* Sets bytes of an allocation, or their states; uses no memory for large ranges. */
void emu_memory_set(struct emu_memory *memory, uint64_t address, uint64_t bytes,
		    uint8_t value);
void emu_memory_set_state(struct emu_memory *memory, uint64_t address, uint64_t bytes,
			  uint8_t state);

/* Reports do not name this allocation as the nearest: the program did not make it. */
void emu_memory_hide(struct emu_memory *memory, uint64_t address);

/* False if no allocation begins there.  Its pages return to the host, and its
 * addresses are used again as late as possible. */
bool emu_memory_free(struct emu_memory *memory, uint64_t address,
		     struct emu_error *err);

/* A live allocation at address belongs to kernels (malloc in device code), not to the
 * host. */
void emu_memory_give_to_kernels(struct emu_memory *memory, uint64_t address);
/* The size of such an allocation, 0 for any other address. */
uint64_t emu_memory_of_kernels(const struct emu_memory *memory, uint64_t address);

/*
 * Describes an address for a report: "16 bytes past the end of the allocation of
 * 4096 bytes at 0x...", "byte 5 of the freed allocation ...", "in no allocation".
 */
void emu_memory_describe(const struct emu_memory *memory, uint64_t address, char *text,
			 size_t size);

/* Bytes of all live allocations. */
uint64_t emu_memory_used(const struct emu_memory *memory);

/* The live allocation that holds address: its begin and size; else false. */
bool emu_memory_find(const struct emu_memory *memory, uint64_t address, uint64_t *begin,
		     uint64_t *bytes);

#endif
