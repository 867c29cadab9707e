/* SPDX-License-Identifier: Apache-2.0 */
/* common/problem.c - operands, running and judging of test multiplications. */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/view.h"
#include "unit.h"

bool test_is_small(void)
{
	const char *size = getenv("NIB_TEST_SIZE");

	return size && (strcmp(size, "small") == 0 || test_is_tiny());
}

bool test_is_tiny(void)
{
	const char *size = getenv("NIB_TEST_SIZE");

	return size && strcmp(size, "tiny") == 0;
}

/* ---- memory -------------------------------------------------------------- */

/* With whole pages, guarded memory begins at its guard page. */
static size_t guarded_bytes(size_t bytes, bool is_front)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return is_front ? (bytes + page - 1) / page * page : bytes;
}

/* From the first byte of the first row to the last of the last. */
static size_t span_bytes(int64_t batch, int64_t batch_stride, int64_t rows,
			 int64_t row_stride, int64_t width)
{
	if (batch == 0 || rows == 0 || width == 0)
		return 0;
	return (size_t)((batch - 1) * batch_stride + (rows - 1) * row_stride + width);
}

/* ---- operands ------------------------------------------------------------ */

static uint8_t random_scale(struct rng *rng, enum job_values values)
{
	switch (values) {
	case JOB_SPARSE:
		return rng_below(rng, 2) ? (uint8_t)rng_below(rng, 127) : 0;
	case JOB_SUBNORMAL:
		return (uint8_t)rng_below(rng, 8);
	case JOB_EXTREME:
		return rng_below(rng, 2) ? 0x7e : 1;
	case JOB_CONTEST:
		return rng_below(rng, 2) ? 0x38 : 0x40;
	case JOB_ANY:
	case JOB_VALUES:
		break;
	}
	return (uint8_t)rng_below(rng, 127);
}

/* Two codes. */
static uint8_t random_codes(struct rng *rng, enum job_values values)
{
	const uint8_t byte = (uint8_t)rng_next(rng);

	switch (values) {
	case JOB_SPARSE:
		return rng_below(rng, 4) ? byte & 0x88 : byte;
	case JOB_EXTREME:
		return byte | 0x77;
	case JOB_CONTEST:
		return byte & 0xbb;
	case JOB_ANY:
	case JOB_SUBNORMAL:
	case JOB_VALUES:
		break;
	}
	return byte;
}

static void fill_row(struct rng *rng, const struct nib_fp4 *v, enum job_values values,
		     int64_t batch, int64_t row)
{
	uint8_t *codes = nib_fp4_row(v, batch, row);
	const bool is_zero = values == JOB_SPARSE && row % 5 == 1;

	for (int64_t i = 0; i < v->k / 2; i++)
		codes[i] = is_zero ? 0 : random_codes(rng, values);
	for (int64_t g = 0; g < v->k / NIB_NVFP4_BLOCK; g++)
		*nib_fp4_scale(v, batch, row, g) = random_scale(rng, values);
}

/* Bytes of rows of `width`, with gaps after rows and batches. */
static void set_strides(const struct stack_spec *spec, int64_t width, int64_t row_gap,
			int64_t batch_gap, int64_t *row_stride, int64_t *batch_stride)
{
	if (!spec->has_gaps)
		row_gap = batch_gap = 0;
	if (spec->is_between) {
		*batch_stride = width + batch_gap;
		*row_stride = spec->batch * *batch_stride + row_gap;
	} else if (spec->has_gaps) {
		*row_stride = width + row_gap;
		*batch_stride = spec->rows * *row_stride + batch_gap;
	}
}

