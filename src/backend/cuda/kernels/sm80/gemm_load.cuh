/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_load.cuh - which tiles a CTA of gemm.cuh computes, and how it loads their stages
 * by cp.async.
 *
 * An mma has 16 rows of B and 8 rows of A.  Lane 4 g + t of a warp has rows g and g + 8
 * of both m16 tiles of the warp's 32 rows of B: four places.  The rows are permuted so
 * that these are consecutive elements of a row of C: four, or two of a dual product.
 * Place i of lane row g is
 *
 *   row 4 g + i of the warp's
 *   dual: row 2 g + i % 2 of B (i = 0, 1) or B2 (i = 2, 3)
 *
 * In a stage it is number 8 i + g of the warp.  Two threads copy the 32 bytes of its
 * codes.
 */
#ifndef NIB_SM80_GEMM_LOAD_CUH
#define NIB_SM80_GEMM_LOAD_CUH

#include "backend/cuda/kernels/common/moe_tiles.cuh"
#include "backend/cuda/kernels/common/ring.cuh"
#include "gemm_decode.cuh"
#include "gemm_params.h"

/* Tiles of mma: of a warp's rows of B, and of a tile's rows of A. */
#define M16_TILES 2
#define N8_TILES  (NIB_GEMM_M_MAX / 8)
/* A lane's rows of B. */
#define B_PLACES (2 * M16_TILES)
/* The offset of the scales in a stage; codes are before them, A after them. */
#define SCALES_AT (NIB_GEMM_B_ROWS * NIB_STEP_K / 2)
/* A tile of 128 x 4 scales. */
#define SCALE_TILE 512
/* Rows of A that all threads copy at once, and their bytes. */
#define A_ROWS	     32
#define A_ROWS_BYTES (A_ROWS * NIB_GEMM_A_ROW_BYTES)
/* Parts of a stage that are requested between products. */
#define PARTS (NIB_GEMM_M_MAX / A_ROWS)

/* The tag of a stage: its scale groups that are inside k, flags, and the rows of A. */
#define TAG_GROUPS 7
#define TAG_LAST   8  /* the last stage of a tile */
#define TAG_END	   16 /* no stage: the stream has ended */
#define TAG_ROWS   5  /* rows are tag >> TAG_ROWS */

template <bool BF16, bool DUAL>
struct gemm_traits {
	static constexpr bool IS_BF16 = BF16, IS_DUAL = DUAL;
	/* Rows of B of a tile, of one matrix. */
	static constexpr int UNIT = DUAL ? NIB_GEMM_B_ROWS / 2 : NIB_GEMM_B_ROWS;
	static constexpr int WARP_ROWS = UNIT / NIB_GEMM_WARPS;
	/* Consecutive elements of C of a lane. */
	static constexpr int C_ELEMS = WARP_ROWS / 8;
};

struct gemm_shared {
	uint32_t stages, full, empty, tags; /* addresses */
	int32_t *first_tile;
};

/* ---- tiles ------------------------------------------------------------------ */

struct tile {
	int32_t problem; /* index of args.matrices */
	int32_t matrix;	 /* of a batch, or expert */
	int32_t unit, k_slice;
	int32_t row; /* of the matrix's or expert's A */
	int32_t rows, valid;
	int32_t first_row; /* expert: its first row of A and C, else 0 */
};

template <class TRAITS>
DEVICE int32_t units_of(int32_t n)
{
	return (n + TRAITS::UNIT - 1) / TRAITS::UNIT;
}

/* Rows of each tile of an expert with m rows, equal but for rounding. */
DEVICE int32_t share_m(int32_t m, int32_t most)
{
	const int32_t tiles = (m + most - 1) / most;

	return tiles ? ((m + tiles - 1) / tiles + 31) & -32 : 32;
}

template <class TRAITS>
DEVICE bool find_expert_tile(const struct nib_gemm_args &p,
			     const struct gemm_shared &shared, int32_t index,
			     struct tile *tile)
{
	const int32_t units = units_of<TRAITS>(p.matrices->n);
	int32_t m, share, inside;

	if (index >= shared.first_tile[p.experts])
		return false;
	tile->matrix = find_last(shared.first_tile, 1, p.experts, index);
	tile->first_row = expert_row(&p, tile->matrix);
	m = expert_row(&p, tile->matrix + 1) - tile->first_row;
	share = share_m(m, p.tile_m);
	inside = index - shared.first_tile[tile->matrix];
	tile->problem = tile->k_slice = 0;
	tile->unit = inside % units;
	tile->row = inside / units * share;
	tile->valid = min(share, m - tile->row);
	tile->rows = tile->valid;
	return true;
}

