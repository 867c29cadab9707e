/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dense.c - products whose A is fp32, fp16 or bf16 (W4A16), every operation on
 * every instruction set.  They are compared with a sum in double within the bound of
 * docs/numerics.md, with sums of small integers, which are exact in any order, and with
 * the bits of other instruction sets.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "common/problem.h"
#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/view.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static struct rng rng;
static const char *const set_names[] = {
    "scalar", "avx2",	 "avxvnni",  "avx512bw", "avx512vnni", "amx",
    "neon",   "neondot", "neoni8mm", "neonbf16", "avx512vnni"};
static const int thread_counts[] = {1, 3};
/* The last one is "avx512vnni" with vdpbf16ps, whether it is faster or not. */
#define BF16_SET TEST_ISAS
#define SETS	 (TEST_ISAS + 1)
static struct nib_device *devices[SETS][COUNT(thread_counts)];

static int open_all(void **state)
{
	for (int i = 0; i < SETS - !cpu_has_bf16(); i++)
		for (int t = 0; t < COUNT(thread_counts); t++)
			devices[i][t] = test_device(set_names[i], thread_counts[t]);
	for (int t = 0; t < COUNT(thread_counts); t++)
		if (devices[BF16_SET][t])
			cpu_ops_use_bf16(
			    &((struct cpu_device *)devices[BF16_SET][t])->ops);
	return 0;
}

static int close_all(void **state)
{
	for (int i = 0; i < SETS; i++)
		for (int t = 0; t < COUNT(thread_counts); t++)
			nib_device_close(devices[i][t]);
	return 0;
}

/* ---- operands ------------------------------------------------------------ */

enum x_values {
	X_NORMAL,   /* mean 0, deviation 1 */
	X_INTEGERS, /* -4 to 4: sums are exact with JOB_CONTEST's weights */
	X_WIDE,	    /* 2^-20 to 2^10, zeros among them */
	X_VALUES,
};

/* A job of W4A16: x of each problem in guarded memory of its own. */
struct dense {
	struct job *job;
	struct output x[JOB_PROBLEMS];
};

static double random_value(enum x_values values)
{
	switch (values) {
	case X_INTEGERS:
		return (double)(rng_below(&rng, 9) - 4);
	case X_WIDE:
		if (rng_below(&rng, 8) == 0)
			return rng_below(&rng, 2) ? 0.0 : -0.0;
		return ldexp(rng_normal(&rng), (int)rng_below(&rng, 31) - 20);
	case X_NORMAL:
	case X_VALUES:
		break;
	}
	return rng_normal(&rng);
}

static void set(const struct nib_dense *x, int64_t b, int64_t r, int64_t k,
		double value)
{
	nib_dense_set_bits(x, b, r, k, nib_fp64_to_dtype(value, x->dtype));
}

/* A stack of values; where no value belongs there are NaN. */
static struct output x_new(enum nib_dtype dtype, const struct stack_spec *spec,
			   enum x_values values)
{
	struct output x = output_new(dtype, spec);

	memset(x.memory, 0xff, x.bytes);
	for (int64_t b = 0; b < spec->batch; b++)
		for (int64_t r = 0; r < spec->rows; r++)
			for (int64_t k = 0; k < spec->k; k++)
				set(&x.view, b, r, k, random_value(values));
	return x;
}

static struct stack_spec x_spec(const struct job_spec *spec, int64_t rows,
				int64_t batch)
{
	return (struct stack_spec){.rows = rows,
				   .k = spec->k,
				   .batch = batch,
				   .has_gaps = spec->has_gaps,
				   .is_between = spec->is_between,
				   .is_front = spec->is_front};
}

/* A itself is left out: a view that breaks every rule. */
static void spoil(struct nib_fp4 *a)
{
	memset(a, 0x5a, sizeof(*a));
}

static void dense_add(struct dense *d, const struct job_spec *spec,
		      enum nib_dtype x_dtype, enum x_values values)
{
	const int i = d->job->count;
	const struct stack_spec s = x_spec(spec, spec->m, spec->batch);
	struct nib_problem *p = &d->job->problems[i];

	job_add(d->job, &rng, spec);
	d->x[i] = x_new(x_dtype, &s, values);
	p->x = d->x[i].view;
	p->activations = NIB_ACTIVATIONS_DENSE;
	spoil(&p->a);
}

