/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.c - the overview, --help of a command and `nib help`, all printed from
 * the table of commands.
 */
#include <string.h>

#include "cli.h"

#define WIDTH  80
#define INDENT 28

const char *const cli_exit_codes[][2] = {
    {"0", "success, and what was looked at is good"},
    {"1", "the command worked and found something bad: a check that failed, a "
	  "layer below --min-sqnr, a problem of a file"},
    {"2", "the arguments break a rule; nothing was done"},
    {"3", "an input file cannot be read, breaks its format, gets shorter while "
	  "it is read, or holds values that cannot be used (inf, NaN)"},
    {"4", "anything else: no memory, no such device, output not written (full "
	  "disk, read-only folder, closed pipe)"},
    {"129, 130, 143", "ended by SIGHUP, SIGINT or SIGTERM; unfinished files "
		      "are removed"},
    {NULL, NULL},
};

/* Words of text from column at, wrapped and indented; returns the column. */
static int put_words(FILE *to, const char *text, int at, int indent)
{
	while (*text) {
		int n = (int)strcspn(text, " ");

		if (at > indent && at + 1 + n >= WIDTH) {
			fprintf(to, "\n%*s", indent, "");
			at = indent;
		} else if (at > indent) {
			fputc(' ', to);
			at++;
		}
		fprintf(to, "%.*s", n, text);
		at += n;
		text += n + (text[n] == ' ');
	}
	return at;
}

/* Lines of text, each after a margin. */
static void put_lines(FILE *to, const char *text, const char *margin)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		fprintf(to, "%s%.*s\n", n ? margin : "", (int)n, text);
		text += n + (text[n] == '\n');
	}
}

void cli_print_overview(FILE *to)
{
	fprintf(to,
		"nib %s - NVFP4 matrices: multiply, check, quantise, inspect\n"
		"\n"
		"usage: nib COMMAND [OPTION]... [FILE]...\n"
		"\n",
		nib_version());
	for (size_t i = 0; cli_commands[i]; i++)
		fprintf(to, "  %-12s%s\n", cli_commands[i]->name,
			cli_commands[i]->summary);
	fputs(
	    "\n"
	    "  nib help COMMAND   options and examples of a command\n"
	    "  nib --version\n"
	    "\n"
	    "First steps:\n"
	    "  nib quantize MODEL-FOLDER OUT-FOLDER     # a model to NVFP4\n"
	    "  nib inspect OUT-FOLDER                   # its layers, and likely mistakes\n"
	    "  nib verify MODEL-FOLDER OUT-FOLDER       # the error of each layer\n"
	    "  nib check --preset small                 # is the arithmetic right?\n"
	    "  nib info                                 # this machine\n",
	    to);
}

/* "a|b|c" as a wrapped list. */
static int put_list(FILE *to, const char *words, int at)
{
	char list[512];
	size_t n = 0;

	for (; *words && n < sizeof(list) - 2; words++) {
		list[n++] = *words == '|' ? ',' : *words;
		if (*words == '|')
			list[n++] = ' ';
	}
	list[n] = '\0';
	return put_words(to, list, at, INDENT);
}

static void print_option(const struct cli_option *o, FILE *to)
{
	int is_list =
	    (o->kind == OPT_WORD || o->kind == OPT_CHOICE) && strlen(o->value) > 12;
	const char *value = o->kind == OPT_FLAG ? "" : is_list ? "WORD" : o->value;
	char letter[8] = "    ", text[64];
	int at;

	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c, ", o->letter);
	at = fprintf(to, "  %s--%s%s%s", letter, o->name, *value ? " " : "", value);
	if (at + 2 > INDENT)
		fprintf(to, "\n%*s", INDENT, "");
	else
		fprintf(to, "%*s", INDENT - at, "");
	at = put_words(to, o->help, INDENT, INDENT);
	/* Long word lists go below, not into the left column. */
	if (is_list) {
		fputc(':', to);
		at = put_list(to, o->value, at + 1);
	}
	snprintf(text, sizeof(text), "[default: %s]", o->fallback);
	if (o->fallback && *o->fallback && strcmp(o->fallback, "0"))
		put_words(to, text, at, INDENT);
	else if (o->is_required)
		put_words(to, "[required]", at, INDENT);
	fputc('\n', to);
}

void cli_print_help(const struct cli_command *command, FILE *to)
{
	fprintf(to, "nib %s - %s\n\nusage: nib %s [OPTION]...%s%s\n", command->name,
		command->summary, command->name, *command->positional ? " " : "",
		command->positional);
	if (*command->description)
		fputc('\n', to);
	put_lines(to, command->description, "");
	if (*command->examples)
		fputs("\nExamples:\n", to);
	put_lines(to, command->examples, "  ");
	for (const struct cli_group *g = command->groups; g->title; g++) {
		if (*g->title)
			fprintf(to, "\n%s:\n", g->title);
		for (const struct cli_option *o = g->options; o->name; o++)
			print_option(o, to);
	}
	fprintf(to, "  -h, --help%*sthis text\n", INDENT - 12, "");
}

/* ---- nib help ------------------------------------------------------------ */

static void print_exit_codes(void)
{
	for (int i = 0; cli_exit_codes[i][0]; i++) {
		printf("%-15s", cli_exit_codes[i][0]);
		put_words(stdout, cli_exit_codes[i][1], 15, 15);
		putchar('\n');
	}
}

static int run_help(const void *args)
{
	const struct cli_shared *shared = args;
	const char *name = shared->files[0];
	const struct cli_command *command;

	if (!name) {
		cli_print_overview(stdout);
	} else if (!strcmp(name, "exit-codes")) {
		print_exit_codes();
	} else if ((command = cli_find_command(name))) {
		cli_print_help(command, stdout);
	} else {
		return cli_unknown_command(name);
	}
	return CLI_OK;
}

const struct cli_command command_help = {
    .name = "help",
    .summary = "explain a command, or the exit codes",
    .positional = "[COMMAND|exit-codes]",
    .max_positional = 1,
    .description = "",
    .examples = "nib help quantize     # the same as nib quantize --help\n"
		"nib help exit-codes   # what nib returns\n",
    .groups = (const struct cli_group[]){{0}},
    .args_bytes = sizeof(struct cli_shared),
    .run = run_help,
};
