/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_layers.c - NVFP4 layers recognised in files, and why others not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/float_mode.h"
#include "common/unit.h"
#include "file/little_endian.h"

static const float half[] = {0.5F}, quarter[] = {0.25F}, two[] = {2}, four[] = {4};

static void reads_both_formats_to_one_meaning(void **state)
{
	/* An odd number of bytes first: nothing may need alignment. */
	static const struct test_part parts[] = {
	    {"odd", "U8", "3", 3, NULL},
	    {"m.weight", "U8", "3,16", 48, NULL},
	    {"m.weight_scale", "F8_E4M3", "3,2", 6, NULL},
	    {"m.weight_scale_2", "F32", "", 4, half},
	    {"m.input_scale", "F32", "", 4, quarter},
	    {"c.weight_packed", "U8", "3,16", 48, NULL},
	    {"c.weight_scale", "F8_E4M3", "3,2", 6, NULL},
	    {"c.weight_global_scale", "F32", "1", 4, two},
	    {"c.input_global_scale", "F32", "1", 4, four},
	    {NULL, NULL, NULL, 0, NULL},
	};
	static const char *const names[] = {"m", "c"};
	static const char *const weights[] = {"m.weight", "c.weight_packed"};
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);

	assert_int_equal(nib_file_layer_count(file), 2);
	assert_int_equal(nib_file_layer_defect_count(file), 0);
	for (int i = 0; i < 2; i++) {
		const struct nib_layer *layer = nib_file_layer_at(file, i);
		const struct nib_file_tensor *w = nib_file_find(file, weights[i]);

		assert_string_equal(layer->name, names[i]);
		assert_int_equal(layer->format, i);
		assert_ptr_equal(layer->weight.codes, w->data);
		assert_ptr_equal(layer->weight.scales, (w + 1)->data);
		assert_int_equal(layer->weight.rows, 3);
		assert_int_equal(layer->weight.k, 32);
		assert_int_equal(layer->weight.batch, 1);
		assert_int_equal(layer->weight.scale_layout, NIB_SCALE_LAYOUT_LINEAR);
		assert_true(layer->globals[0] == 0.5F);
		assert_true(layer->input_globals[0] == 0.25F);
		assert_ptr_equal(nib_file_find_layer(file, names[i]), layer);
		assert_ptr_equal(nib_file_find_layer(file, weights[i]), layer);
	}
	assert_null(nib_file_find_layer(file, "m.weight_scale"));
	assert_null(nib_file_find_layer(file, "m.weight_packed"));
	assert_null(nib_file_find_layer(file, "c.weight"));
	assert_null(nib_file_find_layer(file, "odd"));
	assert_null(nib_file_find_layer(file, ""));
	assert_null(nib_file_find_layer(file, "mm"));
	assert_null(nib_file_layer_at(file, 2));
	assert_null(nib_file_layer_at(file, -1));
	test_close_parts(file, &image);
}

/* Scales that are subnormal, also for a thread that counts those as 0. */
static void reads_scales_that_a_thread_flushes(void **state)
{
	static const float large[] = {1e38F, 2e38F}, small[] = {1e-40F},
			   want[] = {1 / 1e38F, 1 / 2e38F};
	static const struct test_part parts[] = {
	    {"c.weight_packed", "U8", "3,16", 48, NULL},
	    {"c.weight_scale", "F8_E4M3", "3,2", 6, NULL},
	    {"c.weight_global_scale", "F32", "1", 4, large},
	    {"c.input_global_scale", "F32", "1", 4, large},
	    {"m.weight", "U8", "3,16", 48, NULL},
	    {"m.weight_scale", "F8_E4M3", "3,2", 6, NULL},
	    {"m.weight_scale_2", "F32", "", 4, small},
	    {"s.weight_packed", "U8", "2,2,8", 32, NULL},
	    {"s.weight_scale", "F8_E4M3", "2,2,1", 4, NULL},
	    {"s.weight_global_scale", "F32", "2", 8, large},
	    {NULL, NULL, NULL, 0, NULL},
	};
	static const int modes[] = {0, MODE_FLUSH};

	for (size_t i = 0; i < 2; i++) {
		const struct nib_layer *layer;
		struct test_image image;
		struct nib_file *file;

		test_mode_set(modes[i]);
		file = test_open_parts(parts, &image);
		test_mode_set(0);
		assert_int_equal(nib_file_layer_defect_count(file), 0);
		layer = nib_file_find_layer(file, "c");
		assert_memory_equal(layer->globals, &want[0], 4);
		assert_memory_equal(layer->input_globals, &want[0], 4);
		layer = nib_file_find_layer(file, "m");
		assert_memory_equal(layer->globals, small, 4);
		layer = nib_file_find_layer(file, "s");
		assert_non_null(layer->globals);
		assert_memory_equal(layer->globals, want, 8);
		test_close_parts(file, &image);
	}
}

