/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_abi.c - callers that were compiled against another 0.2.  The sizes of 0.2.0
 * are recorded here as numbers and must keep working.  Longer structs are refused
 * exactly if the part that is not known here is not zero.  Reserved fields must be
 * zero.
 */
#include <stdio.h>
#include <string.h>

#include "common/arguments.h"
#include "common/unit.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Structs that callers put into arrays and into each other: fixed sizes. */
_Static_assert(sizeof(struct nib_error) == 352, "nib_error");
_Static_assert(sizeof(struct nib_fp4) == 120, "nib_fp4");
_Static_assert(sizeof(struct nib_dense) == 88, "nib_dense");
_Static_assert(sizeof(struct nib_problem) == 608, "nib_problem");
_Static_assert(sizeof(struct nib_moe_problem) == 664, "nib_moe_problem");

/* ---- structs with struct_bytes ------------------------------------------- */

/* One value of each 4-bit code and scale, and a result of 1 x 1. */
static uint8_t codes[8], scales[1];
static float number[16];
static struct nib_plan *plan;

static struct nib_fp4 view(void)
{
	return (struct nib_fp4){.codes = codes, .scales = scales, .rows = 1, .k = 16};
}

static struct nib_dense dense(int64_t cols)
{
	return (struct nib_dense){.data = number, .rows = 1, .cols = cols};
}

static struct nib_problem problem(void)
{
	return (struct nib_problem){.a = view(), .b = view(), .c = dense(1)};
}

static enum nib_status call_open(void *options, struct nib_error *err)
{
	struct nib_device *other;
	enum nib_status status = nib_device_open("cpu", options, &other, err);

	nib_device_close(other);
	return status;
}

static enum nib_status call_plan(void *options, struct nib_error *err)
{
	const struct nib_problem p = problem();
	struct nib_plan *other;
	enum nib_status status =
	    nib_plan_create(device, NIB_OP_GEMM, &p, 1, options, &other, err);

	nib_plan_free(other);
	return status;
}

static enum nib_status call_run(void *options, struct nib_error *err)
{
	const struct nib_problem p = problem();

	return nib_run(plan, &p, 1, options, err);
}

static enum nib_status call_check(void *options, struct nib_error *err)
{
	const struct nib_problem p = problem();
	struct nib_check_result result = {.struct_bytes = sizeof(result)};

	return nib_check(NIB_OP_GEMM, &p, 1, options, &result, err);
}

static enum nib_status call_quantize(void *options, struct nib_error *err)
{
	const struct nib_dense x = dense(16);
	const struct nib_fp4 q = view();

	return nib_quantize(device, &x, &q, options, NULL, err);
}

static enum nib_status call_dequantize(void *options, struct nib_error *err)
{
	const struct nib_dense y = dense(16);
	const struct nib_fp4 q = view();

	return nib_dequantize(device, &q, 1, &y, options, err);
}

static enum nib_status call_convert(void *options, struct nib_error *err)
{
	uint8_t tiled[512];
	const struct nib_fp4 from = view();
	struct nib_fp4 to = view();

	to.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	to.scales = tiled;
	return nib_convert_scales(device, &from, &to, options, err);
}

static enum nib_status call_expert_rows(void *options, struct nib_error *err)
{
	const int32_t ends[] = {3};
	int32_t offsets[2];

	return nib_moe_expert_rows(device, ends, 1, offsets, NULL, options, err);
}

static enum nib_status call_pack(void *options, struct nib_error *err)
{
	const struct nib_fp4 b = view();
	struct nib_packed *packed;
	const enum nib_status status = nib_pack(device, &b, options, &packed, err);

	nib_packed_free(packed);
	return status;
}

static enum nib_status call_amax(void *options, struct nib_error *err)
{
	const struct nib_dense x = dense(16);
	float amax;

	return nib_amax(device, &x, 0, options, &amax, err);
}

