/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_writer.c - files written are read back equal; refused arguments. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/file.h"
#include "common/float_mode.h"
#include "common/unit.h"

/* ---- round trips --------------------------------------------------------- */

static void writes_tensors_in_pieces_of_any_size(void **state)
{
	static const size_t pieces[] = {1, 3, 7, 1000, 65535, 65536, 65537, 200000};
	static const int64_t odd[] = {100003}, many[] = {3, 20000}, one[] = {1},
			     empty[] = {0, 5};
	const size_t total = 100003 + 240000 + 2 + 0 + 8;
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x.safetensors");
	struct rng rng = rng_new(test_seed());
	unsigned char *data = guard_new(total);

	rng_fill(&rng, data, total);
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct nib_writer *writer = test_writer_open(path);
		struct nib_error err;
		struct nib_file *file;
		const char *key, *value;

		assert_ok(nib_writer_metadata(writer, "k\"\n\\", "\xC3\xA9\t", &err));
		assert_ok(nib_writer_metadata(writer, "a", "", &err));
		test_declare(writer, "odd", "U8", 1, odd);
		test_declare(writer, "many \"\x01", "F32", 2, many);
		test_declare(writer, "half", "BF16", 1, one);
		test_declare(writer, "empty", "F64", 2, empty);
		test_declare(writer, "scalar", "F64", 0, NULL);
		for (size_t at = 0; at < total; at += pieces[i]) {
			size_t n = total - at;

			n = n < pieces[i] ? n : pieces[i];
			assert_ok(nib_writer_write(writer, data + at, n, &err));
			assert_ok(nib_writer_write(writer, NULL, 0, &err));
		}
		assert_ok(nib_writer_commit(writer, &err));
		assert_int_equal(test_folder_count(&folder), 1);

		file = test_file_open(path);
		assert_int_equal(nib_file_tensor_count(file), 5);
		assert_memory_equal(nib_file_find(file, "odd")->data, data, 100003);
		assert_memory_equal(nib_file_find(file, "many \"\x01")->data,
				    data + 100003, 240000);
		assert_memory_equal(nib_file_find(file, "half")->data, data + 340003,
				    2);
		assert_memory_equal(nib_file_find(file, "scalar")->data, data + 340005,
				    8);
		assert_int_equal(nib_file_find(file, "empty")->shape[1], 5);
		/* Aligned, whatever the order of declaration. */
		for (int t = 0; t < 5; t++) {
			const struct nib_file_tensor *tensor =
			    nib_file_tensor_at(file, t);
			uintptr_t align = tensor->dtype[0] == 'U'   ? 1
					  : tensor->dtype[0] == 'B' ? 2
					  : tensor->dtype[1] == '3' ? 4
								    : 8;

			assert_int_equal((uintptr_t)tensor->data % align, 0);
		}
		assert_int_equal(nib_file_metadata_count(file), 2);
		nib_file_metadata_at(file, 1, &key, &value);
		assert_string_equal(key, "k\"\n\\");
		assert_string_equal(value, "\xC3\xA9\t");
		nib_file_close(file);
	}
	guard_free(data, total);
	test_folder_remove(&folder);
}

static void writes_an_empty_file(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_error err;
	struct nib_file *file;

	assert_ok(nib_writer_commit(test_writer_open(path), &err));
	file = test_file_open(path);
	assert_int_equal(nib_file_tensor_count(file), 0);
	nib_file_close(file);
	test_folder_remove(&folder);
}

