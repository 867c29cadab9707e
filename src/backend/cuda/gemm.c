/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - plans of the tiled multiplication; see gemm.h. */
#include "gemm.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "format/view.h"

/* Rows at which the tiles of a pair of CTAs end are int32_t in the kernels, and
 * some are looked at one tile ahead. */
#define ROWS_MAX (INT32_MAX - 4 * NIB_TILE_N + 1)

static int64_t round_up(int64_t a, int64_t step)
{
	return divide_up(a, step) * step;
}

static enum nib_status no_memory(size_t bytes, struct nib_error *err)
{
	return nib_fail(err, NIB_OUT_OF_MEMORY,
			"no memory for a plan (%zu bytes)", bytes);
}

/* ---- shapes -------------------------------------------------------------- */

static int32_t code_flags(const struct nib_nvfp4 *b)
{
	uint64_t x = (uint64_t)nib_nvfp4_row_stride_bytes(b);

	if (nib_nvfp4_batches(b) > 1)
		x |= (uint64_t)nib_nvfp4_batch_stride_bytes(b);
	return x % 16 == 0 ? 0 : NIB_B_CODES_BY_8;
}

/* The kernels read rows of codes by 8 bytes at least. */
static enum nib_status check_strides(const struct nib_nvfp4 *v,
				     struct nib_label label,
				     struct nib_error *err)
{
	const int64_t row = nib_nvfp4_row_stride_bytes(v);
	const int64_t batch =
	    nib_nvfp4_batches(v) > 1 ? nib_nvfp4_batch_stride_bytes(v) : 0;

	if (row % 8 != 0 || batch % 8 != 0)
		return nib_fail_at(
		    err, NIB_UNSUPPORTED, label, "",
		    ": row_stride_bytes = %lld, "
		    "batch_stride_bytes = %lld: must be multiples "
		    "of 8 on a GPU",
		    (long long)row, (long long)batch);
	if (v->rows > ROWS_MAX)
		return nib_fail_at(err, NIB_UNSUPPORTED, label, "",
				   ": rows = %lld: at most 2^31 - 512 on a GPU",
				   (long long)v->rows);
	return NIB_OK;
}

/* Tiled scales of weights come by 8 bytes, in every matrix of a stack. */
static enum nib_status check_weights(const struct nib_nvfp4 *b,
				     struct nib_label label,
				     struct nib_error *err)
{
	const int64_t batch = nib_nvfp4_scale_batch_stride_bytes(b);

	if (b->scale_layout == NIB_TILED_128X4 && nib_nvfp4_batches(b) > 1 &&
	    batch % 8 != 0)
		return nib_fail_at(err, NIB_UNSUPPORTED, label, "",
				   ": scale_batch_stride_bytes = %lld: must be "
				   "a multiple of 8 in tiles on a GPU",
				   (long long)batch);
	return check_strides(b, label, err);
}

static int32_t output_flags(const struct nib_dense *c)
{
	const int64_t size = (int64_t)nib_dtype_bytes(c->dtype);
	const int64_t row = nib_dense_row_stride_elems(c) * size;
	const int64_t batch =
	    c->batch > 1 ? nib_dense_batch_stride_elems(c) * size : 0;

	return row % 16 == 0 && batch % 16 == 0 ? NIB_C_BY_16 : 0;
}

static enum nib_status
make_shape(const char *array, int64_t index, const struct nib_nvfp4 *a,
	   const struct nib_nvfp4 *b, const struct nib_nvfp4 *b2,
	   const struct nib_dense *c, struct nib_gemm_shape *s,
	   struct nib_error *err)
{
	enum nib_status status =
	    check_strides(a, nib_label_of(array, index, "a"), err);

