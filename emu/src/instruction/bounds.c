/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounds.c - see bounds.h.  The order of instructions does not matter here: what a
 * register may hold is joined over all instructions that write it, until nothing
 * changes.
 */
#include "instruction/bounds.h"

#include <stdlib.h>
#include <string.h>

#include "ptx/bind.h"

/* What a register holds: nothing yet, an integer, the address of variable k plus an
 * integer (FIRST + k), or anything. */
enum { NOTHING, INTEGER, FIRST, ANYTHING = UINT16_MAX };

static bool is_named(const struct emu_instr *i, const char *name)
{
	return strcmp(i->opcode->name, name) == 0;
}

/* The variable that begins at an offset; ANYTHING: none. */
static uint16_t variable_at(const struct emu_kernel *k, int64_t offset)
{
	for (uint32_t n = 0; n < k->n_shared && FIRST + n < ANYTHING; n++)
		if (k->shared[n].offset == offset)
			return (uint16_t)(FIRST + n);
	return ANYTHING;
}

static uint16_t join(uint16_t a, uint16_t b)
{
	return a == NOTHING || a == b ? b : b == NOTHING ? a : ANYTHING;
}

/* What a + b holds. */
static uint16_t sum(uint16_t a, uint16_t b)
{
	if (a == NOTHING || b == NOTHING)
		return NOTHING;
	return a == INTEGER ? b : b == INTEGER ? a : ANYTHING;
}

/* The variable whose address a mov or cvta stores in a register; NOTHING: none. */
static uint16_t source_of(const struct emu_kernel *k, const struct emu_instr *i)
{
	const struct emu_value *from;

	if (i->operands != 2 || (!is_named(i, "mov") && !is_named(i, "cvta")))
		return NOTHING;
	from = &i->operand[1];
	if (from->bank != EMU_REGISTERS || from->reg != EMU_NO_REGISTER ||
	    (from->row != emu_special_row(EMU_SHARED_BASE) &&
	     from->row != emu_special_row(EMU_SHARED_BASE_64)))
		return NOTHING;
	return variable_at(k, i->immediate & (int64_t)~EMU_SHARED_WINDOW);
}

static uint16_t held(const uint16_t *holds, const struct emu_value *v)
{
	return v->reg == EMU_NO_REGISTER ? INTEGER : holds[v->reg];
}

/* True if a source of the instruction may be an address. */
static bool takes_address(const struct emu_instr *i, const uint16_t *holds)
{
	for (uint32_t n = 0; n < i->operands; n++)
		if (!i->operand[n].is_written && held(holds, &i->operand[n]) > INTEGER)
			return true;
	return false;
}

/* What an instruction writes. */
static uint16_t result_of(const struct emu_kernel *k, const struct emu_instr *i,
			  const uint16_t *holds)
{
	const struct emu_value *o = i->operand;
	const uint16_t source = source_of(k, i);

	if (source != NOTHING)
		return source;
	if (i->operands == 2 &&
	    (is_named(i, "mov") || is_named(i, "cvt") || is_named(i, "cvta")))
		return held(holds, &o[1]);
	if (i->operands == 3 && is_named(i, "add"))
		return sum(held(holds, &o[1]), held(holds, &o[2]));
	if (i->operands == 3 && is_named(i, "sub") && held(holds, &o[2]) <= INTEGER)
		return sum(held(holds, &o[1]), held(holds, &o[2]));
	if (i->operands == 4 && (is_named(i, "mad.lo") || is_named(i, "mad.wide")) &&
	    held(holds, &o[1]) <= INTEGER && held(holds, &o[2]) <= INTEGER)
		return sum(held(holds, &o[3]), INTEGER);
	if (i->operands == 4 && is_named(i, "selp"))
		return join(held(holds, &o[1]), held(holds, &o[2]));
	return takes_address(i, holds) ? ANYTHING : INTEGER;
}

/* Joins what the instruction writes to its registers; true if one has changed. */
static bool propagate(const struct emu_kernel *k, const struct emu_instr *i,
		      uint16_t *holds)
{
	bool has_changed = false;

	for (uint32_t n = 0; n < i->operands; n++) {
		const uint32_t reg = i->operand[n].reg;
		uint16_t now;

		if (!i->operand[n].is_written || reg == EMU_NO_REGISTER)
			continue;
		now = join(holds[reg], result_of(k, i, holds));
		has_changed = has_changed || now != holds[reg];
		holds[reg] = now;
	}
	return has_changed;
}

static bool has_address(const struct emu_instr *i)
{
	return (i->space == EMU_SHARED || i->space == EMU_GENERIC) &&
	       (is_named(i, "ld") || is_named(i, "st") || is_named(i, "atom") ||
		is_named(i, "red"));
}

/* The operand with the address. */
static const struct emu_value *address_of(const struct emu_instr *i)
{
	return &i->operand[is_named(i, "ld")	 ? i->vector
			   : is_named(i, "atom") ? i->vector
						 : 0];
}

void emu_find_bounds(struct emu_kernel *k)
{
	uint32_t registers = 0;
	bool has_changed = false;
	uint16_t *holds;

	for (uint32_t n = 0; n < k->count; n++) {
		const struct emu_instr *i = &k->code[n];

		has_changed = has_changed || source_of(k, i) != NOTHING;
		for (uint32_t m = 0; m < i->operands; m++)
			if (i->operand[m].reg != EMU_NO_REGISTER &&
			    i->operand[m].reg >= registers)
				registers = i->operand[m].reg + 1;
	}
	if (!k->n_shared || !has_changed)
		return;
	holds = calloc(registers + 1u, sizeof(*holds));
	while (holds && has_changed) {
		has_changed = false;
		for (uint32_t n = 0; n < k->count; n++)
			has_changed = propagate(k, &k->code[n], holds) || has_changed;
	}
	for (uint32_t n = 0; holds && n < k->count; n++) {
		struct emu_instr *i = &k->code[n];
		const uint16_t at = has_address(i) ? held(holds, address_of(i)) : 0;

		i->variable = at >= FIRST && at < ANYTHING ? at - FIRST + 1 : 0;
	}
	free(holds);
}
