/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_load.cuh - how a CTA of mma.cuh loads a step of k128 by cp.async, and permutes or
 * dequantises A in place.
 *
 * With lane = 4g + t:
 *
 *   stage of B     codes    warp w, then i: rows 32 w + 8 i + 0 .. 7 of the tile, 64
 *                           bytes each (second half: 16 rows further)
 *                  scales   k64 0, then k64 1: 16 bytes of rows r, r + 32, r + 64 and
 *                           r + 96, four of each
 *                  dual     i = 0, 1: B, i = 2, 3: B2; scales of 16 r of B, then B2
 *   stage of A     n8 tile, then j: word j of each lane's 32 k, at 16 bytes times
 *                  (4 g + t) ^ (2 j)
 *
 * B: a lane loads the codes that it multiplies, 16 bytes of row g of each 8 rows, which
 * are k 32 t to 32 t + 31 of the step.
 *
 * A: a piece is 8 k of a row, 16 bytes in a stage; piece j of lane t starts at k
 * 32 t + 8 j; a_piece has the lane that loads it.  Places are such that eight lanes
 * store to different banks.  For NVFP4 the lane loads 4 bytes of codes and the 4 scales
 * of the k64 into the first 8 of these bytes, and finish_a() replaces them by the
 * values.
 */
#ifndef NIB_MMA_LOAD_CUH
#define NIB_MMA_LOAD_CUH

#include "decode_by_k.cuh"
#include "mma_tiles.cuh"
#include "rows.cuh"

/* Bytes from a step to the next: codes of a row, scales of B. */
#define CODES_STEP  (NIB_MMA_STEP / 2)
#define SCALES_STEP 1024

/*
 * The sources of the step that a thread loaded last; next_step() advances them.  Rows
 * of B beyond the matrix are replaced by its last row; their results are not stored.
 */
template <class TRAITS>
struct stream {
	struct item x;
	int left; /* of k, with the step that was requested last */
	const uint8_t *codes[2 * M16];
	const uint8_t *scales;
	const uint8_t *a, *a_scales;	/* of the first n8 tile */
	int a_scales_after[TRAITS::NT]; /* those of the others, in bytes */
	/* Constant for the whole kernel: where the thread stores in stages. */
	uint32_t b_to, scales_to, a_to;
};

/* Bytes from a step's scales of A to the next's. */
DEVICE int a_scales_step(const struct nib_mma_params &p)
{
	return p.a.is_tiled ? SCALES_STEP : NIB_MMA_STEP / 16;
}

/*
 * Which piece of A of each n8 tile the lane loads: piece j of the k of lane t, of a
 * row.  Experts have few rows, and the loads of NVFP4 are of 4 bytes: eight lanes then
 * load pieces of two rows.  Otherwise they load 128 bytes of a row.
 */
template <class TRAITS>
struct a_piece {
	static const bool IS_LONG = TRAITS::IS_IN_ORDER && !TRAITS::IS_NVFP4;

	DEVICE int j(void)
	{
		return IS_LONG ? threadIdx.x % 4 : threadIdx.x % 32 / 8;
	}

	DEVICE int t(void)
	{
		return IS_LONG ? threadIdx.x % 16 / 4 : threadIdx.x % 4;
	}

	DEVICE int row(void)
	{
		return IS_LONG ? threadIdx.x / 16
			       : threadIdx.x / 32 * 2 + threadIdx.x / 4 % 2;
	}

	/* The first k in a step. */
	DEVICE int k(void)
	{
		return t() * 32 + j() * 8;
	}

	/* In an n8 tile of a stage. */
	DEVICE int place(void)
	{
		return j() * 512 + ((row() * 4 + t()) ^ (2 * j())) * 16;
	}
};

/* A's scales of the four blocks of a k64 of a row of scales. */
DEVICE const uint8_t *a_scales(const struct nib_mma_params &p, int row, int k64)
{
	if (!p.a.is_tiled)
		return row_of(p.a.scales, row, p.a.scale_row_stride) + k64 * 4;
	return p.a.scales + (int64_t)(row / 128 * (p.k / 64) + k64) * 512 +
	       row % 32 * 16 + row % 128 / 32 * 4;
}

