/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_activations.c - problems whose A is the dense view x: what plans accept and
 * refuse, and their costs.  The device computes nothing (common/stub_backend.h),
 * because the plans of all backends pass the same checks.  test_activations_run.c
 * tests runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "common/arguments.h"
#include "common/stub_backend.h"
#include "common/unit.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TWO_40	     (INT64_C(1) << 40)

enum { M = 5, N = 7, K = 64, BATCH = 2, EXPERTS = 3 };

static const enum nib_activations kinds[] = {NIB_ACTIVATIONS_DENSE,
					     NIB_ACTIVATIONS_INT8};

/* The view a is garbage. */
static struct nib_problem problem(enum nib_activations kind)
{
	struct nib_problem p = {
	    .b = {.rows = N, .k = K, .batch = BATCH},
	    .b2 = {.rows = N, .k = K, .batch = BATCH},
	    .c = {.dtype = NIB_DTYPE_BF16, .rows = M, .cols = N, .batch = BATCH},
	    .x = {.dtype = NIB_DTYPE_FP16, .rows = M, .cols = K, .batch = BATCH},
	    .activations = kind,
	};

	memset(&p.a, 0xff, sizeof(p.a));
	return p;
}

static struct nib_moe_problem moe_problem(enum nib_activations kind)
{
	struct nib_moe_problem moe = {
	    .problem.b = {.rows = N, .k = K, .batch = EXPERTS},
	    .problem.b2 = {.rows = N, .k = K, .batch = EXPERTS},
	    .problem.c = {.dtype = NIB_DTYPE_BF16, .rows = M, .cols = N},
	    .problem.x = {.dtype = NIB_DTYPE_FP16, .rows = M, .cols = K},
	    .problem.activations = kind,
	};

	memset(&moe.problem.a, 0xff, sizeof(moe.problem.a));
	return moe;
}

/* The whole message, and the argument that it begins with. */
static void says(const struct nib_error *err, enum nib_status want, const char *message)
{
	const size_t length = strlen(err->argument);

	if (err->status != want || strcmp(err->message, message) != 0)
		fail_msg("%s: '%s', wanted %s: '%s'", nib_status_name(err->status),
			 err->message, nib_status_name(want), message);
	assert_true(length > 0);
	assert_memory_equal(err->argument, message, length);
	assert_true(strchr(" :[", message[length]) != NULL);
}

static void refuses(enum nib_op op, const struct nib_problem *problems, int64_t count,
		    enum nib_status want, const char *message)
{
	struct nib_plan *plan = (struct nib_plan *)(uintptr_t)8;
	struct nib_error err = {.status = NIB_STATUS_OK};

	assert_int_equal(
	    nib_plan_create(device, op, problems, count, NULL, &plan, &err), want);
	says(&err, want, message);
	assert_null(plan);
	/* The oracle goes by the same rules. */
	err.status = NIB_STATUS_OK;
	assert_int_equal(nib_reference(op, problems, count, &err), want);
	says(&err, want, message);
}

