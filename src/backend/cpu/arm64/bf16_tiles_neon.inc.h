/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16_tiles_neon.inc.h - W4A16 by bfmmla, which multiplies two rows of A by two
 * columns of B, 4 k of each: tiles in place of those of dense.inc.h.
 *
 *   vector of A     row 0: a quad of k      | row 1: the same k
 *   vector of B     column 0: the same quad | column 1
 *   vector of sums  row 0: columns 0, 1     | row 1: columns 0, 1
 *
 * A quad is k = 0 2 4 6 or 1 3 5 7 of 8 k: the low or the high nibbles of a dword of
 * a panel.  Expanded weights have their scale in them.  A last row without a partner is
 * multiplied by the same instructions, whose other row is not used, so that its bits
 * are those of a row of a pair.
 */
#include "backend/cpu/arm64/row_pairs_neon.inc.h"

#define QUADS 4

/* Four columns of a k-block, in two pairs. */
struct expanded {
	uint16x8_t pair[2][QUADS];
};

#define EXPANDED_BLOCK ((int64_t)(TILE_VECS * sizeof(struct expanded)))
#define EXPANDED_TILE  (CHUNK_BLOCKS * EXPANDED_BLOCK)

/* A quad of columns h and h + 1 times their scales.  A bf16 is the upper half of an
 * fp32, and the products have no other bits. */
TILE_INLINE uint16x8_t scale_quads(uint32x4_t quads, vfloat scales, const int h)
{
	const uint16x8_t q = vreinterpretq_u16_u32(quads);
	const vfloat x = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(q), 16));
	const vfloat y = vreinterpretq_f32_u32(vshll_high_n_u16(q, 16));
	const vfloat xs =
	    h ? vmulq_laneq_f32(x, scales, 2) : vmulq_laneq_f32(x, scales, 0);
	const vfloat ys =
	    h ? vmulq_laneq_f32(y, scales, 3) : vmulq_laneq_f32(y, scales, 1);

	return vuzp2q_u16(vreinterpretq_u16_f32(xs), vreinterpretq_u16_f32(ys));
}

/* Expands k-block k of its panel. */
TILE_INLINE void expand_block(const struct source *source, int64_t k, char *expanded)
{
	struct expanded *out = (struct expanded *)expanded;
	const uint8_t *codes = source->panels[0] + cpu_codes_at(k);
	const uint8_t *scales = source->panels[0] + cpu_scales_at(source->left, k);

	UNROLLED (v, TILE_VECS) {
		const vfloat s = block_scales(scales + v * V_COLS);

		UNROLLED (q, QUADS) {
			const vcodes c =
			    load_nibbles(vld1q_u8(codes + q / 2 * 64 + v * V_BYTES));

			UNROLLED (h, 2)
				out[v].pair[h][q] =
				    scale_quads(c.nibble[q % 2].half[h], s, h);
		}
	}
}

TILE_INLINE vfloat multiply_quads(vfloat sum, vfloat a, uint16x8_t b)
{
	return vbfmmlaq_f32(sum, vreinterpretq_bf16_f32(a), vreinterpretq_bf16_u16(b));
}

/* Two quads of rows x and y. */
TILE_INLINE void load_rows(const int32_t *x, const int32_t *y, vfloat quads[2])
{
	const vfloat a = vreinterpretq_f32_s32(vld1q_s32(x));
	const vfloat b = vreinterpretq_f32_s32(vld1q_s32(y));

	quads[0] = first_halves(a, b);
	quads[1] = second_halves(a, b);
}

/* Adds a quad of `step` rows to the sums. */
TILE_INLINE void add_quad(const int step, const vfloat *a, const struct expanded *b,
			  const int q, vfloat (*sum)[TILE_VECS])
{
	UNROLLED (v, TILE_VECS)
		UNROLLED (h, 2)
			UNROLLED (p, (step + 1) / 2)
				sum[2 * p + h][v] = multiply_quads(
				    sum[2 * p + h][v], a[2 * p], b[v].pair[h][q]);
}

/* sum[row][vector] += one k-block, for the `step` rows from a. */
TILE_INLINE void add_rows(const int step, const record *a, const char *expanded,
			  vfloat (*sum)[TILE_VECS])
{
	const struct expanded *b = (const struct expanded *)expanded;
	/* A last row without a partner has two vectors of sums here. */
	vfloat pairs_sum[ROW_STEP][TILE_VECS], quads[ROW_STEP / 2][2];

	UNROLLED (i, step)
		UNROLLED (v, TILE_VECS)
			pairs_sum[i][v] = sum[i][v];
	if (step % 2)
		UNROLLED (v, TILE_VECS)
			pairs_sum[step][v] =
			    second_halves(sum[step - 1][v], sum[step - 1][v]);
	UNROLLED (z, 2) {
		UNROLLED (p, (step + 1) / 2)
			load_rows(a[2 * p].word + 4 * z,
				  a[2 * p + (2 * p + 1 < step)].word + 4 * z, quads[p]);
		UNROLLED (q, 2)
			add_quad(step, &quads[0][q], b, 2 * z + q, pairs_sum);
	}
	UNROLLED (i, step)
		UNROLLED (v, TILE_VECS)
			sum[i][v] = pairs_sum[i][v];
	if (step % 2)
		UNROLLED (v, TILE_VECS)
			sum[step - 1][v] =
			    first_halves(pairs_sum[step - 1][v], pairs_sum[step][v]);
}
