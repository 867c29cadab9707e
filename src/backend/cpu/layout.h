/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - the CPU backend's own order of both operands.
 *
 * Weights (B): panels of 16 columns.  A panel holds, for every four k-blocks (a
 * k-block is 16 k), 4 * 128 bytes of codes, then 4 * 16 bytes of scales, one a
 * column: 576 bytes, nine cache lines, 0.5625 bytes a value.  The last group of
 * a panel may have fewer k-blocks r: r * 128, then r * 16 bytes.  Panels begin
 * on cache lines and follow each other, so that a thread reads one stream.
 *
 *   codes of a k-block:  two rows z = 0, 1 of 16 dwords, one a column n; dword
 *   n is bytes 4z .. 4z+3 of the 8 that row n of B has for this k-block.  Its
 *   low nibbles are k = 8z + 0, 2, 4, 6 and its high ones k = 8z + 1, 3, 5, 7:
 *   the source bytes as they are, so packing is a transposition of dwords.
 *
 * A block whose scale is 0 gets codes of 0, so that kernels need not test scales: any
 * finite factor times 0 is 0.
 *
 * Activations (A): a record for each row and k-block (24 bytes of NVFP4), in
 * the order in which the main loop reads them: chunks of CHUNK_BLOCKS k-blocks,
 * in a chunk tiles of tile_rows rows (the last tile has as many as are left),
 * in a tile k-blocks, in a k-block rows (`neoni8mm`: pairs of them, store_in_pair()).
 */
#ifndef NIB_CPU_LAYOUT_H
#define NIB_CPU_LAYOUT_H

#include <stdint.h>
#include <string.h>

#define PANEL_COLS   16
#define BLOCK_CODES  128 /* bytes of codes of a k-block of a panel */
#define GROUP_BLOCKS 4
#define GROUP_BYTES  (GROUP_BLOCKS * (BLOCK_CODES + PANEL_COLS))

/* Most k-blocks that a unit expands at a time. */
#define CHUNK_BLOCKS 64

/*
 * The sum_factor of struct cpu_item for A of NVFP4: kernels multiply by 1/256 of B's
 * scales, because the bytes of a scale, read as fp16, have that value.
 */
#define NVFP4_SUM_FACTOR 256.0f

/*
 * The factor in the scales of A rounded to 8 bits, which are 2^-100 to 1.125 * 2^121:
 * 1/2, because B's codes are doubled, times 1/256.  With it a scale times one of B is
 * at least 2^-126, a normal number, and a block partial is below 2^128.
 */
#define INT8_RECORD_SCALE 0x1p-9f
#define INT8_SUM_FACTOR	  65536.0f

/* Makes B's bytes unsigned; they are twice the values of codes, at least -12. */
#define CODE_OFFSET 12

struct cpu_record {
	/*
	 * 2 * value of NVFP4, or the integer of -127 to 127 that A is rounded
	 * to, in the order k = 0 2 4 6, 1 3 5 7, 8 10 12 14, 9 .. 15.
	 */
	int8_t codes[16];
	/* -CODE_OFFSET * sum of codes: cancels B's offset in a dot product. */
	int32_t bias;
	/*
	 * The block's scale / 4 (both codes are doubled), or * INT8_RECORD_SCALE.
	 * For a scale of 0 or NaN it is 1 and the codes are 0.  It has 3 fraction
	 * bits: kernels do integer arithmetic on its bits, which must give a
	 * finite factor.
	 */
	float scale;
};

/* Word g of the four of a record's codes. */
static inline int32_t cpu_record_word(const struct cpu_record *record, int g)
{
	int32_t word;

	memcpy(&word, record->codes + 4 * g, sizeof(word));
	return word;
}

/* The record of dense rows: 16 k as fp32. */
struct cpu_fp32_record {
	float word[16];
};

/*
 * The record of bf16 pairs.  vdpbf16ps: dword 4z + i has k = 8z + i and k = 8z + i + 4.
 * bfmmla: dwords 4z to 4z + 3 have k = 8z + 0 2, 4 6, 1 3, 5 7.
 */
struct cpu_bf16_record {
	int32_t word[8];
};

/*
 * k-blocks of a chunk of `blocks` in all: equal chunks (the last may be
 * shorter), so that each fetches all of the next one.
 */
static inline int64_t cpu_chunk_blocks(int64_t blocks)
{
	const int64_t chunks = (blocks + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS;
	/* At least 1, because positions are divided by it. */
	const int64_t equal = chunks > 0 ? (blocks + chunks - 1) / chunks : 1;

	return (equal + GROUP_BLOCKS - 1) / GROUP_BLOCKS * GROUP_BLOCKS;
}

/*
 * The position of the record of (row, block) in an m x blocks matrix.  The record of
 * the next block in the chunk is as many records further as the tile has rows.
 */
static inline int64_t cpu_record_at(int64_t m, int64_t blocks, int64_t tile_rows,
				    int64_t row, int64_t block)
{
	const int64_t most = cpu_chunk_blocks(blocks);
	const int64_t chunk = block / most * most;
	const int64_t tile = row / tile_rows * tile_rows;
	const int64_t in_chunk = blocks - chunk < most ? blocks - chunk : most;
	const int64_t in_tile = m - tile < tile_rows ? m - tile : tile_rows;

	return chunk * m + tile * in_chunk + (block - chunk) * in_tile + row - tile;
}

static inline int64_t cpu_panel_bytes(int64_t blocks)
{
	const int64_t bytes = blocks * (BLOCK_CODES + PANEL_COLS);

	return (bytes + 63) / 64 * 64;
}

/* Blocks of the group of `block`; `blocks` counts from a group's first block. */
static inline int64_t cpu_group_blocks(int64_t blocks, int64_t block)
{
	const int64_t left = blocks - block / GROUP_BLOCKS * GROUP_BLOCKS;

	return left < GROUP_BLOCKS ? left : GROUP_BLOCKS;
}

static inline int64_t cpu_codes_at(int64_t block)
{
	return block / GROUP_BLOCKS * GROUP_BYTES + block % GROUP_BLOCKS * BLOCK_CODES;
}

static inline int64_t cpu_scales_at(int64_t blocks, int64_t block)
{
	return block / GROUP_BLOCKS * GROUP_BYTES +
	       cpu_group_blocks(blocks, block) * BLOCK_CODES +
	       block % GROUP_BLOCKS * PANEL_COLS;
}

#endif
