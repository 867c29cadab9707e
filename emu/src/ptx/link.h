/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - makes one text of several modules of PTX: .extern names are those that
 * another module defines, and names that are not .visible stay apart.
 */
#ifndef EMU_LINK_H
#define EMU_LINK_H

#include "hardware/emu.h"

struct emu_link_input {
	const char *name; /* for messages */
	const char *text;
};

/*
 * The linked text, to be freed; NULL with err.  Debug data is left out, and numbers of
 * source files are changed so that lines keep their files.
 */
char *emu_link(const struct emu_link_input *inputs, size_t count,
	       struct emu_error *err);

#endif
