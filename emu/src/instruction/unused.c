/* SPDX-License-Identifier: Apache-2.0 */
/* unused.c - see unused.h. */
#include "instruction/unused.h"

#include <stdlib.h>

#include "instruction/binds.h"

/* The registers that instructions read, from their operands and guards. */
static void note_reads(const struct emu_instr *i, uint8_t *is_read, uint32_t registers)
{
	for (uint32_t n = 0; n < i->operands; n++)
		if (!i->operand[n].is_written && i->operand[n].reg < registers)
			is_read[i->operand[n].reg] = 1;
	if (i->guard_reg < registers)
		is_read[i->guard_reg] = 1;
}

bool emu_find_unused(struct emu_kernel *k)
{
	uint32_t registers = 0;
	uint8_t *is_read;
	bool has_any = false;

	for (uint32_t n = 0; n < k->count; n++) {
		has_any = has_any || emu_is_exchange(&k->code[n]);
		for (uint32_t o = 0; o < k->code[n].operands; o++) {
			const uint32_t reg = k->code[n].operand[o].reg;

			if (reg != EMU_NO_REGISTER && reg >= registers)
				registers = reg + 1;
		}
	}
	if (!has_any)
		return true;
	is_read = calloc(registers + 1, 1);
	if (!is_read)
		return false;
	for (uint32_t n = 0; n < k->count; n++)
		note_reads(&k->code[n], is_read, registers);
	for (uint32_t n = 0; n < k->count; n++) {
		struct emu_instr *i = &k->code[n];

		if (emu_is_exchange(i) && (i->operand[0].reg == EMU_NO_REGISTER ||
					   !is_read[i->operand[0].reg]))
			i->option |= EMU_IGNORES_OLD;
	}
	free(is_read);
	return true;
}
