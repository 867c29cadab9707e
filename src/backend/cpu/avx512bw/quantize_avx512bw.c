/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_avx512bw.c - quantise and dequantise with AVX-512 F, BW, DQ, VL.
 *
 * Codes: the 7 limits of a block are in a register, and a code is found in
 * three compares, a binary search whose limits are fetched by permuting (vpermd
 * for fp32, vpermw for 16 bits, two blocks at once).  Tie rules, odd global
 * scales and subnormals are all in the limits.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/quantize_ops.h"
#include "format/e4m3.h"
#include "format/quantize_ref.h"

#define FN(name) name##_avx512bw

/* ---- magnitudes --------------------------------------------------------- */

typedef __m512i vector;

static inline __m512i load(const void *from)
{
	return _mm512_loadu_si512(from);
}

static inline __m512i load_some(const void *from, size_t bytes)
{
	return _mm512_maskz_loadu_epi8((UINT64_C(1) << bytes) - 1, from);
}

static inline __m512i magnitudes_wide_avx512bw(__m512i v)
{
	return _mm512_and_si512(v, _mm512_set1_epi32(0x7FFFFFFF));
}

static inline __m512i magnitudes_narrow_avx512bw(__m512i v)
{
	return _mm512_and_si512(v, _mm512_set1_epi16(0x7FFF));
}

#define max_wide_avx512bw     _mm512_max_epu32
#define max_narrow_avx512bw   _mm512_max_epu16
#define largest_wide_avx512bw _mm512_reduce_max_epu32

static inline uint32_t largest_narrow_avx512bw(__m512i v)
{
	v = _mm512_max_epu16(v, _mm512_srli_epi32(v, 16));
	return _mm512_reduce_max_epu32(_mm512_and_si512(v, _mm512_set1_epi32(0xFFFF)));
}

/* ---- transposing trees of 16 blocks: maxima, sums ------------------------ */

/* 256-bit halves: a0 a1 | b0 b1 -> op(a0, a1) | op(b0, b1) */
#define JOIN_HALVES(op, a, b)                                                          \
	op(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xEE))
/* The same for 128-bit quarters: a0 a1 a2 a3 | b0 .. -> a01 a23 b01 b23. */
#define JOIN_QUARTERS(op, a, b)                                                        \
	op(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xDD))
/* Makes 2 lanes of a and 2 of b from the 4 of each, in every quarter. */
#define JOIN_PAIRS(op, a, b)                                                           \
	op(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
/* The same for 2 lanes of two blocks: 1 each of a's two, then of b's. */
#define JOIN_SINGLES(op, a, b) op(shuffle_lanes(a, b, 0x88), shuffle_lanes(a, b, 0xDD))
#define shuffle_lanes(a, b, lanes)                                                     \
	_mm512_castps_si512(                                                           \
	    _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), lanes))

/* four[i], quarter j: 4 lanes of block 4 * i + j.  32-bit lane i: block i. */
#define JOIN_FOURS(op, four)                                                           \
	transpose(JOIN_SINGLES(op, JOIN_PAIRS(op, (four)[0], (four)[1]),               \
			       JOIN_PAIRS(op, (four)[2], (four)[3])))

