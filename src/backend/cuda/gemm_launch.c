/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_launch.c - launches of the tiled multiplication; see gemm.h. */
#include "gemm.h"

#include "format/view.h"

/* How rows of linear scales may be loaded. */
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

/*
 * The launch may begin before the kernel before it has ended; it waits itself.
 */
static void may_overlap(CUlaunchConfig *config)
{
	CUlaunchAttribute *a = config->attrs + config->numAttrs++;

	a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	a->value.programmaticStreamSerializationAllowed = 1;
}

/*
 * A grid whose blocks are all resident may start while the kernel before it
 * ends, two blocks on an SM (cuda_activations_shared()): more blocks on the few
 * SMs that are free by then would be slower (docs/notes/0052).
 */
static enum nib_status launch_activations(const struct cuda_device *device,
					  const struct cuda_gemm *gemm,
					  const struct gemm_chunk *chunk,
					  void **arguments, CUstream stream,
					  struct nib_error *err)
{
	const int64_t steps =
	    divide_up(chunk->most_k ? chunk->most_k : 1, NIB_WEIGHT_STAGE_K) *
	    NIB_WEIGHT_STAGE_STEPS;
	CUlaunchAttribute attribute = {0};
	CUlaunchConfig config = {0};

	config.gridDimX = (unsigned)chunk->args.a_atoms;
	config.gridDimY = (unsigned)divide_up(steps, NIB_CONVERT_STEPS);
	config.blockDimX = NIB_CONVERT_THREADS;
	config.hStream = stream;
	config.attrs = &attribute;
	if ((int64_t)config.gridDimX * config.gridDimY <=
	    2 * (int64_t)device->multiprocessors) {
		config.sharedMemBytes =
		    (unsigned)cuda_activations_shared(device);
		may_overlap(&config);
	}
	return cuda_launch(device, gemm->activations, config, arguments, err);
}

/*
 * The multiply kernel may begin while the activations are converted, and waits
 * for them.
 */
static enum nib_status launch_multiply(const struct cuda_device *device,
				       const struct gemm_chunk *chunk,
				       void **arguments, CUstream stream,
				       struct nib_error *err)
{
	CUlaunchAttribute attributes[3] = {{0}};
	CUlaunchConfig config = {0};

	attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attributes[0].value.clusterDim.x = NIB_GEMM_PAIR;
	attributes[0].value.clusterDim.y = 1;
	attributes[0].value.clusterDim.z = 1;
	config.gridDimX = (unsigned)chunk->clusters * NIB_GEMM_PAIR;
	config.blockDimX = chunk->a_steps == NIB_SMALL_M_STEPS
			       ? NIB_SMALL_M_THREADS
			       : NIB_GEMM_THREADS;
	config.sharedMemBytes = (unsigned)chunk->shared_bytes;
	config.hStream = stream;
	config.attrs = attributes;
	config.numAttrs = 1;
	may_overlap(&config);
	/*
	 * Split-k slices of a tile wait for each other, so all CTAs must be
	 * resident, whatever else runs on the GPU.
	 */
	if (chunk->args.k_slices > 1) {
		attributes[config.numAttrs].id =
		    CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		attributes[config.numAttrs++].value.cooperative = 1;
	}
	return cuda_launch(device, chunk->multiply, config, arguments, err);
}

static enum nib_status launch(const struct cuda_device *device,
			      const struct cuda_gemm *gemm,
			      const struct gemm_chunk *chunk,
			      struct nib_gemm_launch *params, CUstream stream,
			      struct nib_error *err)
{
	void *arguments[] = {params};
	enum nib_status status =
	    launch_activations(device, gemm, chunk, arguments, stream, err);

	return status ? status
		      : launch_multiply(device, chunk, arguments, stream, err);
}

enum nib_status cuda_gemm_launch(const struct cuda_device *device,
				 const struct cuda_gemm *gemm,
				 const struct nib_problem *problems,
				 void *workspace, CUstream stream,
				 struct nib_error *err)
{
	/* The launch copies its parameters. */
	struct nib_gemm_launch params;
	const enum nib_op op = gemm->op;
	enum nib_status status = NIB_OK;

	for (int64_t i = 0; i < gemm->n_chunks && !status; i++) {
		const struct gemm_chunk *chunk = &gemm->chunks[i];

		params.args = chunk->args;
		cuda_gemm_set_workspace(chunk, workspace, &params.args);
		for (int32_t j = 0; j < chunk->args.count; j++) {
			const struct gemm_matrix *x =
			    &gemm->matrices[chunk->first + j];

			point(op, &problems[x->problem], x->batch,
			      &params.problems[j]);
		}
		status = launch(device, gemm, chunk, &params, stream, err);
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

	if (gemm->n_chunks == 0)
		return NIB_OK;
	params.args = gemm->chunks[0].args;
	cuda_gemm_set_workspace(&gemm->chunks[0], workspace, &params.args);
	params.args.row_offsets = moe->row_offsets;
	params.args.scale_rows = moe->scale_rows;
	params.args.scale_rows_total = (int32_t)moe->scale_rows_total;
	point(gemm->op, &whole, 0, &params.problems[0]);
	return launch(device, gemm, &gemm->chunks[0], &params, stream, err);
}
