/* SPDX-License-Identifier: Apache-2.0 */
/* team.h - runs independent clusters on all processors. */
#ifndef EMU_TEAM_H
#define EMU_TEAM_H

#include "machine/machine.h"

/*
 * Runs each cluster of the grid by itself.  What a cluster does, and which
 * report is given (that of the lowest cluster), depends on the seed and the
 * cluster's index alone, not on the number of threads.
 */
bool emu_team_run(struct emu_machine *machine, struct emu_grid *grid);

#endif
