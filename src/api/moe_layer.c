/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_layer.c - API: a layer of experts as one call.  It is composed of two or
 * three mixtures of experts, quantising, and the steps of struct nib_moe_steps,
 * in one workspace:
 *
 *   begin (routes, gathers x, quantises it) -> gate, up -> activate (h, which
 *         it quantises) -> down -> combine
 *
 * SwiGLU is the epilogue of the dual product, which writes h itself, so that h
 * is at most quantised after it; the other activations have a product for gate
 * and one for up.  A backend may do all of it at once, with the same bits, where
 * tokens are few.
 * The checks are in moe_layer_check.c.
 */
#include "moe_layer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/options.h"
#include "core/view.h"
#include "format/view.h"
#include "spares.h"
#include "validate.h"

/* Offsets of the parts of a workspace, in bytes. */
struct parts {
	size_t row_offsets, slot_rows, row_tokens;
	size_t x_codes, x_scales; /* x quantised, by token; host backends only */
	size_t a_codes, a_scales; /* gathered rows of x, quantised, */
	size_t a;		  /* or in x's type */
	size_t gate, up;
	size_t h, h_codes, h_scales;
	size_t rows; /* the output of down for each gathered row, in y's type */
	size_t arrivals;
	size_t product;
};

struct nib_moe_layer_plan {
	struct nib_device *device;
	/* What the plan was made for, strides resolved. */
	struct nib_moe_layer layer;
	struct nib_moe_sizes sizes;
	/* first: gate and up together, or only gate; up: NULL, or only up. */
	struct nib_plan *first, *up, *down;
	struct parts at;
	size_t workspace_bytes;
	char explanation[3 * sizeof(((struct nib_plan *)0)->explanation) + 32];
	bool callers_workspace;
	struct nib_spares spares;
	void *workspace; /* host backends: NULL, theirs are in spares */
};

/* ---- workspace ------------------------------------------------------------ */

/* Reserves rows * row_bytes at a multiple of 64; false if that overflows. */
static bool reserve(size_t *total, size_t *part, int64_t rows, int64_t row_bytes)
{
	size_t bytes;

	*part = *total;
	return !__builtin_mul_overflow((size_t)rows, (size_t)row_bytes, &bytes) &&
	       !__builtin_add_overflow(bytes, 63, &bytes) &&
	       !__builtin_add_overflow(*total, bytes / 64 * 64, total);
}

static bool reserve_nvfp4(size_t *total, size_t *codes, size_t *scales, int64_t rows,
			  int64_t k)
{
	return reserve(total, codes, rows, k / 2) &&
	       reserve(total, scales, rows, k / NIB_NVFP4_BLOCK);
}

static enum nib_dtype h_dtype(const struct nib_moe_layer *l)
{
	return l->activations == NIB_ACTIVATIONS_NVFP4 ? NIB_DTYPE_FP32 : l->x.dtype;
}

static bool is_dual(const struct nib_moe_layer *l)
{
	return l->activation == NIB_MOE_ACTIVATION_SWIGLU;
}

/* Whether the layer is small enough for the backend's entry `few`. */
static bool is_few(const struct nib_moe_layer_plan *p)
{
	return p->device->backend->moe_steps->few &&
	       p->sizes.slots <= NIB_MOE_FEW_SLOTS;
}

