/* SPDX-License-Identifier: Apache-2.0 */
/* access.c - see access.h. */
#include "machine/access.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hardware/memory.h"
#include "machine/report.h"
#include "machine/title.h"
#include "machine/watch.h"

void emu_offset_addresses(const struct emu_warp *w, const struct emu_value *base,
			  int64_t offset, uint64_t *to)
{
	emu_get_wide(w, base, to);
	if (base->bytes == 8)
		EMU_EACH_LANE(l) to[l] += (uint64_t)offset;
	else
		EMU_EACH_LANE(l) to[l] = (uint32_t)(to[l] + (uint64_t)offset);
}

void emu_addresses(const struct emu_warp *w, const struct emu_instr *i,
		   const struct emu_value *base, uint64_t *to)
{
	emu_offset_addresses(w, base, i->immediate, to);
}

struct emu_space *emu_shared_at(const struct emu_cluster *c, uint64_t address,
				uint64_t *at)
{
	const uint64_t rank = address >> EMU_RANK_SHIFT;

	if (rank >= c->n_ctas)
		return NULL;
	*at = address & ((1u << EMU_RANK_SHIFT) - 1);
	return &c->ctas[rank].shared;
}

/* ---- reports ------------------------------------------------------------- */

void emu_describe_address(const struct emu_warp *w, enum emu_state_space space,
			  uint64_t address, char *text, size_t size)
{
	const struct emu_cluster *c = w->cta->cluster;

	if (space == EMU_GENERIC && address & EMU_SHARED_WINDOW) {
		space = EMU_SHARED_CLUSTER;
		address &= ~EMU_SHARED_WINDOW;
	}
	if (space == EMU_GENERIC && address & EMU_LOCAL_WINDOW) {
		space = EMU_LOCAL;
		address &= ~EMU_LOCAL_WINDOW;
	}
	if (space == EMU_LOCAL) {
		snprintf(text, size, "local offset %" PRIu64 " of %u", address,
			 c->grid->kernel->local_bytes);
	} else if (space == EMU_SHARED_CLUSTER &&
		   address >> EMU_RANK_SHIFT >= c->n_ctas) {
		snprintf(text, size,
			 "shared memory offset %" PRIu64 " of CTA rank %" PRIu64
			 " of a cluster of %u",
			 address & ((1u << EMU_RANK_SHIFT) - 1),
			 address >> EMU_RANK_SHIFT, c->n_ctas);
	} else if (space == EMU_SHARED || space == EMU_SHARED_CLUSTER) {
		snprintf(text, size,
			 "shared memory offset %" PRIu64 " of CTA rank %" PRIu64
			 " (it has %u to %" PRIu64 ")",
			 address & ((1u << EMU_RANK_SHIFT) - 1),
			 address >> EMU_RANK_SHIFT, EMU_SHARED_RESERVED,
			 w->cta->shared.bytes - 1);
	} else {
		const int used = snprintf(text, size, "0x%" PRIx64 ", ", address);

		if (used > 0 && (size_t)used < size)
			emu_memory_describe(emu_machine_of(w)->memory, address,
					    text + used, size - (size_t)used);
	}
}

/* A sentence about the part of the required state that is missing. */
static const char *complaint(const uint8_t *shadow, uint32_t bytes,
			     enum emu_access_kind kind)
{
	uint8_t all = 0xFF, any = 0;

	for (uint32_t i = 0; i < bytes; i++) {
		all &= shadow[i];
		any |= shadow[i];
	}
	if (!(all & EMU_MAPPED))
		return "these bytes are not allocated";
	if (any & EMU_LANDING)
		return kind == EMU_WRITE
			   ? "an asynchronous copy is writing there, and has "
			     "not been waited for"
			   : "an asynchronous copy is going to write these "
			     "bytes, and has not been waited for";
	if (any & EMU_BARRIER)
		return "these bytes belong to a live mbarrier";
	return "these bytes were never written";
}