struct stack stack_new(struct rng *rng, const struct stack_spec *spec)
{
	const int64_t groups = spec->k / NIB_NVFP4_BLOCK;
	const bool is_linear = spec->layout == NIB_SCALE_LAYOUT_LINEAR;
	const int64_t tiled = (int64_t)nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4,
							spec->rows, spec->k);
	struct nib_fp4 v = {
	    .rows = spec->rows,
	    .k = spec->k,
	    .batch = spec->batch,
	    .scale_layout = spec->layout,
	};
	struct stack stack;
	size_t bytes;

	set_strides(spec, spec->k / 2, 5, 11, &v.row_stride_bytes,
		    &v.batch_stride_bytes);
	if (is_linear)
		set_strides(spec, groups, 3, 7, &v.scale_row_stride_bytes,
			    &v.scale_batch_stride_bytes);
	else if (spec->has_gaps)
		v.scale_batch_stride_bytes = tiled + 513;
	bytes = span_bytes(spec->batch, nib_fp4_batch_stride_bytes(&v), spec->rows,
			   nib_fp4_row_stride_bytes(&v), spec->k / 2);
	stack.codes_bytes = guarded_bytes(bytes, spec->is_front);
	bytes = is_linear
		    ? span_bytes(spec->batch, nib_fp4_scale_batch_stride_bytes(&v),
				 spec->rows, nib_fp4_scale_row_stride_bytes(&v), groups)
		    : span_bytes(spec->batch, nib_fp4_scale_batch_stride_bytes(&v), 1,
				 0, tiled);
	stack.scales_bytes = guarded_bytes(bytes, spec->is_front);
	v.codes = guard_new(stack.codes_bytes);
	v.scales = guard_new(stack.scales_bytes);
	/* NaN with and without the sign bit, where no scale belongs. */
	for (size_t i = 0; i < stack.scales_bytes; i++)
		((uint8_t *)v.scales)[i] = i & 1 ? 0x7f : 0xff;
	for (int64_t b = 0; b < spec->batch; b++)
		for (int64_t r = 0; r < spec->rows; r++)
			fill_row(rng, &v, spec->values, b, r);
	stack.view = v;
	return stack;
}

void stack_free(struct stack *stack)
{
	guard_free(stack->view.codes, stack->codes_bytes);
	guard_free(stack->view.scales, stack->scales_bytes);
	memset(stack, 0, sizeof(*stack));
}

/* ---- outputs ------------------------------------------------------------- */

struct output output_new(enum nib_dtype dtype, const struct stack_spec *spec)
{
	struct output output = {
	    .view = {.dtype = dtype,
		     .rows = spec->rows,
		     .cols = spec->k,
		     .batch = spec->batch},
	};
	struct nib_dense *v = &output.view;
	size_t bytes;

	set_strides(spec, v->cols, 3, 9, &v->row_stride_elems, &v->batch_stride_elems);
	bytes = nib_dtype_bytes(dtype) *
		span_bytes(v->batch, nib_dense_batch_stride_elems(v), v->rows,
			   nib_dense_row_stride_elems(v), v->cols);
	/* One byte more makes the address odd. */
	output.bytes = guarded_bytes(bytes + spec->has_gaps, spec->is_front);
	output.memory = guard_new(output.bytes);
	v->data = output.memory + (spec->has_gaps && spec->is_front);
	return output;
}

void output_free(struct output *output)
{
	if (output->memory)
		guard_free(output->memory, output->bytes);
	memset(output, 0, sizeof(*output));
}

static void check_poison(const uint8_t *from, const uint8_t *end,
			 const struct output *output, const char *what)
{
	for (; from < end; from++)
		if (*from != GUARD_POISON)
			fail_msg("%s: byte %td of c is no element and was "
				 "written",
				 what, from - (const uint8_t *)output->view.data);
}

void output_untouched(const struct output *output, int64_t first, int64_t end,
		      const char *what)
{
	const struct nib_dense *v = &output->view;
	const uint8_t *at = output->memory;
	const uint8_t *end_of_memory = at + output->bytes;
	const size_t row_bytes = (size_t)v->cols * nib_dtype_bytes(v->dtype);
	const int64_t rows = end - first;
	const bool by_rows =
	    nib_dense_batch_stride_elems(v) < nib_dense_row_stride_elems(v);

	/* In the order of memory. */
	for (int64_t i = 0; i < v->batch * rows && row_bytes; i++) {
		const int64_t b = by_rows ? i % v->batch : i / rows;
		const int64_t r = by_rows ? i / v->batch : i % rows;
		const uint8_t *row = nib_dense_at(v, b, first + r, 0);

		check_poison(at, row, output, what);
		at = row + row_bytes;
	}
	check_poison(at, end_of_memory, output, what);
}

