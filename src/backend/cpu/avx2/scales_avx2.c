/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scales_avx2.c - scale layouts with AVX2, at the speed of memory: wider
 * registers gain nothing.
 *
 * 16 bytes of a tile are 4 scales of rows r, r + 32, r + 64, r + 96: a 4 by 4
 * transpose of 32-bit lanes carries 16 scales of those 4 rows to, or from, the
 * same place in 4 tiles.  Four r are a cache line of each of the 4 tiles, 16
 * tiles a cache line of each of the 4 rows: lines are written whole.
 *
 * Neither side is accessed in the order of its addresses, so the hardware prefetcher
 * does not help.  Therefore the next band is prefetched in that order while this one is
 * in the second-level cache.
 */
#include <immintrin.h>

#include "backend/cpu/avx2/quantize_avx2.h"
#include "format/scale_layout.h"

#define TILE NIB_SCALE_TILE_BYTES

/* In each half of the registers. */
static inline void transpose(__m256i v[4])
{
	const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]);
	const __m256i b = _mm256_unpacklo_epi32(v[2], v[3]);
	const __m256i c = _mm256_unpackhi_epi32(v[0], v[1]);
	const __m256i d = _mm256_unpackhi_epi32(v[2], v[3]);

	v[0] = _mm256_unpacklo_epi64(a, b);
	v[1] = _mm256_unpackhi_epi64(a, b);
	v[2] = _mm256_unpacklo_epi64(c, d);
	v[3] = _mm256_unpackhi_epi64(c, d);
}

/* 16 bytes each from two places. */
static inline __m256i load_two(const uint8_t *low, int64_t high_bytes)
{
	return _mm256_inserti128_si256(
	    _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
	    _mm_loadu_si128((const __m128i *)(low + high_bytes)), 1);
}

static inline void store_line(uint8_t *to, __m256i low, __m256i high, bool stream)
{
	__m256i *const line = (__m256i *)to;

	if (stream) {
		_mm256_stream_si256(line, low);
		_mm256_stream_si256(line + 1, high);
	} else {
		_mm256_storeu_si256(line, low);
		_mm256_storeu_si256(line + 1, high);
	}
}

static inline bool is_aligned(const void *p, int64_t stride_bytes)
{
	return (((uintptr_t)p | (uintptr_t)stride_bytes) & 63) == 0;
}

/* A position in the lines of rows, to prefetch them into the second-level cache. */
struct walk {
	const uint8_t *row;
	int64_t at, row_bytes, stride_bytes;
};

static inline void fetch_lines(struct walk *walk, int lines)
{
	for (int i = 0; i < lines; i++) {
		_mm_prefetch((const char *)walk->row + walk->at, _MM_HINT_T1);
		walk->at += 64;
		if (walk->at >= walk->row_bytes) {
			walk->at = 0;
			walk->row += walk->stride_bytes;
		}
	}
}

/* 16 scales of rows r .. r + 3 of each part; from: part 0, row r. */
static inline void tile_line(const uint8_t *from, const struct cpu_band *band,
			     bool stream, uint8_t *tiles)
{
	__m256i low[4], high[4];

	for (int part = 0; part < 4; part++) {
		const uint8_t *row = from + part * band->part_bytes;

		low[part] = load_two(row, band->row_bytes);
		high[part] = load_two(row + 2 * band->row_bytes, band->row_bytes);
	}
	transpose(low);
	transpose(high);
	for (int i = 0; i < 4; i++)
		store_line(tiles + i * TILE, low[i], high[i], stream);
}

