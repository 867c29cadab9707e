/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_arguments_moe.c - what a run of a mixture of experts refuses, what opening a
 * device refuses, and sizes whose products overflow.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arguments.h"
#include "common/unit.h"
#include "format/view.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- runs ---------------------------------------------------------------- */

/* Rows 1..6 of 8: experts with 2, 0 and 3 tokens. */
static struct job *good_job(enum nib_op op, enum nib_scale_layout layout,
			    bool own_scale_rows)
{
	static const int64_t rows[] = {2, 0, 3};
	const struct job_spec spec = {.op = op, .n = 7, .k = 64, .a_layout = layout};

	return job_of_moe(&rng, &spec, rows, 3, 1, own_scale_rows);
}

static void refuse_run(const struct job *job, struct nib_plan *plan,
		       const struct nib_moe_problem *moe, int check_data,
		       enum nib_status want, const char *argument, const char *rule)
{
	const struct nib_run_options options = {.struct_bytes = sizeof(options),
						.check_data = check_data};
	struct nib_error err = {.message = "no message"};
	const enum nib_status status = nib_moe_run(plan, moe, &options, &err);

	refused(status, want, &err, argument, "", rule);
	output_untouched(&job->c[0], 0, 0, "refused");
}

static void offsets(void **state)
{
	static const struct {
		int32_t offsets[4];
		const char *name;
	} cases[] = {
	    {{-1, 3, 3, 6}, "moe.row_offsets[0..] = -1, 3"},
	    {{4, 3, 3, 6}, "moe.row_offsets[0..] = 4, 3"},
	    {{1, 3, 2, 6}, "moe.row_offsets[1..] = 3, 2"},
	    {{1, 3, 3, 9}, "moe.row_offsets[2..] = 3, 9"},
	    {{1, 9, 9, 9}, "moe.row_offsets[0..] = 1, 9"},
	    {{INT32_MIN, 3, 3, 6}, "moe.row_offsets[0..] = -2147483648, 3"},
	    {{1, 3, 3, INT32_MAX}, "moe.row_offsets[2..] = 3, 2147483647"},
	};
	struct job *job = good_job(NIB_OP_GEMM, NIB_SCALE_LAYOUT_LINEAR, false);
	struct nib_plan *plan = job_plan(job, device, false);
	struct nib_moe_problem moe = job->moe;

	for (size_t i = 0; i < COUNT(cases); i++) {
		moe.row_offsets = cases[i].offsets;
		refuse_run(job, plan, &moe, 0, NIB_STATUS_BAD_ARGUMENT, cases[i].name,
			   "must ascend within 0 to a.rows = 8");
	}
	moe.row_offsets = NULL;
	refuse_run(job, plan, &moe, 0, NIB_STATUS_BAD_ARGUMENT,
		   "moe.row_offsets = NULL", "must");
	refuse_run(job, plan, NULL, 0, NIB_STATUS_BAD_ARGUMENT, "moe = NULL", "must");
	nib_plan_free(plan);
	job_free(job);
}

static void scale_rows(void **state)
{
	static const struct {
		int32_t rows[3];
		const char *name, *rule;
	} cases[] = {
	    {{-128, 0, 0}, "moe.scale_rows[0] = -128", "scale_rows_total"},
	    {{0, 0, 257}, "moe.scale_rows[2] = 257", "scale_rows_total"},
	    {{0, 0, INT32_MAX}, "moe.scale_rows[2] = 2147483647", "total"},
	    {{64, 0, 0}, "moe.scale_rows[0] = 64", "multiple of 128"},
	    {{0, 0, 1}, "moe.scale_rows[2] = 1", "multiple of 128"},
	};
	struct job *job = good_job(NIB_OP_GEMM, NIB_SCALE_LAYOUT_TILED_128X4, true);
	struct nib_plan *plan = job_plan(job, device, false);
	struct nib_moe_problem moe = job->moe;

	assert_int_equal(moe.scale_rows_total, 256);
	for (size_t i = 0; i < COUNT(cases); i++) {
		moe.scale_rows = cases[i].rows;
		refuse_run(job, plan, &moe, 0, NIB_STATUS_BAD_ARGUMENT, cases[i].name,
			   cases[i].rule);
	}
	/* An expert without tokens has no scales: any row will do. */
	job->scale_rows[1] = -77;
	job_run_plan(job, plan, NULL, "scale row of no expert");
	job->scale_rows[1] = 0;
	job_check(job, "scale row of no expert");
	nib_plan_free(plan);
	job_free(job);
}

