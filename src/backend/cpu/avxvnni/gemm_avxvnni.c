/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_avxvnni.c - AVX2 with vpdpbusd on vectors of 32 bytes (AVX-VNNI, in its VEX
 * encoding), for processors without AVX-512.
 *
 * A dot product begins at the bits of 1.5 * 2^23 plus the record's bias, so that its
 * end is a float (DOT_OFFSET in gemm.inc.h).  Per 16 columns, 16 k and a row: 8
 * vpdpbusd and 4 multiply-adds on two ports.
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

#define DOT_OFFSET 12582912 /* 1.5 * 2^23 */
/* The bits of DOT_OFFSET; a block's sum is below 2^15 and keeps the exponent. */
#define FINISH_RECORD(record) ((record)->bias += 0x4b400000)

/* A test build for processors with AVX-512 only: the same instruction in EVEX. */
#ifdef NIB_AVXVNNI_AS_EVEX
#define DOT_BYTES _mm256_dpbusd_epi32
#else
#define DOT_BYTES _mm256_dpbusd_avx_epi32
#endif
#define dot_add(dot, b, a, g) DOT_BYTES(dot, b, set_int(cpu_record_word(a, g)))
#define dot_first(a, b)	      dot_add(set_int((a)->bias), b, a, 0)
#define dot_float(dot, a)     to_float(dot)
#define row_scale(a, b_scale) (b_scale)

#include "backend/cpu/multiply.inc.h"
