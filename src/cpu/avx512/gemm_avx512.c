/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_avx512.c - AVX-512 with VNNI (vpdpbusd) and VBMI (vpermb).
 *
 * Per 16 columns, 16 k and a row: four vpdpbusd and one fused multiply-add on
 * the multiplying pipes; conversion and the scale's addition go elsewhere, so
 * the bound is 4/5 of the vpdpbusd peak.
 */
#include <immintrin.h>

#include "cpu/gemm_ops.h"
#include "format/e4m3.h"
#include "format/scale_layout.h"

#define CPU_GEMM_OPS cpu_gemm_ops_avx512
#define V_COLS	     16
#define TILE_ROWS    8
#define TILE_VECS    2
#define ROW_STEP     2
#define HAVE_F16C
#define DIRECT_ROWS	8
#define RECORD_START(x) (x)
#define SCALE_TABLE	1

typedef __m512i vint;
typedef __m512i vdot;
typedef __m512 vfloat;

#define load_int(p)	    _mm512_loadu_si512(p)
#define store_int(p, v)	    _mm512_storeu_si512(p, v)
#define load_float(p)	    _mm512_loadu_ps(p)
#define store_float(p, v)   _mm512_storeu_ps(p, v)
#define set_float(x)	    _mm512_set1_ps(x)
#define set_int(x)	    _mm512_set1_epi32(x)
#define add_int(x, y)	    _mm512_add_epi32(x, y)
#define sub_int(x, y)	    _mm512_sub_epi32(x, y)
#define add_float(x, y)	    _mm512_add_ps(x, y)
#define mul_float(x, y)	    _mm512_mul_ps(x, y)
#define max_float(x, y)	    _mm512_max_ps(x, y)
#define fma_float(x, y, z)  _mm512_fmadd_ps(x, y, z)
#define to_bits(v)	    _mm512_castps_si512(v)
#define to_float(v)	    _mm512_castsi512_ps(v)
#define dot_start(start)    _mm512_set1_epi32(start)
#define dot_add(dot, b, a4) _mm512_dpbusd_epi32(dot, b, _mm512_set1_epi32(a4))
#define dot_float(dot)	    _mm512_cvtepi32_ps(dot)

/* 2 * e2m1 + 12 for each code, four times: vpermb's index uses six bits, so the
 * upper two may hold anything. */
static inline __m512i decode_low(__m512i packed)
{
	const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(
	    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

	return _mm512_permutexvar_epi8(packed, table);
}

static inline __m512i decode_high(__m512i packed)
{
	return decode_low(_mm512_srli_epi16(packed, 4));
}

/* e4m3 shifted left by 7 is an fp16 of 1/256 of the value, subnormals too. */
static inline __m512 load_scales(const uint8_t *bytes)
{
	const __m256i wide =
	    _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)bytes));

	return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 7));
}

#include "cpu/pack_vector.inc.h"

#include "cpu/gemm.inc.h"