/* One layer in a stride, a scale layout and a format; then read again. */
static void round_trip(enum nib_checkpoint format, int64_t rows, int64_t k,
		       enum nib_scale_layout layout, int64_t gap, float input_global)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_writer *writer = test_writer_open(path);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 w =
	    test_nvfp4_new(&rng, rows, k, 1, layout, TEST_SCALES_ANY, gap,
			   layout == NIB_SCALE_LAYOUT_LINEAR ? gap : 0);
	const int64_t stride =
	    w.view.row_stride_bytes ? w.view.row_stride_bytes : k / 2;
	const int64_t scale_stride =
	    w.view.scale_row_stride_bytes ? w.view.scale_row_stride_bytes : k / 16;
	const int64_t tiles = (k / 16 + 3) / 4;
	const struct nib_layer *layer;
	struct nib_error err;
	struct nib_file *file;

	assert_ok(nib_writer_declare_layer(writer, format, "a.b", rows, k,
					   input_global != 0, &err));
	assert_ok_err(
	    nib_writer_write_layer(writer, format, &w.view, 0.375F, input_global, &err),
	    &err);
	assert_ok(nib_writer_commit(writer, &err));
	file = test_file_open(path);
	assert_int_equal(nib_file_tensor_count(file), input_global != 0 ? 4 : 3);
	assert_int_equal(nib_file_layer_count(file), 1);
	layer = nib_file_find_layer(file, "a.b");
	assert_int_equal(layer->format, format);
	assert_int_equal(layer->weight.rows, rows);
	assert_int_equal(layer->weight.k, k);
	if (rows > 0)
		assert_true(fabsf(layer->globals[0] - 0.375F) <= 0x1p-25F);
	if (rows > 0 && input_global > 0)
		assert_true(fabsf(layer->input_globals[0] - input_global) <= 0x1p-25F);
	else
		assert_null(layer->input_globals);
	for (int64_t r = 0; r < rows; r++) {
		const uint8_t *scales = layer->weight.scales;

		assert_memory_equal((const uint8_t *)layer->weight.codes + r * (k / 2),
				    (const uint8_t *)w.view.codes + r * stride,
				    (size_t)(k / 2));
		for (int64_t g = 0; g < k / 16; g++) {
			int64_t at = layout == NIB_SCALE_LAYOUT_LINEAR
					 ? r * scale_stride + g
					 : (r / 128 * tiles + g / 4) * 512 +
					       r % 32 * 16 + r % 128 / 32 * 4 + g % 4;

			assert_int_equal(scales[r * (k / 16) + g],
					 ((const uint8_t *)w.view.scales)[at]);
		}
	}
	nib_file_close(file);
	test_nvfp4_free(&w);
	test_folder_remove(&folder);
}

static void writes_layers_of_any_layout(void **state)
{
	static const int64_t rows[] = {1, 3, 128, 129, 300};
	static const int64_t ks[] = {16, 48, 80, 20000};

	for (int format = 0; format < 2; format++) {
		for (int r = 0; r < 5; r++) {
			for (int i = 0; i < 4; i++) {
				enum nib_checkpoint f = (enum nib_checkpoint)format;

				round_trip(f, rows[r], ks[i], NIB_SCALE_LAYOUT_LINEAR,
					   0, 0);
				round_trip(f, rows[r], ks[i], NIB_SCALE_LAYOUT_LINEAR,
					   5, 0.25F);
				round_trip(f, rows[r], ks[i],
					   NIB_SCALE_LAYOUT_TILED_128X4, 0, 0.25F);
				round_trip(f, rows[r], ks[i],
					   NIB_SCALE_LAYOUT_TILED_128X4, 8, 0);
			}
		}
	}
}

/* Subnormal scales, by a thread that counts those as 0, into both formats. */
static void writes_scales_that_a_thread_flushes(void **state)
{
	static const float values[] = {1e-38F, 1e-40F};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x.safetensors");
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 w = test_nvfp4_new(&rng, 16, 32, 1, NIB_SCALE_LAYOUT_LINEAR,
					     TEST_SCALES_ANY, 0, 0);

	for (int format = 0; format < 2; format++) {
		const float *value = &values[format == NIB_CHECKPOINT_MODELOPT];
		const enum nib_checkpoint kind = (enum nib_checkpoint)format;
		struct nib_writer *writer = test_writer_open(path);
		struct nib_file *file;
		struct nib_error err;

		assert_ok(nib_writer_declare_layer(writer, kind, "x", 16, 32, 0, &err));
		test_mode_set(MODE_FLUSH);
		assert_ok(
		    nib_writer_write_layer(writer, kind, &w.view, *value, 0, &err));
		test_mode_set(0);
		assert_ok(nib_writer_commit(writer, &err));
		file = test_file_open(path);
		assert_memory_equal(nib_file_find_layer(file, "x")->globals, value, 4);
		nib_file_close(file);
	}
	test_nvfp4_free(&w);
	test_folder_remove(&folder);
}

