/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - plans of products in tiles; see gemm.h. */
#include "gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/common/gemm_common.h"
#include "core/error.h"
#include "format/view.h"

/* ---- shapes -------------------------------------------------------------- */

static int32_t code_flags(const struct nib_fp4 *b)
{
	uint64_t x = (uint64_t)nib_fp4_row_stride_bytes(b);

	if (nib_fp4_batches(b) > 1)
		x |= (uint64_t)nib_fp4_batch_stride_bytes(b);
	return x % 16 == 0 ? 0 : NIB_B_CODES_BY_8;
}

static int32_t output_flags(const struct nib_dense *c)
{
	const int64_t size = (int64_t)nib_dtype_bytes(c->dtype);
	const int64_t row = nib_dense_row_stride_elems(c) * size;
	const int64_t batch = c->batch > 1 ? nib_dense_batch_stride_elems(c) * size : 0;

	return row % 16 == 0 && batch % 16 == 0 ? NIB_C_BY_16 : 0;
}

static int32_t a_of(enum nib_activations activations, enum nib_dtype x)
{
	if (activations == NIB_ACTIVATIONS_NVFP4)
		return NIB_A_NVFP4;
	return x == NIB_DTYPE_FP16 ? NIB_A_FP16 : NIB_A_BF16;
}

static int32_t a_of_problem(const struct nib_problem *p)
{
	return a_of(p->activations, p->x.dtype);
}

/* x: A if it is dense, otherwise NULL. */
static enum nib_status make_shape(const char *array, int64_t index,
				  const struct nib_fp4 *a, const struct nib_dense *x,
				  const struct nib_fp4 *b, const struct nib_fp4 *b2,
				  const struct nib_dense *c, struct nib_gemm_shape *s,
				  struct nib_error *err)
{
	enum nib_status status = cuda_check_operands(array, index, a, x, b, b2, err);