static struct dense dense_new(const struct job_spec *spec, enum nib_dtype x_dtype,
			      enum x_values values)
{
	struct dense d = {.job = job_new(spec->op)};

	dense_add(&d, spec, x_dtype, values);
	return d;
}

static struct dense dense_moe(const struct job_spec *spec, const int64_t *rows,
			      int experts, enum nib_dtype x_dtype, enum x_values values)
{
	struct dense d = {.job = job_of_moe(&rng, spec, rows, experts, 3, false)};
	struct nib_moe_problem *moe = &d.job->moe;
	const struct stack_spec s = x_spec(spec, moe->problem.c.rows, 1);
	const int32_t *offsets = d.job->row_offsets;

	d.x[0] = x_new(x_dtype, &s, values);
	moe->problem.x = d.x[0].view;
	moe->problem.activations = NIB_ACTIVATIONS_DENSE;
	/* Rows that no expert has change nothing. */
	for (int64_t r = 0; r < s.rows; r++)
		for (int64_t k = 0; k < s.k; k++)
			if (r < offsets[0] || r >= offsets[experts])
				set(&moe->problem.x, 0, r, k, NAN);
	spoil(&moe->problem.a);
	return d;
}

static void dense_free(struct dense *d)
{
	for (int i = 0; i < JOB_PROBLEMS; i++)
		output_free(&d->x[i]);
	job_free(d->job);
}

/* ---- judging ------------------------------------------------------------- */

/* A sum, that of |products|, and that of the weights of subnormal x. */
struct sum {
	double value, size, weights;
};

static double weight(const struct nib_fp4 *b, int64_t batch, int64_t n, int64_t k)
{
	const uint8_t byte = nib_fp4_row(b, batch, n)[k / 2];
	const int code = k % 2 ? byte >> 4 : byte & 15;

	return nib_e2m1_twice[code] * 0.5 *
	       (double)nib_e4m3_to_float(
		   *nib_fp4_scale(b, batch, n, k / NIB_NVFP4_BLOCK));
}

static struct sum sum_of(const struct nib_dense *x, int64_t xb, int64_t m,
			 const struct nib_fp4 *b, int64_t bb, int64_t n)
{
	struct sum s = {0};

	for (int64_t k = 0; k < x->cols; k++) {
		const double w = weight(b, bb, n, k);
		const double v = (double)nib_dense_get(x, xb, m, k);
		const double p = v * w;

		s.value += p;
		s.size += fabs(p);
		s.weights += fabs(v) < 0x1p-126 ? fabs(w) : 0;
	}
	return s;
}

/* k + 8 roundings of an element, flushed subnormals, alpha's rounding. */
static double sum_bound(const struct sum *s, int64_t k, double alpha)
{
	return fabs(alpha) * ((double)(k + 8) * 0x1p-24 * s->size +
			      (s->weights + 2 * (double)k) * 0x1p-126) +
	       fabs(alpha * s->value) * 0x1p-23;
}

static double silu_of(double x)
{
	return x / (1 + exp(-x));
}

/* Half a unit in the last place of c's type, subnormals too. */
static double store_bound(double want, enum nib_dtype dtype)
{
	static const double unit[] = {0x1p-24, 0x1p-11, 0x1p-8};
	static const double least[] = {0x1p-150, 0x1p-25, 0x1p-134};

	return fabs(want) * unit[dtype] * 1.001 + least[dtype];
}

/* One problem, or one expert, as the judge sees it. */
struct judged {
	const struct nib_dense *x, *c;
	const struct nib_fp4 *b, *b2;
	int64_t first, end; /* rows */
	int64_t expert;	    /* -1: none */
	double alpha, alpha2;
};

/* An infinite result is right if a finite one may round to it. */
static bool is_near(double got, double want, double bound, enum nib_dtype dtype)
{
	static const double largest[] = {0x1.fffffep127, 65504, 0x1.fep127};

	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got);
	if (isinf(want))
		return got == want;
	if (isinf(got))
		return (got > 0) == (want > 0) && fabs(want) + bound > largest[dtype];
	return fabs(got - want) <= bound;
}

