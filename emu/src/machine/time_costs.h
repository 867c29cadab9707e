/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_costs.h - the machine instructions of each PTX instruction: counts from
 * a table of the machine code of the same module (tools/sass_costs.py), or the
 * means of its opcode.
 */
#ifndef EMU_MACHINE_TIME_COSTS_H
#define EMU_MACHINE_TIME_COSTS_H

#include "machine/machine.h"

struct emu_time_costs;

/* Reads a table; NULL with an error that names the line. */
struct emu_time_costs *emu_time_costs_read(const char *path, struct emu_error *err);
void emu_time_costs_free(struct emu_time_costs *costs);
/*
 * Sets the slots of a kernel's instructions.  True if they are counts, because the
 * table has the kernel's module.  costs may be NULL.
 */
bool emu_time_costs_set(const struct emu_time_costs *costs,
			const struct emu_kernel *kernel);
/* Registers of a thread of the kernel; 0: not in the table. */
uint32_t emu_time_costs_registers(const struct emu_time_costs *costs,
				  const struct emu_kernel *kernel);

#endif
