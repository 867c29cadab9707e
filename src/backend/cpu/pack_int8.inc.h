/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_int8.inc.h - rows of dense A, rounded to 8 bits for NIB_ACTIVATIONS_INT8,
 * into records (layout.h), which the kernels multiply as they do NVFP4's.  Plain
 * C that every instruction set compiles for itself.  The including file may
 * define PACK_INT8_BLOCK, a faster pack_int8_block().
 */
#include <math.h>

#include "backend/cpu/gemm_ops.h"
#include "format/int8.h"
#include "format/view.h"

#ifndef PACK_INT8_BLOCK
#define PACK_INT8_BLOCK pack_int8_block

/*
 * One k-block of values of dtype.  Returns whether one is inf or NaN: then the
 * record may be anything, because its row's results are not used.
 */
static inline bool pack_int8_block(const uint8_t *x, enum nib_dtype dtype,
				   struct cpu_record *out)
{
	static const uint8_t order[NIB_NVFP4_BLOCK] = {0, 2,  4,  6,  1, 3,  5,	 7,
						       8, 10, 12, 14, 9, 11, 13, 15};
	const struct nib_dense view = {.data = (void *)(uintptr_t)x, .dtype = dtype};
	float values[NIB_NVFP4_BLOCK], scale;
	int8_t codes[NIB_NVFP4_BLOCK];
	int32_t sum = 0;

	for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
		values[j] = nib_dense_get(&view, 0, 0, j);
	scale = nib_int8_block(codes, values);
	for (int j = 0; j < NIB_NVFP4_BLOCK; j++) {
		out->codes[j] = codes[order[j]];
		sum += codes[j];
	}
	out->bias = -CODE_OFFSET * sum;
	out->scale = scale * INT8_RECORD_SCALE;
	return isnan(scale);
}
#endif

/* Row i of item->x, whose type is known when compiled. */
static inline __attribute__((always_inline)) bool
pack_int8_blocks(const struct cpu_item *item, int64_t i, int64_t tile_rows,
		 enum nib_dtype dtype)
{
	const int64_t tile = i / tile_rows * tile_rows;
	const int64_t in_tile = item->m - tile < tile_rows ? item->m - tile : tile_rows;
	const int64_t blocks = item->blocks, chunk = cpu_chunk_blocks(blocks);
	const int64_t bytes = NIB_NVFP4_BLOCK * (dtype == NIB_DTYPE_FP32 ? 4 : 2);
	const uint8_t *x = nib_offset_bytes(item->x.data, i * item->x.row_stride_bytes);
	const bool in_pair = IN_PAIR(item, i - tile, in_tile);
	struct cpu_record single;
	bool has_nan = false;

	for (int64_t k0 = 0; k0 < blocks; k0 += chunk) {
		const int64_t end = k0 + chunk < blocks ? k0 + chunk : blocks;
		struct cpu_record *out =
		    item->records + cpu_record_at(item->m, blocks, tile_rows, i, k0);

		for (int64_t k = k0; k < end; k++, x += bytes, out += in_tile) {
			has_nan |= PACK_INT8_BLOCK(x, dtype, in_pair ? &single : out);
			if (in_pair)
				store_in_pair(&single, i - tile, out);
		}
	}
	return has_nan;
}

/* Row i of A into its records, in tiles of tile_rows. */
static inline void pack_row(const struct cpu_item *item, int64_t i, int64_t tile_rows)
{
	bool has_nan;

	if (item->activations == NIB_ACTIVATIONS_NVFP4) {
		pack_nvfp4_row(item, i, tile_rows);
		return;
	}
	if (item->x.dtype == NIB_DTYPE_FP32)
		has_nan = pack_int8_blocks(item, i, tile_rows, NIB_DTYPE_FP32);
	else if (item->x.dtype == NIB_DTYPE_FP16)
		has_nan = pack_int8_blocks(item, i, tile_rows, NIB_DTYPE_FP16);
	else
		has_nan = pack_int8_blocks(item, i, tile_rows, NIB_DTYPE_BF16);
	item->row_flags[i] = has_nan ? CPU_ROW_NAN : 0;
}
