/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_sm100.c - products in tiles on Blackwell, on the fake driver: every
 * element of c is in exactly one tile that the kernel can take, every tensor map
 * and copy describes its operand, and memory is divided as the kernel divides
 * it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/common/costs.h"
#include "backend/cuda/sm100/sm100.h"
#include "common/alloc.h"
#include "sm100_bed.h"

#define GROUPS 1500

static uint64_t seed = 88172645463325252;

static int32_t rnd_below(int32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (int32_t)((uint32_t)(seed >> 16) % (uint32_t)n);
}

/* ---- groups -------------------------------------------------------------- */

static void make_group(struct bed *bed, int g)
{
	const int count = g % 3 == 0 ? 1 : 1 + rnd_below(32);

	bed->count = 0;
	bed->next = bed->space;
	for (int i = 0; i < count; i++) {
		struct size s = {
		    .m = rnd_below(12) == 0 ? 0 : 1 + rnd_below(700),
		    .n = rnd_below(12) == 0 ? 0 : 1 + rnd_below(5000),
		    .k = 16 * (int64_t)rnd_below(g % 2 ? 700 : 40),
		    .batch = rnd_below(4) ? 1 : 1 + rnd_below(6),
		    .shares_b = rnd_below(2) == 0,
		    .layout = rnd_below(3) ? NIB_SCALE_LAYOUT_TILED_128X4
					   : NIB_SCALE_LAYOUT_LINEAR,
		    .more = rnd_below(2) ? 0 : 8 * rnd_below(5),
		};

		/* Few rows of one problem are the vector kernel's. */
		if (count == 1)
			s.m += 9, s.n++;
		if (rnd_below(3) == 0)
			s.k = bed_round_to(s.k, 64);
		if (g % 5 == 0)
			s.n = 1 + rnd_below(128);
		bed_add(bed, &s);
	}
}

static void groups(void)
{
	int splits = 0, singles = 0, staged = 0, many = 0;
	struct bed bed;

	bed_make(&bed);
	for (int g = 0; g < GROUPS; g++) {
		const struct nib_sm100_many *params;
		int launches;

		make_group(&bed, g);
		bed_plan(&bed, g / 2 % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM);
		launches = bed_run(&bed);
		if (launches == 0)
			continue;
		assert_in_range(launches, 1, 2);
		if (launches == 1)
			bed.fake->kernel_before[0] = '\0';
		staged += launches == 2;
		bed_check_last(&bed);
		params = bed.fake->last_params;
		splits += params->args.k_slices > 1;
		singles += bed_ctas_of(&bed) == 1;
		many += strstr(bed.fake->last_kernel, "_many_") != NULL;
	}
	/* All ways were tested. */
	assert_in_range(splits, GROUPS / 50, GROUPS / 2);
	assert_in_range(singles, GROUPS / 20, GROUPS / 2);
	assert_in_range(staged, GROUPS / 4, GROUPS * 99 / 100);
	assert_in_range(many, GROUPS / 10, GROUPS * 9 / 10);
	bed_free(&bed);
}

/* Launches of at most 32 entries of one type. */
static void launches(void)
{
	const struct size s = {.m = 20,
			       .n = 300,
			       .k = 512,
			       .batch = 1,
			       .layout = NIB_SCALE_LAYOUT_TILED_128X4,
			       .dtype = NIB_DTYPE_FP16};
	struct bed bed;

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
	const struct size direct = {.m = 20,
				    .n = 300,
				    .k = 512,
				    .batch = 1,
				    .layout = NIB_SCALE_LAYOUT_TILED_128X4};
	const struct size linear = {.m = 20, .n = 300, .k = 512, .batch = 1};
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
	bed_check_last(&bed);
	assert_int_equal(bed.fake->maps, 9);
	/* The maps of what is copied point at the copy. */
	bed.problems[1].b.scales = bed_reserve(&bed, 1 << 16);
	bed_run(&bed);
	bed_check_last(&bed);
	assert_int_equal(bed.fake->maps, 9);
	bed.workspace += 1024;
	bed_reserve(&bed, 1024);
	bed_run(&bed);
	bed_check_last(&bed);
	assert_int_equal(bed.fake->maps, 11);
	/* A run that failed leaves none that is taken for another's. */
	bed.problems[0].b.codes = bed_reserve(&bed, 1 << 20);
	bed.fake->map_result = CUDA_ERROR_INVALID_VALUE;
	{
		const struct nib_run_options options = bed_run_options(&bed);

		assert_int_equal(
		    nib_run(bed.plan, bed.problems, bed.count, &options, &bed.err),
		    NIB_STATUS_DEVICE_FAILED);
		assert_non_null(strstr(bed.err.message, "cuTensorMapEncodeTiled: "));
	}
	bed.fake->map_result = CUDA_SUCCESS;
	bed_run(&bed);
	bed_check_last(&bed);
	assert_int_equal(bed.fake->maps, 12);
	bed_free(&bed);
}