/* The CTA's tile number `round`; false: no more. */
template <class TRAITS>
DEVICE bool find_tile(const struct nib_gemm_args &p, const struct gemm_shared &shared,
		      int32_t round, struct tile *tile)
{
	const int32_t index = round * (int32_t)gridDim.x + (int32_t)blockIdx.x;
	struct nib_gemm_tile entry;

	if (p.experts)
		return find_expert_tile<TRAITS>(p, shared, index, tile);
	if (round >= p.tile_rounds)
		return false;
	*(int4 *)&entry = __ldg((const int4 *)p.tiles + index);
	if (entry.rows == 0)
		return false;
	tile->problem = p.is_batch ? 0 : entry.problem;
	tile->matrix = p.is_batch ? entry.problem : 0;
	tile->unit = entry.unit;
	tile->k_slice = entry.k_slice;
	tile->row = entry.row;
	tile->rows = entry.rows;
	tile->valid = min((int32_t)entry.rows, p.matrices[tile->problem].m - entry.row);
	tile->first_row = 0;
	return true;
}

/* ---- barriers of stages ------------------------------------------------------ */

/* PTX ISA 7.1, sm_80+. */
DEVICE bool mbarrier_test_wait_parity(uint32_t bar, uint32_t parity)
{
	uint32_t done;
	asm volatile("{\n\t.reg .pred p;\n\t"
		     "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
		     "selp.u32 %0, 1, 0, p;\n\t}"
		     : "=r"(done)
		     : "r"(bar), "r"(parity)
		     : "memory");
	return done;
}

/* As wait() of ring.cuh, whose instruction is of sm_90. */
DEVICE void wait_phase(uint32_t bar, uint32_t parity)
{
	while (!mbarrier_test_wait_parity(bar, parity))
		;
}

/* ---- the stream of stages ------------------------------------------------- */

/* The stage that a thread requests next. */
template <class TRAITS>
struct stream {
	int32_t round; /* of the next tile */
	int32_t steps; /* stages of this tile that are left */
	int32_t left;  /* k from the stage on */
	int32_t rows;  /* of A */
	int32_t flags;
	/* The thread's first row of A and of codes, and bytes to the others. */
	const uint8_t *a, *codes, *scales;
	uint32_t a_rows[NIB_GEMM_M_MAX / A_ROWS], codes_row;
	int32_t scales_step;
	/* Constant: where the thread stores in the first stage. */
	uint32_t a_to, codes_to, scales_to;
};

/* The row, of one matrix of the tile, whose codes are number `place` of a stage. */
template <class TRAITS>
DEVICE int32_t row_at(uint32_t place)
{
	return place / 32 * TRAITS::WARP_ROWS + place % 8 * TRAITS::C_ELEMS +
	       place / 8 % TRAITS::C_ELEMS;
}

/* The slot in a stage for the scales of rows r, r + 32, r + 64, r + 96 (r < 32) of a
 * 128 x 4 tile.  The slots that lanes read at once are in different banks. */
template <class TRAITS>
DEVICE uint32_t scales_place(uint32_t r)
{
	const uint32_t e = TRAITS::C_ELEMS, inside = r % (8 * e);

	return (r / (8 * e) * 16 + inside % e * 8 + inside / e) * 16;
}

template <class TRAITS>
DEVICE struct stream<TRAITS> begin_stream(const struct gemm_shared &shared) {
	const uint32_t thread = threadIdx.x;
	struct stream<TRAITS> s = {
	};

	s.a_to = opaque(shared.stages + NIB_GEMM_B_BYTES + thread / 8 * 128 +
			(thread % 8 ^ thread / 8 % 8) * 16);
	s.codes_to = opaque(shared.stages + thread * 16);
	s.scales_to = opaque(shared.stages + SCALES_AT + thread / 128 * SCALE_TILE +
			     scales_place<TRAITS>(thread % 32) + thread / 32 % 4 * 4);
	return s;
}

/*
 * Points a stream at the codes and scales of its tile.  Rows beyond the matrix are
 * replaced by its last row; their results are not stored.
 */
