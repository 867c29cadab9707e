/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic.h - bytes of global memory that the instructions of a grid load and
 * store, in all and by allocation.
 *
 * Caches are not modelled: bytes count when an instruction accesses them.  An
 * address counts once for all lanes of a warp, and a multicast once for all CTAs.
 * Only the part of a TMA box that is inside the tensor counts.  Kernel parameters do
 * not count.
 */
#ifndef EMU_TRAFFIC_H
#define EMU_TRAFFIC_H

#include "machine/machine.h"

enum emu_traffic_kind {
	EMU_TRAFFIC_TENSOR, /* loads by tensor map */
	EMU_TRAFFIC_BULK,
	EMU_TRAFFIC_CP_ASYNC,
	EMU_TRAFFIC_LOAD,  /* ld, atom, red */
	EMU_TRAFFIC_STORE, /* all stores */
	EMU_TRAFFIC_KINDS
};

#define EMU_TRAFFIC_RANGES 256

struct emu_traffic {
	uint64_t bytes[EMU_TRAFFIC_KINDS];
	/* Allocations in the order of their first use.  Further ones count only in
	 * `bytes` above. */
	struct emu_traffic_range {
		uint64_t begin, bytes, loaded, stored;
	} ranges[EMU_TRAFFIC_RANGES];
	uint32_t n_ranges, last; /* last: the range found last, which is tried first */
};

/* Counts bytes from address on, if the grid of w has a struct emu_traffic. */
void emu_traffic_count(struct emu_warp *w, enum emu_traffic_kind kind, uint64_t address,
		       uint64_t bytes);
/* Counts the bytes of lanes whose addresses are in global memory. */
void emu_traffic_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		       const uint64_t *address, uint32_t bytes,
		       enum emu_traffic_kind kind);
void emu_traffic_add(struct emu_traffic *to, const struct emu_traffic *from);

#endif
