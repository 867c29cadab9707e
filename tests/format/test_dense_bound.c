/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dense_bound.c - compares the bounds of an A that is dense or int8 with models of
 * the hardware: fp32 sums in several orders, bf16 pairs that flush subnormals or round
 * to odd, and tensor cores that truncate.  Random data is within the bounds, chosen
 * data is close to them, and values outside are reported.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/data.h"
#include "common/odd_sums.h"
#include "common/sums.h"
#include "common/unit.h"
#include "format/bound.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/int8.h"
#include "format/view.h"

#define DENSE  NIB_ACTIVATIONS_DENSE
#define INT8   NIB_ACTIVATIONS_INT8
#define BLOCKS NIB_ARITHMETIC_BLOCKS
#define TENSOR NIB_ARITHMETIC_FP16_TENSOR
#define U      0x1p-24
#define MAX_K  16384

static struct rng rng;

/* ---- problems ------------------------------------------------------------ */

struct fixture {
	struct test_dense x, c;
	struct test_nvfp4 b, b2;
	float alpha, alpha2;
	struct nib_problem problem;
};

static void make(struct fixture *f, int64_t m, int64_t n, int64_t k,
		 enum nib_activations activations, enum nib_dtype x_dtype,
		 enum nib_dtype dtype)
{
	f->x = test_dense_new(x_dtype, m, k, 1, 0);
	f->b = test_nvfp4_new(&rng, n, k, 1, NIB_SCALE_LAYOUT_TILED_128X4,
			      TEST_SCALES_MIDDLE, 0, 0);
	f->b2 = test_nvfp4_new(&rng, n, k, 1, NIB_SCALE_LAYOUT_LINEAR,
			       TEST_SCALES_MIDDLE, 0, 0);
	f->c = test_dense_new(dtype, m, n, 1, 0);
	f->alpha = f->alpha2 = 1;
	f->problem = (struct nib_problem){
	    .x = f->x.view,
	    .activations = activations,
	    .b = f->b.view,
	    .b2 = f->b2.view,
	    .c = f->c.view,
	    .alpha = &f->alpha,
	    .alpha2 = &f->alpha2,
	};
}

static void drop(struct fixture *f)
{
	test_dense_free(&f->x);
	test_nvfp4_free(&f->b);
	test_nvfp4_free(&f->b2);
	test_dense_free(&f->c);
}

static void set_x(const struct fixture *f, int64_t row, int64_t i, double x)
{
	nib_dense_set_bits(&f->x.view, 0, row, i,
			   nib_fp64_to_dtype(x, f->x.view.dtype));
}

/* Code and scale of element i of row 0 of b. */
static void set_w(const struct fixture *f, int64_t i, int code, uint8_t scale)
{
	sums_set(&f->b.view, 0, i, code);
	*nib_fp4_scale(&f->b.view, 0, 0, i / NIB_NVFP4_BLOCK) = scale;
}

/* Code 2 is 1, and so is this scale. */
#define ONE 2, NIB_E4M3_ONE

/* ---- models -------------------------------------------------------------- */

/* The values of a row of A and a row of B; w is code * scale. */
struct values {
	int64_t k;
	float x[MAX_K], w[MAX_K], code[MAX_K], scale[MAX_K];
};

static const struct values *values_of(const struct nib_problem *p, int64_t row,
				      const struct nib_fp4 *b, int64_t col)
{
	static struct values v;
	int8_t codes[NIB_NVFP4_BLOCK];

	v.k = b->k;
	for (int64_t i = 0; i < b->k; i++) {
		v.x[i] = nib_dense_get(&p->x, 0, row, i);
		v.code[i] = (float)nib_e2m1_twice[sums_code(b, col, i)] * 0.5f;
		v.scale[i] =
		    nib_e4m3_to_float(*nib_fp4_scale(b, 0, col, i / NIB_NVFP4_BLOCK));
		v.w[i] = v.code[i] * v.scale[i];
	}
	for (int64_t g = 0; p->activations == INT8 && g < b->k; g += 16) {
		const float scale = nib_int8_block(codes, v.x + g);

		for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
			v.x[g + i] = (float)codes[i] * scale;
	}
	return &v;
}

