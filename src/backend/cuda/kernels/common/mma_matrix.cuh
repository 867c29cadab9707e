/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_matrix.cuh - C = alpha * A * B^T of one matrix, or a batch, by mma.sync, for at
 * most 64 rows of A in fp16, bf16 or NVFP4, which is converted to fp16.  For sm_80 and
 * newer.
 *
 * mma.cuh has the multiplication and the store, mma_load.cuh the loads and the layout
 * of a stage, common/mma_matrix.c the host side, which decides how k is divided.
 *
 *   groups of 4 warps, each of which loads, multiplies and stores
 *
 *   A --cp.async--> stage of A  (NVFP4: --lds, dequantise, sts--> the same place)
 *   B --cp.async--> stage of B --lds--> codes * scales in A's type
 *                     --mma.m16n8k16--> sums  <--lds-- stage of A
 *   sums of all groups --sts--> shared memory --added in order of groups-->
 *        C, or --> partial sums of the slice (global)
 *                      --the CTA that is the last of its tile--> C
 *
 * A CTA multiplies 128 rows of B by all rows of A, for a slice of k: one product of a
 * matrix has fewer tiles than an H100 has SMs.  Group g of G multiplies steps g,
 * g + G, ... of the slice.  Groups need no memory for their sums, and together they
 * read neighbouring pieces of each row of B.  Each group has stages of its own and a
 * barrier of its own; the order of a step is that of mma.cuh.
 *
 *   dynamic shared memory        bytes of each of the stages of a group
 *   B: codes, scales             8192, 1024
 *   A                            256 M
 *
 * Each slice of a tile stores its sums in the workspace, then adds 1 to the tile's
 * counter.  The CTA that adds the last 1 sets the counter to 0 for the next launch and
 * adds up the sums in the order of slices, so that the bits are the same in every run.
 *
 * Arithmetic: as in mma.cuh, but a lane's k are multiplied in their order, because
 * codes are decoded in it (decode_by_k.cuh) and dense A needs no permutation.  Slices:
 * docs/numerics.md, section 4.
 *
 * Roofline: memory bandwidth, as in mma.cuh; with 64 rows mma.sync needs as long.  A is
 * loaded for each tile, from the L2: with 64 rows of fp16 that is 16,384 bytes for
 * 9216 of B.
 *
 * Variants: M = 16, 32, 48 and 64 if rows of A and B are pieces of 16 bytes and the
 * scales of B are tiled.  "any" has M = 32 and 64 and no such condition; one group of
 * it multiplies the steps of all in turn.
 */
#ifndef NIB_MMA_MATRIX_CUH
#define NIB_MMA_MATRIX_CUH

#include "mma.cuh"
#include "mma_matrix_params.h"

/* GROUPS: the most of a CTA.  IS_ANY: no condition on alignment and layout. */
template <int NT_, int STAGES_, int GROUPS_, enum a_type TYPE_, bool IS_ANY_>
struct matrix_traits : mma_traits<NT_, STAGES_, 1, TYPE_, false>
{
	static const int GROUPS = GROUPS_;
	static const bool IS_ANY = IS_ANY_;
	static const bool IS_IN_ORDER = true;
	static const int TILES_AT_ONCE = NT_ % 4 ? NT_ < 4 ? NT_ : NT_ / 2 : 4;
	static const bool LOADS_CODES_LATE = false;
};

/* The stages of a group. */
template <class TRAITS>
static const int RING_BYTES = TRAITS::STAGES *(TRAITS::B_BYTES + TRAITS::A_BYTES);

/* The barrier of the threads of a group. */
DEVICE void sync_group(void)
{
	bar_sync(1 + threadIdx.y, NIB_MMA_THREADS);
}

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
	const int at = k + a_piece<TRAITS>::k();

