/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_activations_run.c - runs whose A is the dense view x: pointers, overlaps with
 * outputs, problems of another plan, the fields that are read of the unused view,
 * and the recognition of a repeated run.  The device computes nothing
 * (common/stub_backend.h); addresses are invented where nothing is read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/arguments.h"
#include "common/stub_backend.h"
#include "common/unit.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* Operand i of problem p, far from all others. */
#define AT(p, i) ((uintptr_t)(16 * ((p) + 1) + (i)) << 32)

enum { M = 5, N = 7, K = 64, BATCH = 2, EXPERTS = 3, PROBLEMS = 3 };

static void *address(uintptr_t at)
{
	return (void *)at;
}

static struct nib_fp4 weights(int p, int i, int64_t batch)
{
	return (struct nib_fp4){.codes = address(AT(p, i)),
				.scales = address(AT(p, i + 1)),
				.rows = N,
				.k = K,
				.batch = batch};
}

/* The view a is garbage. */
static struct nib_problem problem(enum nib_activations kind, enum nib_dtype dtype,
				  int i)
{
	struct nib_problem p = {
	    .b = weights(i, 0, BATCH),
	    .b2 = weights(i, 2, BATCH),
	    .c = {.data = address(AT(i, 4)),
		  .dtype = NIB_DTYPE_BF16,
		  .rows = M,
		  .cols = N,
		  .batch = BATCH},
	    .x = {.data = address(AT(i, 5)),
		  .dtype = dtype,
		  .rows = M,
		  .cols = K,
		  .batch = BATCH},
	    .activations = kind,
	};

	memset(&p.a, 0xff, sizeof(p.a));
	return p;
}

static const int32_t row_offsets[EXPERTS + 1] = {0, 2, 2, M};

static struct nib_moe_problem moe_problem(enum nib_activations kind)
{
	const struct nib_problem like = problem(kind, NIB_DTYPE_BF16, 0);
	struct nib_moe_problem moe = {
	    .problem.a = like.a,
	    .problem.b = weights(0, 0, EXPERTS),
	    .problem.b2 = weights(0, 2, EXPERTS),
	    .problem.c = like.c,
	    .row_offsets = row_offsets,
	    .problem.x = like.x,
	    .problem.activations = kind,
	};

	moe.problem.c.batch = moe.problem.x.batch = 1;
	return moe;
}

/* A plan of PROBLEMS problems or of a mixture of experts, and its inputs. */
struct bed {
	struct nib_problem problems[PROBLEMS];
	struct nib_moe_problem moe;
	struct nib_plan *plan;
	bool is_moe;
	struct nib_run_options options;
};

static struct bed bed_of(enum nib_activations kind, enum nib_dtype dtype)
{
	struct bed bed = {.options = {.struct_bytes = sizeof(bed.options)}};
	struct nib_error err;

	for (int i = 0; i < PROBLEMS; i++)
		bed.problems[i] = problem(kind, dtype, i);
	assert_ok_err(nib_plan_create(device, NIB_OP_DUAL_GEMM, bed.problems, PROBLEMS,
				      NULL, &bed.plan, &err),
		      &err);
	return bed;
}

static struct bed bed_of_moe(enum nib_activations kind)
{
	struct bed bed = {.moe = moe_problem(kind),
			  .is_moe = true,
			  .options = {.struct_bytes = sizeof(bed.options)}};
	struct nib_error err;

	assert_ok_err(nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &bed.moe, NULL,
					  &bed.plan, &err),
		      &err);
	return bed;
}

static enum nib_status run(const struct bed *bed, struct nib_error *err)
{
	if (bed->is_moe)
		return nib_moe_run(bed->plan, &bed->moe, &bed->options, err);
	return nib_run(bed->plan, bed->problems, PROBLEMS, &bed->options, err);
}

/* The backend gets the run. */
static void takes(const struct bed *bed)
{
	const int before = stub.runs;
	struct nib_error err;

	assert_ok_err(run(bed, &err), &err);
	assert_int_equal(stub.runs, before + 1);
}

/* It does not; argument is all of err's, part is in its message. */
static void refuses(const struct bed *bed, enum nib_status want, const char *argument,
		    const char *part)
{
	const int before = stub.runs;
	struct nib_error err = {.status = NIB_STATUS_OK};

	refused(run(bed, &err), want, &err, argument, part, "");
	assert_string_equal(err.argument, argument);
	assert_int_equal(stub.runs, before);
}

/* ---- pointers -------------------------------------------------------------- */