/* Reports an access.  True if the launch continues nevertheless. */
static bool report(struct emu_warp *w, const struct emu_instr *i, int lane,
		   enum emu_state_space space, uint64_t address, uint32_t bytes,
		   enum emu_access_kind kind, const char *why)
{
	char where[200];

	emu_describe_address(w, space, address, where, sizeof(where));
	return emu_object(w, i, lane, "%s of %u bytes at %s: %s",
			  kind == EMU_WRITE ? "store" : "load", bytes, where, why);
}

/* ---- the way to memory --------------------------------------------------- */

/* The space and the offset in it; NULL: no memory has such an address. */
static const struct emu_space *find(const struct emu_warp *w, int lane,
				    enum emu_state_space space, uint64_t address,
				    uint64_t *at)
{
	const struct emu_cluster *c = w->cta->cluster;

	if (space == EMU_GENERIC) {
		if (address & EMU_SHARED_WINDOW) {
			space = EMU_SHARED_CLUSTER;
			address &= ~EMU_SHARED_WINDOW;
		} else if (address & EMU_LOCAL_WINDOW) {
			space = EMU_LOCAL;
			address &= ~EMU_LOCAL_WINDOW;
		}
	}
	switch (space) {
	case EMU_SHARED:
		if (address >> EMU_RANK_SHIFT != w->cta->rank)
			return NULL;
		*at = address & ((1u << EMU_RANK_SHIFT) - 1);
		return &w->cta->shared;
	case EMU_SHARED_CLUSTER:
		return emu_shared_at(c, address, at);
	case EMU_LOCAL:
		if (address >= c->grid->kernel->local_bytes)
			return NULL;
		*at = (uint64_t)lane * c->grid->kernel->local_bytes + address;
		return &w->local;
	default:
		*at = address - c->grid->machine->global.base;
		return &c->grid->machine->global;
	}
}

/* True for shared memory of a CTA whose threads have all exited. */
static bool has_ended(const struct emu_warp *w, const struct emu_space *s)
{
	const struct emu_cluster *c = w->cta->cluster;

	if (s == &w->cta->shared || s == &c->grid->machine->global)
		return false;
	for (uint32_t k = 0; k < c->n_ctas; k++)
		if (s == &c->ctas[k].shared)
			return c->ctas[k].n_live == 0;
	return false;
}

/* True if (shadow & mask) == want for all bytes. */
static bool has_state(const uint8_t *shadow, uint32_t bytes, uint8_t mask, uint8_t want)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);
	uint64_t x;
	uint32_t four;

	if (bytes == 4) {
		memcpy(&four, shadow, sizeof(four));
		return (four & (uint32_t)ones * mask) == (uint32_t)ones * want;
	}
	if (bytes < 8) {
		for (uint32_t i = 0; i < bytes; i++)
			if ((shadow[i] & mask) != want)
				return false;
		return true;
	}
	for (uint32_t i = 0; i < bytes; i += 8) {
		memcpy(&x, shadow + i, sizeof(x));
		if ((x & ones * mask) != ones * want)
			return false;
	}
	return true;
}

const uint8_t emu_nothing[32];

/* ---- the lanes of a warp ------------------------------------------------- */

/* The addresses of a warp's access, if all are valid and in one state space. */
struct lanes_access {
	const struct emu_space *space;
	uint64_t base, limit; /* of the addresses that they may have */
	uint64_t lane_bytes;  /* of local memory; else 0 */
	uint64_t at[EMU_LANES];
	bool is_row; /* all lanes, and each after the one before */
	bool is_one; /* all lanes at one place */
};

