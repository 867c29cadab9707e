/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vnni512.inc.h - what the two ways to multiply with AVX-512 VNNI (vpdpbusd) and VBMI
 * (vpermb) share.  The including file defines CPU_GEMM_OPS and SCALE_TABLE.
 */
#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector512.inc.h"

#define DENSE_A		  0
#define ROW_STEP	  2
#define DIRECT_STEP(rows) ((rows) <= 3 ? 2 : 1)
#define dot_add(dot, b, a, g)                                                          \
	_mm512_dpbusd_epi32(dot, b, set_int(cpu_record_word(a, g)))
#if SCALE_TABLE
#define FINISH_RECORD(record) (void)(record)
#define dot_float(dot, a)     _mm512_cvtepi32_ps(dot)
#else
#define DOT_OFFSET	      12582912 /* 1.5 * 2^23 */
/* The bits of DOT_OFFSET; a block's sum is below 2^15 and keeps the exponent. */
#define FINISH_RECORD(record) ((record)->bias += 0x4b400000)
#define dot_float(dot, a)     to_float(dot)
#endif

/* 2 * e2m1 + 12 for each code, four times: vpermb's index uses six bits, so the
 * upper two may hold anything. */
static inline __m512i decode_low(__m512i packed)
{
	const __m512i table = _mm512_broadcast_i32x4(
	    _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

	return _mm512_permutexvar_epi8(packed, table);
}

static inline __m512i decode_high(__m512i packed)
{
	return decode_low(_mm512_srli_epi16(packed, 4));
}

#include "backend/cpu/multiply.inc.h"