static void pointers(void **state)
{
	struct bed bed = bed_of(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_BF16);

	takes(&bed);
	bed.problems[1].x.data = NULL;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[1].x.data",
		" = NULL: must point to 1280 bytes");
	bed.problems[1].x.data = address(UINTPTR_MAX - 1278);
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[1].x.data",
		": its strides run past the end of memory");
	/* It ends before the last byte of memory. */
	bed.problems[1].x.data = address(UINTPTR_MAX - 1280);
	takes(&bed);
	/* Any alignment is taken: a backend knows what it needs. */
	bed.problems[1].x.data = address(AT(1, 5) + 1);
	takes(&bed);
	nib_plan_free(bed.plan);
	bed = bed_of_moe(NIB_ACTIVATIONS_INT8);
	takes(&bed);
	bed.moe.problem.x.data = NULL;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.problem.x.data",
		" = NULL: must point to 640 bytes");
	bed.moe.problem.x.data = address(UINTPTR_MAX - 100);
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.problem.x.data",
		": its strides run past the end of memory");
	nib_plan_free(bed.plan);
}

/* x without elements has no data. */
static void pointers_to_nothing(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct nib_problem p =
		    problem(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_FP16, 0);

		if (i == 0)
			p.x.rows = p.c.rows = 0;
		else
			p.x.cols = p.b.k = p.b2.k = 0;
		p.x.data = NULL;
		assert_ok(nib_multiply(device, NIB_OP_DUAL_GEMM, &p, 1, NULL));
	}
}

/* ---- overlaps -------------------------------------------------------------- */

/* c of problem victim next to x of problem i, and one byte into it. */
static void overlap(struct bed *bed, int victim, int i)
{
	static const int sizes[] = {4, 2, 2};
	struct nib_dense *c =
	    bed->is_moe ? &bed->moe.problem.c : &bed->problems[victim].c;
	const struct nib_dense *x =
	    bed->is_moe ? &bed->moe.problem.x : &bed->problems[i].x;
	const uintptr_t begin = (uintptr_t)x->data;
	const int64_t batch = bed->is_moe ? 1 : BATCH;
	const uintptr_t end = begin + (uintptr_t)(batch * M * K * sizes[x->dtype]);
	const uintptr_t c_bytes = (uintptr_t)(batch * M * N * 2);
	void *const kept = c->data;
	char name[32] = "moe.problem.c.data", other[32] = "overlaps moe.problem.x";

	if (!bed->is_moe) {
		snprintf(name, sizeof(name), "problems[%d].c.data", victim);
		snprintf(other, sizeof(other), "overlaps problems[%d].x ", i);
	}
	c->data = address(begin - c_bytes);
	takes(bed);
	c->data = address(begin - c_bytes + 1);
	refuses(bed, NIB_STATUS_BAD_ARGUMENT, name, other);
	refuses(bed, NIB_STATUS_BAD_ARGUMENT, name, "outputs must not overlap");
	c->data = address(end - 1);
	refuses(bed, NIB_STATUS_BAD_ARGUMENT, name, other);
	c->data = address((begin + end) / 2);
	refuses(bed, NIB_STATUS_BAD_ARGUMENT, name, other);
	c->data = address(end);
	takes(bed);
	c->data = kept;
}

static void overlaps(void **state)
{
	struct bed bed;

	for (int dtype = 0; dtype < 3; dtype++) {
		bed = bed_of(NIB_ACTIVATIONS_INT8, (enum nib_dtype)dtype);
		for (int i = 0; i < PROBLEMS * PROBLEMS; i++)
			overlap(&bed, i / PROBLEMS, i % PROBLEMS);
		nib_plan_free(bed.plan);
	}
	bed = bed_of_moe(NIB_ACTIVATIONS_DENSE);
	overlap(&bed, 0, 0);
	nib_plan_free(bed.plan);
}

/* Inputs may share memory: x of several problems, and x with weights. */
static void inputs_that_overlap(void **state)
{
	struct bed bed = bed_of(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_FP32);

	bed.problems[1].x.data = bed.problems[0].x.data;
	bed.problems[2].x.data = bed.problems[2].b.codes;
	takes(&bed);
	nib_plan_free(bed.plan);
}

/* c in a gap of x: x counts from its first byte to its last. */
static void output_in_a_gap(void **state)
{
	struct nib_problem p = problem(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_FP16, 0);
	struct nib_error err = {.status = NIB_STATUS_OK};

	p.x.batch = p.c.batch = p.b.batch = p.b2.batch = 1;
	p.x.row_stride_elems = 4096;
	p.c.data = address((uintptr_t)p.x.data + 512);
	refused(nib_multiply(device, NIB_OP_DUAL_GEMM, &p, 1, &err),
		NIB_STATUS_BAD_ARGUMENT, &err, "problems[0].c.data", "problems[0].x",
		"overlap");
	p.c.data = address((uintptr_t)p.x.data + 2 * (4 * 4096 + K));
	assert_ok(nib_multiply(device, NIB_OP_DUAL_GEMM, &p, 1, NULL));
}

