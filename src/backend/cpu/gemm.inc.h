/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.inc.h - the multiplication skeleton, one copy for every vector set.
 *
 * Arithmetic.  2 * e2m1 is an integer of at most 12.  B's codes become unsigned
 * bytes by adding CODE_OFFSET, A's stay signed; a record's `bias` cancels the
 * offset again, so four 4-wide byte dot products give the exact integer dot
 * product of a block.  It is converted to fp32 and multiplied by scale_a / 4 *
 * scale_b, exact as well (20 bits in all), and added by one fused multiply-add:
 * one rounding a block, in the order of k, whatever the tile.
 *
 *   blocked (many rows): CHUNK_BLOCKS k-blocks of one tile's columns are
 *     expanded to bytes in the cache by the first tile of TILE_ROWS rows; all
 *     further tiles run over them, accumulators in registers.  Between chunks
 *     the sums are kept in L2.
 *       packed weights -expand-> [codes | scales] -tile-> sums -finish_row-> C
 *     With SCALE_TABLE the expanded scales are a table: for each value t of the
 *     3 fraction bits of A's scale, the bits of scale_b * (1 + t/8) less the
 *     bits of 1 + t/8; an integer addition of A's scale bits then gives the
 *     product, so no multiplication competes with the dot products.
 *   direct (rows <= DIRECT_ROWS): weights are decoded in registers for each
 *     tile of rows and never stored: one pass over memory.
 *
 * The including file defines
 *   CPU_GEMM_OPS   the function that fills the set's table
 *   V_COLS         columns of a vector: 32-bit lanes
 *   TILE_ROWS, TILE_VECS   rows and vectors of a tile of accumulators
 *   ROW_STEP       rows of a tile whose dot products are interleaved
 *   DIRECT_ROWS    up to here decoding again and again is cheaper
 *   HAVE_F16C      see epilogue.inc.h;  RECORD_BIAS(x)  see pack_vector.inc.h
 *   SCALE_TABLE    0 or 1
 *   vint, vfloat   vector types, and on them
 *   load_int(p) store_int(p, v) load_float(p) store_float(p, v)
 *   set_float(x)   every lane x
 *   add_int(x, y) sub_int(x, y)
 *   add_float(x, y) mul_float(x, y) max_float(x, y)
 *   fma_float(x, y, z)      x * y + z
 *   to_bits(v) to_float(v)  the same bits as vint, as vfloat
 *   set_int(x)     every 32-bit lane x
 *   decode_low(v) decode_high(v)  nibbles to bytes 2 * e2m1 + CODE_OFFSET
 *   load_scales(p)   V_COLS e4m3 bytes to floats / 256
 *   vdot           the type of a running dot product, and on it
 *   dot_bias(bias)        from a record's bias
 *   dot_add(dot, b, a4)     + four unsigned bytes of b times four signed of a4
 *   dot_float(dot)          its value as floats
 */
#include <string.h>

#include "backend/cpu/chunk.h"
#include "backend/cpu/epilogue.inc.h"
#include "backend/cpu/gemm_ops.h"

#define V_BYTES	       (4 * V_COLS)
#define PANEL_VECS     (PANEL_COLS / V_COLS)
#define TILE_COLS      (TILE_VECS * V_COLS)
#define TILE_PANELS    (TILE_COLS / PANEL_COLS)
#define UNIT_TILES     (UNIT_COLS / TILE_COLS)
#define TILE_SUMS      (TILE_ROWS * TILE_COLS)
#define EXPANDED_CODES (4 * TILE_VECS * V_BYTES)
#define EXPANDED_BLOCK                                                         \
	(EXPANDED_CODES + (SCALE_TABLE ? 8 : 1) * TILE_VECS * V_BYTES)
#define EXPANDED_TILE (CHUNK_BLOCKS * EXPANDED_BLOCK)
/* fp32 bits of 1 + t/8, and where t lies in the bits of a scale. */
#define BITS_OF_ONE    0x3f800000
#define FRACTION_SHIFT 20
#define TILE_INLINE    static inline __attribute__((always_inline))
/* Loops over registers: they must vanish. */
#define UNROLLED(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)

