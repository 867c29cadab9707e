/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_copy.c - asynchronous copies (cp.async of threads and bulk copies), their
 * groups and barriers, and fences.  transfer.h moves the bytes.
 */
#include <string.h>

#include "hardware/mbarrier.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/async.h"
#include "machine/traffic.h"
#include "machine/transfer.h"
#include "machine/warp.h"
#include "machine/watch.h"

/* The bytes of a bulk copy that complete together. */
#define PIECE_BYTES EMU_PIECE_MOST

/* ---- cp.async ------------------------------------------------------------ */

enum { HAS_SIZE = 1, HAS_IGNORE = 2, HAS_MASK = 8 };

/* Bytes of a lane's source that are read. */
static uint32_t copied_bytes(const struct emu_warp *w, const struct emu_instr *i,
			     int lane)
{
	const uint32_t whole = i->vector;

	if (i->option & HAS_IGNORE)
		return emu_lanes_of(w, &i->operand[2]) >> lane & 1 ? 0 : whole;
	if (i->option & HAS_SIZE)
		return ((const uint32_t *)emu_row(w, &i->operand[2]))[lane];
	return whole;
}

static bool add_lane(struct emu_transfer *t, int lane, uint64_t to, uint64_t from)
{
	struct emu_warp *w = t->warp;
	uint32_t each;
	struct emu_piece p = {.bytes = t->instr->vector,
			      .lane = (uint8_t)lane,
			      .group = w->async->cp_group[lane]};
	uint8_t *shadow;

	p.copied = copied_bytes(w, t->instr, lane);
	if (p.copied > p.bytes) {
		emu_fault(w, t->instr, lane,
			  "src-size is %u and cp-size %u: src-size must not be larger",
			  p.copied, p.bytes);
		return false;
	}
	p.to = emu_access(w, t->instr, lane, EMU_SHARED, to, p.bytes, EMU_COPY,
			  &p.to_shadow);
	if (!p.to)
		return false;
	if (from % p.bytes) {
		emu_fault(w, t->instr, lane,
			  "the source 0x%llx is not a multiple of %u",
			  (unsigned long long)from, p.bytes);
		return false;
	}
	/* Fewer bytes than cp-size, as at the end of a row, are checked one by one: the
	 * next bytes may be outside the allocation. */
	each = p.copied == p.bytes ? p.bytes : 1;
	for (uint32_t k = 0; k < p.copied; k += each) {
		const uint8_t *at = emu_access(w, t->instr, lane, EMU_GLOBAL, from + k,
					       each, EMU_COPY, &shadow);

		if (!at)
			return false;
		if (k == 0) {
			p.from = at;
			p.from_shadow = shadow;
		}
	}
	if (!p.from)
		p.from = p.to;
	emu_traffic_count(w, EMU_TRAFFIC_CP_ASYNC, from, p.copied);
	return emu_watch_global(w, t->instr, lane, EMU_ORDER_READ, from, p.copied) &&
	       emu_watch_copy(w, t->instr, lane, to, p.bytes) &&
	       emu_transfer_add(t, &p);
}

static void run_cp_async(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint64_t to[EMU_LANES], from[EMU_LANES];
	struct emu_transfer *t = emu_transfer_new(w, i, EMU_CP_ASYNC);

	if (!t)
		return;
	emu_offset_addresses(w, &i->operand[0], i->immediate, to);
	emu_offset_addresses(w, &i->operand[1], i->offset[0], from);
	EMU_EACH_LANE(l)
	if (lanes >> l & 1 && !add_lane(t, l, to[l], from[l])) {
		emu_transfer_drop(t);
		return;
	}
	emu_transfer_issue(t);
}