static void signs(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct job *job =
		    good_job(NIB_OP_DUAL_GEMM, (enum nib_scale_layout)(i & 1), i >> 1);
		struct nib_plan *plan = job_plan(job, device, false);
		const struct nib_run_options look = {.struct_bytes = sizeof(look),
						     .check_data = 1};
		const int64_t last = i >> 1 ? job->scale_rows[2] + 2 : 5;
		uint8_t *scale = nib_fp4_scale(&job->moe.problem.a, 0, last, 3);
		char text[32];

		snprintf(text, sizeof(text), "row %" PRId64 ", group 3", last);
		*scale |= 0x80;
		refuse_run(job, plan, &job->moe, 1, NIB_STATUS_BAD_DATA,
			   "moe.problem.a.scales", text);
		*scale &= 0x7f;
		scale = nib_fp4_scale(&job->moe.problem.b2, 2, 6, 0);
		*scale |= 0x80;
		refuse_run(job, plan, &job->moe, 1, NIB_STATUS_BAD_DATA,
			   "moe.problem.b2.scales", "batch 2, row 6, group 0");
		*scale &= 0x7f;
		/* Rows that no expert has, and padding, do hold signs. */
		job_run_plan(job, plan, &look, "no signs");
		job_check(job, "no signs");
		nib_plan_free(plan);
		job_free(job);
	}
}

static void overlaps(void **state)
{
	struct job *job = good_job(NIB_OP_DUAL_GEMM, NIB_SCALE_LAYOUT_LINEAR, false);
	struct nib_plan *plan = job_plan(job, device, false);
	const struct stack *stacks[] = {&job->a[0], &job->b[0], &job->b2[0]};
	const size_t c_bytes = 8 * 7 * 4;

	assert_int_equal(job->moe.problem.a.rows, 8);
	for (int i = 0; i < 6; i++) {
		const struct stack *s = stacks[i / 2];
		char *data = i % 2 ? s->view.scales : s->view.codes;
		const size_t bytes = i % 2 ? s->scales_bytes : s->codes_bytes;
		struct nib_moe_problem moe = job->moe;

		moe.problem.c.data = data + bytes - 1;
		refuse_run(job, plan, &moe, 0, NIB_STATUS_BAD_ARGUMENT,
			   "moe.problem.c.data", "overlap");
		moe.problem.c.data = data - c_bytes + 1;
		refuse_run(job, plan, &moe, 0, NIB_STATUS_BAD_ARGUMENT,
			   "moe.problem.c.data", "overlap");
	}
	nib_plan_free(plan);
	job_free(job);
}

/* Scales of fewer rows than a end before c begins: no overlap. */
static void output_right_after_the_scales(void **state)
{
	static const int32_t row_offsets[] = {0, 2, 3}, first_rows[] = {0, 2};
	uint8_t codes[64 * 8] = {0}, b_codes[2 * 5 * 8] = {0};
	uint8_t b_scales[2 * 5] = {0};
	/* Three rows of scales, then c. */
	float memory[1 + 64 * 5] = {0};
	const struct nib_moe_problem moe = {
	    .problem.a = {.codes = codes, .scales = memory, .rows = 64, .k = 16},
	    .problem.b =
		{.codes = b_codes, .scales = b_scales, .rows = 5, .k = 16, .batch = 2},
	    .problem.c = {.data = memory + 1, .rows = 64, .cols = 5},
	    .row_offsets = row_offsets,
	    .scale_rows = first_rows,
	    .scale_rows_total = 3,
	};
	struct nib_plan *plan;
	struct nib_error err;

	assert_ok(nib_moe_plan_create(device, NIB_OP_GEMM, &moe, NULL, &plan, NULL));
	assert_ok_err(nib_moe_run(plan, &moe, NULL, &err), &err);
	nib_plan_free(plan);
}

/* Scales of rows that the codes do not have: their extent counts, too. */
static void extent_of_scale_rows(void **state)
{
	static const int32_t row_offsets[] = {0, 1}, first_rows[] = {8};
	uint8_t bytes[4096] = {0};
	const struct nib_moe_problem moe = {
	    .problem.a = {.codes = bytes,
			  .scales = bytes + 64,
			  .rows = 1,
			  .k = 64,
			  .scale_row_stride_bytes = (INT64_C(1) << 34) - 1},
	    .problem.b = {.codes = bytes + 128,
			  .scales = bytes + 1024,
			  .rows = 16,
			  .k = 64},
	    .problem.c = {.data = bytes + 2048, .rows = 1, .cols = 16},
	    .row_offsets = row_offsets,
	    .scale_rows = first_rows,
	    .scale_rows_total = (1 << 30) + 1,
	};
	struct nib_plan *plan;
	struct nib_error err = {.message = ""};

	assert_refused(
	    nib_moe_plan_create(device, NIB_OP_GEMM, &moe, NULL, &plan, &err),
	    NIB_STATUS_BAD_ARGUMENT, &err, "moe.problem.a.scale_row_stride_bytes");
	assert_null(plan);
}

