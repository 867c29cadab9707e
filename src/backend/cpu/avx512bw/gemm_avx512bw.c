/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_avx512bw.c - AVX-512 F, BW, DQ, VL without VNNI and VBMI (Skylake-X):
 * AVX2's arithmetic on vectors of 16 columns, decoding by vpshufb.
 */
#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector512.inc.h"

#define CPU_GEMM_OPS	  cpu_gemm_ops_avx512bw
#define SCALE_TABLE	  1
#define DENSE_A		  0
#define ROW_STEP	  2
#define DIRECT_STEP(rows) ((rows) <= 3 ? 2 : 1)
/* A lane holds two 16-bit sums; the bias goes into one of them. */
#define FINISH_RECORD(record) ((record)->bias &= 0xffff)
#define dot_add(dot, b, a, g)                                                          \
	_mm512_add_epi16(dot, _mm512_maddubs_epi16(b, set_int(cpu_record_word(a, g))))
#define dot_float(dot, a)                                                              \
	_mm512_cvtepi32_ps(_mm512_madd_epi16(dot, _mm512_set1_epi16(1)))

/* 2 * e2m1 + 12 for each code below 16. */
static inline __m512i decode_index(__m512i index)
{
	const __m512i table = _mm512_broadcast_i32x4(
	    _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

	return _mm512_shuffle_epi8(table,
				   _mm512_and_si512(index, _mm512_set1_epi8(15)));
}

static inline __m512i decode_low(__m512i packed)
{
	return decode_index(packed);
}

static inline __m512i decode_high(__m512i packed)
{
	return decode_index(_mm512_srli_epi16(packed, 4));
}

#include "backend/cpu/multiply.inc.h"
