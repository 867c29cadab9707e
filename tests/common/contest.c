/* SPDX-License-Identifier: Apache-2.0 */
/* common/contest.c - see common/contest.h. */
#include "contest.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_ROWS    3
#define SAMPLE_COLS    384
#define LARGEST_FINITE 65504.0

/* ---- sizes --------------------------------------------------------------- */

/* clang-format off */
#define ONE(op, m, n, k, l) {op, 1, {{m, n, k, l}}}
#define GEMM(m, n, k)	 ONE(NIB_OP_GEMM, m, n, k, 1)
#define DUAL(m, n, k)	 ONE(NIB_OP_DUAL_GEMM, m, n, k, 1)
#define GEMV(rows, k, l) ONE(NIB_OP_GEMV, 1, rows, k, l)

const struct contest_spec contest_tests[] = {
	GEMM(128, 256, 256), GEMM(128, 1536, 7168), GEMM(128, 3072, 1536),
	GEMM(256, 7168, 256), GEMM(256, 7168, 2048), GEMM(2304, 4608, 7168),
	GEMM(384, 7168, 2304), GEMM(512, 512, 7168), GEMM(512, 4096, 512),
	GEMM(512, 1536, 7168),
	DUAL(1536, 512, 7168), DUAL(256, 512, 256), DUAL(1536, 512, 7168),
	DUAL(3072, 1024, 1536), DUAL(7168, 1024, 256), DUAL(7168, 2304, 2048),
	DUAL(4608, 384, 7168), DUAL(7168, 384, 2304), DUAL(512, 768, 7168),
	DUAL(4096, 768, 512),
	GEMV(128, 256, 1), GEMV(128, 1536, 1), GEMV(128, 3072, 1),
	GEMV(256, 7168, 1), GEMV(256, 7168, 1), GEMV(2432, 4608, 2),
	GEMV(384, 7168, 2), GEMV(512, 512, 2), GEMV(512, 4096, 2),
	GEMV(512, 1536, 2),
	{NIB_OP_GEMM, 2, {{96, 128, 256, 1}, {128, 256, 512, 1}}},
	{NIB_OP_GEMM, 2, {{256, 512, 256, 1}, {72, 384, 256, 1}}},
	{NIB_OP_GEMM, 2, {{128, 128, 512, 1}, {128, 256, 256, 1}}},
	{NIB_OP_GEMM, 3, {{80, 384, 256, 1}, {128, 256, 512, 1},
		{256, 128, 256, 1}}},
	{NIB_OP_GEMM, 3, {{64, 128, 512, 1}, {72, 384, 512, 1},
		{96, 512, 256, 1}}},
	{NIB_OP_GEMM, 3, {{64, 768, 512, 1}, {256, 128, 256, 1},
		{128, 256, 512, 1}}},
	{NIB_OP_GEMM, 3, {{128, 256, 768, 1}, {128, 512, 256, 1},
		{64, 512, 768, 1}}},
	{NIB_OP_GEMM, 4, {{128, 128, 512, 1}, {128, 128, 256, 1},
		{128, 128, 512, 1}, {128, 128, 256, 1}}},
	{NIB_OP_GEMM, 4, {{40, 512, 256, 1}, {56, 384, 256, 1}, {384, 256, 256, 1},
		{512, 128, 256, 1}}},
	{NIB_OP_GEMM, 4, {{512, 256, 512, 1}, {384, 256, 768, 1},
		{256, 256, 512, 1}, {128, 256, 768, 1}}},
};
const size_t contest_n_tests =
    sizeof(contest_tests) / sizeof(contest_tests[0]);

