/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_queue.h - operations in flight in the tensor cores of a cluster:
 * tcgen05.mma, .cp and .commit. The operations of one warp are done in its
 * order, as late as a later commit allows; with seed 0 immediately.
 */
#ifndef EMU_TENSOR_QUEUE_H
#define EMU_TENSOR_QUEUE_H

#include "machine/tensor_unit.h"

emu_run emu_run_umma, emu_run_tmem_copy, emu_run_tmem_commit;

/* Time passes; true if something is on its way. */
bool emu_tensor_step(struct emu_cluster *c, bool is_idle);
/* A fault if something is on its way or allocated; frees it in any case. */
void emu_tensor_end(struct emu_cluster *c);

#endif
