/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_experts.cuh - a mixture of experts with the vector kernels, for so few
 * rows that most experts have one at most: each row of A is a product of one row,
 * by the weights of its expert.  An expert of several rows is read once for each.
 *
 *   row_offsets --ldg, all warps--> the row's expert --> multiply_matrices()
 *
 * Every warp finds the expert for itself, so that no barrier lies before the
 * first weights.  Tiles, rings, order of sums and roofline are those of
 * gemv_run.cuh.
 *
 * Layers of experts (struct nib_gemv_layer) have the same kernels, with slots for
 * rows, so that nothing is sorted:
 *
 *   ids --ldg, all warps--> the slot's expert --> sums of gate and up --> h
 *   ids --> the slot's expert --> its row --stg, arrivals--> the last CTA of a
 *     token's columns --ldg, in order of slots--> y
 *
 * With NVFP4 the second one quantises the row of h as it loads it, which hides
 * behind the first weights.  A kernel behind the first of a layer reads ids and
 * asks for weights before it waits, because the first one waits for those before
 * the layer and only then lets the next begin.
 *
 * Variants: one matrix of weights, or two (NIB_OP_DUAL_GEMM), for weights in rows of
 * 16-byte pieces and rows of A that begin at multiples of 16 bytes.
 */
#ifndef NIB_GEMV_EXPERTS_CUH
#define NIB_GEMV_EXPERTS_CUH

#include "backend/cuda/kernels/common/moe_tiles.cuh"
#include "backend/cuda/kernels/common/moe_values.cuh"
#include "backend/cuda/kernels/common/quantize_block.cuh"
#include "gemv_activations.cuh"
#include "gemv_experts_params.h"
#include "gemv_run.cuh"

/* Offsets that a lane loads at once: of up to 256 experts all. */
#define OFFSETS_AT_ONCE 8

/*
 * The expert that has the row, -1 if none has: offsets ascend, so that as many of
 * them end at or before the row.
 */
DEVICE int expert_of_row(const struct nib_skinny_params &q, int row)
{
	int before = 0;

#pragma unroll 1
	for (int first = threadIdx.x % 32; first < q.experts;
	     first += 32 * OFFSETS_AT_ONCE)
#pragma unroll
		for (int i = 0; i < OFFSETS_AT_ONCE; i++) {
			const int e = first + 32 * i;

			before += e < q.experts && expert_row(&q, e + 1) <= row;
		}
	before = __reduce_add_sync(~0u, before);
	/* Wrong offsets leave rows out. */
	return before < q.experts && expert_row(&q, before) <= row ? before : -1;
}

/*
 * Where the scales of a row of A are: -1 if its expert's leave their tensor.
 */
DEVICE int64_t scale_row_of(const struct nib_skinny_params &q, int expert, int row)
{
	const int first = expert_row(&q, expert);
	const int m = expert_row(&q, expert + 1) - first;
	int own;

	if (!q.scale_rows)
		return row;
	own = __ldg(q.scale_rows + expert);
	return own < 0 || own > q.scale_rows_total - m ? -1 : own + row - first;
}

/* A's row alone; scale_row: that of its scales. */
DEVICE struct row_operand operand_of_row(const struct nib_gemv_experts_params &q,
					 int row, int64_t scale_row)
{
	const struct nib_gemv_params &p = q.moe.p;
	struct row_operand a = {p.a, q.layer.global, (uint32_t)q.layer.zero_scale};

	a.codes += row * a.row_stride;
	if (a.is_tiled)
		a.scales += scale_row / 128 * ((p.k / 16 + 3) / 4) * 512 +
			    scale_row % 32 * 16 + scale_row % 128 / 32 * 4;
	else
		a.scales += scale_row * a.scale_row_stride;
	return a;
}

/* The CTA's share of its expert's tiles. */
DEVICE struct share my_share(void)
{
	return {blockIdx.x, gridDim.x};
}

template <int N>
DEVICE struct matrices<N> matrices_of_expert(const struct nib_skinny_params &q,
					     int expert) {
	struct matrices<N> m;

	m.b = q.p.b;
	m.mine = my_share();
#pragma unroll
	for (int i = 0; i < N; i++) {
		const struct nib_gemv_operand &b = i ? q.b2 : q.p.b;
		const float *alpha = i ? q.alpha2 : q.p.alpha;

		m.codes[i] = b.codes + expert * b.batch_stride;
		m.scales[i] = b.scales + expert * b.scale_batch_stride;
		m.alpha[i] = alpha ? alpha + expert : NULL;
	}
	return m;
}

/* A row of no scales is NaN. */
DEVICE void
store_nan(const struct nib_gemv_params &p, int64_t c_begin)
{
	const struct share mine = my_share();
	const int rows = tiles_of_cta(p, mine) * NIB_GEMV_TILE_ROWS;

	for (int i = threadIdx.x; i < rows; i += NIB_GEMV_THREADS) {
		const int64_t row = row_of_element(p, mine, i);

		if (row < p.n)
			store(p, c_begin + row, __uint_as_float(0x7FC00000));
	}
}

/* ---- h ------------------------------------------------------------------- */

template <int N>
DEVICE float h_of(const struct nib_gemv_layer &layer, const float (&x)[N])
{
	if (N == 2 && layer.activation == 0)
		return silu(x[0]) * x[N - 1];
	return activate_one(layer, x[0], N == 2 ? x[N - 1] : 0.0f);
}

