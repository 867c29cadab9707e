/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for up to 16 rows of A in fp16,
 * bf16 or NVFP4, which becomes fp16.  Reads B once; the weights of an expert (MoE)
 * are read once for each 8 of its rows.
 *
 *   16 consumer warps                            4 producer warps
 *   B --cp.async--> ring of the warp             A --ld.global--> registers
 *     --lds--> codes * scales in A's type          --permute, sts--> chunk
 *     --mma.m16n8k16--> sums  <--lds-- chunk of A <--full--  |
 *                                |-------------empty-------->|
 *   sums --sts--> shared --all consumers, in order of k--> C
 *
 *   warp      role                               registers  waits for
 *   0 .. 15   load a tile of B, multiply, add,   96         full, own cp.async,
 *             store                                         SUMS_BAR
 *   16 .. 19  load, convert and permute A        96         empty
 *
 * A tile is 16 rows of B.  A CTA has a range of neighbouring tiles and multiplies
 * tiles_at_once of them in a round, each by k_groups warps: warp j of a tile multiplies
 * the steps of k256 number j, j + k_groups, ...  All warps read the same chunks of A,
 * k256 of all rows each, which pass through a ring once a round.  The consumer warps
 * load the first chunks themselves, one each, because they have nothing to multiply
 * yet.
 *
 * Half tiles (at most 8 rows of A): the last tiles of a round may have two warps for
 * each k group (params.half_tiles), so that each scheduler has as many warps.  Both
 * load the codes, and each multiplies one half of every block of 16 k.  A warp that has
 * a whole tile also has a sum for each half and adds them at the end of the round, so
 * that the bits are the same.
 *
 * Start: a warp requests its first weights before the previous kernel of the stream has
 * ended, unless that kernel writes them.  Then it requests A, and in short products the
 * other stages of its ring only after A.
 *
 *   barrier   arrivals of a phase                         first wait
 *   full      32: the lanes of the warp that loaded it    consumers, phase 0
 *   empty     32 for each warp of a k group               producers: phase 0 of a
 *                                                         slot's second chunk
 *   SUMS_BAR  bar.sync of the consumer warps, before and after the sums are read
 *
 * (One lane could arrive for its warp just as fast, but compute-sanitizer would report
 * the accesses of the other lanes as a race.)  A wait distinguishes only neighbouring
 * phases, so that all chunks of a slot must have one producer and one k group in a
 * round: both counts divide CHUNKS.  The k group of a slot may change from one round to
 * the next, because the consumers meet at SUMS_BAR in between.  A warp without a tile
 * still arrives.  A warp's ring of B needs no barrier: each lane waits for its own
 * copies, then __syncwarp() joins the lanes.
 *
 *   dynamic shared memory        bytes (8 rows of A; 16 rows)
 *   rings of B                   16 * STAGES * 2304 = 147456; 73728
 *   chunks of A                  CHUNKS * CHUNK_BYTES = 65536; 98304
 *   sums of the warps            16 * 512; 16 * 1024
 *   full, empty                  16 a chunk
 *   MoE: units, rows of scales   4352
 *
 * Arithmetic: a code times its scale, times 2^-6 (bf16: 2^-7), is exact in A's type.
 * An mma adds 16 products to sums in fp32: 4 k from each lane of the quad, whose blocks
 * are neighbours; 4 mma multiply k64.  At the end the sums of a tile's warps are added
 * in fp32.  Bound: docs/numerics.md, section 10.
 *
 * Order of the sum of an element: the steps of a k group in order of k (with at most 8
 * rows of A, the halves of the blocks in two sums that are added last), then the
 * k groups.  It depends on n, k, the number of SMs and whether m is more than 8; for
 * experts also on their number and that of their rows.
 *
 * Roofline: the rate of memory.  At 4.65 TB/s a lane has 32 issue slots for 8 weights.
 * Codes times scales take 15 with fp16 (4 F2FP, 4 LOP3, 3 shifts, 4 HMUL2) and 19 with
 * bf16 (8 LOP3, 7 shifts, 4 HMUL2), each 8 rows of A 1.5 (1 mma, 0.5 LDS), and loads of
 * codes and scales 2.  One CTA is resident on an SM, with at most 96 registers a
 * thread.
 */
