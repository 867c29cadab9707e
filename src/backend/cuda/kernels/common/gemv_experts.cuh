/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_experts.cuh - a mixture of experts by the vector kernels, for so few rows that
 * most experts have at most one: each row of A is a product of one row by the weights
 * of its expert.  The weights of an expert with several rows are read once for each.
 *
 *   row_offsets --ldg, all warps--> the row's expert --> multiply_matrices() --> C
 *
 * Grid: x = CTAs of a matrix, y = rows of A.  Every warp finds the expert for itself,
 * so that no barrier precedes the first weights.  Warps, tiles, rings, shared memory,
 * order of sums and roofline are those of gemv_run.cuh and of the SIDE (gemv.cuh,
 * gemv_dense.cuh).  Registers: 103 to 120 (docs/kernels.md).
 *
 * Layers of experts (struct nib_gemv_layer) have the same kernels with slots in place
 * of rows, so that nothing is sorted:
 *
 *   1  ids --ldg, all warps--> the slot's expert --> sums of gate and up --> h
 *   2  ids --> the slot's expert --> the slot's row --stg--> memory
 *        --arrivals: the last CTA of a token's columns--> sum in order of slots --> y
 *
 * With NVFP4 the second kernel quantises the row of h as it loads it, which the latency
 * of the first weights hides.  The first kernel of a layer waits for the kernels before
 * the layer, which write ids and perhaps weights, and only then lets the next kernel
 * begin.  So the later kernels of the layer may read ids and request weights before
 * they wait.
 *
 * Variants: one matrix of weights, or two (NIB_OP_DUAL_GEMM), for weights in rows of
 * 16-byte pieces and rows of A that begin at multiples of 16 bytes.
 */
#ifndef NIB_GEMV_EXPERTS_CUH
#define NIB_GEMV_EXPERTS_CUH

#include "gemv_activations.cuh"
#include "gemv_experts_params.h"
#include "gemv_run.cuh"
#include "moe_tiles.cuh"
#include "moe_values.cuh"
#include "quantize_block.cuh"

/* Offsets that a lane loads at once: all of up to 256 experts. */
#define OFFSETS_AT_ONCE 8

/* The expert of a row, or -1.  Offsets ascend, so that the expert's number is the
 * number of experts that end at or before the row. */
DEVICE int expert_of_row(const struct nib_gemv_experts &params, int row)
{
	int before = 0;

#pragma unroll 1
	for (int first = threadIdx.x % 32; first < params.experts;
	     first += 32 * OFFSETS_AT_ONCE)
#pragma unroll
		for (int i = 0; i < OFFSETS_AT_ONCE; i++) {
			const int e = first + 32 * i;

			before +=
			    e < params.experts && expert_row(&params, e + 1) <= row;
		}
	before = __reduce_add_sync(~0u, before);
	/* Wrong offsets may leave the row to no expert. */
	return before < params.experts && expert_row(&params, before) <= row ? before
									     : -1;
}

/*
 * The row of A's scales for a row of A; -1 if the expert's scales leave their tensor.
 */
DEVICE int64_t scale_row_of(const struct nib_gemv_experts &params, int expert, int row)
{
	const int first = expert_row(&params, expert);
	const int m = expert_row(&params, expert + 1) - first;
	int begin;

	if (!params.scale_rows)
		return row;
	begin = __ldg(params.scale_rows + expert);
	return begin < 0 || begin > params.scale_rows_total - m ? -1
								: begin + row - first;
}

/* A as a matrix of the one row; scale_row: the row of its scales. */
DEVICE struct row_operand operand_of_row(const struct nib_gemv_experts_params &params,
					 int row, int64_t scale_row)
{
	const struct nib_gemv_params &p = params.p;
	struct row_operand a = {p.a, params.layer.global,
				(uint32_t)params.layer.zero_scale};

	a.codes += row * a.row_stride;
	if (a.is_tiled)
		a.scales += scale_row / 128 * ((p.k / 16 + 3) / 4) * 512 +
			    scale_row % 32 * 16 + scale_row % 128 / 32 * 4;
	else
		a.scales += scale_row * a.scale_row_stride;
	return a;
}

/* Which of the CTAs of an expert this is. */
DEVICE struct cta_place place_of_cta(void)
{
	return {blockIdx.x, gridDim.x};
}

template <int N>
DEVICE matrices<N> matrices_of_expert(const struct nib_gemv_experts_params &params,
				      int expert)
{
	matrices<N> weights;

	weights.b = params.p.b;
	weights.place = place_of_cta();
#pragma unroll
	for (int i = 0; i < N; i++) {
		const struct nib_gemv_operand &b = i ? params.b2 : params.p.b;
		const float *alpha = i ? params.alpha2 : params.p.alpha;

		weights.codes[i] = b.codes + expert * b.batch_stride;
		weights.scales[i] = b.scales + expert * b.scale_batch_stride;
		weights.alpha[i] = alpha ? alpha + expert : NULL;
	}
	return weights;
}

