/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units_scalar.inc.h - a unit of the output, a panel at a time, for both kinds
 * of A.  The including file defines
 *   CPU_GEMM_OPS   the function that fills the set's table
 *   TILE_ROWS      rows of a tile of records
 *   record         the type of a k-block of a row of A in item->packed_a
 *   PACK_ROW(item, i)   row i of A into its records
 *   struct decoded, decode()   a k-block of a panel
 *   add_block()    adds a k-block of one row to its 16 sums
 */

/* sums[row][16] of one panel over all k. */
static void sum_panel(const struct cpu_item *item, const struct cpu_weights *b,
		      int64_t m0, int64_t rows, int64_t n0, uint8_t *packed,
		      float *sums, uint16_t *nan)
{
	const record *records = item->packed_a;
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
			add_block(records + cpu_record_at(item->m, blocks, TILE_ROWS,
							  m0 + i, k),
				  &decoded, sums + i * PANEL_COLS);
		}
	}
}

static size_t scratch_bytes(int64_t unit_rows, bool dual)
{
	return 256 + (size_t)unit_rows * PANEL_COLS * sizeof(float) * (dual ? 2 : 1);
}

static void multiply(const struct cpu_item *item, bool dual, int64_t m0, int64_t n0,
		     void *scratch)
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
			sum_panel(item, &item->b[1], m0, rows, n, packed, sums2, &nan2);
		for (int64_t i = 0; i < rows; i++)
			finish_row(item, m0 + i, n, cols, sums + i * PANEL_COLS,
				   dual ? sums2 + i * PANEL_COLS : NULL,
				   (uint64_t)(nan | nan2));
	}
}

static void pack_all_rows(const struct cpu_item *item, int64_t m0, int64_t rows)
{
	for (int64_t i = m0; i < m0 + rows; i++)
		PACK_ROW(item, i);
}

void CPU_GEMM_OPS(struct cpu_gemm_ops *ops)
{
	ops->few = NULL;
	ops->few_rows = -1;
	ops->record_bytes = sizeof(record);
	ops->record_blocks = 1;
	ops->tile_rows = TILE_ROWS;
	ops->has_wide_units = false;
	ops->direct_rows = 0;
	ops->scratch_bytes = scratch_bytes;
	ops->pack_rows = pack_all_rows;
	ops->pack_panel = pack_panel;
	ops->multiply = multiply;
}
