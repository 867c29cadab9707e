/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_warps.cuh - C = alpha * A * B^T of one matrix, or a batch, by mma.sync, for at
 * most 8 rows of A in fp16, bf16 or NVFP4, which is converted to fp16.  For sm_80 and
 * newer.  common/mma_warps.c is the host side.
 *
 *   warps without roles, each of which has a slice of k and a ring of its own
 *
 *   A --cp.async--> ring of the warp --lds, permute or dequantise, sts--> same place
 *   B --cp.async--> ring of the warp --lds--> codes * scales in A's type
 *                     --mma.m16n8k16--> sums of the warp  <--lds-- A in the ring
 *   sums of all warps --sts--> shared memory --added in order of warps--> C
 *
 * A CTA has a tile of 32 or 64 rows of B and all rows of A.  Warp w of W multiplies
 * steps w, w + W, ... of k128.  So no warp waits for another before the end, k is
 * divided without memory or counters of its own, and the order of a sum depends only
 * on k and W.
 *
 *   step i of a warp                                        of its stream
 *   wait for the lane's own copies, finish A                i
 *   __syncwarp
 *   request A and B                                         i + STAGES - 1
 *   multiply                                                i
 *
 * A tile is m8 tiles of B whose scales are neighbours in memory: row g of m8 tile i is
 * row 32 (i / s) + 8 (i % s) + g of a block of 128, from 8 s q on, with s = 1 or 2
 * (32 or 64 rows) and q = the tile's number in the block.
 *
 *   stage      bytes
 *   codes      64 R    m8 tile, then lane 4g + t: row g, k 32 t to 32 t + 31
 *   scales     8 R     k64 0, then k64 1: 16 bytes for row 8 (i % s) + g of each 32
 *                      rows, four of them for each i / s
 *   A          2048    j: word j of each lane's 32 k, row g, lane t
 *   (R rows of B, 8 of A)
 *
 * Arithmetic: a code times its scale, times 2^-6 (bf16: 2^-7), is exact in A's type.
 * An mma adds 16 products to a sum in fp32.  Lane t of a quad supplies four of the k
 * 32 t to 32 t + 31, so 8 mma multiply k128.  Bound: docs/numerics.md, sections 4
 * and 10.
 *
 * Roofline: memory bandwidth.  A is loaded for each tile from the L2: 2048 bytes for
 * 4608 of 64 rows of B, or 2304 of 32.  With 16 rows of A the kernels of mma_matrix.cuh
 * are as fast: each CTA of theirs has 128 rows of B.
 *
 * Variants: R = 32 and 64, if rows are pieces of 16 bytes and the scales of B are
 * tiled; "any" has R = 32 and no such condition.
 */
#ifndef NIB_MMA_WARPS_CUH
#define NIB_MMA_WARPS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "decode.cuh"
#include "kernel_name.h"
#include "mma_warps_params.h"
#include "ptx_async.cuh"
#include "ptx_mma16.cuh"
#include "rows.cuh"

#define STEP   NIB_MMA_WARPS_STEP
#define STAGES NIB_MMA_WARPS_STAGES
#define M      NIB_MMA_WARPS_ROWS /* of A */

/* G: m8 tiles of B.  IS_ANY: no condition on the operands. */
template <int G_, enum a_type TYPE_, bool IS_ANY_>
struct warps_traits {
	static const int G = G_, R = 8 * G_, S = G_ / 4;
	static const int MT = G / 2; /* m16 tiles */
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const bool IS_ANY = IS_ANY_;
	/* Offsets in a stage. */
	static const int SCALES_AT = R * STEP / 2,
	A_AT = R *(STEP / 16 * 9);
	static const int STAGE_BYTES = A_AT + M * STEP * 2;
};

/* ---- loads --------------------------------------------------------------- */

/* The operands of the CTA's matrix, and what the lane loads of them. */
template <class TRAITS>
struct warp_loads {
	struct nib_gemv_operand a, b;
	uint32_t ring; /* of the warp */
	int tile, rows, n, k;
	/* Unless IS_ANY: the lane's source in the first step. */
	const uint8_t *codes[TRAITS::G];
	const uint8_t *scales;
};

/* The lane's row of B in m8 tile i. */
template <class TRAITS>
DEVICE int b_row(int tile, int i)
{
	const int in_block = 128 / TRAITS::R;

	return tile / in_block * 128 + i / TRAITS::S * 32 +
	       tile % in_block * (8 * TRAITS::S) + i % TRAITS::S * 8 +
	       threadIdx.x % 32 / 4;
}

