/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c - launches: checks the limits of sizes and runs a grid.  Independent
 * clusters run on all processors, others as one schedule.
 */
#include "machine/grid.h"

#include <inttypes.h>
#include <string.h>

#include "machine/cluster.h"
#include "machine/independent_clusters.h"
#include "machine/prints.h"
#include "machine/random.h"
#include "machine/scheduler.h"
#include "machine/time.h"
#include "machine/watch.h"
#include "ptx/bind.h"

/* ---- limits -------------------------------------------------------------- */

static bool check_shared(const struct emu_grid *g, struct emu_error *err)
{
	const uint64_t bytes = (uint64_t)g->kernel->shared_bytes + g->dynamic_bytes;

	const uint32_t most =
	    emu_device_or_default(g->machine->device)->cta_shared_bytes;

	if (bytes <= most)
		return true;
	return emu_fail(err,
			"%s: %" PRIu64
			" bytes of shared memory, at most %u in a CTA of "
			"a %s",
			g->kernel->name, bytes, most,
			emu_device_or_default(g->machine->device)->title);
}

bool emu_grid_check(const struct emu_grid *g, struct emu_error *err)
{
	const struct emu_kernel *k = g->kernel;
	const uint32_t most_ctas =
	    emu_device_or_default(g->machine->device)->cluster_ctas;
	const uint64_t threads = (uint64_t)g->block[0] * g->block[1] * g->block[2];
	uint64_t ctas = 1;

	if (k->refusal)
		return emu_fail(err, "%.80s: %s", k->name, k->refusal);
	for (int i = 0; i < 3; i++) {
		const uint32_t most = i ? EMU_MAX_GRID_YZ : EMU_MAX_GRID_X;

		if (g->grid[i] == 0 || g->grid[i] > most || g->block[i] == 0 ||
		    g->block[i] > EMU_MAX_THREADS || g->cluster[i] == 0)
			return emu_fail(err,
					"%s: a size of grid, block or cluster "
					"is zero, or too large",
					k->name);
		if (g->grid[i] % g->cluster[i])
			return emu_fail(err,
					"%s: a grid of %u CTAs is not a multiple "
					"of clusters of %u",
					k->name, g->grid[i], g->cluster[i]);
		if (k->required_threads[0] && k->required_threads[i] != g->block[i])
			return emu_fail(err,
					"%s: the block is not that of its "
					".reqntid (__block_size__)",
					k->name);
		if (k->cluster[0] && k->cluster[i] != g->cluster[i])
			return emu_fail(err,
					"%s: the cluster is not that of "
					"its .reqnctapercluster "
					"(__cluster_dims__)",
					k->name);
		ctas *= g->cluster[i];
	}
	if (threads > EMU_MAX_THREADS || (k->max_threads && threads > k->max_threads))
		return emu_fail(err, "%s: %" PRIu64 " threads, at most %u", k->name,
				threads,
				k->max_threads ? k->max_threads : EMU_MAX_THREADS);
	if (ctas > most_ctas)
		return emu_fail(err,
				"%s: a cluster of %" PRIu64 " CTAs: at "
				"most %u",
				k->name, ctas, most_ctas);
	if ((uint64_t)g->grid[0] * g->grid[1] * g->grid[2] > UINT32_MAX)
		return emu_fail(err, "%s: a grid has at most 2^32 - 1 CTAs", k->name);
	return check_shared(g, err);
}

/* ---- runs ---------------------------------------------------------------- */

static bool reduces_global(const struct emu_instr *i)
{
	return strncmp(i->opcode->name, "cp.reduce.", strlen("cp.reduce.")) == 0;
}

/*
 * True if clusters may exchange data through global memory, so that one depends
 * on the timing of others.
 */
static bool communicates(const struct emu_grid *g)
{
	const struct emu_kernel *k = g->kernel;

	for (uint32_t i = 0; i < k->count; i++)
		if (emu_is_strong(&k->code[i]) || reduces_global(&k->code[i]) ||
		    k->code[i].traits & EMU_TAKES_CLUSTER)
			return true;
	return g->is_cooperative;
}

static bool run_together(struct emu_machine *m, struct emu_grid *const *grids,
			 uint32_t count, bool delays_first)
{
	_Atomic uint64_t instructions = 0;
	const struct emu_schedule schedule = {
	    .machine = m,
	    .grids = grids,
	    .n_grids = count,
	    .delays_first = delays_first,
	    .instructions = &instructions,
	};

	m->order = emu_watch_order_open(grids, count);
	(void)emu_scheduler_run(&schedule);
	emu_free_blocks(m);
	emu_watch_order_close(m);
	return !m->has_failed;
}

bool emu_grids_run(struct emu_machine *m, struct emu_grid *const *grids, uint32_t count)
{
	for (uint32_t k = 0; k < count; k++) {
		struct emu_grid *g = grids[k];

		g->n_clusters = g->grid[0] / g->cluster[0] *
				(g->grid[1] / g->cluster[1]) *
				(g->grid[2] / g->cluster[2]);
		g->begun = g->ended = g->triggered = 0;
		g->time_end = g->time_trigger = 0;
		if (!g->resident)
			g->resident = g->n_clusters;
	}
	emu_random_begin(m, 0);
	/* On half of the seeds a grid overtakes the one before it. */
	emu_prints_begin(m->prints, false);
	if (count > 1 && m->options.seed)
		return run_together(m, grids, count, emu_random_below(m, 2));
	for (uint32_t k = 0; k < count && !m->has_failed; k++) {
		const bool is_together = m->time || communicates(grids[k]);

		emu_prints_begin(m->prints, !is_together);
		emu_time_begin_grid(grids[k]);
		(void)(is_together ? run_together(m, &grids[k], 1, false)
				   : emu_independent_clusters_run(m, grids[k]));
		emu_time_end_grid(grids[k]);
	}
	return !m->has_failed;
}
