/* SPDX-License-Identifier: Apache-2.0 */
/* volatile.c - see volatile.h. */
#include "instruction/volatile.h"

#include <string.h>

#include "ptx/bind.h"

/* Instructions of a loop that polls, at most. */
#define POLL_LENGTH 32

static bool begins_with(const struct emu_instr *i, const char *name)
{
	return strncmp(i->opcode->name, name, strlen(name)) == 0;
}

/* True for instructions that may order accesses of different CTAs. */
static bool orders_global(const struct emu_instr *i)
{
	const bool is_fence =
	    begins_with(i, "membar") ||
	    (begins_with(i, "fence") && !begins_with(i, "fence.proxy") &&
	     !begins_with(i, "fence.mbarrier_init"));

	return i->traits & EMU_RELEASES || (is_fence && !(i->traits & EMU_NEAR_FENCE));
}

static bool writes(const struct emu_instr *i, uint32_t reg)
{
	for (uint32_t n = 0; n < i->operands; n++)
		if (i->operand[n].is_written && i->operand[n].reg == reg)
			return true;
	return false;
}

/* True if load `at` is in a short loop that does not change its address. */
static bool polls(const struct emu_kernel *k, uint32_t at)
{
	const uint32_t reg = k->code[at].operand[k->code[at].vector].reg;

	for (uint32_t end = at; end < k->count && end < at + POLL_LENGTH; end++) {
		const uint32_t begin = k->code[end].target;
		bool is_fixed = begin <= at && end - begin < POLL_LENGTH;

		for (uint32_t n = begin; is_fixed && n <= end; n++)
			is_fixed = reg == EMU_NO_REGISTER || !writes(&k->code[n], reg);
		if (is_fixed)
			return true;
	}
	return false;
}

void emu_find_volatile_data(struct emu_kernel *k)
{
	bool has_order = false;

	for (uint32_t n = 0; n < k->count; n++)
		has_order = has_order || orders_global(&k->code[n]);
	for (uint32_t n = 0; n < k->count; n++) {
		struct emu_instr *i = &k->code[n];

		if (i->traits & EMU_VOLATILE &&
		    ((has_order && i->space != EMU_SHARED) ||
		     (begins_with(i, "ld") && polls(k, n))))
			i->traits &= (uint8_t)~EMU_VOLATILE;
	}
}
