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
 * All CTAs have a range of the same number of tiles.  The tiles that are left over go
 * to the first CTAs, one each; or half of one each, if there are enough CTAs for all
 * halves.
 */
#ifndef NIB_MMA_TILES_CUH
#define NIB_MMA_TILES_CUH

#include "decode.cuh"
#include "mma_params.h"
#include "ptx.cuh"

/* m16 tiles of a warp, which has 32 rows of B of a tile. */
#define M16 2

/*
 * A warp's consecutive rows of B of which a lane stores the results.  Row g of m8 tile
 * i is row g / 2 * B_ROWS + 2 i + g % 2 of the warp's rows.
 */
template <class TRAITS>
static const int B_ROWS = TRAITS::IS_DUAL ? 4 : 8;

/*
 * TRAITS: the parameters of a variant of the kernel.  NT: n8 tiles of A (8 rows each).
 * CTAS: the CTAs that are resident on an SM.
 */
template <int NT_, int STAGES_, int CTAS_, enum a_type TYPE_, bool IS_DUAL_>
struct mma_traits {
	static const int NT = NT_, M = 8 * NT_;
	static const int STAGES = STAGES_, CTAS = CTAS_;
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const bool IS_DUAL = IS_DUAL_;
	/* Codes are decoded in the order of k, so that dense A is used as it is. */
	static const bool IS_IN_ORDER = false;
	/* n8 tiles of A that are loaded at once; C is a multiple unless it is less. */
	static const int TILES_AT_ONCE = 1;
	/* Codes are loaded after the barrier of a step: before it, 32 experts of one
	 * row of NVFP4 take 218 us on an H100, not 194.  For dense A it is the other
	 * way. */
	static const bool LOADS_CODES_LATE = NT == 1 && IS_NVFP4;
	/* Offsets in shared memory. */
	static const int SCALES_AT = NIB_MMA_TILE * NIB_MMA_STEP / 2;
	static const int B_BYTES = NIB_MMA_STAGE_BYTES;
	static const int A_BYTES = M * NIB_MMA_STEP * 2;
	static const int A_AT = STAGES * B_BYTES;
	static const int TABLES_AT = A_AT + STAGES * A_BYTES;
};

/* The experts' tables in shared memory. */
struct mma_tables {
	int32_t experts;
	int32_t *row, *first_tile; /* experts + 1 */
	int32_t *scale_row;	   /* of A, or -1: outside its tensor */
};

/* The first row of an expert's scales; -1 if they would leave their tensor. */
DEVICE int32_t first_scale_row(const struct nib_mma_params &p, int e, int row, int m)
{
	int32_t first;

	if (!p.scale_rows)
		return row;
	first = ld_relaxed(p.scale_rows + e);
	return first >= 0 && first <= p.scale_rows_total - m ? first : -1;
}

/* The offset of expert e, or of the end of the last one if e is larger. */
DEVICE int32_t offset_of(const struct nib_mma_params &p, int e)
{
	return ld_relaxed(p.row_offsets + min(e, p.experts));
}

/* Offsets are clamped to the rows, because the caller's may be wrong. */
DEVICE int32_t clamp_row(const struct nib_mma_params &p, int32_t offset)
{
	return min(max(offset, 0), p.rows);
}

template <class TRAITS>
DEVICE struct mma_tables tables_at(const struct nib_mma_params &p, uint8_t *bytes)
{
	int32_t *row = (int32_t *)(bytes + TRAITS::TABLES_AT);
	int32_t *first_tile = row + p.experts + 1;

	return {p.experts, row, first_tile, first_tile + p.experts + 1};
}

/*
 * Called by all threads: fills the tables, of which a thread has a run of experts.
 * Overwrites the first words of `bytes`.
 */
template <class TRAITS>
DEVICE void fill_tables(const struct nib_mma_params &p, uint8_t *bytes,
			const struct mma_tables &t)
{
	int32_t *totals = (int32_t *)bytes; /* of warps */
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int run = (p.experts + NIB_MMA_THREADS - 1) / NIB_MMA_THREADS;
	const int begin = min((int)threadIdx.x * run, p.experts);
	const int end = min(begin + run, p.experts);
	int sum = 0, before, first = offset_of(p, begin),
	    next = offset_of(p, begin + 1);

#pragma unroll 1
	for (int e = begin; e < end; e++) {
		const int row = clamp_row(p, first), m = clamp_row(p, next) - row;

		first = next;
		next = offset_of(p, e + 2);
		t.row[e] = row;
		t.first_tile[e] = sum;
		if (TRAITS::IS_NVFP4)
			t.scale_row[e] = first_scale_row(p, e, row, m);
		sum += m > 0 ? (m + TRAITS::M - 1) / TRAITS::M * p.tiles : 0;
	}
	before = sum;
#pragma unroll
	for (int i = 1; i < 32; i *= 2) {
		const int other = __shfl_up_sync(~0u, before, i);

		before += lane >= i ? other : 0;
	}
	if (lane == 31)
		totals[warp] = before;
	before -= sum;
	__syncthreads();
	for (int i = 0; i < warp; i++)
		before += totals[i];
	for (int e = begin; e < end; e++)
		t.first_tile[e] += before;
	if (begin < end && end == p.experts) {
		t.row[end] = clamp_row(p, first);
		t.first_tile[end] = before + sum;
	}
	__syncthreads();
}

