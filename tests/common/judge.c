/* SPDX-License-Identifier: Apache-2.0 */
/* common/judge.c - runs the jobs of common/problem.h and judges the results. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/view.h"
#include "problem.h"
#include "unit.h"

static int outputs(const struct job *job)
{
	return job->is_moe ? 1 : job->count;
}

void job_poison(struct job *job)
{
	for (int i = 0; i < outputs(job); i++)
		memset(job->c[i].memory, GUARD_POISON, job->c[i].bytes);
}

/* ---- packed weights ------------------------------------------------------ */

static const struct nib_packed *pack(struct nib_device *device,
				     const struct nib_fp4 *view)
{
	struct nib_packed *packed;
	struct nib_error err;

	if (nib_pack(device, view, NULL, &packed, &err))
		fail_msg("nib_pack: %s", err.message);
	return packed;
}

void job_pack(struct job *job, const struct job_how *how)
{
	const bool is_dual = job->op == NIB_OP_DUAL_GEMM;

	if (how->packing == JOB_VIEWS)
		return;
	if (job->is_moe) {
		job->moe.problem.b_packed = pack(how->device, &job->moe.problem.b);
		if (is_dual && how->packing == JOB_PACKED)
			job->moe.problem.b2_packed =
			    pack(how->device, &job->moe.problem.b2);
		return;
	}
	for (int i = 0; i < job->count; i++) {
		struct nib_problem *p = &job->problems[i];

		if (how->packing == JOB_MIXED && i % 2)
			continue;
		p->b_packed = pack(how->device, &p->b);
		if (is_dual && how->packing == JOB_PACKED)
			p->b2_packed = pack(how->device, &p->b2);
	}
}

static void unpack(const struct nib_packed **packed)
{
	nib_packed_free((struct nib_packed *)(uintptr_t)*packed);
	*packed = NULL;
}

void job_unpack(struct job *job)
{
	unpack(&job->moe.problem.b_packed);
	unpack(&job->moe.problem.b2_packed);
	for (int i = 0; i < job->count && !job->is_moe; i++) {
		unpack(&job->problems[i].b_packed);
		unpack(&job->problems[i].b2_packed);
	}
}

/* ---- running ------------------------------------------------------------- */

struct nib_plan *job_plan(const struct job *job, struct nib_device *device,
			  bool brings_workspace)
{
	const struct nib_plan_options options = {sizeof(options), brings_workspace};
	struct nib_plan *plan;
	struct nib_error err;
	enum nib_status status;

	if (job->is_moe)
		status = nib_moe_plan_create(device, job->op, &job->moe, &options,
					     &plan, &err);
	else
		status = nib_plan_create(device, job->op, job->problems, job->count,
					 &options, &plan, &err);
	if (status)
		fail_msg("plan: %s", err.message);
	return plan;
}

void job_run_plan(struct job *job, struct nib_plan *plan,
		  const struct nib_run_options *options, const char *what)
{
	struct nib_error err;
	enum nib_status status;

	if (job->is_moe)
		status = nib_moe_run(plan, &job->moe, options, &err);
	else
		status = nib_run(plan, job->problems, job->count, options, &err);
	if (status)
		fail_msg("%s: %s", what, err.message);
}

void job_run(struct job *job, const struct job_how *how, const char *what)
{
	struct nib_run_options options = {.struct_bytes = sizeof(options),
					  .check_data = how->check_data};
	struct nib_plan *plan;
	size_t bytes = 0;

	job_poison(job);
	job_pack(job, how);
	plan = job_plan(job, how->device, how->brings_workspace);
	if (how->brings_workspace) {
		/* Aligned at its start, so its size must be a multiple too. */
		bytes = test_plan_info(plan).workspace_bytes;
		assert_int_equal(bytes % 64, 0);
		options.workspace = guard_new(bytes);
		options.workspace_bytes = bytes;
	}
	job_run_plan(job, plan, &options, what);
	guard_free(options.workspace, bytes);
	nib_plan_free(plan);
	job_unpack(job);
	job_untouched(job, what);
}

