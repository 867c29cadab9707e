/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - clusters that run interleaved in one thread of the host. */
#ifndef EMU_SCHEDULE_H
#define EMU_SCHEDULE_H

#include <stdatomic.h>

#include "machine/machine.h"

struct emu_schedule {
	struct emu_machine *machine; /* of this thread */
	/* Clusters begun .. n_clusters - 1 of each. */
	struct emu_grid *const *grids;
	uint32_t n_grids;
	bool delays_first; /* of grids that overlap, the earlier one */
	/* counts the whole launch, against the budget */
	_Atomic uint64_t *instructions;
	/* Ends in silence once a cluster below index has failed; may be NULL.
	 */
	const _Atomic uint32_t *lowest_fault;
	uint32_t index;
};

/* False with the machine's report, once one is there. */
bool emu_schedule_run(const struct emu_schedule *schedule);

#endif
