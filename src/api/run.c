/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - checks and resolves the problems of a run, compares them with the plan's,
 * and passes them to the backend.
 *
 * A host backend keeps the resolved copies in the head of the run's workspace, so
 * that concurrent runs of a plan are independent.  For other backends the plan
 * keeps them, and a run with the same problems as the last one skips the checks.
 */
#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "outputs.h"
#include "spares.h"
#include "validate.h"

/* The name of the first view that differs from the plan's, or NULL. */
static const char *wrong_view(const struct nib_problem *plan,
			      const struct nib_problem *run)
{
	if (!nib_same_dense(&plan->x, &run->x))
		return "x";
	if (!nib_same_fp4(&plan->a, &run->a))
		return "a";
	if (!nib_same_fp4(&plan->b, &run->b) || !plan->b_packed != !run->b_packed)
		return "b";
	if (!nib_same_fp4(&plan->b2, &run->b2) || !plan->b2_packed != !run->b2_packed)
		return "b2";
	return nib_same_dense(&plan->c, &run->c) ? NULL : "c";
}

/* Compares the resolved problem array[index] of a run with the plan's. */
static enum nib_status compare_with_plan(const struct nib_problem *planned,
					 const struct nib_problem *run,
					 const char *array, int64_t index,
					 struct nib_error *err)
{
	const char *view;

	if (run->activations != planned->activations)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT,
				   nib_label_of(array, index, "activations"), "",
				   " = %d: must be the plan's, %d",
				   (int)run->activations, (int)planned->activations);
	view = wrong_view(planned, run);
	if (!view)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT,
			   nib_label_of(array, index, view), "",
			   ": its sizes, strides, type or packing are not "
			   "those that the plan was made for");
}

static enum nib_status check_problem(const struct nib_plan *plan,
				     const struct nib_problem *given, int64_t index,
				     struct nib_problem *out, struct nib_error *err)
{
	enum nib_status status;

	status = nib_valid_problem(plan->op, plan->device, given, index, out, err);
	if (!status)
		status = compare_with_plan(&plan->problems[index], out, "problems",
					   index, err);
	return status ? status : nib_valid_problem_data(plan->op, out, index, err);
}

/* check_data: also check scale signs. */
static enum nib_status check_problems(const struct nib_plan *plan,
				      const struct nib_problem *given, bool check_data,
				      struct nib_problem *out, void *scratch,
				      struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t i = 0; i < plan->count && !status; i++) {
		status = check_problem(plan, &given[i], i, &out[i], err);
		if (!status && check_data)
			status = nib_valid_problem_signs(plan->op, &out[i], i, err);
	}
	return status ? status
		      : nib_valid_outputs(plan->op, out, plan->count, scratch, err);
}

static enum nib_status check_moe(const struct nib_plan *plan,
				 const struct nib_moe_problem *given,
				 struct nib_moe_problem *out, struct nib_error *err)
{
	enum nib_status status;

	status = nib_valid_moe(plan->op, plan->device, given, out, err);
	if (!status)
		status = compare_with_plan(&plan->moe.problem, &out->problem,
					   "moe.problem", -1, err);
	return status ? status : nib_valid_moe_data(plan->op, out, err);
}

/* ---- runs in host memory --------------------------------------------------- */

/* workspace: the head and the backend's part, aligned to 64 bytes. */
static enum nib_status run_in(struct nib_plan *plan, const struct nib_problem *problems,
			      const struct nib_moe_problem *given_moe, bool check_data,
			      char *workspace, struct nib_error *err)
{
	struct nib_problem *resolved = (struct nib_problem *)workspace;
	struct nib_moe_problem moe;
	struct nib_run run = {.workspace = workspace + plan->head_bytes};
	enum nib_status status;

	if (plan->is_moe) {
		run.moe = &moe;
		status = check_moe(plan, given_moe, &moe, err);
		if (!status)
			status = nib_valid_moe_offsets(&moe, err);
		if (!status && check_data)
			status = nib_valid_moe_signs(plan->op, &moe, err);
	} else {
		run.problems = resolved;
		status = check_problems(plan, problems, check_data, resolved,
					&resolved[plan->count], err);
	}
	return status ? status : plan->device->backend->run(plan, &run, err);
}

static enum nib_status run_on_host(struct nib_plan *plan,
				   const struct nib_problem *problems,
				   const struct nib_moe_problem *moe,
				   const struct nib_run_options *options,
				   struct nib_error *err)
{
	void *workspace = options->workspace;
	enum nib_status status = NIB_STATUS_OK;

	if (!workspace)
		status = nib_spare_take(plan->device, &plan->spares,
					plan->workspace_bytes, &workspace, err);
	if (status)
		return status;
	status = run_in(plan, problems, moe, options->check_data != 0, workspace, err);
	if (!options->workspace)
		nib_spare_give(plan->device, &plan->spares, workspace);
	return status;
}

/* ---- runs on devices with memory of their own ------------------------------ */

