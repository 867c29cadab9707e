/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what the commands of nib share: the tables of commands and options
 * that parsing, --help, the man page and shell completion all read.  The commands
 * see nibblas.h only, as any program would.  What bench/ needs as well (messages,
 * texts, tables, devices, shapes and their operands) is in cli/shared/.
 *
 * A command is one file cmd_NAME.c that defines `const struct cli_command
 * command_NAME`; main.c lists it.  Its arguments are a plain struct; its option
 * tables say where in the struct each value goes.  Read main.c next, then any
 * cmd_*.c from its end upwards.
 */
#ifndef NIB_CLI_H
#define NIB_CLI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "device.h"
#include "fail.h"
#include "message.h"
#include "nibblas.h"
#include "option.h"
#include "stop.h"
#include "table.h"
#include "text.h"

/* Options that several commands have; offset places their struct. */
struct cli_group {
	const char *title; /* "" = of the group before; NULL ends the list */
	const struct cli_option *options;
	size_t offset;
};

struct cli_command {
	const char *name;
	const char *summary;	/* one line, no full stop */
	const char *positional; /* "IN OUT"; "" = none */
	int min_positional, max_positional;
	const char *description; /* paragraphs for --help and the man page */
	const char *examples;	 /* lines "command  # what it does" */
	const struct cli_group *groups;
	size_t args_bytes; /* of its struct, which begins with cli_shared */
	/* It writes a file in steps: signals wait for its cli_stopped(). */
	int defers_signals;
	/* Returns an enum cli_exit. */
	int (*run)(const void *args);
};

/* What the commands have in common: the first member of their arguments. */
struct cli_shared {
	struct device_args device;
	enum table_format format;
	int quiet;
	char **files; /* the positional arguments */
	int n_files;
};
/* Groups of options that fill it: --threads and --isa, or --device too. */
#define CLI_GROUP(...)                                                                 \
	{                                                                              \
		__VA_ARGS__                                                            \
	}
#define CLI_CPU_GROUP CLI_GROUP("Device", cli_cpu_options, 0)
#define CLI_DEVICE_GROUPS                                                              \
	CLI_GROUP("Device", cli_device_options, 0), CLI_GROUP("", cli_cpu_options, 0)
#define CLI_OUTPUT_GROUP CLI_GROUP("Output", cli_output_options, 0)
/* --format and --quiet, and the end of the list. */
#define CLI_LAST_GROUPS                                                                \
	CLI_OUTPUT_GROUP, CLI_GROUP("Messages", cli_message_options, 0), CLI_GROUP(0)
extern const struct cli_option cli_cpu_options[], cli_device_options[],
    cli_output_options[], cli_message_options[];

/* for (g and o: each group of command, and each of its options) */
#define CLI_EACH_OPTION(command, g, o)                                                 \
	for (const struct cli_group *g = (command)->groups; g->title; g++)             \
		for (const struct cli_option *o = g->options; o->name; o++)

/* NULL-terminated, in the order of nib help. */
extern const struct cli_command *const cli_commands[];
const struct cli_command *cli_find_command(const char *name);
/* Reads the options argv[0 .. argc) and runs command: an enum cli_exit. */
int cli_run(const struct cli_command *command, int argc, char **argv);

/* ---- args.c -------------------------------------------------------------- */

/*
 * Fills args (args_bytes of the command, zeroed by the caller) from argv[0 ..
 * argc), which does not hold the command's name; its files has space for argc.
 * CLI_OK, or CLI_USAGE after a message.  *wants_help is 1 when --help was
 * given: the rest is then not checked.  cli_args_free() in every case.
 */
int cli_parse(const struct cli_command *command, int argc, char **argv,
	      struct cli_shared *args, int *wants_help);
void cli_args_free(const struct cli_command *command, struct cli_shared *args);
/* The option named so (without --), or with this letter; or NULL. */
const struct cli_option *cli_find_option(const struct cli_command *command,
					 const char *name, char letter, size_t *offset);
/* CLI_USAGE after a message with the command nearest to word, if one is. */
int cli_unknown_command(const char *word);
/* ---- help.c, cmd_completion.c -------------------------------------------- */

void cli_print_overview(FILE *to);
void cli_print_help(const struct cli_command *command, FILE *to);
/* The table of exit codes: the code, then what it says; NULL ends it. */
extern const char *const cli_exit_codes[][2];

/* ---- common.c ------------------------------------------------------------ */

/*
 * Whether out may be written: it must not be one of the inputs under another
 * name, and an existing file needs force.  CLI_OK, or prints and returns.
 */
int cli_check_output(const char *out, const char *const *inputs, int n_inputs,
		     int force);

#endif
