/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - plan + pointers -> backend.  Nothing is allocated here: the backend says
 * where the validated copies of the problems live.
 */
#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/options.h"
#include "run.h"
#include "validate.h"

static bool same_nvfp4(const struct nib_nvfp4 *x, const struct nib_nvfp4 *y)
{
	return x->rows == y->rows && x->k == y->k && x->batch == y->batch &&
	       x->row_stride_bytes == y->row_stride_bytes &&
	       x->batch_stride_bytes == y->batch_stride_bytes &&
	       x->scale_layout == y->scale_layout &&
	       x->scale_row_stride_bytes == y->scale_row_stride_bytes &&
	       x->scale_batch_stride_bytes == y->scale_batch_stride_bytes;
}

static bool same_dense(const struct nib_dense *x, const struct nib_dense *y)
{
	return x->dtype == y->dtype && x->rows == y->rows &&
	       x->cols == y->cols && x->batch == y->batch &&
	       x->row_stride_elems == y->row_stride_elems &&
	       x->batch_stride_elems == y->batch_stride_elems;
}

/* Which view of a problem is not what the plan was made for, or NULL. */
static const char *wrong_view(const struct nib_problem *plan,
			      const struct nib_problem *run)
{
	if (!same_nvfp4(&plan->a, &run->a))
		return "a";
	if (!same_nvfp4(&plan->b, &run->b) || !plan->b_packed != !run->b_packed)
		return "b";
	if (!same_nvfp4(&plan->b2, &run->b2) ||
	    !plan->b2_packed != !run->b2_packed)
		return "b2";
	return same_dense(&plan->c, &run->c) ? NULL : "c";
}

static enum nib_status wrong_plan(struct nib_label view, struct nib_error *err)
{
	return nib_fail_at(err, NIB_BAD_ARGUMENT, view, "",
			   ": its sizes, strides, type or packing are not "
			   "those that the plan was made for");
}

enum nib_status nib_check_stream(const struct nib_device *device,
				 const void *stream, const char *name,
				 struct nib_error *err)
{
	if (!stream || !device->backend->is_host)
		return NIB_OK;
	return nib_fail_argument(
	    err, NIB_BAD_ARGUMENT, name,
	    " = %p: must be NULL on '%s', which has no streams", stream,
	    device->backend->name);
}

/* Options, and the workspace: the caller's, or the plan's under its lock. */
static enum nib_status begin_run(struct nib_plan *plan,
				 const struct nib_run_options *options,
				 struct nib_run_options *ours, bool *locked,
				 struct nib_error *err)
{
	enum nib_status status;

	*locked = false;
	status = nib_options_read(ours, sizeof(*ours), options, "options", err);
	if (!status)
		status = nib_check_stream(plan->device, ours->stream,
					  "options.stream", err);
	if (status)
		return status;
	if (ours->workspace) {
		if (ours->workspace_bytes < plan->workspace_bytes)
			return nib_fail_argument(
			    err, NIB_BAD_ARGUMENT, "options.workspace_bytes",
			    " = %zu: must "
			    "be at least %zu",
			    ours->workspace_bytes, plan->workspace_bytes);
		if ((uintptr_t)ours->workspace % 64)
			return nib_fail_argument(err, NIB_BAD_ARGUMENT,
						 "options.workspace",
						 " = %p: must be "
						 "aligned to 64 bytes",
						 ours->workspace);
		return NIB_OK;
	}
	if (!plan->workspace && plan->workspace_bytes)
		return nib_fail_argument(
		    err, NIB_BAD_ARGUMENT, "options.workspace",
		    " = NULL: the plan was made "
		    "with caller_workspace, so a run must bring "
		    "%zu bytes",
		    plan->workspace_bytes);
	pthread_mutex_lock(&plan->workspace_lock);
	*locked = true;
	ours->workspace = plan->workspace;
	return NIB_OK;
}

static void end_run(struct nib_plan *plan, bool locked)
{
	if (locked)
		pthread_mutex_unlock(&plan->workspace_lock);
}