static void reads_stacks(void **state)
{
	static const float same[] = {0.5F, 0.5F, 0.5F}, all[] = {1, 2, 4};
	/* The input of one expert was never seen. */
	static const float stored[] = {1, -INFINITY, 4}, seen[] = {1, 0, 4};
	static const struct test_part parts[] = {
	    {"one.weight", "U8", "3,2,8", 48, NULL},
	    {"one.weight_scale", "F8_E4M3", "3,2,1", 6, NULL},
	    {"one.weight_scale_2", "F32", "", 4, half},
	    {"same.weight", "U8", "3,2,8", 48, NULL},
	    {"same.weight_scale", "F8_E4M3", "3,2,1", 6, NULL},
	    {"same.weight_scale_2", "F32", "3", 12, same},
	    {"all.weight", "U8", "3,2,8", 48, NULL},
	    {"all.weight_scale", "F8_E4M3", "3,2,1", 6, NULL},
	    {"all.weight_scale_2", "F32", "3,1,1", 12, all},
	    {"all.input_scale", "F32", "3", 12, stored},
	    {"ct.weight_packed", "U8", "3,2,8", 48, NULL},
	    {"ct.weight_scale", "F8_E4M3", "3,2,1", 6, NULL},
	    {"ct.weight_global_scale", "F32", "3,1", 12, all},
	    {NULL, NULL, NULL, 0, NULL},
	};
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);
	const struct nib_layer *layer;

	assert_int_equal(nib_file_layer_count(file), 4);
	layer = nib_file_find_layer(file, "one");
	assert_int_equal(layer->weight.batch, 3);
	assert_int_equal(layer->weight.rows, 2);
	assert_int_equal(layer->weight.k, 16);
	assert_memory_equal(layer->globals, same, sizeof(same));
	assert_null(layer->input_globals);
	layer = nib_file_find_layer(file, "same");
	assert_memory_equal(layer->globals, same, sizeof(same));
	layer = nib_file_find_layer(file, "all");
	assert_memory_equal(layer->globals, all, sizeof(all));
	assert_memory_equal(layer->input_globals, seen, sizeof(seen));
	layer = nib_file_find_layer(file, "ct");
	assert_true(layer->globals[0] == 1 && layer->globals[1] == 0.5F &&
		    layer->globals[2] == 0.25F);
	test_close_parts(file, &image);
}

/* Names that NVFP4 shares with others: no layers, and no complaints. */
static void leaves_other_formats_alone(void **state)
{
	static const struct test_part parts[] = {
	    {"plain.weight", "BF16", "2,8", 32, NULL},
	    {"fp8.weight", "F8_E4M3", "4,8", 32, NULL},
	    {"fp8.weight_scale", "F32", "", 4, half},
	    {"fp8.input_scale", "F32", "", 4, half},
	    {"int4.weight_packed", "I32", "2,2", 16, NULL},
	    {"int4.weight_scale", "BF16", "2,1", 4, NULL},
	    {"mxfp4.weight_packed", "U8", "2,16", 32, NULL},
	    {"mxfp4.weight_scale", "U8", "2,1", 2, NULL},
	    {"nf4.weight", "U8", "32,1", 32, NULL},
	    {".weight", "U8", "2,8", 16, NULL},
	    {"weight", "U8", "2,8", 16, NULL},
	    {NULL, NULL, NULL, 0, NULL},
	};
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);

	assert_int_equal(nib_file_layer_count(file), 0);
	assert_int_equal(nib_file_layer_defect_count(file), 0);
	test_close_parts(file, &image);
}

