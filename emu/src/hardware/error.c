/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - errors as text; see emu.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "hardware/emu.h"

bool emu_fail(struct emu_error *err, const char *format, ...)
{
	va_list arguments;

	if (!err)
		return false;
	va_start(arguments, format);
	/* clang-tidy misses va_start() in a file that is in two targets. */
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(err->text, sizeof(err->text), format, arguments);
	va_end(arguments);
	return false;
}

void emu_add_text(struct emu_error *err, const char *format, ...)
{
	const size_t used = strlen(err->text);
	va_list arguments;

	va_start(arguments, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(err->text + used, sizeof(err->text) - used, format, arguments);
	va_end(arguments);
}