enum nib_status nib_take_problem(const struct nib_plan *plan,
				 const struct nib_problem *given, int64_t index,
				 struct nib_problem *out, struct nib_error *err)
{
	const char *view;
	enum nib_status status;

	status =
	    nib_valid_problem(plan->op, plan->device, given, index, out, err);
	if (status)
		return status;
	view = wrong_view(&plan->problems[index], out);
	if (view)
		return wrong_plan(nib_label_of("problems", index, view), err);
	return nib_valid_problem_data(plan->op, out, index, err);
}

enum nib_status nib_run(struct nib_plan *plan,
			const struct nib_problem *problems, int64_t count,
			const struct nib_run_options *options,
			struct nib_error *err)
{
	struct nib_run_options ours;
	bool locked;
	enum nib_status status;

	if (!plan || plan->is_moe)
		return nib_fail_argument(
		    err, NIB_BAD_ARGUMENT, "plan", "%s",
		    plan ? ": made by nib_plan_create_moe(), so it "
			   "runs by nib_run_moe()"
			 : " = NULL: must be a plan");
	if (count != plan->count)
		return nib_fail_argument(err, NIB_BAD_ARGUMENT, "count",
					 " = %" PRId64
					 ": must be the plan's %" PRId64,
					 count, plan->count);
	if (count > 0 && !problems)
		return nib_fail_argument(
		    err, NIB_BAD_ARGUMENT, "problems",
		    " = NULL: must point to %" PRId64 " problems", count);
	if (count == 0)
		return NIB_OK;
	status = begin_run(plan, options, &ours, &locked, err);
	if (!status)
		status = plan->device->backend->run(plan, problems, &ours, err);
	end_run(plan, locked);
	return status;
}

enum nib_status nib_take_moe(const struct nib_plan *plan,
			     const struct nib_moe_problem *given,
			     struct nib_moe_problem *out, struct nib_error *err)
{
	struct nib_problem planned = {0}, run = {0};
	const char *view;
	enum nib_status status;

	status = nib_valid_moe(plan->op, plan->device, given, out, err);
	if (status)
		return status;
	planned.a = plan->moe.a, run.a = out->a;
	planned.b = plan->moe.b, run.b = out->b;
	planned.b2 = plan->moe.b2, run.b2 = out->b2;
	planned.c = plan->moe.c, run.c = out->c;
	planned.b_packed = plan->moe.b_packed, run.b_packed = out->b_packed;
	planned.b2_packed = plan->moe.b2_packed;
	run.b2_packed = out->b2_packed;
	view = wrong_view(&planned, &run);
	if (view)
		return wrong_plan(nib_label_of("moe", -1, view), err);
	return nib_valid_moe_data(plan->op, out, err);
}

enum nib_status nib_run_moe(struct nib_plan *plan,
			    const struct nib_moe_problem *moe,
			    const struct nib_run_options *options,
			    struct nib_error *err)
{
	struct nib_run_options ours;
	bool locked;
	enum nib_status status;

	if (!plan || !plan->is_moe)
		return nib_fail_argument(
		    err, NIB_BAD_ARGUMENT, "plan", "%s",
		    plan ? ": made by nib_plan_create(), so it "
			   "runs by nib_run()"
			 : " = NULL: must be a plan");
	status = begin_run(plan, options, &ours, &locked, err);
	if (!status)
		status = plan->device->backend->run_moe(plan, moe, &ours, err);
	end_run(plan, locked);
	return status;
}

enum nib_status nib_multiply(struct nib_device *device, enum nib_op op,
			     const struct nib_problem *problems, int64_t count,
			     struct nib_error *err)
{
	struct nib_plan *plan;
	enum nib_status status;

	status = nib_plan_create(device, op, problems, count, NULL, &plan, err);
	if (!status)
		status = nib_run(plan, problems, count, NULL, err);
	nib_plan_free(plan);
	return status;
}
