/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense_avx2.c - W4A16 and W4A32 with AVX2, FMA and F16C: weights become fp32.
 */
#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector256.inc.h"

#define CPU_GEMM_OPS cpu_dense_ops_avx2
#define DENSE_A	     1
#define TILE_ROWS    6
#define ROW_STEP     6
#define WORDS	     16
#define FOLDED	     0
/* A multiply-add waits 4 cycles for the one before it, and two start a cycle: one and
 * two rows need two blocks of both vectors, more have no registers for them. */
#define DIRECT_STEP(rows)	  ((rows) <= 2 ? 2 : 1)
#define DIRECT_VECS		  2
#define PACK_BLOCK(x, dtype, out) widen_block(x, dtype, (out)->word)
#define WIDEN_FP16(from, to)	  widen_fp16(from, to)

typedef struct cpu_fp32_record record;
typedef __m256 vword;

// clang-format off
#define load_word(p)       load_float((const float *)(p))
#define store_word(p, v)   store_float((float *)(p), v)
#define dot_step(dot, w, a) fma_float(w, set_float(a), dot)
#define fold(codes, i, scale) decode(codes, i)
/* load_e4m3() gives 1/256 of them, decode() 1/128 of the values. */
#define block_scales(bytes) mul_float(load_e4m3(bytes), set_float(32768.0f))
// clang-format on

/*
 * bf16 in pairs, a pair in each dword: nibble[p].half[h] has k = 4h + p in the lower
 * halves of dwords and k = 4h + p + 2 in the upper ones.
 */
typedef struct {
	__m256i half[2];
} pairs;

typedef struct {
	pairs nibble[2];
} vcodes;

/* The upper and the lower bytes of 1/128 of the values as bf16. */
static inline pairs load_pairs(__m256i index)
{
	const __m256i upper =
	    look_up(_mm_setr_epi8(0, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, 0x3d, 0x3d, -128,
				  -69, -68, -68, -68, -68, -67, -67),
		    index);
	const __m256i lower = look_up(_mm_setr_epi8(0, -128, 0, 64, -128, -64, 0, 64, 0,
						    -128, 0, 64, -128, -64, 0, 64),
				      index);

	return (pairs){
	    {_mm256_unpacklo_epi8(lower, upper), _mm256_unpackhi_epi8(lower, upper)}};
}

static inline vcodes load_codes(const uint8_t *p)
{
	/* The first two bytes of the four columns of a lane, then the last two. */
	const __m256i halves = _mm256_broadcastsi128_si256(
	    _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
	const __m256i c = _mm256_shuffle_epi8(load_int(p), halves);

	return (vcodes){{load_pairs(c), load_pairs(_mm256_srli_epi16(c, 4))}};
}

/* A bf16 is the upper half of an fp32. */
static inline __attribute__((always_inline)) __m256 decode(vcodes codes, int i)
{
	const __m256i pair = codes.nibble[i % 2].half[i / 4];

	return to_float(i / 2 % 2 ? _mm256_and_si256(pair, set_int(-65536))
				  : _mm256_slli_epi32(pair, 16));
}

static inline void widen_fp16(const uint8_t *from, float *to)
{
	for (int i = 0; i < 2; i++)
		_mm256_storeu_ps(to + 8 * i, _mm256_cvtph_ps(_mm_loadu_si128(
						 (const void *)(from + 16 * i))));
}

#include "backend/cpu/multiply.inc.h"
