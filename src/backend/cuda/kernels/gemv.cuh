/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for at most 4 rows of A:
 * reads B once, as fast as memory gives it.
 *
 * A CTA has four warps and no roles: each warp takes every fourth step of 256 k
 * of a tile of 16 rows of B, through a ring of its own, which no other warp
 * waits for.  The CTA's tiles are one stream of steps, so that the ring never
 * drains:
 *
 *   global --cp.async--> ring[stage] --lds--> codes --prmt--> int8 --mma-->
 *     accumulators
 *
 * Arithmetic.  Twice an e2m1 is an integer of at most 12.  PRMT looks up four
 * codes at once, and gives 0 for those whose sign bit is set; with the sign
 * bits flipped it gives the others.  So b = positive - negative, and each
 * product is two of signed bytes, exact.  A lane holds whole blocks of 16 k of
 * two rows and their scales.  With one row of A, dp4a adds up a block.  With
 * more, mma.m16n8k32 does: its columns are not rows of A, but separate the
 * blocks of the four lanes of a quad, and a second row of A, because A is zero
 * wherever lane and column do not belong together.  Block sums start from 3 *
 * 2^22, so that their bits are a float, and the difference of two such floats
 * is the block's sum in fp32, exact (numerics.md): sum * (scale of a * scale of
 * b) is added with one rounding, an fma.
 *
 * Order of the sum of a row, by k alone: a lane's steps one after the other,
 * the lanes of a quad, then the four warps.
 *
 * Instructions of a lane for 8 weights and one row of A: 7 to look up (4 PRMT,
 * 3 shifts and logic), 4 dp4a, 6 for all else.  4.65 TB/s are 32 weights a
 * clock and SM, which leaves 32 instructions, half of them ALU.
 *
 * Variants: M = 1, 2, 4 for rows of 16-byte pieces (alignments 16, k a
 * multiple of 32), and 1_any, 4_any for the others.
 *
 * Roofline: the rate of memory.  Registers: 101 to 159 (docs/kernels.md), so
 * that NIB_GEMV_CTAS CTAs are resident on an SM (3 of 4_any).  There are no
 * mbarriers: a warp waits for its own cp.async groups; __syncthreads() lies
 * around the conversion of A and before the warps' accumulators are added.
 *
 * Shared memory: ring 3 x 4 x 2304 bytes; zeros; partial sums; codes of A as
 * int8 and its scales as fp32, at most 40 KiB for NIB_GEMV_PHASE(M) of k.
 * Longer k goes in phases.
 */
#ifndef NIB_GEMV_CUH
#define NIB_GEMV_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gemv_load.cuh"
#include "kernel_name.h"
#include "gemv_activations.cuh"

/* alpha lies behind the zeros, this much before the partial sums. */
#define ALPHA_WORDS 8
/* Offset of the zeros: other banks than the codes that are read beside them. */
#define ZEROS_AWAY 32
/* 3 * 2^22 as a float: integers of either sign added to it stay its bits. */
#define MAGIC 0x4B400000u

/*
 * Eight codes of rows g and g + 8, for the columns of a, as positive and
 * negative.
 */
struct weights {
	uint32_t positive[4], negative[4];
};

__device__ static struct weights decode(uint32_t row_g, uint32_t row_g8,
					uint32_t low)
{
	struct weights w;

	look_up(row_g, low, &w.positive[0], &w.positive[2]);
	look_up(row_g8, low, &w.positive[1], &w.positive[3]);
	look_up(row_g ^ SIGNS, low, &w.negative[0], &w.negative[2]);
	look_up(row_g8 ^ SIGNS, low, &w.negative[1], &w.negative[3]);
	return w;
}

struct block_sums {
	uint32_t positive[4], negative[4];
};

__device__ static struct block_sums zero_sums(void)
{
	return {{MAGIC, MAGIC, MAGIC, MAGIC}, {MAGIC, MAGIC, MAGIC, MAGIC}};
}

__device__ static void multiply(struct block_sums *d, const struct weights &w,
				uint32_t x0, uint32_t x1)
{
	const uint32_t x[2] = {x0, x1};

	mma_m16n8k32_s8(d->positive, w.positive, x);
	mma_m16n8k32_s8(d->negative, w.negative, x);
}

__device__ static float block_sum(const struct block_sums &d, int i)
{
	return __uint_as_float(d.positive[i]) - __uint_as_float(d.negative[i]);
}

