/* SPDX-License-Identifier: Apache-2.0 */
/* registers.h - rows for constants, and storage for registers. */
#ifndef EMU_REGISTERS_H
#define EMU_REGISTERS_H

#include "ptx/parse.h"

/* Places for registers, once all instructions are known. */
bool emu_place_registers(struct emu_builder *build, struct emu_error *err);
/* A row of one value in the constants; UINT32_MAX if there is no memory. */
uint32_t emu_constant_row(struct emu_builder *build, uint64_t value, uint32_t bytes);

/* The register of a name: its own, or the number at its end within a range %r<n>. */
bool emu_find_register(const struct emu_parser *parser, const char *text, size_t length,
		       uint32_t *reg);

#endif