static enum nib_status call_copy(void *options, struct nib_error *err)
{
	char from[8] = {0}, to[8];

	return nib_device_copy(device, to, from, sizeof(to), options, err);
}

static enum nib_status call_device_info(void *info, struct nib_error *err)
{
	return nib_device_get_info(device, info, err);
}

static enum nib_status call_backend_info(void *info, struct nib_error *err)
{
	return nib_backend_get_info(0, info, err);
}

static enum nib_status call_plan_info(void *info, struct nib_error *err)
{
	return nib_plan_get_info(plan, info, err);
}

static struct nib_moe_layer small_layer(void)
{
	static float y[16];
	static uint8_t weights[128], weight_scales[16];
	static int32_t id;
	const struct nib_fp4 stack = {
	    .codes = weights, .scales = weight_scales, .rows = 16, .k = 16};

	return (struct nib_moe_layer){
	    .x = dense(16),
	    .activations = NIB_ACTIVATIONS_DENSE,
	    .ids = &id,
	    .ids_bytes = 4,
	    .top_k = 1,
	    .gate = stack,
	    .up = stack,
	    .down = stack,
	    .y = {.data = y, .rows = 1, .cols = 16},
	};
}

static enum nib_status call_layer_info(void *info, struct nib_error *err)
{
	const struct nib_moe_layer layer = small_layer();
	struct nib_moe_layer_plan *other;
	enum nib_status status;

	status = nib_moe_layer_plan_create(device, &layer, NULL, &other, err);
	if (!status)
		status = nib_moe_layer_plan_get_info(other, info, err);
	nib_moe_layer_plan_free(other);
	return status;
}

static enum nib_status call_check_result(void *result, struct nib_error *err)
{
	const struct nib_problem p = problem();

	return nib_check(NIB_OP_GEMM, &p, 1, NULL, result, err);
}

#define ENTRY(name, bytes, call)                                                       \
	{                                                                              \
#name, bytes, sizeof(struct name), call                                \
	}

/* Written by the library: info; else read by it. */
struct entry {
	const char *name;
	size_t bytes; /* of 0.2.0 */
	size_t here;
	enum nib_status (*call)(void *theirs, struct nib_error *err);
};

static const struct entry options[] = {
    ENTRY(nib_device_options, 40, call_open),
    ENTRY(nib_plan_options, 16, call_plan),
    ENTRY(nib_run_options, 40, call_run),
    ENTRY(nib_check_options, 32, call_check),
    ENTRY(nib_quantize_options, 40, call_quantize),
    ENTRY(nib_dequantize_options, 24, call_dequantize),
    ENTRY(nib_call_options, 16, call_convert),
    ENTRY(nib_call_options, 16, call_expert_rows),
    ENTRY(nib_call_options, 16, call_pack),
    ENTRY(nib_call_options, 16, call_amax),
    ENTRY(nib_call_options, 16, call_copy),
};

static const struct entry infos[] = {
    ENTRY(nib_device_info, 272, call_device_info),
    ENTRY(nib_backend_info, 152, call_backend_info),
    ENTRY(nib_plan_info, 80, call_plan_info),
    ENTRY(nib_moe_layer_plan_info, 32, call_layer_info),
    ENTRY(nib_check_result, 96, call_check_result),
};

/* A caller's struct, zero but for its size, and the bytes after it. */
struct theirs {
	size_t struct_bytes;
	unsigned char rest[1024];
};

static void expect(const struct entry *e, struct theirs *theirs, enum nib_status want,
		   const char *argument)
{
	struct nib_error err = {.status = NIB_STATUS_OK};
	const enum nib_status status = e->call(theirs, &err);

	if (status != want || strcmp(err.argument, argument) != 0)
		fail_msg("%s of %zu bytes: %s, '%s'; wanted %s, '%s'", e->name,
			 theirs->struct_bytes, nib_status_name(status), err.message,
			 nib_status_name(want), argument);
}

