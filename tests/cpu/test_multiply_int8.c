/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_multiply_int8.c - products whose A is rounded to 8 bits.  The rounding is tested
 * with an identity matrix B, sums are compared bit for bit with a second
 * implementation, and all operations with the oracle.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/float_mode.h"
#include "common/isas.h"
#include "common/problem.h"
#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/int8.h"
#include "format/view.h"

static struct rng rng;

static struct job_spec spec_of(enum nib_op op, enum nib_dtype x_dtype, int64_t m,
			       int64_t n, int64_t k)
{
	return (struct job_spec){.op = op,
				 .m = m,
				 .n = n,
				 .k = k,
				 .activations = NIB_ACTIVATIONS_INT8,
				 .x_dtype = x_dtype};
}

/* ---- the rounding of A --------------------------------------------------- */

/* k columns of B: the identity, so that C is A as it was rounded. */
static void set_identity(const struct nib_fp4 *b)
{
	for (int64_t n = 0; n < b->rows; n++) {
		memset(nib_fp4_row(b, 0, n), 0, (size_t)b->k / 2);
		nib_fp4_row(b, 0, n)[n / 2] = n % 2 ? 0x20 : 0x02;
		for (int64_t g = 0; g < b->k / NIB_NVFP4_BLOCK; g++)
			*nib_fp4_scale(b, 0, n, g) = 0x38;
	}
}

/* Row `row` of x as the definition rounds it. */
static void round_row(const struct nib_dense *x, int64_t row, float *out)
{
	for (int64_t k = 0; k < x->cols; k += NIB_NVFP4_BLOCK) {
		float values[NIB_NVFP4_BLOCK], scale;
		int8_t codes[NIB_NVFP4_BLOCK];

		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			values[j] = nib_dense_get(x, 0, row, k + j);
		scale = nib_int8_block(codes, values);
		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			out[k + j] = (float)codes[j] * scale;
	}
}

/* Rounds x on every device; C must be what the definition says. */
static void check_rounding(struct job *job, const char *what)
{
	const struct nib_dense *x = &job->x[0].view, *c = &job->c[0].view;
	float *want = malloc((size_t)x->cols * sizeof(*want));
	char text[100];

	set_identity(&job->b[0].view);
	for (int d = 0; d < 2 * TEST_ISAS; d++) {
		const struct job_how how = {.device = devices[d / 2],
					    .packing = d % 2 ? JOB_PACKED : JOB_VIEWS};

		if (!how.device)
			continue;
		snprintf(text, sizeof(text), "%s on %s", what, test_isas[d / 2]);
		job_run(job, &how, text);
		for (int64_t i = 0; i < x->rows; i++) {
			round_row(x, i, want);
			for (int64_t j = 0; j < x->cols; j++)
				if (nib_dense_get(c, 0, i, j) != want[j])
					fail_msg("%s: x[%" PRId64 ", %" PRId64
						 "] = %a is %a, not %a",
						 text, i, j,
						 (double)nib_dense_get(x, 0, i, j),
						 (double)nib_dense_get(c, 0, i, j),
						 (double)want[j]);
		}
	}
	free(want);
}

static struct job *rounding_job(enum nib_dtype dtype, int64_t m, int64_t k)
{
	const struct job_spec spec = spec_of(NIB_OP_GEMM, dtype, m, k, k);

	return job_of(&rng, &spec);
}

static void set_x(const struct job *job, int64_t row, int64_t col, float x)
{
	const struct nib_dense *v = &job->x[0].view;

	nib_dense_set_bits(v, 0, row, col, nib_fp64_to_dtype((double)x, v->dtype));
}

/* Finite bits of any kind. */
static float any_float(int least, int most)
{
	const int e = least + (int)rng_below(&rng, most - least + 1);
	const uint32_t bits = (uint32_t)rng_next(&rng) & 0x807fffff;

	return nib_fp32_from_bits(bits | (uint32_t)e << 23);
}

