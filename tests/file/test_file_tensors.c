/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_tensors.c - which tensors of a file make a quantised layer, its sizes and
 * the kind of its scales.  test_file_layers.c has the NVFP4 layers among them.
 */
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/unit.h"

static const float half[] = {0.5F}, two[] = {2};

/* The name of a tensor, or "-". */
static const char *name_of(const struct nib_file_tensor *t)
{
	return t ? t->name : "-";
}

static void refuses_what_is_no_group(const struct nib_file *file, int n)
{
	assert_null(nib_file_layer_tensors_of(file, NULL));
	assert_null(nib_file_layer_tensors_of(NULL, NULL));
	assert_null(nib_file_layer_tensors_at(file, n));
	assert_null(nib_file_layer_tensors_at(file, -1));
	assert_int_equal(nib_file_layer_tensors_count(NULL), 0);
	assert_string_equal(nib_naming_suffixes(NIB_NAMING_MODELOPT)->codes, ".weight");
	assert_null(nib_naming_suffixes((enum nib_naming)6));
	assert_null(nib_naming_suffixes((enum nib_naming) - 1));
}

static const struct test_part all_namings[] = {
    {"m.weight", "U8", "3,8", 24, NULL},
    {"m.weight_scale", "F8_E4M3", "3,1", 3, NULL},
    {"m.weight_scale_2", "F32", "", 4, half},
    {"m.pre_quant_scale", "F32", "16", 64, NULL},
    {"c.weight_packed", "I32", "3", 12, NULL},
    {"e.up", "U8", "2,8,3", 48, NULL},
    {"e.up_weight_scale", "F8_E4M3", "2,1,3", 6, NULL},
    {"e.down_packed", "U8", "2,3,8", 48, NULL},
    {"e.down_scale", "F8_E4M3", "2,3,1", 6, NULL},
    {"e.down_global_scale", "F32", "1", 4, two},
    {"f.weight", "F8_E4M3", "2,2", 4, NULL},
    {"f.weight_scale_inv", "F32", "1", 4, half},
    {"g.weight", "F8_E5M2", "2,2", 4, NULL},
    {"g.weight_scale", "F32", "1", 4, half},
    {"h.weight", "F8_E5M2", "2,2", 4, NULL},
    {NULL, NULL, NULL, 0, NULL},
};

/* Layers of all namings, with their tensors, and what belongs to none. */
static void groups_the_tensors_of_layers(void **state)
{
	static const struct {
		const char *codes, *name, *scales, *global;
		enum nib_naming naming;
		int is_transposed;
	} expected[] = {
	    {"m.weight", "m", "m.weight_scale", "m.weight_scale_2", NIB_NAMING_MODELOPT,
	     0},
	    {"c.weight_packed", "c", "-", "-", NIB_NAMING_COMPRESSED_TENSORS, 0},
	    {"e.up", "e.up", "e.up_weight_scale", "-", NIB_NAMING_MODELOPT_STACK, 1},
	    {"e.down_packed", "e.down", "e.down_scale", "e.down_global_scale",
	     NIB_NAMING_COMPRESSED_TENSORS_STACK, 0},
	    {"f.weight", "f", "f.weight_scale_inv", "-", NIB_NAMING_FP8_BLOCKS, 0},
	    {"g.weight", "g", "g.weight_scale", "-", NIB_NAMING_FP8, 0},
	};
	struct test_image image;
	struct nib_file *file = test_open_parts(all_namings, &image);
	const int n = sizeof(expected) / sizeof(expected[0]);

	assert_int_equal(nib_file_layer_tensors_count(file), n);
	for (int i = 0; i < n; i++) {
		const struct nib_layer_tensors *found = nib_file_layer_tensors_of(
		    file, nib_file_find(file, expected[i].codes));

		assert_non_null(found);
		assert_string_equal(found->name, expected[i].name);
		assert_string_equal(name_of(found->codes), expected[i].codes);
		assert_string_equal(name_of(found->scales), expected[i].scales);
		assert_string_equal(name_of(found->global), expected[i].global);
		assert_int_equal(found->naming, expected[i].naming);
		assert_int_equal(found->is_transposed, expected[i].is_transposed);
		assert_ptr_equal(nib_file_layer_tensors_of(file, found->codes), found);
		if (found->scales)
			assert_ptr_equal(nib_file_layer_tensors_of(file, found->scales),
					 found);
	}
	assert_string_equal(
	    name_of(nib_file_find_layer(file, "m")->tensors->pre_quant_scale),
	    "m.pre_quant_scale");
	assert_ptr_equal(nib_file_find_layer(file, "e.down_packed"),
			 nib_file_find_layer(file, "e.down"));
	assert_int_equal(nib_file_find_layer(file, "e.down")->weight.batch, 2);
	assert_true(nib_file_find_layer(file, "e.down")->globals[0] == 0.5F);
	assert_null(nib_file_layer_tensors_of(file, nib_file_find(file, "h.weight")));
	refuses_what_is_no_group(file, n);
	test_close_parts(file, &image);
}

/* The bytes of a tensor by its type and shape as in struct test_part. */
static uint64_t bytes_of(const char *dtype, const char *shape)
{
	uint64_t bytes = !strcmp(dtype, "F32") ? 4 : strstr("F16 BF16", dtype) ? 2 : 1;

	for (char *end = (char *)shape; *end; end += *end == ',')
		bytes *= strtoull(end, &end, 10);
	return bytes;
}

