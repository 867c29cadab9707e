/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - messages on standard error: see message.h. */
#include <stdarg.h>
#include <stdio.h>

#include "message.h"
#include "progress.h"
#include "text.h"

const char *cli_command_name = "";

__attribute__((format(printf, 2, 0))) static void
message(const char *kind, const char *format, va_list list)
{
	char text[8192];

	vsnprintf(text, sizeof(text), format, list);
	cli_clean(text);
	progress_hide();
	fprintf(stderr, "nib%s%s: %s%s\n", *cli_command_name ? " " : "",
		cli_command_name, kind, text);
}

int cli_error(enum cli_exit code, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	message("", format, list);
	va_end(list);
	return (int)code;
}

void cli_warn(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	message("warning: ", format, list);
	va_end(list);
}

int cli_no_memory(const char *what)
{
	return cli_error(CLI_FAILED, "not enough memory for the %s", what);
}
