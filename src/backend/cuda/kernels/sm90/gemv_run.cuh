/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_run.cuh - what the vector kernels share whatever A is: a CTA's tiles, a
 * warp's steps and its ring, the sums of the warps, and the store.
 *
 * What differs is a class SIDE:
 *
 *   M           the rows of A that its kernel takes at most
 *   ALIGNED     rows of B are pieces of 16 bytes
 *   ZEROS       bytes of zeros in shared memory
 *   SIDE(p, a, zeros, kept)
 *               the addresses of its zeros, and of what it keeps of A
 *   phase()     how many steps of A it keeps at a time
 *   load(step)  asks for a phase, which begins with this step
 *   convert()   makes the loaded phase ready; with __syncthreads() at its end
 *   view(b)     what a lane knows all along, once A is there
 *   multiply(acc, stage, step, is_last)
 *               adds a stage of B; step counts from the phase's beginning
 *   result(sum, alpha)
 *               an element of C
 *
 * A CTA multiplies N matrices of weights: one, or the two of a dual product,
 * whose elements of C are silu(first) * second.  Then its tiles alternate
 * between them.
 */
#ifndef NIB_GEMV_RUN_CUH
#define NIB_GEMV_RUN_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/kernels/common/ptx_async.cuh"
#include "backend/cuda/kernels/common/silu.cuh"
#include "gemv_load.cuh"

/* alpha lies behind the zeros, this much before the partial sums. */
#define ALPHA_WORDS 8
/* Offset of the zeros: other banks than the codes that are read beside them. */
#define ZEROS_AWAY 32

/* Four e4m3 as fp32. */
DEVICE void widen_scales(uint32_t bytes, float s[4])
{
	const uint32_t low = cvt_f16x2_e4m3x2(bytes);
	const uint32_t high = cvt_f16x2_e4m3x2_high(bytes);
	const float2 a = __half22float2(*(const __half2 *)&low);
	const float2 b = __half22float2(*(const __half2 *)&high);

	s[0] = a.x, s[1] = a.y, s[2] = b.x, s[3] = b.y;
}

/* What a lane reads of a stage of B. */
struct stage_view {
	uint32_t pieces; /* its first piece of row g */
	uint32_t scales; /* its four scales of row g */
	uint32_t tail;	 /* of those, the ones of the last step */
};

DEVICE struct stage_view view_of_stage(const struct nib_gemv_params &p,
				       const struct nib_gemv_operand &b)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const int left = p.k / 16 - (all_steps(p) - 1) * STEP_BLOCKS - 4 * t;
	struct stage_view v;

	v.pieces = g * ROW_BYTES + (2 * t ^ g % 2) * 16;
	v.scales = CODES_BYTES +
		   (b.is_tiled ? g / 4 * 64 + t * 16 + g % 4 * 4 : g * 16 + t * 4);
	v.tail = left >= 4 ? ~0u : left <= 0 ? 0 : (1u << 8 * left) - 1;
	return v;
}

/*
 * acc[r][c]: row g + 8r; c: even and odd blocks of the lane (M = 1), or the two
 * rows of A of each pair.
 */
template <int M>
struct accumulators {
	static const int pairs = (M + 1) / 2;
	float x[pairs][2][2];
};

/* One of the CTAs that share the tiles of a matrix of weights. */
struct share {
	uint32_t cta, ctas;
};

/*
 * CTAs that run side by side read neighbouring tiles, whose scales are
 * neighbours in memory, too.
 */
DEVICE uint32_t tile_of_cta(const struct share &mine, int i)
{
	return mine.cta + i * mine.ctas;
}

/* Some CTAs have one less. */
DEVICE int tiles_of_cta(const struct nib_gemv_params &p, const struct share &mine)
{
	return p.tiles_per_cta -
	       (tile_of_cta(mine, p.tiles_per_cta - 1) >= (uint32_t)p.tiles);
}