#ifndef NIB_SKINNY_CUH
#define NIB_SKINNY_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/kernels/common/kernel_name.h"

#include "skinny_chunks.cuh"

/* The named barrier of the consumer warps. */
#define SUMS_BAR 1

/* ---- a warp's ring of B -------------------------------------------------- */

/*
 * A stage of the ring: k256 of 16 rows of B.  Row r of the codes is 128 bytes, 8 pieces
 * of 16 bytes.  Pieces 2j and 2j + 1 are the k64 number j of the step.  They are stored
 * at slots 2(j ^ r % 4) and 2(j ^ r % 4) + 1:
 *
 *   slot of 16 bytes    0  1   2  3   4  5   6  7
 *   row 0, 4, 8, 12     j=0    j=1    j=2    j=3
 *   row 1, 5, 9, 13     j=1    j=0    j=3    j=2
 *   row 2, 6, 10, 14    j=2    j=3    j=0    j=1
 *   row 3, 7, 11, 15    j=3    j=2    j=1    j=0
 *
 * Lane 4g + t reads the block number t of k64 j of row g, 8 bytes, so that the four
 * rows of a half-warp read different banks.  The scales follow, as gemv_load.cuh stores
 * them.
 */

/* The offset in a stage of the first piece that a lane loads: piece lane % 8 of row
 * lane / 8.  The others are 4, 8 and 12 rows further. */
DEVICE uint32_t piece_target(void)
{
	const int lane = threadIdx.x % 32, piece = lane % 8, r = lane / 8;

	return r * ROW_BYTES + (piece ^ r * 2) * 16;
}

/* What a lane loads for the warp's next step, and what differs in the last step. */
struct lane_source {
	const uint8_t *codes[4];
	const uint8_t *scales;
	/* In the last step a lane whose k are all beyond the end loads from this many
	 * bytes earlier: any valid bytes, since A is zero there. */
	int codes_back, scales_back;
	uint32_t scale_bytes; /* to load in the last step; 16 in all others */
};

/* A warp's ring of B: its addresses, and what is loaded and multiplied next. */
struct b_ring {
	uint32_t begin;		/* of the ring in shared memory */
	uint32_t codes, scales; /* the lane's offsets in a stage */
	int stage;		/* the next to be multiplied */
	uint32_t assignment;	/* NIB_SKINNY_ASSIGNMENT() */
	/* The next to be loaded; none is left if its round has no tiles. */
	struct position next;
	/* TRAITS::ALIGNED uses the first, other layouts the second. */
	struct lane_source lane;
	struct source any;
};

/* The number of consumer warps that multiply in a full round. */
DEVICE int busy_warps(const struct nib_skinny_params &params)
{
	return (params.tiles_at_once + params.half_tiles) * params.k_groups;
}

DEVICE int tile_of(uint32_t assignment)
{
	return (int)(assignment & 15);
}

DEVICE int k_group_of(uint32_t assignment)
{
	return (int)(assignment >> 4 & 15);
}

DEVICE int half_of(uint32_t assignment)
{
	return (int)(assignment >> 8);
}

/* A round may have fewer tiles than tiles_at_once: the warps of the missing tiles only
 * arrive at the barriers. */
DEVICE bool has_tile(uint32_t assignment, const struct round &round)
{
	return tile_of(assignment) < round.count;
}

/*
 * A lane's addresses at a step.  Rows beyond the matrix are replaced by the last row
 * inside.  In an incomplete last step, lanes beyond the end of k load earlier bytes,
 * which are multiplied by zeros of A.
 */
