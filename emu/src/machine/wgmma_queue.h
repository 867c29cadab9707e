/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma_queue.h - a warp's unfinished wgmma. */
#ifndef EMU_WGMMA_QUEUE_H
#define EMU_WGMMA_QUEUE_H

#include "hardware/wgmma.h"
#include "machine/machine.h"

/*
 * The option of an instruction: bits 8 to 16 n; 20 and 21 A and B transposed; 22 and
 * 23 A and B negated; 24 to 26 and 27 to 29 the enum emu_mma_type of A and B; and
 * these bits.
 */
#define EMU_A_IN_SHARED 1
#define EMU_D_IS_F16	2
#define EMU_SATURATES	4

/* The option of wgmma.fence, .commit_group and .wait_group. */
enum { EMU_WGMMA_FENCE, EMU_WGMMA_COMMIT, EMU_WGMMA_WAIT };

struct emu_wgmma_queue;

emu_run emu_run_wgmma, emu_run_wgmma_group;

/* False after a fault: the instruction touches registers in flight. */
bool emu_wgmma_check(struct emu_warp *w, const struct emu_instr *i);
void emu_wgmma_free(struct emu_wgmma_queue *queue);

#endif