	if (status)
		return status;
	*s = (struct nib_gemm_shape){
	    .m = (int32_t)a->rows,
	    .n = (int32_t)b->rows,
	    .k = (int32_t)b->k,
	    .flags = code_flags(b) | output_flags(c),
	    .a_stride_bytes = x ? nib_dense_row_stride_elems(x) * X_BYTES
				: nib_fp4_row_stride_bytes(a),
	    .a_scale_stride_bytes = nib_fp4_scale_row_stride_bytes(a),
	    .b_stride_bytes = nib_fp4_row_stride_bytes(b),
	    .b_scale_stride_bytes = nib_fp4_scale_row_stride_bytes(b),
	    .c_stride_elems = nib_dense_row_stride_elems(c),
	};
	if (a->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		s->flags |= NIB_A_TILED;
	if (b->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		s->flags |= NIB_B_TILED;
	if (!b2)
		return NIB_STATUS_OK;
	s->b2_stride_bytes = nib_fp4_row_stride_bytes(b2);
	s->b2_scale_stride_bytes = nib_fp4_scale_row_stride_bytes(b2);
	s->flags |= code_flags(b2);
	if (b2->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		s->flags |= NIB_B2_TILED;
	return NIB_STATUS_OK;
}

/* ---- workspace ----------------------------------------------------------- */

static int64_t stages_of(int64_t k)
{
	return divide_up(k, NIB_WEIGHT_STAGE_K);
}

/*
 * Bytes of the converted activations: whole atoms of 8 rows and whole weight stages of
 * k.
 */
static size_t activation_bytes(int64_t atoms, int64_t k)
{
	const int64_t stages = stages_of(k);

	return (size_t)(atoms * 8 * 2 * NIB_WEIGHT_STAGE_K * (stages ? stages : 1));
}

/* Converted rows of a matrix: a tile of more than 128 rows loads multiples of 32. */
static int64_t padded_rows(int64_t m)
{
	return round_up(m, m > 128 ? 2 * NIB_TILE_M_STEP : NIB_TILE_M_STEP);
}

/* Bytes of the split-k partials of one slice of a tile, for both CTAs of the pair. */
static size_t partials_bytes(int32_t tile_m)
{
	return (size_t)NIB_GEMM_PAIR * (size_t)NIB_GEMM_PARTIALS(tile_m) *
	       sizeof(float);
}

/*
 * Divides a workspace into the converted activations, the split-k partials of all
 * tiles, and their arrival counts.  Returns its size.
 */
static size_t divide_workspace(struct gemm_chunk *chunk, int64_t split_tiles)
{
	chunk->partials_at = activation_bytes(chunk->a_atoms, chunk->most_k);
	chunk->arrivals_at =
	    chunk->partials_at + (size_t)split_tiles * partials_bytes(chunk->tile_m);
	return chunk->arrivals_at + (size_t)chunk->n_arrivals * sizeof(uint32_t);
}

/* ---- rings --------------------------------------------------------------- */

/* The number of stages that fit into `bytes`. */
static int32_t stages_in(int32_t bytes, int32_t stage_bytes, int32_t most)
{
	return bytes / stage_bytes < most ? bytes / stage_bytes : most;
}

/*
 * Activation stages get what three weight stages leave, at most NIB_GEMM_STAGES_MAX
 * steps, which covers the latency of a warm L2.  The rest goes to weight stages, whose
 * data comes from memory.
 */
static void choose_large_rings(int32_t capacity, int32_t tile_m,
			       struct gemm_rings *rings)
{
	const int32_t stages = NIB_WEIGHT_STAGE_STEPS / rings->a_steps;
	const int32_t stage = tile_m * NIB_STEP_K * 2 * rings->a_steps;

	rings->a_stage_bytes = stage;
	rings->a_stages = stages_in(capacity - 3 * NIB_WEIGHT_STAGE_BYTES, stage,
				    NIB_GEMM_STAGES_MAX / rings->a_steps) /
			  stages * stages;
	rings->weight_stages = stages_in(capacity - rings->a_stages * stage,
					 NIB_WEIGHT_STAGE_BYTES, NIB_GEMM_STAGES_MAX);
}

/*
 * Four weight stages.  With more, a launch requests so much at once that its
 * activations arrive late.  With three, both pairs of warpgroups wait.  An MoE launch
 * is longer, so that a fifth stage gains more than late activations cost.
 *
 * There must be at least as many activation stages as weight stages.  A pair waits for
 * an activation stage only after the weights of the same item have arrived, so the
 * weights of the item `weight_stages` before have been released and their activations
 * read.  With fewer activation stages a pair could mistake one barrier phase for
 * another; with two, both pairs would wait for ever.
 */
static void choose_small_m_rings(int32_t capacity, int32_t tile_m, bool is_moe,
				 struct gemm_rings *rings)
{
	rings->a_stage_bytes = tile_m * NIB_WEIGHT_STAGE_K * 2;
	rings->weight_stages = is_moe ? 5 : 4;
	rings->a_stages =
	    stages_in(capacity - rings->weight_stages * NIB_WEIGHT_STAGE_BYTES,
		      rings->a_stage_bytes, 8);
}

/*
 * Chooses the kernel and the ring stages of a chunk, whose tile_m is set.
 * may_alternate: each tile has at least two weight stages, so that two pairs of
 * warpgroups may alternate.
 */
static void choose_rings(const struct cuda_device *device, bool may_alternate,
			 struct gemm_chunk *chunk)
{
	const int32_t tile_m = chunk->tile_m;
	struct gemm_rings *rings = &chunk->rings;
	int32_t tail = NIB_GEMM_TAIL_BYTES;
	int32_t capacity = device->shared_bytes;

	rings->a_steps = may_alternate && tile_m <= NIB_SMALL_M_MAX ? NIB_SMALL_M_STEPS
			 : tile_m <= NIB_MEDIUM_M_MAX		    ? NIB_MEDIUM_M_STEPS
								    : NIB_LARGE_M_STEPS;
	if (rings->a_steps == NIB_SMALL_M_STEPS) {
		tail += NIB_SMALL_M_EXCHANGE_BYTES(tile_m);
		choose_small_m_rings(capacity - tail, tile_m, chunk->experts > 0,
				     rings);
	} else {
		choose_large_rings(capacity - tail, tile_m, rings);
	}
	rings->shared_bytes = rings->a_stages * rings->a_stage_bytes +
			      rings->weight_stages * NIB_WEIGHT_STAGE_BYTES + tail;
}

/* ---- plans --------------------------------------------------------------- */

static enum nib_status find_multiply(struct cuda_device *device, enum nib_op op,
				     int32_t a, int32_t a_steps, CUfunction *function,
				     struct nib_error *err)
{
	const char *type = a == NIB_A_BF16 ? "_bf16" : "";
	const char *size = a_steps == NIB_SMALL_M_STEPS	   ? "_small_m"
			   : a_steps == NIB_MEDIUM_M_STEPS ? "_medium_m"
							   : "";
	char name[32];

	snprintf(name, sizeof(name), "nib_%s%s%s",
		 op == NIB_OP_DUAL_GEMM ? "dual" : "gemm", size, type);
	return cuda_kernel(device, name, device->shared_bytes, function, err);
}

static enum nib_status find_kernels(struct cuda_device *device, struct sm90_gemm *gemm,
				    struct nib_error *err)
{
	static const char *const convert[] = {"nib_activations", "nib_activations_f16",
					      "nib_activations_bf16"};
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < gemm->n_chunks && !status; i++) {
		struct gemm_chunk *chunk = &gemm->chunks[i];

		status =
		    cuda_kernel(device, convert[chunk->a],
				sm90_activations_shared(device), &chunk->convert, err);
		if (!status)
			status =
			    find_multiply(device, gemm->op, chunk->a,
					  chunk->rings.a_steps, &chunk->multiply, err);
	}
	return status;
}

/*
 * The number of matrices in one entry of the plan.  It is 1 for batches up to
 * NIB_GEMM_PROBLEMS, which a launch has in its table.  A larger batch is addressed by
 * strides, in equal shares whose converted activations fill at most half of the L2.
 */
static int64_t matrices_at_once(const struct cuda_device *device,
				const struct nib_problem *p)
{
	const int64_t batch = nib_fp4_batches(&p->a);
	const int64_t atoms = padded_rows(p->a.rows) / NIB_ATOM_ROWS;
	const int64_t tiles =
	    divide_up(p->a.rows, NIB_TILE_M_STEP) * divide_up(p->c.cols, NIB_TILE_N);
	int64_t most;

	if (batch <= NIB_GEMM_PROBLEMS)
		return 1;
	most = device->l2_bytes / 2 / (int64_t)activation_bytes(atoms, p->a.k);
	if (most > INT32_MAX / tiles)
		most = INT32_MAX / tiles;
	if (most < NIB_GEMM_PROBLEMS)
		most = NIB_GEMM_PROBLEMS;
	return divide_up(batch, divide_up(batch, most));
}

/* Counts the entries of a problem, and writes them to `entries` unless that is NULL. */
static int64_t list_problem(const struct cuda_device *device,
			    const struct nib_plan *plan, int64_t problem,
			    struct gemm_matrix *entries)
{
	const struct nib_problem *p = &plan->problems[problem];
	const int64_t batch = nib_fp4_batches(&p->a);
	int64_t each, count = 0;

	if (!p->a.rows || !p->c.cols)
		return 0;
	each = matrices_at_once(device, p);
	if (!entries)
		return divide_up(batch, each);
	for (int64_t l = 0; l < batch; l += each, count++)
		entries[count] = (struct gemm_matrix){
		    .problem = (int32_t)problem,
		    .count = (int32_t)(batch - l < each ? batch - l : each),
		    .batch = l};
	return count;
}

/* Lists the matrices of all problems that have elements. */
static enum nib_status list_matrices(const struct cuda_device *device,
				     const struct nib_plan *plan,
				     struct sm90_gemm *gemm, struct nib_error *err)
{
	int64_t count = 0;

	for (int64_t i = 0; i < plan->count; i++)
		count += list_problem(device, plan, i, NULL);
	gemm->matrices = calloc((size_t)count + 1, sizeof(*gemm->matrices));
	if (!gemm->matrices)
		return cuda_no_memory((size_t)count * sizeof(*gemm->matrices), err);
	for (int64_t i = 0; i < plan->count; i++)
		gemm->n_matrices +=
		    list_problem(device, plan, i, gemm->matrices + gemm->n_matrices);
	return NIB_STATUS_OK;
}

/* Fills the shapes of a chunk's matrices, and its rows, atoms and k. */
static enum nib_status chunk_shapes(const struct nib_plan *plan,
				    const struct sm90_gemm *gemm,
				    struct gemm_chunk *chunk,
				    struct nib_tile_shape *tile_shapes,
				    struct nib_error *err)
{
	int64_t rows = 0, padded = 0, tiles;

	for (int32_t i = 0; i < chunk->count; i++) {
		struct gemm_matrix *x = &gemm->matrices[chunk->first + i];
		const struct nib_problem *p = &plan->problems[x->problem];
		struct nib_gemm_shape *s = &x->shape;
		enum nib_status status = make_shape(
		    "problems", x->problem, &p->a, p->activations ? &p->x : NULL,
		    cuda_weights(&p->b, p->b_packed),
		    plan->op == NIB_OP_DUAL_GEMM ? cuda_weights(&p->b2, p->b2_packed)
						 : NULL,
		    &p->c, s, err);

		if (status)
			return status;
		s->first_row = (int32_t)padded;
		rows += (int64_t)s->m * x->count;
		padded += padded_rows(s->m) * x->count;
		if (padded > INT32_MAX)
			return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED,
						 "problems",
						 ": over 2^31 rows of a in one "
						 "launch");
		if (s->k > chunk->most_k)
			chunk->most_k = s->k;
		tile_shapes[i] =
		    (struct nib_tile_shape){s->m, s->n, s->k, x->count - 1};
		if (x->count > 1) {
			chunk->batch = x->count;
			chunk->batch_rows = (int32_t)padded_rows(s->m);
		}
	}
	chunk->rows = (int32_t)rows;
	chunk->a_atoms = padded / 8;
	tiles =
	    nib_tiles_least(tile_shapes, chunk->count, plan->op == NIB_OP_DUAL_GEMM);
	if (tiles > INT32_MAX)
		return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED, "problems",
					 ": %lld tiles of c, at most 2^31 - 1 "
					 "in one launch",
					 (long long)tiles);
	return NIB_STATUS_OK;
}