typedef float model(const struct values *v);

/* One accumulator, products rounded. */
static float in_order(const struct values *v)
{
	float sum = 0;

	for (int64_t i = 0; i < v->k; i++)
		sum += v->x[i] * v->w[i];
	return sum;
}

/* 16 accumulators of fused products, added as a tree. */
static float in_lanes(const struct values *v)
{
	float sum[16] = {0};

	for (int64_t i = 0; i < v->k; i++)
		sum[i % 16] = fmaf(v->x[i], v->w[i], sum[i % 16]);
	for (int n = 8; n > 0; n /= 2)
		for (int i = 0; i < n; i++)
			sum[i] += sum[i + n];
	return sum[0];
}

static float flush(float x)
{
	return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* vdpbf16ps: subnormals are zeros, on the way in and out. */
static float in_flushed_pairs(const struct values *v)
{
	float sum = 0;

	for (int64_t i = 0; i < v->k; i++)
		sum = flush(fmaf(flush(v->x[i]), flush(v->w[i]), sum));
	return sum;
}

/* The same with the scale after the 16 codes of a block. */
static float in_flushed_blocks(const struct values *v)
{
	float sum = 0;

	for (int64_t g = 0; g < v->k; g += NIB_NVFP4_BLOCK) {
		float dot = 0;

		for (int64_t i = g; i < g + NIB_NVFP4_BLOCK; i++)
			dot = flush(fmaf(flush(v->x[i]), v->code[i], dot));
		sum = fmaf(dot, v->scale[g], sum);
	}
	return sum;
}

/* bfmmla. */
static float in_odd_pairs(const struct values *v)
{
	return odd_sum(v->x, v->w, v->k);
}

/* bfdot, where no block is flushed: rows of smaller x are multiplied by bfmmla. */
static float in_odd_blocks(const struct values *v)
{
	for (int64_t i = 0; i < v->k; i++)
		if (v->x[i] != 0 && fabsf(v->x[i]) < 0x1p-110f)
			return in_odd_pairs(v);
	return odd_sum_of_blocks(v->x, v->code, v->scale, v->k);
}

/* Exact blocks, added in fp32: what INT8 allows. */
static float in_blocks(const struct values *v)
{
	float sum = 0;

	for (int64_t g = 0; g < v->k; g += NIB_NVFP4_BLOCK) {
		double block = 0;

		for (int64_t i = g; i < g + NIB_NVFP4_BLOCK; i++)
			block += (double)v->x[i] * (double)v->w[i];
		sum += (float)block;
	}
	return sum;
}

/* The stored exponent: zeros and subnormals have that of the least normal. */
static int exponent_of(double x, int least)
{
	return x == 0 || ilogb(x) < least ? least : ilogb(x);
}

/* c + 16 products: one instruction; least: see exponent_of(). */
static double tensor_step(double c, const double *x, const double *w, int least)
{
	int most = exponent_of(c, -126), lost;
	double sum;

	for (int i = 0; i < 16; i++) {
		const int e = exponent_of(x[i], least) + exponent_of(w[i], least);

		most = e > most ? e : most;
	}
	/* Integers of at most 28 bits, and 17 of them. */
	sum = trunc(ldexp(c, 25 - most));
	for (int i = 0; i < 16; i++)
		sum += trunc(ldexp(x[i] * w[i], 25 - most));
	lost = exponent_of(sum, 0) - 23;
	if (lost > 0)
		sum = ldexp(trunc(ldexp(sum, -lost)), lost);
	sum = ldexp(sum, most - 25);
	/* fp32 holds multiples of 2^-149. */
	return fabs(sum) < 0x1p-100 ? ldexp(trunc(ldexp(sum, 149)), -149) : sum;
}

/* w is scaled by 2^-shift, which fp16 needs. */
static float tensor_sum(const struct values *v, int least, int shift)
{
	double c = 0;

	for (int64_t g = 0; g < v->k; g += 16) {
		double x[16], w[16];

		for (int i = 0; i < 16; i++) {
			x[i] = (double)v->x[g + i];
			w[i] = ldexp((double)v->w[g + i], -shift);
		}
		c = tensor_step(c, x, w, least);
	}
	return (float)ldexp(c, shift);
}

/* A block in four steps of four codes, then its scale. */
static float tensor_blocks(const struct values *v, int least)
{
	float sum = 0;

	for (int64_t g = 0; g < v->k; g += 16) {
		double c = 0;

		for (int step = 0; step < 4; step++) {
			double x[16] = {0}, w[16] = {0};

			for (int i = 0; i < 4; i++) {
				const int64_t at = g + step * 4 + i;

				x[i] = (double)v->x[at];
				w[i] = (double)v->code[at] * 0x1p-6;
			}
			c = tensor_step(c, x, w, least);
		}
		sum = fmaf((float)c, v->scale[g], sum);
	}
	return sum * 64;
}

static float in_fp16_tensor(const struct values *v)
{
	return tensor_sum(v, -14, 6);
}

static float in_bf16_tensor(const struct values *v)
{
	return tensor_sum(v, -126, 0);
}

static float in_scaled_bf16_tensor(const struct values *v)
{
	return tensor_sum(v, -126, 7);
}

static float in_fp16_tensor_blocks(const struct values *v)
{
	return tensor_blocks(v, -14);
}

static float in_bf16_tensor_blocks(const struct values *v)
{
	return tensor_blocks(v, -126);
}

/* ---- multiplying and checking -------------------------------------------- */

static float silu(float x)
{
	return x / (1 + expf(-x));
}

static void multiply(const struct fixture *f, enum nib_op op, model *sum)
{
	const struct nib_problem *p = &f->problem;

	for (int64_t j = 0; j < p->c.rows * p->c.cols; j++) {
		const int64_t row = j / p->c.cols, col = j % p->c.cols;
		float c = sum(values_of(p, row, &p->b, col)) * f->alpha;

		if (op == NIB_OP_DUAL_GEMM)
			c = silu(c) * (sum(values_of(p, row, &p->b2, col)) * f->alpha2);
		nib_dense_set_bits(&p->c, 0, row, col,
				   nib_fp64_to_dtype((double)c, p->c.dtype));
	}
}

static struct nib_check_result check(const struct fixture *f, enum nib_op op,
				     enum nib_arithmetic arithmetic)
{
	const struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .arithmetic = arithmetic,
	};
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	struct nib_error err = {0};

	if (nib_check(op, &f->problem, 1, &options, &r, &err))
		fail_msg("nib_check: %s", err.message);
	return r;
}

