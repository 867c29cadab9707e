/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c - see transfer.h. */
#include "machine/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "hardware/mbarrier.h"
#include "hardware/tensor_map.h"
#include "machine/access.h"
#include "machine/async.h"
#include "machine/barrier.h"
#include "machine/random.h"
#include "machine/report.h"
#include "machine/time.h"
#include "machine/watch.h"

/* The most steps (emu_transfers_step()) until a copy is due: for most copies, and for
 * one in 16. */
#define USUAL_DELAY 40
#define LONG_DELAY  4000

/* ---- barriers ------------------------------------------------------------ */

uint64_t *emu_barrier_at(struct emu_warp *w, const struct emu_instr *i, int lane,
			 uint64_t address)
{
	uint8_t *shadow;
	uint8_t *at =
	    emu_access(w, i, lane, EMU_SHARED_CLUSTER, address, 8, EMU_PEEK, &shadow);

	if (!at)
		return NULL;
	if (!(*shadow & EMU_BARRIER)) {
		emu_fault(w, i, lane,
			  "no mbarrier was initialised at offset %u of CTA "
			  "rank %u",
			  (uint32_t)address & ((1u << EMU_RANK_SHIFT) - 1),
			  (uint32_t)(address >> EMU_RANK_SHIFT));
		return NULL;
	}
	return (uint64_t *)(void *)at;
}

bool emu_arrive_at(struct emu_warp *w, const struct emu_instr *i, int lane,
		   uint64_t barrier, uint32_t arrivals, uint32_t tx_bytes)
{
	uint64_t *bar = emu_barrier_at(w, i, lane, barrier);
	enum emu_mbarrier_fault fault = EMU_MBARRIER_OK;
	bool flipped = false;

	if (!bar)
		return false;
	emu_time_arrive(w, barrier);
	if (tx_bytes)
		fault = emu_mbarrier_complete_tx(bar, tx_bytes, &flipped);
	else
		fault = emu_mbarrier_arrive(bar, arrivals, &flipped);
	if (fault) {
		char state[200];

		emu_mbarrier_describe(*bar, state, sizeof(state));
		emu_fault(w, i, lane, "mbarrier at offset %u of CTA rank %u (%s): %s",
			  (uint32_t)barrier & ((1u << EMU_RANK_SHIFT) - 1),
			  (uint32_t)(barrier >> EMU_RANK_SHIFT), state,
			  emu_mbarrier_fault_text(fault));
		return false;
	}
	emu_machine_of(w)->effects++;
	if (flipped) {
		emu_watch_phase(w->cta->cluster, barrier);
		emu_wake_at(w->cta->cluster, barrier);
	}
	return true;
}

/* ---- creation ------------------------------------------------------------ */

void emu_transfer_drop(struct emu_transfer *t)
{
	free(t->kept);
	free(t->pieces);
	free(t);
}

struct emu_transfer *emu_transfer_new(struct emu_warp *w, const struct emu_instr *i,
				      enum emu_transfer_kind kind)
{
	struct emu_transfer *t = calloc(1, sizeof(*t));

	if (!t) {
		emu_fault(w, i, -1, "no memory for a copy");
		return NULL;
	}
	t->kind = kind;
	t->warp = w;
	t->instr = i;
	return t;
}

struct emu_transfer *emu_transfer_new_load(struct emu_warp *w,
					   const struct emu_instr *i, int lane,
					   uint64_t to, uint32_t bytes,
					   uint64_t barrier)
{
	struct emu_transfer *t;

	if (!emu_barrier_at(w, i, lane, barrier) ||
	    !emu_watch_load(w, i, lane, to, bytes, barrier))
		return NULL;
	t = emu_transfer_new(w, i, EMU_BULK_LOAD);
	if (!t)
		return NULL;
	t->barrier = barrier;
	t->tx_bytes = bytes;
	return t;
}