/* The 4 by 4 transpose of the 32-bit lanes. */
static inline __m512i transpose(__m512i v)
{
	return _mm512_permutexvar_epi32(
	    _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

static inline void block_amax_wide_avx512bw(const uint8_t *x, uint32_t *amax)
{
	__m512i four[4];

	for (int i = 0; i < 4; i++) {
		const uint8_t *at = x + 256 * i;
		const __m512i a = magnitudes_wide_avx512bw(load(at));
		const __m512i b = magnitudes_wide_avx512bw(load(at + 64));
		const __m512i c = magnitudes_wide_avx512bw(load(at + 128));
		const __m512i d = magnitudes_wide_avx512bw(load(at + 192));

		four[i] = JOIN_QUARTERS(max_wide_avx512bw,
					JOIN_HALVES(max_wide_avx512bw, a, b),
					JOIN_HALVES(max_wide_avx512bw, c, d));
	}
	_mm512_store_si512(amax, JOIN_FOURS(max_wide_avx512bw, four));
}

static inline void block_amax_narrow_avx512bw(const uint8_t *x, uint32_t *amax)
{
	__m512i four[4], both;

	for (int i = 0; i < 4; i++) {
		const uint8_t *at = x + 128 * i;
		const __m512i a = magnitudes_narrow_avx512bw(load(at));
		const __m512i b = magnitudes_narrow_avx512bw(load(at + 64));

		/* quarter j: 8 lanes of block 4 * i + j */
		four[i] = JOIN_QUARTERS(max_narrow_avx512bw, a, b);
	}
	both = JOIN_FOURS(max_narrow_avx512bw, four);
	both = _mm512_max_epu16(both, _mm512_srli_epi32(both, 16));
	_mm512_store_si512(amax, _mm512_and_si512(both, _mm512_set1_epi32(0xFFFF)));
}

static inline void widen_avx512bw(uint32_t *amax, enum nib_dtype dtype)
{
	__m512i v = _mm512_load_si512(amax);

	if (dtype == NIB_DTYPE_BF16)
		v = _mm512_slli_epi32(v, 16);
	else
		v = _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)));
	_mm512_store_si512(amax, v);
}

/* ---- scales ------------------------------------------------------------- */

/* fp32 of [2^-9, 448] to e4m3, to nearest even: nib_e4m3_encode(). */
static inline __m512i e4m3(__m512 x)
{
	const __m512i bits = _mm512_castps_si512(x);
	const __m512i odd =
	    _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(1));
	/* Round away 20 fraction bits, rebase the exponent 127 to 7. */
	const __m512i normal = _mm512_srli_epi32(
	    _mm512_add_epi32(_mm512_add_epi32(bits, odd),
			     _mm512_set1_epi32(0x7FFFF - ((127 - 7) << 23))),
	    20);
	/* The last bit of 2^14 .. 2^15 weighs 2^-9: the addition rounds. */
	const __m512 count = _mm512_add_ps(x, _mm512_set1_ps(0x1p14f));
	const __mmask16 subnormal =
	    _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);

	return _mm512_mask_and_epi32(normal, subnormal, _mm512_castps_si512(count),
				     _mm512_set1_epi32(0xF));
}

static inline bool block_scales_avx512bw(const struct cpu_quantizer *z,
					 const uint32_t *amax, float divisor,
					 uint8_t *scales)
{
	const __m512i bits = _mm512_load_si512(amax);
	const __m512 ratio =
	    _mm512_div_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(divisor));
	const __m512 clamped = _mm512_min_ps(
	    _mm512_max_ps(ratio, _mm512_set1_ps(0x1p-9f)), _mm512_set1_ps(448.0f));
	const __mmask16 zero = _mm512_testn_epi32_mask(bits, bits);
	const __m512i bytes = _mm512_mask_set1_epi32(e4m3(clamped), zero, z->zero_byte);

	if (_mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(0x7F800000)))
		return false;
	_mm_storeu_si128((__m128i *)scales, _mm512_cvtepi32_epi8(bytes));
	return true;
}

/* ---- codes -------------------------------------------------------------- */

/*
 * Codes 0 - 7 of the magnitudes of one fp32 block, in 32-bit lanes.  The limit to try
 * is the 3rd, then 1 + (0 or 4), then 0, 2, 4 or 6.
 */
