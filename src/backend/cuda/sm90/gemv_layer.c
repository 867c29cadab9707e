/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_layer.c - a layer of experts of so few slots that the vector kernels
 * multiply each by itself (gemv_experts.cuh), in two launches or three:
 *
 *   x quantised by token, unless A needs no quantising -> h of each slot, which
 *   with NVFP4 is fp32 -> y
 *
 * Slots are not sorted, as each finds its expert in ids.  The bits are those of
 * the layer's steps (moe_layer.c).
 */
#include "backend/cuda/common/operand.h"
#include "backend/cuda/common/tiled.h"
#include "backend/cuda/common/views.h"
#include "backend/cuda/kernels/common/moe_steps_params.h"
#include "format/quantize_ref.h"
#include "format/view.h"
#include "gemv.h"

/*
 * Each CTA of the last product quantises its row of h: 896 blocks took 12 us more
 * than a launch does where eight slots had one each (docs/performance-hopper.md).
 * One token of two slots won all the same.
 */
#define MOST_QUANTIZED 4096

struct layer {
	struct cuda_device *device;
	const struct nib_moe_few *few;
	const struct nib_moe_layer *l;
	bool is_dense; /* A */
	const char *type;
	CUstream stream;
	uint8_t zero_scale;
};

/* ---- which layers --------------------------------------------------------- */

/* The vector kernel loads the weights of gate and up with the same strides. */
static bool takes_together(const struct nib_moe_problem *gate,
			   const struct nib_moe_problem *up)
{
	struct nib_moe_problem both = *gate;

	both.problem.b2 = up->problem.b;
	both.problem.b2_packed = up->problem.b_packed;
	return cuda_gemv_takes_rows(NIB_OP_DUAL_GEMM, &both);
}

static bool takes(const struct nib_moe_few *f)
{
	const struct nib_moe_layer *l = f->layer;
	const bool is_dual = l->activation == NIB_MOE_ACTIVATION_SWIGLU;
	const bool is_nvfp4 = l->activations == NIB_ACTIVATIONS_NVFP4;

	if (is_nvfp4 && l->y.rows > 1 && f->down->problem.x.cols > MOST_QUANTIZED)
		return false;
	if (!cuda_gemv_takes_rows(is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, f->first) ||
	    !cuda_gemv_takes_rows(NIB_OP_GEMM, f->down))
		return false;
	if (f->up && (!cuda_gemv_takes_rows(NIB_OP_GEMM, f->up) ||
		      !takes_together(f->first, f->up)))
		return false;
	/* Rows of a dense A are loaded in pieces; gathered, they are. */
	return is_nvfp4 || cuda_dense_operand(&l->x, 1).codes_align == 16;
}

/* ---- launches ------------------------------------------------------------- */

static enum nib_status quantize_tokens(const struct layer *s, struct nib_error *err)
{
	struct nib_moe_quantize_params p = {
	    .x = cuda_view_dense(&s->l->x),
	    .q = cuda_view_nvfp4(&s->few->tokens),
	    .global = s->l->x_global,
	    .zero_scale = s->zero_scale,
	};
	void *arguments[] = {&p};
	CUlaunchAttribute attribute;
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)divide_up(p.x.rows * p.q.groups * 4, NIB_MOE_THREADS),
	    .blockDimX = NIB_MOE_THREADS,
	    .hStream = s->stream,
	    .attrs = &attribute,
	};
	CUfunction function;
	enum nib_status status =
	    cuda_kernel(s->device, "nib_moe_quantize", 0, &function, err);

	if (status)
		return status;
	cuda_may_overlap(&config);
	return cuda_launch(s->device, function, config, arguments, err);
}

static struct gemv_cut cut_of(const struct layer *s, int matrices,
			      const struct nib_gemv_params *p)
{
	return gemv_cut_moe(s->few->route->slots, matrices, p->n, p->k, s->is_dense,
			    p->b.is_tiled, s->device->multiprocessors,
			    s->device->shared_bytes);
}

static enum nib_status launch_product(const struct layer *s, int matrices,
				      struct nib_gemv_experts_params *p,
				      struct nib_error *err)
{
	const struct gemv_cut cut = cut_of(s, matrices, &p->moe.p);
	void *arguments[] = {p};
	CUlaunchAttribute attribute;
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)cut.ctas,
	    .gridDimY = (unsigned)s->few->route->slots,
	    .blockDimX = NIB_GEMV_THREADS,
	    .sharedMemBytes = (unsigned)cut.shared_bytes,
	    .hStream = s->stream,
	    .attrs = &attribute,
	};
	CUfunction function;
	enum nib_status status;

	p->moe.p.tiles = cut.tiles;
	p->moe.p.tiles_per_cta = cut.tiles_per_cta;
	status =
	    cuda_gemv_find_experts(s->device, matrices, s->type, &cut, &function, err);
	if (status)
		return status;
	cuda_may_overlap(&config);
	return cuda_launch(s->device, function, config, arguments, err);
}

