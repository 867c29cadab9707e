/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_warps.cuh - C = alpha * A * B^T of one matrix, or a batch, by mma.sync, for at
 * most 16 rows of A in fp16, bf16 or NVFP4, which is converted to fp16.  For sm_80 and
 * newer.  common/mma_warps.c is the host side.
 *
 *   warps without roles, each of which has a slice of k and a ring of its own
 *
 *   A --cp.async--> ring of the warp --lds, permute or dequantise--> values
 *   B --cp.async--> ring of the warp --lds--> codes * scales in A's type
 *                     --mma.m16n8k16--> sums of the warp  <-- values of A
 *   sums of all warps --sts--> shared memory --added in order of warps--> C
 *
 * A CTA has a tile of 32 or 64 rows of B and all rows of A.  Warp w of W multiplies
 * steps w, w + W, ... of k128.  So no warp waits for another before the end, k is
 * divided without memory or counters of its own, and the order of a sum depends only
 * on k and W.
 *
 *   step i of a warp                                        of its stream
 *   wait for the lane's own copies, load its codes          i
 *   __syncwarp, load scales and A                           i
 *   request A and B                                         i + STAGES - 1
 *   multiply                                                i
 *
 * If the weights are packed, no earlier kernel writes them: on Hopper their first
 * stages are requested before the previous kernel has ended.
 *
 * A tile is m8 tiles of B whose scales are neighbours in memory: row g of m8 tile i is
 * row 32 (i / s) + 8 (i % s) + g of a block of 128, from 8 s q on, with s = 1 or 2
 * (32 or 64 rows) and q = the tile's number in the block.
 *
 *   stage      bytes
 *   codes      64 R    m8 tile, then lane 4g + t: row g, k 32 t to 32 t + 31
 *   scales     8 R     k64 0, then k64 1: 16 bytes for row 8 (i % s) + g of each 32
 *                      rows, four of them for each i / s
 *   A          256 M   n8 tile, j: word j of each lane's 32 k, row g, lane t
 *   A, NVFP4   64 M    n8 tile: as the codes of B
 *              8 M     scales: row, k64
 *   (R rows of B, M = 8 or 16 of A)
 *
 * Each value of A is used by one lane only, so lanes convert A after loading it.
 *
 * Arithmetic: a code times its scale, times 2^-6 (bf16: 2^-7), is exact in A's type.
 * An mma adds 16 products to a sum in fp32.  Lane t of a quad supplies four of the k
 * 32 t to 32 t + 31, so 8 mma multiply k128.  Bound: docs/numerics.md, sections 4
 * and 10.
 *
 * Roofline: memory bandwidth.  A is loaded for each tile from the L2: 2048 bytes (8
 * rows of fp16) or 576 (NVFP4) for 4608 of 64 rows of B, or 2304 of 32.
 *
 * Variants: M = 8 and 16, R = 32 and 64, if rows are pieces of 16 bytes and the scales
 * of B are tiled; "any" has R = 32 and no such condition.
 */
#ifndef NIB_MMA_WARPS_CUH
#define NIB_MMA_WARPS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "decode.cuh"
#include "kernel_name.h"
#include "mma_warps_params.h"
#include "ptx_async.cuh"
#include "ptx_copy.cuh"
#include "ptx_mma16.cuh"
#include "rows.cuh"

#define STEP   NIB_MMA_WARPS_STEP
#define STAGES NIB_MMA_WARPS_STAGES

/* NT: n8 tiles of rows of A.  G: m8 tiles of B.  IS_ANY: no condition on the
 * operands. */
template <int NT_, int G_, enum a_type TYPE_, bool IS_ANY_>
struct warps_traits {
	static const int NT = NT_, M = 8 * NT_;
	static const int G = G_, R = 8 * G_, S = G_ / 4;
	static const int MT = G / 2; /* m16 tiles */
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const bool IS_ANY = IS_ANY_;
	/* Offsets in a stage. */
	static const int SCALES_AT = R * STEP / 2;
	static const int A_AT = R * (STEP / 16 * 9);
	static const int A_SCALES_AT = A_AT + M * STEP / 2; /* of NVFP4 */
	static const int STAGE_BYTES =
	    A_AT + (IS_NVFP4 ? M * (STEP / 16 * 9) : M * STEP * 2);
	/* The pieces of A of a lane, and the rows from one to the next. */
	static const int A_PIECES = IS_NVFP4 ? NT : 4 * NT;
	static const int A_ROWS = IS_NVFP4 ? 8 : 2;
};