/* Names and dtypes as the two producers write them. */
static void writes_the_names_of_the_formats(void **state)
{
	static const struct {
		enum nib_checkpoint format;
		const char *names[4], *dtypes[4];
		int global_rank;
	} formats[] = {
	    {NIB_CHECKPOINT_MODELOPT,
	     {"x.weight", "x.weight_scale", "x.weight_scale_2", "x.input_scale"},
	     {"U8", "F8_E4M3", "F32", "F32"},
	     0},
	    {NIB_CHECKPOINT_COMPRESSED_TENSORS,
	     {"x.weight_packed", "x.weight_scale", "x.weight_global_scale",
	      "x.input_global_scale"},
	     {"U8", "F8_E4M3", "F32", "F32"},
	     1},
	};
	unsigned char codes[16] = {0}, scales[2] = {1, 2};
	const struct nib_fp4 w = {.codes = codes, .scales = scales, .rows = 2, .k = 16};

	for (int f = 0; f < 2; f++) {
		struct test_folder folder = test_folder_new();
		const char *path = test_path(&folder, "x");
		struct nib_writer *writer = test_writer_open(path);
		struct nib_error err;
		struct nib_file *file;

		assert_ok(nib_writer_declare_layer(writer, formats[f].format, "x", 2,
						   16, 1, &err));
		assert_ok(nib_writer_write_layer(writer, formats[f].format, &w, 0.25F,
						 0.5F, &err));
		assert_ok(nib_writer_commit(writer, &err));
		file = test_file_open(path);
		for (int i = 0; i < 4; i++) {
			const struct nib_file_tensor *t =
			    nib_file_find(file, formats[f].names[i]);

			assert_non_null(t);
			assert_string_equal(t->dtype, formats[f].dtypes[i]);
			assert_int_equal(t->rank, i < 2 ? 2 : formats[f].global_rank);
		}
		/* Little-endian: 0.25 and 0.5, or 4 and 2. */
		assert_memory_equal(nib_file_find(file, formats[f].names[2])->data,
				    f ? "\0\0\x80\x40" : "\0\0\x80\x3e", 4);
		assert_memory_equal(nib_file_find(file, formats[f].names[3])->data,
				    f ? "\0\0\0\x40" : "\0\0\0\x3f", 4);
		nib_file_close(file);
		test_folder_remove(&folder);
	}
}

#define REFUSED(call, says)                                                            \
	do {                                                                           \
		err.message[0] = '\0';                                                 \
		assert_int_equal(call, NIB_STATUS_BAD_ARGUMENT);                       \
		if (!strstr(err.message, says))                                        \
			fail_msg("'%s', wanted '%s'", err.message, says);              \
	} while (0)

/* Three matrices of two rows, with gaps between them, and one after the other. */
static void writes_stacks(void **state)
{
	unsigned char codes[3 * 20], scales[3 * 5];
	const struct nib_fp4 w = {.codes = codes,
				  .scales = scales,
				  .rows = 2,
				  .k = 16,
				  .batch = 3,
				  .batch_stride_bytes = 20,
				  .scale_batch_stride_bytes = 5};
	struct nib_fp4 two = w;

	two.batch = 2;
	for (size_t i = 0; i < sizeof(codes); i++)
		codes[i] = (unsigned char)(i * 37);
	for (size_t i = 0; i < sizeof(scales); i++)
		scales[i] = (unsigned char)(i + 1);
	for (int f = 0; f < 2; f++) {
		const enum nib_checkpoint format = (enum nib_checkpoint)f;
		struct test_folder folder = test_folder_new();
		const char *path = test_path(&folder, "x");
		struct nib_writer *writer = test_writer_open(path);
		const struct nib_layer *layer;
		struct nib_error err;
		struct nib_file *file;

		assert_ok(
		    nib_writer_declare_stack(writer, format, "x", 3, 2, 16, 1, &err));
		REFUSED(nib_writer_write_layer(writer, format, &two, 1, 1, &err),
			"weight.batch = 2: 'x.weight");
		assert_ok(
		    nib_writer_write_layer(writer, format, &w, 0.25F, 0.5F, &err));
		assert_ok(nib_writer_commit(writer, &err));
		file = test_file_open(path);
		layer = nib_file_find_layer(file, "x");
		assert_int_equal(layer->weight.batch, 3);
		assert_true(layer->globals[2] == 0.25F &&
			    layer->input_globals[2] == 0.5F);
		for (int b = 0; b < 3; b++) {
			assert_memory_equal((const char *)layer->weight.codes + 16 * b,
					    codes + 20 * b, 16);
			assert_memory_equal((const char *)layer->weight.scales + 2 * b,
					    scales + 5 * b, 2);
		}
		nib_file_close(file);
		test_folder_remove(&folder);
	}
}

