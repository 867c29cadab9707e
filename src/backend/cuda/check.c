/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - is every pointer of a call the GPU's?  A host pointer given to a
 * kernel would end the process's context, so each is asked about once: a plan
 * remembers the problems that it was last given.
 */
#include <stdlib.h>
#include <string.h>

#include "api/run.h"
#include "core/error.h"
#include "cuda.h"

/* What the driver knows of a pointer; zeros for what it has never seen. */
struct pointer_facts {
	int type, ordinal, is_managed;
	CUdeviceptr device_pointer;
	CUdeviceptr range_start; /* of its allocation */
	size_t range_bytes;
};

/*
 * Allocations of the device that pointers of this call lie in: others in them
 * need no question.  A group's weights have one each, so some more than the
 * operands of one problem are kept.
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
	    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
	    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	    CU_POINTER_ATTRIBUTE_IS_MANAGED,
	    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
	    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
	    CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	};
	void *values[] = {&facts->type,	       &facts->ordinal,
			  &facts->is_managed,  &facts->device_pointer,
			  &facts->range_start, &facts->range_bytes};
	CUresult result;

	memset(facts, 0, sizeof(*facts));
	result = device->driver->cuPointerGetAttributes(6, attributes, values,
							pointer);
	if (result != CUDA_ERROR_INVALID_VALUE)
		return result;
	memset(facts, 0, sizeof(*facts));
	return CUDA_SUCCESS;
}

/* Where the known allocation that holds at ends; at if none does. */
static uintptr_t known_end(const struct inquiry *in, uintptr_t at)
{
	for (int i = 0; i < KNOWN; i++)
		if (at >= in->known[i].begin && at < in->known[i].end)
			return in->known[i].end;
	return at;
}

/* The driver tells no range of some kinds of memory: then all of the span is
 * taken for what its first byte is. */
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
	in->known[in->next++ % KNOWN] = (struct nib_span){
	    (uintptr_t)facts->range_start,
	    (uintptr_t)facts->range_start + facts->range_bytes};
}

static bool is_host(const struct pointer_facts *facts, uintptr_t at)
{
	return facts->type == 0 ||
	       (facts->type == CU_MEMORYTYPE_HOST && !facts->is_managed &&
		facts->device_pointer != at);
}

static bool is_of_another(const struct cuda_device *device,
			  const struct pointer_facts *facts)
{
	return facts->type == CU_MEMORYTYPE_DEVICE && !facts->is_managed &&
	       facts->ordinal != device->ordinal;
}

/* NIB_OK if byte at of the span, of these facts, is in the device's memory. */
static enum nib_status judge(const struct cuda_device *device,
			     const struct pointer_facts *facts,
			     struct nib_span span, uintptr_t at,
			     struct nib_label label, const char *field,
			     struct nib_error *err)
{
	const bool other = is_of_another(device, facts);
	void *const pointer = (void *)span.begin;

	if (!other && !is_host(facts, at))
		return NIB_OK;
	if (at != span.begin)
		return nib_fail_at(err, NIB_BAD_ARGUMENT, label, field,
				   " = %p: %zu bytes, but only the first %zu "
				   "are memory of %s",
				   pointer, (size_t)(span.end - span.begin),
				   (size_t)(at - span.begin), device->name);
	if (other)
		return nib_fail_at(err, NIB_BAD_ARGUMENT, label, field,
				   " = %p: is memory of cuda:%d; must be of "
				   "%s",
				   pointer, facts->ordinal, device->name);
	return nib_fail_at(err, NIB_BAD_ARGUMENT, label, field,
			   " = %p: is host memory; must be memory "
			   "of %s (nib_device_alloc(), cudaMalloc())",
			   pointer, device->name);
}

