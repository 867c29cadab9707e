/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny_rounds.cuh - which tiles and rows of A a CTA of skinny.cuh multiplies in
 * each round, and what its warps share.
 *
 * Experts (MoE) are cut into units of at most M rows of A.  All tiles of
 * all units are in one row, of which a CTA owns a part.  The tiles of a round may
 * be of several units, if their rows together are at most M: an mma multiplies
 * all of these rows by the tile, and only those of its unit are stored.
 */
#ifndef NIB_SKINNY_ROUNDS_CUH
#define NIB_SKINNY_ROUNDS_CUH

#include "backend/cuda/kernels/common/moe_tiles.cuh"
#include "skinny_params.h"

enum a_type { A_NVFP4, A_F16, A_BF16 };
/* Rows of 16-byte pieces, any, those of experts (16-byte pieces). */
enum b_kind { B_ALIGNED, B_ANY, B_EXPERTS };

/* What the variants of the kernel differ in. */
template <int EIGHTS_, enum b_kind B_, enum a_type TYPE_>
struct skinny {
	static const int EIGHTS = EIGHTS_, M = 8 * EIGHTS_;
	static const bool ALIGNED = B_ != B_ANY, IS_MOE = B_ == B_EXPERTS;
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const int STAGES = NIB_SKINNY_STAGES(EIGHTS_);
	static const int CHUNKS = NIB_SKINNY_CHUNKS(EIGHTS_);
	static const int CHUNK_BYTES = NIB_SKINNY_CHUNK_BYTES(EIGHTS_);
	static_assert(CHUNKS % NIB_SKINNY_BRINGERS == 0,
		      "a chunk's space has one bringer");
	/* Offsets in shared memory. */
	static const int CHUNKS_AT = NIB_SKINNY_WARPS * STAGES * NIB_GEMV_STAGE_BYTES;
	static const int SUMS_AT = CHUNKS_AT + CHUNKS * CHUNK_BYTES;
	static const int SUMS_BYTES = NIB_SKINNY_WARPS * NIB_SKINNY_SUMS(EIGHTS_) * 4;
	static const int BARRIERS_AT = SUMS_AT + SUMS_BYTES;
	static const int UNITS_AT = BARRIERS_AT + CHUNKS * 16;
	static const int SCALE_ROWS_AT = UNITS_AT + NIB_SKINNY_UNITS * 4;
	/* The experts' first units lie where sums will be. */
	static_assert((NIB_SKINNY_EXPERTS + 1) * 4 <= SUMS_BYTES,
		      "space for the experts");
};

/* What all warps of a CTA know. */
struct cta {
	uint32_t shared;
	int tile, end;		   /* its tiles */
	const uint32_t *units;	   /* of experts, packed */
	const int32_t *scale_rows; /* of the experts' rows of A */
};

template <class V>
DEVICE uint32_t full(uint32_t shared, int chunk)
{
	return shared + V::BARRIERS_AT + chunk * 16;
}

template <class V>
DEVICE uint32_t empty(uint32_t shared, int chunk)
{
	return full<V>(shared, chunk) + 8;
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

/* What moe_tiles.cuh asks for. */
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
 * An expert's units, and where the scales of its rows are: -1 is nowhere, if
 * they leave their tensor.
 */
template <class V>
DEVICE void fill_expert(const struct nib_skinny_params &q,
			const struct expert_rows &rows, int e, int unit, uint8_t *bytes)
{
	const int first = expert_row(&rows, e), end = expert_row(&rows, e + 1);
	const int m = end - first;
	uint32_t *units = (uint32_t *)(bytes + V::UNITS_AT);
	int32_t *scale_rows = (int32_t *)(bytes + V::SCALE_ROWS_AT);
	int own = first;

	for (int row = first; row < end && unit < NIB_SKINNY_UNITS; row += V::M, unit++)
		units[unit] = pack_unit(e, row, min(V::M, end - row));
	if (!V::IS_NVFP4 || m <= 0)
		return;
	if (q.scale_rows)
		own = __ldg(q.scale_rows + e);
	if (own < 0 || (q.scale_rows && own > q.scale_rows_total - m))
		own = -NIB_SKINNY_ROWS;
	for (int row = first; row < end; row++)
		scale_rows[row] = max(own + row - first, -1);
}

/* Called by all threads: fills the tables, and returns the number of units. */
template <class V>
DEVICE int fill_units(const struct nib_skinny_params &q, uint8_t *bytes)
{
	const struct expert_rows rows = {q.row_offsets, q.experts, q.rows, V::M};
	int32_t *first_unit = (int32_t *)(bytes + V::SUMS_AT);

	if (threadIdx.x < 32)
		count_tiles<whole_units<V::M>>(&rows, 1, (int)threadIdx.x, first_unit);
	__syncthreads();
	for (int e = threadIdx.x; e < q.experts; e += NIB_SKINNY_THREADS)
		fill_expert<V>(q, rows, e, first_unit[e], bytes);
	/* Offsets that do not ascend may promise more. */
	return min(first_unit[q.experts], NIB_SKINNY_UNITS);
}

/* ---- rounds -------------------------------------------------------------- */

/* Tiles of a round, none if count <= 0, and the rows of A that they share. */
struct round {
	int tile, count, row, rows;
};

/* The round that begins with a tile. */
template <class V>
DEVICE struct round round_at(const struct nib_skinny_params &q, const struct cta &c,
			     int tile)
{
	struct round r = {tile, min(q.tiles_at_once, c.end - tile), 0, q.p.m};

	if (V::IS_MOE && r.count > 0) {
		int u = tile / q.p.tiles, end = (u + 1) * q.p.tiles;
		struct unit x = unit_of(c.units[u]);

		r.row = x.row;
		r.rows = x.rows;
		/* More units, while their rows follow and fit. */
		while (end < tile + r.count) {
			x = unit_of(c.units[++u]);
			if (x.row != r.row + r.rows || r.rows + x.rows > V::M)
				break;
			r.rows += x.rows;
			end += q.p.tiles;
		}
		r.count = min(r.count, end - tile);
	}
	return r;
}

template <class V>
DEVICE struct round next_round(const struct nib_skinny_params &q, const struct cta &c,
			       const struct round &r)
{
	return round_at<V>(q, c, r.tile + r.count);
}

/* A step of 256 k of a round. */
struct round_step {
	struct round at;
	int step;
};

/* Goes on to the round that has the step, counted from the begin of this one. */
template <class V>
DEVICE void find_step(const struct nib_skinny_params &q, const struct cta &c, int steps,
		      struct round_step *s)
{
	while (s->at.count > 0 && s->step >= steps) {
		s->step -= steps;
		s->at = next_round<V>(q, c, s->at);
	}
}

#endif
