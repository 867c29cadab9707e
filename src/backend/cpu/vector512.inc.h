/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector512.inc.h - the parameters of multiply.inc.h that all AVX-512 sets share:
 * vectors of 16 columns, tiles of 8 x 32 unless the including file defines TILE_ROWS.
 */
#include <immintrin.h>

#ifndef TILE_ROWS
#define TILE_ROWS 8
#endif
#define V_COLS	    16
#define TILE_VECS   2
#define DIRECT_ROWS 24
#define HAVE_F16C

typedef __m512i vint;
typedef __m512i vdot;
typedef __m512 vfloat;

// clang-format off
#define load_int(p)        _mm512_loadu_si512(p)
#define store_int(p, v)    _mm512_storeu_si512(p, v)
#define load_float(p)      _mm512_loadu_ps(p)
#define store_float(p, v)  _mm512_storeu_ps(p, v)
#define set_float(x)       _mm512_set1_ps(x)
#define set_int(x)         _mm512_set1_epi32(x)
#define add_int(x, y)      _mm512_add_epi32(x, y)
#define sub_int(x, y)      _mm512_sub_epi32(x, y)
#define add_float(x, y)    _mm512_add_ps(x, y)
#define mul_float(x, y)    _mm512_mul_ps(x, y)
#define max_float(x, y)    _mm512_max_ps(x, y)
#define fma_float(x, y, z) _mm512_fmadd_ps(x, y, z)
#define to_bits(v)         _mm512_castps_si512(v)
#define to_float(v)        _mm512_castsi512_ps(v)
#define dot_first(a, b)        dot_add(set_int((a)->bias), b, a, 0)
#define row_scale(a, b_scale)  mul_float(set_float((a)->scale), b_scale)
// clang-format on

/* e4m3 shifted left by 7 is an fp16 of 1/256 of the value, subnormals too. */
static inline __m512 load_scales(const uint8_t *bytes)
{
	const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)bytes));

	return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 7));
}

/*
 * Those scales * 2^(8 + n): the exponent is added to, because a multiplication
 * would occupy a pipe of the dot products.  A scale of 0 becomes 2^(n - 119).
 */
static inline __m512 load_scales_up(const uint8_t *bytes, int n)
{
	return to_float(add_int(to_bits(load_scales(bytes)), set_int((8 + n) << 23)));
}