DEVICE struct lane_source lane_source_of(const struct nib_gemv_params &p,
					 const struct nib_gemv_operand &b,
					 const struct source &from, int step)
{
	const int last = all_steps(p) - 1, at = last * ROW_BYTES;
	const int scales = from.blocks - last * STEP_BLOCKS;
	struct lane_source source;

	source.codes[0] = from.codes + step * ROW_BYTES;
#pragma unroll
	for (int i = 1; i < 4; i++)
		source.codes[i] =
		    source.codes[i - 1] + (i < from.rows ? row_pitch(b) : 0);
	source.scales = from.scales + (int64_t)step * scale_step_bytes(b);
	source.codes_back = at < from.bytes ? 0 : at;
	source.scales_back = scales > 0 ? 0 : last * scale_step_bytes(b);
	source.scale_bytes = b.is_tiled ? 16 : min(max(scales, 0), 16);
	return source;
}

DEVICE void load_lane(const struct nib_gemv_operand &b, struct lane_source *source,
		      uint32_t codes_to, uint32_t scales_to, int steps, bool is_last)
{
	const int back = is_last ? source->codes_back : 0;
	const int scales_back = is_last ? source->scales_back : 0;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		cp_async_16_l2_256(codes_to + i * 4 * ROW_BYTES,
				   source->codes[i] - back);
		source->codes[i] += steps * ROW_BYTES;
	}
	if (threadIdx.x % 32 < 16)
		cp_async_16(scales_to, source->scales - scales_back,
			    is_last ? source->scale_bytes : 16);
	source->scales += steps * scale_step_bytes(b);
}

/* Points the ring at the warp's tile of its round. */
template <class TRAITS>
DEVICE void begin_tile(const struct nib_skinny_params &params,
		       const struct nib_gemv_operand &b, const struct cta &cta,
		       struct b_ring *ring)
{
	struct nib_gemv_operand matrix = b;
	int tile = ring->next.round.tile + tile_of(ring->assignment);
	struct source from;

	if (TRAITS::IS_MOE) {
		const int u = tile / params.p.tiles;
		const int64_t expert = unit_of(cta.units[u]).expert;

		matrix.codes += expert * b.batch_stride;
		matrix.scales += expert * b.scale_batch_stride;
		tile -= u * params.p.tiles;
	}
	from = source_of(params.p, matrix, tile);
	if (TRAITS::ALIGNED)
		ring->lane = lane_source_of(params.p, b, from, ring->next.step);
	else
		ring->any = from;
}

/* The ring's round, or the first one after it in which the warp has a tile. */
template <class TRAITS>
DEVICE void find_tile(const struct nib_skinny_params &params,
		      const struct nib_gemv_operand &b, const struct cta &cta,
		      struct b_ring *ring)
{
	while (ring->next.round.count > 0 &&
	       !has_tile(ring->assignment, ring->next.round))
		ring->next.round = next_round<TRAITS>(params, cta, ring->next.round);
	ring->next.step = k_group_of(ring->assignment);
	if (ring->next.round.count > 0)
		begin_tile<TRAITS>(params, b, cta, ring);
}

template <class TRAITS>
DEVICE void load_next(const struct nib_skinny_params &params,
		      const struct nib_gemv_operand &b, const struct cta &cta,
		      struct b_ring *ring, int steps, int stage)
{
	const uint32_t to = ring->begin + stage * NIB_GEMV_STAGE_BYTES;
	const int step = ring->next.step;

	if (ring->next.round.count > 0 && step < steps) {
		if (TRAITS::ALIGNED)
			load_lane(b, &ring->lane, to + ring->codes, to + ring->scales,
				  params.k_groups, step + 1 == steps);
		else
			load_any_step(b, ring->any, to + ring->codes, to + ring->scales,
				      step);
		ring->next.step += params.k_groups;
		if (ring->next.step >= steps) {
			ring->next.round =
			    next_round<TRAITS>(params, cta, ring->next.round);
			find_tile<TRAITS>(params, b, cta, ring);
		}
	}
	cp_async_commit_group();
}

/* Requests the warp's next steps, into stages first to end - 1. */
template <class TRAITS>
DEVICE void fill_stages(const struct nib_skinny_params &params,
			const struct nib_gemv_operand &b, const struct cta &cta,
			struct b_ring *ring, int first, int end)
{
#pragma unroll 1
	for (int stage = first; stage < end; stage++)
		load_next<TRAITS>(params, b, cta, ring, all_steps(params.p), stage);
}

