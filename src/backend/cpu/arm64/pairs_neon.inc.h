/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs_neon.inc.h - W4A4 and W4A8 by smmla, which multiplies two rows of A by two
 * columns of B, 8 k of each, in place of gemm.inc.h.  Arithmetic and few rows:
 * codes_neon.inc.h.
 *
 *   vector of A     row 0: k = 0 2 4 6 1 3 5 7 | row 1: the same k
 *   vector of B     column 0: the same 8 k     | column 1
 *   vector of sums  row 0: columns 0, 1        | row 1: columns 0, 1
 *
 * Records of A are stored in pairs (store_in_pair()), whose three vectors are the two
 * of A and the scales.  In B a zip joins a dword of low nibbles of a panel and
 * the one of high nibbles of the same column.  Sums are in this order in registers only
 * (arrange_sums()).  A last row without a partner is multiplied by sdot.
 *
 * Per 4 columns, 16 k and two rows: four smmla, four fused multiply-adds, and two
 * copies and two loads of what accumulators begin with.  Dispatch and loads are the
 * limit, not the vector pipes, which therefore have time for the copies.
 */
#include "backend/cpu/arm64/codes_neon.inc.h"

#include "backend/cpu/arm64/row_pairs_neon.inc.h"

/* Two columns of a k-block, k = 0 to 7 and 8 to 15. */
struct columns {
	int8x16_t codes[2];
	vfloat scales; /* of both columns, twice */
	vfloat start;  /* -MAGIC * scales */
};

/* Four columns. */
struct expanded {
	struct columns half[2];
};

#define EXPANDED_BLOCK ((int64_t)(TILE_VECS * sizeof(struct expanded)))
#define EXPANDED_TILE  (CHUNK_BLOCKS * EXPANDED_BLOCK)

/* Dwords of x and y in turn: those of the first half, or of the second. */
TILE_INLINE int8x16_t zip_first(int8x16_t x, int8x16_t y)
{
	return vreinterpretq_s8_s32(
	    vzip1q_s32(vreinterpretq_s32_s8(x), vreinterpretq_s32_s8(y)));
}

TILE_INLINE int8x16_t zip_second(int8x16_t x, int8x16_t y)
{
	return vreinterpretq_s8_s32(
	    vzip2q_s32(vreinterpretq_s32_s8(x), vreinterpretq_s32_s8(y)));
}

/* Expands k-block k of its panel. */
TILE_INLINE void expand_block(const struct source *source, int64_t k, char *expanded)
{
	struct expanded *out = (struct expanded *)expanded;
	const uint8_t *panel = source->panels[0];
	vfloat scales[TILE_VECS];

	decode_scales(panel + cpu_scales_at(source->left, k), scales);
	UNROLLED (v, TILE_VECS) {
		struct columns *half = out[v].half;
		int8x16_t codes[4];

		decode_codes(panel + cpu_codes_at(k), v, codes);
		UNROLLED (z, 2) {
			half[0].codes[z] = zip_first(codes[2 * z], codes[2 * z + 1]);
			half[1].codes[z] = zip_second(codes[2 * z], codes[2 * z + 1]);
		}
		half[0].scales = first_halves(scales[v], scales[v]);
		half[1].scales = second_halves(scales[v], scales[v]);
		UNROLLED (h, 2)
			half[h].start = vmulq_n_f32(half[h].scales, -MAGIC);
	}
}

/* Two rows of a k-block, as they are stored. */
struct row_pair {
	int8x16_t codes[2];
	/* The first row's twice, the second's twice; for codes of 0 one may be 0. */
	vfloat scales;
};

/* Single loads: a load of a pair of vectors is three micro-ops on Neoverse V2. */
TILE_INLINE int8x16_t load_codes(const void *from)
{
	return vreinterpretq_s8_f32(load_again(from));
}

TILE_INLINE struct row_pair load_pair(const record *a)
{
	const char *pair = (const char *)a;

	return (struct row_pair){{load_codes(pair), load_codes(pair + 16)},
				 load_again(pair + 32)};
}

/* A vector of sums of a pair += one k-block; start: where c->start is in memory. */
TILE_INLINE vfloat add_pair(vfloat sum, const struct row_pair *a,
			    const struct columns *c, const vfloat *start)
{
	int32x4_t d = vreinterpretq_s32_f32(vdupq_n_f32(MAGIC));

	d = vmmlaq_s32(d, a->codes[0], c->codes[0]);
	d = vmmlaq_s32(d, a->codes[1], c->codes[1]);
	return vfmaq_f32(
	    sum, vfmaq_f32(load_again(start), vreinterpretq_f32_s32(d), c->scales),
	    a->scales);
}

TILE_INLINE struct columns load_columns(const struct columns *c)
{
	return (struct columns){{load_codes(&c->codes[0]), load_codes(&c->codes[1])},
				load_again(&c->scales),
				c->start};
}

/* A row without a partner: even and odd k of a column are summed in two lanes. */
TILE_INLINE void add_single(const record *a, const struct expanded *b, vfloat *sum)
{
	const float even_magic[4] = {MAGIC, 0.0f, MAGIC, 0.0f};
	const int8x16_t codes = vld1q_s8(a->codes);
	const int8x16_t a0 = vcombine_s8(vget_low_s8(codes), vget_low_s8(codes));
	const int8x16_t a1 = vcombine_s8(vget_high_s8(codes), vget_high_s8(codes));
	int32x4_t d[2];

	UNROLLED (h, 2) {
		d[h] = vreinterpretq_s32_f32(vld1q_f32(even_magic));
		d[h] = vdotq_s32(d[h], b->half[h].codes[0], a0);
		d[h] = vdotq_s32(d[h], b->half[h].codes[1], a1);
	}
	*sum =
	    add_scaled(*sum, vreinterpretq_f32_s32(vpaddq_s32(d[0], d[1])),
		       first_halves(b->half[0].scales, b->half[1].scales),
		       first_halves(b->half[0].start, b->half[1].start), load_scale(a));
}

/* sum[row][vector] += one k-block, for the `step` rows from a. */
TILE_INLINE void add_rows(const int step, const record *a, const char *expanded,
			  vfloat (*sum)[TILE_VECS])
{
	const struct expanded *b = (const struct expanded *)expanded;
	struct row_pair pairs[ROW_STEP / 2];

	UNROLLED (p, step / 2)
		pairs[p] = load_pair(a + 2 * p);
	UNROLLED (v, TILE_VECS) {
		UNROLLED (h, 2) {
			const struct columns c = load_columns(&b[v].half[h]);

			UNROLLED (p, step / 2)
				sum[2 * p + h][v] =
				    add_pair(sum[2 * p + h][v], &pairs[p], &c,
					     &b[v].half[h].start);
		}
		if (step % 2)
			add_single(&a[step - 1], &b[v], &sum[step - 1][v]);
	}
}
