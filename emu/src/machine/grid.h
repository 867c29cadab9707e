/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.h - launches: what the driver interface checks and starts.
 */
#ifndef EMU_GRID_H
#define EMU_GRID_H

#include "machine/warp.h"

/* Of all devices (device.h); the same numbers as the driver's attributes. */
#define EMU_MAX_THREADS	 1024
#define EMU_SM_REGISTERS 65536
#define EMU_MAX_GRID_X	 2147483647u
#define EMU_MAX_GRID_YZ	 65535u

/* All rules of sizes; err says which is broken. */
bool emu_grid_check(const struct emu_grid *grid, struct emu_error *err);

/*
 * Runs grids to their end: the first, and those behind it that may begin when
 * all CTAs of the one before have said so or ended (programmatic dependent
 * launch).  False with the machine's report where a rule was broken.
 */
bool emu_grids_run(struct emu_machine *machine, struct emu_grid *const *grids,
		   uint32_t count);

/* Registers of a thread, as ptxas would give at most. */
uint32_t emu_registers_each(const struct emu_kernel *kernel, uint32_t threads);

/* cluster.c: a cluster with its CTAs and warps, ready to run; NULL with the
 * machine's report. */
struct emu_cluster *emu_cluster_new(struct emu_grid *grid, uint32_t index);
/* False after a fault: something is still on its way. */
bool emu_cluster_end(struct emu_cluster *cluster);
void emu_cluster_free(struct emu_cluster *cluster);
/* Registers that are kept for the next cluster. */
void emu_free_blocks(struct emu_machine *machine);

#endif
