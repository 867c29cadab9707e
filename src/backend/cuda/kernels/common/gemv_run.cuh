/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_run.cuh - what the vector kernels share for every type of A: the tiles of a CTA,
 * the steps and the ring of a warp, the sums of the warps, and the store.
 *
 * A class SIDE has what depends on the type of A:
 *
 *   M           the largest number of rows of A
 *   ALIGNED     rows of B are pieces of 16 bytes
 *   ZEROS       bytes of zeros in shared memory
 *   SIDE(p, a, zeros, kept)
 *               the addresses of its zeros and of its memory for A
 *   phase()     the number of steps of A that fit into that memory
 *   load(step)  requests a phase, which begins with this step
 *   convert()   converts the loaded phase; ends with __syncthreads()
 *   view(b)     sets what a lane reads, when A has arrived
 *   multiply(acc, stage, step, is_last)
 *               adds a stage of B; step: counted from the beginning of the phase
 *   result(sum, alpha)
 *               an element of C
 *
 * A CTA multiplies N matrices of weights: one, or the two of a dual product, whose
 * elements of C are silu(first) * second.  Then its tiles alternate between the two.
 */
#ifndef NIB_GEMV_RUN_CUH
#define NIB_GEMV_RUN_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gemv_load.cuh"
#include "ptx_async.cuh"
#include "silu.cuh"

/* Words between the zeros and the partial sums: the alphas. */
#define ALPHA_WORDS 8
/* Offset in the zeros: other banks than the codes that the same instruction reads. */
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
	uint32_t pieces; /* offset of its first piece of row g */
	uint32_t scales; /* offset of its four scales of row g */
	uint32_t tail;	 /* mask of the scales inside k in the last step */
};

DEVICE struct stage_view view_of_stage(const struct nib_gemv_params &p,
				       const struct nib_gemv_operand &b)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const int left = p.k / 16 - (all_steps(p) - 1) * STEP_BLOCKS - 4 * t;
	struct stage_view view;

	view.pieces = g * ROW_BYTES + (2 * t ^ g % 2) * 16;
	view.scales = CODES_BYTES +
		      (b.is_tiled ? g / 4 * 64 + t * 16 + g % 4 * 4 : g * 16 + t * 4);
	view.tail = left >= 4 ? ~0u : left <= 0 ? 0 : (1u << 8 * left) - 1;
	return view;
}

/* x[pair][r][c]: row g + 8r of B; c: the row of A of the pair, or for M = 1 even and
 * odd blocks of the lane. */
template <int M>
struct accumulators {
	static const int pairs = (M + 1) / 2;
	float x[pairs][2][2];
};

/* Which of the CTAs of a matrix of weights this is. */
struct cta_place {
	uint32_t cta, ctas;
};

/* CTAs that run at the same time read neighbouring tiles, whose scales are neighbours
 * in memory, too. */
DEVICE uint32_t tile_of_cta(const struct cta_place &place, int i)
{
	return place.cta + i * place.ctas;
}

/* Some CTAs have one tile less. */
DEVICE int tiles_of_cta(const struct nib_gemv_params &p, const struct cta_place &place)
{
	return p.tiles_per_cta -
	       (tile_of_cta(place, p.tiles_per_cta - 1) >= (uint32_t)p.tiles);
}

/* The row of B that is element i of the CTA's tiles; may be n or more. */
DEVICE int64_t row_of_element(const struct nib_gemv_params &p,
			      const struct cta_place &place, int i)
{
	return nib_gemv_row(tile_of_cta(place, i / NIB_GEMV_TILE_ROWS),
			    i % NIB_GEMV_TILE_ROWS, p.b.is_tiled);
}

/* The weights that a CTA multiplies by A, which differ only in their pointers, and
 * their alphas (NULL = 1). */
template <int N>
struct matrices {
	struct nib_gemv_operand b;
	const uint8_t *codes[N], *scales[N];
	const float *alpha[N];
	struct cta_place place;
};

/* What the lane loads of the CTA's tile number tile / N, of matrix tile % N. */
template <int N>
DEVICE struct source source_of_tile(const struct nib_gemv_params &p,
				    const matrices<N> &weights, int tile)
{
	const bool is_second = N == 2 && tile % 2;
	struct nib_gemv_operand b = weights.b;

	b.codes = is_second ? weights.codes[N - 1] : weights.codes[0];
	b.scales = is_second ? weights.scales[N - 1] : weights.scales[0];
	return source_of(p, b, tile_of_cta(weights.place, tile / N));
}

