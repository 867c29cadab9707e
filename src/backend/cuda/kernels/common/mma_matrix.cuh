/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_matrix.cuh - C = alpha * A * B^T of one matrix, or a batch, by mma.sync, for at
 * most 32 rows of A in fp16, bf16 or NVFP4, which is converted to fp16.  For sm_80 and
 * newer.
 *
 * mma.cuh has the multiplication and the store, mma_load.cuh the loads and the layout
 * of a stage, common/mma_matrix.c the host side, which decides how k is divided.
 *
 *   4 warps, each of which loads, multiplies and stores
 *
 *   A --cp.async--> stage of A --lds, permute or dequantise, sts--> the same place
 *   B --cp.async--> stage of B --lds--> codes * scales in A's type
 *                     --mma.m16n8k16--> sums  <--lds-- stage of A
 *   sums --> C, or --> partial sums of the slice (global)
 *                      --the CTA that is the last of its tile--> C
 *
 * A CTA multiplies 128 rows of B by all rows of A, for a slice of k: one product of a
 * matrix has fewer tiles than an H100 has CTAs.  Barriers and the order of a step are
 * those of mma.cuh.
 *
 *   dynamic shared memory        bytes of each of the stages
 *   B: codes, scales             8192, 1024
 *   A                            256 M
 *
 * Each slice of a tile stores its sums in the workspace, then adds 1 to the tile's
 * counter, which is 0 before the launch.  The CTA that adds the last 1 adds up the sums
 * in the order of slices, so that the bits are the same in every run.
 *
 * Arithmetic and bound: mma.cuh; slices: docs/numerics.md, section 4.
 *
 * Roofline: memory bandwidth, as in mma.cuh.  A is loaded for each tile, from the L2:
 * with 32 rows of fp16 that is 8192 bytes for 9216 of B.
 *
 * Variants: M = 16 and 32 if rows of A and B are pieces of 16 bytes and the scales
 * of B are tiled; "any" has M = 32 and no such condition.  Registers of a thread:
 * 65536 / (128 * CTAS).
 */
#ifndef NIB_MMA_MATRIX_CUH
#define NIB_MMA_MATRIX_CUH

#include "mma.cuh"
#include "mma_matrix_params.h"

/* IS_ANY: no condition on alignment and layout. */
template <int NT_, int STAGES_, int CTAS_, enum a_type TYPE_, bool IS_ANY_>
struct matrix_traits : mma_traits<NT_, STAGES_, CTAS_, TYPE_, false> {
	static const bool IS_ANY = IS_ANY_;
};

/* ---- loads of any alignment ---------------------------------------------- */

/* Requests the lane's rows of B.  Beyond the end of k it loads the k64 before it, since
 * A is zero there. */
template <class TRAITS>
DEVICE void load_any_b(const struct nib_mma_params &p, const struct stream<TRAITS> &s,
		       uint32_t stage, int k)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4;
	const int from = k + t * 32 < p.k ? k + t * 32 : k;
	const int k64 = k + t * 64 < p.k ? k / 64 + t : k / 64;

#pragma unroll
	for (int i = 0; i < 2 * M16; i++) {
		const int row = min(lane_row<TRAITS>(s.x, i), p.n - 1);

		load_16(stage + warp * 2048 + i * 512 + lane * 16,
			row_of(p.b.codes, row, p.b.row_stride) + from / 2,
			p.b.codes_align);
		if (t < 2)
			load_4(stage + TRAITS::SCALES_AT + t * 512 +
				   (i * 8 + lane / 4) * 16 + warp * 4,
			       scales_of(p.b, p.k, row, k64), p.b.scales_align);
	}
}