/* Exponent fields from 0, subnormals, to 254, the largest numbers. */
static void rounding_of_fp32(void **state)
{
	const int64_t rows = test_is_small() ? 40 : 1000;
	struct job *job = rounding_job(NIB_DTYPE_FP32, rows, 64);

	for (int64_t i = 0; i < rows * 64; i++) {
		const int64_t block = i / NIB_NVFP4_BLOCK;
		const int top = (int)(block % 255);
		const int low = block % 3 ? (top > 9 ? top - 9 : 0) : 0;

		set_x(job, i / 64, i % 64, any_float(low, top));
	}
	for (int64_t j = 0; j < 64; j++) {
		set_x(job, 0, j, j % 2 ? FLT_MAX : -FLT_MAX);
		set_x(job, 1, j, j % 2 ? 0.0f : -0.0f);
		set_x(job, 2, j, j % NIB_NVFP4_BLOCK ? FLT_MAX : FLT_TRUE_MIN);
		set_x(job, 3, j, FLT_TRUE_MIN);
		/* 127 times the least scale, and the next number. */
		set_x(job, 4, j, 127 * 0x1p-100f);
		set_x(job, 5, j, nextafterf(127 * 0x1p-100f, 1));
	}
	check_rounding(job, "fp32");
	job_free(job);
	job = rounding_job(NIB_DTYPE_FP32, 3, 1024);
	for (int64_t i = 0; i < 3 * 1024; i++)
		set_x(job, i / 1024, i % 1024, any_float(0, 254));
	check_rounding(job, "few rows of fp32");
	job_free(job);
}

/*
 * All finite values of 16 bits that are negative, a block of neighbours each,
 * and positive ones in any company.
 */
static void rounding_of_16_bits(void **state)
{
	for (int dtype = NIB_DTYPE_FP16; dtype <= NIB_DTYPE_BF16; dtype++) {
		struct job *job = rounding_job((enum nib_dtype)dtype, 1024, 64);
		const uint32_t inf = dtype == NIB_DTYPE_FP16 ? 0x7c00 : 0x7f80;

		for (uint32_t i = 0; i < 65536; i++) {
			const uint32_t bits = i / 32768 ? i : (i * 2521) & 0x7fff;
			const bool is_finite = (bits & 0x7fff) < inf;

			nib_dense_set_bits(&job->x[0].view, 0, i / 64, i % 64,
					   is_finite ? bits : 0x3c00);
		}
		check_rounding(job, dtype == NIB_DTYPE_FP16 ? "fp16" : "bf16");
		job_free(job);
	}
}

/*
 * Ties between two codes of each scale, and the numbers next to them: with a
 * scale of 3 fraction bits all that division could round to the wrong side.
 */
static void ties(void **state)
{
	static const int exponents[] = {-100, -99, -20, 0, 7, 100, 121};
	const int64_t k = 32 * NIB_NVFP4_BLOCK;

	for (int e = 0; e < 7; e++) {
		struct job *job = rounding_job(NIB_DTYPE_FP32, 8 * 3 * 2, k);

		for (int64_t i = 0; i < 8 * 3 * 2; i++) {
			const float scale =
			    ldexpf(8 + (float)(i / 6), exponents[e] - 3);
			const float to = i % 3 == 0 ? 0 : i % 3 == 1 ? 1e38f : 0;

			for (int64_t j = 0; j < k; j++) {
				const float tie = ((float)(j % 127) + 0.5f) *
						  (i / 3 % 2 ? -scale : scale);
				float x = i % 3 == 2 ? tie : nextafterf(tie, to);

				/* Each block's largest gives it this scale. */
				if (j % NIB_NVFP4_BLOCK == 0)
					x = 127 * scale;
				set_x(job, i, j, fmaxf(fminf(x, FLT_MAX), -FLT_MAX));
			}
		}
		check_rounding(job, "ties");
		job_free(job);
	}
}