/* Adds the sums of each quad's lanes to partial[row of A][16 rows of B] of a warp and
 * tile; is_first: stores them. */
template <int M>
DEVICE void add_partial(float *partial, const accumulators<M> &acc, bool is_first)
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

/* The sum of an element over the warps; x: that of warp 0. */
DEVICE float add_warps(const float *x, int warp_stride)
{
	float sum = x[0];

#pragma unroll
	for (int w = 1; w < NIB_GEMV_WARPS; w++)
		sum += x[w * warp_stride];
	return sum;
}

/* The partial sums of all tiles and warps in shared memory. */
template <class SIDE>
DEVICE float *partial_sums(void)
{
	extern __shared__ __align__(128) uint8_t shared[];

	return (float *)(shared + NIB_GEMV_RING_BYTES + SIDE::ZEROS + 4 * ALPHA_WORDS);
}

/* x[i]: an element of the CTA's tile `tile`, by matrix i; element: row of A * 16 + row
 * of the tile. */
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

/* c_begin: the index of the first element of C. */
template <class SIDE, int N>
DEVICE void store_tiles(const struct nib_gemv_params &p, const struct cta_place &place,
			int64_t c_begin)
{
	const int in_tile = SIDE::M * NIB_GEMV_TILE_ROWS;
	const int tiles = tiles_of_cta(p, place);

	for (int i = threadIdx.x; i < tiles * in_tile; i += NIB_GEMV_THREADS) {
		const int tile = i / in_tile, r = i % NIB_GEMV_TILE_ROWS;
		const int a_row = i / NIB_GEMV_TILE_ROWS % SIDE::M;
		const int64_t row =
		    row_of_element(p, place, tile * NIB_GEMV_TILE_ROWS + r);
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

/* A warp's ring of B, and what it loads next. */
struct warp_ring {
	uint32_t begin;
	uint32_t codes, scales; /* the lane's offsets in a stage */
	int stage;		/* to be multiplied next */
	struct cursor ahead;	/* to be loaded next */
	struct source from;
};

DEVICE uint32_t ring_stage(const struct warp_ring &ring, int stage)
{
	return ring.begin + stage * NIB_GEMV_STAGE_BYTES;
}

/* Requests the warp's next step; tiles: N times those of the CTA. */
template <bool ALIGNED, int N>
DEVICE void load_next(const struct nib_gemv_params &p, const matrices<N> &weights,
		      struct warp_ring *ring, int stage, int tiles, int phase)
{
	const int steps = all_steps(p);

	if (ring->ahead.step < steps) {
		const uint32_t to = ring_stage(*ring, stage);

		if (ALIGNED)
			load_aligned_step(weights.b, ring->from, to + ring->codes,
					  to + ring->scales, ring->ahead.step);
		else
			load_any_step(weights.b, ring->from, to + ring->codes,
				      to + ring->scales, ring->ahead.step);
		if (advance(&ring->ahead, tiles, steps, phase))
			ring->from = source_of_tile(p, weights, ring->ahead.tile);
	}
	cp_async_commit_group();
}

/* Multiplies the warp's steps of one tile in a phase, steps begin to end - 1. */
template <class SIDE, int N>
DEVICE accumulators<SIDE::M>
run_tile(const struct nib_gemv_params &p, const matrices<N> &weights, const SIDE &side,
	 struct warp_ring *ring, int tiles, int begin, int end)
{
	const int last = all_steps(p) - 1;
	accumulators<SIDE::M> acc = {};

	for (int s = begin + threadIdx.x / 32; s < end; s += NIB_GEMV_WARPS) {
		const int stage = ring->stage;

		cp_async_wait_group<NIB_GEMV_STAGES - 1>();
		__syncwarp();
		side.multiply(&acc, ring_stage(*ring, stage), s - begin, s == last);
		__syncwarp();
		load_next<SIDE::ALIGNED>(p, weights, ring, stage, tiles, side.phase());
		ring->stage = stage + 1 == NIB_GEMV_STAGES ? 0 : stage + 1;
	}
	return acc;
}

/* Requests the warp's first stages of B.  begin: of the rings of all warps. */
template <bool ALIGNED, int N>
DEVICE struct warp_ring fill_ring(const struct nib_gemv_params &p,
				  const matrices<N> &weights, uint32_t begin, int tiles,
				  int phase)
{
	struct warp_ring ring;

	ring.begin = begin + threadIdx.x / 32 * NIB_GEMV_STAGES * NIB_GEMV_STAGE_BYTES;
	ring.codes = lane_target();
	ring.scales = CODES_BYTES + threadIdx.x % 32 * 16;
	ring.stage = 0;
	ring.ahead = {0, (int)threadIdx.x / 32, 0, min(phase, all_steps(p))};
	ring.from = source_of_tile(p, weights, 0);
#pragma unroll 1
	for (int stage = 0; stage < NIB_GEMV_STAGES; stage++)
		load_next<ALIGNED>(p, weights, &ring, stage, tiles, phase);
	return ring;
}

/* Requests alpha early, to hide its latency. */
DEVICE void load_alpha(const float *alpha, uint32_t to)
{
	if (threadIdx.x == 0 && alpha)
		cp_async_4(to, alpha, 4);
	else if (threadIdx.x == 0)
		sts_f32(to, 1);
}

/*
 * Multiplies the warp's steps of all tiles.  Requests the first weights before the
 * previous kernel has ended, unless a kernel writes them, and always before A, because
 * they come from memory and A is often in the L2.  rings, zeros: addresses in shared
 * memory; the alphas follow the zeros.
 */
template <class SIDE, int N>
DEVICE void run_warp(const struct nib_gemv_params &p, const matrices<N> &weights,
		     SIDE side, uint32_t rings, uint32_t zeros, float *partial,
		     int tiles)
{
	const int warp = threadIdx.x / 32, steps = all_steps(p);
	const int phase = side.phase();
	const int warp_partials = SIDE::M * NIB_GEMV_TILE_ROWS;
	int begin = 0;
	struct warp_ring ring;

	griddepcontrol_launch_dependents();
	if (!p.b_is_constant)
		griddepcontrol_wait();
	ring = fill_ring<SIDE::ALIGNED>(p, weights, rings, tiles, phase);
	if (threadIdx.x < SIDE::ZEROS / 4)
		sts_32(zeros + threadIdx.x * 4, 0);
	griddepcontrol_wait();
#pragma unroll
	for (int i = 0; i < N; i++)
		load_alpha(weights.alpha[i], zeros + SIDE::ZEROS + 4 * i);
	side.load(0);
	cp_async_commit_group();
	cp_async_wait_group<0>();
	side.convert();
	side.view(weights.b);
	/* Once even for k = 0, to store sums of 0. */
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
				    run_tile(p, weights, side, &ring, tiles, begin,
					     min(begin + phase, steps)),
				    begin == 0);
		begin += phase;
	} while (begin < steps);
}