/* A launch has one type of C and one kind of A, which may differ within a plan. */
static int32_t chunk_count(const struct nib_plan *plan, const struct sm90_gemm *gemm,
			   int64_t first)
{
	const struct gemm_matrix *x = gemm->matrices + first;
	const struct nib_problem *p = &plan->problems[x->problem];
	int32_t count = 1;

	while (x->count == 1 && count < NIB_GEMM_PROBLEMS &&
	       first + count < gemm->n_matrices && x[count].count == 1) {
		const struct nib_problem *next = &plan->problems[x[count].problem];

		if (next->c.dtype != p->c.dtype ||
		    a_of_problem(next) != a_of_problem(p))
			break;
		count++;
	}
	return count;
}

/* Adds a planned chunk and its number of tiles to the report of the plan. */
static void report_chunk(struct gemm_chunk *chunk, int64_t split_tiles,
			 struct sm90_gemm *gemm, struct cuda_product_plan *product)
{
	const size_t bytes = divide_workspace(chunk, split_tiles);

	if (bytes > product->workspace_bytes)
		product->workspace_bytes = bytes;
	if (chunk->batch > product->most_matrices)
		product->most_matrices = chunk->batch;
	if (gemm->n_chunks == 0) {
		product->tile_m = chunk->tile_m;
		product->k_slices = chunk->k_slices;
		product->clusters = chunk->clusters;
	}
	product->launches = ++gemm->n_chunks;
}