static bool lay_out(struct nib_moe_layer_plan *p)
{
	const struct nib_moe_layer *l = &p->layer;
	const struct nib_moe_sizes s = p->sizes;
	const int64_t floats = is_dual(l) ? 0 : s.slots;
	size_t *total = &p->workspace_bytes;
	struct parts *at = &p->at;
	/* Whole blocks of 128 columns. */
	const int64_t arrivals = (l->y.cols + 127) / 128 * 8;
	bool fits;

	*total = 0;
	fits = reserve(total, &at->row_offsets, s.experts + 1, 4) &&
	       reserve(total, &at->slot_rows, s.slots, 4) &&
	       reserve(total, &at->row_tokens, s.slots, 4) &&
	       reserve(total, &at->gate, floats, s.width * 4) &&
	       reserve(total, &at->up, s.has_up ? floats : 0, s.width * 4) &&
	       reserve(total, &at->h, s.slots,
		       s.width * (int64_t)nib_dtype_bytes(h_dtype(l))) &&
	       reserve(total, &at->rows, s.slots,
		       l->y.cols * (int64_t)nib_dtype_bytes(l->y.dtype)) &&
	       reserve(total, &at->arrivals, is_few(p) ? s.tokens : 0, arrivals * 4);
	if (fits && s.is_nvfp4 && !l->is_quantized && p->device->backend->is_host)
		fits = reserve_nvfp4(total, &at->x_codes, &at->x_scales, s.tokens, s.k);
	if (fits && s.is_nvfp4)
		return reserve_nvfp4(total, &at->a_codes, &at->a_scales, s.slots,
				     s.k) &&
		       reserve_nvfp4(total, &at->h_codes, &at->h_scales, s.slots,
				     s.width);
	return fits && reserve(total, &at->a, s.slots,
			       s.k * (int64_t)nib_dtype_bytes(l->x.dtype));
}

/* ---- views of a workspace; in plans its base is NULL ----------------------- */

static struct nib_fp4 nvfp4_at(char *base, size_t codes, size_t scales, int64_t rows,
			       int64_t k)
{
	return (struct nib_fp4){.codes = nib_offset_bytes(base, (int64_t)codes),
				.scales = nib_offset_bytes(base, (int64_t)scales),
				.rows = rows,
				.k = k};
}

static struct nib_dense dense_at(char *base, size_t data, enum nib_dtype dtype,
				 int64_t rows, int64_t cols)
{
	return (struct nib_dense){.data = nib_offset_bytes(base, (int64_t)data),
				  .dtype = dtype,
				  .rows = rows,
				  .cols = cols};
}

static struct nib_dense h_at(const struct nib_moe_layer_plan *p, char *base,
			     int64_t rows)
{
	return dense_at(base, p->at.h, h_dtype(&p->layer), rows, p->sizes.width);
}

/* The weights of one product.  If packed is not NULL, view is ignored. */
struct weights {
	const struct nib_fp4 *view;
	const struct nib_packed *packed;
	const float *alpha;
};

/* The product of a, or of x if A is dense, and the weights b, written to c. */
static struct nib_moe_problem product(const struct nib_moe_layer_plan *p, char *base,
				      struct nib_fp4 a, struct nib_dense x,
				      struct weights b, struct nib_dense c)
{
	return (struct nib_moe_problem){
	    .problem = {.a = a,
			.x = x,
			.activations = p->layer.activations,
			.b = *b.view,
			.b_packed = b.packed,
			.alpha = b.alpha,
			.c = c},
	    .row_offsets =
		(const int32_t *)nib_offset_bytes(base, (int64_t)p->at.row_offsets),
	};
}

/* Gate (with up, if dual) or, if is_up, only up. */
static struct nib_moe_problem first_product(const struct nib_moe_layer_plan *p,
					    const struct nib_moe_layer *l, char *base,
					    bool is_up)
{
	const int64_t slots = p->sizes.slots, k = p->sizes.k;
	const struct weights gate = {&l->gate, l->gate_packed, l->gate_alpha};
	const struct weights up = {&l->up, l->up_packed, l->up_alpha};
	struct nib_moe_problem moe =
	    product(p, base, nvfp4_at(base, p->at.a_codes, p->at.a_scales, slots, k),
		    dense_at(base, p->at.a, l->x.dtype, slots, k), is_up ? up : gate,
		    is_dual(l) ? h_at(p, base, slots)
			       : dense_at(base, is_up ? p->at.up : p->at.gate,
					  NIB_DTYPE_FP32, slots, p->sizes.width));

	if (!is_dual(l))
		return moe;
	moe.problem.b2 = l->up;
	moe.problem.b2_packed = l->up_packed;
	moe.problem.alpha2 = l->up_alpha;
	return moe;
}

