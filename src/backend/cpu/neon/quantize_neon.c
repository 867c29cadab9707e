/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_neon.c - quantise, dequantise and amax on aarch64.  The code of an element
 * is the number of limits below its magnitude, by seven compares; a dequantised element
 * is looked up byte by byte.
 */
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/quantize_ops.h"
#include "format/e4m3.h"
#include "format/quantize_ref.h"

#define FN(name) name##_neon

/* ---- magnitudes --------------------------------------------------------- */

typedef uint8x16_t vector;

static inline vector load(const void *from)
{
	return vld1q_u8(from);
}

static inline vector load_some(const void *from, size_t bytes)
{
	vector v = vdupq_n_u8(0);

	memcpy(&v, from, bytes);
	return v;
}

static inline vector magnitudes_wide_neon(vector v)
{
	return vreinterpretq_u8_u32(
	    vandq_u32(vreinterpretq_u32_u8(v), vdupq_n_u32(0x7FFFFFFF)));
}

static inline vector magnitudes_narrow_neon(vector v)
{
	return vreinterpretq_u8_u16(
	    vandq_u16(vreinterpretq_u16_u8(v), vdupq_n_u16(0x7FFF)));
}

static inline vector max_wide_neon(vector x, vector y)
{
	return vreinterpretq_u8_u32(
	    vmaxq_u32(vreinterpretq_u32_u8(x), vreinterpretq_u32_u8(y)));
}

static inline vector max_narrow_neon(vector x, vector y)
{
	return vreinterpretq_u8_u16(
	    vmaxq_u16(vreinterpretq_u16_u8(x), vreinterpretq_u16_u8(y)));
}

static inline uint32_t largest_wide_neon(vector v)
{
	return vmaxvq_u32(vreinterpretq_u32_u8(v));
}

static inline uint32_t largest_narrow_neon(vector v)
{
	return vmaxvq_u16(vreinterpretq_u16_u8(v));
}

static inline void block_amax_wide_neon(const uint8_t *x, uint32_t *amax)
{
	for (int b = 0; b < 16; b++, x += 64) {
		const vector low = max_wide_neon(magnitudes_wide_neon(load(x)),
						 magnitudes_wide_neon(load(x + 16)));
		const vector high = max_wide_neon(magnitudes_wide_neon(load(x + 32)),
						  magnitudes_wide_neon(load(x + 48)));

		amax[b] = largest_wide_neon(max_wide_neon(low, high));
	}
}

static inline void block_amax_narrow_neon(const uint8_t *x, uint32_t *amax)
{
	for (int b = 0; b < 16; b++, x += 32)
		amax[b] = largest_narrow_neon(
		    max_narrow_neon(magnitudes_narrow_neon(load(x)),
				    magnitudes_narrow_neon(load(x + 16))));
}

static inline void widen_neon(uint32_t *amax, enum nib_dtype dtype)
{
	for (int i = 0; i < 16; i += 4) {
		const uint32x4_t v = vld1q_u32(amax + i);
		const float16x4_t half = vreinterpret_f16_u16(vmovn_u32(v));

		vst1q_u32(amax + i, dtype == NIB_DTYPE_BF16
					? vshlq_n_u32(v, 16)
					: vreinterpretq_u32_f32(vcvt_f32_f16(half)));
	}
}

/* ---- scales ------------------------------------------------------------- */

/* fp32 of [2^-9, 448] to e4m3, to nearest even: nib_e4m3_encode(). */
static inline uint32x4_t e4m3(float32x4_t x)
{
	const uint32x4_t bits = vreinterpretq_u32_f32(x);
	const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 20), vdupq_n_u32(1));
	/* Round away 20 fraction bits, rebase the exponent 127 to 7. */
	const uint32x4_t normal = vshrq_n_u32(
	    vaddq_u32(vaddq_u32(bits, odd), vdupq_n_u32(0x7FFFFu - ((127u - 7) << 23))),
	    20);
	/* The last bit of 2^14 .. 2^15 weighs 2^-9: the addition rounds. */
	const uint32x4_t subnormal = vandq_u32(
	    vreinterpretq_u32_f32(vaddq_f32(x, vdupq_n_f32(0x1p14f))), vdupq_n_u32(15));

	return vbslq_u32(vcltq_f32(x, vdupq_n_f32(0x1p-6f)), subnormal, normal);
}

