/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.c - plans and launches of products in tiles; see gemm.h.  A launch has up to
 * NIB_GEMM_MATRICES matrices, a batch at constant strides, or all experts.  If A is
 * NVFP4, a kernel converts it to fp16 before; if k is split, a kernel adds the slices'
 * sums after.
 */
#include "gemm.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/common/gemm_common.h"
#include "backend/cuda/common/pack.h"
#include "backend/cuda/common/tile_plan.h"
#include "backend/cuda/kernels/sm80/gemm_params.h"
#include "core/error.h"
#include "format/view.h"

/* Bytes of a value of A. */
#define A_BYTES 2

/* A matrix of a problem, or a batch with a launch of its own. */
struct matrix {
	int32_t problem;
	int32_t count;
	int64_t batch; /* of the first */
	/* Where its converted A begins in the workspace, if A is NVFP4. */
	size_t converted_at;
};

struct launch {
	int64_t first; /* of the plan's matrices */
	int32_t count;
	bool is_batch;
	bool is_converted; /* A is NVFP4 */
	int32_t experts;   /* MoE, else 0 */
	/* Tiles: tile_rounds * ctas of the plan's, from first_tile on. */
	size_t first_tile;
	int32_t tile_rounds, ctas;
	int32_t tile_m;
	int32_t k_slices, partial_stride;
	int32_t stages, shared_bytes;
	size_t partials_at; /* in the workspace */
	CUfunction multiply;
};

struct gemm {
	enum nib_op op;
	bool is_bf16;		 /* A */
	struct matrix *matrices; /* with elements; MoE: one */
	int64_t n_matrices;
	struct launch *launches;
	int64_t n_launches;
	CUdeviceptr tiles_data; /* of all launches */
	CUfunction convert, reduce;
};

/* ---- checks ---------------------------------------------------------------- */

static enum nib_status check_problem(const char *array, int64_t index, enum nib_op op,
				     const struct nib_problem *problem,
				     struct nib_error *err)
{
	const struct nib_problem p = cuda_unpacked(problem);

	return cuda_check_operands(array, index, &p.a, p.activations ? &p.x : NULL,
				   &p.b, op == NIB_OP_DUAL_GEMM ? &p.b2 : NULL, err);
}

/* ---- plans ----------------------------------------------------------------- */

enum nib_status sm80_clusters(struct cuda_device *device,
			      struct nib_tile_device *clusters, struct nib_error *err)
{
	(void)err;
	*clusters = (struct nib_tile_device){
	    .clusters = device->multiprocessors,
	    .costs = &device->costs,
	    .most_rows = NIB_GEMM_M_MAX,
	};
	return NIB_STATUS_OK;
}

/*
 * The matrices of one launch at constant strides, or 1 for batches up to
 * NIB_GEMM_MATRICES, which a launch has in its table.
 */
static int64_t matrices_at_once(const struct nib_problem *p)
{
	const int64_t batch = nib_fp4_batches(&p->a);
	const int64_t tiles = divide_up(p->a.rows, NIB_GEMM_M_MAX) *
			      divide_up(p->c.cols, NIB_GEMM_B_ROWS / 2);
	const int64_t rows = INT32_MAX / p->a.rows;
	int64_t most = INT32_MAX / tiles < rows ? INT32_MAX / tiles : rows;

	if (batch <= NIB_GEMM_MATRICES)
		return 1;
	if (most < 1)
		most = 1;
	return divide_up(batch, divide_up(batch, most));
}

/* Lists the matrices of all problems that have elements; NULL: counts them. */
static int64_t list_matrices(const struct nib_plan *plan, struct matrix *matrices)
{
	int64_t count = 0;

	for (int64_t i = 0; i < plan->count; i++) {
		const struct nib_problem *p = &plan->problems[i];
		const int64_t batch = nib_fp4_batches(&p->a);
		int64_t each;

		if (!p->a.rows || !p->c.cols)
			continue;
		each = matrices_at_once(p);
		for (int64_t l = 0; l < batch; l += each, count++)
			if (matrices)
				matrices[count] = (struct matrix){
				    .problem = (int32_t)i,
				    .count =
					(int32_t)(batch - l < each ? batch - l : each),
				    .batch = l,
				};
	}
	return count;
}

/* The matrices of the launch that begins at `first`: a batch, or some whose C has one
 * type. */
