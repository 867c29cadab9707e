/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_neon.inc.h - W4A4 and W4A8 on aarch64: sums of tiles row by row, in place of
 * gemm.inc.h.  Arithmetic and few rows: codes_neon.inc.h.
 *
 *   packed weights -expand_block-> struct expanded -add_rows-> sums -finish_row-> C
 *
 * Per 4 columns, 16 k and a row: the instructions of dot_block(), two fused
 * multiply-adds, and two loads of what both begin with.
 */
#include "backend/cpu/arm64/codes_neon.inc.h"

/* Four columns of a k-block. */
struct expanded {
	int8x16_t codes[4];
	vfloat scales;
	vfloat start; /* -MAGIC * scales */
};

#define EXPANDED_BLOCK ((int64_t)(TILE_VECS * sizeof(struct expanded)))
#define EXPANDED_TILE  (CHUNK_BLOCKS * EXPANDED_BLOCK)

/* Expands k-block k of its panel. */
TILE_INLINE void expand_block(const struct source *source, int64_t k, char *expanded)
{
	struct expanded *out = (struct expanded *)expanded;
	const uint8_t *panel = source->panels[0];
	vfloat scales[TILE_VECS];

	decode_scales(panel + cpu_scales_at(source->left, k), scales);
	UNROLLED (v, TILE_VECS) {
		decode_codes(panel + cpu_codes_at(k), v, out[v].codes);
		out[v].scales = scales[v];
		out[v].start = vmulq_n_f32(scales[v], -MAGIC);
	}
}

/* sum[row][vector] += one k-block, for the `step` rows from a. */
TILE_INLINE void add_rows(const int step, const record *a, const char *expanded,
			  vfloat (*sum)[TILE_VECS])
{
	const struct expanded *b = (const struct expanded *)expanded;
	int8x16_t codes[ROW_STEP];
	float32x2_t scales[ROW_STEP];

	UNROLLED (i, step) {
		codes[i] = vld1q_s8(a[i].codes);
		scales[i] = load_scale(&a[i]);
	}
	UNROLLED (v, TILE_VECS)
		UNROLLED (i, step) {
			const vfloat d = dot_block(load_magic(), b[v].codes, codes[i]);

			sum[i][v] = add_scaled(sum[i][v], d, b[v].scales,
					       load_again(&b[v].start), scales[i]);
		}
}