/* Computes the partial sums of all tiles of the CTA; then all threads may read them. */
template <class SIDE, int N>
DEVICE void multiply_matrices(const struct nib_gemv_params &p,
			      const struct nib_gemv_operand &a,
			      const matrices<N> &weights)
{
	float *partial = partial_sums<SIDE>();
	const int bytes =
	    p.tiles_per_cta * N * NIB_GEMV_WARPS * SIDE::M * NIB_GEMV_TILE_ROWS * 4;
	const uint32_t sums = smem_addr(partial);
	const uint32_t zeros = sums - SIDE::ZEROS - 4 * ALPHA_WORDS;

	run_warp(p, weights, SIDE(p, a, zeros, sums + bytes),
		 zeros - NIB_GEMV_RING_BYTES, zeros, partial,
		 N * tiles_of_cta(p, weights.place));
	__syncthreads();
}

template <class SIDE>
DEVICE void gemv(const struct nib_gemv_params &p)
{
	const struct nib_gemv_operand b = operand_of_batch(p.b);
	const matrices<1> weights = {
	    b, {b.codes}, {b.scales}, {p.alpha}, {blockIdx.x, gridDim.x}};

	multiply_matrices<SIDE, 1>(p, operand_of_batch(p.a), weights);
	store_tiles<SIDE, 1>(p, weights.place, blockIdx.y * p.c_batch_stride);
}

#define NIB_GEMV_KERNEL(name, ctas, ...)                                               \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV_THREADS, ctas)           \
	    NIB_KERNEL(gemv_##name)(const __grid_constant__ struct nib_gemv_params p)  \
	{                                                                              \
		gemv<__VA_ARGS__>(p);                                                  \
	}

#endif
