/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm90_gemm.cuh - C = alpha * A * B^T on Hopper, one problem or many: the
 * skeleton of every multiplication with more than a few tokens.
 *
 *   weights B (fp4, global) --cp.async--> ring of 128 x k256 --registers:
 *     dequantise to fp16--> wgmma A operand (m64, rows of B)
 *   tokens A (fp16, prepared in L2) --bulk copy, multicast to the pair-->
 *     ring of N x k64, 128-byte swizzle --> wgmma B operand (nN)
 *   accumulators: fp32, D[row of B, token] --> alpha, SiLU --> C
 *
 * A cluster is a pair of CTAs with neighbouring rows of B and the same tokens
 * (times `splits` pairs that share k).  A CTA has two consumer warpgroups, 64
 * rows of the tile each (dual: the same 64 rows of B and of B2), and one more
 * for the copies: two warps copy weights, a thread asks for tokens.
 *
 * A warp that has issued a wgmma with A in registers stands still while it runs
 * (N / 2 cycles), so its own dequantising (about 75 cycles a k16) never
 * overlaps it; only the other group's does.  The tensor cores are full from
 * about 170 tokens on (docs/notes/0030-hopper-gemm.md).
 *
 * Barriers: weights_full (64 producer threads, by cp.async), weights_empty (8
 * consumer warps); tokens_full (one arrival + bytes), tokens_empty (16: the
 * consumer warps of both CTAs of the pair, since either writes into both).
 *
 * Shared memory (dynamic): token ring token_stages * token_stage_bytes, weight
 * ring weight_stages * 18432 bytes, then the epilogue's and the schedule's.
 * Registers: 72 for a producer thread, 216 for a consumer: 128 accumulators at
 * N = 256, 16 of weights.
 *
 * One k16 step of wgmma needs of lane t (0..3 of a quad) four values of a row.
 * It takes them from the 16 of scale group t of this k64, so that a lane loads
 * 8 bytes and one scale for four steps; the tokens are prepared in the same
 * order (token_chunk()).
 *
 * Aims at the rate of wgmma with register operands, 850 TFLOP/s on an H200.
 */
#ifndef NIB_SM90_GEMM_CUH
#define NIB_SM90_GEMM_CUH

#include "gemm_params.h"
#include "ptx_sm90.cuh"

#define DEVICE static __device__ __forceinline__

/* Two consumer warpgroups, 64 rows of the tile each; one more for copies. */
#define GROUPS	2
#define WARPS	(4 * GROUPS)
#define THREADS NIB_GEMM_THREADS
/* Rows of B that a CTA takes of each matrix. */
#define CTA_ROWS(dual) ((dual) ? NIB_TILE_ROWS / 2 : NIB_TILE_ROWS)
/* Registers of a thread; a quarter of the SM has 512 for each lane. */
#define CONSUMER_REGISTERS 216
#define PRODUCER_REGISTERS 72
#define WEIGHT_PRODUCERS   64
/* A weight stage: codes, then scales, 64 rows of each after the other. */
#define PART_CODES   (64 * (NIB_WEIGHT_STAGE_K / 2))
#define PART_SCALES  (64 * (NIB_WEIGHT_STAGE_K / 16))
#define WEIGHT_STAGE NIB_WEIGHT_STAGE_BYTES
#define STAGES_MAX   NIB_GEMM_STAGES_MAX
#define EXPERTS_MAX  NIB_GEMM_EXPERTS
/* k64 steps of a weight stage. */
#define STEPS (NIB_WEIGHT_STAGE_K / NIB_TOKEN_STAGE_K)
/* Sixteen tokens of a warp, 16 rows each, rows 48 bytes apart: no two of eight
 * rows of a stmatrix share a bank. */
#define STAGING_STRIDE 48
#define STAGING_WARP   (16 * STAGING_STRIDE)
/* Sums of 32 tokens, 16 of each consumer thread, on their way to c. */
#define BLOCK_TOKENS 32
#define SUMS_STRIDE  (WARPS * 32 * 4)
#define SUMS_BYTES   (BLOCK_TOKENS / 2 * SUMS_STRIDE)

/* Behind the rings, at addresses that depend on no runtime size. */
struct gemm_shared {
	uint64_t weights_full[STAGES_MAX], weights_empty[STAGES_MAX];
	uint64_t tokens_full[STAGES_MAX], tokens_empty[STAGES_MAX];
	uint8_t staging[WARPS * STAGING_WARP];
	uint8_t sums[SUMS_BYTES];
	/* Mixture: tiles of the experts before e. */
	int32_t first_tile[EXPERTS_MAX + 1];
};

static_assert(THREADS == 128 * (GROUPS + 1), "the groups and the copies");
static_assert(sizeof(struct gemm_shared) <= NIB_GEMM_TAIL_BYTES, "host's size");

/* A place in a ring: which stage, and the parity of its barriers. */
struct ring {
	uint32_t stage, parity;
};

DEVICE void advance(struct ring *r, uint32_t stages)
{
	if (++r->stage == stages) {
		r->stage = 0;
		r->parity ^= 1;
	}
}

DEVICE void wait(uint32_t bar, uint32_t parity)
{
	while (!mbarrier_try_wait_parity(bar, parity))
		;
}