void job_untouched(const struct job *job, const char *what)
{
	if (job->is_moe)
		output_untouched(&job->c[0], job->row_offsets[0],
				 job->row_offsets[job->count], what);
	for (int i = 0; i < job->count && !job->is_moe; i++)
		output_untouched(&job->c[i], 0, job->c[i].view.rows, what);
}

/* ---- judging ------------------------------------------------------------- */

/* Elements of c that a correct run has written. */
static int64_t elements(const struct job *job)
{
	int64_t count = 0;

	if (job->is_moe)
		return (job->row_offsets[job->count] - job->row_offsets[0]) *
		       job->moe.problem.c.cols;
	for (int i = 0; i < job->count; i++)
		count += nib_dense_batches(&job->problems[i].c) *
			 job->problems[i].c.rows * job->problems[i].c.cols;
	return count;
}

void job_check(const struct job *job, const char *what)
{
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	struct nib_error err;
	enum nib_status status;

	if (job->is_moe)
		status = nib_moe_check(job->op, &job->moe, NULL, &r, &err);
	else
		status = nib_check(job->op, job->problems, job->count, NULL, &r, &err);
	if (status)
		fail_msg("%s: nib_check: %s", what, err.message);
	if (r.failed)
		fail_msg("%s: %" PRId64 " of %" PRId64 " wrong; problem %" PRId64
			 " batch %" PRId64 " row %" PRId64 " col %" PRId64
			 ": got %a, want %a, %g times the bound",
			 what, r.failed, r.checked, r.problem, r.batch, r.row, r.col,
			 r.got, r.want, r.worst_fraction);
	assert_int_equal(r.checked, elements(job));
}

struct bits job_bits(const struct job *job)
{
	struct bits bits = {NULL, 0};
	size_t at = 0;

	for (int i = 0; i < outputs(job); i++) {
		const struct nib_dense *c = &job->c[i].view;

		bits.n_bytes +=
		    (size_t)(c->batch * c->rows * c->cols) * nib_dtype_bytes(c->dtype);
	}
	bits.bytes = malloc(bits.n_bytes + 1);
	assert_non_null(bits.bytes);
	for (int i = 0; i < outputs(job); i++) {
		const struct nib_dense *c = &job->c[i].view;
		const size_t row_bytes = (size_t)c->cols * nib_dtype_bytes(c->dtype);

		for (int64_t l = 0; l < c->batch * c->rows && row_bytes; l++) {
			memcpy(bits.bytes + at,
			       nib_dense_at(c, l / c->rows, l % c->rows, 0), row_bytes);
			at += row_bytes;
		}
	}
	return bits;
}

void bits_free(struct bits *bits)
{
	free(bits->bytes);
	bits->bytes = NULL;
}

void job_has_bits(const struct job *job, const struct bits *want, const char *what)
{
	struct bits got = job_bits(job);
	size_t i = 0;

	assert_int_equal(got.n_bytes, want->n_bytes);
	while (i < got.n_bytes && got.bytes[i] == want->bytes[i])
		i++;
	bits_free(&got);
	if (i == want->n_bytes)
		return;
	for (int p = 0; p < outputs(job); p++) {
		const struct nib_dense *c = &job->c[p].view;
		const size_t size = nib_dtype_bytes(c->dtype);
		const size_t bytes = (size_t)(c->batch * c->rows * c->cols) * size;
		const int64_t at = (int64_t)(i / size);

		if (i < bytes)
			fail_msg("%s: bits differ in problem %d, batch %" PRId64
				 ", row %" PRId64 ", col %" PRId64 " (%a)",
				 what, p, at / c->cols / c->rows,
				 at / c->cols % c->rows, at % c->cols,
				 (double)nib_dense_get(c, at / c->cols / c->rows,
						       at / c->cols % c->rows,
						       at % c->cols));
		i -= bytes;
	}
}
