/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_launch.c - launches of the tiled multiplication; see gemm.h. */
#include "gemm.h"

#include "format/view.h"

/* Of rows that lie at multiples of `stride` from an aligned one. */
static int32_t scale_flags(const struct nib_nvfp4 *b)
{
	uint64_t x = (uintptr_t)b->scales;

	if (b->scale_layout == NIB_TILED_128X4)
		return 0;
	x |= (uint64_t)nib_nvfp4_scale_row_stride_bytes(b);
	if (nib_nvfp4_batches(b) > 1)
		x |= (uint64_t)nib_nvfp4_scale_batch_stride_bytes(b);
	return x % 16 == 0  ? 0
	       : x % 4 == 0 ? NIB_B_SCALES_BY_4
			    : NIB_B_SCALES_BY_1;
}

static const uint8_t *at(const void *data, int64_t offset)
{
	return nib_offset_bytes(data, offset);
}

/* The pointers of matrix l of a stack of weights. */
static void point_weights(const struct nib_nvfp4 *b, int64_t l,
			  const uint8_t **codes, const uint8_t **scales)
{
	const int64_t matrix = nib_nvfp4_batches(b) > 1 ? l : 0;

	*codes = at(b->codes, matrix * nib_nvfp4_batch_stride_bytes(b));
	*scales = at(b->scales, matrix * nib_nvfp4_scale_batch_stride_bytes(b));
}

static void point(enum nib_op op, const struct nib_problem *p, int64_t l,
		  struct nib_gemm_pointers *out)
{
	const struct nib_nvfp4 *b = cuda_weights(&p->b, p->b_packed);
	const int64_t size = (int64_t)nib_dtype_bytes(p->c.dtype);

	*out = (struct nib_gemm_pointers){
	    .a = at(p->a.codes, l * nib_nvfp4_batch_stride_bytes(&p->a)),
	    .a_scales =
		at(p->a.scales, l * nib_nvfp4_scale_batch_stride_bytes(&p->a)),
	    .c = nib_offset_bytes(
		p->c.data, l * nib_dense_batch_stride_elems(&p->c) * size),
	    .alpha = p->alpha,
	    .flags = scale_flags(b),
	};
	point_weights(b, l, &out->b, &out->b_scales);
	if (op == NIB_DUAL_GEMM) {
		const struct nib_nvfp4 *b2 = cuda_weights(&p->b2, p->b2_packed);

		point_weights(b2, l, &out->b2, &out->b2_scales);
		out->alpha2 = p->alpha2;
		out->flags |= scale_flags(b2);
	}
}

/* The launch may begin before the one ahead of it has ended; it waits itself.
 */
static void may_overlap(CUlaunchConfig *config)
{
	CUlaunchAttribute *a = config->attrs + config->numAttrs++;

	a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	a->value.programmaticStreamSerializationAllowed = 1;
}

/*
 * If all blocks run at once they may come while the kernel ahead of them ends,
 * two on a multiprocessor (cuda_tokens_shared()): more on the few that are free
 * by then would be slower (docs/notes/0052).
 */
static enum nib_status launch_tokens(const struct cuda_device *device,
				     const struct cuda_gemm *gemm,
				     const struct gemm_part *part,
				     void **arguments, CUstream stream,
				     struct nib_error *err)
{
	const int64_t steps =
	    divide_up(part->most_k ? part->most_k : 1, NIB_WEIGHT_STAGE_K) *
	    NIB_WEIGHT_STAGE_STEPS;
	CUlaunchAttribute attribute = {0};
	CUlaunchConfig config = {0};

	config.gridDimX = (unsigned)part->args.token_atoms;
	config.gridDimY = (unsigned)divide_up(steps, NIB_TOKENS_STEPS);
	config.blockDimX = NIB_TOKENS_THREADS;
	config.hStream = stream;
	config.attrs = &attribute;
	if ((int64_t)config.gridDimX * config.gridDimY <=
	    2 * (int64_t)device->multiprocessors) {
		config.sharedMemBytes = (unsigned)cuda_tokens_shared(device);
		may_overlap(&config);
	}
	return cuda_queue(device, gemm->tokens, config, arguments, err);
}