/* ---- problems of another plan ---------------------------------------------- */

#define OTHERS ": its sizes, strides, type or packing are not those"

/* Changes x of a problem to another valid one; false without change i. */
static bool change_x(struct nib_problem *p, int i)
{
	switch (i) {
	case 0:
		p->x.row_stride_elems = K + 1;
		return true;
	case 1:
		p->x.batch_stride_elems = M * K + 1;
		return true;
	case 2:
		p->x.dtype = NIB_DTYPE_FP32;
		return true;
	case 3:
		p->x.rows = p->c.rows = M - 1;
		return true;
	case 4:
		p->x.cols = p->b.k = p->b2.k = K / 2;
		return true;
	case 5:
		p->x.batch = p->c.batch = p->b.batch = p->b2.batch = 1;
		return true;
	default:
		return false;
	}
}

static void plans_of_others(void **state)
{
	struct bed bed = bed_of(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_FP16);
	const struct nib_problem good = bed.problems[1];

	for (int i = 0; change_x(&bed.problems[1], i); i++) {
		refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[1].x", OTHERS);
		bed.problems[1] = good;
	}
	bed.problems[1].activations = NIB_ACTIVATIONS_INT8;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[1].activations",
		" = 2: must be the plan's, 1");
	bed.problems[1].activations = NIB_ACTIVATIONS_NVFP4;
	bed.problems[1].a = weights(1, 6, BATCH);
	bed.problems[1].a.rows = M;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[1].activations",
		" = 0: must be the plan's, 1");
	/* Zeros and what they stand for are the same to a plan. */
	bed.problems[1] = good;
	bed.problems[1].x.row_stride_elems = K;
	bed.problems[1].x.batch_stride_elems = M * K;
	takes(&bed);
	nib_plan_free(bed.plan);
}

static void plans_of_other_experts(void **state)
{
	struct bed bed = bed_of_moe(NIB_ACTIVATIONS_INT8);
	const struct nib_moe_problem good = bed.moe;
	const int32_t scale_rows[EXPERTS] = {0};

	/* Only the stride of the rows: one batch has any. */
	bed.moe.problem.x.row_stride_elems = K + 1;
	bed.moe.problem.x.batch_stride_elems = M * K;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.problem.x", OTHERS);
	bed.moe = good;
	bed.moe.problem.x.dtype = NIB_DTYPE_FP32;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.problem.x", OTHERS);
	bed.moe = good;
	bed.moe.problem.activations = NIB_ACTIVATIONS_DENSE;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.problem.activations",
		" = 1: must be the plan's, 2");
	bed.moe = good;
	bed.moe.scale_rows = scale_rows;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.scale_rows", "must be NULL");
	bed.moe = good;
	takes(&bed);
	nib_plan_free(bed.plan);
}

/* ---- what is read ---------------------------------------------------------- */

static void offsets(void **state)
{
	static const int32_t beyond[EXPERTS + 1] = {0, 2, 2, M + 1};
	struct bed bed = bed_of_moe(NIB_ACTIVATIONS_DENSE);

	bed.moe.row_offsets = beyond;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.row_offsets",
		"[2..] = 2, 6: must ascend within 0 to x.rows = 5");
	nib_plan_free(bed.plan);
}

/* Signs are looked for in the scales of weights; x has none, a is no input. */
static void signs(void **state)
{
	static uint8_t scales[EXPERTS * N * K / NIB_NVFP4_BLOCK];
	struct bed beds[] = {bed_of(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_FP16),
			     bed_of_moe(NIB_ACTIVATIONS_DENSE)};

	for (int i = 0; i < PROBLEMS; i++)
		beds[0].problems[i].b.scales = beds[0].problems[i].b2.scales = scales;
	beds[1].moe.problem.b.scales = beds[1].moe.problem.b2.scales = scales;
	for (size_t i = 0; i < COUNT(beds); i++) {
		beds[i].options.check_data = 1;
		takes(&beds[i]);
		scales[5] = 0xb8;
		refuses(&beds[i], NIB_STATUS_BAD_DATA,
			i ? "moe.problem.b.scales" : "problems[0].b.scales",
			": batch 0, row 1, group 1 is 0xb8");
		scales[5] = 0;
		nib_plan_free(beds[i].plan);
	}
}

