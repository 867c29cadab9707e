/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_avx2.c - quantise and amax with AVX2, FMA and F16C.  Codes are found as in
 * quantize_avx512bw.c, by three compares.  Their limits are fetched by vpermd for fp32,
 * and by vpshufb, in pairs of bytes, for 16 bits.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/avx2/quantize_avx2.h"
#include "backend/cpu/quantize_ops.h"
#include "format/e4m3.h"
#include "format/quantize_ref.h"

#define FN(name) name##_avx2

static inline __m256i load(const void *from)
{
	return _mm256_loadu_si256((const __m256i *)from);
}

/* ---- magnitudes --------------------------------------------------------- */

typedef __m256i vector;

static inline __m256i load_some(const void *from, size_t bytes)
{
	__m256i v = _mm256_setzero_si256();

	memcpy(&v, from, bytes);
	return v;
}

static inline __m256i magnitudes_wide_avx2(__m256i v)
{
	return _mm256_and_si256(v, _mm256_set1_epi32(0x7FFFFFFF));
}

static inline __m256i magnitudes_narrow_avx2(__m256i v)
{
	return _mm256_and_si256(v, _mm256_set1_epi16(0x7FFF));
}

#define max_wide_avx2	_mm256_max_epu32
#define max_narrow_avx2 _mm256_max_epu16

static inline uint32_t largest_wide_avx2(__m256i v)
{
	uint32_t lanes[8], largest = 0;

	memcpy(lanes, &v, sizeof(lanes));
	for (int i = 0; i < 8; i++)
		largest = lanes[i] > largest ? lanes[i] : largest;
	return largest;
}

static inline uint32_t largest_narrow_avx2(__m256i v)
{
	uint16_t lanes[16], largest = 0;

	memcpy(lanes, &v, sizeof(lanes));
	for (int i = 0; i < 16; i++)
		largest = lanes[i] > largest ? lanes[i] : largest;
	return largest;
}

/* ---- transposing trees of 8 blocks: maxima, sums ------------------------- */

#define JOIN_HALVES(op, a, b)                                                          \
	op(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31))
#define JOIN_PAIRS(op, a, b)                                                           \
	op(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))
#define JOIN_SINGLES(op, a, b) op(shuffle_lanes(a, b, 0x88), shuffle_lanes(a, b, 0xDD))
#define shuffle_lanes(a, b, lanes)                                                     \
	_mm256_castps_si256(                                                           \
	    _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), lanes))

/* v[i]: block i.  32-bit lane i: what op makes of its lanes, or of its last two of 16
 * bits. */
#define JOIN_TREE(op, v)                                                               \
	in_order(JOIN_SINGLES(op,                                                      \
			      JOIN_PAIRS(op, JOIN_HALVES(op, (v)[0], (v)[1]),          \
					 JOIN_HALVES(op, (v)[2], (v)[3])),             \
			      JOIN_PAIRS(op, JOIN_HALVES(op, (v)[4], (v)[5]),          \
					 JOIN_HALVES(op, (v)[6], (v)[7]))))

/* Blocks 0 2 4 6 1 3 5 7 to 0 .. 7. */
static inline __m256i in_order(__m256i v)
{
	return _mm256_permutevar8x32_epi32(v,
					   _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline void block_amax_wide_avx2(const uint8_t *x, uint32_t *amax)
{
	__m256i v[8];

	for (int half = 0; half < 2; half++) {
		for (int b = 0; b < 8; b++) {
			const uint8_t *at = x + 64 * (8 * half + b);

			v[b] = _mm256_max_epu32(magnitudes_wide_avx2(load(at)),
						magnitudes_wide_avx2(load(at + 32)));
		}
		_mm256_store_si256((__m256i *)(amax + 8 * half),
				   JOIN_TREE(max_wide_avx2, v));
	}
}

static inline void block_amax_narrow_avx2(const uint8_t *x, uint32_t *amax)
{
	__m256i v[8], two;

	for (int half = 0; half < 2; half++) {
		for (int b = 0; b < 8; b++)
			v[b] = magnitudes_narrow_avx2(load(x + 32 * (8 * half + b)));
		two = JOIN_TREE(max_narrow_avx2, v);
		two = _mm256_max_epu16(two, _mm256_srli_epi32(two, 16));
		_mm256_store_si256((__m256i *)(amax + 8 * half),
				   _mm256_and_si256(two, _mm256_set1_epi32(0xFFFF)));
	}
}

static inline void widen_avx2(uint32_t *amax, enum nib_dtype dtype)
{
	__m256i *const to = (__m256i *)amax;

	for (int i = 0; i < 2; i++) {
		const __m256i v = _mm256_load_si256(to + i);
		const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(v),
							_mm256_extracti128_si256(v, 1));

		_mm256_store_si256(to + i,
				   dtype == NIB_DTYPE_BF16
				       ? _mm256_slli_epi32(v, 16)
				       : _mm256_castps_si256(_mm256_cvtph_ps(packed)));
	}
}

/* ---- scales ------------------------------------------------------------- */

/* fp32 of [2^-9, 448] to e4m3, to nearest even: nib_e4m3_encode(). */
static inline __m256i e4m3(__m256 x)
{
	const __m256i bits = _mm256_castps_si256(x);
	const __m256i odd =
	    _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
	/* Round away 20 fraction bits, rebase the exponent 127 to 7. */
	const __m256i normal = _mm256_srli_epi32(
	    _mm256_add_epi32(_mm256_add_epi32(bits, odd),
			     _mm256_set1_epi32(0x7FFFF - ((127 - 7) << 23))),
	    20);
	/* The last bit of 2^14 .. 2^15 weighs 2^-9: the addition rounds. */
	const __m256 count = _mm256_add_ps(x, _mm256_set1_ps(0x1p14f));
	const __m256i subnormal =
	    _mm256_and_si256(_mm256_castps_si256(count), _mm256_set1_epi32(0xF));

	return _mm256_blendv_epi8(
	    normal, subnormal,
	    _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ)));
}

