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

#include "backend/cpu/arm64/bf16_codes_neon.inc.h"

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
