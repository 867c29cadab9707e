/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_tensor.c - copies of boxes of tensors: cp.async.bulk.tensor in tile mode, in
 * both directions.  tensor_map.h decodes the map, transfer.h moves the bytes.
 */
#include <stdio.h>
#include <string.h>

#include "hardware/tensor_map.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/async.h"
#include "machine/traffic.h"
#include "machine/transfer.h"
#include "machine/warp.h"
#include "machine/watch.h"

/* A box begins at a multiple of this many bytes of shared memory. */
#define BOX_ALIGN 128
#define MAP_ALIGN 64

enum { HAS_MASK = 1, IS_PAIR = 2 };

struct box {
	struct emu_tensor_map map;
	int32_t at[EMU_TENSOR_RANK];
};

/* Reads the coordinates of the box.  False after a fault, if a GPU refuses them. */
static bool read_place(struct emu_warp *w, const struct emu_instr *i, int lane,
		       const struct emu_value *coordinates, bool is_store,
		       struct box *box)
{
	const char *why;
	char text[80] = "";
	int used = 0;

	for (int k = 0; k < i->vector; k++)
		box->at[k] = ((const int32_t *)emu_row(w, &coordinates[k]))[lane];
	why = emu_tensor_map_refuses(&box->map, box->at, is_store);
	if (!why)
		return true;
	for (int k = 0; k < i->vector; k++)
		used += snprintf(text + used, sizeof(text) - (size_t)used,
				 k ? ", %d" : "%d", box->at[k]);
	emu_fault(w, i, lane, "coordinates {%s}: %s", text, why);
	return false;
}

/*
 * Reads the tensor map from memory.  If threads have changed it, a fence must follow
 * the change.
 */
static bool read_map(struct emu_warp *w, const struct emu_instr *i, int lane,
		     uint64_t address, struct box *box)
{
	struct emu_error err = {{0}};
	uint8_t opaque[128];

	for (uint32_t k = 0; k < sizeof(opaque); k += 16) {
		const uint8_t *from = emu_access(w, i, lane, EMU_GENERIC, address + k,
						 16, EMU_READ, NULL);

		if (!from)
			return false;
		memcpy(opaque + k, from, 16);
	}
	if (address % MAP_ALIGN) {
		emu_fault(w, i, lane,
			  "the tensor map at 0x%llx is not aligned "
			  "to %d bytes",
			  (unsigned long long)address, MAP_ALIGN);
		return false;
	}
	if (!emu_tensor_map_decode(opaque, &box->map, &err)) {
		emu_fault(w, i, lane, "%s", err.text);
		return false;
	}
	if (box->map.rank != i->vector) {
		emu_fault(w, i, lane,
			  "the instruction has another rank than "
			  "the tensor map, %d",
			  box->map.rank);
		return false;
	}
	return true;
}

static bool check_shared(struct emu_warp *w, const struct emu_instr *i, int lane,
			 uint64_t address)
{
	if (address % BOX_ALIGN == 0)
		return true;
	emu_fault(w, i, lane,
		  "shared memory at offset %u: boxes begin at "
		  "multiples of %d",
		  (uint32_t)address & ((1u << EMU_RANK_SHIFT) - 1), BOX_ALIGN);
	return false;
}

/* ---- pieces -------------------------------------------------------------- */

/*
 * The host's pointer to bytes of the tensor.  NULL after a fault, for example if some
 * of them are not allocated.
 */
static uint8_t *tensor_bytes(struct emu_transfer *t, int lane, uint64_t address,
			     uint32_t bytes, uint8_t **shadow)
{
	uint8_t *first = NULL, *first_shadow = NULL;

	for (uint32_t k = 0; k < bytes; k++) {
		uint8_t *at =
		    emu_access(t->warp, t->instr, lane, EMU_GLOBAL, address + k, 1,
			       t->reduces ? EMU_READ : EMU_COPY, shadow);

		if (!at)
			return NULL;
		if (k == 0) {
			first = at;
			first_shadow = *shadow;
		}
	}
	*shadow = first_shadow;
	if (!emu_watch_global(t->warp, t->instr, lane,
			      t->kind == EMU_BULK_STORE
				  ? EMU_ORDER_WRITE | EMU_ORDER_STORE |
					(t->reduces ? EMU_ORDER_STRONG : 0)
				  : EMU_ORDER_READ,
			      address, bytes))
		return NULL;
	return first;
}

