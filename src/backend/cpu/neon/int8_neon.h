/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8_neon.h - what both files of W4A4 with NEON share.  NEON multiplies signed bytes
 * by signed bytes, so that weights need no CODE_OFFSET and records no bias.
 */
#ifndef NIB_CPU_INT8_NEON_H
#define NIB_CPU_INT8_NEON_H

#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector128.inc.h"

#define DENSE_A		      0
#define ROW_STEP	      2
#define SCALE_TABLE	      0
#define FINISH_RECORD(record) (void)(record)
#define DIRECT_STEP(rows)     1
#define load_scales(bytes)    load_e4m3(bytes)
#define row_scale(a, b_scale) mul_float(set_float((a)->scale), b_scale)

/* 2 * e2m1 of each index below 16. */
static inline vint look_up(uint8x16_t index)
{
	static const int8_t twice[16] = {0, 1,	2,  3,	4,  6,	8,  12,
					 0, -1, -2, -3, -4, -6, -8, -12};

	return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(twice), index));
}

static inline vint decode_low(vint packed)
{
	return look_up(vandq_u8(vreinterpretq_u8_s32(packed), vdupq_n_u8(15)));
}

static inline vint decode_high(vint packed)
{
	return look_up(vshrq_n_u8(vreinterpretq_u8_s32(packed), 4));
}

#endif
