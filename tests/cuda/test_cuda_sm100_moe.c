/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_sm100_moe.c - MoE on Blackwell, on the fake driver: the maps of A
 * with their boxes, and where the scales of experts are taken from.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sm100_bed.h"

static void plan_moe(struct bed *bed, enum nib_op op, const struct nib_moe_problem *moe)
{
	static const struct nib_plan_options options = {.struct_bytes = sizeof(options),
							.caller_workspace = 1};

	nib_plan_free(bed->plan);
	bed->op = op;
	if (nib_moe_plan_create(bed->device, op, moe, &options, &bed->plan, &bed->err))
		fail_msg("%s", bed->err.message);
	bed_finish_plan(bed);
}

static int run_moe(struct bed *bed, const struct nib_moe_problem *moe)
{
	const struct nib_run_options options = bed_run_options(bed);
	const int before = bed->fake->launches;

	if (nib_moe_run(bed->plan, moe, &options, &bed->err))
		fail_msg("%s", bed->err.message);
	return bed->fake->launches - before;
}

/* Maps of A with boxes of 8 << i rows, up to a tile's share of a CTA. */
static void check_boxes(const struct bed *bed, const struct nib_moe_problem *moe)
{
	const struct nib_sm100_few *params = bed->fake->last_params;
	const int32_t most = params->args.tile_m / bed_ctas_of(bed);

	for (int32_t i = 0; 8 << i <= most; i++) {
		const struct nib_sm100_problem *x = &params->problems[i];

		assert_int_equal(x->a_box_rows, 8 << i);
		bed_check_codes(bed, &moe->problem.a, 1, 8 << i, &x->maps.a);
	}
	/* The largest is a tile's. */
	assert_int_equal(most & (most - 1), 0);
}

static const struct expert_case {
	int64_t rows, n, k, experts;
	enum nib_scale_layout layout;
	int32_t tile_m, dual_m;
	const char *width;
} cases[] = {
    {40, 300, 512, 8, NIB_SCALE_LAYOUT_TILED_128X4, 64, 64, "_pair_few_"},
    {700, 300, 512, 8, NIB_SCALE_LAYOUT_TILED_128X4, 256, 128, "_pair_few_"},
    {700, 300, 528, 8, NIB_SCALE_LAYOUT_TILED_128X4, 256, 128, "_pair_few_"},
    {600, 128, 512, 8, NIB_SCALE_LAYOUT_LINEAR, 128, 128, "_single_few_"},
    {600, 128, 0, 8, NIB_SCALE_LAYOUT_TILED_128X4, 128, 128, "_single_few_"},
};

static struct nib_moe_problem make_moe(struct bed *bed, const struct expert_case *x)
{
	const int64_t rows = x->rows, n = x->n;
	struct nib_moe_problem moe = {
	    .problem.a = bed_nvfp4(bed, rows, x->k, 1, x->layout, 0),
	    .problem.b = bed_nvfp4(bed, n, x->k, x->experts, x->layout, 0),
	    .problem.b2 = bed_nvfp4(bed, n, x->k, x->experts, x->layout, 0),
	    .problem.c = {.rows = rows, .cols = n, .batch = 1},
	    .row_offsets = bed_reserve(bed, 1 << 10),
	};

	moe.problem.c.data = bed_reserve(bed, rows * n * 4);
	return moe;
}

/* What does not depend on where the experts' scales are. */
static void check_moe(const struct bed *bed, const struct nib_moe_problem *moe,
		      const struct expert_case *x)
{
	const struct nib_sm100_few *params = bed->fake->last_params;
	const struct nib_sm100_args *args = &params->args;
	const struct nib_sm100_problem *p = params->problems;

	bed_check_launch(bed, args);
	check_boxes(bed, moe);
	assert_non_null(strstr(bed->fake->last_kernel, x->width));
	assert_int_equal(args->tile_m,
			 bed->op == NIB_OP_DUAL_GEMM ? x->dual_m : x->tile_m);
	assert_int_equal(args->experts, x->experts);
	assert_int_equal(args->rows, x->rows);
	assert_ptr_equal(args->row_offsets, moe->row_offsets);
	assert_int_equal(p->b_matrices, x->experts);
	bed_check_codes(bed, &moe->problem.b, x->experts, 128, &p->maps.b);
	bed_check_scales(bed, &moe->problem.b, x->experts, 1, &p->maps.b_scales);
}

/* The scales of all rows together: copied, each expert's to a tile. */
static void check_copied(const struct bed *bed, const struct nib_moe_problem *moe,
			 const struct expert_case *x)
{
	const struct nib_sm100_few *params = bed->fake->last_params;
	const struct fake_map scales = bed_map_of(&params->problems[0].maps.a_scales);
	const int64_t blocks =
	    x->rows / 128 + (x->experts < x->rows ? x->experts : x->rows);
	const struct nib_stage_copy *copy;

	assert_null(params->args.scale_rows);
	if (x->k == 0)
		return;
	copy = bed_copy_at(bed, scales.address);
	assert_non_null(copy);
	assert_int_equal(copy->is_of_experts, 1);
	assert_ptr_equal(copy->from, moe->problem.a.scales);
	assert_int_equal(scales.sizes[1], blocks);
	assert_int_equal(copy->matrix_pieces * 16,
			 blocks * (bed_round_to(x->k, 64) / 64) * 512);
	bed_check_copies(bed);
}

/* Where experts begin on tiles already: taken as they lie. */
static void check_placed(const struct bed *bed, const struct nib_moe_problem *moe,
			 const struct expert_case *x)
{
	const struct nib_sm100_few *params = bed->fake->last_params;
	const struct fake_map scales = bed_map_of(&params->problems[0].maps.a_scales);

	assert_ptr_equal(params->args.scale_rows, moe->scale_rows);
	assert_int_equal(params->args.scale_rows_total, moe->scale_rows_total);
	if (x->k)
		assert_int_equal(scales.address, (uintptr_t)moe->problem.a.scales);
	assert_int_equal(scales.sizes[1],
			 bed_round_to(moe->scale_rows_total, 128) / 128);
	assert_int_equal(scales.box[1], params->args.a_scale_blocks);
}

static void experts(void)
{
	struct bed bed;

	bed_make(&bed);
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
		const struct expert_case *x = &cases[i / 2];
		const bool is_exact =
		    x->layout == NIB_SCALE_LAYOUT_TILED_128X4 && x->k % 64 == 0;
		struct nib_moe_problem moe = make_moe(&bed, x);

		plan_moe(&bed, i % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, &moe);
		assert_int_equal(run_moe(&bed, &moe), x->k ? 2 : 1);
		check_moe(&bed, &moe, x);
		check_copied(&bed, &moe, x);
		moe.scale_rows = bed_reserve(&bed, 1 << 10);
		moe.scale_rows_total = x->rows + 128 * x->experts;
		assert_int_equal(run_moe(&bed, &moe), is_exact ? 1 : 2);
		check_moe(&bed, &moe, x);
		if (is_exact)
			check_placed(&bed, &moe, x);
		else
			check_copied(&bed, &moe, x);
	}
	bed_free(&bed);
}

/* A block of 128 rows for each expert, and one for what is left. */
static void limits(void)
{
	struct nib_moe_problem moe;
	struct nib_plan *none;
	struct bed bed;

	bed_make(&bed);
	moe = make_moe(&bed, &cases[0]);
	moe.problem.a.rows = moe.problem.c.rows = INT32_MAX - 511;
	moe.problem.b.batch = 3;
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

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"experts", experts},
	    {"limits", limits},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
