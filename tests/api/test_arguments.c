/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_arguments.c - everything that opening a device, packing and planning refuse:
 * the status, and a message that names the argument, its value and the rule.
 * test_arguments_run.c tests what runs refuse.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arguments.h"
#include "common/unit.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TWO_40	     (INT64_C(1) << 40)

static const char unset[] = "no message";

static struct nib_error fresh(void)
{
	struct nib_error err = {.status = NIB_STATUS_OK};

	memcpy(err.message, unset, sizeof(unset));
	return err;
}

/* ---- one field of a problem ---------------------------------------------- */

/* A field of type int64_t, or an enum. */
struct field_case {
	size_t at;
	bool is_enum;
	int64_t value;
	const char *name; /* in the message */
};

#define FIELD(type, field, v)                                                          \
	{                                                                              \
		offsetof(type, field), false, v, #field                                \
	}
#define ENUM(type, field, v)                                                           \
	{                                                                              \
		offsetof(type, field), true, v, #field                                 \
	}

static void set_field(void *base, const struct field_case *c)
{
	char *at = (char *)base + c->at;
	const int narrow = (int)c->value;

	if (c->is_enum)
		memcpy(at, &narrow, sizeof(narrow));
	else
		memcpy(at, &c->value, sizeof(c->value));
}

#define NVFP4_CASES(type, v)                                                           \
	FIELD(type, v.rows, -1), FIELD(type, v.rows, INT64_MIN),                       \
	    FIELD(type, v.rows, TWO_40 + 1), FIELD(type, v.rows, INT64_MAX),           \
	    FIELD(type, v.k, -16), FIELD(type, v.k, 1), FIELD(type, v.k, 8),           \
	    FIELD(type, v.k, 63), FIELD(type, v.k, INT64_MIN),                         \
	    FIELD(type, v.k, NIB_MAX_K + 16), FIELD(type, v.k, INT64_MAX),             \
	    FIELD(type, v.batch, -1), FIELD(type, v.batch, TWO_40 + 1),                \
	    FIELD(type, v.row_stride_bytes, 31), FIELD(type, v.row_stride_bytes, -32), \
	    FIELD(type, v.row_stride_bytes, INT64_MIN),                                \
	    FIELD(type, v.row_stride_bytes, INT64_MAX),                                \
	    FIELD(type, v.batch_stride_bytes, 100),                                    \
	    FIELD(type, v.batch_stride_bytes, -1000),                                  \
	    FIELD(type, v.batch_stride_bytes, INT64_MAX),                              \
	    FIELD(type, v.scale_row_stride_bytes, 3),                                  \
	    FIELD(type, v.scale_row_stride_bytes, -4),                                 \
	    FIELD(type, v.scale_row_stride_bytes, INT64_MAX / 2),                      \
	    FIELD(type, v.scale_batch_stride_bytes, 10),                               \
	    FIELD(type, v.scale_batch_stride_bytes, -1),                               \
	    FIELD(type, v.scale_batch_stride_bytes, INT64_MAX),                        \
	    ENUM(type, v.scale_layout, 2), ENUM(type, v.scale_layout, -1),             \
	    ENUM(type, v.scale_layout, INT32_MAX)

#define DENSE_CASES(type, v)                                                           \
	FIELD(type, v.rows, -1), FIELD(type, v.rows, TWO_40 + 1),                      \
	    FIELD(type, v.cols, -1), FIELD(type, v.cols, INT64_MAX),                   \
	    FIELD(type, v.batch, -2), FIELD(type, v.batch, INT64_MAX),                 \
	    FIELD(type, v.row_stride_elems, 6), FIELD(type, v.row_stride_elems, -7),   \
	    FIELD(type, v.row_stride_elems, INT64_MAX / 4),                            \
	    FIELD(type, v.batch_stride_elems, 34),                                     \
	    FIELD(type, v.batch_stride_elems, -70),                                    \
	    FIELD(type, v.batch_stride_elems, INT64_MAX / 8), ENUM(type, v.dtype, 3),  \
	    ENUM(type, v.dtype, -1)