static void callers_of_0_2_0(void **state)
{
	for (size_t i = 0; i < COUNT(options); i++) {
		/* Garbage after the caller's struct is not looked at. */
		struct theirs theirs = {.struct_bytes = options[i].bytes};

		assert_true(options[i].here >= options[i].bytes);
		memset((char *)&theirs + options[i].bytes, 0xA5,
		       sizeof(theirs) - options[i].bytes);
		expect(&options[i], &theirs, NIB_STATUS_OK, "");
	}
	for (size_t i = 0; i < COUNT(infos); i++) {
		struct theirs theirs = {.struct_bytes = infos[i].bytes};
		const unsigned char *bytes = (unsigned char *)&theirs;

		assert_true(infos[i].here >= infos[i].bytes);
		memset((char *)&theirs + infos[i].bytes, 0xA5,
		       sizeof(theirs) - infos[i].bytes);
		expect(&infos[i], &theirs, NIB_STATUS_OK, "");
		assert_int_equal(theirs.struct_bytes, infos[i].bytes);
		for (size_t j = infos[i].bytes; j < sizeof(theirs); j++)
			assert_int_equal(bytes[j], 0xA5);
	}
}

/* Fields that this version does not know are refused only if they are set. */
static void callers_of_later_versions(void **state)
{
	for (size_t i = 0; i < COUNT(options); i++) {
		struct theirs theirs = {.struct_bytes = options[i].here + 64};

		expect(&options[i], &theirs, NIB_STATUS_OK, "");
		for (size_t j = options[i].here; j < options[i].here + 64; j += 21) {
			((unsigned char *)&theirs)[j] = 1;
			expect(&options[i], &theirs, NIB_STATUS_UNSUPPORTED,
			       "options.struct_bytes");
			((unsigned char *)&theirs)[j] = 0;
		}
	}
	for (size_t i = 0; i < COUNT(infos); i++) {
		struct theirs theirs = {.struct_bytes = infos[i].here + 64};

		expect(&infos[i], &theirs, NIB_STATUS_OK, "");
		assert_int_equal(theirs.struct_bytes, infos[i].here + 64);
		for (size_t j = infos[i].here; j < infos[i].here + 64; j++)
			assert_int_equal(((unsigned char *)&theirs)[j], 0);
	}
}

/* struct_bytes that was never set. */
static void sizes_that_are_none(void **state)
{
	static const size_t sizes[] = {0, sizeof(size_t) - 1, 4097, SIZE_MAX};

	for (size_t s = 0; s < COUNT(sizes); s++) {
		struct theirs theirs = {.struct_bytes = sizes[s]};

		for (size_t i = 0; i < COUNT(options); i++)
			expect(&options[i], &theirs, NIB_STATUS_BAD_ARGUMENT,
			       "options.struct_bytes");
		for (size_t i = 0; i < COUNT(infos); i++)
			expect(&infos[i], &theirs, NIB_STATUS_BAD_ARGUMENT,
			       infos[i].call == call_check_result
				   ? "result.struct_bytes"
				   : "info.struct_bytes");
	}
}

/* A caller that wants nothing but its size gets nothing more. */
static void the_smallest_size(void **state)
{
	for (size_t i = 0; i < COUNT(infos); i++) {
		struct theirs theirs = {.struct_bytes = sizeof(size_t)};

		memset(theirs.rest, 0xA5, sizeof(theirs.rest));
		expect(&infos[i], &theirs, NIB_STATUS_OK, "");
		assert_int_equal(theirs.struct_bytes, sizeof(size_t));
		for (size_t j = 0; j < sizeof(theirs.rest); j++)
			assert_int_equal(theirs.rest[j], 0xA5);
	}
}

/* ---- reserved fields ------------------------------------------------------ */

