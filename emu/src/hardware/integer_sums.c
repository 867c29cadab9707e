/* SPDX-License-Identifier: Apache-2.0 */
/* integer_sums.c - see integer_sums.h. */
#include "hardware/integer_sums.h"

static int64_t element(const struct emu_integer_operand *o, int row, int k)
{
	const uint8_t byte = o->row[row][k];

	return o->is_signed && byte > 127 ? byte - 256 : byte;
}

void emu_integer_sums(const struct emu_integer_operand *a,
		      const struct emu_integer_operand *b, bool saturates,
		      const uint32_t *c, uint32_t *d)
{
	for (int m = 0; m < a->rows; m++)
		for (int n = 0; n < b->rows; n++) {
			const int at = m * b->rows + n;
			int64_t sum = c ? (int32_t)c[at] : 0;

			for (int k = 0; k < EMU_INTEGER_K; k++)
				sum += element(a, m, k) * element(b, n, k);
			if (saturates && sum > INT32_MAX)
				sum = INT32_MAX;
			if (saturates && sum < INT32_MIN)
				sum = INT32_MIN;
			d[at] = (uint32_t)sum;
		}
}
