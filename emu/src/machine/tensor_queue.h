/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_queue.h - what is on its way through a cluster's tensor cores:
 * tcgen05.mma, .cp and .commit.
 *
 * What one warp gives to the tensor core is done in its order, as late as a
 * later commit allows; with seed 0 at once.
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