template <class TRAITS>
DEVICE void point_b(struct warp_loads<TRAITS> *w)
{
	const int lane = threadIdx.x % 32, in_block = 128 / TRAITS::R;
	const int pieces = 8 * TRAITS::S; /* of a k64 */

#pragma unroll
	for (int i = 0; i < TRAITS::G; i++)
		w->codes[i] =
		    row_of(w->b.codes, min(b_row<TRAITS>(w->tile, i), w->n - 1),
			   w->b.row_stride) +
		    lane % 4 * 16;
	w->scales = w->b.scales + (int64_t)(w->tile / in_block) * (w->k / 64) * 512 +
		    lane / pieces % 2 * 512 + w->tile % in_block * (pieces * 16) +
		    lane % pieces * 16;
}

/* Requests B of a step.  B beyond the end of k is replaced by earlier pieces of its
 * row, because A is zero there. */
template <class TRAITS>
DEVICE void load_b(const struct warp_loads<TRAITS> &w, uint32_t stage, int k)
{
	const int lane = threadIdx.x % 32, t = lane % 4, pieces = 8 * TRAITS::S;
	const bool is_tail = w.k - k < STEP;
	const int back = is_tail && t >= 2 ? t * 16 : 0;
	const int scales_back = is_tail && lane / pieces % 2 ? 512 : 0;

#pragma unroll
	for (int i = 0; i < TRAITS::G; i++)
		cp_async_16_l2_256(stage + i * 512 + lane * 16,
				   w.codes[i] + k / 2 - back);
	if (lane < 2 * pieces)
		cp_async_16_l2_128(stage + TRAITS::SCALES_AT + lane * 16,
				   w.scales + (int64_t)k * 8 - scales_back);
}

template <class TRAITS>
DEVICE void load_any_b(const struct warp_loads<TRAITS> &w, uint32_t stage, int k)
{
	const int lane = threadIdx.x % 32, t = lane % 4;
	const int from = k + t * 32 < w.k ? k + t * 32 : k;
	const int k64 = k + t * 64 < w.k ? k / 64 + t : k / 64;

#pragma unroll 1
	for (int i = 0; i < TRAITS::G; i++) {
		const int row = min(b_row<TRAITS>(w.tile, i), w.n - 1);

		load_16(stage + i * 512 + lane * 16,
			row_of(w.b.codes, row, w.b.row_stride) + from / 2,
			w.b.codes_align);
		if (t < 2)
			load_4(stage + TRAITS::SCALES_AT + t * (128 * TRAITS::S) +
				   (i % TRAITS::S * 8 + lane / 4) * 16 +
				   i / TRAITS::S * 4,
			       scales_of(w.b, w.k, row, k64), w.b.scales_align);
	}
}

/*
 * A: a piece is 8 k of a row.  Lane 8 j + 4 (row % 2) + t loads piece j of the k of
 * lane t, of rows lane / 4 % 2 + 2 i.  For NVFP4 that is 4 bytes of codes and the four
 * scales of the k64, which finish_a() replaces by the values.
 */
DEVICE int a_k(void)
{
	return threadIdx.x % 4 * 32 + threadIdx.x % 32 / 8 * 8;
}

DEVICE int a_row(int i)
{
	return 2 * i + threadIdx.x / 4 % 2;
}

/* The lane's piece i in a stage of A. */
DEVICE uint32_t a_piece(int i)
{
	const int lane = threadIdx.x % 32;

	return lane / 8 * 512 + a_row(i) * 64 + lane % 4 * 16;
}

/* Requests the lane's pieces of A, or stores zeros beyond the end of k.  Rows that do
 * not exist stay zero. */
template <class TRAITS>
DEVICE void load_a(const struct warp_loads<TRAITS> &w, uint32_t stage, int k)
{
	const int at = k + a_k();

#pragma unroll
	for (int i = 0; i < M / 2; i++) {
		const uint32_t to = stage + a_piece(i);
		const uint8_t *from = row_of(w.a.codes, a_row(i), w.a.row_stride);

		if (a_row(i) >= w.rows)
			continue;
		if (at >= w.k) {
			sts_128(to, make_uint4(0, 0, 0, 0));
		} else if (TRAITS::IS_NVFP4) {
			load_4(to, from + at / 2, TRAITS::IS_ANY ? w.a.codes_align : 4);
			load_4(to + 4, scales_of(w.a, w.k, a_row(i), at / 64),
			       TRAITS::IS_ANY ? w.a.scales_align : 4);
		} else {
			load_16(to, from + at * 2,
				TRAITS::IS_ANY ? w.a.codes_align : 16);
		}
	}
}