/* ---- loads --------------------------------------------------------------- */

/* The operands of the CTA's matrix, and what the lane loads of them. */
template <class TRAITS>
struct warp_loads {
	struct nib_gemv_operand a, b;
	uint32_t ring; /* of the warp */
	int lane, tile, rows, n, k;
	/* The lane's sources in the first step; of B unless IS_ANY. */
	const uint8_t *codes[TRAITS::G], *scales;
	const uint8_t *a_piece, *a_scales; /* piece 0 */
	uint32_t a_to;			   /* the place of piece 0 in a stage */
	int a_row, a_k;			   /* its row, and k in the step */
};

/* The same pointer, which the compiler keeps in registers: otherwise it computes it
 * again in each step. */
DEVICE const uint8_t *keep(const uint8_t *p)
{
	const uint64_t x = (uint64_t)p;

	return (const uint8_t *)((uint64_t)opaque((uint32_t)(x >> 32)) << 32 |
				 opaque((uint32_t)x));
}

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
	const int lane = w.lane, t = lane % 4, pieces = 8 * TRAITS::S;
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
 * A: a lane copies pieces of 16 bytes.  For fp16 and bf16, lane 8 j + 4 (row % 2) + t
 * has the 8 k of piece j of lane t, of every second row: all lanes copy 256 bytes of
 * two rows.  For NVFP4, it has the 32 k of lane t, of row lane / 4 of each n8 tile, and
 * lane 2 row + i the scales of k64 i.
 */
template <class TRAITS>
DEVICE void point_a(struct warp_loads<TRAITS> *w)
{
	const int lane = w->lane, t = lane % 4;
	int row = lane / 4, k = t * 32, bytes = t * 16, to = lane * 16;

	if (!TRAITS::IS_NVFP4) {
		row = lane / 4 % 2;
		k += lane / 8 * 8;
		bytes = k * 2;
		to = lane / 8 * 512 + row * 64 + t * 16;
	}
	w->a_row = opaque(row);
	w->a_k = opaque(k);
	w->a_to = opaque(TRAITS::A_AT + to);
	w->a_piece = keep(row_of(w->a.codes, row, w->a.row_stride) + bytes);
	if (TRAITS::IS_NVFP4)
		w->a_scales = keep(scales_of(w->a, w->k, lane / 2, lane % 2));
}

/* The place of piece i after that of piece 0. */
template <class TRAITS>
DEVICE uint32_t a_offset(int i)
{
	return TRAITS::IS_NVFP4 ? i * 512 : i / 4 * 2048 + i % 4 * 128;
}

template <class TRAITS>
DEVICE void load_a_scales(const struct warp_loads<TRAITS> &w, uint32_t stage, int k)
{
	const uint32_t to = stage + TRAITS::A_SCALES_AT + w.lane * 4;
	const uint8_t *from = w.a_scales + (int64_t)(k / 64) * (w.a.is_tiled ? 512 : 4);
	const bool is_end = k + w.lane % 2 * 64 >= w.k;

	if (w.lane / 2 >= w.rows)
		return;
	if (!TRAITS::IS_ANY)
		cp_async_4(to, from, is_end ? 0 : 4);
	else if (is_end)
		sts_32(to, 0);
	else
		load_4(to, from, w.a.scales_align);
}

/* Requests the lane's pieces of A: zeros beyond the end of k.  Rows that do not exist
 * stay zero. */
template <class TRAITS>
DEVICE void load_a(const struct warp_loads<TRAITS> &w, uint32_t stage, int k)
{
	const uint8_t *from = w.a_piece + (TRAITS::IS_NVFP4 ? k / 2 : k * 2);
	const bool is_end = k + w.a_k >= w.k;

#pragma unroll
	for (int i = 0; i < TRAITS::A_PIECES; i++) {
		const uint32_t to = stage + w.a_to + a_offset<TRAITS>(i);
		const uint8_t *piece = from + i * TRAITS::A_ROWS * w.a.row_stride;

		if (w.a_row + i * TRAITS::A_ROWS >= w.rows)
			continue;
		if (!TRAITS::IS_ANY)
			cp_async_16_l1_zfill(to, piece, is_end ? 0 : 16);
		else if (is_end)
			sts_128(to, make_uint4(0, 0, 0, 0));
		else
			load_16(to, piece, w.a.codes_align);
	}
	if (TRAITS::IS_NVFP4)
		load_a_scales(w, stage, k);
}

