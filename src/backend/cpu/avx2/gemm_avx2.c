/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_avx2.c - AVX2, FMA and F16C.
 *
 * Without vpdpbusd a dot product step is vpmaddubsw (pairs of products, 16 bits) and a
 * 16-bit addition; one vpmaddwd widens the sum of a block and multiplies it by the
 * fraction of A's scale.  A's codes are at most 127, so that a pair is at most
 * 2 * 24 * 127 and a 16-bit lane, which adds four pairs, at most 24384: nothing
 * saturates.
 *
 *   sum of 16 bits --vpmaddwd--> --vpaddd--> bits of a float --vsubps--> block * scale
 *                      ^ factor     ^ bias                      ^ scale
 *
 * The record's `scale` becomes a float whose unit in the last place is a power of two,
 * that of A's scale.  An integer is added to the bits of this float, and the float is
 * subtracted again: the integer is now a float, times that power.  So neither a
 * conversion nor a multiplication by A's scale is needed.  A row of 16 columns and 16 k
 * takes 22 instructions (8 vpmaddubsw, 6 vpaddw, 2 of each other kind) against 32
 * multiply-adds for fp32.
 */
#include <string.h>

#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector256.inc.h"

#define CPU_GEMM_OPS	  cpu_gemm_ops_avx2
#define DENSE_A		  0
#define TILE_ROWS	  4
#define ROW_STEP	  4
#define DIRECT_STEP(rows) 1
#define SCALE_TABLE	  0
#define FINISH_RECORD	  finish_record

/* A's scales are multiplied by 2^-9 and B's by 2^9, so that the float stays finite. */
#define SCALE_SHIFT	      9
#define load_scales(bytes)    mul_float(load_e4m3(bytes), set_float(512.0f))
#define dot_first(a, b)	      product(b, a, 0)
#define row_scale(a, b_scale) (b_scale)

/*
 * A scale of f / 8 * 2^e, f = 8 to 15, becomes the factor 8 f and the unit
 * 2^(e - 6 - SCALE_SHIFT).  The sum of a block is at most 12 * 127 * 16, so that its
 * product with 8 f is below 2^22: added to 1.5 * 2^23 units it keeps the exponent.  The
 * last 16 bits of the float are the factor as well, which the bias makes up for.
 */
static inline void finish_record(struct cpu_record *record)
{
	uint32_t bits, factor;

	memcpy(&bits, &record->scale, sizeof(bits));
	factor = 8 * (8 + (bits >> 20 & 7));
	bits = ((bits >> 23) + 23 - 6 - SCALE_SHIFT) << 23 | 0x400000 | factor;
	record->bias = (int32_t)(bits + (uint32_t)record->bias * factor);
	memcpy(&record->scale, &bits, sizeof(bits));
}

static inline __m256i product(__m256i b, const struct cpu_record *a, int g)
{
	return _mm256_maddubs_epi16(b, set_int(cpu_record_word(a, g)));
}

static inline __m256i dot_add(__m256i dot, __m256i b, const struct cpu_record *a, int g)
{
	dot = _mm256_add_epi16(dot, product(b, a, g));
	/* Keeps the compiler from regrouping the chain, which would need more than 16
	 * registers. */
	__asm__("" : "+x"(dot));
	return dot;
}

static inline __m256 dot_float(__m256i dot, const struct cpu_record *a)
{
	int16_t factor;

	memcpy(&factor, &a->scale, sizeof(factor));
	dot = _mm256_madd_epi16(dot, _mm256_set1_epi16(factor));
	return _mm256_sub_ps(to_float(add_int(dot, set_int(a->bias))),
			     set_float(a->scale));
}

#include "backend/cpu/multiply.inc.h"
