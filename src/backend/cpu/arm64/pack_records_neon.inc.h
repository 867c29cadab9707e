/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_records_neon.inc.h - pack_record() of pack.inc.h and pack_int8_block() of
 * pack_int8.inc.h on aarch64.  Bytes of B are signed here, so there is no offset to
 * cancel: a record's bias holds the bits of its scale again, for those who load both.
 * Why the divisions are exact enough: pack_records_vector.inc.h.
 */
#include <arm_neon.h>
#include <string.h>

#include "backend/cpu/gemm_ops.h"
#include "format/int8.h"

static inline void set_scale(struct cpu_record *out, float scale)
{
	out->scale = scale;
	memcpy(&out->bias, &scale, sizeof(out->bias));
}

/* One k-block's 8 bytes of codes, and a scale that is neither 0 nor NaN. */
static inline void pack_record_neon(const uint8_t *codes, uint8_t scale,
				    struct cpu_record *out)
{
	static const int8_t twice[16] = {0, 1,	2,  3,	4,  6,	8,  12,
					 0, -1, -2, -3, -4, -6, -8, -12};
	const uint8x8_t x = vld1_u8(codes);
	const uint32x2_t low = vreinterpret_u32_u8(vand_u8(x, vdup_n_u8(15)));
	const uint32x2_t high = vreinterpret_u32_u8(vshr_n_u8(x, 4));
	const uint32x4_t index =
	    vcombine_u32(vzip1_u32(low, high), vzip2_u32(low, high));
	/* e4m3 << 7 is an fp16 of 1/256 of the value; / 4 is wanted. */
	const float32x4_t wide =
	    vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16((uint16_t)(scale << 7))));

	vst1q_s8(out->codes, vqtbl1q_s8(vld1q_s8(twice), vreinterpretq_u8_u32(index)));
	set_scale(out, vgetq_lane_f32(wide, 0) * 64.0f);
}

#define PACK_RECORD pack_record_neon

/* Values 4j .. 4j + 3 of a k-block, as floats. */
static inline __attribute__((always_inline)) float32x4_t
load_four(const uint8_t *x, enum nib_dtype dtype, int j)
{
	uint8x8_t half;

	if (dtype == NIB_DTYPE_FP32)
		return vreinterpretq_f32_u8(vld1q_u8(x + 16 * j));
	half = vld1_u8(x + 8 * j);
	if (dtype == NIB_DTYPE_FP16)
		return vcvt_f32_f16(vreinterpret_f16_u8(half));
	return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(half), 16));
}

/* most / 127 rounded up to 3 fraction bits, at least 2^-100. */
static inline float int8_scale(uint32_t most)
{
	const uint32_t below = (1u << 20) - 1;
	const float least = 127 * NIB_INT8_LEAST_SCALE;
	float value, quotient;
	uint32_t bits;

	memcpy(&value, &most, sizeof(value));
	quotient = (value > least ? value : least) / 127.0f;
	memcpy(&bits, &quotient, sizeof(bits));
	bits = (bits + below) & ~below;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* As pack_int8_block() of pack_int8.inc.h. */
static inline __attribute__((always_inline)) bool
pack_int8_block_neon(const uint8_t *x, enum nib_dtype dtype, struct cpu_record *out)
{
	/* A record's order of k. */
	static const uint8_t order[16] = {0, 2,	 4,  6,	 1, 3,	5,  7,
					  8, 10, 12, 14, 9, 11, 13, 15};
	float32x4_t values[4];
	int16x4_t words[4];
	uint32x4_t most = vdupq_n_u32(0);
	uint32_t largest;
	float scale;

	for (int j = 0; j < 4; j++) {
		values[j] = load_four(x, dtype, j);
		most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(values[j])));
	}
	largest = vmaxvq_u32(most);
	scale = int8_scale(largest);
	/* To nearest even; out of range only for what is not used. */
	for (int j = 0; j < 4; j++)
		words[j] = vqmovn_s32(
		    vcvtnq_s32_f32(vdivq_f32(values[j], vdupq_n_f32(scale))));
	const int8x16_t bytes =
	    vcombine_s8(vqmovn_s16(vcombine_s16(words[0], words[1])),
			vqmovn_s16(vcombine_s16(words[2], words[3])));

	vst1q_s8(out->codes, vqtbl1q_s8(bytes, vld1q_u8(order)));
	set_scale(out, scale * INT8_RECORD_SCALE);
	return largest >= 0x7f800000;
}

#define PACK_INT8_BLOCK pack_int8_block_neon
