/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_records_vector.inc.h - pack_record() of pack.inc.h and pack_int8_block() of
 * pack_int8.inc.h with AVX2's instructions, which every vector set has.
 *
 * Both divisions of the int8 record lead to the same codes as the exact quotient.  A
 * quotient x / d is compared with a boundary b: a scale, or a number halfway between
 * two codes.  b * d has at most 12 bits, so fp32 holds it, and an x that differs from
 * it does so by a unit in the last place of x.  x / d then differs from b by more than
 * half a unit in the last place of b, and is not rounded to b.
 */
#include <immintrin.h>

#include "backend/cpu/gemm_ops.h"
#include "format/int8.h"

/* One k-block's 8 bytes of codes to a record's 16 integers. */
static inline __m128i record_codes(const uint8_t *codes)
{
	const __m128i twice =
	    _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
	const __m128i nibble = _mm_set1_epi8(15);
	const __m128i x = _mm_loadl_epi64((const void *)codes);
	const __m128i low = _mm_and_si128(x, nibble);
	const __m128i high = _mm_and_si128(_mm_srli_epi16(x, 4), nibble);

	return _mm_shuffle_epi8(twice, _mm_unpacklo_epi32(low, high));
}

/* Sum of 16 signed bytes. */
static inline int32_t sum_bytes(__m128i x)
{
	/* psadbw adds unsigned bytes, eight at a time: shift them by 128. */
	const __m128i shifted = _mm_xor_si128(x, _mm_set1_epi8(-128));
	const __m128i sums = _mm_sad_epu8(shifted, _mm_setzero_si128());

	return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

/* As pack_record() of pack.inc.h. */
static inline void pack_record_vector(const uint8_t *codes, uint8_t scale,
				      struct cpu_record *out)
{
	const __m128i twice = record_codes(codes);
	/* e4m3 << 7 is an fp16 of 1/256 of the value; / 4 is wanted. */
	const __m128 half = _mm_cvtph_ps(_mm_cvtsi32_si128(scale << 7));

	_mm_storeu_si128((void *)out->codes, twice);
	out->bias = -CODE_OFFSET * sum_bytes(twice);
	out->scale = _mm_cvtss_f32(half) * 64.0f;
	FINISH_RECORD(out);
}

#define PACK_RECORD pack_record_vector

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
	out->bias = -CODE_OFFSET * sum_bytes(codes);
	out->scale = _mm_cvtss_f32(factor);
	FINISH_RECORD(out);
	return _mm_cvtsi128_si32(most) >= 0x7f800000;
}

#define PACK_INT8_BLOCK pack_int8_block_vector
