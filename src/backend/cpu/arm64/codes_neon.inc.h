/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codes_neon.inc.h - W4A4 and W4A8 on aarch64: what tiles of rows (gemm_neon.inc.h) and
 * of pairs of rows (pairs_neon.inc.h) share, and few rows, which decode weights in
 * registers.  The loops around them are in units.inc.h.
 *
 * Arithmetic.  As in gemm.inc.h a block's sum of products of codes is an exact integer
 * d, which is multiplied by scale * scale_b / 256 and added with one rounding.  Bytes
 * of B are signed here, so that there is no offset.  scvtf is slow on many of these
 * processors (Neoverse V2 starts one a cycle, and four of the other instructions), so d
 * is added to the bits of MAGIC = 1.5 * 2^23, which makes the float MAGIC + d.  Then
 *   t = fma(MAGIC + d, scale_b, -MAGIC * scale_b) = d * scale_b    exactly, 19 bits
 *   sum = fma(t, scale, sum)                                       rounds once
 * so sums have the bits of every other set.
 *
 * The including file defines
 *   dot_block(d, b, a)  d + the dot product of 16 codes of a row with those of four
 *                       columns, b[0] to b[3]: k in the order of a record
 */
#define MAGIC 12582912.0f

/* Twice the values of the low or high nibbles. */
TILE_INLINE int8x16_t twice(uint8x16_t index)
{
	static const int8_t table[16] = {0, 1,	2,  3,	4,  6,	8,  12,
					 0, -1, -2, -3, -4, -6, -8, -12};

	return vqtbl1q_s8(vld1q_s8(table), index);
}

TILE_INLINE int8x16_t decode_low(uint8x16_t packed)
{
	return twice(vandq_u8(packed, vdupq_n_u8(15)));
}

TILE_INLINE int8x16_t decode_high(uint8x16_t packed)
{
	return twice(vshrq_n_u8(packed, 4));
}

/* Vector v of the codes of a k-block of a panel. */
TILE_INLINE void decode_codes(const uint8_t *codes, int v, int8x16_t out[4])
{
	const uint8x16_t z0 = vld1q_u8(codes + v * V_BYTES);
	const uint8x16_t z1 = vld1q_u8(codes + 64 + v * V_BYTES);

	out[0] = decode_low(z0);
	out[1] = decode_high(z0);
	out[2] = decode_low(z1);
	out[3] = decode_high(z1);
}

/* The scales of a k-block of a panel. */
TILE_INLINE void decode_scales(const uint8_t *at, vfloat out[TILE_VECS])
{
	const uint8x16_t bytes = vld1q_u8(at);

	out[0] = low_scales(vget_low_u8(bytes));
	out[1] = high_scales(vget_low_u8(bytes));
	out[2] = low_scales(vget_high_u8(bytes));
	out[3] = high_scales(vget_high_u8(bytes));
}

/*
 * Loads a vector, which needs no alignment, even if a register has the same value.
 * Accumulators begin with such values, and copying a register would occupy a vector
 * pipe.
 */
TILE_INLINE vfloat load_again(const void *from)
{
	typedef vfloat unaligned __attribute__((aligned(1), may_alias));
	vfloat x;

	__asm__ volatile("ldr %q0, %1" : "=w"(x) : "m"(*(const unaligned *)from));
	return x;
}

/* ld1 without an offset is one micro-op on Neoverse N1, where ldr is two. */
TILE_INLINE vfloat load_magic(void)
{
	static const vfloat magic = {MAGIC, MAGIC, MAGIC, MAGIC};
	vfloat x;

	__asm__ volatile("ld1 {%0.16b}, %1" : "=w"(x) : "Q"(magic));
	return x;
}

/*
 * A record's scale in the second lane, as an operand that needs no copy to all lanes.
 * The first one has the bias, which is not used.
 */
TILE_INLINE float32x2_t load_scale(const record *a)
{
	return vreinterpret_f32_u8(
	    vld1_u8((const uint8_t *)a + offsetof(record, bias)));
}

/* sum + a block's product, whose d is MAGIC + the integer; start: -MAGIC * scales. */
TILE_INLINE vfloat add_scaled(vfloat sum, vfloat d, vfloat scales, vfloat start,
			      float32x2_t scale)
{
	return vfmaq_lane_f32(sum, vfmaq_f32(start, d, scales), scale, 1);
}

/* ---- direct ------------------------------------------------------------- */

/* 12 KiB of records a row, as in gemm.inc.h. */
#define DIRECT_BLOCKS 512

/* `count` k-blocks of a vector of columns, from block k of a panel on. */
TILE_INLINE void add_decoded(const int rows, const int count, const record *a,
			     const uint8_t *panel, int64_t left, int64_t k, const int v,
			     vfloat (*sum)[PANEL_VECS])
{
	UNROLLED (j, count) {
		const record *row = a + j * rows;
		const vfloat scales =
		    load_e4m3(panel + cpu_scales_at(left, k + j) + v * V_COLS);
		const vfloat start = vmulq_n_f32(scales, -MAGIC);
		int8x16_t b[4];

		decode_codes(panel + cpu_codes_at(k + j), v, b);
		UNROLLED (i, rows) {
			const vfloat d =
			    dot_block(vdupq_n_f32(MAGIC), b, vld1q_s8(row[i].codes));

			sum[i][v] = add_scaled(sum[i][v], d, scales, start,
					       load_scale(&row[i]));
		}
	}
}