/* Finds the memory by the address of one lane; false: emu_access() must be called. */
static bool find_space(const struct emu_warp *w, const struct emu_instr *i,
		       uint64_t address, struct lanes_access *to)
{
	const struct emu_machine *m = w->cta->cluster->grid->machine;
	enum emu_state_space space = (enum emu_state_space)i->space;
	const struct emu_parameter *v;

	*to = (struct lanes_access){.base = 0};
	if (space == EMU_GENERIC && address & EMU_SHARED_WINDOW) {
		space = EMU_SHARED;
		to->base = EMU_SHARED_WINDOW;
	} else if (space == EMU_GENERIC && address & EMU_LOCAL_WINDOW) {
		space = EMU_LOCAL;
		to->base = EMU_LOCAL_WINDOW;
	}
	if (space == EMU_SHARED || space == EMU_SHARED_CLUSTER) {
		to->space = &w->cta->shared;
		to->base |= (uint64_t)w->cta->rank << EMU_RANK_SHIFT;
		to->limit = w->cta->shared.bytes;
		if (!i->variable)
			return true;
		v = &w->cta->cluster->grid->kernel->shared[i->variable - 1];
		to->base += v->offset;
		to->limit = v->bytes;
	} else if (space == EMU_LOCAL) {
		to->space = &w->local;
		to->lane_bytes = to->limit = w->cta->cluster->grid->kernel->local_bytes;
	} else {
		to->space = &m->global;
		to->base = m->global.base;
		to->limit = m->global.bytes;
		return !m->order || m->races || m->reads;
	}
	return true;
}

/* The offsets of the lanes from the base; false if one is out of range. */
EMU_FAST static bool find_places(const uint64_t *address, uint32_t lanes,
				 uint32_t bytes, struct lanes_access *to)
{
	const uint64_t base = to->base, last = to->limit - bytes;
	uint64_t bad = 0, other = 0, others = 0;

	EMU_EACH_LANE(l)
	{
		const uint64_t at = address[l] - base;
		const uint64_t is_bad = (at > last) | ((address[l] & (bytes - 1)) != 0);

		to->at[l] = at;
		bad |= is_bad & (lanes >> l & 1);
		other |= at ^ (to->at[0] + (uint64_t)l * bytes);
		others |= at ^ to->at[0];
	}
	to->is_row = !other && lanes == UINT32_MAX && !to->lane_bytes;
	to->is_one = !others && !to->lane_bytes;
	return !bad && bytes <= to->limit;
}

/* has_state() for a row: `bytes` is a multiple of 32. */
EMU_FAST static bool has_row_state(const uint8_t *shadow, uint32_t bytes, uint8_t mask,
				   uint8_t want)
{
	uint8_t bad = 0;

	for (uint32_t k = 0; k < bytes; k += EMU_LANES)
		EMU_EACH_LANE(l)
	bad |= (shadow[k + (uint32_t)l] & mask) ^ want;
	return !bad;
}

/*
 * Finds where the lanes access memory.  True if all have the state that they need,
 * (shadow & mask) == want; else emu_access() must be called for each.
 */
static bool are_plain(const struct emu_warp *w, const struct emu_instr *i,
		      uint32_t lanes, const uint64_t *address, uint32_t bytes,
		      uint8_t mask, uint8_t want, struct lanes_access *to)
{
	const struct emu_space *s;
	uint64_t offset;

	if (!lanes || !find_space(w, i, address[__builtin_ctz(lanes)], to) ||
	    !find_places(address, lanes, bytes, to))
		return false;
	s = to->space;
	if (s == &w->cta->shared) {
		offset = to->base & ((1u << EMU_RANK_SHIFT) - 1);
		EMU_EACH_LANE(l) to->at[l] += offset;
	}
	EMU_EACH_LANE(l) to->at[l] += (uint64_t)l * to->lane_bytes;
	if (to->is_row)
		return has_row_state(s->shadow + to->at[0], EMU_LANES * bytes, mask,
				     want);
	if (to->is_one)
		lanes = 1;
	for (; lanes; lanes &= lanes - 1)
		if (!has_state(s->shadow + to->at[__builtin_ctz(lanes)], bytes, mask,
			       want))
			return false;
	return true;
}

