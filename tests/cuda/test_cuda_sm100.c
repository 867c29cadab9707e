/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_sm100.c - products in tiles on Blackwell, on the fake driver: the kernels
 * that a plan launches, when tensor maps are encoded, what is refused, and that
 * failures free everything.  gpu_check_*.c check results, also on the software B200.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/common/costs.h"
#include "backend/cuda/sm100/sm100.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"
#include "fake_bed.h"
#include "nibblas.h"

#define PROBLEMS 40

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	uintptr_t space, next;
	struct nib_problem problems[PROBLEMS];
	int count;
	struct nib_plan *plan;
	size_t workspace_bytes;
	uintptr_t workspace;
	struct nib_error err;
};

/* The operands of one problem. */
struct size {
	int64_t m, n, k, batch;
	enum nib_scale_layout layout;
	enum nib_dtype dtype;
};

/* Operands that tensor maps take, and some that are copied first. */
static const struct size direct = {
    20, 300, 512, 1, NIB_SCALE_LAYOUT_TILED_128X4, NIB_DTYPE_FP32};
static const struct size linear = {
    20, 300, 512, 1, NIB_SCALE_LAYOUT_LINEAR, NIB_DTYPE_FP32};
static const struct size two_matrices = {
    70, 300, 512, 2, NIB_SCALE_LAYOUT_LINEAR, NIB_DTYPE_FP32};

/* Addresses that are the GPU's: no memory backs them, and nothing reads them. */
#define SPACE_BEGIN ((uintptr_t)1 << 40)
#define SPACE	    ((size_t)1 << 40)

static int64_t bed_round_to(int64_t a, int64_t step)
{
	return (a + step - 1) / step * step;
}

static void bed_make(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	bed->fake->capability[0] = 100;
	bed->space = bed->next = SPACE_BEGIN;
	fake_register_memory((void *)SPACE_BEGIN, SPACE, CU_MEMORYTYPE_DEVICE, 0, 0);
	assert_ok_err(nib_device_open("cuda", NULL, &bed->device, &bed->err),
		      &bed->err);
}

static void bed_free(struct bed *bed)
{
	nib_plan_free(bed->plan);
	nib_device_close(bed->device);
	fake_check_clean(bed->fake);
}

/* Addresses for this many bytes. */
static void *bed_reserve(struct bed *bed, int64_t bytes)
{
	void *at = (void *)bed->next;

	bed->next += (uintptr_t)bed_round_to(bytes + 16, 16);
	assert_true(bed->next <= bed->space + SPACE);
	return at;
}

static struct nib_fp4 bed_nvfp4(struct bed *bed, int64_t rows, int64_t k, int64_t batch,
				enum nib_scale_layout layout)
{
	struct nib_fp4 v = {.rows = rows,
			    .k = k,
			    .batch = batch,
			    .scale_layout = layout,
			    .row_stride_bytes = k / 2};

	v.batch_stride_bytes = rows * v.row_stride_bytes;
	v.scale_batch_stride_bytes = (int64_t)nib_scales_bytes(layout, rows, k);
	v.codes = bed_reserve(bed, batch * v.batch_stride_bytes);
	v.scales = bed_reserve(bed, batch * v.scale_batch_stride_bytes);
	return v;
}

static void bed_add(struct bed *bed, const struct size *s)
{
	struct nib_problem *p = &bed->problems[bed->count++];

	assert_true(bed->count <= PROBLEMS);
	*p = (struct nib_problem){
	    .a = bed_nvfp4(bed, s->m, s->k, s->batch, s->layout),
	    .b = bed_nvfp4(bed, s->n, s->k, s->batch, s->layout),
	    .b2 = bed_nvfp4(bed, s->n, s->k, s->batch, s->layout),
	    .c = {.rows = s->m, .cols = s->n, .batch = s->batch, .dtype = s->dtype},
	};
	p->c.data = bed_reserve(bed, s->batch * s->m * s->n * 4);
}

static void bed_finish_plan(struct bed *bed)
{
	const struct nib_plan_info info = test_plan_info(bed->plan);

	bed->workspace_bytes = info.workspace_bytes;
	bed->next = (uintptr_t)bed_round_to((int64_t)bed->next, 64);
	bed->workspace = (uintptr_t)bed_reserve(bed, (int64_t)info.workspace_bytes);
}