/* ---- tiles: the main loop ----------------------------------------------- */

/* The packed weights that the first row tile of a chunk expands. */
struct source {
	const uint8_t *panels[TILE_PANELS];
	int64_t left; /* blocks to the end of the panels */
};

/*
 * A tile's prefetches for the next chunk: `step` bytes of each panel a k-block.
 * Every row tile takes a share.  If the first of many tiles fetched all, the
 * weights would have left L2 again by the time they are needed.
 */
struct fetch {
	const uint8_t *panels[TILE_PANELS];
	int64_t step;
};

/* Scales of a vector of columns, or the table of their products (see above). */
TILE_INLINE void expand_scales(const uint8_t *bytes, char *out)
{
	vfloat s = mul_float(load_scales(bytes), set_float(256.0f));

	if (!SCALE_TABLE) {
		store_int(out, to_bits(s));
		return;
	}
	/* The codes of a scale of 0 are 0, so its factor may be any that stays
	 * finite when bits are added to it. */
	s = max_float(s, set_float(0x1p-9f));
	const vfloat eighth = mul_float(s, set_float(0.125f));

	UNROLLED (t, 8) {
		const int one = BITS_OF_ONE + (t << FRACTION_SHIFT);

		store_int(out + t * TILE_VECS * V_BYTES,
			  sub_int(to_bits(s), set_int(one)));
		s = add_float(s, eighth);
	}
}

/* Expands k-block k from its panels. */
TILE_INLINE void expand_block(const struct source *source, int64_t k,
			      char *expanded)
{
	const int64_t codes = cpu_codes_at(k);
	const int64_t scale = cpu_scales_at(source->left, k);

	UNROLLED (v, TILE_VECS) {
		const uint8_t *panel = source->panels[v / PANEL_VECS];
		const int col = v % PANEL_VECS * V_COLS;
		const vint z0 = load_int(panel + codes + 4 * col);
		const vint z1 = load_int(panel + codes + 64 + 4 * col);

		char *out = expanded + v * V_BYTES;

		store_int(out, decode_low(z0));
		store_int(out + TILE_VECS * V_BYTES, decode_high(z0));
		store_int(out + 2 * TILE_VECS * V_BYTES, decode_low(z1));
		store_int(out + 3 * TILE_VECS * V_BYTES, decode_high(z1));
		expand_scales(panel + scale + col, out + EXPANDED_CODES);
	}
}

/* A record's scale times those of a vector of columns. */
TILE_INLINE vfloat scale_product(const struct cpu_record *a,
				 const char *expanded_scales, int v)
{
	if (SCALE_TABLE) {
		int32_t bits;

		memcpy(&bits, &a->scale, sizeof(bits));
		expanded_scales +=
		    (bits >> FRACTION_SHIFT & 7) * (TILE_VECS * V_BYTES);
		/* set_float() broadcasts from memory; from a register it would
		 * occupy a port. */
		return to_float(
		    add_int(to_bits(set_float(a->scale)),
			    load_int(expanded_scales + v * V_BYTES)));
	}
	return mul_float(
	    set_float(a->scale),
	    load_float((const float *)expanded_scales + v * V_COLS));
}

/* sum[row][vector] += one k-block, for the `step` rows from a. */
TILE_INLINE void add_rows(const int step, const struct cpu_record *a,
			  const char *expanded, vfloat (*sum)[TILE_VECS])
{
	vdot dot[ROW_STEP][TILE_VECS];

	UNROLLED (i, step)
		UNROLLED (v, TILE_VECS)
			dot[i][v] = dot_bias(a[i].bias);
	UNROLLED (g, 4)
		UNROLLED (i, step) {
			int32_t a4;

			memcpy(&a4, a[i].codes + 4 * g, 4);
			UNROLLED (v, TILE_VECS)
				dot[i][v] = dot_add(
				    dot[i][v],
				    load_int(expanded +
					     (g * TILE_VECS + v) * V_BYTES),
				    a4);
		}
	UNROLLED (i, step)
		UNROLLED (v, TILE_VECS)
			sum[i][v] = fma_float(
			    dot_float(dot[i][v]),
			    scale_product(&a[i], expanded + EXPANDED_CODES, v),
			    sum[i][v]);
}

