/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.h - runs clusters of one or more grids interleaved, as one schedule. */
#ifndef EMU_SCHEDULER_H
#define EMU_SCHEDULER_H

#include <stdatomic.h>

#include "machine/machine.h"

struct emu_schedule {
	struct emu_machine *machine; /* of this thread */
	/* Clusters begun .. n_clusters - 1 of each. */
	struct emu_grid *const *grids;
	uint32_t n_grids;
	bool delays_first; /* delays the earlier one of grids that overlap */
	/* counts the whole launch, against the budget */
	_Atomic uint64_t *instructions;
	/* Ends without a report once a cluster below index has failed; may be NULL.
	 */
	const _Atomic uint32_t *lowest_fault;
	uint32_t index;
};

/* False with the machine's report if there is one. */
bool emu_scheduler_run(const struct emu_schedule *schedule);

#endif