/* The results of a row whose scales do not exist. */
DEVICE void store_nan(const struct nib_gemv_params &p, int64_t c_begin)
{
	const struct cta_place place = place_of_cta();
	const int rows = tiles_of_cta(p, place) * NIB_GEMV_TILE_ROWS;

	for (int i = threadIdx.x; i < rows; i += NIB_GEMV_THREADS) {
		const int64_t row = row_of_element(p, place, i);

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
DEVICE void store_h(const struct nib_gemv_experts_params &params, int slot)
{
	const struct nib_gemv_params &p = params.p;
	const struct cta_place place = place_of_cta();

	for (int i = threadIdx.x; i < tiles_of_cta(p, place) * NIB_GEMV_TILE_ROWS;
	     i += NIB_GEMV_THREADS) {
		const int64_t row = row_of_element(p, place, i);
		float x[N];

		results_of<SIDE>(partial_sums<SIDE>(), i / NIB_GEMV_TILE_ROWS,
				 i % NIB_GEMV_TILE_ROWS, x);
		if (row < p.n)
			store(p, slot * p.c_row_stride + row, h_of(params.layer, x));
	}
}

/* ---- the sum of slots ---------------------------------------------------- */

/* An element of the slots' rows. */
DEVICE float load_element(const struct nib_gemv_params &p, int64_t index)
{
	if (p.c_dtype == 0)
		return ((const float *)p.c)[index];
	return __uint_as_float(widen(((const uint16_t *)p.c)[index], p.c_dtype));
}

/* A column of a token: the sum over its slots, in their order. */
DEVICE float sum_of_slots(const struct nib_gemv_experts_params &params, int token,
			  int64_t col)
{
	const struct nib_gemv_params &p = params.p;
	float sum = 0;

#pragma unroll 4
	for (int j = 0; j < params.layer.top_k; j++) {
		const int slot = token * params.layer.top_k + j;
		const float weight = params.layer.weights[slot];
		const float x = load_element(p, slot * p.c_row_stride + col);

		if (expert_of(params.layer, slot) >= 0)
			sum = __fadd_rn(sum, __fmul_rn(weight, x));
	}
	return sum;
}

/* True in the last CTA of the token and columns, which sees what all others wrote. */
DEVICE bool is_last_of_token(const struct nib_gemv_layer &layer, int token)
{
	uint32_t *arrivals = layer.arrivals + token * gridDim.x + blockIdx.x;
	bool is_last = false;

	__syncthreads();
	if (threadIdx.x == 0)
		is_last = atom_add_acq_rel(arrivals, 1) == layer.top_k - 1u;
	return __syncthreads_or(is_last);
}

DEVICE void add_slots(const struct nib_gemv_experts_params &params)
{
	const struct cta_place place = place_of_cta();
	const int token = (int)blockIdx.y / params.layer.top_k;
	const int all = tiles_of_cta(params.p, place) * NIB_GEMV_TILE_ROWS;

	if (!is_last_of_token(params.layer, token))
		return;
	for (int i = threadIdx.x; i < all; i += NIB_GEMV_THREADS) {
		const int64_t col = row_of_element(params.p, place, i);

		if (col < params.p.n)
			store_as(params.layer.y, params.p.c_dtype,
				 token * params.layer.y_row_stride + col,
				 sum_of_slots(params, token, col));
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

/* Multiplies a row of a mixture of experts, or of a layer's slots, by its expert. */
template <class SIDE, int N>
DEVICE void multiply_row(const struct nib_gemv_experts_params &params, int expert,
			 int row)
{
	const struct nib_gemv_params &p = params.p;
	const int a_row = params.layer.a_is_by_token ? row / params.layer.top_k : row;
	const int64_t scale_row =
	    params.layer.ids ? a_row : scale_row_of(params.moe, expert, row);

	if (scale_row < 0) {
		store_nan(p, row * p.c_row_stride);
		return;
	}
	multiply_matrices<SIDE, N>(p, operand_of_row(params, a_row, scale_row),
				   matrices_of_expert<N>(params, expert));
	if (params.layer.ids && !params.layer.weights)
		store_h<SIDE, N>(params, row);
	else
		store_tiles<SIDE, N>(p, place_of_cta(), row * p.c_row_stride);
}

template <class SIDE, int N>
DEVICE void gemv_experts(const struct nib_gemv_experts_params &params)
{
	const int row = (int)blockIdx.y;
	int expert;

	/* The next kernel of a layer may begin only when those before the layer have
	 * ended, because they write ids and perhaps weights. */
	if (!params.layer.ids)
		griddepcontrol_launch_dependents();
	if (!params.p.b_is_constant)
		griddepcontrol_wait();
	expert = params.layer.ids ? expert_of(params.layer, row)
				  : expert_of_row(params.moe, row);
	if (expert >= 0)
		multiply_row<SIDE, N>(params, expert, row);
	/* Also without a slot: a kernel must not end before the previous ones. */
	griddepcontrol_wait();
	if (N == 1 && params.layer.weights)
		add_slots(params);
	else if (params.layer.ids)
		clear_arrivals(params.layer);
}

#define NIB_GEMV_EXPERTS_KERNEL(name, n, ...)                                          \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV_THREADS, NIB_GEMV_CTAS)  \
	    NIB_KERNEL(gemv_##name)(                                                   \
		const __grid_constant__ struct nib_gemv_experts_params params)         \
	{                                                                              \
		gemv_experts<__VA_ARGS__, n>(params);                                  \
	}

#endif
