/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for up to 16 rows of A in
 * fp16, bf16 or NVFP4, which becomes fp16.  Reads B once; that of an expert (MoE)
 * once for each eight of its rows.
 *
 *   16 warps that multiply                         4 warps that bring A
 *   B --cp.async--> ring of the warp               A --ld.global--> registers
 *     --lds--> codes * scales in A's type            --permute, sts--> chunk
 *     --mma.m16n8k16--> sums  <--lds-- chunk of A  <--full--   |
 *                                |------------------empty----->|
 *   sums --sts--> shared --all warps, in order of k--> C
 *
 * A tile is 16 rows of B.  A CTA owns neighbouring tiles.  It multiplies
 * tiles_at_once of them at a time, each by k_groups warps: warp j of a tile
 * takes the steps of 256 k number j, j + k_groups, ...  All warps read the same
 * chunks of A, 256 k of all rows each, which go through a ring once for all
 * tiles that are multiplied at a time (a round).  The first chunks are brought
 * by as many warps, one each, which have nothing else to do yet.
 *
 * Up to eight rows of A: the last tiles may have two warps for each group of
 * steps (halved_tiles, gemv.c), so that each scheduler has as many warps.  Both
 * load the codes, and each multiplies eight of a block's 16 k.  A warp with a
 * whole tile keeps these two sums apart, too, and adds them at the end of a
 * round, so the bits are the same.
 *
 * Start: the first weights are asked for before the kernel before has ended, if
 * no kernel writes them, A after it, and in short products the other stages of the
 * ring after A.
 *
 * Barriers: full[chunk], one arrival of each lane of the warp that brought it;
 * empty[chunk], one of each lane of the warps that have read it.  (One lane
 * could arrive for its warp as fast, but compute-sanitizer would call what the
 * others did a race.)  A barrier tells a phase from the next one alone, so all
 * uses of a chunk's space in a round belong to one bringer and to one of the
 * k_groups: both numbers divide the number of chunks.  The group may change from
 * a round to the next: all warps meet at SUMS_BAR between them, and a warp
 * without a tile arrives at the barriers, too.  A warp's ring of B needs no
 * barrier: each lane waits for its own copies, and the warp for its lanes.
 *
 * Arithmetic: a code times its scale, times 2^-6 (in bf16 2^-7), is exact in A's
 * type.  An mma adds 16 products to sums in fp32: 4 k of each of the quad's four lanes, whose
 * blocks are neighbours; 4 mma do 64 k.  Then the sums of a tile's warps are
 * added in fp32.  Bound: docs/numerics.md, section 10.
 *
 * Order of the sum of a row: a group's steps one after the other (up to eight
 * rows of A the first and the second eight k of each block apart, then their
 * sum), then the k_groups.  It depends on n, k, the GPU's multiprocessors and
 * whether m is more than 8; with experts also on their number and that of their
 * rows.
 *
 * Roofline: the memory's rate.  At 4.65 TB/s a lane has 32 issue slots for 8
 * weights.  It takes for codes times scales 15 with fp16 (4 F2FP, 4 LOP3, 3
 * shifts, 4 HMUL2) and 19 with bf16 (8 LOP3, 7 shifts, 4 HMUL2), 1.5 for each
 * eight rows of A (1 mma, 0.5 LDS), and 2 to load codes and scales.
 *
 * Shared memory (skinny_params.h): 16 rings of NIB_SKINNY_STAGES stages of 2304
 * bytes, NIB_SKINNY_CHUNKS chunks of 4 or 8 KiB, sums, barriers.  One CTA on an
 * SM, at most 96 registers.
 */
#ifndef NIB_SKINNY_CUH
#define NIB_SKINNY_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/kernels/common/kernel_name.h"

#include "skinny_chunks.cuh"

/* The barrier of the warps that multiply. */
#define SUMS_BAR 1

/* ---- a warp's ring of B -------------------------------------------------- */

/*
 * A lane's first piece in a stage: pairs of pieces of a row are swapped by the
 * row's number (banks).
 */
