/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_avx2.c - dequantise and streaming with AVX2. */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/avx2/quantize_avx2.h"

/* ---- dequantise --------------------------------------------------------- */

/* 8 codes, one in the low bits of each lane, bit 3 choosing the half row. */
static inline __m256 values_fp32(__m256i code, __m256 plus, __m256 minus)
{
	return _mm256_blendv_ps(_mm256_permutevar8x32_ps(plus, code),
				_mm256_permutevar8x32_ps(minus, code),
				_mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

static void dequantize_fp32(const struct cpu_dequantizer *table, const uint8_t *codes,
			    const uint8_t *scales, int64_t blocks, void *y)
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
			    values_fp32(
				_mm256_srlv_epi32(_mm256_set1_epi32(eight[i]), shift),
				plus, minus));
	}
}

static void dequantize_16bit(const struct cpu_dequantizer *table, const uint8_t *codes,
			     const uint8_t *scales, int64_t blocks, void *y)
{
	const __m128i nibble = _mm_set1_epi8(15);

	for (int64_t b = 0; b < blocks; b++) {
		const __m128i *plane =
		    (const __m128i *)table->value.narrow.plane[scales[b]];
		const __m128i eight = _mm_loadl_epi64((const __m128i *)(codes + 8 * b));
		const __m128i code = _mm_and_si128(
		    _mm_unpacklo_epi8(eight, _mm_srli_epi16(eight, 4)), nibble);
		const __m128i low = _mm_shuffle_epi8(_mm_load_si128(plane), code);
		const __m128i high = _mm_shuffle_epi8(_mm_load_si128(plane + 1), code);
		__m128i *to = (__m128i *)((uint8_t *)y + 32 * b);

		_mm_storeu_si128(to, _mm_unpacklo_epi8(low, high));
		_mm_storeu_si128(to + 1, _mm_unpackhi_epi8(low, high));
	}
}

/* ---- copies ------------------------------------------------------------- */

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
}

static void drain(void)
{
	_mm_sfence();
}

void cpu_dequantize_ops_avx2(struct cpu_quantize_ops *ops)
{
	ops->dequantize[NIB_DTYPE_FP32] = dequantize_fp32;
	ops->dequantize[NIB_DTYPE_FP16] = dequantize_16bit;
	ops->dequantize[NIB_DTYPE_BF16] = dequantize_16bit;
	ops->stream = stream;
	ops->drain = drain;
}
