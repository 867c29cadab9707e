/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_unit.c - see tensor_unit.h. */
#include "machine/tensor_unit.h"

#include <stdlib.h>

#include "machine/report.h"

struct emu_tmem *emu_tmem_of(struct emu_warp *w, const struct emu_instr *i,
			     uint32_t rank)
{
	struct emu_cluster *c = w->cta->cluster;

	if (!c->tensor)
		c->tensor = calloc(1, sizeof(*c->tensor));
	if (c->tensor && !c->tensor->memory[rank])
		c->tensor->memory[rank] = calloc(1, sizeof(*c->tensor->memory[rank]));
	if (c->tensor && c->tensor->memory[rank])
		return c->tensor->memory[rank];
	emu_fault(w, i, -1, "no memory for tensor memory");
	return NULL;
}

bool emu_tmem_reach(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint32_t rank, uint32_t address, uint32_t columns)
{
	const struct emu_tmem *t = emu_tmem_of(w, i, rank);
	struct emu_error err;

	if (!t)
		return false;
	if (emu_tmem_has(t, address, columns, &err))
		return true;
	emu_fault(w, i, lane, "%s (CTA rank %u)", err.text, rank);
	return false;
}

bool emu_is_whole_warp(struct emu_warp *w, const struct emu_instr *i)
{
	if (w->live == UINT32_MAX)
		return true;
	emu_fault(w, i, -1, "lanes of the warp have exited: it needs all 32");
	return false;
}

bool emu_uniform(struct emu_warp *w, const struct emu_instr *i,
		 const struct emu_value *v, const char *what, uint32_t *value)
{
	const uint32_t *row = emu_row(w, v);

	*value = row[0];
	EMU_EACH_LANE(l)
	if (row[l] != row[0]) {
		emu_fault(w, i, l,
			  "%s differs between lanes: all 32 must have "
			  "the same",
			  what);
		return false;
	}
	return true;
}