static inline bool block_scales_avx2(const struct cpu_quantizer *z,
				     const uint32_t *amax, float divisor,
				     uint8_t *scales)
{
	__m256i bytes[2], words, bad = _mm256_setzero_si256();

	for (int i = 0; i < 2; i++) {
		const __m256i bits = _mm256_load_si256((const __m256i *)amax + i);
		const __m256 ratio =
		    _mm256_div_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(divisor));
		const __m256 clamped =
		    _mm256_min_ps(_mm256_max_ps(ratio, _mm256_set1_ps(0x1p-9f)),
				  _mm256_set1_ps(448.0f));

		bytes[i] = _mm256_blendv_epi8(
		    e4m3(clamped), _mm256_set1_epi32(z->zero_byte),
		    _mm256_cmpeq_epi32(bits, _mm256_setzero_si256()));
		bad = _mm256_or_si256(
		    bad, _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x7F7FFFFF)));
	}
	words = _mm256_permute4x64_epi64(_mm256_packus_epi32(bytes[0], bytes[1]), 0xD8);
	_mm_storeu_si128((__m128i *)scales,
			 _mm_packus_epi16(_mm256_castsi256_si128(words),
					  _mm256_extracti128_si256(words, 1)));
	return _mm256_testz_si256(bad, bad);
}

/* ---- codes -------------------------------------------------------------- */

/*
 * Codes 0 - 7 of the magnitudes of 8 fp32, in 32-bit lanes.  The limit to try is the
 * 3rd, then 1 + (0 or 4), then 0, 2, 4 or 6.
 */
static inline __m256i size_codes(const int32_t limit[8], __m256i size)
{
	const __m256i from_0 = load(limit), from_1 = load(limit + 1);
	__m256i at, over;

	over = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(limit[3]));
	at = _mm256_and_si256(over, _mm256_set1_epi32(4));
	over = _mm256_cmpgt_epi32(size, _mm256_permutevar8x32_epi32(from_1, at));
	at = _mm256_or_si256(at, _mm256_and_si256(over, _mm256_set1_epi32(2)));
	over = _mm256_cmpgt_epi32(size, _mm256_permutevar8x32_epi32(from_0, at));
	return _mm256_sub_epi32(at, over);
}

/* Codes 0 - 15 of 8 fp32, in 32-bit lanes. */
static inline __m256i codes_wide(const int32_t limit[8], __m256i x)
{
	return _mm256_or_si256(
	    size_codes(limit, magnitudes_wide_avx2(x)),
	    _mm256_and_si256(_mm256_srli_epi32(x, 28), _mm256_set1_epi32(8)));
}

/* Codes of one block of 16-bit floats.  at = bytes 2c, 2c + 1 of limit c. */
static inline __m256i codes_narrow(const int16_t limit[8], __m256i x)
{
	const __m256i from_0 =
	    _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)limit));
	const __m256i from_1 =
	    _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(limit + 1)));
	const __m256i size = _mm256_and_si256(x, _mm256_set1_epi16(0x7FFF));
	__m256i at, over;

	over = _mm256_cmpgt_epi16(size, _mm256_set1_epi16(limit[3]));
	at = _mm256_or_si256(_mm256_and_si256(over, _mm256_set1_epi16(4 * 0x0202)),
			     _mm256_set1_epi16(0x0100));
	over = _mm256_cmpgt_epi16(size, _mm256_shuffle_epi8(from_1, at));
	at =
	    _mm256_add_epi16(at, _mm256_and_si256(over, _mm256_set1_epi16(2 * 0x0202)));
	over = _mm256_cmpgt_epi16(size, _mm256_shuffle_epi8(from_0, at));
	at = _mm256_and_si256(_mm256_sub_epi16(_mm256_srli_epi16(at, 1), over),
			      _mm256_set1_epi16(7));
	return _mm256_or_si256(
	    at, _mm256_and_si256(_mm256_srli_epi16(x, 12), _mm256_set1_epi16(8)));
}

/* Bytes 0 - 15, even and odd, to 16-bit lanes of even | odd << 4. */
static inline __m256i join_nibbles(__m256i bytes)
{
	return _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
}