/* Reports plain accesses to the checkers; false: nothing was done, or after a fault. */
static bool watch_plain(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
			const uint64_t *address, uint32_t bytes,
			const struct lanes_access *a, uint8_t (*value)[32])
{
	if (a->space == &w->local)
		return true;
	if (a->space == &w->cta->shared)
		return emu_watch_shared(w, i, lanes, a->at, bytes, value);
	/* Parameters do not change. */
	if (i->space == EMU_PARAM)
		return true;
	if (emu_machine_of(w)->races)
		return emu_watch_lanes(w, i, lanes, address, bytes, value);
	return !emu_machine_of(w)->order ||
	       (!value && emu_watch_look(w, i, lanes, address, bytes));
}

bool emu_plain_loads(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, const uint8_t **from)
{
	struct lanes_access a;

	if (!are_plain(w, i, lanes, address, bytes,
		       EMU_MAPPED | EMU_WRITTEN | EMU_LANDING | EMU_BARRIER,
		       EMU_MAPPED | EMU_WRITTEN, &a))
		return false;
	EMU_EACH_LANE(l)
	from[l] = lanes >> l & 1 ? a.space->data + a.at[l] : emu_nothing;
	return watch_plain(w, i, lanes, address, bytes, &a, NULL);
}

/* Writes the lanes' bytes, of a size that the compiler knows. */
static inline void put_lanes(const struct lanes_access *a, uint32_t lanes,
			     uint8_t (*value)[32], uint32_t bytes)
{
	for (; lanes; lanes &= lanes - 1) {
		const int l = __builtin_ctz(lanes);

		memset(a->space->shadow + a->at[l],
		       EMU_MAPPED | EMU_WRITTEN | EMU_UNFENCED, bytes);
		memcpy(a->space->data + a->at[l], value[l], bytes);
	}
}

/* Plain stores of all lanes; false: nothing was done, or after a fault. */
static bool store_plain(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
			const uint64_t *address, uint32_t bytes, uint8_t (*value)[32])
{
	struct lanes_access a;

	if (i->space == EMU_PARAM || i->space == EMU_CONST ||
	    !are_plain(w, i, lanes, address, bytes,
		       EMU_MAPPED | EMU_LANDING | EMU_BARRIER, EMU_MAPPED, &a) ||
	    !watch_plain(w, i, lanes, address, bytes, &a, value))
		return false;
	if (bytes == 4)
		put_lanes(&a, lanes, value, 4);
	else if (bytes == 16)
		put_lanes(&a, lanes, value, 16);
	else
		put_lanes(&a, lanes, value, bytes);
	return true;
}

bool emu_plain_atomics(const struct emu_warp *w, const struct emu_instr *i,
		       uint32_t lanes, const uint64_t *address, uint32_t bytes,
		       uint8_t **at)
{
	struct lanes_access a;

	if (!are_plain(w, i, lanes, address, bytes,
		       EMU_MAPPED | EMU_WRITTEN | EMU_LANDING | EMU_BARRIER,
		       EMU_MAPPED | EMU_WRITTEN, &a) ||
	    a.space != &w->cta->shared)
		return false;
	for (; lanes; lanes &= lanes - 1) {
		const int l = __builtin_ctz(lanes);

		memset(a.space->shadow + a.at[l],
		       EMU_MAPPED | EMU_WRITTEN | EMU_UNFENCED, bytes);
		at[l] = a.space->data + a.at[l];
	}
	return true;
}

/* ---- one lane ------------------------------------------------------------ */

/* True unless the access leaves the shared variable to which its address belongs, and
 * the launch ends with that report. */
static bool is_in_variable(struct emu_warp *w, const struct emu_instr *i, int lane,
			   uint64_t at, uint32_t bytes, enum emu_access_kind kind)
{
	const struct emu_parameter *v =
	    &w->cta->cluster->grid->kernel->shared[i->variable - 1];

	if (at >= v->offset && at + bytes <= (uint64_t)v->offset + v->bytes)
		return true;
	return emu_object(
	    w, i, lane,
	    "%s of %u bytes at shared memory offset %" PRIu64
	    ": its address is computed from the variable %.100s, and the variable has "
	    "the offsets %u to %u",
	    kind == EMU_WRITE ? "store" : "load", bytes, at, emu_title_of(v->name),
	    v->offset, v->offset + v->bytes - 1);
}

