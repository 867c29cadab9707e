/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense_avx2.c - W4A16 and W4A32 with AVX2, FMA and F16C: weights become fp32.
 */
#include <immintrin.h>

#include "backend/cpu/gemm_ops.h"

#define CPU_GEMM_OPS cpu_dense_ops_avx2
#define DENSE_A	     1
#define V_COLS	     8
#define TILE_ROWS    6
#define TILE_VECS    2
#define ROW_STEP     6
#define HAVE_F16C
#define DIRECT_ROWS 4
#define WORDS	    16
#define FOLDED	    0
/* Four rows leave no registers for a second block. */
#define DIRECT_STEP(rows)	  ((rows) <= 3 ? 2 : 1)
#define PACK_BLOCK(x, dtype, out) widen_block(x, dtype, (out)->word)
#define WIDEN_FP16(from, to)	  widen_fp16(from, to)

typedef struct cpu_fp32_record record;
typedef __m256 vfloat;
typedef __m256 vword;

// clang-format off
#define load_float(p)      _mm256_loadu_ps(p)
#define store_float(p, v)  _mm256_storeu_ps(p, v)
#define load_word(p)       _mm256_loadu_ps((const float *)(p))
#define store_word(p, v)   _mm256_storeu_ps((float *)(p), v)
#define set_float(x)       _mm256_set1_ps(x)
#define mul_float(x, y)    _mm256_mul_ps(x, y)
#define fma_float(x, y, z) _mm256_fmadd_ps(x, y, z)
#define dot_step(dot, w, a) _mm256_fmadd_ps(w, _mm256_set1_ps(a), dot)
#define fold(codes, i, scale) decode(codes, i)
/* load_scales() gives 1/256 of them, decode() 1/128 of the values. */
#define block_scales(bytes) mul_float(load_scales(bytes), set_float(32768.0f))
// clang-format on

/* Twice the values of the even k, and of the odd ones. */
typedef struct {
	__m256i even, odd;
} vcodes;

static inline __m256i twice(__m256i index)
{
	const __m256i table = _mm256_broadcastsi128_si256(
	    _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));

	return _mm256_shuffle_epi8(table,
				   _mm256_and_si256(index, _mm256_set1_epi8(15)));
}

static inline vcodes load_codes(const uint8_t *p)
{
	const __m256i c = _mm256_loadu_si256((const void *)p);

	return (vcodes){twice(c), twice(_mm256_srli_epi16(c, 4))};
}

/* Byte i / 2 of each dword moves to its top: 2^24 times as much. */
static inline __attribute__((always_inline)) __m256 decode(vcodes codes, int i)
{
	const int b = i / 2;
	const __m256i top = _mm256_broadcastsi128_si256(
	    _mm_setr_epi32((int)(0x00808080u | (uint32_t)b << 24),
			   (int)(0x00808080u | (uint32_t)(b + 4) << 24),
			   (int)(0x00808080u | (uint32_t)(b + 8) << 24),
			   (int)(0x00808080u | (uint32_t)(b + 12) << 24)));
	const __m256i x = _mm256_shuffle_epi8(i % 2 ? codes.odd : codes.even, top);

	return _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(0x1p-32f));
}

/* e4m3 shifted left by 7 is an fp16 of 1/256 of the value, subnormals too. */
static inline __m256 load_scales(const uint8_t *bytes)
{
	const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)bytes));

	return _mm256_cvtph_ps(_mm_slli_epi16(wide, 7));
}

static inline void widen_fp16(const uint8_t *from, float *to)
{
	for (int i = 0; i < 2; i++)
		_mm256_storeu_ps(to + 8 * i, _mm256_cvtph_ps(_mm_loadu_si128(
						 (const void *)(from + 16 * i))));
}

#include "backend/cpu/multiply.inc.h"
