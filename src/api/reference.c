/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c - API: the oracle.  For each element of c, writes the exact result or
 * compares the value in memory with it.
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
#include "format/exact_dense.h"
#include "format/view.h"

/* Rows of a that are decoded at once and share each decoded row of b. */
#define PANEL_ROWS 16

/* Rows of A of one batch times one matrix b (and b2). */
struct job {
	const struct nib_problem *p;
	int64_t index; /* of the problem, or of the expert */
	bool is_dual;
	int64_t batch, b_batch, b2_batch; /* batch: of A and c */
	int64_t end_row;		  /* the first is the sampler's */
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
	struct nib_exact_row a[PANEL_ROWS], b, b2; /* if A is NVFP4 */
	struct nib_exact_dense x[PANEL_ROWS];	   /* else: A */
	struct nib_exact_weights w, w2;		   /* and B, B2 */
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

static void sampler_start(struct oracle *o, int64_t first, int64_t end, int64_t problem,
			  int64_t batch)
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

/* The exact sum, and what else the bound needs. */
union sum {
	struct nib_exact_sum nvfp4;
	struct nib_exact_wide dense; /* if A is not NVFP4 */
};

static bool is_dense(const struct job *job)
{
	return job->p->activations != NIB_ACTIVATIONS_NVFP4;
}

static double sum_double(const struct job *job, const union sum *s, float alpha)
{
	return is_dense(job) ? nib_exact_wide_double(&s->dense, alpha)
			     : nib_exact_double(&s->nvfp4, alpha);
}

static void write_element(const struct job *job, int64_t row, int64_t col,
			  const union sum *s, const union sum *s2)
{
	const enum nib_dtype dtype = job->p->c.dtype;
	uint32_t bits;

	if (s2)
		bits =
		    nib_fp64_to_dtype(nib_exact_silu(sum_double(job, s, job->alpha)) *
					  sum_double(job, s2, job->alpha2),
				      dtype);
	else if (is_dense(job))
		bits = nib_exact_wide_round(&s->dense, job->alpha, dtype);
	else
		bits = nib_exact_round(&s->nvfp4, job->alpha, dtype);
	nib_dense_set_bits(&job->p->c, job->batch, row, col, bits);
}

static struct nib_dense_rule rule_of(const struct oracle *o, const struct job *job)
{
	return (struct nib_dense_rule){job->p->activations, job->p->x.dtype,
				       o->options.arithmetic};
}

static struct nib_expected expected_of(const struct oracle *o, const struct job *job,
				       const union sum *s, const union sum *s2)
{
	const enum nib_arithmetic arithmetic = o->options.arithmetic;
	const int64_t k = job->p->a.k;

	if (is_dense(job) && s2)
		return nib_expect_dual_dense(&s->dense, job->alpha, &s2->dense,
					     job->alpha2, k, rule_of(o, job));
	if (is_dense(job))
		return nib_expect_gemm_dense(&s->dense, job->alpha, k, rule_of(o, job));
	if (s2)
		return nib_expect_dual(&s->nvfp4, job->alpha, &s2->nvfp4, job->alpha2,
				       k, arithmetic);
	return nib_expect_gemm(&s->nvfp4, job->alpha, k, arithmetic);
}

static void check_element(const struct oracle *o, const struct job *job, int64_t row,
			  int64_t col, const union sum *s, const union sum *s2)
{
	struct nib_check_result *result = o->result;
	const float got = nib_dense_get(&job->p->c, job->batch, row, col);
	const struct nib_expected expected = expected_of(o, job, s, s2);
	const struct nib_verdict v = nib_judge(&expected, job->p->c.dtype, got);

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

/* ---- one job ------------------------------------------------------------ */

/* Row `row` of A becomes row i of the panel. */
static void decode_a(struct oracle *o, const struct job *job, int i, int64_t row)
{
	if (is_dense(job))
		nib_exact_decode_dense(&o->x[i], &job->p->x, job->p->activations,
				       job->batch, row);
	else
		nib_exact_decode(&o->a[i], &job->p->a, job->batch, row,
				 row + job->scale_shift);
}

/* Row col of B and of B2. */
static void decode_b(struct oracle *o, const struct job *job, int64_t col)
{
	if (is_dense(job))
		nib_exact_decode_weights(&o->w, &job->p->b, job->b_batch, col);
	else
		nib_exact_decode(&o->b, &job->p->b, job->b_batch, col, col);
	if (!job->is_dual)
		return;
	if (is_dense(job))
		nib_exact_decode_weights(&o->w2, &job->p->b2, job->b2_batch, col);
	else
		nib_exact_decode(&o->b2, &job->p->b2, job->b2_batch, col, col);
}

/* Row i of the panel times the decoded row of B, or of B2. */
static void sum_of(const struct oracle *o, const struct job *job, int i, bool is_b2,
		   union sum *s)
{
	const struct nib_exact_row *a = &o->a[i], *b = is_b2 ? &o->b2 : &o->b;
	const int64_t k = job->p->a.k;

	if (is_dense(job)) {
		nib_exact_dot_dense(&s->dense, &o->x[i], is_b2 ? &o->w2 : &o->w, k);
		return;
	}
	s->nvfp4 = nib_exact_dot(a, b, k);
	if (o->options.arithmetic == NIB_ARITHMETIC_FP16_TENSOR)
		s->nvfp4.products = nib_exact_products(a, b, k);
	if (o->options.arithmetic == NIB_ARITHMETIC_FP4_TENSOR)
		s->nvfp4.large = nib_exact_large_blocks(a, b, k);
}

/* The decoded rows of A by column col. */
static void visit_column(struct oracle *o, const struct job *job, const int64_t *rows,
			 int count, int64_t col)
{
	union sum s, s2;

	decode_b(o, job, col);
	for (int i = 0; i < count; i++) {
		sum_of(o, job, i, false, &s);
		if (job->is_dual)
			sum_of(o, job, i, true, &s2);
		if (o->result)
			check_element(o, job, rows[i], col, &s,
				      job->is_dual ? &s2 : NULL);
		else
			write_element(job, rows[i], col, &s, job->is_dual ? &s2 : NULL);
	}
}

static void visit(struct oracle *o, const struct job *job)
{
	int64_t rows[PANEL_ROWS];
	int count;

	for (;;) {
		for (count = 0; count < PANEL_ROWS; count++) {
			int64_t row = sampler_next(&o->rows, job->end_row);

			if (row < 0)
				break;
			rows[count] = row;
			decode_a(o, job, count, row);
		}
		if (count == 0)
			return;
		for (int64_t col = 0; col < job->p->b.rows; col++)
			visit_column(o, job, rows, count, col);
	}
}

/* ---- all jobs ----------------------------------------------------------- */

static void each_problem(struct oracle *o, enum nib_op op,
			 const struct nib_problem *problems, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		const struct nib_problem *p = &problems[i];
		struct job job = {
		    .p = p,
		    .index = i,
		    .is_dual = op == NIB_OP_DUAL_GEMM,
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
	const struct nib_problem *p = &moe->problem;
	const int64_t experts = p->b.batch;

	sampler_start(o, moe->row_offsets[0], moe->row_offsets[experts], 0, 0);
	for (int64_t e = 0; e < experts; e++) {
		const int64_t first = moe->row_offsets[e];
		const struct job job = {
		    .p = p,
		    .index = e,
		    .is_dual = op == NIB_OP_DUAL_GEMM,
		    .b_batch = e,
		    .b2_batch = e,
		    .end_row = moe->row_offsets[e + 1],
		    .scale_shift = moe->scale_rows ? moe->scale_rows[e] - first : 0,
		    .alpha = p->alpha ? p->alpha[e] : 1,
		    .alpha2 = p->alpha2 ? p->alpha2[e] : 1,
		};

		visit(o, &job);
	}
}

/* ---- entry points ------------------------------------------------------- */

/* Takes the next bytes, a multiple of 8 of them, of the oracle's memory. */
static void *take(char **memory, size_t bytes)
{
	void *taken = *memory;

	*memory += (bytes + 7) / 8 * 8;
	return taken;
}

static void take_row(struct nib_exact_row *row, char **memory, size_t k)
{
	row->scale = take(memory, k / NIB_NVFP4_BLOCK * sizeof(*row->scale));
	row->twice = take(memory, k * sizeof(*row->twice));
}

static void take_weights(struct nib_exact_weights *w, char **memory, size_t k)
{
	take_row(&w->row, memory, k);
	w->twice = take(memory, k * sizeof(*w->twice));
}

/* Allocates memory for the rows of a panel, and for a row of B and of B2. */
static enum nib_status oracle_open(struct oracle *o, int64_t k,
				   enum nib_activations activations,
				   struct nib_error *err)
{
	const bool is_nvfp4 = activations == NIB_ACTIVATIONS_NVFP4;
	const size_t n = (size_t)k, rows = PANEL_ROWS + 2;
	/* Values, a scale or flag for each block, and up to 8 bytes of padding
	 * for each of at most three arrays. */
	const size_t row_bytes =
	    n * (is_nvfp4 ? sizeof(int16_t) : sizeof(int16_t) + sizeof(double)) +
	    n / NIB_NVFP4_BLOCK * sizeof(int32_t) + 24;
	char *memory = malloc(rows * row_bytes);

	if (!memory)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for the oracle's rows of k = %lld",
				(long long)k);
	o->memory = memory;
	for (int i = 0; i < PANEL_ROWS; i++) {
		if (is_nvfp4) {
			take_row(&o->a[i], &memory, n);
			continue;
		}
		o->x[i].x = take(&memory, n * sizeof(double));
		o->x[i].is_narrow = take(&memory, n / NIB_NVFP4_BLOCK);
	}
	if (is_nvfp4) {
		take_row(&o->b, &memory, n);
		take_row(&o->b2, &memory, n);
	} else {
		take_weights(&o->w, &memory, n);
		take_weights(&o->w2, &memory, n);
	}
	return NIB_STATUS_OK;
}

/* Refuses an arithmetic that has no bound for A.  dtype: of x. */
static enum nib_status check_rule(const struct oracle *o,
				  enum nib_activations activations,
				  enum nib_dtype dtype, struct nib_error *err)
{
	const struct nib_dense_rule rule = {activations, dtype, o->options.arithmetic};

	if (activations == NIB_ACTIVATIONS_NVFP4 || nib_has_dense_bound(rule))
		return NIB_STATUS_OK;
	return nib_fail_argument(
	    err, NIB_STATUS_UNSUPPORTED, "options.arithmetic",
	    " = %d: must be NIB_ARITHMETIC_BLOCKS (%d), or "
	    "NIB_ARITHMETIC_FP16_TENSOR (%d) for fp16 and bf16 with "
	    "NIB_ACTIVATIONS_DENSE",
	    (int)rule.arithmetic, NIB_ARITHMETIC_BLOCKS, NIB_ARITHMETIC_FP16_TENSOR);
}

/* Checks as nib_run() does, and scale signs, before anything is written. */
static enum nib_status run_problems(struct oracle *o, enum nib_op op,
				    const struct nib_problem *problems, int64_t count,
				    struct nib_error *err)
{
	struct nib_problem *resolved = NULL;
	enum nib_status status;
	int64_t k = 0;

	if (count > 0 && count <= INT32_MAX && problems) {
		/* The outputs' scratch follows the problems. */
		resolved =
		    calloc((size_t)count, sizeof(*resolved) + nib_outputs_bytes());
		if (!resolved)
			return nib_fail(
			    err, NIB_STATUS_OUT_OF_MEMORY,
			    "no memory for the oracle's %" PRId64 " problems", count);
	}
	status = nib_valid_problems(op, NULL, problems, count, resolved, err);
	if (status || !resolved) { /* refused, or nothing to do */
		free(resolved);
		return status;
	}
	status = check_rule(o, resolved->activations, resolved->x.dtype, err);
	for (int64_t i = 0; i < count && !status; i++) {
		status = nib_valid_problem_data(op, &resolved[i], i, err);
		if (!status)
			status = nib_valid_problem_signs(op, &resolved[i], i, err);
		if (resolved[i].a.k > k)
			k = resolved[i].a.k;
	}
	if (!status)
		status = nib_valid_outputs(op, resolved, count, &resolved[count], err);
	if (!status)
		status = oracle_open(o, k, resolved->activations, err);
	if (!status)
		each_problem(o, op, resolved, count);
	free(o->memory);
	free(resolved);
	return status;
}

static enum nib_status run_moe(struct oracle *o, enum nib_op op,
			       const struct nib_moe_problem *moe, struct nib_error *err)
{
	struct nib_moe_problem resolved;
	enum nib_status status;

	status = nib_valid_moe(op, NULL, moe, &resolved, err);
	if (!status)
		status = check_rule(o, resolved.problem.activations,
				    resolved.problem.x.dtype, err);
	if (!status)
		status = nib_valid_moe_data(op, &resolved, err);
	if (!status)
		status = nib_valid_moe_signs(op, &resolved, err);
	if (!status)
		status = oracle_open(o, resolved.problem.a.k,
				     resolved.problem.activations, err);
	if (!status)
		each_expert(o, op, &resolved);
	free(o->memory);
	return status;
}

enum nib_status nib_reference(enum nib_op op, const struct nib_problem *problems,
			      int64_t count, struct nib_error *err)
{
	struct oracle o = {0};

	return run_problems(&o, op, problems, count, err);
}

enum nib_status nib_moe_reference(enum nib_op op, const struct nib_moe_problem *moe,
				  struct nib_error *err)
{
	struct oracle o = {0};

	return run_moe(&o, op, moe, err);
}

/* Options, result and their sizes, for both checks. */
static enum nib_status check_open(struct oracle *o,
				  const struct nib_check_options *options,
				  struct nib_check_result *ours,
				  struct nib_check_result *theirs, size_t *result_bytes,
				  struct nib_error *err)
{
	enum nib_status status;

	memset(ours, 0, sizeof(*ours));
	o->result = ours;
	status =
	    nib_options_read(&o->options, sizeof(o->options), options, "options", err);
	if (status != NIB_STATUS_OK)
		return status;
	if (o->options.sample_rows < 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 "options.sample_rows",
					 " = %lld: must be 0 (all) "
					 "or more",
					 (long long)o->options.sample_rows);
	if (o->options.arithmetic != NIB_ARITHMETIC_BLOCKS &&
	    o->options.arithmetic != NIB_ARITHMETIC_FP16_TENSOR &&
	    o->options.arithmetic != NIB_ARITHMETIC_FP4_TENSOR)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "options.arithmetic",
		    " = %d: must be "
		    "NIB_ARITHMETIC_BLOCKS (%d), "
		    "NIB_ARITHMETIC_FP16_TENSOR (%d) or "
		    "NIB_ARITHMETIC_FP4_TENSOR (%d)",
		    (int)o->options.arithmetic, NIB_ARITHMETIC_BLOCKS,
		    NIB_ARITHMETIC_FP16_TENSOR, NIB_ARITHMETIC_FP4_TENSOR);
	return nib_info_check(theirs, sizeof(*ours), result_bytes, "result", err);
}

enum nib_status nib_check(enum nib_op op, const struct nib_problem *problems,
			  int64_t count, const struct nib_check_options *options,
			  struct nib_check_result *result, struct nib_error *err)
{
	struct nib_check_result ours;
	struct oracle o = {0};
	enum nib_status status;
	size_t bytes = 0;

	status = check_open(&o, options, &ours, result, &bytes, err);
	if (status == NIB_STATUS_OK)
		status = run_problems(&o, op, problems, count, err);
	if (status == NIB_STATUS_OK)
		nib_info_write(result, &ours, bytes);
	return status;
}

enum nib_status nib_moe_check(enum nib_op op, const struct nib_moe_problem *moe,
			      const struct nib_check_options *options,
			      struct nib_check_result *result, struct nib_error *err)
{
	struct nib_check_result ours;
	struct oracle o = {0};
	enum nib_status status;
	size_t bytes = 0;

	status = check_open(&o, options, &ours, result, &bytes, err);
	if (status == NIB_STATUS_OK)
		status = run_moe(&o, op, moe, err);
	if (status == NIB_STATUS_OK)
		nib_info_write(result, &ours, bytes);
	return status;
}