template <class SIDE, int N>
DEVICE void store_h(const struct nib_gemv_experts_params &q, int slot)
{
	const struct nib_gemv_params &p = q.moe.p;
	const struct share mine = my_share();

	for (int i = threadIdx.x; i < tiles_of_cta(p, mine) * NIB_GEMV_TILE_ROWS;
	     i += NIB_GEMV_THREADS) {
		const int64_t row = row_of_element(p, mine, i);
		float x[N];

		results_of<SIDE>(partial_sums<SIDE>(), i / NIB_GEMV_TILE_ROWS,
				 i % NIB_GEMV_TILE_ROWS, x);
		if (row < p.n)
			store(p, slot * p.c_row_stride + row, h_of(q.layer, x));
	}
}

/* ---- the sum of slots ---------------------------------------------------- */

/* An element of the rows of slots. */
DEVICE float load_element(const struct nib_gemv_params &p, int64_t index)
{
	if (p.c_dtype == 0)
		return ((const float *)p.c)[index];
	return __uint_as_float(widen(((const uint16_t *)p.c)[index], p.c_dtype));
}

/* A column of a token, of all slots in their order. */
DEVICE float sum_of_slots(const struct nib_gemv_experts_params &q, int token,
			  int64_t col)
{
	const struct nib_gemv_params &p = q.moe.p;
	float sum = 0;

#pragma unroll 4
	for (int j = 0; j < q.layer.top_k; j++) {
		const int slot = token * q.layer.top_k + j;
		const float weight = q.layer.weights[slot];
		const float x = load_element(p, slot * p.c_row_stride + col);

		if (expert_of(q.layer, slot) >= 0)
			sum = __fadd_rn(sum, __fmul_rn(weight, x));
	}
	return sum;
}

/* What all threads wrote is there for the last of the token's CTAs. */
DEVICE bool is_last_of_token(const struct nib_gemv_layer &layer, int token)
{
	uint32_t *arrivals = layer.arrivals + token * gridDim.x + blockIdx.x;
	bool is_last = false;

	__syncthreads();
	if (threadIdx.x == 0)
		is_last = atom_add_acq_rel(arrivals, 1) == layer.top_k - 1u;
	return __syncthreads_or(is_last);
}

DEVICE void add_slots(const struct nib_gemv_experts_params &q)
{
	const struct share mine = my_share();
	const int token = (int)blockIdx.y / q.layer.top_k;
	const int all = tiles_of_cta(q.moe.p, mine) * NIB_GEMV_TILE_ROWS;

	if (!is_last_of_token(q.layer, token))
		return;
	for (int i = threadIdx.x; i < all; i += NIB_GEMV_THREADS) {
		const int64_t col = row_of_element(q.moe.p, mine, i);

		if (col < q.moe.p.n)
			store_as(q.layer.y, q.moe.p.c_dtype,
				 token * q.layer.y_row_stride + col,
				 sum_of_slots(q, token, col));
	}
}

DEVICE void clear_arrivals(const struct nib_gemv_layer &layer)
{
	const uint32_t stride = gridDim.x * gridDim.y * NIB_GEMV_THREADS;
	uint32_t i =
	    (blockIdx.y * gridDim.x + blockIdx.x) * NIB_GEMV_THREADS + threadIdx.x;

	for (; i < (uint32_t)layer.n_arrivals; i += stride)
		layer.arrivals[i] = 0;
}

/* ---- what a CTA does ----------------------------------------------------- */

/* A row of a mixture of experts, or of a layer's slots; expert: its own. */
template <class SIDE, int N>
DEVICE void multiply_row(const struct nib_gemv_experts_params &q, int expert, int row)
{
	const struct nib_gemv_params &p = q.moe.p;
	const int a_row = q.layer.a_is_by_token ? row / q.layer.top_k : row;
	const int64_t scale_row =
	    q.layer.ids ? a_row : scale_row_of(q.moe, expert, row);

	if (scale_row < 0) {
		store_nan(p, row * p.c_row_stride);
		return;
	}
	multiply_matrices<SIDE, N>(p, operand_of_row(q, a_row, scale_row),
				   matrices_of_expert<N>(q.moe, expert));
	if (q.layer.ids && !q.layer.weights)
		store_h<SIDE, N>(q, row);
	else
		store_tiles<SIDE, N>(p, my_share(), row * p.c_row_stride);
}

template <class SIDE, int N>
DEVICE void gemv_experts(const struct nib_gemv_experts_params &q)
{
	const int row = (int)blockIdx.y;
	int expert;

	/* A layer's next kernel begins when those before the layer have ended,
	 * which write ids and perhaps weights. */
	if (!q.layer.ids)
		griddepcontrol_launch_dependents();
	if (!q.moe.p.b_is_constant)
		griddepcontrol_wait();
	expert = q.layer.ids ? expert_of(q.layer, row) : expert_of_row(q.moe, row);
	if (expert >= 0)
		multiply_row<SIDE, N>(q, expert, row);
	/* Also where no slot is here: a kernel ends after those before it. */
	griddepcontrol_wait();
	if (N == 1 && q.layer.weights)
		add_slots(q);
	else if (q.layer.ids)
		clear_arrivals(q.layer);
}

#define NIB_GEMV_EXPERTS_KERNEL(name, n, ...)                                          \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV_THREADS, NIB_GEMV_CTAS)  \
	    NIB_KERNEL(gemv_##name)(                                                   \
		const __grid_constant__ struct nib_gemv_experts_params q)              \
	{                                                                              \
		gemv_experts<__VA_ARGS__, n>(q);                                       \
	}

#endif