/* What one CTA has to do next. */
struct work {
	const struct nib_gemm_shape *shape;
	int32_t problem; /* index of its pointers */
	int32_t expert;	 /* of a mixture, else 0 */
	int32_t row0;	 /* first row of B of this CTA */
	int32_t token;	 /* first token, of the problem's */
	int32_t tokens;	 /* of the tile, padded to 16 */
	int32_t valid;	 /* of them, real ones */
	int32_t row_base; /* the problem's first row in c */
	int32_t atom;	  /* first atom of the tile's tokens */
	int32_t stage0, stages; /* of k256, of this CTA */
};

/* Where expert e's tokens begin among the prepared ones: no prefix sum needed,
 * at most 15 rows are lost for each expert that has tokens. */
DEVICE int32_t padded_row(int32_t e, int32_t offset)
{
	return 16 * (offset / 16 + min(e, offset));
}

/* Tokens of a tile: the kernel has multiples of 16, above 128 of 32. */
DEVICE int32_t round_tokens(int32_t x)
{
	const int32_t step = x > 128 ? 32 : 16;

	return (x + step - 1) & -step;
}

/* Tokens of each tile of an expert with m of them: equal shares. */
DEVICE int32_t share_tokens(int32_t m, int32_t most)
{
	const int32_t tiles = (m + most - 1) / most;

	return tiles ? round_tokens((m + tiles - 1) / tiles) : 16;
}

DEVICE int32_t row_units(int32_t n, int32_t cta_rows)
{
	return (n + 2 * cta_rows - 1) / (2 * cta_rows);
}

DEVICE int32_t expert_tiles(const struct nib_gemm_args *args, int32_t e,
			    int32_t units)
{
	const int32_t first = __ldg(args->row_offsets + e);
	const int32_t m =
		min(__ldg(args->row_offsets + e + 1), args->rows) - first;
	int32_t share;

	if (m <= 0 || first < 0)
		return 0;
	share = share_tokens(m, args->tile_tokens);
	return (m + share - 1) / share * units;
}

/*
 * Warp 0 counts the tiles of every expert: a lane sums a run of experts, then
 * the runs are summed over the lanes.
 */
DEVICE void count_tiles(const struct nib_gemm_args *args,
			struct gemm_shared *shared, int32_t cta_rows)
{
	const int32_t units = row_units(args->shapes->n, cta_rows);
	const int32_t lane = threadIdx.x;
	const int32_t run = (args->experts + 31) / 32;
	const int32_t e0 = lane * run;
	const int32_t e1 = min(e0 + run, args->experts);
	int32_t sum = 0, before;

	for (int32_t e = e0; e < e1; e++)
		sum += expert_tiles(args, e, units);
	before = sum;
	for (int32_t d = 1; d < 32; d *= 2) {
		const int32_t other = __shfl_up_sync(~0u, before, d);

		before += lane >= d ? other : 0;
	}
	before -= sum;
	for (int32_t e = e0; e < e1; e++) {
		shared->first_tile[e] = before;
		before += expert_tiles(args, e, units);
	}
	if (lane == 31)
		shared->first_tile[args->experts] = before;
}

/* The last expert whose first tile is <= index. */
DEVICE int32_t find_expert(const struct gemm_shared *shared, int32_t experts,
			   int32_t index)
{
	int32_t low = 0, high = experts;

	while (high - low > 1) {
		const int32_t mid = (low + high) / 2;

		if (shared->first_tile[mid] <= index)
			low = mid;
		else
			high = mid;
	}
	return low;
}

DEVICE bool next_expert_tile(const struct nib_gemm_args *args,
			     const struct gemm_shared *shared, int32_t index,
			     int32_t cta_rows, struct nib_gemm_tile *tile,
			     struct work *w)
{
	const int32_t units = row_units(args->shapes->n, cta_rows);
	int32_t e, first, m, share, inside;

	if (index >= shared->first_tile[args->experts])
		return false;
	e = find_expert(shared, args->experts, index);
	first = __ldg(args->row_offsets + e);
	m = min(__ldg(args->row_offsets + e + 1), args->rows) - first;
	share = share_tokens(m, args->tile_tokens);
	inside = index - shared->first_tile[e];
	tile->problem = 0;
	tile->unit = inside % units;
	tile->token = inside / units * share;
	tile->tokens = min(share, round_tokens(m - tile->token));
	w->expert = e;
	w->row_base = first;
	w->valid = min(tile->tokens, m - tile->token);
	w->atom = (padded_row(e, first) + tile->token) / 8;
	return true;
}

/* Tile `round` of this cluster; false: no more. */
DEVICE bool next_work(const struct nib_gemm_args *args,
		      const struct gemm_shared *shared, int32_t round,
		      int32_t cta_rows, struct work *w)
{
	const int32_t index = round * (int32_t)nclusterid_x() +
			      (int32_t)clusterid_x();
	const int32_t rank = (int32_t)cluster_ctarank();
	const int32_t part = rank / 2;
	struct nib_gemm_tile tile;
	int32_t stages;

	if (args->experts) {
		if (!next_expert_tile(args, shared, index, cta_rows, &tile, w))
			return false;
		w->shape = args->shapes;
	} else {
		if (round >= args->tile_rounds)
			return false;
		*(int4 *)&tile = __ldg((const int4 *)args->tiles + index);
		if (tile.tokens == 0)
			return false;
		w->shape = args->shapes + tile.problem;
		w->expert = 0;
		w->row_base = 0;
		w->valid = min(tile.tokens, w->shape->m - tile.token);
		w->atom = (w->shape->first_token + tile.token) / 8;
	}
	w->problem = tile.problem;
	w->row0 = (2 * tile.unit + rank % 2) * cta_rows;
	w->token = tile.token;
	w->tokens = tile.tokens;
	stages = (w->shape->k + NIB_WEIGHT_STAGE_K - 1) /
		 NIB_WEIGHT_STAGE_K;
	w->stage0 = stages * part / args->splits;
	/* k = 0 is a stage of zeros. */
	w->stages = max(1, stages * (part + 1) / args->splits - w->stage0);
	return true;
}