/* Adds a load of 16 bytes: skip_bytes zeros, the tensor's bytes, then zeros. */
static bool add_load(struct emu_transfer *t, int lane, uint64_t shared,
		     const struct emu_tensor_piece *piece, bool is_tf32)
{
	uint8_t *shadow, *from_shadow = NULL;
	uint8_t *to = emu_access(t->warp, t->instr, lane, EMU_SHARED_CLUSTER,
				 shared + piece->shared_offset, 16, EMU_COPY, &shadow);
	struct emu_piece p = {.lane = (uint8_t)lane};

	if (!to)
		return false;
	p.from = p.to = to;
	p.from_shadow = p.to_shadow = shadow;
	p.bytes = piece->inside_bytes ? piece->skip_bytes : 16;
	if (p.bytes && !emu_transfer_add(t, &p))
		return false;
	if (!piece->inside_bytes)
		return true;
	p.to += p.bytes;
	p.to_shadow += p.bytes;
	p.bytes = 16 - piece->skip_bytes;
	p.copied = piece->inside_bytes;
	p.is_tf32 = is_tf32;
	p.from = tensor_bytes(t, lane, piece->address, p.copied, &from_shadow);
	p.from_shadow = from_shadow;
	return p.from && emu_transfer_add(t, &p);
}

/*
 * Checks that a store of whole 16 bytes does not write past the tensor's last row to
 * bytes that are not allocated.  False after a fault.
 */
static bool check_padding(struct emu_transfer *t, int lane,
			  const struct emu_tensor_piece *piece)
{
	struct emu_machine *m = emu_machine_of(t->warp);
	const uint64_t end = piece->address + piece->inside_bytes;
	const uint32_t rest = piece->stored_bytes - piece->inside_bytes;

	if (emu_space_has(&m->global, end, rest, EMU_MAPPED))
		return true;
	emu_fault(t->warp, t->instr, lane,
		  "the tensor's last row ends at 0x%llx, and its memory there: "
		  "a store writes whole 16 bytes, %u more",
		  (unsigned long long)end, rest);
	return false;
}

static bool add_store(struct emu_transfer *t, int lane, uint64_t shared,
		      const struct emu_tensor_piece *piece)
{
	/* A reduction changes only the elements. */
	const uint32_t bytes = t->reduces ? piece->inside_bytes : piece->stored_bytes;
	struct emu_piece p = {.lane = (uint8_t)lane,
			      .bytes = bytes,
			      .copied = bytes,
			      .group = t->warp->async->bulk_group[lane]};
	uint8_t *shadow = NULL;
	const uint8_t *from =
	    emu_access(t->warp, t->instr, lane, EMU_SHARED,
		       shared + piece->shared_offset, 16, EMU_COPY, &shadow);

	if (!from)
		return false;
	if (!p.bytes)
		return true;
	p.from = from + piece->skip_bytes;
	p.from_shadow = shadow + piece->skip_bytes;
	if (!t->reduces && !check_padding(t, lane, piece))
		return false;
	p.to = tensor_bytes(t, lane, piece->address, p.bytes, &shadow);
	p.to_shadow = shadow;
	return p.to && emu_transfer_add(t, &p);
}