/* Converts the lane's pieces of A, which have arrived, to values in the order of
 * decoded codes (decode.cuh), all loads first. */
template <class TRAITS>
DEVICE void finish_a(uint32_t stage, int rows)
{
	const uint32_t block = threadIdx.x % 2 * 2 + threadIdx.x % 32 / 16;
	uint4 x[M / 2];

#pragma unroll
	for (int i = 0; i < M / 2; i++)
		x[i] = lds_128(stage + a_piece(i));
#pragma unroll
	for (int i = 0; i < M / 2; i++) {
		uint32_t w[4], scale[2];

		if (a_row(i) >= rows)
			continue;
		if constexpr (TRAITS::IS_NVFP4) {
			widen_scales<false>(x[i].y >> 8 * block, scale);
			decode<false>(x[i].x, mul_f16x2(scale[0], F16_64), w);
			x[i] = make_uint4(w[0], w[1], w[2], w[3]);
		} else {
			x[i] = permute_as_decoded<TRAITS::IS_BF16>(x[i]);
		}
		sts_128(stage + a_piece(i), x[i]);
	}
}

template <class TRAITS>
DEVICE void load_step(const struct warp_loads<TRAITS> &w, int stage, int step)
{
	const uint32_t to = w.ring + stage * TRAITS::STAGE_BYTES;

	if (TRAITS::IS_ANY)
		load_any_b(w, to, step * STEP);
	else
		load_b(w, to, step * STEP);
	load_a(w, to + TRAITS::A_AT, step * STEP);
}

/* ---- the multiplication -------------------------------------------------- */

template <class TRAITS>
DEVICE void multiply(float (&acc)[TRAITS::MT][4], uint32_t stage)
{
	const int lane = threadIdx.x % 32, t = lane % 4;
	const uint32_t scales = stage + TRAITS::SCALES_AT + t / 2 * (128 * TRAITS::S) +
				lane / 4 * 16 + t % 2 * 2;
	uint32_t scale[TRAITS::G][2], word[TRAITS::G][4];

#pragma unroll
	for (int i = 0; i < TRAITS::G; i++) {
		const uint4 w = lds_128(stage + i * 512 + lane * 16);

		word[i][0] = w.x;
		word[i][1] = w.y;
		word[i][2] = w.z;
		word[i][3] = w.w;
		widen_scales<TRAITS::IS_BF16>(
		    lds_u16(scales + i % TRAITS::S * 128 + i / TRAITS::S * 4),
		    scale[i]);
	}
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const uint4 a = lds_128(stage + TRAITS::A_AT + j * 512 + lane * 16);

#pragma unroll
		for (int i = 0; i < TRAITS::MT; i++) {
			uint32_t g[4], g8[4];

			decode<TRAITS::IS_BF16>(word[2 * i][j], scale[2 * i][j / 2], g);
			decode<TRAITS::IS_BF16>(word[2 * i + 1][j],
						scale[2 * i + 1][j / 2], g8);
			mma16<TRAITS::IS_BF16>(acc[i], g, g8, a.x, a.y);
			mma16<TRAITS::IS_BF16>(acc[i], g + 2, g8 + 2, a.z, a.w);
		}
	}
}

/* ---- C ------------------------------------------------------------------- */

/* Elements from a row of A to the next in the sums of a warp, so that the lanes of an
 * instruction use all banks. */
template <class TRAITS>
static const int SUMS_PITCH = TRAITS::R + 4;

/* Stores the warp's sums in the place of its ring. */
template <class TRAITS>
DEVICE void store_sums(float *to, const float (&acc)[TRAITS::MT][4])
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < TRAITS::MT * 4; i++) {
		const int d = i % 4;

		to[(2 * t + d % 2) * SUMS_PITCH<TRAITS> + i / 2 * 8 + g] =
		    acc[i / 4][d];
	}
}

DEVICE void store(void *c, int dtype, int64_t index, float x)
{
	if (dtype == 0)
		((float *)c)[index] = x;
	else if (dtype == 1)
		((__half *)c)[index] = __float2half_rn(x);
	else
		((__nv_bfloat16 *)c)[index] = __float2bfloat16_rn(x);
}

