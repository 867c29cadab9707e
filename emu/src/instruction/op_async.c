/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_async.c - st.async and red.async: a thread writes values to the shared memory of
 * a CTA of the cluster, and an mbarrier there counts their bytes.  These writes belong
 * to the generic proxy, so threads access the bytes without a proxy fence.
 */
#include <string.h>

#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/transfer.h"
#include "machine/warp.h"
#include "machine/watch.h"

#define MOST_BYTES 16

/* The bytes of all values of a lane: a power of two. */
static uint32_t bytes_of(const struct emu_instr *i)
{
	return i->vector * (uint32_t)emu_type_bytes((enum emu_type)i->type);
}

/* Option 0 is a store; otherwise a reduction, encoded as for cp.reduce.async.bulk. */
static bool send(struct emu_warp *w, const struct emu_instr *i, int lane,
		 const uint8_t *value, uint64_t to, uint64_t barrier)
{
	const uint32_t bytes = bytes_of(i);
	struct emu_piece p = {.bytes = bytes, .copied = bytes, .lane = (uint8_t)lane};
	struct emu_transfer *t;

	p.to = emu_access(w, i, lane, EMU_SHARED_CLUSTER, to, bytes, EMU_COPY,
			  &p.to_shadow);
	t = p.to ? emu_transfer_new_load(w, i, lane, to, bytes, barrier) : NULL;
	if (!t)
		return false;
	if (i->option) {
		t->reduces = true;
		t->reduction = (struct emu_reduction){
		    (enum emu_reduction_operation)((i->option >> EMU_OPERATION_AT) - 1),
		    (enum emu_reduction_type)i->type2};
	}
	return emu_transfer_send(t, value, &p);
}

/* Checks that data and mbarrier are in the same CTA and that the data is aligned. */
static bool check_places(struct emu_warp *w, const struct emu_instr *i, int lane,
			 uint64_t to, uint64_t barrier)
{
	const uint32_t bytes = bytes_of(i);

	if (to >> EMU_RANK_SHIFT != barrier >> EMU_RANK_SHIFT)
		emu_fault(w, i, lane,
			  "the data and the mbarrier are in different CTAs: "
			  "the bytes are counted where they land");
	else if (to & (bytes - 1))
		emu_fault(w, i, lane, "the store to 0x%llx is misaligned: %u bytes",
			  (unsigned long long)to, bytes);
	else
		return true;
	return false;
}

static void run_async(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t bytes = (uint32_t)emu_type_bytes((enum emu_type)i->type);
	uint64_t to[EMU_LANES], barrier[EMU_LANES], value[4][EMU_LANES];

	emu_offset_addresses(w, &i->operand[0], i->immediate, to);
	for (uint32_t e = 0; e < i->vector; e++)
		emu_get_wide(w, &i->operand[1 + e], value[e]);
	emu_offset_addresses(w, &i->operand[1 + i->vector], i->offset[0], barrier);
	EMU_EACH_LANE(l)
	{
		uint8_t sent[MOST_BYTES];

		if (!(lanes >> l & 1))
			continue;
		for (uint32_t e = 0; e < i->vector; e++)
			memcpy(sent + e * bytes, &value[e][l], bytes);
		if (!check_places(w, i, l, to[l], barrier[l]) ||
		    !send(w, i, l, sent, to[l], barrier[l]))
			return;
	}
}

static bool bind_async(struct emu_bind *b)
{
	const struct emu_argument *a;
	uint32_t n;

	if (!emu_has(b, "shared::cluster") ||
	    !emu_has(b, "mbarrier::complete_tx::bytes") || b->n_types != 1)
		return emu_bind_fail(b, "it needs .shared::cluster, "
					".mbarrier::complete_tx::bytes and "
					"a type");
	b->i->run = run_async;
	b->i->type = (uint8_t)b->types[0];
	b->i->space = EMU_SHARED_CLUSTER;
	b->i->traits |= EMU_OF_THREADS;
	b->i->vector = emu_has(b, "v4") ? 4 : emu_has(b, "v2") ? 2 : 1;
	if (b->i->vector * emu_type_bytes(b->types[0]) > MOST_BYTES)
		return emu_bind_fail(b, "more than 16 bytes");
	if (!emu_arguments(b, 3, 3) || !emu_address(b, emu_argument(b, 0)))
		return false;
	a = emu_elements(b, emu_argument(b, 1), &n);
	if (n != b->i->vector)
		return emu_bind_fail(b, "%u registers for %u values", n, b->i->vector);
	for (uint32_t e = 0; e < n; e++)
		if (!emu_wide_src(b, &a[e], b->types[0]))
			return false;
	return emu_address(b, emu_argument(b, 2));
}

bool emu_bind_st_async(struct emu_bind *b)
{
	b->i->option = 0;
	return bind_async(b);
}

bool emu_bind_red_async(struct emu_bind *b)
{
	struct emu_reduction r;

	if (!emu_has(b, "relaxed") || !emu_has(b, "cluster"))
		return emu_bind_fail(b, "it is .relaxed.cluster");
	if (!emu_bind_reduction(b) || !emu_bind_reduction_type(b, &r))
		return false;
	b->i->traits = EMU_ATOMIC;
	if (r.type == EMU_REDUCE_U64 && r.operation != EMU_REDUCE_ADD)
		return emu_bind_fail(b, ".u64 has only .add");
	b->i->type2 = (uint8_t)r.type;
	return bind_async(b);
}
