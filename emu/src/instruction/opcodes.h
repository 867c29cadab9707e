/* SPDX-License-Identifier: Apache-2.0 */
/* opcodes.h - the table of opcodes. */
#ifndef EMU_OPCODES_H
#define EMU_OPCODES_H

#include "ptx/bind.h"

extern const struct emu_opcode emu_opcodes[];
extern const size_t emu_opcode_count;

#endif
