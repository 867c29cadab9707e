/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.inc.h - W4A4: sums of tiles, one copy for every vector set.  The loops
 * around them are in units.inc.h.
 *
 * Arithmetic.  2 * e2m1 is an integer of at most 12.  B's codes become unsigned
 * bytes by adding CODE_OFFSET, A's stay signed; a record's `bias` cancels the
 * offset again, so four 4-wide byte dot products give the exact integer dot
 * product of a block.  It is converted to fp32 and multiplied by the record's
 * scale * scale_b / 256, exact as well (at most 23 bits), and added by one fused
 * multiply-add: one rounding a block, in the order of k, whatever the tile.
 * finish_row() multiplies sums by the item's sum_factor.
 *
 *   With DOT_OFFSET, M, there is no conversion: dot products begin at the bits of M,
 *   1.5 * 2^23, and end at those of the float M + d.  fma(M + d, scale_b, -M * scale_b)
 *   is d * scale_b exactly (19 bits), and a second fused multiply-add rounds once.
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
 * Parameters: multiply.inc.h.
 */
#ifndef DOT_OFFSET
#define DOT_OFFSET 0
#endif

#define EXPANDED_CODES (4 * TILE_VECS * V_BYTES)
#define EXPANDED_BLOCK                                                                 \
	(EXPANDED_CODES + (SCALE_TABLE	     ? 8                                       \
			   : DOT_OFFSET != 0 ? 2                                       \
					     : 1) *                                    \
			      TILE_VECS * V_BYTES)
#define EXPANDED_TILE (CHUNK_BLOCKS * EXPANDED_BLOCK)
/* fp32 bits of 1 + t/8, and the position of t in the bits of a scale. */
#define BITS_OF_ONE    0x3f800000
#define FRACTION_SHIFT 20

/* ---- tiles: the main loop ----------------------------------------------- */

/* Scales of a vector of columns, or the table of their products (see above). */
TILE_INLINE void expand_scales(const uint8_t *bytes, char *out)
{
	vfloat s = load_scales(bytes);

	if (!SCALE_TABLE) {
		store_int(out, to_bits(s));
		if (DOT_OFFSET != 0)
			store_float((float *)(out + TILE_VECS * V_BYTES),
				    mul_float(s, set_float(-DOT_OFFSET)));
		return;
	}
	/* The codes of a scale of 0 are 0, so its factor may be any that stays
	 * finite when bits are added to it. */
	s = max_float(s, set_float(0x1p-17f));
	const vfloat eighth = mul_float(s, set_float(0.125f));

	UNROLLED (t, 8) {
		const int one = BITS_OF_ONE + (t << FRACTION_SHIFT);

		store_int(out + t * TILE_VECS * V_BYTES,
			  sub_int(to_bits(s), set_int(one)));
		s = add_float(s, eighth);
	}
}

/* Expands k-block k from its panels. */
TILE_INLINE void expand_block(const struct source *source, int64_t k, char *expanded)
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

/* sum + a block's product; start: -DOT_OFFSET * b_scale. */
TILE_INLINE vfloat add_product(vfloat sum, vdot dot, const record *a, vfloat b_scale,
			       vfloat start)
{
	const vfloat block = dot_float(dot, a);

	if (DOT_OFFSET != 0)
		return fma_float(fma_float(block, b_scale, start), set_float(a->scale),
				 sum);
	return fma_float(block, row_scale(a, b_scale), sum);
}

/* The same, from expanded scales of vector v. */
TILE_INLINE vfloat add_expanded(vfloat sum, vdot dot, const record *a,
				const char *expanded_scales, int v)
{
	const float *scales = (const float *)expanded_scales + v * V_COLS;
	int32_t bits;

	if (!SCALE_TABLE)
		return add_product(sum, dot, a, load_float(scales),
				   DOT_OFFSET != 0
				       ? load_float(scales + TILE_VECS * V_COLS)
				       : set_float(0.0f));
	memcpy(&bits, &a->scale, sizeof(bits));
	scales += (bits >> FRACTION_SHIFT & 7) * (TILE_VECS * V_COLS);
	/* set_float() broadcasts from memory; from a register it would occupy a
	 * port. */
	return fma_float(
	    dot_float(dot, a),
	    to_float(add_int(to_bits(set_float(a->scale)), load_int(scales))), sum);
}

/* sum[row][vector] += one k-block, for the `step` rows from a. */
TILE_INLINE void add_rows(const int step, const record *a, const char *expanded,
			  vfloat (*sum)[TILE_VECS])
{
	vdot dot[ROW_STEP][TILE_VECS];

	UNROLLED (g, 4)
		UNROLLED (i, step) {
			UNROLLED (v, TILE_VECS) {
				const vint b =
				    load_int(expanded + (g * TILE_VECS + v) * V_BYTES);

				dot[i][v] = g == 0 ? dot_first(&a[i], b)
						   : dot_add(dot[i][v], b, &a[i], g);
			}
		}
	UNROLLED (i, step)
		UNROLLED (v, TILE_VECS)
			sum[i][v] = add_expanded(sum[i][v], dot[i][v], &a[i],
						 expanded + EXPANDED_CODES, v);
}

/* ---- direct ------------------------------------------------------------- */

/*
 * Records of one pass: 12 KiB a row, so that a single row's stay in L1 while
 * panels stream past.
 */
#define DIRECT_BLOCKS 512

/*
 * `count` k-blocks of a vector of columns, from block k of a panel on:
 * sum[row][v] += the product of each.  Each step of a dot product waits for the
 * one before it, so those of all k-blocks are interleaved.
 */
TILE_INLINE void add_decoded(const int rows, const int count, const record *a,
			     const uint8_t *panel, int64_t left, int64_t k, const int v,
			     vfloat (*sum)[PANEL_VECS])
{
	vint b[2][4];
	vfloat s[2], start[2];
	vdot dot[2][TILE_ROWS];

	UNROLLED (j, count) {
		const uint8_t *codes = panel + cpu_codes_at(k + j);
		const vint z0 = load_int(codes + v * V_BYTES);
		const vint z1 = load_int(codes + 64 + v * V_BYTES);

		b[j][0] = decode_low(z0);
		b[j][1] = decode_high(z0);
		b[j][2] = decode_low(z1);
		b[j][3] = decode_high(z1);
		s[j] = load_scales(panel + cpu_scales_at(left, k + j) + v * V_COLS);
		start[j] =
		    DOT_OFFSET != 0 ? mul_float(s[j], set_float(-DOT_OFFSET)) : s[j];
	}
	UNROLLED (g, 4)
		UNROLLED (j, count)
			UNROLLED (i, rows) {
				const record *row = &a[j * rows + i];

				dot[j][i] = g == 0
						? dot_first(row, b[j][g])
						: dot_add(dot[j][i], b[j][g], row, g);
			}
	UNROLLED (j, count)
		UNROLLED (i, rows)
			sum[i][v] = add_product(sum[i][v], dot[j][i], &a[j * rows + i],
						s[j], start[j]);
}
