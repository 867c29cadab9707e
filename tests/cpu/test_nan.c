/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nan.c - the scale 0x7F makes its whole row or column NaN, and nothing else.  In
 * padding or between rows it has no effect.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/isas.h"
#include "common/problem.h"
#include "common/unit.h"
#include "format/view.h"

#define NAN_SCALE 0x7f

static struct rng rng;

/* ---- as data ------------------------------------------------------------- */

/* The rows and columns of a batch that must be NaN. */
struct cross {
	int64_t row, col, batch; /* -1: none; batch -1: all */
};

static void check_cross(const struct job *job, const struct bits *clean,
			const struct cross *x, const char *what)
{
	const struct nib_dense *c = &job->c[0].view;
	const size_t size = nib_dtype_bytes(c->dtype);
	size_t at = 0;

	for (int64_t b = 0; b < c->batch; b++)
		for (int64_t i = 0; i < c->rows * c->cols; i++, at += size) {
			const int64_t row = i / c->cols, col = i % c->cols;
			const bool is_in = (x->batch < 0 || x->batch == b) &&
					   (row == x->row || col == x->col);
			const bool is_nan = isnan(nib_dense_get(c, b, row, col));
			const void *element = nib_dense_at(c, b, row, col);

			if (is_in != is_nan ||
			    (!is_in && memcmp(element, clean->bytes + at, size) != 0))
				fail_msg("%s: batch %" PRId64 ", row %" PRId64
					 ", col %" PRId64 " is %a",
					 what, b, row, col,
					 (double)nib_dense_get(c, b, row, col));
		}
}

static void run_on(struct job *job, int device, const char *what)
{
	/* Devices 0, 1, ...: each as views, then packed. */
	const struct job_how how = {.device = devices[device / 2],
				    .packing = device % 2 ? JOB_PACKED : JOB_VIEWS};

	job_run(job, &how, what);
}

/* Puts a NaN at (batch, row, group) of v, runs on every device, and undoes it. */
static void place_nan(struct job *job, const struct bits *clean,
		      const struct nib_fp4 *v, int64_t batch, int64_t row,
		      int64_t group, const struct cross *x, const char *what)
{
	uint8_t *scale = nib_fp4_scale(v, batch, row, group);
	uint8_t *codes = nib_fp4_row(v, batch, row) + group * 8;
	uint8_t old_codes[8], old = *scale;
	char text[200];

	memcpy(old_codes, codes, sizeof(old_codes));
	*scale = NAN_SCALE;
	for (int zero = 0; zero < 2; zero++) {
		if (zero)
			memset(codes, 0, sizeof(old_codes));
		/* Views and packed weights by turns. */
		for (int isa = 0; isa < TEST_ISAS; isa++) {
			const int d = 2 * isa + (isa + zero) % 2;

			if (!devices[isa])
				continue;
			snprintf(text, sizeof(text),
				 "%s, %s%s, NaN at batch %" PRId64 ", row %" PRId64
				 ", group %" PRId64 "%s",
				 what, test_isas[isa], d % 2 ? " packed" : "", batch,
				 row, group, zero ? " over zeros" : "");
			run_on(job, d, text);
			check_cross(job, clean, x, text);
		}
	}
	memcpy(codes, old_codes, sizeof(old_codes));
	*scale = old;
}

static void check_job(struct job *job)
{
	const struct nib_problem *p = &job->problems[0];
	const struct nib_fp4 *weights[] = {&p->b, &p->b2};
	const int64_t groups = p->a.k / NIB_NVFP4_BLOCK;
	struct bits clean;

	run_on(job, 0, "clean");
	job_check(job, "clean");
	clean = job_bits(job);
	for (int i = 0; i < 4; i++) {
		const int64_t g = i * (groups - 1) / 3, l = i % p->a.batch;
		const int64_t m = i * (p->a.rows - 1) / 3;
		const int64_t n = i * (p->b.rows - 1) / 3;
		const int64_t bl = p->b.batch > 1 ? l : 0;
		const struct cross row = {m, -1, l};
		const struct cross col = {-1, n, p->b.batch > 1 ? l : -1};

		place_nan(job, &clean, &p->a, l, m, g, &row, "a");
		for (int w = 0; w <= (job->op == NIB_OP_DUAL_GEMM); w++)
			place_nan(job, &clean, weights[w], bl, n, g, &col,
				  w ? "b2" : "b");
	}
	bits_free(&clean);
	job_free(job);
}

