/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_contest.c - the shapes of the GPU MODE x NVIDIA NVFP4 problems, as views
 * of the memory that they come in, on data as theirs, under their own check:
 * rtol = atol = 1e-3, fp16.  The reference is a float64 sum that shares no code
 * with the library; of large shapes it takes a sample.
 *
 * Memory: a [L, M, K/2], b [L, N, K/2], c [L, M, N], scales tiled, L outermost.
 * The vector of a gemv is row 0 of 128.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common_problem.h"

#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))
#define GROUP	       8
#define SAMPLE_ROWS    3
#define SAMPLE_COLS    384
#define SCALAR_LIMIT   4e9 /* flop that scalar code does in seconds */
#define LARGEST_FINITE 65504.0

static struct rng rng;
static struct nib_device *device;
static bool is_scalar;

/* The best room, with all processors. */
static int open_device(void **state)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	(void)state;
	rng = rng_new(test_seed());
	if (nib_device_open("cpu", NULL, &device, NULL) ||
	    nib_device_get_info(device, &info, NULL))
		return -1;
	is_scalar = strcmp(info.room, "cpu-scalar") == 0;
	printf("%s, %d threads\n", info.room, info.threads);
	return 0;
}

static int close_device(void **state)
{
	(void)state;
	nib_device_close(device);
	return 0;
}

/* ---- data ---------------------------------------------------------------- */

/* Bytes each of which is base or a sum of base and bits of mask << shift. */
static void *random_bytes(int64_t bytes, uint64_t mask, int shift,
			  uint64_t base)
{
	uint64_t *memory = malloc((size_t)bytes + 8);

	assert_non_null(memory);
	for (int64_t i = 0; i < (bytes + 7) / 8; i++)
		memory[i] = base + ((rng_next(&rng) & mask) << shift);
	return memory;
}

/* [L, stored_rows, K/2]; codes of at most 1.5, scales 1 and 2. */
static struct nib_nvfp4 operand(int64_t rows, int64_t stored_rows, int64_t k,
				int64_t batch)
{
	const int64_t scales =
	    (stored_rows + 127) / 128 * ((k / 16 + 3) / 4) * 512;

	return (struct nib_nvfp4){
	    .codes = random_bytes(batch * stored_rows * k / 2,
				  UINT64_C(0xbbbbbbbbbbbbbbbb), 0, 0),
	    .scales = random_bytes(batch * scales, UINT64_C(0x0101010101010101),
				   3, UINT64_C(0x3838383838383838)),
	    .rows = rows,
	    .k = k,
	    .batch = batch,
	    .row_stride_bytes = k / 2,
	    .batch_stride_bytes = stored_rows * k / 2,
	    .scale_layout = NIB_TILED_128X4,
	    .scale_batch_stride_bytes = scales,
	};
}

static struct nib_dense result(int64_t m, int64_t n, int64_t batch)
{
	const size_t bytes = (size_t)(batch * m * n) * 2;
	struct nib_dense c = {.data = malloc(bytes + 1),
			      .dtype = NIB_FP16,
			      .rows = m,
			      .cols = n,
			      .batch = batch,
			      .row_stride_elems = n,
			      .batch_stride_elems = m * n};

	assert_non_null(c.data);
	memset(c.data, 0x7e, bytes); /* NaN */
	return c;
}

/* ---- the reference ------------------------------------------------------- */

static double value(const struct nib_nvfp4 *v, int64_t batch, int64_t row,
		    int64_t k)
{
	static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
	const uint8_t *codes = v->codes, *scales = v->scales;
	const int64_t g = k / 16;
	const int code = codes[batch * v->batch_stride_bytes +
			       row * v->row_stride_bytes + k / 2] >>
			 k % 2 * 4;
	const int scale =
	    scales[batch * v->scale_batch_stride_bytes +
		   (row / 128 * ((v->k / 16 + 3) / 4) + g / 4) * 512 +
		   row % 32 * 16 + row % 128 / 32 * 4 + g % 4];

	return (code & 8 ? -1 : 1) * values[code & 7] *
	       ldexp(1 + (scale & 7) / 8.0, (scale >> 3) - 7);
}

static double *decode(const struct nib_nvfp4 *v, int64_t batch, int64_t row)
{
	double *values = malloc((size_t)v->k * sizeof(*values));

	assert_non_null(values);
	for (int64_t k = 0; k < v->k; k++)
		values[k] = value(v, batch, row, k);
	return values;
}

