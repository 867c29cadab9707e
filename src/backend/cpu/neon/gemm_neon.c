/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_neon.c - NEON without SDOT (Cortex-A72): products of 16 bits.
 *
 * A lane of 16 bits adds four products of at most 12 * 127, and the pairwise addition
 * two lanes: at most 12192.
 */
#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/gemm_ops.h"

#include "backend/cpu/vector128.inc.h"

#define CPU_GEMM_OPS	  cpu_gemm_ops_neon
#define DENSE_A		  0
#define ROW_STEP	  4
#define DIRECT_STEP(rows) 1
#define GEMM_ARITHMETIC	  "backend/cpu/arm64/gemm_neon.inc.h"

/* Four codes of a row, for every column. */
#define FOUR_OF(a, g) vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(a), g))

static inline __attribute__((always_inline)) vfloat
dot_block(vfloat d, const int8x16_t b[4], int8x16_t a)
{
	const int8x16_t a4[4] = {FOUR_OF(a, 0), FOUR_OF(a, 1), FOUR_OF(a, 2),
				 FOUR_OF(a, 3)};
	int16x8_t low = vmull_s8(vget_low_s8(b[0]), vget_low_s8(a4[0]));
	int16x8_t high = vmull_high_s8(b[0], a4[0]);

	for (int g = 1; g < 4; g++) {
		low = vmlal_s8(low, vget_low_s8(b[g]), vget_low_s8(a4[g]));
		high = vmlal_high_s8(high, b[g], a4[g]);
	}
	return vreinterpretq_f32_s32(
	    vpadalq_s16(vreinterpretq_s32_f32(d), vpaddq_s16(low, high)));
}

#include "backend/cpu/multiply.inc.h"