/*
 * Adds `blocks` k-blocks to sums[row][col], or sets it to them if `first`.
 * `rows`, and whether there is a source, are known when compiled.  With a
 * source the weights are expanded on the way, one k-block ahead, so that
 * decoding hides behind this tile's arithmetic; the next tiles find them.
 */
TILE_INLINE void sum_tile(const int rows, const struct source *source,
			  const struct fetch *fetch, const struct cpu_record *a,
			  char *expanded, int64_t blocks, float *sums,
			  bool first)
{
	vfloat sum[TILE_ROWS][TILE_VECS];

	UNROLLED (i, rows)
		UNROLLED (v, TILE_VECS)
			sum[i][v] =
			    first
				? set_float(0.0f)
				: load_float(sums + i * TILE_COLS + v * V_COLS);
	if (source && blocks > 0)
		expand_block(source, 0, expanded);
	for (int64_t k = 0; k < blocks; k++) {
		UNROLLED (p, TILE_PANELS)
			__builtin_prefetch(fetch->panels[p] + k * fetch->step,
					   0, 2);
		if (source && k + 1 < blocks)
			expand_block(source, k + 1, expanded + EXPANDED_BLOCK);
		UNROLLED (j, (rows + ROW_STEP - 1) / ROW_STEP)
			add_rows(
			    rows - j * ROW_STEP < ROW_STEP ? rows - j * ROW_STEP
							   : ROW_STEP,
			    a + j * ROW_STEP, expanded, sum + j * ROW_STEP);
		a += rows;
		expanded += EXPANDED_BLOCK;
	}
	UNROLLED (i, rows)
		UNROLLED (v, TILE_VECS)
			store_float(sums + i * TILE_COLS + v * V_COLS,
				    sum[i][v]);
}

/* ---- direct ------------------------------------------------------------- */

/* Weights are prefetched into L2 this far ahead of the arithmetic. */
#define FETCH_BLOCKS (16 * GROUP_BLOCKS)

/*
 * Records of one pass: 12 KiB a row, so that a single row's stay in L1 while
 * panels stream past.
 */
#define DIRECT_BLOCKS 512

/*
 * Adds `blocks` k-blocks of one panel to its 16 columns of a unit's sums, or
 * sets them if `first`, for `rows` rows, known when compiled.  left: blocks to
 * the panel's end.  next: the weights that are read after these, which are
 * prefetched so that the stream from memory never stops.
 */
TILE_INLINE void sum_panel(const int rows, const struct cpu_record *a,
			   const uint8_t *panel, int64_t left, int64_t blocks,
			   const uint8_t *next, float *sums, bool first)
{
	const int64_t ahead = blocks < FETCH_BLOCKS ? blocks : FETCH_BLOCKS;
	const uint8_t *fetch = panel + cpu_codes_at(ahead);
	vfloat sum[TILE_ROWS][PANEL_VECS];

	/* load_scales() gives 1/256 of a scale, so the sums in registers are
	 * 1/256 of those in memory. */
	UNROLLED (i, rows)
		UNROLLED (v, PANEL_VECS)
			sum[i][v] =
			    first ? set_float(0.0f)
				  : mul_float(load_float(sums + i * UNIT_COLS +
							 v * V_COLS),
					      set_float(0x1p-8f));
	for (int64_t k = 0; k < blocks; k++, a += rows) {
		const uint8_t *codes = panel + cpu_codes_at(k);
		const uint8_t *scale = panel + cpu_scales_at(left, k);

		if (k + ahead == blocks)
			fetch = next;
		__builtin_prefetch(fetch, 0, 2);
		__builtin_prefetch(fetch + 64, 0, 2);
		__builtin_prefetch(fetch + 128, 0, 2);
		fetch += BLOCK_CODES + PANEL_COLS;
		UNROLLED (v, PANEL_VECS) {
			const vint z0 = load_int(codes + v * V_BYTES);
			const vint z1 = load_int(codes + 64 + v * V_BYTES);
			const vint b[4] = {decode_low(z0), decode_high(z0),
					   decode_low(z1), decode_high(z1)};
			const vfloat s = load_scales(scale + v * V_COLS);

			UNROLLED (i, rows) {
				vdot dot = dot_bias(a[i].bias);

				UNROLLED (g, 4) {
					int32_t a4;

					memcpy(&a4, a[i].codes + 4 * g, 4);
					dot = dot_add(dot, b[g], a4);
				}
				sum[i][v] = fma_float(
				    dot_float(dot),
				    mul_float(set_float(a[i].scale), s),
				    sum[i][v]);
			}
		}
	}
	UNROLLED (i, rows)
		UNROLLED (v, PANEL_VECS)
			store_float(sums + i * UNIT_COLS + v * V_COLS,
				    mul_float(sum[i][v], set_float(256.0f)));
}

