/* SPDX-License-Identifier: Apache-2.0 */
/* async.h - what a warp has started and not waited for. */
#ifndef EMU_ASYNC_H
#define EMU_ASYNC_H

#include "machine/machine.h"

struct emu_wgmma_queue;
struct emu_tmem_queue;

/* Of a warp: the numbers of the groups that are being filled, by lane. */
struct emu_async {
	uint32_t cp_group[EMU_LANES], bulk_group[EMU_LANES];
	struct emu_wgmma_queue *wgmma;
	struct emu_tmem_queue *tmem;
};

#endif
