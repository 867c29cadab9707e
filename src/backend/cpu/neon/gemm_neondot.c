/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_neondot.c - W4A4 and W4A8 with the dot products of Armv8.2 (sdot): Cortex-A75,
 * Neoverse N1, Apple M1 and newer.
 *
 * Per 16 columns, 16 k and a row: 16 sdot by a lane of the record, 4 conversions, 4
 * multiplications by the scale and 4 fused multiply-adds.  All use the same pipes, so
 * that 16/28 of the sdot rate is the bound.
 */
#include "backend/cpu/neon/int8_neon.h"

#define CPU_GEMM_OPS	      cpu_gemm_ops_neondot
#define dot_first(a, b)	      dot_lane(vdupq_n_s32(0), b, a, 0)
#define dot_add(dot, b, a, g) dot_lane(dot, b, a, g)
#define dot_float(dot, a)     vcvtq_f32_s32(dot)

typedef int32x4_t vdot;

/* Lanes are numbers in the instruction: g is known when the loop is unrolled. */
static inline __attribute__((always_inline)) int32x4_t
dot_lane(int32x4_t dot, vint b_, const struct cpu_record *record, int g)
{
	const int8x16_t a = vld1q_s8(record->codes), b = vreinterpretq_s8_s32(b_);

	switch (g) {
	case 0:
		return vdotq_laneq_s32(dot, b, a, 0);
	case 1:
		return vdotq_laneq_s32(dot, b, a, 1);
	case 2:
		return vdotq_laneq_s32(dot, b, a, 2);
	default:
		return vdotq_laneq_s32(dot, b, a, 3);
	}
}

#include "backend/cpu/multiply.inc.h"
