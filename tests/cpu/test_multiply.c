/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_multiply.c - compares every element of every operation, on every instruction
 * set, with the exact oracle.  The cases cover each pair of sizes, layouts, types,
 * packings, kinds of data and so on (common/pairs.h).
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/pairs.h"
#include "common/problem.h"
#include "common/unit.h"
#include "format/half.h"
#include "format/view.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#define NAN_SCALE 0x7f

static struct rng rng;
static const int thread_counts[] = {1, 2, 3, 7};
/* Each instruction set of this machine with each number of threads. */
static struct nib_device *devices[TEST_ISAS][COUNT(thread_counts)];

static int open_devices(void **state)
{
	rng = rng_new(test_seed());
	for (int i = 0; i < TEST_ISAS; i++)
		for (int t = 0; t < COUNT(thread_counts); t++)
			devices[i][t] = test_device(test_isas[i], thread_counts[t]);
	return 0;
}

static int close_devices(void **state)
{
	for (int i = 0; i < TEST_ISAS; i++)
		for (int t = 0; t < COUNT(thread_counts); t++)
			nib_device_close(devices[i][t]);
	return 0;
}

/* ---- the settings of a case ---------------------------------------------- */

enum kind {
	GEMM,
	DUAL,
	GEMV,
	GROUP_GEMM,
	GROUP_DUAL,
	GROUP_GEMV,
	MOE,
	MOE_DUAL,
	KINDS,
};

static const char *const kind_names[KINDS] = {"gemm",	    "dual gemm",  "gemv",
					      "group gemm", "group dual", "group gemv",
					      "moe",	    "moe dual"};
static const enum nib_op kind_ops[KINDS] = {NIB_OP_GEMM, NIB_OP_DUAL_GEMM, NIB_OP_GEMV,
					    NIB_OP_GEMM, NIB_OP_DUAL_GEMM, NIB_OP_GEMV,
					    NIB_OP_GEMM, NIB_OP_DUAL_GEMM};

/* Around tiles of 4, 8 and 16 rows, the end of the direct pass (24), and units
 * of 128 and 512. */
static const int64_t ms[] = {0,	 1,  2,	 3,  4,	 5,  6,	 7,   8,   9,	12,  15,  16,
			     17, 23, 24, 25, 31, 33, 64, 101, 127, 129, 255, 511, 513};
/* Around panels of 16 columns and units of 32 and 64. */
static const int64_t ns[] = {0,	 1,  2,	 7,  15, 16,  17,  31,	32,  33,
			     47, 63, 64, 65, 79, 127, 128, 129, 193, 320};
/* Around groups of 4 blocks; the last is a real model's. */
static const int64_t ks[] = {0, 16, 32, 48, 64, 80, 240, 1040, 7168};
static const float alphas[] = {0 /* NULL */, 1.5f,	 -0.75f, 0.0f,	  -0.0f,
			       3e38f,	     -0x1p-140f, 1e-9f,	 0x1p-20f};

enum factor {
	F_KIND,
	F_M,
	F_N,
	F_K,
	F_A_LAYOUT,
	F_B_LAYOUT,
	F_DTYPE,
	F_BATCH,
	F_GAPS,
	F_BETWEEN,
	F_FRONT,
	F_VALUES,
	F_ALPHA,
	F_ALPHA2,
	F_PACKING,
	F_WORKSPACE,
	F_THREADS,
	F_SCALE_ROWS,
	FACTORS,
};

static const int levels[FACTORS] = {
    [F_KIND] = KINDS,
    [F_M] = COUNT(ms),
    [F_N] = COUNT(ns),
    [F_K] = COUNT(ks),
    [F_A_LAYOUT] = 2,
    [F_B_LAYOUT] = 2,
    [F_DTYPE] = 3,
    [F_BATCH] = 3, /* one; three; three that share b */
    [F_GAPS] = 2,
    [F_BETWEEN] = 2,
    [F_FRONT] = 2,
    [F_VALUES] = JOB_VALUES - 1, /* not the contest's */
    [F_ALPHA] = COUNT(alphas),
    [F_ALPHA2] = COUNT(alphas),
    [F_PACKING] = JOB_PACKINGS,
    [F_WORKSPACE] = 2,
    [F_THREADS] = COUNT(thread_counts),
    [F_SCALE_ROWS] = 2,
};