/* scale_row: the item's first row of A's scales. */
template <class TRAITS>
DEVICE void begin_a(const struct nib_mma_params &p, int scale_row,
		    struct stream<TRAITS> *s)
{
	const int k = a_piece<TRAITS>::k() - NIB_MMA_STEP;

	s->a = row_of(p.a.codes, s->x.row + a_piece<TRAITS>::row(), p.a.row_stride) +
	       (TRAITS::IS_NVFP4 ? k / 2 : k * 2);
	if (!TRAITS::IS_NVFP4)
		return;
	scale_row += a_piece<TRAITS>::row();
	s->a_scales =
	    a_scales(p, scale_row, a_piece<TRAITS>::k() / 64) - a_scales_step(p);
#pragma unroll
	for (int i = 1; i < TRAITS::NT; i++)
		s->a_scales_after[i] = (int)(a_scales(p, scale_row + 8 * i, 0) -
					     a_scales(p, scale_row, 0));
}

/* The lane's row of B in m8 tile i of its warp: rows of B that are 2 apart. */
template <class TRAITS>
DEVICE int lane_row(const struct item &x, int i)
{
	const int g = threadIdx.x % 32 / 4;

	return first_b_row<TRAITS>(x) + g / 2 * B_ROWS<TRAITS> + g % 2 + 2 * i;
}

/* Sets codes[i] to codes[i + count - 1]. */
template <class TRAITS>
DEVICE void begin_codes(const struct nib_mma_params &p,
			const struct nib_gemv_operand &b, int i, int count,
			struct stream<TRAITS> *s)
{
	const uint8_t *codes =
	    b.codes + s->x.expert * b.batch_stride + threadIdx.x % 4 * 16 - CODES_STEP;

#pragma unroll
	for (int j = 0; j < count; j++)
		s->codes[i + j] = row_of(codes, min(lane_row<TRAITS>(s->x, j), p.n - 1),
					 b.row_stride);
}

/* Where in a stage the lane stores its 16 bytes of scales. */
template <class TRAITS>
DEVICE int scales_at(int lane, int warp)
{
	const int row = TRAITS::IS_DUAL ? lane : warp % 2 * 16 + lane;
	const int tile = row % B_ROWS<TRAITS> / 2;
	const int g = row / B_ROWS<TRAITS> * 2 + row % 2;

	return TRAITS::SCALES_AT + warp / 2 * 512 +
	       (TRAITS::IS_DUAL ? warp % 2 * 256 : 0) + (tile * 8 + g) * 16;
}

/* Points a stream at its item's rows of B. */
template <class TRAITS>
DEVICE void begin_b(const struct nib_mma_params &p, struct stream<TRAITS> *s)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int columns = p.k / 64;
	const bool is_b2 = TRAITS::IS_DUAL && warp % 2;
	const uint8_t *scales = is_b2 ? p.b2.scales : p.b.scales;
	const int64_t stride = is_b2 ? p.b2.scale_batch_stride : p.b.scale_batch_stride;
	const int block = TRAITS::IS_DUAL ? s->x.b_tile / 2 : s->x.b_tile;
	const int half = TRAITS::IS_DUAL ? s->x.b_tile % 2 : warp % 2;

	begin_codes<TRAITS>(p, p.b, 0, TRAITS::IS_DUAL ? M16 : 2 * M16, s);
	if (TRAITS::IS_DUAL)
		begin_codes<TRAITS>(p, p.b2, M16, M16, s);
	s->scales = scales + s->x.expert * stride +
		    ((int64_t)block * columns * 512 + warp / 2 * 512 + half * 256 +
		     lane * 16 - SCALES_STEP);
}

/* Points a stream at its next item. */
template <class TRAITS>
DEVICE void begin_item(const struct nib_mma_params &p, const struct mma_tables &t,
		       const struct range &r, struct stream<TRAITS> *s)
{
	int scale_row = 0;

	find_rows<TRAITS>(t, r, &s->x);
	begin_b<TRAITS>(p, s);
	if (TRAITS::IS_NVFP4)
		/* -1 (outside the tensor): begin_sums() sets alpha to NaN. */
		scale_row =
		    max(t.scale_row[s->x.expert], 0) + s->x.row - t.row[s->x.expert];
	begin_a<TRAITS>(p, scale_row, s);
	s->left = p.k + NIB_MMA_STEP;
}

