/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma.cuh - C = alpha * A * B^T of a mixture of experts by mma.sync, for experts with
 * few rows; dual: C = silu(alpha * A * B^T) * (alpha2 * A * B2^T).  A is fp16, bf16, or
 * NVFP4, which is converted to fp16.  For sm_80 and newer.
 *
 * mma_load.cuh has the loads and the layout of a stage, mma_tiles.cuh the order of
 * tiles, common/mma.c the host side.  docs/performance-hopper.md ("Design and reasons")
 * gives the measurements.
 *
 *   4 warps, each of which loads, multiplies and stores
 *
 *   A --cp.async--> stage of A --lds, permute or dequantise, sts--> the same place
 *   B --cp.async--> stage of B --lds--> codes * scales in A's type
 *                     --mma.m16n8k16--> sums  <--lds-- stage of A
 *   sums --> C
 *
 * A tile is 128 rows of B by up to M rows of A of an expert, with all k.  Each warp has
 * 32 of these rows of B, so warps exchange no sums.  A CTA is resident until all tiles
 * of its range are done (mma_tiles.cuh), and the steps of all its tiles are one stream:
 * while it multiplies the last steps of a tile it loads the first of the next.  Several
 * CTAs are resident on an SM, so that others multiply while one waits.
 *
 *   step i of a CTA                                         of the stream
 *   wait for the thread's own copies                        i
 *   load the codes, which the lane has copied; finish A     i
 *   __syncthreads
 *   request A and B                                         i + STAGES - 1
 *   multiply; after a tile's last step store C              i
 *
 * The barrier makes step i visible and the space of step i - 1 free.
 *
 * A is loaded by cp.async, too, because a load to registers would return only after all
 * copies that the SM requested earlier, and these wait for device memory.
 *
 *   dynamic shared memory        bytes of each of the stages
 *   B: codes, scales             8192, 1024
 *   A                            256 M
 *   experts: rows, tiles, scales 12 each, once
 *
 * Arithmetic: a code times its scale, times 2^-6 (bf16: 2^-7), is exact in A's type.
 * An mma adds 16 products to a sum in fp32.  Lane t of a quad supplies four of the k
 * 32 t to 32 t + 31, so 8 mma multiply k128.  Bound: docs/numerics.md, section 10.  The
 * order of a sum depends only on k.
 *
 * Roofline: memory bandwidth.  At 3.05 TB/s an SM of an H100 reads 23 KB a microsecond;
 * four CTAs with two requested stages have 74 KB in flight.  At that rate a scheduler
 * has 44 issue slots for a word of codes (8 weights) of each lane of a warp (H200: 30).
 * Codes times scales take 15 of them with fp16 and 19 with bf16, mma with its loads 2
 * for 8 rows of A.  Registers of a thread: 65536 / (128 * CTAS).
 */
#ifndef NIB_MMA_CUH
#define NIB_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernel_name.h"
#include "mma_load.cuh"
#include "ptx_async.cuh"
#include "ptx_mma16.cuh"
#include "silu.cuh"

/* ---- the multiplication -------------------------------------------------- */

/* What a lane reads of a stage; constant for the whole kernel. */
struct lane_view {
	uint32_t codes, scales, a; /* addresses in the first stages */
};

template <class TRAITS>
DEVICE struct lane_view view_of(uint32_t shared)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

	return {opaque(shared + warp * 2048 + lane * 16),
		opaque(shared + TRAITS::SCALES_AT + lane % 4 / 2 * 512 + lane / 4 * 16 +
		       warp * 4 + lane % 2 * 2),
		opaque(shared + TRAITS::A_AT + lane * 16)};
}

/* sums += MT m16 tiles of B times N n8 tiles of A, of a word of each lane's codes.  An
 * mma waits for the previous one of its sum, so all other sums come between. */
