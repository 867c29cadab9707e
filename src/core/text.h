/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - UTF-8, and names and paths in one-line messages. */
#ifndef NIB_TEXT_H
#define NIB_TEXT_H

#include <stddef.h>

#include "nibblas.h"

/* Space for a name or a path in a message, with the NUL. */
#define NIB_SHOWN_BYTES 80

/*
 * Bytes of the UTF-8 character at the beginning of text, which has n_bytes; 0
 * if there is none.  Overlong forms and surrogates are no characters.
 */
size_t nib_utf8_char_bytes(const char *text, size_t n_bytes);

/*
 * Copies a name from a file so that it can be printed: control characters and
 * bytes that are not UTF-8 become '?', and an end that does not fit becomes
 * "...".  Returns shown.
 */
const char *nib_show_name(char shown[NIB_SHOWN_BYTES], const char *name);
/* The same for a path, whose end is kept. */
const char *nib_show_path(char shown[NIB_SHOWN_BYTES], const char *path);

/*
 * "PATH: cannot DO: what errno's code means"; NIB_STATUS_IO, or
 * NIB_STATUS_OUT_OF_MEMORY for ENOMEM.
 */
enum nib_status nib_fail_errno(struct nib_error *err, const char *path,
			       const char *verb, int code);

#endif