	if (!status)
		status = check_weights(b, nib_label_of(array, index, "b"), err);
	if (!status && b2)
		status =
		    check_weights(b2, nib_label_of(array, index, "b2"), err);
	if (status)
		return status;
	*s = (struct nib_gemm_shape){
	    .m = (int32_t)a->rows,
	    .n = (int32_t)b->rows,
	    .k = (int32_t)b->k,
	    .flags = code_flags(b) | output_flags(c),
	    .a_stride_bytes = nib_nvfp4_row_stride_bytes(a),
	    .a_scale_stride_bytes = nib_nvfp4_scale_row_stride_bytes(a),
	    .b_stride_bytes = nib_nvfp4_row_stride_bytes(b),
	    .b_scale_stride_bytes = nib_nvfp4_scale_row_stride_bytes(b),
	    .c_stride_elems = nib_dense_row_stride_elems(c),
	};
	if (a->scale_layout == NIB_TILED_128X4)
		s->flags |= NIB_A_TILED;
	if (b->scale_layout == NIB_TILED_128X4)
		s->flags |= NIB_B_TILED;
	if (!b2)
		return NIB_OK;
	s->b2_stride_bytes = nib_nvfp4_row_stride_bytes(b2);
	s->b2_scale_stride_bytes = nib_nvfp4_scale_row_stride_bytes(b2);
	s->flags |= code_flags(b2);
	if (b2->scale_layout == NIB_TILED_128X4)
		s->flags |= NIB_B2_TILED;
	return NIB_OK;
}

/* ---- workspace ----------------------------------------------------------- */

static int64_t stages_of(int64_t k)
{
	return divide_up(k, NIB_WEIGHT_STAGE_K);
}

/*
 * Bytes of converted activations: whole atoms of 8 rows, whole weight stages of
 * k.
 */
static size_t activation_bytes(int64_t atoms, int64_t k)
{
	const int64_t stages = stages_of(k);

	return (size_t)(atoms * 8 * 2 * NIB_WEIGHT_STAGE_K *
			(stages ? stages : 1));
}

/*
 * Bytes of the split-k partials of a tile and slice, of both CTAs of the pair.
 */
static size_t partials_bytes(int32_t tile_m)
{
	return (size_t)NIB_GEMM_PAIR * (size_t)NIB_GEMM_PARTIALS(tile_m) *
	       sizeof(float);
}

/* A workspace: converted activations, split-k partials, and arrival counts. */
static size_t chunk_bytes(const struct gemm_chunk *chunk)
{
	return activation_bytes(chunk->args.a_atoms, chunk->most_k) +
	       chunk->partials_bytes +
	       (size_t)chunk->args.n_arrivals * sizeof(uint32_t);
}

void cuda_gemm_set_workspace(const struct gemm_chunk *chunk, void *workspace,
			     struct nib_gemm_args *args)
{
	uint8_t *at = workspace;

	args->activations = at;
	at += activation_bytes(chunk->args.a_atoms, chunk->most_k);
	args->partials = (float *)at;
	args->arrivals = (uint32_t *)(at + chunk->partials_bytes);
}

/* ---- rings --------------------------------------------------------------- */

/* Stages of a ring that fit into so many bytes. */
static int32_t stages_in(int32_t bytes, int32_t stage_bytes, int32_t most)
{
	return bytes / stage_bytes < most ? bytes / stage_bytes : most;
}

/*
 * As many activation stages as cover the latency of a warm L2 and fit beside
 * three weight stages; what is left goes to weights, which come from memory.
 */
static void choose_rings(int32_t capacity, int32_t a_steps,
			 struct nib_gemm_args *args)
{
	const int32_t stages = NIB_WEIGHT_STAGE_STEPS / a_steps;
	const int32_t stage = args->tile_m * NIB_STEP_K * 2 * a_steps;

	args->a_stage_bytes = stage;
	args->a_stages = stages_in(capacity - 3 * NIB_WEIGHT_STAGE_BYTES, stage,
				   NIB_GEMM_STAGES_MAX / a_steps) /
			 stages * stages;
	args->weight_stages =
	    stages_in(capacity - args->a_stages * stage, NIB_WEIGHT_STAGE_BYTES,
		      NIB_GEMM_STAGES_MAX);
}