template <class TRAITS, int MT, int N>
DEVICE void multiply_tiles(float (*sums)[4], const uint32_t (&values)[2 * MT][4],
			   uint32_t piece)
{
	uint4 a[N];

#pragma unroll
	for (int n = 0; n < N; n++)
		a[n] = lds_128(piece + n * 2048);
#pragma unroll
	for (int k = 0; k < 4; k += 2)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int i = 0; i < MT; i++)
				mma16<TRAITS::IS_BF16>(
				    sums[n * M16 + i], values[2 * i] + k,
				    values[2 * i + 1] + k, k ? a[n].z : a[n].x,
				    k ? a[n].w : a[n].y);
}

/*
 * acc += MT m16 tiles of B times C n8 tiles of A, of one stage.  word: the lane's
 * codes; scales and piece are addresses in the stage, scales: of the two blocks of the
 * lane's first row.
 */
template <class TRAITS, int MT, int C>
DEVICE void multiply(float (&acc)[TRAITS::NT * M16][4],
		     const uint32_t (&word)[2 * M16][4], uint32_t scales,
		     uint32_t piece)
{
	const int AT_ONCE = C < TRAITS::TILES_AT_ONCE ? C : TRAITS::TILES_AT_ONCE;
	uint32_t scale[2 * MT][2];

#pragma unroll
	for (int i = 0; i < 2 * MT; i++)
		widen_scales_of<TRAITS>(lds_u16(scales + i * 128), scale[i]);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		uint32_t values[2 * MT][4];

#pragma unroll
		for (int i = 0; i < 2 * MT; i++)
			decode_of<TRAITS>(word[i][j], scale[i][j / 2], values[i]);
#pragma unroll
		for (int n = 0; n < C; n += AT_ONCE)
			multiply_tiles<TRAITS, MT, AT_ONCE>(acc + n * M16, values,
							    (piece ^ 32 * j) +
								n * 2048 + j * 512);
	}
}

/* The lane's codes of a stage of an item, which it has copied itself. */
template <class TRAITS>
DEVICE void load_words(const struct lane_view &view, int stage, const struct item &x,
		       uint32_t (&word)[2 * M16][4])
{
#pragma unroll
	for (int i = 0; i < 2 * M16; i++) {
		uint4 w = {};

		if (i < M16 || TRAITS::IS_DUAL || x.part == WHOLE)
			w = lds_128(view.codes + stage * TRAITS::B_BYTES + i * 512);
		word[i][0] = w.x;
		word[i][1] = w.y;
		word[i][2] = w.z;
		word[i][3] = w.w;
	}
}

/* Multiplies a stage of an item, with only the n8 tiles that the item has. */
template <class TRAITS, int C = TRAITS::NT>
DEVICE void multiply_item(float (&acc)[TRAITS::NT * M16][4],
			  const struct lane_view &view, int stage, const struct item &x,
			  const uint32_t (&word)[2 * M16][4])
{
	const uint32_t scales = view.scales + stage * TRAITS::B_BYTES;
	const uint32_t piece = view.a + stage * TRAITS::A_BYTES;

	if constexpr (C > 1) {
		if (n8_tiles(x.rows) < C) {
			multiply_item<TRAITS, C - 1>(acc, view, stage, x, word);
			return;
		}
	}
	if (TRAITS::IS_DUAL || x.part == WHOLE)
		multiply<TRAITS, M16, C>(acc, word, scales, piece);
	else
		multiply<TRAITS, 1, C>(
		    acc, word, scales + (x.part == SECOND_HALF ? 256 : 0), piece);
}

/* ---- C ------------------------------------------------------------------- */

/* result() of decode.cuh, as two factors of each sum. */
struct factors {
	float first, second;
};

template <class TRAITS>
DEVICE struct factors factors_of(float alpha)
{
	const float up = WEIGHT_SCALE(TRAITS::IS_BF16);

	if (fabsf(alpha) < 1)
		return {up * alpha, 1};
	return {up, alpha};
}

DEVICE float times(float x, const struct factors &f)
{
	return x * f.first * f.second;
}

/*
 * Element j of 0 and 1 of m8 tile i of B, from the sums of an n8 tile of A: of the
 * lane's row of B and row 2t + j of A.
 */