/* Requests the lane's pieces of A, or stores zeros beyond the end of k. */
template <class TRAITS>
DEVICE void load_any_a(const struct nib_mma_params &p, const struct stream<TRAITS> &s,
		       uint32_t to, int k)
{
	const int at = k + a_k();

#pragma unroll 1
	for (int i = 0; i < TRAITS::NT; i++, to += 2048) {
		const int row = 8 * i + a_row();

		if (row >= s.x.rows)
			return;
		if (at >= p.k) {
			sts_128(to, make_uint4(0, 0, 0, 0));
		} else if (TRAITS::IS_NVFP4) {
			load_4(to, row_of(p.a.codes, row, p.a.row_stride) + at / 2,
			       p.a.codes_align);
			load_4(to + 4, a_scales(p, row, at / 64), p.a.scales_align);
		} else {
			load_16(to, row_of(p.a.codes, row, p.a.row_stride) + at * 2,
				p.a.codes_align);
		}
	}
}

/* ---- slices of k --------------------------------------------------------- */

/* The partial sums of this thread in a slice: float4 number i is 128 i further on. */
template <class TRAITS>
DEVICE float4 *partials_of(const struct nib_mma_matrix_params &params, int64_t tile,
			   int slice)
{
	return (float4 *)params.partials +
	       (tile * params.slices + slice) * (TRAITS::NT * M16 * NIB_MMA_THREADS) +
	       threadIdx.x;
}

/* Stores the sums of a slice.  Whether all slices of the tile are stored then. */
template <class TRAITS>
DEVICE bool store_slice(const struct nib_mma_matrix_params &params, int64_t tile,
			int slice, const float (&acc)[TRAITS::NT * M16][4])
{
	bool is_last = false;
	float4 *to = partials_of<TRAITS>(params, tile, slice);

#pragma unroll
	for (int i = 0; i < TRAITS::NT * M16; i++)
		__stcg(to + i * NIB_MMA_THREADS,
		       make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]));
	__syncthreads();
	if (threadIdx.x == 0)
		is_last =
		    atom_add_acq_rel(params.arrivals + tile, 1) == params.slices - 1u;
	return __syncthreads_or(is_last);
}

/* Adds up the slices, in pairs whose loads are requested at once. */
template <class TRAITS>
DEVICE void add_slices(const struct nib_mma_matrix_params &params, int64_t tile,
		       float (&acc)[TRAITS::NT * M16][4])
{
	const int stride = TRAITS::NT * M16 * NIB_MMA_THREADS;
	const float4 *from = partials_of<TRAITS>(params, tile, 0);

#pragma unroll
	for (int i = 0; i < TRAITS::NT * M16; i++)
		acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0;
#pragma unroll 1
	for (int slice = 0; slice < params.slices; slice += 2) {
#pragma unroll
		for (int i = 0; i < TRAITS::NT * M16; i++) {
			const float4 *at = from + slice * stride + i * NIB_MMA_THREADS;
			const bool has_two = slice + 1 < params.slices;
			const float4 x = __ldcg(at);
			const float4 y = __ldcg(has_two ? at + stride : at);

			acc[i][0] += x.x;
			acc[i][1] += x.y;
			acc[i][2] += x.z;
			acc[i][3] += x.w;
			if (has_two) {
				acc[i][0] += y.x;
				acc[i][1] += y.y;
				acc[i][2] += y.z;
				acc[i][3] += y.w;
			}
		}
	}
}

/* ---- the kernel ---------------------------------------------------------- */

/* The parameters of a matrix of the batch. */
DEVICE struct nib_mma_params params_of(const struct nib_mma_matrix_params &params)
{
	const int matrix = blockIdx.y;
	struct nib_mma_params p = params.p;

	p.a.codes += matrix * p.a.batch_stride;
	p.a.scales += matrix * p.a.scale_batch_stride;
	p.b.codes += matrix * p.b.batch_stride;
	p.b.scales += matrix * p.b.scale_batch_stride;
	p.c = (uint8_t *)p.c + matrix * params.c_batch_bytes;
	return p;
}