static enum nib_status
plan_chunk(const struct cuda_device *device, const struct nib_plan *plan,
	   const struct nib_tile_device *clusters, struct sm90_gemm *gemm,
	   struct gemm_chunk *chunk, struct cuda_tile_list *list,
	   struct cuda_product_plan *product, struct nib_error *err)
{
	struct nib_tile_shape tile_shapes[NIB_GEMM_PROBLEMS];
	struct nib_gemm_tile *tiles = NULL;
	struct nib_tile_plan t;
	size_t n_tiles;
	const bool is_alone =
	    plan->count == 1 && gemm->n_matrices == 1 && gemm->matrices->count == 1;
	bool has_space;
	enum nib_status status = chunk_shapes(plan, gemm, chunk, tile_shapes, err);

	if (status)
		return status;
	chunk->a = a_of_problem(&plan->problems[gemm->matrices[chunk->first].problem]);
	if (!nib_tiles_plan(clusters, tile_shapes, chunk->count,
			    plan->op == NIB_OP_DUAL_GEMM, is_alone, &t, &tiles))
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory to cut %d matrices into tiles",
				chunk->count);
	n_tiles = (size_t)t.rounds * (size_t)t.clusters;
	chunk->first_tile = list->count;
	chunk->tile_rounds = t.rounds;
	chunk->clusters = t.clusters;
	chunk->k_slices = t.k_slices;
	chunk->tile_m = cuda_tiles_most_m(tiles, (int64_t)n_tiles);
	if (n_tiles)
		memcpy(chunk->first_round, tiles, (size_t)t.clusters * sizeof(*tiles));
	has_space = cuda_tiles_append(list, tiles, n_tiles);
	free(tiles);
	if (!has_space)
		return cuda_no_memory(n_tiles * sizeof(*tiles), err);
	/*
	 * Never for a group: the small-m kernel adds in another order, and the bits of
	 * a matrix must not depend on its group.
	 */
	choose_rings(device, is_alone && stages_of(chunk->most_k) / t.k_slices >= 2,
		     chunk);
	if (t.k_slices > 1)
		chunk->n_arrivals = (int32_t)(t.tiles / t.k_slices) * NIB_GEMM_PAIR;
	report_chunk(chunk, t.k_slices > 1 ? t.tiles : 0, gemm, product);
	product->tasks += t.tiles;
	return NIB_STATUS_OK;
}