/*
 * Four weight stages: with more, a launch asks for so much at once that its
 * activations come late; with three, both pairs of warpgroups wait (note 0038).
 * MoE is longer: more stages win more than late activations lose.
 *
 * At least as many activation stages as weight stages. A pair waits for an
 * activation stage once the weights of the same item are there, so that those
 * of `weight_stages` items before were released and their activations read.
 * With fewer activation stages a pair could take one barrier phase for another,
 * and with two both pairs would wait for ever.
 */
static void choose_small_m_rings(int32_t capacity, struct nib_gemm_args *args)
{
	args->a_stage_bytes = args->tile_m * NIB_WEIGHT_STAGE_K * 2;
	args->weight_stages = args->experts ? 5 : 4;
	args->a_stages =
	    stages_in(capacity - args->weight_stages * NIB_WEIGHT_STAGE_BYTES,
		      args->a_stage_bytes, 8);
}

/*
 * The kernel and the ring stages of a chunk whose tiles have at most tile_m
 * rows of A. may_alternate: each tile has two weight stages or more, so that
 * two pairs of warpgroups may alternate them.
 */
static void choose_kernel(const struct cuda_device *device, int32_t tile_m,
			  bool may_alternate, struct gemm_chunk *chunk)
{
	struct nib_gemm_args *args = &chunk->args;
	int32_t tail = NIB_GEMM_TAIL_BYTES;
	int32_t capacity = device->shared_bytes;

	chunk->a_steps = may_alternate && tile_m <= NIB_SMALL_M_MAX
			     ? NIB_SMALL_M_STEPS
			 : tile_m <= NIB_MEDIUM_M_MAX ? NIB_MEDIUM_M_STEPS
						      : NIB_LARGE_M_STEPS;
	args->tile_m = tile_m;
	if (chunk->a_steps == NIB_SMALL_M_STEPS) {
		tail += NIB_SMALL_M_EXCHANGE_BYTES(tile_m);
		choose_small_m_rings(capacity - tail, args);
	} else {
		choose_rings(capacity - tail, chunk->a_steps, args);
	}
	chunk->shared_bytes = args->a_stages * args->a_stage_bytes +
			      args->weight_stages * NIB_WEIGHT_STAGE_BYTES +
			      tail;
}

/* ---- plans --------------------------------------------------------------- */

/*
 * The tiles of all chunks while a plan is made; one allocation on the device.
 */
struct tile_list {
	struct nib_gemm_tile *tiles;
	size_t count, capacity;
};

static bool append(struct tile_list *list, const struct nib_gemm_tile *tiles,
		   size_t count)
{
	if (list->count + count > list->capacity) {
		const size_t capacity = 2 * (list->count + count);
		struct nib_gemm_tile *more =
		    realloc(list->tiles, capacity * sizeof(*more));

		if (!more)
			return false;
		list->tiles = more;
		list->capacity = capacity;
	}
	if (count)
		memcpy(list->tiles + list->count, tiles,
		       count * sizeof(*tiles));
	list->count += count;
	return true;
}

/* Pairs of CTAs that run at once. */
static enum nib_status count_clusters(const struct cuda_device *device,
				      CUfunction function, int32_t shared_bytes,
				      struct nib_tile_device *out,
				      struct nib_error *err)
{
	CUlaunchAttribute attribute;
	CUlaunchConfig config;
	int clusters = 0;
	CUresult result;