/*
 * Every byte of the span, one question an allocation: memory that is mapped
 * piece by piece (PyTorch's expandable segments) is several.
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
		return NIB_OK;
	if (span.begin % align)
		return nib_fail_at(err, NIB_BAD_ARGUMENT, label, field,
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
			return cuda_fail(device->driver, result, device->name,
					 err);
		status = judge(device, &facts, span, at, label, field, err);
		if (status)
			return status;
		remember(in, &facts);
		at = range_end(&facts, at, span.end);
	}
	return NIB_OK;
}

static enum nib_status check_scales(struct inquiry *in,
				    const struct nib_nvfp4 *v,
				    struct nib_label label,
				    struct nib_error *err)
{
	const bool is_tiled = v->scale_layout == NIB_TILED_128X4;

	return check_span(in, nib_scale_span(v), is_tiled ? CUDA_ALIGN : 1,
			  label, "scales", err);
}

static enum nib_status check_nvfp4(struct inquiry *in,
				   const struct nib_nvfp4 *v,
				   struct nib_label label,
				   struct nib_error *err)
{
	enum nib_status status;

	status =
	    check_span(in, nib_codes_span(v), CUDA_ALIGN, label, "codes", err);
	return status ? status : check_scales(in, v, label, err);
}

static enum nib_status check_dense(struct inquiry *in,
				   const struct nib_dense *v,
				   struct nib_label label,
				   struct nib_error *err)
{
	return check_span(in, nib_dense_span(v), CUDA_ALIGN, label, "data",
			  err);
}

enum nib_status cuda_check_span(const struct cuda_device *device,
				struct nib_span span, unsigned align,
				struct nib_label label, const char *field,
				struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_span(&in, span, align, label, field, err);
}

enum nib_status cuda_check_scales(const struct cuda_device *device,
				  const struct nib_nvfp4 *v,
				  struct nib_label label, struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_scales(&in, v, label, err);
}

enum nib_status cuda_check_nvfp4(const struct cuda_device *device,
				 const struct nib_nvfp4 *v,
				 struct nib_label label, struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_nvfp4(&in, v, label, err);
}

enum nib_status cuda_check_dense(const struct cuda_device *device,
				 const struct nib_dense *v,
				 struct nib_label label, struct nib_error *err)
{
	struct inquiry in = {.device = device};

	return check_dense(&in, v, label, err);
}

/* count values of 4 bytes; NULL is none. */
static enum nib_status check_words(struct inquiry *in, const void *words,
				   int64_t count, struct nib_label label,
				   struct nib_error *err)
{
	struct nib_span span = {(uintptr_t)words, (uintptr_t)words};

	if (words)
		span.end += 4 * (uintptr_t)count;
	return check_span(in, span, 4, label, "", err);
}

/* ---- the problems of a run ----------------------------------------------- */

static enum nib_status check_problem(struct inquiry *in, enum nib_op op,
				     const struct nib_problem *p, int64_t i,
				     struct nib_error *err)
{
	const bool dual = op == NIB_DUAL_GEMM;
	enum nib_status status;

	status = check_nvfp4(in, &p->a, nib_label_of("problems", i, "a"), err);
	if (!status && !p->b_packed)
		status = check_nvfp4(in, &p->b,
				     nib_label_of("problems", i, "b"), err);
	if (!status && dual && !p->b2_packed)
		status = check_nvfp4(in, &p->b2,
				     nib_label_of("problems", i, "b2"), err);
	if (!status)
		status = check_dense(in, &p->c,
				     nib_label_of("problems", i, "c"), err);
	if (!status)
		status = check_words(in, p->alpha, 1,
				     nib_label_of("problems", i, "alpha"), err);
	if (!status && dual)
		status =
		    check_words(in, p->alpha2, 1,
				nib_label_of("problems", i, "alpha2"), err);
	return status;
}

static enum nib_status check_moe(struct inquiry *in, enum nib_op op,
				 const struct nib_moe_problem *moe,
				 struct nib_error *err)
{
	const bool dual = op == NIB_DUAL_GEMM;
	const int64_t experts = moe->b.batch;
	struct nib_nvfp4 scales = moe->a;
	enum nib_status status;

