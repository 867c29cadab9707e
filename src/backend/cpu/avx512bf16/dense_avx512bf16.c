/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense_avx512bf16.c - W4A16 for bf16 with AVX512_BF16: vdpbf16ps on pairs of
 * k.  A value of a weight has at most six significant bits, so it is exact in
 * bf16.
 *
 * A dword of codes has k = 8z + 0 .. 7 in its nibbles, so shifted right by 4i
 * its 16-bit halves begin with those of k = 8z + i and 8z + i + 4.  vpermw's
 * index uses five bits of a lane: a table of 16 values, twice, decodes 32
 * weights by a shift and a permutation.
 *
 * vdpbf16ps adds the two products of a pair one after the other, each rounded
 * to nearest even, takes subnormal inputs as zero and flushes subnormal sums.
 */
#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector512.inc.h"

#define CPU_GEMM_OPS		  cpu_dense_ops_avx512bf16
#define DENSE_A			  1
#define ROW_STEP		  8
#define DIRECT_STEP(rows)	  2
#define WORDS			  8
#define FOLDED			  1
#define block_scales(bytes)	  load_scales_up(bytes, 0)
#define PACK_BLOCK(x, dtype, out) pack_pairs(x, out)

typedef struct cpu_bf16_record record;
typedef __m512i vword;
typedef __m512i vcodes;

// clang-format off
#define load_word(p)        _mm512_loadu_si512(p)
#define store_word(p, v)    _mm512_storeu_si512(p, v)
#define load_codes(p)       _mm512_loadu_si512(p)
#define dot_step(dot, w, a) dot_pairs(dot, w, &(a))
// clang-format on

/*
 * _mm512_dpbf16_ps(dot, w, *a in every lane).  gcc makes a broadcast of its own
 * for that, on a pipe of the permutations that decode weights.
 */
static inline __attribute__((always_inline)) __m512 dot_pairs(__m512 dot, __m512i w,
							      const int32_t *a)
{
	__asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(dot) : "v"(w), "m"(*a));
	return dot;
}

static inline __attribute__((always_inline)) __m512i decode(__m512i codes, int i)
{
	/* 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. */
	const __m512i table = _mm512_broadcast_i64x4(_mm256_setr_epi16(
	    0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, (short)0x8000,
	    (short)0xbf00, (short)0xbf80, (short)0xbfc0, (short)0xc000, (short)0xc040,
	    (short)0xc080, (short)0xc0c0));

	return _mm512_permutexvar_epi16(_mm512_srli_epi32(codes, 4 * (unsigned int)i),
					table);
}

/* The fp32 value of nibble i of each dword. */
static inline __attribute__((always_inline)) __m512 value(__m512i codes, int i)
{
	const __m512 table =
	    _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
			   -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);

	return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4 * (unsigned int)i),
				     table);
}

/* The same with the scale in: a bf16 is the upper half of an fp32. */
static inline __attribute__((always_inline)) __m512i fold(__m512i codes, int i,
							  __m512 scale)
{
	const __m512i low = _mm512_castps_si512(_mm512_mul_ps(value(codes, i), scale));
	const __m512i high =
	    _mm512_castps_si512(_mm512_mul_ps(value(codes, i + 4), scale));

	return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
}

/*
 * Whether a magnitude (bits without the sign) is below 2^-117 or at least 2^121.
 * Products and sums of small ones may be flushed to zero before a large scale is
 * applied; the sum of a block of large ones may overflow before a small scale is.
 */
static inline __m128i leaves_range(__m128i x)
{
	const __m128i size = _mm_and_si128(x, _mm_set1_epi16(0x7fff));
	const __m128i zero = _mm_setzero_si128();
	const __m128i is_small = _mm_and_si128(
	    _mm_cmpgt_epi16(size, zero), _mm_cmplt_epi16(size, _mm_set1_epi16(0x0500)));
	const __m128i is_large =
	    _mm_and_si128(_mm_cmpgt_epi16(size, _mm_set1_epi16(0x7bff)),
			  _mm_cmplt_epi16(size, _mm_set1_epi16(0x7f80)));

	return _mm_or_si128(is_small, is_large);
}

/* Elements k and k + 4 of each eight, adjacent. */
static inline uint8_t pack_pairs(const uint8_t *x, struct cpu_bf16_record *out)
{
	__m128i wide = _mm_setzero_si128();

	for (int z = 0; z < 2; z++) {
		const __m128i v = _mm_loadu_si128((const void *)(x + 16 * z));

		wide = _mm_or_si128(wide, leaves_range(v));
		_mm_storeu_si128((void *)(out->word + 4 * z),
				 _mm_unpacklo_epi16(v, _mm_unpackhi_epi64(v, v)));
	}
	return _mm_movemask_epi8(wide) ? CPU_ROW_WIDE : 0;
}

#include "backend/cpu/multiply.inc.h"