/*
 * The stages that are requested before A.  Short products request one, because A would
 * wait for all of them.  Long products request all: for them early weights matter
 * more.  So do 16 rows of 16-bit values, which leave no registers for the choice, and
 * experts, where it was not measured.
 */
template <class TRAITS>
DEVICE int early_stages(const struct nib_skinny_params &params)
{
	const bool is_short = all_steps(params.p) <= 4 * params.k_groups;

	return is_short && !TRAITS::IS_MOE && (TRAITS::N_TILES == 1 || TRAITS::IS_NVFP4)
		   ? 1
		   : TRAITS::STAGES;
}

template <class TRAITS>
DEVICE struct b_ring begin_ring(const struct nib_skinny_params &params,
				const struct nib_gemv_operand &b, const struct cta &cta)
{
	const int warp = threadIdx.x / 32;
	struct b_ring ring;

	ring.begin = cta.shared + warp * TRAITS::STAGES * NIB_GEMV_STAGE_BYTES;
	ring.codes = piece_target();
	ring.scales = CODES_BYTES + threadIdx.x % 32 * 16;
	ring.stage = 0;
	ring.assignment = params.assignments[warp];
	ring.next.round = round_at<TRAITS>(params, cta, cta.tile);
	find_tile<TRAITS>(params, b, cta, &ring);
	fill_stages<TRAITS>(params, b, cta, &ring, 0, early_stages<TRAITS>(params));
	return ring;
}

/*
 * Every warp: loads one of the first chunks and then the ring's other stages.  No warp
 * has anything to multiply yet.
 */
template <class TRAITS>
DEVICE void produce_first_chunks(const struct nib_skinny_params &params,
				 const struct nib_gemv_operand &a,
				 const struct nib_gemv_operand &b,
				 const struct cta &cta, struct b_ring *ring)
{
	const int warp = threadIdx.x / 32;
	struct position pos = {round_at<TRAITS>(params, cta, cta.tile), warp};
	uint4 x[TRAITS::M];
	bool produces = warp < TRAITS::CHUNKS;

	if (produces) {
		find_position<TRAITS>(params, cta, all_steps(params.p), &pos);
		produces = pos.round.count > 0;
	}
	if (produces)
		load_chunk<TRAITS>(params.p, a, cta, pos, x);
	if (warp < busy_warps(params))
		fill_stages<TRAITS>(params, b, cta, ring, early_stages<TRAITS>(params),
				    TRAITS::STAGES);
	if (!produces)
		return;
	store_chunk<TRAITS>(cta.shared + TRAITS::CHUNKS_AT + warp * TRAITS::CHUNK_BYTES,
			    x);
	mbarrier_arrive(full<TRAITS>(cta.shared, warp));
}

/* ---- the multiplication -------------------------------------------------- */

/* What a lane reads of a stage; constant for the whole kernel. */
struct lane_view {
	uint32_t codes[4];     /* offsets of block t of k64 number j, row g */
	uint32_t scales;       /* offset of row g's scales of the first k64 */
	uint32_t scale_stride; /* to the scales of the next k64 */
	uint32_t pick;	       /* prmt: byte t of each of two words */
	int blocks;	       /* of the last step */
};

DEVICE struct lane_view view_of(const struct nib_gemv_params &p,
				const struct nib_gemv_operand &b)
{
	const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
	struct lane_view view;

#pragma unroll
	for (int j = 0; j < 4; j++)
		view.codes[j] = opaque(g * ROW_BYTES + (g % 4 ^ j) * 32 + t * 8);
	view.scales = CODES_BYTES + (b.is_tiled ? g / 4 * 64 + g % 4 * 4 : g * 16);
	view.scale_stride = opaque(b.is_tiled ? 16 : 4);
	view.pick = opaque(t | (t + 4) << 4);
	view.blocks = p.k / 16 - (all_steps(p) - 1) * STEP_BLOCKS;
	return view;
}

