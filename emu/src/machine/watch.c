/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - from warps to the checkers; see watch.h. */
#include "machine/watch.h"

#include <string.h>

#include "machine/report.h"
#include "machine/time.h"

static struct emu_check *checker_of(const struct emu_warp *w)
{
	return w->cta->cluster->check;
}

static uint32_t number_of(const struct emu_warp *w)
{
	return w->cta->rank * w->cta->n_warps + w->index;
}

/* Reports the error of a call to the checker; true if the access may be made. */
static bool say(struct emu_warp *w, const struct emu_instr *i, int lane, bool is_good,
		const struct emu_error *err)
{
	return is_good || emu_object(w, i, lane, "%s", err->text);
}

/* ---- lanes --------------------------------------------------------------- */

/* The number of the instruction that runs. */
static uint32_t now(const struct emu_warp *w)
{
	return (uint32_t)emu_machine_of(w)->clock;
}

/*
 * The lanes to which an access belongs.  ldmatrix and stmatrix are accesses of all
 * lanes, whichever lane gives a row's address.  tcgen05.alloc belongs to none, and
 * accesses with an order or scope are no races of lanes, except volatile data.
 */
static uint32_t lanes_of(const struct emu_instr *i, int lane)
{
	if (i->traits & EMU_MATRIX)
		return UINT32_MAX;
	if (lane < 0 || i->is_converged ||
	    (i->traits & EMU_STRONG && !(i->traits & EMU_VOLATILE)))
		return 0;
	return 1u << lane;
}

struct emu_place emu_watch_place(const struct emu_warp *w, const struct emu_instr *i,
				 int lane)
{
	return (struct emu_place){
	    .line = i->line,
	    .lanes = lanes_of(i, lane),
	    .instruction = now(w),
	};
}

void emu_watch_meet(struct emu_warp *w, uint32_t lanes)
{
	if (checker_of(w))
		emu_check_lanes_sync(checker_of(w), number_of(w), lanes, w->live,
				     now(w));
}

void emu_watch_lanes_release(struct emu_warp *w, uint32_t lanes)
{
	if (checker_of(w))
		emu_check_lanes_release(checker_of(w), number_of(w), lanes, now(w));
}

void emu_watch_lanes_acquire(struct emu_warp *w, uint32_t lanes)
{
	if (checker_of(w))
		emu_check_lanes_acquire(checker_of(w), number_of(w), lanes, w->live);
}

/* ---- global memory ------------------------------------------------------- */

/* False: there is no checker. */
static bool describe(const struct emu_warp *w, struct emu_order_warp *to)
{
	const struct emu_cluster *c = w->cta->cluster;
	const struct emu_machine *m = emu_machine_of(w);

	if (!m->order || !c->check)
		return false;
	*to = (struct emu_order_warp){
	    .grid = c->grid->in_run,
	    .cluster = m->races ? 0 : c->index,
	    .warp = w->cta->rank * w->cta->n_warps + w->index,
	    .check = c->check,
	};
	return true;
}

/* Accesses of lanes as conflicts of clusters; false after a fault. */
static bool watch_races(struct emu_warp *w, const struct emu_instr *i,
			struct emu_race *race)
{
	const struct emu_machine *m = emu_machine_of(w);
	struct emu_error err;
	int lane;

	race->cluster = w->cta->cluster->index;
	while (!emu_races_access(m->races, race, &lane, &err)) {
		if (!emu_object(w, i, lane, "%s", err.text))
			return false;
		race->lanes &= UINT32_MAX << lane << 1;
	}
	return true;
}

/* An access in the order of streams; false after a fault. */
static bool watch_streams(struct emu_warp *w, const struct emu_instr *i, int lane,
			  uint32_t kind, uint64_t address, uint32_t bytes)
{
	const struct emu_stream_work *work = w->cta->cluster->grid->work;
	struct emu_error err;

	return !work ||
	       emu_stream_access(work,
				 kind & EMU_ORDER_STRONG  ? EMU_STREAM_ATOMIC
				 : kind & EMU_ORDER_WRITE ? EMU_STREAM_WRITE
							  : EMU_STREAM_READ,
				 address, bytes, &err) ||
	       emu_object(w, i, lane, "%s", err.text);
}