/* ---- one function for each number of rows ------------------------------- */

typedef void tile_fn(const struct fetch *fetch, const struct cpu_record *a,
		     char *expanded, int64_t blocks, float *sums, bool first);
typedef void first_fn(const struct source *source, const struct fetch *fetch,
		      const struct cpu_record *a, char *expanded,
		      int64_t blocks, float *sums, bool first);
typedef void panel_fn(const struct cpu_record *a, const uint8_t *panel,
		      int64_t left, int64_t blocks, const uint8_t *next,
		      float *sums, bool first);

#define TILE_OF(rows)                                                          \
	static void tile_##rows(const struct fetch *fetch,                     \
				const struct cpu_record *a, char *expanded,    \
				int64_t blocks, float *sums, bool first)       \
	{                                                                      \
		const struct fetch next = *fetch;                              \
                                                                               \
		sum_tile(rows, NULL, &next, a, expanded, blocks, sums, first); \
	}                                                                      \
	static void first_##rows(const struct source *source,                  \
				 const struct fetch *fetch,                    \
				 const struct cpu_record *a, char *expanded,   \
				 int64_t blocks, float *sums, bool first)      \
	{                                                                      \
		const struct source copy = *source;                            \
		const struct fetch next = *fetch;                              \
                                                                               \
		sum_tile(rows, &copy, &next, a, expanded, blocks, sums,        \
			 first);                                               \
	}                                                                      \
	static void panel_##rows(                                              \
	    const struct cpu_record *a, const uint8_t *panel, int64_t left,    \
	    int64_t blocks, const uint8_t *next, float *sums, bool first)      \
	{                                                                      \
		sum_panel(rows, a, panel, left, blocks, next, sums, first);    \
	}

TILE_OF(1)
TILE_OF(2)
TILE_OF(3)
TILE_OF(4)
#if TILE_ROWS == 8
TILE_OF(5)
TILE_OF(6)
TILE_OF(7)
TILE_OF(8)
#endif

static tile_fn *const tile_fns[TILE_ROWS + 1] = {
    NULL,   tile_1, tile_2, tile_3, tile_4,
#if TILE_ROWS == 8
    tile_5, tile_6, tile_7, tile_8,
#endif
};
static first_fn *const first_fns[TILE_ROWS + 1] = {
    NULL,    first_1, first_2, first_3, first_4,
#if TILE_ROWS == 8
    first_5, first_6, first_7, first_8,
#endif
};
static panel_fn *const panel_fns[TILE_ROWS + 1] = {
    NULL,    panel_1, panel_2, panel_3, panel_4,
#if TILE_ROWS == 8
    panel_5, panel_6, panel_7, panel_8,
#endif
};

/* ---- units -------------------------------------------------------------- */

/* A thread's scratch, cut into its parts. */
struct scratch {
	float *sums[2];
	char *expanded;
	/* UNIT_PANELS panels of CHUNK_BLOCKS, for weights not packed. */
	uint8_t *panels;
	/* Columns with a NaN, a bit each. */
	uint64_t nan;
};

