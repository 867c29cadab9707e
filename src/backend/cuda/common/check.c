/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - checks that every pointer of a call is memory of the device.  A kernel that
 * reads a host pointer would destroy the context, so the driver is asked about each
 * pointer once.  The pointers of a repeated run are known.
 */
#include <string.h>

#include "core/error.h"
#include "cuda.h"

/* What the driver knows of a pointer; zeros for unknown memory. */
struct pointer_facts {
	int type, ordinal, is_managed;
	CUdeviceptr device_pointer;
	CUdeviceptr range_start; /* of its allocation */
	size_t range_bytes;
};

/*
 * Allocations of the device that this call has found.  Other pointers into them need no
 * further query.  The weights of a group have one allocation each, so the list is
 * longer than the operands of one problem.
 */
#define KNOWN 16

struct inquiry {
	const struct cuda_device *device;
	struct nib_span known[KNOWN];
	unsigned next;
};

static CUresult ask(const struct cuda_device *device, uintptr_t pointer,
		    struct pointer_facts *facts)
{
	int attributes[] = {
	    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,	   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	    CU_POINTER_ATTRIBUTE_IS_MANAGED,	   CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
	    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	};
	void *values[] = {&facts->type,	       &facts->ordinal,
			  &facts->is_managed,  &facts->device_pointer,
			  &facts->range_start, &facts->range_bytes};
	CUresult result;

	memset(facts, 0, sizeof(*facts));
	result = device->driver->cuPointerGetAttributes(6, attributes, values, pointer);
	if (result != CUDA_ERROR_INVALID_VALUE)
		return result;
	memset(facts, 0, sizeof(*facts));
	return CUDA_SUCCESS;
}

/* The end of the known allocation that holds at; at itself if none does. */
static uintptr_t known_end(const struct inquiry *in, uintptr_t at)
{
	for (int i = 0; i < KNOWN; i++)
		if (at >= in->known[i].begin && at < in->known[i].end)
			return in->known[i].end;
	return at;
}

/* The driver reports no range for some kinds of memory.  All of the span then counts as
 * what its first byte is. */
static uintptr_t range_end(const struct pointer_facts *facts, uintptr_t at,
			   uintptr_t span_end)
{
	const uintptr_t begin = (uintptr_t)facts->range_start;
	const uintptr_t end = begin + facts->range_bytes;

	return at >= begin && at < end ? end : span_end;
}

static void remember(struct inquiry *in, const struct pointer_facts *facts)
{
	if (facts->type != CU_MEMORYTYPE_DEVICE || facts->is_managed)
		return;
	in->known[in->next++ % KNOWN] =
	    (struct nib_span){(uintptr_t)facts->range_start,
			      (uintptr_t)facts->range_start + facts->range_bytes};
}

static bool is_host(const struct pointer_facts *facts, uintptr_t at)
{
	return facts->type == 0 || (facts->type == CU_MEMORYTYPE_HOST &&
				    !facts->is_managed && facts->device_pointer != at);
}

static bool is_of_another(const struct cuda_device *device,
			  const struct pointer_facts *facts)
{
	return facts->type == CU_MEMORYTYPE_DEVICE && !facts->is_managed &&
	       facts->ordinal != device->ordinal;
}

/* Whether byte `at` of the span, which has these facts, is in the device's memory. */
static enum nib_status judge(const struct cuda_device *device,
			     const struct pointer_facts *facts, struct nib_span span,
			     uintptr_t at, struct nib_label label, const char *field,
			     struct nib_error *err)
{
	const bool other = is_of_another(device, facts);
	void *const pointer = (void *)span.begin;

	if (!other && !is_host(facts, at))
		return NIB_STATUS_OK;
	if (at != span.begin)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, field,
				   " = %p: %zu bytes, but only the first %zu "
				   "are memory of %s",
				   pointer, (size_t)(span.end - span.begin),
				   (size_t)(at - span.begin), device->name);
	if (other)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, field,
				   " = %p: is memory of cuda:%d; must be of "
				   "%s",
				   pointer, facts->ordinal, device->name);
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, field,
			   " = %p: is host memory; must be memory "
			   "of %s (nib_device_alloc(), cudaMalloc())",
			   pointer, device->name);
}