static void bed_plan(struct bed *bed, enum nib_op op)
{
	static const struct nib_plan_options options = {.struct_bytes = sizeof(options),
							.caller_workspace = 1};

	nib_plan_free(bed->plan);
	assert_ok_err(nib_plan_create(bed->device, op, bed->problems, bed->count,
				      &options, &bed->plan, &bed->err),
		      &bed->err);
	bed_finish_plan(bed);
}

static struct nib_run_options bed_run_options(const struct bed *bed)
{
	return (struct nib_run_options){.struct_bytes = sizeof(struct nib_run_options),
					.workspace = (void *)bed->workspace,
					.workspace_bytes = bed->workspace_bytes};
}

/* Kernels that a run launches. */
static int bed_run(struct bed *bed)
{
	const struct nib_run_options options = bed_run_options(bed);
	const int before = bed->fake->launches;

	assert_ok_err(
	    nib_run(bed->plan, bed->problems, bed->count, &options, &bed->err),
	    &bed->err);
	return bed->fake->launches - before;
}

/* ---- launches and tensor maps -------------------------------------------- */

/* Launches of at most 32 entries of one type. */
static void launches(void)
{
	struct size s = direct;
	struct bed bed;

	s.dtype = NIB_DTYPE_FP16;
	bed_make(&bed);
	for (int i = 0; i < 33; i++) {
		bed_add(&bed, &s);
		if (i != 0 && i != 7 && i != 8 && i != 31 && i != 32)
			continue;
		bed_plan(&bed, NIB_OP_GEMM);
		assert_int_equal(bed.workspace_bytes, 0);
		assert_int_equal(bed_run(&bed), i < 32 ? 1 : 2);
		assert_string_equal(bed.fake->last_kernel,
				    i < 8 || i == 32 ? "nib_gemm_pair_few_sm100"
						     : "nib_gemm_pair_many_sm100");
	}
	bed.problems[5].c.dtype = NIB_DTYPE_BF16;
	bed.count = 9;
	bed_plan(&bed, NIB_OP_DUAL_GEMM);
	assert_int_equal(bed_run(&bed), 3);
	assert_string_equal(bed.fake->last_kernel, "nib_dual_pair_few_sm100");
	bed_free(&bed);
}

/* A map is encoded when its address changes, and at no other time. */
static void maps_are_kept(void)
{
	struct bed bed;

	bed_make(&bed);
	bed_add(&bed, &direct);
	bed_add(&bed, &linear);
	bed_plan(&bed, NIB_OP_GEMM);
	assert_int_equal(bed.fake->maps, 0);
	assert_int_equal(bed_run(&bed), 2);
	assert_int_equal(bed.fake->maps, 8);
	bed_run(&bed);
	assert_int_equal(bed.fake->maps, 8);
	bed.problems[0].a.codes = bed.problems[1].a.codes;
	bed_run(&bed);
	assert_int_equal(bed.fake->maps, 9);
	/* The maps of what is copied point at the copy. */
	bed.problems[1].b.scales = bed_reserve(&bed, 1 << 16);
	bed_run(&bed);
	assert_int_equal(bed.fake->maps, 9);
	bed.workspace += 1024;
	bed_reserve(&bed, 1024);
	bed_run(&bed);
	assert_int_equal(bed.fake->maps, 11);
	/* A run that failed leaves none that is taken for another's. */
	bed.problems[0].b.codes = bed_reserve(&bed, 1 << 20);
	bed.fake->map_result = CUDA_ERROR_INVALID_VALUE;
	{
		const struct nib_run_options options = bed_run_options(&bed);

		assert_refused(
		    nib_run(bed.plan, bed.problems, bed.count, &options, &bed.err),
		    NIB_STATUS_DEVICE_FAILED, &bed.err, "cuTensorMapEncodeTiled: ");
	}
	bed.fake->map_result = CUDA_SUCCESS;
	bed_run(&bed);
	assert_int_equal(bed.fake->maps, 12);
	bed_free(&bed);
}

/* ---- what plans say and refuse ------------------------------------------- */

static void check_explained(const struct bed *bed, const char *end)
{
	const struct nib_plan_info info = test_plan_info(bed->plan);
	size_t length;

	assert_string_equal(info.backend, "cuda-sm100");
	length = strlen(info.explanation);
	assert_true(length >= strlen(end));
	assert_string_equal(info.explanation + length - strlen(end), end);
}

