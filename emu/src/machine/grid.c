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
#include "machine/title.h"
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
			" bytes of shared memory: a CTA of the %s has at most %u",
			emu_title_of(g->kernel->name), bytes,
			emu_device_or_default(g->machine->device)->title, most);
}

/* Size i of the grid, the block and the cluster, against the limits of a GPU. */
static bool check_size(const struct emu_grid *g, int i, struct emu_error *err)
{
	static const char axis[] = "xyz";
	const uint32_t most = i ? EMU_MAX_GRID_YZ : EMU_MAX_GRID_X;
	const uint32_t most_threads = i == 2 ? EMU_MAX_BLOCK_Z : EMU_MAX_THREADS;

	if (g->grid[i] == 0 || g->grid[i] > most)
		return emu_fail(err, "%s: gridDim.%c is %u: 1 to %u are allowed",
				emu_title_of(g->kernel->name), axis[i], g->grid[i],
				most);
	if (g->block[i] == 0 || g->block[i] > most_threads)
		return emu_fail(err, "%s: blockDim.%c is %u: 1 to %u are allowed",
				emu_title_of(g->kernel->name), axis[i], g->block[i],
				most_threads);
	if (g->cluster[i] == 0)
		return emu_fail(err, "%s: clusterDim.%c is 0",
				emu_title_of(g->kernel->name), axis[i]);
	if (g->grid[i] % g->cluster[i])
		return emu_fail(
		    err, "%s: gridDim.%c is %u, not a multiple of clusterDim.%c, %u",
		    emu_title_of(g->kernel->name), axis[i], g->grid[i], axis[i],
		    g->cluster[i]);
	return true;
}

/* Size i against what the kernel declares. */
static bool check_declared(const struct emu_grid *g, int i, struct emu_error *err)
{
	static const char axis[] = "xyz";
	const struct emu_kernel *k = g->kernel;

	if (k->required_threads[0] && k->required_threads[i] != g->block[i])
		return emu_fail(err,
				"%s: blockDim.%c is %u, and the kernel's .reqntid "
				"(__block_size__) is %u",
				emu_title_of(g->kernel->name), axis[i], g->block[i],
				k->required_threads[i]);
	if (k->cluster[0] && k->cluster[i] != g->cluster[i])
		return emu_fail(err,
				"%s: clusterDim.%c is %u, and the kernel's "
				".reqnctapercluster (__cluster_dims__) is %u",
				emu_title_of(g->kernel->name), axis[i], g->cluster[i],
				k->cluster[i]);
	return true;
}

bool emu_grid_check(const struct emu_grid *g, struct emu_error *err)
{
	const struct emu_kernel *k = g->kernel;
	const uint32_t most_ctas =
	    emu_device_or_default(g->machine->device)->cluster_ctas;
	const uint32_t most_threads = k->max_threads && k->max_threads < EMU_MAX_THREADS
					  ? k->max_threads
					  : EMU_MAX_THREADS;
	const uint64_t threads = (uint64_t)g->block[0] * g->block[1] * g->block[2];
	uint64_t ctas = 1;

	if (k->refusal)
		return emu_fail(err, "%s: %s", emu_title_of(g->kernel->name),
				k->refusal);
	for (int i = 0; i < 3; i++) {
		if (!check_size(g, i, err) || !check_declared(g, i, err))
			return false;
		ctas *= g->cluster[i];
	}
	if (threads > most_threads)
		return emu_fail(err, "%s: a block of %" PRIu64 " threads: at most %u%s",
				emu_title_of(g->kernel->name), threads, most_threads,
				most_threads < EMU_MAX_THREADS
				    ? ", by the kernel's __launch_bounds__"
				    : "");
	if (ctas > most_ctas)
		return emu_fail(err, "%s: a cluster of %" PRIu64 " CTAs: at most %u",
				emu_title_of(g->kernel->name), ctas, most_ctas);
	if ((uint64_t)g->grid[0] * g->grid[1] * g->grid[2] > UINT32_MAX)
		return emu_fail(err, "%s: a grid has at most 2^32 - 1 CTAs",
				emu_title_of(g->kernel->name));
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
