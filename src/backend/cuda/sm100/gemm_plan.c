/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_plan.c - plans of products in tiles on Blackwell (sm100.h): the entries, kernel
 * and tiles of each launch, and its parameters as far as they do not depend on a run.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/common/gemm_common.h"
#include "backend/cuda/common/pack.h"
#include "format/view.h"
#include "sm100.h"

/* MoE: a box of A has 8 << i rows, so the largest tile has one of these sizes. */
#define DUAL_MOE_M_MAX 128
/* L2 policies of TMA loads, as in CUTLASS for sm_90 and sm_100. */
#define EVICT_NORMAL UINT64_C(0x1000000000000000)
#define EVICT_FIRST  UINT64_C(0x12F0000000000000)
#define EVICT_LAST   UINT64_C(0x14F0000000000000)

static int32_t min32(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

/* ---- entries ------------------------------------------------------------- */

static enum nib_status check_operands(const char *array, int64_t index, enum nib_op op,
				      const struct nib_problem *p,
				      struct nib_error *err)
{
	return cuda_check_operands(
	    array, index, &p->a, NULL, cuda_weights(&p->b, p->b_packed),
	    op == NIB_OP_DUAL_GEMM ? cuda_weights(&p->b2, p->b2_packed) : NULL, err);
}

/*
 * The most matrices of a stack in one entry.  The planner counts their rows of B, and
 * the kernel uses one index for the matrices of B and B2.
 */
static int64_t most_batches(enum nib_op op, const struct nib_problem *p)
{
	const int64_t rows = divide_up(p->c.cols, SM100_UNIT_ROWS) * SM100_UNIT_ROWS;
	const struct nib_fp4 *b = cuda_weights(&p->b, p->b_packed);
	const struct nib_fp4 *b2 = cuda_weights(&p->b2, p->b2_packed);

	if (op == NIB_OP_DUAL_GEMM && nib_fp4_batches(b) != nib_fp4_batches(b2))
		return 1;
	return INT32_MAX / rows;
}

/* Lists the entries of all problems that have elements. */
static enum nib_status list_entries(const struct nib_plan *plan,
				    struct sm100_gemm *gemm, struct nib_error *err)
{
	int64_t n = 0;

	for (int64_t i = 0; i < plan->count; i++) {
		const struct nib_problem *p = &plan->problems[i];

		if (p->a.rows && p->c.cols)
			n += divide_up(nib_fp4_batches(&p->a),
				       most_batches(plan->op, p));
	}
	gemm->entries = calloc((size_t)n + 1, sizeof(*gemm->entries));
	if (!gemm->entries)
		return cuda_no_memory((size_t)n * sizeof(*gemm->entries), err);
	for (int64_t i = 0; i < plan->count; i++) {
		const struct nib_problem *p = &plan->problems[i];
		const int64_t all = nib_fp4_batches(&p->a);
		enum nib_status status;

		if (!p->a.rows || !p->c.cols)
			continue;
		status = check_operands("problems", i, plan->op, p, err);
		if (status)
			return status;
		for (int64_t l = 0; l < all; l += most_batches(plan->op, p)) {
			const int64_t left = all - l, most = most_batches(plan->op, p);

			gemm->entries[gemm->n_entries++] = (struct sm100_entry){
			    .problem = (int32_t)i,
			    .batch = l,
			    .batches = left < most ? left : most,
			};
		}
	}
	return NIB_STATUS_OK;
}

/* A launch has one type of C, which may differ within a plan. */
static int32_t chunk_count(const struct nib_plan *plan, const struct sm100_gemm *gemm,
			   int64_t first)
{
	const enum nib_dtype dtype =
	    plan->problems[gemm->entries[first].problem].c.dtype;
	int32_t n = 0;

	while (n < NIB_SM100_MANY_PROBLEMS && first + n < gemm->n_entries &&
	       plan->problems[gemm->entries[first + n].problem].c.dtype == dtype)
		n++;
	return n;
}

/* ---- parameters ---------------------------------------------------------- */

static size_t params_bytes(int32_t problems)
{
	return problems <= NIB_SM100_FEW_PROBLEMS ? sizeof(struct nib_sm100_few)
						  : sizeof(struct nib_sm100_many);
}

static bool new_params(struct sm100_chunk *chunk, int32_t problems)
{
	const size_t bytes = (params_bytes(problems) + 63) / 64 * 64;

	chunk->params = aligned_alloc(64, bytes);
	if (chunk->params)
		memset(chunk->params, 0, bytes);
	return chunk->params != NULL;
}

/* Divides shared and tensor memory.  tile_m and a_scale_blocks are set. */
static void divide_memory(const struct cuda_device *device, bool dual,
			  struct sm100_chunk *chunk)
{
	struct nib_sm100_args *args = &chunk->params->args;
	const int32_t left =
	    device->shared_bytes - nib_sm100_shared_bytes(0, 0, args->experts);

	args->stage_bytes = nib_sm100_stage_bytes(args->tile_m, chunk->ctas,
						  args->a_scale_blocks, dual);
	args->stages = min32(left / args->stage_bytes, NIB_SM100_STAGES_MAX);
	chunk->shared_bytes =
	    nib_sm100_shared_bytes(args->stages, args->stage_bytes, args->experts);
	nib_sm100_columns(args, dual);
}

/* Lists the operands for tensor maps.  view is NULL if the operation does not have the
 * operand. */
static void list_sources(const struct nib_problem *p, enum nib_op op,
			 int64_t a_matrices, int64_t b_matrices,
			 struct sm100_source sources[SM100_OPERANDS])
{
	const struct nib_fp4 *b = cuda_weights(&p->b, p->b_packed);
	const struct nib_fp4 *b2 = cuda_weights(&p->b2, p->b2_packed);

	memset(sources, 0, SM100_OPERANDS * sizeof(*sources));
	sources[SM100_A] = (struct sm100_source){&p->a, a_matrices, false};
	sources[SM100_B] = (struct sm100_source){b, b_matrices, p->b_packed != NULL};
	if (op == NIB_OP_DUAL_GEMM)
		sources[SM100_B2] =
		    (struct sm100_source){b2, b_matrices, p->b2_packed != NULL};
	for (int o = 0; o < SM100_OPERANDS; o += 2)
		sources[o + 1] = sources[o];
}

/* Sets problem i of a launch except for its maps. */
static void set_problem(const struct nib_problem *p, int32_t ctas, int64_t b_matrices,
			int32_t a_box_rows, struct nib_sm100_problem *out)
{
	out->a_box_rows = a_box_rows;
	out->m = (int32_t)p->a.rows;
	out->n = (int32_t)p->c.cols;
	out->k = (int32_t)p->a.k;
	out->units = (int32_t)divide_up(p->c.cols, ctas * NIB_TILE_N);
	out->b_matrices = (int32_t)b_matrices;
	out->c_stride_elems = nib_dense_row_stride_elems(&p->c);
	out->c_batch_stride_elems = nib_dense_batch_stride_elems(&p->c);
}

/* Makes the maps of an entry, and stages copies of operands that a map cannot
 * describe. */
static bool add_maps(const struct sm100_source sources[SM100_OPERANDS],
		     int32_t a_box_rows, struct sm100_chunk *chunk,
		     struct sm100_entry *x, size_t *workspace_bytes)
{
	const int32_t a_blocks = chunk->params->args.a_scale_blocks;

	for (int o = 0; o < SM100_OPERANDS; o++) {
		const bool is_a = o < SM100_B;
		struct sm100_map *map = &x->maps[o];

		if (!sources[o].view || map->is_used)
			continue;
		if (o % 2 == 0)
			sm100_codes_map(&sources[o], is_a ? a_box_rows : NIB_TILE_N,
					map);
		else
			sm100_scales_map(&sources[o], is_a ? a_blocks : 1, map);
		if (map->copy == 0 &&
		    !sm100_stage_add(chunk, &sources[o], map, workspace_bytes))
			return false;
	}
	return true;
}

static void report_chunk(const struct sm100_cut *cut, size_t workspace_bytes,
			 struct sm100_gemm *gemm, struct sm100_chunk *chunk,
			 struct cuda_product_plan *product)
{
	int64_t matrices = 0;

	for (int32_t i = 0; i < chunk->count; i++)
		matrices += gemm->entries[chunk->first + i].batches;
	if (matrices > product->most_matrices)
		product->most_matrices = (int32_t)matrices;
	if (workspace_bytes > product->workspace_bytes)
		product->workspace_bytes = workspace_bytes;
	if (gemm->n_chunks == 0) {
		product->tile_m = chunk->params->args.tile_m;
		product->k_slices = cut->slices;
		product->clusters = chunk->clusters;
	}
	product->tasks += cut->plan.tiles * cut->slices;
	if (chunk->stage)
		product->kernels = "two kernels (copies of what tensor maps "
				   "cannot take, then the product)";
	else if (!product->kernels)
		product->kernels = "one kernel";
	product->launches = ++gemm->n_chunks;
}

/* ---- plans of lists ------------------------------------------------------ */

/* Takes over the tiles of a cut.  Clusters without a tile are the last ones and are not
 * launched. */
static enum nib_status take_tiles(const struct sm100_cut *cut,
				  struct sm100_chunk *chunk,
				  struct cuda_tile_list *list, struct nib_error *err)
{
	struct nib_sm100_args *args = &chunk->params->args;
	const int32_t all = cut->plan.clusters;
	int32_t used = 0;

	args->tile_rounds = cut->plan.rounds;
	args->k_slices = cut->slices;
	args->a_scale_blocks = 1;
	args->tile_m = cuda_tiles_most_m(cut->tiles, (int64_t)cut->plan.rounds * all);
	for (int32_t c = 0; c < all; c++)
		if (cut->tiles[c].rows)
			args->first[used++] = cut->tiles[c];
	chunk->first_tile = list->count;
	chunk->clusters = used;
	for (int32_t i = 0; i < cut->plan.rounds; i++)
		for (int32_t c = 0; c < all; c++) {
			const struct nib_gemm_tile *t =
			    &cut->tiles[(int64_t)i * all + c];

			if (t->row % 128 + t->rows > 128)
				args->a_scale_blocks = 2;
			if (!cut->tiles[c].rows)
				continue;
			if (!cuda_tiles_append(list, t, 1))
				return cuda_no_memory(
				    (size_t)(cut->plan.rounds * all) * sizeof(*t), err);
		}
	return NIB_STATUS_OK;
}

/* Finds the most rows of a tile of each problem.  True if each problem has only one
 * tile along m. */
static bool largest_tiles(const struct sm100_cut *cut, int32_t problems,
			  int32_t *tile_m)
{
	bool is_one = true;

	memset(tile_m, 0, (size_t)problems * sizeof(*tile_m));
	for (int64_t i = 0; i < (int64_t)cut->plan.rounds * cut->plan.clusters; i++) {
		const struct nib_gemm_tile *t = &cut->tiles[i];

		if (t->rows > tile_m[t->problem])
			tile_m[t->problem] = t->rows;
		is_one = is_one && t->row == 0;
	}
	return is_one;
}

static enum nib_status
fill_chunk(const struct cuda_device *device, const struct nib_plan *plan,
	   const struct sm100_cut *cut, struct sm100_gemm *gemm,
	   struct sm100_chunk *chunk, struct cuda_tile_list *list,
	   struct cuda_product_plan *product, struct nib_error *err)
{
	int32_t tile_m[NIB_SM100_MANY_PROBLEMS];
	size_t workspace_bytes = 0;
	struct nib_sm100_args *args;
	bool is_read_once = largest_tiles(cut, chunk->count, tile_m);
	enum nib_status status;

	chunk->ctas = cut->ctas;
	if (!new_params(chunk, chunk->count))
		return cuda_no_memory(params_bytes(chunk->count), err);
	args = &chunk->params->args;
	status = take_tiles(cut, chunk, list, err);
	if (status)
		return status;
	args->dtype =
	    (int32_t)plan->problems[gemm->entries[chunk->first].problem].c.dtype;
	divide_memory(device, plan->op == NIB_OP_DUAL_GEMM, chunk);
	for (int32_t i = 0; i < chunk->count; i++) {
		struct sm100_entry *x = &gemm->entries[chunk->first + i];
		const struct nib_problem *p = &plan->problems[x->problem];
		const int64_t b_matrices =
		    nib_fp4_batches(cuda_weights(&p->b, p->b_packed)) > 1 ? x->batches
									  : 1;
		struct sm100_source sources[SM100_OPERANDS];

		list_sources(p, plan->op, x->batches, b_matrices, sources);
		set_problem(p, cut->ctas, b_matrices, tile_m[i] / cut->ctas,
			    &chunk->params->problems[i]);
		if (!add_maps(sources, tile_m[i] / cut->ctas, chunk, x,
			      &workspace_bytes))
			return cuda_no_memory(sizeof(*chunk->stage), err);
		is_read_once = is_read_once && b_matrices == x->batches;
	}
	args->a_policy = EVICT_LAST;
	args->b_policy = is_read_once ? EVICT_FIRST : EVICT_NORMAL;
	report_chunk(cut, workspace_bytes, gemm, chunk, product);
	return NIB_STATUS_OK;
}

static enum nib_status plan_chunks(struct cuda_device *device,
				   const struct nib_plan *plan, struct sm100_gemm *gemm,
				   struct cuda_tile_list *list,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	int64_t n = 0;
	enum nib_status status = list_entries(plan, gemm, err);

	if (status)
		return status;
	for (int64_t i = 0; i < gemm->n_entries; i += chunk_count(plan, gemm, i))
		n++;
	gemm->chunks = calloc((size_t)n + 1, sizeof(*gemm->chunks));
	if (!gemm->chunks)
		return cuda_no_memory((size_t)n * sizeof(*gemm->chunks), err);
	for (int64_t i = 0; i < gemm->n_entries && !status;) {
		struct sm100_chunk *chunk = &gemm->chunks[gemm->n_chunks];
		struct sm100_cut cut = {0};

		chunk->first = i;
		chunk->count = chunk_count(plan, gemm, i);
		i += chunk->count;
		status = sm100_choose_cut(device, plan, gemm, chunk, &cut, err);
		if (!status)
			status = fill_chunk(device, plan, &cut, gemm, chunk, list,
					    product, err);
		free(cut.tiles);
	}
	return status;
}

/* ---- plans of MoE -------------------------------------------------------- */

/*
 * Adds two maps for the scales of A: one of a copy in which those of each expert begin
 * with a tile, and one of the original, for runs in which they do already.
 */
static bool add_moe_scales(const struct sm100_source *a, int64_t experts,
			   struct sm100_chunk *chunk, struct sm100_entry *x,
			   size_t *workspace_bytes)
{
	const int64_t rows = a->view->rows;
	struct sm100_map *map = &x->maps[SM100_A_SCALES];

	sm100_scales_map(a, chunk->params->args.a_scale_blocks, &chunk->placed);
	*map = chunk->placed;
	chunk->placed.is_used = map->copy < 0;
	if (a->view->k == 0)
		return true;
	map->sizes[1] = (uint64_t)(rows / 128 + (experts < rows ? experts : rows));
	map->strides_bytes[0] = (uint64_t)NIB_SCALE_TILE_BYTES *
				(uint64_t)nib_stage_tiles_across((int32_t)a->view->k);
	if (!sm100_stage_add(chunk, a, map, workspace_bytes))
		return false;
	chunk->stage->copies[map->copy].is_of_experts = 1;
	return true;
}

/* Sets the sizes of the single launch of an MoE problem with elements. */
static enum nib_status
fill_moe(const struct cuda_device *device, const struct nib_plan *plan,
	 const struct nib_problem *stacks, struct sm100_gemm *gemm,
	 struct cuda_product_plan *product, struct nib_error *err)
{
	struct sm100_chunk *chunk = gemm->chunks;
	struct sm100_entry *x = gemm->entries;
	const bool dual = plan->op == NIB_OP_DUAL_GEMM;
	const int32_t most =
	    cuda_moe_tile_m(stacks->a.rows, plan->count, SM100_ALIGN_M);
	const int32_t tile_m = dual ? min32(most, DUAL_MOE_M_MAX) : most;
	const struct sm100_cut cut = {.ctas = chunk->ctas, .slices = 1};
	struct sm100_source sources[SM100_OPERANDS];
	size_t workspace_bytes = 0;
	struct nib_sm100_args *args;

	if (!new_params(chunk, 1))
		return cuda_no_memory(params_bytes(1), err);
	args = &chunk->params->args;
	args->dtype = (int32_t)stacks->c.dtype;
	args->tile_m = tile_m;
	args->k_slices = 1;
	args->a_scale_blocks = tile_m > 128 ? 2 : 1;
	args->experts = (int32_t)plan->count;
	args->rows = (int32_t)stacks->a.rows;
	args->a_policy = EVICT_LAST;
	args->b_policy = EVICT_FIRST;
	divide_memory(device, dual, chunk);
	list_sources(stacks, plan->op, 1, plan->count, sources);
	for (chunk->boxes = 0; (8 << chunk->boxes) < tile_m / chunk->ctas;)
		chunk->boxes++;
	chunk->boxes++;
	for (int32_t i = 0; i < chunk->boxes; i++)
		set_problem(stacks, chunk->ctas, plan->count, 8 << i,
			    &chunk->params->problems[i]);
	x->maps[SM100_A_SCALES].is_used = true; /* made last */
	if (!add_maps(sources, 8, chunk, x, &workspace_bytes) ||
	    !add_moe_scales(&sources[SM100_A_SCALES], plan->count, chunk, x,
			    &workspace_bytes))
		return cuda_no_memory(sizeof(*chunk->stage), err);
	report_chunk(&cut, workspace_bytes, gemm, chunk, product);
	return NIB_STATUS_OK;
}

static enum nib_status plan_moe(struct cuda_device *device, const struct nib_plan *plan,
				struct sm100_gemm *gemm,
				struct cuda_product_plan *product,
				struct nib_error *err)
{
	const struct nib_problem *stacks = &plan->moe.problem;
	const int64_t experts = plan->count, rows = stacks->a.rows;
	const int64_t padded =
	    128 * (rows / 128 + 1 + (experts < rows ? experts : rows));
	struct sm100_chunk *chunk;
	enum nib_status status =
	    check_operands("moe.problem", -1, plan->op, stacks, err);

	if (!status)
		status = cuda_check_experts(experts, rows, padded, err);
	if (status || rows == 0 || stacks->c.cols == 0)
		return status;
	gemm->entries = calloc(1, sizeof(*gemm->entries));
	chunk = gemm->chunks = calloc(1, sizeof(*chunk));
	if (!gemm->entries || !chunk)
		return cuda_no_memory(sizeof(*gemm->entries) + sizeof(*chunk), err);
	gemm->n_entries = 1;
	gemm->entries->batches = 1;
	chunk->count = 1;
	chunk->ctas = stacks->c.cols > NIB_TILE_N ? 2 : 1;
	status = sm100_count(device, plan->op, chunk->ctas, 1, &chunk->clusters, err);
	return status ? status : fill_moe(device, plan, stacks, gemm, product, err);
}

/* ---- the product --------------------------------------------------------- */

static enum nib_status find_kernels(struct cuda_device *device, struct sm100_gemm *gemm,
				    struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < gemm->n_chunks && !status; i++) {
		struct sm100_chunk *chunk = &gemm->chunks[i];

		status = sm100_find_kernel(device, gemm->op, chunk->ctas,
					   chunk->count <= NIB_SM100_FEW_PROBLEMS,
					   &chunk->multiply, err);
		if (!status && chunk->stage)
			status = cuda_kernel(device, "nib_stage", 0, &chunk->copy, err);
	}
	return status;
}