static size_t sums_bytes(int64_t unit_rows)
{
	return (size_t)(unit_rows + TILE_ROWS) * UNIT_COLS * sizeof(float);
}

static size_t scratch_bytes(int64_t unit_rows, bool dual)
{
	return sums_bytes(unit_rows) * (dual ? 2 : 1) + (size_t)EXPANDED_TILE +
	       (size_t)UNIT_PANELS * (size_t)cpu_panel_bytes(CHUNK_BLOCKS);
}

static void cut_scratch(const struct cpu_item *item, bool dual, char *memory,
			struct scratch *scratch)
{
	scratch->nan = 0;
	scratch->sums[0] = (float *)memory;
	memory += sums_bytes(item->unit_rows);
	scratch->sums[1] = (float *)memory;
	memory += dual ? sums_bytes(item->unit_rows) : 0;
	scratch->expanded = memory;
	scratch->panels = (uint8_t *)memory + EXPANDED_TILE;
}

/*
 * Panel p of a unit at column n0, from block k0: where it lies, and how many
 * blocks it has from there.  Weights that are not packed are packed into
 * scratch first.  A panel past the matrix repeats the last one, and its sums
 * are not used.
 */
static const uint8_t *find_panel(const struct cpu_item *item,
				 const struct cpu_weights *b, int64_t n0, int p,
				 int64_t k0, int64_t blocks,
				 struct scratch *scratch, int64_t *left)
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
		nan = pack_panel_vector(&b->rows, panel * PANEL_COLS, k0,
					blocks, packed);
		*left = blocks;
	}
	if (wanted <= last)
		scratch->nan |= nan << (p * PANEL_COLS);
	return packed ? packed
		      : b->panels + panel * b->panel_stride_bytes +
			    k0 / GROUP_BLOCKS * GROUP_BYTES;
}

/* The sums of one row of a unit, from the first column of a tile on. */
static float *blocked_sums(float *sums, int64_t row, int64_t col)
{
	return sums +
	       (row / TILE_ROWS * UNIT_TILES + col / TILE_COLS) * TILE_SUMS +
	       row % TILE_ROWS * TILE_COLS;
}

/* Where a chunk finds its weights. */
static void find_source(const struct cpu_item *item,
			const struct cpu_chunk *chunk, struct scratch *scratch,
			struct source *source)
{
	for (int i = 0; i < TILE_PANELS; i++)
		source->panels[i] =
		    find_panel(item, &item->b[chunk->b], chunk->n0,
			       (int)chunk->col / PANEL_COLS + i, chunk->k0,
			       chunk->blocks, scratch, &source->left);
}

/*
 * Sets the prefetches of `rows` rows during a chunk: of the next chunk, if its
 * weights are packed, else of nothing new.  Addresses may lie past the end of
 * the weights, because they are only prefetched.
 */
static void find_fetch(const struct cpu_item *item,
		       const struct cpu_chunk *next,
		       const struct source *source, int64_t rows,
		       struct fetch *fetch)
{
	const struct cpu_weights *b = &item->b[next->b];
	const int64_t panel = (next->n0 + next->col) / PANEL_COLS;
	const int64_t k = next->k0 / GROUP_BLOCKS * GROUP_BYTES;

	memcpy(fetch->panels, source->panels, sizeof(fetch->panels));
	fetch->step = 0;
	if (!b->panels)
		return;
	for (int i = 0; i < TILE_PANELS; i++)
		fetch->panels[i] =
		    b->panels + (panel + i) * b->panel_stride_bytes + k;
	fetch->step = (BLOCK_CODES + PANEL_COLS) * TILE_ROWS / rows + 1;
}

/* Prefetches the lines of the output that finish_row() writes soon. */
static void fetch_output(const struct cpu_item *item, int64_t row, int64_t rows,
			 int64_t col)
{
	const int64_t size = item->dtype == NIB_FP32 ? 4 : 2;
	const char *c = item->c + row * item->c_row_stride_bytes + col * size;

	for (int64_t i = 0; i < rows; i++, c += item->c_row_stride_bytes)
		for (int64_t x = 0; x < TILE_COLS * size; x += 64)
			__builtin_prefetch(c + x, 1, 2);
}

