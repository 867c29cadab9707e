/* SPDX-License-Identifier: Apache-2.0 */
/* skinny.c - see skinny.h. */
#include "skinny.h"

#include <stdio.h>

#include "format/view.h"

/* ---- the cut ------------------------------------------------------------- */

/*
 * The number of warps that share the k of a tile if a CTA has this many tiles: as many
 * as NIB_SKINNY_WARPS allows.  It divides the number of chunks (skinny.cuh), and each
 * warp has at least one step.
 */
static int64_t skinny_groups(int64_t tiles, int64_t k, int eights)
{
	const int64_t steps = divide_up(k, NIB_GEMV_STEP);
	const int64_t chunks = NIB_SKINNY_CHUNKS(eights);
	int64_t groups = chunks;

	while (groups > 1 &&
	       (chunks % groups || groups > steps || groups * tiles > NIB_SKINNY_WARPS))
		groups--;
	return groups;
}

/*
 * Divides the tiles of a CTA into equal rounds.  If two of the four schedulers would
 * have one warp more than the others, the work of two warps is halved and given to
 * four.  This needs the two accumulators that only up to eight rows of A have.  If half
 * of the warps or fewer are busy, k is so short that a warp has one or two steps, and
 * nothing is halved.
 */
static void cut_rounds(int64_t tiles, struct skinny_cut *cut)
{
	const int64_t most = NIB_SKINNY_WARPS / cut->k_groups;
	int32_t busy;

	cut->tiles_at_once = (int32_t)divide_up(tiles, divide_up(tiles, most));
	busy = cut->tiles_at_once * cut->k_groups;
	if (cut->eights == 1 && busy > NIB_SKINNY_WARPS / 2 && busy % 4 == 2)
		cut->half_tiles = 2 / cut->k_groups;
}

/*
 * The groups of k determine the order of sums, so they must not depend on the batch or
 * on the layout of scales.
 */
struct skinny_cut skinny_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			     bool b_is_tiled, int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(n, b_is_tiled);
	const int64_t share = multiprocessors / batch;
	struct skinny_cut cut = {.eights = m <= 8 ? 1 : 2, .tiles = (int32_t)tiles};

	cut.k_groups = (int32_t)skinny_groups(
	    divide_up(nib_gemv_tiles(n, false), multiprocessors), k, cut.eights);
	cut.ctas = tiles < share ? tiles : share > 1 ? share : 1;
	cut_rounds(divide_up(tiles, cut.ctas), &cut);
	return cut;
}

struct skinny_cut skinny_cut_experts(int64_t rows, int64_t experts, int64_t n,
				     int64_t k, int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(n, true);
	const int64_t all = tiles * (rows < experts ? rows : experts);
	struct skinny_cut cut = {.eights = 1, .tiles = (int32_t)tiles};
	int64_t most;

	cut.ctas = all < multiprocessors ? all : multiprocessors;
	most = divide_up(all, cut.ctas);
	cut.k_groups = (int32_t)skinny_groups(most, k, cut.eights);
	cut_rounds(most, &cut);
	return cut;
}

/* ---- the product --------------------------------------------------------- */

_Static_assert(NIB_SKINNY_WARPS <= 16, "NIB_SKINNY_ASSIGNMENT() has four bits");

/*
 * Assigns work to warps: whole tiles, then the first halves of half tiles, then the
 * second halves.  If there are half tiles, whole tiles have 8 or 12 warps and the
 * halves have four, so each scheduler (warp number modulo 4) has the same number of
 * warps.
 */
static void fill_assignments(struct nib_skinny_params *params)
{
	const int32_t whole = params->tiles_at_once - params->half_tiles;
	uint16_t *next = params->assignments;

	for (int32_t group = 0; group < params->k_groups; group++)
		for (int32_t tile = 0; tile < whole; tile++)
			*next++ = (uint16_t)NIB_SKINNY_ASSIGNMENT(tile, group,
								  NIB_SKINNY_WHOLE);
	for (int32_t half = 0; half < 2; half++)
		for (int32_t group = 0; group < params->k_groups; group++)
			for (int32_t i = 0; i < params->half_tiles; i++)
				*next++ = (uint16_t)NIB_SKINNY_ASSIGNMENT(whole + i,
									  group, half);
}

static enum nib_status plan_skinny(struct cuda_device *device,
				   const struct nib_plan *plan,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	const struct nib_moe_problem *moe = plan->is_moe ? &plan->moe : NULL;
	const struct nib_problem p = few_rows_problem(plan->problems, moe);
	const char *type = few_rows_type(p.activations, p.x.dtype);
	struct few_rows *few;
	struct nib_skinny_params *params;
	struct skinny_cut cut;
	char name[40];
	enum nib_status status =
	    few_rows_new(plan, "skinny", sizeof(*params), product, &few, err);

	if (status)
		return status;
	params = (struct nib_skinny_params *)few->params;
	cut = moe ? skinny_cut_experts(p.a.rows, nib_fp4_batches(&p.b), params->p.n,
				       params->p.k, device->multiprocessors)
		  : skinny_cut(params->p.m, params->p.n, params->p.k, few->batch,
			       params->p.b.is_tiled, device->multiprocessors);
	params->p.tiles = cut.tiles;
	params->tiles_at_once = cut.tiles_at_once;
	params->k_groups = cut.k_groups;
	params->half_tiles = cut.half_tiles;
	fill_assignments(params);
	few->ctas = cut.ctas;
	few->threads = NIB_SKINNY_THREADS;
	few->shared_bytes = few->any_shared_bytes =
	    nib_skinny_shared_bytes(cut.eights, moe != NULL);
	product->tasks = few->ctas * few->batch;
	if (!moe)
		return few_rows_find_both(device, "skinny", 8 * cut.eights,
					  8 * cut.eights, type, few, err);
	snprintf(name, sizeof(name), "nib_skinny_experts_%d%s", 8 * cut.eights, type);
	return few_rows_find(device, name, few->shared_bytes, &few->aligned, err);
}

static enum nib_status launch_skinny(const struct cuda_device *device,
				     const struct cuda_product_plan *product,
				     const struct nib_run *run, struct nib_error *err)
{
	const struct few_rows *few = product->state;
	const struct nib_problem p = few_rows_problem(run->problems, run->moe);
	struct nib_skinny_params params =
	    *(const struct nib_skinny_params *)few->params;

	few_rows_set_pointers(&params.p, &p, run->moe != NULL);
	if (run->moe)
		params.moe = few_rows_experts(run->moe);
	return few_rows_launch(device, few, &params.p, run, err);
}

const struct cuda_product sm90_skinny = {plan_skinny, launch_skinny, cuda_product_free};
