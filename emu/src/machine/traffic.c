/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.c - see traffic.h. */
#include "machine/traffic.h"

#include "check/lanes.h"
#include "hardware/memory.h"
#include "machine/time.h"

static struct emu_traffic_range *range_of(struct emu_traffic *t, uint64_t begin,
					  uint64_t bytes)
{
	for (uint32_t k = 0; k < t->n_ranges; k++)
		if (t->ranges[k].begin == begin) {
			t->last = k;
			return &t->ranges[k];
		}
	if (t->n_ranges == EMU_TRAFFIC_RANGES)
		return NULL;
	t->last = t->n_ranges++;
	t->ranges[t->last].begin = begin;
	t->ranges[t->last].bytes = bytes;
	return &t->ranges[t->last];
}

static struct emu_traffic_range *find(struct emu_traffic *t,
				      const struct emu_memory *memory, uint64_t address)
{
	struct emu_traffic_range *last = &t->ranges[t->last];
	uint64_t begin, bytes;

	if (address - last->begin < last->bytes)
		return last;
	return emu_memory_find(memory, address, &begin, &bytes)
		   ? range_of(t, begin, bytes)
		   : NULL;
}

void emu_traffic_count(struct emu_warp *w, enum emu_traffic_kind kind, uint64_t address,
		       uint64_t bytes)
{
	const struct emu_grid *g = w->cta->cluster->grid;
	struct emu_traffic *t = g->traffic;
	struct emu_traffic_range *range;

	if (!t || bytes == 0 || address - g->parameters < g->kernel->parameter_bytes)
		return;
	t->bytes[kind] += bytes;
	range = find(t, g->machine->memory, address);
	if (!range)
		return;
	if (kind == EMU_TRAFFIC_STORE)
		range->stored += bytes;
	else
		range->loaded += bytes;
}

/* True if a lane before l has the same address. */
static bool is_repeat(uint32_t lanes, const uint64_t *address, int l)
{
	for (int k = 0; k < l; k++)
		if (lanes >> k & 1 && address[k] == address[l])
			return true;
	return false;
}

void emu_traffic_lanes(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		       const uint64_t *address, uint32_t bytes,
		       enum emu_traffic_kind kind)
{
	if (kind == EMU_TRAFFIC_LOAD || kind == EMU_TRAFFIC_STORE)
		emu_time_access(w, i, lanes, address, bytes, kind == EMU_TRAFFIC_STORE);
	if (!w->cta->cluster->grid->traffic ||
	    (i->space != EMU_GLOBAL && i->space != EMU_GENERIC))
		return;
	if (!(address[0] & (EMU_SHARED_WINDOW | EMU_LOCAL_WINDOW)) &&
	    emu_is_row(lanes, address, bytes)) {
		emu_traffic_count(w, kind, address[0], (uint64_t)EMU_LANES * bytes);
		return;
	}
	EMU_EACH_LANE(l)
	{
		if (lanes >> l & 1 &&
		    !(address[l] & (EMU_SHARED_WINDOW | EMU_LOCAL_WINDOW)) &&
		    !is_repeat(lanes, address, l))
			emu_traffic_count(w, kind, address[l], bytes);
	}
}

void emu_traffic_add(struct emu_traffic *to, const struct emu_traffic *from)
{
	for (int k = 0; k < EMU_TRAFFIC_KINDS; k++)
		to->bytes[k] += from->bytes[k];
	for (uint32_t k = 0; k < from->n_ranges; k++) {
		const struct emu_traffic_range *r = &from->ranges[k];
		struct emu_traffic_range *sum = range_of(to, r->begin, r->bytes);

		if (sum) {
			sum->loaded += r->loaded;
			sum->stored += r->stored;
		}
	}
}
