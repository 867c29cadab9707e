/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c - API: the oracle.  Walks over the elements of c and either
 * writes the exact result or compares what is there with it.
 *
 * The arithmetic is in format/exact.c, the bounds are in format/bound.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/outputs.h"
#include "api/validate.h"
#include "core/error.h"
#include "core/options.h"
#include "format/bound.h"
#include "format/exact.h"
#include "format/view.h"

/* Rows of a that are decoded at once and share each decoded row of b. */
#define PANEL_ROWS 16

/* Rows first..end-1 of a times one matrix b (and b2). */
struct job {
	int64_t index; /* of the problem, or of the expert */
	const struct nib_nvfp4 *a, *b, *b2; /* b2: NIB_DUAL_GEMM, else NULL */
	const struct nib_dense *c;
	int64_t batch, b_batch, b2_batch; /* batch: of a and c */
	int64_t end_row;		  /* the sampler knows the first */
	int64_t scale_shift; /* scales of a's row r are those of r + shift */
	float alpha, alpha2;
};

/*
 * Chooses rows of a range, ascending.  Each row is taken with probability
 * (rows still wanted) / (rows left), so the number of rows is exact.
 */
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

/* ---- which rows --------------------------------------------------------- */

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

/* ---- one element -------------------------------------------------------- */

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

static void check_element(const struct oracle *o, const struct job *job,
			  int64_t row, int64_t col,
			  const struct nib_exact_sum *s,
			  const struct nib_exact_sum *s2)
{
	const enum nib_arithmetic arithmetic = o->options.arithmetic;
	struct nib_check_result *result = o->result;
	const float got = nib_dense_get(job->c, job->batch, row, col);
	const int64_t k = job->a->k;
	const struct nib_expected expected =
	    s2 ? nib_expect_dual(s, job->alpha, s2, job->alpha2, k, arithmetic)
	       : nib_expect_gemm(s, job->alpha, k, arithmetic);
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

/* The exact sum, and what the bound needs beside it. */
static struct nib_exact_sum sum_of(const struct oracle *o,
				   const struct nib_exact_row *a,
				   const struct nib_exact_row *b, int64_t k)
{
	struct nib_exact_sum s = nib_exact_dot(a, b, k);

	if (o->options.arithmetic == NIB_ARITHMETIC_FP16_TENSOR)
		s.products = nib_exact_products(a, b, k);
	if (o->options.arithmetic == NIB_ARITHMETIC_FP4_TENSOR)
		s.large = nib_exact_large_blocks(a, b, k);
	return s;
}

/* ---- one job ------------------------------------------------------------ */

static void visit(struct oracle *o, const struct job *job)
{
	const int64_t k = job->a->k;
	int64_t rows[PANEL_ROWS];
	int count;

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
			return;
		for (int64_t col = 0; col < job->b->rows; col++) {
			struct nib_exact_sum s, s2;

			nib_exact_decode(&o->b, job->b, job->b_batch, col, col);
			if (job->b2)
				nib_exact_decode(&o->b2, job->b2, job->b2_batch,
						 col, col);
			for (int i = 0; i < count; i++) {
				s = sum_of(o, &o->a[i], &o->b, k);
				if (job->b2)
					s2 = sum_of(o, &o->a[i], &o->b2, k);
				if (o->result)
					check_element(o, job, rows[i], col, &s,
						      job->b2 ? &s2 : NULL);
				else
					write_element(job, rows[i], col, &s,
						      job->b2 ? &s2 : NULL);
			}
		}
	}
}

/* ---- all jobs ----------------------------------------------------------- */

static void each_problem(struct oracle *o, enum nib_op op,
			 const struct nib_problem *problems, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		const struct nib_problem *p = &problems[i];
		struct job job = {
		    .index = i,
		    .a = &p->a,
		    .b = &p->b,
		    .b2 = op == NIB_DUAL_GEMM ? &p->b2 : NULL,
		    .c = &p->c,
		    .end_row = p->a.rows,
		    .alpha = p->alpha ? *p->alpha : 1,
		    .alpha2 = p->alpha2 ? *p->alpha2 : 1,
		};

		/* An empty c may have any number of batches. */
		if (p->c.rows == 0 || p->c.cols == 0)
			continue;
		for (; job.batch < p->a.batch; job.batch++) {
			job.b_batch = p->b.batch == 1 ? 0 : job.batch;
			job.b2_batch = p->b2.batch == 1 ? 0 : job.batch;
			sampler_start(o, 0, job.end_row, i, job.batch);
			visit(o, &job);
		}
	}
}