bool emu_watch_global(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint32_t kind, uint64_t address, uint32_t bytes)
{
	const struct emu_machine *m = emu_machine_of(w);
	struct emu_order_warp who;
	struct emu_place place;
	struct emu_error err;
	bool ok;

	if (!describe(w, &who))
		return true;
	if (!watch_streams(w, i, lane, kind, address, bytes))
		return false;
	if (m->races) {
		struct emu_race race = {.is_write = kind & EMU_ORDER_WRITE,
					.lanes = 1,
					.address = &address,
					.bytes = bytes};

		if (!watch_races(w, i, &race))
			return false;
	}
	place = emu_watch_place(w, i, lane);
	if (m->reads)
		ok = emu_order_look(m->order, m->reads, &who, address, bytes, place,
				    &err);
	else
		ok =
		    emu_order_access(m->order, &who, kind, address, bytes, place, &err);
	return ok || emu_object(w, i, lane, "%s", err.text);
}

bool emu_watch_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, uint8_t (*value)[32])
{
	struct emu_race race = {.is_write = value,
				.lanes = lanes,
				.address = address,
				.bytes = bytes,
				.value = value};
	const uint32_t kind = value ? EMU_ORDER_WRITE : EMU_ORDER_READ;
	const struct emu_space *global = &emu_machine_of(w)->global;
	const struct emu_order_stores stores = {value, global->data, global->base};
	struct emu_order_warp who;
	struct emu_error err;
	int lane;

	if (!describe(w, &who))
		return true;
	for (uint32_t left = w->cta->cluster->grid->work ? lanes : 0; left;
	     left &= left - 1) {
		const int l = __builtin_ctz(left);

		if (!watch_streams(w, i, l, kind, address[l], bytes))
			return false;
	}
	if (!watch_races(w, i, &race))
		return false;
	while (!emu_order_access_lanes(emu_machine_of(w)->order, &who, kind, lanes,
				       value ? &stores : NULL, address, bytes,
				       emu_watch_place(w, i, 0), &lane, &err)) {
		if (!emu_object(w, i, lane, "%s", err.text))
			return false;
		lanes &= UINT32_MAX << lane << 1;
	}
	return true;
}

bool emu_watch_look(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		    const uint64_t *address, uint32_t bytes)
{
	const struct emu_machine *m = emu_machine_of(w);
	struct emu_order_warp who;

	if (!describe(w, &who))
		return true;
	return !w->cta->cluster->grid->work && lanes_of(i, 0) == 1 &&
	       emu_is_row(lanes, address, bytes) &&
	       emu_order_look_row(m->order, m->reads, &who, address[0], bytes,
				  emu_watch_place(w, i, 0));
}

/* ---- memory -------------------------------------------------------------- */

/* The CTA to which a space belongs as its shared memory; NULL: other memory. */
static const struct emu_cta *cta_of(const struct emu_cluster *c,
				    const struct emu_space *space)
{
	for (uint32_t k = 0; k < c->n_ctas; k++)
		if (&c->ctas[k].shared == space)
			return &c->ctas[k];
	return NULL;
}

bool emu_watch_access(struct emu_warp *w, const struct emu_instr *i, int lane,
		      const struct emu_space *space, uint64_t at, uint32_t bytes,
		      bool is_write, const void *value)
{
	struct emu_check *c = checker_of(w);
	const struct emu_cta *cta = c ? cta_of(w->cta->cluster, space) : NULL;
	struct emu_place place;
	struct emu_error err;
	uint64_t address;

	if (space == &emu_machine_of(w)->global && emu_machine_of(w)->order)
		return emu_watch_global(
		    w, i, lane,
		    (is_write ? EMU_ORDER_WRITE : EMU_ORDER_READ) |
			(emu_is_strong(i) ? EMU_ORDER_STRONG : 0) |
			(i->traits & EMU_VOLATILE ? EMU_ORDER_VOLATILE : 0) |
			(value && memcmp(space->data + at, value, bytes) == 0
			     ? EMU_ORDER_SAME
			     : 0),
		    space->base + at, bytes);
	/* Atomics make an order of their own. */
	if (!cta || i->traits & EMU_ATOMIC)
		return true;
	address = (uint64_t)cta->rank << EMU_RANK_SHIFT | at;
	place = emu_watch_place(w, i, lane);
	place.is_same = value && memcmp(space->data + at, value, bytes) == 0;
	return say(w, i, lane,
		   is_write
		       ? emu_check_write(c, number_of(w), address, bytes, place, &err)
		       : emu_check_read(c, number_of(w), address, bytes, place, &err),
		   &err);
}