static struct nib_moe_problem down_product(const struct nib_moe_layer_plan *p,
					   const struct nib_moe_layer *l, char *base)
{
	const int64_t slots = p->sizes.slots;
	const struct weights down = {&l->down, l->down_packed, l->down_alpha};

	return product(
	    p, base,
	    nvfp4_at(base, p->at.h_codes, p->at.h_scales, slots, p->sizes.width),
	    h_at(p, base, slots), down,
	    dense_at(base, p->at.rows, l->y.dtype, slots, l->y.cols));
}

/* ---- plans ---------------------------------------------------------------- */

static size_t bytes_of(const struct nib_plan *plan)
{
	return plan ? plan->workspace_bytes : 0;
}

static enum nib_status no_memory(size_t bytes, struct nib_error *err)
{
	return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
			"no memory for a layer of experts (%zu bytes)", bytes);
}

/*
 * Renames the argument of an error about a product to that of the layer, as
 * moe.problem.b.k to layer.down.k.  b: the layer's name of the product's weights.
 * Other arguments are views of the workspace and keep their names.
 */
static enum nib_status name_after_layer(enum nib_status status, const char *b,
					struct nib_error *err)
{
	const struct {
		const char *problem, *layer;
		bool has_fields;
	} names[] = {{"moe.problem.b2", "layer.up", true},
		     {"moe.problem.b", b, true},
		     {"moe.problem.activations", "layer.activations", false},
		     {"moe", "layer", false}};
	struct nib_label_text text;

	for (int i = 0; status && err && i < 4; i++) {
		const size_t length = strlen(names[i].problem);
		const char *rest = err->argument + length;

		if (strncmp(err->argument, names[i].problem, length) != 0 ||
		    (*rest && (*rest != '.' || !names[i].has_fields)))
			continue;
		snprintf(text.text, sizeof(text.text), "%s%s", names[i].layer, rest);
		nib_error_rename(err, text.text);
		break;
	}
	return status;
}

static void explain(struct nib_moe_layer_plan *p)
{
	const char *up = p->up ? p->up->explanation : "";

	snprintf(p->explanation, sizeof(p->explanation), "%s: %s%s%s; down: %s",
		 is_dual(&p->layer) ? "gate and up" : "gate", p->first->explanation,
		 p->up ? "; up: " : "", up, p->down->explanation);
}

static enum nib_status plan_products(struct nib_moe_layer_plan *p,
				     struct nib_error *err)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	const bool dual = is_dual(&p->layer);
	struct nib_moe_problem moe = first_product(p, &p->layer, NULL, false);
	size_t most;
	enum nib_status status;

	status = nib_moe_plan_create(p->device, dual ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
				     &moe, &options, &p->first, err);
	if (status)
		return name_after_layer(status, "layer.gate", err);
	if (!dual && p->sizes.has_up) {
		moe = first_product(p, &p->layer, NULL, true);
		status = nib_moe_plan_create(p->device, NIB_OP_GEMM, &moe, &options,
					     &p->up, err);
	}
	if (status)
		return name_after_layer(status, "layer.up", err);
	moe = down_product(p, &p->layer, NULL);
	status =
	    nib_moe_plan_create(p->device, NIB_OP_GEMM, &moe, &options, &p->down, err);
	if (status)
		return name_after_layer(status, "layer.down", err);
	explain(p);
	most = bytes_of(p->first);
	if (most < bytes_of(p->up))
		most = bytes_of(p->up);
	if (most < bytes_of(p->down))
		most = bytes_of(p->down);
	p->at.product = p->workspace_bytes;
	if (__builtin_add_overflow(p->workspace_bytes, most, &p->workspace_bytes))
		return no_memory(SIZE_MAX, err);
	return NIB_STATUS_OK;
}