static void explanations(void)
{
	const struct size none = {
	    0, 300, 512, 1, NIB_SCALE_LAYOUT_LINEAR, NIB_DTYPE_FP32};
	struct bed bed;

	bed_make(&bed);
	bed_add(&bed, &none);
	bed_plan(&bed, NIB_OP_GEMM);
	check_explained(&bed, "nothing to compute");
	assert_int_equal(bed_run(&bed), 0);
	bed_add(&bed, &direct);
	/* A map takes these strides, because one matrix has no next one. */
	bed.problems[1].b.batch_stride_bytes += 8;
	bed.problems[1].b.scale_batch_stride_bytes += 8;
	bed_plan(&bed, NIB_OP_GEMM);
	check_explained(&bed, " on cuda:0: tiles of 128 rows of B x up to 32 "
			      "rows of A on 2 clusters, k in 1 slice, 1 "
			      "launch of one kernel");
	for (int i = 0; i < 32; i++)
		bed_add(&bed, &linear);
	bed_plan(&bed, NIB_OP_GEMM);
	check_explained(&bed, ", 2 launches, of 32 matrices and one type at "
			      "most, of two kernels (copies of what tensor "
			      "maps cannot take, then the product)");
	/* Strides that no kernel takes. */
	bed.problems[5].b.row_stride_bytes += 4;
	nib_plan_free(bed.plan);
	assert_refused(nib_plan_create(bed.device, NIB_OP_GEMM, bed.problems, bed.count,
				       NULL, &bed.plan, &bed.err),
		       NIB_STATUS_UNSUPPORTED, &bed.err, "multiples of 8 on a GPU");
	bed_free(&bed);
}

/* Any allocation of a plan may fail, and nothing stays. */
static void without_memory(void)
{
	enum nib_status status;
	struct bed bed;
	long n, live;

	if (!test_alloc_works())
		return;
	bed_make(&bed);
	/* Two launches; more tiles would be sorted with memory or without. */
	for (int i = 0; i < 4; i++)
		bed_add(&bed, &two_matrices);
	bed.problems[2].c.dtype = bed.problems[3].c.dtype = NIB_DTYPE_BF16;
	/* Kernels that were looked up are the device's. */
	bed_plan(&bed, NIB_OP_DUAL_GEMM);
	nib_plan_free(bed.plan);
	bed.plan = NULL;
	live = test_alloc_live();
	for (n = 1;; n++) {
		test_alloc_fail(n, TEST_ALLOC_ONE);
		status = nib_plan_create(bed.device, NIB_OP_DUAL_GEMM, bed.problems,
					 bed.count, NULL, &bed.plan, &bed.err);
		if (!test_alloc_stop())
			break;
		assert_int_equal(status, NIB_STATUS_OUT_OF_MEMORY);
		assert_null(bed.plan);
		assert_int_equal(test_alloc_live(), live);
	}
	assert_ok(status);
	assert_true(n > 15);
	bed_free(&bed);
}

/* A launch that fails is told, and the plan runs again. */
static void failed_launch(void)
{
	struct bed bed;

	bed_make(&bed);
	bed_add(&bed, &two_matrices);
	bed_plan(&bed, NIB_OP_GEMM);
	for (int i = 0; i < 2; i++) {
		struct nib_run_options options = bed_run_options(&bed);

		bed.fake->launches = 0;
		bed.fake->launches_left = i;
		bed.fake->launch_result = CUDA_ERROR_LAUNCH_FAILED;
		assert_int_equal(
		    nib_run(bed.plan, bed.problems, bed.count, &options, &bed.err),
		    NIB_STATUS_DEVICE_FAILED);
		assert_int_equal(bed.fake->launches, i);
		bed.fake->launch_result = CUDA_SUCCESS;
		assert_int_equal(bed_run(&bed), 2);
	}
	bed_free(&bed);
}

/* A block of 128 rows for each expert, and one for what is left. */
static void limits_of_experts(void)
{
	struct nib_moe_problem moe;
	struct nib_plan *none;
	struct bed bed;

	bed_make(&bed);
	moe = (struct nib_moe_problem){
	    .problem =
		{
		    .a = bed_nvfp4(&bed, 64, 64, 1, NIB_SCALE_LAYOUT_TILED_128X4),
		    .b = bed_nvfp4(&bed, 64, 64, 3, NIB_SCALE_LAYOUT_TILED_128X4),
		    .c = {.data = bed_reserve(&bed, 64),
			  .rows = INT32_MAX - 511,
			  .cols = 64},
		},
	    .row_offsets = bed_reserve(&bed, 16),
	};
	moe.problem.a.rows = INT32_MAX - 511;
	assert_int_equal(
	    nib_moe_plan_create(bed.device, NIB_OP_GEMM, &moe, NULL, &none, &bed.err),
	    NIB_STATUS_UNSUPPORTED);
	assert_string_equal(bed.err.message,
			    "moe: 3 experts, 2147483136 rows, which are "
			    "2147483648 when each expert's are padded: must be "
			    "at most 1024 experts and 2^31 - 1 padded rows on "
			    "a GPU");
	assert_null(none);
	bed_free(&bed);
}