static void judge_element(enum nib_op op, const struct judged *j, int64_t batch,
			  int64_t row, int64_t col, const char *what)
{
	const int64_t k = j->x->cols;
	const int64_t bb = j->expert >= 0 ? j->expert : j->b->batch > 1 ? batch : 0;
	const double got = (double)nib_dense_get(j->c, batch, row, col);
	const struct sum s = sum_of(j->x, batch, row, j->b, bb, col);
	double want = j->alpha * s.value;
	double bound = sum_bound(&s, k, j->alpha);

	if (op == NIB_OP_DUAL_GEMM) {
		const struct sum t = sum_of(j->x, batch, row, j->b2, bb, col);
		const double u = j->alpha2 * t.value;
		const double e = sum_bound(&t, k, j->alpha2);

		bound = 1.1 * bound * (fabs(u) + e) + fabs(silu_of(want)) * e +
			fabs(silu_of(want) * u) * 0x1p-20;
		want = silu_of(want) * u;
	}
	bound += store_bound(want, j->c->dtype);
	if (!is_near(got, want, bound, j->c->dtype))
		fail_msg("%s: batch %" PRId64 ", row %" PRId64 ", col %" PRId64
			 ": %a, must be within %.3g of %a",
			 what, batch, row, col, got, bound, want);
}

static void judge(const struct dense *d, const char *what)
{
	const struct job *job = d->job;

	for (int i = 0; i < job->count; i++) {
		const struct nib_problem *p = &job->problems[i];
		struct judged j = {&p->x,
				   &p->c,
				   &p->b,
				   &p->b2,
				   0,
				   p->c.rows,
				   -1,
				   p->alpha ? (double)*p->alpha : 1,
				   p->alpha2 ? (double)*p->alpha2 : 1};

		if (job->is_moe)
			j = (struct judged){
			    &job->moe.problem.x,
			    &job->moe.problem.c,
			    &job->moe.problem.b,
			    &job->moe.problem.b2,
			    job->row_offsets[i],
			    job->row_offsets[i + 1],
			    i,
			    job->moe.problem.alpha ? (double)job->alpha[i] : 1,
			    job->moe.problem.alpha2 ? (double)job->alpha2[i] : 1};
		for (int64_t b = 0; b < j.c->batch; b++)
			for (int64_t r = j.first; r < j.end; r++)
				for (int64_t n = 0; n < j.c->cols; n++)
					judge_element(job->op, &j, b, r, n, what);
	}
}

enum order { ORDER_COMMON, ORDER_VDPBF16PS, ORDER_AMX, ORDER_BFMMLA, ORDERS };

/* The order in which a set sums x's type. */
static enum order order_of(const struct dense *d, int set)
{
	const enum nib_dtype dtype =
	    d->job->is_moe ? d->job->moe.problem.x.dtype : d->job->problems[0].x.dtype;

	if (dtype != NIB_DTYPE_BF16)
		return ORDER_COMMON;
	if (strcmp(set_names[set], "amx") == 0)
		return ORDER_AMX;
	if (strcmp(set_names[set], "neonbf16") == 0)
		return ORDER_BFMMLA;
	if (set == BF16_SET ||
	    (strcmp(set_names[set], "avx512vnni") == 0 && cpu_prefers_bf16()))
		return ORDER_VDPBF16PS;
	return ORDER_COMMON;
}

/*
 * Runs the job everywhere: instruction sets, threads, packings.  The first
 * result of each order of sums is judged, the others have its bits.
 */
static void run_everywhere(const struct dense *d, bool is_exact, const char *what)
{
	struct bits want[ORDERS] = {{0}};
	char text[200];

	for (int i = 0; i < SETS * 2 * JOB_PACKINGS; i++) {
		const int isa = i / (2 * JOB_PACKINGS);
		const int thread = i / JOB_PACKINGS % 2;
		const struct job_how how = {
		    .device = devices[isa][thread],
		    .packing = (enum job_packing)(i % JOB_PACKINGS),
		    .brings_workspace = i % 5 == 1,
		};
		enum order order;

		if (!how.device)
			continue;
		snprintf(text, sizeof(text), "%s, %s, %d threads, packing %d", what,
			 set_names[isa], thread_counts[thread], i % JOB_PACKINGS);
		job_run(d->job, &how, text);
		order = is_exact ? ORDER_COMMON : order_of(d, isa);
		if (want[order].bytes) {
			job_has_bits(d->job, &want[order], text);
			continue;
		}
		want[order] = job_bits(d->job);
		judge(d, text);
	}
	for (int order = 0; order < ORDERS; order++)
		if (want[order].bytes)
			bits_free(&want[order]);
}

