/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_neon.c - W4A4 and W4A8 with the instructions that every 64-bit Arm processor
 * has: Cortex-A53, A72 and others without sdot.
 *
 * A step multiplies bytes to sums of 16 bits, two vectors for the 4 columns (smlal,
 * smlal2).  A sum has 4 products of at most 12 * 127, one of each step, so that it
 * fits.  Per 16 columns, 16 k and a row: 32 of them, 8 additions of pairs, 12 others.
 */
#include "backend/cpu/neon/int8_neon.h"

#define CPU_GEMM_OPS cpu_gemm_ops_neon

/* Sums of k = 0 .. 3 of a step: columns 0 and 1, columns 2 and 3. */
typedef struct {
	int16x8_t low, high;
} vdot;

static inline int8x16_t word_of(const struct cpu_record *record, int g)
{
	int32_t word;

	memcpy(&word, record->codes + 4 * g, sizeof(word));
	return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

static inline vdot dot_first(const struct cpu_record *record, vint b_)
{
	const int8x16_t a = word_of(record, 0), b = vreinterpretq_s8_s32(b_);

	return (vdot){vmull_s8(vget_low_s8(b), vget_low_s8(a)), vmull_high_s8(b, a)};
}

static inline vdot dot_add(vdot dot, vint b_, const struct cpu_record *record, int g)
{
	const int8x16_t a = word_of(record, g), b = vreinterpretq_s8_s32(b_);

	dot.low = vmlal_s8(dot.low, vget_low_s8(b), vget_low_s8(a));
	dot.high = vmlal_high_s8(dot.high, b, a);
	return dot;
}

#define dot_float(dot, a) vcvtq_f32_s32(vpaddlq_s16(vpaddq_s16((dot).low, (dot).high)))

#include "backend/cpu/multiply.inc.h"
