/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - the element types that a safetensors file can name. */
#ifndef NIB_FILE_DTYPE_H
#define NIB_FILE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#define NIB_MAX_HEADER_BYTES 100000000

struct nib_file_dtype {
	const char *name;
	unsigned bits; /* of one element; 4 and 6 are packed */
};

/* NULL if there is no such type. */
const struct nib_file_dtype *nib_file_dtype_find(const char *name);

/* Computes the bytes of a tensor; false if they overflow or are not a whole number.
 * Sizes are not negative. */
bool nib_file_shape_bytes(const struct nib_file_dtype *dtype, int rank,
			  const int64_t *shape, uint64_t *bytes);

#endif