/* The largest fraction of the bound; nothing may be outside. */
static double fraction_of(const struct fixture *f, enum nib_op op, model *sum,
			  enum nib_arithmetic arithmetic)
{
	struct nib_check_result r;

	multiply(f, op, sum);
	r = check(f, op, arithmetic);
	if (r.failed)
		fail_msg("%d of %d wrong: got %a, want %a, %g of the bound",
			 (int)r.failed, (int)r.checked, r.got, r.want,
			 r.worst_fraction);
	return r.worst_fraction;
}

/* ---- random data --------------------------------------------------------- */

/* Values of one size; of any size; with zeros and outliers; the least ones. */
static double random_x(enum nib_dtype dtype, int kind)
{
	const double normal = rng_normal(&rng);
	float any;

	switch (kind) {
	case 1:
		do {
			any = nib_dtype_to_fp32((uint32_t)rng_next(&rng), dtype);
		} while (!isfinite(any) || fabsf(any) > 0x1p100f);
		return (double)any;
	case 2:
		return rng_below(&rng, 8)
			   ? 0
			   : ldexp(normal, (int)rng_below(&rng, 26) - 12);
	case 3:
		return normal * (dtype == NIB_DTYPE_FP16 ? 0x1p-20 : 0x1p-129);
	default:
		return normal;
	}
}