/* The plan's own workspace. */
static enum nib_status add_workspace(struct nib_moe_layer_plan *p,
				     struct nib_error *err)
{
	const struct nib_backend *backend = p->device->backend;
	void *workspace = NULL;
	enum nib_status status;

	if (p->callers_workspace)
		return NIB_STATUS_OK;
	status = backend->workspace_new(p->device, p->workspace_bytes, &workspace, err);
	if (backend->is_host)
		atomic_store(&p->spares.kept[0], workspace);
	else
		p->workspace = workspace;
	return status;
}

static enum nib_status fill_plan(struct nib_moe_layer_plan *p,
				 const struct nib_moe_layer *layer,
				 struct nib_error *err)
{
	enum nib_status status;

	status = nib_valid_moe_layer(p->device, layer, &p->layer, err);
	if (status)
		return status;
	p->sizes = nib_moe_sizes_of(&p->layer);
	if (!lay_out(p))
		return no_memory(SIZE_MAX, err);
	status = plan_products(p, err);
	return status ? status : add_workspace(p, err);
}

enum nib_status nib_moe_layer_plan_create(struct nib_device *device,
					  const struct nib_moe_layer *layer,
					  const struct nib_plan_options *options,
					  struct nib_moe_layer_plan **plan,
					  struct nib_error *err)
{
	struct nib_plan_options ours;
	struct nib_moe_layer_plan *p;
	enum nib_status status;

	if (!plan)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "plan",
					 " = NULL: must point to a pointer");
	*plan = NULL;
	status = nib_check_device(device, err);
	if (!status)
		status = nib_options_read(&ours, sizeof(ours), options, "options", err);
	if (status)
		return status;
	p = calloc(1, sizeof(*p));
	if (!p)
		return no_memory(sizeof(*p), err);
	p->device = device;
	p->callers_workspace = ours.caller_workspace != 0;
	status = fill_plan(p, layer, err);
	if (status)
		nib_moe_layer_plan_free(p);
	else
		*plan = p;
	return status;
}

void nib_moe_layer_plan_free(struct nib_moe_layer_plan *plan)
{
	if (!plan)
		return;
	nib_plan_free(plan->first);
	nib_plan_free(plan->up);
	nib_plan_free(plan->down);
	nib_spares_free(plan->device, &plan->spares);
	if (plan->workspace)
		plan->device->backend->workspace_free(plan->device, plan->workspace);
	free(plan);
}

enum nib_status nib_moe_layer_plan_get_info(const struct nib_moe_layer_plan *plan,
					    struct nib_moe_layer_plan_info *info,
					    struct nib_error *err)
{
	struct nib_moe_layer_plan_info ours = {0};
	size_t bytes;
	enum nib_status status;

	if (!plan)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "plan",
					 " = NULL: must be a plan");
	status = nib_info_check(info, sizeof(ours), &bytes, "info", err);
	if (status)
		return status;
	ours.backend = plan->first->backend_name;
	ours.workspace_bytes = plan->workspace_bytes;
	ours.explanation = plan->explanation;
	nib_info_write(info, &ours, bytes);
	return NIB_STATUS_OK;
}

/* ---- a run ---------------------------------------------------------------- */

/* A run of a validated layer in a workspace. */
struct run {
	const struct nib_moe_layer_plan *plan;
	const struct nib_moe_layer *layer;
	char *base;
	void *stream;
	bool is_callers; /* base is the caller's workspace */
	int32_t *row_offsets, *slot_rows, *row_tokens;
	/* Rows of h: host backends count those that are routed to an expert
	 * here, others compute one for each slot. */
	int64_t rows;
};

static enum nib_status multiply(const struct run *r, struct nib_plan *plan,
				const struct nib_moe_problem *moe,
				struct nib_error *err)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = r->base + r->plan->at.product,
	    .workspace_bytes = plan->workspace_bytes,
	    .stream = r->stream,
	};

	return nib_moe_run(plan, moe, &options, err);
}