	memset(&attribute, 0, sizeof(attribute));
	memset(&config, 0, sizeof(config));
	attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attribute.value.clusterDim.x = NIB_GEMM_PAIR;
	attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
	config.gridDimX = NIB_GEMM_PAIR;
	config.gridDimY = config.gridDimZ = 1;
	config.blockDimX = NIB_GEMM_THREADS;
	config.blockDimY = config.blockDimZ = 1;
	config.sharedMemBytes = (unsigned)shared_bytes;
	config.attrs = &attribute;
	config.numAttrs = 1;
	result = device->driver->cuOccupancyMaxActiveClusters(
	    &clusters, function, &config);
	if (result)
		return cuda_fail(device->driver, result, device->name, err);
	if (clusters < 1)
		return nib_fail(err, NIB_DEVICE_FAILED,
				"%s: not one pair of blocks with %d bytes of "
				"shared memory fits",
				device->name, shared_bytes);
	out->clusters =
	    clusters < NIB_GEMM_CLUSTERS ? clusters : NIB_GEMM_CLUSTERS;
	return NIB_OK;
}

static enum nib_status find_multiply(struct cuda_device *device, enum nib_op op,
				     int32_t a_steps, CUfunction *function,
				     struct nib_error *err)
{
	const bool dual = op == NIB_DUAL_GEMM;
	const char *name;

	switch (a_steps) {
	case NIB_SMALL_M_STEPS:
		name = dual ? "nib_dual_small_m_sm90" : "nib_gemm_small_m_sm90";
		break;
	case NIB_MEDIUM_M_STEPS:
		name =
		    dual ? "nib_dual_medium_m_sm90" : "nib_gemm_medium_m_sm90";
		break;
	default:
		name = dual ? "nib_dual_sm90" : "nib_gemm_sm90";
	}
	return cuda_kernel(device, name, device->shared_bytes, function, err);
}

static enum nib_status find_kernels(struct cuda_device *device,
				    struct cuda_gemm *gemm,
				    struct nib_error *err)
{
	enum nib_status status = cuda_kernel(device, "nib_activations_sm90",
					     cuda_activations_shared(device),
					     &gemm->activations, err);

	for (int64_t i = 0; i < gemm->n_chunks && !status; i++) {
		struct gemm_chunk *chunk = &gemm->chunks[i];

		status = find_multiply(device, gemm->op, chunk->a_steps,
				       &chunk->multiply, err);
	}
	return status;
}

/* The matrices of all problems that have elements. */
static enum nib_status list_matrices(const struct nib_plan *plan,
				     struct cuda_gemm *gemm,
				     struct nib_error *err)
{
	int64_t count = 0;

	for (int64_t i = 0; i < plan->count; i++)
		if (plan->problems[i].a.rows && plan->problems[i].c.cols)
			count += nib_nvfp4_batches(&plan->problems[i].a);
	gemm->matrices = calloc((size_t)count + 1, sizeof(*gemm->matrices));
	if (!gemm->matrices)
		return no_memory((size_t)count * sizeof(*gemm->matrices), err);
	for (int64_t i = 0; i < plan->count; i++) {
		const struct nib_problem *p = &plan->problems[i];

		if (!p->a.rows || !p->c.cols)
			continue;
		for (int64_t l = 0; l < nib_nvfp4_batches(&p->a); l++)
			gemm->matrices[gemm->n_matrices++] =
			    (struct gemm_matrix){(int32_t)i, (int32_t)l};
	}
	return NIB_OK;
}

/* Fills the shapes of a chunk's matrices, and its rows, atoms and k. */
static enum nib_status chunk_shapes(const struct nib_plan *plan,
				    const struct cuda_gemm *gemm,
				    struct gemm_chunk *chunk,
				    struct nib_tile_shape *tile_shapes,
				    struct nib_error *err)
{
	int64_t rows = 0, padded = 0, tiles;