static void fill(const struct fixture *f, int kind)
{
	for (int64_t i = 0; i < f->x.view.rows * f->x.view.cols; i++)
		set_x(f, i / f->x.view.cols, i % f->x.view.cols,
		      random_x(f->x.view.dtype, kind));
}

struct how {
	enum nib_activations activations;
	enum nib_dtype dtype; /* of x */
	enum nib_arithmetic arithmetic;
	model *sum;
	const char *name;
};

static void random_data_is_inside(void **state)
{
	static const int64_t ks[] = {16, 48, 240, 2048};
	static const struct how hows[] = {
	    {DENSE, NIB_DTYPE_FP32, BLOCKS, in_order, "fp32 in order"},
	    {DENSE, NIB_DTYPE_FP32, BLOCKS, in_lanes, "fp32 in lanes"},
	    {DENSE, NIB_DTYPE_FP16, BLOCKS, in_lanes, "fp16 in lanes"},
	    {DENSE, NIB_DTYPE_BF16, BLOCKS, in_order, "bf16 in order"},
	    {DENSE, NIB_DTYPE_BF16, BLOCKS, in_flushed_pairs, "bf16, flushed"},
	    {DENSE, NIB_DTYPE_BF16, BLOCKS, in_flushed_blocks, "bf16 blocks, flushed"},
	    {DENSE, NIB_DTYPE_BF16, BLOCKS, in_odd_pairs, "bf16, to odd"},
	    {DENSE, NIB_DTYPE_BF16, BLOCKS, in_odd_blocks, "bf16 blocks, to odd"},
	    {DENSE, NIB_DTYPE_FP16, TENSOR, in_fp16_tensor, "fp16 tensor"},
	    {DENSE, NIB_DTYPE_FP16, TENSOR, in_fp16_tensor_blocks, "fp16 blocks"},
	    {DENSE, NIB_DTYPE_BF16, TENSOR, in_bf16_tensor_blocks, "bf16 blocks"},
	    {DENSE, NIB_DTYPE_BF16, TENSOR, in_bf16_tensor, "bf16 tensor"},
	    {DENSE, NIB_DTYPE_BF16, TENSOR, in_scaled_bf16_tensor, "bf16 scaled"},
	    {INT8, NIB_DTYPE_FP32, BLOCKS, in_blocks, "int8 of fp32"},
	    {INT8, NIB_DTYPE_FP16, BLOCKS, in_blocks, "int8 of fp16"},
	    {INT8, NIB_DTYPE_BF16, BLOCKS, in_blocks, "int8 of bf16"},
	};

	for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
		const struct how *h = &hows[i];
		double worst = 0;

		for (int j = 0; j < 4 * 4 * 3; j++) {
			struct fixture f;
			double fraction;

			make(&f, SUMS_ROWS, SUMS_COLS,
			     ks[j % (test_is_small() ? 3 : 4)], h->activations,
			     h->dtype, (enum nib_dtype)(j / 16));
			fill(&f, j / 4 % 4);
			f.alpha = (float)rng_normal(&rng);
			f.alpha2 = ldexpf(f.alpha, (int)rng_below(&rng, 40));
			fraction = fraction_of(&f, NIB_OP_GEMM, h->sum, h->arithmetic);
			/* The rounding to 16 bits would hide the rest. */
			if (j < 16)
				worst = fmax(worst, fraction);
			fraction_of(&f, NIB_OP_DUAL_GEMM, h->sum, h->arithmetic);
			drop(&f);
		}
		printf("%s: %.3f of the bound\n", h->name, worst);
		assert_true(worst > 0.01);
	}
}

