/* SPDX-License-Identifier: Apache-2.0 */
/* data_fill.h - random codes, scales and floats for data.c. */
#ifndef NIB_DATA_FILL_H
#define NIB_DATA_FILL_H

#include "data.h"

void data_fill_codes(void *codes, size_t bytes, enum data_fill fill,
		     uint64_t *seed);
void data_fill_scales(void *scales, size_t bytes, enum data_fill fill,
		      uint64_t *seed);
/*
 * Numbers with 8 significant bits, exact in every dtype, whose size differs
 * from block to block; one block in 64 is zero.
 */
void data_fill_floats(void *x, enum nib_dtype dtype, int64_t count,
		      uint64_t *seed);

#endif