static const struct field_case problem_cases[] = {
    NVFP4_CASES(struct nib_problem, a),
    NVFP4_CASES(struct nib_problem, b),
    NVFP4_CASES(struct nib_problem, b2),
    DENSE_CASES(struct nib_problem, c),
    /* Right by themselves, but not together. */
    FIELD(struct nib_problem, b.k, 48),
    FIELD(struct nib_problem, b2.k, 80),
    FIELD(struct nib_problem, b.rows, 8),
    FIELD(struct nib_problem, b2.rows, 6),
    FIELD(struct nib_problem, c.rows, 4),
    FIELD(struct nib_problem, c.batch, 1),
    FIELD(struct nib_problem, b.batch, 3),
    FIELD(struct nib_problem, b2.batch, 3),
};

/* [5, 7, 64], batch 2: strides and batches all matter. */
static struct job *good_job(enum nib_op op)
{
	const struct job_spec spec = {.op = op,
				      .m = op == NIB_OP_GEMV ? 1 : 5,
				      .n = 7,
				      .k = 64,
				      .batch = 2,
				      .b_batch = 2};
	struct job *job = job_of(&rng, &spec);

	/* All of them linear: the dual's second weights too. */
	if (op == NIB_OP_DUAL_GEMM) {
		job->problems[0].b2.scale_layout = NIB_SCALE_LAYOUT_LINEAR;
		job->problems[0].b2.codes = job->problems[0].b.codes;
		job->problems[0].b2.scales = job->problems[0].b.scales;
	}
	return job;
}

