/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - from instructions to lines of the source: .file and .loc.  An instruction
 * of a function that was inlined belongs to the line of the call, if the function is
 * of a header of CUDA.
 */
#ifndef EMU_SOURCE_H
#define EMU_SOURCE_H

#include "ptx/parse.h"

bool emu_parse_file(struct emu_parser *parser);
bool emu_parse_loc(struct emu_parser *parser);
/*
 * At the end of the module, because .file may follow the code: replaces the numbers of
 * places in source_line by lines and files.
 */
bool emu_find_source_lines(struct emu_parser *parser);

#endif
