/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny_rounds.cuh - which tiles and rows of A a CTA of skinny.cuh multiplies in each
 * round, and the traits of the kernels' variants.
 *
 * MoE: the rows of each expert are cut into units of at most M rows.  The tiles of all
 * units form one sequence, and each CTA has a range of it:
 *
 *   tile      0 1 2 ... T-1 | T ...  2T-1 | 2T ...       T: tiles of an expert
 *   unit           0        |      1      |   2 ...
 *   CTA         0        |      1      |     2 ...
 *
 * A round may have tiles of several units if their rows are neighbours and at most M
 * together: an mma multiplies all of these rows by the tile, and only the rows of the
 * tile's own unit are stored.
 */
#ifndef NIB_SKINNY_ROUNDS_CUH
#define NIB_SKINNY_ROUNDS_CUH

#include "backend/cuda/kernels/common/moe_tiles.cuh"
#include "skinny_params.h"

/* B whose rows are 16-byte pieces; any B; the weights of experts (16-byte pieces). */
enum b_kind { B_ALIGNED, B_ANY, B_EXPERTS };

/*
 * TRAITS: what the variants of the kernel differ in.  N_TILES: n8 tiles, rows of A / 8.
 */
template <int N_TILES_, enum b_kind B_, enum a_type TYPE_>
struct skinny {
	static const int N_TILES = N_TILES_, M = 8 * N_TILES_;
	static const bool ALIGNED = B_ != B_ANY, IS_MOE = B_ == B_EXPERTS;
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const int STAGES = NIB_SKINNY_STAGES(N_TILES_);
	static const int CHUNKS = NIB_SKINNY_CHUNKS(N_TILES_);
	static const int CHUNK_BYTES = NIB_SKINNY_CHUNK_BYTES(N_TILES_);
	static_assert(CHUNKS % NIB_SKINNY_PRODUCERS == 0,
		      "a chunk's space has one producer");
	/* Offsets in shared memory. */
	static const int CHUNKS_AT = NIB_SKINNY_WARPS * STAGES * NIB_GEMV_STAGE_BYTES;
	static const int SUMS_AT = CHUNKS_AT + CHUNKS * CHUNK_BYTES;
	static const int SUMS_BYTES = NIB_SKINNY_WARPS * NIB_SKINNY_SUMS(N_TILES_) * 4;
	static const int BARRIERS_AT = SUMS_AT + SUMS_BYTES;
	static const int UNITS_AT = BARRIERS_AT + CHUNKS * 16;
	static const int SCALE_ROWS_AT = UNITS_AT + NIB_SKINNY_UNITS * 4;
	/* The experts' first units use the memory of the sums until the roles begin. */
	static_assert((NIB_SKINNY_EXPERTS + 1) * 4 <= SUMS_BYTES,
		      "space for the experts");
};

/* What all warps of a CTA have in common. */
struct cta {
	uint32_t shared;
	int tile, end;		   /* its range of tiles */
	const uint32_t *units;	   /* MoE: pack_unit() */
	const int32_t *scale_rows; /* MoE: the row of scales of each row of A, or -1 */
};

template <class TRAITS>
DEVICE uint32_t full(uint32_t shared, int chunk)
{
	return shared + TRAITS::BARRIERS_AT + chunk * 16;
}

template <class TRAITS>
DEVICE uint32_t empty(uint32_t shared, int chunk)
{
	return full<TRAITS>(shared, chunk) + 8;
}

/* ---- units of experts ---------------------------------------------------- */

struct unit {
	int expert, row, rows; /* the first row of A, and how many */
};

DEVICE uint32_t pack_unit(int expert, int row, int rows)
{
	return (uint32_t)(expert << 16 | row << 5 | rows);
}

DEVICE struct unit unit_of(uint32_t x)
{
	return {(int)(x >> 16), (int)(x >> 5 & 0x7FF), (int)(x & 31)};
}

/* The ARGS of moe_tiles.cuh. */
struct expert_rows {
	const int32_t *row_offsets;
	int32_t experts, rows, tile_m;
};

