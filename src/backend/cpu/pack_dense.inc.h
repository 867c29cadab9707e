/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_dense.inc.h - rows of floats to records (layout.h), in plain C that
 * every instruction set compiles for itself.  The including file defines
 *   record         the type of a k-block of a row
 *   PACK_BLOCK(x, dtype, out)   16 elements to a record; gives CPU_ROW_ flags
 * and may define
 *   WIDEN_FP16(from, to)   16 fp16 to 16 floats, in place of the loop here
 */
#include <string.h>

#include "backend/cpu/gemm_ops.h"
#include "format/half.h"

/* 16 elements; no state of the floating-point unit matters.  Flags: none. */
static inline uint8_t widen_block(const uint8_t *x, enum nib_dtype dtype, float *out)
{
	uint16_t half[NIB_NVFP4_BLOCK];

	if (dtype == NIB_DTYPE_FP32) {
		memcpy(out, x, NIB_NVFP4_BLOCK * sizeof(*out));
		return 0;
	}
#ifdef WIDEN_FP16
	if (dtype == NIB_DTYPE_FP16) {
		WIDEN_FP16(x, out);
		return 0;
	}
#endif
	memcpy(half, x, sizeof(half));
	for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
		out[j] = dtype == NIB_DTYPE_FP16 ? nib_fp16_to_fp32(half[j])
						 : nib_bf16_to_fp32(half[j]);
	return 0;
}

/* Row i of item->x into its records, in tiles of tile_rows. */
static inline void pack_dense_row(const struct cpu_item *item, int64_t i,
				  int64_t tile_rows)
{
	const int64_t tile = i / tile_rows * tile_rows;
	const int64_t in_tile = item->m - tile < tile_rows ? item->m - tile : tile_rows;
	const int64_t chunk = cpu_chunk_blocks(item->blocks);
	const int64_t block_bytes = item->x.dtype == NIB_DTYPE_FP32 ? 64 : 32;
	const uint8_t *x = nib_offset_bytes(item->x.data, i * item->x.row_stride_bytes);
	record *out = NULL;
	uint8_t flags = 0;

	for (int64_t k = 0; k < item->blocks; k++, out += in_tile) {
		if (k % chunk == 0)
			out = (record *)item->packed_a +
			      cpu_record_at(item->m, item->blocks, tile_rows, i, k);
		flags |= PACK_BLOCK(x, item->x.dtype, out);
		x += block_bytes;
	}
	item->row_flags[i] = flags;
}
