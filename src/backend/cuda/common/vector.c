/* SPDX-License-Identifier: Apache-2.0 */
/* vector.c - see vector.h. */
#include "vector.h"

#include <stdio.h>

#include "format/view.h"
#include "operand.h"

/* Shared memory that the system reserves for each CTA. */
#define CTA_SHARED_BYTES 1024
/*
 * The M of the variant for any alignment, except that one NVFP4 row has its own
 * variant.
 */
#define ANY_M 4

/* ---- the cut ------------------------------------------------------------- */

/* The variant for two rows computes one row of dense A as well. */
static int variant_m(int64_t m, bool is_dense)
{
	return m == 1 && !is_dense ? 1 : m <= 2 ? 2 : 4;
}

static int variant_any_m(int64_t m, bool is_dense)
{
	return m == 1 && !is_dense ? 1 : ANY_M;
}

/* Shared memory of the variant for m rows. */
static int64_t shared_bytes_of(int64_t m, int64_t k, bool is_dense, int variant,
			       int tiles_per_cta)
{
	return is_dense ? nib_gemv_dense_shared_bytes(k, (int)m, variant, tiles_per_cta)
			: nib_gemv_shared_bytes(k, variant, tiles_per_cta);
}

/* CTAs that are resident on an SM at once. */
static int64_t resident(const struct vector_cut *cut, int64_t shared_bytes)
{
	const int64_t by_shared =
	    (shared_bytes + CTA_SHARED_BYTES) / (cut->shared_bytes + CTA_SHARED_BYTES);
	const int64_t by_registers = NIB_GEMV_CTAS;

	return by_shared < by_registers ? by_shared : by_registers;
}

/* matrices: of weights; a CTA multiplies its tiles of each. */
static struct vector_cut cut_of(int64_t m, int64_t n, int64_t k, int64_t batch,
				int matrices, bool a_is_dense, bool b_is_tiled,
				int multiprocessors, int64_t shared_bytes)
{
	const int any_m = variant_any_m(m, a_is_dense);
	struct vector_cut cut = {.m = variant_m(m, a_is_dense)};

	cut.tiles = (int32_t)nib_gemv_tiles(n, b_is_tiled);
	for (int tiles = 1; tiles <= NIB_GEMV_MAX_TILES; tiles++) {
		cut.tiles_per_cta = tiles;
		cut.ctas = divide_up(cut.tiles, tiles);
		cut.shared_bytes =
		    shared_bytes_of(m, k, a_is_dense, cut.m, tiles * matrices);
		if (cut.ctas * batch <= resident(&cut, shared_bytes) * multiprocessors)
			break;
	}
	/* The numbers of tiles of two CTAs differ by at most one. */
	cut.tiles_per_cta = (int32_t)divide_up(cut.tiles, cut.ctas);
	cut.shared_bytes =
	    shared_bytes_of(m, k, a_is_dense, cut.m, cut.tiles_per_cta * matrices);
	cut.any_shared_bytes =
	    shared_bytes_of(m, k, a_is_dense, any_m, cut.tiles_per_cta * matrices);
	return cut;
}

struct vector_cut vector_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			     bool a_is_dense, bool b_is_tiled, int multiprocessors,
			     int64_t shared_bytes)
{
	return cut_of(m, n, k, batch, 1, a_is_dense, b_is_tiled, multiprocessors,
		      shared_bytes);
}

struct vector_cut vector_cut_experts(int64_t rows, int matrices, int64_t n, int64_t k,
				     bool a_is_dense, bool b_is_tiled,
				     int multiprocessors, int64_t shared_bytes)
{
	return cut_of(1, n, k, rows, matrices, a_is_dense, b_is_tiled, multiprocessors,
		      shared_bytes);
}

/* ---- products ------------------------------------------------------------ */

static enum nib_status plan_vector(struct cuda_device *device,
				   const struct nib_plan *plan,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	const struct nib_problem *p = plan->problems;
	const bool is_dense = p->activations == NIB_ACTIVATIONS_DENSE;
	struct few_rows *few;
	struct nib_gemv_params *params;
	struct vector_cut cut;
	enum nib_status status =
	    few_rows_new(plan, "vector", sizeof(*params), product, &few, err);

	if (status)
		return status;
	params = few->params;
	cut = vector_cut(params->m, params->n, params->k, few->batch, is_dense,
			 params->b.is_tiled, device->multiprocessors,
			 device->shared_bytes);
	params->tiles = cut.tiles;
	params->tiles_per_cta = cut.tiles_per_cta;
	few->ctas = cut.ctas;
	few->threads = NIB_GEMV_THREADS;
	few->shared_bytes = cut.shared_bytes;
	few->any_shared_bytes = cut.any_shared_bytes;
	product->tasks = few->ctas * few->batch;
	return few_rows_find_both(device, "gemv", cut.m,
				  variant_any_m(params->m, is_dense),
				  few_rows_type(p->activations, p->x.dtype), few, err);
}