/*
 * Checks every byte of the span with one query for each allocation.  Memory that is
 * mapped in pieces (PyTorch's expandable segments) is several allocations.
 */
static enum nib_status check_span(struct inquiry *in, struct nib_span span,
				  unsigned align, struct nib_label label,
				  const char *field, struct nib_error *err)
{
	const struct cuda_device *device = in->device;
	struct pointer_facts facts;
	enum nib_status status;
	CUresult result;

	if (span.begin == span.end)
		return NIB_STATUS_OK;
	if (span.begin % align)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, field,
				   " = %p: must be a multiple of %u bytes "
				   "on %s",
				   (void *)span.begin, align, device->name);
	for (uintptr_t at = span.begin; at < span.end;) {
		const uintptr_t end = known_end(in, at);

		if (end > at) {
			at = end;
			continue;
		}
		result = ask(device, at, &facts);
		if (result)
			return cuda_fail(device->driver, result, device->name, err);
		status = judge(device, &facts, span, at, label, field, err);
		if (status)
			return status;
		remember(in, &facts);
		at = range_end(&facts, at, span.end);
	}
	return NIB_STATUS_OK;
}

static enum nib_status check_scales(struct inquiry *in, const struct nib_fp4 *v,
				    struct nib_label label, struct nib_error *err)
{
	const bool is_tiled = v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4;

	return check_span(in, nib_scale_span(v), is_tiled ? CUDA_ALIGN : 1, label,
			  "scales", err);
}

static enum nib_status check_nvfp4(struct inquiry *in, const struct nib_fp4 *v,
				   struct nib_label label, struct nib_error *err)
{
	enum nib_status status;

	status = check_span(in, nib_codes_span(v), CUDA_ALIGN, label, "codes", err);
	return status ? status : check_scales(in, v, label, err);
}

static enum nib_status check_dense(struct inquiry *in, const struct nib_dense *v,
				   struct nib_label label, struct nib_error *err)
{
	return check_span(in, nib_dense_span(v), CUDA_ALIGN, label, "data", err);
}

enum nib_status cuda_check_span(const struct cuda_device *device, struct nib_span span,
				unsigned align, struct nib_label label,
				const char *field, struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_span(&in, span, align, label, field, err);
}

enum nib_status cuda_check_scales(const struct cuda_device *device,
				  const struct nib_fp4 *v, struct nib_label label,
				  struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_scales(&in, v, label, err);
}

enum nib_status cuda_check_nvfp4(const struct cuda_device *device,
				 const struct nib_fp4 *v, struct nib_label label,
				 struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_nvfp4(&in, v, label, err);
}

enum nib_status cuda_check_dense(const struct cuda_device *device,
				 const struct nib_dense *v, struct nib_label label,
				 struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_dense(&in, v, label, err);
}

/* count values of 4 bytes; NULL is none. */
static enum nib_status check_words(struct inquiry *in, const void *words, int64_t count,
				   struct nib_label label, struct nib_error *err)
{
	struct nib_span span = {(uintptr_t)words, (uintptr_t)words};

	if (words)
		span.end += 4 * (uintptr_t)count;
	return check_span(in, span, 4, label, "", err);
}

enum nib_status cuda_check_combine(const struct cuda_device *device,
				   const struct nib_moe_combine *c,
				   struct nib_error *err)
{
	const int64_t slots = c->y.rows * c->top_k;
	struct inquiry in = {.device = device};
	enum nib_status status = check_dense(&in, &c->rows, nib_label("rows"), err);