static struct nib_gemv_experts_params
product_params(const struct layer *s, const struct nib_moe_problem *problem)
{
	const struct nib_moe_route *r = s->few->route;

	return (struct nib_gemv_experts_params){
	    .moe = cuda_gemv_experts_params(problem),
	    .layer = {.ids = r->ids,
		      .ids_bytes = r->ids_bytes,
		      .experts = (int32_t)r->experts,
		      .first_expert = r->first_expert,
		      .top_k = (int32_t)r->top_k,
		      .arrivals = s->few->arrivals},
	};
}

/* x by token, quantised or not. */
static struct nib_gemv_operand input_of(const struct layer *s)
{
	return s->is_dense	    ? cuda_dense_operand(&s->l->x, 1)
	       : s->l->is_quantized ? cuda_operand(&s->l->a, 1)
				    : cuda_operand(&s->few->tokens, 1);
}

/* h.  is_second: x was quantised; y: the parameters of the last product. */
static enum nib_status launch_h(const struct layer *s, bool is_second,
				const struct nib_gemv_experts_params *y,
				struct nib_error *err)
{
	const struct nib_moe_few *f = s->few;
	const struct nib_moe_layer *l = s->l;
	struct nib_gemv_experts_params p = product_params(s, f->first);
	const bool has_up = f->up || l->activation == NIB_MOE_ACTIVATION_SWIGLU;

	p.moe.p.b_is_constant = is_second;
	p.moe.p.a = input_of(s);
	if (f->up) {
		const struct nib_skinny_params up = cuda_gemv_experts_params(f->up);

		p.moe.b2 = up.p.b;
		p.moe.alpha2 = up.p.alpha;
	}
	p.moe.p.c = f->down->problem.x.data;
	p.moe.p.c_dtype = (int32_t)f->down->problem.x.dtype;
	p.moe.p.c_row_stride = f->down->problem.x.cols;
	p.layer.a_is_by_token = true;
	p.layer.activation = (int32_t)l->activation;
	p.layer.limit = l->limit;
	p.layer.swish = l->swiglu_alpha;
	p.layer.up_bias = l->up_bias;
	p.layer.n_arrivals = (int32_t)(l->y.rows * cut_of(s, 1, &y->moe.p).ctas);
	return launch_product(s, has_up ? 2 : 1, &p, err);
}

static struct nib_gemv_experts_params y_params(const struct layer *s)
{
	const struct nib_moe_few *f = s->few;
	struct nib_gemv_experts_params p = product_params(s, f->down);

	p.moe.p.b_is_constant = true;
	if (!s->is_dense) {
		p.moe.p.a = (struct nib_gemv_operand){
		    .codes = f->down->problem.x.data,
		    .row_stride = f->down->problem.x.cols * (int64_t)sizeof(float),
		    .codes_align = 16,
		    .scales_align = 16,
		};
		p.layer.global = s->l->h_global;
		p.layer.zero_scale = s->zero_scale;
	}
	p.layer.weights = s->l->weights;
	p.layer.y = s->l->y.data;
	p.layer.y_row_stride = nib_dense_row_stride_elems(&s->l->y);
	return p;
}

enum nib_status cuda_gemv_layer(struct cuda_device *device,
				const struct nib_moe_few *few, void *stream,
				bool *taken, struct nib_error *err)
{
	const struct nib_moe_layer *l = few->layer;
	const bool is_dense = l->activations == NIB_ACTIVATIONS_DENSE;
	const bool quantizes = !is_dense && !l->is_quantized;
	const struct layer s = {
	    .device = device,
	    .few = few,
	    .l = l,
	    .is_dense = is_dense,
	    .type = cuda_gemv_type(is_dense, l->x.dtype),
	    .stream = stream,
	    .zero_scale = nib_scale_ref(0, 1, NIB_ZERO_SCALE_MODELOPT),
	};
	struct nib_gemv_experts_params y;
	enum nib_status status;

	*taken = takes(few);
	if (!*taken)
		return NIB_STATUS_OK;
	status = cuda_check_layer(device, few->route, l, err);
	if (!status && quantizes)
		status = quantize_tokens(&s, err);
	if (status)
		return status;
	y = y_params(&s);
	status = launch_h(&s, quantizes, &y, err);
	return status ? status : launch_product(&s, 1, &y, err);
}
