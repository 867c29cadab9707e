/* SPDX-License-Identifier: Apache-2.0 */
/* watch_order.c - from warps to the checker of global memory; watch_order.h. */
#include "machine/watch_order.h"

#include "machine/access.h"
#include "machine/watch.h"

/* False: nobody watches. */
static bool describe(const struct emu_warp *w, struct emu_order_warp *to)
{
	const struct emu_cluster *c = w->cta->cluster;

	if (!emu_machine_of(w)->order || !c->check)
		return false;
	*to = (struct emu_order_warp){
	    .grid = c->grid->in_run,
	    .cluster = c->index,
	    .warp = w->cta->rank * w->cta->n_warps + w->index,
	    .check = c->check,
	};
	return true;
}

bool emu_watch_global(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint32_t kind, uint64_t address, uint32_t bytes)
{
	struct emu_order_warp who;
	struct emu_error err;

	if (!describe(w, &who) ||
	    emu_order_access(emu_machine_of(w)->order, &who, kind, address,
			     bytes, emu_watch_place(w, i, lane), &err))
		return true;
	emu_fault(w, i, lane, "%s", err.text);
	return false;
}

/* Shared memory has an order of its own (check.h). */
static bool is_global(const struct emu_warp *w, uint64_t address)
{
	const struct emu_space *s = &emu_machine_of(w)->global;

	return address - s->base < s->bytes;
}

/*
 * What lanes know, their warp knows, so once an address is enough: *told
 * becomes the next of lanes' addresses in global memory that is not *told,
 * *lanes what is left.  False: there is none.
 */
static bool next_address(const struct emu_warp *w, uint32_t *lanes,
			 const uint64_t *address, uint64_t *told)
{
	while (*lanes) {
		const uint64_t at = address[__builtin_ctz(*lanes)];

		*lanes &= *lanes - 1;
		if (at != *told && is_global(w, at)) {
			*told = at;
			return true;
		}
	}
	return false;
}

void emu_watch_release(struct emu_warp *w, uint32_t lanes,
		       const uint64_t *address, enum emu_order_scope scope,
		       bool is_atomic)
{
	struct emu_order_warp who;
	uint64_t told = 0;

	if (!describe(w, &who))
		return;
	while (next_address(w, &lanes, address, &told))
		emu_order_release(emu_machine_of(w)->order, &who, told, scope,
				  is_atomic);
}

void emu_watch_acquire(struct emu_warp *w, uint32_t lanes,
		       const uint64_t *address, enum emu_order_scope scope)
{
	struct emu_order_warp who;
	uint64_t told = 0;

	if (!describe(w, &who))
		return;
	while (next_address(w, &lanes, address, &told))
		emu_order_acquire(emu_machine_of(w)->order, &who, told, scope);
}

void emu_watch_fence(struct emu_warp *w, enum emu_order_scope scope)
{
	struct emu_order_warp who;

	if (describe(w, &who))
		emu_order_fence(emu_machine_of(w)->order, &who, scope);
}

void emu_watch_stored(struct emu_warp *w, uint32_t groups)
{
	struct emu_order_warp who;

	if (describe(w, &who))
		emu_order_stored(emu_machine_of(w)->order, &who, groups);
}

void emu_watch_grids(struct emu_warp *w)
{
	struct emu_order_warp who;

	if (describe(w, &who) && who.grid)
		emu_order_grids(emu_machine_of(w)->order, &who, who.grid - 1);
}

#define MOST_GRIDS 64

struct emu_order *emu_watch_order_open(struct emu_grid *const *grids,
				       uint32_t count)
{
	uint32_t clusters[MOST_GRIDS], warps[MOST_GRIDS];

	if (count > MOST_GRIDS || grids[0]->machine->options.is_unchecked)
		return NULL;
	for (uint32_t k = 0; k < count; k++) {
		struct emu_grid *g = grids[k];
		const uint32_t threads =
		    g->block[0] * g->block[1] * g->block[2];

		g->in_run = k;
		clusters[k] = g->n_clusters;
		warps[k] = (threads + EMU_LANES - 1) / EMU_LANES *
			   g->cluster[0] * g->cluster[1] * g->cluster[2];
	}
	return emu_order_open(count, clusters, warps);
}
