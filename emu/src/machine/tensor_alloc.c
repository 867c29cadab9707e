/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_alloc.c - allocation of tensor memory: tcgen05.alloc, .dealloc and
 * .relinquish_alloc_permit of one whole warp, or of a warp in each CTA of a pair.
 */
#include "machine/tensor_alloc.h"

#include <string.h>

#include "machine/access.h"
#include "machine/barrier.h"
#include "machine/random.h"
#include "machine/time_tcgen05.h"
#include "machine/warp.h"
#include "machine/watch.h"

/* ---- alloc --------------------------------------------------------------- */

/*
 * Finds the other CTA of the pair.  False after a fault: it does not exist, or no
 * barrier guarantees that it has begun.
 */
static bool find_peer(struct emu_warp *w, const struct emu_instr *i, uint32_t *peer)
{
	const struct emu_cluster *c = w->cta->cluster;

	*peer = w->cta->rank ^ 1;
	if (*peer >= c->n_ctas) {
		emu_fault(w, i, -1,
			  "cta_group::2 in a cluster of %u CTAs: CTA rank %u "
			  "has no other one",
			  c->n_ctas, w->cta->rank);
		return false;
	}
	/* All CTAs begin at once here, and nearly so on a GPU.  PTX requires a
	 * barrier. */
	if (c->barrier_phase == 0 && emu_machine_of(w)->options.is_strict) {
		emu_fault(w, i, -1,
			  "nothing says that CTA rank %u has begun: a barrier "
			  "of the cluster must come before",
			  *peer);
		return false;
	}
	if (c->ctas[*peer].n_live == 0) {
		emu_fault(w, i, -1, "CTA rank %u of the pair has ended", *peer);
		return false;
	}
	return true;
}

/*
 * Picks the first free columns: a GPU gives column 0 to the first allocation of an
 * SM, and kernels rely on it.  PTX allows any columns, which is_anywhere selects.
 */
static bool pick_place(struct emu_warp *w, const struct emu_tmem *t, uint32_t columns,
		       uint32_t *first)
{
	struct emu_machine *m = emu_machine_of(w);
	const uint32_t count = emu_tmem_places(t, columns, 0, first);

	if (count > 1 && m->options.seed && m->options.is_anywhere)
		(void)emu_tmem_places(t, columns, emu_random_below(m, count), first);
	return count;
}

static void take_place(struct emu_warp *w, const struct emu_instr *i,
		       struct emu_tmem *t, uint32_t first, uint32_t columns)
{
	struct emu_tensor *x = w->cta->cluster->tensor;

	emu_tmem_take(t, first, columns);
	x->owner[w->cta->rank] = (struct emu_tmem_owner){w, i};
	(void)emu_watch_tmem(w, i, -1, EMU_TMEM_ALLOC, w->cta->rank, 0, EMU_TMEM_LANES,
			     first, columns, 0);
	emu_machine_of(w)->effects++;
}

/* Kernels may also give shared memory by a generic address of 64 bits. */
static uint64_t place_to(struct emu_warp *w, const struct emu_instr *i)
{
	uint64_t to[EMU_LANES];

	emu_addresses(w, i, &i->operand[0], to);
	return i->space == EMU_SHARED ? to[0] & ~EMU_SHARED_WINDOW : to[0];
}

static bool write_address(struct emu_warp *w, const struct emu_instr *i, uint32_t first)
{
	uint8_t *at = emu_access(w, i, 0, (enum emu_state_space)i->space,
				 place_to(w, i), 4, EMU_WRITE, NULL);

	if (at) {
		memcpy(at, &first, sizeof(first));
		emu_time_tmem_alloc(w);
		emu_watch_needs_no_fence(w, place_to(w, i));
		/* DeepGEMM passes the address on by a relaxed barrier of the
		 * cluster, as kernels do with the init of mbarriers after a fence. */
		if (!emu_machine_of(w)->options.is_strict)
			emu_watch_fence_init(w);
	}
	return at;
}

/* CUTLASS's allocator requires the same warp, number of columns and address. */
static bool agrees(struct emu_warp *w, const struct emu_instr *i,
		   const struct emu_tmem_request *yours,
		   const struct emu_tmem_request *mine)
{
	const uint64_t low = (UINT64_C(1) << EMU_RANK_SHIFT) - 1;

	if (yours->columns != mine->columns)
		emu_fault(w, i, -1,
			  "it allocates %u columns, the other CTA of "
			  "the pair %u: both must allocate the same number",
			  mine->columns, yours->columns);
	else if (yours->warp->index != w->index)
		emu_fault(w, i, -1,
			  "warp %u allocates, in the other CTA of "
			  "the pair warp %u: it must be the same",
			  w->index, yours->warp->index);
	else if ((yours->to & low) != (mine->to & low))
		emu_fault(w, i, -1,
			  "the address goes to shared memory offset %u, in "
			  "the other CTA to %u: it must be the same",
			  (uint32_t)(mine->to & low), (uint32_t)(yours->to & low));
	else
		return true;
	return false;
}