struct emu_transfer *emu_transfer_new_store(struct emu_warp *w,
					    const struct emu_instr *i,
					    uint32_t operation,
					    enum emu_reduction_type type)
{
	struct emu_transfer *t = emu_transfer_new(w, i, EMU_BULK_STORE);

	if (!t || !operation)
		return t;
	t->reduces = true;
	t->reduction.operation = (enum emu_reduction_operation)(operation - 1);
	t->reduction.type = type;
	return t;
}

bool emu_transfer_mask(struct emu_warp *w, const struct emu_instr *i, int lane,
		       const struct emu_value *operand, uint32_t *mask)
{
	const uint32_t n_ctas = w->cta->cluster->n_ctas;

	*mask = ((const uint16_t *)emu_row(w, operand))[lane];
	if (*mask && !(*mask >> n_ctas))
		return true;
	emu_fault(w, i, lane,
		  "mask %04x of a cluster of %u CTAs: it must name some of "
		  "them",
		  *mask, n_ctas);
	return false;
}

uint64_t emu_at_rank(uint64_t address, uint64_t rank)
{
	return (address & ((1u << EMU_RANK_SHIFT) - 1)) | rank << EMU_RANK_SHIFT;
}

bool emu_transfer_add(struct emu_transfer *t, const struct emu_piece *piece)
{
	struct emu_piece *grown =
	    emu_grow(t->pieces, &t->capacity, t->n_pieces, sizeof(*grown));

	if (!grown) {
		emu_fault(t->warp, t->instr, piece->lane, "no memory for a copy");
		return false;
	}
	t->pieces = grown;
	for (uint32_t k = 0; k < piece->bytes && !t->reduces; k++) {
		if (piece->to_shadow[k] & EMU_LANDING) {
			emu_fault(t->warp, t->instr, piece->lane,
				  "another asynchronous copy is writing the "
				  "same bytes");
			return false;
		}
		piece->to_shadow[k] |= EMU_LANDING;
	}
	grown[t->n_pieces++] = *piece;
	t->left++;
	t->lanes |= 1u << piece->lane;
	return true;
}

/* ---- landing ------------------------------------------------------------- */

/* The result is undefined where the source is. */
static void land_reduction(struct emu_transfer *t, struct emu_piece *p)
{
	emu_reduce(&t->reduction, p->to, p->from, p->copied);
	for (uint32_t k = 0; k < p->copied; k++)
		if (!(p->from_shadow[k] & EMU_WRITTEN))
			p->to_shadow[k] &= (uint8_t)~EMU_WRITTEN;
}

static void land_copy(struct emu_transfer *t, struct emu_piece *p)
{
	/* cp.async writes by the generic proxy, a bulk copy by the async proxy. */
	const uint8_t written = t->kind == EMU_CP_ASYNC
				    ? EMU_MAPPED | EMU_WRITTEN | EMU_UNFENCED
				    : EMU_MAPPED | EMU_WRITTEN;

	memcpy(p->to, p->from, p->copied);
	if (p->is_tf32)
		emu_tensor_round_tf32(p->to, p->copied);
	memset(p->to + p->copied, 0, p->bytes - p->copied);
	memset(p->to_shadow, written, p->bytes);
	for (uint32_t k = 0; k < p->copied; k++)
		if (!(p->from_shadow[k] & EMU_WRITTEN))
			p->to_shadow[k] &= (uint8_t)~EMU_WRITTEN;
}

static void land(struct emu_transfer *t, struct emu_piece *p)
{
	if (p->is_done)
		return;
	if (t->reduces)
		land_reduction(t, p);
	else
		land_copy(t, p);
	p->is_done = true;
	t->left--;
	emu_machine_of(t->warp)->effects++;
}