bool emu_bind_cp_async(struct emu_bind *b)
{
	const uint32_t policy = emu_has(b, "L2::cache_hint");
	const struct emu_argument *last = emu_argument(b, 3);
	int64_t bytes;

	if (!emu_has(b, "global") ||
	    (!emu_has(b, "shared") && !emu_has(b, "shared::cta")) ||
	    emu_has(b, "ca") == emu_has(b, "cg"))
		return emu_bind_fail(b, "it needs .ca or .cg, and "
					".shared.global");
	if (!emu_arguments(b, 3 + policy, 4 + policy) ||
	    !emu_address(b, emu_argument(b, 0)) ||
	    !emu_address(b, emu_argument(b, 1)) ||
	    !emu_number(b, emu_argument(b, 2), 4, 16, &bytes))
		return false;
	if (bytes & (bytes - 1) || (emu_has(b, "cg") && bytes != 16))
		return emu_bind_fail(b, "cp-size must be 4, 8 or 16, and 16 with "
					".cg");
	b->i->vector = (uint8_t)bytes;
	b->i->run = run_cp_async;
	if (b->s->n_arguments == 3 + policy)
		return true;
	if (last->kind == EMU_ARG_REGISTER &&
	    b->parser->build.register_bytes[last->reg] == 1) {
		b->i->option = HAS_IGNORE;
		return emu_predicate(b, last);
	}
	b->i->option = HAS_SIZE;
	return emu_src(b, last, EMU_U32);
}

/* ---- groups -------------------------------------------------------------- */

enum { WAIT_READ = 1 };

/* The most groups that a wait can leave pending. */
#define MOST_GROUPS 63

enum { CP_COMMIT, CP_WAIT, CP_WAIT_ALL, BULK_COMMIT, BULK_WAIT };

static void run_group(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const bool is_bulk = i->option >= BULK_COMMIT;
	uint32_t *group = is_bulk ? w->async->bulk_group : w->async->cp_group;

	if (i->option == CP_COMMIT || i->option == BULK_COMMIT ||
	    i->option == CP_WAIT_ALL) {
		EMU_EACH_LANE(l) group[l] += lanes >> l & 1;
		emu_watch_commit(w, is_bulk ? EMU_ASYNC_STORE : EMU_ASYNC_COPY);
	}
	if (i->option == CP_COMMIT || i->option == BULK_COMMIT)
		return;
	emu_watch_wait_group(w, is_bulk ? EMU_ASYNC_STORE : EMU_ASYNC_COPY,
			     (uint32_t)i->immediate);
	if (is_bulk && i->vector != WAIT_READ)
		emu_watch_stored(w, (uint32_t)i->immediate);
	emu_transfers_wait(w, is_bulk ? EMU_BULK_STORE : EMU_CP_ASYNC, lanes,
			   (uint32_t)i->immediate, is_bulk && i->vector == WAIT_READ);
}

static bool bind_group(struct emu_bind *b, uint32_t option)
{
	b->i->run = run_group;
	b->i->option = option;
	return emu_arguments(b, 0, 0);
}

static bool bind_group_wait(struct emu_bind *b, uint32_t option)
{
	int64_t number = 0;

	b->i->run = run_group;
	b->i->option = option;
	if (!emu_arguments(b, 1, 1) ||
	    !emu_number(b, emu_argument(b, 0), INT32_MIN, INT32_MAX, &number))
		return false;
	/* ptxas also takes the maximum for a negative number. */
	b->i->immediate = number < 0 || number > MOST_GROUPS ? MOST_GROUPS : number;
	b->i->vector = emu_has(b, "read") ? WAIT_READ : 0;
	return true;
}

bool emu_bind_cp_async_commit(struct emu_bind *b)
{
	return bind_group(b, CP_COMMIT);
}

bool emu_bind_cp_async_wait(struct emu_bind *b)
{
	return bind_group_wait(b, CP_WAIT);
}

bool emu_bind_cp_async_wait_all(struct emu_bind *b)
{
	return bind_group(b, CP_WAIT_ALL);
}

bool emu_bind_bulk_commit(struct emu_bind *b)
{
	return bind_group(b, BULK_COMMIT);
}

bool emu_bind_bulk_wait(struct emu_bind *b)
{
	return bind_group_wait(b, BULK_WAIT);
}

/* ---- arrivals after cp.async --------------------------------------------- */

enum { NOINC = 1 };

static void run_cp_arrive(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	struct emu_transfer *t = emu_transfer_new(w, i, EMU_CP_ARRIVE);

	if (!t)
		return;
	emu_addresses(w, i, &i->operand[0], t->barriers);
	t->lanes = lanes;
	t->mark = emu_watch_copy_mark(w);
	emu_watch_lanes_release(w, lanes);
	EMU_EACH_LANE(l)
	{
		uint64_t *bar;

		if (!(lanes >> l & 1))
			continue;
		bar = emu_barrier_at(w, i, l, t->barriers[l]);
		if (bar && !(i->option & NOINC) && emu_mbarrier_add_pending(bar)) {
			emu_fault(w, i, l,
				  "its arrivals would raise the "
				  "pending count over 2^20 - 1");
			bar = NULL;
		}
		if (!bar) {
			emu_transfer_drop(t);
			return;
		}
	}
	emu_transfer_issue(t);
}