/* One layer "x" of four tensors, of which some are wrong. */
struct bad_layer {
	struct test_part parts[5];
	const char *reason;
};

#define W(dtype, shape, bytes)                                                         \
	{                                                                              \
		"x.weight", dtype, shape, bytes, NULL                                  \
	}
#define S(dtype, shape, bytes)                                                         \
	{                                                                              \
		"x.weight_scale", dtype, shape, bytes, NULL                            \
	}
#define G(dtype, shape, bytes, value)                                                  \
	{                                                                              \
		"x.weight_scale_2", dtype, shape, bytes, value                         \
	}
#define I(value)                                                                       \
	{                                                                              \
		"x.input_scale", "F32", "", 4, value                                   \
	}

#define C                                                                              \
	{                                                                              \
		"x.weight_packed", "U8", "2,8", 16, NULL                               \
	}
#define CG(value)                                                                      \
	{                                                                              \
		"x.weight_global_scale", "F32", "1", 4, value                          \
	}
#define CI(value)                                                                      \
	{                                                                              \
		"x.input_global_scale", "F32", "1", 4, value                           \
	}

static const float minus_0[] = {-0.0F}, half_none[] = {0.5F, 0};
static const float none[] = {0}, minus[] = {-1}, nan_[] = {NAN},
		   infinite[] = {INFINITY}, tiny[] = {1e-45F}, pair[] = {1, 2};

