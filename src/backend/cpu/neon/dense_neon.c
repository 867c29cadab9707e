/* SPDX-License-Identifier: Apache-2.0 */
/* dense_neon.c - W4A16 and W4A32 with NEON: weights become fp32. */
#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector128.inc.h"

#define CPU_GEMM_OPS		  cpu_dense_ops_neon
#define DENSE_A			  1
#define ROW_STEP		  4
#define WORDS			  16
#define FOLDED			  0
#define DIRECT_STEP(rows)	  ((rows) <= 2 ? 2 : 1)
#define PACK_BLOCK(x, dtype, out) widen_block(x, dtype, (out)->word)
#define WIDEN_FP16(from, to)	  widen_fp16(from, to)

typedef struct cpu_fp32_record record;
typedef float32x4_t vword;

// clang-format off
#define load_word(p)       load_float((const float *)(p))
#define store_word(p, v)   store_float((float *)(p), v)
#define dot_step(dot, w, a) vfmaq_n_f32(dot, w, a)
#define fold(codes, i, scale) decode(codes, i)
/* load_e4m3() gives 1/256 of them, decode() 1/128 of the values. */
#define block_scales(bytes) mul_float(load_e4m3(bytes), set_float(32768.0f))
// clang-format on

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

/* The upper and the lower bytes of 1/128 of the values as bf16. */
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

static inline vcodes load_codes(const uint8_t *p)
{
	/* The first two bytes of the four columns, then the last two. */
	static const uint8_t halves[16] = {0, 1, 4, 5, 8,  9,  12, 13,
					   2, 3, 6, 7, 10, 11, 14, 15};
	const uint8x16_t c = vqtbl1q_u8(vld1q_u8(p), vld1q_u8(halves));

	return (vcodes){
	    {load_pairs(vandq_u8(c, vdupq_n_u8(15))), load_pairs(vshrq_n_u8(c, 4))}};
}

/* A bf16 is the upper half of an fp32. */
static inline __attribute__((always_inline)) float32x4_t decode(vcodes codes, int i)
{
	const uint32x4_t pair = codes.nibble[i % 2].half[i / 4];

	return vreinterpretq_f32_u32(i / 2 % 2
					 ? vandq_u32(pair, vdupq_n_u32(0xffff0000))
					 : vshlq_n_u32(pair, 16));
}

static inline void widen_fp16(const uint8_t *from, float *to)
{
	for (int i = 0; i < 4; i++)
		vst1q_f32(to + 4 * i,
			  vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from + 8 * i))));
}

#include "backend/cpu/multiply.inc.h"
