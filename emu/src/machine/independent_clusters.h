/* SPDX-License-Identifier: Apache-2.0 */
/*
 * independent_clusters.h - runs a grid whose clusters exchange no data, each
 * separately, on all processors.
 */
#ifndef EMU_INDEPENDENT_CLUSTERS_H
#define EMU_INDEPENDENT_CLUSTERS_H

#include "machine/machine.h"

/*
 * What a cluster does depends only on the seed and the cluster's index, not on
 * the number of threads.  If several fail, the report is that of the lowest.
 */
bool emu_independent_clusters_run(struct emu_machine *machine, struct emu_grid *grid);

#endif
