/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_layer.c - a layer of experts of so few slots that the vector kernels
 * multiply each slot by itself (kernels/common/gemv_experts.cuh), in up to three
 * launches:
 *
 *   x -> NVFP4 by token (unless A is dense or x is quantised)
 *     -> first product and activation: h by slot, fp32 where A is NVFP4
 *     -> last product, which quantises h, and the sum of slots: y
 *
 * Slots are not sorted, as each finds its expert in ids.  The bits are those of
 * the layer's steps (src/api/moe_layer.c).
 */
#include "vector_layer.h"

#include "backend/cuda/common/gemm_common.h"
#include "backend/cuda/common/operand.h"
#include "backend/cuda/common/vector.h"
#include "backend/cuda/common/views.h"
#include "backend/cuda/kernels/common/moe_steps_params.h"
#include "choose.h"
#include "format/quantize_ref.h"
#include "format/view.h"

/*
 * Each CTA of the last product quantises its row of h again.  With 896 CTAs for eight
 * slots that took 12 us longer than a separate launch (docs/performance-hopper.md), so
 * layers of several tokens have this limit on the columns of h.  A layer of one token
 * of two slots was faster all the same.
 */
#define MOST_QUANTIZED 4096

struct layer_run {
	struct cuda_device *device;
	const struct nib_moe_few *few;
	const struct nib_moe_layer *layer;
	bool is_dense; /* A */
	const char *type;
	CUstream stream;
	uint8_t zero_scale;
};

/* ---- which layers --------------------------------------------------------- */

/* Whether gate and up can be one product: the vector kernel loads both with the same
 * strides. */
static bool takes_together(const struct nib_moe_problem *gate,
			   const struct nib_moe_problem *up)
{
	struct nib_moe_problem both = *gate;

	both.problem.b2 = up->problem.b;
	both.problem.b2_packed = up->problem.b_packed;
	return sm90_chooses_vector(NIB_OP_DUAL_GEMM, &both);
}

static bool takes(const struct nib_moe_few *few)
{
	const struct nib_moe_layer *layer = few->layer;
	const bool is_dual = layer->activation == NIB_MOE_ACTIVATION_SWIGLU;
	const bool is_nvfp4 = layer->activations == NIB_ACTIVATIONS_NVFP4;

	if (is_nvfp4 && layer->y.rows > 1 && few->down->problem.x.cols > MOST_QUANTIZED)
		return false;
	if (!sm90_chooses_vector(is_dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
				 few->first) ||
	    !sm90_chooses_vector(NIB_OP_GEMM, few->down))
		return false;
	if (few->up && (!sm90_chooses_vector(NIB_OP_GEMM, few->up) ||
			!takes_together(few->first, few->up)))
		return false;
	/* Rows of a dense A must begin at multiples of 16 bytes; gathered rows do. */
	return is_nvfp4 || cuda_dense_operand(&layer->x, 1).codes_align == 16;
}

/* ---- launches ------------------------------------------------------------- */

static enum nib_status quantize_tokens(const struct layer_run *run,
				       struct nib_error *err)
{
	struct nib_moe_quantize_params p = {
	    .x = cuda_view_dense(&run->layer->x),
	    .q = cuda_view_nvfp4(&run->few->tokens),
	    .global = run->layer->x_global,
	    .zero_scale = run->zero_scale,
	};
	void *arguments[] = {&p};
	CUlaunchAttribute attribute;
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)divide_up(p.x.rows * p.q.groups * 4, NIB_MOE_THREADS),
	    .blockDimX = NIB_MOE_THREADS,
	    .hStream = run->stream,
	    .attrs = &attribute,
	};
	CUfunction function;
	enum nib_status status =
	    cuda_kernel(run->device, "nib_moe_quantize", 0, &function, err);

	if (status)
		return status;
	cuda_may_overlap(run->device, &config);
	return cuda_launch(run->device, function, config, arguments, err);
}

static struct vector_cut cut_of(const struct layer_run *run, int matrices,
				const struct nib_gemv_params *p)
{
	return vector_cut_experts(
	    run->few->route->slots, matrices, p->n, p->k, run->is_dense, p->b.is_tiled,
	    run->device->multiprocessors, run->device->shared_bytes);
}

static enum nib_status launch_product(const struct layer_run *run, int matrices,
				      struct nib_gemv_experts_params *p,
				      struct nib_error *err)
{
	const struct vector_cut cut = cut_of(run, matrices, &p->p);
	void *arguments[] = {p};
	CUlaunchAttribute attribute;
	CUlaunchConfig config = {
	    .gridDimX = (unsigned)cut.ctas,
	    .gridDimY = (unsigned)run->few->route->slots,
	    .blockDimX = NIB_GEMV_THREADS,
	    .sharedMemBytes = (unsigned)cut.shared_bytes,
	    .hStream = run->stream,
	    .attrs = &attribute,
	};
	CUfunction function;
	enum nib_status status;

