/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_run.cuh - which tiles a CTA of gemv.cu multiplies, and in what order its warps
 * load them.
 *
 * An item is up to M rows of A and the weights that they share: a matrix of a batch, or
 * some rows of an expert.  The tiles of all items form one sequence of units.  Each CTA
 * has a run of it; the part of a run that is in one item is a segment:
 *
 *   item         0               1               2            T tiles (units) each
 *   unit         0 ...   T - 1 | T ...  2T - 1 | 2T ...
 *   CTA            0       |      1       |      2            runs (some: a unit more)
 *   segments     0         | 0 |  1       |  1 |  2
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

/* What all warps have in common is in shared memory, because registers are scarce:
 * words from its beginning. */
enum {
	/* The CTA's run: units first to end - 1, each a tile of an item. */
	RUN_FIRST,
	RUN_END,
	RUN_ITEM, /* of the first unit; the first of the table */
	/* The segment's item. */
	ITEM_MATRIX,
	ITEM_ROW,
	ITEM_ROWS,
	ITEM_ALPHA,
};

DEVICE uint32_t shared_at(uint32_t offset)
{
	extern __shared__ __align__(128) uint8_t shared[];

	return smem_addr(shared) + offset;
}

DEVICE int known(int word)
{
	return (int)lds_32(shared_at(word * 4));
}

DEVICE void tell(int word, int x)
{
	sts_32(shared_at(word * 4), x);
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

/* Finds the CTA's run; false: it has none. */
template <int M>
DEVICE bool find_run(const struct nib_gemv100_params &p)
{
	const int experts = (p.matrices + 31) / 32;
	int items = p.matrices, before = 0, first, end, share, rest;
	uint32_t ctas;

	if (p.row_offsets)
		before = items_before<M>(p, experts, &items);
	ctas =
	    nib_gemv100_ctas(items * p.tiles, M, p.tile_warps_log2, p.multiprocessors);
	if (blockIdx.x >= ctas)
		return false;
	/* Some CTAs have one unit more. */
	share = items * p.tiles / ctas;
	rest = items * p.tiles - share * ctas;
	first = blockIdx.x * share + min((int)blockIdx.x, rest);
	end = first + share + ((int)blockIdx.x < rest);
	if (threadIdx.x == 0) {
		tell(RUN_FIRST, first);
		tell(RUN_END, end);
		tell(RUN_ITEM, first / p.tiles);
	}
	if (p.row_offsets && threadIdx.x < 32)
		write_items<M>(p, first / p.tiles, (end - 1) / p.tiles, experts,
			       before);
	return true;
}

DEVICE struct item item_of(const struct nib_gemv100_params &p, int index)
{
	uint32_t at, x;

	if (!p.row_offsets)
		return {index, 0, p.m};
	at = shared_at(NIB_GEMV100_ITEMS_AT) + (index - known(RUN_ITEM)) * 8;
	x = lds_32(at);
	return {(int)(x & 0xFFFFFF), (int)lds_32(at + 4), (int)(x >> 24)};
}

/* One thread writes the segment's item, all others read it by known_item(). */
DEVICE void tell_item(const struct nib_gemv100_params &p, const struct item &item)
{
	float alpha = 1;

	if (p.alpha)
		alpha = ld_global_f32(p.alpha + (p.row_offsets ? item.matrix : 0));
	tell(ITEM_MATRIX, item.matrix);
	tell(ITEM_ROW, item.row);
	tell(ITEM_ROWS, item.rows);
	tell(ITEM_ALPHA, __float_as_int(alpha));
}

DEVICE struct item known_item(void)
{
	return {known(ITEM_MATRIX), known(ITEM_ROW), known(ITEM_ROWS)};
}

#endif