	for (int32_t i = 0; i < chunk->args.count; i++) {
		const struct gemm_matrix *x = &gemm->matrices[chunk->first + i];
		const struct nib_problem *p = &plan->problems[x->problem];
		struct nib_gemm_shape *s = &chunk->args.shapes[i];
		enum nib_status status =
		    make_shape("problems", x->problem, &p->a,
			       cuda_weights(&p->b, p->b_packed),
			       plan->op == NIB_DUAL_GEMM
				   ? cuda_weights(&p->b2, p->b2_packed)
				   : NULL,
			       &p->c, s, err);

		if (status)
			return status;
		s->first_row = (int32_t)padded;
		rows += s->m;
		/* A tile of over 128 rows reads whole steps of 32. */
		padded += round_up(s->m, s->m > 128 ? 2 * NIB_TILE_M_STEP
						    : NIB_TILE_M_STEP);
		if (padded > INT32_MAX)
			return nib_fail_argument(err, NIB_UNSUPPORTED,
						 "problems",
						 ": over 2^31 rows of a in one "
						 "launch");
		if (s->k > chunk->most_k)
			chunk->most_k = s->k;
		tile_shapes[i] = (struct nib_tile_shape){s->m, s->n, s->k};
		chunk->args.dtype = (int32_t)p->c.dtype;
	}
	chunk->args.rows = (int32_t)rows;
	chunk->args.a_atoms = padded / 8;
	tiles = nib_tiles_least(tile_shapes, chunk->args.count,
				plan->op == NIB_DUAL_GEMM);
	if (tiles > INT32_MAX)
		return nib_fail_argument(err, NIB_UNSUPPORTED, "problems",
					 ": %lld tiles of c, at most 2^31 - 1 "
					 "in one launch",
					 (long long)tiles);
	return NIB_OK;
}

/* Types of c may differ within a plan, not within a launch. */
static int32_t chunk_count(const struct nib_plan *plan,
			   const struct cuda_gemm *gemm, int64_t first)
{
	const enum nib_dtype dtype =
	    plan->problems[gemm->matrices[first].problem].c.dtype;
	int32_t count = 0;

	while (count < NIB_GEMM_PROBLEMS && first + count < gemm->n_matrices &&
	       plan->problems[gemm->matrices[first + count].problem].c.dtype ==
		   dtype)
		count++;
	return count;
}

static int32_t most_m(const struct nib_gemm_tile *tiles, int64_t count)
{
	int32_t most = NIB_TILE_M_STEP;

	for (int64_t i = 0; i < count; i++)
		if (tiles[i].rows > most)
			most = tiles[i].rows;
	return most;
}

static enum nib_status plan_chunk(const struct cuda_device *device,
				  const struct nib_plan *plan,
				  const struct nib_tile_device *clusters,
				  struct cuda_gemm *gemm,
				  struct gemm_chunk *chunk,
				  struct tile_list *list, struct nib_error *err)
{
	struct nib_tile_shape tile_shapes[NIB_GEMM_PROBLEMS];
	struct nib_gemm_tile *tiles = NULL;
	struct nib_tile_plan t;
	size_t bytes, n_tiles;
	const bool is_alone = plan->count == 1 && gemm->n_matrices == 1;
	bool has_space;
	enum nib_status status =
	    chunk_shapes(plan, gemm, chunk, tile_shapes, err);

	if (status)
		return status;
	if (!nib_tiles_plan(clusters, tile_shapes, chunk->args.count,
			    plan->op == NIB_DUAL_GEMM, is_alone, &t, &tiles))
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory to cut %d matrices into tiles",
				chunk->args.count);
	n_tiles = (size_t)t.rounds * (size_t)t.clusters;
	chunk->first_tile = list->count;
	has_space = append(list, tiles, n_tiles);
	/*
	 * Never for a group: the small-m kernel adds in another order, and a
	 * matrix of a group must have the bits of any other group.
	 */
	choose_kernel(device, most_m(tiles, (int64_t)n_tiles),
		      is_alone && stages_of(chunk->most_k) / t.k_slices >= 2,
		      chunk);
	if (n_tiles)
		memcpy(chunk->args.first, tiles,
		       (size_t)t.clusters * sizeof(*tiles));
	free(tiles);
	if (!has_space)
		return no_memory(n_tiles * sizeof(*tiles), err);
	chunk->args.tile_rounds = t.rounds;
	chunk->args.k_slices = t.k_slices;
	if (t.k_slices > 1) {
		chunk->args.n_arrivals =
		    (int32_t)(t.tiles / t.k_slices) * NIB_GEMM_PAIR;
		chunk->partials_bytes =
		    (size_t)t.tiles * partials_bytes(chunk->args.tile_m);
	}
	chunk->clusters = t.clusters;
	bytes = chunk_bytes(chunk);
	if (bytes > gemm->workspace_bytes)
		gemm->workspace_bytes = bytes;
	gemm->tiles += t.tiles;
	if (gemm->n_chunks == 0) {
		gemm->tile_m = chunk->args.tile_m;
		gemm->k_slices = t.k_slices;
		gemm->clusters = t.clusters;
	}
	gemm->n_chunks++;
	return NIB_OK;
}