/* ---- weights: global -> ring --------------------------------------------- */

/*
 * Where 16-byte chunk c of a row's 128 bytes lies: the quads of four rows that
 * a half-warp reads at once fall into different banks.
 */
DEVICE uint32_t swizzled(uint32_t row, uint32_t chunk)
{
	return chunk ^ ((row & 3) * 2 + (row >> 2 & 1));
}

/*
 * 64 rows of weights, as one of the 64 producer threads sees them: of codes,
 * every eighth row from its first, one 16-byte chunk of each; of scales, one
 * row or, tiled, two pieces of a tile.
 */
struct weight_source {
	const uint8_t *codes, *scales;
	int64_t stride8; /* from one of its rows of codes to the next */
	int32_t rows_left; /* of the matrix, from its first row of codes on */
	bool all_rows; /* all 64 are inside the matrix */
	bool has_scales, is_tiled;
};

DEVICE void open_weights(const struct nib_gemm_args *args,
			 const struct nib_gemm_pointers *p,
			 const struct work *w, int32_t row0, bool second,
			 uint32_t thread, struct weight_source *b)
{
	const struct nib_gemm_shape *s = w->shape;
	const int64_t stride =
		(second ? s->b2_stride_bytes : s->b_stride_bytes);
	const int64_t scale_stride = (second ? s->b2_scale_stride_bytes : s->b_scale_stride_bytes);
	const int32_t n = s->n, k = s->k;
	const int32_t row = row0 + (int32_t)(thread / 8);

	b->codes = (second ? p->b2 + w->expert * args->b2_batch_bytes
			   : p->b + w->expert * args->b_batch_bytes) +
		   row * stride + thread % 8 * 16;
	b->scales = second ? p->b2_scales +
				     w->expert * args->b2_scale_batch_bytes
			   : p->b_scales +
				     w->expert * args->b_scale_batch_bytes;
	b->stride8 = 8 * stride;
	b->rows_left = n - row;
	b->all_rows = row0 + 64 <= n;
	b->is_tiled = s->flags & (second ? NIB_B2_TILED : NIB_B_TILED);
	if (b->is_tiled) {
		b->scales += (int64_t)(row0 / 128) * ((k / 16 + 3) / 4) * 512 +
			     row0 % 128 / 64 * 8 + thread * 16;
		b->has_scales = row0 < n;
	} else {
		b->scales += (row0 + (int32_t)thread) * scale_stride;
		b->has_scales = row0 + (int32_t)thread < n;
	}
}

/* Bytes byte0 .. byte0 + 127 of 64 rows, all of them inside the matrix. */
DEVICE void copy_codes_inside(uint32_t to, const struct weight_source *b,
			      int32_t byte0)
{
	const uint8_t *from = b->codes + byte0;

#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		cp_async_16_l2_256(to + i * 1024, from);
		from += b->stride8;
	}
}

/* The same at the edges: what is outside becomes zero. */
DEVICE void copy_codes_edge(uint32_t to, const struct weight_source *b,
			    int32_t byte0, int32_t left, bool by_8)
{
	const uint8_t *from = b->codes + byte0;

#pragma unroll 1
	for (int32_t r = 0; r < 64; r += 8) {
		const uint32_t bytes =
			r < b->rows_left && left > 0 ? (uint32_t)left : 0;
		/* A copy of nothing must still name readable memory. */
		const uint8_t *source = bytes ? from : b->codes;

		if (!by_8) {
			cp_async_16_zfill(to, source, bytes);
		} else {
			cp_async_8_zfill(to, source, min(bytes, 8u));
			cp_async_8_zfill(to + 8,
					 bytes > 8 ? source + 8 : source,
					 bytes > 8 ? bytes - 8 : 0);
		}
		to += 1024;
		from += b->stride8;
	}
}

/* Linear scales of 64 rows, a thread a row: place [row][16 groups]. */
DEVICE void copy_linear_scales(uint32_t place, const struct weight_source *b,
			       int32_t group0, int32_t groups, int32_t flags)
{
	const int32_t left =
		b->has_scales ? max(0, min(16, groups - group0)) : 0;
	const uint8_t *from = b->scales + (left ? group0 : 0);

	if (flags & NIB_B_SCALES_BY_1) {
#pragma unroll 1
		for (int32_t i = 0; i < 16; i++)
			sts_u8(place + (uint32_t)i,
			       i < left ? __ldg(from + i) : 0);
	} else if (flags & NIB_B_SCALES_BY_4) {
#pragma unroll 1
		for (int32_t i = 0; i < 16; i += 4) {
			const int32_t rest = max(0, min(4, left - i));

			cp_async_4_zfill(place + (uint32_t)i,
					 rest ? from + i : b->scales,
					 (uint32_t)rest);
		}
	} else {
		cp_async_16_zfill(place, from, (uint32_t)left);
	}
}