static enum nib_status plan_chunks(const struct cuda_device *device,
				   const struct nib_plan *plan,
				   const struct nib_tile_device *clusters,
				   struct sm90_gemm *gemm, struct cuda_tile_list *list,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	int64_t count = 0;
	enum nib_status status = list_matrices(device, plan, gemm, err);

	if (status)
		return status;
	for (int64_t i = 0; i < gemm->n_matrices; i += chunk_count(plan, gemm, i))
		count++;
	gemm->chunks = calloc((size_t)count + 1, sizeof(*gemm->chunks));
	if (!gemm->chunks)
		return cuda_no_memory((size_t)count * sizeof(*gemm->chunks), err);
	for (int64_t i = 0; i < gemm->n_matrices && !status;) {
		struct gemm_chunk *chunk = &gemm->chunks[gemm->n_chunks];

		chunk->first = i;
		chunk->count = chunk_count(plan, gemm, i);
		i += chunk->count;
		status =
		    plan_chunk(device, plan, clusters, gemm, chunk, list, product, err);
	}
	return status;
}

static enum nib_status
plan_moe(const struct cuda_device *device, const struct nib_plan *plan,
	 const struct nib_tile_device *clusters, struct sm90_gemm *gemm,
	 struct cuda_product_plan *product, struct nib_error *err)
{
	const struct nib_problem *moe = &plan->moe.problem;
	const bool dual = plan->op == NIB_OP_DUAL_GEMM;
	const struct nib_fp4 *b = cuda_weights(&moe->b, moe->b_packed);
	const struct nib_fp4 *b2 = dual ? cuda_weights(&moe->b2, moe->b2_packed) : NULL;
	const int64_t experts = plan->count, rows = moe->a.rows;
	const int64_t padded =
	    round_up(rows, 16) + 16 * (experts < rows ? experts : rows);
	struct nib_gemm_shape shape;
	struct gemm_chunk *chunk;
	enum nib_status status =
	    make_shape("moe.problem", -1, &moe->a, moe->activations ? &moe->x : NULL, b,
		       b2, &moe->c, &shape, err);

