/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_move.h - a warp's tcgen05.ld and .st that have not been waited for. */
#ifndef EMU_TENSOR_MOVE_H
#define EMU_TENSOR_MOVE_H

#include "machine/tensor_unit.h"

struct emu_tmem_queue;

emu_run emu_run_tmem_ld, emu_run_tmem_st, emu_run_tmem_wait;
emu_run emu_run_tmem_before, emu_run_tmem_after;

/* False after a fault: the instruction accesses registers that tcgen05.ld has not
 * written yet. */
bool emu_tmem_check_registers(struct emu_warp *w, const struct emu_instr *i);
void emu_tmem_queue_free(struct emu_tmem_queue *queue);

#endif
