/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_arguments_run.c - everything that a run refuses: pointers, overlaps, a plan for
 * other sizes, an invalid workspace, offsets, scale signs, and lack of memory.  A
 * refused run does not touch any output.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arguments.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"
#include "format/view.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Outputs of job: all poison. */
static void untouched(const struct job *job)
{
	for (int i = 0; i < (job->is_moe ? 1 : job->count); i++)
		output_untouched(&job->c[i], 0, 0, "refused");
}

/* A run with status want whose message has the texts, and no output touched. */
static void refuse_run(struct job *job, struct nib_plan *plan,
		       const struct nib_problem *problems, int64_t count,
		       const struct nib_run_options *options, enum nib_status want,
		       const char *argument, const char *rule)
{
	struct nib_error err = {.message = "no message"};
	const enum nib_status status = nib_run(plan, problems, count, options, &err);

	refused(status, want, &err, argument, "", rule);
	untouched(job);
}

static struct job_spec spec_of(enum nib_op op)
{
	return (struct job_spec){
	    .op = op, .m = 5, .n = 7, .k = 64, .batch = 2, .b_batch = 2};
}

/* Three problems: the middle one is spoiled. */
static struct job *good_job(enum nib_op op)
{
	const struct job_spec spec = spec_of(op);
	struct job *job = job_new(op);

	for (int i = 0; i < 3; i++)
		job_add(job, &rng, &spec);
	return job;
}

/* ---- pointers ------------------------------------------------------------ */

static void pointers(void **state)
{
	static const struct {
		size_t at;
		const char *name;
	} cases[] = {
	    {offsetof(struct nib_problem, a.codes), "problems[1].a.codes"},
	    {offsetof(struct nib_problem, a.scales), "problems[1].a.scales"},
	    {offsetof(struct nib_problem, b.codes), "problems[1].b.codes"},
	    {offsetof(struct nib_problem, b.scales), "problems[1].b.scales"},
	    {offsetof(struct nib_problem, b2.codes), "problems[1].b2.codes"},
	    {offsetof(struct nib_problem, b2.scales), "problems[1].b2.scales"},
	    {offsetof(struct nib_problem, c.data), "problems[1].c.data"},
	};
	struct job *job = good_job(NIB_OP_DUAL_GEMM);
	struct nib_plan *plan = job_plan(job, device, false);

	for (size_t i = 0; i < 2 * COUNT(cases); i++) {
		struct nib_problem problems[3];
		/* NULL, and one that runs past the end of memory. */
		const uintptr_t bad = i % 2 ? UINTPTR_MAX - 3 : 0;

		memcpy(problems, job->problems, sizeof(problems));
		memcpy((char *)&problems[1] + cases[i / 2].at, &bad, sizeof(bad));
		refuse_run(job, plan, problems, 3, NULL, NIB_STATUS_BAD_ARGUMENT,
			   cases[i / 2].name, i % 2 ? "strides" : "must");
	}
	refuse_run(job, plan, NULL, 3, NULL, NIB_STATUS_BAD_ARGUMENT, "problems",
		   "must");
	nib_plan_free(plan);
	job_free(job);
}

/* Where nothing is read or written, NULL is as good as any. */
static void pointers_to_nothing(void **state)
{
	struct nib_problem p = {.a = {.rows = 0, .k = 64},
				.b = {.rows = 9, .k = 64},
				.c = {.rows = 0, .cols = 9}};
	uint8_t bytes[9 * 32 + 9 * 4];

	memset(bytes, 0, sizeof(bytes));
	p.b.codes = bytes;
	p.b.scales = bytes + 9 * 32;
	assert_ok(nib_multiply(device, NIB_OP_GEMM, &p, 1, NULL));
	p.a.k = p.b.k = p.b.rows = p.c.cols = 0;
	p.a.rows = p.c.rows = 9;
	p.b.codes = p.b.scales = NULL;
	assert_ok(nib_multiply(device, NIB_OP_GEMM, &p, 1, NULL));
}

/* ---- overlaps ------------------------------------------------------------ */

