/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.c - the overview, --help of a command and `nib help`, all printed from
 * the table of commands.
 */
#include <string.h>

#include "cli.h"
#include "help.h"

#define WIDTH  80
#define INDENT 28

const char cli_exit_codes_text[] =
    "0  all went well, and what was looked at is good\n"
    "1  the command worked, and found something bad: a check that failed,\n"
    "   a layer below --min-sqnr, a file that inspect finds fault with\n"
    "2  the arguments break a rule; nothing was done\n"
    "3  an input file cannot be read, breaks its format, or holds values\n"
    "   (inf, NaN) that cannot be used\n"
    "4  anything else: no memory, no such device, output not written\n"
    "130, 143, 129  interrupted by SIGINT, SIGTERM or SIGHUP; begun files\n"
    "   were removed\n";

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
	fputs("\n"
	      "  nib help COMMAND   options and examples of a command\n"
	      "  nib --version\n"
	      "\n"
	      "First steps:\n"
	      "  nib info                                    # this machine\n"
	      "  nib check --preset small                    # is it right?\n"
	      "  nib quantize model.safetensors out.safetensors\n"
	      "  nib inspect out.safetensors\n",
	      to);
}

int help_takes_value(const struct cli_option *option)
{
	return option->kind != OPT_FLAG;
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
	char head[128];
	int words = o->kind == OPT_WORD || o->kind == OPT_CHOICE, at;

	/* Long word lists go below, not into the left column. */
	snprintf(head, sizeof(head), "  %c%c%s--%s%s%s", o->letter ? '-' : ' ',
		 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
		 help_takes_value(o) ? " " : "",
		 !help_takes_value(o)		  ? ""
		 : words && strlen(o->value) > 12 ? "WORD"
						  : o->value);
	at = (int)strlen(head);
	fputs(head, to);
	if (at + 2 > INDENT)
		fprintf(to, "\n%*s", INDENT, "");
	else
		fprintf(to, "%*s", INDENT - at, "");
	at = put_words(to, o->help, INDENT, INDENT);
	if (words && strlen(o->value) > 12) {
		fputc(':', to);
		at++;
		at = put_list(to, o->value, at);
	}
	if (o->fallback && *o->fallback && strcmp(o->fallback, "0")) {
		char text[64];

		snprintf(text, sizeof(text), "[default: %s]", o->fallback);
		put_words(to, text, at, INDENT);
	}
	fputc('\n', to);
}

static void print_groups(const struct cli_command *command, FILE *to)
{
	for (const struct cli_group *g = command->groups; g->title; g++) {
		if (*g->title)
			fprintf(to, "\n%s:\n", g->title);
		for (const struct cli_option *o = g->options; o->name; o++)
			print_option(o, to);
	}
	fputs("  -h, --help", to);
	fprintf(to, "%*sthis text\n", INDENT - 12, "");
}

static void print_description(const char *text, FILE *to)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		fprintf(to, "%.*s\n", (int)n, text);
		text += n + (text[n] == '\n');
	}
}

void cli_print_help(const struct cli_command *command, FILE *to)
{
	fprintf(to, "nib %s - %s\n\nusage: nib %s [OPTION]...%s%s\n",
		command->name, command->summary, command->name,
		*command->positional ? " " : "", command->positional);
	if (*command->description) {
		fputc('\n', to);
		print_description(command->description, to);
	}
	if (*command->examples) {
		fputs("\nExamples:\n", to);
		for (const char *p = command->examples; *p;) {
			size_t n = strcspn(p, "\n");

			fprintf(to, "  %.*s\n", (int)n, p);
			p += n + (p[n] == '\n');
		}
	}
	print_groups(command, to);
}

/* ---- nib help ------------------------------------------------------------ */

static int run_help(const void *args, char *const *files, int n_files)
{
	const struct cli_command *command;
	const char *near;

	(void)args;
	if (!n_files) {
		cli_print_overview(stdout);
		return CLI_OK;
	}
	if (!strcmp(files[0], "exit-codes")) {
		fputs(cli_exit_codes_text, stdout);
		return CLI_OK;
	}
	command = cli_find_command(files[0]);
	if (command) {
		cli_print_help(command, stdout);
		return CLI_OK;
	}
	near = cli_nearest_command(files[0]);
	return cli_error(CLI_USAGE, "'%s' is not a command%s%s", files[0],
			 near ? "; did you mean " : "", near ? near : "");
}

static const struct cli_group help_groups[] = {{0}};

const struct cli_command command_help = {
    .name = "help",
    .summary = "explain a command, or the exit codes",
    .positional = "[COMMAND|exit-codes]",
    .max_positional = 1,
    .description = "",
    .examples = "nib help quantize     # the same as nib quantize --help\n"
		"nib help exit-codes   # what nib returns\n",
    .groups = help_groups,
    .run = run_help,
};
