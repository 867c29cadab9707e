/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_schedule.cuh - the tile queue of Blackwell's GEMM: which tile a CTA
 * computes next, from the plan's list or, for MoE, counted at the start from
 * the experts' row offsets, which are in device memory only.
 */
#ifndef NIB_SM100_SCHEDULE_CUH
#define NIB_SM100_SCHEDULE_CUH

#include "backend/cuda/kernels/common/moe_tiles.cuh"
#include "gemm_shared.cuh"

DEVICE int32_t round_up(int32_t x, int32_t step)
{
	return (x + step - 1) / step * step;
}

/*
 * Rows of each tile of an expert that has m rows: one tile, or equal shares
 * that begin where tensor memory can address scales, at multiples of 64.
 */
DEVICE int32_t share_of_expert(int32_t m, int32_t most)
{
	int32_t tiles;

	if (m <= most)
		return round_up(max(m, 1), 16);
	tiles = (m + most - 1) / most;
	return min(most, round_up((m + tiles - 1) / tiles, 64));
}

/* A tile of a whole cluster. */
struct tile_place {
	int32_t unit;	/* of the rows of B of all matrices */
	int32_t row;	/* of A, from the problem's or expert's first */
	int32_t rows;	/* of the tile, padded to 16 */
	int32_t m;	/* of the problem or expert */
	int32_t expert; /* of MoE, else -1 */
	int32_t first;	/* row of A at which the expert begins, else 0 */
	int32_t scales; /* scale_rows of the expert, if the run has them */
};

/* Tile `index` of an MoE problem. */
DEVICE bool find_expert_tile(const struct nib_sm100_args *args, int32_t units,
			     const struct shared100 *shared, int32_t index,
			     struct tile_place *place)
{
	int32_t share, inside;

	if (index >= shared->first_tile[args->experts])
		return false;
	place->expert = find_last(shared->first_tile, 1, args->experts, index);
	place->first = expert_row(args, place->expert);
	place->m = expert_row(args, place->expert + 1) - place->first;
	/* Requested here, so that the latencies overlap. */
	place->scales = args->scale_rows ? __ldg(args->scale_rows + place->expert) : 0;
	share = share_of_expert(place->m, args->tile_m);
	inside = index - shared->first_tile[place->expert];
	place->unit = inside % units;
	place->row = inside / units * share;
	place->rows = min(share, round_up(place->m - place->row, 16));
	return true;
}

/* Tile `index`, the round-th of this cluster, of a list. */
DEVICE bool find_listed_tile(const struct nib_sm100_args *args,
			     const struct nib_sm100_problem *problems, int32_t round,
			     int32_t index, int32_t *problem, struct tile_place *place)
{
	struct nib_gemm_tile entry;

	if (round >= args->tile_rounds)
		return false;
	if (round == 0)
		entry = args->first[index];
	else
		*(int4 *)&entry = __ldg((const int4 *)args->tiles + index);
	*problem = entry.problem;
	place->unit = entry.unit;
	place->row = entry.row;
	place->rows = entry.rows;
	place->m = problems[entry.problem].m;
	place->expert = -1;
	place->first = 0;
	return entry.rows != 0;
}

/* The row of A's scale tensor at which the tile's scales begin. */
DEVICE int32_t scale_row_of(const struct nib_sm100_args *args,
			    const struct tile_place *place, struct tile_desc *tile)
{
	const int32_t begin = place->scales;

	tile->is_nan = 0;
	if (place->expert < 0)
		return place->row;
	if (!args->scale_rows)
		return nib_sm100_staged_row(place->expert, place->first) + place->row;
	/* The caller's data may be wrong; no sum here can overflow. */
	tile->is_nan = begin < 0 || begin > args->scale_rows_total ||
		       place->m > args->scale_rows_total - begin || begin % 128 != 0;
	return tile->is_nan ? 0 : begin + place->row;
}

/* The box of A: its map, coordinates and scales. */
template <int CTAS>
DEVICE void find_activations(const struct nib_sm100_args *args,
			     const struct nib_sm100_problem *problems,
			     const struct tile_place *place, struct tile_desc *tile)
{
	const int32_t rows = place->rows / CTAS;
	const int32_t scale_row = scale_row_of(args, place, tile);

	tile->a_map = tile->problem;
	if (place->expert >= 0)
		tile->a_map = rows <= 8 ? 0 : 29 - __clz(rows - 1);
	tile->a_bytes = problems[tile->a_map].a_box_rows * NIB_SM100_A_ROW_BYTES;
	tile->a_row = place->first + place->row + (int32_t)rank_in_pair<CTAS>() * rows;
	tile->a_block = scale_row / 128;
	tile->a_scale_shift = scale_row % 128 / 32;
}

