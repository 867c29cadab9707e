/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c - the oracle's public face: walks over the elements of c, and
 * either writes the exact result or judges what is there.
 *
 * The arithmetic is format/exact.c, the bounds are format/bound.c.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "api/options.h"
#include "format/bound.h"
#include "format/exact.h"
#include "format/view.h"

/* Rows of a decoded at once, so that decoding b costs little. */
#define PANEL_ROWS 16

/* Rows first..end-1 of a times one matrix b (and b2). */
struct job {
	const char *where; /* "problems", "experts" and index: for errors */
	int64_t index;
	const struct nib_nvfp4 *a, *b, *b2; /* b2: NIB_DUAL_GEMM, else NULL */
	const struct nib_dense *c;
	int64_t batch, b_batch, b2_batch; /* batch: of a and c */
	int64_t first_row, end_row;
	int64_t scale_shift; /* scales of a's row r are those of r + shift */
	float alpha, alpha2;
};

/* Chosen rows of a range, ascending: each row is taken with probability
 * (still wanted) / (still there), so exactly as many as wanted are. */
struct sampler {
	uint64_t state;
	int64_t row, end, wanted;
};

struct oracle {
	struct nib_exact_row a[PANEL_ROWS], b, b2;
	void *memory;
	struct nib_check_options options;
	struct nib_check_result *result; /* NULL: write c */
	struct sampler rows;
};

typedef enum nib_status (*job_step)(struct oracle *o, const struct job *job,
				    struct nib_error *err);

/* ---- which rows ---------------------------------------------------------- */

/* splitmix64, public domain (Sebastiano Vigna). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

static void sampler_start(struct oracle *o, int64_t first, int64_t end,
			  int64_t problem, int64_t batch)
{
	const int64_t wanted = o->options.sample_rows;
	struct sampler *s = &o->rows;

	s->state = o->options.seed;
	s->state = next_random(&s->state) + (uint64_t)problem;
	s->state = next_random(&s->state) + (uint64_t)batch;
	s->row = first;
	s->end = end;
	s->wanted = wanted == 0 || wanted > end - first ? end - first : wanted;
}

/* The next chosen row below limit, or -1. */
static int64_t sampler_next(struct sampler *s, int64_t limit)
{
	while (s->row < limit) {
		int64_t row = s->row++;
		uint64_t there = (uint64_t)(s->end - row);

		if (next_random(&s->state) % there < (uint64_t)s->wanted) {
			s->wanted--;
			return row;
		}
	}
	return -1;
}

/* ---- one element --------------------------------------------------------- */

static void write_element(const struct job *job, int64_t row, int64_t col,
			  const struct nib_exact_sum *s,
			  const struct nib_exact_sum *s2)
{
	const enum nib_dtype dtype = job->c->dtype;
	uint32_t bits;

	if (s2)
		bits = nib_fp64_to_dtype(
		    nib_exact_silu(nib_exact_double(s, job->alpha)) *
			nib_exact_double(s2, job->alpha2),
		    dtype);
	else
		bits = nib_exact_round(s, job->alpha, dtype);
	nib_dense_set_bits(job->c, job->batch, row, col, bits);
}

static void check_element(struct nib_check_result *result,
			  const struct job *job, int64_t row, int64_t col,
			  const struct nib_exact_sum *s,
			  const struct nib_exact_sum *s2)
{
	const float got = nib_dense_get(job->c, job->batch, row, col);
	const int64_t k = job->a->k;
	const struct nib_expected expected =
	    s2 ? nib_expect_dual(s, job->alpha, s2, job->alpha2, k)
	       : nib_expect_gemm(s, job->alpha, k);
	const struct nib_verdict v = nib_judge(&expected, job->c->dtype, got);

	result->failed += !(v.fraction <= 1);
	if (result->checked++ && v.fraction <= result->worst_fraction)
		return;
	result->worst_error = v.error / expected.unit;
	result->worst_bound = v.bound / expected.unit;
	result->worst_fraction = v.fraction;
	result->problem = job->index;
	result->batch = job->batch;
	result->row = row;
	result->col = col;
	result->got = got;
	result->want = expected.want;
}

/* ---- one job ------------------------------------------------------------- */