static bool add_box(struct emu_transfer *t, int lane, uint64_t shared,
		    const struct box *box)
{
	const uint32_t offset = (uint32_t)shared & ((1u << EMU_RANK_SHIFT) - 1);
	const uint32_t count = emu_tensor_map_pieces(&box->map);
	const bool is_tf32 = emu_tensor_map_rounds(&box->map);

	for (uint32_t k = 0; k < count; k++) {
		struct emu_tensor_piece piece;

		emu_tensor_map_piece(&box->map, box->at, offset, k, &piece);
		if (t->kind == EMU_BULK_LOAD
			? !add_load(t, lane, shared, &piece, is_tf32)
			: !add_store(t, lane, shared, &piece))
			return false;
	}
	return true;
}

/* Counts the bytes of the box that are inside the tensor. */
static void count_box(struct emu_warp *w, const struct box *box,
		      enum emu_traffic_kind kind)
{
	const uint32_t count = emu_tensor_map_pieces(&box->map);

	for (uint32_t k = 0; k < count && w->cta->cluster->grid->traffic; k++) {
		struct emu_tensor_piece piece;

		emu_tensor_map_piece(&box->map, box->at, 0, k, &piece);
		emu_traffic_count(w, kind, piece.address, piece.inside_bytes);
	}
}

/* ---- loads --------------------------------------------------------------- */

static bool load_to(struct emu_warp *w, const struct emu_instr *i, int lane,
		    const struct box *box, uint64_t to, uint64_t barrier)
{
	struct emu_transfer *t = emu_transfer_new_load(
	    w, i, lane, to, emu_tensor_map_box_bytes(&box->map), barrier);

	if (!t)
		return false;
	t->tx_bytes = emu_tensor_map_tx_bytes(&box->map);
	if (!add_box(t, lane, to, box)) {
		emu_transfer_drop(t);
		return false;
	}
	emu_transfer_issue(t);
	return true;
}

/* Checks that the mbarrier belongs to the CTA that receives the box or, with
 * cta_group::2, to a CTA of the same pair. */
static bool check_ranks(struct emu_warp *w, const struct emu_instr *i, int lane,
			uint64_t to, uint64_t barrier)
{
	const uint32_t pair = i->option & IS_PAIR ? 1 : 0;
	const uint64_t rank = to >> EMU_RANK_SHIFT;

	if ((rank ^ barrier >> EMU_RANK_SHIFT) <= pair)
		return true;
	emu_fault(w, i, lane,
		  "the data goes to CTA rank %u, the mbarrier is of CTA rank "
		  "%u: %s",
		  (unsigned)rank, (unsigned)(barrier >> EMU_RANK_SHIFT),
		  pair ? "not of its pair"
		       : "they may differ in a pair, with .cta_group::2");
	return false;
}

/*
 * The rank of the CTA whose barrier counts a multicast box; its offset is the same in
 * all CTAs.  It is the CTA that receives the box.  With cta_group::2 it is the CTA of
 * that pair whose rank has the parity of the given barrier's rank.
 */
static uint64_t barrier_rank(const struct emu_instr *i, uint64_t rank, uint64_t barrier)
{
	return i->option & IS_PAIR
		   ? (rank & ~UINT64_C(1)) | (barrier >> EMU_RANK_SHIFT & 1)
		   : rank;
}

static bool load_lane(struct emu_warp *w, const struct emu_instr *i, int lane,
		      const struct box *box, uint64_t to, uint64_t barrier)
{
	uint32_t mask;

	if (!check_shared(w, i, lane, to))
		return false;
	count_box(w, box, EMU_TRAFFIC_TENSOR);
	if (!(i->option & HAS_MASK))
		return check_ranks(w, i, lane, to, barrier) &&
		       load_to(w, i, lane, box, to, barrier);
	if (!emu_transfer_mask(w, i, lane, &i->operand[3 + i->vector], &mask))
		return false;
	for (uint64_t rank = 0; mask >> rank; rank++)
		if (mask >> rank & 1 &&
		    !load_to(w, i, lane, box, emu_at_rank(to, rank),
			     emu_at_rank(barrier, barrier_rank(i, rank, barrier))))
			return false;
	return true;
}