	if (moe->scale_rows)
		scales.rows = moe->scale_rows_total;
	status = check_span(in, nib_codes_span(&moe->a), CUDA_ALIGN,
			    nib_label("moe.a"), "codes", err);
	if (!status)
		status = check_scales(in, &scales, nib_label("moe.a"), err);
	if (!status && !moe->b_packed)
		status = check_nvfp4(in, &moe->b, nib_label("moe.b"), err);
	if (!status && dual && !moe->b2_packed)
		status = check_nvfp4(in, &moe->b2, nib_label("moe.b2"), err);
	if (!status)
		status = check_dense(in, &moe->c, nib_label("moe.c"), err);
	if (!status)
		status = check_words(in, moe->row_offsets, experts + 1,
				     nib_label("moe.row_offsets"), err);
	if (!status)
		status = check_words(in, moe->scale_rows, experts,
				     nib_label("moe.scale_rows"), err);
	if (!status)
		status = check_words(in, moe->alpha, experts,
				     nib_label("moe.alpha"), err);
	if (!status && dual)
		status = check_words(in, moe->alpha2, experts,
				     nib_label("moe.alpha2"), err);
	return status;
}

enum nib_status cuda_taken_new(struct cuda_taken *taken,
			       const struct nib_plan *plan,
			       struct nib_error *err)
{
	const size_t count = plan->is_moe ? 0 : (size_t)plan->count;

	if (pthread_mutex_init(&taken->lock, NULL) != 0)
		return nib_fail(err, NIB_OUT_OF_MEMORY, "no memory for a lock");
	taken->has_lock = true;
	if (count == 0)
		return NIB_OK;
	taken->given = calloc(count, sizeof(*taken->given));
	taken->problems = calloc(count, sizeof(*taken->problems));
	if (!taken->given || !taken->problems)
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"no memory for the problems (%zu bytes)",
				2 * count * sizeof(*taken->problems));
	return NIB_OK;
}

void cuda_taken_free(struct cuda_taken *taken)
{
	if (taken->has_lock)
		pthread_mutex_destroy(&taken->lock);
	free(taken->given);
	free(taken->problems);
}

/* All of the plan's problems, as if never seen. */
static enum nib_status take_problems(struct cuda_taken *taken,
				     const struct nib_plan *plan,
				     const struct nib_problem *given,
				     struct nib_error *err)
{
	struct inquiry in = {.device = cuda_device(plan->device)};
	enum nib_status status = NIB_OK;

	for (int64_t i = 0; i < plan->count && !status; i++) {
		status = nib_take_problem(plan, &given[i], i,
					  &taken->problems[i], err);
		if (!status)
			status = check_problem(&in, plan->op,
					       &taken->problems[i], i, err);
	}
	if (!status)
		status = nib_valid_outputs(plan->op, taken->problems,
					   plan->count, err);
	if (!status)
		memcpy(taken->given, given,
		       (size_t)plan->count * sizeof(*given));
	return status;
}

static enum nib_status take_moe(struct cuda_taken *taken,
				const struct nib_plan *plan,
				const struct nib_moe_problem *given,
				struct nib_error *err)
{
	struct inquiry in = {.device = cuda_device(plan->device)};
	enum nib_status status;

	status = nib_take_moe(plan, given, &taken->moe, err);
	if (!status)
		status = check_moe(&in, plan->op, &taken->moe, err);
	if (!status)
		taken->given_moe = *given;
	return status;
}

/* The caller's workspace; the plan's own is known. */
static enum nib_status take_workspace(struct cuda_taken *taken,
				      const struct nib_plan *plan,
				      const struct nib_run_options *options,
				      struct nib_error *err)
{
	struct nib_span span = {(uintptr_t)options->workspace,
				(uintptr_t)options->workspace};
	enum nib_status status;