DEVICE uint32_t piece_target(void)
{
	const int lane = threadIdx.x % 32, piece = lane % 8, r = lane / 8;

	return r * ROW_BYTES + (piece ^ r * 2) * 16;
}

/* What a lane loads of the warp's next step, and what of the last one of a row.
 */
struct lane_source {
	const uint8_t *codes[4];
	const uint8_t *scales;
	int codes_back;	      /* how far the last step's codes lie before it */
	int scales_back;      /* the same of its scales */
	uint32_t scale_bytes; /* of the last step; else 16, or 0: none */
};

/* What a warp loads next, and where it is to lie. */
struct b_ring {
	uint32_t begin, codes, scales;
	int stage;	/* the next to be multiplied */
	uint32_t share; /* NIB_SKINNY_SHARE() */
	/* The next to be loaded; of no round: there is none. */
	struct round_step next;
	/* The first is for rows of 16-byte pieces, the second for any. */
	struct lane_source lane;
	struct source any;
};

/* Warps that have a share of the tiles. */
DEVICE int busy_warps(const struct nib_skinny_params &q)
{
	return (q.tiles_at_once + q.halved_tiles) * q.k_groups;
}

DEVICE int tile_of(uint32_t share)
{
	return (int)(share & 15);
}

DEVICE int group_of(uint32_t share)
{
	return (int)(share >> 4 & 15);
}

DEVICE int half_of(uint32_t share)
{
	return (int)(share >> 8);
}

/* A round may have fewer tiles than tiles_at_once: warps of the last tiles then
 * have none. */
DEVICE bool has_tile(uint32_t share, const struct round &r)
{
	return tile_of(share) < r.count;
}

/*
 * A lane's addresses at a step.  Rows that are not there are the last one that
 * is; of a last step that is not whole, lanes behind the end load the bytes
 * before it, which are multiplied by zeros.
 */
DEVICE struct lane_source lane_source_of(const struct nib_gemv_params &p,
					 const struct nib_gemv_operand &b,
					 const struct source &from, int step)
{
	const int last = all_steps(p) - 1, at = last * ROW_BYTES;
	const int scales = from.blocks - last * STEP_BLOCKS;
	struct lane_source s;

	s.codes[0] = from.codes + step * ROW_BYTES;
#pragma unroll
	for (int i = 1; i < 4; i++)
		s.codes[i] = s.codes[i - 1] + (i < from.rows ? row_pitch(b) : 0);
	s.scales = from.scales + (int64_t)step * scale_step_bytes(b);
	s.codes_back = at < from.bytes ? 0 : at;
	s.scales_back = scales > 0 ? 0 : last * scale_step_bytes(b);
	s.scale_bytes = b.is_tiled ? 16 : min(max(scales, 0), 16);
	return s;
}

DEVICE void load_lane(const struct nib_gemv_operand &b, struct lane_source *s,
		      uint32_t codes_to, uint32_t scales_to, int steps, bool is_last)
{
	const int back = is_last ? s->codes_back : 0;
	const int scales_back = is_last ? s->scales_back : 0;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		cp_async_16_l2_256(codes_to + i * 4 * ROW_BYTES, s->codes[i] - back);
		s->codes[i] += steps * ROW_BYTES;
	}
	if (threadIdx.x % 32 < 16)
		cp_async_16(scales_to, s->scales - scales_back,
			    is_last ? s->scale_bytes : 16);
	s->scales += steps * scale_step_bytes(b);
}

/* Points the ring at the warp's tile of its round. */
template <class V>
DEVICE void begin_tile(const struct nib_skinny_params &q,
		       const struct nib_gemv_operand &b, const struct cta &c,
		       struct b_ring *r)
{
	struct nib_gemv_operand matrix = b;
	int tile = r->next.at.tile + tile_of(r->share);
	struct source from;

	if (V::IS_MOE) {
		const int u = tile / q.p.tiles;
		const int64_t expert = unit_of(c.units[u]).expert;

		matrix.codes += expert * b.batch_stride;
		matrix.scales += expert * b.scale_batch_stride;
		tile -= u * q.p.tiles;
	}
	from = source_of(q.p, matrix, tile);
	if (V::ALIGNED)
		r->lane = lane_source_of(q.p, b, from, r->next.step);
	else
		r->any = from;
}

