/* SPDX-License-Identifier: Apache-2.0 */
/* other_format.h - what a file is that is given in the place of safetensors. */
#ifndef NIB_FILE_OTHER_FORMAT_H
#define NIB_FILE_OTHER_FORMAT_H

#include <stddef.h>

/* "a GGUF file: ...", with what to do, by the first bytes of a file that has no
 * safetensors header; NULL: unknown. */
const char *nib_other_format(const void *bytes, size_t n_bytes);
/* The same by the end of a file's name. */
const char *nib_other_format_named(const char *name);

#endif