/* One value, as bits. */
static uint32_t random_float(struct rng *rng, enum nib_dtype dtype,
			     enum job_values values)
{
	const double size =
	    rng_below(rng, 2) ? 1 + rng_uniform(rng) : -1 - rng_uniform(rng);
	const bool is_fp16 = dtype == NIB_DTYPE_FP16;
	const int range = is_fp16 ? 14 : 24;
	int exponent = (int)rng_below(rng, 2 * range + 1) - range;

	if (values == JOB_SPARSE && rng_below(rng, 4))
		return rng_below(rng, 2) ? 0 : nib_fp64_to_dtype(-0.0, dtype);
	if (values == JOB_SUBNORMAL)
		exponent = (is_fp16 ? -15 : -127) - (int)rng_below(rng, 8);
	if (values == JOB_EXTREME)
		exponent =
		    rng_below(rng, 2) ? (is_fp16 ? 14 : 100) : (is_fp16 ? -24 : -120);
	if (values == JOB_CONTEST)
		return nib_fp64_to_dtype((double)(rng_below(rng, 7) - 3), dtype);
	return nib_fp64_to_dtype(ldexp(size, exponent), dtype);
}

struct output floats_new(struct rng *rng, enum nib_dtype dtype, enum job_values values,
			 const struct stack_spec *spec)
{
	const struct output output = output_new(dtype, spec);
	const struct nib_dense *v = &output.view;

	for (int64_t i = 0; i < v->batch * v->rows * v->cols; i++) {
		const int64_t row = i / v->cols;
		const bool is_zero = values == JOB_SPARSE && row % 5 == 1;

		nib_dense_set_bits(v, row / v->rows, row % v->rows, i % v->cols,
				   is_zero ? 0 : random_float(rng, dtype, values));
	}
	return output;
}

/* ---- jobs ---------------------------------------------------------------- */

struct job *job_new(enum nib_op op)
{
	struct job *job = calloc(1, sizeof(*job));

	assert_non_null(job);
	job->op = op;
	return job;
}

/* Operands of slot i, b as a stack of `experts` matrices. */
static void make_operands(struct job *job, int i, struct rng *rng,
			  const struct job_spec *spec, int64_t m, int64_t batch,
			  int64_t b_batch)
{
	struct stack_spec s = {
	    .rows = m,
	    .k = spec->k,
	    .batch = batch,
	    .layout = spec->a_layout,
	    .values = spec->values,
	    .has_gaps = spec->has_gaps,
	    .is_between = spec->is_between,
	    .is_front = spec->is_front,
	};

	if (spec->activations == NIB_ACTIVATIONS_NVFP4)
		job->a[i] = stack_new(rng, &s);
	else
		job->x[i] = floats_new(rng, spec->x_dtype, spec->values, &s);
	s.rows = spec->n;
	s.batch = b_batch;
	s.layout = spec->b_layout;
	job->b[i] = stack_new(rng, &s);
	/* The second weights are laid out the other way. */
	if (job->op == NIB_OP_DUAL_GEMM) {
		s.layout = spec->b_layout == NIB_SCALE_LAYOUT_LINEAR
			       ? NIB_SCALE_LAYOUT_TILED_128X4
			       : NIB_SCALE_LAYOUT_LINEAR;
		job->b2[i] = stack_new(rng, &s);
	}
	s.rows = m;
	s.k = spec->n;
	s.batch = batch;
	job->c[i] = output_new(spec->dtype, &s);
}

void job_add(struct job *job, struct rng *rng, const struct job_spec *spec)
{
	const int i = job->count++;
	struct nib_problem *p = &job->problems[i];

	assert_true(i < JOB_PROBLEMS);
	make_operands(job, i, rng, spec, spec->m, spec->batch ? spec->batch : 1,
		      spec->b_batch ? spec->b_batch : 1);
	p->a = job->a[i].view;
	p->x = job->x[i].view;
	p->activations = spec->activations;
	p->b = job->b[i].view;
	p->b2 = job->b2[i].view;
	p->c = job->c[i].view;
	if (spec->alpha) {
		job->alpha[i] = *spec->alpha;
		p->alpha = &job->alpha[i];
	}
	if (spec->alpha2) {
		job->alpha2[i] = *spec->alpha2;
		p->alpha2 = &job->alpha2[i];
	}
}