/*
 * Tiled scales of 64 rows (half a tile of 128): 8 of the 16 bytes of a piece,
 * for the four tiles of this k256.
 */
DEVICE void copy_tiled_scales(uint32_t to, const struct weight_source *b,
			      int32_t group0, int32_t groups, uint32_t thread)
{
	const int32_t tile = group0 / 4 + (int32_t)(thread / 32);

#pragma unroll
	for (int32_t i = 0; i < 2; i++) {
		const bool inside =
			b->has_scales && tile + 2 * i < (groups + 3) / 4;

		cp_async_8_zfill(to + thread * 8 + (uint32_t)i * 512,
				 inside ? b->scales + group0 * 128 + i * 1024
					: b->scales,
				 inside ? 8 : 0);
	}
}

/* One stage: 64 rows of k256 for each group, codes and scales. */
DEVICE void copy_weights(uint32_t to, int32_t k, int32_t flags,
			 const struct weight_source *b, int32_t k0,
			 uint32_t thread)
{
	const int32_t chunk = (int32_t)(thread % 8);
	/* Rows eight apart have the same swizzle. */
	const uint32_t place =
		thread / 8 * 128 +
		swizzled(thread / 8, (uint32_t)chunk) * 16;
	const bool whole = k0 + NIB_WEIGHT_STAGE_K <= k &&
			   !(flags & NIB_B_CODES_BY_8);

#pragma unroll
	for (uint32_t part = 0; part < GROUPS; part++) {
		const uint32_t codes = to + part * PART_CODES + place;
		const uint32_t scales =
			to + GROUPS * PART_CODES + part * PART_SCALES;

		if (whole && b[part].all_rows)
			copy_codes_inside(codes, b + part, k0 / 2);
		else
			copy_codes_edge(codes, b + part, k0 / 2,
					min(16, k / 2 - k0 / 2 - chunk * 16),
					flags & NIB_B_CODES_BY_8);
		if (b[part].is_tiled)
			copy_tiled_scales(scales, b + part, k0 / 16, k / 16,
					  thread);
		else
			copy_linear_scales(scales + thread * 16, b + part,
					   k0 / 16, k / 16, flags);
	}
}

template <bool DUAL>
DEVICE void produce_weights(const struct nib_gemm_args *args,
			    const struct nib_gemm_pointers *problems,
			    struct gemm_shared *shared, uint32_t rings)
{
	const uint32_t thread = threadIdx.x;
	struct ring ring = {0, 0};
	struct work w;

	for (int32_t round = 0;
	     next_work(args, shared, round, CTA_ROWS(DUAL), &w); round++) {
		const struct nib_gemm_pointers *p = problems + w.problem;
		const int32_t k = w.shape->k;
		const int32_t flags =
			w.shape->flags | (int32_t)p->flags;
		struct weight_source b[GROUPS];

#pragma unroll
		for (int part = 0; part < GROUPS; part++)
			open_weights(args, p, &w,
				     w.row0 + part * 64 % CTA_ROWS(DUAL),
				     part * 64 >= CTA_ROWS(DUAL), thread,
				     b + part);
		for (int32_t s = 0; s < w.stages; s++) {
			const uint32_t full =
				smem_addr(shared->weights_full + ring.stage);

			wait(smem_addr(shared->weights_empty + ring.stage),
			     ring.parity ^ 1);
			copy_weights(
				rings + ring.stage * WEIGHT_STAGE,
				k, flags, b,
				(w.stage0 + s) * NIB_WEIGHT_STAGE_K, thread);
			if (flags & NIB_B_SCALES_BY_1) {
				cp_async_wait_all();
				mbarrier_arrive(full);
			} else {
				cp_async_mbarrier_arrive(full);
			}
			advance(&ring, (uint32_t)args->weight_stages);
		}
	}
	/* Nothing may be in flight when the CTA ends. */
	cp_async_wait_all();
}

/* ---- tokens: prepared fp16 -> ring --------------------------------------- */

/* Half of the tile's tokens into both CTAs of the pair. */
template <bool DUAL>
DEVICE void produce_tokens(const struct nib_gemm_args *args,
			   struct gemm_shared *shared, uint32_t token_ring)
{
	const uint32_t half = cluster_ctarank() % 2;
	const uint32_t pair = 3u << (cluster_ctarank() & ~1u);
	struct ring ring = {0, 0};
	struct work w;

	/* The kernel before this one prepares the tokens. */
	griddepcontrol_wait();
	fence_proxy_async();
	for (int32_t round = 0;
	     next_work(args, shared, round, CTA_ROWS(DUAL), &w); round++) {
		const uint32_t bytes = (uint32_t)w.tokens * 64;

		const uint8_t *from =
			args->tokens +
			(w.stage0 * STEPS * args->token_atoms + w.atom) * 1024 +
			half * bytes;

		for (int32_t s = 0; s < w.stages * STEPS; s++) {
			const uint32_t full =
				smem_addr(shared->tokens_full + ring.stage);

			wait(smem_addr(shared->tokens_empty + ring.stage),
			     ring.parity ^ 1);
			mbarrier_arrive_expect_tx(full, 2 * bytes);
			bulk_copy_multicast(
				token_ring +
					ring.stage *
						(uint32_t)args->token_stage_bytes +
					half * bytes,
				from, bytes, full, pair);
			from += args->token_atoms * 1024;
			advance(&ring, (uint32_t)args->token_stages);
		}
	}
}