/* Four e4m3 as fp32. */
__device__ static void widen_scales(uint32_t bytes, float s[4])
{
	const uint32_t low = cvt_f16x2_e4m3x2(bytes);
	const uint32_t high = cvt_f16x2_e4m3x2_high(bytes);
	const float2 a = __half22float2(*(const __half2 *)&low);
	const float2 b = __half22float2(*(const __half2 *)&high);

	s[0] = a.x, s[1] = a.y, s[2] = b.x, s[3] = b.y;
}

/* What a lane knows all along. */
struct lane_view {
	uint32_t pieces;  /* in a stage: its first piece of row g */
	uint32_t scales;  /* in a stage: its four scales of row g */
	uint32_t tail;	  /* of those, the ones of the last step */
	uint32_t columns; /* codes of a for its column, or zeros; for itself */
	int stride, pair_stride; /* of columns by step and pair; 0: zeros */
	uint32_t a_scales;
	uint32_t low; /* of the table of codes */
};

/*
 * acc[r][c]: row g + 8r; c: even and odd blocks of the lane (M = 1), or the two
 * rows of A of each pair.
 */
template <int M> struct accumulators {
	static const int pairs = (M + 1) / 2;
	float x[pairs][2][2];
};

__device__ static float4 lds_f32x4(uint32_t addr)
{
	const uint4 x = lds_128(addr);

	return make_float4(__uint_as_float(x.x), __uint_as_float(x.y),
			   __uint_as_float(x.z), __uint_as_float(x.w));
}

/* d[r]: row g + 8r, by the products of half a block. */
__device__ static void add_products(uint32_t (&d)[2], const uint32_t (&w)[4],
				    uint32_t x0, uint32_t x1)
{
#pragma unroll
	for (int r = 0; r < 2; r++)
		d[r] = dp4a(w[2 + r], x1, dp4a(w[r], x0, d[r]));
}

/*
 * M = 1: seven of the eight columns of an mma would be zeros, and the 16 mma of
 * a step take longer than 64 dp4a (docs/performance-hopper.md).
 */
__device__ static void multiply_step_one(struct accumulators<1> *acc,
					 const struct lane_view &v,
					 uint32_t stage, int step,
					 const float (&s)[2][4])
{
	const uint32_t codes = v.columns + step * NIB_GEMV_STEP;
	const float4 sa = lds_f32x4(v.a_scales + step * (STEP_BLOCKS * 4));
	const float a[4] = {sa.x, sa.y, sa.z, sa.w};

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const uint32_t from = stage + (v.pieces ^ h * 16);
		const uint4 q = lds_128(from);
		const uint4 q8 = lds_128(from + 8 * ROW_BYTES);

#pragma unroll
		for (int b = 0; b < 2; b++) {
			const int block = 2 * h + b;
			const uint4 x = lds_128(codes + block * 64);
			const struct weights w0 =
				decode(b ? q.z : q.x, b ? q8.z : q8.x, v.low);
			const struct weights w1 =
				decode(b ? q.w : q.y, b ? q8.w : q8.y, v.low);
			uint32_t plus[2] = {MAGIC, MAGIC};
			uint32_t minus[2] = {MAGIC, MAGIC};

			add_products(plus, w0.positive, x.x, x.y);
			add_products(minus, w0.negative, x.x, x.y);
			add_products(plus, w1.positive, x.z, x.w);
			add_products(minus, w1.negative, x.z, x.w);
#pragma unroll
			for (int r = 0; r < 2; r++)
				acc->x[0][r][b] =
					fmaf(__uint_as_float(plus[r]) -
						     __uint_as_float(minus[r]),
					     s[r][block] * a[block],
					     acc->x[0][r][b]);
		}
	}
}

/*
 * Pairs of rows of A: a column belongs to a row of the pair and a lane of the
 * quad.
 */