/* The ring's round, or the first one after it in which the warp has a tile. */
template <class V>
DEVICE void find_tile(const struct nib_skinny_params &q,
		      const struct nib_gemv_operand &b, const struct cta &c,
		      struct b_ring *r)
{
	while (r->next.at.count > 0 && !has_tile(r->share, r->next.at))
		r->next.at = next_round<V>(q, c, r->next.at);
	r->next.step = group_of(r->share);
	if (r->next.at.count > 0)
		begin_tile<V>(q, b, c, r);
}

template <class V>
DEVICE void load_next(const struct nib_skinny_params &q,
		      const struct nib_gemv_operand &b, const struct cta &c,
		      struct b_ring *r, int steps, int stage)
{
	const uint32_t to = r->begin + stage * NIB_GEMV_STAGE_BYTES;
	const int step = r->next.step;

	if (r->next.at.count > 0 && step < steps) {
		if (V::ALIGNED)
			load_lane(b, &r->lane, to + r->codes, to + r->scales,
				  q.k_groups, step + 1 == steps);
		else
			load_any_step(b, r->any, to + r->codes, to + r->scales, step);
		r->next.step += q.k_groups;
		if (r->next.step >= steps) {
			r->next.at = next_round<V>(q, c, r->next.at);
			find_tile<V>(q, b, c, r);
		}
	}
	cp_async_commit_group();
}

/* Asks for the steps of stages first to end - 1. */
template <class V>
DEVICE void fill_stages(const struct nib_skinny_params &q,
			const struct nib_gemv_operand &b, const struct cta &c,
			struct b_ring *r, int first, int end)
{
#pragma unroll 1
	for (int stage = first; stage < end; stage++)
		load_next<V>(q, b, c, r, all_steps(q.p), stage);
}

/*
 * Stages that are asked for before A, which then comes behind them: all of them
 * would keep A waiting.  Warps of many steps have more to lose than that, and 16 rows
 * of 16-bit values leave no registers for it; experts have not been measured.
 */
template <class V>
DEVICE int early_stages(const struct nib_skinny_params &q)
{
	const bool is_short = all_steps(q.p) <= 4 * q.k_groups;

	return is_short && !V::IS_MOE && (V::EIGHTS == 1 || V::IS_NVFP4) ? 1
									 : V::STAGES;
}

template <class V>
DEVICE struct b_ring begin_ring(const struct nib_skinny_params &q,
				const struct nib_gemv_operand &b, const struct cta &c)
{
	const int warp = threadIdx.x / 32;
	struct b_ring r;

	r.begin = c.shared + warp * V::STAGES * NIB_GEMV_STAGE_BYTES;
	r.codes = piece_target();
	r.scales = CODES_BYTES + threadIdx.x % 32 * 16;
	r.stage = 0;
	r.share = q.shares[warp];
	r.next.at = round_at<V>(q, c, c.tile);
	find_tile<V>(q, b, c, &r);
	fill_stages<V>(q, b, c, &r, 0, early_stages<V>(q));
	return r;
}

/*
 * The first chunks, one by each warp, which have nothing else to do yet, and the
 * ring's other stages.
 */
template <class V>
DEVICE void bring_first_chunks(const struct nib_skinny_params &q,
			       const struct nib_gemv_operand &a,
			       const struct nib_gemv_operand &b, const struct cta &c,
			       struct b_ring *r)
{
	const int warp = threadIdx.x / 32;
	struct round_step s = {round_at<V>(q, c, c.tile), warp};
	uint4 x[V::M];
	bool brings = warp < V::CHUNKS;

	if (brings) {
		find_step<V>(q, c, all_steps(q.p), &s);
		brings = s.at.count > 0;
	}
	if (brings)
		load_chunk<V>(q.p, a, c, s, x);
	if (warp < busy_warps(q))
		fill_stages<V>(q, b, c, r, early_stages<V>(q), V::STAGES);
	if (!brings)
		return;
	store_chunk<V>(c.shared + V::CHUNKS_AT + warp * V::CHUNK_BYTES, x);
	mbarrier_arrive(full<V>(c.shared, warp));
}

