/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_launch.c - runs of products in tiles on Blackwell (sm100.h).  The plan has the
 * parameters of each launch.  A run writes pointers into them, and encodes the maps
 * whose addresses have changed since the last run.  The lock of struct nib_last_run
 * keeps runs of a plan apart.
 */
#include "backend/cuda/common/gemm_common.h"
#include "backend/cuda/common/pack.h"
#include "format/view.h"
#include "sm100.h"

/* The operands of a launch.  The stacks of an MoE problem are one problem. */
struct launch {
	const struct cuda_device *device;
	const struct sm100_gemm *gemm;
	const struct nib_problem *problems;
	const struct nib_moe_problem *moe; /* or NULL */
	uint8_t *workspace;
	CUstream stream;
};

/* The address of an operand: matrix `batch` of its stack. */
static uintptr_t address_of(const struct nib_fp4 *v, bool is_scales, int64_t batch)
{
	const int64_t matrix = nib_fp4_batches(v) > 1 ? batch : 0;

	return is_scales ? (uintptr_t)nib_fp4_scales(v, matrix)
			 : (uintptr_t)nib_offset_bytes(
			       v->codes, matrix * nib_fp4_batch_stride_bytes(v));
}

static const struct nib_fp4 *view_of(const struct nib_problem *p, int o)
{
	return o < SM100_B    ? &p->a
	       : o < SM100_B2 ? cuda_weights(&p->b, p->b_packed)
			      : cuda_weights(&p->b2, p->b2_packed);
}

static struct nib_tensor_map *param_of(struct nib_sm100_maps *maps, int o)
{
	struct nib_tensor_map *const all[SM100_OPERANDS] = {
	    &maps->a,	     &maps->a_scales, &maps->b,
	    &maps->b_scales, &maps->b2,	      &maps->b2_scales};

	return all[o];
}

/* Encodes a map unless it is up to date.  MoE: the maps of A, for all box sizes. */
static enum nib_status encode(const struct cuda_device *device,
			      struct sm100_chunk *chunk, struct sm100_entry *x,
			      int32_t i, int o, const struct sm100_map *map,
			      uintptr_t address, struct nib_error *err)
{
	struct sm100_encoded *last = &x->encoded[o];
	const bool has_boxes = chunk->boxes && o == SM100_A;
	struct sm100_map one = *map;
	enum nib_status status = NIB_STATUS_OK;

	if (last->address == address && last->rows == map->sizes[1])
		return NIB_STATUS_OK;
	last->address = 0;
	for (int32_t b = 0; b < (has_boxes ? chunk->boxes : 1) && !status; b++) {
		if (has_boxes)
			one.box[1] = 8u << b;
		status = sm100_encode(device, &one, address,
				      param_of(&chunk->params->problems[i + b].maps, o),
				      err);
	}
	if (!status)
		*last = (struct sm100_encoded){address, map->sizes[1]};
	return status;
}

/*
 * Whether the scales of A are tiled and placed by the run's scale_rows, so that no copy
 * is needed.  The size of their tensor is the run's; a tensor without rows is not read.
 */
static bool is_placed(const struct launch *launch, const struct sm100_chunk *chunk)
{
	return chunk->placed.is_used && launch->moe->scale_rows &&
	       launch->moe->scale_rows_total > 0;
}

/* Sets the source and the target of a map's copy, and returns the address of the
 * copy. */
static uintptr_t stage(const struct launch *launch, struct sm100_chunk *chunk,
		       const struct sm100_map *map, uintptr_t address)
{
	struct nib_stage_copy *copy = &chunk->stage->copies[map->copy];

	copy->from = (const uint8_t *)address;
	copy->to = launch->workspace + map->at;
	return (uintptr_t)copy->to;
}

static enum nib_status set_maps(const struct launch *launch, struct sm100_chunk *chunk,
				int32_t i, struct nib_error *err)
{
	struct sm100_entry *x = &launch->gemm->entries[chunk->first + i];
	const struct nib_problem *p = &launch->problems[x->problem];
	enum nib_status status = NIB_STATUS_OK;

	for (int o = 0; o < SM100_OPERANDS && !status; o++) {
		const struct sm100_map *map = &x->maps[o];
		struct sm100_map placed;
		uintptr_t at;

		if (!map->is_used)
			continue;
		at = address_of(view_of(p, o), map->is_scales, x->batch);
		if (launch->moe && o == SM100_A_SCALES && is_placed(launch, chunk)) {
			placed = chunk->placed;
			placed.sizes[1] =
			    (uint64_t)divide_up(launch->moe->scale_rows_total, 128);
			map = &placed;
		}
		if (map->copy >= 0)
			at = stage(launch, chunk, map, at);
		/* With k = 0 nothing is loaded, and pointers may be NULL. */
		if (p->a.k == 0)
			at = (uintptr_t)p->c.data;
		status = encode(launch->device, chunk, x, i, o, map, at, err);
	}
	return status;
}

