/* SPDX-License-Identifier: Apache-2.0 */
/* decode.h - parses a text to a module whose instructions can run. */
#ifndef EMU_DECODE_H
#define EMU_DECODE_H

#include "ptx/ptx.h"

/*
 * Parses and decodes text (ended by a zero byte); NULL with err, which names
 * line, instruction and rule.
 */
struct emu_module *emu_module_read(const char *text, emu_place *place, void *context,
				   struct emu_error *err);

#endif
