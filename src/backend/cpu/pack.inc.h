/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.inc.h - from the caller's rows to the backend's order (layout.h), in
 * plain C that every instruction set compiles for itself.  The including file may
 * define PACK_RECORD, a faster pack_record(), FINISH_RECORD and IN_PAIR
 * (multiply.inc.h).
 */
#include <string.h>

#include "backend/cpu/gemm_ops.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/scale_layout.h"
#include "format/view.h"

/*
 * The scales of a row: that of k-block k is at[k / 4 * step + k % 4], in both
 * layouts.  Their sign bits are dropped (cuBLAS ignores them as well).
 */
struct scale_row {
	const uint8_t *at;
	int64_t step;
};

static inline struct scale_row scale_row_of(const struct cpu_rows *rows, int64_t row)
{
	row += rows->scale_row;
	if (rows->scale_layout == NIB_SCALE_LAYOUT_LINEAR)
		return (struct scale_row){
		    nib_offset_bytes(rows->scales, row * rows->scale_row_stride_bytes),
		    4};
	return (struct scale_row){
	    nib_offset_bytes(rows->scales,
			     nib_scale_offset_tiled(rows->blocks, row, 0)),
	    NIB_SCALE_TILE_BYTES};
}

static inline const uint8_t *codes_of(const struct cpu_rows *rows, int64_t row)
{
	return nib_offset_bytes(rows->codes, row * rows->row_stride_bytes);
}

static inline uint8_t scale_at(struct scale_row row, int64_t block)
{
	return row.at[block / 4 * row.step + block % 4] & 0x7f;
}

#ifndef FINISH_RECORD
#define FINISH_RECORD(record) (void)(record)
#endif

#ifndef IN_PAIR
#define IN_PAIR(item, row, rows) false
#endif

/*
 * Stores a record in a pair's layout: of both rows the first halves of the codes, then
 * the second halves, then bias and scale.  out: the record of this row of its tile.
 */
static inline void store_in_pair(const struct cpu_record *from, int64_t row,
				 struct cpu_record *out)
{
	char *to = (char *)(out - row % 2) + row % 2 * 8;

	for (int i = 0; i < 3; i++)
		memcpy(to + 16 * i, (const char *)from + 8 * i, 8);
}

#ifndef PACK_RECORD
#define PACK_RECORD pack_record

/* One k-block's 8 bytes of codes, and a scale that is neither 0 nor NaN. */
static inline void pack_record(const uint8_t *codes, uint8_t scale,
			       struct cpu_record *out)
{
	int32_t sum = 0;

	for (int j = 0; j < 4; j++) {
		out->codes[j] = nib_e2m1_twice[codes[j] & 15];
		out->codes[4 + j] = nib_e2m1_twice[codes[j] >> 4];
		out->codes[8 + j] = nib_e2m1_twice[codes[4 + j] & 15];
		out->codes[12 + j] = nib_e2m1_twice[codes[4 + j] >> 4];
	}
	for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
		sum += out->codes[j];
	out->bias = -CODE_OFFSET * sum;
	out->scale = nib_e4m3_to_float(scale) * 0.25f;
}
#endif

/* Row i of item->a into its records, in tiles of tile_rows. */
static inline void pack_nvfp4_row(const struct cpu_item *item, int64_t i,
				  int64_t tile_rows)
{
	const int64_t tile = i / tile_rows * tile_rows;
	const int64_t in_tile = item->m - tile < tile_rows ? item->m - tile : tile_rows;
	const uint8_t *codes = codes_of(&item->a, i);
	const struct scale_row scales = scale_row_of(&item->a, i);
	const int64_t chunk = cpu_chunk_blocks(item->blocks);
	const bool in_pair = IN_PAIR(item, i - tile, in_tile);
	struct cpu_record *out = NULL, single = {0};
	uint8_t has_nan = 0;

	for (int64_t k = 0; k < item->blocks; k++, codes += 8, out += in_tile) {
		const uint8_t scale = scale_at(scales, k);
		struct cpu_record *to;

		if (k % chunk == 0)
			out = item->records +
			      cpu_record_at(item->m, item->blocks, tile_rows, i, k);
		to = in_pair ? &single : out;
		if (scale == 0 || scale == NIB_E4M3_NAN) {
			has_nan |= scale == NIB_E4M3_NAN;
			memset(to, 0, sizeof(*to));
			to->scale = 1.0f;
			FINISH_RECORD(to);
		} else {
			PACK_RECORD(codes, scale, to);
		}
		if (in_pair)
			store_in_pair(to, i - tile, out);
	}
	item->row_flags[i] = has_nan ? CPU_ROW_NAN : 0;
}

/* One row's codes and scales into column n of a panel. */
static inline uint8_t pack_column(const struct cpu_rows *b, int64_t row, int64_t n,
				  int64_t block0, int64_t blocks, uint8_t *panel)
{
	const struct scale_row scales = scale_row_of(b, row);
	const uint8_t *codes = nib_offset_bytes(codes_of(b, row), block0 * 8);
	uint8_t has_nan = 0;

	for (int64_t k = 0; k < blocks; k++, codes += 8) {
		uint8_t scale = scale_at(scales, block0 + k);
		uint8_t *out = panel + cpu_codes_at(k) + 4 * n;

		panel[cpu_scales_at(blocks, k) + n] = scale;
		has_nan |= scale == NIB_E4M3_NAN;
		if (scale) {
			memcpy(out, codes, 4);
			memcpy(out + 64, codes + 4, 4);
		} else {
			memset(out, 0, 4);
			memset(out + 64, 0, 4);
		}
	}
	return has_nan;
}

/* Fills a column that does not exist with zeros. */
static inline void clear_column(int64_t n, int64_t blocks, uint8_t *panel)
{
	for (int64_t k = 0; k < blocks; k++) {
		uint8_t *out = panel + cpu_codes_at(k) + 4 * n;

		panel[cpu_scales_at(blocks, k) + n] = 0;
		memset(out, 0, 4);
		memset(out + 64, 0, 4);
	}
}

static inline uint16_t pack_panel(const struct cpu_rows *b, int64_t n0, int64_t block0,
				  int64_t blocks, uint8_t *panel)
{
	unsigned int nan = 0;

	for (int64_t n = 0; n < PANEL_COLS; n++) {
		if (n0 + n < b->rows)
			nan |= (unsigned int)pack_column(b, n0 + n, n, block0, blocks,
							 panel)
			       << n;
		else
			clear_column(n, blocks, panel);
	}
	return (uint16_t)nan;
}
