/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_comfy.c - layers that ComfyUI marks: their order, what is refused, and
 * nib_layer_read_rows().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/unit.h"
#include "file/little_endian.h"
#include "format/scale_layout.h"

#define ROWS	     130
#define K	     80 /* 5 groups: two tiles of 4 */
#define TILED_ROWS   256
#define TILED_GROUPS 8

/* A layer "m.q" of ROWS x K in a file with header metadata. */
struct layer_file {
	const char *metadata; /* "" or an entry and its comma */
	const char *mark;     /* text of m.q.comfy_quant; NULL: none */
	int64_t scale_rows, scale_groups;
};

#define MARKED                                                                         \
	{                                                                              \
		"", "{\"format\": \"nvfp4\"}", TILED_ROWS, TILED_GROUPS                \
	}
static const struct layer_file marked = MARKED;

static struct nib_file *open_layer(const struct layer_file *f, struct test_image *image)
{
	const int mark_bytes = f->mark ? (int)strlen(f->mark) : 0;
	const int codes = ROWS * K / 2;
	const int scales = (int)(f->scale_rows * f->scale_groups);
	const int all = codes + scales + 4 + mark_bytes;
	char header[2048];
	unsigned char *data = malloc((size_t)all);
	struct nib_file *file;
	struct nib_error err;
	int used = snprintf(header, sizeof(header),
			    "{%s\"m.q.weight\":{\"dtype\":\"U8\",\"shape\":[%d,%d],"
			    "\"data_offsets\":[0,%d]},\"m.q.weight_scale\":{\"dtype\":"
			    "\"F8_E4M3\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]},"
			    "\"m.q.weight_scale_2\":{\"dtype\":\"F32\",\"shape\":[],"
			    "\"data_offsets\":[%d,%d]}",
			    f->metadata, ROWS, K / 2, codes, (int)f->scale_rows,
			    (int)f->scale_groups, codes, codes + scales, codes + scales,
			    codes + scales + 4);

	if (f->mark)
		used += snprintf(header + used, sizeof(header) - (size_t)used,
				 ",\"m.q.comfy_quant\":{\"dtype\":\"U8\","
				 "\"shape\":[%d],\"data_offsets\":[%d,%d]}",
				 mark_bytes, codes + scales + 4, all);
	memcpy(header + used, "}", 2);
	for (int i = 0; i < codes + scales; i++)
		data[i] = (unsigned char)(i * 37 % 251 & 0x7F);
	nib_store_fp32(data + codes + scales, 0.5F);
	if (f->mark)
		memcpy(data + codes + scales + 4, f->mark, (size_t)mark_bytes);
	*image = test_image_new(header, data, (size_t)all);
	free(data);
	assert_ok_err(test_image_open(image, &file, &err), &err);
	return file;
}

static void close_layer(struct nib_file *file, struct test_image *image)
{
	nib_file_close(file);
	test_image_free(image);
}

/* Rows first .. first + rows - 1 are those of the file, reordered. */
static void check_rows(const struct nib_layer *layer, int64_t first, int64_t rows,
		       int exchanged, int tiled)
{
	const unsigned char *codes = layer->weight.codes;
	const unsigned char *scales = layer->weight.scales;
	unsigned char got[ROWS * K / 2], got_scales[ROWS * K / 16];
	struct nib_error err;

	memset(got_scales, 0xEE, sizeof(got_scales));
	assert_ok_err(nib_layer_read_rows(layer, first, rows, got, got_scales, &err),
		      &err);
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t i = 0; i < K / 2; i++) {
			unsigned char c = codes[(first + r) * (K / 2) + i];

			if (exchanged)
				c = (unsigned char)(c << 4 | c >> 4);
			assert_int_equal(got[r * (K / 2) + i], c);
		}
		for (int64_t g = 0; g < K / 16; g++)
			assert_int_equal(
			    got_scales[r * (K / 16) + g],
			    scales[tiled ? nib_scale_offset_tiled(K / 16, first + r, g)
					 : (first + r) * (K / 16) + g]);
	}
	if (rows * (K / 16) < (int64_t)sizeof(got_scales))
		assert_int_equal(got_scales[rows * (K / 16)], 0xEE);
}

#define METADATA(text) "\"__metadata__\":{\"_quantization_metadata\":\"" text "\"},"
#define EXPORTED(text)                                                                 \
	"\"__metadata__\":{\"quantization_config\":\"{}\","                            \
	"\"_quantization_metadata\":\"" text "\"},"
