/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse_call.h - functions of a module (.func) and their calls. A call is not
 * an instruction: the function's body is parsed again at the call, with its
 * parameters in the thread's local memory.  At a call through a register the bodies of
 * all functions are parsed whose address the module uses, with such parameters.
 */
#ifndef EMU_PARSE_CALL_H
#define EMU_PARSE_CALL_H

#include "ptx/parse.h"

/* Skips a function at the module's level, from after .func. */
bool emu_skip_function(struct emu_parser *parser);
/*
 * call [(result),] name [, (arguments)], from after the word call.  guard: the
 * predicate of the call, or NULL.
 */
bool emu_parse_call(struct emu_parser *parser, const struct emu_argument *guard);
/* True inside a function: "ret" continues after the call. */
static inline bool emu_in_function(const struct emu_parser *parser)
{
	return parser->n_calls > 0;
}
/* Where "ret" of a function goes: no name of the text has a blank. */
#define EMU_RETURN_LABEL "end of function"

#endif
