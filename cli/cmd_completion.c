/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_completion.c - nib completion: the bash script and the man page. */
#include <string.h>

#include "cli.h"
#include "help.h"

/* ---- bash ---------------------------------------------------------------- */

static void put_words(const char *words, FILE *to)
{
	for (; *words; words++)
		fputc(*words == '|' ? ' ' : *words, to);
}

/* What may follow an option of this kind. */
static void put_value_case(const struct cli_command *command,
			   const struct cli_option *o, FILE *to)
{
	if (o->kind == OPT_WORD || o->kind == OPT_CHOICE) {
		fprintf(to, "\t%s:--%s) words=\"", command->name, o->name);
		put_words(o->value, to);
		fputs("\" ;;\n", to);
	} else if (o->kind == OPT_FILE) {
		fprintf(to, "\t%s:--%s) files=1 ;;\n", command->name, o->name);
	} else if (!strcmp(o->name, "preset")) {
		fprintf(to, "\t%s:--%s) words=\"", command->name, o->name);
		put_words(o->value, to);
		fputs("\" ;;\n", to);
	} else if (help_takes_value(o)) {
		fprintf(to, "\t%s:--%s) ;;\n", command->name, o->name);
	}
}

static void put_value_cases(const struct cli_command *command, FILE *to)
{
	for (const struct cli_group *g = command->groups; g->title; g++)
		for (const struct cli_option *o = g->options; o->name; o++)
			put_value_case(command, o, to);
}

static void put_command_options(const struct cli_command *command, FILE *to)
{
	fprintf(to, "\t%s) words=\"--help", command->name);
	for (const struct cli_group *g = command->groups; g->title; g++)
		for (const struct cli_option *o = g->options; o->name; o++)
			fprintf(to, " --%s", o->name);
	fputs("\" ;;\n", to);
}

static void put_command_names(FILE *to)
{
	for (size_t i = 0; cli_commands[i]; i++)
		fprintf(to, "%s%s", i ? " " : "", cli_commands[i]->name);
}

void help_print_bash(FILE *to)
{
	fputs("# bash completion for nib; made by: nib completion bash\n"
	      "_nib()\n{\n"
	      "\tlocal cur prev command words= files=\n"
	      "\tCOMPREPLY=()\n"
	      "\tcur=${COMP_WORDS[COMP_CWORD]}\n"
	      "\tprev=${COMP_WORDS[COMP_CWORD-1]}\n"
	      "\tcommand=${COMP_WORDS[1]}\n"
	      "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n"
	      "\t\tCOMPREPLY=($(compgen -W \"",
	      to);
	put_command_names(to);
	fputs(" --help --version\" -- \"$cur\"))\n\t\treturn\n\tfi\n"
	      "\tcase $command:$prev in\n",
	      to);
	for (size_t i = 0; cli_commands[i]; i++)
		put_value_cases(cli_commands[i], to);
	fputs("\thelp:*) words=\"--help exit-codes ", to);
	put_command_names(to);
	fputs("\" ;;\n"
	      "\tcompletion:*) words=\"--help bash man\" ;;\n"
	      "\t*)\n"
	      "\tif [[ $cur == -* ]]; then\n"
	      "\tcase $command in\n",
	      to);
	for (size_t i = 0; cli_commands[i]; i++)
		put_command_options(cli_commands[i], to);
	fputs("\tesac\n"
	      "\telse\n\t\tfiles=1\n\tfi ;;\n"
	      "\tesac\n"
	      "\tif [ -n \"$files\" ]; then\n"
	      "\t\tcompopt -o filenames 2>/dev/null\n"
	      "\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n"
	      "\telse\n"
	      "\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
	      "\tfi\n"
	      "}\n"
	      "complete -F _nib nib\n",
	      to);
}

/* ---- the man page -------------------------------------------------------- */

/* Text with what man(7) would take for markup escaped. */
static void put_roff(const char *text, size_t n, FILE *to)
{
	for (size_t i = 0; i < n && text[i]; i++) {
		if (text[i] == '\\')
			fputs("\\e", to);
		else if (text[i] == '-')
			fputs("\\-", to);
		else if ((text[i] == '.' || text[i] == '\'') &&
			 (i == 0 || text[i - 1] == '\n'))
			fprintf(to, "\\&%c", text[i]);
		else
			fputc(text[i], to);
	}
}

static void put_roff_line(const char *text, FILE *to)
{
	put_roff(text, strlen(text), to);
	fputc('\n', to);
}

static void put_man_option(const struct cli_option *o, FILE *to)
{
	fputs(".TP\n", to);
	if (o->letter)
		fprintf(to, "\\fB\\-%c\\fR, ", o->letter);
	fputs("\\fB\\-\\-", to);
	put_roff(o->name, 64, to);
	fputs("\\fR", to);
	if (help_takes_value(o)) {
		fputs(" \\fI", to);
		put_roff(o->value, 256, to);
		fputs("\\fR", to);
	}
	fputc('\n', to);
	put_roff(o->help, 1024, to);
	if (o->fallback && *o->fallback && strcmp(o->fallback, "0")) {
		fputs(" (default: ", to);
		put_roff(o->fallback, 256, to);
		fputc(')', to);
	}
	fputs(".\n", to);
}

