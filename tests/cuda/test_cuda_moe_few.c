/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_moe_few.c - layers of experts of few slots on the fake driver: two
 * launches or three, their grids, what each is handed, which layers go step by
 * step instead, and failures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/kernels/common/moe_steps_params.h"
#include "backend/cuda/kernels/sm90/gemv_experts_params.h"
#include "moe_bed.h"

#define K	256
#define WIDTH	512
#define COLS	384
#define EXPERTS 64

/* launches: letter_of(). */
static const struct spec specs[] = {
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 1, 8, K, COLS, 8,
     false, true, "qee"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_GELU, NIB_DTYPE_FP16, 4, 8, K, COLS, 8,
     false, false, "qee"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 3, 10, K, COLS, 8,
     true, true, "ee"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, NIB_DTYPE_FP32, 1, 19, K,
     COLS, 8, false, true, "qee"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_FP16, 1, 8, K, COLS, 8,
     false, true, "ee"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 16, 2, K, COLS, 8,
     false, true, "ee"},
    /* More slots than go at once. */
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 33, 1, K, COLS,
     8, false, true, ""},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 11, 3, K, COLS,
     8, false, true, ""},
};
#define SPECS ((int)(sizeof(specs) / sizeof(*specs)))

static int matrices_of(const struct spec *s)
{
	return s->activation == NIB_MOE_ACTIVATION_RELU2 ? 1 : 2;
}

/* ---- launches ------------------------------------------------------------ */

/* 'q' x quantised, 'e' a product of this layer; others '?'. */
static char letter_of(const char *kernel)
{
	return strncmp(kernel, "nib_moe_quantize_", 17) == 0   ? 'q'
	       : strncmp(kernel, "nib_gemv_experts_", 17) == 0 ? 'e'
							       : '?';
}

static bool is_at_once(const struct bed *bed)
{
	return bed->spec->launches[0];
}

static void check_order(const struct bed *bed)
{
	char order[FAKE_HISTORY + 1] = "";
	const int count = launches_of(bed);

	for (int i = 0; i < count; i++) {
		order[i] = letter_of(launch_of(bed, i)->kernel);
		assert_true(launch_of(bed, i)->may_overlap);
		assert_ptr_equal(launch_of(bed, i)->stream, bed);
	}
	assert_string_equal(order, bed->spec->launches);
}

static const struct nib_gemv_experts_params *
product_of(const struct bed *bed, bool is_last, const struct fake_launch **launch)
{
	const int count = (int)strlen(bed->spec->launches);

	*launch = launch_of(bed, count - (is_last ? 1 : 2));
	return (const void *)(*launch)->parameters;
}

static bool is_in_workspace(const struct bed *bed, const void *at, int64_t bytes)
{
	const uintptr_t offset = (uintptr_t)at - (uintptr_t)bed->workspace;

	return offset % 64 == 0 && offset + (uintptr_t)bytes <= bed->workspace_bytes;
}

/* ---- what they are handed ------------------------------------------------ */

static void check_quantize(const struct bed *bed)
{
	const struct fake_launch *launch = launch_of(bed, 0);
	const struct nib_moe_quantize_params *p = (const void *)launch->parameters;
	const struct spec *s = bed->spec;

	assert_int_equal(launch->grid, (s->tokens * K / 4 + 255) / 256);
	assert_int_equal(launch->block, NIB_MOE_THREADS);
	assert_ptr_equal(p->x.data, bed->layer.x.data);
	assert_int_equal(p->x.row_stride, K + 8);
	assert_int_equal(p->x.dtype, s->dtype);
	assert_ptr_equal(p->global, bed->layer.in1);
	assert_int_equal(p->q.groups, K / 16);
	assert_true(is_in_workspace(bed, p->q.codes, s->tokens * K / 2));
	assert_true(is_in_workspace(bed, p->q.scales, s->tokens * K / 16));
}

