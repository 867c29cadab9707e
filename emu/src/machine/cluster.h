/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.h - a cluster with its CTAs, warps and shared memory. */
#ifndef EMU_CLUSTER_H
#define EMU_CLUSTER_H

#include "machine/machine.h"

/* The most registers that ptxas would allocate to a thread. */
uint32_t emu_registers_each(const struct emu_kernel *kernel, uint32_t threads);

/* A cluster with its CTAs and warps, ready to run; NULL with the
 * machine's report. */
struct emu_cluster *emu_cluster_new(struct emu_grid *grid, uint32_t index);
/* False after a fault: an operation is still in flight. */
bool emu_cluster_end(struct emu_cluster *cluster);
void emu_cluster_free(struct emu_cluster *cluster);
/* Registers that are kept for the next cluster. */
void emu_free_blocks(struct emu_machine *machine);

#endif
