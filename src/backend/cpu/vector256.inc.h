/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector256.inc.h - the parameters of multiply.inc.h that the sets with vectors of 8
 * columns share.
 */
#include <immintrin.h>

#define V_COLS	    8
#define TILE_VECS   2
#define DIRECT_ROWS 4
#define HAVE_F16C

typedef __m256i vint;
typedef __m256i vdot;
typedef __m256 vfloat;

// clang-format off
#define load_int(p)        _mm256_loadu_si256((const void *)(p))
#define store_int(p, v)    _mm256_storeu_si256((void *)(p), v)
#define load_float(p)      _mm256_loadu_ps(p)
#define store_float(p, v)  _mm256_storeu_ps(p, v)
#define set_float(x)       _mm256_set1_ps(x)
#define set_int(x)         _mm256_set1_epi32(x)
#define add_int(x, y)      _mm256_add_epi32(x, y)
#define sub_int(x, y)      _mm256_sub_epi32(x, y)
#define add_float(x, y)    _mm256_add_ps(x, y)
#define mul_float(x, y)    _mm256_mul_ps(x, y)
#define max_float(x, y)    _mm256_max_ps(x, y)
#define fma_float(x, y, z) _mm256_fmadd_ps(x, y, z)
#define to_bits(v)         _mm256_castps_si256(v)
#define to_float(v)        _mm256_castsi256_ps(v)
// clang-format on

/* The bytes of a 16-entry table that the low four bits of each byte name. */
static inline __m256i look_up(__m128i table, __m256i index)
{
	return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table),
				   _mm256_and_si256(index, _mm256_set1_epi8(15)));
}

/* 2 * e2m1 + CODE_OFFSET for each code. */
static inline __m256i decode_low(__m256i packed)
{
	return look_up(
	    _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0),
	    packed);
}

static inline __m256i decode_high(__m256i packed)
{
	return decode_low(_mm256_srli_epi16(packed, 4));
}

/* 1/256 of 8 e4m3: shifted left by 7 they are fp16 of that value, subnormals too. */
static inline __m256 load_e4m3(const uint8_t *bytes)
{
	const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)bytes));

	return _mm256_cvtph_ps(_mm_slli_epi16(wide, 7));
}