static inline bool block_scales_neon(const struct cpu_quantizer *z,
				     const uint32_t *amax, float divisor,
				     uint8_t *scales)
{
	uint32x4_t most = vdupq_n_u32(0);
	uint16x4_t words[4];

	for (int i = 0; i < 4; i++) {
		const uint32x4_t bits = vld1q_u32(amax + 4 * i);
		const float32x4_t ratio =
		    vdivq_f32(vreinterpretq_f32_u32(bits), vdupq_n_f32(divisor));
		const float32x4_t clamped = vminq_f32(
		    vmaxq_f32(ratio, vdupq_n_f32(0x1p-9f)), vdupq_n_f32(448.0f));

		words[i] =
		    vmovn_u32(vbslq_u32(vceqq_u32(bits, vdupq_n_u32(0)),
					vdupq_n_u32(z->zero_byte), e4m3(clamped)));
		most = vmaxq_u32(most, bits);
	}
	vst1q_u8(scales, vcombine_u8(vmovn_u16(vcombine_u16(words[0], words[1])),
				     vmovn_u16(vcombine_u16(words[2], words[3]))));
	return vmaxvq_u32(most) <= 0x7F7FFFFF;
}

/* ---- codes -------------------------------------------------------------- */

/* Codes 0 - 15 of four fp32: from[c] is limit c in every lane. */
static inline uint16x4_t codes_wide(const int32x4_t from[7], const uint8_t *x)
{
	const uint32x4_t bits = vreinterpretq_u32_u8(load(x));
	const int32x4_t size =
	    vreinterpretq_s32_u32(vandq_u32(bits, vdupq_n_u32(0x7FFFFFFF)));
	uint32x4_t code = vandq_u32(vshrq_n_u32(bits, 28), vdupq_n_u32(8));

	for (int c = 0; c < 7; c++)
		code = vsubq_u32(code, vcgtq_s32(size, from[c]));
	return vmovn_u32(code);
}

static inline uint8x8_t codes_narrow(const int16x8_t from[7], const uint8_t *x)
{
	const uint16x8_t bits = vreinterpretq_u16_u8(load(x));
	const int16x8_t size =
	    vreinterpretq_s16_u16(vandq_u16(bits, vdupq_n_u16(0x7FFF)));
	uint16x8_t code = vandq_u16(vshrq_n_u16(bits, 12), vdupq_n_u16(8));

	for (int c = 0; c < 7; c++)
		code = vsubq_u16(code, vcgtq_s16(size, from[c]));
	return vmovn_u16(code);
}

/* Codes 0 - 7 and 8 - 15 to 8 bytes of even | odd << 4. */
static inline void store_codes(uint8_t *to, uint8x8_t low, uint8x8_t high)
{
	const uint8x8_t even = vuzp1_u8(low, high), odd = vuzp2_u8(low, high);

	vst1_u8(to, vorr_u8(even, vshl_n_u8(odd, 4)));
}

static inline void block_codes_wide_neon(const struct cpu_quantizer *z,
					 const uint8_t *x, const uint8_t *scales,
					 uint8_t *codes)
{
	for (int b = 0; b < 16; b++, x += 64) {
		const int32_t *limit = z->limit.wide[scales[b]];
		int32x4_t from[7];
		uint8x8_t half[2];

		for (int c = 0; c < 7; c++)
			from[c] = vdupq_n_s32(limit[c]);
		for (int h = 0; h < 2; h++)
			half[h] =
			    vmovn_u16(vcombine_u16(codes_wide(from, x + 32 * h),
						   codes_wide(from, x + 32 * h + 16)));
		store_codes(codes + 8 * b, half[0], half[1]);
	}
}

static inline void block_codes_narrow_neon(const struct cpu_quantizer *z,
					   const uint8_t *x, const uint8_t *scales,
					   uint8_t *codes)
{
	for (int b = 0; b < 16; b++, x += 32) {
		const int16_t *limit = z->limit.narrow[scales[b]];
		int16x8_t from[7];

		for (int c = 0; c < 7; c++)
			from[c] = vdupq_n_s16(limit[c]);
		store_codes(codes + 8 * b, codes_narrow(from, x),
			    codes_narrow(from, x + 16));
	}
}

#define WIDE 1
#include "backend/cpu/quantize.inc.h"
#define WIDE 0
#include "backend/cpu/quantize.inc.h"

