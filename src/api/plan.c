/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - API: plans; checks the problems and reserves memory for runs. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/options.h"
#include "outputs.h"
#include "spares.h"
#include "validate.h"

static enum nib_status no_memory(const char *what, size_t bytes, struct nib_error *err)
{
	return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY, "no memory for %s (%zu bytes)",
			what, bytes);
}

/* Reads the options and makes a zeroed plan of the device's backend. */
static enum nib_status new_plan(struct nib_device *device, enum nib_op op,
				const struct nib_plan_options *options,
				struct nib_plan_options *ours, struct nib_plan **plan,
				struct nib_error *err)
{
	enum nib_status status;

	if (!plan)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "plan",
					 " = NULL: must point to a pointer");
	*plan = NULL;
	status = nib_check_device(device, err);
	if (!status)
		status = nib_options_read(ours, sizeof(*ours), options, "options", err);
	if (status)
		return status;
	*plan = device->backend->plan_new();
	if (!*plan)
		return no_memory("a plan", sizeof(struct nib_plan), err);
	(*plan)->device = device;
	(*plan)->op = op;
	(*plan)->k_slices = 1;
	(*plan)->caller_workspace = ours->caller_workspace != 0;
	if (pthread_mutex_init(&(*plan)->last.lock, NULL) != 0) {
		device->backend->plan_free(*plan);
		*plan = NULL;
		return no_memory("a lock", sizeof(pthread_mutex_t), err);
	}
	return NIB_STATUS_OK;
}

/* Host backend: resolved problems precede the backend's workspace. */
static enum nib_status add_head(struct nib_plan *plan, struct nib_error *err)
{
	const size_t each = sizeof(struct nib_problem) + nib_outputs_bytes();
	/* At most 2^31 problems, which fit into memory. */
	const size_t bytes = plan->is_moe ? 0 : (size_t)plan->count * each;

	plan->head_bytes = (bytes + 63) / 64 * 64;
	if (__builtin_add_overflow(plan->workspace_bytes, plan->head_bytes,
				   &plan->workspace_bytes))
		return no_memory("a workspace", SIZE_MAX, err);
	return NIB_STATUS_OK;
}

/* Other backends: resolved problems are in the plan. */
static enum nib_status add_last_run(struct nib_plan *plan, struct nib_error *err)
{
	struct nib_last_run *last = &plan->last;
	const size_t count = plan->is_moe ? 0 : (size_t)plan->count;

	if (count == 0)
		return NIB_STATUS_OK;
	last->given = calloc(count, sizeof(*last->given));
	last->problems = calloc(count, sizeof(*last->problems));
	last->scratch = calloc(count, nib_outputs_bytes());
	if (last->given && last->problems && last->scratch)
		return NIB_STATUS_OK;
	return no_memory("the problems",
			 count * (2 * sizeof(*last->given) + nib_outputs_bytes()), err);
}

/* The plan's own workspace. */
static enum nib_status add_workspace(struct nib_plan *plan, struct nib_error *err)
{
	const struct nib_backend *backend = plan->device->backend;
	void *workspace = NULL;
	enum nib_status status;

	if (plan->caller_workspace || plan->workspace_bytes == 0)
		return NIB_STATUS_OK;
	status = backend->workspace_new(plan->device, plan->workspace_bytes, &workspace,
					err);
	if (backend->is_host)
		atomic_store(&plan->spares.kept[0], workspace);
	else
		plan->workspace = workspace;
	return status;
}

/* Runs the backend's planner and adds memory for runs; frees a failed plan. */
static enum nib_status finish_plan(struct nib_plan **plan, enum nib_status status,
				   struct nib_error *err)
{
	struct nib_plan *p = *plan;

	if (!status)
		status = p->device->backend->plan(p, err);
	if (!status)
		status = p->device->backend->is_host ? add_head(p, err)
						     : add_last_run(p, err);
	if (!status)
		status = add_workspace(p, err);
	if (status) {
		nib_plan_free(p);
		*plan = NULL;
	}
	return status;
}

enum nib_status nib_plan_create(struct nib_device *device, enum nib_op op,
				const struct nib_problem *problems, int64_t count,
				const struct nib_plan_options *options,
				struct nib_plan **plan, struct nib_error *err)
{
	struct nib_plan_options ours;
	struct nib_plan *p;
	enum nib_status status;

	status = new_plan(device, op, options, &ours, plan, err);
	if (status)
		return status;
	p = *plan;
	/* Other counts are refused by nib_valid_problems(), with a message. */
	if (count > 0 && count <= INT32_MAX && problems) {
		p->problems = calloc((size_t)count, sizeof(*p->problems));
		if (!p->problems)
			status = no_memory("the problems",
					   (size_t)count * sizeof(*p->problems), err);
	}
	if (!status)
		status =
		    nib_valid_problems(op, device, problems, count, p->problems, err);
	p->count = status ? 0 : count;
	for (int64_t i = 0; i < p->count; i++) {
		p->flop += nib_problem_flop(op, &p->problems[i]);
		p->bytes += nib_problem_bytes(op, &p->problems[i]);
	}
	return finish_plan(plan, status, err);
}

enum nib_status nib_moe_plan_create(struct nib_device *device, enum nib_op op,
				    const struct nib_moe_problem *moe,
				    const struct nib_plan_options *options,
				    struct nib_plan **plan, struct nib_error *err)
{
	struct nib_plan_options ours;
	struct nib_plan *p;
	enum nib_status status;

	status = new_plan(device, op, options, &ours, plan, err);
	if (status)
		return status;
	p = *plan;
	p->is_moe = true;
	status = nib_valid_moe(op, device, moe, &p->moe, err);
	if (!status) {
		p->count = p->moe.problem.b.batch;
		p->flop = nib_problem_flop(op, &p->moe.problem);
		p->bytes = nib_problem_bytes(op, &p->moe.problem);
	}
	return finish_plan(plan, status, err);
}

void nib_plan_free(struct nib_plan *plan)
{
	const struct nib_backend *backend;

	if (!plan)
		return;
	backend = plan->device->backend;
	nib_spares_free(plan->device, &plan->spares);
	if (plan->workspace)
		backend->workspace_free(plan->device, plan->workspace);
	pthread_mutex_destroy(&plan->last.lock);
	free(plan->last.given);
	free(plan->last.problems);
	free(plan->last.scratch);
	free(plan->problems);
	backend->plan_free(plan);
}

enum nib_status nib_plan_get_info(const struct nib_plan *plan,
				  struct nib_plan_info *info, struct nib_error *err)
{
	struct nib_plan_info ours = {0};
	size_t bytes;
	enum nib_status status;

	if (!plan)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "plan",
					 " = NULL: must be a plan");
	status = nib_info_check(info, sizeof(ours), &bytes, "info", err);
	if (status)
		return status;
	ours.op = plan->op;
	ours.count = plan->count;
	ours.backend = plan->backend_name;
	ours.workspace_bytes = plan->workspace_bytes;
	ours.flop = plan->flop;
	ours.bytes = plan->bytes;
	ours.tasks = plan->tasks;
	ours.threads = plan->threads;
	ours.explanation = plan->explanation;
	ours.k_slices = plan->k_slices;
	nib_info_write(info, &ours, bytes);
	return NIB_STATUS_OK;
}
