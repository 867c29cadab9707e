/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.inc.h - what every way to multiply a unit of the output in tiles shares: a
 * thread's scratch, where a chunk finds its weights and its sums, the loop over chunks,
 * and finishing a tile's rows.  The including file defines TILE_ROWS, TILE_VECS,
 * V_COLS and EXPANDED_TILE (multiply.inc.h), HAS_WIDE_UNITS if it is not 0, and
 * run_chunk().
 */
#include "backend/cpu/schedule.h"

#ifndef HAS_WIDE_UNITS
#define HAS_WIDE_UNITS 0
#endif

/* The most columns of a unit, and the panels that these are. */
#define MOST_COLS   (HAS_WIDE_UNITS ? WIDE_COLS : UNIT_COLS)
#define MOST_PANELS (MOST_COLS / PANEL_COLS)

/* A thread's scratch, cut into its parts. */
struct scratch {
	float *sums[2];
	char *expanded;
	/* MOST_PANELS panels of CHUNK_BLOCKS, for weights not packed. */
	uint8_t *panels;
	/* Columns with a NaN, a bit each: a word for UNIT_COLS of them. */
	uint64_t nan[MOST_COLS / UNIT_COLS];
	/* Rows that amx's tile registers are configured for; 0: none. */
	int64_t tile_rows;
};

static size_t sums_bytes(int64_t unit_rows, int64_t unit_cols)
{
	return (size_t)((unit_rows + TILE_ROWS) * unit_cols) * sizeof(float);
}

/* The sums of units of at most unit_rows rows, some of which may be wide. */
static size_t most_sums_bytes(int64_t unit_rows)
{
	if (!HAS_WIDE_UNITS || unit_rows <= MIN_UNIT_ROWS)
		return sums_bytes(unit_rows, UNIT_COLS);
	return sums_bytes(unit_rows < MAX_WIDE_ROWS ? unit_rows : MAX_WIDE_ROWS,
			  WIDE_COLS);
}

static size_t scratch_bytes(int64_t unit_rows, bool dual)
{
	return most_sums_bytes(unit_rows) * (dual ? 2 : 1) + (size_t)EXPANDED_TILE +
	       (size_t)MOST_PANELS * (size_t)cpu_panel_bytes(CHUNK_BLOCKS);
}

static void cut_scratch(const struct cpu_item *item, bool dual, char *memory,
			struct scratch *scratch)
{
	memset(scratch->nan, 0, sizeof(scratch->nan));
	scratch->tile_rows = 0;
	scratch->sums[0] = (float *)memory;
	memory += sums_bytes(item->unit_rows, item->unit_cols);
	scratch->sums[1] = (float *)memory;
	memory += dual ? sums_bytes(item->unit_rows, item->unit_cols) : 0;
	scratch->expanded = memory;
	scratch->panels = (uint8_t *)memory + EXPANDED_TILE;
}

/*
 * Panel p of a unit at column n0, from block k0: its address, and how many
 * blocks it has from there.  Weights that are not packed are packed into
 * scratch first.  A panel past the matrix repeats the last one, and its sums
 * are not used.
 */
static const uint8_t *find_panel(const struct cpu_item *item,
				 const struct cpu_weights *b, int64_t n0, int p,
				 int64_t k0, int64_t blocks, struct scratch *scratch,
				 int64_t *left)
{
	const int64_t last = (item->n - 1) / PANEL_COLS;
	const int64_t wanted = n0 / PANEL_COLS + p;
	const int64_t panel = wanted < last ? wanted : last;
	uint8_t *packed = scratch->panels + p * cpu_panel_bytes(CHUNK_BLOCKS);
	uint64_t nan;

	if (b->panels) {
		nan = b->nan_columns[panel];
		*left = item->blocks - k0;
		packed = NULL;
	} else {
		nan = PACK_PANEL(&b->rows, panel * PANEL_COLS, k0, blocks, packed);
		*left = blocks;
	}
	if (wanted <= last)
		scratch->nan[p / UNIT_PANELS] |= nan << (p % UNIT_PANELS * PANEL_COLS);
	return packed ? packed
		      : b->panels + panel * b->panel_stride_bytes +
			    k0 / GROUP_BLOCKS * GROUP_BYTES;
}

