/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector128.inc.h - the parameters of multiply.inc.h that the sets with NEON, vectors
 * of 4 columns, share.
 */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define V_COLS	    4
#define TILE_ROWS   4
#define TILE_VECS   4
#define DIRECT_ROWS 4

typedef int32x4_t vint;
typedef float32x4_t vfloat;

// clang-format off
#define load_int(p)        vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)(p)))
#define store_int(p, v)    vst1q_u8((uint8_t *)(p), vreinterpretq_u8_s32(v))
#define load_float(p)      vld1q_f32(p)
#define store_float(p, v)  vst1q_f32(p, v)
#define set_float(x)       vdupq_n_f32(x)
#define set_int(x)         vdupq_n_s32(x)
#define add_int(x, y)      vaddq_s32(x, y)
#define sub_int(x, y)      vsubq_s32(x, y)
#define add_float(x, y)    vaddq_f32(x, y)
#define mul_float(x, y)    vmulq_f32(x, y)
#define max_float(x, y)    vmaxq_f32(x, y)
#define fma_float(x, y, z) vfmaq_f32(z, x, y)
#define to_bits(v)         vreinterpretq_s32_f32(v)
#define to_float(v)        vreinterpretq_f32_s32(v)
// clang-format on

/* 1/256 of 4 e4m3: shifted left by 7 they are fp16 of that value, subnormals too. */
static inline float32x4_t load_e4m3(const uint8_t *bytes)
{
	uint32_t four;
	uint16x4_t half;

	memcpy(&four, bytes, sizeof(four));
	half = vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))));
	return vcvt_f32_f16(vreinterpret_f16_u16(vshl_n_u16(half, 7)));
}
