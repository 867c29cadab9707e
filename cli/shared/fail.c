/* SPDX-License-Identifier: Apache-2.0 */
/* fail.c - errors of the library as messages and exit codes: see fail.h. */
#include <string.h>

#include "fail.h"
#include "message.h"
#include "stop.h"

/* The entry of names for the argument of err; an empty one without. */
static struct cli_name find_name(const struct nib_error *err,
				 const struct cli_name *names)
{
	for (; names && names->argument; names++)
		if (*err->argument && !strcmp(names->argument, err->argument))
			return *names;
	return (struct cli_name){0};
}

static int fail(const char *what, const struct nib_error *err,
		const struct cli_name *names, int io_code)
{
	static const int codes[] = {
	    [NIB_STATUS_OK] = CLI_OK,
	    [NIB_STATUS_BAD_ARGUMENT] = CLI_USAGE,
	    [NIB_STATUS_UNSUPPORTED] = CLI_FAILED,
	    [NIB_STATUS_OUT_OF_MEMORY] = CLI_FAILED,
	    [NIB_STATUS_NO_DEVICE] = CLI_FAILED,
	    [NIB_STATUS_BAD_DATA] = CLI_INPUT,
	    [NIB_STATUS_BAD_FILE] = CLI_INPUT,
	    [NIB_STATUS_DEVICE_FAILED] = CLI_FAILED,
	};
	int code = err->status == NIB_STATUS_IO ? io_code : codes[err->status];
	const struct cli_name name = find_name(err, names);
	const char *text = err->message;
	size_t n = what ? strlen(what) : 0;

	/* The error may come from zeros that stand for what is gone. */
	if (cli_must_stop())
		return cli_stopped();
	/* A message begins with its argument: "threads = 9: must be ...". */
	if (name.option) {
		text += strlen(err->argument);
		text += strncmp(text, " = ", 3) ? 0 : 3;
	}
	/* Errors of files begin with the path themselves. */
	if (n && !strncmp(text, what, n) && text[n] == ':')
		n = 0;
	return cli_error((enum cli_exit)code, "%s%s%s%s%s%s (%s)", n ? what : "",
			 n ? ": " : "", name.option ? name.option : "",
			 name.option ? " " : "", text, name.advice ? name.advice : "",
			 nib_status_name(err->status));
}

int cli_fail(const char *what, const struct nib_error *err)
{
	return fail(what, err, NULL, CLI_FAILED);
}

int cli_fail_input(const char *what, const struct nib_error *err)
{
	return fail(what, err, NULL, CLI_INPUT);
}

int cli_fail_named(const char *what, const struct nib_error *err,
		   const struct cli_name *names)
{
	return fail(what, err, names, CLI_FAILED);
}

const struct cli_name cli_saturate_names[] = {{"x", NULL, ", or give --saturate"}, {0}};