/*
 * Limits the parameters to NIB_GEMV_MAX_ROWS rows of A, from `row` on, which is a
 * multiple of that.  The scales of these rows are neighbours in both layouts.
 */
static void select_rows(struct nib_gemv_params *p, const struct nib_fp4 *a, int64_t row)
{
	const int64_t size = (int64_t)nib_dtype_bytes((enum nib_dtype)p->c_dtype);
	const int64_t left = p->m - row;

	p->m = (int32_t)(left < NIB_GEMV_MAX_ROWS ? left : NIB_GEMV_MAX_ROWS);
	p->a.codes = nib_offset_bytes(p->a.codes, row * p->a.row_stride);
	if (p->a.scales)
		p->a.scales = nib_fp4_scale(a, 0, row, 0);
	p->c = nib_offset_bytes(p->c, row * p->c_row_stride * size);
}

/* A launch for every NIB_GEMV_MAX_ROWS rows of A. */
static enum nib_status launch_vector(const struct cuda_device *device,
				     const struct cuda_product_plan *product,
				     const struct nib_run *run, struct nib_error *err)
{
	const struct few_rows *few = product->state;
	const struct nib_problem p = few_rows_problem(run->problems, NULL);
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t row = 0; row < p.a.rows && !status; row += NIB_GEMV_MAX_ROWS) {
		struct nib_gemv_params params = *few->params;

		few_rows_set_pointers(&params, &p, false);
		select_rows(&params, &p.a, row);
		status = few_rows_launch(device, few, &params, run, err);
	}
	return status;
}

const struct cuda_product cuda_vector = {plan_vector, launch_vector, cuda_product_free};

/* ---- experts ------------------------------------------------------------- */

enum nib_status vector_find_experts(struct cuda_device *device, int matrices,
				    const char *type, const struct vector_cut *cut,
				    CUfunction *function, struct nib_error *err)
{
	char name[40];

	snprintf(name, sizeof(name), "nib_gemv_experts_%s%d%s",
		 matrices == 2 ? "dual_" : "", cut->m, type);
	return few_rows_find(device, name, cut->shared_bytes, function, err);
}

struct nib_gemv_experts_params vector_experts_params(const struct nib_moe_problem *moe)
{
	const struct nib_problem p = few_rows_problem(NULL, moe);
	struct nib_gemv_experts_params params = {0};

	few_rows_set_sizes(&params.p, &p, true);
	few_rows_set_pointers(&params.p, &p, true);
	params.p.m = 1;
	params.moe = few_rows_experts(moe);
	params.b2 = cuda_operand(&p.b2, nib_fp4_batches(&p.b2));
	params.alpha2 = p.alpha2;
	return params;
}

/* Multiplies one row of A at a time, by one matrix or two. */
static enum nib_status plan_experts(struct cuda_device *device,
				    const struct nib_plan *plan,
				    struct cuda_product_plan *product,
				    struct nib_error *err)
{
	const struct nib_problem p = few_rows_problem(NULL, &plan->moe);
	const int matrices = plan->op == NIB_OP_DUAL_GEMM ? 2 : 1;
	struct few_rows *few;
	struct nib_gemv_params *params;
	struct vector_cut cut;
	enum nib_status status =
	    few_rows_new(plan, "vector", sizeof(*params), product, &few, err);

	if (status)
		return status;
	few->batch = p.a.rows;
	params = few->params;
	cut = vector_cut_experts(few->batch, matrices, params->n, params->k,
				 p.activations == NIB_ACTIVATIONS_DENSE,
				 params->b.is_tiled, device->multiprocessors,
				 device->shared_bytes);
	params->tiles = cut.tiles;
	params->tiles_per_cta = cut.tiles_per_cta;
	few->ctas = cut.ctas;
	few->threads = NIB_GEMV_THREADS;
	few->shared_bytes = cut.shared_bytes;
	product->tasks = few->ctas * few->batch;
	return vector_find_experts(device, matrices,
				   few_rows_type(p.activations, p.x.dtype), &cut,
				   &few->aligned, err);
}

static enum nib_status launch_experts(const struct cuda_device *device,
				      const struct cuda_product_plan *product,
				      const struct nib_run *run, struct nib_error *err)
{
	const struct few_rows *few = product->state;
	struct nib_gemv_experts_params params = vector_experts_params(run->moe);

	params.p.tiles = few->params->tiles;
	params.p.tiles_per_cta = few->params->tiles_per_cta;
	return few_rows_launch(device, few, &params.p, run, err);
}

const struct cuda_product cuda_vector_experts = {plan_experts, launch_experts,
						 cuda_product_free};