/* An output that shares one byte with `bytes` at data, at either end. */
static void overlap(struct job *job, struct nib_plan *plan, int victim,
		    const void *data, size_t bytes, const char *name)
{
	const struct nib_dense *c = &job->problems[victim].c;
	const size_t c_bytes =
	    (size_t)(c->batch * c->rows * c->cols) * nib_dtype_bytes(c->dtype);

	for (int end = 0; end < 3; end++) {
		struct nib_problem problems[3];
		char *at = (char *)(uintptr_t)data;

		at = end == 0 ? at - c_bytes + 1 : end == 1 ? at + bytes - 1 : at;
		memcpy(problems, job->problems, sizeof(problems));
		problems[victim].c.data = at;
		refuse_run(job, plan, problems, 3, NULL, NIB_STATUS_BAD_ARGUMENT, name,
			   "overlap");
	}
}

static void overlaps(void **state)
{
	struct job *job = good_job(NIB_OP_DUAL_GEMM);
	struct nib_plan *plan = job_plan(job, device, false);
	char name[32];

	for (int victim = 0; victim < 3; victim++) {
		snprintf(name, sizeof(name), "problems[%d].c.data", victim);
		for (int i = 0; i < 3; i++) {
			const struct stack *stacks[] = {&job->a[i], &job->b[i],
							&job->b2[i]};

			for (int s = 0; s < 3; s++) {
				overlap(job, plan, victim, stacks[s]->view.codes,
					stacks[s]->codes_bytes, name);
				overlap(job, plan, victim, stacks[s]->view.scales,
					stacks[s]->scales_bytes, name);
			}
			if (i != victim)
				overlap(job, plan, victim, job->c[i].view.data,
					job->c[i].bytes, "].c");
		}
	}
	nib_plan_free(plan);
	job_free(job);
}

/* Column ranges of one matrix may not meet; [a, b) x2 of width 40. */
static void overlapping_columns(void **state)
{
	static const struct {
		int begin[2], cols[2], stride[2];
		bool is_good;
	} cases[] = {
	    {{0, 7}, {7, 7}, {40, 40}, true},
	    {{33, 0}, {7, 7}, {40, 40}, true},
	    {{7, 0}, {7, 7}, {40, 40}, true},
	    /* Wraps into the next row's first columns. */
	    {{36, 5}, {7, 7}, {40, 40}, true},
	    {{36, 2}, {7, 7}, {40, 40}, false},
	    {{2, 36}, {7, 7}, {40, 40}, false},
	    {{0, 6}, {7, 7}, {40, 40}, false},
	    {{6, 0}, {7, 7}, {40, 40}, false},
	    {{3, 3}, {7, 7}, {40, 40}, false},
	    {{0, 7}, {7, 7}, {40, 41}, false},
	    {{0, 40}, {7, 7}, {80, 40}, false},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct job_spec spec = spec_of(NIB_OP_GEMM);
		struct job *job = job_new(NIB_OP_GEMM);
		float *c = guard_new(12 * 41 * sizeof(*c));
		enum nib_status status;
		struct nib_error err;

		spec.batch = spec.b_batch = 1;
		for (int p = 0; p < 2; p++) {
			job_add(job, &rng, &spec);
			job->problems[p].c.data = c + cases[i].begin[p];
			job->problems[p].c.row_stride_elems = cases[i].stride[p];
		}
		status = nib_multiply(device, NIB_OP_GEMM, job->problems, 2, &err);
		if (status !=
		    (cases[i].is_good ? NIB_STATUS_OK : NIB_STATUS_BAD_ARGUMENT))
			fail_msg("case %zu: %s", i, nib_status_name(status));
		if (cases[i].is_good)
			job_check(job, "columns");
		else
			assert_contains(err.message, "overlap");
		guard_free(c, 12 * 41 * sizeof(*c));
		job_free(job);
	}
}

/* ---- another plan -------------------------------------------------------- */