/* ---- consumers ----------------------------------------------------------- */

/* Everything a consumer thread knows that no tile changes. */
struct consumer {
	const struct nib_gemm_args *args;
	struct gemm_shared *shared;
	uint32_t weight_ring, token_ring;
	struct ring weights, tokens;
	/* Lanes 0 and 1: tokens_empty[0] of the pair's CTA 0 and 1. */
	uint32_t tokens_empty;
};

/* Where a consumer thread is: asked for again, registers are few. */
DEVICE uint32_t group_of_thread(void)
{
	return threadIdx.x / 128 - 1;
}

DEVICE uint32_t lane_of_thread(void)
{
	return threadIdx.x % 32;
}

/* The first of the two rows of the tile that this lane holds. */
DEVICE uint32_t row_of_thread(void)
{
	return (threadIdx.x / 32 - 4) * 16 + lane_of_thread() / 4;
}

/*
 * Codes of a word as fp16 times 2^-6 times scale, exact: a code becomes an e4m3
 * (its two exponent bits and one of mantissa in place, sign on top), which is
 * the value times 2^-6.  out: codes (0,2), (4,6), (1,3), (5,7).
 */
DEVICE void dequantize8(uint32_t q, uint32_t scale, uint32_t *out)
{
	const uint32_t even = (q << 4 & 0x80808080u) | (q << 2 & 0x1C1C1C1Cu);
	const uint32_t odd = (q & 0x80808080u) | (q >> 2 & 0x1C1C1C1Cu);

	out[0] = mul_f16x2(cvt_f16x2_e4m3x2(even), scale);
	out[1] = mul_f16x2(cvt_f16x2_e4m3x2_high(even), scale);
	out[2] = mul_f16x2(cvt_f16x2_e4m3x2(odd), scale);
	out[3] = mul_f16x2(cvt_f16x2_e4m3x2_high(odd), scale);
}

/*
 * What a consumer lane reads of a weight stage: 8 bytes of two rows, eight
 * apart, and their scales; offsets in the stage for step 0.
 */
struct weight_reader {
	uint32_t codes, scales;
	uint32_t scale_step; /* from a step's scales to the next step's */
	uint32_t scale_row8; /* to those of the second row */
	int32_t groups_left; /* scales from this lane's first on */
};

DEVICE struct weight_reader reader_of(const struct work *w, bool is_tiled)
{
	const uint32_t t = lane_of_thread() % 4;
	const uint32_t row = row_of_thread() % 64, group = group_of_thread();
	struct weight_reader r;

	r.codes = group * PART_CODES + row * 128 + swizzled(row, t / 2) * 16 +
		  t % 2 * 8;
	r.scales = GROUPS * PART_CODES + group * PART_SCALES + t +
		   (is_tiled ? row % 32 * 8 + row / 32 * 4 : row * 16);
	r.scale_step = is_tiled ? 256 : 4;
	r.scale_row8 = is_tiled ? 64 : 128;
	r.groups_left = w->shape->k / 16 - 16 * w->stage0 - (int32_t)t;
	return r;
}

/*
 * The A operands of the four k16 steps of step `step` of the stage at base:
 * group t of each row.  Groups past k have no scale, and padding must not be
 * read as one; their codes are zero.
 */
DEVICE void load_weights(const struct weight_reader *r, uint32_t base,
			 uint32_t step, uint32_t (*a)[4])
{
	/* Two chunks of 16 bytes a step: the swizzle is an exclusive or. */
	const uint32_t codes = base + (r->codes ^ step * 32);
	const uint32_t scales = base + r->scales + step * r->scale_step;
	uint32_t low0, low1, high0, high1, out[4], s;

	lds_64(codes, &low0, &low1);
	lds_64(codes + 8 * 128, &high0, &high1);
	s = lds_u8(scales) + lds_u8(scales + r->scale_row8) * 256;
	s = (int32_t)step * 4 < r->groups_left ? s : 0;
	s = cvt_f16x2_e4m3x2(s);
	dequantize8(low0, low_halves(s), out);
	a[0][0] = out[0], a[0][2] = out[1], a[1][0] = out[2], a[1][2] = out[3];
	dequantize8(low1, low_halves(s), out);
	a[2][0] = out[0], a[2][2] = out[1], a[3][0] = out[2], a[3][2] = out[3];
	dequantize8(high0, high_halves(s), out);
	a[0][1] = out[0], a[0][3] = out[1], a[1][1] = out[2], a[1][3] = out[3];
	dequantize8(high1, high_halves(s), out);
	a[2][1] = out[0], a[2][3] = out[1], a[3][1] = out[2], a[3][3] = out[3];
}

/* 128-byte swizzle, k contiguous, 1024 bytes from eight rows to the next. */
DEVICE uint64_t token_descriptor(uint32_t addr)
{
	return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 |
	       (uint64_t)1 << 16 | (addr & 0x3FFFF) >> 4;
}

/* Waits for the next weight stage; its address. */
DEVICE uint32_t await_weights(const struct consumer *c)
{
	wait(smem_addr(c->shared->weights_full + c->weights.stage),
	     c->weights.parity);
	return c->weight_ring + c->weights.stage * WEIGHT_STAGE;
}

DEVICE void release_weights(struct consumer *c)
{
	__syncwarp();
	if (lane_of_thread() == 0)
		mbarrier_arrive(
			smem_addr(c->shared->weights_empty + c->weights.stage));
	advance(&c->weights, (uint32_t)c->args->weight_stages);
}