/* The offsets of the views in a problem, and their names. */
static const struct {
	size_t at;
	const char *argument;
} problem_fields[] =
    {
	{offsetof(struct nib_problem, reserved), "problems[0].reserved"},
	{offsetof(struct nib_problem, a.reserved), "problems[0].a.reserved"},
	{offsetof(struct nib_problem, b.reserved), "problems[0].b.reserved"},
	{offsetof(struct nib_problem, b2.reserved), "problems[0].b2.reserved"},
	{offsetof(struct nib_problem, c.reserved), "problems[0].c.reserved"},
},
  moe_fields[] = {
      {offsetof(struct nib_moe_problem, reserved), "moe.reserved"},
      {offsetof(struct nib_moe_problem, problem.a.reserved), "moe.problem.a.reserved"},
      {offsetof(struct nib_moe_problem, problem.b.reserved), "moe.problem.b.reserved"},
      {offsetof(struct nib_moe_problem, problem.b2.reserved),
       "moe.problem.b2.reserved"},
      {offsetof(struct nib_moe_problem, problem.c.reserved), "moe.problem.c.reserved"},
};

static void set(void *base, size_t at, int i, uint64_t value)
{
	memcpy((char *)base + at + (size_t)i * sizeof(value), &value, sizeof(value));
}

/* What a later version may mean by them, this one must not ignore. */
static void reserved_fields(void **state)
{
	const int32_t offsets[] = {0, 1};
	struct nib_problem p = problem();
	struct nib_moe_problem moe = {.problem.a = view(),
				      .problem.b = view(),
				      .problem.b2 = view(),
				      .problem.c = dense(1),
				      .row_offsets = offsets};
	struct nib_plan *other;
	struct nib_error err;
	char want[64];

	p.b2 = view();
	for (size_t f = 0; f < COUNT(problem_fields); f++) {
		for (int i = 0; i < 4; i++) {
			set(&p, problem_fields[f].at, i, UINT64_C(1) << 63);
			refused(nib_plan_create(device, NIB_OP_DUAL_GEMM, &p, 1, NULL,
						&other, &err),
				NIB_STATUS_UNSUPPORTED, &err,
				problem_fields[f].argument, "0x8000000000000000",
				"must be 0");
			snprintf(want, sizeof(want), "%s[%d]",
				 problem_fields[f].argument, i);
			assert_memory_equal(err.message, want, strlen(want));
			set(&p, problem_fields[f].at, i, 0);
			set(&moe, moe_fields[f].at, i, 7);
			refused(nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &moe,
						    NULL, &other, &err),
				NIB_STATUS_UNSUPPORTED, &err, moe_fields[f].argument,
				"0x7", "must be 0");
			set(&moe, moe_fields[f].at, i, 0);
		}
	}
	set(&moe, offsetof(struct nib_moe_problem, problem.reserved), 3, 7);
	refused(nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &moe, NULL, &other, &err),
		NIB_STATUS_UNSUPPORTED, &err, "moe.problem.reserved", "0x7",
		"must be 0");
	set(&moe, offsetof(struct nib_moe_problem, problem.reserved), 3, 0);
	assert_ok(nib_plan_create(device, NIB_OP_DUAL_GEMM, &p, 1, NULL, &other, &err));
	nib_plan_free(other);
	assert_ok(
	    nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &moe, NULL, &other, &err));
	nib_plan_free(other);
}

