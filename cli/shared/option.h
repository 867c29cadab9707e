/* SPDX-License-Identifier: Apache-2.0 */
/* option.h - one option of a command, and the types of its value. */
#ifndef NIB_OPTION_H
#define NIB_OPTION_H

#include <stddef.h>
#include <stdint.h>

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

#endif