/* The bytes of each row of the first tile of B that are requested early. */
#ifndef EARLY_BYTES
#define EARLY_BYTES 128
#endif

/* Requests the first bytes of the range's first tile of weights for the L2: a thread
 * those of a row of B, and some of the scales. */
template <class TRAITS>
DEVICE void prefetch_tile(const struct nib_mma_params &p, const struct mma_tables &t,
			  const struct range &r)
{
	const int thread = threadIdx.x;
	const bool is_b2 = TRAITS::IS_DUAL && thread % 2;
	const struct nib_gemv_operand &b = is_b2 ? p.b2 : p.b;
	struct item x = {};
	const uint8_t *codes, *scales;
	int row = thread, block;

	if (r.count == 0)
		return;
	find_rows<TRAITS>(t, r, &x);
	block = TRAITS::IS_DUAL ? x.b_tile / 2 : x.b_tile;
	if (TRAITS::IS_DUAL)
		row = thread / 32 * 32 + x.b_tile % 2 * 16 + thread % 32 / 2;
	codes = row_of(b.codes + x.expert * b.batch_stride,
		       min(block * NIB_MMA_TILE + row, p.n - 1), b.row_stride);
	scales = b.scales + x.expert * b.scale_batch_stride +
		 (int64_t)block * (p.k / 64) * 512;
	for (int i = 0; i < min(p.k / 2, EARLY_BYTES); i += 64)
		prefetch_l2(codes + i);
	if (thread < min(p.k, 256) / 16)
		prefetch_l2(scales + thread * 128);
}

/* Requests B's step; the thread loads `back` and `scales_back` bytes earlier. */
template <class TRAITS>
DEVICE void load_b(const struct stream<TRAITS> &s, int stage, int back, int scales_back)
{
	const uint32_t to = s.b_to + stage * TRAITS::B_BYTES;

	cp_async_16_l2_256(to, s.codes[0] - back);
	cp_async_16_l2_256(to + 512, s.codes[1] - back);
	if (TRAITS::IS_DUAL || s.x.part == WHOLE) {
		cp_async_16_l2_256(to + 1024, s.codes[2] - back);
		cp_async_16_l2_256(to + 1536, s.codes[3] - back);
	}
	if (threadIdx.x % 32 < 16)
		cp_async_16_l2_128(s.scales_to + stage * TRAITS::B_BYTES,
				   s.scales - scales_back);
}

/* Requests the thread's pieces of A's step.  Beyond the end of k it stores zeros.  Rows
 * that the item does not have are left as they are. */
template <class TRAITS>
DEVICE void load_a(const struct nib_mma_params &p, const struct stream<TRAITS> &s,
		   int stage, bool has_k)
{
	const uint32_t to = s.a_to + stage * TRAITS::A_BYTES;

#pragma unroll
	for (int i = 0; i < TRAITS::NT; i++) {
		if (8 * i + a_piece<TRAITS>::row() >= s.x.rows)
			continue;
		if (!has_k) {
			sts_128(to + i * 2048, make_uint4(0, 0, 0, 0));
		} else if (TRAITS::IS_NVFP4) {
			cp_async_4(to + i * 2048, row_of(s.a, 8 * i, p.a.row_stride),
				   4);
			cp_async_4(to + i * 2048 + 4,
				   s.a_scales + (i ? s.a_scales_after[i] : 0), 4);
		} else {
			cp_async_16_l1(to + i * 2048,
				       row_of(s.a, 8 * i, p.a.row_stride));
		}
	}
}

/* Advances the stream before a step is requested, not after: the requests keep their
 * address registers busy for a while.  left: of k, with this step. */