/* The stages of this CTA's split-k slice, the same for both CTAs of a pair. */
template <int CTAS>
DEVICE void find_stages(const struct nib_sm100_args *args, int32_t k,
			struct tile_desc *tile)
{
	const int32_t stages = (k + NIB_SM100_STAGE_K - 1) / NIB_SM100_STAGE_K;
	const int32_t slice = (int32_t)k_slice_of_cta<CTAS>();
	/* The number of slices is a power of two; a division takes 130 cycles. */
	const int32_t shift = 31 - __clz(args->k_slices);

	tile->stage0 = stages * slice >> shift;
	tile->stages = (stages * (slice + 1) >> shift) - tile->stage0;
}

DEVICE void find_output(const struct nib_sm100_args *args,
			const struct nib_sm100_problem *p,
			const struct tile_place *place, struct tile_desc *tile)
{
	const int32_t alpha = max(place->expert, 0);
	const int64_t at = tile->a_matrix * p->c_batch_stride_elems +
			   (place->first + place->row) * p->c_stride_elems +
			   tile->b_row;

	tile->valid = min(place->rows, place->m - place->row);
	tile->rows_left = p->n - tile->b_row;
	tile->c_stride_elems = p->c_stride_elems;
	tile->c = (char *)p->c + at * (args->dtype == 0 ? 4 : 2);
	tile->alpha = p->alpha ? p->alpha + alpha : NULL;
	tile->alpha2 = p->alpha2 ? p->alpha2 + alpha : NULL;
}

/* Tile `round` of this cluster; false: no more. */
template <int CTAS>
DEVICE bool
next_tile(const struct nib_sm100_args *args, const struct nib_sm100_problem *problems,
	  const struct shared100 *shared, int32_t round, struct tile_desc *tile)
{
	const int32_t index = round * (int32_t)nclusterid_x() + (int32_t)clusterid_x();
	const struct nib_sm100_problem *p;
	struct tile_place place;
	int32_t matrix;

	tile->n = 0;
	tile->problem = 0;
	if (args->experts
		? !find_expert_tile(args, problems->units, shared, index, &place)
		: !find_listed_tile(args, problems, round, index, &tile->problem,
				    &place))
		return false;
	p = problems + tile->problem;
	/* Most problems have one matrix and need no division. */
	matrix = place.unit < p->units ? 0 : place.unit / p->units;
	place.unit -= matrix * p->units;
	tile->n = place.rows;
	tile->a_matrix = matrix;
	if (place.expert >= 0)
		matrix = place.expert;
	tile->b_matrix = p->b_matrices > 1 ? matrix : 0;
	tile->b_row = (place.unit * CTAS + (int32_t)rank_in_pair<CTAS>()) * NIB_TILE_N;
	/* A CTA beyond the last row loads the scales of the last block. */
	tile->b_block = min(tile->b_row, p->n - 1) / 128;
	find_activations<CTAS>(args, problems, &place, tile);
	find_stages<CTAS>(args, p->k, tile);
	find_output(args, p, &place, tile);
	return true;
}

/*
 * The scheduler, one warp: writes descriptors of tiles ahead of the other roles.  Lanes
 * find the tiles of consecutive rounds at the same time, because finding one takes 600
 * to 1500 cycles, longer than a tile of few rows and a short k.  They write in turn.
 * The first tile of a list, tiles[0], was written while the barriers were initialised.
 */
template <int CTAS>
DEVICE void schedule(const struct nib_sm100_args *args,
		     const struct nib_sm100_problem *problems, struct shared100 *shared)
{
	const int32_t lane = (int32_t)lane_of_thread();
	struct ring ring = {0, 0};
	int32_t round = lane;
	bool more = true;

	if (!args->experts) {
		if (lane == 0)
			mbarrier_arrive(smem_addr(shared->tiles_full));
		more = shared->tiles->n != 0;
		advance(&ring, TILE_SLOTS);
		round++;
	}
	for (; more; round += 32) {
		struct tile_desc tile;
		const bool is_end =
		    !next_tile<CTAS>(args, problems, shared, round, &tile);
		const uint32_t ends = __ballot_sync(~0u, is_end);
		const int32_t count = ends ? __ffs(ends) : 32;

		more = !ends;
#pragma unroll 1
		for (int32_t i = 0; i < count; i++) {
			if (lane == i) {
				wait(smem_addr(shared->tiles_empty + ring.stage),
				     ring.parity ^ 1);
				shared->tiles[ring.stage] = tile;
				mbarrier_arrive(
				    smem_addr(shared->tiles_full + ring.stage));
			}
			/* A slot's next tile has the barrier's next phase. */
			__syncwarp();
			advance(&ring, TILE_SLOTS);
		}
	}
}

#endif