static const struct nib_moe_steps *steps_of(const struct run *r)
{
	return r->plan->device->backend->moe_steps;
}

static struct nib_moe_route route_of(const struct run *r)
{
	const struct nib_moe_layer_plan *p = r->plan;

	return (struct nib_moe_route){
	    .ids = r->layer->ids,
	    .ids_bytes = r->layer->ids_bytes,
	    .slots = p->sizes.slots,
	    .top_k = r->layer->top_k,
	    .first_expert = r->layer->expert_offset,
	    .experts = p->sizes.experts,
	    .row_offsets = r->row_offsets,
	    .slot_rows = r->slot_rows,
	    .row_tokens = r->row_tokens,
	    .workspace = r->is_callers ? r->base : NULL,
	    .workspace_bytes = r->is_callers ? p->workspace_bytes : 0,
	};
}

static enum nib_status begin(const struct run *r, struct nib_error *err)
{
	const struct nib_moe_layer_plan *p = r->plan;
	const struct parts *at = &p->at;
	const struct nib_moe_sizes s = p->sizes;
	const struct nib_moe_route route = route_of(r);
	struct nib_moe_gather gather = {.layer = r->layer};

	if (s.is_nvfp4)
		gather.a = nvfp4_at(r->base, at->a_codes, at->a_scales, s.slots, s.k);
	else
		gather.dense =
		    dense_at(r->base, at->a, r->layer->x.dtype, s.slots, s.k);
	if (p->device->backend->is_host)
		gather.tokens =
		    nvfp4_at(r->base, at->x_codes, at->x_scales, s.tokens, s.k);
	return steps_of(r)->begin(p->device, &route, &gather, r->stream, err);
}

/* The products of gate and up. */
static enum nib_status expand(const struct run *r, struct nib_error *err)
{
	const struct nib_moe_layer_plan *p = r->plan;
	struct nib_moe_problem moe = first_product(p, r->layer, r->base, false);
	enum nib_status status = multiply(r, p->first, &moe, err);

	if (status || !p->up)
		return status;
	moe = first_product(p, r->layer, r->base, true);
	return multiply(r, p->up, &moe, err);
}

/* Computes h, unless the dual product did; quantises it if A is NVFP4. */
static enum nib_status activate(const struct run *r, struct nib_error *err)
{
	const struct nib_moe_layer_plan *p = r->plan;
	const struct parts *at = &p->at;
	struct nib_moe_activate step = {
	    .layer = r->layer,
	    .rows = r->row_offsets + p->sizes.experts,
	    .h = h_at(p, r->base, r->rows),
	};

	if (!is_dual(r->layer)) {
		step.gate = (const float *)(r->base + at->gate);
		if (p->sizes.has_up)
			step.up = (const float *)(r->base + at->up);
	}
	if (p->sizes.is_nvfp4)
		step.q = nvfp4_at(r->base, at->h_codes, at->h_scales, r->rows,
				  p->sizes.width);
	else if (is_dual(r->layer))
		return NIB_STATUS_OK;
	return steps_of(r)->activate(p->device, &step, r->stream, err);
}

/* All products: from A to the output of down for each slot. */
static enum nib_status multiply_all(const struct run *r, struct nib_error *err)
{
	const struct nib_moe_layer_plan *p = r->plan;
	const struct nib_moe_problem down = down_product(p, r->layer, r->base);
	enum nib_status status = expand(r, err);

	if (!status)
		status = activate(r, err);
	return status ? status : multiply(r, p->down, &down, err);
}

/* The layer in one call of the backend; *taken: whether it computed it. */
static enum nib_status run_few(const struct run *r, bool *taken, struct nib_error *err)
{
	const struct nib_moe_layer_plan *p = r->plan;
	const struct nib_moe_route route = route_of(r);
	const struct nib_moe_problem first = first_product(p, r->layer, r->base, false),
				     up = first_product(p, r->layer, r->base, true),
				     down = down_product(p, r->layer, r->base);
	const struct nib_moe_few few = {
	    .layer = r->layer,
	    .route = &route,
	    .first = &first,
	    .up = p->up ? &up : NULL,
	    .down = &down,
	    .tokens = nvfp4_at(r->base, p->at.a_codes, p->at.a_scales, p->sizes.tokens,
			       p->sizes.k),
	    .arrivals = (uint32_t *)(r->base + p->at.arrivals),
	};