/* B and B2 of different batches are entries of one matrix each. */
static void one_of_two_is_shared(void)
{
	const struct size s = {.m = 20,
			       .n = 300,
			       .k = 512,
			       .batch = 3,
			       .layout = NIB_SCALE_LAYOUT_TILED_128X4};
	const struct nib_sm100_many *params;
	struct nib_problem *p;
	struct bed bed;

	bed_make(&bed);
	bed_add(&bed, &s);
	p = &bed.problems[0];
	p->b2.batch = 1;
	bed_plan(&bed, NIB_OP_DUAL_GEMM);
	assert_int_equal(bed_run(&bed), 1);
	params = bed.fake->last_params;
	for (int i = 0; i < 3; i++) {
		const struct nib_sm100_problem *x = &params->problems[i];

		assert_int_equal(x->b_matrices, 1);
		assert_int_equal(bed_map_of(&x->maps.a).address,
				 (uintptr_t)p->a.codes +
				     (uintptr_t)(i * p->a.batch_stride_bytes));
		assert_int_equal(bed_map_of(&x->maps.b_scales).address,
				 (uintptr_t)p->b.scales +
				     (uintptr_t)(i * p->b.scale_batch_stride_bytes));
		assert_int_equal(bed_map_of(&x->maps.b2).address,
				 (uintptr_t)p->b2.codes);
		assert_ptr_equal(x->c, (char *)p->c.data + i * 20 * 300 * 4);
	}
	bed_free(&bed);
}

/* ---- what plans say and refuse ------------------------------------------- */

static void check_explained(const struct bed *bed, const char *end)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	size_t length;

	assert_int_equal(nib_plan_get_info(bed->plan, &info, NULL), NIB_STATUS_OK);
	assert_string_equal(info.backend, "cuda-sm100");
	length = strlen(info.explanation);
	assert_true(length >= strlen(end));
	assert_string_equal(info.explanation + length - strlen(end), end);
}

static void explanations(void)
{
	const struct size direct = {.m = 20,
				    .n = 300,
				    .k = 512,
				    .batch = 1,
				    .layout = NIB_SCALE_LAYOUT_TILED_128X4};
	const struct size linear = {.m = 20, .n = 300, .k = 512, .batch = 1};
	const struct size none = {.m = 0, .n = 300, .k = 512, .batch = 1};
	struct bed bed;

	bed_make(&bed);
	bed_add(&bed, &none);
	bed_plan(&bed, NIB_OP_GEMM);
	check_explained(&bed, "nothing to compute");
	assert_int_equal(bed_run(&bed), 0);
	bed_add(&bed, &direct);
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
	assert_int_equal(nib_plan_create(bed.device, NIB_OP_GEMM, bed.problems,
					 bed.count, NULL, &bed.plan, &bed.err),
			 NIB_STATUS_UNSUPPORTED);
	assert_non_null(strstr(bed.err.message, "multiples of 8 on a GPU"));
	bed_free(&bed);
}

/* Any allocation of a plan may fail, and nothing stays. */
static void without_memory(void)
{
	const struct size linear = {.m = 70, .n = 300, .k = 512, .batch = 2};
	enum nib_status status;
	struct bed bed;
	long n, live;

	if (!test_alloc_works())
		return;
	bed_make(&bed);
	/* Two launches; more tiles would be sorted with memory or without. */
	for (int i = 0; i < 4; i++)
		bed_add(&bed, &linear);
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
	assert_int_equal(status, NIB_STATUS_OK);
	assert_true(n > 15);
	bed_free(&bed);
}

