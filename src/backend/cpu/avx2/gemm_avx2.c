/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_avx2.c - AVX2, FMA and F16C.
 *
 * Without vpdpbusd a dot product step is vpmaddubsw (pairs of products, 16 bits) and a
 * 16-bit addition; one vpmaddwd widens the sum of a block.  A's codes are at most 127,
 * so a pair is at most 2 * 24 * 127.  A 16-bit lane adds four pairs and the bias.  This
 * is the sum of 8 products of at most 12 * 127 and of 12 times 8 codes, at most 24384,
 * so that it does not saturate.  Per 16 columns, 16 k and a row: 24 instructions on
 * four pipes against 32 multiply-adds on two for fp32.
 */
#include <immintrin.h>

#include "backend/cpu/gemm_ops.h"

#define CPU_GEMM_OPS cpu_gemm_ops_avx2
#define DENSE_A	     0
#define V_COLS	     8
#define TILE_ROWS    4
#define TILE_VECS    2
#define ROW_STEP     4
#define HAVE_F16C
#define DIRECT_ROWS	  4
#define DIRECT_STEP(rows) 1
/* The bias goes into one of the two 16-bit sums of a lane. */
#define RECORD_BIAS(x) ((x)&0xffff)
#define SCALE_TABLE    0

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
#define dot_bias(bias)   _mm256_set1_epi32(bias)
#define dot_float(dot)                                                         \
	_mm256_cvtepi32_ps(_mm256_madd_epi16(dot, _mm256_set1_epi16(1)))
// clang-format on

static inline __m256i dot_add(__m256i dot, __m256i b, int32_t a4)
{
	dot = _mm256_add_epi16(dot, _mm256_maddubs_epi16(b, _mm256_set1_epi32(a4)));
	/* Keeps the compiler from regrouping the chain, which would need more than 16
	 * registers. */
	__asm__("" : "+x"(dot));
	return dot;
}

/* 2 * e2m1 + 12 for each code below 16. */
static inline __m256i decode_index(__m256i index)
{
	const __m256i table = _mm256_broadcastsi128_si256(
	    _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

	return _mm256_shuffle_epi8(table,
				   _mm256_and_si256(index, _mm256_set1_epi8(15)));
}

static inline __m256i decode_low(__m256i packed)
{
	return decode_index(packed);
}

static inline __m256i decode_high(__m256i packed)
{
	return decode_index(_mm256_srli_epi16(packed, 4));
}

/* e4m3 shifted left by 7 is an fp16 of 1/256 of the value, subnormals too. */
static inline __m256 load_scales(const uint8_t *bytes)
{
	const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)bytes));

	return _mm256_cvtph_ps(_mm_slli_epi16(wide, 7));
}

#include "backend/cpu/multiply.inc.h"