/*
 * The vector kernel computes one row, two of less than 2^25 weights, four of less than
 * 2^23, and a few if their weights would be copied.
 */
static void few_rows(void)
{
	static const struct {
		int64_t m, n;
		enum nib_scale_layout layout;
		bool is_vector;
	} cases[] = {
	    {1, 1 << 16, NIB_SCALE_LAYOUT_TILED_128X4, true},
	    {2, (1 << 16) - 1, NIB_SCALE_LAYOUT_TILED_128X4, true},
	    {2, 1 << 16, NIB_SCALE_LAYOUT_TILED_128X4, false},
	    {3, 300, NIB_SCALE_LAYOUT_TILED_128X4, true},
	    {4, (1 << 14) - 1, NIB_SCALE_LAYOUT_TILED_128X4, true},
	    {4, 1 << 14, NIB_SCALE_LAYOUT_TILED_128X4, false},
	    {5, 300, NIB_SCALE_LAYOUT_TILED_128X4, false},
	    {8, 300, NIB_SCALE_LAYOUT_TILED_128X4, false},
	    {2, 300, NIB_SCALE_LAYOUT_LINEAR, true},
	    {8, 300, NIB_SCALE_LAYOUT_LINEAR, true},
	    {9, 300, NIB_SCALE_LAYOUT_LINEAR, false},
	};
	struct bed bed;

	bed_make(&bed);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct size s = {cases[i].m, cases[i].n,	    512,
				       1,	   cases[i].layout, NIB_DTYPE_BF16};

		bed.count = 0;
		bed_add(&bed, &s);
		bed_plan(&bed, NIB_OP_GEMM);
		assert_int_equal(strstr(test_plan_info(bed.plan).explanation,
					"vector kernel") != NULL,
				 cases[i].is_vector);
	}
	bed_free(&bed);
}

/* ---- shapes of the contest, by the model --------------------------------- */

static void check_plan(struct bed *bed, enum nib_op op, int slices, int ctas)
{
	bed_plan(bed, op);
	bed_run(bed);
	assert_int_equal(test_plan_info(bed->plan).k_slices, slices);
	assert_int_equal(bed->fake->last.gridDimX, ctas * slices);
}

/* A product of few tiles divides k so that most multiprocessors work. */
static void divides_k(void)
{
	static const struct {
		struct size size;
		int slices, ctas;
	} cases[] = {
	    {{.m = 128, .n = 7168, .k = 16384, .batch = 1}, 2, 56},
	    {{.m = 128, .n = 4096, .k = 7168, .batch = 1}, 4, 32},
	    {{.m = 128, .n = 7168, .k = 2048, .batch = 1}, 1, 112},
	    {{.m = 64, .n = 2048, .k = 256, .batch = 1}, 1, 16},
	};
	struct bed bed;

	bed_make(&bed);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct size s = cases[i].size;

		s.layout = NIB_SCALE_LAYOUT_TILED_128X4;
		bed.count = 0;
		bed_add(&bed, &s);
		check_plan(&bed, NIB_OP_GEMM, cases[i].slices, cases[i].ctas);
	}
	bed_free(&bed);
}

static void costs_are_the_model(void)
{
	for (int i = 0; i < NIB_TILE_SIZES; i++) {
		const double x = sm100_step_cycles(2, false, nib_tile_size(i));

		assert_in_range(2 * cuda_sm100.costs->step[i], (int)(2 * x - 1),
				(int)(2 * x + 1));
	}
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"launches", launches},
	    {"maps_are_kept", maps_are_kept},
	    {"explanations", explanations},
	    {"without_memory", without_memory},
	    {"failed_launch", failed_launch},
	    {"limits_of_experts", limits_of_experts},
	    {"few_rows", few_rows},
	    {"divides_k", divides_k},
	    {"costs_are_the_model", costs_are_the_model},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