	p->p.tiles = cut.tiles;
	p->p.tiles_per_cta = cut.tiles_per_cta;
	status =
	    vector_find_experts(run->device, matrices, run->type, &cut, &function, err);
	if (status)
		return status;
	cuda_may_overlap(run->device, &config);
	return cuda_launch(run->device, function, config, arguments, err);
}

static struct nib_gemv_experts_params
product_params(const struct layer_run *run, const struct nib_moe_problem *problem)
{
	const struct nib_moe_route *route = run->few->route;
	struct nib_gemv_experts_params p = vector_experts_params(problem);

	p.layer = (struct nib_gemv_layer){
	    .ids = route->ids,
	    .ids_bytes = route->ids_bytes,
	    .experts = (int32_t)route->experts,
	    .first_expert = route->first_expert,
	    .top_k = (int32_t)route->top_k,
	    .arrivals = run->few->arrivals,
	};
	return p;
}

/* x by token, quantised or not. */
static struct nib_gemv_operand input_of(const struct layer_run *run)
{
	return run->is_dense		  ? cuda_dense_operand(&run->layer->x, 1)
	       : run->layer->is_quantized ? cuda_operand(&run->layer->a, 1)
					  : cuda_operand(&run->few->tokens, 1);
}

/*
 * Launches the first product, which also computes h.  is_second: the layer's launch
 * that quantises x precedes it.
 */
static enum nib_status launch_first(const struct layer_run *run, bool is_second,
				    const struct nib_gemv_experts_params *last,
				    struct nib_error *err)
{
	const struct nib_moe_few *few = run->few;
	const struct nib_moe_layer *layer = run->layer;
	struct nib_gemv_experts_params p = product_params(run, few->first);
	const bool has_up = few->up || layer->activation == NIB_MOE_ACTIVATION_SWIGLU;

	p.p.b_is_constant = is_second;
	p.p.a = input_of(run);
	if (few->up) {
		const struct nib_gemv_experts_params up =
		    vector_experts_params(few->up);

		p.b2 = up.p.b;
		p.alpha2 = up.p.alpha;
	}
	p.p.c = few->down->problem.x.data;
	p.p.c_dtype = (int32_t)few->down->problem.x.dtype;
	p.p.c_row_stride = few->down->problem.x.cols;
	p.layer.a_is_by_token = true;
	p.layer.activation = (int32_t)layer->activation;
	p.layer.limit = layer->limit;
	p.layer.swish = layer->swiglu_alpha;
	p.layer.up_bias = layer->up_bias;
	p.layer.n_arrivals = (int32_t)(layer->y.rows * cut_of(run, 1, &last->p).ctas);
	return launch_product(run, has_up ? 2 : 1, &p, err);
}

static struct nib_gemv_experts_params last_params(const struct layer_run *run)
{
	const struct nib_moe_few *few = run->few;
	struct nib_gemv_experts_params p = product_params(run, few->down);

	p.p.b_is_constant = true;
	if (!run->is_dense) {
		p.p.a = (struct nib_gemv_operand){
		    .codes = few->down->problem.x.data,
		    .row_stride = few->down->problem.x.cols * (int64_t)sizeof(float),
		    .codes_align = 16,
		    .scales_align = 16,
		};
		p.layer.global = run->layer->h_global;
		p.layer.zero_scale = run->zero_scale;
	}
	p.layer.weights = run->layer->weights;
	p.layer.y = run->layer->y.data;
	p.layer.y_row_stride = nib_dense_row_stride_elems(&run->layer->y);
	return p;
}

enum nib_status sm90_vector_layer(struct cuda_device *device,
				  const struct nib_moe_few *few, void *stream,
				  bool *taken, struct nib_error *err)
{
	const struct nib_moe_layer *layer = few->layer;
	const bool is_dense = layer->activations == NIB_ACTIVATIONS_DENSE;
	const bool quantizes = !is_dense && !layer->is_quantized;
	const struct layer_run run = {
	    .device = device,
	    .few = few,
	    .layer = layer,
	    .is_dense = is_dense,
	    .type = few_rows_type(layer->activations, layer->x.dtype),
	    .stream = stream,
	    .zero_scale = nib_scale_ref(0, 1, NIB_ZERO_SCALE_MODELOPT),
	};
	struct nib_gemv_experts_params last;
	enum nib_status status;

	*taken = takes(few);
	if (!*taken)
		return NIB_STATUS_OK;
	status = cuda_check_layer(device, few->route, layer, err);
	if (!status && quantizes)
		status = quantize_tokens(&run, err);
	if (status)
		return status;
	last = last_params(&run);
	status = launch_first(&run, quantizes, &last, err);
	return status ? status : launch_product(&run, 1, &last, err);
}