/* The row of B that is element i of the CTA's tiles; may be n or more. */
DEVICE int64_t row_of_element(const struct nib_gemv_params &p, const struct share &mine,
			      int i)
{
	return nib_gemv_row(tile_of_cta(mine, i / NIB_GEMV_TILE_ROWS),
			    i % NIB_GEMV_TILE_ROWS, p.b.is_tiled);
}

/*
 * What a CTA multiplies by one matrix of A: the weights, which differ in their
 * pointers only, and their alphas (NULL = 1).
 */
template <int N>
struct matrices {
	struct nib_gemv_operand b;
	const uint8_t *codes[N], *scales[N];
	const float *alpha[N];
	struct share mine;
};

/* Where the lane loads tile `tile` of N times those of the CTA. */
template <int N>
DEVICE struct source source_of_tile(const struct nib_gemv_params &p,
				    const struct matrices<N> &m, int tile)
{
	const bool is_second = N == 2 && tile % 2;
	struct nib_gemv_operand b = m.b;

	b.codes = is_second ? m.codes[N - 1] : m.codes[0];
	b.scales = is_second ? m.scales[N - 1] : m.scales[0];
	return source_of(p, b, tile_of_cta(m.mine, tile / N));
}

/*
 * Adds the lanes of each quad into partial[row of A][16 rows] of a warp and
 * tile, which is empty before the first phase.
 */
template <int M>
DEVICE void add_partial(float *partial, const struct accumulators<M> &acc,
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
			float *to =
			    partial + (2 * pair + c) * NIB_GEMV_TILE_ROWS + g + 8 * r;

			*to = is_first ? x : *to + x;
		}
	}
}

DEVICE void store_as(void *c, int dtype, int64_t index, float x)
{
	if (dtype == 0)
		((float *)c)[index] = x;
	else if (dtype == 1)
		((__half *)c)[index] = __float2half_rn(x);
	else
		((__nv_bfloat16 *)c)[index] = __float2bfloat16_rn(x);
}

DEVICE void store(const struct nib_gemv_params &p, int64_t index, float x)
{
	store_as(p.c, p.c_dtype, index, x);
}

/* The warps' sums of an element, x and so on. */
DEVICE float add_warps(const float *x, int warp_stride)
{
	float sum = x[0];

#pragma unroll
	for (int w = 1; w < NIB_GEMV_WARPS; w++)
		sum += x[w * warp_stride];
	return sum;
}

/* The place of the warps' sums in shared memory. */
template <class SIDE>
DEVICE float *partial_sums(void)
{
	extern __shared__ __align__(128) uint8_t shared[];

	return (float *)(shared + NIB_GEMV_RING_BYTES + SIDE::ZEROS + 4 * ALPHA_WORDS);
}

/*
 * The results of element `element` of the CTA's tile `tile`, by each matrix;
 * element: row of A, row of the tile.
 */
template <class SIDE, int N>
DEVICE void results_of(const float *partial, int tile, int element, float (&x)[N])
{
	const int warp_stride = SIDE::M * NIB_GEMV_TILE_ROWS;
	const int tile_stride = NIB_GEMV_WARPS * warp_stride;
	const float *at = partial + tile * N * tile_stride + element;

#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = SIDE::result(add_warps(at + i * tile_stride, warp_stride),
				    partial[i - ALPHA_WORDS]);
}

/* c_begin: where the first row of C begins, in elements. */
template <class SIDE, int N>
DEVICE void store_tiles(const struct nib_gemv_params &p, const struct share &mine,
			int64_t c_begin)
{
	const int in_tile = SIDE::M * NIB_GEMV_TILE_ROWS;
	const int tiles = tiles_of_cta(p, mine);

	for (int i = threadIdx.x; i < tiles * in_tile; i += NIB_GEMV_THREADS) {
		const int tile = i / in_tile, r = i % NIB_GEMV_TILE_ROWS;
		const int a_row = i / NIB_GEMV_TILE_ROWS % SIDE::M;
		const int64_t row =
		    row_of_element(p, mine, tile * NIB_GEMV_TILE_ROWS + r);
		float x[N];

		results_of<SIDE>(partial_sums<SIDE>(), tile, i % in_tile, x);
		if (row < p.n && a_row < p.m)
			store(p, c_begin + a_row * p.c_row_stride + row,
			      N == 2 ? silu(x[0]) * x[N - 1] : x[0]);
	}
}