template <class TRAITS>
DEVICE void load_step_b(const struct warp_loads<TRAITS> &w, int stage, int step)
{
	const uint32_t to = w.ring + stage * TRAITS::STAGE_BYTES;

	if (TRAITS::IS_ANY)
		load_any_b(w, to, step * STEP);
	else
		load_b(w, to, step * STEP);
}

template <class TRAITS>
DEVICE void load_step_a(const struct warp_loads<TRAITS> &w, int stage, int step)
{
	load_a(w, w.ring + stage * TRAITS::STAGE_BYTES, step * STEP);
}

/* ---- the multiplication -------------------------------------------------- */

/* The lane's codes of B, which it copied itself. */
template <class TRAITS>
DEVICE void load_words(uint32_t stage, int lane, uint4 (&word)[TRAITS::G])
{
#pragma unroll
	for (int i = 0; i < TRAITS::G; i++)
		word[i] = lds_128(stage + i * 512 + lane * 16);
}

template <class TRAITS>
DEVICE void load_scales(uint32_t stage, int lane, uint32_t (&scale)[TRAITS::G])
{
	const int t = lane % 4;
	const uint32_t from = stage + TRAITS::SCALES_AT + t / 2 * (128 * TRAITS::S) +
			      lane / 4 * 16 + t % 2 * 2;

#pragma unroll
	for (int i = 0; i < TRAITS::G; i++)
		scale[i] = lds_u16(from + i % TRAITS::S * 128 + i / TRAITS::S * 4);
}

/* A of one n8 tile: values[j] has the 8 k that are multiplied by word j of the codes,
 * in the order of decoded codes (decode.cuh). */
template <class TRAITS>
DEVICE void load_values(uint32_t stage, int lane, int nt, uint4 (&values)[4])
{
	if constexpr (TRAITS::IS_NVFP4) {
		const uint4 x = lds_128(stage + TRAITS::A_AT + nt * 512 + lane * 16);
		const uint32_t codes[4] = {x.x, x.y, x.z, x.w};
		uint32_t scale[2];

		widen_scales<false>(lds_u16(stage + TRAITS::A_SCALES_AT + nt * 64 +
					    lane / 2 * 4 + lane % 2 * 2),
				    scale);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			uint32_t w[4];

			decode<false>(codes[j], mul_f16x2(scale[j / 2], F16_64), w);
			values[j] = make_uint4(w[0], w[1], w[2], w[3]);
		}
	} else {
#pragma unroll
		for (int j = 0; j < 4; j++)
			values[j] = permute_as_decoded<TRAITS::IS_BF16>(lds_128(
			    stage + TRAITS::A_AT + nt * 2048 + j * 512 + lane * 16));
	}
}

/*
 * decode<true>() by other instructions.  Multiplying by two powers of 2 moves the sign
 * of a code and its other bits at once, and not in the pipe of shifts and logic, which
 * bounds these kernels.
 */
DEVICE void decode_bf16(uint32_t codes, uint32_t scale, uint32_t values[4])
{
	const uint32_t right = codes >> 8;

	values[0] = (codes & 0x000F000Fu) * 0x1040u & 0x81C081C0u;
	values[1] = (codes & 0x00F000F0u) * 0x0104u & 0x81C081C0u;
	values[2] = (right & 0x000F000Fu) * 0x1040u & 0x81C081C0u;
	values[3] = (right & 0x00F000F0u) * 0x0104u & 0x81C081C0u;
#pragma unroll
	for (int i = 0; i < 4; i++)
		values[i] = mul_bf16x2(values[i], scale);
}

template <class TRAITS>
DEVICE void decode_word(uint32_t codes, uint32_t scale, uint32_t values[4])
{
	if constexpr (TRAITS::IS_BF16)
		decode_bf16(codes, scale, values);
	else
		decode<false>(codes, scale, values);
}