template <class TRAITS>
DEVICE void next_step(const struct nib_mma_params &p, struct stream<TRAITS> *s)
{
#pragma unroll
	for (int i = 0; i < 2 * M16; i++)
		s->codes[i] += CODES_STEP;
	s->left -= NIB_MMA_STEP;
	s->scales += SCALES_STEP;
	s->a += TRAITS::IS_NVFP4 ? NIB_MMA_STEP / 2 : NIB_MMA_STEP * 2;
	if (TRAITS::IS_NVFP4)
		s->a_scales += a_scales_step(p);
}

/* Advances the stream by this number of steps, which may be negative. */
template <class TRAITS>
DEVICE void skip_steps(const struct nib_mma_params &p, int steps,
		       struct stream<TRAITS> *s)
{
#pragma unroll
	for (int i = 0; i < 2 * M16; i++)
		s->codes[i] += steps * CODES_STEP;
	s->scales += steps * SCALES_STEP;
	s->a += steps * (TRAITS::IS_NVFP4 ? NIB_MMA_STEP / 2 : NIB_MMA_STEP * 2);
	if (TRAITS::IS_NVFP4)
		s->a_scales += steps * a_scales_step(p);
	s->left -= steps * NIB_MMA_STEP;
}

/*
 * Requests a step.  B beyond the end of k is replaced by earlier pieces and scales of
 * the row, since A is zero there.
 */
template <class TRAITS>
DEVICE void load_step(const struct nib_mma_params &p, const struct stream<TRAITS> &s,
		      int stage)
{
	const int t = threadIdx.x % 4;

	if (s.left >= NIB_MMA_STEP) {
		load_b<TRAITS>(s, stage, 0, 0);
		load_a<TRAITS>(p, s, stage, true);
	} else {
		load_b<TRAITS>(s, stage, t * 32 < s.left ? 0 : t * 16,
			       threadIdx.x / 64 * 512);
		load_a<TRAITS>(p, s, stage, a_piece<TRAITS>::k() < s.left);
	}
}

/* decode() and widen_scales() in the order of the kernel. */
template <class TRAITS>
DEVICE void decode_of(uint32_t codes, uint32_t scale, uint32_t values[4])
{
	if constexpr (TRAITS::IS_IN_ORDER)
		decode_by_k<TRAITS::IS_BF16>(codes, scale, values);
	else
		decode<TRAITS::IS_BF16>(codes, scale, values);
}

template <class TRAITS>
DEVICE void widen_scales_of(uint32_t x, uint32_t s[2])
{
	if constexpr (TRAITS::IS_IN_ORDER)
		widen_scales_by_k<TRAITS::IS_BF16>(x, s);
	else
		widen_scales<TRAITS::IS_BF16>(x, s);
}

/*
 * Converts the thread's pieces of A in a stage, which have arrived, to values in the
 * order of decoded codes (decode.cuh).  Loads all pieces before it stores the first:
 * one after another, each would wait for its load.
 */
template <class TRAITS>
DEVICE void finish_a(uint32_t at, int rows)
{
	const uint32_t block = a_piece<TRAITS>::k() / 16 % 4;
	uint4 x[TRAITS::NT] = {};

#pragma unroll
	for (int i = 0; i < TRAITS::NT; i++) {
		if (8 * i + a_piece<TRAITS>::row() >= rows)
			continue;
		if constexpr (TRAITS::IS_NVFP4)
			lds_64(at + i * 2048, &x[i].x, &x[i].y);
		else
			x[i] = lds_128(at + i * 2048);
	}
#pragma unroll
	for (int i = 0; i < TRAITS::NT; i++) {
		if (8 * i + a_piece<TRAITS>::row() >= rows)
			continue;
		if constexpr (TRAITS::IS_NVFP4) {
			uint32_t w[4], scale[2];

			widen_scales_of<TRAITS>(x[i].y >> 8 * block, scale);
			decode_of<TRAITS>(x[i].x, mul_f16x2(scale[0], F16_64), w);
			sts_128(at + i * 2048, make_uint4(w[0], w[1], w[2], w[3]));
		} else {
			sts_128(at + i * 2048,
				permute_as_decoded<TRAITS::IS_BF16>(x[i]));
		}
	}
}

#endif
