/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantize_avx2.c - dequantise, scale layouts and streaming with AVX2.  The
 * layouts move 16 bytes at a time and gain nothing from wider registers.
 */
#include <immintrin.h>
#include <string.h>

#include "cpu/avx2/quantize_avx2.h"
#include "format/scale_layout.h"

/* ---- dequantise --------------------------------------------------------- */

/* 8 codes, one in the low bits of each lane, bit 3 choosing the half row. */
static inline __m256 values_fp32(__m256i code, __m256 plus, __m256 minus)
{
	return _mm256_blendv_ps(
	    _mm256_permutevar8x32_ps(plus, code),
	    _mm256_permutevar8x32_ps(minus, code),
	    _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

static void dequantize_fp32(const struct cpu_dequantizer *table,
			    const uint8_t *codes, const uint8_t *scales,
			    int64_t blocks, void *y)
{
	const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
	int32_t eight[2];

	for (int64_t b = 0; b < blocks; b++) {
		const float *row =
		    (const float *)(const void *)table->value.wide[scales[b]];
		const __m256 plus = _mm256_load_ps(row);
		const __m256 minus = _mm256_load_ps(row + 8);

		memcpy(eight, codes + 8 * b, sizeof(eight));
		for (int i = 0; i < 2; i++)
			_mm256_storeu_ps(
			    (float *)((uint8_t *)y + 64 * b + 32 * i),
			    values_fp32(_mm256_srlv_epi32(
					    _mm256_set1_epi32(eight[i]), shift),
					plus, minus));
	}
}

static void dequantize_16bit(const struct cpu_dequantizer *table,
			     const uint8_t *codes, const uint8_t *scales,
			     int64_t blocks, void *y)
{
	const __m128i nibble = _mm_set1_epi8(15);

	for (int64_t b = 0; b < blocks; b++) {
		const __m128i *plane =
		    (const __m128i *)table->value.narrow.plane[scales[b]];
		const __m128i eight =
		    _mm_loadl_epi64((const __m128i *)(codes + 8 * b));
		const __m128i code = _mm_and_si128(
		    _mm_unpacklo_epi8(eight, _mm_srli_epi16(eight, 4)), nibble);
		const __m128i low =
		    _mm_shuffle_epi8(_mm_load_si128(plane), code);
		const __m128i high =
		    _mm_shuffle_epi8(_mm_load_si128(plane + 1), code);
		__m128i *to = (__m128i *)((uint8_t *)y + 32 * b);

		_mm_storeu_si128(to, _mm_unpacklo_epi8(low, high));
		_mm_storeu_si128(to + 1, _mm_unpackhi_epi8(low, high));
	}
}

/* ---- scale layouts ------------------------------------------------------ */

/*
 * 16 bytes of a tile are 4 scales of rows r, r + 32, r + 64, r + 96: a 4 by 4
 * transpose of 32-bit lanes carries 16 scales of those 4 rows to, or from, the
 * same place in 4 tiles.
 */
static inline void transpose(__m128i v[4])
{
	const __m128i a = _mm_unpacklo_epi32(v[0], v[1]);
	const __m128i b = _mm_unpacklo_epi32(v[2], v[3]);
	const __m128i c = _mm_unpackhi_epi32(v[0], v[1]);
	const __m128i d = _mm_unpackhi_epi32(v[2], v[3]);

	v[0] = _mm_unpacklo_epi64(a, b);
	v[1] = _mm_unpackhi_epi64(a, b);
	v[2] = _mm_unpacklo_epi64(c, d);
	v[3] = _mm_unpackhi_epi64(c, d);
}

/* n scales, at most 16, the rest zero. */
static inline __m128i load_scales(const uint8_t *from, int64_t n)
{
	uint8_t local[16] = {0};

	if (n == 16)
		return _mm_loadu_si128((const __m128i *)from);
	memcpy(local, from, (size_t)n);
	return _mm_loadu_si128((const __m128i *)local);
}

static inline void store_scales(uint8_t *to, __m128i v, int64_t n)
{
	uint8_t local[16];

	if (n == 16) {
		_mm_storeu_si128((__m128i *)to, v);
		return;
	}
	_mm_storeu_si128((__m128i *)local, v);
	memcpy(to, local, (size_t)n);
}

/* Scales g .. g + n - 1 of rows r, r + 32, r + 64, r + 96 to their tiles. */
static inline void tile_rows(const uint8_t *linear, int64_t row_stride_bytes,
			     int rows, int r, int64_t g, int64_t n,
			     uint8_t *tiles)
{
	uint8_t *to = tiles + g / 4 * NIB_SCALE_TILE_BYTES + 16 * r;
	__m128i v[4];

	for (int i = 0; i < 4; i++) {
		const int row = r + 32 * i;

		v[i] = _mm_setzero_si128();
		if (row < rows)
			v[i] =
			    load_scales(linear + row * row_stride_bytes + g, n);
	}
	transpose(v);
	for (int i = 0; 4 * i < n; i++, to += NIB_SCALE_TILE_BYTES)
		_mm_storeu_si128((__m128i *)to, v[i]);
}

static inline void untile_rows(const uint8_t *tiles, int rows, int r, int64_t g,
			       int64_t n, uint8_t *linear,
			       int64_t row_stride_bytes)
{
	const uint8_t *from = tiles + g / 4 * NIB_SCALE_TILE_BYTES + 16 * r;
	__m128i v[4];

	for (int i = 0; i < 4; i++, from += NIB_SCALE_TILE_BYTES) {
		v[i] = _mm_setzero_si128();
		if (4 * i < n)
			v[i] = _mm_loadu_si128((const __m128i *)from);
	}
	transpose(v);
	for (int i = 0; r + 32 * i < rows; i++)
		store_scales(linear + (r + 32 * i) * row_stride_bytes + g, v[i],
			     n);
}

/*
 * Four r make whole cache lines of the tiles, which are read or written once,
 * and 16 rows, which are followed from left to right.
 */
static void tile(const uint8_t *linear, int64_t row_stride_bytes, int rows,
		 int64_t groups, uint8_t *tiles)
{
	for (int four = 0; four < 32; four += 4)
		for (int64_t g = 0; g < groups; g += 16) {
			const int64_t n = groups - g < 16 ? groups - g : 16;

			for (int r = four; r < four + 4; r++)
				tile_rows(linear, row_stride_bytes, rows, r, g,
					  n, tiles);
		}
}

static void untile(const uint8_t *tiles, int rows, int64_t groups,
		   uint8_t *linear, int64_t row_stride_bytes)
{
	for (int four = 0; four < 32 && four < rows; four += 4)
		for (int64_t g = 0; g < groups; g += 16) {
			const int64_t n = groups - g < 16 ? groups - g : 16;

			for (int r = four; r < four + 4; r++)
				untile_rows(tiles, rows, r, g, n, linear,
					    row_stride_bytes);
		}
}

/* Whole cache lines go past the caches, the ends as usual. */
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
		for (int i = 0; i < 2; i++)
			_mm256_stream_si256(
			    (__m256i *)target + i,
			    _mm256_loadu_si256((const __m256i *)source + i));
	memcpy(target, source, bytes);
	_mm_sfence();
}

void cpu_dequantize_ops_avx2(struct cpu_quantize_ops *ops)
{
	ops->dequantize[NIB_FP32] = dequantize_fp32;
	ops->dequantize[NIB_FP16] = dequantize_16bit;
	ops->dequantize[NIB_BF16] = dequantize_16bit;
	ops->tile = tile;
	ops->untile = untile;
	ops->stream = stream;
}