template <class TRAITS>
DEVICE float result_of(const float (*sums)[4], int i, int j,
		       const struct factors (&f)[2])
{
	const int at = i % 2 * 2 + j;
	const float x = times(sums[i / 2][at], f[0]);

	if (!TRAITS::IS_DUAL)
		return x;
	return silu(x) * times(sums[1][at], f[1]);
}

/* Words of C of two neighbouring rows of B, for the lane's row of A; x, y: the results
 * of the lane's row of B for two neighbouring rows of A.  All lanes of the warp. */
DEVICE void transpose(float x, float y, float *, uint32_t *words)
{
	const uint32_t a = __float_as_uint(x), b = __float_as_uint(y);
	const uint32_t low = movmatrix_trans(prmt(a, b, 0x5410));
	const uint32_t high = movmatrix_trans(prmt(a, b, 0x7632));

	words[0] = prmt(low, high, 0x5410);
	words[1] = prmt(low, high, 0x7632);
}

DEVICE void transpose(float x, float y, __half *, uint32_t *words)
{
	words[0] = movmatrix_trans(cvt_f16x2_f32(x, y));
}

DEVICE void transpose(float x, float y, __nv_bfloat16 *, uint32_t *words)
{
	words[0] = movmatrix_trans(cvt_bf16x2_f32(x, y));
}

/* Stores WORDS words to a row of C, of which `columns` are left. */
template <int WORDS, class T>
DEVICE void store_row(T *to, int columns, const uint32_t (&words)[WORDS])
{
	const int each = 4 / sizeof(T);

	if (columns >= WORDS * each && (uint64_t)to % (WORDS % 4 ? 8 : 16) == 0) {
#pragma unroll
		for (int i = 0; i < WORDS; i += 4) {
			if (WORDS % 4)
				((uint2 *)to)[0] = make_uint2(words[0], words[1]);
			else
				((uint4 *)to)[i / 4] = make_uint4(
				    words[i], words[i + 1 < WORDS ? i + 1 : 0],
				    words[i + 2 < WORDS ? i + 2 : 0],
				    words[i + 3 < WORDS ? i + 3 : 0]);
		}
		return;
	}
#pragma unroll
	for (int i = 0; i < WORDS * each; i++) {
		if (i >= columns)
			continue;
		if (each == 1)
			((uint32_t *)to)[i] = words[i];
		else
			((uint16_t *)to)[i] = (uint16_t)(words[i / 2] >> i % 2 * 16);
	}
}

/*
 * Stores the results of COUNT m8 tiles of B and n8 tile n of A, whose sums are given;
 * c: the lane's element of n8 tile 0.  A lane has pairs of rows of A and one row of B
 * of each; movmatrix makes neighbouring rows of B and one row of A of them, so that a
 * lane stores all in one piece.
 */
template <class TRAITS, int COUNT, class T>
DEVICE void store_n8(const struct nib_mma_params &p, const struct item &x, int n, T *c,
		     const struct factors (&f)[2], const float (*sums)[4])
{
	const int EACH = sizeof(T) / 2; /* words of two elements */
	const int row = n * 8 + threadIdx.x % 32 / 4;
	const int column = first_b_row<TRAITS>(x) + threadIdx.x % 4 * B_ROWS<TRAITS>;
	uint32_t words[COUNT * EACH];

#pragma unroll
	for (int i = 0; i < COUNT; i++)
		transpose(result_of<TRAITS>(sums, i, 0, f),
			  result_of<TRAITS>(sums, i, 1, f), c, words + i * EACH);
	if (row < x.rows)
		store_row(c + (int64_t)(x.row + row) * (int32_t)p.c_row_stride + column,
			  p.n - column, words);
}

template <class TRAITS, class T>
DEVICE void store_results(const struct nib_mma_params &p, const struct item &x, T *c,
			  const struct factors (&f)[2],
			  const float (&acc)[TRAITS::NT * M16][4])
{
#pragma unroll
	for (int n = 0; n < TRAITS::NT; n++) {
		if (n * 8 >= x.rows)
			return;
		if (TRAITS::IS_DUAL || x.part != WHOLE)
			store_n8<TRAITS, 2>(p, x, n, c, f, acc + n * M16);
		else
			store_n8<TRAITS, 4>(p, x, n, c, f, acc + n * M16);
	}
}