/* value: of the bytes of a store; NULL: not known. */
static uint8_t *access_bytes(struct emu_warp *w, const struct emu_instr *i, int lane,
			     enum emu_state_space space, uint64_t address,
			     uint32_t bytes, enum emu_access_kind kind,
			     const void *value, uint8_t **shadow_out)
{
	static const uint8_t masks[] = {
	    [EMU_READ] = EMU_MAPPED | EMU_WRITTEN | EMU_LANDING | EMU_BARRIER,
	    [EMU_WRITE] = EMU_MAPPED | EMU_LANDING | EMU_BARRIER,
	    [EMU_COPY] = EMU_MAPPED | EMU_LANDING | EMU_BARRIER,
	    [EMU_PEEK] = EMU_MAPPED,
	};
	const uint8_t want = kind == EMU_READ ? EMU_MAPPED | EMU_WRITTEN : EMU_MAPPED;
	uint64_t at = 0;
	const struct emu_space *s = find(w, lane, space, address, &at);
	uint8_t *shadow;

	if (address & (bytes - 1)) {
		(void)report(w, i, lane, space, address, bytes, kind,
			     "the address is not a multiple of the size");
		return NULL;
	}
	if (!s || at >= s->bytes || bytes > s->bytes - at) {
		(void)report(w, i, lane, space, address, bytes, kind,
			     "these bytes are not allocated");
		return NULL;
	}
	if (i->variable && s == &w->cta->shared &&
	    !is_in_variable(w, i, lane, at, bytes, kind))
		return NULL;
	if (w->cta->cluster->n_ctas > 1 && has_ended(w, s)) {
		(void)report(w, i, lane, space, address, bytes, kind,
			     "that CTA has ended");
		return NULL;
	}
	shadow = s->shadow + at;
	if (!has_state(shadow, bytes, masks[kind], want) &&
	    !report(w, i, lane, space, address, bytes, kind,
		    complaint(shadow, bytes, kind)))
		return NULL;
	if (kind <= EMU_WRITE &&
	    !emu_watch_access(w, i, lane, s, at, bytes, kind == EMU_WRITE, value))
		return NULL;
	if (kind == EMU_WRITE)
		memset(shadow, EMU_MAPPED | EMU_WRITTEN | EMU_UNFENCED, bytes);
	if (shadow_out)
		*shadow_out = shadow;
	return s->data + at;
}

uint8_t *emu_access(struct emu_warp *w, const struct emu_instr *i, int lane,
		    enum emu_state_space space, uint64_t address, uint32_t bytes,
		    enum emu_access_kind kind, uint8_t **shadow)
{
	return access_bytes(w, i, lane, space, address, bytes, kind, NULL, shadow);
}

bool emu_load_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		    const uint64_t *address, uint32_t bytes, const uint8_t **from)
{
	const enum emu_state_space space = (enum emu_state_space)i->space;

	if (emu_plain_loads(w, i, lanes, address, bytes, from))
		return true;
	if (emu_machine_of(w)->has_failed)
		return false;
	EMU_EACH_LANE(l)
	{
		from[l] = emu_nothing;
		if (lanes >> l & 1)
			from[l] = emu_access(w, i, l, space, address[l], bytes,
					     EMU_READ, NULL);
		if (!from[l])
			return false;
	}
	return true;
}

bool emu_store_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		     const uint64_t *address, uint32_t bytes, uint8_t (*value)[32])
{
	if (store_plain(w, i, lanes, address, bytes, value))
		return true;
	for (; lanes && !emu_machine_of(w)->has_failed; lanes &= lanes - 1) {
		const int l = __builtin_ctz(lanes);
		uint8_t *to =
		    access_bytes(w, i, l, (enum emu_state_space)i->space, address[l],
				 bytes, EMU_WRITE, value[l], NULL);

		if (!to)
			return false;
		memcpy(to, value[l], bytes);
	}
	return !emu_machine_of(w)->has_failed;
}