/* It may begin while the tokens are prepared, and waits for them. */
static enum nib_status launch_multiply(const struct cuda_device *device,
				       const struct gemm_part *part,
				       void **arguments, CUstream stream,
				       struct nib_error *err)
{
	CUlaunchAttribute attributes[3] = {{0}};
	CUlaunchConfig config = {0};

	attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attributes[0].value.clusterDim.x = NIB_GEMM_PAIR;
	attributes[0].value.clusterDim.y = 1;
	attributes[0].value.clusterDim.z = 1;
	config.gridDimX = (unsigned)part->clusters * NIB_GEMM_PAIR;
	config.blockDimX = part->token_steps == NIB_FEW_STEPS
			       ? NIB_FEW_THREADS
			       : NIB_GEMM_THREADS;
	config.sharedMemBytes = (unsigned)part->shared_bytes;
	config.hStream = stream;
	config.attrs = attributes;
	config.numAttrs = 1;
	may_overlap(&config);
	/* Parts of k wait for each other: all CTAs are to run at once, whatever
	 * else the GPU does. */
	if (part->args.k_parts > 1) {
		attributes[config.numAttrs].id =
		    CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		attributes[config.numAttrs++].value.cooperative = 1;
	}
	return cuda_queue(device, part->multiply, config, arguments, err);
}

static enum nib_status launch(const struct cuda_device *device,
			      const struct cuda_gemm *gemm,
			      const struct gemm_part *part,
			      struct nib_gemm_launch *params, CUstream stream,
			      struct nib_error *err)
{
	void *arguments[] = {params};
	enum nib_status status =
	    launch_tokens(device, gemm, part, arguments, stream, err);

	return status ? status
		      : launch_multiply(device, part, arguments, stream, err);
}

enum nib_status cuda_gemm_launch(const struct cuda_device *device,
				 const struct cuda_gemm *gemm,
				 const struct nib_problem *problems,
				 void *workspace, CUstream stream,
				 struct nib_error *err)
{
	/* Its parameters are copied by the launch. */
	struct nib_gemm_launch params;
	const enum nib_op op = gemm->op;
	enum nib_status status = NIB_OK;

	for (int64_t i = 0; i < gemm->n_parts && !status; i++) {
		const struct gemm_part *part = &gemm->parts[i];

		params.args = part->args;
		cuda_gemm_place(part, workspace, &params.args);
		for (int32_t j = 0; j < part->args.count; j++) {
			const struct gemm_matrix *x =
			    &gemm->matrices[part->first + j];

			point(op, &problems[x->problem], x->batch,
			      &params.problems[j]);
		}
		status = launch(device, gemm, part, &params, stream, err);
	}
	return status;
}

enum nib_status cuda_gemm_launch_moe(const struct cuda_device *device,
				     const struct cuda_gemm *gemm,
				     const struct nib_moe_problem *moe,
				     void *workspace, CUstream stream,
				     struct nib_error *err)
{
	const struct nib_problem whole = {
	    .a = moe->a,
	    .b = moe->b,
	    .b2 = moe->b2,
	    .b_packed = moe->b_packed,
	    .b2_packed = moe->b2_packed,
	    .alpha = moe->alpha,
	    .alpha2 = moe->alpha2,
	    .c = moe->c,
	};
	struct nib_gemm_launch params;

	if (gemm->n_parts == 0)
		return NIB_OK;
	params.args = gemm->parts[0].args;
	cuda_gemm_place(&gemm->parts[0], workspace, &params.args);
	params.args.row_offsets = moe->row_offsets;
	params.args.scale_rows = moe->scale_rows;
	params.args.scale_rows_total = (int32_t)moe->scale_rows_total;
	point(gemm->op, &whole, 0, &params.problems[0]);
	return launch(device, gemm, &gemm->parts[0], &params, stream, err);
}