DEVICE struct nib_gemv_operand operand_of_batch(struct nib_gemv_operand v)
{
	v.codes += blockIdx.y * v.batch_stride;
	v.scales += blockIdx.y * v.scale_batch_stride;
	return v;
}

/* A warp's ring, and what it loads next. */
struct warp_ring {
	uint32_t begin;
	uint32_t codes, scales; /* the lane's offsets in a stage */
	int stage;		/* the next to be multiplied */
	struct cursor ahead;
	struct source from;
};

DEVICE uint32_t ring_stage(const struct warp_ring &r, int stage)
{
	return r.begin + stage * NIB_GEMV_STAGE_BYTES;
}

/* tiles: of all N matrices, as below. */
template <bool ALIGNED, int N>
DEVICE void load_next(const struct nib_gemv_params &p, const struct matrices<N> &m,
		      struct warp_ring *r, int stage, int tiles, int phase)
{
	const int steps = all_steps(p);

	if (r->ahead.step < steps) {
		const uint32_t to = ring_stage(*r, stage);

		if (ALIGNED)
			load_aligned_step(m.b, r->from, to + r->codes, to + r->scales,
					  r->ahead.step);
		else
			load_any_step(m.b, r->from, to + r->codes, to + r->scales,
				      r->ahead.step);
		if (advance(&r->ahead, tiles, steps, phase))
			r->from = source_of_tile(p, m, r->ahead.tile);
	}
	cp_async_commit_group();
}

/* The warp's steps of one tile, from step begin to end of all. */
template <class SIDE, int N>
DEVICE struct accumulators<SIDE::M>
run_tile(const struct nib_gemv_params &p, const struct matrices<N> &m, const SIDE &side,
	 struct warp_ring *r, int tiles, int begin, int end) {
	const int last = all_steps(p) - 1;
	struct accumulators<SIDE::M> acc = {
	};

	for (int s = begin + threadIdx.x / 32; s < end; s += NIB_GEMV_WARPS) {
		const int stage = r->stage;

		cp_async_wait_group<NIB_GEMV_STAGES - 1>();
		__syncwarp();
		side.multiply(&acc, ring_stage(*r, stage), s - begin, s == last);
		__syncwarp();
		load_next<SIDE::ALIGNED>(p, m, r, stage, tiles, side.phase());
		r->stage = stage + 1 == NIB_GEMV_STAGES ? 0 : stage + 1;
	}
	return acc;
}

/* Asks for the warp's first stages of B.  begin: of the rings of all warps. */
template <bool ALIGNED, int N>
DEVICE struct warp_ring fill_ring(const struct nib_gemv_params &p,
				  const struct matrices<N> &m, uint32_t begin,
				  int tiles, int phase)
{
	struct warp_ring r;

	r.begin = begin + threadIdx.x / 32 * NIB_GEMV_STAGES * NIB_GEMV_STAGE_BYTES;
	r.codes = lane_target();
	r.scales = CODES_BYTES + threadIdx.x % 32 * 16;
	r.stage = 0;
	r.ahead = {0, (int)threadIdx.x / 32, 0, min(phase, all_steps(p))};
	r.from = source_of_tile(p, m, 0);
#pragma unroll 1
	for (int stage = 0; stage < NIB_GEMV_STAGES; stage++)
		load_next<ALIGNED>(p, m, &r, stage, tiles, phase);
	return r;
}