/* The weights may have been freed, and others allocated at their address. */
static bool same_packed(const struct nib_plan *plan, const struct nib_packed *packed,
			const struct nib_fp4 *checked)
{
	return !packed || (nib_reads_packed(plan->device, packed) &&
			   packed->rows == checked->rows && packed->k == checked->k &&
			   packed->batch == checked->batch &&
			   packed->batch_stride_bytes == checked->batch_stride_bytes);
}

static bool same_weights(const struct nib_plan *plan, const struct nib_problem *checked)
{
	return same_packed(plan, checked->b_packed, &checked->b) &&
	       same_packed(plan, checked->b2_packed, &checked->b2);
}

/*
 * Compares bytes.  If only the padding of the structs differs, the problems are
 * checked again, which is slower and right.
 */
static bool is_last_run(const struct nib_plan *plan, const struct nib_problem *problems)
{
	const struct nib_last_run *last = &plan->last;
	const size_t bytes = (size_t)plan->count * sizeof(*problems);

	if (!last->is_valid || memcmp(last->given, problems, bytes) != 0)
		return false;
	for (int64_t i = 0; i < plan->count; i++)
		if (!same_weights(plan, &last->problems[i]))
			return false;
	return true;
}

static bool is_last_moe(const struct nib_plan *plan, const struct nib_moe_problem *moe)
{
	const struct nib_last_run *last = &plan->last;

	/* If only padding differs, the problem is checked again: no error. */
	return last->is_valid && moe &&
	       /* NOLINTNEXTLINE(bugprone-suspicious-memory-*,cert-*) */
	       memcmp(&last->given_moe, moe, sizeof(*moe)) == 0 &&
	       same_weights(plan, &last->moe.problem);
}

/* Checks the problems and stores them, resolved, in plan->last. */
static enum nib_status check_and_cache(struct nib_plan *plan,
				       const struct nib_problem *problems,
				       const struct nib_moe_problem *moe,
				       struct nib_error *err)
{
	struct nib_last_run *last = &plan->last;
	enum nib_status status;

	if (plan->is_moe) {
		status = check_moe(plan, moe, &last->moe, err);
		if (!status && moe)
			last->given_moe = *moe;
		return status;
	}
	status =
	    check_problems(plan, problems, false, last->problems, last->scratch, err);
	if (!status && problems)
		memcpy(last->given, problems, (size_t)plan->count * sizeof(*problems));
	return status;
}

static enum nib_status run_on_device(struct nib_plan *plan,
				     const struct nib_problem *problems,
				     const struct nib_moe_problem *moe,
				     const struct nib_run_options *options,
				     struct nib_error *err)
{
	struct nib_last_run *last = &plan->last;
	struct nib_run run = {
	    .problems = last->problems,
	    .moe = plan->is_moe ? &last->moe : NULL,
	    .workspace = options->workspace ? options->workspace : plan->workspace,
	    .is_callers_workspace = options->workspace != NULL,
	    .stream = options->stream,
	};
	enum nib_status status = NIB_STATUS_OK;

	pthread_mutex_lock(&last->lock);
	run.is_repeated =
	    plan->is_moe ? is_last_moe(plan, moe) : is_last_run(plan, problems);
	if (!run.is_repeated)
		status = check_and_cache(plan, problems, moe, err);
	if (!status)
		status = plan->device->backend->run(plan, &run, err);
	last->is_valid = run.is_repeated || !status;
	pthread_mutex_unlock(&last->lock);
	return status;
}

/* ---- the public functions -------------------------------------------------- */

static enum nib_status run(struct nib_plan *plan, const struct nib_problem *problems,
			   const struct nib_moe_problem *moe,
			   const struct nib_run_options *options, struct nib_error *err)
{
	struct nib_run_options ours;
	enum nib_status status =
	    nib_read_run_options(plan->device, options, &ours, plan->workspace_bytes,
				 plan->caller_workspace, err);

	if (status)
		return status;
	if (plan->device->backend->is_host)
		return run_on_host(plan, problems, moe, &ours, err);
	return run_on_device(plan, problems, moe, &ours, err);
}

enum nib_status nib_run(struct nib_plan *plan, const struct nib_problem *problems,
			int64_t count, const struct nib_run_options *options,
			struct nib_error *err)
{
	if (!plan || plan->is_moe)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "plan", "%s",
					 plan
					     ? ": made by nib_moe_plan_create(), so it "
					       "runs by nib_moe_run()"
					     : " = NULL: must be a plan");
	if (count != plan->count)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "count",
					 " = %" PRId64 ": must be the plan's %" PRId64,
					 count, plan->count);
	if (count > 0 && !problems)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "problems",
					 " = NULL: must point to %" PRId64 " problems",
					 count);
	if (count == 0)
		return NIB_STATUS_OK;
	return run(plan, problems, NULL, options, err);
}

enum nib_status nib_moe_run(struct nib_plan *plan, const struct nib_moe_problem *moe,
			    const struct nib_run_options *options,
			    struct nib_error *err)
{
	if (!plan || !plan->is_moe)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "plan", "%s",
					 plan ? ": made by nib_plan_create(), so it "
						"runs by nib_run()"
					      : " = NULL: must be a plan");
	return run(plan, NULL, moe, options, err);
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