bool emu_bind_cp_async_arrive(struct emu_bind *b)
{
	b->i->option = emu_has(b, "noinc") ? NOINC : 0;
	b->i->run = run_cp_arrive;
	return emu_arguments(b, 1, 1) && emu_address(b, emu_argument(b, 0));
}

/* ---- bulk copies --------------------------------------------------------- */

/* Checks addresses and sizes; faults if they break a rule. */
static bool check_bulk(struct emu_warp *w, const struct emu_instr *i, int lane,
		       uint64_t to, uint64_t from, uint32_t bytes)
{
	if (to % 16 == 0 && from % 16 == 0 && bytes % 16 == 0)
		return true;
	emu_fault(w, i, lane,
		  "to 0x%llx from 0x%llx, %u bytes: all must be multiples of "
		  "16",
		  (unsigned long long)to, (unsigned long long)from, bytes);
	return false;
}

static bool add_bulk(struct emu_transfer *t, int lane, enum emu_state_space to_space,
		     uint64_t to, enum emu_state_space from_space, uint64_t from,
		     uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at += PIECE_BYTES) {
		struct emu_piece p = {.lane = (uint8_t)lane};
		uint8_t *shadow;

		p.bytes = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
		p.copied = p.bytes;
		p.group = t->warp->async->bulk_group[lane];
		for (uint32_t k = 0; k < p.bytes; k += 16) {
			uint8_t *data =
			    emu_access(t->warp, t->instr, lane, to_space, to + at + k,
				       16, t->reduces ? EMU_READ : EMU_COPY, &shadow);

			if (!data)
				return false;
			if (k == 0) {
				p.to = data;
				p.to_shadow = shadow;
			}
			data = emu_access(t->warp, t->instr, lane, from_space,
					  from + at + k, 16, EMU_COPY, &shadow);
			if (!data)
				return false;
			if (k == 0) {
				p.from = data;
				p.from_shadow = shadow;
			}
		}
		if (!emu_transfer_add(t, &p))
			return false;
	}
	if (to_space == EMU_GLOBAL)
		return emu_watch_global(t->warp, t->instr, lane,
					EMU_ORDER_WRITE | EMU_ORDER_STORE |
					    (t->reduces ? EMU_ORDER_STRONG : 0),
					to, bytes);
	return from_space != EMU_GLOBAL ||
	       emu_watch_global(t->warp, t->instr, lane, EMU_ORDER_READ, from, bytes);
}

/* Loads to one CTA, whose barrier counts the bytes. */
static bool load_to(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint64_t to, uint64_t from, uint32_t bytes, uint64_t barrier)
{
	struct emu_transfer *t = emu_transfer_new_load(w, i, lane, to, bytes, barrier);

	if (!t)
		return false;
	if (!add_bulk(t, lane, EMU_SHARED_CLUSTER, to, (enum emu_state_space)i->space,
		      from, bytes)) {
		emu_transfer_drop(t);
		return false;
	}
	emu_transfer_issue(t);
	return true;
}

static bool load_lane(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint64_t to, uint64_t from, uint64_t barrier)
{
	const uint32_t bytes = ((const uint32_t *)emu_row(w, &i->operand[2]))[lane];
	uint32_t mask;

	if (!check_bulk(w, i, lane, to, from, bytes))
		return false;
	if (i->space == EMU_GLOBAL)
		emu_traffic_count(w, EMU_TRAFFIC_BULK, from, bytes);
	if (!(i->option & HAS_MASK)) {
		if (to >> EMU_RANK_SHIFT == barrier >> EMU_RANK_SHIFT)
			return load_to(w, i, lane, to, from, bytes, barrier);
		emu_fault(w, i, lane,
			  "the data and the mbarrier are in different CTAs: "
			  "the bytes of a copy are counted where they land");
		return false;
	}
	if (!emu_transfer_mask(w, i, lane, &i->operand[4], &mask))
		return false;
	for (uint32_t rank = 0; mask >> rank; rank++)
		if (mask >> rank & 1 &&
		    !load_to(w, i, lane, emu_at_rank(to, rank), from, bytes,
			     emu_at_rank(barrier, rank)))
			return false;
	return true;
}