bool emu_watch_shared(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		      const uint64_t *at, uint32_t bytes, uint8_t (*value)[32])
{
	struct emu_check *c = checker_of(w);
	const uint32_t rank = w->cta->rank;

	while (c && lanes) {
		int lane;

		if (lanes_of(i, 0) == 1)
			lanes = emu_check_plain(c, number_of(w), rank, lanes, at, bytes,
						value, emu_watch_place(w, i, 0));
		if (!lanes)
			break;
		lane = __builtin_ctz(lanes);
		if (!emu_watch_access(w, i, lane, &w->cta->shared, at[lane], bytes,
				      value, value ? value[lane] : NULL))
			return false;
		lanes &= lanes - 1;
	}
	return true;
}

bool emu_watch_copy(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t to, uint32_t bytes)
{
	struct emu_check *c = checker_of(w);
	struct emu_error err;

	return !c || say(w, i, lane,
			 emu_check_copy(c, number_of(w), to, bytes,
					emu_watch_place(w, i, lane), &err),
			 &err);
}

bool emu_watch_load(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t to, uint32_t bytes, uint64_t barrier)
{
	struct emu_check *c = checker_of(w);
	struct emu_error err;

	/*
	 * A wait for the bytes also orders what was before the copy, and that
	 * the copy has read its source.
	 */
	if (c)
		emu_check_lanes_release(c, number_of(w), 1u << lane, now(w) + 1);
	if (!c)
		return true;
	return say(w, i, lane,
		   i->traits & EMU_OF_THREADS
		       ? emu_check_async_store(c, number_of(w), to, bytes, barrier,
					       i->traits & EMU_ATOMIC,
					       emu_watch_place(w, i, lane), &err)
		       : emu_check_load(c, number_of(w), to, bytes, barrier,
					emu_watch_place(w, i, lane), &err),
		   &err);
}

bool emu_watch_async_read(struct emu_warp *w, const struct emu_instr *i, int lane,
			  enum emu_async_kind kind, uint64_t from, uint32_t bytes)
{
	struct emu_check *c = checker_of(w);
	struct emu_place place = emu_watch_place(w, i, lane);
	struct emu_error err;

	/* The tensor core reads later than the instruction executes. */
	if (kind != EMU_ASYNC_STORE)
		place.lanes = 0;
	return !c || say(w, i, lane,
			 emu_check_async_read(c, number_of(w), kind, from, bytes, place,
					      &err),
			 &err);
}

void emu_watch_needs_no_fence(struct emu_warp *w, uint64_t address)
{
	if (checker_of(w) && !emu_machine_of(w)->options.is_strict)
		emu_check_needs_no_fence(checker_of(w), address);
}

bool emu_watch_operand(struct emu_warp *w, const struct emu_instr *i,
		       const uint64_t *from, int count)
{
	struct emu_check *c = checker_of(w);

	for (int k = 0; k < count && c; k++) {
		if (k + 8 < count)
			emu_check_prefetch(c, from[k + 8]);
		if (!emu_watch_async_read(w, i, -1, EMU_ASYNC_WGMMA, from[k], 16))
			return false;
	}
	return true;
}

void emu_watch_commit(struct emu_warp *w, enum emu_async_kind kind)
{
	emu_time_commit(w, kind);
	if (checker_of(w))
		emu_check_commit(checker_of(w), number_of(w), kind);
}

void emu_watch_wait_group(struct emu_warp *w, enum emu_async_kind kind, uint32_t groups)
{
	emu_time_wait_group(w, kind, groups);
	if (checker_of(w))
		emu_check_wait_group(checker_of(w), number_of(w), kind, groups, now(w));
}

uint32_t emu_watch_copy_mark(struct emu_warp *w)
{
	return checker_of(w) ? emu_check_copy_mark(checker_of(w), number_of(w)) : 0;
}

void emu_watch_copy_arrive(struct emu_warp *w, uint32_t mark, uint64_t barrier)
{
	if (checker_of(w))
		emu_check_copy_arrive(checker_of(w), number_of(w), mark, barrier);
}