static enum nib_status visit(struct oracle *o, const struct job *job,
			     struct nib_error *err)
{
	const int64_t k = job->a->k;
	int64_t rows[PANEL_ROWS];
	int count;

	(void)err;
	for (;;) {
		for (count = 0; count < PANEL_ROWS; count++) {
			int64_t row = sampler_next(&o->rows, job->end_row);

			if (row < 0)
				break;
			rows[count] = row;
			nib_exact_decode(&o->a[count], job->a, job->batch, row,
					 row + job->scale_shift);
		}
		if (count == 0)
			return NIB_OK;
		for (int64_t col = 0; col < job->b->rows; col++) {
			struct nib_exact_sum s, s2;

			nib_exact_decode(&o->b, job->b, job->b_batch, col, col);
			if (job->b2)
				nib_exact_decode(&o->b2, job->b2, job->b2_batch,
						 col, col);
			for (int i = 0; i < count; i++) {
				s = nib_exact_dot(&o->a[i], &o->b, k);
				if (job->b2)
					s2 = nib_exact_dot(&o->a[i], &o->b2, k);
				if (o->result)
					check_element(o->result, job, rows[i],
						      col, &s,
						      job->b2 ? &s2 : NULL);
				else
					write_element(job, rows[i], col, &s,
						      job->b2 ? &s2 : NULL);
			}
		}
	}
}

static enum nib_status refuse_signs(const struct job *job, const char *name,
				    const struct nib_nvfp4 *v, int64_t batch,
				    int64_t first, int64_t end,
				    struct nib_error *err)
{
	/* No scales: the rows may be any number. */
	if (v->k == 0)
		return NIB_OK;
	for (int64_t row = first; row < end; row++) {
		int64_t group = nib_exact_signed_scale(v, batch, row);

		if (group >= 0)
			return nib_fail(err, NIB_BAD_DATA,
					"%s[%lld].%s: scale (batch %lld, row "
					"%lld, group %lld) has its sign bit "
					"set: scales are not negative",
					job->where, (long long)job->index, name,
					(long long)batch, (long long)row,
					(long long)group);
	}
	return NIB_OK;
}

/* Before anything is written: a scale with a sign is no scale. */
static enum nib_status check_scales(struct oracle *o, const struct job *job,
				    struct nib_error *err)
{
	enum nib_status status;

	(void)o;
	status = refuse_signs(job, "a", job->a, job->batch,
			      job->first_row + job->scale_shift,
			      job->end_row + job->scale_shift, err);
	if (status == NIB_OK)
		status = refuse_signs(job, "b", job->b, job->b_batch, 0,
				      job->b->rows, err);
	if (status == NIB_OK && job->b2)
		status = refuse_signs(job, "b2", job->b2, job->b2_batch, 0,
				      job->b2->rows, err);
	return status;
}

/* ---- all jobs ------------------------------------------------------------ */

static enum nib_status each_problem(struct oracle *o, enum nib_op op,
				    const struct nib_problem *problems,
				    int64_t count, job_step step,
				    struct nib_error *err)
{
	for (int64_t i = 0; i < count; i++) {
		const struct nib_problem *p = &problems[i];
		struct job job = {
		    .where = "problems",
		    .index = i,
		    .a = &p->a,
		    .b = &p->b,
		    .b2 = op == NIB_DUAL_GEMM ? &p->b2 : NULL,
		    .c = &p->c,
		    .end_row = p->a.rows,
		    .alpha = p->alpha ? *p->alpha : 1,
		    .alpha2 = p->alpha2 ? *p->alpha2 : 1,
		};

		/* Nothing to write: the batches may be any number. */
		if (p->c.rows == 0 || p->c.cols == 0)
			continue;
		for (; job.batch < nib_nvfp4_batches(&p->a); job.batch++) {
			enum nib_status status;

			job.b_batch =
			    nib_nvfp4_batches(&p->b) == 1 ? 0 : job.batch;
			job.b2_batch =
			    nib_nvfp4_batches(&p->b2) == 1 ? 0 : job.batch;
			sampler_start(o, 0, job.end_row, i, job.batch);
			status = step(o, &job, err);
			if (status != NIB_OK)
				return status;
		}
	}
	return NIB_OK;
}

