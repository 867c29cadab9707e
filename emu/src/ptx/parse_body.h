/* SPDX-License-Identifier: Apache-2.0 */
/* parse_body.h - a kernel's body. */
#ifndef EMU_PARSE_BODY_H
#define EMU_PARSE_BODY_H

#include "ptx/parse.h"

/* From '{' to the matching '}': a kernel's instructions. */
bool emu_parse_body(struct emu_parser *parser, struct emu_kernel *kernel);

#endif