static void run_bulk_load(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint64_t to[EMU_LANES], from[EMU_LANES], barrier[EMU_LANES];

	emu_offset_addresses(w, &i->operand[0], i->immediate, to);
	emu_offset_addresses(w, &i->operand[1], i->offset[0], from);
	emu_offset_addresses(w, &i->operand[3], i->offset[1], barrier);
	EMU_EACH_LANE(l)
	if (lanes >> l & 1 && !load_lane(w, i, l, to[l], from[l], barrier[l]))
		return;
}

static void run_bulk_store(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	const uint32_t *bytes = emu_row(w, &i->operand[2]);
	uint64_t to[EMU_LANES], from[EMU_LANES];

	emu_offset_addresses(w, &i->operand[0], i->immediate, to);
	emu_offset_addresses(w, &i->operand[1], i->offset[0], from);
	EMU_EACH_LANE(l)
	{
		struct emu_transfer *t;

		if (!(lanes >> l & 1))
			continue;
		if (!check_bulk(w, i, l, to[l], from[l], bytes[l]) ||
		    !emu_watch_async_read(w, i, l, EMU_ASYNC_STORE, from[l], bytes[l]))
			return;
		emu_traffic_count(w, EMU_TRAFFIC_STORE, to[l], bytes[l]);
		t = emu_transfer_new_store(w, i, i->option >> EMU_OPERATION_AT,
					   (enum emu_reduction_type)i->vector);
		if (!t)
			return;
		if (!add_bulk(t, l, EMU_GLOBAL, to[l], EMU_SHARED, from[l], bytes[l])) {
			emu_transfer_drop(t);
			return;
		}
		emu_transfer_issue(t);
	}
}

/* True if the instruction has these state spaces: first the destination's, then the
 * source's. */
static bool has_spaces(struct emu_bind *b, const char *to, const char *from)
{
	int first = -1, second = -1;

	for (uint32_t k = 0; k < b->n_words; k++) {
		if (b->lengths[k] == strlen(to) &&
		    memcmp(b->words[k], to, b->lengths[k]) == 0 && first < 0)
			first = (int)k;
		if (b->lengths[k] == strlen(from) &&
		    memcmp(b->words[k], from, b->lengths[k]) == 0)
			second = (int)k;
	}
	return first >= 0 && second > first;
}

/* Operands: [to], [from], bytes, and a policy with .L2::cache_hint. */
static bool bind_bulk_store(struct emu_bind *b)
{
	const uint32_t policy = emu_has(b, "L2::cache_hint");

	b->i->run = run_bulk_store;
	return emu_arguments(b, 3 + policy, 3 + policy) &&
	       emu_address(b, emu_argument(b, 0)) &&
	       emu_address(b, emu_argument(b, 1)) &&
	       emu_src(b, emu_argument(b, 2), EMU_U32);
}

bool emu_bind_bulk(struct emu_bind *b)
{
	const bool has_mask = emu_has(b, "multicast::cluster");
	const uint32_t policy = emu_has(b, "L2::cache_hint");
	uint32_t n;

	if (has_spaces(b, "global", "shared::cta") && emu_has(b, "bulk_group"))
		return bind_bulk_store(b);
	if (has_spaces(b, "shared::cluster", "shared::cta"))
		b->i->space = EMU_SHARED;
	else if (has_spaces(b, "shared::cluster", "global") ||
		 has_spaces(b, "shared::cta", "global"))
		b->i->space = EMU_GLOBAL;
	else
		return emu_bind_fail(b, "it does not copy between these state "
					"spaces");
	if (!emu_has(b, "mbarrier::complete_tx::bytes"))
		return emu_bind_fail(b, ".mbarrier::complete_tx::bytes is "
					"missing");
	n = 4 + has_mask + policy;
	b->i->option = has_mask ? HAS_MASK : 0;
	b->i->run = run_bulk_load;
	return emu_arguments(b, n, n) && emu_address(b, emu_argument(b, 0)) &&
	       emu_address(b, emu_argument(b, 1)) &&
	       emu_src(b, emu_argument(b, 2), EMU_U32) &&
	       emu_address(b, emu_argument(b, 3)) &&
	       (!has_mask || emu_src(b, emu_argument(b, 4), EMU_U16));
}