/* Rows of a tile; cols is TILE_COLS, known when compiled, or less. */
TILE_INLINE void finish_rows(const struct cpu_item *item, int64_t row,
			     int64_t rows, int64_t col, int64_t cols,
			     const float *sums, const float *sums2,
			     uint64_t nan)
{
	for (int64_t i = 0; i < rows; i++)
		finish_row(item, row + i, col, cols, sums + i * TILE_COLS,
			   sums2 ? sums2 + i * TILE_COLS : NULL, nan);
}

/* The tile at row i of a unit, while its sums are in L1. */
static void finish_tile(const struct cpu_item *item, bool dual, int64_t m0,
			int64_t i, int64_t rows, const struct cpu_chunk *chunk,
			const struct scratch *scratch)
{
	const int64_t col = chunk->n0 + chunk->col, cols = item->n - col;
	const float *sums = blocked_sums(scratch->sums[0], i, chunk->col);
	const float *sums2 =
	    dual ? blocked_sums(scratch->sums[1], i, chunk->col) : NULL;
	const uint64_t nan = scratch->nan >> chunk->col;

	if (cols >= TILE_COLS)
		finish_rows(item, m0 + i, rows, col, TILE_COLS, sums, sums2,
			    nan);
	else
		finish_rows(item, m0 + i, rows, col, cols, sums, sums2, nan);
}

/*
 * One chunk: the first row tile expands it, all others run over it; meanwhile
 * the next is fetched.
 */
static void run_chunk(const struct cpu_item *item, bool dual, int64_t m0,
		      int64_t rows, const struct cpu_chunk *chunk,
		      const struct cpu_chunk *next, struct scratch *scratch)
{
	const int64_t k0 = chunk->k0, blocks = chunk->blocks;
	const bool first = k0 == 0;
	const bool last = chunk->b == dual && k0 + blocks == item->blocks;
	char *expanded = scratch->expanded;
	struct source source;
	struct fetch fetch;

	find_source(item, chunk, scratch, &source);
	find_fetch(item, next, &source, rows, &fetch);
	for (int64_t i = 0; i < rows; i += TILE_ROWS) {
		const int64_t row = m0 + i;
		const int64_t in_tile =
		    item->m - row < TILE_ROWS ? item->m - row : TILE_ROWS;
		const struct cpu_record *a =
		    item->records +
		    cpu_record_at(item->m, item->blocks, TILE_ROWS, row, k0);
		float *to =
		    blocked_sums(scratch->sums[chunk->b], i, chunk->col);

		if (last)
			fetch_output(item, row, in_tile,
				     chunk->n0 + chunk->col);
		if (i == 0)
			first_fns[in_tile](&source, &fetch, a, expanded, blocks,
					   to, first);
		else
			tile_fns[in_tile](&fetch, a, expanded, blocks, to,
					  first);
		for (int p = 0; p < TILE_PANELS; p++)
			fetch.panels[p] += blocks * fetch.step;
		if (last)
			finish_tile(item, dual, m0, i, in_tile, chunk, scratch);
	}
}

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

/* All rows of one panel, `blocks` k-blocks from k0: see sum_panel(). */
static void sum_rows(const struct cpu_item *item, const uint8_t *panel,
		     int64_t left, int64_t k0, int64_t blocks,
		     const uint8_t *next, float *sums)
{
	for (int64_t row = 0; row < item->m; row += TILE_ROWS) {
		const int64_t rows =
		    item->m - row < TILE_ROWS ? item->m - row : TILE_ROWS;
		const struct cpu_record *a =
		    item->records +
		    cpu_record_at(item->m, item->blocks, TILE_ROWS, row, k0);

		panel_fns[rows](a, panel, left, blocks, next,
				sums + row * UNIT_COLS, k0 == 0);
	}
}

/*
 * The weights that a direct pass reads after panel p of a unit from block k0:
 * the unit's next panel, or its first one further on, or the next unit.  They
 * are only prefetched.
 */