/* Adds up the sums of the warps and stores C; c_begin: its first element. */
template <class TRAITS>
DEVICE void store_tile(const struct nib_mma_warps_params &p, const float *sums,
		       int tile, int64_t c_begin)
{
	const int warp_stride = STAGES * TRAITS::STAGE_BYTES / 4;
	const int warps = blockDim.x / 32, in_block = 128 / TRAITS::R;
	const float alpha = p.alpha ? __ldg(p.alpha) : 1;

	for (int i = threadIdx.x; i < p.rows * TRAITS::R; i += blockDim.x) {
		const int row = i / TRAITS::R, at = i % TRAITS::R;
		const int column = tile / in_block * 128 + at / 8 / TRAITS::S * 32 +
				   tile % in_block * (8 * TRAITS::S) +
				   at % (8 * TRAITS::S);
		const float *from = sums + row * SUMS_PITCH<TRAITS> + at;
		float sum = from[0];

		for (int w = 1; w < warps; w++)
			sum += from[w * warp_stride];
		if (column < p.n)
			store(p.c, p.c_dtype, c_begin + row * p.c_row_stride + column,
			      result<TRAITS::IS_BF16>(sum, alpha));
	}
}

/* ---- the kernel ---------------------------------------------------------- */

/* Zeros the stages of A, because mma also reads rows that A does not have. */
template <class TRAITS>
DEVICE void zero_a(uint32_t ring)
{
	for (int stage = 0; stage < STAGES; stage++)
		for (int i = 0; i < M / 2; i++)
			sts_128(ring + stage * TRAITS::STAGE_BYTES + TRAITS::A_AT +
				    a_piece(i),
				make_uint4(0, 0, 0, 0));
	__syncwarp();
}

template <class TRAITS>
DEVICE struct warp_loads<TRAITS> new_loads(const struct nib_mma_warps_params &p,
					   uint32_t ring) {
	struct warp_loads<TRAITS> w;

	w.a = p.a;
	w.b = p.b;
	w.a.codes += blockIdx.y * p.a.batch_stride;
	w.a.scales += blockIdx.y * p.a.scale_batch_stride;
	w.b.codes += blockIdx.y * p.b.batch_stride;
	w.b.scales += blockIdx.y * p.b.scale_batch_stride;
	w.ring = ring;
	w.tile = blockIdx.x;
	w.rows = p.rows;
	w.n = p.n;
	w.k = p.k;
	if (!TRAITS::IS_ANY)
		point_b(&w);
	return w;
}

template <class TRAITS>
DEVICE void mma_warps(const struct nib_mma_warps_params &p)
{
	extern __shared__ __align__(128) uint8_t bytes[];
	const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
	const int steps = (p.k + STEP - 1) / STEP;
	const int ring_at = warp * (STAGES * TRAITS::STAGE_BYTES);
	struct warp_loads<TRAITS> w = new_loads<TRAITS>(p, smem_addr(bytes) + ring_at);
	float acc[TRAITS::MT][4] = {};
	int stage = 0;

	zero_a<TRAITS>(w.ring);
	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
	for (int i = 0; i < STAGES - 1; i++) {
		if (warp + i * warps < steps)
			load_step(w, i, warp + i * warps);
		cp_async_commit_group();
	}
#pragma unroll 1
	for (int step = warp; step < steps; step += warps) {
		const int next = step + (STAGES - 1) * warps;
		const int free = stage == 0 ? STAGES - 1 : stage - 1;
		const uint32_t at = w.ring + stage * TRAITS::STAGE_BYTES;

		cp_async_wait_group<STAGES - 2>();
		finish_a<TRAITS>(at + TRAITS::A_AT, p.rows);
		__syncwarp();
		if (next < steps)
			load_step(w, free, next);
		cp_async_commit_group();
		multiply<TRAITS>(acc, at);
		stage = stage + 1 == STAGES ? 0 : stage + 1;
	}
	__syncwarp();
	store_sums<TRAITS>((float *)(bytes + ring_at), acc);
	__syncthreads();
	store_tile<TRAITS>(p, (const float *)bytes, w.tile,
			   blockIdx.y * p.c_batch_stride);
}

#define MMA_WARPS_KERNEL(name, ...)                                                    \
	extern "C" __global__ void __launch_bounds__(32 * NIB_MMA_WARPS_MOST)          \
	    NIB_KERNEL(mma_warps_##name)(                                              \
		const __grid_constant__ struct nib_mma_warps_params p)                 \
	{                                                                              \
		mma_warps<warps_traits<__VA_ARGS__>>(p);                               \
	}

#endif
