/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.h - why two layers differ, by trying the usual mistakes. */
#ifndef NIB_DIAGNOSE_H
#define NIB_DIAGNOSE_H

#include "tensor.h"

/*
 * Writes into text what would make b like a ("with its nibbles exchanged it is
 * 20.1 dB"), or "" if none of the usual mistakes explains the difference. error
 * is that of the whole of a and b.  Looks at the first 128 rows.
 */
void diagnose(struct nib_device *device, const struct tensor_source *a,
	      const struct tensor_source *b, const struct tensor_error *error,
	      char *text, size_t bytes);

#endif
