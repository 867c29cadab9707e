/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_int8_vector.inc.h - pack_int8.inc.h with AVX2's instructions, which every
 * vector set has.  The including file has included pack_vector.inc.h.
 *
 * Both divisions give what the exact quotient would.  A quotient x / d is
 * compared with a boundary b: a scale, or a number halfway between two codes.
 * b * d has at most 12 bits, so fp32 holds it, and an x that differs from it
 * does so by a unit in the last place of x.  x / d then differs from b by more
 * than half a unit in the last place of b, and is not rounded to b.
 */
#include <immintrin.h>

#include "backend/cpu/gemm_ops.h"
#include "format/int8.h"

/* The 8 values of a k-block from its byte `at`, as floats. */
static inline __attribute__((always_inline)) __m256 load_eight(const uint8_t *x,
							       enum nib_dtype dtype)
{
	__m128i half;

	if (dtype == NIB_DTYPE_FP32)
		return _mm256_loadu_ps((const void *)x);
	half = _mm_loadu_si128((const void *)x);
	if (dtype == NIB_DTYPE_FP16)
		return _mm256_cvtph_ps(half);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* The bits of the largest |x| in every lane; NaN is larger than inf. */
static inline __m128i most_of(__m256 x, __m256 y)
{
	const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
	const __m256i eight =
	    _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(x), no_sign),
			     _mm256_and_si256(_mm256_castps_si256(y), no_sign));
	__m128i most = _mm_max_epi32(_mm256_castsi256_si128(eight),
				     _mm256_extracti128_si256(eight, 1));

	most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
	return _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
}

/* most / 127 rounded up to 3 fraction bits, at least 2^-100, in every lane. */
static inline __m128i int8_scale(__m128i most)
{
	const __m128i least = _mm_castps_si128(_mm_set1_ps(127 * NIB_INT8_LEAST_SCALE));
	const __m128 quotient = _mm_div_ps(_mm_castsi128_ps(_mm_max_epi32(most, least)),
					   _mm_set1_ps(127.0f));
	const __m128i below = _mm_set1_epi32((1 << 20) - 1);

	return _mm_andnot_si128(below,
				_mm_add_epi32(_mm_castps_si128(quotient), below));
}

/* x / scale and y / scale, to nearest even, in a record's order. */
static inline __m128i int8_codes(__m256 x, __m256 y, __m256 scale)
{
	/* Packed, the bytes are k = 0 to 3, 8 to 11, 4 to 7, 12 to 15. */
	const __m128i order =
	    _mm_setr_epi8(0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15);
	const __m256i words =
	    _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_div_ps(x, scale)),
			       _mm256_cvtps_epi32(_mm256_div_ps(y, scale)));
	const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words),
					      _mm256_extracti128_si256(words, 1));

	return _mm_shuffle_epi8(bytes, order);
}

/* As pack_int8_block() of pack_int8.inc.h. */
static inline __attribute__((always_inline)) bool
pack_int8_block_vector(const uint8_t *x, enum nib_dtype dtype, struct cpu_record *out)
{
	const __m256 low = load_eight(x, dtype);
	const __m256 high = load_eight(x + (dtype == NIB_DTYPE_FP32 ? 32 : 16), dtype);
	const __m128i most = most_of(low, high);
	const __m128i scale = int8_scale(most);
	const __m128i codes =
	    int8_codes(low, high, _mm256_broadcastss_ps(_mm_castsi128_ps(scale)));
	const __m128 factor =
	    _mm_mul_ps(_mm_castsi128_ps(scale), _mm_set1_ps(INT8_RECORD_SCALE));

	_mm_storeu_si128((void *)out->codes, codes);
	out->bias = RECORD_BIAS(-CODE_OFFSET * sum_bytes(codes));
	out->scale = _mm_cvtss_f32(factor);
	return _mm_cvtsi128_si32(most) >= 0x7f800000;
}

#define PACK_INT8_BLOCK pack_int8_block_vector
#include "backend/cpu/pack_int8.inc.h"
