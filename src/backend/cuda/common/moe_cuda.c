/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_cuda.c - the steps of a layer of experts on a GPU (backend.h): fills
 * the parameters of moe_steps.cuh and launches; check.c looks at pointers.
 * Every launch may overlap the end of the one before it.
 */
#include "arch.h"
#include "backend/cuda/kernels/common/moe_steps_params.h"
#include "core/error.h"
#include "cuda.h"
#include "format/quantize_ref.h"
#include "format/view.h"
#include "gemm_common.h"
#include "views.h"

/* More CTAs than this for each SM would only wait. */
#define BLOCKS_PER_SM 8

/* With the context entered. */
static enum nib_status launch(struct cuda_device *device, const char *name,
			      int64_t blocks, unsigned threads, void *params,
			      void *stream, struct nib_error *err)
{
	CUlaunchAttribute attribute;
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)blocks,
	    .blockDimX = threads,
	    .hStream = stream,
	    .attrs = &attribute,
	};
	CUfunction function;
	enum nib_status status = cuda_kernel(device, name, 0, &function, err);

	if (status)
		return status;
	cuda_may_overlap(device, &config);
	return cuda_launch(device, function, config, &params, err);
}

/* Threads that run at once. */
static int64_t most_threads(const struct cuda_device *device)
{
	return (int64_t)device->multiprocessors * BLOCKS_PER_SM * NIB_MOE_THREADS;
}

/* Starts a thread for each unit, up to most_threads(), which then loop. */
static enum nib_status launch_units(struct cuda_device *device, const char *name,
				    int64_t units, void *params, void *stream,
				    struct nib_error *err)
{
	const int64_t most = most_threads(device) / NIB_MOE_THREADS;
	const int64_t blocks = divide_up(units, NIB_MOE_THREADS);

	if (units == 0)
		return NIB_STATUS_OK;
	return launch(device, name, blocks < most ? blocks : most, NIB_MOE_THREADS,
		      params, stream, err);
}

/* ---- begin --------------------------------------------------------------- */

static struct nib_moe_route_params route_params(const struct nib_moe_route *r)
{
	return (struct nib_moe_route_params){
	    .ids = r->ids,
	    .ids_bytes = r->ids_bytes,
	    .experts = (int32_t)r->experts,
	    .first_expert = r->first_expert,
	    .slots = r->slots,
	    .row_offsets = r->row_offsets,
	    .slot_rows = r->slot_rows,
	};
}

static struct nib_moe_gather_params gather_params(const struct nib_moe_route *r,
						  const struct nib_moe_gather *g)
{
	const struct nib_moe_layer *l = g->layer;
	struct nib_moe_gather_params p = {
	    .global = l->x_global,
	    .slot_rows = r->slot_rows,
	    .tokens = l->y.rows,
	    .top_k = r->top_k,
	    .pieces = nib_fp4_groups(&l->gate),
	    .zero_scale = nib_scale_ref(0, 1, NIB_ZERO_SCALE_MODELOPT),
	};

	if (l->is_quantized)
		p.a = cuda_view_nvfp4(&l->a);
	else
		p.x = cuda_view_dense(&l->x);
	if (l->activations == NIB_ACTIVATIONS_NVFP4)
		p.to = cuda_view_nvfp4(&g->a);
	else
		p.to_dense = g->dense.data, p.pieces *= 2;
	return p;
}

/* Routes and gathers in one launch, in which every CTA reads the experts of all
 * slots. */
static enum nib_status begin_at_once(struct cuda_device *device,
				     const struct nib_moe_route *r,
				     const struct nib_moe_gather *g, void *stream,
				     struct nib_error *err)
{
	struct nib_moe_begin_params p = {route_params(r), gather_params(r, g), 0, 1};

	p.offset_ctas = (int32_t)divide_up(r->experts + 1, NIB_MOE_THREADS);
	if (p.gather.pieces > NIB_MOE_THREADS)
		p.token_ctas = (int32_t)divide_up(p.gather.pieces, NIB_MOE_THREADS);
	return launch(device, "nib_moe_begin",
		      p.offset_ctas + p.gather.tokens * p.token_ctas, NIB_MOE_THREADS,
		      &p, stream, err);
}