template <int M>
__device__ static void
multiply_step_pairs(struct accumulators<M> *acc, const struct lane_view &v,
		    uint32_t stage, int step, const float (&s)[2][4],
		    const struct layout &at)
{
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const uint32_t from = stage + (v.pieces ^ h * 16);
		const uint4 q = lds_128(from);
		const uint4 q8 = lds_128(from + 8 * ROW_BYTES);

#pragma unroll
		for (int b = 0; b < 2; b++) {
			const struct weights w0 =
				decode(b ? q.z : q.x, b ? q8.z : q8.x, v.low);
			const struct weights w1 =
				decode(b ? q.w : q.y, b ? q8.w : q8.y, v.low);
			const int block = 2 * h + b;

#pragma unroll
			for (int pair = 0; pair < M / 2; pair++) {
				const uint4 x = lds_128(
					v.columns + step * v.stride +
					pair * v.pair_stride + block * 16);
				const uint32_t sa =
					v.a_scales + 2 * pair * (at.kept / 4) +
					step * (STEP_BLOCKS * 4) + block * 4;
				const float a[2] = {__uint_as_float(lds_32(sa)),
						    __uint_as_float(lds_32(
							    sa + at.kept / 4))};
				struct block_sums d = zero_sums();

				multiply(&d, w0, x.x, x.y);
				multiply(&d, w1, x.z, x.w);
#pragma unroll
				for (int i = 0; i < 4; i++)
					acc->x[pair][i / 2][i % 2] = fmaf(
						block_sum(d, i),
						s[i / 2][block] * a[i % 2],
						acc->x[pair][i / 2][i % 2]);
			}
		}
	}
}

/* step counts from the phase's beginning. */
template <int M>
__device__ static void
multiply_step(struct accumulators<M> *acc, const struct lane_view &v,
	      uint32_t stage, int step, bool is_last, const struct layout &at)
{
	const uint32_t mask = is_last ? v.tail : ~0u;
	float s[2][4];

	widen_scales(lds_32(stage + v.scales) & mask, s[0]);
	widen_scales(lds_32(stage + v.scales + 8 * 16) & mask, s[1]);
	if constexpr (M == 1)
		multiply_step_one(acc, v, stage, step, s);
	else
		multiply_step_pairs<M>(acc, v, stage, step, s, at);
}

__device__ static uint32_t ring_of_warp(const struct layout &at)
{
	return at.ring +
	       threadIdx.x / 32 * NIB_GEMV_STAGES * NIB_GEMV_STAGE_BYTES;
}

/*
 * TWICE_LOW, loaded from shared memory: ptxas would move a constant, or a value
 * that the whole warp shares, before every use, 45 of the 365 instructions of a
 * step.
 */
__device__ static uint32_t table_low(const struct layout &at)
{
	return lds_32(at.zeros + threadIdx.x % 16 * 4) + TWICE_LOW;
}

template <int M>
__device__ static struct lane_view
view_of_lane(const struct nib_gemv_params &p, const struct nib_gemv_operand &b,
	     const struct layout &at)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const int left = p.k / 16 - (all_steps(p) - 1) * STEP_BLOCKS - 4 * t;
	const bool mine = g / 2 == t;
	struct lane_view v;

	v.pieces = g * ROW_BYTES + (2 * t ^ g % 2) * 16;
	v.scales = CODES_BYTES + (b.is_tiled ? g / 4 * 64 + t * 16 + g % 4 * 4
					     : g * 16 + t * 4);
	v.tail = left >= 4 ? ~0u : left <= 0 ? 0 : (1u << 8 * left) - 1;
	v.a_scales = at.scales + t * 16;
	v.low = table_low(at);
	if (M == 1) {
		v.columns = at.codes + t * 16;
		v.stride = v.pair_stride = 0;
	} else {
		v.columns = mine ? at.codes + g % 2 * at.kept + t * 64
				 : at.zeros + ZEROS_AWAY;
		v.stride = mine ? NIB_GEMV_STEP : 0;
		v.pair_stride = mine ? 2 * at.kept : 0;
	}
	return v;
}

/*
 * CTAs that run side by side read neighbouring tiles, whose scales are
 * neighbours in memory, too.
 */
__device__ static uint32_t tile_of_cta(int i)
{
	return blockIdx.x + i * gridDim.x;
}

/*
 * Adds the lanes of each quad into partial[row of A][16 rows] of a warp and
 * tile, which is empty before the first phase.
 */
template <int M>
__device__ static void add_partial(float *partial,
				   const struct accumulators<M> &acc,
				   bool is_first)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < acc.pairs * 4; i++) {
		const int pair = i / 4, r = i / 2 % 2, c = i % 2;
		float x = acc.x[pair][r][c];

		if (M == 1 && c == 1)
			continue;
		if (M == 1)
			x += acc.x[pair][r][1];
		x += __shfl_xor_sync(~0u, x, 1);
		x += __shfl_xor_sync(~0u, x, 2);
		if (t == 0) {
			float *to = partial +
				    (2 * pair + c) * NIB_GEMV_TILE_ROWS + g +
				    8 * r;

			*to = is_first ? x : *to + x;
		}
	}
}