/* ---- shapes -------------------------------------------------------------- */

static const float alpha = 0.75f, alpha2 = -1.5f;

/* A case of random settings: types, layouts, strides, values, alpha. */
static struct job_spec random_spec(enum nib_op op, int64_t m, int64_t n, int64_t k)
{
	const uint64_t bits = rng_next(&rng);
	struct job_spec spec = {
	    .op = op,
	    .m = op == NIB_OP_GEMV ? 1 : m,
	    .n = n,
	    .k = k,
	    .batch = 1,
	    .b_batch = 1,
	    .b_layout = (enum nib_scale_layout)(bits & 1),
	    .dtype = (enum nib_dtype)(bits >> 1 & 0xff) % 3,
	    .has_gaps = bits >> 9 & 1,
	    .is_between = bits >> 10 & 1,
	    .is_front = bits >> 11 & 1,
	    .alpha = bits >> 12 & 1 ? &alpha : NULL,
	    .alpha2 = bits >> 13 & 1 ? &alpha2 : NULL,
	    .values = bits >> 14 & 1 ? JOB_ANY : JOB_SPARSE,
	};

	return spec;
}

static enum nib_dtype random_dtype(void)
{
	return (enum nib_dtype)rng_below(&rng, 3);
}

static void run_case(const struct job_spec *spec, enum nib_dtype x_dtype,
		     enum x_values values)
{
	struct dense d = dense_new(spec, x_dtype, values);
	char what[120];

	snprintf(what, sizeof(what),
		 "op %d, %" PRId64 "x%" PRId64 "x%" PRId64 ", batch %" PRId64
		 "/%" PRId64 ", x %d, c %d",
		 (int)spec->op, spec->m, spec->n, spec->k, spec->batch, spec->b_batch,
		 (int)x_dtype, (int)spec->dtype);
	run_everywhere(&d, values == X_INTEGERS, what);
	dense_free(&d);
}

/* Every number of rows around all tiles and the end of the direct pass. */
static void rows(void **state)
{
	static const int64_t ns[] = {1, 15, 17, 33, 64, 79};
	static const int64_t ks[] = {16, 48, 64, 80, 176};

	for (int64_t m = 0; m <= (test_is_small() ? 27 : 40); m++)
		for (int dtype = 0; dtype < 3; dtype++) {
			struct job_spec spec =
			    random_spec(NIB_OP_GEMM, m, ns[(m + dtype) % 6],
					ks[(m + 2 * dtype) % 5]);

			run_case(&spec, (enum nib_dtype)dtype, X_NORMAL);
		}
}

static void columns(void **state)
{
	static const int64_t ms[] = {1, 3, 8, 29};

	for (int64_t n = 0; n <= 130; n += n < 66 ? 1 : 9) {
		struct job_spec spec = random_spec(
		    n % 3 ? NIB_OP_GEMM : NIB_OP_DUAL_GEMM, ms[n % 4], n, 32);

		run_case(&spec, random_dtype(), X_WIDE);
	}
}

/* Ends of groups of four blocks and of chunks of 64. */
static void lengths(void **state)
{
	static const int64_t ks[] = {0,	   16,	 32,   48,   64,   80,
				     96,   112,	 128,  1008, 1024, 1040,
				     1104, 2048, 2064, 4112, 8208, 12304};

	for (int i = 0; i < COUNT(ks) - (test_is_small() ? 3 : 0); i++)
		for (int dtype = 0; dtype < 3; dtype++) {
			static const int64_t ms[] = {2, 9, 26};
			struct job_spec spec =
			    random_spec(NIB_OP_GEMM, ms[(i + dtype) % 3], 18, ks[i]);

			run_case(&spec, (enum nib_dtype)dtype, X_WIDE);
		}
}