/* ---- chosen data --------------------------------------------------------- */

/* 1, and what is half of its last bit. */
static void cpu_bound_is_close(void **state)
{
	struct fixture f;
	double fraction;

	make(&f, 1, 1, 4096, DENSE, NIB_DTYPE_FP32, NIB_DTYPE_FP32);
	for (int64_t i = 0; i < 4096; i++) {
		set_x(&f, 0, i, i ? U : 1);
		set_w(&f, i, ONE);
	}
	fraction = fraction_of(&f, NIB_OP_GEMM, in_order, BLOCKS);
	printf("fp32 in order, chosen: %.4f of the bound\n", fraction);
	assert_true(fraction > 0.99);
	/* Lost twice, as by a sum that is cut off instead: outside. */
	nib_dense_set_bits(&f.c.view, 0, 0, 0, nib_fp32_bits(1 - 32 * 0x1p-24f));
	assert_int_equal(check(&f, NIB_OP_GEMM, BLOCKS).failed, 1);
	drop(&f);
}

/* 1, which becomes odd, and pairs just below its last bit: all of them are cut off. */
static void odd_bound_is_close(void **state)
{
	struct fixture f;
	double fraction;

	make(&f, 1, 1, MAX_K, DENSE, NIB_DTYPE_BF16, NIB_DTYPE_FP32);
	for (int64_t i = 0; i < MAX_K; i++) {
		set_x(&f, 0, i, i ? 0x1.FEp-25 : 1);
		set_w(&f, i, ONE);
	}
	fraction = fraction_of(&f, NIB_OP_GEMM, in_odd_pairs, BLOCKS);
	assert_int_equal(nib_dense_get_bits(&f.c.view, 0, 0, 0),
			 nib_fp32_bits(1 + 0x1p-23f));
	printf("bf16 to odd, chosen: %.4f of the bound\n", fraction);
	assert_true(fraction > 0.99);
	drop(&f);
}

/* 2^7, and blocks just below half of its last bit. */
static void int8_bound_is_close(void **state)
{
	struct fixture f;
	double fraction;

	make(&f, 1, 1, MAX_K, INT8, NIB_DTYPE_FP32, NIB_DTYPE_FP32);
	for (int64_t i = 0; i < MAX_K; i++) {
		set_x(&f, 0, i, i % 16 ? 0 : 127 * U);
		set_w(&f, i, ONE);
	}
	set_x(&f, 0, 0, 127);
	set_x(&f, 0, 1, 1);
	fraction = fraction_of(&f, NIB_OP_GEMM, in_blocks, BLOCKS);
	printf("int8, chosen: %.4f of the bound\n", fraction);
	assert_true(fraction > 0.98);
	nib_dense_set_bits(&f.c.view, 0, 0, 0, nib_fp32_bits(128 - 0x1p-10f));
	assert_int_equal(check(&f, NIB_OP_GEMM, BLOCKS).failed, 1);
	drop(&f);
}