/* ---- mbarriers ----------------------------------------------------------- */

bool emu_watch_init(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t barrier)
{
	struct emu_check *c = checker_of(w);
	struct emu_error err;

	return !c || say(w, i, lane,
			 emu_check_init(c, number_of(w), barrier,
					emu_watch_place(w, i, lane), &err),
			 &err);
}

void emu_watch_inval(struct emu_warp *w, uint64_t barrier)
{
	if (checker_of(w))
		emu_check_inval(checker_of(w), barrier);
}

bool emu_watch_arrive(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint64_t barrier, enum emu_scope scope)
{
	struct emu_check *c = checker_of(w);
	struct emu_error err;

	return !c || say(w, i, lane,
			 emu_check_arrive(c, number_of(w), barrier, scope, &err), &err);
}

void emu_watch_phase(struct emu_cluster *c, uint64_t barrier)
{
	emu_time_phase(c, barrier);
	if (c->check)
		emu_check_phase(c->check, barrier);
}

bool emu_watch_wait(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t barrier, enum emu_scope scope)
{
	struct emu_check *c = checker_of(w);
	struct emu_error err;

	emu_time_wait(w, barrier);
	return !c || say(w, i, lane,
			 emu_check_wait(c, number_of(w), barrier, scope, &err), &err);
}

/* ---- tensor memory ------------------------------------------------------- */

bool emu_watch_tmem(struct emu_warp *w, const struct emu_instr *i, int lane,
		    enum emu_tmem_use use, uint32_t cta, uint32_t first_lane,
		    uint32_t lanes, uint32_t column, uint32_t columns, uint32_t tag)
{
	const struct emu_tmem_access a = {use,	  cta,	   first_lane, lanes,
					  column, columns, tag,	       i->line};
	struct emu_check *c = checker_of(w);
	struct emu_error err;

	return !c || say(w, i, lane, emu_check_tmem(c, number_of(w), &a, &err), &err);
}

void emu_watch_tmem_wait(struct emu_warp *w, bool stores)
{
	if (checker_of(w))
		emu_check_tmem_wait(checker_of(w), number_of(w),
				    stores ? EMU_ASYNC_TMEM_ST : EMU_ASYNC_TMEM_LD);
}

void emu_watch_tmem_before(struct emu_warp *w)
{
	if (checker_of(w))
		emu_check_tmem_before(checker_of(w), number_of(w));
}

void emu_watch_tmem_after(struct emu_warp *w)
{
	if (checker_of(w))
		emu_check_tmem_after(checker_of(w), number_of(w));
}

void emu_watch_tmem_pair(struct emu_warp *w, struct emu_warp *other)
{
	if (checker_of(w))
		emu_check_tmem_pair(checker_of(w), number_of(w), number_of(other));
}

struct emu_check_mark *emu_watch_mark(struct emu_warp *w)
{
	return checker_of(w) ? emu_check_mark(checker_of(w), number_of(w)) : NULL;
}

void emu_watch_mark_arrive(struct emu_warp *w, const struct emu_check_mark *mark,
			   uint64_t barrier)
{
	if (checker_of(w) && mark)
		emu_check_mark_arrive(checker_of(w), mark, barrier);
}

/* ---- fences and barriers of threads -------------------------------------- */

void emu_watch_fence_proxy(struct emu_warp *w)
{
	if (checker_of(w))
		emu_check_fence_proxy(checker_of(w), number_of(w));
}

void emu_watch_fence_init(struct emu_warp *w)
{
	if (checker_of(w))
		emu_check_fence_init(checker_of(w), number_of(w));
}

void emu_watch_fence_release(struct emu_warp *w, enum emu_scope scope)
{
	if (checker_of(w))
		emu_check_fence_release(checker_of(w), number_of(w), scope);
}

void emu_watch_fence_acquire(struct emu_warp *w)
{
	if (checker_of(w))
		emu_check_fence_acquire(checker_of(w), number_of(w));
}

void emu_watch_join(struct emu_warp *w, uint32_t number, bool is_release)
{
	emu_time_join(w, number);
	if (checker_of(w))
		emu_check_join(checker_of(w), number_of(w), w->cta->rank, number,
			       is_release);
	if (is_release)
		emu_watch_lanes_release(w, w->live);
}