static inline __m512i size_codes(const int32_t limit[8], __m512i size)
{
	const __m512i from_0 =
	    _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)limit));
	const __m512i from_1 =
	    _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(limit + 1)));
	__mmask16 over;
	__m512i at;

	over = _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(limit[3]));
	at = _mm512_maskz_mov_epi32(over, _mm512_set1_epi32(4));
	over = _mm512_cmpgt_epi32_mask(size, _mm512_permutexvar_epi32(at, from_1));
	at = _mm512_mask_add_epi32(at, over, at, _mm512_set1_epi32(2));
	over = _mm512_cmpgt_epi32_mask(size, _mm512_permutexvar_epi32(at, from_0));
	return _mm512_mask_add_epi32(at, over, at, _mm512_set1_epi32(1));
}

/* Codes 0 - 15 of one fp32 block, in 32-bit lanes. */
static inline __m512i codes_wide(const int32_t limit[8], __m512i x)
{
	/* Bit 3 is the sign: 8 ? x >> 28 : code. */
	return _mm512_ternarylogic_epi32(size_codes(limit, magnitudes_wide_avx512bw(x)),
					 _mm512_srli_epi32(x, 28), _mm512_set1_epi32(8),
					 0xD8);
}

/* The same for two blocks of 16-bit floats, whose limits a and b point to. */
static inline __m512i codes_narrow(const int16_t a[8], const int16_t b[8], __m512i x)
{
	/* b's limits are 8 lanes up. */
	const __m512i base =
	    _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(8), 1);
	const __m512i three = _mm512_add_epi16(base, _mm512_set1_epi16(3));
	const __m512i one = _mm512_add_epi16(base, _mm512_set1_epi16(1));
	const __m512i five = _mm512_add_epi16(base, _mm512_set1_epi16(5));
	const __m512i limits = _mm512_castsi256_si512(_mm256_inserti128_si256(
	    _mm256_castsi128_si256(_mm_load_si128((const __m128i *)a)),
	    _mm_load_si128((const __m128i *)b), 1));
	const __m512i size = _mm512_and_si512(x, _mm512_set1_epi16(0x7FFF));
	__m512i at;
	__mmask32 over;

	over = _mm512_cmpgt_epi16_mask(size, _mm512_permutexvar_epi16(three, limits));
	at = _mm512_mask_mov_epi16(one, over, five);
	over = _mm512_cmpgt_epi16_mask(size, _mm512_permutexvar_epi16(at, limits));
	at = _mm512_sub_epi16(at, _mm512_set1_epi16(1));
	at = _mm512_mask_add_epi16(at, over, at, _mm512_set1_epi16(2));
	over = _mm512_cmpgt_epi16_mask(size, _mm512_permutexvar_epi16(at, limits));
	at = _mm512_mask_add_epi16(at, over, at, _mm512_set1_epi16(1));
	/* Bit 3, which is b's base, becomes the sign: 8 ? x >> 12 : at. */
	return _mm512_ternarylogic_epi32(at, _mm512_srli_epi16(x, 12),
					 _mm512_set1_epi16(8), 0xD8);
}

/* Bytes 0 - 15, even and odd, to 16-bit lanes of even | odd << 4. */
static inline __m512i join_nibbles(__m512i bytes)
{
	return _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x1001));
}

static inline void block_codes_wide_avx512bw(const struct cpu_quantizer *z,
					     const uint8_t *x, const uint8_t *scales,
					     uint8_t *codes)
{
	/* 16-bit lane 8*q + b, of quarter q and block b, to lane 4*b + q. */
	const __m512i order =
	    _mm512_set_epi16(31, 23, 15, 7, 30, 22, 14, 6, 29, 21, 13, 5, 28, 20, 12, 4,
			     27, 19, 11, 3, 26, 18, 10, 2, 25, 17, 9, 1, 24, 16, 8, 0);

	for (int half = 0; half < 2; half++) {
		__m512i four[2];

		for (int i = 0; i < 2; i++) {
			__m512i c[4];

			for (int j = 0; j < 4; j++) {
				const int b = 8 * half + 4 * i + j;

				c[j] = codes_wide(z->limit.wide[scales[b]],
						  load(x + 64 * b));
			}
			four[i] = join_nibbles(
			    _mm512_packus_epi16(_mm512_packs_epi32(c[0], c[1]),
						_mm512_packs_epi32(c[2], c[3])));
		}
		_mm512_storeu_si512(codes + 64 * half,
				    _mm512_permutexvar_epi16(
					order, _mm512_packus_epi16(four[0], four[1])));
	}
}