/* Packed weights are what the maps take, whatever they were before. */
static void packed_weights(void)
{
	const struct size s = {.m = 20, .n = 300, .k = 272, .batch = 1};
	const int64_t rows = bed_round_to(s.m, 128);
	const struct nib_sm100_many *params;
	struct nib_packed *packed;
	struct nib_problem *p;
	struct fake_map codes, scales;
	void *memory;
	struct bed bed;

	bed_make(&bed);
	bed_add(&bed, &s);
	p = &bed.problems[0];
	assert_int_equal(nib_device_alloc(bed.device, 1 << 20, &memory, NULL),
			 NIB_STATUS_OK);
	p->b.codes = p->b.scales = memory;
	memset(memory, 0, 1 << 20);
	assert_int_equal(nib_pack(bed.device, &p->b, &packed, &bed.err), NIB_STATUS_OK);
	memset(&p->b, 0, sizeof(p->b));
	p->b_packed = packed;
	bed_plan(&bed, NIB_OP_GEMM);
	assert_int_equal(bed_run(&bed), 2);
	params = bed.fake->last_params;
	codes = bed_map_of(&params->problems[0].maps.b);
	scales = bed_map_of(&params->problems[0].maps.b_scales);
	/* Rows of 136 bytes begin at multiples of 16. */
	assert_int_equal(codes.sizes[0], 136);
	assert_int_equal(codes.strides_bytes[0], 144);
	assert_int_equal(scales.strides_bytes[0], 5 * 512);
	assert_null(bed_copy_at(&bed, codes.address));
	assert_null(bed_copy_at(&bed, scales.address));
	/* The copies are of A alone. */
	assert_in_range(bed.workspace_bytes, 1, 20 * 144 + rows / 128 * 5 * 512 + 512);
	nib_packed_free(packed);
	nib_device_free(bed.device, memory);
	bed_free(&bed);
}

/* A launch that fails is told, and the plan runs again. */
static void failed_launch(void)
{
	const struct size linear = {.m = 70, .n = 300, .k = 512, .batch = 2};
	struct bed bed;

	bed_make(&bed);
	bed_add(&bed, &linear);
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
		bed_check_last(&bed);
	}
	bed_free(&bed);
}

/* ---- shapes of the contest, by the model --------------------------------- */

static void check_plan(struct bed *bed, enum nib_op op, int slices, int clusters,
		       int tile_m)
{
	const struct nib_sm100_many *params;

	bed_plan(bed, op);
	bed_run(bed);
	bed_check_last(bed);
	params = bed->fake->last_params;
	if (params->args.k_slices != slices || params->args.tile_m != tile_m ||
	    (int)bed->fake->last.gridDimX != clusters * bed_ctas_of(bed) * slices)
		fail_msg("%d slices, tiles of %d rows, %u CTAs of %s",
			 params->args.k_slices, params->args.tile_m,
			 bed->fake->last.gridDimX, bed->fake->last_kernel);
}

/* A product of few tiles divides k so that most multiprocessors work. */
static void divides_k(void)
{
	static const struct {
		struct size size;
		int slices, clusters, tile_m;
	} cases[] = {
	    {{.m = 128, .n = 7168, .k = 16384, .batch = 1}, 2, 28, 128},
	    {{.m = 128, .n = 4096, .k = 7168, .batch = 1}, 4, 16, 128},
	    {{.m = 128, .n = 7168, .k = 2048, .batch = 1}, 1, 56, 64},
	    {{.m = 64, .n = 2048, .k = 256, .batch = 1}, 1, 8, 64},
	};
	struct bed bed;

	bed_make(&bed);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct size s = cases[i].size;

		s.layout = NIB_SCALE_LAYOUT_TILED_128X4;
		bed.count = 0;
		bed_add(&bed, &s);
		check_plan(&bed, NIB_OP_GEMM, cases[i].slices, cases[i].clusters,
			   cases[i].tile_m);
	}
	bed_free(&bed);
}

static void costs_are_the_model(void)
{
	for (int i = 0; i < NIB_TILE_SIZES; i++) {
		const double x = sm100_step_cycles(2, false, nib_tile_size(i));

		assert_in_range(2 * nib_sm100_costs.step[i], (int)(2 * x - 1),
				(int)(2 * x + 1));
	}
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"groups", groups},
	    {"launches", launches},
	    {"maps_are_kept", maps_are_kept},
	    {"one_of_two_is_shared", one_of_two_is_shared},
	    {"explanations", explanations},
	    {"without_memory", without_memory},
	    {"packed_weights", packed_weights},
	    {"failed_launch", failed_launch},
	    {"divides_k", divides_k},
	    {"costs_are_the_model", costs_are_the_model},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