void emu_watch_all_joined(const struct emu_cta *c, uint32_t number)
{
	emu_time_all_joined(c, number);
	if (c->cluster->check)
		emu_check_all_joined(c->cluster->check, c->rank, number);
}

void emu_watch_leave(struct emu_warp *w, uint32_t number, bool is_acquire)
{
	emu_time_leave(w, number);
	if (checker_of(w))
		emu_check_leave(checker_of(w), number_of(w), w->cta->rank, number,
				is_acquire);
	if (is_acquire)
		emu_watch_lanes_acquire(w, w->live);
}

/* ---- release and acquire in global memory -------------------------------- */

/* Shared memory has an order of its own (check.h). */
static bool is_global(const struct emu_warp *w, uint64_t address)
{
	const struct emu_space *s = &emu_machine_of(w)->global;

	return address - s->base < s->bytes;
}

/*
 * The checker orders warps, so each address is reported once.  *told becomes the
 * next address of the lanes in global memory that differs from *told, and *lanes
 * the lanes that are left.  False: there is none.
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

void emu_watch_release(struct emu_warp *w, uint32_t lanes, const uint64_t *address,
		       enum emu_order_scope scope, bool is_atomic)
{
	struct emu_order_warp who;
	uint64_t told = 0;

	if (!describe(w, &who))
		return;
	while (next_address(w, &lanes, address, &told))
		emu_order_release(emu_machine_of(w)->order, &who, told, scope,
				  is_atomic);
}

void emu_watch_acquire(struct emu_warp *w, uint32_t lanes, const uint64_t *address,
		       enum emu_order_scope scope)
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

	emu_time_grids(w);
	if (describe(w, &who) && who.grid)
		emu_order_grids(emu_machine_of(w)->order, &who, who.grid - 1);
}

#define MOST_GRIDS 64

struct emu_order *emu_watch_order_open(struct emu_grid *const *grids, uint32_t count)
{
	uint32_t clusters[MOST_GRIDS], warps[MOST_GRIDS];

	if (count > MOST_GRIDS || grids[0]->machine->options.is_unchecked)
		return NULL;
	for (uint32_t k = 0; k < count; k++) {
		struct emu_grid *g = grids[k];
		const uint32_t threads = g->block[0] * g->block[1] * g->block[2];

		g->in_run = k;
		clusters[k] = g->n_clusters;
		warps[k] = (threads + EMU_LANES - 1) / EMU_LANES * g->cluster[0] *
			   g->cluster[1] * g->cluster[2];
	}
	return emu_order_open(count, clusters, warps);
}

void emu_watch_end(const struct emu_cluster *c)
{
	struct emu_machine *m = c->grid->machine;

	if (!m->options.is_unchecked && (!c->check || emu_check_is_blind(c->check)))
		m->unwatched |= EMU_UNWATCHED_CLUSTER;
}

void emu_watch_order_close(struct emu_machine *m)
{
	if (m->options.is_unchecked)
		m->unwatched |= EMU_UNWATCHED_ALL;
	else if (!m->order || emu_order_is_short(m->order))
		m->unwatched |= EMU_UNWATCHED_MEMORY;
	emu_order_close(m->order);
	m->order = NULL;
}

struct emu_races *emu_watch_races_open(struct emu_machine *m, struct emu_grid *grid)
{
	struct emu_races *r = NULL;

	grid->in_run = 0;
	if (m->options.is_unchecked) {
		m->unwatched |= EMU_UNWATCHED_ALL;
		return NULL;
	}
	if (grid->n_clusters <= EMU_RACES_CLUSTERS)
		r = emu_races_open(m->global.base, m->global.bytes,
				   m->options.threads > 1);
	if (!r)
		m->unwatched |= EMU_UNWATCHED_RACES;
	return r;
}

struct emu_order *emu_watch_cluster_open(const struct emu_grid *grid)
{
	const uint32_t threads = grid->block[0] * grid->block[1] * grid->block[2];
	const uint32_t ctas = grid->cluster[0] * grid->cluster[1] * grid->cluster[2];

	return emu_order_open_cluster((threads + EMU_LANES - 1) / EMU_LANES * ctas);
}