/* 4, 8, 12 or 16 scales of one row of each part. */
static void tile_end(const uint8_t *from, const struct cpu_band *band, int64_t groups,
		     uint8_t *tiles)
{
	const __m128i lanes = _mm_cmpgt_epi32(_mm_set1_epi32((int)groups / 4),
					      _mm_setr_epi32(0, 1, 2, 3));
	__m256i v[4];

	for (int part = 0; part < 4; part++)
		v[part] = _mm256_castsi128_si256(_mm_maskload_epi32(
		    (const int *)(const void *)(from + part * band->part_bytes),
		    lanes));
	transpose(v);
	for (int i = 0; 4 * i < groups; i++)
		_mm_storeu_si128((__m128i *)(tiles + i * TILE),
				 _mm256_castsi256_si128(v[i]));
}

static void tile(const struct cpu_band *from, int64_t groups, const uint8_t *next,
		 bool stream, uint8_t *tiles)
{
	struct walk walk = {next, 0, groups, from->row_bytes};
	int64_t g = 0;

	stream = stream && is_aligned(tiles, 0);
	for (; g + 16 <= groups; g += 16)
		for (int r = 0; r < from->rows; r += 4) {
			if (next)
				fetch_lines(&walk, 4);
			tile_line(from->scales + r * from->row_bytes + g, from, stream,
				  tiles + g / 4 * TILE + 16 * r);
		}
	for (int r = 0; g < groups && r < from->rows; r++)
		tile_end(from->scales + r * from->row_bytes + g, from, groups - g,
			 tiles + g / 4 * TILE + 16 * r);
}

/* 16 tiles to 64 scales of one row of each part. */
static inline void untile_line(const uint8_t *tiles, bool stream,
			       const struct cpu_band *band, uint8_t *to)
{
	__m256i low[4], high[4];

	for (int i = 0; i < 4; i++) {
		low[i] = load_two(tiles + i * TILE, 4 * TILE);
		high[i] = load_two(tiles + (i + 8) * TILE, 4 * TILE);
	}
	transpose(low);
	transpose(high);
	for (int part = 0; part < 4; part++)
		store_line(to + part * band->part_bytes, low[part], high[part], stream);
}

/* Stores under a mask are slow on many processors. */
static inline void store_first(uint8_t *to, __m128i v, int64_t groups)
{
	if (groups >= 16) {
		_mm_storeu_si128((__m128i *)to, v);
		return;
	}
	if (groups & 8) {
		_mm_storel_epi64((__m128i *)to, v);
		v = _mm_srli_si128(v, 8);
		to += 8;
	}
	if (groups & 4)
		_mm_storeu_si32(to, v);
}

/* 1 to 4 tiles to 4, 8, 12 or 16 scales of one row of each part. */
static inline void untile_end(const uint8_t *tiles, int64_t groups,
			      const struct cpu_band *band, uint8_t *to)
{
	__m256i v[4];

	for (int i = 0; i < 4; i++) {
		v[i] = _mm256_setzero_si256();
		if (4 * i < groups)
			v[i] = load_two(tiles + i * TILE, 0);
	}
	transpose(v);
	for (int part = 0; part < 4; part++)
		store_first(to + part * band->part_bytes,
			    _mm256_castsi256_si128(v[part]), groups);
}

static void untile(const uint8_t *tiles, int64_t groups, const uint8_t *next,
		   bool stream, const struct cpu_band *to)
{
	struct walk walk = {next, 0, groups * 128, 0};

	stream = stream && is_aligned(to->scales, to->row_bytes | to->part_bytes);
	for (int r = 0; r < to->rows; r++) {
		const uint8_t *from = tiles + 16 * r;
		uint8_t *row = to->scales + r * to->row_bytes;
		int64_t g = 0;

		for (; g + 64 <= groups; g += 64) {
			if (next)
				fetch_lines(&walk, 4);
			untile_line(from + g / 4 * TILE, stream, to, row + g);
		}
		for (; g < groups; g += 16)
			untile_end(from + g / 4 * TILE, groups - g, to, row + g);
	}
}

void cpu_scale_ops_avx2(struct cpu_quantize_ops *ops)
{
	ops->tile = tile;
	ops->untile = untile;
}