/* ---- the multiplication -------------------------------------------------- */

/* What a lane knows all along about a stage and a chunk. */
struct lane_view {
	/* The block of 64 k number j of row g. */
	uint32_t codes[4];
	uint32_t scales; /* of row g, the first four blocks */
	uint32_t scale_stride;
	uint32_t pick; /* byte t of two words */
	int blocks;    /* of the last step */
};

DEVICE struct lane_view view_of(const struct nib_gemv_params &p,
				const struct nib_gemv_operand &b)
{
	const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
	struct lane_view v;

#pragma unroll
	for (int j = 0; j < 4; j++)
		v.codes[j] = opaque(g * ROW_BYTES + (g % 4 ^ j) * 32 + t * 8);
	v.scales = CODES_BYTES + (b.is_tiled ? g / 4 * 64 + g % 4 * 4 : g * 16);
	v.scale_stride = opaque(b.is_tiled ? 16 : 4);
	v.pick = opaque(t | (t + 4) << 4);
	v.blocks = p.k / 16 - (all_steps(p) - 1) * STEP_BLOCKS;
	return v;
}

template <bool IS_BF16>
DEVICE void mma(float (&d)[4], const uint32_t *row_g, const uint32_t *row_g8,
		uint32_t x0, uint32_t x1)
{
	if constexpr (IS_BF16)
		mma_m16n8k16_bf16(d, row_g[0], row_g8[0], row_g[1], row_g8[1], x0, x1);
	else
		mma_m16n8k16_f16(d, row_g[0], row_g8[0], row_g[1], row_g8[1], x0, x1);
}

/* Two of them: codes from i and from j on. */
template <class V>
DEVICE void mma2(float (&d)[4], const uint32_t (&w)[2][8], int i, uint32_t x0,
		 uint32_t x1, float (&e)[4], int j, uint32_t y0, uint32_t y1)
{
	mma<V::IS_BF16>(d, w[0] + i, w[1] + i, x0, x1);
	mma<V::IS_BF16>(e, w[0] + j, w[1] + j, y0, y1);
}

/* Scales of rows g and g + 8: four blocks each of 64 k number j. */
DEVICE void load_scales(const struct lane_view &v, uint32_t stage, bool is_last,
			uint32_t (&x)[4][2])
{
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint32_t at = stage + v.scales + j * v.scale_stride;

		x[j][0] = lds_32(at);
		x[j][1] = lds_32(at + 8 * STEP_BLOCKS);
	}
	if (!is_last)
		return;
		/* 0 behind the last block. */
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const int left = v.blocks - 4 * j;
		const uint32_t mask = left >= 4	  ? ~0u
				      : left <= 0 ? 0
						  : (1u << 8 * left) - 1;

		x[j][0] &= mask;
		x[j][1] &= mask;
	}
}

/*
 * Adds a stage of B times a chunk of A, of which piece is the lane's first.  An
 * mma waits for the one before it in its sums: with eight rows of A there are
 * two sums, for the halves of a block.
 */
template <class V>
DEVICE void multiply(float (&acc)[2][4], const struct lane_view &v, uint32_t stage,
		     uint32_t piece, bool is_last)
{
	uint32_t scales[4][2];

	load_scales(v, stage, is_last, scales);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint32_t codes = stage + v.codes[j];
		uint32_t q[2][2], s[2], w[2][8];
		uint4 x[V::EIGHTS][2];

#pragma unroll
		for (int i = 0; i < V::EIGHTS * 2; i++)
			x[i / 2][i % 2] =
			    lds_128(piece + i / 2 * 4096 + j * 1024 + i % 2 * 512);
		widen_scales<V::IS_BF16>(prmt(scales[j][0], scales[j][1], v.pick), s);
#pragma unroll
		for (int r = 0; r < 2; r++) {
			lds_64(codes + r * 8 * ROW_BYTES, &q[r][0], &q[r][1]);
			decode<V::IS_BF16>(q[r][0], s[r], w[r]);
			decode<V::IS_BF16>(q[r][1], s[r], w[r] + 4);
		}
		/* One eight of rows: the second half of a block; two: both. */
#pragma unroll
		for (int h = 0; h < V::EIGHTS; h++) {
			const int i = 4 * h, j2 = V::EIGHTS == 1 ? 4 : i;
			const uint4 a = x[0][h];
			const uint4 b = V::EIGHTS == 1 ? x[0][1] : x[V::EIGHTS - 1][h];

			mma2<V>(acc[0], w, i, a.x, a.y, acc[1], j2, b.x, b.y);
			mma2<V>(acc[0], w, i + 2, a.z, a.w, acc[1], j2 + 2, b.z, b.w);
		}
	}
}