static bool is_group(int kind)
{
	return kind == GROUP_GEMM || kind == GROUP_DUAL || kind == GROUP_GEMV;
}

static bool is_moe(int kind)
{
	return kind == MOE || kind == MOE_DUAL;
}

/* What the oracle can do in a moment. */
static bool is_affordable(const int *c)
{
	const int64_t m = kind_ops[c[F_KIND]] == NIB_OP_GEMV ? 1 : ms[c[F_M]];
	const int64_t batch = c[F_BATCH] && !is_moe(c[F_KIND]) ? 3 : 1;

	return batch * m * ns[c[F_N]] * ks[c[F_K]] <=
	       (test_is_small() ? 1 << 19 : 1 << 23);
}

static struct job_spec spec_of(const int *c)
{
	const bool is_gemv = kind_ops[c[F_KIND]] == NIB_OP_GEMV;

	return (struct job_spec){
	    .op = kind_ops[c[F_KIND]],
	    .m = is_gemv ? 1 : ms[c[F_M]],
	    .n = ns[c[F_N]],
	    .k = ks[c[F_K]],
	    .batch = c[F_BATCH] ? 3 : 1,
	    .b_batch = c[F_BATCH] == 1 ? 3 : 1,
	    .a_layout = (enum nib_scale_layout)c[F_A_LAYOUT],
	    .b_layout = (enum nib_scale_layout)c[F_B_LAYOUT],
	    .dtype = (enum nib_dtype)c[F_DTYPE],
	    .values = (enum job_values)c[F_VALUES],
	    .has_gaps = c[F_GAPS],
	    .is_between = c[F_BETWEEN],
	    .is_front = c[F_FRONT],
	    .alpha = c[F_ALPHA] ? &alphas[c[F_ALPHA]] : NULL,
	    .alpha2 = c[F_ALPHA2] ? &alphas[c[F_ALPHA2]] : NULL,
	};
}

/* The case's problem, between smaller ones of other sizes and layouts. */
static struct job *group_of(const int *c)
{
	struct job *job = job_new(kind_ops[c[F_KIND]]);
	const int place = (int)rng_below(&rng, 5);

	for (int i = 0; i < 5; i++) {
		struct job_spec spec;
		int neighbour[FACTORS];

		memcpy(neighbour, c, sizeof(neighbour));
		if (i != place) {
			neighbour[F_M] = (int)rng_below(&rng, 10);
			neighbour[F_N] = (int)rng_below(&rng, 10);
			neighbour[F_K] = (int)rng_below(&rng, 7);
			neighbour[F_A_LAYOUT] ^= i & 1;
			neighbour[F_B_LAYOUT] ^= i >> 1 & 1;
			neighbour[F_DTYPE] = (c[F_DTYPE] + i) % 3;
			neighbour[F_BATCH] = (c[F_BATCH] + i) % 3;
		}
		spec = spec_of(neighbour);
		job_add(job, &rng, &spec);
	}
	return job;
}

static struct job *job_of_case(const int *c)
{
	const struct job_spec spec = spec_of(c);
	const int64_t rows[] = {0, 3, spec.m, 0, 1, 9, 0};

	if (is_moe(c[F_KIND]))
		return job_of_moe(&rng, &spec, rows, COUNT(rows), c[F_BATCH] ? 5 : 0,
				  c[F_SCALE_ROWS]);
	return is_group(c[F_KIND]) ? group_of(c) : job_of(&rng, &spec);
}

