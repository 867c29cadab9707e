/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_report.c - nib report: rows of nib bench as one HTML page with charts. */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "report.h"
#include "rows.h"

struct report_args {
	struct cli_shared shared;
	const char *output;
	int force;
};

/* A row must say what it is of; the rest may be missing. */
static int add_row(json_t *rows, json_t *row, const char *path)
{
	if (!json_is_object(row) || !row_get_text(row, "op")[0] ||
	    !row_get_text(row, "shape")[0] || !json_object_get(row, "time_s"))
		return cli_error(CLI_INPUT,
				 "%s: row %zu is not a row of nib bench: it "
				 "needs \"op\", \"shape\" and \"time_s\"",
				 path, json_array_size(rows) + 1);
	return json_array_append(rows, row) ? cli_no_memory("rows") : CLI_OK;
}

/* A file is one array of rows, or rows one after the other (JSON lines). */
static int read_rows(json_t *rows, FILE *file, const char *path)
{
	json_error_t error;
	int code = CLI_OK, c;

	while (!code) {
		json_t *value, *row;
		size_t i;

		do
			c = getc(file);
		while (c == ' ' || c == '\n' || c == '\r' || c == '\t');
		if (c == EOF)
			break;
		ungetc(c, file);
		value = json_loadf(
		    file, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
		if (!value)
			return cli_error(CLI_INPUT, "%s:%d: %s", path, error.line,
					 error.text);
		if (!json_is_array(value))
			code = add_row(rows, value, path);
		else
			json_array_foreach(value, i, row)
			{
				code = code ? code : add_row(rows, row, path);
			}
		json_decref(value);
	}
	if (!code && ferror(file))
		code = cli_error(CLI_INPUT, "%s: %s", path, strerror(errno));
	return code;
}

static int read_file(json_t *rows, const char *path)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "r") : stdin;
	int code;

	if (!file)
		return cli_error(CLI_INPUT, "%s: %s", path, strerror(errno));
	code = read_rows(rows, file, path);
	if (file != stdin)
		fclose(file);
	return code;
}

static int run_report(const void *args_)
{
	const struct report_args *args = args_;
	char *const *files = args->shared.files;
	const int n_files = args->shared.n_files;
	json_t *rows = json_array();
	int code = cli_check_output(args->output, (const char *const *)files, n_files,
				    args->force);

	for (int i = 0; i < n_files && !code; i++)
		code = read_file(rows, files[i]);
	if (!code && !json_array_size(rows))
		code = cli_error(CLI_INPUT, "%s: no rows", files[0]);
	if (!code)
		code = report_write(args->output, rows, NULL);
	if (!code && !args->shared.quiet)
		printf("%s: %zu row%s\n", args->output, json_array_size(rows),
		       json_array_size(rows) == 1 ? "" : "s");
	json_decref(rows);
	return code;
}

#define ARG(member) offsetof(struct report_args, member)
static const struct cli_option options[] = {
    {"output", OPT_FILE, ARG(output), "FILE", "report.html", .letter = 'o',
     .help = "the page to write"},
    {"force", OPT_FLAG, ARG(force), .help = "write over a page that exists"},
    {0},
};

const struct cli_command command_report = {
    .name = "report",
    .summary = "draw the rows of nib bench as one HTML page",
    .positional = "ROWS.json...",
    .min_positional = 1,
    .max_positional = 64,
    .description =
	"Draws rows as one HTML page that needs nothing else.  The rows are what nib\n"
	"bench wrote with --format json or jsonl (- is the standard input).  Every\n"
	"row is in a chart of its speed, next to the baselines of the same shape, and\n"
	"in a table; further charts show the share of this machine's limit, the\n"
	"errors, and a roofline for each backend.\n",
    .examples = "nib bench --preset seeds --baselines --format json > rows.json\n"
		"nib report rows.json -o report.html\n",
    .groups = (const struct cli_group[]){{"Report", options, 0},
					 {"Messages", cli_message_options, 0},
					 {0}},
    .args_bytes = sizeof(struct report_args),
    .run = run_report,
};