static void check_op(enum nib_op op)
{
	static const int64_t ms[] = {1, 3, 9, 37};
	const int cases = test_is_small() ? 4 : 12;

	for (int i = 0; i < cases; i++) {
		const struct job_spec spec = {
		    .op = op,
		    .m = op == NIB_OP_GEMV ? 1 : ms[i % 4],
		    .n = 5 + 31 * (i % 5),
		    .k = 16 * (1 + i % 7),
		    .batch = 1 + i % 2,
		    .b_batch = i % 4 == 1 ? 2 : 1,
		    .a_layout = (enum nib_scale_layout)(i & 1),
		    .b_layout = (enum nib_scale_layout)(i >> 1 & 1),
		    .dtype = (enum nib_dtype)(i % 3),
		    .has_gaps = i >> 2 & 1,
		    /* No infinities that would hide one. */
		    .values = JOB_CONTEST,
		};

		check_job(job_of(&rng, &spec));
	}
}

static void gemm(void **state)
{
	check_op(NIB_OP_GEMM);
}

static void dual_gemm(void **state)
{
	check_op(NIB_OP_DUAL_GEMM);
}

static void gemv(void **state)
{
	check_op(NIB_OP_GEMV);
}

/* A zero on the other side, scale or codes, does not save a row. */
static void times_zero(void **state)
{
	const struct job_spec spec = {
	    .op = NIB_OP_GEMM, .m = 10, .n = 20, .k = 64, .values = JOB_CONTEST};
	struct job *job = job_of(&rng, &spec);

	memset(job->b[0].view.scales, 0, job->b[0].scales_bytes);
	check_job(job);
	job = job_of(&rng, &spec);
	memset(job->a[0].view.scales, 0, job->a[0].scales_bytes);
	memset(job->a[0].view.codes, 0, job->a[0].codes_bytes);
	check_job(job);
}

/* The NaN of one expert or problem appears in no other's output. */
static void neighbours(void **state)
{
	static const int64_t rows[] = {3, 9, 2};
	const struct job_spec spec = {.op = NIB_OP_GEMM,
				      .n = 33,
				      .k = 80,
				      .dtype = NIB_DTYPE_BF16,
				      .values = JOB_CONTEST};

	for (int d = 0; d < 2 * TEST_ISAS; d++) {
		struct job *job;
		struct bits clean;
		const struct nib_dense *c;

		if (!devices[d / 2])
			continue;
		job = job_of_moe(&rng, &spec, rows, 3, 0, false);
		c = &job->c[0].view;
		run_on(job, d, "experts");
		clean = job_bits(job);
		*nib_fp4_scale(&job->moe.problem.b, 1, 32, 4) = NAN_SCALE;
		*nib_fp4_scale(&job->moe.problem.a, 0, 13, 0) = NAN_SCALE;
		run_on(job, d, "NaN in expert 1 and in the last row");
		job_check(job, "experts");
		for (int64_t r = 0; r < 14; r++)
			for (int64_t n = 0; n < 33; n++) {
				const bool is_in =
				    r == 13 || (n == 32 && r >= 3 && r < 12);

				assert_int_equal(isnan(nib_dense_get(c, 0, r, n)) != 0,
						 is_in);
				if (!is_in)
					assert_memory_equal(
					    nib_dense_at(c, 0, r, n),
					    clean.bytes + (r * 33 + n) * 2, 2);
			}
		bits_free(&clean);
		job_free(job);
	}
}