static void describe(const int *c, char *text, size_t bytes)
{
	const struct job_spec s = spec_of(c);

	snprintf(
	    text, bytes,
	    "%s m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " batch=%" PRId64 "/%" PRId64
	    " layouts=%d%d dtype=%d gaps=%d between=%d front=%d values=%d alpha=%a,%a "
	    "packing=%d workspace=%d threads=%d scale_rows=%d",
	    kind_names[c[F_KIND]], s.m, s.n, s.k, s.batch, s.b_batch, (int)s.a_layout,
	    (int)s.b_layout, (int)s.dtype, s.has_gaps, s.is_between, s.is_front,
	    (int)s.values, s.alpha ? (double)*s.alpha : 1.0,
	    s.alpha2 ? (double)*s.alpha2 : 1.0, c[F_PACKING], c[F_WORKSPACE],
	    thread_counts[c[F_THREADS]], c[F_SCALE_ROWS]);
}

/* ---- all pairs ----------------------------------------------------------- */

/*
 * The first instruction set runs as the case says and is checked; the others
 * must give its bits, each with other threads and another packing.  Those with an order
 * of sums of their own are checked, too.
 */
static void run_case(const int *c)
{
	struct job *job = job_of_case(c);
	struct bits bits = {0};
	char text[300], what[360];

	describe(c, text, sizeof(text));
	for (int i = 0; i < TEST_ISAS; i++) {
		const struct job_how how = {
		    .device = devices[i][(c[F_THREADS] + i) % COUNT(thread_counts)],
		    .packing = (enum job_packing)((c[F_PACKING] + i) % JOB_PACKINGS),
		    .brings_workspace = (c[F_WORKSPACE] + i) % 2,
		    .check_data = i % 2,
		};

		if (!how.device)
			continue;
		snprintf(what, sizeof(what), "%s: %s", test_isas[i], text);
		job_run(job, &how, what);
		if (bits.bytes && !test_has_own_order(test_isas[i])) {
			job_has_bits(job, &bits, what);
			continue;
		}
		job_check(job, what);
		if (!bits.bytes)
			bits = job_bits(job);
	}
	bits_free(&bits);
	job_free(job);
}

static void all_pairs_of_settings(void **state)
{
	static struct pairs pairs;
	const int most = test_is_small() ? 80 : 100000;
	int c[PAIRS_FACTORS], cases = 0;

	pairs =
	    (struct pairs){.rng = &rng, .factors = FACTORS, .is_legal = is_affordable};
	memcpy(pairs.levels, levels, sizeof(levels));
	for (; cases < most && pairs_next(&pairs, c); cases++)
		run_case(c);
	printf("%d cases\n", cases);
	assert_true(cases >= 80);
}

/* ---- each kind at each instruction set, by name -------------------------- */

/* Every level checked by the oracle itself, at sizes around all of its tiles.
 */
static void check_kind(int kind)
{
	int c[FACTORS] = {[F_KIND] = kind, [F_ALPHA] = 1, [F_ALPHA2] = 2};
	char text[300], what[360];

	for (int i = 0; i < 36; i++) {
		struct job *job;

		c[F_M] = (i * 5 + 1) % (COUNT(ms) - 6);
		c[F_N] = (i * 7 + 1) % COUNT(ns);
		c[F_K] = i % 7 + 1;
		c[F_A_LAYOUT] = i & 1;
		c[F_B_LAYOUT] = i >> 1 & 1;
		c[F_DTYPE] = i % 3;
		c[F_BATCH] = i / 3 % 3;
		c[F_PACKING] = i / 2 % JOB_PACKINGS;
		c[F_THREADS] = i % 4;
		if (!is_affordable(c))
			continue;
		job = job_of_case(c);
		describe(c, text, sizeof(text));
		for (int isa = 0; isa < TEST_ISAS; isa++) {
			const struct job_how how = {
			    .device = devices[isa][c[F_THREADS]],
			    .packing = (enum job_packing)c[F_PACKING],
			};

			if (!how.device)
				continue;
			snprintf(what, sizeof(what), "%s: %s", test_isas[isa], text);
			job_run(job, &how, what);
			job_check(job, what);
		}
		job_free(job);
	}
}

#define KIND_TEST(name, kind)                                                          \
	static void name(void **state)                                                 \
	{                                                                              \
		check_kind(kind);                                                      \
	}