static void set_pointers(const struct launch *launch, struct sm100_chunk *chunk,
			 int32_t i)
{
	const struct sm100_entry *x = &launch->gemm->entries[chunk->first + i];
	const struct nib_problem *p = &launch->problems[x->problem];
	struct nib_sm100_problem *out = &chunk->params->problems[i];
	const int64_t size = (int64_t)nib_dtype_bytes(p->c.dtype);

	out->c = nib_offset_bytes(
	    p->c.data, x->batch * nib_dense_batch_stride_elems(&p->c) * size);
	out->alpha = p->alpha;
	out->alpha2 = p->alpha2;
}

static void set_moe(const struct launch *launch, struct sm100_chunk *chunk)
{
	const struct nib_moe_problem *moe = launch->moe;
	struct nib_sm100_args *args = &chunk->params->args;
	struct nib_stage_params *p = chunk->stage;

	args->row_offsets = moe->row_offsets;
	args->scale_rows = is_placed(launch, chunk) ? moe->scale_rows : NULL;
	args->scale_rows_total = (int32_t)moe->scale_rows_total;
	if (!p)
		return;
	p->experts = args->experts;
	p->rows = args->rows;
	p->row_offsets = moe->row_offsets;
	p->scale_rows = moe->scale_rows;
	p->scale_rows_total = args->scale_rows_total;
	/* The copy of A's scales is the last. */
	p->count = launch->gemm->entries->maps[SM100_A_SCALES].copy + 1;
	p->pieces =
	    p->copies[p->count - 1].first_piece + p->copies[p->count - 1].matrix_pieces;
	if (is_placed(launch, chunk))
		p->pieces = p->copies[--p->count].first_piece;
}

static enum nib_status launch_kernels(const struct launch *launch,
				      struct sm100_chunk *chunk, struct nib_error *err)
{
	/* The launch copies its parameters. */
	void *arguments[] = {chunk->params};
	CUlaunchAttribute attributes[2] = {{0}};
	CUlaunchConfig config = {0};
	enum nib_status status = NIB_STATUS_OK;

	if (chunk->stage && chunk->stage->pieces)
		status = sm100_stage_launch(launch->device, chunk, launch->stream, err);
	if (status)
		return status;
	config.gridDimX =
	    (unsigned)(chunk->clusters * chunk->ctas * chunk->params->args.k_slices);
	config.blockDimX = NIB_SM100_THREADS(launch->gemm->op == NIB_OP_DUAL_GEMM);
	config.sharedMemBytes = (unsigned)chunk->shared_bytes;
	config.hStream = launch->stream;
	config.attrs = attributes;
	cuda_set_cluster(&config, chunk->ctas * chunk->params->args.k_slices);
	cuda_may_overlap(launch->device, &config);
	return cuda_launch(launch->device, chunk->multiply, config, arguments, err);
}

static enum nib_status launch_chunk(const struct launch *launch,
				    struct sm100_chunk *chunk, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	for (int32_t i = 0; i < chunk->count && !status; i++) {
		set_pointers(launch, chunk, i);
		status = set_maps(launch, chunk, i, err);
	}
	if (launch->moe)
		set_moe(launch, chunk);
	return status ? status : launch_kernels(launch, chunk, err);
}

enum nib_status sm100_gemm_launch(const struct cuda_device *device,
				  const struct cuda_product_plan *product,
				  const struct nib_run *run, struct nib_error *err)
{
	const struct launch launch = {
	    .device = device,
	    .gemm = product->state,
	    .problems = run->moe ? &run->moe->problem : run->problems,
	    .moe = run->moe,
	    .workspace = run->workspace,
	    .stream = run->stream,
	};
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < launch.gemm->n_chunks && !status; i++)
		status = launch_chunk(&launch, &launch.gemm->chunks[i], err);
	return status;
}