static enum nib_status
plan_chunks(const struct cuda_device *device, const struct nib_plan *plan,
	    const struct nib_tile_device *clusters, struct cuda_gemm *gemm,
	    struct tile_list *list, struct nib_error *err)
{
	int64_t count = 0;
	enum nib_status status = list_matrices(plan, gemm, err);

	if (status)
		return status;
	for (int64_t i = 0; i < gemm->n_matrices;
	     i += chunk_count(plan, gemm, i))
		count++;
	gemm->chunks = calloc((size_t)count + 1, sizeof(*gemm->chunks));
	if (!gemm->chunks)
		return no_memory((size_t)count * sizeof(*gemm->chunks), err);
	for (int64_t i = 0; i < gemm->n_matrices && !status;) {
		struct gemm_chunk *chunk = &gemm->chunks[gemm->n_chunks];

		chunk->first = i;
		chunk->args.count = chunk_count(plan, gemm, i);
		i += chunk->args.count;
		status =
		    plan_chunk(device, plan, clusters, gemm, chunk, list, err);
	}
	return status;
}

/*
 * Rows of A of an MoE tile: half as many again as an average expert has, since
 * only the device knows the experts' shares.
 */
static int32_t moe_tile_m(int64_t rows, int64_t experts)
{
	const int64_t fair = 3 * rows / (2 * experts);

	for (int32_t m = 32; m < NIB_TILE_M_MAX; m *= 2)
		if (fair <= m)
			return m;
	return NIB_TILE_M_MAX;
}

static enum nib_status plan_moe(const struct cuda_device *device,
				const struct nib_plan *plan,
				const struct nib_tile_device *clusters,
				struct cuda_gemm *gemm, struct nib_error *err)
{
	const struct nib_moe_problem *moe = &plan->moe;
	const bool dual = plan->op == NIB_DUAL_GEMM;
	const struct nib_nvfp4 *b = cuda_weights(&moe->b, moe->b_packed);
	const struct nib_nvfp4 *b2 =
	    dual ? cuda_weights(&moe->b2, moe->b2_packed) : NULL;
	const int64_t experts = plan->count, rows = moe->a.rows;
	const int64_t padded =
	    round_up(rows, 16) + 16 * (experts < rows ? experts : rows);
	struct nib_gemm_shape shape;
	struct gemm_chunk *chunk;
	enum nib_status status =
	    make_shape("moe", -1, &moe->a, b, b2, &moe->c, &shape, err);