/* Reads the source of a piece, which may change from now on. */
static void keep(struct emu_transfer *t, struct emu_piece *p)
{
	const size_t at = (size_t)(p - t->pieces) * 2 * EMU_PIECE_MOST;

	if (p->is_done || p->is_kept)
		return;
	if (!t->kept)
		t->kept = malloc(t->n_pieces * 2 * EMU_PIECE_MOST);
	if (!t->kept) {
		land(t, p);
		return;
	}
	memcpy(t->kept + at, p->from, p->copied);
	memcpy(t->kept + at + EMU_PIECE_MOST, p->from_shadow, p->copied);
	p->from = t->kept + at;
	p->from_shadow = t->kept + at + EMU_PIECE_MOST;
	p->is_kept = true;
}

static void land_random(struct emu_transfer *t, uint32_t most)
{
	struct emu_machine *m = emu_machine_of(t->warp);

	while (most-- && t->left) {
		uint32_t k = emu_random_below(m, (uint32_t)t->n_pieces);

		while (t->pieces[k].is_done)
			k = (k + 1) % (uint32_t)t->n_pieces;
		land(t, &t->pieces[k]);
	}
}

/* Whether an arrival must wait for earlier cp.async of the same threads. */
static bool must_wait(const struct emu_transfers *all, size_t index)
{
	const struct emu_transfer *t = all->list[index];

	if (t->kind != EMU_CP_ARRIVE)
		return false;
	for (size_t k = 0; k < index; k++) {
		const struct emu_transfer *other = all->list[k];

		if (other->warp != t->warp || other->kind != EMU_CP_ASYNC ||
		    !(other->lanes & t->lanes))
			continue;
		for (size_t p = 0; p < other->n_pieces; p++)
			if (!other->pieces[p].is_done &&
			    t->lanes >> other->pieces[p].lane & 1)
				return true;
	}
	return false;
}

/* All pieces have landed: arrives at the barriers, or counts the bytes there. */
static void finish(struct emu_transfer *t)
{
	if (t->kind == EMU_BULK_LOAD && t->tx_bytes)
		(void)emu_arrive_at(t->warp, t->instr, -1, t->barrier, 0, t->tx_bytes);
	if (t->kind != EMU_CP_ARRIVE)
		return;
	EMU_EACH_LANE(l)
	{
		if (!(t->lanes >> l & 1))
			continue;
		emu_watch_copy_arrive(t->warp, t->mark, t->barriers[l]);
		if (!emu_arrive_at(t->warp, t->instr, l, t->barriers[l], 1, 0))
			return;
	}
}

static void remove_transfer(struct emu_transfers *all, size_t index)
{
	emu_transfer_drop(all->list[index]);
	all->count--;
	memmove(&all->list[index], &all->list[index + 1],
		(all->count - index) * sizeof(*all->list));
}

/* Ends a transfer if all its pieces have landed and it need not wait for another. */
static bool try_finish(struct emu_transfers *all, size_t index)
{
	struct emu_transfer *t = all->list[index];

	if (t->left || must_wait(all, index))
		return false;
	finish(t);
	remove_transfer(all, index);
	return true;
}

void emu_transfer_issue(struct emu_transfer *t)
{
	struct emu_machine *m = emu_machine_of(t->warp);
	struct emu_transfers *all = t->warp->cta->cluster->transfers;
	struct emu_transfer **grown;

	if (!m->options.seed) {
		for (size_t k = 0; k < t->n_pieces; k++)
			land(t, &t->pieces[k]);
		emu_time_copy(t);
		finish(t);
		emu_time_copied(t->warp);
		emu_transfer_drop(t);
		return;
	}
	grown = emu_grow(all->list, &all->capacity, all->count, sizeof(*grown));
	if (!grown) {
		emu_fault(t->warp, t->instr, -1, "no memory for a copy");
		emu_transfer_drop(t);
		return;
	}
	all->list = grown;
	t->due = all->tick + emu_random_below(m, emu_random_below(m, 16) ? USUAL_DELAY
									 : LONG_DELAY);
	grown[all->count++] = t;
}