__device__ static void store(const struct nib_gemv_params &p, int64_t index,
			     float x)
{
	if (p.c_dtype == 0)
		((float *)p.c)[index] = x;
	else if (p.c_dtype == 1)
		((__half *)p.c)[index] = __float2half_rn(x);
	else
		((__nv_bfloat16 *)p.c)[index] = __float2bfloat16_rn(x);
}

/*
 * The sums are four times too large: both factors of each product were doubled.
 */
template <int M>
__device__ static void store_tiles(const struct nib_gemv_params &p,
				   const float *partial, int tiles)
{
	const float alpha = partial[-ALPHA_WORDS];
	const int warp_stride = M * NIB_GEMV_TILE_ROWS;

	for (int i = threadIdx.x; i < tiles * warp_stride;
	     i += NIB_GEMV_THREADS) {
		const int tile = i / warp_stride, r = i % NIB_GEMV_TILE_ROWS;
		const int m = i / NIB_GEMV_TILE_ROWS % M;
		const int64_t row =
			nib_gemv_row(tile_of_cta(tile), r, p.b.is_tiled);
		const float *x = partial + tile * NIB_GEMV_WARPS * warp_stride +
				 i % warp_stride;
		float sum = x[0];

#pragma unroll
		for (int w = 1; w < NIB_GEMV_WARPS; w++)
			sum += x[w * warp_stride];
		if (row < p.n && m < p.m)
			store(p,
			      blockIdx.y * p.c_batch_stride +
				      m * p.c_row_stride + row,
			      sum * 0.25f * alpha);
	}
}

__device__ static struct nib_gemv_operand
operand_of_batch(struct nib_gemv_operand v)
{
	v.codes += blockIdx.y * v.batch_stride;
	v.scales += blockIdx.y * v.scale_batch_stride;
	return v;
}

/* A warp's ring, and what it loads next. */
struct ring {
	uint32_t begin;
	uint32_t codes, scales; /* the lane's offsets in a stage */
	int stage; /* the next to be multiplied */
	struct cursor ahead;
	struct source from;
};

__device__ static uint32_t ring_stage(const struct ring &r, int stage)
{
	return r.begin + stage * NIB_GEMV_STAGE_BYTES;
}

template <int M, bool ALIGNED>
__device__ static void load_next(const struct nib_gemv_params &p,
				 const struct nib_gemv_operand &b,
				 struct ring *r, int stage, int tiles)
{
	const int steps = all_steps(p);

	if (r->ahead.step < steps) {
		const uint32_t to = ring_stage(*r, stage);

		if (ALIGNED)
			load_aligned_step(b, r->from, to + r->codes,
					  to + r->scales, r->ahead.step);
		else
			load_any_step(b, r->from, to + r->codes, to + r->scales,
				      r->ahead.step);
		if (advance<M>(&r->ahead, tiles, steps))
			r->from = source_of(p, b, tile_of_cta(r->ahead.tile));
	}
	cp_async_commit_group();
}

/* The warp's steps of one tile, from step begin to end of all. */
template <int M, bool ALIGNED>
__device__ static struct accumulators<M>
run_tile(const struct nib_gemv_params &p, const struct nib_gemv_operand &b,
	 const struct layout &at, const struct lane_view &v, struct ring *r,
	 int tiles, int begin, int end)
{
	const int last = all_steps(p) - 1;
	struct accumulators<M> acc = {};

	for (int s = begin + threadIdx.x / 32; s < end; s += NIB_GEMV_WARPS) {
		const int stage = r->stage;

		cp_async_wait_group<NIB_GEMV_STAGES - 1>();
		__syncwarp();
		multiply_step<M>(&acc, v, ring_stage(*r, stage), s - begin,
				      s == last, at);
		__syncwarp();
		load_next<M, ALIGNED>(p, b, r, stage, tiles);
		r->stage = stage + 1 == NIB_GEMV_STAGES ? 0 : stage + 1;
	}
	return acc;
}