static int32_t count_matrices(const struct nib_plan *plan, const struct gemm *gemm,
			      int64_t first)
{
	const struct matrix *x = gemm->matrices + first;
	const enum nib_dtype type = plan->problems[x->problem].c.dtype;
	int32_t count = 1;

	while (x->count == 1 && count < NIB_GEMM_MATRICES &&
	       first + count < gemm->n_matrices && x[count].count == 1 &&
	       plan->problems[x[count].problem].c.dtype == type)
		count++;
	return count;
}

/* Divides the workspace into converted A of each matrix, then partial sums. */
static size_t divide_workspace(const struct nib_plan *plan, struct gemm *gemm,
			       struct launch *launch)
{
	const struct nib_problem *problems =
	    plan->is_moe ? &plan->moe.problem : plan->problems;
	size_t bytes = 0;

	for (int32_t i = 0; i < launch->count && launch->is_converted; i++) {
		struct matrix *x = &gemm->matrices[launch->first + i];
		const struct nib_fp4 *a = &problems[x->problem].a;

		x->converted_at = bytes;
		bytes += (size_t)round_up(a->rows * x->count * a->k * A_BYTES, 128);
	}
	launch->partials_at = bytes;
	if (launch->k_slices > 1)
		bytes +=
		    (size_t)launch->k_slices * (gemm->op == NIB_OP_DUAL_GEMM ? 2 : 1) *
		    (size_t)problems[gemm->matrices[launch->first].problem].a.rows *
		    (size_t)launch->partial_stride * sizeof(float);
	return bytes;
}

/* Finishes a launch whose tiles are planned, and adds it to the report of the plan. */
static enum nib_status add_launch(struct cuda_device *device,
				  const struct nib_plan *plan, struct gemm *gemm,
				  struct launch *launch,
				  struct cuda_product_plan *product,
				  struct nib_error *err)
{
	const int32_t stage = NIB_GEMM_STAGE_BYTES(launch->tile_m);
	int32_t tail = NIB_GEMM_TAIL_BYTES;
	size_t bytes;
	char name[32];

	launch->is_converted = nib_plan_activations(plan) == NIB_ACTIVATIONS_NVFP4;
	if (launch->experts)
		tail += NIB_GEMM_EXPERT_BYTES(launch->experts);
	launch->stages = (device->shared_bytes - tail) / stage;
	if (launch->stages > NIB_GEMM_STAGES_MAX)
		launch->stages = NIB_GEMM_STAGES_MAX;
	if (launch->stages < NIB_GEMM_STAGES_MIN)
		return nib_fail(err, NIB_STATUS_UNSUPPORTED,
				"%s: %d bytes of shared memory for a CTA: must be at "
				"least %d",
				device->name, device->shared_bytes,
				NIB_GEMM_STAGES_MIN * stage + tail);
	launch->shared_bytes = launch->stages * stage + tail;
	bytes = divide_workspace(plan, gemm, launch);
	if (bytes > product->workspace_bytes)
		product->workspace_bytes = bytes;
	if (gemm->n_launches == 0) {
		product->tile_m = launch->tile_m;
		product->k_slices = launch->k_slices;
		product->clusters = launch->ctas;
	}
	product->launches = ++gemm->n_launches;
	snprintf(name, sizeof(name), "nib_%s%s",
		 gemm->op == NIB_OP_DUAL_GEMM ? "dual" : "gemm",
		 gemm->is_bf16 ? "_bf16" : "");
	return cuda_kernel(device, name, device->shared_bytes, &launch->multiply, err);
}

/* Cuts the matrices of a launch into tiles. */
static enum nib_status plan_launch(struct cuda_device *device,
				   const struct nib_plan *plan, struct gemm *gemm,
				   struct launch *launch, struct cuda_tile_list *list,
				   struct cuda_product_plan *product,
				   struct nib_error *err)
{
	const struct matrix *x = gemm->matrices + launch->first;
	struct nib_tile_shape shapes[NIB_GEMM_MATRICES];
	const bool is_dual = plan->op == NIB_OP_DUAL_GEMM;
	struct nib_gemm_tile *tiles = NULL;
	struct nib_tile_device clusters;
	struct nib_tile_plan t;
	size_t n_tiles;
	bool has_space;

