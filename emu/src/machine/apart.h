/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apart.h - turns of the clusters of one schedule side by side, on all
 * processors.
 *
 * A warp that runs apart stops before what other clusters may see (is_public in
 * ptx.h): it waits as EMU_AT_OTHERS, until the scheduler runs it alone.  So
 * nobody writes global memory meanwhile, and all else that the turn changes is
 * its cluster's own.  What clusters do depends on the seed alone, not on the
 * number of threads.
 */
#ifndef EMU_APART_H
#define EMU_APART_H

#include "machine/machine.h"

/* A turn of a cluster. */
struct emu_turn {
	struct emu_cluster *cluster;
	struct emu_warp *warp; /* that begins; NULL: none can run */
	uint32_t length;       /* instructions of a warp, at most */
	uint32_t most;	       /* warps, one after the other */
	bool has_computed;     /* a warp has, and did not only poll */
};

/* Threads of the host. */
struct emu_crew;

/* At most so many threads, this one included; NULL: no memory. */
struct emu_crew *emu_crew_open(uint32_t threads);
void emu_crew_close(struct emu_crew *crew);

/*
 * Gives a cluster what it needs to run apart, with random numbers of its own;
 * false: no memory.  What it has counted is the grid's when it leaves.
 */
bool emu_apart_begin(struct emu_cluster *c, uint64_t stream);
void emu_apart_end(struct emu_cluster *c);

/*
 * Runs turns of different clusters.  Then m has what they counted and read, in
 * the order of the list, and the report of the first that failed.
 */
void emu_apart_run(struct emu_crew *crew, struct emu_machine *m, struct emu_turn *turns,
		   uint32_t count);

#endif