/* What both products have. */
static void check_product(const struct bed *bed,
			  const struct nib_gemv_experts_params *p,
			  const struct fake_launch *launch, int matrices)
{
	assert_ptr_equal(p->layer.ids, bed->layer.ids);
	assert_int_equal(p->layer.ids_bytes, 8);
	assert_int_equal(p->layer.experts, EXPERTS);
	assert_int_equal(p->layer.first_expert, OFFSET);
	assert_int_equal(p->layer.top_k, bed->spec->top_k);
	assert_int_equal(p->moe.p.m, 1);
	assert_int_equal(p->moe.p.b.is_tiled, bed->spec->is_tiled);
	assert_int_equal(launch->block, NIB_GEMV_THREADS);
	assert_true((int64_t)launch->grid * p->moe.p.tiles_per_cta >= p->moe.p.tiles);
	assert_int_equal(launch->grid_y, bed->spec->tokens * bed->spec->top_k);
	assert_true(is_in_workspace(bed, p->layer.arrivals, 4));
	assert_int_equal(strstr(launch->kernel, "_dual_") != NULL, matrices == 2);
}

static void check_h(const struct bed *bed)
{
	const struct nib_moe_layer *l = &bed->layer;
	const struct spec *s = bed->spec;
	const struct fake_launch *launch;
	const struct nib_gemv_experts_params *p = product_of(bed, false, &launch);
	const int64_t slots = s->tokens * s->top_k;
	const struct nib_moe_quantize_params *q =
	    (const void *)launch_of(bed, 0)->parameters;

	check_product(bed, p, launch, matrices_of(s));
	assert_null(p->layer.weights);
	assert_true(p->layer.a_is_by_token);
	/* It waits before it reads ids unless x was quantised before. */
	assert_int_equal(p->moe.p.b_is_constant, s->launches[0] == 'q');
	assert_ptr_equal(p->moe.p.a.codes, s->launches[0] == 'q' ? q->q.codes
					   : s->is_quantized	 ? l->a.codes
								 : l->x.data);
	assert_ptr_equal(p->moe.p.b.codes, l->gate.codes);
	assert_ptr_equal(p->moe.p.alpha, l->gate_alpha);
	if (matrices_of(s) == 2) {
		assert_ptr_equal(p->moe.b2.codes, l->up.codes);
		assert_ptr_equal(p->moe.b2.scales, l->up.scales);
		assert_ptr_equal(p->moe.alpha2, l->up_alpha);
	}
	assert_int_equal(p->layer.activation, s->activation);
	assert_true(p->layer.limit == l->limit && p->layer.swish == l->swish &&
		    p->layer.up_bias == l->up_bias);
	assert_int_equal(p->moe.p.c_dtype, is_nvfp4(s) ? NIB_DTYPE_FP32 : s->dtype);
	assert_int_equal(p->moe.p.c_row_stride, WIDTH);
	assert_true(
	    is_in_workspace(bed, p->moe.p.c, slots * WIDTH * (is_nvfp4(s) ? 4 : 2)));
}

static void check_y(const struct bed *bed)
{
	const struct nib_moe_layer *l = &bed->layer;
	const struct spec *s = bed->spec;
	const struct fake_launch *launch, *before;
	const struct nib_gemv_experts_params *h = product_of(bed, false, &before);
	const struct nib_gemv_experts_params *p = product_of(bed, true, &launch);

	check_product(bed, p, launch, 1);
	/* h's kernel clears what this one counts. */
	assert_ptr_equal(p->layer.arrivals, h->layer.arrivals);
	assert_int_equal(h->layer.n_arrivals, s->tokens * launch->grid);
	assert_true(
	    is_in_workspace(bed, h->layer.arrivals, 4 * (int64_t)h->layer.n_arrivals));
	assert_ptr_equal(p->layer.weights, l->weights);
	assert_false(p->layer.a_is_by_token);
	assert_true(p->moe.p.b_is_constant);
	assert_ptr_equal(p->moe.p.a.codes, h->moe.p.c);
	assert_int_equal(p->moe.p.a.row_stride, WIDTH * (is_nvfp4(s) ? 4 : 2));
	/* It quantises h. */
	assert_ptr_equal(p->layer.global, is_nvfp4(s) ? l->in2 : NULL);
	assert_ptr_equal(p->moe.p.b.codes, l->down.codes);
	assert_ptr_equal(p->moe.p.alpha, l->down_alpha);
	assert_true(is_in_workspace(bed, p->moe.p.c, s->tokens * s->top_k * COLS * 2));
	assert_int_equal(p->moe.p.c_dtype, s->dtype);
	assert_int_equal(p->moe.p.c_row_stride, COLS);
	assert_ptr_equal(p->layer.y, l->y.data);
	assert_int_equal(p->layer.y_row_stride, COLS + 8);
}

