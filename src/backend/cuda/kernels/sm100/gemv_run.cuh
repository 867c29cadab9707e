/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_run.cuh - which units a CTA of gemv.cu multiplies, and the items that they
 * belong to.
 *
 * An item is up to M rows of A and the weights that they share: a matrix of a batch, or
 * some rows of an expert.  The tiles of all items form one sequence of units.  Each CTA
 * has a run of it:
 *
 *   item         0               1               2            T tiles (units) each
 *   unit         0 ...   T - 1 | T ...  2T - 1 | 2T ...
 *   CTA            0       |      1       |      2            runs (some: a unit more)
 *
 * The units of a run are distributed over the groups of warps in turn.
 */
#ifndef NIB_SM100_GEMV_RUN_CUH
#define NIB_SM100_GEMV_RUN_CUH

#include "gemv_params.h"
#include "ptx_loads.cuh"

struct item {
	int matrix, row, rows; /* row: the first of A and C */
};

/* The CTA's units first to end - 1; the first one is a tile of an item. */
struct run {
	int first, end, item, tile;
	int unit_warps_log2;
};

DEVICE uint32_t shared_at(uint32_t offset)
{
	extern __shared__ __align__(128) uint8_t shared[];

	return smem_addr(shared) + offset;
}

/* The first row of expert e.  Clamped, because the caller's offsets may be wrong. */
DEVICE int expert_row(const struct nib_gemv100_params &p, int e)
{
	return min(max(__ldg(p.row_offsets + e), 0), p.rows);
}

template <int M>
DEVICE int expert_items(const struct nib_gemv100_params &p, int e)
{
	return (max(expert_row(p, e + 1) - expert_row(p, e), 0) + M - 1) / M;
}

/* The items of the experts before the lane's, when each lane has `experts` of them in
 * order; *all: the items of all experts. */
template <int M>
DEVICE int items_before(const struct nib_gemv100_params &p, int experts, int *all)
{
	const int lane = threadIdx.x % 32;
	int sum = 0, before;

#pragma unroll 4
	for (int i = lane * experts; i < (lane + 1) * experts; i++)
		sum = min(sum, 1 << 20) + (i < p.matrices ? expert_items<M>(p, i) : 0);
	/* Wrong offsets could overflow an int. */
	sum = min(sum, 1 << 20);
	before = sum;
#pragma unroll 1
	for (int d = 1; d < 32; d *= 2) {
		const int other = __shfl_up_sync(~0u, before, d);

		before += lane >= d ? other : 0;
	}
	*all = min(__shfl_sync(~0u, before, 31), p.rows);
	return before - sum;
}

/* Warp 0 writes the items of the run into the table. */
template <int M>
DEVICE void write_items(const struct nib_gemv100_params &p, int first_item,
			int last_item, int experts, int item)
{
	const uint32_t table = shared_at(NIB_GEMV100_ITEMS_AT);
	const int e0 = threadIdx.x % 32 * experts;

#pragma unroll 1
	for (int e = e0; e < min(e0 + experts, p.matrices); e++) {
		const int end = expert_row(p, e + 1);

#pragma unroll 1
		for (int row = expert_row(p, e); row < end; row += M) {
			const uint32_t to = table + (item - first_item) * 8;

			if (item >= first_item && item <= last_item) {
				sts_32(to, e | min(end - row, M) << 24);
				sts_32(to + 4, row);
			}
			item++;
		}
	}
}

/* unit = item * tiles + tile. */
DEVICE void split_unit(const struct nib_gemv100_params &p, int unit, int *item,
		       int *tile)
{
	/* At most one less than the quotient. */
	int q = (int)__umulhi((uint32_t)unit, p.tiles_inverse);
	int r = unit - q * p.tiles;

	if (r >= p.tiles) {
		r -= p.tiles;
		q++;
	}
	*item = q;
	*tile = r;
}

/* Finds the CTA's run of `share` units, one more for the first `rest` CTAs. */
DEVICE struct run run_of(const struct nib_gemv100_params &p, int share, int rest)
{
	struct run run;

	run.first = (int)blockIdx.x * share + min((int)blockIdx.x, rest);
	run.end = run.first + share + ((int)blockIdx.x < rest);
	split_unit(p, run.first, &run.item, &run.tile);
	run.unit_warps_log2 = p.unit_warps_log2;
	return run;
}

/* The same for MoE, and the table of the run's items; an empty run has no units. */
template <int M>
DEVICE struct run expert_run_of(const struct nib_gemv100_params &p)
{
	const int experts = (p.matrices + 31) / 32;
	int items, before = items_before<M>(p, experts, &items), last, tile;
	const int units = items * p.tiles;
	const int ctas = min(units, p.multiprocessors);
	struct run run = {};

	if ((int)blockIdx.x >= ctas)
		return run;
	run = run_of(p, units / ctas, units % ctas);
	run.unit_warps_log2 =
	    nib_gemv100_unit_warps_log2((units + ctas - 1) / ctas, p.steps, M);
	split_unit(p, run.end - 1, &last, &tile);
	if (threadIdx.x < 32)
		write_items<M>(p, run.item, last, experts, before);
	__syncthreads();
	return run;
}

DEVICE struct item item_of(const struct nib_gemv100_params &p, const struct run &run,
			   int index)
{
	uint32_t at, x;

	if (!p.row_offsets)
		return {index, 0, p.m};
	at = shared_at(NIB_GEMV100_ITEMS_AT) + (index - run.item) * 8;
	x = lds_32(at);
	return {(int)(x & 0xFFFFFF), (int)lds_32(at + 4), (int)(x >> 24)};
}

DEVICE float load_alpha(const struct nib_gemv100_params &p, const struct item &item)
{
	return ld_global_f32(p.alpha + (p.row_offsets ? item.matrix : 0));
}

#endif