static void run_load(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_value *o = i->operand;
	uint64_t to[EMU_LANES], map[EMU_LANES], barrier[EMU_LANES];

	emu_offset_addresses(w, &o[0], i->immediate, to);
	emu_offset_addresses(w, &o[1], i->offset[0], map);
	emu_offset_addresses(w, &o[2 + i->vector], i->offset[1], barrier);
	EMU_EACH_LANE(l)
	{
		struct box box;

		if (lanes >> l & 1 && (!read_map(w, i, l, map[l], &box) ||
				       !read_place(w, i, l, &o[2], false, &box) ||
				       !load_lane(w, i, l, &box, to[l], barrier[l])))
			return;
	}
}

/* ---- stores -------------------------------------------------------------- */

/* The reduction of the map's elements.  False after a fault, if there is none. */
static bool take_type(struct emu_warp *w, const struct emu_instr *i, int lane,
		      const struct box *box, struct emu_reduction *r)
{
	static const int8_t types[] = {
	    [EMU_TENSOR_U8] = -1,
	    [EMU_TENSOR_U16] = -1,
	    [EMU_TENSOR_U32] = EMU_REDUCE_U32,
	    [EMU_TENSOR_S32] = EMU_REDUCE_S32,
	    [EMU_TENSOR_U64] = EMU_REDUCE_U64,
	    [EMU_TENSOR_S64] = EMU_REDUCE_S64,
	    [EMU_TENSOR_F16] = EMU_REDUCE_F16,
	    [EMU_TENSOR_F32] = EMU_REDUCE_F32,
	    [EMU_TENSOR_F64] = EMU_REDUCE_F64,
	    [EMU_TENSOR_BF16] = EMU_REDUCE_BF16,
	    [EMU_TENSOR_F32_FTZ] = EMU_REDUCE_F32,
	    [EMU_TENSOR_TF32] = -1,
	    [EMU_TENSOR_TF32_FTZ] = -1,
	    [EMU_TENSOR_16U4_ALIGN8B] = -1,
	    [EMU_TENSOR_16U4_ALIGN16B] = -1,
	    [EMU_TENSOR_16U6_ALIGN16B] = -1,
	};
	const int type = types[box->map.type];

	r->operation =
	    (enum emu_reduction_operation)((i->option >> EMU_OPERATION_AT) - 1);
	r->type = (enum emu_reduction_type)type;
	if (type >= 0 && emu_reduction_is_known(r))
		return true;
	emu_fault(w, i, lane,
		  "the tensor map's elements, tensorDataType = %d, have no "
		  "such reduction",
		  box->map.type);
	return false;
}

static bool store_lane(struct emu_warp *w, const struct emu_instr *i, int lane,
		       const struct box *box, uint64_t from)
{
	struct emu_reduction r = {0};
	struct emu_transfer *t;

	if ((i->option && !take_type(w, i, lane, box, &r)) ||
	    !check_shared(w, i, lane, from) ||
	    !emu_watch_async_read(w, i, lane, EMU_ASYNC_STORE, from,
				  emu_tensor_map_box_bytes(&box->map)))
		return false;
	count_box(w, box, EMU_TRAFFIC_STORE);
	t = emu_transfer_new_store(w, i, i->option >> EMU_OPERATION_AT, r.type);
	if (!t)
		return false;
	if (!add_box(t, lane, from, box)) {
		emu_transfer_drop(t);
		return false;
	}
	emu_transfer_issue(t);
	return true;
}

/*
 * A whole warp may issue one store, as CUTLASS's epilogues do: the same box from the
 * same address.  A GPU executes it once, because the instruction is the warp's.  A
 * reduction counts for each lane.
 */