/* What the backend gets: x as given, and no pointer of a. */
static void resolved_problems(void **state)
{
	struct bed bed = bed_of(NIB_ACTIVATIONS_INT8, NIB_DTYPE_FP16);

	takes(&bed);
	for (int i = 0; i < PROBLEMS; i++) {
		const struct nib_problem *p = &stub.problems[i];

		assert_ptr_equal(p->x.data, address(AT(i, 5)));
		assert_int_equal(p->x.row_stride_elems, K);
		assert_int_equal(p->x.batch_stride_elems, M * K);
		assert_int_equal(p->activations, NIB_ACTIVATIONS_INT8);
		assert_null(p->a.codes);
		assert_null(p->a.scales);
		assert_int_equal(p->a.rows, M);
		assert_int_equal(p->a.k, K);
		assert_int_equal(p->a.batch, BATCH);
	}
	nib_plan_free(bed.plan);
	bed = bed_of_moe(NIB_ACTIVATIONS_DENSE);
	takes(&bed);
	assert_ptr_equal(stub.moe.problem.x.data, address(AT(0, 5)));
	assert_int_equal(stub.moe.problem.x.row_stride_elems, K);
	assert_null(stub.moe.problem.a.codes);
	assert_null(stub.moe.problem.a.scales);
	assert_int_equal(stub.moe.problem.a.rows, M);
	nib_plan_free(bed.plan);
}

/* A product of NVFP4 has the same bits whatever is in x. */
static void garbage_in_x(void **state)
{
	const struct job_spec spec = {
	    .op = NIB_OP_DUAL_GEMM, .m = M, .n = N, .k = K, .batch = 2};
	struct nib_device *cpu = test_device("scalar", 2);
	const struct job_how how = {.device = cpu};
	struct job *job = job_of(&rng, &spec);
	struct bits bits;

	job_run(job, &how, "x of zeros");
	bits = job_bits(job);
	memset(&job->problems[0].x, 0xff, sizeof(job->problems[0].x));
	job_run(job, &how, "x of garbage");
	job_has_bits(job, &bits, "x of garbage");
	job_check(job, "x of garbage");
	bits_free(&bits);
	job_free(job);
	nib_device_close(cpu);
}

/* ---- runs on memory of the device's own ------------------------------------ */

static void repeats(const struct bed *bed, bool is_repeated)
{
	takes(bed);
	assert_int_equal(stub.is_repeated, is_repeated);
}

static void repeated_runs(void **state)
{
	struct nib_device *host = device, *gpu = stub_open(false);
	struct bed bed;

	device = gpu;
	bed = bed_of(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_FP16);
	repeats(&bed, false);
	repeats(&bed, true);
	bed.problems[1].x.data = address(AT(1, 7));
	repeats(&bed, false);
	assert_ptr_equal(stub.problems[1].x.data, address(AT(1, 7)));
	repeats(&bed, true);
	assert_ptr_equal(stub.problems[1].x.data, address(AT(1, 7)));
	/* What is refused is not remembered. */
	bed.problems[1].x.data = bed.problems[2].c.data;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[2].c.data", "problems[1].x ");
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[2].c.data", "problems[1].x ");
	bed.problems[1].x.data = address(AT(1, 7));
	repeats(&bed, false);
	/* Another kind of A with the same bytes else. */
	bed.problems[1].activations = NIB_ACTIVATIONS_INT8;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "problems[1].activations",
		" = 2: must be the plan's, 1");
	nib_plan_free(bed.plan);
	bed = bed_of_moe(NIB_ACTIVATIONS_DENSE);
	repeats(&bed, false);
	repeats(&bed, true);
	bed.moe.problem.x.data = address(AT(1, 7));
	repeats(&bed, false);
	assert_ptr_equal(stub.moe.problem.x.data, address(AT(1, 7)));
	bed.moe.problem.activations = NIB_ACTIVATIONS_INT8;
	refuses(&bed, NIB_STATUS_BAD_ARGUMENT, "moe.problem.activations",
		" = 2: must be the plan's, 1");
	nib_plan_free(bed.plan);
	nib_device_close(gpu);
	device = host;
}

static int open_stub(void **state)
{
	rng = rng_new(test_seed());
	device = stub_open(true);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(pointers),
	    cmocka_unit_test(pointers_to_nothing),
	    cmocka_unit_test(overlaps),
	    cmocka_unit_test(inputs_that_overlap),
	    cmocka_unit_test(output_in_a_gap),
	    cmocka_unit_test(plans_of_others),
	    cmocka_unit_test(plans_of_other_experts),
	    cmocka_unit_test(offsets),
	    cmocka_unit_test(signs),
	    cmocka_unit_test(resolved_problems),
	    cmocka_unit_test(garbage_in_x),
	    cmocka_unit_test(repeated_runs),
	};

	return cmocka_run_group_tests(tests, open_stub, close_device);
}
