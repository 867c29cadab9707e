/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_schedule.cuh - the tile queue: which tile a CTA computes next, from the
 * plan's list or, for MoE, counted at the start from the experts' row offsets,
 * which are in device memory only.
 */
#ifndef NIB_GEMM_SCHEDULE_CUH
#define NIB_GEMM_SCHEDULE_CUH

#include "backend/cuda/kernels/common/moe_tiles.cuh"
#include "gemm_shared.cuh"

/* The first row of expert e among the converted activations, without a prefix sum.
 * Padding costs at most 15 rows for each expert that has tokens. */
DEVICE int32_t padded_row(int32_t e, int32_t offset)
{
	return 16 * (offset / 16 + min(e, offset));
}

/* Rows of A rounded up to a tile size: multiples of 16, above 128 of 32. */
DEVICE int32_t round_m(int32_t x)
{
	const int32_t step = x > 128 ? 32 : 16;

	return (x + step - 1) & -step;
}

/* Rows of each tile of an expert that has m tokens, equal but for rounding. */
DEVICE int32_t share_m(int32_t m, int32_t most)
{
	const int32_t tiles = (m + most - 1) / most;

	return tiles ? round_m((m + tiles - 1) / tiles) : 16;
}

DEVICE int32_t row_units(int32_t n, int32_t cta_rows)
{
	return (n + 2 * cta_rows - 1) / (2 * cta_rows);
}

/* Tile `index` of an MoE problem; *row: the expert's first row in c. */
DEVICE bool next_expert_tile(const struct nib_gemm_args *args,
			     const struct gemm_shared *shared, int32_t index,
			     int32_t cta_rows, struct nib_gemm_tile *entry,
			     struct tile_desc *tile, int32_t *row)
{
	const int32_t units = row_units(args->shapes->n, cta_rows);
	int32_t e, first, m, share, inside;

	if (index >= shared->first_tile[args->experts])
		return false;
	e = find_last(shared->first_tile, 1, args->experts, index);
	first = expert_row(args, e);
	m = expert_row(args, e + 1) - first;
	share = share_m(m, args->tile_m);
	inside = index - shared->first_tile[e];
	entry->problem = 0;
	entry->unit = inside % units;
	entry->row = inside / units * share;
	entry->rows = (int16_t)min(share, round_m(m - entry->row));
	entry->k_slice = 0;
	tile->matrix = e;
	*row = first;
	tile->valid = min((int32_t)entry->rows, m - entry->row);
	tile->atom = (padded_row(e, first) + entry->row) / 8;
	return true;
}

/* The output fields of the descriptor; row: the tile's first row in c. */
DEVICE void find_output(const struct nib_gemm_args *args,
			const struct nib_gemm_pointers *p, int32_t row,
			struct tile_desc *tile)
{
	const struct nib_gemm_shape *s = args->shapes + tile->problem;
	int32_t expert = tile->matrix;

	tile->rows_left = s->n - tile->row0;
	tile->flags = s->flags;
	tile->c_stride_elems = s->c_stride_elems;
	tile->c = (char *)p->c +
		  (row * s->c_stride_elems + tile->row0) * (args->dtype == 0 ? 4 : 2);
	if (args->batch) {
		tile->c +=
		    tile->matrix * args->c_batch_elems * (args->dtype == 0 ? 4 : 2);
		expert = 0;
	}
	tile->alpha = p->alpha ? p->alpha + expert : NULL;
	tile->alpha2 = p->alpha2 ? p->alpha2 + expert : NULL;
}

/* Tile `round` of this cluster; false: no more. */
DEVICE bool next_tile(const struct nib_gemm_args *args,
		      const struct nib_gemm_pointers *problems,
		      const struct gemm_shared *shared, int32_t round, int32_t cta_rows,
		      struct tile_desc *tile)
{
	const int32_t index = round * (int32_t)nclusterid_x() + (int32_t)clusterid_x();
	const struct nib_gemm_shape *s = args->shapes;
	struct nib_gemm_tile entry;
	int32_t stages, row = 0;

	tile->rows = 0;
	if (args->experts) {
		if (!next_expert_tile(args, shared, index, cta_rows, &entry, tile,
				      &row))
			return false;
	} else {
		if (round >= args->tile_rounds)
			return false;
		if (round == 0)
			entry = args->first[index];
		else
			*(int4 *)&entry = __ldg((const int4 *)args->tiles + index);
		if (entry.rows == 0)
			return false;
		tile->matrix = 0;
		if (args->batch) {
			tile->matrix = entry.problem;
			entry.problem = 0;
		}
		s += entry.problem;
		tile->valid = min((int32_t)entry.rows, s->m - entry.row);
		tile->atom = (s->first_row + entry.row) / 8;
		if (args->batch)
			tile->atom += tile->matrix * args->batch_rows / 8;
	}
	tile->problem = entry.problem;
	tile->row0 = (2 * entry.unit + (int32_t)cluster_ctarank()) * cta_rows;
	tile->rows = entry.rows;
	stages = (s->k + NIB_WEIGHT_STAGE_K - 1) / NIB_WEIGHT_STAGE_K;
	tile->k_slice = entry.k_slice;
	tile->tile = entry.row / args->tile_m * row_units(s->n, cta_rows) + entry.unit;
	tile->stage0 = stages * entry.k_slice / args->k_slices;
	/* k = 0 is computed as one stage of zeros. */
	tile->stages =
	    max(1, stages * (entry.k_slice + 1) / args->k_slices - tile->stage0);
	find_output(args, problems + entry.problem, row + entry.row, tile);
	return true;
}

/*
 * The scheduler, one thread: writes the descriptors of the next tiles while the other
 * warps compute the current one.  The first tile of a list, tiles[0], is written before
 * the roles begin.
 */
template <bool DUAL>
DEVICE void schedule(const struct nib_gemm_args *args,
		     const struct nib_gemm_pointers *problems,
		     struct gemm_shared *shared)
{
	struct ring ring = {0, 0};
	struct tile_desc tile;
	bool more;

	if (!args->experts) {
		mbarrier_arrive(smem_addr(shared->tiles_full));
		if (shared->tiles->rows == 0)
			return;
		advance(&ring, TILE_SLOTS);
	}
	for (int32_t round = (int32_t)ring.stage;; round++) {
		more = next_tile(args, problems, shared, round, CTA_ROWS(DUAL), &tile);
		wait(smem_addr(shared->tiles_empty + ring.stage), ring.parity ^ 1);
		shared->tiles[ring.stage] = tile;
		mbarrier_arrive(smem_addr(shared->tiles_full + ring.stage));
		if (!more)
			return;
		advance(&ring, TILE_SLOTS);
	}
}

/* The next tile of the calling role; rows = 0 ends the queue. */
DEVICE const struct tile_desc *await_tile(const struct gemm_shared *shared,
					  const struct ring *tiles)
{
	wait(smem_addr(shared->tiles_full + tiles->stage), tiles->parity);
	return shared->tiles + tiles->stage;
}

/* Called by one thread of each warp that reads descriptors, after its last read of this
 * one. */
DEVICE void release_tile(const struct gemm_shared *shared, struct ring *tiles)
{
	mbarrier_arrive(smem_addr(shared->tiles_empty + tiles->stage));
}

#endif
