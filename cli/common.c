/* SPDX-License-Identifier: Apache-2.0 */
/* common.c - messages, exit codes, texts and the options of every command. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "progress.h"

const char *cli_command_name = "";

const char *const cli_dtype_names[] = {"fp32", "fp16", "bf16"};
const char *const cli_layout_names[] = {"linear", "tiled"};

const struct cli_option cli_message_options[] = {
    {"quiet", OPT_FLAG, offsetof(struct cli_shared, quiet), .letter = 'q',
     .help = "no progress and no notes on standard error"},
    {0},
};

const struct cli_option cli_output_options[] = {
    {"format", OPT_CHOICE, offsetof(struct cli_shared, format),
     "text|md|csv|json|jsonl", "text",
     .help = "how to print: a table for people, or for a program"},
    {0},
};

/* ---- messages ------------------------------------------------------------ */

size_t cli_control_bytes(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	if (c[0] < 0x20 || c[0] == 0x7F)
		return c[0] != '\0';
	/* U+0080 to U+009F, U+061C */
	if ((c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) ||
	    (c[0] == 0xD8 && c[1] == 0x9C))
		return 2;
	/* U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 */
	if (c[0] == 0xE2 && ((c[1] == 0x80 && (c[2] == 0x8E || c[2] == 0x8F ||
					       (c[2] >= 0xAA && c[2] <= 0xAE))) ||
			     (c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9)))
		return 3;
	return 0;
}

void cli_clean(char *text)
{
	char *to = text;

	for (const char *c = text; *c; c++) {
		const size_t control = cli_control_bytes(c);

		*to++ = control ? '?' : *c;
		c += control ? control - 1 : 0;
	}
	*to = '\0';
}

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

int cli_no_memory(const char *what)
{
	return cli_error(CLI_FAILED, "not enough memory for the %s", what);
}

/* ---- texts and times ----------------------------------------------------- */

int cli_is_terminal(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

double cli_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *cli_size_text(double bytes, char text[CLI_SIZE_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	snprintf(text, CLI_SIZE_TEXT, unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s",
		 bytes, units[unit]);
	return text;
}

const char *cli_seconds_text(double s, char text[CLI_SECONDS_TEXT])
{
	snprintf(text, CLI_SECONDS_TEXT, "%.3f %s",
		 s < 1e-3 ? s * 1e6
		 : s < 1  ? s * 1e3
			  : s,
		 s < 1e-3 ? "us"
		 : s < 1  ? "ms"
			  : "s");
	return text;
}

const char *cli_s(int64_t n)
{
	return n == 1 ? "" : "s";
}

int cli_check_output(const char *out, const char *const *inputs, int n_inputs,
		     int force)
{
	struct stat to, from;

	if (!*out)
		return cli_error(CLI_USAGE, "the output file has no name");
	if (!strcmp(out, "-"))
		return cli_error(CLI_USAGE, "-: the output is a file, not the standard "
					    "output; ./- is one of that name");
	if (stat(out, &to)) {
		if (errno == ENOENT)
			return CLI_OK;
		return cli_error(CLI_FAILED, "%s: %s", out, strerror(errno));
	}
	for (int i = 0; i < n_inputs; i++)
		if (!stat(inputs[i], &from) && from.st_dev == to.st_dev &&
		    from.st_ino == to.st_ino)
			return cli_error(CLI_USAGE,
					 "%s and %s are the same file: nib "
					 "never overwrites its input",
					 inputs[i], out);
	if (!S_ISREG(to.st_mode))
		return cli_error(CLI_USAGE, "%s: not a regular file", out);
	if (!force)
		return cli_error(CLI_USAGE, "%s exists; --force replaces it", out);
	return CLI_OK;
}