/* Writes the address of the uploaded tiles into all parameters. */
static void point_at_tiles(struct sm100_gemm *gemm)
{
	for (int64_t i = 0; i < gemm->n_chunks; i++) {
		struct sm100_chunk *chunk = &gemm->chunks[i];

		chunk->params->args.tiles =
		    (const struct nib_gemm_tile *)(uintptr_t)gemm->tiles_data +
		    chunk->first_tile;
	}
}

static enum nib_status plan_tiles(struct cuda_device *device,
				  const struct nib_plan *plan,
				  struct cuda_product_plan *product,
				  struct nib_error *err)
{
	struct sm100_gemm *gemm = calloc(1, sizeof(*gemm));
	struct cuda_tile_list list = {0};
	enum nib_status status;

	product->state = gemm;
	if (!gemm)
		return cuda_no_memory(sizeof(*gemm), err);
	gemm->op = plan->op;
	gemm->is_moe = plan->is_moe;
	status = plan->is_moe ? plan_moe(device, plan, gemm, product, err)
			      : plan_chunks(device, plan, gemm, &list, product, err);
	if (!status)
		status = find_kernels(device, gemm, err);
	if (!status)
		status = cuda_tiles_upload(device, &list, &gemm->tiles_data, err);
	if (!status)
		point_at_tiles(gemm);
	free(list.tiles);
	return status;
}

static void free_tiles(struct nib_device *device, struct cuda_product_plan *product)
{
	struct sm100_gemm *gemm = product->state;

	if (!gemm)
		return;
	if (gemm->tiles_data)
		cuda_free(device, (void *)(uintptr_t)gemm->tiles_data);
	/* A failed plan has not counted its last chunk. */
	for (int64_t i = 0; gemm->chunks && i <= gemm->n_chunks; i++) {
		free(gemm->chunks[i].params);
		free(gemm->chunks[i].stage);
		if (gemm->is_moe)
			break;
	}
	free(gemm->entries);
	free(gemm->chunks);
	free(gemm);
}

const struct cuda_product sm100_tiles = {plan_tiles, sm100_gemm_launch, free_tiles};
