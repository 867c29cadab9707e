/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_faults.c - every allocation of the file functions fails once, and then also
 * with all after it: a status is returned, without a crash, a leak or a file left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"

/* More than one step of every array that grows. */
#define LAYERS 20

/* A header with stacks, problems, metadata and names of some length. */
static char *make_header(size_t *data_bytes)
{
	char *header = malloc(64 << 10);
	char *at = header + sprintf(header, "{\"__metadata__\":{");
	size_t used = 0;

	for (int i = 0; i < LAYERS; i++)
		at += sprintf(at, "%s\"key %d\":\"a value of some length\"",
			      i ? "," : "", i);
	at += sprintf(at, ",\"_quantization_metadata\":\"{\\\"layers\\\":{");
	for (int i = 0; i < LAYERS; i++)
		at += sprintf(at,
			      "%s\\\"x%d\\\":{\\\"format\\\":"
			      "\\\"nvfp4\\\"}",
			      i ? "," : "", i);
	at += sprintf(at, "}}\"}");
	for (int i = 0; i < LAYERS; i++) {
		const struct {
			const char *suffix, *dtype, *shape;
			size_t bytes;
		} parts[] = {
		    {"weight", "U8", "2,3,8", 48},
		    {"weight_scale", "F8_E4M3", "2,3,1", 6},
		    {"weight_scale_2", "F32", "2", 8},
		    /* a problem */
		    {"bad.weight_global_scale", "F32", "1", 4},
		};

		for (int j = 0; j < 4; j++) {
			at += sprintf(at,
				      ",\"model.layers.%d.mlp.%s\":{\"dtype\":"
				      "\"%s\",\"shape\":[%s],\"data_offsets\":"
				      "[%zu,%zu]}",
				      i, parts[j].suffix, parts[j].dtype,
				      parts[j].shape, used, used + parts[j].bytes);
			used += parts[j].bytes;
		}
	}
	memcpy(at, "}", 2);
	*data_bytes = used;
	return header;
}

static struct test_image make_image(void)
{
	size_t data_bytes;
	char *header = make_header(&data_bytes);
	unsigned char *data = malloc(data_bytes);
	struct test_image image;

	/* As floats 6e-5 and 3e-2: each stack has two global scales. */
	for (size_t i = 0; i < data_bytes; i++)
		data[i] = i % 66 < 58 ? 0x38 : 0x3C;
	image = test_image_new(header, data, data_bytes);
	free(data);
	free(header);
	return image;
}

static long fail_each(enum test_alloc_mode mode,
		      enum nib_status (*call)(void *arg, struct nib_error *err),
		      void *arg, void (*after)(void *arg))
{
	for (long n = 1;; n++) {
		long before = test_alloc_live();
		struct nib_error err = {0};
		enum nib_status status;
		bool failed;

		test_alloc_fail(n, mode);
		status = call(arg, &err);
		failed = test_alloc_stop();
		if (test_alloc_live() != before)
			fail_msg("allocation %ld: %ld blocks left", n,
				 test_alloc_live() - before);
		if (!failed) {
			assert_ok(status);
			return n - 1;
		}
		/* A C library may do without: qsort() sorts in place then. */
		if (status != NIB_STATUS_OK) {
			if (status != NIB_STATUS_OUT_OF_MEMORY)
				fail_msg("allocation %ld: status %d, '%s'", n,
					 (int)status, err.message);
			assert_int_equal(err.status, status);
			assert_true(err.message[0] != '\0');
		}
		if (status != NIB_STATUS_OK && after)
			after(arg);
	}
}

static enum nib_status open_image(void *arg, struct nib_error *err)
{
	struct nib_file *file = NULL;
	enum nib_status status = test_image_open(arg, &file, err);

	/* Checked by hand: cmocka's checks may allocate. */
	if ((status == NIB_STATUS_OK) != (file != NULL) ||
	    (file && (nib_file_layer_count(file) != LAYERS ||
		      nib_file_layer_defect_count(file) != LAYERS ||
		      nib_file_metadata_count(file) != LAYERS + 1 ||
		      !nib_file_layer_at(file, LAYERS - 1)->globals)))
		status = NIB_STATUS_BAD_DATA;
	nib_file_close(file);
	return status;
}