template <class TRAITS>
DEVICE void begin_weights(const struct nib_gemm_args &p, const struct tile &tile,
			  int32_t step, struct stream<TRAITS> *s)
{
	const struct nib_gemm_matrix &x = p.matrices[tile.problem];
	const uint32_t thread = opaque(threadIdx.x);
	const int32_t last = x.n - 1, row0 = tile.unit * TRAITS::UNIT;
	const int64_t matrix = tile.matrix;
	/* Does the thread copy codes, and scales, of B2? */
	const bool codes_b2 = TRAITS::IS_DUAL && thread / 2 % 32 / 16;
	const bool scales_b2 = TRAITS::IS_DUAL && thread / 128;
	const int32_t scale_row0 = row0 + (TRAITS::IS_DUAL ? 0 : thread / 128 * 128);
	const int64_t stride = codes_b2 ? x.b2_stride : x.b_stride;
	const uint8_t *codes =
	    codes_b2 ? x.b2 + matrix * p.batch.b2 : x.b + matrix * p.batch.b;

	codes += step * (NIB_STEP_K / 2) + thread % 2 * 16;
	s->codes = codes + min(row0 + row_at<TRAITS>(thread / 2), last) * stride;
	s->codes_row = (min(row0 + row_at<TRAITS>(thread / 2 + 128), last) -
			min(row0 + row_at<TRAITS>(thread / 2), last)) *
		       stride / 8;
	s->scales = scales_b2 ? x.b2_scales + matrix * p.batch.b2_scales
			      : x.b_scales + matrix * p.batch.b_scales;
	if (x.flags & (scales_b2 ? NIB_B2_TILED : NIB_B_TILED)) {
		const int32_t block = min(scale_row0, last) / 128;

		s->scales += ((int64_t)block * ((x.k + 63) / 64) + step) * SCALE_TILE +
			     thread % 32 * 16;
		s->scales_step = SCALE_TILE;
	} else {
		const int32_t row = min(scale_row0 + (int32_t)thread % 128, last);

		s->scales +=
		    row * (scales_b2 ? x.b2_scale_stride : x.b_scale_stride) + step * 4;
		s->scales_step = 4;
	}
}

/* Points a stream at its next tile; false: no more. */
template <class TRAITS>
DEVICE bool begin_tile(const struct nib_gemm_args &p, const struct gemm_shared &shared,
		       struct stream<TRAITS> *s)
{
	/* Keeps what follows from it out of registers while tiles are multiplied. */
	const uint32_t thread = opaque(threadIdx.x);
	struct tile tile;
	int32_t step, stages;

	if (!find_tile<TRAITS>(p, shared, s->round, &tile))
		return false;
	const struct nib_gemm_matrix &x = p.matrices[tile.problem];
	/* Slices have whole stages of k256.  k = 0 is one stage of zeros. */
	stages = (x.k + NIB_WEIGHT_STAGE_K - 1) / NIB_WEIGHT_STAGE_K;
	step = stages * tile.k_slice / p.k_slices * NIB_WEIGHT_STAGE_STEPS;
	s->steps =
	    min(stages * (tile.k_slice + 1) / p.k_slices * NIB_WEIGHT_STAGE_STEPS,
		(x.k + NIB_STEP_K - 1) / NIB_STEP_K) -
	    step;
	s->steps = max(s->steps, 1);
	s->left = x.k - step * NIB_STEP_K;
	s->round++;
	s->rows = tile.rows;
	s->flags = x.flags;
	s->a = x.a + (p.is_batch ? tile.matrix * p.batch.a : 0) +
	       (tile.first_row + tile.row) * x.a_stride + step * NIB_GEMM_A_ROW_BYTES +
	       thread % 8 * 16;
#pragma unroll
	for (int i = 0; i < NIB_GEMM_M_MAX / A_ROWS; i++)
		s->a_rows[i] =
		    (uint32_t)(min((int32_t)thread / 8 + i * A_ROWS, tile.valid - 1) *
			       x.a_stride / 16);
	begin_weights<TRAITS>(p, tile, step, s);
	return true;
}

/* ---- loads ------------------------------------------------------------------ */

/* Copies `bytes` of a piece of 16 bytes, a multiple of 8; the rest becomes zero. */
DEVICE void copy_codes_edge(uint32_t to, const uint8_t *from, int32_t bytes)
{
#pragma unroll
	for (int i = 0; i < 16; i += 8) {
		if (i < bytes) {
			cp_async_8_zfill(to + i, from + i, 8);
		} else {
			sts_32(to + i, 0);
			sts_32(to + i + 4, 0);
		}
	}
}