static void operations(void **state)
{
	static const enum nib_op ops[] = {NIB_OP_GEMM, NIB_OP_DUAL_GEMM, NIB_OP_GEMV};

	for (int i = 0; i < 36; i++) {
		struct job_spec spec =
		    random_spec(ops[i % 3], 1 + 3 * i, 37, 16 * (1 + i % 9));

		spec.batch = i / 9 % 2 ? 3 : 1;
		spec.b_batch = i % 2 ? spec.batch : 1;
		run_case(&spec, (enum nib_dtype)(i / 3 % 3), X_NORMAL);
	}
}

/* Several units of rows, and an odd end. */
static void many_rows(void **state)
{
	for (int dtype = 0; dtype < 3; dtype++) {
		struct job_spec spec =
		    random_spec(NIB_OP_GEMM, test_is_small() ? 137 : 533, 70, 80);

		run_case(&spec, (enum nib_dtype)dtype, X_NORMAL);
	}
}

static void groups(void **state)
{
	for (int i = 0; i < 6; i++) {
		struct dense d = {.job =
				      job_new(i % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM)};
		static const int64_t ms[] = {1, 0, 40, 7, 25};

		for (int p = 0; p < COUNT(ms); p++) {
			struct job_spec spec =
			    random_spec(d.job->op, ms[p], 11 + 20 * p, 16 * p);

			dense_add(&d, &spec, (enum nib_dtype)(i % 3), X_NORMAL);
		}
		run_everywhere(&d, false, "group");
		dense_free(&d);
	}
}

static void experts(void **state)
{
	static const int64_t counts[][6] = {{1, 0, 30, 7, 0, 2},
					    {0, 0, 0, 0, 0, 9},
					    {0, 0, 0, 0, 0, 0},
					    {26, 3, 24, 25, 1, 0}};

	for (int i = 0; i < 12; i++) {
		const struct job_spec spec =
		    random_spec(i / 3 % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, 0, 35 + i,
				16 * (1 + i % 6));
		struct dense d = dense_moe(&spec, counts[i % 4], 6,
					   (enum nib_dtype)(i % 3), X_NORMAL);

		run_everywhere(&d, false, "experts");
		dense_free(&d);
	}
}

/* ---- exact results ------------------------------------------------------- */

/* Small integers: every order of sums gives the same bits. */
static void small_integers(void **state)
{
	static const int64_t ms[] = {1, 2, 5, 8, 13, 24, 25, 50};

	for (int i = 0; i < 24; i++) {
		struct job_spec spec =
		    random_spec(NIB_OP_GEMM, ms[i % 8], 31 + 7 * i, 16 * (1 + i));

		spec.values = JOB_CONTEST;
		spec.dtype = NIB_DTYPE_FP32;
		run_case(&spec, (enum nib_dtype)(i % 3), X_INTEGERS);
	}
}

/* x has a single 1 in each row, so c is a weight: every code, every scale. */
static void every_weight(void **state)
{
	static const int64_t ms[] = {16, 48};

	for (int i = 0; i < 6; i++) {
		const struct job_spec spec = {.op = NIB_OP_GEMM,
					      .m = ms[i / 3],
					      .n = 127 * 16,
					      .k = 16,
					      .batch = 1,
					      .b_batch = 1};
		struct dense d = dense_new(&spec, (enum nib_dtype)(i % 3), X_NORMAL);
		const struct nib_problem *p = &d.job->problems[0];

		for (int64_t r = 0; r < spec.m; r++)
			for (int64_t k = 0; k < 16; k++)
				set(&p->x, 0, r, k, r % 16 == k);
		for (int64_t n = 0; n < spec.n; n++) {
			uint8_t *codes = nib_fp4_row(&p->b, 0, n);

			*nib_fp4_scale(&p->b, 0, n, 0) = (uint8_t)(n / 16);
			for (int k = 0; k < 16; k += 2)
				codes[k / 2] =
				    (uint8_t)(((n + k) & 15) | ((n + k + 1) & 15) << 4);
		}
		for (int isa = 0; isa < SETS; isa++) {
			const struct job_how how = {devices[isa][0], JOB_PACKED, false,
						    0};

			if (!how.device)
				continue;
			job_run(d.job, &how, "weights");
			for (int64_t r = 0; r < spec.m; r++)
				for (int64_t n = 0; n < spec.n; n++)
					assert_true(
					    (double)nib_dense_get(&p->c, 0, r, n) ==
					    weight(&p->b, 0, n, r % 16));
		}
		dense_free(&d);
	}
}