/* Tells both CTAs of the pair. */
DEVICE void release_tokens(const struct consumer *c, uint32_t stage)
{
	__syncwarp();
	if (lane_of_thread() < 2)
		mbarrier_arrive_cluster(c->tokens_empty + stage * 8);
}

/*
 * The four wgmma of a step, one group.  FIRST: the sums start here, said as a
 * constant, so that the compiler sees that d is not read: without that, the
 * accumulators of every tile size would live through the loop over tiles.
 */
template <int N, bool FIRST>
DEVICE void issue_step(const struct consumer *c, uint32_t stage,
		       const uint32_t (*a)[4], float *d)
{
	const uint64_t desc = token_descriptor(
		c->token_ring + stage * (uint32_t)c->args->token_stage_bytes);

	wait(smem_addr(c->shared->tokens_full + stage), c->tokens.parity);
	wgmma_fence();
	wgmma_f16<N>(d, a[0], desc, !FIRST);
	wgmma_f16<N>(d, a[1], desc + 2, 1);
	wgmma_f16<N>(d, a[2], desc + 4, 1);
	wgmma_f16<N>(d, a[3], desc + 6, 1);
	wgmma_commit();
}

/*
 * One weight stage: its four steps.  a[0] holds step 0's weights on entry and
 * the next stage's on exit (if there is one).  While the tensor cores work on a
 * step, the weights of the next one are dequantised into the other set of
 * registers: one group of wgmma is always in flight.  The tokens of the step
 * before the stage are still being read on entry.
 */
template <int N, bool FIRST>
DEVICE void sum_stage(struct consumer *c, struct weight_reader *r, bool is_last,
		      uint32_t (*a)[4][4], float *d)
{
	const uint32_t stage = c->tokens.stage;
	const uint32_t before =
		(stage ? stage : (uint32_t)c->args->token_stages) - 1;
	uint32_t base = c->weight_ring + c->weights.stage * WEIGHT_STAGE;

#pragma unroll
	for (uint32_t j = 0; j < STEPS; j++) {
		if (FIRST && j == 0)
			issue_step<N, true>(c, stage, a[0], d);
		else
			issue_step<N, false>(c, stage + j, a[j % 2], d);
		/* The step before is done: its operands are free. */
		wgmma_wait<1>();
		if (!(FIRST && j == 0))
			release_tokens(c, j ? stage + j - 1 : before);
		if (j == STEPS - 1) {
			release_weights(c);
			if (is_last)
				break;
			r->groups_left -= 4 * STEPS;
			base = await_weights(c);
		}
		load_weights(r, base, (j + 1) % STEPS, a[(j + 1) % 2]);
	}
	c->tokens.stage += STEPS;
	if (c->tokens.stage == (uint32_t)c->args->token_stages) {
		c->tokens.stage = 0;
		c->tokens.parity ^= 1;
	}
}

/* d = the tile's sums over this CTA's k. */
template <int N>
DEVICE void sum_tile(struct consumer *c, const struct work *w, bool is_tiled,
		     float *d)
{
	struct weight_reader r = reader_of(w, is_tiled);
	const int32_t stages = w->stages;
	uint32_t a[2][4][4];

	load_weights(&r, await_weights(c), 0, a[0]);
	sum_stage<N, true>(c, &r, stages == 1, a, d);
	for (int32_t s = 1; s < stages; s++)
		sum_stage<N, false>(c, &r, s + 1 == stages, a, d);
	wgmma_wait<0>();
	release_tokens(c, (c->tokens.stage ? c->tokens.stage
					   : (uint32_t)c->args->token_stages) -
				  1);
}

/* ---- epilogue ------------------------------------------------------------ */

/* x / (1 + e^-x); -0 at -inf, NaN only from NaN. */
DEVICE float silu(float x)
{
	const float e = expf(-fabsf(x));

	return x < -104.0f ? -0.0f : x * (x > 0 ? 1.0f : e) / (1.0f + e);
}

/* What the epilogue needs of a tile. */
struct output {
	char *c; /* the tile's first token, this warp's first row of B */
	int64_t stride_elems;
	int32_t rows_left; /* rows of B that this warp may store, from there */
	int32_t valid;	   /* tokens */
	float alpha, alpha2;
	int32_t dtype;
	bool by_16;
};

/* Sixteen tokens from token0 on, as 16-bit values: through shared memory. */
DEVICE void store_halves(const struct consumer *c, const struct output *o,
			 int32_t token0, const float *v)
{
	const uint32_t warp = threadIdx.x / 32 - 4;
	const uint32_t staging =
		smem_addr(c->shared->staging) + warp * STAGING_WARP;
	const uint32_t matrix = lane_of_thread() / 8;
	const uint32_t token = lane_of_thread() / 2;
	const int32_t row = (int32_t)(lane_of_thread() % 2) * 8;
	uint32_t h[4];
	uint16_t *to;
	uint4 x;

#pragma unroll
	for (int i = 0; i < 4; i++)
		h[i] = o->dtype == 1 ? cvt_f16x2_f32(v[2 * i], v[2 * i + 1])
				     : cvt_bf16x2_f32(v[2 * i], v[2 * i + 1]);
	stmatrix_x4_trans(staging +
				  (matrix / 2 * 8 + lane_of_thread() % 8) *
					  STAGING_STRIDE +
				  matrix % 2 * 16,
			  h[0], h[1], h[2], h[3]);
	__syncwarp();
	x = lds_128(staging + token * STAGING_STRIDE + (uint32_t)row * 2);
	__syncwarp();
	if (token0 + (int32_t)token >= o->valid)
		return;
	to = (uint16_t *)o->c + (token0 + (int32_t)token) * o->stride_elems +
	     row;
	if (o->by_16 && row + 8 <= o->rows_left) {
		*(uint4 *)to = x;
	} else {
		const uint32_t word[4] = {x.x, x.y, x.z, x.w};

#pragma unroll
		for (int i = 0; i < 8; i++)
			if (row + i < o->rows_left)
				to[i] = (uint16_t)(word[i / 2] >> i % 2 * 16);
	}
}

