/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_completion.c - nib completion: completion scripts of three shells, and
 * the man page.  The scripts hold no words of their own: they ask `nib
 * completion words`, which reads the tables of commands and options.
 */
#include <string.h>

#include "cli.h"

/* ---- what may come next -------------------------------------------------- */

/* "a|b" one a line. */
static void put_choices(const char *words)
{
	for (; *words; words++)
		putchar(*words == '|' ? '\n' : *words);
	putchar('\n');
}

static void put_commands(void)
{
	for (size_t i = 0; cli_commands[i]; i++)
		printf("%s\t%s\n", cli_commands[i]->name, cli_commands[i]->summary);
}

static void put_options(const struct cli_command *command)
{
	puts("--help\tthis command explained");
	CLI_EACH_OPTION (command, g, o)
		printf("--%s\t%s\n", o->name, o->help);
}

/* Only lists of words have a bar: "LIST" and "N" are descriptions. */
static void put_values(const struct cli_option *o)
{
	if (o->kind == OPT_FILE)
		puts("@files");
	else if (strchr(o->value, '|'))
		put_choices(o->value);
}

/*
 * Prints the words that may replace the last of words, one a line, then a tab and what
 * the word means.  Prints only "@files" where a file name may follow.
 */
static void put_next(char *const *words, int count)
{
	const struct cli_command *command = cli_find_command(words[0]);
	const char *last = words[count - 1];
	/* bash gives --out=x as three words. */
	int at = count - (count > 2 && !strcmp(words[count - 2], "=") ? 3 : 2);
	const char *before = at > 0 ? words[at] : "";
	const struct cli_option *o = NULL;
	size_t offset;

	if (command && before[0] == '-')
		o = cli_find_option(command, before[1] == '-' ? before + 2 : NULL,
				    before[1] == '-' ? 0 : before[1], &offset);
	if (count == 1) {
		put_commands();
		puts("--help\tthe list of commands\n--version");
	} else if (!command) {
		return;
	} else if (o && o->kind != OPT_FLAG) {
		put_values(o);
	} else if (last[0] == '-') {
		put_options(command);
	} else if (!strcmp(command->name, "help")) {
		put_commands();
		puts("exit-codes\twhat nib returns");
	} else if (strchr(command->positional, '|')) {
		put_choices(command->positional);
	} else {
		puts("@files");
	}
}

/* ---- scripts ------------------------------------------------------------- */

static const char bash_script[] =
    "# bash completion for nib; made by: nib completion bash\n"
    "_nib()\n"
    "{\n"
    "	local cur=${COMP_WORDS[COMP_CWORD]} words\n"
    "	[ \"$cur\" = = ] && cur=\n"
    "	words=$(\"${COMP_WORDS[0]}\" completion words -- \\\n"
    "		\"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null | cut -f1)\n"
    "	if [ \"$words\" = @files ]; then\n"
    "		compopt -o filenames 2>/dev/null\n"
    "		mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "	else\n"
    "		mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "	fi\n"
    "}\n"
    "complete -F _nib nib\n";

static const char zsh_script[] =
    "#compdef nib\n"
    "# zsh completion for nib; made by: nib completion zsh\n"
    "_nib()\n"
    "{\n"
    "	local -a lines\n"
    "	lines=(\"${(@f)$(command nib completion words -- \\\n"
    "		\"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "	if [[ $lines[1] == @files ]]; then\n"
    "		_files\n"
    "	elif [[ -n $lines[1] ]]; then\n"
    "		lines=(\"${(@)lines//:/\\\\:}\")\n"
    "		lines=(\"${(@)lines/$'\\t'/:}\")\n"
    "		_describe nib lines\n"
    "	fi\n"
    "}\n"
    "if [[ ${funcstack[1]-} == _nib ]]; then\n"
    "	_nib \"$@\"\n"
    "else\n"
    "	compdef _nib nib\n"
    "fi\n";

static const char fish_script[] =
    "# fish completion for nib; made by: nib completion fish\n"
    "function __nib_words\n"
    "	set -l words (commandline -opc)\n"
    "	set -l last (commandline -ct)\n"
    "	set -l lines (command nib completion words -- $words[2..-1] \"$last\" "
    "2>/dev/null)\n"
    "	if test \"$lines\" = @files\n"
    "		__fish_complete_path \"$last\"\n"
    "	else\n"
    "		printf '%s\\n' $lines\n"
    "	end\n"
    "end\n"
    "complete -c nib -f -a '(__nib_words)'\n";

/* ---- the man page -------------------------------------------------------- */

/*
 * Prints before, the first n bytes of text with what man(7) would take for
 * markup escaped, and after.
 */
static void put_roff_part(const char *before, const char *text, size_t n,
			  const char *after)
{
	fputs(before, stdout);
	for (size_t i = 0; i < n && text[i]; i++) {
		if (text[i] == '\\')
			fputs("\\e", stdout);
		else if (text[i] == '-')
			fputs("\\-", stdout);
		else if ((text[i] == '.' || text[i] == '\'') &&
			 (i == 0 || text[i - 1] == '\n'))
			printf("\\&%c", text[i]);
		else
			putchar(text[i]);
	}
	fputs(after, stdout);
}

static void put_roff(const char *before, const char *text, const char *after)
{
	put_roff_part(before, text, SIZE_MAX, after);
}

