/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what the commands of nib share: the tables of commands and options
 * that parsing, --help, the man page and shell completion all read, messages
 * and exit codes.  The commands see nibblas.h only, as any program would.
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
#include "nibblas.h"
#include "table.h"

/* What nib exits with; nib help exit-codes explains them. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FOUND = 1,	  /* it worked; what it looked at is not good */
	CLI_USAGE = 2,	  /* arguments break a rule; nothing was done */
	CLI_INPUT = 3,	  /* an input file cannot be read or used */
	CLI_FAILED = 4,	  /* no memory, no such device, output not written */
	CLI_SIGNAL = 128, /* + the signal's number: interrupted, cleaned up */
};

enum cli_kind {
	OPT_FLAG,   /* int: 1 when given */
	OPT_INT,    /* int64_t in min..max */
	OPT_DOUBLE, /* double, finite and >= 0 */
	OPT_TEXT,   /* const char * */
	OPT_FILE,   /* const char *: completed as a path */
	OPT_WORD,   /* const char *: one of value's words */
	OPT_CHOICE, /* an enum: index of the word in value; or int, which is -1
		       when the option has no fallback and is not given */
	OPT_TEXTS,  /* struct cli_texts: may be given several times */
};

struct cli_texts {
	const char **items;
	int count;
};

/* The order suits {"name", kind, offset, "value", .help = "..."}. */
struct cli_option {
	const char *name; /* "shape" for --shape; NULL ends a table */
	enum cli_kind kind;
	size_t offset;	      /* into the struct of its group */
	const char *value;    /* "N"; or words, which are completed: "a|b" */
	const char *fallback; /* parsed when the option is not given; or NULL */
	const char *help;     /* one sentence, no full stop */
	int64_t min, max;     /* OPT_INT; both 0: any */
	char letter;	      /* 'q' for -q, or 0 */
	char is_required;
};

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
/* Index of word in "a|b|c", or -1. */
int cli_word_index(const char *words, const char *word);
/* A whole decimal number; 0 on success. */
int cli_parse_int(const char *text, int64_t *value);
int cli_parse_double(const char *text, double *value);

/* ---- help.c, cmd_completion.c -------------------------------------------- */

void cli_print_overview(FILE *to);
void cli_print_help(const struct cli_command *command, FILE *to);
/* The table of exit codes: the code, then what it says; NULL ends it. */
extern const char *const cli_exit_codes[][2];

/* ---- common.c ------------------------------------------------------------ */

/* "nib check: message" on standard error.  cli_error() returns code. */
__attribute__((format(printf, 2, 3))) int cli_error(enum cli_exit code,
						    const char *format, ...);
__attribute__((format(printf, 1, 2))) void cli_warn(const char *format, ...);
/*
 * Replaces control characters of text by "?": names in files may hold
 * characters that move a terminal's cursor or begin a line of their own.
 */
void cli_clean(char *text);
/* Bytes of the control character that text begins with, those of the direction
 * of writing too; 0: it begins with none. */
size_t cli_control_bytes(const char *text);
/* The name that messages begin with: set by main. */
extern const char *cli_command_name;

/*
 * Prints err, after what it happened to ("model.safetensors", may be NULL), and
 * returns the exit code of its status.  cli_fail_input(): the same where the
 * operating system refused an input rather than an output.
 */
int cli_fail(const char *what, const struct nib_error *err);
int cli_fail_input(const char *what, const struct nib_error *err);
/*
 * The same for a call whose arguments come from options: err->argument is shown
 * as option (if not NULL), and advice ends the message.  {0} ends names.
 */
struct cli_name {
	const char *argument, *option, *advice;
};
int cli_fail_named(const char *what, const struct nib_error *err,
		   const struct cli_name *names);
/* For nib_amax() and nib_quantize(). */
extern const struct cli_name cli_saturate_names[];
int cli_no_memory(const char *what);

extern const char *const cli_dtype_names[]; /* "fp32", "fp16", "bf16" */
#define CLI_DTYPE_WORDS	 "fp32|fp16|bf16"
#define CLI_LAYOUT_WORDS "linear|tiled"
extern const char *const cli_layout_names[]; /* "linear", "tiled" */
/* The type of C of every command without --out, except nib check. */
#define CLI_OUT_DEFAULT "bf16"

/* A terminal that understands escape sequences: TERM is not "dumb". */
int cli_is_terminal(int fd);
/* Seconds of a clock that only goes forward. */
double cli_now_s(void);
/* "1.5 GiB" into text, which is returned. */
#define CLI_SIZE_TEXT 32
const char *cli_size_text(double bytes, char text[CLI_SIZE_TEXT]);
/* "1.500 ms" into text; returns it. */
#define CLI_SECONDS_TEXT 32
const char *cli_seconds_text(double s, char text[CLI_SECONDS_TEXT]);
/* "s" unless n is 1: the plural of what is counted. */
const char *cli_s(int64_t n);

/*
 * "; did you mean 'a', 'b' or 'c'?" into text, of the names of a list that are
 * like word; "" if none is.
 */
#define CLI_NEAREST_TEXT 448
const char *cli_nearest(const char *word,
			const char *(*name_at)(const void *list, int64_t i),
			const void *list, int64_t count, char text[CLI_NEAREST_TEXT]);

/*
 * Whether out may be written: it must not be one of the inputs under another
 * name, and an existing file needs force.  CLI_OK, or prints and returns.
 */
int cli_check_output(const char *out, const char *const *inputs, int n_inputs,
		     int force);

/* ---- stop.c -------------------------------------------------------------- */

/*
 * main calls this once.  SIGINT, SIGTERM and SIGHUP then end nib with a message
 * and 128 + the signal's number; with defer they only set a flag.  An input
 * file that gets shorter while it is mapped (SIGBUS) reads as zeros from there
 * on.
 */
void cli_catch_signals(int defer);
/*
 * Whether to stop, asked between steps and before output is committed: CLI_OK,
 * or the exit code after a message, for a deferred signal or a file that got
 * shorter.
 */
int cli_stopped(void);
/* The same without the message. */
int cli_must_stop(void);
/*
 * For functions whose NULL already means that there is none: memory ran out, so
 * that cli_must_stop() holds from now on.  jansson's allocations call it after
 * cli_watch_memory().
 */
void cli_out_of_memory(void);
void cli_watch_memory(void);
/* CLI_OK, or the exit code after a message. */
int cli_check_memory(void);

#endif