static void each_expert(struct oracle *o, enum nib_op op,
			const struct nib_moe_problem *moe)
{
	const int64_t experts = moe->b.batch;

	sampler_start(o, moe->row_offsets[0], moe->row_offsets[experts], 0, 0);
	for (int64_t e = 0; e < experts; e++) {
		const int64_t first = moe->row_offsets[e];
		const struct job job = {
		    .index = e,
		    .a = &moe->a,
		    .b = &moe->b,
		    .b2 = op == NIB_DUAL_GEMM ? &moe->b2 : NULL,
		    .c = &moe->c,
		    .b_batch = e,
		    .b2_batch = e,
		    .end_row = moe->row_offsets[e + 1],
		    .scale_shift =
			moe->scale_rows ? moe->scale_rows[e] - first : 0,
		    .alpha = moe->alpha ? moe->alpha[e] : 1,
		    .alpha2 = moe->alpha2 ? moe->alpha2[e] : 1,
		};

		visit(o, &job);
	}
}

/* ---- entry points ------------------------------------------------------- */

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

static enum nib_status no_dense(const char *argument, struct nib_error *err)
{
	return nib_fail_argument(err, NIB_UNSUPPORTED, argument,
				 ": the oracle reads A as NVFP4 only");
}

/* Checks as nib_run() does, and scale signs, before anything is written. */
static enum nib_status run_problems(struct oracle *o, enum nib_op op,
				    const struct nib_problem *problems,
				    int64_t count, struct nib_error *err)
{
	struct nib_problem *resolved = NULL;
	enum nib_status status;
	int64_t k = 0;

	if (count > 0 && count <= INT32_MAX && problems) {
		/* The outputs' scratch lies behind the problems. */
		resolved = calloc((size_t)count,
				  sizeof(*resolved) + nib_outputs_bytes());
		if (!resolved)
			return nib_fail(err, NIB_OUT_OF_MEMORY,
					"the oracle's %" PRId64 " problems",
					count);
	}
	status = nib_valid_problems(op, NULL, problems, count, resolved, err);
	if (status || !resolved) { /* refused, or nothing to do */
		free(resolved);
		return status;
	}
	if (resolved->activations != NIB_ACTIVATIONS_NVFP4)
		status = no_dense("problems[0].activations", err);
	for (int64_t i = 0; i < count && !status; i++) {
		status = nib_valid_problem_data(op, &resolved[i], i, err);
		if (!status)
			status =
			    nib_valid_problem_signs(op, &resolved[i], i, err);
		if (resolved[i].a.k > k)
			k = resolved[i].a.k;
	}
	if (!status)
		status = nib_valid_outputs(op, resolved, count,
					   &resolved[count], err);
	if (!status)
		status = oracle_open(o, k, err);
	if (!status)
		each_problem(o, op, resolved, count);
	free(o->memory);
	free(resolved);
	return status;
}

static enum nib_status run_moe(struct oracle *o, enum nib_op op,
			       const struct nib_moe_problem *moe,
			       struct nib_error *err)
{
	struct nib_moe_problem resolved;
	enum nib_status status;

	status = nib_valid_moe(op, NULL, moe, &resolved, err);
	if (!status && resolved.activations != NIB_ACTIVATIONS_NVFP4)
		status = no_dense("moe.activations", err);
	if (!status)
		status = nib_valid_moe_data(op, &resolved, err);
	if (!status)
		status = nib_valid_moe_signs(op, &resolved, err);
	if (!status)
		status = oracle_open(o, resolved.a.k, err);
	if (!status)
		each_expert(o, op, &resolved);
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
		return nib_fail_argument(err, NIB_BAD_ARGUMENT,
					 "options.sample_rows",
					 " = %lld: must be 0 (all) "
					 "or more",
					 (long long)o->options.sample_rows);
	if (o->options.arithmetic != NIB_ARITHMETIC_BLOCKS &&
	    o->options.arithmetic != NIB_ARITHMETIC_FP16_TENSOR &&
	    o->options.arithmetic != NIB_ARITHMETIC_FP4_TENSOR)
		return nib_fail_argument(
		    err, NIB_BAD_ARGUMENT, "options.arithmetic",
		    " = %d: must be "
		    "NIB_ARITHMETIC_BLOCKS (%d), "
		    "NIB_ARITHMETIC_FP16_TENSOR (%d) or "
		    "NIB_ARITHMETIC_FP4_TENSOR (%d)",
		    (int)o->options.arithmetic, NIB_ARITHMETIC_BLOCKS,
		    NIB_ARITHMETIC_FP16_TENSOR, NIB_ARITHMETIC_FP4_TENSOR);
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