	launch->is_batch = x->count > 1;
	for (int32_t i = 0; i < launch->count; i++) {
		const struct nib_problem *p = &plan->problems[x[i].problem];

		shapes[i] =
		    (struct nib_tile_shape){(int32_t)p->a.rows, (int32_t)p->c.cols,
					    (int32_t)p->a.k, x[i].count - 1};
	}
	/* A tile has at most half of the rows that nib_tiles_least() assumes. */
	if (nib_tiles_least(shapes, launch->count, is_dual) > INT32_MAX / 2)
		return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED, "problems",
					 ": over 2^30 tiles of c in one launch");
	sm80_clusters(device, &clusters, err);
	if (!nib_tiles_plan(&clusters, shapes, launch->count, is_dual,
			    plan->count == 1 && gemm->n_matrices == 1 && x->count == 1,
			    &t, &tiles))
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory to cut %d matrices into tiles",
				launch->count);
	n_tiles = (size_t)t.rounds * (size_t)t.clusters;
	assert(cuda_tiles_most_m(tiles, (int64_t)n_tiles) <= NIB_GEMM_M_MAX);
	launch->first_tile = list->count;
	launch->tile_rounds = t.rounds;
	launch->ctas = t.clusters;
	launch->k_slices = t.k_slices;
	launch->partial_stride = (int32_t)round_up(shapes->n, 4);
	/* Whole groups of 32 rows, which threads copy at once. */
	launch->tile_m =
	    (int32_t)round_up(cuda_tiles_most_m(tiles, (int64_t)n_tiles), 32);
	has_space = cuda_tiles_append(list, tiles, n_tiles);
	free(tiles);
	if (!has_space)
		return cuda_no_memory(n_tiles * sizeof(*tiles), err);
	product->tasks += t.tiles;
	return add_launch(device, plan, gemm, launch, product, err);
}

static enum nib_status plan_problems(struct cuda_device *device,
				     const struct nib_plan *plan, struct gemm *gemm,
				     struct cuda_tile_list *list,
				     struct cuda_product_plan *product,
				     struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < plan->count && !status; i++)
		if (plan->problems[i].a.rows && plan->problems[i].c.cols)
			status = check_problem("problems", i, plan->op,
					       &plan->problems[i], err);
	if (status)
		return status;
	gemm->n_matrices = list_matrices(plan, NULL);
	gemm->matrices = calloc((size_t)gemm->n_matrices + 1, sizeof(*gemm->matrices));
	gemm->launches = calloc((size_t)gemm->n_matrices + 1, sizeof(*gemm->launches));
	if (!gemm->matrices || !gemm->launches)
		return cuda_no_memory(
		    (size_t)gemm->n_matrices * sizeof(*gemm->launches), err);
	list_matrices(plan, gemm->matrices);
	for (int64_t i = 0; i < gemm->n_matrices && !status;) {
		struct launch *launch = &gemm->launches[gemm->n_launches];

		launch->first = i;
		launch->count = count_matrices(plan, gemm, i);
		i += launch->count;
		status = plan_launch(device, plan, gemm, launch, list, product, err);
	}
	return status;
}

static enum nib_status plan_moe(struct cuda_device *device, const struct nib_plan *plan,
				struct gemm *gemm, struct cuda_product_plan *product,
				struct nib_error *err)
{
	const struct nib_problem *p = &plan->moe.problem;
	const int64_t rows = p->a.rows, experts = plan->count;
	/* Each expert may add a tile. */
	const int64_t tiles =
	    (rows / 32 + experts) * divide_up(p->c.cols, NIB_GEMM_B_ROWS / 2);
	enum nib_status status = check_problem("moe.problem", -1, plan->op, p, err);
	int32_t tile_m;

	if (!status)
		status = cuda_check_experts(experts, rows,
					    tiles > INT32_MAX ? tiles : rows, err);
	if (status || rows == 0 || p->c.cols == 0)
		return status;
	gemm->matrices = calloc(1, sizeof(*gemm->matrices));
	gemm->launches = calloc(1, sizeof(*gemm->launches));
	if (!gemm->matrices || !gemm->launches)
		return cuda_no_memory(sizeof(*gemm->launches), err);
	gemm->matrices->count = 1;
	gemm->n_matrices = 1;
	tile_m = cuda_moe_tile_m(rows, experts, 32);
	*gemm->launches = (struct launch){
	    .count = 1,
	    .experts = (int32_t)experts,
	    .ctas = device->multiprocessors,
	    .tile_m = tile_m < NIB_GEMM_M_MAX ? tile_m : NIB_GEMM_M_MAX,
	    .k_slices = 1,
	};
	return add_launch(device, plan, gemm, gemm->launches, product, err);
}