DEVICE void store_floats(const struct output *o, int32_t token0,
			 const float *v)
{
	const int32_t row = (int32_t)(lane_of_thread() / 4);

#pragma unroll
	for (int i = 0; i < 8; i++) {
		const int32_t token = token0 + i / 4 * 8 +
				      (int32_t)(lane_of_thread() % 4) * 2 + i % 2;
		const int32_t r = row + i / 2 % 2 * 8;

		if (token < o->valid && r < o->rows_left)
			((float *)o->c)[token * o->stride_elems + r] = v[i];
	}
}

/*
 * Sixteen tokens' sums v of this thread (dual: u of the same rows of B2), from
 * the accumulators' scale, 2^-6, to c.
 */
template <bool DUAL>
DEVICE void finish_chunk(const struct consumer *c, const struct output *o,
			 int32_t token0, float *v, const float *u)
{
#pragma unroll
	for (int i = 0; i < 8; i++) {
		v[i] = v[i] * 64.0f * o->alpha;
		if (DUAL)
			v[i] = silu(v[i]) * (u[i] * 64.0f * o->alpha2);
	}
	if (o->dtype == 0)
		store_floats(o, token0, v);
	else
		store_halves(c, o, token0, v);
}

/* Accumulators of block `block` to a place that a loop can index. */
template <int N>
DEVICE void store_sums(uint32_t to, int block, const float *d)
{
#pragma unroll
	for (int b = 0; b * BLOCK_TOKENS < N; b++) {
		if (b != block)
			continue;
#pragma unroll
		for (int i = b * 16; i < min(b * 16 + 16, N / 2); i++)
			sts_f32(to + (uint32_t)(i - b * 16) * SUMS_STRIDE,
				d[i]);
	}
}

/*
 * The tile to c, through shared memory block by block: unrolled over all
 * accumulators, the epilogue of every tile size would be thousands of
 * instructions that no cache holds.  Dual: group 1 hands its sums to group 0.
 */
template <int N, bool DUAL>
DEVICE void finish_tile(const struct consumer *c, const struct output *o,
			const float *d)
{
	const uint32_t mine = smem_addr(c->shared->sums) +
			      (threadIdx.x - 128) * 4;

#pragma unroll 1
	for (int block = 0; block * BLOCK_TOKENS < N; block++) {
		const int token0 = block * BLOCK_TOKENS;

		store_sums<N>(mine, block, d);
		if (DUAL)
			bar_sync(1, WARPS * 32);
#pragma unroll 1
		for (int t = 0; t < min(BLOCK_TOKENS, N - token0); t += 16) {
			float v[8], u[8];

			if (DUAL && group_of_thread())
				break;
#pragma unroll
			for (uint32_t i = 0; i < 8; i++) {
				const uint32_t from =
					mine + ((uint32_t)t / 2 + i) *
						       SUMS_STRIDE;

				v[i] = lds_f32(from);
				if (DUAL)
					u[i] = lds_f32(from + 128 * 4);
			}
			finish_chunk<DUAL>(c, o, token0 + t, v, u);
		}
		if (DUAL)
			bar_sync(1, WARPS * 32);
	}
}

/* A chunk's sums over the parts of k, in order. */
DEVICE void add_parts(uint32_t from, uint32_t splits, float *v)
{
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		v[i] = 0;
#pragma unroll 1
	for (uint32_t p = 0; p < splits; p++) {
		const uint32_t part = mapa(from, 2 * p + cluster_ctarank() % 2);

#pragma unroll
		for (uint32_t i = 0; i < 8; i++)
			v[i] += ld_cluster_f32(part + i * SUMS_STRIDE);
	}
}

/* Every CTA of the cluster adds up its share of the chunks. */
template <int N, bool DUAL>
DEVICE void finish_split(const struct consumer *c, const struct output *o,
			 const float *d)
{
	const uint32_t mine = c->token_ring + (threadIdx.x - 128) * 4;
	const uint32_t splits = (uint32_t)c->args->splits;

	/* Both groups have read the last tokens and weights. */
	bar_sync(1, WARPS * 32);
#pragma unroll
	for (uint32_t i = 0; i < N / 2; i++)
		sts_f32(mine + i * SUMS_STRIDE, d[i]);
	cluster_arrive();
	cluster_wait();
	if (DUAL && group_of_thread())
		return;
#pragma unroll 1
	for (uint32_t chunk = cluster_ctarank() / 2; chunk < N / 16;
	     chunk += splits) {
		const uint32_t from = mine + chunk * 8 * SUMS_STRIDE;
		float v[8], u[8];

		add_parts(from, splits, v);
		if (DUAL)
			add_parts(from + 128 * 4, splits, u);
		finish_chunk<DUAL>(c, o, (int32_t)chunk * 16, v, u);
	}
}