static double dot(const double *x, const double *y, int64_t k)
{
	double sum = 0;

	for (int64_t i = 0; i < k; i++)
		sum += x[i] * y[i];
	return sum;
}

static double half_to_double(uint16_t bits)
{
	const int exponent = bits >> 10 & 31, fraction = bits & 1023;
	const double magnitude =
	    exponent == 31 ? (fraction ? (double)NAN : HUGE_VAL)
	    : exponent	   ? ldexp(1024 + fraction, exponent - 25)
			   : ldexp(fraction, -24);

	return bits & 0x8000 ? -magnitude : magnitude;
}

/* torch.allclose of one element, both fp16. */
static bool is_close(double got, double want)
{
	/* Beyond the largest, fp16 is infinite; near it, either is right. */
	if (fabs(want) > LARGEST_FINITE && isinf(got))
		return got * want > 0;
	if (fabs(want) > LARGEST_FINITE + 64)
		return false;
	return fabs(got - want) <= 1e-3 + 1e-3 * fabs(want);
}

/* One row of c: columns first, first + step, ..., and the last. */
static void check_row(enum nib_op op, const struct nib_problem *p,
		      int64_t batch, int64_t row)
{
	const int64_t n = p->c.cols;
	const int64_t step = (n + SAMPLE_COLS - 1) / SAMPLE_COLS;
	const uint16_t *c = (const uint16_t *)p->c.data +
			    batch * p->c.batch_stride_elems +
			    row * p->c.row_stride_elems;
	double *a = decode(&p->a, batch, row);
	int64_t col = rng_below(&rng, step);

	for (bool is_last = false; !is_last; col += step) {
		double *b, want;

		is_last = col + step >= n;
		col = is_last ? n - 1 : col;
		b = decode(&p->b, batch, col);
		want = dot(a, b, p->a.k);
		free(b);
		if (op == NIB_DUAL_GEMM) {
			b = decode(&p->b2, batch, col);
			want = want / (1 + exp(-want)) * dot(a, b, p->a.k);
			free(b);
		}
		if (!is_close(half_to_double(c[col]), want))
			fail_msg("m=%" PRId64 " n=%" PRId64 " k=%" PRId64
				 " batch %" PRId64 ", row %" PRId64
				 ", col %" PRId64 ": got %g, want %g",
				 p->a.rows, n, p->a.k, batch, row, col,
				 half_to_double(c[col]), want);
	}
	free(a);
}

static void check(enum nib_op op, const struct nib_problem *p)
{
	for (int64_t l = 0; l < p->a.batch; l++)
		for (int i = 0; i < SAMPLE_ROWS && p->a.rows; i++)
			check_row(op, p, l,
				  i == 0 ? p->a.rows - 1
					 : rng_below(&rng, p->a.rows));
}

/* ---- problems ------------------------------------------------------------ */

static void run(enum nib_op op, struct nib_problem *problems, int count)
{
	struct nib_error err;
	double flop = 0;

	for (int i = 0; i < count; i++)
		flop += 2.0 * (double)problems[i].a.rows *
			(double)problems[i].c.cols * (double)problems[i].a.k;
	if (is_scalar && flop > SCALAR_LIMIT) {
		printf("skipped: %g GFLOP by scalar code\n", flop * 1e-9);
	} else {
		if (nib_multiply(device, op, problems, count, &err))
			fail_msg("%s", err.message);
		for (int i = 0; i < count; i++)
			check(op, &problems[i]);
	}
	for (int i = 0; i < count; i++) {
		free(problems[i].a.codes);
		free(problems[i].a.scales);
		free(problems[i].b.codes);
		free(problems[i].b.scales);
		free(problems[i].b2.codes);
		free(problems[i].b2.scales);
		free(problems[i].c.data);
	}
}

struct shape {
	int64_t m, n, k, l;
};

static struct nib_problem problem_of(enum nib_op op, const struct shape *s)
{
	const bool is_gemv = op == NIB_GEMV;
	struct nib_problem p = {
	    .a = operand(is_gemv ? 1 : s->m, is_gemv ? 128 : s->m, s->k, s->l),
	    .b = operand(s->n, s->n, s->k, s->l),
	    .c = result(is_gemv ? 1 : s->m, s->n, s->l),
	};

