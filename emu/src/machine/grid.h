/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - launches, as the driver interface checks and starts them. */
#ifndef EMU_GRID_H
#define EMU_GRID_H

#include "machine/machine.h"

/* Checks all rules of sizes; err names the one that is broken. */
bool emu_grid_check(const struct emu_grid *grid, struct emu_error *err);

/*
 * Runs grids to their end.  Each may begin when all CTAs of the grid before it
 * have triggered it or ended (programmatic dependent launch).  False with the
 * machine's report where a rule was broken.
 */
bool emu_grids_run(struct emu_machine *machine, struct emu_grid *const *grids,
		   uint32_t count);

#endif
