/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - how every function of the library fails: a status, the argument
 * that broke the rule, and one line of text.
 */
#ifndef NIB_ERROR_H
#define NIB_ERROR_H

#include "nibblas.h"

/*
 * Writes status and the formatted message (cut to fit, between two
 * characters) into err, which may be NULL, and returns status:
 *	return nib_fail(err, NIB_STATUS_IO, "...", ...);
 * The error is about no single argument.
 */
__attribute__((format(printf, 3, 4))) enum nib_status
nib_fail(struct nib_error *err, enum nib_status status, const char *format, ...);

/*
 * The same for an error about one argument, spelled as in nibblas.h.  The
 * message is the argument followed by the formatted text:
 *	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "options.threads",
 *				 " = %d: must be 0 to 8", threads);
 */
__attribute__((format(printf, 4, 5))) enum nib_status
nib_fail_argument(struct nib_error *err, enum nib_status status, const char *argument,
		  const char *format, ...);

/*
 * The name of an argument in parts, which become text only when it is refused:
 * array[index].field, array.field if index is negative, field if array is NULL.
 * An empty field and its dot are left out.
 */
struct nib_label {
	const char *array;
	int64_t index;
	const char *field;
};

static inline struct nib_label nib_label(const char *name)
{
	return (struct nib_label){NULL, -1, name};
}

static inline struct nib_label nib_label_of(const char *array, int64_t index,
					    const char *field)
{
	return (struct nib_label){array, index, field};
}

/* Writes the text into a buffer, which it returns. */
struct nib_label_text {
	char text[sizeof(((struct nib_error *)0)->argument)];
};
const char *nib_label_write(struct nib_label label, struct nib_label_text *text);
#define NIB_LABEL_TEXT(label) nib_label_write(label, &(struct nib_label_text){{0}})

/* As nib_fail_argument(), about label.member, or label if member is "". */
__attribute__((format(printf, 5, 6))) enum nib_status
nib_fail_at(struct nib_error *err, enum nib_status status, struct nib_label label,
	    const char *member, const char *format, ...);

/*
 * Gives the argument of an error another name, in its message too; err may be
 * NULL.
 */
void nib_error_rename(struct nib_error *err, const char *argument);

/* The analyzer sees one file at a time: tell it that status is returned. */
#ifdef __clang_analyzer__
#define nib_fail(err, status, ...) (nib_fail(err, status, __VA_ARGS__), status)
#define nib_fail_argument(err, status, ...)                                            \
	(nib_fail_argument(err, status, __VA_ARGS__), status)
#define nib_fail_at(err, status, ...) (nib_fail_at(err, status, __VA_ARGS__), status)
#endif

#endif