/* Also after a failure the plan has the state that free_tiles() frees. */
static enum nib_status plan_tiles(struct cuda_device *device,
				  const struct nib_plan *plan,
				  struct cuda_product_plan *product,
				  struct nib_error *err)
{
	static const char *const kernels[2][2] = {
	    {"one kernel", "two kernels (activation conversion, product)"},
	    {"two kernels (product, sum of slices)",
	     "three kernels (activation conversion, product, sum of slices)"},
	};
	struct gemm *gemm = calloc(1, sizeof(*gemm));
	struct cuda_tile_list list = {0};
	const bool is_nvfp4 = nib_plan_activations(plan) == NIB_ACTIVATIONS_NVFP4;
	enum nib_status status;

	product->state = gemm;
	if (!gemm)
		return cuda_no_memory(sizeof(*gemm), err);
	gemm->op = plan->op;
	gemm->is_bf16 = !is_nvfp4 && nib_plan_x_dtype(plan) == NIB_DTYPE_BF16;
	product->most_matrices = NIB_GEMM_MATRICES;
	status = plan->is_moe ? plan_moe(device, plan, gemm, product, err)
			      : plan_problems(device, plan, gemm, &list, product, err);
	product->kernels = kernels[product->k_slices > 1][is_nvfp4];
	if (!status)
		status =
		    cuda_kernel(device, "nib_gemm_convert", 0, &gemm->convert, err);
	if (!status)
		status = cuda_kernel(device, "nib_gemm_reduce", 0, &gemm->reduce, err);
	if (!status)
		status = cuda_tiles_upload(device, &list, &gemm->tiles_data, err);
	free(list.tiles);
	return status;
}

static void free_tiles(struct nib_device *device, struct cuda_product_plan *product)
{
	struct gemm *gemm = product->state;

	if (!gemm)
		return;
	if (gemm->tiles_data)
		cuda_free(device, (void *)(uintptr_t)gemm->tiles_data);
	free(gemm->matrices);
	free(gemm->launches);
	free(gemm);
}

/* ---- launches -------------------------------------------------------------- */