KIND_TEST(gemm, GEMM)
KIND_TEST(dual_gemm, DUAL)
KIND_TEST(gemv, GEMV)
KIND_TEST(group_gemm, GROUP_GEMM)
KIND_TEST(group_dual_gemm, GROUP_DUAL)
KIND_TEST(group_gemv, GROUP_GEMV)
KIND_TEST(mixture_of_experts, MOE)
KIND_TEST(mixture_of_experts_dual, MOE_DUAL)

/* ---- single rules -------------------------------------------------------- */

/* Runs one problem on every instruction set; returns after the last. */
static void run_everywhere(struct job *job, bool has_check, const char *what)
{
	for (int isa = 0; isa < TEST_ISAS; isa++) {
		for (int packing = 0; packing < 2; packing++) {
			const struct job_how how = {
			    .device = devices[isa][1],
			    .packing = (enum job_packing)packing,
			};

			if (!how.device)
				continue;
			job_run(job, &how, what);
			if (has_check)
				job_check(job, what);
		}
	}
}

/* Every pair of codes and every pair of scales, one product an element. */
static void every_code_and_scale(void **state)
{
	const struct job_spec spec = {
	    .op = NIB_OP_GEMM, .m = 128, .n = 128, .k = 16, .dtype = NIB_DTYPE_FP32};
	struct job *job = job_of(&rng, &spec);
	uint8_t *a = job->a[0].view.codes, *b = job->b[0].view.codes;

	for (int at = 0; at < 16; at++) {
		memset(a, 0, job->a[0].codes_bytes);
		memset(b, 0, job->b[0].codes_bytes);
		for (int r = 0; r < 128; r++) {
			const int shift = at % 2 * 4;

			a[r * 8 + at / 2] = (uint8_t)(r % 16 << shift);
			b[r * 8 + at / 2] = (uint8_t)(r / 8 << shift);
			((uint8_t *)job->a[0].view.scales)[r] =
			    (uint8_t)((r + at) % 127);
			((uint8_t *)job->b[0].view.scales)[r] =
			    (uint8_t)((r * 5 + at) % 127);
		}
		run_everywhere(job, true, "one product");
	}
	job_free(job);
}

/*
 * More than 128 rows and enough columns for units of 128 where a set has them.  With
 * seven threads units have 64, and the bits are the same, in chunks of k too.
 */
static void wide_units(void **state)
{
	struct job_spec spec = {.op = NIB_OP_DUAL_GEMM,
				.m = 161,
				.n = 1050,
				.k = 48,
				.dtype = NIB_DTYPE_FP32};
	struct job *job = job_of(&rng, &spec);
	const struct nib_problem *p = &job->problems[0];

	*nib_fp4_scale(&p->b, 0, 70, 1) = NAN_SCALE;
	*nib_fp4_scale(&p->b2, 0, 200, 2) = NAN_SCALE;
	run_everywhere(job, true, "wide units");
	job_free(job);
	spec.k = 1040;
	job = job_of(&rng, &spec);
	for (int isa = 0; isa < TEST_ISAS; isa++) {
		struct job_how how = {.device = devices[isa][3]};
		struct bits bits;

		if (!how.device)
			continue;
		job_run(job, &how, "seven threads");
		bits = job_bits(job);
		how.device = devices[isa][0];
		job_run(job, &how, "one thread");
		job_has_bits(job, &bits, test_isas[isa]);
		bits_free(&bits);
	}
	job_free(job);
}

/* The largest sums and k that there are. */
static void longest_k(void **state)
{
	struct job_spec spec = {.op = NIB_OP_GEMM,
				.m = 3,
				.n = 2,
				.k = NIB_MAX_K,
				.dtype = NIB_DTYPE_FP32,
				.values = JOB_EXTREME};
	struct job *job;

	if (test_is_small())
		spec.k = 65536;
	job = job_of(&rng, &spec);
	run_everywhere(job, true, "longest k");
	memset(job->a[0].view.codes, 0x77, job->a[0].codes_bytes);
	memset(job->b[0].view.codes, 0xff, job->b[0].codes_bytes);
	memset(job->a[0].view.scales, 0x7e, job->a[0].scales_bytes);
	memset(job->b[0].view.scales, 0x7e, job->b[0].scales_bytes);
	run_everywhere(job, true, "largest sum");
	job_free(job);
}