static const struct bad_layer bad_layers[] = {
    /* half there */
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2)}, "weight_scale_2 is missing"},
    {{W("U8", "2,8", 16), G("F32", "", 4, half)}, "weight_scale is missing"},
    {{S("F8_E4M3", "2,1", 2), G("F32", "", 4, half)}, "weight is missing"},
    {{{"x.weight_packed", "U8", "2,8", 16, NULL}}, "weight_scale is missing"},
    {{{"x.weight_packed", "U8", "2,8", 16, NULL}, S("F8_E4M3", "2,1", 2)},
     "weight_global_scale is missing"},
    {{{"x.weight_global_scale", "F32", "1", 4, half}}, "weight_packed is missing"},
    /* weight */
    {{W("I8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "", 4, half)},
     "weight is I8 [2, 8]: must be U8 of rank 2 or 3"},
    {{W("U8", "16", 16), S("F8_E4M3", "2", 2), G("F32", "", 4, half)},
     "weight is U8 [16]: must be U8 of rank 2 or 3"},
    {{W("U8", "1,1,2,8", 16), S("F8_E4M3", "1,1,2,1", 2), G("F32", "", 4, half)},
     "must be U8 of rank 2 or 3"},
    {{W("U8", "2,4", 8), S("F8_E4M3", "2,1", 2), G("F32", "", 4, half)},
     "the last size must be a multiple of 8, 1 .. 524288"},
    {{W("U8", "2,0", 0), S("F8_E4M3", "2,0", 0), G("F32", "", 4, half)},
     "the last size must be"},
    {{W("U8", "0,524296", 0), S("F8_E4M3", "0,65537", 0), G("F32", "", 4, half)},
     "the last size must be"},
    {{W("U8", "0,9223372036854775800", 0), S("F8_E4M3", "0,1", 0),
      G("F32", "", 4, half)},
     "the last size must be"},
    {{W("U8", "0,2,8", 0), S("F8_E4M3", "0,2,1", 0), G("F32", "", 4, half)},
     "a stack of no matrices"},
    /* weight_scale */
    {{W("U8", "2,8", 16), S("U8", "2,1", 2), G("F32", "", 4, half)},
     "weight_scale is U8 [2, 1]: must be F8_E4M3 [2, 1]"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "1,2", 2), G("F32", "", 4, half)},
     "weight_scale is F8_E4M3 [1, 2]: must be F8_E4M3 [2, 1]"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2", 2), G("F32", "", 4, half)},
     "must be F8_E4M3 [2, 1]"},
    {{W("U8", "2,2,8", 32), S("F8_E4M3", "4,1", 4), G("F32", "", 4, half)},
     "must be F8_E4M3 [batch, 2, 1]"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "128,4", 512), G("F32", "", 4, half)},
     "padded as 128x4 tiles are"},
    {{W("U8", "128,40", 5120), S("F8_E4M3", "128,8", 1024), G("F32", "", 4, half)},
     "padded as 128x4 tiles are"},
    {{W("U8", "129,32", 4128), S("F8_E4M3", "256,4", 1024), G("F32", "", 4, half)},
     "padded as 128x4 tiles are"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "128,8", 1024), G("F32", "", 4, half)},
     "weight_scale is F8_E4M3 [128, 8]: must be F8_E4M3 [2, 1]"},
    {{W("U8", "9223372036854775807,0", 0), S("F8_E4M3", "0,0", 0),
      G("F32", "", 4, half)},
     "the last size must be"},
    /* globals */
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F64", "", 8, NULL)},
     "weight_scale_2 is F64 []: must be one F32"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "2", 8, pair)},
     "weight_scale_2 is F32 [2]: must be one F32"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "0", 0, NULL)},
     "must be one F32"},
    {{W("U8", "3,2,8", 48), S("F8_E4M3", "3,2,1", 6), G("F32", "2", 8, pair)},
     "must be one F32, or one for each matrix"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "", 4, minus)},
     "weight_scale_2 is -1: must be a positive number"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "", 4, nan_)},
     "weight_scale_2 is nan"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "", 4, infinite)},
     "weight_scale_2 is inf"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "", 4, none)},
     "weight_scale_2 is 0: must be a positive number"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "", 4, minus_0)},
     "weight_scale_2 is -0: must be a positive number"},
    {{W("U8", "2,2,8", 32), S("F8_E4M3", "2,2,1", 4), G("F32", "2", 8, half_none)},
     "weight_scale_2 is 0: must be a positive number"},
    {{C, S("F8_E4M3", "2,1", 2), CG(infinite)}, "weight_global_scale is inf"},
    {{C, S("F8_E4M3", "2,1", 2), CG(minus)}, "weight_global_scale is -1"},
    {{C, S("F8_E4M3", "2,1", 2), CG(nan_)}, "weight_global_scale is nan"},
    {{C, S("F8_E4M3", "2,1", 2), CG(half), CI(minus)}, "input_global_scale is -1"},
    {{C, S("F8_E4M3", "2,1", 2), CG(half), CI(tiny)},
     "input_global_scale is 1.4013e-45"},
    {{W("U8", "2,8", 16), S("F8_E4M3", "2,1", 2), G("F32", "", 4, half), I(minus)},
     "input_scale is -1"},
    {{{"x.weight_packed", "U8", "2,8", 16, NULL},
      S("F8_E4M3", "2,1", 2),
      {"x.weight_global_scale", "F32", "1", 4, none}},
     "weight_global_scale is 0"},
    {{{"x.weight_packed", "U8", "2,8", 16, NULL},
      S("F8_E4M3", "2,1", 2),
      {"x.weight_global_scale", "F32", "1", 4, tiny}},
     "weight_global_scale is 1.4013e-45"},
};

static void says_why_a_layer_cannot_be_read(void **state)
{
	for (size_t i = 0; i < sizeof(bad_layers) / sizeof(*bad_layers); i++) {
		const struct bad_layer *bad = &bad_layers[i];
		struct test_image image;
		struct nib_file *file = test_open_parts(bad->parts, &image);
		const struct nib_layer_defect *problem;

		assert_int_equal(nib_file_layer_count(file), 0);
		assert_null(nib_file_find_layer(file, "x"));
		if (nib_file_layer_defect_count(file) != 1)
			fail_msg("%zu (%s): %d problems", i, bad->reason,
				 (int)nib_file_layer_defect_count(file));
		problem = nib_file_layer_defect_at(file, 0);
		assert_string_equal(problem->name, "x");
		assert_contains(problem->reason, bad->reason);
		assert_null(nib_file_layer_defect_at(file, 1));
		test_close_parts(file, &image);
	}
}