/* The strides are those of operands with gaps: each may be one less or more. */
static void change(struct nib_problem *p, int i)
{
	int64_t *const strides[] = {
	    &p->a.row_stride_bytes,	   &p->a.batch_stride_bytes,
	    &p->a.scale_row_stride_bytes,  &p->a.scale_batch_stride_bytes,
	    &p->b.row_stride_bytes,	   &p->b.batch_stride_bytes,
	    &p->b2.scale_row_stride_bytes, &p->b2.scale_batch_stride_bytes,
	    &p->c.row_stride_elems,	   &p->c.batch_stride_elems};

	if (i < 10) {
		(*strides[i])--;
		return;
	}
	switch (i - 10) {
	case 0:
		p->a.rows = p->c.rows = 4;
		break;
	case 1:
		p->a.k = p->b.k = p->b2.k = 48;
		break;
	case 2:
		p->a.batch = p->c.batch = p->b.batch = p->b2.batch = 1;
		break;
	case 3:
		p->b.rows = p->b2.rows = p->c.cols = 6;
		break;
	case 4:
		p->b.batch = 1;
		break;
	case 5:
		p->c.dtype = NIB_DTYPE_FP16;
		break;
	case 6:
		p->a.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
		p->a.scale_row_stride_bytes = 0;
		p->a.scale_batch_stride_bytes = 0;
		break;
	default:
		p->b.scale_layout = NIB_SCALE_LAYOUT_LINEAR;
		p->b.scale_row_stride_bytes = 0;
		p->b.scale_batch_stride_bytes = 0;
		break;
	}
}

/* Every field that a plan was made from, changed to another valid value. */
static void plans_of_others(void **state)
{
	static const char *const names[] = {"a",  "a",	"a", "a", "b", "b",
					    "b2", "b2", "c", "c", "a", "a",
					    "a",  "b",	"b", "c", "a", "b"};
	struct job_spec spec = spec_of(NIB_OP_DUAL_GEMM);
	struct job *job = job_new(NIB_OP_DUAL_GEMM);
	struct nib_plan *plan;
	char name[32];

	/* The second weights are linear as well if the first are tiled. */
	spec.has_gaps = true;
	spec.b_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	for (int i = 0; i < 3; i++)
		job_add(job, &rng, &spec);
	plan = job_plan(job, device, false);
	for (int i = 0; i < (int)COUNT(names); i++) {
		struct nib_problem problems[3];

		memcpy(problems, job->problems, sizeof(problems));
		change(&problems[1], i);
		snprintf(name, sizeof(name), "problems[1].%s:", names[i]);
		refuse_run(job, plan, problems, 3, NULL, NIB_STATUS_BAD_ARGUMENT, name,
			   "plan");
	}
	refuse_run(job, plan, job->problems, 2, NULL, NIB_STATUS_BAD_ARGUMENT, "count",
		   "must");
	refuse_run(job, plan, job->problems, -3, NULL, NIB_STATUS_BAD_ARGUMENT,
		   "count = -3", "must");
	nib_plan_free(plan);
	job_free(job);
}

/* Zeros and what they stand for are the same to a plan. */
static void strides_spelt_out(void **state)
{
	struct job *job = good_job(NIB_OP_DUAL_GEMM);
	struct nib_plan *plan = job_plan(job, device, false);

	for (int i = 0; i < 3; i++) {
		job->problems[i].a.row_stride_bytes = 32;
		job->problems[i].a.scale_batch_stride_bytes = 5 * 4;
		job->problems[i].c.batch_stride_elems = 35;
	}
	job_run_plan(job, plan, NULL, "dense strides spelt out");
	job_check(job, "dense strides spelt out");
	nib_plan_free(plan);
	job_free(job);
}

/* Packed where the plan has a view, a view where it has packed. */
static void plans_of_other_packing(void **state)
{
	const struct job_how how = {.device = device, .packing = JOB_PACKED};
	struct job *job = good_job(NIB_OP_DUAL_GEMM);
	struct nib_plan *plan = job_plan(job, device, false);
	struct nib_problem views[3];

	memcpy(views, job->problems, sizeof(views));
	job_pack(job, &how);
	refuse_run(job, plan, job->problems, 3, NULL, NIB_STATUS_BAD_ARGUMENT,
		   "problems[0].b:", "plan");
	nib_plan_free(plan);
	plan = job_plan(job, device, false);
	refuse_run(job, plan, views, 3, NULL, NIB_STATUS_BAD_ARGUMENT,
		   "problems[0].b:", "plan");
	views[0].b_packed = job->problems[0].b_packed;
	refuse_run(job, plan, views, 3, NULL, NIB_STATUS_BAD_ARGUMENT,
		   "problems[0].b2:", "plan");
	nib_plan_free(plan);
	job_unpack(job);
	job_free(job);
}

/* A device of another instruction set than `device`, which is scalar. */
static struct nib_device *other_set(void)
{
	struct nib_device *other = NULL;

