/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.h - plants bugs in a kernel, to check that a test finds them.  A rule
 * "text=>other" changes every line of a module that has the text, and
 * "text=>other#n" only the nth of these lines.  With nothing after => the line is
 * removed.  A newline ends a rule, and the next rule applies to the changed text.
 * Lines keep their numbers.
 */
#ifndef EMU_REPLACE_H
#define EMU_REPLACE_H

#include "hardware/emu.h"

/* The changed copy of a module's text, for free(); NULL with err. */
char *emu_replace(const char *text, const char *rule, struct emu_error *err);
/* The number of lines in which a changed copy differs from the text. */
size_t emu_replaced_lines(const char *text, const char *copy);

#endif
