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

typedef float32x4_t vfloat;

// clang-format off
#define load_float(p)      vld1q_f32(p)
#define store_float(p, v)  vst1q_f32(p, v)
#define set_float(x)       vdupq_n_f32(x)
#define mul_float(x, y)    vmulq_f32(x, y)
#define fma_float(x, y, z) vfmaq_f32(z, x, y)
// clang-format on

/*
 * e4m3 shifted left by 7 is an fp16 of 1/256 of the value, subnormals too: those of
 * four columns, of the low and of the high half of eight.
 */
static inline float32x4_t low_scales(uint8x8_t bytes)
{
	return vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(vshll_n_u8(bytes, 7))));
}

static inline float32x4_t high_scales(uint8x8_t bytes)
{
	return vcvt_high_f32_f16(vreinterpretq_f16_u16(vshll_n_u8(bytes, 7)));
}

static inline float32x4_t load_e4m3(const uint8_t *bytes)
{
	uint32_t four;

	memcpy(&four, bytes, sizeof(four));
	return low_scales(vcreate_u8(four));
}