#define LAYERS(name)                                                                   \
	"{\\\"format_version\\\": \\\"1.0\\\", \\\"layers\\\": {\\\"a\\\": "           \
	"{\\\"format\\\": \\\"float8_e4m3fn\\\"}, \\\"" name                           \
	"\\\": {\\\"format\\\": \\\"nvfp4\\\"}}}"

static void reads_the_order_of_each_writer(void **state)
{
	static const struct {
		struct layer_file file;
		enum nib_checkpoint format;
		int exchanged, tiled;
	} cases[] = {
	    /* clang-format off */
	    {MARKED, NIB_CHECKPOINT_COMFY, 1, 1},
	    {{METADATA(LAYERS("m.q")), NULL, TILED_ROWS, TILED_GROUPS},
	     NIB_CHECKPOINT_COMFY, 1, 1},
	    /* Without the first part of the name. */
	    {{METADATA(LAYERS("q")), NULL, TILED_ROWS, TILED_GROUPS},
	     NIB_CHECKPOINT_COMFY, 1, 1},
	    {{METADATA(LAYERS("other")), NULL, ROWS, K / 16},
	     NIB_CHECKPOINT_MODELOPT, 0, 0},
	    {{METADATA("{}"), NULL, ROWS, K / 16},
	     NIB_CHECKPOINT_MODELOPT, 0, 0},
	    /* ModelOpt's diffusers, by the shape of the scales. */
	    {{EXPORTED(LAYERS("m.q")), NULL, ROWS, K / 16},
	     NIB_CHECKPOINT_MODELOPT, 0, 0},
	    {{EXPORTED(LAYERS("m.q")), NULL, TILED_ROWS, TILED_GROUPS},
	     NIB_CHECKPOINT_MODELOPT, 0, 1},
	    /* clang-format on */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct test_image image;
		struct nib_file *file = open_layer(&cases[i].file, &image);
		const struct nib_layer *layer = nib_file_find_layer(file, "m.q.weight");

		if (!layer)
			fail_msg("case %zu: %s", i,
				 nib_file_layer_defect_at(file, 0)->reason);
		assert_int_equal(layer->format, cases[i].format);
		assert_int_equal(layer->weight.rows, ROWS);
		assert_int_equal(layer->weight.k, K);
		assert_int_equal(layer->weight.code_order, cases[i].exchanged);
		assert_int_equal(layer->weight.scale_layout, cases[i].tiled);
		check_rows(layer, 0, ROWS, cases[i].exchanged, cases[i].tiled);
		check_rows(layer, 127, 2, cases[i].exchanged, cases[i].tiled);
		check_rows(layer, ROWS, 0, cases[i].exchanged, cases[i].tiled);
		close_layer(file, &image);
	}
}

static void drops_rows_that_were_added(void **state)
{
	struct layer_file f = marked;
	struct test_image image;
	struct nib_file *file;

	f.mark = "{\"format\": \"nvfp4\", \"orig_shape\": [129, 80], "
		 "\"full_precision_matrix_mult\": true, \"convrot\": false, "
		 "\"orig_dtype\": \"torch.bfloat16\", \"group_size\": 16}";
	file = open_layer(&f, &image);
	assert_int_equal(nib_file_layer_count(file), 1);
	assert_int_equal(nib_file_layer_at(file, 0)->weight.rows, 129);
	check_rows(nib_file_layer_at(file, 0), 0, 129, 1, 1);
	close_layer(file, &image);
}

