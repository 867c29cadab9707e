/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float_out.inc.h - sigmoid and SiLU in fp32, and fp32 to the output's type.
 *
 * As epilogue.inc.h: plain C in one written order, so that the bits are the same
 * for every instruction set.  The including file may define HAVE_F16C.
 */
#include <string.h>

#include "format/half.h"

/* 1.5 * 2^23: adding it rounds a small float to an integer in its low bits. */
#define ROUND_MAGIC 12582912.0f

/*
 * e^x for x <= 0, relative error below 2^-22: x = n ln 2 + r, |r| <= ln 2 / 2,
 * e^r by its Taylor polynomial to r^7 (remainder 2^-27), times 2^n in two steps
 * so that the last rounding is the only one for subnormal results.
 */
static inline float exp_negative(float x)
{
	const float clamped = x > -104.0f ? x : -104.0f;
	const float shifted = clamped * 1.44269504f + ROUND_MAGIC;
	const float n = shifted - ROUND_MAGIC;
	/* ln 2 in two parts, the first with 9 trailing zeros (Cody, Waite). */
	const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
	const int32_t e =
	    (int32_t)(nib_fp32_bits(shifted) - nib_fp32_bits(ROUND_MAGIC));
	const int32_t half = e >> 1;
	float p = 1.98412698e-4f;

	p = p * r + 1.38888889e-3f;
	p = p * r + 8.33333333e-3f;
	p = p * r + 4.16666667e-2f;
	p = p * r + 1.66666667e-1f;
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	return p * nib_fp32_from_bits((uint32_t)(half + 127) << 23) *
	       nib_fp32_from_bits((uint32_t)(e - half + 127) << 23);
}

/* x / (1 + e^-x); -0 at -inf, no NaN but from NaN. */
static inline float silu(float x)
{
	const float e = exp_negative(x > 0.0f ? -x : x);
	const float numerator = x > 0.0f ? 1.0f : e;

	return x < -104.0f ? -0.0f : x * numerator / (1.0f + e);
}

/* fp32 -> fp16, to nearest even. */
static inline uint16_t to_fp16(float x)
{
	const uint32_t bits = nib_fp32_bits(x), magnitude = bits & 0x7fffffffu;
	const uint32_t sign = bits >> 16 & 0x8000u;
	/* Normal: rebias, add half an ulp less the tie bit. */
	const uint32_t normal =
	    (magnitude + 0xfffu + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
	/* Subnormal: adding 0.5 puts the last bit at 2^-24. */
	const uint32_t subnormal =
	    nib_fp32_bits(nib_fp32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
	uint32_t half = magnitude < 0x38800000u ? subnormal : normal;

	half = magnitude >= 0x477ff000u ? 0x7c00u : half;
	/* NaN: quiet, the leading bits of its payload kept, as vcvtps2ph. */
	half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x1ffu) : half;
	return (uint16_t)(sign | half);
}

/* fp32 -> bf16, to nearest even. */
static inline uint16_t to_bf16(float x)
{
	const uint32_t bits = nib_fp32_bits(x);
	const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
	const uint32_t nan = bits >> 16 | 0x40u;

	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* Output of two bytes at any address. */
typedef uint16_t half_at __attribute__((may_alias, aligned(1)));

static inline void store_fp16(const float *restrict x, int64_t cols,
			      half_at *restrict c)
{
#ifdef HAVE_F16C
	const int64_t whole = cols / 8 * 8;

	for (int64_t j = 0; j < whole; j += 8)
		_mm_storeu_si128(
		    (void *)(c + j),
		    _mm256_cvtps_ph(_mm256_loadu_ps(x + j), _MM_FROUND_TO_NEAREST_INT));
#else
	const int64_t whole = 0;
#endif
	for (int64_t j = whole; j < cols; j++)
		c[j] = to_fp16(x[j]);
}

#ifdef HAVE_F16C
/* As to_bf16(), of 8 floats. */
static inline __m128i to_bf16_vector(__m256 x)
{
	const __m256i bits = _mm256_castps_si256(x);
	const __m256i odd =
	    _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	const __m256i rounded =
	    _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
	const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
	const __m256i half = _mm256_srli_epi32(
	    _mm256_blendv_epi8(rounded, nan,
			       _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q))),
	    16);

	return _mm_packus_epi32(_mm256_castsi256_si128(half),
				_mm256_extracti128_si256(half, 1));
}
#endif

static inline void store_bf16(const float *restrict x, int64_t cols,
			      half_at *restrict c)
{
#ifdef HAVE_F16C
	const int64_t whole = cols / 8 * 8;

	for (int64_t j = 0; j < whole; j += 8)
		_mm_storeu_si128((void *)(c + j),
				 to_bf16_vector(_mm256_loadu_ps(x + j)));
#else
	const int64_t whole = 0;
#endif
	for (int64_t j = whole; j < cols; j++)
		c[j] = to_bf16(x[j]);
}

/*
 * Rounds `cols` floats and stores them straight into c.  A buffer between would
 * cost time: a copy from memory that was written in smaller pieces waits for
 * these stores.
 */
static inline void store_row(const float *restrict x, int64_t cols,
			     enum nib_dtype dtype, char *restrict c)
{
	half_at *half = (half_at *)c;

	if (dtype == NIB_DTYPE_FP32)
		memcpy(c, x, (size_t)cols * 4);
	else if (dtype == NIB_DTYPE_FP16)
		store_fp16(x, cols, half);
	else
		store_bf16(x, cols, half);
}
