/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.h - plants bugs in a kernel, to see whether a test notices.  A rule
 * "text=>other" changes every line of a module that has the text, or with
 * "text=>other#n" only the nth of them; with nothing after => the line goes.
 * A newline ends a rule, and the next one sees what it has changed.  Lines keep
 * their numbers.
 */
#ifndef EMU_REPLACE_H
#define EMU_REPLACE_H

#include "hardware/emu.h"

/* The changed copy of a module's text, for free(); NULL with err. */
char *emu_replace(const char *text, const char *rule, struct emu_error *err);

#endif