static void mixes_layers_and_tensors(void **state)
{
	static const int64_t shape[] = {5}, empty[] = {0};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_writer *writer = test_writer_open(path);
	unsigned char codes[24], scales[3] = {1, 2, 3};
	const struct nib_fp4 w = {.codes = codes, .scales = scales, .rows = 3, .k = 16};
	const struct nib_fp4 no_rows = {.k = 16};
	struct nib_error err;
	struct nib_file *file;

	memset(codes, 0x35, sizeof(codes));
	test_declare(writer, "before", "U8", 1, shape);
	test_declare(writer, "empty", "U8", 1, empty);
	assert_ok(nib_writer_declare_layer(writer, NIB_CHECKPOINT_MODELOPT, "none", 0,
					   16, 0, &err));
	assert_ok(nib_writer_declare_layer(writer, NIB_CHECKPOINT_MODELOPT, "x", 3, 16,
					   1, &err));
	test_declare(writer, "after", "U8", 1, shape);
	/* Not yet its turn. */
	assert_int_equal(
	    nib_writer_write_layer(writer, NIB_CHECKPOINT_MODELOPT, &w, 1, 1, &err),
	    NIB_STATUS_BAD_ARGUMENT);
	assert_ok(nib_writer_write(writer, "12345", 5, &err));
	assert_ok(nib_writer_write_layer(writer, NIB_CHECKPOINT_MODELOPT, &no_rows, 1,
					 0, &err));
	assert_ok(
	    nib_writer_write_layer(writer, NIB_CHECKPOINT_MODELOPT, &w, 2, 3, &err));
	assert_ok(nib_writer_write(writer, "67890", 5, &err));
	assert_ok(nib_writer_commit(writer, &err));
	file = test_file_open(path);
	assert_int_equal(nib_file_layer_count(file), 2);
	assert_true(nib_file_find_layer(file, "x")->input_globals[0] == 3);
	assert_memory_equal(nib_file_find(file, "after")->data, "67890", 5);
	assert_memory_equal(nib_file_find(file, "x.weight")->data, codes, 24);
	nib_file_close(file);
	test_folder_remove(&folder);
}

/* ---- refused arguments --------------------------------------------------- */

static void refuses_bad_declarations(void **state)
{
	static const int64_t one[] = {1}, minus[] = {2, -1}, three[] = {3},
			     huge[] = {INT64_C(1) << 40, INT64_C(1) << 40},
			     long_[] = {INT64_C(1) << 60};
	struct test_folder folder = test_folder_new();
	struct nib_writer *w = test_writer_open(test_path(&folder, "x"));
	struct nib_error err;

	test_declare(w, "a", "U8", 1, one);
	assert_ok(nib_writer_metadata(w, "k", "v", &err));
	REFUSED(nib_writer_declare(w, "a", "F32", 1, one, &err), "before");
	REFUSED(nib_writer_declare(w, NULL, "F32", 1, one, &err), "name");
	REFUSED(nib_writer_declare(w, "\xFF", "F32", 1, one, &err), "UTF-8");
	REFUSED(nib_writer_declare(w, "__metadata__", "U8", 1, one, &err),
		"not for tensors");
	REFUSED(nib_writer_declare(w, "b", NULL, 1, one, &err), "dtype");
	REFUSED(nib_writer_declare(w, "b", "F31", 1, one, &err), "dtype");
	REFUSED(nib_writer_declare(w, "b", "U8", -1, one, &err), "rank = -1");
	REFUSED(nib_writer_declare(w, "b", "U8", 9, one, &err), "rank = 9");
	REFUSED(nib_writer_declare(w, "b", "U8", 1, NULL, &err), "shape");
	REFUSED(nib_writer_declare(w, "b", "U8", 2, minus, &err), "shape[1] = -1");
	REFUSED(nib_writer_declare(w, "b", "U8", 2, huge, &err), "overflow");
	REFUSED(nib_writer_declare(w, "b", "F4", 1, three, &err), "whole");
	for (char name[] = "0"; name[0] < '7'; name[0]++)
		test_declare(w, name, "U8", 1, long_);
	REFUSED(nib_writer_declare(w, "b", "U8", 1, long_, &err), "too long");
	REFUSED(nib_writer_metadata(w, "k", "w", &err), "before");
	REFUSED(nib_writer_metadata(w, NULL, "w", &err), "key");
	REFUSED(nib_writer_metadata(w, "l", NULL, &err), "value");
	REFUSED(nib_writer_metadata(w, "l", "\xC3", &err), "UTF-8");
	REFUSED(nib_writer_metadata(NULL, "l", "", &err), "writer");
	REFUSED(nib_writer_declare(NULL, "b", "U8", 1, one, &err), "writer");
	nib_writer_discard(w);
	REFUSED(nib_writer_open(NULL, &w, &err), "path");
	REFUSED(nib_writer_open("x", NULL, &err), "writer");
	REFUSED(nib_writer_commit(NULL, &err), "writer");
	nib_writer_discard(NULL);
	test_folder_remove(&folder);
}

