/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parallel_phase.h - the parallel half of a scheduler's round: turns of several
 * clusters of one schedule on all processors.
 *
 *   round    parallel phase                 serial phase
 *            cluster 0: turn ... stop  --+
 *            cluster 1: turn ... stop  --+-> warps that stopped, cluster by
 *            cluster 2: turn ... stop  --+   cluster, on one thread
 *
 * In the parallel phase a warp stops before an instruction whose effect other
 * clusters may see (is_cross_cluster in ptx.h).  It waits as
 * EMU_AT_SERIAL_PHASE until the scheduler runs it.  So global memory does not
 * change during the phase, and a turn changes only its cluster's own state.
 * What clusters do depends only on the seed, not on the number of threads.
 */
#ifndef EMU_PARALLEL_PHASE_H
#define EMU_PARALLEL_PHASE_H

#include "machine/machine.h"
#include "machine/thread_pool.h"

/* A turn of a cluster. */
struct emu_turn {
	struct emu_cluster *cluster;
	struct emu_warp *warp; /* that begins; NULL: none can run */
	uint32_t length;       /* instructions of a warp, at most */
	uint32_t most;	       /* warps, one after the other */
	bool has_computed;     /* a warp has, and did not only poll */
};

/*
 * Gives a cluster the state that it needs in a parallel phase, with its own
 * stream of random numbers; false: no memory.  Closing adds its counters to the
 * grid's.
 */
bool emu_cluster_context_open(struct emu_cluster *c, uint64_t stream);
void emu_cluster_context_close(struct emu_cluster *c);

/*
 * Runs turns of different clusters.  Then m has what they counted and read, in
 * the order of the list, and the report of the first that failed.
 */
void emu_parallel_phase_run(struct emu_thread_pool *pool, struct emu_machine *m,
			    struct emu_turn *turns, uint32_t count);

#endif