#pragma unroll 1
	for (int i = 0; i < TRAITS::NT; i++, to += 2048) {
		const int row = 8 * i + a_piece<TRAITS>::row();

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

/* ---- sums ---------------------------------------------------------------- */

/* The sums of m16 tiles of B and an n8 tile of A. */
DEVICE void add_sums(float (&sums)[M16][4], const float4 (&x)[M16])
{
#pragma unroll
	for (int i = 0; i < M16; i++) {
		sums[i][0] += x[i].x;
		sums[i][1] += x[i].y;
		sums[i][2] += x[i].z;
		sums[i][3] += x[i].w;
	}
}

/*
 * The sums of a group of warps in shared memory.  Those of thread x for n8 tile n and
 * m16 tile i are float4 number (n * M16 + i) * NIB_MMA_THREADS + x.
 */
template <class TRAITS>
DEVICE float4 *group_sums(uint8_t *bytes, int group)
{
	return (float4 *)(bytes + (TRAITS::IS_ANY ? 1 : group) *
				      RING_BYTES<TRAITS>)+threadIdx.x;
}

/* Stores the sums of a group, or, unless it is the first, adds them to the sums there
 * (IS_ANY: one group multiplies the steps of all). */
template <class TRAITS>
DEVICE void keep_sums(float4 *to, const float (&acc)[TRAITS::NT * M16][4],
		      bool is_first)
{
#pragma unroll
	for (int i = 0; i < TRAITS::NT * M16; i++) {
		float4 x = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);

		if (TRAITS::IS_ANY && !is_first) {
			const float4 y = to[i * NIB_MMA_THREADS];

			x = make_float4(y.x + x.x, y.y + x.y, y.z + x.z, y.w + x.w);
		}
		to[i * NIB_MMA_THREADS] = x;
	}
}

/* The sum of all groups, in their order, of n8 tile n. */
template <class TRAITS>
DEVICE void add_groups(uint8_t *bytes, int n, float (&sums)[M16][4])
{
	const int groups = TRAITS::IS_ANY ? 1 : blockDim.y;

#pragma unroll 1
	for (int group = 0; group < groups; group++) {
		const float4 *from = group_sums<TRAITS>(bytes, group);
		float4 x[M16];

#pragma unroll
		for (int i = 0; i < M16; i++)
			x[i] = from[(n * M16 + i) * NIB_MMA_THREADS];
		add_sums(sums, x);
	}
}

/* Those of the thread in a slice of a tile in the workspace. */
DEVICE float4 *slice_sums(const struct nib_mma_matrix_params &params, int64_t tile,
			  int slice, int n)
{
	return (float4 *)params.partials +
	       (tile * params.slices + slice) *
		   (nib_mma_partial_bytes(params.p.rows) / 16) +
	       n * (M16 * NIB_MMA_THREADS) + threadIdx.x;
}

/* The sum of all slices, in their order, of n8 tile n. */
DEVICE void add_slices(const struct nib_mma_matrix_params &params, int64_t tile, int n,
		       float (&sums)[M16][4])
{
	const int stride = nib_mma_partial_bytes(params.p.rows) / 16;
	const float4 *from = slice_sums(params, tile, 0, n);

#pragma unroll 4
	for (int slice = 0; slice < params.slices; slice++) {
		float4 x[M16];

#pragma unroll
		for (int i = 0; i < M16; i++)
			x[i] = __ldcg(from + slice * stride + i * NIB_MMA_THREADS);
		add_sums(sums, x);
	}
}

/* Whether all other slices of the tile are stored.  The last one resets the counter. */
DEVICE bool is_last_slice(const struct nib_mma_matrix_params &params, int64_t tile)
{
	bool is_last = false;

	__syncthreads();
	if (threadIdx.x == 0 && threadIdx.y == 0) {
		is_last =
		    atom_add_acq_rel(params.arrivals + tile, 1) == params.slices - 1u;
		if (is_last)
			params.arrivals[tile] = 0;
	}
	return __syncthreads_or(is_last);
}