	if (!status)
		status = cuda_check_experts(experts, rows, padded, err);
	if (status || rows == 0 || shape.n == 0)
		return status;
	gemm->matrices = calloc(1, sizeof(*gemm->matrices));
	chunk = gemm->chunks = calloc(1, sizeof(*chunk));
	if (!gemm->matrices || !chunk)
		return cuda_no_memory(sizeof(*gemm->matrices) + sizeof(*chunk), err);
	gemm->matrices->shape = shape;
	gemm->matrices->count = 1;
	gemm->n_matrices = 1;
	*chunk = (struct gemm_chunk){
	    .count = 1,
	    .experts = (int32_t)experts,
	    .a = a_of(moe->activations, moe->x.dtype),
	    .rows = (int32_t)rows,
	    .most_k = shape.k,
	    .a_atoms = padded / 8,
	    .clusters = clusters->clusters,
	    .tile_m = cuda_moe_tile_m(rows, experts, 32),
	    .k_slices = 1,
	};
	choose_rings(device, stages_of(shape.k) >= 2, chunk);
	report_chunk(chunk, 0, gemm, product);
	return NIB_STATUS_OK;
}

/* Uses the kernel for all tile sizes; the others have as much shared memory. */
enum nib_status sm90_clusters(struct cuda_device *device,
			      struct nib_tile_device *clusters, struct nib_error *err)
{
	CUfunction multiply;
	enum nib_status status = find_multiply(device, NIB_OP_GEMM, NIB_A_NVFP4,
					       NIB_LARGE_M_STEPS, &multiply, err);

	*clusters = (struct nib_tile_device){.costs = &device->costs};
	return status
		   ? status
		   : cuda_count_clusters(device, multiply, NIB_GEMM_PAIR,
					 NIB_GEMM_THREADS, device->shared_bytes,
					 NIB_GEMM_CLUSTERS, &clusters->clusters, err);
}

/* Also after a failure the plan has the state that free_tiles() frees. */
static enum nib_status plan_tiles(struct cuda_device *device,
				  const struct nib_plan *plan,
				  struct cuda_product_plan *product,
				  struct nib_error *err)
{
	struct sm90_gemm *gemm = calloc(1, sizeof(*gemm));
	struct nib_tile_device clusters;
	struct cuda_tile_list list = {0};
	enum nib_status status;

	product->state = gemm;
	if (!gemm)
		return cuda_no_memory(sizeof(*gemm), err);
	gemm->op = plan->op;
	product->most_matrices = NIB_GEMM_PROBLEMS;
	product->kernels = "two kernels (activation conversion, then the product, "
			   "which begins meanwhile)";
	status = sm90_clusters(device, &clusters, err);
	if (!status)
		status = plan->is_moe
			     ? plan_moe(device, plan, &clusters, gemm, product, err)
			     : plan_chunks(device, plan, &clusters, gemm, &list,
					   product, err);
	if (!status)
		status = find_kernels(device, gemm, err);
	if (!status)
		status = cuda_tiles_upload(device, &list, &gemm->tiles_data, err);
	free(list.tiles);
	return status;
}

static void free_tiles(struct nib_device *device, struct cuda_product_plan *product)
{
	struct sm90_gemm *gemm = product->state;

	if (!gemm)
		return;
	if (gemm->tiles_data)
		cuda_free(device, (void *)(uintptr_t)gemm->tiles_data);
	free(gemm->matrices);
	free(gemm->chunks);
	free(gemm);
}

const struct cuda_product sm90_tiles = {plan_tiles, sm90_gemm_launch, free_tiles};