static void reserved_fields_of_views(void **state)
{
	struct nib_dense x = dense(16);
	struct nib_fp4 q = view();
	struct nib_packed *packed;
	struct nib_writer *writer;
	struct nib_error err;

	q.reserved[2] = 1;
	refused(nib_pack(device, &q, NULL, &packed, &err), NIB_STATUS_UNSUPPORTED, &err,
		"b.reserved[2]", "0x1", "must be 0");
	refused(nib_quantize(device, &x, &q, NULL, NULL, &err), NIB_STATUS_UNSUPPORTED,
		&err, "q.reserved[2]", "0x1", "must be 0");
	assert_ok(nib_writer_open("test_abi.tmp", &writer, &err));
	assert_ok(nib_writer_declare_layer(writer, NIB_CHECKPOINT_MODELOPT, "l", 1, 16,
					   0, &err));
	refused(nib_writer_write_layer(writer, NIB_CHECKPOINT_MODELOPT, &q, 1, 0, &err),
		NIB_STATUS_UNSUPPORTED, &err, "weight.reserved[2]", "0x1", "must be 0");
	nib_writer_discard(writer);
	q.reserved[2] = 0;
	x.reserved[0] = 1;
	refused(nib_quantize(device, &x, &q, NULL, NULL, &err), NIB_STATUS_UNSUPPORTED,
		&err, "x.reserved[0]", "0x1", "must be 0");
}

/* ---- formats that have no kernels yet ------------------------------------- */

#define REFUSES_MXFP4(call, argument)                                                  \
	refused(call, NIB_STATUS_UNSUPPORTED, &err, argument,                          \
		"NIB_FP4_FORMAT_MXFP4 (1)", "must be NIB_FP4_FORMAT_NVFP4 (0)")

static void mxfp4_problems(void **state)
{
	const int32_t offsets[] = {0, 1};
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	struct nib_problem p = problem();
	struct nib_moe_problem moe = {.row_offsets = offsets};
	struct nib_fp4 *views[] = {&p.a, &p.b, &p.b2};
	struct nib_plan *other;
	struct nib_error err;
	char name[32];

	p.b2 = view();
	for (size_t i = 0; i < COUNT(views); i++) {
		static const char *const fields[] = {"a", "b", "b2"};

		views[i]->format = NIB_FP4_FORMAT_MXFP4;
		snprintf(name, sizeof(name), "problems[0].%s.format", fields[i]);
		REFUSES_MXFP4(nib_plan_create(device, NIB_OP_DUAL_GEMM, &p, 1, NULL,
					      &other, &err),
			      name);
		REFUSES_MXFP4(nib_multiply(device, NIB_OP_DUAL_GEMM, &p, 1, &err),
			      name);
		REFUSES_MXFP4(nib_reference(NIB_OP_DUAL_GEMM, &p, 1, &err), name);
		REFUSES_MXFP4(nib_check(NIB_OP_DUAL_GEMM, &p, 1, NULL, &result, &err),
			      name);
		if (i < 2) /* the plan's operation has no b2 */
			REFUSES_MXFP4(nib_run(plan, &p, 1, NULL, &err), name);
		moe.problem = p;
		snprintf(name, sizeof(name), "moe.problem.%s.format", fields[i]);
		REFUSES_MXFP4(nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &moe, NULL,
						  &other, &err),
			      name);
		REFUSES_MXFP4(nib_moe_reference(NIB_OP_DUAL_GEMM, &moe, &err), name);
		REFUSES_MXFP4(
		    nib_moe_check(NIB_OP_DUAL_GEMM, &moe, NULL, &result, &err), name);
		views[i]->format = NIB_FP4_FORMAT_NVFP4;
	}
	moe.problem = p;
	assert_ok(
	    nib_moe_plan_create(device, NIB_OP_DUAL_GEMM, &moe, NULL, &other, &err));
	moe.problem.a.format = NIB_FP4_FORMAT_MXFP4;
	REFUSES_MXFP4(nib_moe_run(other, &moe, NULL, &err), "moe.problem.a.format");
	nib_plan_free(other);
}