static void refuses_moe(enum nib_op op, const struct nib_moe_problem *moe,
			const char *message)
{
	struct nib_plan *plan = (struct nib_plan *)(uintptr_t)8;
	struct nib_error err = {.status = NIB_STATUS_OK};

	assert_int_equal(nib_moe_plan_create(device, op, moe, NULL, &plan, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	says(&err, NIB_STATUS_BAD_ARGUMENT, message);
	assert_null(plan);
	err.status = NIB_STATUS_OK;
	assert_int_equal(nib_moe_reference(op, moe, &err), NIB_STATUS_BAD_ARGUMENT);
	says(&err, NIB_STATUS_BAD_ARGUMENT, message);
}

/* ---- one field ----------------------------------------------------------- */

struct field_case {
	size_t at;
	bool is_enum;
	int64_t value;
	const char *message; /* after the problem's name */
};

#define FIELD(field, value, message)                                                   \
	{                                                                              \
		offsetof(struct nib_problem, field), false, value, message             \
	}
#define ENUM(field, value, message)                                                    \
	{                                                                              \
		offsetof(struct nib_problem, field), true, value, message              \
	}

#define TYPES ": must be NIB_DTYPE_FP32 (0), NIB_DTYPE_FP16 (1) or NIB_DTYPE_BF16 (2)"
#define KINDS                                                                          \
	": must be NIB_ACTIVATIONS_NVFP4 (0), NIB_ACTIVATIONS_DENSE (1) or "           \
	"NIB_ACTIVATIONS_INT8 (2)"

static const struct field_case cases[] = {
    FIELD(x.rows, -1, "x.rows = -1: must be 0 to 2^40"),
    FIELD(x.rows, TWO_40 + 1, "x.rows = 1099511627777: must be 0 to 2^40"),
    FIELD(x.rows, INT64_MIN, "x.rows = -9223372036854775808: must be 0 to 2^40"),
    FIELD(x.cols, -16, "x.cols = -16: must be 0 to 2^40"),
    FIELD(x.cols, INT64_MAX, "x.cols = 9223372036854775807: must be 0 to 2^40"),
    FIELD(x.cols, 8, "x.cols = 8: k must be a multiple of 16, 0 to 1048576"),
    FIELD(x.cols, 65, "x.cols = 65: k must be a multiple of 16, 0 to 1048576"),
    FIELD(x.cols, NIB_MAX_K + 16,
	  "x.cols = 1048592: k must be a multiple of 16, 0 to 1048576"),
    FIELD(x.batch, -1, "x.batch = -1: must be 0 to 2^40"),
    FIELD(x.batch, TWO_40 + 1, "x.batch = 1099511627777: must be 0 to 2^40"),
    FIELD(x.row_stride_elems, 63,
	  "x.row_stride_elems = 63: must be 0 (dense) or at least 64"),
    FIELD(x.row_stride_elems, -64,
	  "x.row_stride_elems = -64: must be 0 (dense) or at least 64"),
    FIELD(x.row_stride_elems, INT64_MAX,
	  "x.row_stride_elems = 9223372036854775807 times 5: must stay below "
	  "2^62 bytes"),
    /* Elements of 4 bytes, of which 2^57 * 5 rows * 2 batches are too many. */
    FIELD(x.row_stride_elems, INT64_C(1) << 57,
	  "x.batch_stride_elems = 720575940379279360 times 8: must stay below "
	  "2^62 bytes"),
    FIELD(x.batch_stride_elems, 319,
	  "x.batch_stride_elems = 319: must be 0 (dense) or at least 320"),
    FIELD(x.batch_stride_elems, -320,
	  "x.batch_stride_elems = -320: must be 0 (dense) or at least 320"),
    ENUM(x.dtype, 3, "x.dtype = 3" TYPES),
    ENUM(x.dtype, -1, "x.dtype = -1" TYPES),
    ENUM(activations, 3, "activations = 3" KINDS),
    ENUM(activations, -1, "activations = -1" KINDS),
    ENUM(activations, INT32_MAX, "activations = 2147483647" KINDS),
    /* Right by themselves, but not together. */
    FIELD(x.rows, 4, "c.rows = 5: must be x.rows = 4"),
    FIELD(x.cols, 48, "b.k = 64: must be x.cols = 48"),
    FIELD(x.batch, 1, "b.batch = 2: must be 1 or x.batch = 1"),
    FIELD(b.k, 80, "b.k = 80: must be x.cols = 64"),
    FIELD(b.batch, 3, "b.batch = 3: must be 1 or x.batch = 2"),
    FIELD(b2.k, 48, "b2.k = 48: must be x.cols = 64"),
    FIELD(b2.batch, 3, "b2.batch = 3: must be 1 or x.batch = 2"),
    FIELD(c.rows, 6, "c.rows = 6: must be x.rows = 5"),
    FIELD(c.batch, 1, "c.batch = 1: must be x.batch = 2"),
};

static void set_field(void *at, bool is_enum, int64_t value)
{
	const int narrow = (int)value;

	if (is_enum)
		memcpy(at, &narrow, sizeof(narrow));
	else
		memcpy(at, &value, sizeof(value));
}

static void fields_of_problems(void **state)
{
	char message[256];

	for (size_t i = 0; i < COUNT(kinds) * COUNT(cases); i++) {
		const enum nib_activations kind = kinds[i % COUNT(kinds)];
		const struct field_case *c = &cases[i / COUNT(kinds)];
		struct nib_problem problems[3] = {problem(kind), problem(kind),
						  problem(kind)};

		set_field((char *)&problems[1] + c->at, c->is_enum, c->value);
		snprintf(message, sizeof(message), "problems[1].%s", c->message);
		refuses(NIB_OP_DUAL_GEMM, problems, 3, NIB_STATUS_BAD_ARGUMENT,
			message);
	}
}

static void reserved_words(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct nib_problem p = problem(NIB_ACTIVATIONS_DENSE);
		struct nib_moe_problem moe = moe_problem(NIB_ACTIVATIONS_INT8);
		struct nib_plan *plan;
		struct nib_error err;
		char message[80];

		p.x.reserved[i] = moe.problem.x.reserved[i] = 10;
		snprintf(message, sizeof(message),
			 "problems[0].x.reserved[%d] = 0xa: must be 0 in this "
			 "version",
			 i);
		refuses(NIB_OP_GEMM, &p, 1, NIB_STATUS_UNSUPPORTED, message);
		assert_int_equal(
		    nib_moe_plan_create(device, NIB_OP_GEMM, &moe, NULL, &plan, &err),
		    NIB_STATUS_UNSUPPORTED);
		snprintf(message, sizeof(message),
			 "moe.problem.x.reserved[%d] = 0xa: must be 0 in this version",
			 i);
		says(&err, NIB_STATUS_UNSUPPORTED, message);
	}
}

static void one_row_for_gemv(void **state)
{
	struct nib_problem p = problem(NIB_ACTIVATIONS_DENSE);

	refuses(NIB_OP_GEMV, &p, 1, NIB_STATUS_BAD_ARGUMENT,
		"problems[0].x.rows = 5: must be 1 for NIB_OP_GEMV");
}

/* A of all problems is of one kind, and of one type. */
static void groups_of_two_kinds(void **state)
{
	struct nib_problem problems[3] = {problem(NIB_ACTIVATIONS_DENSE),
					  problem(NIB_ACTIVATIONS_DENSE),
					  problem(NIB_ACTIVATIONS_DENSE)};

	problems[2].x.dtype = NIB_DTYPE_BF16;
	refuses(NIB_OP_GEMM, problems, 3, NIB_STATUS_BAD_ARGUMENT,
		"problems[2].x.dtype = 2: must be problems[0]'s, 1");
	problems[1].activations = NIB_ACTIVATIONS_INT8;
	refuses(NIB_OP_GEMM, problems, 3, NIB_STATUS_BAD_ARGUMENT,
		"problems[1].activations = 2: must be problems[0]'s, 1");
	problems[1].activations = NIB_ACTIVATIONS_NVFP4;
	problems[1].a = (struct nib_fp4){.rows = M, .k = K, .batch = BATCH};
	refuses(NIB_OP_GEMM, problems, 3, NIB_STATUS_BAD_ARGUMENT,
		"problems[1].activations = 0: must be problems[0]'s, 1");
	problems[0] = problems[1];
	refuses(NIB_OP_GEMM, problems, 3, NIB_STATUS_BAD_ARGUMENT,
		"problems[2].activations = 1: must be problems[0]'s, 0");
}

/* ---- mixtures of experts --------------------------------------------------- */

static void fields_of_experts(void **state)
{
	static const int32_t scale_rows[EXPERTS];
	struct nib_moe_problem good, moe;
	char message[128];

	for (size_t i = 0; i < COUNT(kinds); i++) {
		good = moe_problem(kinds[i]);
#define REFUSES(field, value, text)                                                    \
	do {                                                                           \
		moe = good;                                                            \
		moe.field = value;                                                     \
		refuses_moe(NIB_OP_DUAL_GEMM, &moe, text);                             \
	} while (0)
		REFUSES(problem.x.rows, -1,
			"moe.problem.x.rows = -1: must be 0 to 2^40");
		REFUSES(problem.x.cols, 72,
			"moe.problem.x.cols = 72: k must be a multiple of 16, 0 to "
			"1048576");
		REFUSES(problem.x.row_stride_elems, 63,
			"moe.problem.x.row_stride_elems = 63: must be 0 (dense) or at "
			"least 64");
		REFUSES(problem.x.dtype, (enum nib_dtype)5,
			"moe.problem.x.dtype = 5" TYPES);
		REFUSES(problem.activations, (enum nib_activations)9,
			"moe.problem.activations = 9" KINDS);
		REFUSES(problem.b.k, 48, "moe.problem.b.k = 48: must be x.cols = 64");
		REFUSES(problem.b2.k, 80, "moe.problem.b2.k = 80: must be x.cols = 64");
		REFUSES(problem.b2.batch, 2,
			"moe.problem.b2.batch = 2: must be moe.problem.b.batch = "
			"3");
		REFUSES(problem.x.batch, 2,
			"moe.problem.c = [5, 7] x 1: must have x.rows = 5 rows, and x "
			"and c batch 1");
		REFUSES(problem.x.rows, 4,
			"moe.problem.c = [5, 7] x 1: must have x.rows = 4 rows, and x "
			"and c batch 1");
		snprintf(message, sizeof(message),
			 "moe.scale_rows = %p: must be NULL if A is moe.problem.x, "
			 "which has no scales",
			 (const void *)scale_rows);
		REFUSES(scale_rows, scale_rows, message);
		moe = good;
		moe.problem.x.rows = moe.problem.c.rows = INT64_C(1) << 31;
		refuses_moe(NIB_OP_DUAL_GEMM, &moe,
			    "moe: 3 experts, 2147483648 rows: both must be "
			    "below 2^31");
#undef REFUSES
	}
}

/* ---- what is taken --------------------------------------------------------- */

/* A plan of one problem; the caller frees it. */
static struct nib_plan *plan_of(enum nib_op op, const struct nib_problem *p)
{
	struct nib_plan *plan;
	struct nib_error err;

	assert_ok_err(nib_plan_create(device, op, p, 1, NULL, &plan, &err), &err);
	return plan;
}

/* x is resolved, and a has its sizes, dense and without data. */
static void has_x(const struct nib_fp4 *a, const struct nib_dense *x,
		  const struct nib_dense *given, int64_t row_stride, int64_t batch,
		  int64_t batch_stride)
{
	assert_int_equal(x->rows, given->rows);
	assert_int_equal(x->cols, given->cols);
	assert_int_equal(x->dtype, given->dtype);
	assert_int_equal(x->row_stride_elems, row_stride);
	assert_int_equal(x->batch, batch);
	assert_int_equal(x->batch_stride_elems, batch_stride);
	assert_int_equal(a->rows, given->rows);
	assert_int_equal(a->k, given->cols);
	assert_int_equal(a->batch, batch);
	assert_int_equal(a->row_stride_bytes, given->cols / 2);
	assert_null(a->codes);
	assert_null(a->scales);
}

static void sizes_and_strides(void **state)
{
	static const struct {
		int64_t rows, cols, batch, row_stride, batch_stride;
		int64_t want_row, want_batch;
	} taken[] = {
	    {M, K, BATCH, 0, 0, K, M * K},
	    {M, K, BATCH, 71, 0, 71, M * 71},
	    {M, K, BATCH, 71, 4 * 71 + K, 71, 4 * 71 + K},
	    /* [rows, batch, k] */
	    {M, K, BATCH, 2 * K, K, 2 * K, K},
	    {0, K, BATCH, 0, 0, K, 0},
	    {1, NIB_MAX_K, 1, 0, 0, NIB_MAX_K, NIB_MAX_K},
	    {M, 0, 1, 0, 0, 0, 0},
	    {M, 16, 0, 0, 0, 16, M * 16},
	};

	for (size_t i = 0; i < COUNT(taken); i++) {
		struct nib_problem p = problem(kinds[i % 2]);
		const int64_t batch = taken[i].batch ? taken[i].batch : 1;
		struct nib_plan *plan;

		p.x.dtype = (enum nib_dtype)(i % 3);
		p.x.rows = p.c.rows = taken[i].rows;
		p.x.cols = p.b.k = p.b2.k = taken[i].cols;
		p.x.batch = p.c.batch = p.b.batch = taken[i].batch;
		p.b2.batch = 1;
		p.x.row_stride_elems = taken[i].row_stride;
		p.x.batch_stride_elems = taken[i].batch_stride;
		plan = plan_of(NIB_OP_DUAL_GEMM, &p);
		has_x(&plan->problems->a, &plan->problems->x, &p.x, taken[i].want_row,
		      batch, taken[i].want_batch);
		assert_int_equal(nib_plan_activations(plan), p.activations);
		assert_int_equal(nib_plan_x_dtype(plan), p.x.dtype);
		nib_plan_free(plan);
	}
}

/* NVFP4 ignores every byte of x, garbage in reserved fields included. */
static void unused_x(void **state)
{
	static const struct nib_dense zero;
	struct nib_problem p = problem(NIB_ACTIVATIONS_NVFP4);
	struct nib_moe_problem moe = moe_problem(NIB_ACTIVATIONS_NVFP4);
	struct nib_plan *plan;

	p.a = (struct nib_fp4){.rows = M, .k = K, .batch = BATCH};
	memset(&p.x, 0xff, sizeof(p.x));
	plan = plan_of(NIB_OP_GEMM, &p);
	assert_memory_equal(&plan->problems->x, &zero, sizeof(zero));
	nib_plan_free(plan);
	moe.problem.a = (struct nib_fp4){.rows = M, .k = K};
	memset(&moe.problem.x, 0xff, sizeof(moe.problem.x));
	assert_ok(nib_moe_plan_create(device, NIB_OP_GEMM, &moe, NULL, &plan, NULL));
	assert_memory_equal(&plan->moe.problem.x, &zero, sizeof(zero));
	nib_plan_free(plan);
}

static void experts(void **state)
{
	struct nib_moe_problem moe = moe_problem(NIB_ACTIVATIONS_DENSE);
	struct nib_plan *plan;

	moe.problem.x.row_stride_elems = 80;
	assert_ok(
	    nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &moe, NULL, &plan, NULL));
	has_x(&plan->moe.problem.a, &plan->moe.problem.x, &moe.problem.x, 80, 1,
	      5 * 80);
	assert_null(plan->moe.scale_rows);
	assert_int_equal(nib_plan_activations(plan), NIB_ACTIVATIONS_DENSE);
	assert_int_equal(nib_plan_x_dtype(plan), NIB_DTYPE_FP16);
	nib_plan_free(plan);
}

