/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integer_sums.h - the sums of kind::i8: the exact sum of 32 products of bytes and a
 * 32-bit c, which is then wrapped to 32 bits or, if requested, saturated.  Memory
 * and layouts are not known here.
 */
#ifndef EMU_INTEGER_SUMS_H
#define EMU_INTEGER_SUMS_H

#include "hardware/emu.h"

#define EMU_INTEGER_K 32

/* Rows of A, or of B (columns of D), of bytes with or without a sign. */
struct emu_integer_operand {
	int rows;
	bool is_signed;
	const uint8_t (*row)[EMU_INTEGER_K];
};

/* d[m][n] = row m of a times row n of b + c[m][n]; c NULL: zeros; c and d may
 * be the same. */
void emu_integer_sums(const struct emu_integer_operand *a,
		      const struct emu_integer_operand *b, bool saturates,
		      const uint32_t *c, uint32_t *d);

#endif