static void mxfp4_layers_of_experts(void **state)
{
	struct nib_moe_layer layer = small_layer();
	struct nib_moe_layer_plan *other;
	struct nib_fp4 *views[] = {&layer.gate, &layer.up, &layer.down};
	static const char *const names[] = {"layer.gate.format", "layer.up.format",
					    "layer.down.format"};
	struct nib_error err;

	for (size_t i = 0; i < COUNT(views); i++) {
		views[i]->format = NIB_FP4_FORMAT_MXFP4;
		REFUSES_MXFP4(
		    nib_moe_layer_plan_create(device, &layer, NULL, &other, &err),
		    names[i]);
		views[i]->format = NIB_FP4_FORMAT_NVFP4;
	}
	assert_ok(nib_moe_layer_plan_create(device, &layer, NULL, &other, &err));
	layer.down.format = NIB_FP4_FORMAT_MXFP4;
	REFUSES_MXFP4(nib_moe_layer_run(other, &layer, NULL, &err),
		      "layer.down.format");
	nib_moe_layer_plan_free(other);
	layer = small_layer();
	layer.activations = NIB_ACTIVATIONS_NVFP4;
	layer.is_quantized = 1;
	layer.a = view();
	layer.a.format = NIB_FP4_FORMAT_MXFP4;
	REFUSES_MXFP4(nib_moe_layer_plan_create(device, &layer, NULL, &other, &err),
		      "layer.a.format");
}

static void mxfp4_views(void **state)
{
	const struct nib_dense x = dense(16);
	const struct nib_fp4 good = view();
	struct nib_fp4 bad = view();
	struct nib_packed *packed, *other;
	struct nib_writer *writer;
	struct nib_error err;

	bad.format = NIB_FP4_FORMAT_MXFP4;
	assert_ok(nib_pack(device, &good, NULL, &packed, &err));
	REFUSES_MXFP4(nib_pack(device, &bad, NULL, &other, &err), "b.format");
	REFUSES_MXFP4(nib_pack_shared(device, &bad, NULL, &other, &err), "b.format");
	assert_int_equal(nib_pack_shares(device, &bad), 0);
	REFUSES_MXFP4(nib_packed_update(packed, &bad, NULL, &err), "b.format");
	REFUSES_MXFP4(nib_unpack(packed, &bad, NULL, &err), "to.format");
	nib_packed_free(packed);
	REFUSES_MXFP4(nib_quantize(device, &x, &bad, NULL, NULL, &err), "q.format");
	REFUSES_MXFP4(nib_dequantize(device, &bad, 1, &x, NULL, &err), "q.format");
	REFUSES_MXFP4(nib_convert_scales(device, &bad, &good, NULL, &err),
		      "from.format");
	REFUSES_MXFP4(nib_convert_scales(device, &good, &bad, NULL, &err), "to.format");
	assert_ok(nib_writer_open("test_abi.tmp", &writer, &err));
	assert_ok(nib_writer_declare_layer(writer, NIB_CHECKPOINT_MODELOPT, "l", 1, 16,
					   0, &err));
	REFUSES_MXFP4(
	    nib_writer_write_layer(writer, NIB_CHECKPOINT_MODELOPT, &bad, 1, 0, &err),
	    "weight.format");
	nib_writer_discard(writer);
	bad.format = (enum nib_fp4_format)2;
	refused(nib_pack(device, &bad, NULL, &other, &err), NIB_STATUS_BAD_ARGUMENT,
		&err, "b.format", "2", "must be NIB_FP4_FORMAT_NVFP4 (0) or");
}

static int open_all(void **state)
{
	const struct nib_problem p = problem();

	return open_device(state) != 0 ||
	       nib_plan_create(device, NIB_OP_GEMM, &p, 1, NULL, &plan, NULL) != 0;
}

static int close_all(void **state)
{
	nib_plan_free(plan);
	return close_device(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(callers_of_0_2_0),
	    cmocka_unit_test(callers_of_later_versions),
	    cmocka_unit_test(sizes_that_are_none),
	    cmocka_unit_test(the_smallest_size),
	    cmocka_unit_test(reserved_fields),
	    cmocka_unit_test(reserved_fields_of_views),
	    cmocka_unit_test(mxfp4_problems),
	    cmocka_unit_test(mxfp4_layers_of_experts),
	    cmocka_unit_test(mxfp4_views),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