	if (!status)
		status =
		    check_words(&in, c->slot_rows, slots, nib_label("slot_rows"), err);
	if (!status)
		status = check_words(&in, c->weights, slots, nib_label("weights"), err);
	return status ? status : check_dense(&in, &c->y, nib_label("y"), err);
}

/* ---- the problems of a run ----------------------------------------------- */

static enum nib_status check_problem(struct inquiry *in, enum nib_op op,
				     const struct nib_problem *p, int64_t i,
				     struct nib_error *err)
{
	const bool dual = op == NIB_OP_DUAL_GEMM;
	enum nib_status status;

	if (p->activations != NIB_ACTIVATIONS_NVFP4)
		status = check_dense(in, &p->x, nib_label_of("problems", i, "x"), err);
	else
		status = check_nvfp4(in, &p->a, nib_label_of("problems", i, "a"), err);
	if (!status && !p->b_packed)
		status = check_nvfp4(in, &p->b, nib_label_of("problems", i, "b"), err);
	if (!status && dual && !p->b2_packed)
		status =
		    check_nvfp4(in, &p->b2, nib_label_of("problems", i, "b2"), err);
	if (!status)
		status = check_dense(in, &p->c, nib_label_of("problems", i, "c"), err);
	if (!status)
		status = check_words(in, p->alpha, 1,
				     nib_label_of("problems", i, "alpha"), err);
	if (!status && dual)
		status = check_words(in, p->alpha2, 1,
				     nib_label_of("problems", i, "alpha2"), err);
	return status;
}

static enum nib_status check_moe_a(struct inquiry *in,
				   const struct nib_moe_problem *moe,
				   struct nib_error *err)
{
	struct nib_fp4 scales = moe->problem.a;
	enum nib_status status;

	if (moe->problem.activations != NIB_ACTIVATIONS_NVFP4)
		return check_dense(in, &moe->problem.x, nib_label("moe.problem.x"),
				   err);
	if (moe->scale_rows)
		scales.rows = moe->scale_rows_total;
	status = check_span(in, nib_codes_span(&moe->problem.a), CUDA_ALIGN,
			    nib_label("moe.problem.a"), "codes", err);
	return status ? status
		      : check_scales(in, &scales, nib_label("moe.problem.a"), err);
}

static enum nib_status check_moe(struct inquiry *in, enum nib_op op,
				 const struct nib_moe_problem *moe,
				 struct nib_error *err)
{
	const bool dual = op == NIB_OP_DUAL_GEMM;
	const int64_t experts = moe->problem.b.batch;
	enum nib_status status = check_moe_a(in, moe, err);

	if (!status && !moe->problem.b_packed)
		status =
		    check_nvfp4(in, &moe->problem.b, nib_label("moe.problem.b"), err);
	if (!status && dual && !moe->problem.b2_packed)
		status =
		    check_nvfp4(in, &moe->problem.b2, nib_label("moe.problem.b2"), err);
	if (!status)
		status =
		    check_dense(in, &moe->problem.c, nib_label("moe.problem.c"), err);
	if (!status)
		status = check_words(in, moe->row_offsets, experts + 1,
				     nib_label("moe.row_offsets"), err);
	if (!status)
		status = check_words(in, moe->scale_rows, experts,
				     nib_label("moe.scale_rows"), err);
	if (!status)
		status = check_words(in, moe->problem.alpha, experts,
				     nib_label("moe.problem.alpha"), err);
	if (!status && dual)
		status = check_words(in, moe->problem.alpha2, experts,
				     nib_label("moe.problem.alpha2"), err);
	return status;
}

/* Checks the caller's workspace unless it is *known. */
static enum nib_status check_workspace(const struct nib_plan *plan,
				       const struct nib_run *run, void **known,
				       struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)run->workspace;
	const struct nib_span span = {begin, begin + plan->workspace_bytes};
	enum nib_status status;

	if (!run->is_callers_workspace || run->workspace == *known)
		return NIB_STATUS_OK;
	status = cuda_check_span(cuda_device(plan->device), span, 64,
				 nib_label("options.workspace"), "", err);
	if (!status)
		*known = run->workspace;
	return status;
}

