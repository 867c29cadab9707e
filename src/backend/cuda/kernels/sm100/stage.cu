/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.cu - copies operands that no tensor map can describe into buffers that one can:
 * one launch for all operands of a product.
 *
 *   codes   rows at multiples of 8 bytes --ldg--> piece --stg--> rows of 16-byte pieces
 *   scales  linear, or tiled rows of experts --ldg--> piece --stg--> tiles of 128 x 4
 *
 *   piece of codes           32 codes of a row
 *   piece r of a tile of     bytes 4 q .. 4 q + 3: four scales of row r + 32 q
 *   scales, 16 bytes
 *
 * The warps have no roles: each thread copies a piece and then the one a grid further
 * on, and neighbouring threads write neighbouring pieces.  No barriers, no shared
 * memory, 38 registers (docs/kernels.md).  Roofline: the rate of memory.
 */
#include "backend/cuda/kernels/common/ptx_async.cuh"
#include "stage_params.h"

#define E4M3_NAN 0x7F7F7F7Fu

/* The source of a block of 128 rows of scales. */
struct scale_rows {
	int64_t first; /* row of the source that becomes row 0 of the block */
	int32_t count; /* rows that exist */
	bool is_nan;   /* the rows leave the caller's tensor */
};

/* The copy that piece i belongs to. */
DEVICE const struct nib_stage_copy *find_copy(const struct nib_stage_params &p,
					      int64_t i)
{
	int32_t low = 0, high = p.count;

	while (high - low > 1) {
		const int32_t mid = (low + high) / 2;

		if (p.copies[mid].first_piece <= i)
			low = mid;
		else
			high = mid;
	}
	return p.copies + low;
}

/* Clamped as in the kernel of the product. */
DEVICE int32_t expert_row(const struct nib_stage_params &p, int32_t e)
{
	return min(max(p.row_offsets[e], 0), p.rows);
}

DEVICE struct scale_rows rows_of_expert(const struct nib_stage_params &p, int32_t block)
{
	struct scale_rows rows = {0, 0, false};
	int32_t low = 0, high = p.experts;
	int32_t first, m, local;

	while (high - low > 1) {
		const int32_t mid = (low + high) / 2;

		if (nib_sm100_staged_row(mid, expert_row(p, mid)) / 128 <= block)
			low = mid;
		else
			high = mid;
	}
	first = expert_row(p, low);
	m = expert_row(p, low + 1) - first;
	local = (block - nib_sm100_staged_row(low, first) / 128) * 128;
	/* Offsets that do not ascend may lead to an expert that begins later. */
	if (local < 0)
		return rows;
	rows.first = (int64_t)first + local;
	rows.count = m - local;
	if (p.scale_rows) {
		const int32_t begin = p.scale_rows[low];

		rows.is_nan = begin < 0 || begin > p.scale_rows_total ||
			      m > p.scale_rows_total - begin;
		rows.first = (int64_t)begin + local;
	}
	return rows;
}

/* n <= 4 bytes from any address, and zeros above them. */
DEVICE uint32_t load_bytes(const uint8_t *from, int32_t n)
{
	uint32_t word = 0;

	if (n >= 4 && ((uintptr_t)from & 3) == 0)
		return *(const uint32_t *)from;
	for (int32_t i = 0; i < 4; i++)
		if (i < n)
			word |= (uint32_t)from[i] << 8 * i;
	return word;
}

DEVICE uint4 load_scales(const struct nib_stage_params &p,
			 const struct nib_stage_copy &c, int64_t matrix, int64_t piece,
			 bool *is_inside)
{
	const int32_t across = nib_stage_tiles_across(c.k);
	const int64_t tile = piece / 32;
	const int32_t block = (int32_t)(tile / across);
	const int32_t group = (int32_t)(tile % across) * 4;
	const int32_t groups = min(4, c.k / 16 - group);
	const uint8_t *from = c.from + matrix * c.batch_stride_bytes;
	struct scale_rows rows = {(int64_t)block * 128, c.rows - block * 128, false};
	uint32_t word[4];

	if (c.is_of_experts)
		rows = rows_of_expert(p, block);
	*is_inside = rows.count > 0;
#pragma unroll
	for (int32_t j = 0; j < 4; j++) {
		const int32_t inside = (int32_t)(piece % 32) + 32 * j;
		const int64_t row = rows.first + inside;
		int64_t at = row * c.row_stride_bytes + group;

		if (c.kind == NIB_STAGE_TILED)
			at = (row / 128 * across + group / 4) * 512 + row % 32 * 16 +
			     row % 128 / 32 * 4;
		word[j] = 0;
		if (inside < rows.count && rows.is_nan)
			word[j] = E4M3_NAN >> 8 * (4 - groups);
		else if (inside < rows.count)
			word[j] = load_bytes(from + at, groups);
	}
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Rows of codes begin at multiples of 8 bytes, and so do the halves of a piece. */
DEVICE uint4 load_codes(const struct nib_stage_copy &c, int64_t matrix, int64_t piece)
{
	const int32_t pieces = nib_stage_row_pieces(c.k);
	const int64_t row = piece / pieces;
	const int32_t byte = (int32_t)(piece % pieces) * NIB_STAGE_PIECE;
	const uint2 *from = (const uint2 *)(c.from + matrix * c.batch_stride_bytes +
					    row * c.row_stride_bytes + byte);
	const uint2 low = from[0];
	uint2 high = make_uint2(0, 0);

	if (byte + 8 < c.k / 2)
		high = from[1];
	return make_uint4(low.x, low.y, high.x, high.y);
}

extern "C" __global__ void __launch_bounds__(NIB_STAGE_THREADS)
    nib_stage_sm100(const __grid_constant__ struct nib_stage_params p)
{
	const int64_t stride = (int64_t)gridDim.x * NIB_STAGE_THREADS;
	int64_t i = (int64_t)blockIdx.x * NIB_STAGE_THREADS + threadIdx.x;

	/*
	 * The previous kernel may still write what this one reads, and read what this
	 * one writes.  The product waits for this kernel in the same way.
	 */
	griddepcontrol_wait();
	griddepcontrol_launch_dependents();
	for (; i < p.pieces; i += stride) {
		const struct nib_stage_copy &c = *find_copy(p, i);
		const int64_t at = i - c.first_piece;
		const int64_t matrix = at / c.matrix_pieces;
		const int64_t piece = at - matrix * c.matrix_pieces;
		bool is_inside = true;
		uint4 x;

		if (c.kind == NIB_STAGE_CODES)
			x = load_codes(c, matrix, piece);
		else
			x = load_scales(p, c, matrix, piece, &is_inside);
		/* A block that belongs to no expert is not read later. */
		if (is_inside)
			((uint4 *)c.to)[at] = x;
	}
}