static const uint8_t *after_panel(const struct cpu_item *item,
				  const struct cpu_weights *b, int64_t n0,
				  int p, int panels, int64_t k0, int64_t step)
{
	int64_t panel = n0 / PANEL_COLS + p + 1;

	if (p + 1 == panels) {
		k0 += step;
		if (k0 < item->blocks)
			panel -= panels;
		else
			k0 = 0;
	}
	return b->panels + panel * b->panel_stride_bytes + cpu_codes_at(k0);
}

/*
 * Sums all rows of the item, one panel of a unit after the other.  If the rows
 * are more than a tile has, they run over a chunk of a panel (9 KiB) tile by
 * tile: the first one brings it into L1, the others decode it again from there.
 */
static void sum_direct(const struct cpu_item *item, const struct cpu_weights *b,
		       int64_t n0, int panels, struct scratch *scratch,
		       float *sums)
{
	const int64_t rows = item->m;
	const int64_t step = b->panels && rows <= TILE_ROWS
				 ? DIRECT_BLOCKS
				 : cpu_chunk_blocks(item->blocks);

	if (item->blocks == 0)
		memset(sums, 0, sums_bytes(item->unit_rows));
	for (int64_t k0 = 0; k0 < item->blocks; k0 += step) {
		const int64_t left = item->blocks - k0;
		const int64_t blocks = left < step ? left : step;

		for (int p = 0; p < panels; p++) {
			int64_t panel_left;
			const uint8_t *panel = find_panel(
			    item, b, n0, p, k0, blocks, scratch, &panel_left);
			const uint8_t *next =
			    b->panels
				? after_panel(item, b, n0, p, panels, k0, step)
				: panel;

			sum_rows(item, panel, panel_left, k0, blocks, next,
				 sums + (int64_t)p * PANEL_COLS);
		}
	}
}

/* All rows of a unit; cols is UNIT_COLS, known when compiled, or less. */
TILE_INLINE void finish_direct(const struct cpu_item *item, bool dual,
			       int64_t n0, int64_t cols,
			       const struct scratch *scratch)
{
	for (int64_t i = 0; i < item->m; i++)
		finish_row(item, i, n0, cols, scratch->sums[0] + i * UNIT_COLS,
			   dual ? scratch->sums[1] + i * UNIT_COLS : NULL,
			   scratch->nan);
}

static void multiply_direct(const struct cpu_item *item, bool dual, int64_t n0,
			    struct scratch *scratch)
{
	const int64_t cols =
	    item->n - n0 < UNIT_COLS ? item->n - n0 : UNIT_COLS;
	const int panels = (int)((cols + PANEL_COLS - 1) / PANEL_COLS);

	for (int b = 0; b <= (dual ? 1 : 0); b++)
		sum_direct(item, &item->b[b], n0, panels, scratch,
			   scratch->sums[b]);
	if (cols == UNIT_COLS)
		finish_direct(item, dual, n0, UNIT_COLS, scratch);
	else
		finish_direct(item, dual, n0, cols, scratch);
}

static void multiply(const struct cpu_item *item, bool dual, int64_t m0,
		     int64_t n0, void *memory)
{
	const int64_t rows =
	    item->m - m0 < item->unit_rows ? item->m - m0 : item->unit_rows;
	struct scratch scratch;

	cut_scratch(item, dual, memory, &scratch);
	if (item->m <= DIRECT_ROWS)
		multiply_direct(item, dual, n0, &scratch);
	else
		multiply_blocked(item, dual, m0, rows, n0, &scratch);
}

static void pack_rows(const struct cpu_item *item, int64_t m0, int64_t rows)
{
	for (int64_t i = m0; i < m0 + rows; i++)
		pack_row(item, i, TILE_ROWS);
}

void CPU_GEMM_OPS(struct cpu_gemm_ops *ops)
{
	ops->tile_rows = TILE_ROWS;
	ops->direct_rows = DIRECT_ROWS;
	ops->scratch_bytes = scratch_bytes;
	ops->pack_rows = pack_rows;
	ops->pack_panel = pack_panel_vector;
	ops->multiply = multiply;
}
