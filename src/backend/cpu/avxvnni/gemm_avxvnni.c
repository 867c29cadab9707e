/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_avxvnni.c - AVX2 with vpdpbusd on vectors of 32 bytes (AVX-VNNI, in its VEX
 * encoding), for processors without AVX-512.
 *
 * A dot product begins at the bits of 1.5 * 2^23 plus the record's bias: its end is
 * a float, from which 1.5 * 2^23 is subtracted in place of a conversion, which Intel's
 * processors execute on the ports of the multiplications.  Per 16 columns, 16 k and a
 * row: 8 vpdpbusd, 2 multiplications and 2 multiply-adds on two ports, and 2
 * subtractions on others.
 */
#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector256.inc.h"

#define CPU_GEMM_OPS	  cpu_gemm_ops_avxvnni
#define DENSE_A		  0
#define TILE_ROWS	  4
#define ROW_STEP	  4
#define DIRECT_STEP(rows) 1
#define SCALE_TABLE	  0
#define load_scales(p)	  load_e4m3(p)

#define INTEGERS 12582912.0f /* 1.5 * 2^23 */
/* The bits of INTEGERS; a block's sum is below 2^15 and keeps the exponent. */
#define FINISH_RECORD(record) ((record)->bias += 0x4b400000)

/* A test build for processors with AVX-512 only: the same instruction in EVEX. */
#ifdef NIB_AVXVNNI_AS_EVEX
#define DOT_BYTES _mm256_dpbusd_epi32
#else
#define DOT_BYTES _mm256_dpbusd_avx_epi32
#endif
#define dot_add(dot, b, a, g) DOT_BYTES(dot, b, set_int(cpu_record_word(a, g)))
#define dot_first(a, b)	      dot_add(set_int((a)->bias), b, a, 0)
#define dot_float(dot, a)     _mm256_sub_ps(to_float(dot), set_float(INTEGERS))
#define row_scale(a, b_scale) mul_float(set_float((a)->scale), b_scale)

#include "backend/cpu/multiply.inc.h"