template <bool DUAL>
DEVICE struct output output_of(const struct consumer *c,
			       const struct nib_gemm_pointers *p,
			       const struct work *w)
{
	const struct nib_gemm_shape *s = w->shape;
	const int32_t row = w->row0 + (int32_t)(row_of_thread() % CTA_ROWS(DUAL)) -
			    (int32_t)(lane_of_thread() / 4);
	struct output o;

	o.stride_elems = s->c_stride_elems;
	o.dtype = c->args->dtype;
	o.c = (char *)p->c +
	      ((int64_t)(w->row_base + w->token) * o.stride_elems + row) *
		      (o.dtype == 0 ? 4 : 2);
	o.rows_left = s->n - row;
	o.valid = w->valid;
	o.alpha = p->alpha ? __ldg(p->alpha + w->expert) : 1.0f;
	o.alpha2 = p->alpha2 ? __ldg(p->alpha2 + w->expert) : 1.0f;
	o.by_16 = s->flags & NIB_C_BY_16;
	return o;
}

/*
 * One tile.  What the epilogue needs is found out again after the loop: kept
 * over it, it would cost registers that the accumulators take.
 */
template <int N, bool DUAL>
DEVICE void consume_tile(struct consumer *c, const struct work *w,
			 const struct nib_gemm_pointers *problems,
			 int32_t round)
{
	const int32_t tiled = DUAL && group_of_thread() ? NIB_B2_TILED : NIB_B_TILED;
	float d[N / 2];
	struct output o;
	struct work again;

	sum_tile<N>(c, w, w->shape->flags & tiled, d);
	asm volatile("" : "+r"(round)::"memory");
	next_work(c->args, c->shared, round, CTA_ROWS(DUAL), &again);
	o = output_of<DUAL>(c, problems + again.problem, &again);
	if (c->args->splits > 1) {
		finish_split<N, DUAL>(c, &o, d);
		return;
	}
	finish_tile<N, DUAL>(c, &o, d);
}

template <bool DUAL>
DEVICE void consume(struct consumer *c,
		    const struct nib_gemm_pointers *problems)
{
	struct work w;

	for (int32_t round = 0;
	     next_work(c->args, c->shared, round, CTA_ROWS(DUAL), &w);
	     round++) {
#define CASE(n)                                                                \
	case n:                                                                \
		consume_tile<n, DUAL>(c, &w, problems, round);                 \
		break;
		switch (w.tokens) {
			CASE(16) CASE(32) CASE(48) CASE(64)
			CASE(80) CASE(96) CASE(112) CASE(128)
			CASE(160) CASE(192) CASE(224) CASE(256)
		}
#undef CASE
	}
}

/* ---- the kernel ---------------------------------------------------------- */

DEVICE void init_barriers(const struct nib_gemm_args *args,
			  struct gemm_shared *shared)
{
	for (int32_t i = 0; i < args->weight_stages; i++) {
		mbarrier_init(smem_addr(shared->weights_full + i),
			      WEIGHT_PRODUCERS);
		mbarrier_init(smem_addr(shared->weights_empty + i),
			      WARPS);
	}
	for (int32_t i = 0; i < args->token_stages; i++) {
		mbarrier_init(smem_addr(shared->tokens_full + i), 1);
		mbarrier_init(smem_addr(shared->tokens_empty + i),
			      2 * WARPS);
	}
	fence_mbarrier_init();
}

template <bool DUAL>
DEVICE void gemm(const struct nib_gemm_args *args,
		 const struct nib_gemm_pointers *problems)
{
	extern __shared__ __align__(1024) uint8_t smem[];
	const uint32_t token_ring = smem_addr(smem);
	const uint32_t token_bytes =
		(uint32_t)(args->token_stages * args->token_stage_bytes);
	const uint32_t weight_ring = token_ring + token_bytes;
	struct gemm_shared *shared =
		(struct gemm_shared *)(smem + token_bytes +
				       args->weight_stages *
					       WEIGHT_STAGE);

	if (threadIdx.x == 32)
		init_barriers(args, shared);
	if (args->experts && threadIdx.x < 32)
		count_tiles(args, shared, CTA_ROWS(DUAL));
	__syncthreads();
	cluster_arrive();
	cluster_wait();

	if (threadIdx.x < 128) {
		setmaxnreg_dec<PRODUCER_REGISTERS>();
		if (threadIdx.x < WEIGHT_PRODUCERS)
			produce_weights<DUAL>(args, problems, shared,
					      weight_ring);
		else if (threadIdx.x == WEIGHT_PRODUCERS)
			produce_tokens<DUAL>(args, shared, token_ring);
		__syncwarp();
		if (args->splits > 1) {
			cluster_arrive();
			cluster_wait();
		}
	} else {
		struct consumer c = {args, shared, weight_ring, token_ring};

		setmaxnreg_inc<CONSUMER_REGISTERS>();
		c.tokens_empty = mapa(smem_addr(shared->tokens_empty),
				      (cluster_ctarank() & ~1u) +
					      lane_of_thread() % 2);
		consume<DUAL>(&c, problems);
	}
	/* Nobody leaves while others may write here or read from here. */
	cluster_arrive();
	cluster_wait();
}

#endif