static void says_why_a_layer_cannot_be_read(void **state)
{
	static const struct {
		struct layer_file file;
		const char *says;
	} cases[] = {
	    {{"", "{\"format\": \"mxfp8\"}", TILED_ROWS, TILED_GROUPS},
	     "mark of ComfyUI says mxfp8: must be nvfp4"},
	    {{"", "{\"format\": \"nvfp4\", \"convrot\": true}", TILED_ROWS,
	      TILED_GROUPS},
	     "has convrot, which changes the product"},
	    {{"", "{\"format\": \"nvfp4\", \"group_size\": 32}", TILED_ROWS,
	      TILED_GROUPS},
	     "group_size 32: must be 16"},
	    {{"", "{\"format\": \"nvfp4\", \"orig_shape\": [130, 72]}", TILED_ROWS,
	      TILED_GROUPS},
	     "orig_shape is [130, 72]"},
	    {{"", "{\"format\": \"nvfp4\", \"orig_shape\": [131, 80]}", TILED_ROWS,
	      TILED_GROUPS},
	     "at most 130 rows"},
	    {{"", "{}", TILED_ROWS, TILED_GROUPS}, "no format"},
	    {{"", "nvfp4", TILED_ROWS, TILED_GROUPS}, "expected '{'"},
	    {{"", "{\"format\": \"nvfp4\"", TILED_ROWS, TILED_GROUPS},
	     "expected ',' or '}'"},
	    {{"", "{\"format\": \"nvfp4\"}", ROWS, K / 16},
	     "must be 128x4 tiles F8_E4M3 [256, 8]"},
	    {{METADATA("{\\\"layers\\\": [1]}"), NULL, ROWS, K / 16},
	     "_quantization_metadata"},
	    {{METADATA("{\\\"layers\\\": {}} {"), NULL, ROWS, K / 16},
	     "_quantization_metadata"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct test_image image;
		struct nib_file *file = open_layer(&cases[i].file, &image);
		const struct nib_layer_defect *problem =
		    nib_file_layer_defect_at(file, 0);

		if (!problem || !strstr(problem->reason, cases[i].says))
			fail_msg("case %zu: '%s'", i,
				 problem ? problem->reason : "no problem");
		assert_string_equal(problem->name, "m.q");
		assert_int_equal(nib_file_layer_count(file), 0);
		close_layer(file, &image);
	}
}

/* ModelOpt's marks, and sizes at which tiles and rows have one shape. */
static void refuses_scales_of_unknown_layout(void **state)
{
	static const char header[] =
	    "{\"__metadata__\":{\"quantization_config\":\"{}\","
	    "\"_quantization_metadata\":\"" LAYERS(
		"q") "\"},"
		     "\"q.weight\":{\"dtype\":\"U8\",\"shape\":[128,32],"
		     "\"data_offsets\":[0,4096]},"
		     "\"q.weight_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[128,4],"
		     "\"data_offsets\":[4096,4608]},"
		     "\"q.weight_scale_2\":{\"dtype\":\"F32\",\"shape\":[],"
		     "\"data_offsets\":[4608,4612]}}";
	struct test_image image = test_image_new(header, NULL, 4612);
	struct nib_file *file;
	struct nib_error err;

	assert_ok(test_image_open(&image, &file, &err));
	assert_int_equal(nib_file_layer_defect_count(file), 1);
	assert_contains(nib_file_layer_defect_at(file, 0)->reason,
			"does not say whether scales are in 128x4");
	close_layer(file, &image);
}

static void other_functions_refuse_the_order(void **state)
{
	struct test_image image;
	struct nib_file *file = open_layer(&marked, &image);
	const struct nib_layer *layer = nib_file_layer_at(file, 0);
	const struct nib_dense y = {.rows = ROWS, .cols = K};
	struct nib_device *device;
	struct nib_packed *packed;
	struct nib_error err;

	assert_ok(nib_device_open("cpu", NULL, &device, &err));
	assert_refused(nib_pack(device, &layer->weight, NULL, &packed, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err,
		       "b.code_order = 1: must be "
		       "NIB_CODE_ORDER_LOW_FIRST (0)");
	assert_refused(nib_dequantize(device, &layer->weight, 1, &y, NULL, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "code_order");
	nib_device_close(device);
	close_layer(file, &image);
}

static void read_rows_checks_its_arguments(void **state)
{
	static const struct {
		int64_t first, rows;
		int no_codes, no_scales;
		const char *says;
	} cases[] = {
	    {-1, 1, 0, 0, "first = -1: m.q has 130 rows"},
	    {131, 0, 0, 0, "first = 131"},
	    {0, -1, 0, 0, "rows = -1"},
	    {100, 31, 0, 0, "rows = 31: m.q has 30 rows from first on"},
	    {0, INT64_MAX, 0, 0, "rows = 9223372036854775807"},
	    {0, 1, 1, 0, "codes = NULL"},
	    {0, 1, 0, 1, "scales = NULL"},
	};
	struct test_image image;
	struct nib_file *file = open_layer(&marked, &image);
	unsigned char memory[K];
	struct nib_error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_refused(nib_layer_read_rows(
				   nib_file_layer_at(file, 0), cases[i].first,
				   cases[i].rows, cases[i].no_codes ? NULL : memory,
				   cases[i].no_scales ? NULL : memory + K / 2, &err),
			       NIB_STATUS_BAD_ARGUMENT, &err, cases[i].says);
	}
	assert_int_equal(nib_layer_read_rows(NULL, 0, 0, NULL, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	close_layer(file, &image);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(reads_the_order_of_each_writer),
	    cmocka_unit_test(drops_rows_that_were_added),
	    cmocka_unit_test(says_why_a_layer_cannot_be_read),
	    cmocka_unit_test(refuses_scales_of_unknown_layout),
	    cmocka_unit_test(other_functions_refuse_the_order),
	    cmocka_unit_test(read_rows_checks_its_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