/* Vectors also in batches of 8 and 4. */
const struct contest_spec contest_benchmarks[] = {
	GEMM(128, 7168, 16384), GEMM(128, 4096, 7168), GEMM(128, 7168, 2048),
	GEMM(2304, 4608, 7168),
	DUAL(256, 4096, 7168), DUAL(512, 4096, 7168), DUAL(256, 3072, 4096),
	DUAL(512, 3072, 7168),
	GEMV(7168, 16384, 1), GEMV(4096, 7168, 1), GEMV(7168, 2048, 1),
	GEMV(4096, 7168, 8), GEMV(7168, 2048, 4),
	{NIB_OP_GEMM, 8, {{80, 4096, 7168, 1}, {176, 4096, 7168, 1},
		{128, 4096, 7168, 1}, {72, 4096, 7168, 1}, {64, 4096, 7168, 1},
		{248, 4096, 7168, 1}, {96, 4096, 7168, 1},
		{160, 4096, 7168, 1}}},
	{NIB_OP_GEMM, 8, {{40, 7168, 2048, 1}, {76, 7168, 2048, 1},
		{168, 7168, 2048, 1}, {72, 7168, 2048, 1}, {164, 7168, 2048, 1},
		{148, 7168, 2048, 1}, {196, 7168, 2048, 1},
		{160, 7168, 2048, 1}}},
	{NIB_OP_GEMM, 2, {{192, 3072, 4096, 1}, {320, 3072, 4096, 1}}},
	{NIB_OP_GEMM, 2, {{128, 4096, 1536, 1}, {384, 4096, 1536, 1}}},
};
/* clang-format on */
const size_t contest_n_benchmarks =
    sizeof(contest_benchmarks) / sizeof(contest_benchmarks[0]);

void contest_name(const struct contest_spec *spec, char *text, size_t bytes)
{
	static const char *const names[] = {"gemm", "dual gemm", "gemv"};
	const struct contest_size *s = spec->sizes;

	snprintf(text, bytes,
		 "%s%s m %" PRId64 " n %" PRId64 " k %" PRId64 " l %" PRId64,
		 spec->count > 1 ? "group of " : "", names[spec->op], s->m, s->n, s->k,
		 s->l);
}

/* ---- data ---------------------------------------------------------------- */