/* The scale steps at 127 times each scale: these numbers and their neighbours. */
static void steps_of_the_scale(void **state)
{
	struct job *job = rounding_job(NIB_DTYPE_FP32, 222 * 8 * 3 / 12, 192);
	int64_t block = 0;

	for (int e = -100; e < 122; e++)
		for (int t = 0; t < 8; t++)
			for (int side = -1; side <= 1; side++, block++) {
				const int64_t row = block / 12,
					      col = block % 12 * NIB_NVFP4_BLOCK;
				float x = 127 * ldexpf(8 + (float)t, e - 3);

				x = x > FLT_MAX ? FLT_MAX : x;
				x = side < 0   ? nextafterf(x, 0)
				    : side > 0 ? nextafterf(x, FLT_MAX)
					       : x;
				for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
					set_x(job, row, col + j,
					      x * (float)rng_uniform(&rng));
				set_x(job, row, col + block % NIB_NVFP4_BLOCK, -x);
			}
	check_rounding(job, "steps");
	job_free(job);
}

/* ---- inf and NaN --------------------------------------------------------- */

static void bad_rows(void **state)
{
	static const uint32_t bad[3][4] = {
	    {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001},
	    {0x7c00, 0xfc00, 0x7e00, 0xfc01},
	    {0x7f80, 0xff80, 0x7fff, 0xff81}};

	for (int i = 0; i < TEST_ISAS * 3 * 2; i++) {
		const int dtype = i / 2 % 3;
		const struct job_how how = {.device = devices[i / 6]};
		const struct job_spec spec =
		    spec_of(i % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
			    (enum nib_dtype)dtype, 39, 35, 16 * 70);
		struct job *job = job_of(&rng, &spec);
		const struct nib_dense *c = &job->c[0].view;
		struct bits clean;

		if (!how.device) {
			job_free(job);
			continue;
		}
		job_run(job, &how, "finite");
		clean = job_bits(job);
		/* Rows 3, 12, 21, 30: at the ends and within. */
		for (int64_t b = 0; b < 4; b++)
			nib_dense_set_bits(&job->x[0].view, 0, 3 + 9 * b,
					   b * (16 * 70 - 1) / 3, bad[dtype][b]);
		job_run(job, &how, "inf and NaN");
		for (int64_t e = 0; e < 39 * 35; e++) {
			const float got = nib_dense_get(c, 0, e / 35, e % 35);
			const bool is_bad = e / 35 % 9 == 3 && e / 35 < 31;

			if (is_bad ? !isnan(got)
				   : memcmp(&got, clean.bytes + 4 * e, 4) != 0)
				fail_msg("%s, type %d: row %" PRId64 " is %a",
					 test_isas[i / 6], dtype, e / 35, (double)got);
		}
		bits_free(&clean);
		job_free(job);
	}
}

/* ---- sums ---------------------------------------------------------------- */

/* Element (i, n) of a GEMM, summed in fp32 in the order of blocks. */
static float sum_of(const struct nib_problem *p, int64_t i, int64_t n)
{
	float sum = 0;

	for (int64_t g = 0; g < p->x.cols / NIB_NVFP4_BLOCK; g++) {
		const uint8_t *b = nib_fp4_row(&p->b, 0, n) + g * 8;
		float values[NIB_NVFP4_BLOCK], scale;
		int8_t codes[NIB_NVFP4_BLOCK];
		int dot = 0;

		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			values[j] = nib_dense_get(&p->x, 0, i, g * 16 + j);
		scale = nib_int8_block(codes, values) * 0x1p-17f;
		for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
			dot += codes[j] * nib_e2m1_twice[b[j / 2] >> 4 * (j % 2) & 15];
		sum = fmaf((float)dot,
			   scale * nib_e4m3_to_float(*nib_fp4_scale(&p->b, 0, n, g)),
			   sum);
	}
	return sum * 0x1p16f * (p->alpha ? *p->alpha : 1);
}

static void same_sums(struct job *job, int64_t step)
{
	const struct nib_problem *p = &job->problems[0];
	char what[80];

	for (int i = 0; i < TEST_ISAS * JOB_PACKINGS; i++) {
		const struct job_how how = {.device = devices[i / JOB_PACKINGS],
					    .packing =
						(enum job_packing)(i % JOB_PACKINGS),
					    .brings_workspace = i % 2};

		if (!how.device)
			continue;
		snprintf(what, sizeof(what), "%s, packing %d",
			 test_isas[i / JOB_PACKINGS], i % JOB_PACKINGS);
		job_run(job, &how, what);
		for (int64_t e = 0; e < p->c.rows * p->c.cols; e += step) {
			const int64_t m = e / p->c.cols, n = e % p->c.cols;
			const float want = sum_of(p, m, n);
			const float got = nib_dense_get(&p->c, 0, m, n);

			if (memcmp(&got, &want, 4) != 0)
				fail_msg("%s: (%" PRId64 ", %" PRId64 ") is %a, not %a",
					 what, m, n, (double)got, (double)want);
		}
	}
}