/* Subnormals of bf16 times the largest w. */
static void flushing_is_close(void **state)
{
	struct fixture f;
	double fraction;

	make(&f, 1, 1, 4096, DENSE, NIB_DTYPE_BF16, NIB_DTYPE_FP32);
	for (int64_t i = 0; i < 4096; i++) {
		set_x(&f, 0, i, 127 * 0x1p-133);
		set_w(&f, i, 7, NIB_E4M3_MAX);
	}
	fraction = fraction_of(&f, NIB_OP_GEMM, in_flushed_pairs, BLOCKS);
	printf("subnormal x, flushed: %.4f of the bound\n", fraction);
	assert_true(fraction > 0.84);
	fraction = fraction_of(&f, NIB_OP_GEMM, in_odd_pairs, BLOCKS);
	assert_true(fraction > 0.84);
	fraction_of(&f, NIB_OP_GEMM, in_order, BLOCKS);
	/* Normal x have no such excuse. */
	for (int64_t i = 0; i < 4096; i++)
		set_x(&f, 0, i, 0x1p-126);
	nib_dense_set_bits(&f.c.view, 0, 0, 0, 0);
	assert_int_equal(check(&f, NIB_OP_GEMM, BLOCKS).failed, 1);
	/* But products and sums below 2^-126 have. */
	for (int64_t i = 0; i < 4096; i++) {
		set_x(&f, 0, i, i & 1 ? -0x1.FEp-126 : 0x1.FEp-126);
		set_w(&f, i, 1, NIB_E4M3_ONE);
	}
	multiply(&f, NIB_OP_GEMM, in_flushed_pairs);
	fraction = fraction_of(&f, NIB_OP_GEMM, in_flushed_pairs, BLOCKS);
	assert_true(fraction <= 1);
	for (int64_t i = 0; i < 4096; i++)
		set_x(&f, 0, i, 0x1.FEp-126);
	fraction = fraction_of(&f, NIB_OP_GEMM, in_flushed_pairs, BLOCKS);
	printf("subnormal sums, flushed: %.4f of the bound\n", fraction);
	assert_true(fraction > 0.3);
	/* A large scale that comes after them. */
	for (int64_t i = 0; i < 4096; i++)
		set_w(&f, i, 1, NIB_E4M3_MAX);
	fraction = fraction_of(&f, NIB_OP_GEMM, in_flushed_blocks, BLOCKS);
	printf("subnormal blocks, flushed: %.4f of the bound\n", fraction);
	assert_true(fraction > 0.98);
	drop(&f);
}

/*
 * 2^15 at first.  Then each step has 15 products just below the first bit that
 * is cut off, and one just below four times that.
 */
static void tensor_bound_is_close(void **state)
{
	static const double last[2] = {0x1.FFCp-11, 0x1.FEp-11};

	for (int i = 0; i < 2; i++) {
		struct fixture f;
		double fraction;

		make(&f, 1, 1, MAX_K, DENSE, i ? NIB_DTYPE_BF16 : NIB_DTYPE_FP16,
		     NIB_DTYPE_FP32);
		for (int64_t j = 0; j < MAX_K; j++) {
			set_x(&f, 0, j, j < 16 ? 0 : last[i] * (j % 16 ? 1 : 4));
			set_w(&f, j, ONE);
		}
		set_x(&f, 0, 0, 0x1p15);
		fraction = fraction_of(&f, NIB_OP_GEMM,
				       i ? in_bf16_tensor : in_fp16_tensor, TENSOR);
		printf("tensor, chosen: %.4f of the bound\n", fraction);
		assert_true(fraction > 0.97);
		drop(&f);
	}
}

/*
 * In each step a large x meets a zero.  Its exponent decides what is cut off,
 * which are the other products.
 */