/* ---- errors of scales --------------------------------------------------- */

/* The weighted squares of four errors under scale byte s. */
static inline float32x4_t squares(const struct cpu_quantizer *z, const uint8_t *x,
				  const float *weights, float unit, uint8_t s)
{
	const float32x4_t size = vreinterpretq_f32_u8(magnitudes_wide_neon(load(x)));
	float32x4_t value = vdupq_n_f32(0), e;

	for (int c = 0; c < 7; c++)
		value = vbslq_f32(vcgtq_s32(vreinterpretq_s32_f32(size),
					    vdupq_n_s32(z->limit.wide[s][c])),
				  vdupq_n_f32(z->value[s][c + 1]), value);
	e = vmulq_n_f32(vsubq_f32(size, value), unit);
	e = vmulq_f32(e, e);
	return weights ? vmulq_f32(e, vld1q_f32(weights)) : e;
}

static inline void block_errors_neon(const struct cpu_quantizer *z, const uint8_t *x,
				     const float *weights, const float unit[16],
				     const uint8_t scales[16], float errors[16])
{
	for (int b = 0; b < 16; b++, x += 64) {
		float32x4_t v[4];
		float32x2_t pair;

		for (int i = 0; i < 4; i++)
			v[i] = squares(z, x + 16 * i,
				       weights ? weights + 16 * b + 4 * i : NULL,
				       unit[b], scales[b]);
		v[0] = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
		pair = vadd_f32(vget_low_f32(v[0]), vget_high_f32(v[0]));
		errors[b] = vpadds_f32(pair);
	}
}

#include "backend/cpu/quantize_search.inc.h"

/* ---- dequantise --------------------------------------------------------- */

/* The 16 codes of 8 bytes, a byte each. */
static inline uint8x16_t split_codes(const uint8_t *codes)
{
	const uint8x8_t eight = vld1_u8(codes);
	const uint8x8_t even = vand_u8(eight, vdup_n_u8(15));
	const uint8x8_t odd = vshr_n_u8(eight, 4);

	return vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd));
}

static void dequantize_fp32(const struct cpu_dequantizer *table, const uint8_t *codes,
			    const uint8_t *scales, int64_t blocks, void *y)
{
	for (int64_t b = 0; b < blocks; b++) {
		const uint8x16_t index = split_codes(codes + 8 * b);
		/* Byte i of each of the 16 values. */
		uint8x16x4_t bytes =
		    vld4q_u8((const uint8_t *)table->value.wide[scales[b]]);

		for (int i = 0; i < 4; i++)
			bytes.val[i] = vqtbl1q_u8(bytes.val[i], index);
		vst4q_u8((uint8_t *)y + 64 * b, bytes);
	}
}

static void dequantize_16bit(const struct cpu_dequantizer *table, const uint8_t *codes,
			     const uint8_t *scales, int64_t blocks, void *y)
{
	for (int64_t b = 0; b < blocks; b++) {
		const uint8x16_t index = split_codes(codes + 8 * b);
		const uint8_t *plane = table->value.narrow.plane[scales[b]];
		uint8x16x2_t bytes;

		bytes.val[0] = vqtbl1q_u8(vld1q_u8(plane), index);
		bytes.val[1] = vqtbl1q_u8(vld1q_u8(plane + 16), index);
		vst2q_u8((uint8_t *)y + 32 * b, bytes);
	}
}

void cpu_quantize_ops_neon(struct cpu_quantize_ops *ops)
{
	ops->amax[NIB_DTYPE_FP32] = amax_wide_neon;
	ops->amax[NIB_DTYPE_FP16] = amax_narrow_neon;
	ops->amax[NIB_DTYPE_BF16] = amax_narrow_neon;
	ops->quantize[NIB_DTYPE_FP32] = quantize_wide_neon;
	ops->quantize[NIB_DTYPE_FP16] = quantize_narrow_neon;
	ops->quantize[NIB_DTYPE_BF16] = quantize_narrow_neon;
	ops->quantize_search = quantize_search_neon;
	ops->dequantize[NIB_DTYPE_FP32] = dequantize_fp32;
	ops->dequantize[NIB_DTYPE_FP16] = dequantize_16bit;
	ops->dequantize[NIB_DTYPE_BF16] = dequantize_16bit;
}
