/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_order.h - tells the checker of global memory's order (order.h) what
 * warps do.  Every call does nothing where the run, or the warp's cluster, has
 * none; those that return false have reported a fault.
 */
#ifndef EMU_WATCH_ORDER_H
#define EMU_WATCH_ORDER_H

#include "check/order.h"
#include "machine/warp.h"

/* Bytes of device memory; kind: of enum emu_order_kind. */
bool emu_watch_global(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint32_t kind, uint64_t address, uint32_t bytes);
/* Strong accesses of the lanes, before they write or after they have read. */
void emu_watch_release(struct emu_warp *w, uint32_t lanes,
		       const uint64_t *address, enum emu_order_scope scope,
		       bool is_atomic);
void emu_watch_acquire(struct emu_warp *w, uint32_t lanes,
		       const uint64_t *address, enum emu_order_scope scope);
void emu_watch_fence(struct emu_warp *w, enum emu_order_scope scope);
void emu_watch_stored(struct emu_warp *w, uint32_t groups);
/* griddepcontrol.wait is over. */
void emu_watch_grids(struct emu_warp *w);

/* For the grids of a run that follows; NULL: none, or no memory. */
struct emu_order *emu_watch_order_open(struct emu_grid *const *grids,
				       uint32_t count);

#endif