template <int M>
DEVICE int32_t whole_units(int32_t, int32_t)
{
	return M;
}

/*
 * Writes an expert's units and the rows of its scales; these are -1 if the scales would
 * leave their tensor.
 */
template <class TRAITS>
DEVICE void fill_expert(const struct nib_gemv_experts &params,
			const struct expert_rows &rows, int e, int unit, uint8_t *bytes)
{
	const int first = expert_row(&rows, e), end = expert_row(&rows, e + 1);
	const int m = end - first;
	uint32_t *units = (uint32_t *)(bytes + TRAITS::UNITS_AT);
	int32_t *scale_rows = (int32_t *)(bytes + TRAITS::SCALE_ROWS_AT);
	int scale_row = first;

	for (int row = first; row < end && unit < NIB_SKINNY_UNITS;
	     row += TRAITS::M, unit++)
		units[unit] = pack_unit(e, row, min(TRAITS::M, end - row));
	if (!TRAITS::IS_NVFP4 || m <= 0)
		return;
	if (params.scale_rows)
		scale_row = __ldg(params.scale_rows + e);
	if (scale_row < 0 ||
	    (params.scale_rows && scale_row > params.scale_rows_total - m))
		scale_row = -NIB_SKINNY_ROWS;
	for (int row = first; row < end; row++)
		scale_rows[row] = max(scale_row + row - first, -1);
}

/* Called by all threads: fills the tables, and returns the number of units. */
template <class TRAITS>
DEVICE int fill_units(const struct nib_gemv_experts &params, uint8_t *bytes)
{
	const struct expert_rows rows = {params.row_offsets, params.experts,
					 params.rows, TRAITS::M};
	int32_t *first_unit = (int32_t *)(bytes + TRAITS::SUMS_AT);

	if (threadIdx.x < 32)
		count_tiles<whole_units<TRAITS::M>>(&rows, 1, (int)threadIdx.x,
						    first_unit);
	__syncthreads();
	for (int e = threadIdx.x; e < params.experts; e += NIB_SKINNY_THREADS)
		fill_expert<TRAITS>(params, rows, e, first_unit[e], bytes);
	/* Offsets that do not ascend may give more. */
	return min(first_unit[params.experts], NIB_SKINNY_UNITS);
}

/* ---- rounds -------------------------------------------------------------- */

/* A round: count tiles from `tile` on (none if count <= 0), and its rows of A. */
struct round {
	int tile, count, row, rows;
};

/* The round that begins with a tile. */
template <class TRAITS>
DEVICE struct round round_at(const struct nib_skinny_params &params,
			     const struct cta &cta, int tile)
{
	struct round round = {tile, min(params.tiles_at_once, cta.end - tile), 0,
			      params.p.m};

	if (TRAITS::IS_MOE && round.count > 0) {
		int u = tile / params.p.tiles, end = (u + 1) * params.p.tiles;
		struct unit x = unit_of(cta.units[u]);

		round.row = x.row;
		round.rows = x.rows;
		/* Adds units while their rows are the next ones and fit. */
		while (end < tile + round.count) {
			x = unit_of(cta.units[++u]);
			if (x.row != round.row + round.rows ||
			    round.rows + x.rows > TRAITS::M)
				break;
			round.rows += x.rows;
			end += params.p.tiles;
		}
		round.count = min(round.count, end - tile);
	}
	return round;
}

template <class TRAITS>
DEVICE struct round next_round(const struct nib_skinny_params &params,
			       const struct cta &cta, const struct round &round)
{
	return round_at<TRAITS>(params, cta, round.tile + round.count);
}

/* A k256 step of a round. */
struct position {
	struct round round;
	int step;
};

/* pos->step counts from the beginning of pos->round: moves to the round that has it. */
template <class TRAITS>
DEVICE void find_position(const struct nib_skinny_params &params, const struct cta &cta,
			  int steps, struct position *pos)
{
	while (pos->round.count > 0 && pos->step >= steps) {
		pos->step -= steps;
		pos->round = next_round<TRAITS>(params, cta, pos->round);
	}
}

#endif