static void refuse_field(const struct job *job, const struct field_case *c)
{
	struct nib_problem problems[3] = {job->problems[0], job->problems[0],
					  job->problems[0]};
	struct nib_plan *plan = (struct nib_plan *)(uintptr_t)8;
	struct nib_error err = fresh();
	char name[64], value[32];
	enum nib_status status;

	problems[1].a.rows = problems[1].c.rows = 0;
	set_field(&problems[2], c);
	snprintf(name, sizeof(name), "problems[2].%s", c->name);
	snprintf(value, sizeof(value), "%" PRId64, c->value);
	status = nib_plan_create(device, job->op, problems, 3, NULL, &plan, &err);
	refused(status, NIB_STATUS_BAD_ARGUMENT, &err, name, value, "must");
	assert_null(plan);
	/* The same by itself, and without err; nothing is written. */
	assert_int_equal(nib_multiply(device, job->op, &problems[2], 1, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
}

static void fields_of_problems(void **state)
{
	struct job *job = good_job(NIB_OP_DUAL_GEMM);

	job_poison(job);
	for (size_t i = 0; i < COUNT(problem_cases); i++)
		refuse_field(job, &problem_cases[i]);
	output_untouched(&job->c[0], 0, 0, "refused problems");
	/* And without any of it, it works. */
	assert_ok(nib_multiply(device, job->op, job->problems, 1, NULL));
	job_free(job);
}

/* Tiled scales have no row stride; b2 matters to the dual operation only. */
static void fields_by_operation(void **state)
{
	static const struct field_case stride =
	    FIELD(struct nib_problem, a.scale_row_stride_bytes, 4);
	struct job *job = good_job(NIB_OP_GEMM), *gemv = good_job(NIB_OP_GEMV);
	struct nib_error err = fresh();

	memset(&job->problems[0].b2, 0xff, sizeof(job->problems[0].b2));
	assert_ok(nib_multiply(device, NIB_OP_GEMM, job->problems, 1, NULL));
	job->problems[0].a.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	job_poison(job);
	refuse_field(job, &stride);
	output_untouched(&job->c[0], 0, 0, "refused stride");
	gemv->problems[0].a.rows = gemv->problems[0].c.rows = 5;
	refused(nib_multiply(device, NIB_OP_GEMV, gemv->problems, 1, &err),
		NIB_STATUS_BAD_ARGUMENT, &err, "problems[0].a.rows", "5", "must");
	job_free(job);
	job_free(gemv);
}

/* ---- mixtures of experts ------------------------------------------------- */

static const struct field_case moe_cases[] = {
    FIELD(struct nib_moe_problem, problem.a.rows, -1),
    FIELD(struct nib_moe_problem, problem.a.k, 65),
    FIELD(struct nib_moe_problem, problem.a.row_stride_bytes, 31),
    FIELD(struct nib_moe_problem, problem.b.rows, TWO_40 + 1),
    FIELD(struct nib_moe_problem, problem.b.k, 48),
    FIELD(struct nib_moe_problem, problem.b.rows, 9),
    FIELD(struct nib_moe_problem, problem.b.batch, -4),
    FIELD(struct nib_moe_problem, problem.b.batch_stride_bytes, 5),
    FIELD(struct nib_moe_problem, problem.b2.k, 128),
    FIELD(struct nib_moe_problem, problem.b2.rows, 1),
    FIELD(struct nib_moe_problem, problem.b2.batch, 2),
    FIELD(struct nib_moe_problem, problem.c.cols, -1),
    FIELD(struct nib_moe_problem, problem.c.row_stride_elems, 6),
    FIELD(struct nib_moe_problem, scale_rows_total, -1),
    FIELD(struct nib_moe_problem, scale_rows_total, INT64_C(1) << 31),
    ENUM(struct nib_moe_problem, problem.c.dtype, 7),
    ENUM(struct nib_moe_problem, problem.a.scale_layout, 9),
};

static void fields_of_experts(void **state)
{
	static const int64_t rows[] = {2, 0, 3};
	const struct job_spec spec = {
	    .op = NIB_OP_DUAL_GEMM, .n = 7, .k = 64, .values = JOB_ANY};
	struct job *job = job_of_moe(&rng, &spec, rows, 3, 0, false);

	for (size_t i = 0; i < COUNT(moe_cases); i++) {
		const struct field_case *c = &moe_cases[i];
		struct nib_moe_problem moe = job->moe;
		struct nib_plan *plan = (struct nib_plan *)(uintptr_t)8;
		struct nib_error err = fresh();
		char name[64], value[32];
		enum nib_status status;

		set_field(&moe, c);
		snprintf(name, sizeof(name), "moe.%s", c->name);
		snprintf(value, sizeof(value), "%" PRId64, c->value);
		status = nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &moe, NULL,
					     &plan, &err);
		refused(status, NIB_STATUS_BAD_ARGUMENT, &err, name, value, "must");
		assert_null(plan);
	}
	job_free(job);
}

/* a and c are one batch with the same rows. */
static void shapes_of_experts(void **state)
{
	static const int64_t rows[] = {2, 0, 3};
	const struct job_spec spec = {.op = NIB_OP_GEMM, .n = 7, .k = 64};
	struct job *job = job_of_moe(&rng, &spec, rows, 3, 0, false);
	struct nib_moe_problem moe[3] = {job->moe, job->moe, job->moe};

	moe[0].problem.a.batch = 2;
	moe[1].problem.c.batch = 2;
	moe[2].problem.c.rows++;
	for (int i = 0; i < 3; i++) {
		struct nib_plan *plan;
		struct nib_error err = fresh();
		enum nib_status status = nib_moe_plan_create(
		    device, NIB_OP_GEMM, &moe[i], NULL, &plan, &err);

		refused(status, NIB_STATUS_BAD_ARGUMENT, &err, "moe.problem.c",
			i == 2 ? "8" : "7", "must");
	}
	job_free(job);
}

/* ---- NULL, operations, counts -------------------------------------------- */

static void nulls(void **state)
{
	struct job *job = good_job(NIB_OP_GEMM);
	const struct nib_problem *p = job->problems;
	struct nib_plan_info plan_info = {.struct_bytes = sizeof(plan_info)};
	struct nib_backend_info backend_info = {.struct_bytes = sizeof(backend_info)};
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct nib_packed *packed;
	struct nib_plan *plan;
	struct nib_error e = fresh();

#define REFUSED_NULL(call, name)                                                       \
	do {                                                                           \
		e = fresh();                                                           \
		refused(call, NIB_STATUS_BAD_ARGUMENT, &e, name, "NULL", "must");      \
	} while (0)
	REFUSED_NULL(nib_device_open("cpu", NULL, NULL, &e), "device");
	REFUSED_NULL(nib_device_get_info(NULL, &info, &e), "device");
	REFUSED_NULL(nib_device_get_info(device, NULL, &e), "info");
	REFUSED_NULL(nib_backend_get_info(0, NULL, &e), "info");
	REFUSED_NULL(nib_pack(NULL, &p->b, NULL, &packed, &e), "device");
	REFUSED_NULL(nib_pack(device, NULL, NULL, &packed, &e), "b");
	REFUSED_NULL(nib_pack(device, &p->b, NULL, NULL, &e), "packed");
	REFUSED_NULL(nib_pack_shared(NULL, &p->b, NULL, &packed, &e), "device");
	REFUSED_NULL(nib_pack_shared(device, NULL, NULL, &packed, &e), "b");
	REFUSED_NULL(nib_pack_shared(device, &p->b, NULL, NULL, &e), "packed");
	assert_int_equal(nib_pack_shares(NULL, &p->b), 0);
	assert_int_equal(nib_pack_shares(device, NULL), 0);
	assert_int_equal(nib_pack_shares(device, &p->b), 0); /* a CPU's */
	REFUSED_NULL(nib_packed_update(NULL, &p->b, NULL, &e), "packed");
	REFUSED_NULL(nib_unpack(NULL, &p->b, NULL, &e), "packed");
	assert_ok(nib_pack(device, &p->b, NULL, &packed, &e));
	REFUSED_NULL(nib_unpack(packed, NULL, NULL, &e), "to");
	nib_packed_free(packed);
	REFUSED_NULL(nib_plan_create(NULL, NIB_OP_GEMM, p, 1, NULL, &plan, &e),
		     "device");
	REFUSED_NULL(nib_plan_create(device, NIB_OP_GEMM, NULL, 1, NULL, &plan, &e),
		     "problems");
	REFUSED_NULL(nib_plan_create(device, NIB_OP_GEMM, p, 1, NULL, NULL, &e),
		     "plan");
	REFUSED_NULL(nib_moe_plan_create(NULL, NIB_OP_GEMM, &job->moe, NULL, &plan, &e),
		     "device");
	REFUSED_NULL(nib_moe_plan_create(device, NIB_OP_GEMM, NULL, NULL, &plan, &e),
		     "moe");
	REFUSED_NULL(
	    nib_moe_plan_create(device, NIB_OP_GEMM, &job->moe, NULL, NULL, &e),
	    "plan");
	REFUSED_NULL(nib_plan_get_info(NULL, &plan_info, &e), "plan");
	REFUSED_NULL(nib_run(NULL, p, 1, NULL, &e), "plan");
	REFUSED_NULL(nib_moe_run(NULL, &job->moe, NULL, &e), "plan");
	REFUSED_NULL(nib_multiply(NULL, NIB_OP_GEMM, p, 1, &e), "device");
	REFUSED_NULL(nib_multiply(device, NIB_OP_GEMM, NULL, 1, &e), "problems");
	/* These take it. */
	nib_device_close(NULL);
	nib_packed_free(NULL);
	nib_plan_free(NULL);
	assert_int_equal(nib_packed_bytes(NULL), 0);
	job_free(job);
}

static void operations_and_counts(void **state)
{
	static const int64_t counts[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 31};
	static const int ops[] = {-1, 3, INT32_MAX, INT32_MIN};
	struct job *job = good_job(NIB_OP_GEMM);
	struct nib_plan *plan;
	char text[32];

	for (size_t i = 0; i < 5; i++) {
		const int bad = i < 4 ? ops[i] : NIB_OP_GEMV;
		struct nib_error err = fresh(), err2 = fresh();

		snprintf(text, sizeof(text), "%d", bad);
		if (i < 4)
			refused(nib_plan_create(device, (enum nib_op)bad, job->problems,
						1, NULL, &plan, &err),
				NIB_STATUS_BAD_ARGUMENT, &err, "op", text, "must");
		refused(nib_moe_plan_create(device, (enum nib_op)bad, &job->moe, NULL,
					    &plan, &err2),
			NIB_STATUS_BAD_ARGUMENT, &err2, "op", text, "must");
	}
	for (size_t i = 0; i < COUNT(counts); i++) {
		struct nib_error err = fresh();

		snprintf(text, sizeof(text), "%" PRId64, counts[i]);
		refused(nib_plan_create(device, NIB_OP_GEMM, job->problems, counts[i],
					NULL, &plan, &err),
			NIB_STATUS_BAD_ARGUMENT, &err, "count", text, "must");
	}
	/* No problems: nothing to do, and no array needed. */
	assert_ok(nib_multiply(device, NIB_OP_GEMM, NULL, 0, NULL));
	job_free(job);
}

/* ---- structs that grow --------------------------------------------------- */

/* The calls that read options, by the same rules. */
static enum nib_status with_options(int call, const struct job *job,
				    const void *options, struct nib_error *err)
{
	struct nib_plan *plan = NULL;
	struct nib_device *opened = NULL;
	enum nib_status status;

	switch (call) {
	case 0:
		status = nib_device_open("cpu", options, &opened, err);
		nib_device_close(opened);
		return status;
	case 1:
		status = nib_plan_create(device, NIB_OP_GEMM, job->problems, 1, options,
					 &plan, err);
		nib_plan_free(plan);
		return status;
	default:
		assert_ok(nib_plan_create(device, NIB_OP_GEMM, job->problems, 1, NULL,
					  &plan, NULL));
		status = nib_run(plan, job->problems, 1, options, err);
		nib_plan_free(plan);
		return status;
	}
}

static void options_structs(void **state)
{
	static const size_t ours[] = {sizeof(struct nib_device_options),
				      sizeof(struct nib_plan_options),
				      sizeof(struct nib_run_options)};
	static const size_t bad[] = {0, 1, sizeof(size_t) - 1, SIZE_MAX,
				     (size_t)1 << 40};
	struct job *job = good_job(NIB_OP_GEMM);
	char text[32];

	for (int call = 0; call < 3; call++) {
		/* Up to a guard page: no byte beyond is read. */
		const size_t longer = ours[call] + 24;
		size_t *options = guard_new(longer);
		struct nib_error err;

		memset(options, 0, longer);
		for (size_t i = 0; i < COUNT(bad); i++) {
			options[0] = bad[i];
			snprintf(text, sizeof(text), "%zu", bad[i]);
			err = fresh();
			refused(with_options(call, job, options, &err),
				NIB_STATUS_BAD_ARGUMENT, &err, "options.struct_bytes",
				text, "must");
		}
		/* Newer and silent, older, and oldest: fine. */
		options[0] = longer;
		assert_ok(with_options(call, job, options, NULL));
		options[0] = sizeof(size_t);
		assert_ok(with_options(call, job, options, NULL));
		/* An older caller's bytes after its struct are its own. */
		memset(options + 1, 0xff, longer - sizeof(size_t));
		assert_ok(with_options(call, job, options, NULL));
		/* Newer, and it requests something. */
		memset(options + 1, 0, longer - sizeof(size_t));
		options[0] = longer;
		((char *)options)[longer - 1] = 1;
		err = fresh();
		snprintf(text, sizeof(text), "%zu", longer);
		refused(with_options(call, job, options, &err), NIB_STATUS_UNSUPPORTED,
			&err, "options.struct_bytes", text, "set");
		guard_free(options, longer);
	}
	job_free(job);
}

static enum nib_status with_info(int call, const struct nib_plan *plan, void *info,
				 struct nib_error *err)
{
	switch (call) {
	case 0:
		return nib_device_get_info(device, info, err);
	case 1:
		return nib_plan_get_info(plan, info, err);
	default:
		return nib_backend_get_info(0, info, err);
	}
}

static void info_structs(void **state)
{
	static const size_t ours[] = {sizeof(struct nib_device_info),
				      sizeof(struct nib_plan_info),
				      sizeof(struct nib_backend_info)};
	struct job *job = good_job(NIB_OP_GEMM);
	struct nib_plan *plan = job_plan(job, device, false);

	for (int call = 0; call < 3; call++) {
		struct nib_error err = fresh();
		size_t bytes = ours[call];
		size_t *info = guard_new(bytes);

		info[0] = 0;
		refused(with_info(call, plan, info, &err), NIB_STATUS_BAD_ARGUMENT,
			&err, "info.struct_bytes", "0", "must");
		/* An older caller's struct: no byte beyond it is written. */
		info[0] = 2 * sizeof(size_t);
		assert_ok(with_info(call, plan, info, NULL));
		assert_int_equal(info[0], 2 * sizeof(size_t));
		for (size_t i = 2 * sizeof(size_t); i < bytes; i++)
			assert_int_equal(((uint8_t *)info)[i], GUARD_POISON);
		/* A newer one: ours, and no more. */
		guard_free(info, bytes);
		bytes += 64;
		info = guard_new(bytes);
		info[0] = bytes;
		assert_ok(with_info(call, plan, info, NULL));
		assert_int_equal(info[0], bytes);
		for (size_t i = bytes - 64; i < bytes; i++)
			assert_int_equal(((uint8_t *)info)[i], GUARD_POISON);
		guard_free(info, bytes);
	}
	nib_plan_free(plan);
	job_free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(fields_of_problems),
	    cmocka_unit_test(fields_by_operation),
	    cmocka_unit_test(fields_of_experts),
	    cmocka_unit_test(shapes_of_experts),
	    cmocka_unit_test(nulls),
	    cmocka_unit_test(operations_and_counts),
	    cmocka_unit_test(options_structs),
	    cmocka_unit_test(info_structs),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