/* Copies the scales of `groups` groups of a row; the others are not used. */
DEVICE void copy_linear_scales(uint32_t to, const uint8_t *from, int32_t groups,
			       bool by_1)
{
	if (groups >= 4 && !by_1) {
		cp_async_4(to, from, 4);
		return;
	}
#pragma unroll 1
	for (int32_t i = 0; i < 4; i++)
		sts_u8(to + i, i < groups ? __ldg(from + i) : 0);
}

/* Loads a stage of which k ends inside, or whose operands need small loads. */
template <class TRAITS>
DEVICE void load_edge(const struct stream<TRAITS> &s, uint32_t at)
{
	const int32_t k = opaque(threadIdx.x) % 8 * 8; /* of the thread's pieces of A */
	const int32_t codes =
	    min(max((s.left - (int32_t)opaque(threadIdx.x) % 2 * 32) / 2, 0), 16);

#pragma unroll
	for (int i = 0; i < NIB_GEMM_M_MAX / A_ROWS; i++) {
		if (i * A_ROWS >= s.rows)
			break;
		if (k < s.left)
			cp_async_16_l2_128(s.a_to + at + i * A_ROWS_BYTES,
					   s.a + s.a_rows[i] * (int64_t)16);
		else
			sts_128(s.a_to + at + i * A_ROWS_BYTES, make_uint4(0, 0, 0, 0));
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (codes == 16 && !(s.flags & NIB_B_CODES_BY_8))
			cp_async_16_l2_128(s.codes_to + at + i * 4096,
					   s.codes + i * (s.codes_row * (int64_t)8));
		else
			copy_codes_edge(s.codes_to + at + i * 4096,
					s.codes + i * (s.codes_row * (int64_t)8),
					codes);
	}
	if (s.scales_step != SCALE_TILE) {
		copy_linear_scales(s.scales_to + at, s.scales, s.left / 16,
				   s.flags & NIB_B_SCALES_BY_1);
	} else if (opaque(threadIdx.x) % 128 < 32) {
		if (s.left > 0)
			cp_async_16_l2_128(s.scales_to + at, s.scales);
		else
			sts_128(s.scales_to + at, make_uint4(0, 0, 0, 0));
	}
}

/* Copies part `i` of PARTS of a stage, if it is inside the matrices, 16 bytes at a
 * time. */
template <class TRAITS>
DEVICE void load_part(const struct stream<TRAITS> &s, uint32_t at, int i,
		      bool is_inside)
{
	if (is_inside && i * A_ROWS < s.rows)
		cp_async_16_l2_128(s.a_to + at + i * A_ROWS_BYTES,
				   s.a + s.a_rows[i] * (int64_t)16);
	if (i < 2 && is_inside)
		cp_async_16_l2_128(s.codes_to + at + i * 4096,
				   s.codes + i * (s.codes_row * (int64_t)8));
	if (i == 2 && is_inside && opaque(threadIdx.x) % 128 < 32)
		cp_async_16_l2_128(s.scales_to + at, s.scales);
}

/* Is the stream's next stage inside the matrices, and of the tile that has begun? */
template <class TRAITS>
DEVICE bool is_inside(const struct stream<TRAITS> &s)
{
	return s.steps > 0 && s.left >= NIB_STEP_K && s.flags & NIB_B_BY_16;
}

/*
 * Requests what load_part() did not copy of the stream's next stage, if one is left,
 * and writes its tag.
 */
template <class TRAITS>
DEVICE void load_rest(const struct nib_gemm_args &p, const struct gemm_shared &shared,
		      bool is_loaded, struct ring *to, struct stream<TRAITS> *s)
{
	const uint32_t at = to->stage * p.stage_bytes;
	const uint32_t full = shared.full + to->stage * 8;
	uint32_t tag = TAG_END;

	if (is_loaded || s->steps > 0 || begin_tile<TRAITS>(p, shared, s)) {
		tag = min(max(s->left, 0) / 16, NIB_STEP_K / 16) | s->rows << TAG_ROWS;
		if (s->steps == 1)
			tag |= TAG_LAST;
		if (!is_loaded)
			load_edge<TRAITS>(*s, at);
		s->a += NIB_GEMM_A_ROW_BYTES;
		s->codes += NIB_STEP_K / 2;
		s->scales += s->scales_step;
		s->left -= NIB_STEP_K;
		s->steps--;
	}
	cp_async_mbarrier_arrive(full);
	if (opaque(threadIdx.x) == 0)
		sts_32(shared.tags + to->stage * 4, tag);
	__syncwarp();
	if (opaque(threadIdx.x) % 32 == 0)
		mbarrier_arrive(full);
	advance(to, p.stages);
}

#endif