/* The qualifiers of cp.reduce.async.bulk, in the order of enum
 * emu_reduction_operation. */
static const char *const operations[] = {"add", "min", "max", "inc",
					 "dec", "and", "or",  "xor"};

bool emu_bind_reduction(struct emu_bind *b)
{
	uint32_t operation = 0;

	if (!emu_has_one(b, operations, sizeof(operations) / sizeof(*operations),
			 &operation))
		return emu_bind_fail(b, "it needs one operation: .add .min "
					".max .inc .dec .and .or .xor");
	/* Option 0 is a plain store. */
	b->i->option = (operation + 1) << EMU_OPERATION_AT;
	b->i->space = EMU_GLOBAL;
	b->i->traits = EMU_ATOMIC | EMU_STRONG;
	return true;
}

static bool type_of(enum emu_type type, enum emu_reduction_type *to)
{
	static const struct {
		enum emu_type type;
		enum emu_reduction_type reduction;
	} types[] = {{EMU_U32, EMU_REDUCE_U32},	    {EMU_S32, EMU_REDUCE_S32},
		     {EMU_B32, EMU_REDUCE_U32},	    {EMU_U64, EMU_REDUCE_U64},
		     {EMU_S64, EMU_REDUCE_S64},	    {EMU_B64, EMU_REDUCE_U64},
		     {EMU_T_F16, EMU_REDUCE_F16},   {EMU_F32, EMU_REDUCE_F32},
		     {EMU_T_BF16, EMU_REDUCE_BF16}, {EMU_F64, EMU_REDUCE_F64}};

	for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++)
		if (types[k].type == type) {
			*to = types[k].reduction;
			return true;
		}
	return false;
}

bool emu_bind_reduction_type(struct emu_bind *b, struct emu_reduction *r)
{
	r->operation =
	    (enum emu_reduction_operation)((b->i->option >> EMU_OPERATION_AT) - 1);
	return (b->n_types == 1 && type_of(b->types[0], &r->type) &&
		emu_reduction_is_known(r)) ||
	       emu_bind_fail(b, ".%s does not support this type",
			     operations[r->operation]);
}

/* cp.reduce.async.bulk, only to global memory. */
bool emu_bind_bulk_reduce(struct emu_bind *b)
{
	struct emu_reduction r = {0};

	if (!has_spaces(b, "global", "shared::cta") || !emu_has(b, "bulk_group"))
		return emu_bind_fail(b, "only .global.shared::cta.bulk_group "
					"is known here");
	if (!emu_bind_reduction(b) || !emu_bind_reduction_type(b, &r))
		return false;
	if ((r.type == EMU_REDUCE_F16 || r.type == EMU_REDUCE_BF16) !=
		emu_has(b, "noftz") &&
	    r.operation == EMU_REDUCE_ADD)
		return emu_bind_fail(b, ".add needs .noftz for .f16 and .bf16, "
					"and allows it for no other type");
	b->i->vector = (uint8_t)r.type;
	return bind_bulk_store(b);
}

/* ---- st.bulk ------------------------------------------------------------- */

static bool clear(struct emu_warp *w, const struct emu_instr *i, int lane,
		  uint64_t address, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += 8) {
		uint8_t *to = emu_access(w, i, lane, (enum emu_state_space)i->space,
					 address + at, 8, EMU_WRITE, NULL);

		if (!to)
			return false;
		memset(to, 0, 8);
	}
	return true;
}

static void run_st_bulk(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	uint64_t address[EMU_LANES], bytes[EMU_LANES];

	emu_addresses(w, i, &i->operand[0], address);
	emu_get_wide(w, &i->operand[1], bytes);
	EMU_EACH_LANE(l)
	{
		if (!(lanes >> l & 1))
			continue;
		if (bytes[l] % 8) {
			emu_fault(w, i, l,
				  "%llu bytes: the size must be a multiple of 8",
				  (unsigned long long)bytes[l]);
			return;
		}
		if (!clear(w, i, l, address[l], bytes[l]))
			return;
	}
	emu_machine_of(w)->effects++;
}