static enum nib_status each_expert(struct oracle *o, enum nib_op op,
				   const struct nib_moe_problem *moe,
				   job_step step, struct nib_error *err)
{
	const int64_t experts = nib_nvfp4_batches(&moe->b);

	sampler_start(o, moe->row_offsets[0], moe->row_offsets[experts], 0, 0);
	for (int64_t e = 0; e < experts; e++) {
		const int64_t first = moe->row_offsets[e];
		const struct job job = {
		    .where = "experts",
		    .index = e,
		    .a = &moe->a,
		    .b = &moe->b,
		    .b2 = op == NIB_DUAL_GEMM ? &moe->b2 : NULL,
		    .c = &moe->c,
		    .b_batch = e,
		    .b2_batch = e,
		    .first_row = first,
		    .end_row = moe->row_offsets[e + 1],
		    .scale_shift =
			moe->scale_rows ? moe->scale_rows[e] - first : 0,
		    .alpha = moe->alpha ? moe->alpha[e] : 1,
		    .alpha2 = moe->alpha2 ? moe->alpha2[e] : 1,
		};
		enum nib_status status = step(o, &job, err);

		if (status != NIB_OK)
			return status;
	}
	return NIB_OK;
}

/* ---- arguments ----------------------------------------------------------- */

static enum nib_status check_view(const struct nib_nvfp4 *v, const char *name,
				  struct nib_error *err)
{
	if (v->k < 0 || v->k % NIB_BLOCK || v->k > NIB_MAX_K)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"%s.k = %lld: must be a multiple of %d from 0 "
				"to %lld",
				name, (long long)v->k, NIB_BLOCK,
				(long long)NIB_MAX_K);
	if (v->rows < 0 || v->batch < 0)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"%s: rows = %lld, batch = %lld: must not be "
				"negative",
				name, (long long)v->rows, (long long)v->batch);
	if (v->scale_layout != NIB_LINEAR && v->scale_layout != NIB_TILED_128X4)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"%s.scale_layout = %d: unknown", name,
				(int)v->scale_layout);
	if (v->rows && v->k && (!v->codes || !v->scales))
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"%s: codes or scales is NULL", name);
	return NIB_OK;
}

/* What plain problems and mixtures of experts have in common. */
static enum nib_status check_operands(enum nib_op op, const struct nib_nvfp4 *a,
				      const struct nib_nvfp4 *b,
				      const struct nib_nvfp4 *b2,
				      const struct nib_dense *c, bool is_packed,
				      struct nib_error *err)
{
	enum nib_status status;

	if (is_packed)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"b_packed or b2_packed is set: the oracle "
				"reads views only");
	status = check_view(a, "a", err);
	if (status == NIB_OK)
		status = check_view(b, "b", err);
	if (status == NIB_OK && op == NIB_DUAL_GEMM)
		status = check_view(b2, "b2", err);
	if (status != NIB_OK)
		return status;
	if (a->k != b->k || a->rows != c->rows || b->rows != c->cols ||
	    nib_nvfp4_batches(a) != nib_dense_batches(c))
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"a is [%lld, %lld], b is [%lld, %lld], c is "
				"[%lld, %lld]: must be [m, k], [n, k], [m, n] "
				"and one batch count for a and c",
				(long long)a->rows, (long long)a->k,
				(long long)b->rows, (long long)b->k,
				(long long)c->rows, (long long)c->cols);
	if (op == NIB_DUAL_GEMM && (b2->rows != b->rows || b2->k != b->k))
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"b2 is [%lld, %lld]: must be as b",
				(long long)b2->rows, (long long)b2->k);
	if (nib_dtype_bytes(c->dtype) == 0)
		return nib_fail(err, NIB_BAD_ARGUMENT, "c.dtype = %d: unknown",
				(int)c->dtype);
	if (c->rows && c->cols && !c->data)
		return nib_fail(err, NIB_BAD_ARGUMENT, "c.data is NULL");
	return NIB_OK;
}

