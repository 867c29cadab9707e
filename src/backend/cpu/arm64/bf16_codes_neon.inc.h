/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16_codes_neon.inc.h - codes of a panel to 1/128 of their values as bf16, for A of
 * floats with NEON.
 */
#include <arm_neon.h>
#include <stdint.h>

/*
 * bf16 in pairs, a pair in each dword: nibble[p].half[h] has k = 4h + p in the lower
 * halves of dwords and k = 4h + p + 2 in the upper ones.
 */
typedef struct {
	uint32x4_t half[2];
} pairs;

typedef struct {
	pairs nibble[2];
} vcodes;

/* A bf16 for each byte of index, which is a code. */
static inline pairs load_pairs(uint8x16_t index)
{
	static const uint8_t upper[16] = {0x00, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c,
					  0x3d, 0x3d, 0x80, 0xbb, 0xbc, 0xbc,
					  0xbc, 0xbc, 0xbd, 0xbd};
	static const uint8_t lower[16] = {0x00, 0x80, 0x00, 0x40, 0x80, 0xc0,
					  0x00, 0x40, 0x00, 0x80, 0x00, 0x40,
					  0x80, 0xc0, 0x00, 0x40};
	const uint8x16_t u = vqtbl1q_u8(vld1q_u8(upper), index);
	const uint8x16_t l = vqtbl1q_u8(vld1q_u8(lower), index);

	return (pairs){{vreinterpretq_u32_u8(vzip1q_u8(l, u)),
			vreinterpretq_u32_u8(vzip2q_u8(l, u))}};
}

/* The low nibbles of c, then the high ones. */
static inline vcodes load_nibbles(uint8x16_t c)
{
	return (vcodes){
	    {load_pairs(vandq_u8(c, vdupq_n_u8(15))), load_pairs(vshrq_n_u8(c, 4))}};
}

static inline vcodes load_codes(const uint8_t *p)
{
	/* The first two bytes of the four columns, then the last two. */
	static const uint8_t halves[16] = {0, 1, 4, 5, 8,  9,  12, 13,
					   2, 3, 6, 7, 10, 11, 14, 15};

	return load_nibbles(vqtbl1q_u8(vld1q_u8(p), vld1q_u8(halves)));
}