template <class TRAITS>
DEVICE void store_item(const struct nib_mma_params &p, const struct item &x,
		       const float (&alpha)[2], const float (&acc)[TRAITS::NT * M16][4])
{
	const struct factors f[2] = {factors_of<TRAITS>(alpha[0]),
				     factors_of<TRAITS>(alpha[1])};

	if (p.c_dtype == 0)
		store_results<TRAITS>(p, x, (float *)p.c, f, acc);
	else if (p.c_dtype == 1)
		store_results<TRAITS>(p, x, (__half *)p.c, f, acc);
	else
		store_results<TRAITS>(p, x, (__nv_bfloat16 *)p.c, f, acc);
}

/* ---- the kernel ---------------------------------------------------------- */

/* Requests the stream's next step, if one is left. */
template <class TRAITS>
DEVICE void load_next(const struct nib_mma_params &p, const struct mma_tables &t,
		      const struct range &r, int stage, struct stream<TRAITS> *s)
{
	if (s->left <= NIB_MMA_STEP && s->x.number + 1 < r.count) {
		s->x.number++;
		begin_item<TRAITS>(p, t, r, s);
	}
	next_step<TRAITS>(p, s);
	if (s->left > 0)
		load_step<TRAITS>(p, *s, stage);
	cp_async_commit_group();
}

/* A CTA's stream, which points at no item yet. */
template <class TRAITS>
DEVICE struct stream<TRAITS> new_stream(uint32_t shared) {
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	struct stream<TRAITS> s = {
	};

	s.b_to = opaque(shared + warp * 2048 + lane * 16);
	s.scales_to = opaque(shared + scales_at<TRAITS>(lane, warp));
	s.a_to = opaque(shared + TRAITS::A_AT + a_piece<TRAITS>::place());
	return s;
}

/* A CTA's stream at the beginning of its range, of at least one tile. */
template <class TRAITS>
DEVICE struct stream<TRAITS> begin_stream(const struct nib_mma_params &p,
					  const struct mma_tables &t,
					  const struct range &r, uint32_t shared) {
	struct stream<TRAITS> s = new_stream<TRAITS>(shared);

	begin_item<TRAITS>(p, t, r, &s);
	return s;
}

/* The item that is being multiplied. */
struct multiplied {
	struct item x;
	int left; /* of k */
	float alpha[2];
};

template <class TRAITS>
DEVICE void begin_sums(const struct nib_mma_params &p, const struct mma_tables &t,
		       const struct range &r, struct multiplied *m)
{
	find_rows<TRAITS>(t, r, &m->x);
	m->left = p.k;
	m->alpha[0] = p.alpha ? __ldg(p.alpha + m->x.expert) : 1;
	if (TRAITS::IS_DUAL)
		m->alpha[1] = p.alpha2 ? __ldg(p.alpha2 + m->x.expert) : 1;
	if (TRAITS::IS_NVFP4 && t.scale_row[m->x.expert] < 0)
		m->alpha[0] = __int_as_float(0x7FFFFFFF);
}