/* The same of eight k of each block, for two warps that share a tile. */
template <class V>
DEVICE void multiply_half(float (&acc)[4], const struct lane_view &v, uint32_t stage,
			  uint32_t piece, int half, bool is_last)
{
	uint32_t scales[4][2];

	load_scales(v, stage, is_last, scales);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint32_t codes = stage + v.codes[j] + half * 4;
		const uint4 x = lds_128(piece + j * 1024 + half * 512);
		uint32_t s[2], w[2][4];

		widen_scales<V::IS_BF16>(prmt(scales[j][0], scales[j][1], v.pick), s);
#pragma unroll
		for (int r = 0; r < 2; r++)
			decode<V::IS_BF16>(lds_32(codes + r * 8 * ROW_BYTES), s[r],
					   w[r]);
		mma<V::IS_BF16>(acc, w[0], w[1], x.x, x.y);
		mma<V::IS_BF16>(acc, w[0] + 2, w[1] + 2, x.z, x.w);
	}
}

template <class V>
DEVICE void multiply_share(float (&acc)[2][4], const struct lane_view &v,
			   uint32_t stage, uint32_t piece, int half, bool is_last)
{
	if (V::EIGHTS > 1 || half == NIB_SKINNY_WHOLE)
		multiply<V>(acc, v, stage, piece, is_last);
	else
		multiply_half<V>(acc[0], v, stage, piece, half, is_last);
}

/*
 * A warp's steps of its tile of round number `number`.  A warp without a tile
 * only says that it has read A.  Chunks and stages are counted on: a division in
 * the loop would cost as much as a tenth of it.
 */
template <class V>
DEVICE void run_round(const struct nib_skinny_params &q,
		      const struct nib_gemv_operand &b, const struct cta &c,
		      const struct lane_view &v, struct b_ring *r, int number,
		      bool multiplies, float (&acc)[2][4])
{
	const int steps = all_steps(q.p), lane = threadIdx.x % 32;
	const uint32_t pieces = opaque(c.shared + V::CHUNKS_AT + lane * 16);
	const uint32_t bars = opaque(full<V>(c.shared, 0));
	const int first = number * steps + group_of(r->share);
	int chunk = first % V::CHUNKS;
	uint32_t parity = first / V::CHUNKS % 2;

#pragma unroll 1
	for (int step = group_of(r->share); step < steps; step += q.k_groups) {
		const int stage = r->stage;

		if (multiplies)
			cp_async_wait_group<V::STAGES - 1>();
		__syncwarp();
		wait(bars + chunk * 16, parity);
		if (multiplies)
			multiply_share<V>(acc, v,
					  r->begin + stage * NIB_GEMV_STAGE_BYTES,
					  pieces + chunk * V::CHUNK_BYTES,
					  half_of(r->share), step + 1 == steps);
		__syncwarp();
		mbarrier_arrive(bars + chunk * 16 + 8);
		if (multiplies) {
			load_next<V>(q, b, c, r, steps, stage);
			r->stage = stage + 1 == V::STAGES ? 0 : stage + 1;
		}
		chunk += q.k_groups;
		if (chunk >= V::CHUNKS) {
			chunk -= V::CHUNKS;
			parity ^= 1;
		}
	}
}

/* ---- sums ---------------------------------------------------------------- */