	return steps_of(r)->few(p->device, &few, r->stream, taken, err);
}

static enum nib_status run_steps(struct run *r, struct nib_error *err)
{
	const struct nib_moe_layer_plan *p = r->plan;
	const struct nib_moe_layer *l = r->layer;
	const struct nib_moe_combine combine = {
	    .slot_rows = r->slot_rows,
	    .weights = l->weights,
	    .top_k = l->top_k,
	    .rows =
		dense_at(r->base, p->at.rows, l->y.dtype, p->sizes.slots, l->y.cols),
	    .y = l->y,
	};
	enum nib_status status = begin(r, err);

	if (status)
		return status;
	r->rows = p->device->backend->is_host ? r->row_offsets[p->sizes.experts]
					      : p->sizes.slots;
	if (r->rows > 0)
		status = multiply_all(r, err);
	return status ? status
		      : steps_of(r)->combine(p->device, &combine, r->stream, err);
}

static enum nib_status check_layer(const struct nib_moe_layer_plan *p,
				   const struct nib_moe_layer *given,
				   const struct nib_run_options *options,
				   struct nib_moe_layer *layer, struct nib_error *err)
{
	enum nib_status status;

	if ((status = nib_valid_moe_layer(p->device, given, layer, err)) ||
	    (status = nib_same_moe_layer(&p->layer, layer, err)) ||
	    (status = nib_valid_moe_layer_data(layer, err)))
		return status;
	if (!p->device->backend->is_host)
		return NIB_STATUS_OK;
	return nib_valid_moe_layer_values(layer, options->check_data != 0, err);
}

static enum nib_status run_in(struct nib_moe_layer_plan *p,
			      const struct nib_moe_layer *layer, char *workspace,
			      bool is_callers, void *stream, struct nib_error *err)
{
	struct run r = {
	    .plan = p,
	    .layer = layer,
	    .base = workspace,
	    .is_callers = is_callers,
	    .stream = stream,
	    .row_offsets = (int32_t *)(workspace + p->at.row_offsets),
	    .slot_rows = (int32_t *)(workspace + p->at.slot_rows),
	    .row_tokens = (int32_t *)(workspace + p->at.row_tokens),
	};
	enum nib_status status = NIB_STATUS_OK;
	bool taken = false;

	if (is_few(p))
		status = run_few(&r, &taken, err);
	return status || taken ? status : run_steps(&r, err);
}

enum nib_status nib_moe_layer_run(struct nib_moe_layer_plan *plan,
				  const struct nib_moe_layer *layer,
				  const struct nib_run_options *options,
				  struct nib_error *err)
{
	struct nib_run_options ours;
	struct nib_moe_layer resolved;
	void *workspace;
	enum nib_status status;

	if (!plan)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "plan",
					 " = NULL: must be a plan");
	status =
	    nib_read_run_options(plan->device, options, &ours, plan->workspace_bytes,
				 plan->callers_workspace, err);
	if (!status)
		status = check_layer(plan, layer, &ours, &resolved, err);
	if (status)
		return status;
	workspace = ours.workspace ? ours.workspace : plan->workspace;
	if (workspace)
		return run_in(plan, &resolved, workspace, ours.workspace != NULL,
			      ours.stream, err);
	status = nib_spare_take(plan->device, &plan->spares, plan->workspace_bytes,
				&workspace, err);
	if (status)
		return status;
	status = run_in(plan, &resolved, workspace, false, ours.stream, err);
	nib_spare_give(plan->device, &plan->spares, workspace);
	return status;
}
