/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.inc.h - a unit of the output, one copy for every vector set and kind of A:
 * finds its weights, runs tiles over chunks of them, or panels straight from
 * memory, and finishes its rows.  Parameters: multiply.inc.h.
 *
 * What is summed, and how, is in gemm.inc.h or dense.inc.h, which defines
 *   EXPANDED_BLOCK, EXPANDED_TILE   bytes of an expanded k-block of a tile's columns,
 *                    and of a chunk of them
 *   expand_block()   expands a k-block
 *   add_rows()       blocked: adds an expanded k-block to the sums of some rows
 *   DIRECT_BLOCKS    k-blocks of one pass of few rows over a panel
 *   add_decoded()    direct: adds k-blocks of DIRECT_VECS vectors of columns,
 *                    decoded in registers
 */

#ifndef ARRANGE_SUMS
#define ARRANGE_SUMS(rows, sum) (void)0
#endif

/* ---- blocked: tiles ----------------------------------------------------- */

/*
 * Adds `blocks` k-blocks to sums[row][col], or sets it to them if `first`.
 * `rows`, and whether there is a source, are known when compiled.  With a
 * source the weights are expanded on the way, one k-block ahead, so that
 * decoding overlaps this tile's arithmetic; the next tiles find them.
 */
TILE_INLINE void sum_tile(const int rows, const struct source *source,
			  const struct fetch *fetch, const record *a, char *expanded,
			  int64_t blocks, float *sums, bool first)
{
	vfloat sum[TILE_ROWS][TILE_VECS];

	UNROLLED (i, rows)
		UNROLLED (v, TILE_VECS)
			sum[i][v] = first
					? set_float(0.0f)
					: load_float(sums + i * TILE_COLS + v * V_COLS);
	ARRANGE_SUMS(rows, sum);
	if (source && blocks > 0)
		expand_block(source, 0, expanded);
	for (int64_t k = 0; k < blocks; k++) {
		UNROLLED (p, TILE_PANELS)
			__builtin_prefetch(fetch->panels[p] + k * fetch->step, 0, 2);
		fetch_records(a, rows * (int)sizeof(record));
		if (source && k + 1 < blocks)
			expand_block(source, k + 1, expanded + EXPANDED_BLOCK);
		UNROLLED (j, (rows + ROW_STEP - 1) / ROW_STEP)
			add_rows(rows - j * ROW_STEP < ROW_STEP ? rows - j * ROW_STEP
								: ROW_STEP,
				 a + j * ROW_STEP, expanded, sum + j * ROW_STEP);
		a += rows;
		expanded += EXPANDED_BLOCK;
	}
	ARRANGE_SUMS(rows, sum);
	UNROLLED (i, rows)
		UNROLLED (v, TILE_VECS)
			store_float(sums + i * TILE_COLS + v * V_COLS, sum[i][v]);
}

/* ---- direct: panels ------------------------------------------------------ */

/*
 * Adds `blocks` k-blocks of one panel to its 16 columns of a unit's sums, or
 * sets them if `first`, for `rows` rows, known when compiled.  left: blocks to
 * the panel's end.  next: the weights that are read after these, which are
 * prefetched so that the stream from memory never stops.
 */
TILE_INLINE void sum_panel(const int rows, const record *a, const uint8_t *panel,
			   int64_t left, int64_t blocks, const uint8_t *next,
			   float *sums, bool first)
{
	const int64_t ahead = blocks < FETCH_BLOCKS ? blocks : FETCH_BLOCKS;
	const uint8_t *fetch = panel + cpu_codes_at(ahead);
	const int step = DIRECT_STEP(rows);
	vfloat sum[TILE_ROWS][PANEL_VECS];
	int64_t k = 0;

	UNROLLED (i, rows)
		UNROLLED (v, PANEL_VECS)
			sum[i][v] = first
					? set_float(0.0f)
					: load_float(sums + i * UNIT_COLS + v * V_COLS);
	for (; k + step <= blocks; k += step, a += step * rows) {
		UNROLLED (j, step) {
			if (k + j + ahead == blocks)
				fetch = next;
			fetch = fetch_block(fetch);
		}
		UNROLLED (v, PANEL_VECS / DIRECT_VECS)
			add_decoded(rows, step, a, panel, left, k, v * DIRECT_VECS,
				    sum);
	}
	for (; k < blocks; k++, a += rows)
		UNROLLED (v, PANEL_VECS / DIRECT_VECS)
			add_decoded(rows, 1, a, panel, left, k, v * DIRECT_VECS, sum);
	UNROLLED (i, rows)
		UNROLLED (v, PANEL_VECS)
			store_float(sums + i * UNIT_COLS + v * V_COLS, sum[i][v]);
}

/* ---- one function for each number of rows ------------------------------- */

typedef void tile_fn(const struct fetch *fetch, const record *a, char *expanded,
		     int64_t blocks, float *sums, bool first);
typedef void first_fn(const struct source *source, const struct fetch *fetch,
		      const record *a, char *expanded, int64_t blocks, float *sums,
		      bool first);