/* Also by the name of its weight, which is longer than the layer's. */
/* Writers whose layouts are not read, each by its name. */
static void refuses_other_writers_by_name(void **state)
{
	static const struct test_part parts[] = {
	    {"mlx.weight", "U32", "4,4", 64, NULL},
	    {"mlx.scales", "U8", "4,2", 8, NULL},
	    {"affine.weight", "U32", "4,4", 64, NULL},
	    {"affine.scales", "BF16", "4,1", 8, NULL},
	    {"nun.qweight", "I8", "4,16", 64, NULL},
	    {"nun.wscales", "F8_E4M3", "2,4", 8, NULL},
	    {"nun.smooth_factor", "BF16", "32", 64, NULL},
	    {"trt.weight", "I64", "4,2", 64, NULL},
	    {"trt.weights_block_scaling_factor", "F8_E4M3", "4,2", 8, NULL},
	    {"ao._weight_qdata", "U8", "4,16", 64, NULL},
	    {"ao._weight_scale", "F8_E4M3", "4,2", 8, NULL},
	    {"old.weight:qdata", "U8", "4,16", 64, NULL},
	    {"old.weight:scale", "F8_E4M3", "4,2", 8, NULL},
	    {NULL, NULL, NULL, 0, NULL},
	};
	static const struct {
		const char *name, *says;
	} want[] = {
	    {"mlx", "MLX's layout"},
	    {"nun", "nunchaku's SVDQuant"},
	    {"trt", "TensorRT-LLM's"},
	    {"ao", "torchao's tensor subclass"},
	    {"old", "torchao's tensor subclass"},
	};
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);

	assert_int_equal(nib_file_layer_count(file), 0);
	assert_int_equal(nib_file_layer_defect_count(file), 5);
	for (int i = 0; i < 5; i++) {
		const struct nib_layer_defect *problem =
		    nib_file_layer_defect_at(file, i);

		assert_string_equal(problem->name, want[i].name);
		assert_contains(problem->reason, want[i].says);
	}
	test_close_parts(file, &image);
}

static void finds_names_that_begin_others(void **state)
{
	static const char *const names[] = {"x", "x1", "x2", "x3"};
	struct test_part parts[13] = {{NULL, NULL, NULL, 0, NULL}};
	char text[12][24], name[24];
	struct test_image image;
	struct nib_file *file;

	for (int i = 0; i < 4; i++) {
		char(*t)[24] = &text[3 * i];

		snprintf(t[0], sizeof(*t), "%s.weight", names[i]);
		snprintf(t[1], sizeof(*t), "%s.weight_scale", names[i]);
		snprintf(t[2], sizeof(*t), "%s.weight_scale_2", names[i]);
		parts[3 * i] = (struct test_part){t[0], "U8", "2,8", 16, NULL};
		parts[3 * i + 1] = (struct test_part){t[1], "F8_E4M3", "2,1", 2, NULL};
		parts[3 * i + 2] = (struct test_part){t[2], "F32", "1", 4, half};
	}
	file = test_open_parts(parts, &image);
	for (int i = 0; i < 4; i++) {
		const struct nib_layer *layer = nib_file_find_layer(file, names[i]);

		assert_non_null(layer);
		assert_string_equal(layer->name, names[i]);
		snprintf(name, sizeof(name), "%s.weight", names[i]);
		assert_ptr_equal(nib_file_find_layer(file, name), layer);
	}
	assert_null(nib_file_find_layer(file, "x4"));
	assert_null(nib_file_find_layer(file, ""));
	test_close_parts(file, &image);
}

static void refuses_a_layer_in_both_formats(void **state)
{
	static const struct test_part parts[] = {
	    {"x.weight", "U8", "2,8", 16, NULL},
	    {"x.weight_packed", "U8", "2,8", 16, NULL},
	    {"x.weight_scale", "F8_E4M3", "2,1", 2, NULL},
	    {"x.weight_scale_2", "F32", "", 4, half},
	    {"x.weight_global_scale", "F32", "1", 4, two},
	    {NULL, NULL, NULL, 0, NULL},
	};
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);

	assert_int_equal(nib_file_layer_count(file), 0);
	assert_int_equal(nib_file_layer_defect_count(file), 2);
	assert_string_equal(nib_file_layer_defect_at(file, 0)->reason,
			    "the layer is stored in both formats");
	test_close_parts(file, &image);
}

/* An expert that the calibration never reached has an input scale of 0, inf or
 * NaN: the weight is as good as any, and there is no scale. */