/* Both CTAs get the same columns, once both have requested them. */
static void alloc_pair(struct emu_warp *w, const struct emu_instr *i,
		       struct emu_tmem *t, uint32_t columns)
{
	struct emu_tensor *x = w->cta->cluster->tensor;
	struct emu_tmem_request *mine = &x->request[w->cta->rank];
	struct emu_tmem_request asked = {.warp = w, .columns = columns};
	struct emu_tmem_request *yours;
	uint32_t peer = 0, first = 0;

	if (mine->warp == w && mine->is_done) {
		mine->warp = NULL;
		(void)write_address(w, i, mine->first);
		return;
	}
	if (!find_peer(w, i, &peer))
		return;
	asked.to = place_to(w, i);
	yours = &x->request[peer];
	if (mine->warp && mine->warp != w) {
		emu_fault(w, i, -1,
			  "warp %u allocates at the same time: one "
			  "warp makes all allocations of a CTA",
			  mine->warp->index);
		return;
	}
	if (yours->warp && !yours->is_done && !agrees(w, i, yours, &asked))
		return;
	if (yours->warp && !yours->is_done && pick_place(w, t, columns, &first) &&
	    emu_tmem_is_free(x->memory[peer], first, columns)) {
		yours->first = first;
		yours->is_done = true;
		mine->warp = NULL;
		take_place(w, i, t, first, columns);
		take_place(yours->warp, i, x->memory[peer], first, columns);
		emu_watch_tmem_pair(w, yours->warp);
		emu_wake(w->cta->cluster, EMU_AT_TENSOR_MEMORY);
		(void)write_address(w, i, first);
		return;
	}
	*mine = asked;
	emu_wait_for(w, i, EMU_AT_TENSOR_MEMORY, columns);
}

void emu_run_tmem_alloc(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	struct emu_tmem *t = emu_tmem_of(w, i, w->cta->rank);
	const struct emu_warp *owner;
	uint32_t columns, first;
	struct emu_error err;

	(void)lanes;
	if (!t || !emu_is_whole_warp(w, i) ||
	    !emu_uniform(w, i, &i->operand[1], "the number of columns", &columns))
		return;
	if (!emu_tmem_may_alloc(t, columns, &err)) {
		emu_fault(w, i, -1, "%s", err.text);
		return;
	}
	owner = w->cta->cluster->tensor->owner[w->cta->rank].warp;
	if (owner && owner != w) {
		emu_fault(w, i, -1,
			  "warp %u has allocated before: one warp makes all "
			  "allocations of a CTA",
			  owner->index);
		return;
	}
	if (i->option & EMU_TCGEN05_PAIR) {
		alloc_pair(w, i, t, columns);
	} else if (pick_place(w, t, columns, &first)) {
		take_place(w, i, t, first, columns);
		(void)write_address(w, i, first);
	} else {
		emu_wait_for(w, i, EMU_AT_TENSOR_MEMORY, columns);
	}
}

void emu_run_tmem_dealloc(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	struct emu_tmem *t = emu_tmem_of(w, i, w->cta->rank);
	uint32_t address, columns;
	struct emu_error err;

	(void)lanes;
	if (!t || !emu_is_whole_warp(w, i) ||
	    !emu_uniform(w, i, &i->operand[0], "the address", &address) ||
	    !emu_uniform(w, i, &i->operand[1], "the number of columns", &columns))
		return;
	if (!emu_tmem_dealloc(t, address, columns, &err)) {
		emu_fault(w, i, -1, "%s", err.text);
		return;
	}
	if (!emu_watch_tmem(w, i, -1, EMU_TMEM_DEALLOC, w->cta->rank, 0, EMU_TMEM_LANES,
			    emu_tmem_column(address), columns, 0))
		return;
	/* A pair deallocates the columns of both CTAs. */
	if ((i->option & EMU_TCGEN05_PAIR) &&
	    (w->cta->rank ^ 1) < w->cta->cluster->n_ctas &&
	    !emu_watch_tmem(w, i, -1, EMU_TMEM_DEALLOC, w->cta->rank ^ 1, 0,
			    EMU_TMEM_LANES, emu_tmem_column(address), columns, 0))
		return;
	emu_wake(w->cta->cluster, EMU_AT_TENSOR_MEMORY);
	emu_machine_of(w)->effects++;
	emu_time_tmem_alloc(w);
}

void emu_run_tmem_relinquish(struct emu_warp *w, const struct emu_instr *i,
			     uint32_t lanes)
{
	struct emu_tmem *t = emu_tmem_of(w, i, w->cta->rank);

	(void)lanes;
	if (t && emu_is_whole_warp(w, i))
		t->is_relinquished = true;
}