/* ---- as padding ---------------------------------------------------------- */

/*
 * A NaN that comes in as alpha leaves with the leading bits of its payload, the
 * same in every set.
 */
static void payload(void **state)
{
	static const uint32_t bits = 0x7fc12345;
	uint8_t codes[17 * 8], scales[17], b_codes[8 * 8], b_scales[8];
	uint16_t c[17 * 8], first[17 * 8];
	struct nib_problem p = {
	    .a = {.codes = codes, .scales = scales, .rows = 17, .k = 16},
	    .b = {.codes = b_codes, .scales = b_scales, .rows = 8, .k = 16},
	    .c = {.data = c, .dtype = NIB_DTYPE_FP16, .rows = 17, .cols = 8}};
	float alpha;

	memcpy(&alpha, &bits, sizeof(alpha));
	p.alpha = &alpha;
	memset(codes, 0x22, sizeof(codes));
	memset(b_codes, 0x22, sizeof(b_codes));
	memset(scales, 0x38, sizeof(scales));
	memset(b_scales, 0x38, sizeof(b_scales));
	for (int isa = 0; isa < TEST_ISAS; isa++) {
		struct nib_device *device = test_device(test_isas[isa], 1);

		if (!device)
			continue;
		assert_ok(nib_multiply(device, NIB_OP_GEMM, &p, 1, NULL));
		if (isa == 0)
			memcpy(first, c, sizeof(c));
		assert_int_equal(c[0], 0x7e09);
		assert_memory_equal(c, first, sizeof(c));
		nib_device_close(device);
	}
}

static void set_padding(const struct stack *s, uint8_t byte)
{
	const struct nib_fp4 *v = &s->view;
	uint8_t *scales = v->scales;
	uint8_t used[4096] = {0};

	assert_true(s->scales_bytes <= sizeof(used));
	for (int64_t r = 0; r < v->rows; r++)
		for (int64_t g = 0; g < v->k / NIB_NVFP4_BLOCK; g++)
			used[nib_fp4_scale(v, 0, r, g) - scales] = 1;
	for (size_t i = 0; i < s->scales_bytes; i++)
		if (!used[i])
			scales[i] = byte;
}

/* Any byte in padding and in gaps gives the bits that zeros give. */
static void padding(void **state)
{
	static const uint8_t bytes[] = {0x7f, 0xff, 0x7e, 0x80, 0x38};

	for (int i = 0; i < 4 * 2 * TEST_ISAS; i++) {
		const struct job_spec spec = {
		    .op = NIB_OP_DUAL_GEMM,
		    .m = 1 + i % 4 * 11,
		    .n = 129,
		    .k = 16 * (1 + i % 4),
		    .a_layout = (enum nib_scale_layout)(i & 1),
		    .b_layout = (enum nib_scale_layout)(i >> 1 & 1),
		    .has_gaps = true,
		};
		struct job *job;
		struct bits clean;

		if (!devices[i / 8])
			continue;
		job = job_of(&rng, &spec);
		set_padding(&job->a[0], 0);
		set_padding(&job->b[0], 0);
		set_padding(&job->b2[0], 0);
		run_on(job, i / 4, "zeros");
		clean = job_bits(job);
		for (size_t j = 0; j < sizeof(bytes); j++) {
			set_padding(&job->a[0], bytes[j]);
			set_padding(&job->b[0], bytes[j]);
			set_padding(&job->b2[0], bytes[j]);
			run_on(job, i / 4, "padding");
			job_has_bits(job, &clean, "padding");
		}
		bits_free(&clean);
		job_free(job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gemm),	  cmocka_unit_test(dual_gemm),
	    cmocka_unit_test(gemv),	  cmocka_unit_test(times_zero),
	    cmocka_unit_test(neighbours), cmocka_unit_test(payload),
	    cmocka_unit_test(padding),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, open_devices, close_devices);
}
