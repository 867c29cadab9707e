/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_memory.h - memory that nodes of graphs allocate and free.  Its address is the
 * same for all launches; its bytes are defined between the two nodes only.
 */
#ifndef EMU_GRAPH_MEMORY_H
#define EMU_GRAPH_MEMORY_H

#include "driver/state.h"

struct emu_reservation {
	CUdeviceptr address;
	size_t bytes;
	size_t owners; /* nodes */
	bool is_live;  /* a launch has allocated it, and nothing has freed it */
	struct emu_reservation *next;
};

/* Reserves addresses, with one owner.  NULL: no memory, and the reason is kept. */
struct emu_reservation *emu_reservation_make(size_t bytes);
/* An owner less; the last one ends the reservation, once the memory is free. */
void emu_reservation_leave(struct emu_reservation *r);
/* That of an address, live or not; NULL: none. */
struct emu_reservation *emu_reservation_find(CUdeviceptr address);
/* Allocates the memory, with undefined bytes, or frees it. */
CUresult emu_reservation_change(struct emu_reservation *r, bool is_alloc);

#endif