/* Whether the tables differ from their sources; of some experts. */
template <class TRAITS>
DEVICE bool are_old(const struct nib_mma_params &p, const struct mma_tables &t)
{
	bool differ = false;

	for (int e = threadIdx.x; e < p.experts; e += NIB_MMA_THREADS) {
		const int32_t first = offset_of(p, e), next = offset_of(p, e + 1);
		const int row = t.row[e], end = t.row[e + 1];

		differ |= clamp_row(p, first) != row || clamp_row(p, next) != end;
		if (TRAITS::IS_NVFP4)
			differ |=
			    first_scale_row(p, e, row, end - row) != t.scale_row[e];
	}
	return differ;
}

/* The last expert with first_tile <= tile.  Called by all lanes of a warp. */
DEVICE int find_expert(const struct mma_tables &t, int tile)
{
	const int lane = threadIdx.x % 32, run = (t.experts + 31) / 32;
	const int at = min(lane * run, t.experts);
	const int first =
	    (__popc(__ballot_sync(~0u, at < t.experts && t.first_tile[at] <= tile)) -
	     1) *
	    run;
	const int e = first + lane;

	return first +
	       __popc(__ballot_sync(~0u, lane < run && e < t.experts &&
					     t.first_tile[min(e, t.experts)] <= tile)) -
	       1;
}

/* The n8 tiles that are multiplied for so many rows. */
DEVICE int n8_tiles(int rows)
{
	return (rows + 7) / 8;
}

enum part { WHOLE, FIRST_HALF, SECOND_HALF };

/* The items of a CTA: `whole` tiles from `first` on, then for some CTAs a part of tile
 * `extra`.  count: of both. */
struct range {
	int first, whole, extra, count;
	enum part part; /* of the extra one */
};

/* Whether the tiles left over are halved: if there are enough CTAs for all halves. */
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

/* The half tiles of the longest range, times the CTAs.  The time is proportional to it
 * if memory bandwidth is the limit. */
template <class TRAITS>
DEVICE int64_t range_cost(int tiles, int ctas)
{
	const int extra = tiles % ctas == 0		    ? 0
			  : has_halves<TRAITS>(tiles, ctas) ? 1
							    : 2;

	return (int64_t)(tiles / ctas * 2 + extra) * ctas;
}

/* The CTAs that work: all, or one less on each SM if that reduces range_cost() by more
 * than an eighth. */
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
 * A tile of the sequence, or half of it: 4 of each 8 rows of B.  A tile of a dual
 * product has 64 rows of B and the same 64 rows of B2, and is never halved.
 */
struct item {
	int number; /* in the range */
	int expert, row, rows, b_tile;
	enum part part;
};

/* Sets the item from its number.  Called by all lanes of a warp. */
template <class TRAITS>
DEVICE void find_rows(const struct mma_tables &t, const struct range &r, struct item *x)
{
	const bool is_extra = x->number == r.whole;
	const int tile = is_extra ? r.extra : r.first + x->number;
	int first, in, m, units;

	x->part = is_extra ? r.part : WHOLE;
	x->expert = find_expert(t, tile);
	first = uniform(t.row[x->expert]);
	m = uniform(t.row[x->expert + 1]) - first;
	in = tile - uniform(t.first_tile[x->expert]);
	units = (m + TRAITS::M - 1) / TRAITS::M;
	x->b_tile = units == 1 ? in : in / units;
	in -= x->b_tile * units;
	x->row = first + in * TRAITS::M;
	x->rows = min(m - in * TRAITS::M, TRAITS::M);
}

/* The first of the warp's rows of B. */
template <class TRAITS>
DEVICE int first_b_row(const struct item &x)
{
	const int warp = threadIdx.x / 32;

	if (TRAITS::IS_DUAL)
		return x.b_tile / 2 * NIB_MMA_TILE + warp * 32 + x.b_tile % 2 * 16;
	return x.b_tile * NIB_MMA_TILE + warp * 32 + (x.part == SECOND_HALF ? 4 : 0);
}

#endif
