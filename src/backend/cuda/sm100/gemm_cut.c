/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_cut.c - how a launch on Blackwell is divided.  A model of costs chooses CTA
 * pairs or single CTAs, the slices of k, and the tile sizes.
 */
#include <stdlib.h>

#include "backend/cuda/common/gemm_common.h"
#include "backend/cuda/common/tile_plan.h"
#include "format/view.h"
#include "sm100.h"

/* The most rows of A of a dual tile: its two accumulators must fit into tensor
 * memory. */
#define DUAL_M_MAX 192
/*
 * The range of rows of B, in units of a pair, that neighbouring clusters work on.  With
 * nine tiles of 256 rows of A for each unit they share about as much of A as of B.
 */
#define RASTER 8

static int32_t min32(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

static double max_of(double a, double b)
{
	return a > b ? a : b;
}

/* ---- costs --------------------------------------------------------------- */

/*
 * Rates of one CTA at 1.85 GHz: bytes per cycle from memory (75 GB/s) and from the L2
 * (155 GB/s), cycles of the copy engine for a row of a box, and bytes of shared memory
 * that an MMA loads per cycle.  The model loads weights from memory and rows of A from
 * the L2.  It leaves out the memory bandwidth of the GPU, which all candidates share.
 * Sources: the roofline of docs/performance-blackwell.md.
 */
#define MEMORY_RATE 40.0
#define L2_RATE	    84.0
#define ROW_CYCLES  1.6
#define FETCH_RATE  128.0

double sm100_step_cycles(int32_t ctas, bool dual, int32_t rows)
{
	const int32_t weights = dual ? 2 : 1;
	const int32_t mine = rows / ctas;
	const int32_t blocks = rows > 128 ? 2 : 1;
	/* A step is k64, a quarter of a stage. */
	const int32_t b_bytes = weights * (NIB_SM100_B_BYTES + NIB_SM100_SCALES_BYTES);
	const int32_t a_bytes =
	    mine * NIB_SM100_A_ROW_BYTES + blocks * NIB_SM100_SCALES_BYTES;
	const double memory = b_bytes / 4.0 / MEMORY_RATE;
	const double l2 = a_bytes / 4.0 / L2_RATE;
	const double copies = (weights * NIB_TILE_N + mine) * ROW_CYCLES / 4;
	/* Each MMA loads 32 bytes of a row. */
	const double multiply =
	    weights * max_of(rows / 2.0, (NIB_TILE_N + mine) * 32 / FETCH_RATE);

	return max_of(max_of(memory + l2, copies), multiply);
}

/* Scales the device's table, which is for pairs that do not compute a dual product. */
static void scale_costs(const struct nib_cuda_costs *of, int32_t ctas, bool dual,
			struct nib_cuda_costs *out)
{
	*out = *of;
	for (int i = 0; i < NIB_TILE_SIZES; i++) {
		const int32_t rows = nib_tile_size(i);

		out->step[i] =
		    (int32_t)(of->step[i] * sm100_step_cycles(ctas, dual, rows) /
			      sm100_step_cycles(2, false, rows));
	}
	if (dual) {
		out->tile *= 2;
		out->split *= 2;
	}
}

/* Cycles to exchange the accumulators of `rows` rows between the slices of a tile. */
static double join_cycles(const struct nib_cuda_costs *costs, int32_t slices,
			  int32_t rows)
{
	/* The table has the cost of two slices of 128 rows, a fifth of it for
	 * waiting. */
	return (double)costs->split * (slices + 1) * (rows + 32) / (3 * 160);
}

/* ---- kernels ------------------------------------------------------------- */

enum nib_status sm100_find_kernel(struct cuda_device *device, enum nib_op op,
				  int32_t ctas, bool is_few, CUfunction *function,
				  struct nib_error *err)
{
	static const char *const names[2][2][2] = {
	    {{"nib_gemm_single_many", "nib_gemm_single_few"},
	     {"nib_gemm_pair_many", "nib_gemm_pair_few"}},
	    {{"nib_dual_single_many", "nib_dual_single_few"},
	     {"nib_dual_pair_many", "nib_dual_pair_few"}},
	};

	return cuda_kernel(device, names[op == NIB_OP_DUAL_GEMM][ctas - 1][is_few],
			   device->shared_bytes, function, err);
}

enum nib_status sm100_count(struct cuda_device *device, enum nib_op op, int32_t ctas,
			    int32_t slices, int32_t *clusters, struct nib_error *err)
{
	CUfunction function;
	enum nib_status status =
	    sm100_find_kernel(device, op, ctas, true, &function, err);

	return status ? status
		      : cuda_count_clusters(device, function, ctas * slices,
					    NIB_SM100_THREADS(op == NIB_OP_DUAL_GEMM),
					    device->shared_bytes, NIB_SM100_CLUSTERS,
					    clusters, err);
}

enum nib_status sm100_clusters(struct cuda_device *device,
			       struct nib_tile_device *clusters, struct nib_error *err)
{
	*clusters = (struct nib_tile_device){.costs = &device->costs};
	return sm100_count(device, NIB_OP_GEMM, 2, 1, &clusters->clusters, err);
}

/* ---- tiles --------------------------------------------------------------- */

/* The shapes of a chunk for the tile planner. */
struct cut_shapes {
	struct nib_tile_shape shapes[NIB_SM100_MANY_PROBLEMS];
	int32_t count;
	bool dual;
	bool is_alone;	/* a single matrix, which may use split-k */
	bool is_narrow; /* all problems have too few rows of B for a pair */
};

/* Makes the shapes of a chunk with this many split-k slices. */
static bool make_shapes(const struct nib_plan *plan, const struct sm100_gemm *gemm,
			const struct sm100_chunk *chunk, int32_t ctas, int32_t slices,
			struct cut_shapes *out)
{
	const int32_t most = out->dual ? DUAL_M_MAX : NIB_TILE_M_MAX;
	int64_t tiles = 0;

	for (int32_t i = 0; i < chunk->count; i++) {
		const struct sm100_entry *x = &gemm->entries[chunk->first + i];
		const struct nib_problem *p = &plan->problems[x->problem];
		const int64_t units =
		    x->batches * divide_up(p->c.cols, ctas * NIB_TILE_N);
		const int64_t stages = divide_up(p->a.k, NIB_SM100_STAGE_K);

		if (units > INT32_MAX / SM100_UNIT_ROWS)
			return false;
		tiles += units * divide_up(p->a.rows, most);
		out->shapes[i] = (struct nib_tile_shape){
		    .m = (int32_t)p->a.rows,
		    .n = (int32_t)units * SM100_UNIT_ROWS,
		    .k = (int32_t)(slices == 1
				       ? p->a.k
				       : divide_up(stages, slices) * NIB_SM100_STAGE_K),
		};
	}
	return tiles <= INT32_MAX;
}

/* Plans with these settings; replaces *best if that is slower. */
static enum nib_status try_cut(struct cuda_device *device, const struct cut_shapes *s,
			       int32_t ctas, int32_t slices, struct sm100_cut *best,
			       struct nib_error *err)
{
	struct nib_cuda_costs costs;
	struct nib_tile_device d = {
	    .costs = &costs,
	    .align = SM100_ALIGN_M,
	    .most_rows = s->dual ? DUAL_M_MAX : NIB_TILE_M_MAX,
	    .raster = RASTER * 2 / ctas,
	};
	struct sm100_cut cut = {.ctas = ctas, .slices = slices};
	enum nib_status status;

	/* A partition of a GPU may have too few multiprocessors for a cluster. */
	if (slices > 1 && ctas * slices > device->multiprocessors)
		return NIB_STATUS_OK;
	status = sm100_count(device, s->dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, ctas,
			     slices, &d.clusters, err);
	if (status)
		return status;
	scale_costs(&device->costs, ctas, s->dual, &costs);
	if (!nib_tiles_plan(&d, s->shapes, s->count, false, false, &cut.plan,
			    &cut.tiles))
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory to cut %d matrices into tiles", s->count);
	cut.cycles = cut.plan.cycles;
	if (slices > 1)
		cut.cycles += join_cycles(
		    &costs, slices, cuda_tiles_most_m(cut.tiles, cut.plan.clusters));
	/* Slices exchange accumulators in shared memory that a next tile would need. */
	if ((slices > 1 && cut.plan.rounds > 1) ||
	    (best->tiles && cut.cycles >= best->cycles)) {
		free(cut.tiles);
		return NIB_STATUS_OK;
	}
	free(best->tiles);
	*best = cut;
	return NIB_STATUS_OK;
}

enum nib_status sm100_choose_cut(struct cuda_device *device,
				 const struct nib_plan *plan,
				 const struct sm100_gemm *gemm,
				 const struct sm100_chunk *chunk,
				 struct sm100_cut *best, struct nib_error *err)
{
	struct cut_shapes s = {
	    .count = chunk->count,
	    .dual = plan->op == NIB_OP_DUAL_GEMM,
	    .is_alone =
		plan->count == 1 && gemm->n_entries == 1 && gemm->entries->batches == 1,
	    .is_narrow = true,
	};
	const int64_t stages = divide_up(
	    plan->problems[gemm->entries[chunk->first].problem].a.k, NIB_SM100_STAGE_K);
	const int32_t most_slices =
	    s.is_alone ? min32((int32_t)stages, NIB_SM100_SLICES_MAX) : 1;
	enum nib_status status = NIB_STATUS_OK;

	for (int32_t i = 0; i < chunk->count; i++)
		if (plan->problems[gemm->entries[chunk->first + i].problem].c.cols >
		    NIB_TILE_N)
			s.is_narrow = false;
	for (int32_t ctas = 2; ctas >= 1; ctas--) {
		if (ctas == 2 ? s.is_narrow : !s.is_narrow && !s.is_alone)
			continue;
		for (int32_t slices = 1;
		     !status && (slices == 1 || slices <= most_slices); slices *= 2) {
			if (!make_shapes(plan, gemm, chunk, ctas, slices, &s)) {
				if (best->tiles)
					continue;
				return nib_fail_argument(
				    err, NIB_STATUS_UNSUPPORTED, "problems",
				    ": over 2^31 - 1 tiles of c in one "
				    "launch");
			}
			status = try_cut(device, &s, ctas, slices, best, err);
		}
	}
	return status;
}