/* An entry of a list: its name in bold, then text. */
static void put_item(const char *name, const char *text)
{
	put_roff(".TP\n\\fB", name, "\\fR\n");
	put_roff("", text, "\n");
}

static void put_man_option(const struct cli_option *o)
{
	fputs(".TP\n", stdout);
	if (o->letter)
		printf("\\fB\\-%c\\fR, ", o->letter);
	put_roff("\\fB\\-\\-", o->name, "\\fR");
	if (o->kind != OPT_FLAG)
		put_roff(" \\fI", o->value, "\\fR");
	put_roff("\n", o->help, "");
	if (o->fallback && *o->fallback && strcmp(o->fallback, "0"))
		put_roff(" (default: ", o->fallback, ")");
	puts(o->is_required ? " (required)." : ".");
}

/*
 * Empty lines begin paragraphs; lines that begin with a blank stay as they are.
 */
static void put_man_text(const char *text)
{
	int is_literal = 0;

	while (*text) {
		size_t n = strcspn(text, "\n");

		if (is_literal != (*text == ' ') && n) {
			is_literal = !is_literal;
			puts(is_literal ? ".nf" : ".fi");
		}
		if (n)
			put_roff_part("", text, n, "\n");
		else
			puts(".PP");
		text += n + (text[n] == '\n');
	}
	fputs(is_literal ? ".fi\n" : "", stdout);
}

static void put_man_command(const struct cli_command *command)
{
	printf(".SS nib %s [OPTION]... ", command->name);
	put_roff("", command->positional, "\n");
	put_roff("", command->summary, "\n.PP\n");
	put_man_text(command->description);
	CLI_EACH_OPTION (command, g, o)
		put_man_option(o);
	if (*command->examples)
		put_roff(".PP\nExamples:\n.PP\n.nf\n", command->examples, ".fi\n");
}

static const char *const environment[][2] = {
    {"NIB_CPU",
     "the instruction set, unless --isa names one: scalar, avx2, avxvnni, "
     "avx512bw, avx512vnni or amx; on Arm scalar, neon, neondot, neoni8mm or "
     "neonbf16."},
    {"NIB_CUDA_LIBRARY", "The CUDA driver to open instead of libcuda.so.1."},
    {"NIB_TUNING", "The file of a GPU's tile costs (nib tune); off reads none."},
    {"XDG_CACHE_HOME",
     "The folder of nibblas/tune-*.json, unless NIB_TUNING names a file; "
     "~/.cache if not set."},
    {"OMP_NUM_THREADS", "Threads, unless --threads says how many."},
    {"OMP_WAIT_POLICY", "passive: threads that wait for work sleep at once "
			"instead of spinning first."},
    {"NO_COLOR", "If set and not empty, tables on a terminal have no colours."},
    {"TERM", "If dumb, nothing is bold or coloured and progress is printed in "
	     "lines of its own."},
};

static void put_man(void)
{
	printf(".\\\" Made by: nib completion man\n"
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
		put_man_command(cli_commands[i]);
	puts(".SH EXIT STATUS");
	for (int i = 0; cli_exit_codes[i][0]; i++)
		put_item(cli_exit_codes[i][0], cli_exit_codes[i][1]);
	puts(".SH ENVIRONMENT");
	for (size_t i = 0; i < sizeof(environment) / sizeof(*environment); i++)
		put_item(environment[i][0], environment[i][1]);
	puts(".SH SEE ALSO\n"
	     "nibblas.h; docs/numerics.md: what is exact, and the bounds of "
	     "nib check.");
}

/* ---- the command --------------------------------------------------------- */

static int run_completion(const void *args)
{
	const struct cli_shared *shared = args;
	char *const *files = shared->files;
	const int n_files = shared->n_files;
	const char *what = files[0];

	if (!strcmp(what, "words") && n_files > 1)
		put_next(files + 1, n_files - 1);
	else if (n_files > 1)
		return cli_error(CLI_USAGE, "'%s' is one argument too many", files[1]);
	else if (!strcmp(what, "bash"))
		fputs(bash_script, stdout);
	else if (!strcmp(what, "zsh"))
		fputs(zsh_script, stdout);
	else if (!strcmp(what, "fish"))
		fputs(fish_script, stdout);
	else if (!strcmp(what, "man"))
		put_man();
	else
		return cli_error(CLI_USAGE, "'%s': must be bash, zsh, fish or man",
				 what);
	return CLI_OK;
}

const struct cli_command command_completion = {
    .name = "completion",
    .summary = "print a shell's completion script, or the man page",
    .positional = "bash|zsh|fish|man",
    .min_positional = 1,
    .max_positional = 1 << 20,
    .description =
	"Prints a script by which the Tab key completes commands, options and\n"
	"their values, or the man page nib(1).  make install puts all of them\n"
	"in place.  The scripts call nib completion words -- WORD..., which\n"
	"prints what the last WORD may be.\n",
    .examples = "source <(nib completion bash)                        # this shell\n"
		"nib completion zsh > ~/.zfunc/_nib                   # in $fpath\n"
		"nib completion fish > ~/.config/fish/completions/nib.fish\n"
		"nib completion man | man -l -                        # the manual\n",
    .groups = (const struct cli_group[]){{0}},
    .args_bytes = sizeof(struct cli_shared),
    .run = run_completion,
};