/* Asks for the warp's first stages of B. */
template <int M, bool ALIGNED>
__device__ static struct ring fill_ring(const struct nib_gemv_params &p,
					const struct nib_gemv_operand &b,
					const struct layout &at, int tiles)
{
	const int steps = all_steps(p);
	struct ring r;

	r.begin = ring_of_warp(at);
	r.codes = lane_target();
	r.scales = CODES_BYTES + threadIdx.x % 32 * 16;
	r.stage = 0;
	r.ahead = {0, (int)threadIdx.x / 32, 0,
		   min(phase_steps<M>(), steps)};
	r.from = source_of(p, b, tile_of_cta(0));
#pragma unroll 1
	for (int stage = 0; stage < NIB_GEMV_STAGES; stage++)
		load_next<M, ALIGNED>(p, b, &r, stage, tiles);
	return r;
}

/* Multiplies the warp's steps of all tiles; A is loaded first. */
template <int M, bool ALIGNED>
__device__ static void
run_warp(const struct nib_gemv_params &p, const struct nib_gemv_operand &a,
	 const struct nib_gemv_operand &b, const struct layout &at,
	 float *partial, int tiles)
{
	const int warp = threadIdx.x / 32, steps = all_steps(p);
	const int phase = phase_steps<M>();
	const int warp_partials = M * NIB_GEMV_TILE_ROWS;
	int begin = 0;
	struct lane_view v;
	struct ring r;

	load_rows<M, ALIGNED>(p, a, at, 0);
	cp_async_commit_group();
	r = fill_ring<M, ALIGNED>(p, b, at, tiles);
	if (threadIdx.x < 24)
		sts_32(at.zeros + threadIdx.x * 4, 0);
	cp_async_wait_group<NIB_GEMV_STAGES>();
	convert_rows<M>(at);
	v = view_of_lane<M>(p, b, at);
	/* Once also for k = 0, whose sums are 0. */
	do {
		if (begin) {
			__syncthreads();
			load_rows<M, ALIGNED>(p, a, at,
						     begin * STEP_BLOCKS);
			cp_async_commit_group();
			cp_async_wait_group<0>();
			convert_rows<M>(at);
		}
		for (int tile = 0; tile < tiles; tile++)
			add_partial(partial + (tile * NIB_GEMV_WARPS + warp) *
						      warp_partials,
				    run_tile<M, ALIGNED>(
					    p, b, at, v, &r, tiles, begin,
					    min(begin + phase, steps)),
				    begin == 0);
		begin += phase;
	} while (begin < steps);
}

template <int M, bool ALIGNED>
__device__ static void gemv(const struct nib_gemv_params &p)
{
	extern __shared__ __align__(128) uint8_t shared[];
	const struct nib_gemv_operand a = operand_of_batch(p.a);
	const struct nib_gemv_operand b = operand_of_batch(p.b);
	/* Some CTAs have one less. */
	const int tiles = p.tiles_per_cta - (tile_of_cta(p.tiles_per_cta - 1) >=
					     (uint32_t)p.tiles);
	const int sums =
		p.tiles_per_cta * NIB_GEMV_WARPS * M * NIB_GEMV_TILE_ROWS;
	float *partial = (float *)(shared + NIB_GEMV_RING_BYTES + 128);
	struct layout at;

	at.kept = (int)nib_gemv_kept(p.k, M);
	at.ring = smem_addr(shared);
	at.zeros = at.ring + NIB_GEMV_RING_BYTES;
	at.codes = at.zeros + 128 + sums * 4;
	at.scales = at.codes + M * at.kept;
	/* Asked for now: at the end all would wait for it. */
	if (threadIdx.x == 0 && p.alpha)
		cp_async_4(at.zeros + 128 - 4 * ALPHA_WORDS, p.alpha, 4);
	else if (threadIdx.x == 0)
		sts_f32(at.zeros + 128 - 4 * ALPHA_WORDS, 1);
	run_warp<M, ALIGNED>(p, a, b, at, partial, tiles);
	__syncthreads();
	store_tiles<M>(p, partial, tiles);
}

#define GEMV(m, aligned, name, ctas)                                      \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV_THREADS, ctas)   \
		NIB_KERNEL(gemv_##name)(                                          \
			const __grid_constant__ struct nib_gemv_params p)      \
	{                                                                      \
		gemv<m, aligned>(p);                                      \
	}

GEMV(1, true, 1, NIB_GEMV_CTAS)
GEMV(2, true, 2, NIB_GEMV_CTAS)
GEMV(4, true, 4, NIB_GEMV_CTAS)
GEMV(1, false, 1_any, NIB_GEMV_CTAS)
GEMV(4, false, 4_any, 3)

#endif
