/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_queue.h - operations in flight in the tensor cores of a cluster:
 * tcgen05.mma, .cp and .commit.  The operations of one warp are executed in their
 * order, as late as a later commit allows, or immediately with seed 0.
 */
#ifndef EMU_TENSOR_QUEUE_H
#define EMU_TENSOR_QUEUE_H

#include "machine/tensor_unit.h"

emu_run emu_run_umma, emu_run_tmem_copy, emu_run_tmem_commit;

/* Lets time pass; true if an operation is in flight. */
bool emu_tensor_step(struct emu_cluster *c, bool is_idle);
/* Faults if an operation is in flight or memory is allocated.  Frees everything. */
void emu_tensor_end(struct emu_cluster *c);

#endif