/* Two mma: d with the values from i on, e with those from j on. */
template <class TRAITS>
DEVICE void mma2(float (&d)[4], const uint32_t (&values)[2][8], int i, uint32_t x0,
		 uint32_t x1, float (&e)[4], int j, uint32_t y0, uint32_t y1)
{
	mma16<TRAITS::IS_BF16>(d, values[0] + i, values[1] + i, x0, x1);
	mma16<TRAITS::IS_BF16>(e, values[0] + j, values[1] + j, y0, y1);
}

/* scales[j]: the four scales of k64 number j, of rows g and g + 8. */
DEVICE void load_scales(const struct lane_view &view, uint32_t stage, bool is_last,
			uint32_t (&scales)[4][2])
{
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint32_t at = stage + view.scales + j * view.scale_stride;

		scales[j][0] = lds_32(at);
		scales[j][1] = lds_32(at + 8 * STEP_BLOCKS);
	}
	if (!is_last)
		return;
		/* Scales beyond the last block become 0. */
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const int left = view.blocks - 4 * j;
		const uint32_t mask = left >= 4	  ? ~0u
				      : left <= 0 ? 0
						  : (1u << 8 * left) - 1;

		scales[j][0] &= mask;
		scales[j][1] &= mask;
	}
}

/*
 * Adds a stage of B times a chunk of A; piece: the address of the lane's first piece of
 * the chunk.  Each mma depends on the previous one with the same accumulators, so that
 * there are two sets: with 8 rows of A for the halves of a block, with 16 for the n8
 * tiles.
 */
template <class TRAITS>
DEVICE void multiply(float (&acc)[2][4], const struct lane_view &view, uint32_t stage,
		     uint32_t piece, bool is_last)
{
	uint32_t scales[4][2];

	load_scales(view, stage, is_last, scales);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint32_t codes = stage + view.codes[j];
		uint32_t word[2][2], scale[2], values[2][8];
		uint4 x[TRAITS::N_TILES][2]; /* of A, the halves of the block */

#pragma unroll
		for (int i = 0; i < TRAITS::N_TILES * 2; i++)
			x[i / 2][i % 2] = lds_128(piece + i / 2 * CHUNK_N_TILE +
						  j * CHUNK_K64 + i % 2 * CHUNK_HALF);
		widen_scales<TRAITS::IS_BF16>(
		    prmt(scales[j][0], scales[j][1], view.pick), scale);
#pragma unroll
		for (int r = 0; r < 2; r++) {
			lds_64(codes + r * 8 * ROW_BYTES, &word[r][0], &word[r][1]);
			decode<TRAITS::IS_BF16>(word[r][0], scale[r], values[r]);
			decode<TRAITS::IS_BF16>(word[r][1], scale[r], values[r] + 4);
		}
		/* N_TILES = 1: the second mma has the other half of the block. */
#pragma unroll
		for (int h = 0; h < TRAITS::N_TILES; h++) {
			const int i = 4 * h, j2 = TRAITS::N_TILES == 1 ? 4 : i;
			const uint4 x0 = x[0][h];
			const uint4 x1 =
			    TRAITS::N_TILES == 1 ? x[0][1] : x[TRAITS::N_TILES - 1][h];

			mma2<TRAITS>(acc[0], values, i, x0.x, x0.y, acc[1], j2, x1.x,
				     x1.y);
			mma2<TRAITS>(acc[0], values, i + 2, x0.z, x0.w, acc[1], j2 + 2,
				     x1.z, x1.w);
		}
	}
}

/* The same for half tiles: the 8 k of half `half` of each block. */
template <class TRAITS>
DEVICE void multiply_half(float (&acc)[4], const struct lane_view &view, uint32_t stage,
			  uint32_t piece, int half, bool is_last)
{
	uint32_t scales[4][2];

	load_scales(view, stage, is_last, scales);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint32_t codes = stage + view.codes[j] + half * 4;
		const uint4 x = lds_128(piece + j * CHUNK_K64 + half * CHUNK_HALF);
		uint32_t scale[2], values[2][4];

		widen_scales<TRAITS::IS_BF16>(
		    prmt(scales[j][0], scales[j][1], view.pick), scale);
#pragma unroll
		for (int r = 0; r < 2; r++)
			decode<TRAITS::IS_BF16>(lds_32(codes + r * 8 * ROW_BYTES),
						scale[r], values[r]);
		mma16<TRAITS::IS_BF16>(acc, values[0], values[1], x.x, x.y);
		mma16<TRAITS::IS_BF16>(acc, values[0] + 2, values[1] + 2, x.z, x.w);
	}
}

