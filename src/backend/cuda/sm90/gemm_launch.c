/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_launch.c - launches of products in tiles (gemm.h).  make_params() is the only
 * function that fills the parameters of these kernels.
 */
#include "gemm.h"

#include <string.h>

#include "backend/cuda/common/gemm_common.h"
#include "format/view.h"

/* Flags of how rows of linear scales may be loaded. */
static int32_t scale_flags(const struct nib_fp4 *b)
{
	uint64_t x = (uintptr_t)b->scales;

	if (b->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		return 0;
	x |= (uint64_t)nib_fp4_scale_row_stride_bytes(b);
	if (nib_fp4_batches(b) > 1)
		x |= (uint64_t)nib_fp4_scale_batch_stride_bytes(b);
	return x % 16 == 0 ? 0 : x % 4 == 0 ? NIB_B_SCALES_BY_4 : NIB_B_SCALES_BY_1;
}

static const uint8_t *at(const void *data, int64_t offset)
{
	return nib_offset_bytes(data, offset);
}

/* Sets the pointers to matrix l of a stack of weights. */
static void point_weights(const struct nib_fp4 *b, int64_t l, const uint8_t **codes,
			  const uint8_t **scales)
{
	const int64_t matrix = nib_fp4_batches(b) > 1 ? l : 0;

	*codes = at(b->codes, matrix * nib_fp4_batch_stride_bytes(b));
	*scales = at(b->scales, matrix * nib_fp4_scale_batch_stride_bytes(b));
}

static void point(enum nib_op op, const struct nib_problem *p, int64_t l,
		  struct nib_gemm_pointers *out)
{
	const struct nib_fp4 *b = cuda_weights(&p->b, p->b_packed);
	const int64_t size = (int64_t)nib_dtype_bytes(p->c.dtype);

	*out = (struct nib_gemm_pointers){
	    .a = p->activations ? nib_dense_at(&p->x, l, 0, 0)
				: at(p->a.codes, l * nib_fp4_batch_stride_bytes(&p->a)),
	    .a_scales = at(p->a.scales, l * nib_fp4_scale_batch_stride_bytes(&p->a)),
	    .c = nib_offset_bytes(p->c.data,
				  l * nib_dense_batch_stride_elems(&p->c) * size),
	    .alpha = p->alpha,
	    .flags = scale_flags(b),
	};
	point_weights(b, l, &out->b, &out->b_scales);
	if (op == NIB_OP_DUAL_GEMM) {
		const struct nib_fp4 *b2 = cuda_weights(&p->b2, p->b2_packed);

		point_weights(b2, l, &out->b2, &out->b2_scales);
		out->alpha2 = p->alpha2;
		out->flags |= scale_flags(b2);
	}
}

/* Strides from one matrix of weights to the next; 0 if all of a batch have the same. */
static void stride_weights(const struct nib_fp4 *b, bool is_batch, int64_t *bytes,
			   int64_t *scale_bytes)
{
	const bool is_one = is_batch && nib_fp4_batches(b) == 1;

	*bytes = is_one ? 0 : nib_fp4_batch_stride_bytes(b);
	*scale_bytes = is_one ? 0 : nib_fp4_scale_batch_stride_bytes(b);
}

/* p: a batch, or the stacks of an MoE problem. */
static void set_strides(enum nib_op op, const struct nib_problem *p,
			struct nib_gemm_args *args)
{
	stride_weights(cuda_weights(&p->b, p->b_packed), args->batch > 0,
		       &args->b_batch_bytes, &args->b_scale_batch_bytes);
	if (op == NIB_OP_DUAL_GEMM)
		stride_weights(cuda_weights(&p->b2, p->b2_packed), args->batch > 0,
			       &args->b2_batch_bytes, &args->b2_scale_batch_bytes);
	if (!args->batch)
		return;
	args->a_batch_bytes = p->activations
				  ? nib_dense_batch_stride_elems(&p->x) * X_BYTES
				  : nib_fp4_batch_stride_bytes(&p->a);
	args->a_scale_batch_bytes = nib_fp4_scale_batch_stride_bytes(&p->a);
	args->c_batch_elems = nib_dense_batch_stride_elems(&p->c);
}

/* Whether all weights of the launch are packed, so that no kernel can be writing
 * them. */
static bool are_packed(const struct sm90_gemm *gemm, const struct gemm_chunk *chunk,
		       const struct nib_problem *problems)
{
	const struct gemm_matrix *matrices = gemm->matrices + chunk->first;

	for (int32_t i = 0; i < chunk->count; i++) {
		const struct nib_problem *p = &problems[matrices[i].problem];

		if (!p->b_packed || (gemm->op == NIB_OP_DUAL_GEMM && !p->b2_packed))
			return false;
	}
	return true;
}

/*
 * Fills the parameters of both kernels of a launch.  problems: those of the run; the
 * stacks of an MoE problem are one problem.
 */
static void make_params(const struct sm90_gemm *gemm, const struct gemm_chunk *chunk,
			const struct nib_problem *problems,
			const struct nib_moe_problem *moe, uint8_t *workspace,
			struct nib_gemm_launch *params)
{
	const struct gemm_matrix *matrices = gemm->matrices + chunk->first;
	struct nib_gemm_args *args = &params->args;

	params->args = (struct nib_gemm_args){
	    .tiles = (const struct nib_gemm_tile *)(uintptr_t)gemm->tiles_data +
		     chunk->first_tile,
	    .tile_rounds = chunk->tile_rounds,
	    .count = chunk->count,
	    .activations = workspace,
	    .a_atoms = chunk->a_atoms,
	    .rows = chunk->rows,
	    .dtype = (int32_t)problems[matrices->problem].c.dtype,
	    .a_stages = chunk->rings.a_stages,
	    .a_stage_bytes = chunk->rings.a_stage_bytes,
	    .weight_stages = chunk->rings.weight_stages,
	    .k_slices = chunk->k_slices,
	    .partials = (float *)(workspace + chunk->partials_at),
	    .arrivals = (uint32_t *)(workspace + chunk->arrivals_at),
	    .n_arrivals = chunk->n_arrivals,
	    .batch = chunk->batch,
	    .batch_rows = chunk->batch_rows,
	    .experts = chunk->experts,
	    .tile_m = chunk->tile_m,
	    .are_weights_ready = !moe && are_packed(gemm, chunk, problems),
	};
	memcpy(args->first, chunk->first_round,
	       (size_t)chunk->clusters * sizeof(*args->first));
	for (int32_t i = 0; i < chunk->count; i++) {
		args->shapes[i] = matrices[i].shape;
		point(gemm->op, &problems[matrices[i].problem], matrices[i].batch,
		      &params->problems[i]);
	}
	if (moe || chunk->batch)
		set_strides(gemm->op, &problems[matrices->problem], args);
	if (moe) {
		args->row_offsets = moe->row_offsets;
		args->scale_rows = moe->scale_rows;
		args->scale_rows_total = (int32_t)moe->scale_rows_total;
	}
}

/*
 * A grid whose CTAs are all resident may start while the previous kernel ends, with two
 * CTAs on an SM (sm90_activations_shared()).  More CTAs on the few SMs that are free by
 * then would be slower (docs/performance-hopper.md).  overlaps: whether it may.  For
 * MoE the multiply kernel reads row_offsets before it waits for this kernel.  So a
 * kernel that may write them has to end before this one begins; the cost was not
 * measurable (docs/performance-hopper.md).
 */
static enum nib_status launch_activations(const struct cuda_device *device,
					  const struct gemm_chunk *chunk, bool overlaps,
					  void **arguments, CUstream stream,
					  struct nib_error *err)
{
	const int64_t steps =
	    divide_up(chunk->most_k ? chunk->most_k : 1, NIB_WEIGHT_STAGE_K) *
	    NIB_WEIGHT_STAGE_STEPS;
	CUlaunchAttribute attribute = {0};
	CUlaunchConfig config = {0};

	config.gridDimX = (unsigned)chunk->a_atoms;
	config.gridDimY = (unsigned)divide_up(steps, NIB_CONVERT_STEPS);
	config.blockDimX = NIB_CONVERT_THREADS;
	config.hStream = stream;
	config.attrs = &attribute;
	if (overlaps && (int64_t)config.gridDimX * config.gridDimY <=
			    2 * (int64_t)device->multiprocessors) {
		config.sharedMemBytes = (unsigned)sm90_activations_shared(device);
		cuda_may_overlap(device, &config);
	}
	return cuda_launch(device, chunk->convert, config, arguments, err);
}

/*
 * The multiply kernel may begin while the activations are converted, and waits
 * for them.
 */
static enum nib_status launch_multiply(const struct cuda_device *device,
				       const struct gemm_chunk *chunk, void **arguments,
				       CUstream stream, struct nib_error *err)
{
	CUlaunchAttribute attributes[3] = {{0}};
	CUlaunchConfig config = {0};

	config.gridDimX = (unsigned)chunk->clusters * NIB_GEMM_PAIR;
	config.blockDimX = chunk->rings.a_steps == NIB_SMALL_M_STEPS
			       ? NIB_SMALL_M_THREADS
			       : NIB_GEMM_THREADS;
	config.sharedMemBytes = (unsigned)chunk->rings.shared_bytes;
	config.hStream = stream;
	config.attrs = attributes;
	cuda_set_cluster(&config, NIB_GEMM_PAIR);
	cuda_may_overlap(device, &config);
	/*
	 * Split-k slices of a tile wait for each other, so all CTAs must be resident: a
	 * cooperative launch guarantees it.
	 */
	if (chunk->k_slices > 1) {
		attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		attributes[config.numAttrs++].value.cooperative = 1;
	}
	return cuda_launch(device, chunk->multiply, config, arguments, err);
}

enum nib_status sm90_gemm_launch(const struct cuda_device *device,
				 const struct cuda_product_plan *product,
				 const struct nib_run *run, struct nib_error *err)
{
	const struct sm90_gemm *gemm = product->state;
	const struct nib_moe_problem *moe = run->moe;
	/* The launch copies its parameters. */
	struct nib_gemm_launch params;
	void *arguments[] = {&params};
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < gemm->n_chunks && !status; i++) {
		const struct gemm_chunk *chunk = &gemm->chunks[i];

		make_params(gemm, chunk, moe ? &moe->problem : run->problems, moe,
			    run->workspace, &params);
		status = launch_activations(device, chunk, !moe, arguments, run->stream,
					    err);
		if (!status)
			status =
			    launch_multiply(device, chunk, arguments, run->stream, err);
	}
	return status;
}