/* Limits of alignment of a matrix of weights; tiled: its flag if scales are tiled. */
static int32_t weight_flags(const struct nib_fp4 *b, int32_t tiled)
{
	const bool is_stack = nib_fp4_batches(b) > 1;
	uint64_t codes = (uintptr_t)b->codes, scales = (uintptr_t)b->scales;
	int32_t flags = 0;

	codes |= (uint64_t)nib_fp4_row_stride_bytes(b);
	scales |= (uint64_t)nib_fp4_scale_row_stride_bytes(b);
	if (is_stack) {
		codes |= (uint64_t)nib_fp4_batch_stride_bytes(b);
		scales |= (uint64_t)nib_fp4_scale_batch_stride_bytes(b);
	}
	if (codes % 16)
		flags |= NIB_B_CODES_BY_8;
	if (b->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		flags |= tiled;
	else if (scales % 4)
		flags |= NIB_B_SCALES_BY_1;
	return flags;
}

static int32_t output_flags(const struct nib_dense *c)
{
	const int64_t size = (int64_t)nib_dtype_bytes(c->dtype);
	const int64_t row = nib_dense_row_stride_elems(c) * size;
	const int64_t batch = c->batch > 1 ? nib_dense_batch_stride_elems(c) * size : 0;

	return row % 16 == 0 && batch % 16 == 0 ? NIB_C_BY_16 : 0;
}

/* Matrix l of a stack of weights. */
static const uint8_t *codes_of(const struct nib_fp4 *b, int64_t l)
{
	const int64_t matrix = nib_fp4_batches(b) > 1 ? l : 0;

	return nib_offset_bytes(b->codes, matrix * nib_fp4_batch_stride_bytes(b));
}

static const uint8_t *scales_of(const struct nib_fp4 *b, int64_t l)
{
	const int64_t matrix = nib_fp4_batches(b) > 1 ? l : 0;

	return nib_offset_bytes(b->scales,
				matrix * nib_fp4_scale_batch_stride_bytes(b));
}

/* converted: A of the matrix in the workspace, or NULL if A is dense. */
static struct nib_gemm_matrix make_matrix(enum nib_op op, const struct nib_problem *p,
					  int64_t l, const uint8_t *converted)
{
	const int64_t size = (int64_t)nib_dtype_bytes(p->c.dtype);
	int32_t tiled = NIB_B_TILED;
	struct nib_gemm_matrix x = {
	    .a = converted ? converted : nib_dense_at(&p->x, l, 0, 0),
	    .a_stride = converted ? p->a.k * A_BYTES
				  : nib_dense_row_stride_elems(&p->x) * A_BYTES,
	    .b = codes_of(&p->b, l),
	    .b_scales = scales_of(&p->b, l),
	    .b_stride = nib_fp4_row_stride_bytes(&p->b),
	    .b_scale_stride = nib_fp4_scale_row_stride_bytes(&p->b),
	    .c = nib_offset_bytes(p->c.data,
				  l * nib_dense_batch_stride_elems(&p->c) * size),
	    .c_stride = nib_dense_row_stride_elems(&p->c),
	    .alpha = p->alpha,
	    .m = (int32_t)p->a.rows,
	    .n = (int32_t)p->c.cols,
	    .k = (int32_t)p->a.k,
	    .flags = weight_flags(&p->b, NIB_B_TILED) | output_flags(&p->c),
	};

	if (op == NIB_OP_DUAL_GEMM) {
		x.b2 = codes_of(&p->b2, l);
		x.b2_scales = scales_of(&p->b2, l);
		x.b2_stride = nib_fp4_row_stride_bytes(&p->b2);
		x.b2_scale_stride = nib_fp4_scale_row_stride_bytes(&p->b2);
		x.alpha2 = p->alpha2;
		x.flags |= weight_flags(&p->b2, NIB_B2_TILED);
		tiled |= NIB_B2_TILED;
	}
	if ((x.flags & (tiled | NIB_B_CODES_BY_8)) == tiled)
		x.flags |= NIB_B_BY_16;
	return x;
}

/* Strides from one matrix of a stack to the next; 0 if a batch has only one. */
static void set_strides(const struct launch *launch, const struct nib_problem *p,
			struct nib_gemm_batch *s)
{
	if (launch->experts || nib_fp4_batches(&p->b) > 1) {
		s->b = nib_fp4_batch_stride_bytes(&p->b);
		s->b_scales = nib_fp4_scale_batch_stride_bytes(&p->b);
	}
	if (launch->experts || nib_fp4_batches(&p->b2) > 1) {
		s->b2 = nib_fp4_batch_stride_bytes(&p->b2);
		s->b2_scales = nib_fp4_scale_batch_stride_bytes(&p->b2);
	}
	s->a = launch->is_converted ? p->a.rows * p->a.k * A_BYTES
				    : nib_dense_batch_stride_elems(&p->x) * A_BYTES;
	s->c =
	    nib_dense_batch_stride_elems(&p->c) * (int64_t)nib_dtype_bytes(p->c.dtype);
}

/* problems: those of the run; the stacks of an MoE problem are one problem. */
static void make_args(const struct gemm *gemm, const struct launch *launch,
		      const struct nib_problem *problems, const struct nib_run *run,
		      struct nib_gemm_args *args)
{
	const struct matrix *x = gemm->matrices + launch->first;
	uint8_t *workspace = run->workspace;

	*args = (struct nib_gemm_args){
	    .tiles = (const struct nib_gemm_tile *)(uintptr_t)gemm->tiles_data +
		     launch->first_tile,
	    .tile_rounds = launch->tile_rounds,
	    .count = launch->count,
	    .dtype = (int32_t)problems[x->problem].c.dtype,
	    .stages = launch->stages,
	    .stage_bytes = NIB_GEMM_STAGE_BYTES(launch->tile_m),
	    .tile_m = launch->tile_m,
	    .k_slices = launch->k_slices,
	    .partial_stride = launch->partial_stride,
	    .is_batch = launch->is_batch,
	    .experts = launch->experts,
	};
	if (launch->k_slices > 1)
		args->partials = (float *)(workspace + launch->partials_at);
	for (int32_t i = 0; i < launch->count; i++) {
		const struct nib_problem p = cuda_unpacked(&problems[x[i].problem]);

		args->matrices[i] = make_matrix(
		    gemm->op, &p, x[i].batch,
		    launch->is_converted ? workspace + x[i].converted_at : NULL);
		if (launch->is_batch || launch->experts)
			set_strides(launch, &p, &args->batch);
	}
	if (run->moe) {
		args->rows = (int32_t)problems->a.rows;
		args->row_offsets = run->moe->row_offsets;
	}
}

static enum nib_status launch_convert(const struct cuda_device *device,
				      const struct gemm *gemm,
				      const struct launch *launch,
				      const struct nib_problem *problems,
				      const struct nib_run *run, struct nib_error *err)
{
	const struct matrix *x = gemm->matrices + launch->first;
	struct nib_convert_args args = {
	    .count = launch->count,
	    .is_batch = launch->is_batch,
	    .experts = launch->experts,
	};
	void *arguments[] = {&args};
	CUlaunchConfig config = {
	    .blockDimX = NIB_CONVERT_THREADS,
	    .hStream = run->stream,
	};
	int64_t pieces = 1;

	for (int32_t i = 0; i < launch->count; i++) {
		const struct nib_fp4 *a = &problems[x[i].problem].a;

		args.matrices[i] = (struct nib_convert_matrix){
		    .codes = nib_offset_bytes(
			a->codes, x[i].batch * nib_fp4_batch_stride_bytes(a)),
		    .scales = nib_offset_bytes(
			a->scales, x[i].batch * nib_fp4_scale_batch_stride_bytes(a)),
		    .to = (uint8_t *)run->workspace + x[i].converted_at,
		    .stride = nib_fp4_row_stride_bytes(a),
		    .scale_stride = nib_fp4_scale_row_stride_bytes(a),
		    .first_row = args.rows,
		    .m = (int32_t)a->rows,
		    .k = (int32_t)a->k,
		    .is_tiled = a->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4,
		};
		args.batch_stride = nib_fp4_batch_stride_bytes(a);
		args.batch_scale_stride = nib_fp4_scale_batch_stride_bytes(a);
		args.rows += (int32_t)a->rows * x[i].count;
		if (a->k / 8 > pieces)
			pieces = a->k / 8;
	}
	if (run->moe && run->moe->scale_rows) {
		args.row_offsets = run->moe->row_offsets;
		args.scale_rows = run->moe->scale_rows;
		args.scale_rows_total = (int32_t)run->moe->scale_rows_total;
	}
	config.gridDimX = (unsigned)args.rows;
	config.gridDimY = (unsigned)divide_up(pieces, NIB_CONVERT_PIECES);
	return cuda_launch(device, gemm->convert, config, arguments, err);
}

static enum nib_status launch_reduce(const struct cuda_device *device,
				     const struct gemm *gemm,
				     const struct launch *launch,
				     struct nib_gemm_args *args, void *stream,
				     struct nib_error *err)
{
	int is_dual = gemm->op == NIB_OP_DUAL_GEMM;
	float up = gemm->is_bf16 ? NIB_SUM_SCALE_BF16 : NIB_SUM_SCALE_F16;
	void *arguments[] = {args, &is_dual, &up};
	const int64_t threads =
	    (int64_t)args->matrices->m * (launch->partial_stride / 4);
	const CUlaunchConfig config = {
	    .gridDimX = (unsigned)divide_up(threads, NIB_REDUCE_THREADS),
	    .blockDimX = NIB_REDUCE_THREADS,
	    .hStream = stream,
	};

	return cuda_launch(device, gemm->reduce, config, arguments, err);
}

static enum nib_status launch_tiles(const struct cuda_device *device,
				    const struct cuda_product_plan *product,
				    const struct nib_run *run, struct nib_error *err)
{
	const struct gemm *gemm = product->state;
	const struct nib_problem *problems =
	    run->moe ? &run->moe->problem : run->problems;
	/* The launch copies its parameters. */
	struct nib_gemm_args args;
	void *arguments[] = {&args};
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < gemm->n_launches && !status; i++) {
		const struct launch *launch = &gemm->launches[i];
		const CUlaunchConfig config = {
		    .gridDimX = (unsigned)launch->ctas,
		    .blockDimX = NIB_GEMM_THREADS,
		    .sharedMemBytes = (unsigned)launch->shared_bytes,
		    .hStream = run->stream,
		};

		make_args(gemm, launch, problems, run, &args);
		if (launch->is_converted)
			status =
			    launch_convert(device, gemm, launch, problems, run, err);
		if (!status)
			status = cuda_launch(device, launch->multiply, config,
					     arguments, err);
		if (!status && launch->k_slices > 1)
			status = launch_reduce(device, gemm, launch, &args, run->stream,
					       err);
	}
	return status;
}

const struct cuda_product sm80_tiles = {plan_tiles, launch_tiles, free_tiles};
