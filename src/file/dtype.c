/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - the element types that a safetensors file can name. */
#include "dtype.h"

#include <stddef.h>
#include <string.h>

/* All of safetensors 0.7. */
static const struct nib_file_dtype dtypes[] = {
    {"BOOL", 8},    {"F4", 4},		{"F6_E2M3", 6},	    {"F6_E3M2", 6},
    {"U8", 8},	    {"I8", 8},		{"F8_E5M2", 8},	    {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},	{"BF16", 16},	    {"I32", 32},
    {"U32", 32},    {"F32", 32},	{"C64", 64},	    {"F64", 64},
    {"I64", 64},    {"U64", 64},
};

const struct nib_file_dtype *nib_file_dtype_find(const char *name)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (strcmp(name, dtypes[i].name) == 0)
			return &dtypes[i];
	}
	return NULL;
}

bool nib_file_shape_bytes(const struct nib_file_dtype *dtype, int rank,
			  const int64_t *shape, uint64_t *bytes)
{
	uint64_t elems = 1, bits;

	for (int i = 0; i < rank; i++) {
		if (__builtin_mul_overflow(elems, (uint64_t)shape[i], &elems))
			return false;
	}
	if (__builtin_mul_overflow(elems, dtype->bits, &bits))
		return false;
	*bytes = bits / 8;
	return bits % 8 == 0;
}