static inline void block_codes_narrow_avx512bw(const struct cpu_quantizer *z,
					       const uint8_t *x, const uint8_t *scales,
					       uint8_t *codes)
{
	for (int half = 0; half < 2; half++) {
		__m512i c[4];

		for (int i = 0; i < 4; i++) {
			const int b = 8 * half + 2 * i;

			c[i] = codes_narrow(z->limit.narrow[scales[b]],
					    z->limit.narrow[scales[b + 1]],
					    load(x + 32 * b));
		}
		/* Lane 4*q + p is quarter q of the pair p of blocks. */
		_mm512_storeu_si512(
		    codes + 64 * half,
		    transpose(_mm512_packus_epi16(
			join_nibbles(_mm512_packus_epi16(c[0], c[1])),
			join_nibbles(_mm512_packus_epi16(c[2], c[3])))));
	}
}

#define WIDE 1
#include "backend/cpu/quantize.inc.h"
#define WIDE 0
#include "backend/cpu/quantize.inc.h"

/* ---- errors of scales --------------------------------------------------- */

static inline __m512i add_floats(__m512i a, __m512i b)
{
	return _mm512_castps_si512(
	    _mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

/* The weighted squares of the errors of block b under scale byte s. */
static inline __m512i squares(const struct cpu_quantizer *z, const uint8_t *x,
			      const float *weights, float unit, uint8_t s)
{
	const __m512i size = magnitudes_wide_avx512bw(load(x));
	const __m512 values = _mm512_castps256_ps512(_mm256_load_ps(z->value[s]));
	const __m512 value =
	    _mm512_permutexvar_ps(size_codes(z->limit.wide[s], size), values);
	__m512 e = _mm512_sub_ps(_mm512_castsi512_ps(size), value);

	e = _mm512_mul_ps(e, _mm512_set1_ps(unit));
	e = _mm512_mul_ps(e, e);
	if (weights)
		e = _mm512_mul_ps(e, _mm512_loadu_ps(weights));
	return _mm512_castps_si512(e);
}

static inline void block_errors_avx512bw(const struct cpu_quantizer *z,
					 const uint8_t *x, const float *weights,
					 const float unit[16], const uint8_t scales[16],
					 float errors[16])
{
	__m512i four[4];

	for (int i = 0; i < 4; i++) {
		__m512i v[4];

		for (int j = 0; j < 4; j++) {
			const int b = 4 * i + j;

			v[j] = squares(z, x + 64 * b, weights ? weights + 16 * b : NULL,
				       unit[b], scales[b]);
		}
		four[i] = JOIN_QUARTERS(add_floats, JOIN_HALVES(add_floats, v[0], v[1]),
					JOIN_HALVES(add_floats, v[2], v[3]));
	}
	_mm512_store_si512(errors, JOIN_FOURS(add_floats, four));
}

#include "backend/cpu/quantize_search.inc.h"

/* ---- dequantise --------------------------------------------------------- */

static void dequantize_fp32(const struct cpu_dequantizer *table, const uint8_t *codes,
			    const uint8_t *scales, int64_t blocks, void *y)
{
	/* 32-bit lane i takes byte i / 2, and its high nibble if i is odd. */
	const __m512i byte =
	    _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
	const __m512i shift = _mm512_set1_epi64(INT64_C(4) << 32);
	uint64_t eight;

	for (int64_t b = 0; b < blocks; b++) {
		memcpy(&eight, codes + 8 * b, sizeof(eight));
		_mm512_storeu_si512(
		    (uint8_t *)y + 64 * b,
		    _mm512_permutexvar_epi32(
			_mm512_srlv_epi32(_mm512_shuffle_epi8(
					      _mm512_set1_epi64((int64_t)eight), byte),
					  shift),
			_mm512_load_si512(table->value.wide[scales[b]])));
	}
}

/* Two blocks: 16 bytes of codes, the table's rows a and b. */
static inline __m512i values_16bit(__m128i codes, const uint16_t *a, const uint16_t *b)
{
	/* 16-bit lane i takes byte i / 2, and its high nibble if i is odd. */
	const __m512i byte = _mm512_setr_epi32(
	    0x00000000, 0x00010001, 0x00020002, 0x00030003, 0x00040004, 0x00050005,
	    0x00060006, 0x00070007, 0x00080008, 0x00090009, 0x000A000A, 0x000B000B,
	    0x000C000C, 0x000D000D, 0x000E000E, 0x000F000F);
	const __m512i shift = _mm512_set1_epi32(4 << 16);
	const __m512i base =
	    _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
	const __m512i rows = _mm512_inserti64x4(
	    _mm512_castsi256_si512(_mm256_load_si256((const __m256i *)a)),
	    _mm256_load_si256((const __m256i *)b), 1);
	__m512i at = _mm512_broadcast_i32x4(codes);

	at = _mm512_srlv_epi16(_mm512_shuffle_epi8(at, byte), shift);
	/* (at & 15) | base */
	at = _mm512_ternarylogic_epi32(at, _mm512_set1_epi16(15), base, 0xEA);
	return _mm512_permutexvar_epi16(at, rows);
}

static void dequantize_16bit(const struct cpu_dequantizer *table, const uint8_t *codes,
			     const uint8_t *scales, int64_t blocks, void *y)
{
	const uint16_t(*rows)[16] = table->value.narrow.word;
	int64_t b = 0;

	for (; b + 2 <= blocks; b += 2)
		_mm512_storeu_si512(
		    (uint8_t *)y + 32 * b,
		    values_16bit(_mm_loadu_si128((const __m128i *)(codes + 8 * b)),
				 rows[scales[b]], rows[scales[b + 1]]));
	if (b < blocks)
		_mm256_storeu_si256(
		    (__m256i *)((uint8_t *)y + 32 * b),
		    _mm512_castsi512_si256(
			values_16bit(_mm_loadl_epi64((const __m128i *)(codes + 8 * b)),
				     rows[scales[b]], rows[scales[b]])));
}

/* ---- copies ------------------------------------------------------------- */

static void stream(void *to, const void *from, size_t bytes)
{
	const uint8_t *source = from;
	uint8_t *target = to;
	size_t head = -(uintptr_t)to & 63;

	if (head > bytes)
		head = bytes;
	memcpy(target, source, head);
	for (bytes -= head, target += head, source += head; bytes >= 64;
	     bytes -= 64, target += 64, source += 64)
		_mm512_stream_si512((__m512i *)target, load(source));
	memcpy(target, source, bytes);
}

void cpu_quantize_ops_avx512bw(struct cpu_quantize_ops *ops)
{
	ops->amax[NIB_DTYPE_FP32] = amax_wide_avx512bw;
	ops->amax[NIB_DTYPE_FP16] = amax_narrow_avx512bw;
	ops->amax[NIB_DTYPE_BF16] = amax_narrow_avx512bw;
	ops->quantize[NIB_DTYPE_FP32] = quantize_wide_avx512bw;
	ops->quantize[NIB_DTYPE_FP16] = quantize_narrow_avx512bw;
	ops->quantize[NIB_DTYPE_BF16] = quantize_narrow_avx512bw;
	ops->quantize_search = quantize_search_avx512bw;
	ops->dequantize[NIB_DTYPE_FP32] = dequantize_fp32;
	ops->dequantize[NIB_DTYPE_FP16] = dequantize_16bit;
	ops->dequantize[NIB_DTYPE_BF16] = dequantize_16bit;
	ops->stream = stream;
}
