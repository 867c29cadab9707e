/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.h - from an address to memory: windows, bounds, alignment and the
 * state of each byte, for loads, stores and asynchronous copies.
 */
#ifndef EMU_ACCESS_H
#define EMU_ACCESS_H

#include "machine/machine.h"

enum emu_access_kind {
	EMU_READ,  /* bytes must have been written */
	EMU_WRITE, /* a thread writes them */
	EMU_COPY,  /* read; undefined bytes are copied as such */
	EMU_PEEK,  /* bytes must be mapped */
};

/* Addresses of an operand's lanes, with an offset. */
void emu_offset_addresses(const struct emu_warp *w, const struct emu_value *base,
			  int64_t offset, uint64_t *to);
/* Those of the instruction's first address operand. */
void emu_addresses(const struct emu_warp *w, const struct emu_instr *i,
		   const struct emu_value *base, uint64_t *to);

/* Zeros, for the widest load of a lane. */
extern const uint8_t emu_nothing[32];
/*
 * True if no load of a warp's lanes needs a report about its address or state.  from:
 * the host's pointer for each lane, emu_nothing for lanes that do not load.  If false,
 * call emu_access() for each lane.
 */
bool emu_plain_loads(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, const uint8_t **from);
/*
 * The host's pointer to `bytes` bytes (a power of two up to 32, which is also the
 * alignment) at an address of lane, and, unless shadow is NULL, in *shadow the
 * pointer to their state.  NULL after a fault.
 */
uint8_t *emu_access(struct emu_warp *w, const struct emu_instr *i, int lane,
		    enum emu_state_space space, uint64_t address, uint32_t bytes,
		    enum emu_access_kind kind, uint8_t **shadow);

/*
 * Loads `bytes` bytes of each lane; from: the host's pointers, emu_nothing for lanes
 * that do not load.  False after a fault.
 */
bool emu_load_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		    const uint64_t *address, uint32_t bytes, const uint8_t **from);

/* Stores `bytes` bytes of each lane; false after a fault. */
bool emu_store_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, uint8_t (*value)[32]);

/*
 * The same for atomics, whose bytes then count as written.  False: nothing was done,
 * and emu_access() is to be called for each lane; only atomics of the shared memory of
 * the warp's CTA, which no checker records, are done for all lanes.
 */
bool emu_plain_atomics(const struct emu_warp *w, const struct emu_instr *i,
		       uint32_t lanes, const uint64_t *address, uint32_t bytes,
		       uint8_t **at);

/* The shared memory to which an address of a cluster belongs, and in *at the
 * offset.  NULL: no such CTA. */
struct emu_space *emu_shared_at(const struct emu_cluster *c, uint64_t address,
				uint64_t *at);

/* "shared memory of CTA rank 1, offset 1040" or what memory.h says. */
void emu_describe_address(const struct emu_warp *w, enum emu_state_space space,
			  uint64_t address, char *text, size_t size);

#endif