static enum nib_status begin_in_two(struct cuda_device *device,
				    const struct nib_moe_route *r,
				    const struct nib_moe_gather *g, void *stream,
				    struct nib_error *err)
{
	struct nib_moe_route_params route = route_params(r);
	struct nib_moe_gather_params gather = gather_params(r, g);
	enum nib_status status;

	status = launch(device, "nib_moe_route", r->experts + 1, NIB_MOE_ROUTE_THREADS,
			&route, stream, err);
	return status
		   ? status
		   : launch_units(device, "nib_moe_gather",
				  gather.tokens * gather.pieces, &gather, stream, err);
}

static enum nib_status begin(struct nib_device *base, const struct nib_moe_route *r,
			     const struct nib_moe_gather *g, void *stream,
			     struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	status = cuda_check_layer(device, r, g->layer, err);
	if (!status && r->slots > 0)
		status =
		    r->slots <= NIB_MOE_BEGIN_SLOTS && r->top_k <= NIB_MOE_BEGIN_TOP_K
			? begin_at_once(device, r, g, stream, err)
			: begin_in_two(device, r, g, stream, err);
	cuda_leave(device);
	return status;
}

/* ---- h, the sum of slots ------------------------------------------------- */

static enum nib_status activate(struct nib_device *base,
				const struct nib_moe_activate *a, void *stream,
				struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	const struct nib_moe_layer *l = a->layer;
	struct nib_moe_activate_params p = {
	    .gate = a->gate ? a->gate : a->h.data,
	    .up = a->up,
	    .rows = a->rows,
	    .most_rows = a->h.rows,
	    .groups = a->h.cols / NIB_NVFP4_BLOCK,
	    .dense = cuda_view_dense(&a->h),
	    .global = l->h_global,
	    .activation = (int32_t)l->activation,
	    .limit = l->limit,
	    .swish = l->swiglu_alpha,
	    .up_bias = l->up_bias,
	    .zero_scale = nib_scale_ref(0, 1, NIB_ZERO_SCALE_MODELOPT),
	};
	enum nib_status status = cuda_enter(device, err);
	bool is_few;

	if (status)
		return status;
	if (a->q.codes)
		p.q = cuda_view_nvfp4(&a->q);
	is_few = p.most_rows * p.groups * 4 <= most_threads(device);
	status =
	    launch_units(device, is_few ? "nib_moe_activate_few" : "nib_moe_activate",
			 p.most_rows * p.groups * (is_few ? 4 : 1), &p, stream, err);
	cuda_leave(device);
	return status;
}

static enum nib_status combine(struct nib_device *base, const struct nib_moe_combine *c,
			       void *stream, struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	struct nib_moe_combine_params p = {
	    .rows = c->rows.data,
	    .slot_rows = c->slot_rows,
	    .weights = c->weights,
	    .top_k = c->top_k,
	    .y = cuda_view_dense(&c->y),
	};
	enum nib_status status = cuda_enter(device, err);
	int64_t at_once;

	if (status)
		return status;
	if (c->is_callers)
		status = cuda_check_combine(device, c, err);
	at_once = CUDA_ALIGN / (int64_t)nib_dtype_bytes(c->y.dtype);
	p.y.is_aligned = p.y.cols % at_once == 0 && p.y.row_stride % at_once == 0;
	if (!status)
		status = launch_units(
		    device, "nib_moe_combine",
		    p.y.rows * (p.y.is_aligned ? p.y.cols / at_once : p.y.cols), &p,
		    stream, err);
	cuda_leave(device);
	return status;
}

/* ---- the layer at once ---------------------------------------------------- */

static enum nib_status few(struct nib_device *base, const struct nib_moe_few *f,
			   void *stream, bool *taken, struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	enum nib_status status;

	*taken = false;
	if (!device->arch->layer || f->route->slots == 0)
		return NIB_STATUS_OK;
	status = cuda_enter(device, err);
	if (status)
		return status;
	status = device->arch->layer(device, f, stream, taken, err);
	cuda_leave(device);
	return status;
}

const struct nib_moe_steps cuda_moe_steps = {few, begin, activate, combine};