template <class TRAITS>
DEVICE void
multiply(float (&acc)[TRAITS::NT][TRAITS::MT][4], const uint4 (&word)[TRAITS::G],
	 const uint32_t (&scales)[TRAITS::G], const uint4 (&a)[TRAITS::NT][4])
{
#pragma unroll
	for (int i = 0; i < TRAITS::MT; i++) {
		const uint4 w = word[2 * i], w8 = word[2 * i + 1];
		const uint32_t codes[4] = {w.x, w.y, w.z, w.w};
		const uint32_t codes8[4] = {w8.x, w8.y, w8.z, w8.w};
		uint32_t scale[2], scale8[2];

		widen_scales<TRAITS::IS_BF16>(scales[2 * i], scale);
		widen_scales<TRAITS::IS_BF16>(scales[2 * i + 1], scale8);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			uint32_t g[4], g8[4];

			decode_word<TRAITS>(codes[j], scale[j / 2], g);
			decode_word<TRAITS>(codes8[j], scale8[j / 2], g8);
#pragma unroll
			for (int nt = 0; nt < TRAITS::NT; nt++) {
				mma16<TRAITS::IS_BF16>(acc[nt][i], g, g8, a[nt][j].x,
						       a[nt][j].y);
				mma16<TRAITS::IS_BF16>(acc[nt][i], g + 2, g8 + 2,
						       a[nt][j].z, a[nt][j].w);
			}
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
DEVICE void store_sums(float *to, const float (&acc)[TRAITS::NT][TRAITS::MT][4])
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < TRAITS::NT * TRAITS::MT * 4; i++) {
		const int d = i % 4, mt = i / 4 % TRAITS::MT, nt = i / 4 / TRAITS::MT;

		to[(8 * nt + 2 * t + d % 2) * SUMS_PITCH<TRAITS> + mt * 16 + d / 2 * 8 +
		   g] = acc[nt][mt][d];
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
	const int pieces = (TRAITS::STAGE_BYTES - TRAITS::A_AT) / 16;

	for (int stage = 0; stage < STAGES; stage++)
		for (int i = threadIdx.x % 32; i < pieces; i += 32)
			sts_128(ring + stage * TRAITS::STAGE_BYTES + TRAITS::A_AT +
				    i * 16,
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
	w.lane = opaque(threadIdx.x % 32);
	w.tile = blockIdx.x;
	w.rows = p.rows;
	w.n = p.n;
	w.k = p.k;
	if (!TRAITS::IS_ANY)
		point_b(&w);
	point_a(&w);
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
	float acc[TRAITS::NT][TRAITS::MT][4] = {};
	int stage = 0;

	zero_a<TRAITS>(w.ring);
	griddepcontrol_launch_dependents();
	if (!p.b_is_constant)
		griddepcontrol_wait();
	for (int i = 0; i < STAGES - 1; i++)
		if (warp + i * warps < steps)
			load_step_b(w, i, warp + i * warps);
	if (p.b_is_constant)
		griddepcontrol_wait();
	for (int i = 0; i < STAGES - 1; i++) {
		if (warp + i * warps < steps)
			load_step_a(w, i, warp + i * warps);
		cp_async_commit_group();
	}
#pragma unroll 1
	for (int step = warp; step < steps; step += warps) {
		const int next = step + (STAGES - 1) * warps;
		const int free = stage == 0 ? STAGES - 1 : stage - 1;
		const uint32_t at = w.ring + stage * TRAITS::STAGE_BYTES;
		uint32_t scale[TRAITS::G];
		uint4 word[TRAITS::G], a[TRAITS::NT][4];

		cp_async_wait_group<STAGES - 2>();
		load_words<TRAITS>(at, w.lane, word);
		__syncwarp();
		load_scales<TRAITS>(at, w.lane, scale);
#pragma unroll
		for (int nt = 0; nt < TRAITS::NT; nt++)
			load_values<TRAITS>(at, w.lane, nt, a[nt]);
		if (next < steps) {
			load_step_b(w, free, next);
			load_step_a(w, free, next);
		}
		cp_async_commit_group();
		multiply<TRAITS>(acc, word, scale, a);
		stage = stage + 1 == STAGES ? 0 : stage + 1;
	}
	__syncwarp();
	store_sums<TRAITS>((float *)(bytes + ring_at), acc);
	__syncthreads();
	store_tile<TRAITS>(p, (const float *)bytes, w.tile,
			   blockIdx.y * p.c_batch_stride);
}

#define MMA_WARPS_KERNEL(name, ...)                                                    \
	extern "C" __global__ void __launch_bounds__(32 * NIB_MMA_WARPS_MOST, 1)       \
	    NIB_KERNEL(mma_warps_##name)(                                              \
		const __grid_constant__ struct nib_mma_warps_params p)                 \
	{                                                                              \
		mma_warps<warps_traits<__VA_ARGS__>>(p);                               \
	}

#endif
