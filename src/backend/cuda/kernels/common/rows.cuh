/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cuh - how the mma kernels find rows of operands and load them, of any alignment
 * and layout of scales. */
#ifndef NIB_ROWS_CUH
#define NIB_ROWS_CUH

#include "gemv_operand.h"
#include "ptx_async.cuh"

/* The address of a row.  The host checks that strides fit in 31 bits. */
DEVICE const uint8_t *row_of(const uint8_t *first, int row, int64_t stride)
{
	return first + (int64_t)row * (int32_t)stride;
}

/* Copies 4 bytes to shared memory; align: of the source, 1, 4 or 16. */
DEVICE void load_4(uint32_t to, const uint8_t *from, int align)
{
	if (align >= 4)
		cp_async_4(to, from, 4);
	else
		sts_32(to, from[0] | from[1] << 8 | from[2] << 16 |
			       (uint32_t)from[3] << 24);
}

DEVICE void load_16(uint32_t to, const uint8_t *from, int align)
{
	if (align >= 16) {
		cp_async_16_l1(to, from);
	} else {
#pragma unroll
		for (int i = 0; i < 16; i += 4)
			load_4(to + i, from + i, align);
	}
}

/* The scales of the four blocks of a k64 of a row. */
DEVICE const uint8_t *scales_of(const struct nib_gemv_operand &v, int k, int row,
				int k64)
{
	if (!v.is_tiled)
		return row_of(v.scales, row, v.scale_row_stride) + k64 * 4;
	return v.scales + ((int64_t)(row / 128) * (k / 64) + k64) * 512 +
	       row % 32 * 16 + row % 128 / 32 * 4;
}

#endif