	for (int i = 0; i < TEST_ISAS && !other; i++)
		if (strcmp(test_isas[i], "scalar") != 0)
			other = test_device(test_isas[i], 1);
	return other;
}

static void packed_for_another_device(void **state)
{
	struct nib_device *other = other_set();
	struct job *job;
	struct nib_error err;

	if (!other) {
		print_message("this machine has one instruction set\n");
		skip();
	}
	job = good_job(NIB_OP_GEMM);
	job_pack(job, &(struct job_how){.device = other, .packing = JOB_PACKED});
	assert_refused(nib_multiply(device, NIB_OP_GEMM, job->problems, 3, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "problems[0].b_packed");
	assert_int_equal(nib_reference(NIB_OP_GEMM, job->problems, 3, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	untouched(job);
	job_unpack(job);
	job_free(job);
	nib_device_close(other);
}

/* Another device of the same instruction set reads them. */
static void packed_for_an_equal_device(void **state)
{
	struct nib_device *other = test_device("scalar", 3);
	struct job *job = good_job(NIB_OP_GEMM);
	struct nib_plan *plan;
	struct bits bits;

	job_run(job, &(struct job_how){.device = device}, "views");
	bits = job_bits(job);
	job_pack(job, &(struct job_how){.device = other, .packing = JOB_PACKED});
	plan = job_plan(job, device, false);
	for (int i = 0; i < 2; i++) {
		job_run_plan(job, plan, NULL, "packed elsewhere");
		job_has_bits(job, &bits, "packed elsewhere");
	}
	nib_plan_free(plan);
	job_unpack(job);
	bits_free(&bits);
	job_free(job);
	nib_device_close(other);
}

/* Packed weights of other sizes than the problem's. */
static void packed_of_other_sizes(void **state)
{
	struct job *job = good_job(NIB_OP_GEMM);
	struct nib_problem p = job->problems[0];
	struct nib_fp4 b = p.b;
	struct nib_packed *packed;
	struct nib_error err;

	b.rows = 6;
	assert_ok(nib_pack(device, &b, NULL, &packed, NULL));
	p.b_packed = packed;
	assert_refused(nib_multiply(device, NIB_OP_GEMM, &p, 1, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "problems[0].b.rows = 6");
	untouched(job);
	nib_packed_free(packed);
	job_free(job);
}

/* ---- workspaces ---------------------------------------------------------- */

static void workspaces(void **state)
{
	struct job *job = good_job(NIB_OP_DUAL_GEMM);
	struct nib_plan *plan = job_plan(job, device, true);
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_run_options o = {.struct_bytes = sizeof(o)};
	uint8_t *workspace;
	char text[32];

	assert_ok(nib_plan_get_info(plan, &info, NULL));
	assert_true(info.workspace_bytes > 0);
	assert_int_equal(info.k_slices, 1);
	workspace = guard_new(info.workspace_bytes + 64);
	refuse_run(job, plan, job->problems, 3, NULL, NIB_STATUS_BAD_ARGUMENT,
		   "options.workspace = NULL", "must");
	o.workspace = workspace;
	o.workspace_bytes = info.workspace_bytes - 1;
	snprintf(text, sizeof(text), "must be at least %zu", info.workspace_bytes);
	refuse_run(job, plan, job->problems, 3, &o, NIB_STATUS_BAD_ARGUMENT,
		   "options.workspace_bytes", text);
	o.workspace_bytes = info.workspace_bytes;
	for (size_t offset = 1; offset < 64; offset *= 2) {
		o.workspace = workspace + offset;
		refuse_run(job, plan, job->problems, 3, &o, NIB_STATUS_BAD_ARGUMENT,
			   "options.workspace =", "aligned to 64");
	}
	o.workspace = workspace + 64;
	job_run_plan(job, plan, &o, "workspace that fits");
	job_check(job, "workspace that fits");
	guard_free(workspace, info.workspace_bytes + 64);
	nib_plan_free(plan);
	job_free(job);
}

/* ---- scale signs --------------------------------------------------------- */

static void signs(void **state)
{
	struct job *job = good_job(NIB_OP_DUAL_GEMM);
	struct nib_plan *plan = job_plan(job, device, false);
	const struct nib_run_options look = {.struct_bytes = sizeof(look),
					     .check_data = 1};
	const struct nib_problem *p = &job->problems[1];
	const struct {
		const struct nib_fp4 *view;
		const char *name;
	} views[] = {{&p->a, "problems[1].a.scales"},
		     {&p->b, "problems[1].b.scales"},
		     {&p->b2, "problems[1].b2.scales"}};

	for (int i = 0; i < 3; i++) {
		uint8_t *scale =
		    nib_fp4_scale(views[i].view, 1, views[i].view->rows - 1, 3);
		struct nib_packed *packed;
		struct nib_error err;

		*scale |= 0x80;
		refuse_run(job, plan, job->problems, 3, &look, NIB_STATUS_BAD_DATA,
			   views[i].name, "sign bit must be 0");
		refuse_run(job, plan, job->problems, 3, &look, NIB_STATUS_BAD_DATA,
			   "batch 1", i ? "row 6, group 3" : "row 4, group 3");
		assert_int_equal(nib_pack(device, views[i].view, NULL, &packed, &err),
				 NIB_STATUS_BAD_DATA);
		assert_null(packed);
		assert_contains(err.message, "group 3");
		*scale &= 0x7f;
	}
	job_run_plan(job, plan, &look, "no signs");
	nib_plan_free(plan);
	job_free(job);
}

/* ---- memory that runs out ------------------------------------------------ */

/* Everything between opening a device and closing it. */
static enum nib_status whole_life(const struct job *job, struct nib_error *err)
{
	struct nib_problem p = job->problems[0];
	struct nib_device *d = NULL;
	struct nib_packed *b = NULL, *b2 = NULL;
	struct nib_plan *plan = NULL;
	enum nib_status status;

	const struct nib_device_options options = {
	    .struct_bytes = sizeof(options), .threads = 1, .isa = "scalar"};

	status = nib_device_open("cpu", &options, &d, err);
	if (!status)
		status = nib_multiply(d, job->op, &p, 1, err);
	if (!status)
		status = nib_pack(d, &p.b, NULL, &b, err);
	if (!status)
		status = nib_pack(d, &p.b2, NULL, &b2, err);
	p.b_packed = b;
	p.b2_packed = b2;
	if (!status)
		status = nib_plan_create(d, job->op, &p, 1, NULL, &plan, err);
	if (!status)
		status = nib_run(plan, &p, 1, NULL, err);
	nib_plan_free(plan);
	nib_packed_free(b);
	nib_packed_free(b2);
	nib_device_close(d);
	return status;
}

static void failing_allocations(void **state)
{
	struct job *job;
	int failures = 0;

	if (!test_alloc_works())
		skip();
	job = good_job(NIB_OP_DUAL_GEMM);
	for (int mode = TEST_ALLOC_ONE; mode <= TEST_ALLOC_FROM; mode++) {
		bool has_failed = true;

		for (long n = 1; has_failed; n++) {
			struct nib_error err = {.message = ""};
			const long live = test_alloc_live();
			enum nib_status status;

			job_poison(job);
			test_alloc_fail(n, (enum test_alloc_mode)mode);
			status = whole_life(job, &err);
			has_failed = test_alloc_stop();
			assert_int_equal(test_alloc_live(), live);
			if (!has_failed) {
				assert_ok(status);
				break;
			}
			failures++;
			assert_int_equal(status, NIB_STATUS_OUT_OF_MEMORY);
			assert_int_equal(err.status, NIB_STATUS_OUT_OF_MEMORY);
			assert_contains(err.message, "memory");
			/* Nothing, or all of the call before. */
			if (*(uint8_t *)job->problems[0].c.data == GUARD_POISON)
				untouched(job);
		}
	}
	/* A device, two plans with three blocks, two packed with three. */
	assert_true(failures >= 2 * (1 + 2 * 3 + 2 * 3));
	job_free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(pointers),
	    cmocka_unit_test(pointers_to_nothing),
	    cmocka_unit_test(overlaps),
	    cmocka_unit_test(overlapping_columns),
	    cmocka_unit_test(plans_of_others),
	    cmocka_unit_test(strides_spelt_out),
	    cmocka_unit_test(plans_of_other_packing),
	    cmocka_unit_test(packed_for_another_device),
	    cmocka_unit_test(packed_for_an_equal_device),
	    cmocka_unit_test(packed_of_other_sizes),
	    cmocka_unit_test(workspaces),
	    cmocka_unit_test(signs),
	    cmocka_unit_test(failing_allocations),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