/* Sizes of layers, and the block of values that has one scale. */
static void measures_layers(void **state)
{
	static const struct {
		const char *dtype, *shape, *scale_dtype, *scale_shape, *codes, *scales;
		int64_t batch, rows, k, block_rows, block_k;
	} cases[] = {
#define NVFP4  "w.weight", "w.weight_scale"
#define STACK  "w", "w_weight_scale"
#define BLOCKS "w.weight", "w.weight_scale_inv"
	    {"U8", "3,16", "F8_E4M3", "3,2", NVFP4, 1, 3, 32, 1, 16},
	    {"U8", "2,3,16", "F8_E4M3", "2,3,2", NVFP4, 2, 3, 32, 1, 16},
	    {"U8", "3,16", "F8_E4M3", "3,3", NVFP4, 1, 3, 32, 0, 0},
	    {"U8", "3,16", "F8_E4M3", "2,2", NVFP4, 1, 3, 32, 0, 0},
	    {"U8", "3,16", "F8_E4M3", "6", NVFP4, 1, 3, 32, 0, 0},
	    {"U8", "3,16", "U8", "3,2", NVFP4, 1, 3, 32, 0, 0},
	    {"U8", "3,12", "F8_E4M3", "3,1", NVFP4, 1, 3, 24, 0, 0},
	    {"U8", "16", "F8_E4M3", "2", NVFP4, 0, 0, 0, 0, 0},
	    {"U8", "2,3,16", "F8_E4M3", "2,3,2", STACK, 2, 3, 32, 1, 16},
	    {"U8", "2,16,3", "F8_E4M3", "2,2,3", STACK, 2, 3, 32, 1, 16},
	    {"U8", "2,16,3", "F8_E4M3", "2,2,4", STACK, 2, 3, 32, 0, 0},
	    {"U8", "16,3", "F8_E4M3", "2,3", STACK, 0, 0, 0, 0, 0},
	    {"F8_E4M3", "3,5", "F32", "", NVFP4, 1, 3, 5, 3, 5},
	    {"F8_E4M3", "3,5", "BF16", "1,1", BLOCKS, 1, 3, 5, 3, 5},
	    {"F8_E4M3", "3,5", "F16", "3", NVFP4, 1, 3, 5, 1, 5},
	    {"F8_E4M3", "3,5", "F32", "3,1", NVFP4, 1, 3, 5, 1, 5},
	    {"F8_E4M3", "129,5", "F32", "2,1", BLOCKS, 1, 129, 5, 128, 128},
	    {"F8_E4M3", "9,257", "F32", "1,1,3,1", NVFP4, 1, 9, 257, 128, 128},
	    {"F8_E4M3", "9,257", "F32", "1,3,1,1", NVFP4, 1, 9, 257, 0, 0},
	    {"F8_E4M3", "3,5", "U8", "3,1", NVFP4, 1, 3, 5, 0, 0},
	    {"F8_E4M3", "3,5", "F32", "5", NVFP4, 1, 3, 5, 0, 0},
	    {"F8_E4M3", "2,3,5", "F32", "", NVFP4, 2, 3, 5, 0, 0},
	    {"F8_E4M3", "3,0", "F32", "", NVFP4, 1, 3, 0, 0, 0},
	    {"F8_E4M3", "0,5", "F32", "", NVFP4, 1, 0, 5, 0, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct test_part parts[] = {
		    {cases[i].codes, cases[i].dtype, cases[i].shape,
		     bytes_of(cases[i].dtype, cases[i].shape), NULL},
		    {cases[i].scales, cases[i].scale_dtype, cases[i].scale_shape,
		     bytes_of(cases[i].scale_dtype, cases[i].scale_shape), NULL},
		    {NULL, NULL, NULL, 0, NULL},
		};
		struct test_image image;
		struct nib_file *file = test_open_parts(parts, &image);
		const struct nib_layer_tensors *found =
		    nib_file_layer_tensors_of(file, nib_file_find(file, parts[0].name));

		if (!found || found->batch != cases[i].batch ||
		    found->rows != cases[i].rows || found->k != cases[i].k ||
		    found->block_rows != cases[i].block_rows ||
		    found->block_k != cases[i].block_k)
			fail_msg("case %zu: %s %s, scales %s %s", i, cases[i].dtype,
				 cases[i].shape, cases[i].scale_dtype,
				 cases[i].scale_shape);
		test_close_parts(file, &image);
	}
}

/* One tensor is the codes of two layers, and a scale has no codes. */
static void names_the_tensors_of_defects(void **state)
{
	static const struct test_part parts[] = {
	    {"a.weight", "U8", "2,8", 16, NULL},
	    {"a.weight_scale", "F8_E4M3", "2,1", 2, NULL},
	    {"a.weight_weight_scale", "F8_E4M3", "2,1", 2, NULL},
	    {"b.weight_scale_2", "F32", "", 4, half},
	    {NULL, NULL, NULL, 0, NULL},
	};
	static const char *const names[] = {"a", "a.weight", "b"};
	struct test_image image;
	struct nib_file *file = test_open_parts(parts, &image);

	assert_int_equal(nib_file_layer_defect_count(file), 3);
	for (int i = 0; i < 3; i++) {
		const struct nib_layer_defect *defect =
		    nib_file_layer_defect_at(file, i);

		assert_string_equal(defect->name, names[i]);
		if (i < 2)
			assert_string_equal(defect->tensors->codes->name, "a.weight");
		else
			assert_null(defect->tensors);
	}
	test_close_parts(file, &image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(groups_the_tensors_of_layers),
	    cmocka_unit_test(measures_layers),
	    cmocka_unit_test(names_the_tensors_of_defects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