static inline void block_codes_wide_avx2(const struct cpu_quantizer *z,
					 const uint8_t *x, const uint8_t *scales,
					 uint8_t *codes)
{
	for (int b = 0; b < 16; b += 4) {
		__m256i c[4], v;
		__m128i low, high;

		for (int i = 0; i < 4; i++) {
			const int32_t *limit = z->limit.wide[scales[b + i]];
			const uint8_t *at = x + 64 * (b + i);

			c[i] = _mm256_packs_epi32(codes_wide(limit, load(at)),
						  codes_wide(limit, load(at + 32)));
		}
		v = _mm256_packus_epi16(join_nibbles(_mm256_packus_epi16(c[0], c[1])),
					join_nibbles(_mm256_packus_epi16(c[2], c[3])));
		/* Halves hold elements 0-3 8-11 and 4-7 12-15 of each block. */
		low = _mm256_castsi256_si128(v);
		high = _mm256_extracti128_si256(v, 1);
		_mm_storeu_si128((__m128i *)(codes + 8 * b),
				 _mm_unpacklo_epi16(low, high));
		_mm_storeu_si128((__m128i *)(codes + 8 * b + 16),
				 _mm_unpackhi_epi16(low, high));
	}
}

static inline void block_codes_narrow_avx2(const struct cpu_quantizer *z,
					   const uint8_t *x, const uint8_t *scales,
					   uint8_t *codes)
{
	for (int b = 0; b < 16; b += 4) {
		__m256i c[4], v;
		__m128i low, high;

		for (int i = 0; i < 4; i++)
			c[i] = codes_narrow(z->limit.narrow[scales[b + i]],
					    load(x + 32 * (b + i)));
		v = _mm256_packus_epi16(join_nibbles(_mm256_packus_epi16(c[0], c[1])),
					join_nibbles(_mm256_packus_epi16(c[2], c[3])));
		/* Halves hold elements 0-7 and 8-15 of each block. */
		low = _mm256_castsi256_si128(v);
		high = _mm256_extracti128_si256(v, 1);
		_mm_storeu_si128((__m128i *)(codes + 8 * b),
				 _mm_unpacklo_epi32(low, high));
		_mm_storeu_si128((__m128i *)(codes + 8 * b + 16),
				 _mm_unpackhi_epi32(low, high));
	}
}

#define WIDE 1
#include "backend/cpu/quantize.inc.h"
#define WIDE 0
#include "backend/cpu/quantize.inc.h"

/* ---- errors of scales --------------------------------------------------- */

static inline __m256i add_floats(__m256i a, __m256i b)
{
	return _mm256_castps_si256(
	    _mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
}

/* The weighted squares of the errors of half a block under scale byte s. */
static inline __m256i squares(const struct cpu_quantizer *z, const uint8_t *x,
			      const float *weights, float unit, uint8_t s)
{
	const __m256i size = magnitudes_wide_avx2(load(x));
	const __m256 value = _mm256_permutevar8x32_ps(
	    _mm256_load_ps(z->value[s]), size_codes(z->limit.wide[s], size));
	__m256 e = _mm256_sub_ps(_mm256_castsi256_ps(size), value);

	e = _mm256_mul_ps(e, _mm256_set1_ps(unit));
	e = _mm256_mul_ps(e, e);
	if (weights)
		e = _mm256_mul_ps(e, _mm256_loadu_ps(weights));
	return _mm256_castps_si256(e);
}

static inline void block_errors_avx2(const struct cpu_quantizer *z, const uint8_t *x,
				     const float *weights, const float unit[16],
				     const uint8_t scales[16], float errors[16])
{
	for (int half = 0; half < 2; half++) {
		__m256i v[8];

		for (int i = 0; i < 8; i++) {
			const int b = 8 * half + i;
			const float *by = weights ? weights + 16 * b : NULL;

			v[i] =
			    add_floats(squares(z, x + 64 * b, by, unit[b], scales[b]),
				       squares(z, x + 64 * b + 32, by ? by + 8 : NULL,
					       unit[b], scales[b]));
		}
		_mm256_store_si256((__m256i *)(void *)(errors + 8 * half),
				   JOIN_TREE(add_floats, v));
	}
}

#include "backend/cpu/quantize_search.inc.h"

void cpu_quantize_ops_avx2(struct cpu_quantize_ops *ops)
{
	ops->amax[NIB_DTYPE_FP32] = amax_wide_avx2;
	ops->amax[NIB_DTYPE_FP16] = amax_narrow_avx2;
	ops->amax[NIB_DTYPE_BF16] = amax_narrow_avx2;
	ops->quantize[NIB_DTYPE_FP32] = quantize_wide_avx2;
	ops->quantize[NIB_DTYPE_FP16] = quantize_narrow_avx2;
	ops->quantize[NIB_DTYPE_BF16] = quantize_narrow_avx2;
	ops->quantize_search = quantize_search_avx2;
	cpu_dequantize_ops_avx2(ops);
	cpu_scale_ops_avx2(ops);
}