static void reads_layers_that_were_not_calibrated(void **state)
{
	static const float *const scales[] = {none, minus_0, infinite, nan_};

	for (size_t i = 0; i < 8; i++) {
		const struct test_part modelopt[] = {W("U8", "2,8", 16),
						     S("F8_E4M3", "2,1", 2),
						     G("F32", "", 4, half),
						     I(scales[i / 2]),
						     {NULL, NULL, NULL, 0, NULL}};
		const struct test_part compressed[] = {C,
						       S("F8_E4M3", "2,1", 2),
						       CG(two),
						       CI(scales[i / 2]),
						       {NULL, NULL, NULL, 0, NULL}};
		struct test_image image;
		struct nib_file *file =
		    test_open_parts(i % 2 ? compressed : modelopt, &image);

		assert_int_equal(nib_file_layer_count(file), 1);
		assert_true(nib_file_layer_at(file, 0)->globals[0] == 0.5F);
		assert_null(nib_file_layer_at(file, 0)->input_globals);
		test_close_parts(file, &image);
	}
}

/* The largest of no values is 0, and so is the global scale: 0, or 1/0. */
static void reads_scales_of_nothing(void **state)
{
	static const struct test_part parts[] = {
	    {"m.weight", "U8", "0,8", 0, NULL},
	    {"m.weight_scale", "F8_E4M3", "0,1", 0, NULL},
	    {"m.weight_scale_2", "F32", "", 4, none},
	    {"m.input_scale", "F32", "", 4, none},
	    {"c.weight_packed", "U8", "0,8", 0, NULL},
	    {"c.weight_scale", "F8_E4M3", "0,1", 0, NULL},
	    {"c.weight_global_scale", "F32", "", 4, infinite},
	    {"c.input_global_scale", "F32", "", 4, none},
	    {NULL, NULL, NULL, 0, NULL},
	};
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);

	assert_int_equal(nib_file_layer_defect_count(file), 0);
	assert_int_equal(nib_file_layer_count(file), 2);
	for (int i = 0; i < 2; i++) {
		assert_null(nib_file_layer_at(file, i)->globals);
		assert_null(nib_file_layer_at(file, i)->input_globals);
	}
	assert_int_equal(nib_file_find_layer(file, "c")->weight.rows, 0);
	test_close_parts(file, &image);
}

/* ModelOpt's stack of all experts: X, X_weight_scale, X_weight_scale_2. */
static void reads_fused_experts(void **state)
{
	static const float globals[] = {1, 0.5F};
	static const struct test_part parts[] = {
	    {"e.gate_up_proj", "U8", "2,4,16", 128, NULL},
	    {"e.gate_up_proj_weight_scale", "F8_E4M3", "2,4,2", 16, NULL},
	    {"e.gate_up_proj_weight_scale_2", "F32", "2", 8, globals},
	    {"e.gate_up_proj_input_scale", "F32", "", 4, quarter},
	    {"e.gate_up_proj_bias", "F32", "2,4", 32, NULL},
	    {"across.down_proj", "U8", "2,16,8", 256, NULL},
	    {"across.down_proj_weight_scale", "F8_E4M3", "2,2,8", 32, NULL},
	    {"across.down_proj_weight_scale_2", "F32", "", 4, half},
	    {"gone.up_weight_scale_2", "F32", "", 4, half},
	    {NULL, NULL, NULL, 0, NULL},
	};
	const struct nib_layer_defect *problem;
	const struct nib_layer *layer;
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);

	assert_int_equal(nib_file_layer_count(file), 1);
	layer = nib_file_find_layer(file, "e.gate_up_proj");
	assert_non_null(layer);
	assert_int_equal(layer->format, NIB_CHECKPOINT_MODELOPT);
	assert_int_equal(layer->weight.batch, 2);
	assert_int_equal(layer->weight.rows, 4);
	assert_int_equal(layer->weight.k, 32);
	assert_float_equal(layer->globals[1], 0.5, 0);
	assert_float_equal(layer->input_globals[0], 0.25, 0);
	assert_float_equal(layer->input_globals[1], 0.25, 0);
	assert_int_equal(nib_file_layer_defect_count(file), 2);
	problem = nib_file_layer_defect_at(file, 0);
	assert_string_equal(problem->name, "across.down_proj");
	assert_string_equal(problem->reason,
			    "the tensor of codes is U8 [2, 16, 8], packed "
			    "along the second last size, which nibblas.transformers "
			    "runs: must be [batch, rows, "
			    "k / 2]");
	problem = nib_file_layer_defect_at(file, 1);
	assert_string_equal(problem->name, "gone.up");
	assert_string_equal(problem->reason, "the tensor of codes is missing");
	test_close_parts(file, &image);
}