/* Operands: [address], bytes, 0.  Clears shared memory of the CTA. */
bool emu_bind_st_bulk(struct emu_bind *b)
{
	const struct emu_argument *value;

	b->i->run = run_st_bulk;
	b->i->space = (uint8_t)emu_space_of(b);
	if (!emu_arguments(b, 3, 3))
		return false;
	value = emu_argument(b, 2);
	if (b->n_types || value->kind != EMU_ARG_INTEGER || value->value)
		return emu_bind_fail(b, "its value must be 0, and it has no type");
	return emu_address(b, emu_argument(b, 0)) &&
	       emu_src(b, emu_argument(b, 1), EMU_U64);
}

/* ---- fences -------------------------------------------------------------- */

enum { FENCE_MEMORY, FENCE_PROXY, FENCE_INIT, FENCE_SHARED };
enum { FENCE_RELEASES = 1, FENCE_ACQUIRES = 2 };

/*
 * A memory fence, or (FENCE_SHARED) one of shared memory only.  It acquires before it
 * releases, so that fences of two lanes do not order each other.
 */
static void order_memory(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	if (i->option == FENCE_MEMORY)
		emu_watch_fence(w, i->space == EMU_SCOPE_NONE ? EMU_ORDER_WIDE
							      : EMU_ORDER_NEAR);
	if (i->vector & FENCE_ACQUIRES) {
		emu_watch_fence_acquire(w);
		emu_watch_lanes_acquire(w, lanes);
	}
	if (i->vector & FENCE_RELEASES) {
		emu_watch_fence_release(
		    w, i->space == EMU_SCOPE_CTA ? EMU_SCOPE_CTA : EMU_SCOPE_CLUSTER);
		emu_watch_lanes_release(w, lanes);
	}
}

static void run_fence(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	if (i->option == FENCE_MEMORY || i->option == FENCE_SHARED)
		order_memory(w, i, lanes);
	if (i->option == FENCE_PROXY)
		emu_watch_fence_proxy(w);
	/* Also releases the init of mbarriers, to a scope that includes them. */
	if (i->option == FENCE_INIT ||
	    (i->vector & FENCE_RELEASES && i->space != EMU_SCOPE_CTA))
		emu_watch_fence_init(w);
}

/* The two fences with .sync_restrict, one that releases and one that acquires (PTX ISA
 * 8.6, membar). */
static bool bind_restricted_fence(struct emu_bind *b)
{
	const bool releases =
	    emu_has(b, "release") && emu_has(b, "sync_restrict::shared::cta");
	const bool acquires =
	    emu_has(b, "acquire") && emu_has(b, "sync_restrict::shared::cluster");

	if (releases == acquires || !emu_has(b, "cluster"))
		return emu_bind_fail(b,
				     ".sync_restrict needs .release"
				     ".sync_restrict::shared::cta.cluster or .acquire"
				     ".sync_restrict::shared::cluster.cluster");
	b->i->option = FENCE_SHARED;
	b->i->traits = EMU_NEAR_FENCE;
	b->i->vector = releases ? FENCE_RELEASES : FENCE_ACQUIRES;
	b->i->space = EMU_SCOPE_CLUSTER;
	return emu_arguments(b, 0, 0);
}

/* i->space becomes the scope; EMU_SCOPE_NONE is any wider than the cluster. */
static bool bind_fence(struct emu_bind *b, uint32_t option)
{
	b->i->run = run_fence;
	b->i->option = option;
	b->i->space = emu_has(b, "cta")	      ? EMU_SCOPE_CTA
		      : emu_has(b, "cluster") ? EMU_SCOPE_CLUSTER
					      : EMU_SCOPE_NONE;
	if (emu_has(b, "cta") || emu_has(b, "shared::cta") ||
	    emu_has(b, "async.shared::cta"))
		b->i->traits = EMU_NEAR_FENCE;
	return emu_arguments(b, 0, 0);
}

bool emu_bind_fence(struct emu_bind *b)
{
	if (emu_has(b, "sync_restrict::shared::cta") ||
	    emu_has(b, "sync_restrict::shared::cluster")) {
		b->i->run = run_fence;
		return bind_restricted_fence(b);
	}
	b->i->vector = (emu_has(b, "release") ? 0 : FENCE_ACQUIRES) |
		       (emu_has(b, "acquire") ? 0 : FENCE_RELEASES);
	return bind_fence(b, FENCE_MEMORY);
}

bool emu_bind_fence_init(struct emu_bind *b)
{
	return bind_fence(b, FENCE_INIT);
}

bool emu_bind_fence_proxy(struct emu_bind *b)
{
	return bind_fence(b, FENCE_PROXY);
}