static void at_once(void)
{
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	for (int i = 0; i < SPECS; i++) {
		use(&bed, &specs[i]);
		if (run(&bed))
			fail_msg("%d: %s", i, bed.err.message);
		if (!is_at_once(&bed)) {
			assert_int_equal(letter_of(launch_of(&bed, 0)->kernel), '?');
			continue;
		}
		check_order(&bed);
		if (specs[i].launches[0] == 'q')
			check_quantize(&bed);
		check_h(&bed);
		check_y(&bed);
	}
	close_bed(&bed);
}

/* The launches of a layer whose rows of x lie so far apart. */
static void use_stride(struct bed *bed, const struct spec *s, int64_t stride)
{
	const struct nib_run_options options = {.struct_bytes = sizeof(options)};

	use(bed, s);
	nib_moe_layer_plan_free(bed->plan);
	bed->layer.x.row_stride_elems = stride;
	assert_int_equal(nib_moe_layer_plan_create(bed->device, &bed->layer, NULL,
						   &bed->plan, &bed->err),
			 NIB_STATUS_OK);
	bed->first = bed->fake->launches;
	assert_int_equal(nib_moe_layer_run(bed->plan, &bed->layer, &options, &bed->err),
			 NIB_STATUS_OK);
}

/* Rows of a dense x that are not in pieces of 16 bytes are gathered first. */
static void step_by_step(void)
{
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	use_stride(&bed, &specs[5], K + 8);
	assert_int_equal(letter_of(launch_of(&bed, 0)->kernel), 'e');
	use_stride(&bed, &specs[5], K + 4);
	assert_int_equal(strncmp(launch_of(&bed, 0)->kernel, "nib_moe_begin_", 14), 0);
	/* One row has no stride, and NVFP4 takes any. */
	use_stride(&bed, &specs[4], K + 4);
	assert_int_equal(letter_of(launch_of(&bed, 0)->kernel), 'e');
	use_stride(&bed, &specs[1], K + 4);
	assert_int_equal(letter_of(launch_of(&bed, 0)->kernel), 'q');
	close_bed(&bed);
}

static void refusals(void)
{
	static _Alignas(64) char host[1 << 16];
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	for (int i = 0; i < 2; i++) {
		use(&bed, &specs[i * 4]);
		bed.layer.weights = (float *)(void *)host;
		assert_int_equal(run(&bed), NIB_STATUS_BAD_ARGUMENT);
		assert_string_equal(bed.err.argument, "layer.weights");
		assert_int_equal(bed.fake->launches, bed.first);
		use(&bed, &specs[i * 4]);
		bed.workspace = host;
		assert_int_equal(run(&bed), NIB_STATUS_BAD_ARGUMENT);
		assert_string_equal(bed.err.argument, "options.workspace");
		assert_int_equal(bed.fake->launches, bed.first);
	}
	close_bed(&bed);
}

/* Each launch in turn is the one that the driver refuses. */
static void failed_launches(void)
{
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	for (int i = 0; i < SPECS; i++) {
		int all;

		use(&bed, &specs[i]);
		assert_int_equal(run(&bed), NIB_STATUS_OK);
		all = bed.fake->launches - bed.first;
		for (int n = 0; n < all; n++) {
			bed.fake->launch_result = CUDA_ERROR_LAUNCH_FAILED;
			bed.fake->launches_left = n;
			assert_int_equal(run(&bed), NIB_STATUS_DEVICE_FAILED);
			assert_int_equal(bed.fake->launches - bed.first, n);
			assert_int_equal(bed.fake->depth, 0);
			bed.fake->launch_result = CUDA_SUCCESS;
			assert_int_equal(run(&bed), NIB_STATUS_OK);
		}
	}
	close_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"at_once", at_once},
	    {"step_by_step", step_by_step},
	    {"refusals", refusals},
	    {"failed_launches", failed_launches},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