static uint64_t next(uint64_t *seed)
{
	uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void *take(size_t bytes)
{
	void *memory = malloc(bytes + 8);

	if (!memory) {
		fputs("no memory\n", stderr);
		exit(1);
	}
	return memory;
}

/* Bytes each of which is base or a sum of base and bits of mask << shift. */
static void *random_bytes(size_t bytes, uint64_t mask, int shift, uint64_t base,
			  uint64_t *seed)
{
	uint64_t *memory = take(bytes);

	for (size_t i = 0; i < (bytes + 7) / 8; i++)
		memory[i] = base + ((next(seed) & mask) << shift);
	return memory;
}

size_t contest_codes_bytes(const struct nib_fp4 *v)
{
	return (size_t)(v->batch * v->batch_stride_bytes);
}

size_t contest_scales_bytes(const struct nib_fp4 *v)
{
	return (size_t)(v->batch * v->scale_batch_stride_bytes);
}

size_t contest_result_bytes(const struct nib_dense *c)
{
	return (size_t)(c->batch * c->batch_stride_elems) * 2;
}

/* [L, stored_rows, K/2]; codes of at most 1.5, scales 1 and 2. */
static struct nib_fp4 operand(int64_t rows, int64_t stored_rows, int64_t k,
			      int64_t batch, uint64_t *seed)
{
	struct nib_fp4 v = {
	    .rows = rows,
	    .k = k,
	    .batch = batch,
	    .row_stride_bytes = k / 2,
	    .batch_stride_bytes = stored_rows * k / 2,
	    .scale_layout = NIB_SCALE_LAYOUT_TILED_128X4,
	    .scale_batch_stride_bytes =
		(stored_rows + 127) / 128 * ((k / 16 + 3) / 4) * 512,
	};

	v.codes = random_bytes(contest_codes_bytes(&v), UINT64_C(0xbbbbbbbbbbbbbbbb), 0,
			       0, seed);
	v.scales = random_bytes(contest_scales_bytes(&v), UINT64_C(0x0101010101010101),
				3, UINT64_C(0x3838383838383838), seed);
	return v;
}

static struct nib_dense result(int64_t m, int64_t n, int64_t batch)
{
	struct nib_dense c = {.dtype = NIB_DTYPE_FP16,
			      .rows = m,
			      .cols = n,
			      .batch = batch,
			      .row_stride_elems = n,
			      .batch_stride_elems = m * n};

	c.data = take(contest_result_bytes(&c));
	memset(c.data, 0x7e, contest_result_bytes(&c)); /* NaN */
	return c;
}

struct nib_problem contest_problem(enum nib_op op, const struct contest_size *s,
				   uint64_t *seed)
{
	const bool is_gemv = op == NIB_OP_GEMV;
	struct nib_problem p;

	memset(&p, 0, sizeof(p));
	p.a = operand(is_gemv ? 1 : s->m, is_gemv ? 128 : s->m, s->k, s->l, seed);
	p.b = operand(s->n, s->n, s->k, s->l, seed);
	if (op == NIB_OP_DUAL_GEMM)
		p.b2 = operand(s->n, s->n, s->k, s->l, seed);
	p.c = result(is_gemv ? 1 : s->m, s->n, s->l);
	return p;
}

void contest_free(struct nib_problem *p)
{
	free(p->a.codes);
	free(p->a.scales);
	free(p->b.codes);
	free(p->b.scales);
	free(p->b2.codes);
	free(p->b2.scales);
	free(p->c.data);
}

/* ---- the reference ------------------------------------------------------- */

static double value(const struct nib_fp4 *v, int64_t batch, int64_t row, int64_t k)
{
	static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
	const uint8_t *codes = v->codes, *scales = v->scales;
	const int64_t g = k / 16;
	const int code =
	    codes[batch * v->batch_stride_bytes + row * v->row_stride_bytes + k / 2] >>
	    k % 2 * 4;
	const int scale = scales[batch * v->scale_batch_stride_bytes +
				 (row / 128 * ((v->k / 16 + 3) / 4) + g / 4) * 512 +
				 row % 32 * 16 + row % 128 / 32 * 4 + g % 4];

	return (code & 8 ? -1 : 1) * values[code & 7] *
	       ldexp(1 + (scale & 7) / 8.0, (scale >> 3) - 7);
}

static double *decode(const struct nib_fp4 *v, int64_t batch, int64_t row)
{
	double *values = take((size_t)v->k * sizeof(*values));

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
	const double magnitude = exponent == 31 ? (fraction ? (double)NAN : HUGE_VAL)
				 : exponent	? ldexp(1024 + fraction, exponent - 25)
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

/* c[batch, row, col], exactly; a: the row of a. */
static double exact(enum nib_op op, const struct nib_problem *p, int64_t batch,
		    int64_t col, const double *a)
{
	double *b = decode(&p->b, batch, col);
	double want = dot(a, b, p->a.k);

	free(b);
	if (op != NIB_OP_DUAL_GEMM)
		return want;
	b = decode(&p->b2, batch, col);
	want = want / (1 + exp(-want)) * dot(a, b, p->a.k);
	free(b);
	return want;
}

/* One row of c: columns first, first + step, ..., and the last. */
static int check_row(enum nib_op op, const struct nib_problem *p, int64_t batch,
		     int64_t row, uint64_t *seed, char *text, size_t bytes)
{
	const int64_t n = p->c.cols;
	const int64_t step = (n + SAMPLE_COLS - 1) / SAMPLE_COLS;
	const uint16_t *c = (const uint16_t *)p->c.data +
			    batch * p->c.batch_stride_elems +
			    row * p->c.row_stride_elems;
	double *a = decode(&p->a, batch, row);
	int64_t col = (int64_t)(next(seed) % (uint64_t)step);
	bool is_last = false, ok = true;

	while (!is_last && ok) {
		double want;

		is_last = col + step >= n;
		col = is_last ? n - 1 : col;
		want = exact(op, p, batch, col, a);
		ok = is_close(half_to_double(c[col]), want);
		if (!ok)
			snprintf(text, bytes,
				 "m=%" PRId64 " n=%" PRId64 " k=%" PRId64
				 " batch %" PRId64 ", row %" PRId64 ", col %" PRId64
				 ": got %g, want %g",
				 p->a.rows, n, p->a.k, batch, row, col,
				 half_to_double(c[col]), want);
		col += step;
	}
	free(a);
	return ok ? 0 : -1;
}

int contest_check(enum nib_op op, const struct nib_problem *p, uint64_t *seed,
		  char *text, size_t bytes)
{
	for (int64_t l = 0; l < p->a.batch; l++)
		for (int i = 0; i < SAMPLE_ROWS && p->a.rows; i++) {
			const uint64_t rows = (uint64_t)p->a.rows;
			const int64_t row =
			    i ? (int64_t)(next(seed) % rows) : p->a.rows - 1;

			if (check_row(op, p, l, row, seed, text, bytes))
				return -1;
		}
	return 0;
}
