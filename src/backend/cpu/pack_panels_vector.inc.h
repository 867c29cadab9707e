/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_panels_vector.inc.h - pack_panel() of pack.inc.h with AVX2's instructions,
 * which every vector set has.  The including file has included pack.inc.h.
 */
#include "backend/cpu/gemm_ops.h"

#if defined(__aarch64__)
#include "backend/cpu/arm64/panels_neon.inc.h"
#else
#include <immintrin.h>

typedef __m128i bytes16;

// clang-format off
#define set_bytes(byte)    _mm_set1_epi8(byte)
#define store_bytes(p, v)  _mm_storeu_si128((void *)(p), v)
#define or_bytes(x, y)     _mm_or_si128(x, y)
#define equal_bytes(x, y)  _mm_cmpeq_epi8(x, y)
#define bytes_mask(x)      ((unsigned int)_mm_movemask_epi8(x))
// clang-format on

/* Four dwords of four rows each way: out[k] = dword k of each. */
static inline void transpose_4x4(__m128i x[4])
{
	const __m128i a = _mm_unpacklo_epi32(x[0], x[1]);
	const __m128i b = _mm_unpackhi_epi32(x[0], x[1]);
	const __m128i c = _mm_unpacklo_epi32(x[2], x[3]);
	const __m128i d = _mm_unpackhi_epi32(x[2], x[3]);

	x[0] = _mm_unpacklo_epi64(a, c);
	x[1] = _mm_unpackhi_epi64(a, c);
	x[2] = _mm_unpacklo_epi64(b, d);
	x[3] = _mm_unpackhi_epi64(b, d);
}

/* The scales of 16 rows and 4 k-blocks: out[k] = 16 bytes, one a row. */
static inline void gather_scales(const struct scale_row *rows, int64_t block,
				 __m128i out[4])
{
	/* Bytes of equal k-block together. */
	const __m128i by_block =
	    _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const __m128i no_sign = _mm_set1_epi8(0x7f);
	const int64_t at = block / 4 * rows[0].step;

	for (int r = 0; r < 4; r++) {
		int32_t four[4];

		for (int i = 0; i < 4; i++)
			memcpy(&four[i], rows[4 * r + i].at + at, 4);
		out[r] =
		    _mm_shuffle_epi8(_mm_loadu_si128((const void *)four), by_block);
	}
	transpose_4x4(out);
	for (int k = 0; k < 4; k++)
		out[k] = _mm_and_si128(out[k], no_sign);
}

/* 8 rows of 32 bytes of codes: dword d of each to out + 64 * d. */
static inline void transpose_codes(const uint8_t *const *rows, int64_t at, uint8_t *out)
{
	__m256i x[8], y[8];

	for (int i = 0; i < 8; i++)
		x[i] = _mm256_loadu_si256((const void *)(rows[i] + at));
	for (int i = 0; i < 8; i += 2) {
		y[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
		y[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		x[i] = _mm256_unpacklo_epi64(y[i], y[i + 2]);
		x[i + 1] = _mm256_unpackhi_epi64(y[i], y[i + 2]);
		x[i + 2] = _mm256_unpacklo_epi64(y[i + 1], y[i + 3]);
		x[i + 3] = _mm256_unpackhi_epi64(y[i + 1], y[i + 3]);
	}
	for (int i = 0; i < 4; i++) {
		_mm256_storeu_si256((void *)(out + 64 * i),
				    _mm256_permute2x128_si256(x[i], x[i + 4], 0x20));
		_mm256_storeu_si256((void *)(out + 64 * (i + 4)),
				    _mm256_permute2x128_si256(x[i], x[i + 4], 0x31));
	}
}

#endif

/* Codes of the columns in `zero` become 0. */
static inline void clear_codes(uint8_t *codes, unsigned int zero)
{
	for (; zero; zero &= zero - 1) {
		const int n = __builtin_ctz(zero);

		memset(codes + 4 * n, 0, 4);
		memset(codes + 64 + 4 * n, 0, 4);
	}
}

/* As pack_panel, for 16 rows that exist and whole groups of k-blocks. */
static inline unsigned int pack_groups(const struct cpu_rows *b, int64_t n0,
				       int64_t block0, int64_t blocks, uint8_t *panel)
{
	const uint8_t *codes[PANEL_COLS];
	struct scale_row scales[PANEL_COLS];
	bytes16 group[4], nan = set_bytes(0);

	for (int n = 0; n < PANEL_COLS; n++) {
		codes[n] = codes_of(b, n0 + n);
		scales[n] = scale_row_of(b, n0 + n);
	}
	for (int64_t k = 0; k < blocks; k += GROUP_BLOCKS) {
		transpose_codes(codes, (block0 + k) * 8, panel);
		transpose_codes(codes + 8, (block0 + k) * 8, panel + 32);
		gather_scales(scales, block0 + k, group);
		for (int i = 0; i < GROUP_BLOCKS; i++) {
			const bytes16 zero = equal_bytes(group[i], set_bytes(0));

			store_bytes(panel + GROUP_BLOCKS * BLOCK_CODES + i * PANEL_COLS,
				    group[i]);
			nan = or_bytes(nan,
				       equal_bytes(group[i], set_bytes(NIB_E4M3_NAN)));
			clear_codes(panel + i * BLOCK_CODES, bytes_mask(zero));
		}
		panel += GROUP_BYTES;
	}
	return bytes_mask(nan);
}

static inline uint16_t pack_panel_vector(const struct cpu_rows *b, int64_t n0,
					 int64_t block0, int64_t blocks, uint8_t *panel)
{
	const int64_t whole = blocks / GROUP_BLOCKS * GROUP_BLOCKS;
	unsigned int nan = 0;

	/* The edges, and chunks that begin inside a group, have no vectors. */
	if (n0 + PANEL_COLS > b->rows || block0 % GROUP_BLOCKS)
		return pack_panel(b, n0, block0, blocks, panel);
	nan = pack_groups(b, n0, block0, whole, panel);
	if (whole < blocks)
		nan |= pack_panel(b, n0, block0 + whole, blocks - whole,
				  panel + whole / GROUP_BLOCKS * GROUP_BYTES);
	return (uint16_t)nan;
}

#define PACK_PANEL pack_panel_vector
