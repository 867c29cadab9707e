/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_scalar.c - the definition of the CPU backend's multiplication.  Each
 * output is a sum over k-blocks in ascending order, in fp32:
 *   sum += (integer dot product of the block) * (scale of a / 4 * scale of b)
 * The product in brackets is exact (at most 20 bits), so each step rounds once,
 * at the addition, and a fused multiply-add gives the same bits.
 */
#include <string.h>

#include "backend/cpu/gemm_ops.h"
#include "format/e4m3.h"
#include "format/scale_layout.h"

#include "backend/cpu/epilogue.inc.h"
#include "backend/cpu/pack.inc.h"

#define TILE_ROWS 8

/* A k-block of a panel, decoded: codes[j][n] meets record.codes[j]. */
struct decoded {
	int16_t codes[NIB_BLOCK][PANEL_COLS];
	float scales[PANEL_COLS];
};

static void decode(const uint8_t *panel, int64_t blocks, int64_t block,
		   struct decoded *out)
{
	const uint8_t *codes = panel + cpu_codes_at(block);
	const uint8_t *scales = panel + cpu_scales_at(blocks, block);

	for (int n = 0; n < PANEL_COLS; n++) {
		for (int i = 0; i < 4; i++) {
			uint8_t z0 = codes[4 * n + i],
				z1 = codes[64 + 4 * n + i];

			out->codes[i][n] = nib_e2m1_twice[z0 & 15];
			out->codes[4 + i][n] = nib_e2m1_twice[z0 >> 4];
			out->codes[8 + i][n] = nib_e2m1_twice[z1 & 15];
			out->codes[12 + i][n] = nib_e2m1_twice[z1 >> 4];
		}
		/* A NaN becomes 480 here; the epilogue's mask makes the result
		 * NaN. */
		out->scales[n] =
		    scales[n] == 0x7f ? 480.0f : nib_e4m3_to_float(scales[n]);
	}
}

/* sums[16] of one row += one k-block. */
static void add_block(const struct cpu_record *a, const struct decoded *b,
		      float *sums)
{
	int32_t dot[PANEL_COLS] = {0};

	for (int j = 0; j < NIB_BLOCK; j++)
		for (int n = 0; n < PANEL_COLS; n++)
			dot[n] += a->codes[j] * b->codes[j][n];
	for (int n = 0; n < PANEL_COLS; n++)
		sums[n] += (float)dot[n] * (a->scale * b->scales[n]);
}

/* sums[row][16] of one panel over all k. */
static void sum_panel(const struct cpu_item *item, const struct cpu_weights *b,
		      int64_t m0, int64_t rows, int64_t n0, uint8_t *packed,
		      float *sums, uint16_t *nan)
{
	const int64_t blocks = item->blocks;
	const uint8_t *panel = packed;
	struct decoded decoded;

	if (b->panels) {
		panel = b->panels + n0 / PANEL_COLS * b->panel_stride_bytes;
		*nan = b->nan_columns[n0 / PANEL_COLS];
	}
	memset(sums, 0, (size_t)(rows * PANEL_COLS) * sizeof(*sums));
	for (int64_t k = 0; k < blocks; k++) {
		if (b->panels) {
			decode(panel, blocks, k, &decoded);
		} else {
			*nan |= pack_panel(&b->rows, n0, k, 1, packed);
			decode(packed, 1, 0, &decoded);
		}
		for (int64_t i = 0; i < rows; i++) {
			add_block(&item->records[cpu_record_at(
				      item->m, blocks, TILE_ROWS, m0 + i, k)],
				  &decoded, sums + i * PANEL_COLS);
		}
	}
}

static size_t scratch_bytes(int64_t unit_rows, bool dual)
{
	return 256 +
	       (size_t)unit_rows * PANEL_COLS * sizeof(float) * (dual ? 2 : 1);
}

static void multiply(const struct cpu_item *item, bool dual, int64_t m0,
		     int64_t n0, void *scratch)
{
	const int64_t rows =
	    item->m - m0 < item->unit_rows ? item->m - m0 : item->unit_rows;
	const int64_t end = item->n - n0 < UNIT_COLS ? item->n : n0 + UNIT_COLS;
	uint8_t *packed = scratch;
	float *sums = (float *)((char *)scratch + 256);
	float *sums2 = sums + rows * PANEL_COLS;

	for (int64_t n = n0; n < end; n += PANEL_COLS) {
		int64_t cols = end - n < PANEL_COLS ? end - n : PANEL_COLS;
		uint16_t nan = 0, nan2 = 0;

		sum_panel(item, &item->b[0], m0, rows, n, packed, sums, &nan);
		if (dual)
			sum_panel(item, &item->b[1], m0, rows, n, packed, sums2,
				  &nan2);
		for (int64_t i = 0; i < rows; i++)
			finish_row(item, m0 + i, n, cols, sums + i * PANEL_COLS,
				   dual ? sums2 + i * PANEL_COLS : NULL,
				   (uint64_t)(nan | nan2));
	}
}

static void pack_all_rows(const struct cpu_item *item, int64_t m0, int64_t rows)
{
	for (int64_t i = m0; i < m0 + rows; i++)
		pack_row(item, i, TILE_ROWS);
}

void cpu_gemm_ops_scalar(struct cpu_gemm_ops *ops)
{
	ops->tile_rows = TILE_ROWS;
	ops->direct_rows = 0;
	ops->scratch_bytes = scratch_bytes;
	ops->pack_rows = pack_all_rows;
	ops->pack_panel = pack_panel;
	ops->multiply = multiply;
}