template <class TRAITS>
DEVICE void run_range(const struct nib_mma_params &p, const struct mma_tables &t,
		      const struct range &r, uint32_t shared)
{
	const struct lane_view view = view_of<TRAITS>(shared);
	struct stream<TRAITS> s = begin_stream<TRAITS>(p, t, r, shared);
	struct multiplied m = {};
	float acc[TRAITS::NT * M16][4] = {};
	int stage = 0;

	begin_sums<TRAITS>(p, t, r, &m);
#pragma unroll 1
	for (int i = 0; i < TRAITS::STAGES - 1; i++)
		load_next<TRAITS>(p, t, r, i, &s);
#pragma unroll 1
	while (m.x.number < r.count) {
		const int free = stage == 0 ? TRAITS::STAGES - 1 : stage - 1;
		uint32_t word[2 * M16][4];

		cp_async_wait_group<TRAITS::STAGES - 2>();
		if (!TRAITS::LOADS_CODES_LATE)
			load_words<TRAITS>(view, stage, m.x, word);
		finish_a<TRAITS>(s.a_to + stage * TRAITS::A_BYTES, m.x.rows);
		__syncthreads();
		load_next<TRAITS>(p, t, r, free, &s);
		if (TRAITS::LOADS_CODES_LATE)
			load_words<TRAITS>(view, stage, m.x, word);
		multiply_item<TRAITS>(acc, view, stage, m.x, word);
		m.left -= NIB_MMA_STEP;
		if (m.left <= 0) {
			store_item<TRAITS>(p, m.x, m.alpha, acc);
			if (++m.x.number < r.count)
				begin_sums<TRAITS>(p, t, r, &m);
#pragma unroll
			for (int i = 0; i < TRAITS::NT * M16 * 4; i++)
				acc[i / 4][i % 4] = 0;
		}
		stage = stage + 1 == TRAITS::STAGES ? 0 : stage + 1;
	}
}

/* Zeros the stages of A, because mma also reads rows that no item has loaded. */
template <class TRAITS>
DEVICE void zero_a(uint32_t shared)
{
	const uint32_t first = shared + TRAITS::A_AT + threadIdx.x * 16;

	for (int i = 0; i < TRAITS::STAGES * TRAITS::NT; i++)
		sts_128(first + i * NIB_MMA_THREADS * 16, make_uint4(0, 0, 0, 0));
}

/* The CTA's range of the tables' tiles. */
template <class TRAITS>
DEVICE struct range find_range(const struct nib_mma_params &p,
			       const struct mma_tables &t)
{
	const int tiles = uniform(t.first_tile[p.experts]);
	const int ctas = working_ctas<TRAITS>(tiles, p.multiprocessors);

	if ((int)blockIdx.x >= ctas)
		return {};
	return range_of<TRAITS>(tiles, ctas);
}

/*
 * Fills the tables of the experts and finds the CTA's range.  Where kernels may
 * overlap, that is done while the previous kernel runs, and repeated if it has changed
 * the rows of the experts.  The first tile of weights is requested for the L2.
 */
template <class TRAITS>
DEVICE struct range begin_range(const struct nib_mma_params &p, uint8_t *bytes,
				const struct mma_tables &t)
{
	struct range r;

	fill_tables<TRAITS>(p, bytes, t);
	r = find_range<TRAITS>(p, t);
#if __CUDA_ARCH__ >= 900
	prefetch_tile<TRAITS>(p, t, r);
	griddepcontrol_wait();
	if (__syncthreads_or(are_old<TRAITS>(p, t))) {
		fill_tables<TRAITS>(p, bytes, t);
		r = find_range<TRAITS>(p, t);
	}
#endif
	return r;
}

template <class TRAITS>
DEVICE void mma_experts(const struct nib_mma_params &params)
{
	extern __shared__ __align__(128) uint8_t bytes[];
	const struct mma_tables tables = tables_at<TRAITS>(params, bytes);
	struct range range;

#if __CUDA_ARCH__ >= 900
	griddepcontrol_launch_dependents();
#endif
	zero_a<TRAITS>(smem_addr(bytes));
	range = begin_range<TRAITS>(params, bytes, tables);
	if (range.count > 0)
		run_range<TRAITS>(params, tables, range, smem_addr(bytes));
}

#define MMA_KERNEL(name, ...)                                                          \
	extern "C" __global__ void __launch_bounds__(NIB_MMA_THREADS,                  \
						     mma_traits<__VA_ARGS__>::CTAS)    \
	    NIB_KERNEL(mma_##name)(const __grid_constant__ struct nib_mma_params p)    \
	{                                                                              \
		mma_experts<mma_traits<__VA_ARGS__>>(p);                               \
	}

#endif
