/* SPDX-License-Identifier: Apache-2.0 */
/*
 * async.h - asynchronous operations that a warp has started and not waited for.
 */
#ifndef EMU_ASYNC_H
#define EMU_ASYNC_H

#include "machine/machine.h"

struct emu_wgmma_queue;
struct emu_tmem_queue;

/* A warp's open groups by lane, and its queues. */
struct emu_async {
	uint32_t cp_group[EMU_LANES], bulk_group[EMU_LANES];
	struct emu_wgmma_queue *wgmma;
	struct emu_tmem_queue *tmem;
};

#endif