/* A warp's sums, a row of A after the other. */
template <class V>
DEVICE void store_sums(float *sums, const float (&acc)[2][4])
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < V::EIGHTS * 4; i++) {
		const int row = i / 4 * 8 + 2 * t + i % 2;

		sums[row * NIB_GEMV_TILE_ROWS + g + i / 2 % 2 * 8] =
		    V::EIGHTS == 1 ? acc[0][i] + acc[1][i] : acc[i / 4][i % 4];
	}
}

/* Neither factor overflows where the result does not. */
template <bool IS_BF16>
DEVICE float result(float sum, float alpha)
{
	const float up = WEIGHT_SCALE(IS_BF16);

	return fabsf(alpha) < 1 ? sum * (up * alpha) : up * sum * alpha;
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
 * The slot of a warp's sums.  A tile's first slot has the tile's number, and each
 * further group lies tiles_at_once slots behind the one before.  Second halves lie
 * behind all groups.
 */
DEVICE int sums_slot(const struct nib_skinny_params &q, uint32_t share)
{
	const int tile = tile_of(share), group = group_of(share);

	if (half_of(share) != 1)
		return group * q.tiles_at_once + tile;
	return (q.k_groups - 1) * q.tiles_at_once + (group + 1) * q.halved_tiles + tile;
}

/* The sum of a tile's warps: x is in the tile's first slot (sums_slot()). */
DEVICE float add_warps(const struct nib_skinny_params &q, const float *x, int size,
		       int tile)
{
	const int pitch = q.tiles_at_once * size;
	const int i = tile - (q.tiles_at_once - q.halved_tiles);
	float sum = x[0];

	if (i < 0) {
		for (int j = 1; j < q.k_groups; j++)
			sum += x[j * pitch];
		return sum;
	}
	sum += x[q.k_groups * pitch + (i - tile) * size];
	/* Two groups halve one tile: their second halves are neighbours. */
	if (q.k_groups == 2)
		sum += x[pitch] + x[2 * pitch + (i + 1 - tile) * size];
	return sum;
}

/* Adds the warps of each tile of a round, and stores C; of experts their rows. */
template <class V>
DEVICE void store_tiles(const struct nib_skinny_params &q, const struct cta &c,
			const struct round &r, const float *sums, float alpha)
{
	const int size = NIB_SKINNY_SUMS(V::EIGHTS);
	const bool is_tiled = V::IS_MOE || q.p.b.is_tiled;

	for (int i = threadIdx.x; i < r.count * size; i += NIB_SKINNY_WARPS * 32) {
		/* Four rows that are neighbours in C by neighbouring lanes. */
		const int four = i % 4 * 4 + i / 4 % 4;
		const int at = is_tiled ? four : i % NIB_GEMV_TILE_ROWS;
		const int m = i % size / NIB_GEMV_TILE_ROWS;
		const float *x = sums + i / size * size + m * NIB_GEMV_TILE_ROWS + at;
		const float sum = add_warps(q, x, size, i / size);
		struct unit u = {0, 0, q.p.m};
		int tile = r.tile + i / size;
		int64_t row;

		if (V::IS_MOE) {
			u = unit_of(c.units[tile / q.p.tiles]);
			tile %= q.p.tiles;
			if (q.p.alpha)
				alpha = __ldg(q.p.alpha + u.expert);
		}
		row = nib_gemv_row(tile, at, is_tiled);
		if (row < q.p.n && r.row + m >= u.row && r.row + m < u.row + u.rows)
			store(q.p,
			      blockIdx.y * q.p.c_batch_stride +
				  (r.row + m) * q.p.c_row_stride + row,
			      result<V::IS_BF16>(sum, alpha));
	}
}

/* ---- the kernel ---------------------------------------------------------- */

DEVICE struct nib_gemv_operand operand_of_batch(struct nib_gemv_operand v)
{
	v.codes += blockIdx.y * v.batch_stride;
	v.scales += blockIdx.y * v.scale_batch_stride;
	return v;
}

template <class V>
DEVICE void init_barriers(uint32_t shared, int readers)
{
	if (threadIdx.x < V::CHUNKS) {
		mbarrier_init(full<V>(shared, threadIdx.x), 32);
		mbarrier_init(empty<V>(shared, threadIdx.x), readers * 32);
	}
}

template <class V>
DEVICE void run_all(const struct nib_skinny_params &q, const struct nib_gemv_operand &b,
		    const struct cta &c, struct b_ring *r, float *sums)
{
	const int warp = threadIdx.x / 32;
	const bool works = warp < busy_warps(q);
	const float alpha = q.p.alpha && !V::IS_MOE ? *q.p.alpha : 1;
	const struct lane_view v = view_of(q.p, b);
	struct round at = round_at<V>(q, c, c.tile);

#pragma unroll 1
	for (int number = 0; at.count > 0; number++) {
		float acc[2][4] = {};

		if (works) {
			run_round<V>(q, b, c, v, r, number, has_tile(r->share, at),
				     acc);
			store_sums<V>(sums + sums_slot(q, r->share) *
						 NIB_SKINNY_SUMS(V::EIGHTS),
				      acc);
		}
		bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
		store_tiles<V>(q, c, at, sums, alpha);
		bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
		at = next_round<V>(q, c, at);
	}
}

/* The CTA's tiles; of experts after their tables. */
template <class V>
DEVICE struct cta begin_cta(const struct nib_skinny_params &q, uint8_t *bytes)
{
	const uint64_t tiles =
	    (uint64_t)q.p.tiles * (V::IS_MOE ? fill_units<V>(q, bytes) : 1);

	return {smem_addr(bytes), (int)(blockIdx.x * tiles / gridDim.x),
		(int)((blockIdx.x + 1) * tiles / gridDim.x),
		(const uint32_t *)(bytes + V::UNITS_AT),
		(const int32_t *)(bytes + V::SCALE_ROWS_AT)};
}

template <class V>
DEVICE void skinny_gemm(const struct nib_skinny_params &q)
{
	extern __shared__ __align__(128) uint8_t bytes[];
	const struct nib_gemv_operand a = operand_of_batch(q.p.a);
	struct nib_gemv_operand b = operand_of_batch(q.p.b);
	const int warp = threadIdx.x / 32;
	struct b_ring r;
	struct cta c;

	griddepcontrol_launch_dependents();
	/* The experts' tables come from the kernel before, too. */
	if (V::IS_MOE || !q.p.b_is_constant)
		griddepcontrol_wait();
	c = begin_cta<V>(q, bytes);
	init_barriers<V>(c.shared, q.tiles_at_once + q.halved_tiles);
	if (V::IS_MOE) {
		b.is_tiled = true;
		__syncthreads();
	}
	if (warp < busy_warps(q))
		r = begin_ring<V>(q, b, c);
	griddepcontrol_wait();
	__syncthreads();
	bring_first_chunks<V>(q, a, b, c, &r);
	if (warp < NIB_SKINNY_WARPS)
		run_all<V>(q, b, c, &r, (float *)(bytes + V::SUMS_AT));
	else
		bring_chunks<V>(q, a, c);
}

#define SKINNY(name, ...)                                                              \
	extern "C" __global__ void __launch_bounds__(NIB_SKINNY_THREADS, 1)            \
	    NIB_KERNEL(skinny_##name)(                                                 \
		const __grid_constant__ struct nib_skinny_params q)                    \
	{                                                                              \
		skinny_gemm<skinny<__VA_ARGS__>>(q);                                   \
	}

/*
 * The kernels for a type of A.  Experts have units of eight rows: with 16 all
 * MoE problems that go here were slower.
 */
#define SKINNY_KERNELS(type, suffix)                                                   \
	SKINNY(8##suffix, 1, B_ALIGNED, type)                                          \
	SKINNY(8_any##suffix, 1, B_ANY, type)                                          \
	SKINNY(16##suffix, 2, B_ALIGNED, type)                                         \
	SKINNY(16_any##suffix, 2, B_ANY, type)                                         \
	SKINNY(experts_8##suffix, 1, B_EXPERTS, type)

#endif
