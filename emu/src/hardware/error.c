/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - errors as text; see emu.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "hardware/emu.h"

static const char more[] = " ...";

/*
 * Ends a text that did not fit after its last line, or else after its last whole word,
 * with the mark that there was more.
 */
static void end_early(struct emu_error *err)
{
	const size_t most = sizeof(err->text) - sizeof(more);
	char *end;

	err->text[most] = '\0';
	end = strrchr(err->text, '\n');
	if (!end)
		end = strrchr(err->text, ' ');
	memcpy(end ? end : err->text + most, more, sizeof(more));
}

static bool has_ended_early(const struct emu_error *err)
{
	const size_t used = strlen(err->text);

	return used >= sizeof(more) - 1 &&
	       strcmp(err->text + used - (sizeof(more) - 1), more) == 0;
}

bool emu_fail(struct emu_error *err, const char *format, ...)
{
	va_list arguments;

	if (!err)
		return false;
	va_start(arguments, format);
	/* clang-tidy misses va_start() in a file that is in two targets. */
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	if (vsnprintf(err->text, sizeof(err->text), format, arguments) >=
	    (int)sizeof(err->text))
		end_early(err);
	va_end(arguments);
	return false;
}

void emu_add_text(struct emu_error *err, const char *format, ...)
{
	const size_t used = strlen(err->text), left = sizeof(err->text) - used;
	va_list arguments;

	if (has_ended_early(err))
		return;
	va_start(arguments, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	if (vsnprintf(err->text + used, left, format, arguments) >= (int)left)
		end_early(err);
	va_end(arguments);
}
