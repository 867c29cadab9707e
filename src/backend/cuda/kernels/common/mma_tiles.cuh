/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_tiles.cuh - which tiles of which experts a CTA of mma.cuh multiplies, and the
 * traits of the kernels' variants.
 *
 * The rows of an expert are cut into units of at most M rows.  The tiles of all experts
 * form one sequence.  The units of a tile of weights follow one another, so that they
 * find the weights in the L2:
 *
 *   expert      0                      1                  2
 *   tile of b   0  0  1  1  2  2 ...   0  1  2 ...        0 ...
 *   unit        0  1  0  1  0  1 ...   0  0  0 ...        0 ...
 *
 * Each CTA has a range of equally many tiles, and some have one of those that are left,
 * or half of one where that makes the longest range shorter.
 */
#ifndef NIB_MMA_TILES_CUH
#define NIB_MMA_TILES_CUH

#include "decode.cuh"
#include "mma_params.h"
#include "moe_tiles.cuh"

/* m16 tiles of a warp, which has 32 rows of B of a tile. */
#define M16 2

/*
 * TRAITS: what the variants of the kernel differ in.  NT: n8 tiles, rows of A / 8.
 * CTAS: resident on an SM.
 */
template <int NT_, int STAGES_, int CTAS_, enum a_type TYPE_, bool IS_DUAL_>
struct mma_traits {
	static const int NT = NT_, M = 8 * NT_;
	static const int STAGES = STAGES_, CTAS = CTAS_;
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const bool IS_DUAL = IS_DUAL_;
	/* Offsets in shared memory. */
	static const int SCALES_AT = NIB_MMA_TILE * NIB_MMA_STEP / 2;
	static const int B_BYTES = NIB_MMA_STAGE_BYTES;
	static const int A_BYTES = M * NIB_MMA_STEP * 2;
	static const int A_AT = STAGES * B_BYTES;
	static const int TABLES_AT = A_AT + STAGES * A_BYTES;
};

/* The ARGS of moe_tiles.cuh, in shared memory. */
struct mma_tables {
	int32_t experts, tile_m;
	int32_t *row, *first_tile; /* experts + 1 */
	int32_t *scale_row;	   /* of A, or -1: outside its tensor */
};

DEVICE int32_t expert_row(const struct mma_tables *t, int32_t e)
{
	return t->row[e];
}

DEVICE int32_t most_rows(int32_t, int32_t tile_m)
{
	return tile_m;
}

/* The first row of an expert's scales; -1 if they would leave their tensor. */
DEVICE int32_t first_scale_row(const struct nib_mma_params &p, int e, int row, int m)
{
	int32_t first;

	if (!p.scale_rows)
		return row;
	first = __ldg(p.scale_rows + e);
	return first >= 0 && first <= p.scale_rows_total - m ? first : -1;
}

/* Called by all threads: fills the tables. */
template <class TRAITS>
DEVICE struct mma_tables fill_tables(const struct nib_mma_params &p, uint8_t *bytes)
{
	struct mma_tables t = {p.experts, TRAITS::M};

	t.row = (int32_t *)(bytes + TRAITS::TABLES_AT);
	t.first_tile = t.row + p.experts + 1;
	t.scale_row = t.first_tile + p.experts + 1;
	for (int e = threadIdx.x; e <= p.experts; e += NIB_MMA_THREADS)
		t.row[e] = min(max(__ldg(p.row_offsets + e), 0), p.rows);
	__syncthreads();
	if (threadIdx.x < 32)
		count_tiles<most_rows>(&t, p.tiles, (int)threadIdx.x, t.first_tile);
	if (TRAITS::IS_NVFP4)
		for (int e = threadIdx.x; e < p.experts; e += NIB_MMA_THREADS)
			t.scale_row[e] =
			    first_scale_row(p, e, t.row[e], t.row[e + 1] - t.row[e]);
	__syncthreads();
	return t;
}

/* The n8 tiles that are multiplied for so many rows. */
DEVICE int n8_tiles(int rows)
{
	return (rows + 7) / 8;
}

enum part { WHOLE, FIRST_HALF, SECOND_HALF };

/* The tiles of a CTA: `whole` neighbours, and then a part of another one. */
struct range {
	int first, whole, extra, count;
	enum part part; /* of the extra one */
};

/* For whole tiles left over, or halves if there are enough CTAs for all of these. */
template <class TRAITS>
DEVICE bool has_halves(int tiles, int ctas)
{
	return !TRAITS::IS_DUAL && tiles % ctas * 2 <= ctas;
}

template <class TRAITS>
DEVICE struct range range_of(int tiles, int ctas)
{
	const int cta = blockIdx.x, each = tiles / ctas, left = tiles % ctas;
	const int halved = has_halves<TRAITS>(tiles, ctas);
	struct range r = {cta * each, each, ctas * each + (cta >> halved), each, WHOLE};

	if (cta < left << halved)
		r.count++;
	if (halved)
		r.part = cta % 2 ? SECOND_HALF : FIRST_HALF;
	return r;
}

/* Halves of tiles of the longest range, times the CTAs. */
template <class TRAITS>
DEVICE int64_t range_cost(int tiles, int ctas)
{
	const int extra = tiles % ctas == 0		    ? 0
			  : has_halves<TRAITS>(tiles, ctas) ? 1
							    : 2;

	return (int64_t)(tiles / ctas * 2 + extra) * ctas;
}

/* The CTAs that work: one less on each SM if that is far better balanced. */
template <class TRAITS>
DEVICE int working_ctas(int tiles, int multiprocessors)
{
	const int all = gridDim.x, less = all - multiprocessors;

	if (less < 2 * multiprocessors || tiles < less)
		return all;
	return range_cost<TRAITS>(tiles, less) * 8 < range_cost<TRAITS>(tiles, all) * 7
		   ? less
		   : all;
}

/*
 * What is loaded or multiplied at a time: a tile of the sequence or half of it, which
 * is 16 of each 32 rows of B.  A dual product has the same rows of both matrices in a
 * tile, as many as a half, and its tiles are not cut again.
 */
struct item {
	int number; /* in the range */
	int expert, row, rows, b_tile;
	enum part part;
};

/* Sets all but the number and, if it is not later, the expert. */
template <class TRAITS>
DEVICE void find_rows(const struct mma_tables &t, const struct range &r, struct item *x)
{
	const bool is_extra = x->number == r.whole;
	const int tile = is_extra ? r.extra : r.first + x->number;
	int first, in, m, units;

	x->part = is_extra ? r.part : WHOLE;
	if (is_extra)
		x->expert = find_last(t.first_tile, 1, t.experts, tile);
	while (tile >= t.first_tile[x->expert + 1])
		x->expert++;
	first = t.row[x->expert];
	m = t.row[x->expert + 1] - first;
	in = tile - t.first_tile[x->expert];
	units = (m + TRAITS::M - 1) / TRAITS::M;
	x->b_tile = units == 1 ? in : in / units;
	in -= x->b_tile * units;
	x->row = first + in * TRAITS::M;
	x->rows = min(m - in * TRAITS::M, TRAITS::M);
}

/* The first row of B of a warp. */
template <class TRAITS>
DEVICE int first_b_row(const struct item &x)
{
	const int warp = threadIdx.x / 32;

	if (TRAITS::IS_DUAL)
		return x.b_tile / 2 * NIB_MMA_TILE + warp * 32 + x.b_tile % 2 * 16;
	return x.b_tile * NIB_MMA_TILE + warp * 32 + (x.part == SECOND_HALF ? 16 : 0);
}

#endif