template <class TRAITS>
DEVICE void multiply_tile(float (&acc)[2][4], const struct lane_view &view,
			  uint32_t stage, uint32_t piece, int half, bool is_last)
{
	if (TRAITS::N_TILES > 1 || half == NIB_SKINNY_WHOLE)
		multiply<TRAITS>(acc, view, stage, piece, is_last);
	else
		multiply_half<TRAITS>(acc[0], view, stage, piece, half, is_last);
}

/*
 * A warp's steps of its tile in round number `number`.  A warp without a tile only
 * arrives at the empty barriers.  Chunk and stage numbers are counted, because a
 * division would take a tenth of the loop.
 */
template <class TRAITS>
DEVICE void run_round(const struct nib_skinny_params &params,
		      const struct nib_gemv_operand &b, const struct cta &cta,
		      const struct lane_view &view, struct b_ring *ring, int number,
		      bool multiplies, float (&acc)[2][4])
{
	const int steps = all_steps(params.p), lane = threadIdx.x % 32;
	const uint32_t pieces = opaque(cta.shared + TRAITS::CHUNKS_AT + lane * 16);
	const uint32_t bars = opaque(full<TRAITS>(cta.shared, 0));
	const int first = number * steps + k_group_of(ring->assignment);
	int chunk = first % TRAITS::CHUNKS;
	uint32_t parity = first / TRAITS::CHUNKS % 2;

#pragma unroll 1
	for (int step = k_group_of(ring->assignment); step < steps;
	     step += params.k_groups) {
		const int stage = ring->stage;

		if (multiplies)
			cp_async_wait_group<TRAITS::STAGES - 1>();
		__syncwarp();
		wait(bars + chunk * 16, parity);
		if (multiplies)
			multiply_tile<TRAITS>(
			    acc, view, ring->begin + stage * NIB_GEMV_STAGE_BYTES,
			    pieces + chunk * TRAITS::CHUNK_BYTES,
			    half_of(ring->assignment), step + 1 == steps);
		__syncwarp();
		mbarrier_arrive(bars + chunk * 16 + 8);
		if (multiplies) {
			load_next<TRAITS>(params, b, cta, ring, steps, stage);
			ring->stage = stage + 1 == TRAITS::STAGES ? 0 : stage + 1;
		}
		chunk += params.k_groups;
		if (chunk >= TRAITS::CHUNKS) {
			chunk -= TRAITS::CHUNKS;
			parity ^= 1;
		}
	}
}

/* ---- sums ---------------------------------------------------------------- */

/* Stores a warp's sums: [row of A][16 rows of B]. */
template <class TRAITS>
DEVICE void store_sums(float *sums, const float (&acc)[2][4])
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < TRAITS::N_TILES * 4; i++) {
		const int row = i / 4 * 8 + 2 * t + i % 2;

		sums[row * NIB_GEMV_TILE_ROWS + g + i / 2 % 2 * 8] =
		    TRAITS::N_TILES == 1 ? acc[0][i] + acc[1][i] : acc[i / 4][i % 4];
	}
}

DEVICE void store(const struct nib_gemv_params &p, int64_t index, float x)
{
	if (p.c_dtype == 0)
		((float *)p.c)[index] = x;
	else if (p.c_dtype == 1)
		((__half *)p.c)[index] = __float2half_rn(x);
	else
		((__nv_bfloat16 *)p.c)[index] = __float2bfloat16_rn(x);
}

/*
 * The slot of a warp's sums in shared memory, for T = tiles_at_once, G = k_groups and
 * H = half_tiles (the half tiles are the last H of the T):
 *
 *   0 .. T - 1         tiles of k group 0 (of half tiles the first halves)
 *   T .. 2 T - 1       tiles of k group 1, and so on to k group G - 1
 *   G T .. G T + H-1   second halves of k group 0, then those of k group 1, ...
 */