static void zeros_cut_off_what_the_bound_allows(void **state)
{
	const double a = 15 * 1024 * 0x1.FFCp-19;
	struct nib_check_result r;
	struct fixture f;

	make(&f, 1, 1, MAX_K, DENSE, NIB_DTYPE_FP16, NIB_DTYPE_FP32);
	for (int64_t j = 0; j < MAX_K; j++) {
		set_x(&f, 0, j, j % 16 ? 0x1.FFCp-13 : 0x1p15);
		set_w(&f, j, j % 16 ? 2 : 0, 0x08); /* 2^-6 */
	}
	multiply(&f, NIB_OP_GEMM, in_fp16_tensor);
	assert_int_equal(nib_dense_get_bits(&f.c.view, 0, 0, 0), 0);
	r = check(&f, NIB_OP_GEMM, TENSOR);
	assert_int_equal(r.failed, 0);
	printf("zeros that decide: %.4f of the bound\n", r.worst_fraction);
	assert_true(r.worst_fraction > 0.9);
	assert_true(r.want == a);
	assert_true(a > (9.5 * 1024 + 9) * U * a * 100);
	/* The same by blocks of codes, whose scale is the largest one. */
	for (int64_t j = 0; j < MAX_K; j++) {
		set_x(&f, 0, j, j % 4 ? 0x1.FFCp-13 : 0);
		set_w(&f, j, 1, NIB_E4M3_MAX);
	}
	for (int64_t j = 0; j < MAX_K; j += 4) {
		set_x(&f, 0, j, 0x1p10);
		set_w(&f, j, 0, NIB_E4M3_MAX);
	}
	multiply(&f, NIB_OP_GEMM, in_fp16_tensor_blocks);
	r = check(&f, NIB_OP_GEMM, TENSOR);
	printf("zeros in blocks: %.4f of the bound\n", r.worst_fraction);
	assert_int_equal(r.failed, 0);
	assert_true(r.worst_fraction > 0.2);
	drop(&f);
}

/* ---- the formulas -------------------------------------------------------- */

/* The sum 1, by hand. */
static struct nib_exact_wide one(void)
{
	struct nib_exact_wide s = {.products = 3,
				   .magnitude = 2,
				   .largest_x = 8,
				   .largest_w = 0.5,
				   .scales = 48};

	s.digit[7] = 1 << 10;
	return s;
}

static bool is_about(double x, double want)
{
	return fabs(x - want) <= want * 0x1p-40;
}

static void slack_is_the_formula(void **state)
{
	const struct nib_dense_rule cpu = {DENSE, NIB_DTYPE_FP32, BLOCKS};
	const struct nib_dense_rule int8 = {INT8, NIB_DTYPE_FP32, BLOCKS};
	const struct nib_dense_rule fp16 = {DENSE, NIB_DTYPE_FP16, TENSOR};
	const struct nib_dense_rule bf16 = {DENSE, NIB_DTYPE_BF16, TENSOR};
	struct nib_exact_wide s = one();
	struct nib_expected e;

	e = nib_expect_gemm_dense(&s, -2, 32, cpu);
	assert_true(e.want == -2 && e.unit == 6);
	assert_true(is_about(e.slack, 6 * 40 * U));
	e = nib_expect_gemm_dense(&s, -2, 32, int8);
	assert_true(e.want == -2 && e.unit == 4);
	assert_true(is_about(e.slack, 4 * 6 * U));
	e = nib_expect_gemm_dense(&s, -2, 32, fp16);
	assert_true(e.unit == 6);
	assert_true(is_about(e.slack, 6 * 28 * U + 2 * (80 * 0x1p-40 + 128 * 0x1p-30)));
	e = nib_expect_gemm_dense(&s, -2, 32, bf16);
	assert_true(is_about(e.slack, 6 * 28 * U));
	/* What subnormals lose shows if products are tiny. */
	s.products = 0x1p-140;
	s.subnormal = 0x1p-123;
	memset(s.digit, 0, sizeof(s.digit));
	e = nib_expect_gemm_dense(&s, 1, 32, cpu);
	assert_true(is_about(e.slack,
			     112 * 0x1p-126 + 0x1p-123 + 0x1p-150 + 40 * U * 0x1p-140));
	e = nib_expect_gemm_dense(&s, 0x1p30f, 32, bf16);
	assert_true(is_about(e.slack, 80 * 0x1p-122 + 128 * 0x1p-111 + 6 * 0x1p-112 +
					  0x1p-150 + 28 * U * 0x1p-110));
	/* Nothing is nothing. */
	s.products = 0;
	e = nib_expect_gemm_dense(&s, 1, 32, cpu);
	assert_true(e.want == 0 && e.slack == 0);
	e = nib_expect_gemm_dense(&s, 1, 32, fp16);
	assert_true(e.slack == 0);
	s.magnitude = 0;
	e = nib_expect_gemm_dense(&s, 1, 32, int8);
	assert_true(e.slack == 0);
	e = nib_expect_gemm_dense(&s, INFINITY, 32, cpu);
	assert_true(isnan(e.want) && e.slack == 0);
}