/* acc = the products of steps `first` to end - 1 of k128. */
template <class TRAITS>
DEVICE void multiply_steps(const struct nib_mma_params &p, const struct item &x,
			   int first, int end, uint32_t shared,
			   float (&acc)[TRAITS::NT * M16][4])
{
	const struct lane_view view = view_of<TRAITS>(shared);
	struct stream<TRAITS> s = new_stream<TRAITS>(shared);
	int next = first, stage = 0;

	s.x = x;
	if (!TRAITS::IS_ANY) {
		begin_b<TRAITS>(p, &s);
		begin_a<TRAITS>(p, 0, &s);
		skip_steps<TRAITS>(p, first, &s);
	}
#pragma unroll 1
	for (int i = 1 - TRAITS::STAGES; i < end - first; i++) {
		const int free = i < 0	      ? i + TRAITS::STAGES - 1
				 : stage == 0 ? TRAITS::STAGES - 1
					      : stage - 1;

		uint32_t word[2 * M16][4];

		if (i >= 0) {
			cp_async_wait_group<TRAITS::STAGES - 2>();
			load_words<TRAITS>(view, stage, x, word);
			finish_a<TRAITS>(s.a_to + stage * TRAITS::A_BYTES, x.rows);
			__syncthreads();
		}
		if (next < end) {
			if (TRAITS::IS_ANY) {
				load_any_b<TRAITS>(p, s,
						   shared + free * TRAITS::B_BYTES,
						   next * NIB_MMA_STEP);
				load_any_a<TRAITS>(p, s,
						   s.a_to + free * TRAITS::A_BYTES,
						   next * NIB_MMA_STEP);
			} else {
				next_step<TRAITS>(p, &s);
				load_step<TRAITS>(p, s, free);
			}
			next++;
		}
		cp_async_commit_group();
		if (i < 0)
			continue;
		multiply<TRAITS, M16, TRAITS::NT>(acc, word,
						  view.scales + stage * TRAITS::B_BYTES,
						  view.a + stage * TRAITS::A_BYTES);
		stage = stage + 1 == TRAITS::STAGES ? 0 : stage + 1;
	}
}

template <class TRAITS>
DEVICE void mma_matrix(const struct nib_mma_matrix_params &params)
{
	extern __shared__ __align__(128) uint8_t bytes[];
	const int tiles = gridDim.x / params.slices;
	const int slice = blockIdx.x % params.slices;
	const int steps = (params.p.k + NIB_MMA_STEP - 1) / NIB_MMA_STEP;
	const struct item x = {.rows = params.p.rows,
			       .b_tile = (int)(blockIdx.x / params.slices),
			       .part = WHOLE};
	const int64_t tile = (int64_t)blockIdx.y * tiles + x.b_tile;
	struct nib_mma_params p = params_of(params);
	float acc[TRAITS::NT * M16][4] = {};
	float alpha[2] = {1, 1};

	zero_a<TRAITS>(smem_addr(bytes));
#if __CUDA_ARCH__ >= 900
	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
#endif
	__syncthreads();
	if (p.alpha)
		alpha[0] = __ldg(p.alpha);
	multiply_steps<TRAITS>(p, x, nib_mma_first_step(steps, params.slices, slice),
			       nib_mma_first_step(steps, params.slices, slice + 1),
			       smem_addr(bytes), acc);
	if (params.slices > 1) {
		if (!store_slice<TRAITS>(params, tile, slice, acc))
			return;
		add_slices<TRAITS>(params, tile, acc);
	}
	store_item<TRAITS>(p, x, alpha, acc);
}

#define MMA_MATRIX_KERNEL(name, ...)                                                   \
	extern "C" __global__ void __launch_bounds__(NIB_MMA_THREADS,                  \
						     matrix_traits<__VA_ARGS__>::CTAS) \
	    NIB_KERNEL(mma_matrix_##name)(                                             \
		const __grid_constant__ struct nib_mma_matrix_params p)                \
	{                                                                              \
		mma_matrix<matrix_traits<__VA_ARGS__>>(p);                             \
	}

#endif