/* No sum at all is zero; times an infinite alpha that is NaN. */
static void no_k(void **state)
{
	static const float infinity = INFINITY, three = 3;
	struct job_spec spec = {.op = NIB_OP_GEMM,
				.m = 9,
				.n = 17,
				.dtype = NIB_DTYPE_FP32,
				.alpha = &three};
	struct job *job = job_of(&rng, &spec);
	const float *c = job->c[0].view.data;

	run_everywhere(job, true, "k = 0");
	for (int i = 0; i < 9 * 17; i++)
		assert_true(c[i] == 0);
	job_free(job);
	spec.alpha = &infinity;
	job = job_of(&rng, &spec);
	c = job->c[0].view.data;
	run_everywhere(job, false, "k = 0, alpha = inf");
	for (int i = 0; i < 9 * 17; i++)
		assert_true(isnan(c[i]));
	job_free(job);
}

/* alpha beyond the finite: what IEEE says of the product. */
static void infinite_alpha(void **state)
{
	static const float bad[] = {INFINITY, -INFINITY, NAN};
	static const float one = 1;
	struct job_spec spec = {.op = NIB_OP_GEMM, .m = 5, .n = 33, .k = 64};

	for (int i = 0; i < 3 * 3; i++) {
		struct job *exact;

		spec.dtype = (enum nib_dtype)(i / 3);
		spec.alpha = &one;
		exact = job_of(&rng, &spec);
		assert_ok(nib_reference(NIB_OP_GEMM, exact->problems, 1, NULL));
		exact->problems[0].alpha = &bad[i % 3];
		run_everywhere(exact, true, "infinite alpha");
		job_free(exact);
	}
}

/* silu at its ends: no NaN at large sums, an exact zero at very negative. */
static void silu_at_its_ends(void **state)
{
	static const float scales[] = {0x1p-30f, 0x1p-10f, 1, 0x1p20f, 3e38f};
	struct job_spec spec = {.op = NIB_OP_DUAL_GEMM, .m = 17, .n = 65, .k = 64};

	for (int i = 0; i < 5 * 5 * 3; i++) {
		struct job *job;

		spec.dtype = (enum nib_dtype)(i % 3);
		spec.alpha = &scales[i / 3 % 5];
		spec.alpha2 = &scales[i / 15];
		job = job_of(&rng, &spec);
		run_everywhere(job, true, "silu");
		job_free(job);
	}
}

/* fp16 and bf16 are the fp32 result rounded once, to even at a tie. */
static void check_rounding(struct job *job, const struct job_how *how)
{
	const struct nib_dense wide = job->c[0].view;
	const struct stack_spec spec = {
	    .rows = wide.rows, .k = wide.cols, .batch = 1, .has_gaps = true};

	job_run(job, how, "fp32");
	for (int dtype = NIB_DTYPE_FP16; dtype <= NIB_DTYPE_BF16; dtype++) {
		struct output narrow = output_new((enum nib_dtype)dtype, &spec);
		struct nib_problem p = job->problems[0];

		p.c = narrow.view;
		assert_ok(nib_multiply(how->device, job->op, &p, 1, NULL));
		for (int64_t i = 0; i < wide.rows * wide.cols; i++) {
			const int64_t row = i / wide.cols, col = i % wide.cols;
			const float x = nib_dense_get(&wide, 0, row, col);

			assert_int_equal(nib_dense_get_bits(&narrow.view, 0, row, col),
					 nib_fp64_to_dtype((double)x, p.c.dtype));
		}
		output_free(&narrow);
	}
}

static void one_rounding(void **state)
{
	/* Ties, subnormals of fp16, its overflow, and of bf16. */
	static const float steps[] = {1,	 1.0f / 3, 0x1p-26f,
				      0x1p-140f, 0x1p7f,   0x1p119f};

	for (int i = 0; i < TEST_ISAS * 12; i++) {
		const struct job_how how = {.device = devices[i / 12][1]};
		const struct job_spec spec = {
		    .op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
		    .m = 9 + i % 3 * 12,
		    .n = 66,
		    .k = 4096,
		    .values = JOB_CONTEST,
		    .alpha = &steps[i / 2 % 6],
		};
		struct job *job;

		if (!how.device)
			continue;
		job = job_of(&rng, &spec);
		check_rounding(job, &how);
		job_free(job);
	}
}

