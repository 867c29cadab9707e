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

/* The tiles of an expert of m rows; units: tiles across the rows of B. */
template <int32_t (*SHARE)(int32_t, int32_t), class ARGS>
DEVICE int32_t expert_tiles(const ARGS *args, int32_t m, int32_t units)
{
	int32_t share;

	if (m <= 0)
		return 0;
	share = SHARE(m, args->tile_m);
	return m <= share ? units : (m + share - 1) / share * units;
}

/* Experts of a lane whose offsets are requested at once, so that their latencies
 * overlap. */
#define COUNTED_AT_ONCE 4

/*
 * Called by one warp: first_tile[e] = the number of tiles of the experts before e, for
 * e = 0 .. experts.  Each lane sums a run of experts, then a scan adds the sums of the
 * lanes before it.
 */
template <int32_t (*SHARE)(int32_t, int32_t), class ARGS>
DEVICE void count_tiles(const ARGS *args, int32_t units, int32_t lane,
			int32_t *first_tile)
{
	int32_t begin = 0;

#pragma unroll 1
	for (int32_t e0 = 0; e0 < args->experts; e0 += 32 * COUNTED_AT_ONCE) {
		const int32_t e = e0 + lane * COUNTED_AT_ONCE;
		int32_t row[COUNTED_AT_ONCE + 1], tiles[COUNTED_AT_ONCE];
		int32_t sum = 0, before;

#pragma unroll
		for (int i = 0; i <= COUNTED_AT_ONCE; i++)
			row[i] = expert_row(args, min(e + i, args->experts));
#pragma unroll
		for (int i = 0; i < COUNTED_AT_ONCE; i++) {
			const int32_t m = row[i + 1] - row[i];

			tiles[i] = expert_tiles<SHARE>(args, m, units);
			sum += tiles[i];
		}
		before = sum;
#pragma unroll 1
		for (int32_t d = 1; d < 32; d *= 2) {
			const int32_t other = __shfl_up_sync(~0u, before, d);

			before += lane >= d ? other : 0;
		}
		before += begin;
		begin = __shfl_sync(~0u, before, 31);
		before -= sum;
#pragma unroll
		for (int i = 0; i < COUNTED_AT_ONCE; i++) {
			if (e + i < args->experts)
				first_tile[e + i] = before;
			before += tiles[i];
		}
	}
	if (lane == 0)
		first_tile[args->experts] = begin;
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
