/* SPDX-License-Identifier: Apache-2.0 */
/* panels_neon.inc.h - what pack_panels_vector.inc.h builds on, for aarch64. */
#include <arm_neon.h>

typedef uint8x16_t bytes16;

// clang-format off
#define set_bytes(byte)    vdupq_n_u8(byte)
#define store_bytes(p, v)  vst1q_u8(p, v)
#define or_bytes(x, y)     vorrq_u8(x, y)
#define equal_bytes(x, y)  vceqq_u8(x, y)
// clang-format on

/* Bit i: byte i of x, which is 0 or 255. */
static inline unsigned int bytes_mask(bytes16 x)
{
	static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128,
					 1, 2, 4, 8, 16, 32, 64, 128};
	const uint8x16_t set = vandq_u8(x, vld1q_u8(bits));

	return vaddv_u8(vget_low_u8(set)) | (unsigned int)vaddv_u8(vget_high_u8(set))
						<< 8;
}

/* Four dwords of four rows each way: x[k] = dword k of each. */
static inline void transpose_4x4(bytes16 x[4])
{
	const uint32x4_t r[4] = {vreinterpretq_u32_u8(x[0]), vreinterpretq_u32_u8(x[1]),
				 vreinterpretq_u32_u8(x[2]),
				 vreinterpretq_u32_u8(x[3])};
	const uint64x2_t a = vreinterpretq_u64_u32(vzip1q_u32(r[0], r[1]));
	const uint64x2_t b = vreinterpretq_u64_u32(vzip2q_u32(r[0], r[1]));
	const uint64x2_t c = vreinterpretq_u64_u32(vzip1q_u32(r[2], r[3]));
	const uint64x2_t d = vreinterpretq_u64_u32(vzip2q_u32(r[2], r[3]));

	x[0] = vreinterpretq_u8_u64(vzip1q_u64(a, c));
	x[1] = vreinterpretq_u8_u64(vzip2q_u64(a, c));
	x[2] = vreinterpretq_u8_u64(vzip1q_u64(b, d));
	x[3] = vreinterpretq_u8_u64(vzip2q_u64(b, d));
}

/* The scales of 16 rows and 4 k-blocks: out[k] = 16 bytes, one a row. */
static inline void gather_scales(const struct scale_row *rows, int64_t block,
				 bytes16 out[4])
{
	/* Bytes of equal k-block together. */
	static const uint8_t by_block[16] = {0, 4, 8,  12, 1, 5, 9,  13,
					     2, 6, 10, 14, 3, 7, 11, 15};
	const int64_t at = block / 4 * rows[0].step;

	for (int r = 0; r < 4; r++) {
		uint32_t four[4];

		for (int i = 0; i < 4; i++)
			memcpy(&four[i], rows[4 * r + i].at + at, 4);
		out[r] = vqtbl1q_u8(vreinterpretq_u8_u32(vld1q_u32(four)),
				    vld1q_u8(by_block));
	}
	transpose_4x4(out);
	for (int k = 0; k < 4; k++)
		out[k] = vandq_u8(out[k], vdupq_n_u8(0x7f));
}

/* 8 rows of 32 bytes of codes: dword d of each to out + 64 * d. */
static inline void transpose_codes(const uint8_t *const *rows, int64_t at, uint8_t *out)
{
	for (int half = 0; half < 2; half++)
		for (int four = 0; four < 2; four++) {
			bytes16 x[4];

			for (int i = 0; i < 4; i++)
				x[i] = vld1q_u8(rows[4 * four + i] + at + 16 * half);
			transpose_4x4(x);
			for (int d = 0; d < 4; d++)
				store_bytes(out + 64 * (4 * half + d) + 16 * four,
					    x[d]);
		}
}