/* ---- NaN, infinity, ends of the range ------------------------------------ */

/* One row of x has such a value: IEEE decides that row, and no other. */
static void not_finite(void **state)
{
	static const double values[] = {INFINITY, -INFINITY, NAN};
	static const uint32_t odd[] = {0xffc12340, 0xfe10, 0xffd0};

	for (int i = 0; i < 36; i++) {
		static const int64_t ms[] = {2, 11, 31};
		struct job_spec spec = random_spec(
		    i / 9 % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, ms[i % 3], 40, 96);
		struct dense d =
		    dense_new(&spec, (enum nib_dtype)(i / 3 % 3), X_NORMAL);
		const struct nib_dense *x = &d.job->problems[0].x;
		const int64_t row = rng_below(&rng, spec.m);

		set(x, 0, row, rng_below(&rng, 96), values[i / 4 % 3]);
		/* NaN of several payloads meet: all sets keep the same. */
		for (int64_t k = 0; k < (i % 4 == 3 ? 40 : 0); k++)
			nib_dense_set_bits(x, 0, row, rng_below(&rng, 96),
					   odd[x->dtype] ^ (uint32_t)(k % 5 * 0x1001));
		run_everywhere(&d, false, "not finite");
		dense_free(&d);
	}
}

/* A scale of NaN: the columns of that row of the weights are NaN. */
static void nan_scales(void **state)
{
	for (int i = 0; i < 12; i++) {
		static const int64_t ms[] = {3, 30};
		struct job_spec spec = random_spec(
		    i % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, ms[i / 2 % 2], 70, 128);
		struct dense d = dense_new(&spec, (enum nib_dtype)(i % 3), X_NORMAL);
		const struct nib_problem *p = &d.job->problems[0];
		const int64_t n = rng_below(&rng, 70);
		const int64_t g = rng_below(&rng, 8);

		*nib_fp4_scale(i % 2 ? &p->b2 : &p->b, 0, n, g) = 0x7f;
		/* The codes that it scales may be anything, zeros too. */
		if (i % 4 < 2)
			memset(nib_fp4_row(i % 2 ? &p->b2 : &p->b, 0, n) + 8 * g, 0, 8);
		run_everywhere(&d, false, "NaN scale");
		dense_free(&d);
	}
}

/* x near both ends of fp32 and bf16, with results within them. */
static void ends_of_the_range(void **state)
{
	static const int exponents[] = {-149, -130, -125, -117, 100, 124};

	for (int i = 0; i < 24; i++) {
		const int e = exponents[i / 4];
		struct job_spec spec =
		    random_spec(NIB_OP_GEMM, i % 4 < 2 ? 5 : 33, 20, 64);
		struct dense d;
		const struct nib_problem *p;

		spec.dtype = NIB_DTYPE_FP32;
		d = dense_new(&spec, i % 2 ? NIB_DTYPE_BF16 : NIB_DTYPE_FP32, X_NORMAL);
		p = &d.job->problems[0];
		for (int64_t r = 0; r < spec.m; r++)
			for (int64_t k = 0; k < spec.k; k++)
				set(&p->x, 0, r, k, ldexp(rng_uniform(&rng) - 0.5, e));
		/* The largest scales for small x, small ones for large x. */
		for (int64_t n = 0; n < spec.n; n++)
			for (int64_t g = 0; g < spec.k / 16; g++)
				*nib_fp4_scale(&p->b, 0, n, g) =
				    e < 0 ? 0x7e : (uint8_t)rng_below(&rng, 16);
		run_everywhere(&d, false, "ends");
		dense_free(&d);
	}
}

/* The largest k, the largest weights: sums stay within their bound. */
static void longest_k(void **state)
{
	for (int dtype = 0; dtype < 3; dtype++) {
		const struct job_spec spec = {.op = NIB_OP_GEMM,
					      .m = 2,
					      .n = 3,
					      .k = test_is_small() ? 65536 : NIB_MAX_K,
					      .batch = 1,
					      .b_batch = 1,
					      .values = JOB_EXTREME};

		run_case(&spec, (enum nib_dtype)dtype, X_NORMAL);
	}
}

