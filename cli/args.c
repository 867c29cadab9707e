/* SPDX-License-Identifier: Apache-2.0 */
/* args.c - reads a command line by the option tables of its command. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int cli_unknown_command(const char *word)
{
	const char *best = NULL;
	size_t least = 3;

	for (size_t i = 0; cli_commands[i]; i++)
		cli_keep_nearest(word, cli_commands[i]->name, &least, &best);
	if (best)
		return cli_error(CLI_USAGE,
				 "'%s' is not a command; did you mean nib %s?", word,
				 best);
	return cli_error(CLI_USAGE, "'%s' is not a command; nib help lists them", word);
}

static const char *nearest_option(const struct cli_command *command, const char *word)
{
	const char *best = NULL;
	size_t least = 3;

	cli_keep_nearest(word, "help", &least, &best);
	CLI_EACH_OPTION (command, g, o)
		cli_keep_nearest(word, o->name, &least, &best);
	return best;
}

/* ---- values -------------------------------------------------------------- */

static int set_int(const struct cli_option *o, int64_t *slot, const char *text)
{
	if (cli_parse_int(text, slot))
		return cli_error(CLI_USAGE, "--%s %s: not a whole number", o->name,
				 text);
	if (o->max > o->min && (*slot < o->min || *slot > o->max))
		return cli_error(CLI_USAGE, "--%s %s: must be between %lld and %lld",
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
					 "--%s %s: not a number of 0 or more", o->name,
					 text);
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
		return cli_error(CLI_USAGE, "--%s %s: must be one of %s", o->name, text,
				 o->value);
	if (o->kind == OPT_WORD)
		*(const char **)slot = text;
	else
		*(int *)slot = index;
	return CLI_OK;
}

static void *option_slot(const struct cli_shared *args, const struct cli_group *g,
			 const struct cli_option *o)
{
	return (char *)(uintptr_t)args + g->offset + o->offset;
}

static int set_fallbacks(const struct cli_command *command, struct cli_shared *args)
{
	CLI_EACH_OPTION (command, g, o) {
		void *slot = option_slot(args, g, o);
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

/* ---- words of the command line ------------------------------------------- */

const struct cli_option *cli_find_option(const struct cli_command *command,
					 const char *name, char letter, size_t *offset)
{
	CLI_EACH_OPTION (command, g, o)
		if (name ? !strcmp(o->name, name) : letter && o->letter == letter) {
			*offset = g->offset + o->offset;
			return o;
		}
	return NULL;
}

/* arg is "--name", "--name=..." or "-..."; name is without dashes. */
static int unknown_option(const struct cli_command *command, const char *arg,
			  const char *name)
{
	const char *near = arg[1] == '-' ? nearest_option(command, name) : NULL;
	int n = (int)strcspn(arg, "=");
	const struct cli_option *o;
	size_t unused;

	if (near)
		return cli_error(CLI_USAGE,
				 "%.*s is not an option of nib %s; did you "
				 "mean --%s?",
				 n, arg, command->name, near);
	o = cli_find_option(command, NULL, arg[1], &unused);
	if (o)
		return cli_error(
		    CLI_USAGE,
		    "%s: -%c must be a separate word; write -%c%s%s or --%s%s%s", arg,
		    o->letter, o->letter, o->kind == OPT_FLAG ? "" : " ",
		    o->kind == OPT_FLAG ? "" : o->value, o->name,
		    o->kind == OPT_FLAG ? "" : "=",
		    o->kind == OPT_FLAG ? "" : o->value);
	return cli_error(CLI_USAGE,
			 "%.*s is not an option of nib %s; see nib %s --help", n, arg,
			 command->name, command->name);
}

/* Reads the option at argv[*i], moving *i to the last word that it took. */
static int read_option(const struct cli_command *command, int argc, char **argv, int *i,
		       struct cli_shared *args)
{
	const char *arg = argv[*i], *equals = strchr(arg, '=');
	const char *text = equals ? equals + 1 : NULL;
	const struct cli_option *o = NULL;
	char name[64] = "";
	size_t offset;

	if (arg[1] == '-') {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(arg + 2, "="),
			 arg + 2);
		o = cli_find_option(command, name, 0, &offset);
	} else if (!arg[2]) {
		o = cli_find_option(command, NULL, arg[1], &offset);
	}
	if (!o)
		return unknown_option(command, arg, name);
	if (o->kind == OPT_FLAG && text)
		return cli_error(CLI_USAGE, "--%s takes no value", o->name);
	if (o->kind != OPT_FLAG && !text) {
		if (*i + 1 >= argc)
			return cli_error(CLI_USAGE, "--%s needs a value: %s", o->name,
					 o->value);
		text = argv[++*i];
	}
	return set_option(o, (char *)args + offset, text);
}

/* Refuses too few or too many files, and a required option not given. */
static int check_complete(const struct cli_command *command,
			  const struct cli_shared *args)
{
	if (args->n_files < command->min_positional)
		return cli_error(CLI_USAGE, "needs %s; see nib %s --help",
				 command->positional, command->name);
	if (args->n_files > command->max_positional)
		return cli_error(CLI_USAGE,
				 "'%s' is one argument too many; usage: nib %s "
				 "[OPTION]... %s",
				 args->files[command->max_positional], command->name,
				 command->positional);
	CLI_EACH_OPTION (command, g, o)
		if (o->is_required && !*(const char *const *)option_slot(args, g, o))
			return cli_error(CLI_USAGE, "needs --%s %s; see nib %s --help",
					 o->name, o->value, command->name);
	return CLI_OK;
}

int cli_parse(const struct cli_command *command, int argc, char **argv,
	      struct cli_shared *args, int *wants_help)
{
	int options_end = 0, code;

	*wants_help = 0;
	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			*wants_help = 1;
	if (*wants_help)
		return CLI_OK;
	code = set_fallbacks(command, args);
	for (int i = 0; i < argc && !code; i++) {
		if (options_end || argv[i][0] != '-' || !argv[i][1])
			args->files[args->n_files++] = argv[i];
		else if (!strcmp(argv[i], "--"))
			options_end = 1;
		else
			code = read_option(command, argc, argv, &i, args);
	}
	return code ? code : check_complete(command, args);
}

void cli_args_free(const struct cli_command *command, struct cli_shared *args)
{
	CLI_EACH_OPTION (command, g, o)
		if (o->kind == OPT_TEXTS)
			free(((struct cli_texts *)option_slot(args, g, o))->items);
}
