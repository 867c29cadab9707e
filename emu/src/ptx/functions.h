/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions.h - the functions of a module by name and by address.  Code has no
 * addresses here, so a function has a number that no memory has as its address.
 */
#ifndef EMU_FUNCTIONS_H
#define EMU_FUNCTIONS_H

#include "ptx/parse.h"

/* Records where the text defines functions, before any is called. */
bool emu_find_functions(struct emu_parser *parser);
/* NULL: the module has none of this name. */
const struct emu_function *emu_function_find(const struct emu_parser *parser,
					     const char *text, size_t length);
uint64_t emu_function_address(const struct emu_parser *parser,
			      const struct emu_function *function);

#endif