struct job *job_of(struct rng *rng, const struct job_spec *spec)
{
	struct job *job = job_new(spec->op);

	job_add(job, rng, spec);
	return job;
}

/* Gives each expert's scales rows of their own, in falling order. */
static void move_scales(struct job *job, struct rng *rng, const struct job_spec *spec)
{
	const int64_t step = spec->a_layout == NIB_SCALE_LAYOUT_TILED_128X4 ? 128 : 1;
	struct stack_spec s = {
	    .k = spec->k,
	    .batch = 1,
	    .layout = spec->a_layout,
	    .values = spec->values,
	    .has_gaps = spec->has_gaps,
	    .is_between = spec->is_between,
	    .is_front = spec->is_front,
	};
	struct stack scales;
	int64_t row = 0;

	for (int e = job->count - 1; e >= 0; e--) {
		const int64_t rows = job->row_offsets[e + 1] - job->row_offsets[e];

		job->scale_rows[e] = (int32_t)row;
		row = (row + rows + step - 1) / step * step;
	}
	s.rows = row;
	scales = stack_new(rng, &s);
	guard_free(scales.view.codes, scales.codes_bytes);
	guard_free(job->a[0].view.scales, job->a[0].scales_bytes);
	job->a[0].view.scales = scales.view.scales;
	job->a[0].scales_bytes = scales.scales_bytes;
	/* A batch of one is never stepped over. */
	job->a[0].view.scale_batch_stride_bytes = 0;
	job->moe.scale_rows = job->scale_rows;
	job->moe.scale_rows_total = row;
}

/* What rows that no expert has hold must not be looked at. */
static void spoil_rows(const struct job *job, int64_t first, int64_t end)
{
	const struct nib_fp4 *a = &job->a[0].view;
	const struct nib_dense *x = &job->x[0].view;

	for (int64_t r = first; r < end; r++) {
		for (int64_t g = 0; g < a->k / NIB_NVFP4_BLOCK; g++)
			*nib_fp4_scale(a, 0, r, g) = 0xff;
		for (int64_t i = 0; i < x->cols; i++)
			nib_dense_set_bits(x, 0, r, i, 0xffffffff);
	}
}

struct job *job_of_moe(struct rng *rng, const struct job_spec *spec,
		       const int64_t *rows, int experts, int64_t first,
		       bool own_scale_rows)
{
	struct job *job = job_new(spec->op);
	struct nib_moe_problem *moe = &job->moe;

	assert_true(experts <= JOB_EXPERTS);
	job->is_moe = true;
	job->count = experts;
	job->row_offsets[0] = (int32_t)first;
	for (int e = 0; e < experts; e++) {
		job->row_offsets[e + 1] = job->row_offsets[e] + (int32_t)rows[e];
		job->alpha[e] = spec->alpha ? *spec->alpha * (float)(e + 1) : 1;
		job->alpha2[e] = spec->alpha2 ? *spec->alpha2 * (float)(e + 2) : 1;
	}
	make_operands(job, 0, rng, spec, job->row_offsets[experts] + 2, 1, experts);
	spoil_rows(job, 0, first);
	spoil_rows(job, job->row_offsets[experts], job->c[0].view.rows);
	if (own_scale_rows)
		move_scales(job, rng, spec);
	moe->problem.a = job->a[0].view;
	moe->problem.x = job->x[0].view;
	moe->problem.activations = spec->activations;
	moe->problem.b = job->b[0].view;
	moe->problem.b2 = job->b2[0].view;
	moe->problem.c = job->c[0].view;
	moe->row_offsets = job->row_offsets;
	moe->problem.alpha = spec->alpha ? job->alpha : NULL;
	moe->problem.alpha2 = spec->alpha2 ? job->alpha2 : NULL;
	return job;
}

void job_free(struct job *job)
{
	for (int i = 0; i < (job->is_moe ? 1 : job->count); i++) {
		if (job->a[i].view.codes)
			stack_free(&job->a[i]);
		output_free(&job->x[i]);
		stack_free(&job->b[i]);
		stack_free(&job->b2[i]);
		output_free(&job->c[i]);
	}
	free(job);
}
