/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_pairs_neon.inc.h - the order of sums of instructions that multiply two rows of A
 * by two columns of B (smmla, bfmmla):
 *
 *   sum[2p][v]      row 2p: columns 0, 1 of vector v | row 2p + 1: the same
 *   sum[2p + 1][v]  row 2p: columns 2, 3             | row 2p + 1
 *
 * Sums are in this order in registers only.  A last row without a partner keeps the
 * order of memory.
 */
/* The first, or second, half of both vectors. */
TILE_INLINE vfloat first_halves(vfloat x, vfloat y)
{
	return vreinterpretq_f32_u64(
	    vzip1q_u64(vreinterpretq_u64_f32(x), vreinterpretq_u64_f32(y)));
}

TILE_INLINE vfloat second_halves(vfloat x, vfloat y)
{
	return vreinterpretq_f32_u64(
	    vzip2q_u64(vreinterpretq_u64_f32(x), vreinterpretq_u64_f32(y)));
}

/*
 * Sums of pairs of rows, from rows of memory to the order above, or back: both are the
 * same exchange of halves.
 */
TILE_INLINE void arrange_sums(const int rows, vfloat (*sum)[TILE_VECS])
{
	UNROLLED (p, rows / 2)
		UNROLLED (v, TILE_VECS) {
			const vfloat x = sum[2 * p][v], y = sum[2 * p + 1][v];

			sum[2 * p][v] = first_halves(x, y);
			sum[2 * p + 1][v] = second_halves(x, y);
		}
}

#define ARRANGE_SUMS(rows, sum) arrange_sums(rows, sum)