bool emu_transfer_send(struct emu_transfer *t, const void *value,
		       struct emu_piece *piece)
{
	static const uint8_t written[sizeof(t->inline_bytes)] = {
	    EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN,
	    EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN,
	    EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN,
	    EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN, EMU_WRITTEN};

	memcpy(t->inline_bytes, value, piece->bytes);
	piece->from = t->inline_bytes;
	piece->from_shadow = written;
	if (!emu_transfer_add(t, piece)) {
		emu_transfer_drop(t);
		return false;
	}
	emu_transfer_issue(t);
	return true;
}

void emu_transfers_wait(struct emu_warp *w, enum emu_transfer_kind kind, uint32_t lanes,
			uint32_t newest, bool is_read)
{
	struct emu_transfers *all = w->cta->cluster->transfers;
	const uint32_t *group =
	    kind == EMU_CP_ASYNC ? w->async->cp_group : w->async->bulk_group;

	for (size_t k = 0; k < all->count; k++) {
		struct emu_transfer *t = all->list[k];

		if (t->warp != w || t->kind != kind || !(t->lanes & lanes))
			continue;
		for (size_t p = 0; p < t->n_pieces; p++) {
			struct emu_piece *piece = &t->pieces[p];

			if (!(lanes >> piece->lane & 1) ||
			    piece->group + newest >= group[piece->lane])
				continue;
			if (is_read)
				keep(t, piece);
			else
				land(t, piece);
		}
	}
	for (size_t k = 0; k < all->count;)
		if (!try_finish(all, k))
			k++;
}

/* ---- time ---------------------------------------------------------------- */

static void skip_to_next(struct emu_transfers *all)
{
	uint64_t next = UINT64_MAX;

	for (size_t k = 0; k < all->count; k++)
		if (all->list[k]->due < next && !must_wait(all, k))
			next = all->list[k]->due;
	if (next != UINT64_MAX && next > all->tick)
		all->tick = next;
}

bool emu_transfers_step(struct emu_cluster *c, bool is_idle)
{
	struct emu_transfers *all = c->transfers;
	struct emu_machine *m = c->grid->machine;
	size_t start;

	if (all->count == 0)
		return false;
	all->tick++;
	if (is_idle)
		skip_to_next(all);
	start = emu_random_below(m, (uint32_t)all->count);
	for (size_t n = 0; n < all->count; n++) {
		const size_t k = (start + n) % all->count;
		struct emu_transfer *t = all->list[k];

		if (t->due > all->tick || must_wait(all, k))
			continue;
		land_random(t, 1 + emu_random_below(m, 64));
		(void)try_finish(all, k);
		return true;
	}
	return true;
}

/*
 * Ends stores whose sources have been read, and with `all_stores` also the others.
 * PTX requires a CTA to wait until its memory has been read, but production kernels
 * leave that wait out.
 */
static void land_stores(struct emu_transfers *all, bool all_stores)
{
	for (size_t k = 0; k < all->count;) {
		struct emu_transfer *t = all->list[k];

		for (size_t p = 0; p < t->n_pieces; p++)
			if (t->pieces[p].is_kept ||
			    (all_stores && t->kind == EMU_BULK_STORE))
				land(t, &t->pieces[p]);
		if (t->kind != EMU_BULK_STORE || !try_finish(all, k))
			k++;
	}
}

bool emu_transfers_end(struct emu_cluster *c)
{
	struct emu_transfers *all = c->transfers;

	land_stores(all, !c->grid->machine->options.is_strict);
	if (all->count)
		(void)emu_object(all->list[0]->warp, all->list[0]->instr, -1,
				 "the cluster has ended and this operation has not");
	while (all->count)
		remove_transfer(all, all->count - 1);
	free(all->list);
	all->list = NULL;
	all->capacity = 0;
	return !c->grid->machine->has_failed;
}
