/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense_avx512bw.c - W4A16 and W4A32 with AVX-512 F and BW: weights become fp32
 * by vpermps, whose index uses the low four bits of a lane.
 */
#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector512.inc.h"

#define CPU_GEMM_OPS		  cpu_dense_ops_avx512bw
#define DENSE_A			  1
#define ROW_STEP		  8
#define DIRECT_STEP(rows)	  2
#define WORDS			  16
#define FOLDED			  0
#define block_scales(bytes)	  load_scales_up(bytes, 7)
#define PACK_BLOCK(x, dtype, out) widen_block(x, dtype, (out)->word)
#define WIDEN_FP16(from, to)	  widen_fp16(from, to)

typedef struct cpu_fp32_record record;
typedef __m512 vword;
typedef __m512i vcodes;

// clang-format off
#define load_word(p)        _mm512_loadu_ps(p)
#define store_word(p, v)    _mm512_storeu_ps(p, v)
#define load_codes(p)       _mm512_loadu_si512(p)
#define dot_step(dot, w, a) _mm512_fmadd_ps(w, _mm512_set1_ps(a), dot)
#define fold(codes, i, scale) decode(codes, i)
// clang-format on

/* The values of step i / 128, for which block_scales() makes up. */
static inline __attribute__((always_inline)) __m512 decode(__m512i codes, int i)
{
	const __m512 table = _mm512_setr_ps(
	    0.0f, 0x1p-8f, 0x1p-7f, 0x3p-8f, 0x1p-6f, 0x3p-7f, 0x1p-5f, 0x3p-6f, -0.0f,
	    -0x1p-8f, -0x1p-7f, -0x3p-8f, -0x1p-6f, -0x3p-7f, -0x1p-5f, -0x3p-6f);

	return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4 * (unsigned int)i),
				     table);
}

static inline void widen_fp16(const uint8_t *from, float *to)
{
	_mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from)));
}

#include "backend/cpu/multiply.inc.h"