/* Sums that go through several chunks and passes, at each kind of edge. */
static void sums(void **state)
{
	static const int64_t sizes[][3] = {
	    {1, 64, 16 * 600}, {1, 17, 16},	 {4, 33, 16 * 65},
	    {5, 48, 16 * 129}, {8, 130, 16 * 3}, {24, 66, 16 * 70},
	    {25, 20, 16 * 64}, {67, 75, 16 * 9}, {530, 40, 16 * 130}};
	static const float alpha = -0.37f;

	for (int i = 0; i < 9 * 3; i++) {
		struct job_spec spec =
		    spec_of(sizes[i / 3][0] == 1 ? NIB_OP_GEMV : NIB_OP_GEMM,
			    (enum nib_dtype)(i % 3), sizes[i / 3][0], sizes[i / 3][1],
			    sizes[i / 3][2]);
		struct job *job;

		if (test_is_small() && spec.m > 100)
			continue;
		spec.alpha = i % 2 ? &alpha : NULL;
		spec.has_gaps = i % 4 < 2;
		spec.is_front = i % 4 % 2;
		spec.values = i % 5 == 4 ? JOB_SPARSE : JOB_ANY;
		job = job_of(&rng, &spec);
		same_sums(job, 1 + spec.m * spec.k / 4000);
		job_free(job);
	}
}

/*
 * The largest and the smallest values side by side.  Codes of B that cancel
 * make the product 0 and not inf * 0; sums beyond fp32 are inf.
 */
static void extremes(void **state)
{
	const struct job_spec spec = spec_of(NIB_OP_GEMM, NIB_DTYPE_FP32, 30, 40, 64);
	struct job *job = job_of(&rng, &spec);
	const struct nib_fp4 *b = &job->b[0].view;

	for (int64_t i = 0; i < 30 * 64; i++)
		set_x(job, i / 64, i % 64,
		      i / 64 < 10   ? (float)(i % 2 ? 1 : -1) * 0x1.fp127f
		      : i / 64 < 20 ? FLT_MAX
		      : i % 64 < 32 ? any_float(0, 30)
				    : FLT_MAX);
	for (int64_t n = 0; n < 40; n++)
		for (int64_t g = 0; g < 4; g++) {
			uint8_t *codes = nib_fp4_row(b, 0, n) + 8 * g;

			/* Pairs of blocks cancel.  From column 20 on only those
			 * of the second half of k do, which is zero from column
			 * 30 on.  In column 0 the largest possible blocks cancel. */
			for (int j = 0; j < 8 && n == 0; j++)
				codes[j] = g % 2 ? 0xff : 0x77;
			for (int j = 0; j < 8 && n > 0; j++)
				if (n < 20 || (g > 1 && n < 30))
					codes[j] = (uint8_t)(0x11 * (j % 7 + 1) ^ 0x80);
				else if (g > 1)
					codes[j] = 0;
			*nib_fp4_scale(b, 0, n, g) =
			    (uint8_t)(n % 3 ? n % 5 + 1 : 0x7e);
		}
	same_sums(job, 1);
	for (int64_t i = 10; i < 20; i++)
		for (int64_t n = 0; n < 20; n++)
			assert_true(nib_dense_get(&job->c[0].view, 0, i, n) == 0);
	job_free(job);
}

/* ---- all operations ------------------------------------------------------ */