static void refuses_bad_layers(void **state)
{
	static const int64_t one[] = {1};
	const enum nib_checkpoint m = NIB_CHECKPOINT_MODELOPT;
	const enum nib_checkpoint bad = (enum nib_checkpoint)2;
	struct test_folder folder = test_folder_new();
	struct nib_writer *w = test_writer_open(test_path(&folder, "x"));
	unsigned char codes[16] = {0}, scales[2] = {1, 2};
	const struct nib_fp4 good = {
	    .codes = codes, .scales = scales, .rows = 2, .k = 16};
	struct nib_fp4 v;
	struct nib_error err;

	test_declare(w, "taken.weight_scale_2", "U8", 1, one);
	REFUSED(nib_writer_declare_layer(w, m, "taken", 2, 16, 0, &err),
		"taken.weight_scale_2");
	/* Nothing of the refused layer stays. */
	test_declare(w, "taken.weight", "U8", 1, one);
	REFUSED(nib_writer_declare_layer(w, m, "x", -1, 16, 0, &err), "rows");
	REFUSED(nib_writer_declare_layer(w, m, "x", 2, 0, 0, &err), "k = 0");
	REFUSED(nib_writer_declare_layer(w, m, "x", 2, 24, 0, &err), "k = 24");
	REFUSED(nib_writer_declare_layer(w, m, "x", 2, NIB_MAX_K + 16, 0, &err),
		"k = 1048592");
	REFUSED(nib_writer_declare_layer(w, m, "x", INT64_MAX, 32, 0, &err),
		"overflow");
	REFUSED(nib_writer_declare_layer(w, bad, "x", 2, 16, 0, &err), "format");
	REFUSED(nib_writer_declare_layer(w, m, "", 2, 16, 0, &err), "name");
	REFUSED(nib_writer_declare_layer(w, m, NULL, 2, 16, 0, &err), "name");
	REFUSED(nib_writer_declare_stack(w, m, "x", 0, 2, 16, 0, &err), "batch = 0");
	REFUSED(nib_writer_declare_layer(NULL, m, "x", 2, 16, 0, &err), "writer");
	nib_writer_discard(w);

	/* 1 / global is infinite. */
	w = test_writer_open(test_path(&folder, "x"));
	assert_ok(nib_writer_declare_layer(w, NIB_CHECKPOINT_COMPRESSED_TENSORS, "x", 2,
					   16, 1, &err));
	REFUSED(nib_writer_write_layer(w, NIB_CHECKPOINT_COMPRESSED_TENSORS, &good,
				       1e-40F, 1, &err),
		"this format stores 1 / global");
	REFUSED(nib_writer_write_layer(w, NIB_CHECKPOINT_COMPRESSED_TENSORS, &good, 1,
				       1e-40F, &err),
		"input_global = 9.99995e-41: this format stores");
	nib_writer_discard(w);

	w = test_writer_open(test_path(&folder, "x"));
	assert_ok(nib_writer_declare_layer(w, m, "x", 2, 16, 0, &err));
	REFUSED(nib_writer_write_layer(w, bad, &good, 1, 0, &err), "format");
	REFUSED(nib_writer_write_layer(w, NIB_CHECKPOINT_COMPRESSED_TENSORS, &good, 1,
				       0, &err),
		"no layer of this format");
	REFUSED(nib_writer_write_layer(w, m, NULL, 1, 0, &err), "weight");
	REFUSED(nib_writer_write_layer(w, m, &good, -1, 0, &err), "global");
	REFUSED(nib_writer_write_layer(w, m, &good, NAN, 0, &err), "global");
	REFUSED(nib_writer_write_layer(w, m, &good, INFINITY, 0, &err), "global");
	REFUSED(nib_writer_write_layer(w, m, &good, 0, 0, &err),
		"global = 0: must be a positive number");
	REFUSED(nib_writer_write_layer(w, m, &good, 1, 1, &err), "input_global = 1");
	v = good, v.batch = 2;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "batch");
	v = good, v.rows = 1;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "[1, 16]");
	v = good, v.k = 32;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "[2, 32]");
	v = good, v.codes = NULL;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "codes");
	v = good, v.scales = NULL;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "scales");
	v = good, v.row_stride_bytes = 7;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "row_stride");
	v = good, v.row_stride_bytes = INT64_MAX;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err),
		"weight.row_stride_bytes = 9223372036854775807 times 2: must "
		"stay below 2^62 bytes");
	v = good, v.scale_row_stride_bytes = -1;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "scale_row");
	v = good, v.scale_layout = (enum nib_scale_layout)7;
	REFUSED(nib_writer_write_layer(w, m, &v, 1, 0, &err), "scale_layout");
	scales[1] = 0x81;
	assert_refused(nib_writer_write_layer(w, m, &good, 1, 0, &err),
		       NIB_STATUS_BAD_DATA, &err, "(1, 0) is 0x81");
	scales[1] = 1;
	/* All of these left the writer as it was. */
	assert_ok(nib_writer_write_layer(w, m, &good, 1, 0, &err));
	REFUSED(nib_writer_write_layer(w, m, &good, 1, 0, &err), "no layer");
	REFUSED(nib_writer_declare_layer(w, m, "y", 2, 16, 0, &err),
		"after the first write");
	assert_ok(nib_writer_commit(w, &err));
	test_folder_remove(&folder);
}