static void run_store(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_value *o = i->operand;
	const int first = lanes ? __builtin_ctz(lanes) : 0;
	uint64_t map[EMU_LANES], from[EMU_LANES];
	struct box box, box_of_first = {0};

	emu_offset_addresses(w, &o[0], i->immediate, map);
	emu_offset_addresses(w, &o[1 + i->vector], i->offset[0], from);
	for (int l = first; l < EMU_LANES; l++) {
		if (!(lanes >> l & 1))
			continue;
		memset(&box, 0, sizeof(box));
		if (!read_map(w, i, l, map[l], &box) ||
		    !read_place(w, i, l, &o[1], true, &box))
			return;
		if (l == first)
			box_of_first = box;
		else if (!i->option && map[l] == map[first] && from[l] == from[first] &&
			 memcmp(box.at, box_of_first.at, sizeof(box.at)) == 0)
			continue;
		if (!store_lane(w, i, l, &box, from[l]))
			return;
	}
}

/* ---- binding ------------------------------------------------------------- */

static uint8_t rank_of(const struct emu_bind *b)
{
	static const char *const words[] = {"1d", "2d", "3d", "4d", "5d"};

	for (uint8_t k = 0; k < 5; k++)
		if (emu_has(b, words[k]))
			return (uint8_t)(k + 1);
	return 0;
}

/* [map, {coordinates}] */
static bool bind_map(struct emu_bind *b, const struct emu_argument *a)
{
	if (!emu_address(b, a))
		return false;
	if (a->count != 1u + b->i->vector)
		return emu_bind_fail(b, "%u coordinates, not %u", a->count - 1,
				     b->i->vector);
	for (uint32_t k = 1; k < a->count; k++)
		if (!emu_src(b, &b->s->elements[a->first + k], EMU_S32))
			return false;
	return true;
}

bool emu_bind_bulk_tensor(struct emu_bind *b)
{
	const bool has_mask = emu_has(b, "multicast::cluster");
	const bool is_store = emu_has(b, "bulk_group");
	const bool is_pair = emu_has(b, "cta_group::2");
	const uint32_t policy = emu_has(b, "L2::cache_hint");
	const uint32_t n = is_store ? 2 + policy : 3u + has_mask + policy;

	b->i->vector = rank_of(b);
	if (!b->i->vector || !emu_has(b, "global") ||
	    is_store == emu_has(b, "mbarrier::complete_tx::bytes") ||
	    emu_has(b, "shared::cluster") + emu_has(b, "shared::cta") != 1)
		return emu_bind_fail(b, "it needs a rank, .global and .shared, "
					"and an mbarrier or .bulk_group");
	if (!emu_arguments(b, n, n))
		return false;
	if (is_pair && (is_store || emu_has(b, "cta_group::1")))
		return emu_bind_fail(b, "only a load takes a .cta_group, and "
					"one");
	b->i->option = (has_mask ? HAS_MASK : 0) | (is_pair ? IS_PAIR : 0);
	b->i->run = is_store ? run_store : run_load;
	if (is_store)
		return bind_map(b, emu_argument(b, 0)) &&
		       emu_address(b, emu_argument(b, 1));
	return emu_address(b, emu_argument(b, 0)) && bind_map(b, emu_argument(b, 1)) &&
	       emu_address(b, emu_argument(b, 2)) &&
	       (!has_mask || emu_src(b, emu_argument(b, 3), EMU_U16));
}

bool emu_bind_bulk_tensor_reduce(struct emu_bind *b)
{
	const uint32_t policy = emu_has(b, "L2::cache_hint");

	b->i->vector = rank_of(b);
	if (!b->i->vector || !emu_has(b, "global") || !emu_has(b, "shared::cta") ||
	    !emu_has(b, "bulk_group"))
		return emu_bind_fail(b, "it needs a rank, .global.shared::cta "
					"and .bulk_group");
	b->i->run = run_store;
	return emu_bind_reduction(b) && emu_arguments(b, 2 + policy, 2 + policy) &&
	       bind_map(b, emu_argument(b, 0)) && emu_address(b, emu_argument(b, 1));
}