typedef void panel_fn(const record *a, const uint8_t *panel, int64_t left,
		      int64_t blocks, const uint8_t *next, float *sums, bool first);

#define TILE_OF(rows)                                                                  \
	static void tile_##rows(const struct fetch *fetch, const record *a,            \
				char *expanded, int64_t blocks, float *sums,           \
				bool first)                                            \
	{                                                                              \
		const struct fetch next = *fetch;                                      \
                                                                                       \
		sum_tile(rows, NULL, &next, a, expanded, blocks, sums, first);         \
	}                                                                              \
	static void first_##rows(                                                      \
	    const struct source *source, const struct fetch *fetch, const record *a,   \
	    char *expanded, int64_t blocks, float *sums, bool first)                   \
	{                                                                              \
		const struct source copy = *source;                                    \
		const struct fetch next = *fetch;                                      \
                                                                                       \
		sum_tile(rows, &copy, &next, a, expanded, blocks, sums, first);        \
	}                                                                              \
	static void panel_##rows(const record *a, const uint8_t *panel, int64_t left,  \
				 int64_t blocks, const uint8_t *next, float *sums,     \
				 bool first)                                           \
	{                                                                              \
		sum_panel(rows, a, panel, left, blocks, next, sums, first);            \
	}

TILE_OF(1)
TILE_OF(2)
TILE_OF(3)
TILE_OF(4)
#if TILE_ROWS >= 6
TILE_OF(5)
TILE_OF(6)
#endif
#if TILE_ROWS == 8
TILE_OF(7)
TILE_OF(8)
#endif

static tile_fn *const tile_fns[TILE_ROWS + 1] = {
    NULL,   tile_1, tile_2, tile_3, tile_4,
#if TILE_ROWS >= 6
    tile_5, tile_6,
#endif
#if TILE_ROWS == 8
    tile_7, tile_8,
#endif
};
static first_fn *const first_fns[TILE_ROWS + 1] = {
    NULL,    first_1, first_2, first_3, first_4,
#if TILE_ROWS >= 6
    first_5, first_6,
#endif
#if TILE_ROWS == 8
    first_7, first_8,
#endif
};
static panel_fn *const panel_fns[TILE_ROWS + 1] = {
    NULL,    panel_1, panel_2, panel_3, panel_4,
#if TILE_ROWS >= 6
    panel_5, panel_6,
#endif
#if TILE_ROWS == 8
    panel_7, panel_8,
#endif
};

/* ---- units -------------------------------------------------------------- */

#include "backend/cpu/unit.inc.h"

/* The record of (row, block); see cpu_record_at(). */
static const record *records_at(const struct cpu_item *item, int64_t row, int64_t block)
{
	return (const record *)item->packed_a +
	       cpu_record_at(item->m, item->blocks, TILE_ROWS, row, block);
}

/*
 * Multiplies a chunk.  The first row tile expands it, the others use the expanded
 * weights.  Meanwhile the next chunk is prefetched.
 */
static void run_chunk(const struct cpu_item *item, bool dual, int64_t m0, int64_t rows,
		      const struct cpu_chunk *chunk, const struct cpu_chunk *next,
		      struct scratch *scratch)
{
	const int64_t k0 = chunk->k0, blocks = chunk->blocks;
	const bool first = k0 == 0;
	const bool last = chunk->b == dual && k0 + blocks == item->blocks;
	char *expanded = scratch->expanded;
	struct source source;
	struct fetch fetch;

	find_source(item, chunk, scratch, &source);
	find_fetch(item, next, &source,
		   (BLOCK_CODES + PANEL_COLS) * TILE_ROWS / rows + 1, &fetch);
	for (int64_t i = 0; i < rows; i += TILE_ROWS) {
		const int64_t row = m0 + i;
		const int64_t in_tile =
		    item->m - row < TILE_ROWS ? item->m - row : TILE_ROWS;
		const record *a = records_at(item, row, k0);
		float *to = blocked_sums(item, scratch->sums[chunk->b], i, chunk->col);

		if (last)
			fetch_output(item, row, in_tile, chunk->n0 + chunk->col);
		if (i == 0)
			first_fns[in_tile](&source, &fetch, a, expanded, blocks, to,
					   first);
		else
			tile_fns[in_tile](&fetch, a, expanded, blocks, to, first);
		for (int p = 0; p < TILE_PANELS; p++)
			fetch.panels[p] += blocks * fetch.step;
		if (last)
			finish_tile(item, dual, m0, i, in_tile, chunk, scratch);
	}
}

/* All rows of one panel, `blocks` k-blocks from k0: see sum_panel(). */
static void sum_rows(const struct cpu_item *item, const uint8_t *panel, int64_t left,
		     int64_t k0, int64_t blocks, const uint8_t *next, float *sums)
{
	for (int64_t row = 0; row < item->m; row += TILE_ROWS) {
		const int64_t rows =
		    item->m - row < TILE_ROWS ? item->m - row : TILE_ROWS;
		const record *a = records_at(item, row, k0);

		panel_fns[rows](a, panel, left, blocks, next, sums + row * UNIT_COLS,
				k0 == 0);
	}
}