static enum nib_status check_problems(enum nib_op op,
				      const struct nib_problem *problems,
				      int64_t count, struct nib_error *err)
{
	if (op != NIB_GEMM && op != NIB_DUAL_GEMM && op != NIB_GEMV)
		return nib_fail(err, NIB_BAD_ARGUMENT, "op = %d: unknown",
				(int)op);
	if (count < 0 || (count && !problems))
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"problems is NULL or count = %lld is negative",
				(long long)count);
	for (int64_t i = 0; i < count; i++) {
		const struct nib_problem *p = &problems[i];
		const int64_t batches = nib_nvfp4_batches(&p->a);
		const int64_t b_batches = nib_nvfp4_batches(&p->b);
		const int64_t b2_batches =
		    op == NIB_DUAL_GEMM ? nib_nvfp4_batches(&p->b2) : 1;
		enum nib_status status = check_operands(
		    op, &p->a, &p->b, &p->b2, &p->c,
		    p->b_packed || (op == NIB_DUAL_GEMM && p->b2_packed), err);

		if (status != NIB_OK)
			return status;
		if ((b_batches != 1 && b_batches != batches) ||
		    (b2_batches != 1 && b2_batches != batches))
			return nib_fail(err, NIB_BAD_ARGUMENT,
					"problems[%lld].b.batch = %lld, "
					"b2.batch = %lld: must be 1 or a's",
					(long long)i, (long long)b_batches,
					(long long)b2_batches);
		if (op == NIB_GEMV && p->a.rows != 1)
			return nib_fail(err, NIB_BAD_ARGUMENT,
					"problems[%lld].a.rows = %lld: must be "
					"1 for NIB_GEMV",
					(long long)i, (long long)p->a.rows);
	}
	return NIB_OK;
}

static enum nib_status check_moe(enum nib_op op,
				 const struct nib_moe_problem *moe,
				 struct nib_error *err)
{
	enum nib_status status;
	int64_t experts, rows;

	if (op != NIB_GEMM && op != NIB_DUAL_GEMM)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"op = %d: must be NIB_GEMM or NIB_DUAL_GEMM",
				(int)op);
	if (!moe || !moe->row_offsets)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"moe or moe->row_offsets is NULL");
	status = check_operands(
	    op, &moe->a, &moe->b, &moe->b2, &moe->c,
	    moe->b_packed || (op == NIB_DUAL_GEMM && moe->b2_packed), err);
	if (status != NIB_OK)
		return status;
	experts = nib_nvfp4_batches(&moe->b);
	if (op == NIB_DUAL_GEMM && nib_nvfp4_batches(&moe->b2) != experts)
		return nib_fail(
		    err, NIB_BAD_ARGUMENT, "b2.batch = %lld: must be b's, %lld",
		    (long long)nib_nvfp4_batches(&moe->b2), (long long)experts);
	rows = moe->scale_rows ? moe->scale_rows_total : moe->a.rows;
	if (nib_nvfp4_batches(&moe->a) != 1 || moe->row_offsets[0] < 0 ||
	    moe->row_offsets[experts] > moe->a.rows)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"row_offsets: must be from 0 to a.rows = %lld, "
				"and a's batch 1",
				(long long)moe->a.rows);
	for (int64_t e = 0; e < experts; e++) {
		const int64_t first = moe->row_offsets[e];
		const int64_t count = moe->row_offsets[e + 1] - first;
		const int64_t scale_row =
		    moe->scale_rows ? moe->scale_rows[e] : first;

		if (count < 0 ||
		    (count > 0 && (scale_row < 0 || scale_row + count > rows)))
			return nib_fail(err, NIB_BAD_ARGUMENT,
					"expert %lld: %lld rows with scales "
					"from row %lld: must ascend and stay "
					"inside %lld rows of scales",
					(long long)e, (long long)count,
					(long long)scale_row, (long long)rows);
	}
	return NIB_OK;
}

/* ---- entry points -------------------------------------------------------- */

static enum nib_status oracle_open(struct oracle *o, int64_t k,
				   struct nib_error *err)
{
	const size_t n = (size_t)k, rows = PANEL_ROWS + 2;
	int32_t *scale;
	int16_t *twice;