static void survives_failures_while_reading(void **state)
{
	struct test_image image = make_image();
	long one, from;

	if (!test_alloc_works()) {
		struct nib_error err;

		assert_ok(open_image(&image, &err));
		test_image_free(&image);
		skip();
	}
	one = fail_each(TEST_ALLOC_ONE, open_image, &image, NULL);
	from = fail_each(TEST_ALLOC_FROM, open_image, &image, NULL);
	printf("reading: %ld allocations failed in turn\n", one);
	/* file, strings, index, names, 20 globals, and arrays that grow */
	assert_true(one > LAYERS + 10);
	assert_int_equal(one, from);
	test_image_free(&image);
}

struct target {
	struct test_folder folder;
	const char *path;
};

static enum nib_status open_path(void *arg, struct nib_error *err)
{
	struct target *target = arg;
	struct nib_file *file;
	enum nib_status status = nib_file_open(target->path, &file, err);

	nib_file_close(file);
	return status;
}

static enum nib_status declare_all(struct nib_writer *w, struct nib_error *err)
{
	char name[40];
	enum nib_status status;

	for (int i = 0; i < LAYERS; i++) {
		sprintf(name, "key %d", i);
		status = nib_writer_metadata(w, name, "value", err);
		if (status)
			return status;
		sprintf(name, "model.layers.%d.mlp.down_proj", i);
		status = nib_writer_declare_layer(w, NIB_CHECKPOINT_COMPRESSED_TENSORS,
						  name, 2, 32, 1, err);
		if (status)
			return status;
	}
	return NIB_STATUS_OK;
}

static enum nib_status write_all(void *arg, struct nib_error *err)
{
	struct target *target = arg;
	unsigned char codes[32] = {0}, scales[4] = {1, 2, 3, 4};
	const struct nib_fp4 v = {.codes = codes, .scales = scales, .rows = 2, .k = 32};
	struct nib_writer *w;
	enum nib_status status = nib_writer_open(target->path, &w, err);

	if (status)
		return status;
	status = declare_all(w, err);
	for (int i = 0; i < LAYERS && !status; i++)
		status = nib_writer_write_layer(w, NIB_CHECKPOINT_COMPRESSED_TENSORS,
						&v, 1, 2, err);
	if (status) {
		nib_writer_discard(w);
		return status;
	}
	return nib_writer_commit(w, err);
}

static void check_old_file(void *arg)
{
	struct target *target = arg;
	size_t n_bytes;
	unsigned char *bytes = test_read_file(target->path, &n_bytes);

	assert_int_equal(n_bytes, 6);
	assert_memory_equal(bytes, "before", 6);
	free(bytes);
	assert_int_equal(test_folder_count(&target->folder), 1);
}

static void survives_failures_while_writing(void **state)
{
	struct target target = {.folder = test_folder_new()};
	long n;

	target.path = test_path(&target.folder, "x");
	if (!test_alloc_works()) {
		struct nib_error err;

		assert_ok(write_all(&target, &err));
		assert_ok(open_path(&target, &err));
		test_folder_remove(&target.folder);
		skip();
	}
	for (int mode = 0; mode < 2; mode++) {
		char path[512];

		/* test_path()'s memory is used again below. */
		snprintf(path, sizeof(path), "%s/x", target.folder.path);
		target.path = path;
		test_write_file(path, "before", 6);
		n = fail_each((enum test_alloc_mode)mode, write_all, &target,
			      check_old_file);
		printf("writing: %ld allocations failed in turn\n", n);
		assert_true(n > 100);
		n = fail_each((enum test_alloc_mode)mode, open_path, &target, NULL);
		assert_true(n > 5);
	}
	test_folder_remove(&target.folder);
}

/* A writer that could not take a name takes the next one. */
static void goes_on_after_a_failed_declaration(void **state)
{
	static const int64_t shape[] = {1};
	struct test_folder folder = test_folder_new();
	struct nib_writer *w;
	struct nib_error err;

	assert_ok(nib_writer_open(test_path(&folder, "x"), &w, &err));
	for (long n = 1; test_alloc_works() && n < 8; n++) {
		enum nib_status status;

		test_alloc_fail(n, TEST_ALLOC_ONE);
		status = nib_writer_declare_layer(w, NIB_CHECKPOINT_MODELOPT, "x", 0,
						  16, 0, &err);
		test_alloc_stop();
		assert_int_equal(status, NIB_STATUS_OUT_OF_MEMORY);
	}
	assert_ok(nib_writer_declare(w, "x.weight", "U8", 1, shape, &err));
	assert_ok(nib_writer_write(w, "1", 1, &err));
	assert_ok(nib_writer_commit(w, &err));
	test_folder_remove(&folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(survives_failures_while_reading),
	    cmocka_unit_test(survives_failures_while_writing),
	    cmocka_unit_test(goes_on_after_a_failed_declaration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