/* ---- memory -------------------------------------------------------------- */

/* Rows of x before the first expert and after the last are never touched. */
static void rows_of_no_expert(void **state)
{
	enum { ROWS = 9, N = 20, K = 1024, PAGE = 4096 };
	static const int64_t counts[] = {2, 0, 3};

	if (sysconf(_SC_PAGESIZE) != PAGE)
		skip();
	for (int isa = 0; isa < SETS; isa++)
		for (int dtype = 0; dtype < 3 && devices[isa][1]; dtype++) {
			const struct job_spec spec = {
			    .op = NIB_OP_GEMM, .n = N, .k = K};
			struct dense d = dense_moe(&spec, counts, 3,
						   (enum nib_dtype)dtype, X_NORMAL);
			struct nib_dense *x = &d.job->moe.problem.x;
			uint8_t *pages = guard_new((size_t)ROWS * 2 * PAGE);
			const struct job_how how = {devices[isa][1], JOB_VIEWS, false,
						    0};

			/* A row is half of two pages. */
			for (int64_t r = 3; r < 8; r++)
				memcpy(pages + 2 * r * PAGE, nib_dense_at(x, 0, r, 0),
				       K * nib_dtype_bytes(x->dtype));
			x->data = pages;
			x->row_stride_elems =
			    2 * PAGE / (int64_t)nib_dtype_bytes(x->dtype);
			mprotect(pages, 6 * PAGE, PROT_NONE);
			mprotect(pages + 16 * PAGE, 2 * PAGE, PROT_NONE);
			for (int64_t r = 3; r < 8; r++) {
				mprotect(pages + (2 * r + 1) * PAGE, PAGE, PROT_NONE);
				mprotect(pages + 2 * r * PAGE, PAGE, PROT_READ);
			}
			job_run(d.job, &how, "rows of no expert");
			judge(&d, "rows of no expert");
			mprotect(pages, (size_t)ROWS * 2 * PAGE,
				 PROT_READ | PROT_WRITE);
			guard_free(pages, (size_t)ROWS * 2 * PAGE);
			dense_free(&d);
		}
}

/* ---- what a plan says ---------------------------------------------------- */

static void explanations(void **state)
{
	static const char *const says[] = {
	    "; fp32 activations", "; 16-bit activations: fp16, summed in fp32",
	    "; 16-bit activations: bf16, summed in fp32"};
	static const char *const orders[ORDERS] = {
	    [ORDER_VDPBF16PS] = "; 16-bit activations: bf16, by vdpbf16ps",
	    [ORDER_AMX] = "; 16-bit activations: bf16, by tdpbf16ps",
	    [ORDER_BFMMLA] = "; 16-bit activations: bf16, by bfmmla"};

	for (int isa = 0; isa < SETS; isa++)
		for (int dtype = 0; dtype < 3 && devices[isa][0]; dtype++) {
			const struct job_spec spec =
			    random_spec(NIB_OP_GEMM, 9, 20, 32);
			struct dense d =
			    dense_new(&spec, (enum nib_dtype)dtype, X_NORMAL);
			struct nib_plan *plan = job_plan(d.job, devices[isa][0], false);
			const struct nib_plan_info info = test_plan_info(plan);
			const char *want = orders[order_of(&d, isa)];

			if (!want)
				want = says[dtype];

			assert_string_equal(info.explanation +
						strlen(info.explanation) - strlen(want),
					    want);
			nib_plan_free(plan);
			dense_free(&d);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows),	    cmocka_unit_test(columns),
	    cmocka_unit_test(lengths),	    cmocka_unit_test(operations),
	    cmocka_unit_test(many_rows),    cmocka_unit_test(groups),
	    cmocka_unit_test(experts),	    cmocka_unit_test(small_integers),
	    cmocka_unit_test(every_weight), cmocka_unit_test(not_finite),
	    cmocka_unit_test(nan_scales),   cmocka_unit_test(ends_of_the_range),
	    cmocka_unit_test(longest_k),    cmocka_unit_test(rows_of_no_expert),
	    cmocka_unit_test(explanations),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, open_all, close_all);
}
