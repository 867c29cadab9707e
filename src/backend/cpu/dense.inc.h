/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense.inc.h - W4A16 and W4A32: sums of tiles where A is floats, one copy for
 * every vector set.  The loops around them are in units.inc.h.
 *
 * A step multiplies one word of A, an fp32 or two bf16, with the weights of as many k
 * and V_COLS columns.  The steps of a block are summed from zero, with the values of
 * the codes without the scale; one fused multiply-add applies the scale and adds the
 * block.  So decoding costs no multiplication, and a sum over k has about k / 16 + 16
 * roundings.  The order depends on k only.
 *
 *   blocked (many rows): the first tile of rows expands the weights of a chunk
 *     into the cache, all further tiles find them there.  With FOLDED expanded
 *     weights have the scale in them and steps add to the sum itself: one
 *     instruction in nine is saved, and the order is another.
 *   direct (rows <= DIRECT_ROWS): weights are decoded in registers.  Not for
 *     rows with CPU_ROW_WIDE, where the scale must be in each product.
 *
 * Parameters: multiply.inc.h.
 */
#define HALF_WORDS (WORDS / 2)
/* 12 KiB of records a row, as in gemm.inc.h. */
#define DIRECT_BLOCKS ((int64_t)(12288 / sizeof(record)))

#ifdef DENSE_TILES
#include DENSE_TILES
#else
#define EXPANDED_CODES (WORDS * TILE_VECS * V_BYTES)
#define EXPANDED_BLOCK (EXPANDED_CODES + (FOLDED ? 0 : TILE_VECS * V_BYTES))
#define EXPANDED_TILE  (CHUNK_BLOCKS * EXPANDED_BLOCK)
/* ---- tiles: the main loop ----------------------------------------------- */

/* Expands k-block k from its panels. */
TILE_INLINE void expand_block(const struct source *source, int64_t k, char *expanded)
{
	const int64_t codes = cpu_codes_at(k);
	const int64_t scale = cpu_scales_at(source->left, k);

	UNROLLED (v, TILE_VECS) {
		const uint8_t *panel = source->panels[v / PANEL_VECS];
		const int col = v % PANEL_VECS * V_COLS;
		const vfloat s = block_scales(panel + scale + col);
		char *out = expanded + v * V_BYTES;

		UNROLLED (z, 2) {
			const vcodes c = load_codes(panel + codes + 64 * z + 4 * col);

			UNROLLED (i, HALF_WORDS) {
				store_word(out, FOLDED ? fold(c, i, s) : decode(c, i));
				out += TILE_VECS * V_BYTES;
			}
		}
		if (!FOLDED)
			store_float((float *)out, s);
	}
}

/* The scales of an expanded k-block, unless FOLDED. */
TILE_INLINE const float *scales_at(const char *expanded)
{
	return (const float *)(expanded + EXPANDED_CODES);
}

/* sum[row][vector] += one k-block, for the `step` rows from a. */
TILE_INLINE void add_rows(const int step, const record *a, const char *expanded,
			  vfloat (*sum)[TILE_VECS])
{
	vfloat dot[ROW_STEP][TILE_VECS];

	UNROLLED (i, step)
		UNROLLED (v, TILE_VECS)
			dot[i][v] = FOLDED ? sum[i][v] : set_float(0.0f);
	UNROLLED (g, WORDS) {
		vword w[TILE_VECS];

		UNROLLED (v, TILE_VECS)
			w[v] = load_word(expanded + (g * TILE_VECS + v) * V_BYTES);
		UNROLLED (i, step)
			UNROLLED (v, TILE_VECS)
				dot[i][v] = dot_step(dot[i][v], w[v], a[i].word[g]);
	}
	UNROLLED (i, step)
		UNROLLED (v, TILE_VECS)
			sum[i][v] = FOLDED ? dot[i][v]
					   : fma_float(dot[i][v],
						       load_float(scales_at(expanded) +
								  v * V_COLS),
						       sum[i][v]);
}

#endif

/* ---- direct ------------------------------------------------------------- */

/*
 * `count` k-blocks of the DIRECT_VECS vectors of columns from v0 on, from block k
 * of a panel on: sum[row][v] += dot * scale for each.  Each step of a dot product waits
 * for the one before it, so those of all k-blocks and vectors are interleaved.
 */
TILE_INLINE void add_decoded(const int rows, const int count, const record *a,
			     const uint8_t *panel, int64_t left, int64_t k,
			     const int v0, vfloat (*sum)[PANEL_VECS])
{
	const int vecs = DIRECT_VECS, chains = count * vecs;
	vfloat dot[2 * DIRECT_VECS][TILE_ROWS];

	UNROLLED (j, chains)
		UNROLLED (i, rows)
			dot[j][i] = set_float(0.0f);
	UNROLLED (z, 2) {
		vcodes c[2 * DIRECT_VECS];

		UNROLLED (j, chains)
			c[j] = load_codes(panel + cpu_codes_at(k + j / vecs) + 64 * z +
					  (v0 + j % vecs) * V_BYTES);
		UNROLLED (g, HALF_WORDS)
			UNROLLED (j, chains) {
				const record *row = a + j / vecs * rows;
				const vword w = decode(c[j], g);

				UNROLLED (i, rows)
					dot[j][i] =
					    dot_step(dot[j][i], w,
						     row[i].word[z * HALF_WORDS + g]);
			}
	}
	UNROLLED (j, chains) {
		const int v = v0 + j % vecs;
		const vfloat s = block_scales(
		    panel + cpu_scales_at(left, k + j / vecs) + v * V_COLS);

		UNROLLED (i, rows)
			sum[i][v] = fma_float(dot[j][i], s, sum[i][v]);
	}
}