	if (status)
		return status;
	if (experts > NIB_GEMM_EXPERTS || padded > INT32_MAX)
		return nib_fail_argument(
		    err, NIB_UNSUPPORTED, "moe",
		    ": %lld experts, %lld rows: at most %d "
		    "experts and 2^31 - 16385 rows on a GPU",
		    (long long)experts, (long long)rows, NIB_GEMM_EXPERTS);
	if (rows == 0 || shape.n == 0)
		return NIB_OK;
	chunk = gemm->chunks = calloc(1, sizeof(*chunk));
	if (!chunk)
		return no_memory(sizeof(*chunk), err);
	chunk->args.shapes[0] = shape;
	chunk->args.count = 1;
	chunk->args.rows = (int32_t)rows;
	chunk->args.a_atoms = padded / 8;
	chunk->args.dtype = (int32_t)moe->c.dtype;
	chunk->args.k_slices = 1;
	chunk->args.experts = (int32_t)experts;
	chunk->args.b_batch_bytes = nib_nvfp4_batch_stride_bytes(b);
	chunk->args.b_scale_batch_bytes = nib_nvfp4_scale_batch_stride_bytes(b);
	if (dual) {
		chunk->args.b2_batch_bytes = nib_nvfp4_batch_stride_bytes(b2);
		chunk->args.b2_scale_batch_bytes =
		    nib_nvfp4_scale_batch_stride_bytes(b2);
	}
	chunk->clusters = clusters->clusters;
	chunk->most_k = shape.k;
	choose_kernel(device, moe_tile_m(rows, experts),
		      stages_of(shape.k) >= 2, chunk);
	gemm->workspace_bytes = chunk_bytes(chunk);
	gemm->tile_m = chunk->args.tile_m;
	gemm->k_slices = 1;
	gemm->clusters = chunk->clusters;
	gemm->n_chunks = 1;
	return NIB_OK;
}

/* The tiles to the device. */
static enum nib_status upload_tiles(const struct cuda_device *device,
				    const struct tile_list *list,
				    struct cuda_gemm *gemm,
				    struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	const size_t bytes = list->count * sizeof(*list->tiles);
	CUresult result;

	if (list->count == 0)
		return NIB_OK;
	result = cuda_memory_alloc(cu, &gemm->tiles_data, bytes);
	if (!result)
		result =
		    cu->cuMemcpy(gemm->tiles_data,
				 (CUdeviceptr)(uintptr_t)list->tiles, bytes);
	if (result)
		return cuda_fail(cu, result, device->name, err);
	for (int64_t i = 0; i < gemm->n_chunks; i++)
		gemm->chunks[i].args.tiles =
		    (const struct nib_gemm_tile *)(uintptr_t)gemm->tiles_data +
		    gemm->chunks[i].first_tile;
	return NIB_OK;
}

/*
 * Asks for the kernel that takes all tiles; the others have as much shared
 * memory.
 */
enum nib_status cuda_gemm_clusters(struct cuda_device *device,
				   struct nib_tile_device *clusters,
				   struct nib_error *err)
{
	CUfunction multiply;
	enum nib_status status =
	    find_multiply(device, NIB_GEMM, NIB_LARGE_M_STEPS, &multiply, err);

	*clusters = (struct nib_tile_device){.costs = &device->costs};
	return status ? status
		      : count_clusters(device, multiply, device->shared_bytes,
				       clusters, err);
}

enum nib_status cuda_gemm_plan(struct cuda_device *device,
			       const struct nib_plan *plan,
			       struct cuda_gemm *gemm, struct nib_error *err)
{
	struct nib_tile_device clusters;
	struct tile_list list = {0};
	enum nib_status status;

	gemm->op = plan->op;
	status = cuda_gemm_clusters(device, &clusters, err);
	if (!status)
		status = plan->is_moe
			     ? plan_moe(device, plan, &clusters, gemm, err)
			     : plan_chunks(device, plan, &clusters, gemm, &list,
					   err);
	if (!status)
		status = find_kernels(device, gemm, err);
	if (!status)
		status = upload_tiles(device, &list, gemm, err);
	free(list.tiles);
	return status;
}

void cuda_gemm_free(struct nib_device *device, struct cuda_gemm *gemm)
{
	if (gemm->tiles_data)
		cuda_free(device, (void *)(uintptr_t)gemm->tiles_data);
	free(gemm->matrices);
	free(gemm->chunks);
}