/* The last step of a CTA: from the sums of its groups to C. */
template <class TRAITS, class T>
DEVICE void finish(const struct nib_mma_matrix_params &params,
		   const struct nib_mma_params &p, const struct item &x, int slice,
		   uint8_t *bytes, T *c)
{
	const struct factors f[2] = {factors_of<TRAITS>(p.alpha ? __ldg(p.alpha) : 1)};
	const int64_t tile =
	    (int64_t)blockIdx.y * (gridDim.x / params.slices) + x.b_tile;

#pragma unroll 1
	for (int n = threadIdx.y; n * 8 < x.rows; n += blockDim.y) {
		float sums[M16][4] = {};

		add_groups<TRAITS>(bytes, n, sums);
		if (params.slices == 1) {
			store_n8<TRAITS, 4>(p, x, n, c, f, sums);
			continue;
		}
#pragma unroll
		for (int i = 0; i < M16; i++)
			__stcg(slice_sums(params, tile, slice, n) + i * NIB_MMA_THREADS,
			       make_float4(sums[i][0], sums[i][1], sums[i][2],
					   sums[i][3]));
	}
	if (params.slices == 1 || !is_last_slice(params, tile))
		return;
#pragma unroll 1
	for (int n = threadIdx.y; n * 8 < x.rows; n += blockDim.y) {
		float sums[M16][4] = {};

		add_slices(params, tile, n, sums);
		store_n8<TRAITS, 4>(p, x, n, c, f, sums);
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

/* acc = the products of steps `first` to end - 1 of k128, `by` apart. */
template <class TRAITS>
DEVICE void multiply_steps(const struct nib_mma_params &p, const struct item &x,
			   int first, int end, int by, uint32_t ring,
			   float (&acc)[TRAITS::NT * M16][4])
{
	const struct lane_view view = view_of<TRAITS>(ring);
	struct stream<TRAITS> s = new_stream<TRAITS>(ring);
	int next = first, stage = 0, filled = 0;

	s.x = x;
	s.left = p.k + NIB_MMA_STEP;
	if (!TRAITS::IS_ANY) {
		begin_b<TRAITS>(p, &s);
		begin_a<TRAITS>(p, 0, &s);
		skip_steps<TRAITS>(p, first + 1 - by, &s);
	}
#pragma unroll 1
	for (int i = first + (1 - TRAITS::STAGES) * by; i < end; i += by) {
		const int free = i < first    ? filled++
				 : stage == 0 ? TRAITS::STAGES - 1
					      : stage - 1;

		uint32_t word[2 * M16][4];

		if (i >= first) {
			cp_async_wait_group<TRAITS::STAGES - 2>();
			load_words<TRAITS>(view, stage, x, word);
			if constexpr (TRAITS::IS_NVFP4)
				finish_a<TRAITS>(s.a_to + stage * TRAITS::A_BYTES,
						 x.rows);
			sync_group();
		}
		if (next < end) {
			if (TRAITS::IS_ANY) {
				load_any_b<TRAITS>(p, s, ring + free * TRAITS::B_BYTES,
						   next * NIB_MMA_STEP);
				load_any_a<TRAITS>(p, s,
						   s.a_to + free * TRAITS::A_BYTES,
						   next * NIB_MMA_STEP);
			} else {
				skip_steps<TRAITS>(p, by, &s);
				load_step<TRAITS>(p, s, free);
			}
			next += by;
		}
		cp_async_commit_group();
		if (i < first)
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
	const int slice = blockIdx.x % params.slices;
	const int steps = (params.p.k + NIB_MMA_STEP - 1) / NIB_MMA_STEP;
	const int first = nib_mma_first_step(steps, params.slices, slice);
	const int end = nib_mma_first_step(steps, params.slices, slice + 1);
	const uint32_t ring = smem_addr(bytes) + threadIdx.y * RING_BYTES<TRAITS>;
	const struct item x = {.rows = params.p.rows,
			       .b_tile = (int)(blockIdx.x / params.slices),
			       .part = WHOLE};
	const struct nib_mma_params p = params_of(params);

	zero_a<TRAITS>(ring);
#pragma unroll 1
	for (int group = threadIdx.y; group < params.groups; group += blockDim.y) {
		float acc[TRAITS::NT * M16][4] = {};

		sync_group();
		multiply_steps<TRAITS>(p, x, first + group, end, params.groups, ring,
				       acc);
		sync_group();
		keep_sums<TRAITS>(group_sums<TRAITS>(bytes, group), acc, group == 0);
	}
	__syncthreads();
	if (p.c_dtype == 0)
		finish<TRAITS>(params, p, x, slice, bytes, (float *)p.c);
	else if (p.c_dtype == 1)
		finish<TRAITS>(params, p, x, slice, bytes, (__half *)p.c);
	else
		finish<TRAITS>(params, p, x, slice, bytes, (__nv_bfloat16 *)p.c);
}

#define MMA_MATRIX_KERNEL(name, ...)                                                   \
	extern "C" __global__ void __launch_bounds__(                                  \
	    NIB_MMA_THREADS *matrix_traits<__VA_ARGS__>::GROUPS, 1)                    \
	    NIB_KERNEL(mma_matrix_##name)(                                             \
		const __grid_constant__ struct nib_mma_matrix_params p)                \
	{                                                                              \
		mma_matrix<matrix_traits<__VA_ARGS__>>(p);                             \
	}

#endif
