/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_tiles.cuh - counts the tiles of a mixture of experts on the device, because the
 * host does not know the number of rows of each expert.  ARGS must have the members
 * experts, rows, tile_m and row_offsets.  SHARE(m, tile_m) gives the rows of each tile
 * of an expert with m rows.
 */
#ifndef NIB_MOE_TILES_CUH
#define NIB_MOE_TILES_CUH

#include "ring.cuh"

/* The first row of expert e; e = experts: the end of the last one.  Clamped to the
 * rows, because the caller's offsets may be wrong. */
template <class ARGS>
DEVICE int32_t expert_row(const ARGS *args, int32_t e)
{
	return min(max(__ldg(args->row_offsets + e), 0), args->rows);
}

/* The tiles of expert e; units: tiles across the rows of B. */
template <int32_t (*SHARE)(int32_t, int32_t), class ARGS>
DEVICE int32_t expert_tiles(const ARGS *args, int32_t e, int32_t units)
{
	const int32_t m = expert_row(args, e + 1) - expert_row(args, e);
	int32_t share;

	if (m <= 0)
		return 0;
	share = SHARE(m, args->tile_m);
	return (m + share - 1) / share * units;
}

/*
 * Called by one warp: first_tile[e] = the number of tiles of the experts before e, for
 * e = 0 .. experts.  Each lane sums a run of experts, then a scan adds the sums of the
 * lanes before it.
 */
template <int32_t (*SHARE)(int32_t, int32_t), class ARGS>
DEVICE void count_tiles(const ARGS *args, int32_t units, int32_t lane,
			int32_t *first_tile)
{
	const int32_t run = (args->experts + 31) / 32;
	const int32_t e0 = lane * run;
	const int32_t e1 = min(e0 + run, args->experts);
	int32_t sum = 0, before;

#pragma unroll 1
	for (int32_t e = e0; e < e1; e++)
		sum += expert_tiles<SHARE>(args, e, units);
	before = sum;
#pragma unroll 1
	for (int32_t d = 1; d < 32; d *= 2) {
		const int32_t other = __shfl_up_sync(~0u, before, d);

		before += lane >= d ? other : 0;
	}
	before -= sum;
#pragma unroll 1
	for (int32_t e = e0; e < e1; e++) {
		first_tile[e] = before;
		before += expert_tiles<SHARE>(args, e, units);
	}
	if (lane == 31)
		first_tile[args->experts] = before;
}

/* The last i with first[i * stride_elems] <= value in an ascending sequence; 0 if no
 * such i exists. */
DEVICE int32_t find_last(const int32_t *first, int64_t stride_elems, int32_t count,
			 int32_t value)
{
	int32_t low = 0, high = count;

	while (high - low > 1) {
		const int32_t mid = (low + high) / 2;

		if (first[mid * stride_elems] <= value)
			low = mid;
		else
			high = mid;
	}
	return low;
}

#endif