static void overflow_on_the_way_excuses_all(void **state)
{
	const struct nib_dense_rule cpu = {DENSE, NIB_DTYPE_FP32, BLOCKS};
	const struct nib_dense_rule int8 = {INT8, NIB_DTYPE_FP32, BLOCKS};
	const struct nib_dense_rule bf16 = {DENSE, NIB_DTYPE_BF16, TENSOR};
	struct nib_exact_wide s = one();

	s.products = 0x1.FFFFp127;
	assert_true(isfinite(nib_expect_gemm_dense(&s, 1, 16, cpu).slack));
	assert_true(isfinite(nib_expect_gemm_dense(&s, 1, 16, bf16).slack));
	s.products = 0x1.FFFFFEp127;
	assert_true(isinf(nib_expect_gemm_dense(&s, 0x1p-60f, 16, cpu).slack));
	assert_true(isinf(nib_expect_gemm_dense(&s, 1, 16, bf16).slack));
	assert_true(isfinite(nib_expect_gemm_dense(&s, 1, 16, int8).slack));
	s.magnitude = 0x1.FFFFFEp127;
	assert_true(isinf(nib_expect_gemm_dense(&s, 1, 16, int8).slack));
	s.is_nan = true;
	assert_true(nib_expect_gemm_dense(&s, 1, 16, cpu).slack == 0);
	s = one();
	s.largest_x = 0x1.FFFFFEp99;
	assert_true(isfinite(nib_expect_gemm_dense(&s, 1, 16, int8).slack));
	s.largest_x = 0x1p100;
	assert_true(isinf(nib_expect_gemm_dense(&s, 1, 16, int8).slack));
	assert_true(isfinite(nib_expect_gemm_dense(&s, 1, 16, cpu).slack));
	s.largest_x = 0x1p121;
	assert_true(isinf(nib_expect_gemm_dense(&s, 1, 16, cpu).slack));
	assert_true(isfinite(nib_expect_gemm_dense(&s, 1, 16, bf16).slack));
	s.largest_x = 0x1.FFFFFEp120;
	assert_true(isfinite(nib_expect_gemm_dense(&s, 1, 16, cpu).slack));
	/* An infinite x: sure, unless the finite ones overflow, too. */
	s.infinite = -1;
	assert_true(nib_expect_gemm_dense(&s, 1, 16, cpu).slack == 0);
	assert_true(nib_expect_gemm_dense(&s, 1, 16, cpu).want == -INFINITY);
	assert_true(isnan(nib_expect_gemm_dense(&s, 0, 16, cpu).want));
	assert_true(nib_expect_gemm_dense(&s, 0, 16, cpu).slack == 0);
	s.products = 0x1.FFFFFEp127;
	assert_true(isinf(nib_expect_gemm_dense(&s, 1, 16, cpu).slack));
	/* An infinite alpha shows the sign, if it is sure. */
	s = one();
	assert_true(nib_expect_gemm_dense(&s, INFINITY, 16, cpu).slack == 0);
	s.products = 0x1p20;
	assert_true(isinf(nib_expect_gemm_dense(&s, INFINITY, 16, cpu).slack));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_data_is_inside),
	    cmocka_unit_test(cpu_bound_is_close),
	    cmocka_unit_test(odd_bound_is_close),
	    cmocka_unit_test(int8_bound_is_close),
	    cmocka_unit_test(flushing_is_close),
	    cmocka_unit_test(tensor_bound_is_close),
	    cmocka_unit_test(zeros_cut_off_what_the_bound_allows),
	    cmocka_unit_test(slack_is_the_formula),
	    cmocka_unit_test(overflow_on_the_way_excuses_all),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