DEVICE int sums_slot(const struct nib_skinny_params &params, uint32_t assignment)
{
	const int tile = tile_of(assignment), group = k_group_of(assignment);

	if (half_of(assignment) != 1)
		return group * params.tiles_at_once + tile;
	return (params.k_groups - 1) * params.tiles_at_once +
	       (group + 1) * params.half_tiles + tile;
}

/* The sum of a tile's warps; x: an element of the tile's first slot (sums_slot()). */
DEVICE float add_warps(const struct nib_skinny_params &params, const float *x, int size,
		       int tile)
{
	const int pitch = params.tiles_at_once * size;
	const int i = tile - (params.tiles_at_once - params.half_tiles);
	float sum = x[0];

	if (i < 0) {
		for (int j = 1; j < params.k_groups; j++)
			sum += x[j * pitch];
		return sum;
	}
	sum += x[params.k_groups * pitch + (i - tile) * size];
	/*
	 * With two k groups there is one half tile: its second halves are neighbours.
	 */
	if (params.k_groups == 2)
		sum += x[pitch] + x[2 * pitch + (i + 1 - tile) * size];
	return sum;
}

/* Adds the sums of each tile of a round and stores C; for MoE the unit's rows. */
template <class TRAITS>
DEVICE void store_tiles(const struct nib_skinny_params &params, const struct cta &cta,
			const struct round &round, const float *sums, float alpha)
{
	const int size = NIB_SKINNY_SUMS(TRAITS::N_TILES);
	const bool is_tiled = TRAITS::IS_MOE || params.p.b.is_tiled;

	for (int i = threadIdx.x; i < round.count * size; i += NIB_SKINNY_WARPS * 32) {
		/* Neighbouring lanes store rows that are neighbours in C. */
		const int four = i % 4 * 4 + i / 4 % 4;
		const int at = is_tiled ? four : i % NIB_GEMV_TILE_ROWS;
		const int m = i % size / NIB_GEMV_TILE_ROWS;
		const float *x = sums + i / size * size + m * NIB_GEMV_TILE_ROWS + at;
		const float sum = add_warps(params, x, size, i / size);
		struct unit u = {0, 0, params.p.m};
		int tile = round.tile + i / size;
		int64_t row;

		if (TRAITS::IS_MOE) {
			u = unit_of(cta.units[tile / params.p.tiles]);
			tile %= params.p.tiles;
			if (params.p.alpha)
				alpha = __ldg(params.p.alpha + u.expert);
		}
		row = nib_gemv_row(tile, at, is_tiled);
		if (row < params.p.n && round.row + m >= u.row &&
		    round.row + m < u.row + u.rows)
			store(params.p,
			      blockIdx.y * params.p.c_batch_stride +
				  (round.row + m) * params.p.c_row_stride + row,
			      result<TRAITS::IS_BF16>(sum, alpha));
	}
}

/* ---- the kernel ---------------------------------------------------------- */

DEVICE struct nib_gemv_operand operand_of_batch(struct nib_gemv_operand v)
{
	v.codes += blockIdx.y * v.batch_stride;
	v.scales += blockIdx.y * v.scale_batch_stride;
	return v;
}

template <class TRAITS>
DEVICE void init_barriers(uint32_t shared, int readers)
{
	if (threadIdx.x < TRAITS::CHUNKS) {
		mbarrier_init(full<TRAITS>(shared, threadIdx.x), 32);
		mbarrier_init(empty<TRAITS>(shared, threadIdx.x), readers * 32);
	}
}