/* Asked for early: at the end all would wait for it. */
DEVICE void load_alpha(const float *alpha, uint32_t to)
{
	if (threadIdx.x == 0 && alpha)
		cp_async_4(to, alpha, 4);
	else if (threadIdx.x == 0)
		sts_f32(to, 1);
}

/*
 * Multiplies the warp's steps of all tiles.  The first weights are asked for
 * before the kernel before has ended, if none writes them, and before A in any
 * case: they come from further away.  ring, zeros: shared memory, with the alphas
 * behind the zeros.
 */
template <class SIDE, int N>
DEVICE void run_warp(const struct nib_gemv_params &p, const struct matrices<N> &m,
		     SIDE side, uint32_t ring, uint32_t zeros, float *partial,
		     int tiles)
{
	const int warp = threadIdx.x / 32, steps = all_steps(p);
	const int phase = side.phase();
	const int warp_partials = SIDE::M * NIB_GEMV_TILE_ROWS;
	int begin = 0;
	struct warp_ring r;

	griddepcontrol_launch_dependents();
	if (!p.b_is_constant)
		griddepcontrol_wait();
	r = fill_ring<SIDE::ALIGNED>(p, m, ring, tiles, phase);
	if (threadIdx.x < SIDE::ZEROS / 4)
		sts_32(zeros + threadIdx.x * 4, 0);
	griddepcontrol_wait();
#pragma unroll
	for (int i = 0; i < N; i++)
		load_alpha(m.alpha[i], zeros + SIDE::ZEROS + 4 * i);
	side.load(0);
	cp_async_commit_group();
	cp_async_wait_group<0>();
	side.convert();
	side.view(m.b);
	/* Once also for k = 0, whose sums are 0. */
	do {
		if (begin) {
			__syncthreads();
			side.load(begin);
			cp_async_commit_group();
			cp_async_wait_group<0>();
			side.convert();
		}
		for (int tile = 0; tile < tiles; tile++)
			add_partial(partial +
					(tile * NIB_GEMV_WARPS + warp) * warp_partials,
				    run_tile(p, m, side, &r, tiles, begin,
					     min(begin + phase, steps)),
				    begin == 0);
		begin += phase;
	} while (begin < steps);
}

/* The partial sums of all tiles of a CTA, for all threads to read. */
template <class SIDE, int N>
DEVICE void multiply_matrices(const struct nib_gemv_params &p,
			      const struct nib_gemv_operand &a,
			      const struct matrices<N> &m)
{
	float *partial = partial_sums<SIDE>();
	const int bytes =
	    p.tiles_per_cta * N * NIB_GEMV_WARPS * SIDE::M * NIB_GEMV_TILE_ROWS * 4;
	const uint32_t sums = smem_addr(partial);
	const uint32_t zeros = sums - SIDE::ZEROS - 4 * ALPHA_WORDS;

	run_warp(p, m, SIDE(p, a, zeros, sums + bytes), zeros - NIB_GEMV_RING_BYTES,
		 zeros, partial, N * tiles_of_cta(p, m.mine));
	__syncthreads();
}

template <class SIDE>
DEVICE void gemv(const struct nib_gemv_params &p)
{
	const struct nib_gemv_operand b = operand_of_batch(p.b);
	const struct matrices<1> m = {
		b, {b.codes}, {b.scales}, {p.alpha},
		{
			blockIdx.x, gridDim.x
		}
	};

	multiply_matrices<SIDE, 1>(p, operand_of_batch(p.a), m);
	store_tiles<SIDE, 1>(p, m.mine, blockIdx.y * p.c_batch_stride);
}

#define NIB_GEMV_KERNEL(name, ctas, ...)                                               \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV_THREADS, ctas)           \
	    NIB_KERNEL(gemv_##name)(const __grid_constant__ struct nib_gemv_params p)  \
	{                                                                              \
		gemv<__VA_ARGS__>(p);                                                  \
	}

#endif