/* ---- the last step ------------------------------------------------------- */

/* One product of 1 times alpha, so that every element is alpha rounded once. */
static void check_alpha(struct nib_device *device, enum nib_dtype dtype, float alpha)
{
	enum { N = 37 };
	static uint8_t a_codes[8] = {0x02}, b_codes[8 * N];
	static uint8_t a_scales[1] = {0x38}, b_scales[N];
	uint16_t c[N];
	const uint16_t want =
	    dtype == NIB_DTYPE_FP16 ? nib_fp32_to_fp16(alpha) : nib_fp32_to_bf16(alpha);
	const struct nib_problem p = {
	    .a = {.codes = a_codes, .scales = a_scales, .rows = 1, .k = 16},
	    .b = {.codes = b_codes, .scales = b_scales, .rows = N, .k = 16},
	    .c = {.data = c, .rows = 1, .cols = N, .dtype = dtype},
	    .alpha = &alpha};

	memset(b_codes, 0x22, sizeof(b_codes));
	memset(b_scales, 0x38, sizeof(b_scales));
	assert_ok(nib_multiply(device, NIB_OP_GEMM, &p, 1, NULL));
	for (int n = 0; n < N; n++)
		if (c[n] != want)
			fail_msg("alpha %a, column %d: 0x%04x, must be 0x%04x",
				 (double)alpha, n, c[n], want);
}

/* Each end of the 16-bit formats, and the floats on both sides of it. */
static void rounding_at_its_ends(void **state)
{
	static const float ends[] =
	    {65504,	   65519,      65520, /* fp16: halfway to infinity */
	     65536,	   0x1p-14f,   0x1.ffcp-15f,
	     0x1.ffep-15f, /* halfway from subnormal to normal */
	     0x1p-24f,	   0x1p-25f,   0x1.8p-24f,
	     0x1.4p-23f,   0x1.002p0f, 0x1.006p0f,
	     0x1.01p0f,	   0x1.03p0f,  0x1.fefffep127f,
	     0x1.ffp127f, /* bf16: halfway to infinity */
	     FLT_MAX,	   0x1p-133f,  0x1p-134f,
	     0x1.8p-133f,  FLT_MIN};

	for (int isa = 0; isa < TEST_ISAS; isa++)
		for (int i = 0; i < COUNT(ends) && devices[isa][0]; i++)
			for (int step = -1; step <= 1; step++) {
				const float x =
				    step == 0
					? ends[i]
					: nextafterf(ends[i], (float)step * INFINITY);

				for (int d = NIB_DTYPE_FP16; d <= NIB_DTYPE_BF16; d++) {
					check_alpha(devices[isa][0], (enum nib_dtype)d,
						    x);
					check_alpha(devices[isa][0], (enum nib_dtype)d,
						    -x);
				}
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gemm),
	    cmocka_unit_test(dual_gemm),
	    cmocka_unit_test(gemv),
	    cmocka_unit_test(group_gemm),
	    cmocka_unit_test(group_dual_gemm),
	    cmocka_unit_test(group_gemv),
	    cmocka_unit_test(mixture_of_experts),
	    cmocka_unit_test(mixture_of_experts_dual),
	    cmocka_unit_test(every_code_and_scale),
	    cmocka_unit_test(wide_units),
	    cmocka_unit_test(longest_k),
	    cmocka_unit_test(no_k),
	    cmocka_unit_test(infinite_alpha),
	    cmocka_unit_test(silu_at_its_ends),
	    cmocka_unit_test(one_rounding),
	    cmocka_unit_test(rounding_at_its_ends),
	    cmocka_unit_test(all_pairs_of_settings),
	};

	return cmocka_run_group_tests(tests, open_devices, close_devices);
}
