/* SPDX-License-Identifier: Apache-2.0 */
/* parse_module.h - parses a text to a module. */
#ifndef EMU_PARSE_MODULE_H
#define EMU_PARSE_MODULE_H

#include "ptx/parse.h"

/*
 * Parses text (ended by a zero byte); decode turns each statement into an
 * instruction.  NULL with err, which names the line, instruction and rule.
 */
struct emu_module *emu_parse_module(const char *text, emu_decode *decode,
				    emu_place *place, void *context,
				    struct emu_error *err);

#endif