/* ---- costs ----------------------------------------------------------------- */

static void has_costs(struct nib_plan *plan, double flop, double bytes)
{
	const struct nib_plan_info info = test_plan_info(plan);

	if (info.flop != flop || info.bytes != bytes)
		fail_msg("%g flop, %g bytes; wanted %g, %g", info.flop, info.bytes,
			 flop, bytes);
	nib_plan_free(plan);
}

/* x counts as it is stored, whatever a run rounds it to. */
static void costs(void **state)
{
	for (int i = 0; i < 6; i++) {
		struct nib_problem p = problem(kinds[i % 2]);
		struct nib_moe_problem moe = moe_problem(kinds[i % 2]);
		const int x_bytes = i / 2 == NIB_DTYPE_FP32 ? 4 : 2;
		const double weights = N * K * 9 / 16;
		struct nib_plan *plan;

		p.x.dtype = moe.problem.x.dtype = (enum nib_dtype)(i / 2);
		has_costs(plan_of(NIB_OP_GEMM, &p), 2.0 * BATCH * M * N * K,
			  BATCH * (M * K * x_bytes + weights + M * N * 2));
		p.b2.batch = 1;
		has_costs(plan_of(NIB_OP_DUAL_GEMM, &p), 4.0 * BATCH * M * N * K,
			  BATCH * (M * K * x_bytes + weights + M * N * 2) + weights);
		assert_ok(
		    nib_moe_plan_create(device, NIB_OP_GEMM, &moe, NULL, &plan, NULL));
		has_costs(plan, 2.0 * M * N * K,
			  M * K * x_bytes + EXPERTS * weights + M * N * 2);
	}
}

static int open_stub(void **state)
{
	device = stub_open(true);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(fields_of_problems),
	    cmocka_unit_test(reserved_words),
	    cmocka_unit_test(one_row_for_gemv),
	    cmocka_unit_test(groups_of_two_kinds),
	    cmocka_unit_test(fields_of_experts),
	    cmocka_unit_test(sizes_and_strides),
	    cmocka_unit_test(unused_x),
	    cmocka_unit_test(experts),
	    cmocka_unit_test(costs),
	};

	return cmocka_run_group_tests(tests, open_stub, close_device);
}
