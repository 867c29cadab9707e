/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_experts.cuh - a mixture of experts with the vector kernels, for so few
 * rows that most experts have one at most: each row of A is a product of one row,
 * by the weights of its expert.  An expert of several rows is read once for each.
 *
 *   row_offsets --ldg, all warps--> the row's expert --> multiply_matrices()
 *
 * Grid: x = CTAs of one matrix, y = rows of A.  Every warp finds the expert for
 * itself, so that no barrier lies before the first weights.  Tiles, rings, order
 * of sums and roofline are those of gemv_run.cuh; nothing is asked for before the
 * kernel before has ended, because that one writes the offsets.
 *
 * Variants: one matrix of weights, or two (NIB_DUAL_GEMM), for weights in rows of
 * 16-byte pieces and rows of A that begin at multiples of 16 bytes.
 */
#ifndef NIB_GEMV_EXPERTS_CUH
#define NIB_GEMV_EXPERTS_CUH

#include "gemv_run.cuh"
#include "moe_tiles.cuh"
#include "skinny_params.h"

/* Offsets that a lane loads at once: of up to 256 experts all. */
#define OFFSETS_AT_ONCE 8

/*
 * The expert that has the row, the number of experts if none has: offsets
 * ascend, so that as many of them end at or before the row.
 */
__device__ static int expert_of_row(const struct nib_skinny_params &q, int row)
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
	return before < q.experts && expert_row(&q, before) <= row
		       ? before
		       : q.experts;
}

/*
 * Where the scales of a row of A are: -1 if its expert's leave their tensor.
 */
__device__ static int64_t scale_row_of(const struct nib_skinny_params &q,
				       int expert, int row)
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
__device__ static struct nib_gemv_operand
operand_of_row(const struct nib_skinny_params &q, int row, int64_t scale_row)
{
	struct nib_gemv_operand a = q.p.a;

	a.codes += row * a.row_stride;
	if (a.is_tiled)
		a.scales += scale_row / 128 * ((q.p.k / 16 + 3) / 4) * 512 +
			    scale_row % 32 * 16 + scale_row % 128 / 32 * 4;
	else
		a.scales += scale_row * a.scale_row_stride;
	return a;
}

template <int N>
__device__ static struct matrices<N>
matrices_of_expert(const struct nib_skinny_params &q, int expert, int row)
{
	struct matrices<N> m;

	m.b = q.p.b;
	m.c_begin = row * q.p.c_row_stride;
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
__device__ static void store_nan(const struct nib_gemv_params &p,
				 int64_t c_begin)
{
	const int rows = tiles_of_cta(p) * NIB_GEMV_TILE_ROWS;

	for (int i = threadIdx.x; i < rows; i += NIB_GEMV_THREADS) {
		const int64_t row =
			nib_gemv_row(tile_of_cta(i / NIB_GEMV_TILE_ROWS),
				     i % NIB_GEMV_TILE_ROWS, p.b.is_tiled);

		if (row < p.n)
			store(p, c_begin + row, __uint_as_float(0x7FC00000));
	}
}

template <class SIDE, int N>
__device__ static void gemv_experts(const struct nib_skinny_params &q)
{
	const int row = (int)blockIdx.y;
	int64_t scale_row;
	int expert;

	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
	expert = expert_of_row(q, row);
	if (expert == q.experts)
		return;
	scale_row = scale_row_of(q, expert, row);
	if (scale_row < 0)
		store_nan(q.p, row * q.p.c_row_stride);
	else
		multiply_matrices<SIDE, N>(q.p,
					   operand_of_row(q, row, scale_row),
					   matrices_of_expert<N>(q, expert,
								 row));
}

#define NIB_GEMV_EXPERTS_KERNEL(name, n, ...)                                  \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV_THREADS,         \
						     NIB_GEMV_CTAS)            \
		NIB_KERNEL(gemv_##name)(                                       \
			const __grid_constant__ struct nib_skinny_params q)    \
	{                                                                      \
		gemv_experts<__VA_ARGS__, n>(q);                               \
	}

#endif