/* AWQ's scales of x are told; other types and sizes are refused. */
static void reads_awq(void **state)
{
	static const struct {
		const char *dtype, *shape;
		uint64_t bytes;
		const char *reason; /* NULL: it is read */
	} cases[] = {
	    {"F16", "32", 64, NULL},
	    {"BF16", "32", 64, NULL},
	    {"F32", "32", 128, NULL},
	    {"F16", "16", 32,
	     "pre_quant_scale is F16 [16]: must be F32, F16 "
	     "or BF16 [32], of one matrix"},
	    {"F16", "1,32", 64,
	     "pre_quant_scale is F16 [1, 32]: must be F32, "
	     "F16 or BF16 [32], of one matrix"},
	    {"I32", "32", 128,
	     "pre_quant_scale is I32 [32]: must be F32, F16 "
	     "or BF16 [32], of one matrix"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct test_part parts[] = {
		    {"m.weight", "U8", "3,16", 48, NULL},
		    {"m.weight_scale", "F8_E4M3", "3,2", 6, NULL},
		    {"m.weight_scale_2", "F32", "", 4, half},
		    {"m.pre_quant_scale", cases[i].dtype, cases[i].shape,
		     cases[i].bytes, NULL},
		    {NULL, NULL, NULL, 0, NULL},
		};
		struct test_image image;
		struct nib_file *file = test_open_parts(parts, &image);

		assert_int_equal(nib_file_layer_count(file), !cases[i].reason);
		if (cases[i].reason)
			assert_string_equal(nib_file_layer_defect_at(file, 0)->reason,
					    cases[i].reason);
		else
			assert_ptr_equal(nib_file_layer_at(file, 0)->pre_quant_scale,
					 nib_file_find(file, "m.pre_quant_scale"));
		test_close_parts(file, &image);
	}
}

/* What a layer multiplies or adds besides its weight is never ignored. */
static void refuses_layers_with_more_than_a_weight(void **state)
{
	static const char *const extras[] = {"m.svdquant_lora_a", "m.svdquant_lora_b"};

	for (int i = 0; i < 2; i++) {
		const struct test_part parts[] = {
		    {"m.weight", "U8", "3,16", 48, NULL},
		    {"m.weight_scale", "F8_E4M3", "3,2", 6, NULL},
		    {"m.weight_scale_2", "F32", "", 4, half},
		    {extras[i], "F16", "32", 64, NULL},
		    {NULL, NULL, NULL, 0, NULL},
		};
		const struct nib_layer_defect *problem;
		struct test_image image;
		struct nib_file *file = test_open_parts(parts, &image);

		assert_int_equal(nib_file_layer_count(file), 0);
		assert_int_equal(nib_file_layer_defect_count(file), 1);
		problem = nib_file_layer_defect_at(file, 0);
		assert_string_equal(problem->name, "m");
		if (!strstr(problem->reason, extras[i] + 2))
			fail_msg("%s: '%s'", extras[i], problem->reason);
		test_close_parts(file, &image);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(reads_both_formats_to_one_meaning),
	    cmocka_unit_test(reads_scales_that_a_thread_flushes),
	    cmocka_unit_test(reads_stacks),
	    cmocka_unit_test(leaves_other_formats_alone),
	    cmocka_unit_test(says_why_a_layer_cannot_be_read),
	    cmocka_unit_test(refuses_other_writers_by_name),
	    cmocka_unit_test(finds_names_that_begin_others),
	    cmocka_unit_test(refuses_a_layer_in_both_formats),
	    cmocka_unit_test(reads_layers_that_were_not_calibrated),
	    cmocka_unit_test(reads_scales_of_nothing),
	    cmocka_unit_test(reads_fused_experts),
	    cmocka_unit_test(reads_awq),
	    cmocka_unit_test(refuses_layers_with_more_than_a_weight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