	if (op == NIB_DUAL_GEMM)
		p.b2 = operand(s->n, s->n, s->k, s->l);
	return p;
}

static void run_shapes(enum nib_op op, const struct shape *shapes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct nib_problem p = problem_of(op, &shapes[i]);

		run(op, &p, 1);
	}
}

static void run_group(const int64_t *ms, int count, int64_t n, int64_t k)
{
	struct nib_problem problems[GROUP];

	for (int i = 0; i < count; i++)
		problems[i] =
		    problem_of(NIB_GEMM, &(const struct shape){ms[i], n, k, 1});
	run(NIB_GEMM, problems, count);
}

/* ---- tests --------------------------------------------------------------- */

/* One step off every multiple that a kernel may like. */
static void small_specs(void **state)
{
	static const struct shape shapes[] = {
	    {1, 128, 256, 1},	{127, 128, 256, 1}, {129, 64, 512, 2},
	    {40, 384, 1024, 1}, {76, 100, 2048, 1}, {168, 256, 272, 3},
	    {300, 65, 80, 1},	{257, 513, 16, 1},  {3, 1000, 1536, 4},
	    {128, 256, 768, 2},
	};
	static const int64_t ms[] = {76, 0, 128, 1, 129, 40};

	(void)state;
	run_shapes(NIB_GEMM, shapes, COUNT(shapes));
	run_shapes(NIB_DUAL_GEMM, shapes, COUNT(shapes));
	run_shapes(NIB_GEMV, shapes, COUNT(shapes));
	run_group(ms, COUNT(ms), 200, 528);
}

/* [tokens, heads, dim] times weights of each head or shared ones. */
static void heads_in_tokens(void **state)
{
	static const struct shape shapes[] = {
	    {129, 64, 128, 8}, {7, 128, 64, 5}, {40, 129, 272, 3}};
	static const enum nib_op ops[] = {NIB_GEMM, NIB_DUAL_GEMM, NIB_GEMV};

	(void)state;
	for (size_t i = 0; i < COUNT(shapes) * COUNT(ops); i++) {
		const enum nib_op op = ops[i % COUNT(ops)];
		struct nib_problem p = problem_of(op, &shapes[i / COUNT(ops)]);

		test_nvfp4_between(&p.a);
		test_nvfp4_between(&p.b);
		test_dense_between(&p.c);
		run(op, &p, 1);
	}
}

static void skip_if_small(void)
{
	if (test_is_small())
		skip();
}

static void gemm_seeds(void **state)
{
	static const struct shape shapes[] = {{128, 7168, 16384, 1},
					      {128, 4096, 7168, 1},
					      {128, 7168, 2048, 1},
					      {2304, 4608, 7168, 1}};

	(void)state;
	skip_if_small();
	run_shapes(NIB_GEMM, shapes, COUNT(shapes));
}

static void dual_gemm_seeds(void **state)
{
	static const struct shape shapes[] = {{256, 4096, 7168, 1},
					      {512, 4096, 7168, 1},
					      {256, 3072, 4096, 1},
					      {512, 3072, 7168, 1}};

	(void)state;
	skip_if_small();
	run_shapes(NIB_DUAL_GEMM, shapes, COUNT(shapes));
}

static void gemv_seeds(void **state)
{
	static const struct shape shapes[] = {
	    {1, 7168, 16384, 1}, {1, 4096, 7168, 8}, {1, 7168, 2048, 4}};

	(void)state;
	skip_if_small();
	run_shapes(NIB_GEMV, shapes, COUNT(shapes));
}

static void group_gemm_seeds(void **state)
{
	static const int64_t first[] = {80, 176, 128, 72, 64, 248, 96, 160};
	static const int64_t second[] = {40, 76, 168, 72, 164, 148, 196, 160};
	static const int64_t third[] = {192, 320}, fourth[] = {128, 384};

	(void)state;
	skip_if_small();
	run_group(first, COUNT(first), 4096, 7168);
	run_group(second, COUNT(second), 7168, 2048);
	run_group(third, COUNT(third), 3072, 4096);
	run_group(fourth, COUNT(fourth), 4096, 1536);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(small_specs),
	    cmocka_unit_test(heads_in_tokens),
	    cmocka_unit_test(gemv_seeds),
	    cmocka_unit_test(group_gemm_seeds),
	    cmocka_unit_test(dual_gemm_seeds),
	    cmocka_unit_test(gemm_seeds),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