template <class TRAITS>
DEVICE void run_all(const struct nib_skinny_params &params,
		    const struct nib_gemv_operand &b, const struct cta &cta,
		    struct b_ring *ring, float *sums)
{
	const int warp = threadIdx.x / 32;
	const bool works = warp < busy_warps(params);
	const float alpha = params.p.alpha && !TRAITS::IS_MOE ? *params.p.alpha : 1;
	const struct lane_view view = view_of(params.p, b);
	struct round round = round_at<TRAITS>(params, cta, cta.tile);

#pragma unroll 1
	for (int number = 0; round.count > 0; number++) {
		float acc[2][4] = {};

		if (works) {
			run_round<TRAITS>(params, b, cta, view, ring, number,
					  has_tile(ring->assignment, round), acc);
			store_sums<TRAITS>(sums + sums_slot(params, ring->assignment) *
						      NIB_SKINNY_SUMS(TRAITS::N_TILES),
					   acc);
		}
		bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
		store_tiles<TRAITS>(params, cta, round, sums, alpha);
		bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
		round = next_round<TRAITS>(params, cta, round);
	}
}

/* The CTA's range of tiles; for MoE after the tables of units are written. */
template <class TRAITS>
DEVICE struct cta begin_cta(const struct nib_skinny_params &params, uint8_t *bytes)
{
	const uint64_t tiles =
	    (uint64_t)params.p.tiles *
	    (TRAITS::IS_MOE ? fill_units<TRAITS>(params.moe, bytes) : 1);

	return {smem_addr(bytes), (int)(blockIdx.x * tiles / gridDim.x),
		(int)((blockIdx.x + 1) * tiles / gridDim.x),
		(const uint32_t *)(bytes + TRAITS::UNITS_AT),
		(const int32_t *)(bytes + TRAITS::SCALE_ROWS_AT)};
}

template <class TRAITS>
DEVICE void skinny_gemm(const struct nib_skinny_params &params)
{
	extern __shared__ __align__(128) uint8_t bytes[];
	const struct nib_gemv_operand a = operand_of_batch(params.p.a);
	struct nib_gemv_operand b = operand_of_batch(params.p.b);
	const int warp = threadIdx.x / 32;
	struct b_ring ring;
	struct cta cta;

	griddepcontrol_launch_dependents();
	/* The row offsets of experts are written by the previous kernel, too. */
	if (TRAITS::IS_MOE || !params.p.b_is_constant)
		griddepcontrol_wait();
	cta = begin_cta<TRAITS>(params, bytes);
	init_barriers<TRAITS>(cta.shared, params.tiles_at_once + params.half_tiles);
	if (TRAITS::IS_MOE) {
		b.is_tiled = true;
		__syncthreads();
	}
	if (warp < busy_warps(params))
		ring = begin_ring<TRAITS>(params, b, cta);
	griddepcontrol_wait();
	__syncthreads();
	produce_first_chunks<TRAITS>(params, a, b, cta, &ring);
	if (warp < NIB_SKINNY_WARPS)
		run_all<TRAITS>(params, b, cta, &ring,
				(float *)(bytes + TRAITS::SUMS_AT));
	else
		produce_chunks<TRAITS>(params, a, cta);
}

/* kind: skinny or wide; the other arguments: its TRAITS. */
#define SKINNY_KERNEL(name, kind, ...)                                                 \
	extern "C" __global__ void __launch_bounds__(NIB_SKINNY_THREADS, 1)            \
	    NIB_KERNEL(skinny_##name)(                                                 \
		const __grid_constant__ struct nib_##kind##_params params)             \
	{                                                                              \
		kind##_gemm<__VA_ARGS__>(params);                                      \
	}

/*
 * The kernels for a type of A.  Units of experts have 8 rows: with 16 all MoE problems
 * that are planned for these kernels were slower.
 */
#define SKINNY_KERNELS(type, suffix)                                                   \
	SKINNY_KERNEL(8##suffix, skinny, skinny<1, B_ALIGNED, type>)                   \
	SKINNY_KERNEL(8_any##suffix, skinny, skinny<1, B_ANY, type>)                   \
	SKINNY_KERNEL(16##suffix, skinny, skinny<2, B_ALIGNED, type>)                  \
	SKINNY_KERNEL(16_any##suffix, skinny, skinny<2, B_ANY, type>)                  \
	SKINNY_KERNEL(experts_8##suffix, skinny, skinny<1, B_EXPERTS, type>)

#endif