enum nib_status cuda_check_run(const struct nib_plan *plan, const struct nib_run *run,
			       void **known, struct nib_error *err)
{
	struct inquiry in = {.device = cuda_device(plan->device)};
	enum nib_status status = NIB_STATUS_OK;

	if (!run->is_repeated && run->moe)
		status = check_moe(&in, plan->op, run->moe, err);
	else if (!run->is_repeated)
		for (int64_t i = 0; i < plan->count && !status; i++)
			status =
			    check_problem(&in, plan->op, &run->problems[i], i, err);
	return status ? status : check_workspace(plan, run, known, err);
}

/* ---- a layer of experts -------------------------------------------------- */

#define OF_LAYER(field) nib_label_of("layer", -1, field)

/* Checks an array of the caller: count elements of `bytes` bytes.  NULL has none. */
static enum nib_status check_array(struct inquiry *in, const void *array, int64_t count,
				   int64_t bytes, const char *field,
				   struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)array;
	const struct nib_span span = {begin,
				      begin ? begin + (uintptr_t)(count * bytes) : 0};

	return check_span(in, span, (unsigned)bytes, OF_LAYER(field), "", err);
}

static enum nib_status check_layer_input(struct inquiry *in,
					 const struct nib_moe_layer *l,
					 struct nib_error *err)
{
	enum nib_status status;

	if (l->is_quantized)
		return check_nvfp4(in, &l->a, OF_LAYER("a"), err);
	status = check_dense(in, &l->x, OF_LAYER("x"), err);
	if (!status && l->activations == NIB_ACTIVATIONS_NVFP4)
		status =
		    check_array(in, l->x_global, 1, sizeof(float), "x_global", err);
	return status;
}

static enum nib_status check_layer_weights(struct inquiry *in,
					   const struct nib_moe_layer *l,
					   struct nib_error *err)
{
	const struct {
		const struct nib_fp4 *view;
		const struct nib_packed *packed;
		const float *alpha;
		const char *name, *alpha_name;
	} all[] = {
	    {&l->gate, l->gate_packed, l->gate_alpha, "gate", "gate_alpha"},
	    {&l->up, l->up_packed, l->up_alpha, "up", "up_alpha"},
	    {&l->down, l->down_packed, l->down_alpha, "down", "down_alpha"},
	};
	enum nib_status status = NIB_STATUS_OK;

	for (int i = 0; i < 3 && !status; i++) {
		if (i == 1 && l->activation == NIB_MOE_ACTIVATION_RELU2)
			continue;
		if (!all[i].packed)
			status =
			    check_nvfp4(in, all[i].view, OF_LAYER(all[i].name), err);
		if (!status)
			status = check_array(in, all[i].alpha, l->gate.batch,
					     sizeof(float), all[i].alpha_name, err);
	}
	return status;
}

enum nib_status cuda_check_layer(const struct cuda_device *device,
				 const struct nib_moe_route *r,
				 const struct nib_moe_layer *l, struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)r->workspace;
	const struct nib_span workspace = {begin, begin + r->workspace_bytes};
	struct inquiry in = {.device = device};
	enum nib_status status = check_layer_input(&in, l, err);

	if (!status)
		status = check_array(&in, l->ids, r->slots, r->ids_bytes, "ids", err);
	if (!status)
		status = check_array(&in, l->weights, r->slots, sizeof(float),
				     "weights", err);
	if (!status && l->activations == NIB_ACTIVATIONS_NVFP4)
		status =
		    check_array(&in, l->h_global, 1, sizeof(float), "h_global", err);
	if (!status)
		status = check_layer_weights(&in, l, err);
	if (!status)
		status = check_dense(&in, &l->y, OF_LAYER("y"), err);
	return status ? status
		      : check_span(&in, workspace, 64, nib_label("options.workspace"),
				   "", err);
}