/* Blank lines begin paragraphs; lines that begin with a blank stay as they are.
 */
static void put_man_text(const char *text, FILE *to)
{
	int is_literal = 0;

	while (*text) {
		size_t n = strcspn(text, "\n");

		if (is_literal != (*text == ' ') && n) {
			is_literal = !is_literal;
			fputs(is_literal ? ".nf\n" : ".fi\n", to);
		}
		if (n) {
			put_roff(text, n, to);
			fputc('\n', to);
		} else {
			fputs(".PP\n", to);
		}
		text += n + (text[n] == '\n');
	}
	fputs(is_literal ? ".fi\n" : "", to);
}

static void put_man_command(const struct cli_command *command, FILE *to)
{
	fprintf(to, ".SS nib %s [OPTION]... ", command->name);
	put_roff_line(command->positional, to);
	put_roff_line(command->summary, to);
	fputs(".PP\n", to);
	put_man_text(command->description, to);
	for (const struct cli_group *g = command->groups; g->title; g++)
		for (const struct cli_option *o = g->options; o->name; o++)
			put_man_option(o, to);
	if (*command->examples) {
		fputs(".PP\nExamples:\n.PP\n.nf\n", to);
		put_roff(command->examples, strlen(command->examples), to);
		fputs(".fi\n", to);
	}
}

void help_print_man(FILE *to)
{
	fprintf(to,
		".\\\" Made by: nib completion man\n"
		".TH NIB 1 \"\" \"nibblas %s\" \"User Commands\"\n"
		".SH NAME\n"
		"nib \\- NVFP4 matrices: multiply, check, quantise, inspect\n"
		".SH SYNOPSIS\n"
		"\\fBnib\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]... "
		"[\\fIFILE\\fR]...\n.br\n"
		"\\fBnib \\-\\-version\\fR\n.br\n"
		"\\fBnib help\\fR \\fICOMMAND\\fR\n"
		".SH DESCRIPTION\n"
		"NVFP4 is a 4\\-bit float (e2m1) with one e4m3 scale for each "
		"16 values of a row\nand one fp32 global scale for a tensor.\n"
		"nib multiplies such matrices, checks the result against an "
		"exact sum, makes\nthem from float checkpoints and says what "
		"is wrong with a file.\n"
		"Every command takes \\fB\\-h\\fR, \\fB\\-\\-help\\fR.\n"
		".SH COMMANDS\n",
		nib_version());
	for (size_t i = 0; cli_commands[i]; i++)
		put_man_command(cli_commands[i], to);
	fputs(".SH EXIT STATUS\n.nf\n", to);
	put_roff(cli_exit_codes_text, strlen(cli_exit_codes_text), to);
	fputs(".fi\n"
	      ".SH ENVIRONMENT\n"
	      ".TP\n\\fBNIB_CPU\\fR\n"
	      "scalar, avx2, avx512bw or avx512: the instruction set, where "
	      "\\-\\-isa does not say.\n"
	      ".TP\n\\fBNIB_CUDA_LIBRARY\\fR\n"
	      "The CUDA driver to open instead of libcuda.so.1.\n"
	      ".TP\n\\fBNIB_TUNING\\fR\n"
	      "The file of a GPU's tile costs (nib tune); off reads none.\n"
	      ".TP\n\\fBXDG_CACHE_HOME\\fR\n"
	      "Where nibblas/tune\\-*.json is without NIB_TUNING, else "
	      "~/.cache.\n"
	      ".TP\n\\fBOMP_WAIT_POLICY\\fR\n"
	      "Threads of OpenMP spin where they wait for each other.  On "
	      "processors that other\nprograms use too that can cost a "
	      "call tens of milliseconds: passive lets them sleep.\n"
	      ".TP\n\\fBNO_COLOR\\fR\n"
	      "If set, tables on a terminal have no colours.\n"
	      ".SH SEE ALSO\n"
	      "nibblas.h; docs/numerics.md: what is exact, and the bounds of "
	      "nib check.\n",
	      to);
}

/* ---- the command --------------------------------------------------------- */

static int run_completion(const void *args, char *const *files, int n_files)
{
	(void)args;
	(void)n_files;
	if (!strcmp(files[0], "bash"))
		help_print_bash(stdout);
	else if (!strcmp(files[0], "man"))
		help_print_man(stdout);
	else
		return cli_error(CLI_USAGE, "'%s': must be bash or man",
				 files[0]);
	return CLI_OK;
}

static const struct cli_group groups[] = {{0}};

const struct cli_command command_completion = {
    .name = "completion",
    .summary = "print the bash completion script, or the man page",
    .positional = "bash|man",
    .min_positional = 1,
    .max_positional = 1,
    .description = "",
    .examples = "source <(nib completion bash)          # in this shell\n"
		"nib completion man | man -l -          # read the manual\n",
    .groups = groups,
    .run = run_completion,
};