static void refuses_more_or_fewer_bytes_than_declared(void **state)
{
	static const int64_t eight[] = {8}, empty[] = {0};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_writer *w;
	struct nib_error err;

	test_write_file(path, "before", 6);
	w = test_writer_open(path);
	test_declare(w, "a", "U8", 1, eight);
	test_declare(w, "e", "U8", 1, empty);
	test_declare(w, "b", "U8", 1, eight);
	REFUSED(nib_writer_write(w, "12345678901234567", 17, &err), "only 16");
	REFUSED(nib_writer_write(w, NULL, 1, &err), "bytes = NULL");
	REFUSED(nib_writer_write(NULL, "1", 1, &err), "writer");
	assert_ok(nib_writer_write(w, "12345678", 8, &err));
	REFUSED(nib_writer_write(w, "123456789", 9, &err), "only 8");
	REFUSED(nib_writer_declare(w, "c", "U8", 1, eight, &err),
		"after the first write");
	REFUSED(nib_writer_metadata(w, "c", "d", &err), "after the first write");
	REFUSED(nib_writer_commit(w, &err),
		"8 of 16 bytes are not written, from byte 0 of tensor 'b'");
	test_folder_holds(&folder, path, "before");

	w = test_writer_open(path);
	test_declare(w, "a", "U8", 1, eight);
	REFUSED(nib_writer_commit(w, &err), "from byte 0 of tensor 'a'");
	test_folder_holds(&folder, path, "before");
	test_folder_remove(&folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(writes_tensors_in_pieces_of_any_size),
	    cmocka_unit_test(writes_an_empty_file),
	    cmocka_unit_test(writes_layers_of_any_layout),
	    cmocka_unit_test(writes_scales_that_a_thread_flushes),
	    cmocka_unit_test(writes_the_names_of_the_formats),
	    cmocka_unit_test(writes_stacks),
	    cmocka_unit_test(mixes_layers_and_tensors),
	    cmocka_unit_test(refuses_bad_declarations),
	    cmocka_unit_test(refuses_bad_layers),
	    cmocka_unit_test(refuses_more_or_fewer_bytes_than_declared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