/* The sums of one row of a unit, from the first column of a tile on. */
static float *blocked_sums(const struct cpu_item *item, float *sums, int64_t row,
			   int64_t col)
{
	const int64_t tiles = item->unit_cols / TILE_COLS;

	return sums + (row / TILE_ROWS * tiles + col / TILE_COLS) * TILE_SUMS +
	       row % TILE_ROWS * TILE_COLS;
}

/* Finds the memory of a chunk's weights. */
static void find_source(const struct cpu_item *item, const struct cpu_chunk *chunk,
			struct scratch *scratch, struct source *source)
{
	for (int i = 0; i < TILE_PANELS; i++)
		source->panels[i] =
		    find_panel(item, &item->b[chunk->b], chunk->n0,
			       (int)chunk->col / PANEL_COLS + i, chunk->k0,
			       chunk->blocks, scratch, &source->left);
}

/*
 * Sets the prefetches of a chunk's steps: step_bytes of each panel of the next chunk
 * if its weights are packed, otherwise addresses that are cached already.  Addresses
 * may be past the end of the weights, because they are only prefetched.
 */
static void find_fetch(const struct cpu_item *item, const struct cpu_chunk *next,
		       const struct source *source, int64_t step_bytes,
		       struct fetch *fetch)
{
	const struct cpu_weights *b = &item->b[next->b];
	const int64_t panel = (next->n0 + next->col) / PANEL_COLS;

	memcpy(fetch->panels, source->panels, sizeof(fetch->panels));
	fetch->step = b->panels ? step_bytes : 0;
	for (int i = 0; b->panels && i < TILE_PANELS; i++)
		fetch->panels[i] = b->panels + (panel + i) * b->panel_stride_bytes +
				   cpu_codes_at(next->k0);
}

/* Prefetches the lines of the output that finish_row() writes soon. */
static void fetch_output(const struct cpu_item *item, int64_t row, int64_t rows,
			 int64_t col)
{
	const int64_t size = item->dtype == NIB_DTYPE_FP32 ? 4 : 2;
	const char *c = item->c + row * item->c_row_stride_bytes + col * size;

	for (int64_t i = 0; i < rows; i++, c += item->c_row_stride_bytes)
		for (int64_t x = 0; x < TILE_COLS * size; x += 64)
			__builtin_prefetch(c + x, 1, 2);
}

/* Rows of a tile; cols is TILE_COLS, known when compiled, or less. */
TILE_INLINE void finish_rows(const struct cpu_item *item, int64_t row, int64_t rows,
			     int64_t col, int64_t cols, const float *sums,
			     const float *sums2, uint64_t nan)
{
	for (int64_t i = 0; i < rows; i++)
		finish_row(item, row + i, col, cols, sums + i * TILE_COLS,
			   sums2 ? sums2 + i * TILE_COLS : NULL, nan);
}

/* The tile at row i of a unit, while its sums are in L1. */
static void finish_tile(const struct cpu_item *item, bool dual, int64_t m0, int64_t i,
			int64_t rows, const struct cpu_chunk *chunk,
			const struct scratch *scratch)
{
	const int64_t col = chunk->n0 + chunk->col, cols = item->n - col;
	const float *sums = blocked_sums(item, scratch->sums[0], i, chunk->col);
	const float *sums2 =
	    dual ? blocked_sums(item, scratch->sums[1], i, chunk->col) : NULL;
	const uint64_t nan =
	    scratch->nan[chunk->col / UNIT_COLS] >> chunk->col % UNIT_COLS;

	if (cols >= TILE_COLS)
		finish_rows(item, m0 + i, rows, col, TILE_COLS, sums, sums2, nan);
	else
		finish_rows(item, m0 + i, rows, col, cols, sums, sums2, nan);
}

/* Multiplies a chunk; meanwhile the next chunk is prefetched. */
static void run_chunk(const struct cpu_item *item, bool dual, int64_t m0, int64_t rows,
		      const struct cpu_chunk *chunk, const struct cpu_chunk *next,
		      struct scratch *scratch);

static void multiply_blocked(const struct cpu_item *item, bool dual, int64_t m0,
			     int64_t rows, int64_t n0, struct scratch *scratch)
{
	struct cpu_chunk chunk = cpu_first_chunk(item, n0);

	while (chunk.n0 == n0) {
		const struct cpu_chunk next =
		    cpu_next_chunk(item, dual, TILE_COLS, chunk);

		run_chunk(item, dual, m0, rows, &chunk, &next, scratch);
		chunk = next;
	}
}