/*
 * The weights that a direct pass reads after panel p of a unit from block k0:
 * the unit's next panel, or its first one further on, or, after the unit's last,
 * `after`.  They are only prefetched.
 */
static const uint8_t *after_panel(const struct cpu_item *item,
				  const struct cpu_weights *b, int64_t n0, int p,
				  int panels, int64_t k0, int64_t step,
				  const uint8_t *after)
{
	int64_t panel = n0 / PANEL_COLS + p + 1;

	if (p + 1 == panels) {
		k0 += step;
		panel -= panels;
		if (k0 >= item->blocks)
			return after;
	}
	return b->panels + panel * b->panel_stride_bytes + cpu_codes_at(k0);
}

/*
 * The weights after matrix b of the unit at n0: those of the second matrix of a dual
 * product, or of the next unit, which may be past the matrix.
 */
static const uint8_t *after_unit(const struct cpu_item *item, bool dual, int b,
				 int64_t n0)
{
	const int next = b == 0 && dual;
	const struct cpu_weights *w = &item->b[next];
	const int64_t panel = n0 / PANEL_COLS + (next ? 0 : UNIT_PANELS);

	return w->panels ? w->panels + panel * w->panel_stride_bytes
			 : item->b[b].panels;
}

/*
 * Sums all rows of the item, one panel of a unit after the other.  If there are more
 * rows than in a tile, tile after tile uses a chunk of a panel (9 KiB): the first tile
 * loads it into L1, and the others decode it again from there.
 */
static void sum_direct(const struct cpu_item *item, const struct cpu_weights *b,
		       int64_t n0, int panels, const uint8_t *after,
		       struct scratch *scratch, float *sums)
{
	const int64_t rows = item->m;
	const int64_t step = b->panels && rows <= TILE_ROWS
				 ? DIRECT_BLOCKS
				 : cpu_chunk_blocks(item->blocks);

	if (item->blocks == 0)
		memset(sums, 0, sums_bytes(item->unit_rows, UNIT_COLS));
	for (int64_t k0 = 0; k0 < item->blocks; k0 += step) {
		const int64_t left = item->blocks - k0;
		const int64_t blocks = left < step ? left : step;

		for (int p = 0; p < panels; p++) {
			int64_t panel_left;
			const uint8_t *panel = find_panel(item, b, n0, p, k0, blocks,
							  scratch, &panel_left);
			const uint8_t *next =
			    b->panels
				? after_panel(item, b, n0, p, panels, k0, step, after)
				: panel;

			sum_rows(item, panel, panel_left, k0, blocks, next,
				 sums + (int64_t)p * PANEL_COLS);
		}
	}
}

/* All rows of a unit; cols is UNIT_COLS, known when compiled, or less. */
TILE_INLINE void finish_direct(const struct cpu_item *item, bool dual, int64_t n0,
			       int64_t cols, const struct scratch *scratch)
{
	for (int64_t i = 0; i < item->m; i++)
		finish_row(item, i, n0, cols, scratch->sums[0] + i * UNIT_COLS,
			   dual ? scratch->sums[1] + i * UNIT_COLS : NULL,
			   scratch->nan[0]);
}

static void multiply_direct(const struct cpu_item *item, bool dual, int64_t n0,
			    struct scratch *scratch)
{
	const int64_t cols = item->n - n0 < UNIT_COLS ? item->n - n0 : UNIT_COLS;
	const int panels = (int)((cols + PANEL_COLS - 1) / PANEL_COLS);

	for (int b = 0; b <= (dual ? 1 : 0); b++)
		sum_direct(item, &item->b[b], n0, panels, after_unit(item, dual, b, n0),
			   scratch, scratch->sums[b]);
	if (cols == UNIT_COLS)
		finish_direct(item, dual, n0, UNIT_COLS, scratch);
	else
		finish_direct(item, dual, n0, cols, scratch);
}

static bool is_direct(const struct cpu_item *item)
{
	if (item->m > DIRECT_ROWS)
		return false;
	for (int64_t i = 0; i < item->m; i++)
		if (item->row_flags[i] & CPU_ROW_WIDE)
			return false;
	return true;
}

static void multiply(const struct cpu_item *item, bool dual, int64_t m0, int64_t n0,
		     void *memory)
{
	const int64_t rows =
	    item->m - m0 < item->unit_rows ? item->m - m0 : item->unit_rows;
	struct scratch scratch;

	cut_scratch(item, dual, memory, &scratch);
	if (is_direct(item))
		multiply_direct(item, dual, n0, &scratch);
	else
		multiply_blocked(item, dual, m0, rows, n0, &scratch);
}

static void pack_rows(const struct cpu_item *item, int64_t m0, int64_t rows)
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
	ops->direct_rows = DIRECT_ROWS;
	ops->has_wide_units = HAS_WIDE_UNITS;
	ops->scratch_bytes = scratch_bytes;
	ops->pack_rows = pack_rows;
	ops->pack_panel = PACK_PANEL;
	ops->multiply = multiply;
}
