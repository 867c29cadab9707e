/* SPDX-License-Identifier: Apache-2.0 */
/* wide.c - see wide.h. */
#include "wide.h"

/* The most CTAs that divide k. */
#define MAX_SLICES 2
/*
 * The work of a CTA for 64 x 4096 x 4096 on an H100 or H200, in units of 64 rows of B
 * times k256.  With more, tiles are faster: 64 x 8192 x 8192 takes 34.3 us here and
 * 27.5 us in tiles (docs/performance-hopper.md).
 */
#define SHORT_MULTIPROCESSORS 132
#define SHORT_WORK	      8

/*
 * Chooses the units of 64 rows of B that a CTA has, and how many CTAs divide their k.
 * All CTAs are resident at once; the first aim is the least work for a CTA, the second
 * the fewest loads of A.  The layout of scales does not change the sums.
 */
struct wide_cut wide_cut(int64_t m, int64_t n, int64_t k, bool b_is_tiled,
			 int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(n, b_is_tiled);
	const int64_t units = divide_up(n, 4 * NIB_GEMV_TILE_ROWS);
	const int64_t steps = k > 0 ? divide_up(k, NIB_GEMV_STEP) : 1;
	int64_t least = INT64_MAX;
	int units_at_once = 4;
	struct wide_cut cut = {
	    .eights = m <= 32 ? 4 : 8, .tiles = (int32_t)tiles, .k_slices = 1};

	for (int slices = 1; slices <= MAX_SLICES && slices <= steps; slices *= 2)
		for (int u = 1; u <= 4; u *= 2) {
			const int64_t work = u * divide_up(steps, slices);

			if (divide_up(units, u) > multiprocessors / slices ||
			    work > least || u * (slices - 1) > 2)
				continue;
			least = work;
			units_at_once = u;
			cut.k_slices = slices;
		}
	cut.tiles_at_once = 4 * units_at_once;
	cut.k_groups = 4 / units_at_once;
	cut.ctas = divide_up(divide_up(tiles, 4), units_at_once) * cut.k_slices;
	return cut;
}

bool wide_is_short(int64_t m, int64_t n, int64_t k)
{
	const struct wide_cut cut = wide_cut(m, n, k, false, SHORT_MULTIPROCESSORS);
	const int64_t units = cut.tiles_at_once / 4;

	return cut.ctas <= SHORT_MULTIPROCESSORS &&
	       units * divide_up(divide_up(k, NIB_GEMV_STEP), cut.k_slices) <=
		   SHORT_WORK;
}

static enum nib_status plan_wide(struct cuda_device *device,
				 const struct nib_plan *plan,
				 struct cuda_product_plan *product,
				 struct nib_error *err)
{
	const struct nib_problem *p = plan->problems;
	struct few_rows *few;
	struct nib_wide_params *params;
	struct wide_cut cut;
	enum nib_status status =
	    few_rows_new(plan, "wide", sizeof(*params), product, &few, err);

	if (status)
		return status;
	params = (struct nib_wide_params *)few->params;
	cut = wide_cut(params->p.m, params->p.n, params->p.k, params->p.b.is_tiled,
		       device->multiprocessors);
	params->p.tiles = cut.tiles;
	params->tiles_at_once = cut.tiles_at_once;
	params->k_groups = cut.k_groups;
	params->k_slices = few->cluster = cut.k_slices;
	few->ctas = cut.ctas;
	few->threads = NIB_SKINNY_THREADS;
	few->shared_bytes = few->any_shared_bytes = nib_wide_shared_bytes(cut.eights);
	product->tasks = few->ctas * few->batch;
	return few_rows_find_both(device, "skinny", 8 * cut.eights, 8 * cut.eights,
				  few_rows_type(p->activations, p->x.dtype), few, err);
}

static enum nib_status launch_wide(const struct cuda_device *device,
				   const struct cuda_product_plan *product,
				   const struct nib_run *run, struct nib_error *err)
{
	const struct few_rows *few = product->state;
	const struct nib_problem p = few_rows_problem(run->problems, NULL);
	struct nib_wide_params params = *(const struct nib_wide_params *)few->params;

	few_rows_set_pointers(&params.p, &p, false);
	return few_rows_launch(device, few, &params.p, run, err);
}

const struct cuda_product sm90_wide = {plan_wide, launch_wide, cuda_product_free};
