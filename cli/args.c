/* SPDX-License-Identifier: Apache-2.0 */
/* args.c - reads a command line by the option tables of its command. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int cli_parse_int(const char *text, int64_t *value)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (end == text || *end || errno)
		return -1;
	*value = n;
	return 0;
}

int cli_parse_double(const char *text, double *value)
{
	char *end;
	double x = strtod(text, &end);

	if (end == text || *end || !isfinite(x))
		return -1;
	*value = x;
	return 0;
}

int cli_word_index(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (int i = 0; n; i++) {
		size_t length = strcspn(words, "|");

		if (length == n && strncmp(words, word, n) == 0)
			return i;
		if (!words[length])
			break;
		words += length + 1;
	}
	return -1;
}

/* Edit distance, for words shorter than 31; else "far". */
static size_t distance(const char *a, const char *b)
{
	size_t row[32], n = strlen(b);

	if (n > 30 || strlen(a) > 30)
		return 99;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

struct nearest {
	const char *word, *best;
	size_t best_distance;
};

static void nearest_try(struct nearest *nearest, const char *candidate)
{
	size_t d = distance(nearest->word, candidate);
	size_t n = strlen(nearest->word);

	/* A beginning of the right name counts as near: --thr, --thread. */
	if (n >= 3 && strncmp(nearest->word, candidate, n) == 0)
		d = 1;
	if (d < nearest->best_distance) {
		nearest->best_distance = d;
		nearest->best = candidate;
	}
}

const char *cli_nearest_command(const char *word)
{
	struct nearest nearest = {word, NULL, 3};

	for (size_t i = 0; cli_commands[i]; i++)
		nearest_try(&nearest, cli_commands[i]->name);
	return nearest.best;
}

static const char *nearest_option(const struct cli_command *command,
				  const char *word)
{
	struct nearest nearest = {word, NULL, 3};

	nearest_try(&nearest, "help");
	for (const struct cli_group *g = command->groups; g->title; g++)
		for (const struct cli_option *o = g->options; o->name; o++)
			nearest_try(&nearest, o->name);
	return nearest.best;
}

/* Finds by name (length bytes) or, when name is NULL, by letter. */
static const struct cli_option *find_option(const struct cli_command *command,
					    const char *name, size_t length,
					    char letter, size_t *offset)
{
	for (const struct cli_group *g = command->groups; g->title; g++)
		for (const struct cli_option *o = g->options; o->name; o++) {
			int found = name ? strlen(o->name) == length &&
					       !strncmp(o->name, name, length)
					 : letter && o->letter == letter;

			if (found) {
				*offset = g->offset + o->offset;
				return o;
			}
		}
	return NULL;
}

static int set_int(const struct cli_option *o, int64_t *slot, const char *text)
{
	if (cli_parse_int(text, slot))
		return cli_error(CLI_USAGE, "--%s %s: not a whole number",
				 o->name, text);
	if (o->max > o->min && (*slot < o->min || *slot > o->max))
		return cli_error(
		    CLI_USAGE, "--%s %s: must be between %lld and %lld",
		    o->name, text, (long long)o->min, (long long)o->max);
	return CLI_OK;
}

static int append(struct cli_texts *texts, const char *text)
{
	const char **items =
	    realloc(texts->items, sizeof(*items) * ((size_t)texts->count + 1));

	if (!items)
		return cli_no_memory("arguments");
	texts->items = items;
	texts->items[texts->count++] = text;
	return CLI_OK;
}

static int set_option(const struct cli_option *o, void *slot, const char *text)
{
	int index;

	switch (o->kind) {
	case OPT_FLAG:
		*(int *)slot = 1;
		return CLI_OK;
	case OPT_INT:
		return set_int(o, slot, text);
	case OPT_DOUBLE:
		if (cli_parse_double(text, slot) || *(double *)slot < 0)
			return cli_error(CLI_USAGE,
					 "--%s %s: not a number of 0 or more",
					 o->name, text);
		return CLI_OK;
	case OPT_TEXT:
	case OPT_FILE:
		*(const char **)slot = text;
		return CLI_OK;
	case OPT_TEXTS:
		return append(slot, text);
	case OPT_WORD:
	case OPT_CHOICE:
		break;
	}
	index = cli_word_index(o->value, text);
	if (index < 0)
		return cli_error(CLI_USAGE, "--%s %s: must be one of %s",
				 o->name, text, o->value);
	if (o->kind == OPT_WORD)
		*(const char **)slot = text;
	else
		*(int *)slot = index;
	return CLI_OK;
}

static int set_fallbacks(const struct cli_command *command, char *args)
{
	for (const struct cli_group *g = command->groups; g->title; g++)
		for (const struct cli_option *o = g->options; o->name; o++) {
			void *slot = args + g->offset + o->offset;
			int code = CLI_OK;

			/* A repeatable option's fallback is its reader's. */
			if (o->fallback && o->kind != OPT_TEXTS)
				code = set_option(o, slot, o->fallback);
			else if (o->kind == OPT_CHOICE)
				*(int *)slot = -1;
			if (code)
				return code;
		}
	return CLI_OK;
}

static int unknown_option(const struct cli_command *command, const char *arg)
{
	char word[32];
	const char *near = NULL;
	size_t n = strcspn(arg, "=");

	if (arg[0] == '-' && arg[1] == '-' && n - 2 < sizeof(word)) {
		memcpy(word, arg + 2, n - 2);
		word[n - 2] = '\0';
		near = nearest_option(command, word);
	}
	if (near)
		return cli_error(CLI_USAGE,
				 "%.*s is not an option of nib %s; did you "
				 "mean --%s?",
				 (int)n, arg, command->name, near);
	return cli_error(CLI_USAGE,
			 "%.*s is not an option of nib %s; see nib %s --help",
			 (int)n, arg, command->name, command->name);
}

/* Reads the option at argv[*i], moving *i to the last word that it took. */
static int read_option(const struct cli_command *command, int argc, char **argv,
		       int *i, char *args)
{
	const char *arg = argv[*i], *text = NULL;
	size_t length = strcspn(arg, "="), offset;
	const struct cli_option *o;

	if (arg[1] == '-')
		o = find_option(command, arg + 2, length - 2, 0, &offset);
	else
		o = arg[2] ? NULL
			   : find_option(command, NULL, 0, arg[1], &offset);
	if (!o)
		return unknown_option(command, arg);
	if (arg[length] == '=')
		text = arg + length + 1;
	if (o->kind == OPT_FLAG && text)
		return cli_error(CLI_USAGE, "--%s takes no value", o->name);
	if (o->kind != OPT_FLAG && !text) {
		if (*i + 1 >= argc)
			return cli_error(CLI_USAGE, "--%s needs a value: %s",
					 o->name, o->value);
		text = argv[++*i];
	}
	return set_option(o, args + offset, text);
}

static int check_positional(const struct cli_command *command, int n_files,
			    char **files)
{
	if (n_files < command->min_positional)
		return cli_error(CLI_USAGE, "needs %s; see nib %s --help",
				 command->positional, command->name);
	if (n_files > command->max_positional)
		return cli_error(CLI_USAGE,
				 "'%s' is one argument too many; usage: nib %s "
				 "[OPTION]... %s",
				 files[command->max_positional], command->name,
				 command->positional);
	return CLI_OK;
}

int cli_parse(const struct cli_command *command, int argc, char **argv,
	      void *args, char **files, int *n_files, int *wants_help)
{
	int options_end = 0, code;

	*n_files = 0;
	*wants_help = 0;
	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			*wants_help = 1;
	if (*wants_help)
		return CLI_OK;
	code = set_fallbacks(command, args);
	for (int i = 0; i < argc && !code; i++) {
		if (options_end || argv[i][0] != '-' || !argv[i][1])
			files[(*n_files)++] = argv[i];
		else if (!strcmp(argv[i], "--"))
			options_end = 1;
		else
			code = read_option(command, argc, argv, &i, args);
	}
	return code ? code : check_positional(command, *n_files, files);
}

void cli_args_free(const struct cli_command *command, void *args)
{
	for (const struct cli_group *g = command->groups; g->title; g++)
		for (const struct cli_option *o = g->options; o->name; o++)
			if (o->kind == OPT_TEXTS) {
				struct cli_texts *texts =
				    (void *)((char *)args + g->offset +
					     o->offset);

				free(texts->items);
			}
}
