/* SPDX-License-Identifier: Apache-2.0 */
/* parse_variable.h - declarations of variables and parameters. */
#ifndef EMU_PARSE_VARIABLE_H
#define EMU_PARSE_VARIABLE_H

#include "ptx/parse.h"

struct emu_declaration {
	const char *text;
	size_t length;
	uint64_t align, bytes, elements;
	uint32_t element_bytes;
	bool is_open; /* name[] */
};

/* [.align n] [.v2|.v4] .type [.ptr ...] name [dimensions] */
bool emu_parse_declaration(struct emu_parser *parser,
			   struct emu_declaration *declaration);
/* .align 16 .b8 name[32] = {...}; the space's word is already taken. */
bool emu_parse_variable(struct emu_parser *parser, enum emu_state_space space,
			bool is_extern);

/* Gives addresses in the kernel to the module's .shared variables that a body uses.
 * The body's '{' is the current token. */
bool emu_place_module_shared(struct emu_parser *parser);

#endif