	scale = malloc(
	    rows * (n / NIB_BLOCK * sizeof(*scale) + n * sizeof(*twice)) + 1);
	if (!scale)
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"the oracle's rows of k = %lld", (long long)k);
	o->memory = scale;
	twice = (int16_t *)(scale + rows * (n / NIB_BLOCK));
	for (size_t i = 0; i < rows; i++) {
		struct nib_exact_row *row = i < PANEL_ROWS    ? &o->a[i]
					    : i == PANEL_ROWS ? &o->b
							      : &o->b2;

		row->scale = scale + i * (n / NIB_BLOCK);
		row->twice = twice + i * n;
	}
	return NIB_OK;
}

static enum nib_status run_problems(struct oracle *o, enum nib_op op,
				    const struct nib_problem *problems,
				    int64_t count, struct nib_error *err)
{
	enum nib_status status;
	int64_t k = 0;

	status = check_problems(op, problems, count, err);
	if (status != NIB_OK)
		return status;
	for (int64_t i = 0; i < count; i++)
		if (problems[i].a.k > k)
			k = problems[i].a.k;
	status = each_problem(o, op, problems, count, check_scales, err);
	if (status == NIB_OK)
		status = oracle_open(o, k, err);
	if (status == NIB_OK)
		status = each_problem(o, op, problems, count, visit, err);
	free(o->memory);
	return status;
}

static enum nib_status run_moe(struct oracle *o, enum nib_op op,
			       const struct nib_moe_problem *moe,
			       struct nib_error *err)
{
	enum nib_status status;

	status = check_moe(op, moe, err);
	if (status == NIB_OK)
		status = each_expert(o, op, moe, check_scales, err);
	if (status == NIB_OK)
		status = oracle_open(o, moe->a.k, err);
	if (status == NIB_OK)
		status = each_expert(o, op, moe, visit, err);
	free(o->memory);
	return status;
}

enum nib_status nib_reference(enum nib_op op,
			      const struct nib_problem *problems, int64_t count,
			      struct nib_error *err)
{
	struct oracle o = {0};

	return run_problems(&o, op, problems, count, err);
}

enum nib_status nib_reference_moe(enum nib_op op,
				  const struct nib_moe_problem *moe,
				  struct nib_error *err)
{
	struct oracle o = {0};

	return run_moe(&o, op, moe, err);
}

/* Options, result and their sizes, for both checks. */
static enum nib_status check_open(struct oracle *o,
				  const struct nib_check_options *options,
				  struct nib_check_result *ours,
				  struct nib_check_result *theirs,
				  size_t *result_bytes, struct nib_error *err)
{
	enum nib_status status;

	memset(ours, 0, sizeof(*ours));
	o->result = ours;
	status = nib_options_read(&o->options, sizeof(o->options), options,
				  "options", err);
	if (status != NIB_OK)
		return status;
	if (o->options.sample_rows < 0)
		return nib_fail(err, NIB_BAD_ARGUMENT,
				"options.sample_rows = %lld: must be 0 (all) "
				"or more",
				(long long)o->options.sample_rows);
	return nib_info_check(theirs, sizeof(*ours), result_bytes, "result",
			      err);
}

enum nib_status nib_check(enum nib_op op, const struct nib_problem *problems,
			  int64_t count,
			  const struct nib_check_options *options,
			  struct nib_check_result *result,
			  struct nib_error *err)
{
	struct nib_check_result ours;
	struct oracle o = {0};
	enum nib_status status;
	size_t bytes = 0;

	status = check_open(&o, options, &ours, result, &bytes, err);
	if (status == NIB_OK)
		status = run_problems(&o, op, problems, count, err);
	if (status == NIB_OK)
		nib_info_write(result, &ours, bytes);
	return status;
}

enum nib_status nib_check_moe(enum nib_op op, const struct nib_moe_problem *moe,
			      const struct nib_check_options *options,
			      struct nib_check_result *result,
			      struct nib_error *err)
{
	struct nib_check_result ours;
	struct oracle o = {0};
	enum nib_status status;
	size_t bytes = 0;

	status = check_open(&o, options, &ours, result, &bytes, err);
	if (status == NIB_OK)
		status = run_moe(&o, op, moe, err);
	if (status == NIB_OK)
		nib_info_write(result, &ours, bytes);
	return status;
}
