/* SPDX-License-Identifier: Apache-2.0 */
/* other_format.h - recognises files that are not safetensors. */
#ifndef NIB_FILE_OTHER_FORMAT_H
#define NIB_FILE_OTHER_FORMAT_H

#include <stddef.h>

/* Describes a file without a safetensors header by its first bytes, with what to do:
 * "a GGUF file: ...".  NULL: unknown. */
const char *nib_other_format(const void *bytes, size_t n_bytes);
/* The same by the end of the file's name. */
const char *nib_other_format_named(const char *name);

#endif