/*
 * A single row may have any stride, but batches that are dense after a short
 * one would overlap.
 */
static void batches_behind_a_short_row(void **state)
{
	uint8_t bytes[4096] = {0};
	const struct nib_problem problem = {
	    .a = {.codes = bytes, .scales = bytes + 64, .rows = 1, .k = 16, .batch = 3},
	    .b = {.codes = bytes + 128, .scales = bytes + 512, .rows = 18, .k = 16},
	    .c = {.data = bytes + 2048,
		  .rows = 1,
		  .cols = 18,
		  .batch = 3,
		  .row_stride_elems = 3}};
	struct nib_error err = {.message = ""};

	assert_refused(nib_multiply(device, NIB_OP_GEMM, &problem, 1, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "c.batch_stride_elems = 3");
	assert_contains(err.message, "at least 18");
}

/* What a later version may mean by it, this one must not ignore. */
static void reserved_fields(void **state)
{
	struct job *job = good_job(NIB_OP_GEMM, NIB_SCALE_LAYOUT_LINEAR, false);
	struct nib_moe_problem moe = job->moe;
	struct nib_problem problem = {.reserved = {0, 0, 0, 1}};
	struct nib_plan *plan;
	struct nib_error err = {.message = ""};

	moe.reserved[1] = 1;
	assert_refused(
	    nib_moe_plan_create(device, NIB_OP_GEMM, &moe, NULL, &plan, &err),
	    NIB_STATUS_UNSUPPORTED, &err, "moe.reserved[1]");
	assert_refused(
	    nib_plan_create(device, NIB_OP_GEMM, &problem, 1, NULL, &plan, &err),
	    NIB_STATUS_UNSUPPORTED, &err, "problems[0].reserved[3]");
	job_free(job);
}

static void plans_of_others(void **state)
{
	struct job *job = good_job(NIB_OP_GEMM, NIB_SCALE_LAYOUT_LINEAR, false);
	struct nib_plan *plan = job_plan(job, device, false), *plain;
	const struct job_spec spec = {.op = NIB_OP_GEMM, .m = 5, .n = 7, .k = 64};
	struct job *other = job_of(&rng, &spec);
	struct nib_moe_problem moe[4] = {job->moe, job->moe, job->moe, job->moe};
	static const char *const names[] = {
	    "moe.problem.a:", "moe.problem.b:", "moe.problem.c:", "moe.problem.a:"};
	struct nib_error err = {.message = ""};

	moe[0].problem.a.rows = moe[0].problem.c.rows = 7;
	moe[1].problem.b.batch = 2;
	moe[2].problem.c.dtype = NIB_DTYPE_BF16;
	moe[3].problem.a.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	for (int i = 0; i < 4; i++)
		refuse_run(job, plan, &moe[i], 0, NIB_STATUS_BAD_ARGUMENT, names[i],
			   "plan");
	/* A plan of the other kind. */
	plain = job_plan(other, device, false);
	refuse_run(job, plain, &job->moe, 0, NIB_STATUS_BAD_ARGUMENT, "plan",
		   "nib_run()");
	assert_refused(nib_run(plan, other->problems, 1, NULL, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "nib_moe_run()");
	output_untouched(&other->c[0], 0, 0, "refused");
	nib_plan_free(plain);
	nib_plan_free(plan);
	job_free(other);
	job_free(job);
}

/* ---- devices ------------------------------------------------------------- */

static void devices(void **state)
{
	static const struct {
		const char *name, *isa;
		int threads;
		enum nib_status status;
		const char *argument;
	} cases[] = {
	    {NULL, NULL, 0, NIB_STATUS_BAD_ARGUMENT, "name = NULL"},
	    {"", NULL, 0, NIB_STATUS_NO_DEVICE, "name = ''"},
	    {"tpu", NULL, 0, NIB_STATUS_NO_DEVICE, "name = 'tpu'"},
	    {"cpux", NULL, 0, NIB_STATUS_NO_DEVICE, "name = 'cpux'"},
	    {"cpu:1", NULL, 0, NIB_STATUS_NO_DEVICE, "name = 'cpu:1'"},
	    {"cpu", "sse9", 0, NIB_STATUS_BAD_ARGUMENT, "options.isa = 'sse9'"},
	    {"cpu", NULL, -1, NIB_STATUS_BAD_ARGUMENT, "options.threads = -1"},
	    {"cpu", NULL, 4097, NIB_STATUS_BAD_ARGUMENT, "options.threads = 4097"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct nib_device_options options = {
		    .struct_bytes = sizeof(options),
		    .threads = cases[i].threads,
		    .isa = cases[i].isa,
		};
		struct nib_device *d = device;
		struct nib_error err = {.message = ""};

		assert_int_equal(nib_device_open(cases[i].name, &options, &d, &err),
				 cases[i].status);
		assert_int_equal(err.status, cases[i].status);
		assert_null(d);
		assert_contains(err.message, cases[i].argument);
	}
}

/* The environment chooses where the caller does not. */
static void environment(void **state)
{
	const struct nib_device_options forced = {.struct_bytes = sizeof(forced),
						  .isa = "scalar"};
	struct nib_device *d;
	struct nib_error err;

	setenv("NIB_CPU", "scalar", 1);
	assert_ok(nib_device_open("cpu", NULL, &d, NULL));
	assert_string_equal(test_device_info(d).backend, "cpu-scalar");
	nib_device_close(d);
	setenv("NIB_CPU", "sse9", 1);
	assert_refused(nib_device_open("cpu", NULL, &d, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "NIB_CPU = 'sse9'");
	assert_ok(nib_device_open("cpu", &forced, &d, NULL));
	nib_device_close(d);
	unsetenv("NIB_CPU");
}

static void backends(void **state)
{
	const int count = nib_backend_count();
	struct nib_backend_info info = {.struct_bytes = sizeof(info)};
	struct nib_error err;

	assert_true(count > 0);
	for (int i = 0; i < count; i++) {
		assert_ok(nib_backend_get_info(i, &info, NULL));
		assert_true(strlen(info.backend) > 0);
		assert_int_equal(info.reason[0] == '\0', info.is_open != 0);
	}
	assert_refused(nib_backend_get_info(-1, &info, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "index = -1");
	assert_int_equal(nib_backend_get_info(count, &info, &err),
			 NIB_STATUS_BAD_ARGUMENT);
}

/* ---- sizes beyond any machine -------------------------------------------- */

/*
 * Each size is allowed, the products are not, or need more memory than there
 * is: some clean refusal, and never a wrapped size that seems to fit.
 */
static void products(void **state)
{
	static const int64_t s[] = {INT64_C(1) << 40, INT64_C(1) << 31,
				    INT64_C(1) << 22};
	const struct nib_plan_options mine = {sizeof(mine), 1};

	for (int i = 0; i < 3 * 3 * 3 * 3; i++) {
		const int64_t m = s[i % 3], n = s[i / 3 % 3];
		const int64_t batch = s[i / 9 % 3], k = i / 27 ? NIB_MAX_K : 0;
		struct nib_problem p = {.a = {.rows = m, .k = k, .batch = batch},
					.b = {.rows = n, .k = k, .batch = batch},
					.c = {.rows = m, .cols = n, .batch = batch}};
		struct nib_plan *plan;
		struct nib_packed *packed;
		enum nib_status status;

		if (i / 27 == 2)
			p.b.rows = p.c.cols = 0;
		status =
		    nib_plan_create(device, NIB_OP_GEMM, &p, 1, &mine, &plan, NULL);
		if (status == NIB_STATUS_OK) {
			/* Then all of it was counted. */
			assert_true((double)test_plan_info(plan).workspace_bytes >=
				    (double)m * (double)batch);
			nib_plan_free(plan);
		} else {
			assert_true(status == NIB_STATUS_BAD_ARGUMENT ||
				    status == NIB_STATUS_UNSUPPORTED ||
				    status == NIB_STATUS_OUT_OF_MEMORY);
		}
		/* Without data there is nothing to pack. */
		status = nib_pack(device, &p.b, NULL, &packed, NULL);
		if (k > 0 && p.b.rows > 0)
			assert_int_not_equal(status, NIB_STATUS_OK);
		if (status == NIB_STATUS_OK)
			nib_packed_free(packed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(offsets),
	    cmocka_unit_test(scale_rows),
	    cmocka_unit_test(signs),
	    cmocka_unit_test(overlaps),
	    cmocka_unit_test(output_right_after_the_scales),
	    cmocka_unit_test(extent_of_scale_rows),
	    cmocka_unit_test(batches_behind_a_short_row),
	    cmocka_unit_test(reserved_fields),
	    cmocka_unit_test(plans_of_others),
	    cmocka_unit_test(devices),
	    cmocka_unit_test(environment),
	    cmocka_unit_test(backends),
	    cmocka_unit_test(products),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