/* Instruction sets x threads x packing, against the first of all. */
static void devices_agree(struct job *job)
{
	static const int threads[] = {1, 2, 5};
	struct bits bits = {0};
	char what[80];

	for (int i = 0; i < TEST_ISAS * 3; i++) {
		struct job_how how = {
		    .device = test_device(test_isas[i / 3], threads[i % 3])};

		for (int packing = 0; packing < JOB_PACKINGS && how.device; packing++) {
			how.packing = (enum job_packing)packing;
			how.brings_workspace = packing == JOB_MIXED;
			snprintf(what, sizeof(what), "%s, %d threads, packing %d",
				 test_isas[i / 3], threads[i % 3], packing);
			job_run(job, &how, what);
			if (bits.bytes) {
				job_has_bits(job, &bits, what);
			} else {
				bits = job_bits(job);
				job_check(job, what);
			}
		}
		nib_device_close(how.device);
	}
	bits_free(&bits);
	job_free(job);
}

static void operations(void **state)
{
	static const int64_t ms[] = {3, 0, 140, 33, 8};
	static const float alpha = 0x1p-9f, alpha2 = 0x1p-4f;

	for (int i = 0; i < 2 * 3 * JOB_VALUES; i++) {
		struct job_spec spec = spec_of(i % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
					       (enum nib_dtype)(i / 2 % 3), 0, 0, 0);
		struct job *job = job_new(spec.op);

		spec.values = (enum job_values)(i / 6);
		spec.dtype = (enum nib_dtype)((i + i / 6) % 3);
		spec.alpha = &alpha;
		spec.alpha2 = &alpha2;
		for (int p = 0; p < (test_is_small() ? 2 : 5); p++) {
			spec.m = ms[p];
			spec.n = 17 + 24 * p;
			spec.k = 16 * (1 + 7 * p);
			spec.batch = p % 3 == 0 ? 2 : 1;
			spec.b_batch = p == 3 ? 2 : 1;
			spec.has_gaps = (i + p) % 2;
			spec.is_between = p == 3;
			spec.b_layout = (enum nib_scale_layout)(i / 2 % 2);
			job_add(job, &rng, &spec);
		}
		devices_agree(job);
	}
}

static void experts(void **state)
{
	static const int64_t rows[] = {1, 0, 130, 7, 2, 64};
	static const float alpha = 0x1p-9f;

	for (int i = 0; i < 6; i++) {
		struct job_spec spec = spec_of(i % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
					       (enum nib_dtype)(i / 2), 0, 97, 16 * 13);

		spec.alpha = spec.alpha2 = &alpha;
		spec.has_gaps = i % 2;
		devices_agree(job_of_moe(&rng, &spec, rows, 6, i, false));
	}
}

/* ---- the caller's floating-point mode ------------------------------------ */

static void callers_modes(void **state)
{
	static const int modes[] = {MODE_DOWN, MODE_UP, MODE_ZERO, MODE_FLUSH,
				    MODE_TRAPS | MODE_UP};

	for (int i = 0; i < TEST_ISAS * 2; i++) {
		struct job_how how = {.device = devices[i / 2]};
		struct job_spec spec =
		    spec_of(NIB_OP_GEMM, NIB_DTYPE_FP32, 13, 40, 16 * 9);
		struct job *job;
		struct bits bits;

		if (!how.device)
			continue;
		spec.values = i % 2 ? JOB_SUBNORMAL : JOB_ANY;
		job = job_of(&rng, &spec);
		job_run(job, &how, "default mode");
		bits = job_bits(job);
		for (size_t j = 0; j < sizeof(modes) / sizeof(*modes); j++) {
			job_poison(job);
			test_mode_set(modes[j]);
			job_run(job, &how, "odd mode");
			test_mode_set(0);
			job_has_bits(job, &bits, "odd mode");
		}
		bits_free(&bits);
		job_free(job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rounding_of_fp32),
	    cmocka_unit_test(rounding_of_16_bits),
	    cmocka_unit_test(ties),
	    cmocka_unit_test(steps_of_the_scale),
	    cmocka_unit_test(bad_rows),
	    cmocka_unit_test(sums),
	    cmocka_unit_test(extremes),
	    cmocka_unit_test(operations),
	    cmocka_unit_test(experts),
	    cmocka_unit_test(callers_modes),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, open_devices, close_devices);
}