	if (options->workspace == plan->workspace ||
	    options->workspace == taken->workspace)
		return NIB_OK;
	span.end += plan->workspace_bytes;
	status = cuda_check_span(cuda_device(plan->device), span, 64,
				 nib_label("options.workspace"), "", err);
	if (!status)
		taken->workspace = options->workspace;
	return status;
}

static enum nib_status enter(struct cuda_taken *taken,
			     const struct nib_plan *plan,
			     const struct nib_run_options *options,
			     struct nib_error *err)
{
	enum nib_status status;

	if (options->check_data)
		return nib_fail_argument(
		    err, NIB_UNSUPPORTED, "options.check_data",
		    " = %d: must be 0 on %s, "
		    "whose data the host does not read",
		    options->check_data, cuda_device(plan->device)->name);
	status = cuda_enter(cuda_device(plan->device), err);
	if (!status)
		pthread_mutex_lock(&taken->lock);
	return status;
}

void cuda_taken_end(struct cuda_taken *taken, const struct nib_plan *plan)
{
	pthread_mutex_unlock(&taken->lock);
	cuda_leave(cuda_device(plan->device));
}

/* Padding may differ where nothing else does: then they are checked again. */
static bool same_bytes(const void *x, const void *y, size_t bytes)
{
	return memcmp(x, y, bytes) == 0;
}

/* Packed weights of a checked problem: freed since, others may lie there. */
static bool same_packed(const struct nib_plan *plan,
			const struct nib_packed *packed,
			const struct nib_nvfp4 *checked)
{
	return !packed ||
	       (packed->device == plan->device &&
		packed->rows == checked->rows && packed->k == checked->k &&
		packed->batch == checked->batch);
}

static bool is_taken(const struct cuda_taken *taken,
		     const struct nib_plan *plan,
		     const struct nib_problem *problems)
{
	const size_t bytes = (size_t)plan->count * sizeof(*problems);

	if (!taken->is_valid || !same_bytes(taken->given, problems, bytes))
		return false;
	for (int64_t i = 0; i < plan->count; i++) {
		const struct nib_problem *p = &taken->problems[i];

		if (!same_packed(plan, p->b_packed, &p->b) ||
		    !same_packed(plan, p->b2_packed, &p->b2))
			return false;
	}
	return true;
}

static bool is_taken_moe(const struct cuda_taken *taken,
			 const struct nib_plan *plan,
			 const struct nib_moe_problem *moe)
{
	return taken->is_valid && moe &&
	       same_bytes(&taken->given_moe, moe, sizeof(*moe)) &&
	       same_packed(plan, taken->moe.b_packed, &taken->moe.b) &&
	       same_packed(plan, taken->moe.b2_packed, &taken->moe.b2);
}

/* The last steps of begin, whatever kind of problems it was. */
static enum nib_status finish(struct cuda_taken *taken,
			      const struct nib_plan *plan,
			      const struct nib_run_options *options,
			      enum nib_status status, struct nib_error *err)
{
	taken->is_valid = status == NIB_OK;
	if (!status)
		status = take_workspace(taken, plan, options, err);
	if (status)
		cuda_taken_end(taken, plan);
	return status;
}

enum nib_status cuda_taken_begin(struct cuda_taken *taken,
				 const struct nib_plan *plan,
				 const struct nib_problem *problems,
				 const struct nib_run_options *options,
				 struct nib_error *err)
{
	enum nib_status status = enter(taken, plan, options, err);

	if (status)
		return status;
	if (!is_taken(taken, plan, problems))
		status = take_problems(taken, plan, problems, err);
	return finish(taken, plan, options, status, err);
}

enum nib_status cuda_taken_begin_moe(struct cuda_taken *taken,
				     const struct nib_plan *plan,
				     const struct nib_moe_problem *moe,
				     const struct nib_run_options *options,
				     struct nib_error *err)
{
	enum nib_status status = enter(taken, plan, options, err);

	if (status)
		return status;
	if (!is_taken_moe(taken, plan, moe))
		status = take_moe(taken, plan, moe, err);
	return finish(taken, plan, options, status, err);
}
