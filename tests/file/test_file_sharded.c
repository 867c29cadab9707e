/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_sharded.c - folders and indices: the file of a folder that is opened,
 * layers with tensors in several shards, and every fault of an index.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"

#define INDEX "model.safetensors.index.json"
#define A     "model-00001-of-00002.safetensors"
#define B     "model-00002-of-00002.safetensors"

/* Shard A has the weights of a layer and shard B its scales. */
static const char header_a[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"m.weight\":{\"dtype\":\"U8\",\"shape\":[3,16],\"data_offsets\":[0,48]},"
    "\"norm\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[48,52]}}";
static const char header_b[] =
    "{\"m.weight_scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,2],"
    "\"data_offsets\":[4,10]},"
    "\"m.weight_scale_2\":{\"dtype\":\"F32\",\"shape\":[],"
    "\"data_offsets\":[0,4]}}";
static const unsigned char data_b[] = {0, 0, 0, 0x3F, 1, 2, 3, 4, 5, 6};
static const char good_index[] =
    "{\"metadata\":{\"total_size\":62,\"x\":[1.5e3,{\"y\":null}]},"
    "\"weight_map\":{\"m.weight\":\"" A "\",\"norm\":\"" A "\","
    "\"m.weight_scale\":\"" B "\",\"m.weight_scale_2\":\"" B "\"}}";

static void put(const struct test_folder *folder, const char *name, const char *header,
		const void *data, size_t data_bytes)
{
	struct test_image image = test_image_new(header, data, data_bytes);

	test_write_file(test_path(folder, name), image.bytes, image.n_bytes);
	test_image_free(&image);
}

static void put_index(const struct test_folder *folder, const char *text)
{
	test_write_file(test_path(folder, INDEX), text, strlen(text));
}

/* A folder with both shards and an index. */
static struct test_folder make_model(const char *index)
{
	struct test_folder folder = test_folder_new();

	put(&folder, A, header_a, NULL, 52);
	put(&folder, B, header_b, data_b, sizeof(data_b));
	put_index(&folder, index);
	return folder;
}

static void check_model(const struct nib_file *file)
{
	const struct nib_file_tensor *t = nib_file_find(file, "norm");
	const struct nib_layer *layer = nib_file_find_layer(file, "m");
	const char *key, *value;

	assert_int_equal(nib_file_shard_count(file), 2);
	assert_string_equal(nib_file_shard_at(file, 0), A);
	assert_string_equal(nib_file_shard_at(file, 1), B);
	assert_null(nib_file_shard_at(file, 2));
	assert_null(nib_file_shard_at(file, -1));
	assert_int_equal(nib_file_tensor_count(file), 4);
	assert_non_null(t);
	assert_int_equal(t->shard, 0);
	assert_int_equal(nib_file_find(file, "m.weight_scale")->shard, 1);
	assert_int_equal(nib_file_layer_defect_count(file), 0);
	assert_int_equal(nib_file_layer_count(file), 1);
	assert_non_null(layer);
	assert_float_equal(layer->globals[0], 0.5, 0);
	assert_int_equal(((const uint8_t *)layer->weight.codes)[47],
			 (uint8_t)(47 * 7 + 1));
	assert_int_equal(((const uint8_t *)layer->weight.scales)[5], 6);
	assert_int_equal(nib_file_metadata_count(file), 1);
	nib_file_metadata_at(file, 0, &key, &value);
	assert_string_equal(key, "format");
	assert_string_equal(value, "pt");
}

static void joins_layers_across_shards(void **state)
{
	struct test_folder folder = make_model(good_index);
	struct nib_file *file = test_file_open(folder.path);

	check_model(file);
	nib_file_close(file);
	file = test_file_open(test_path(&folder, INDEX));
	check_model(file);
	nib_file_close(file);
	file = test_file_open(test_path(&folder, A));
	assert_int_equal(nib_file_shard_count(file), 0);
	assert_null(nib_file_shard_at(file, 0));
	nib_file_close(file);
	test_folder_remove(&folder);
}

/* Files without an index: the shards are named by their paths. */
static void joins_files_that_are_named(void **state)
{
	struct test_folder folder = make_model(good_index);
	char *a = strdup(test_path(&folder, A)), *b = strdup(test_path(&folder, B));
	const char *const both[] = {a, b}, *const twice[] = {a, b, a};
	const char *const hole[] = {a, NULL}, *const missing[] = {a, "nowhere"};
	struct nib_file *file;
	struct nib_error err;

	assert_int_equal(nib_file_open_shards(both, 2, &file, &err), NIB_STATUS_OK);
	assert_int_equal(nib_file_shard_count(file), 2);
	assert_string_equal(nib_file_shard_at(file, 0), a);
	assert_string_equal(nib_file_shard_at(file, 1), b);
	assert_int_equal(nib_file_find(file, "m.weight_scale")->shard, 1);
	assert_int_equal(nib_file_layer_count(file), 1);
	nib_file_close(file);
	assert_int_equal(nib_file_open_shards(twice, 3, &file, &err),
			 NIB_STATUS_BAD_FILE);
	assert_null(file);
	assert_non_null(strstr(err.message, "is in both"));
	assert_int_equal(nib_file_open_shards(missing, 2, &file, &err), NIB_STATUS_IO);
	assert_non_null(strstr(err.message, "nowhere"));
	assert_int_equal(nib_file_open_shards(hole, 2, &file, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.message, "paths[1] = NULL: must be a path");
	assert_int_equal(nib_file_open_shards(both, 0, &file, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_file_open_shards(NULL, 1, &file, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	free(a);
	free(b);
	test_folder_remove(&folder);
}

/* Opening path fails with status and a message that holds these texts. */
static void check_refused(const char *path, enum nib_status status,
			  const char *const *says)
{
	struct nib_file *file;
	struct nib_error err;

	if (nib_file_open(path, &file, &err) != status)
		fail_msg("%s: status %d: %s", says[0], (int)err.status, err.message);
	assert_null(file);
	assert_int_equal(nib_file_open(path, &file, NULL), status);
	for (int i = 0; i < 3 && says[i]; i++)
		assert_contains(err.message, says[i]);
}

static void refuses_a_wrong_index(void **state)
{
	static const struct {
		const char *index;
		const char *says[3];
	} cases[] = {
	    {"", {"byte 0", "weight_map: must be an object"}},
	    {"{}", {"there is no weight_map"}},
	    {"{\"weight_map\":{}}", {"the weight_map is empty"}},
	    {"{\"weight_map\":{\"a\":\"" A "\"}} x", {"text after"}},
	    {"{\"weight_map\":{\"a\":1}}", {"expected a string"}},
	    {"{\"weight_map\":[]}", {"weight_map: must be an object"}},
	    {"{\"metadata\":{]}", {"expected a string"}},
	    {"{\"metadata\":01}", {"leading 0"}},
	    {"{\"weight_map\":{\"norm\":\"" A "\"},\"weight_map\":{}}",
	     {"a second weight_map"}},
	    {"{\"weight_map\":{\"norm\":\"../" A "\"}}",
	     {INDEX, "'norm'", "folder of the index"}},
	    {"{\"weight_map\":{\"norm\":\"/etc/passwd\"}}", {"folder of the index"}},
	    {"{\"weight_map\":{\"norm\":\"..\"}}", {"folder of the index"}},
	    {"{\"weight_map\":{\"norm\":\".\"}}", {"folder of the index"}},
	    {"{\"weight_map\":{\"norm\":\"\"}}", {"folder of the index"}},
	    {"{\"weight_map\":{\"norm\":\"" A "\",\"norm\":\"" A "\"}}",
	     {"'norm'", "twice in the weight_map"}},
	    {"{\"weight_map\":{\"other\":\"" A "\"}}",
	     {INDEX, "'other'", "is not in " A}},
	    {"{\"weight_map\":{\"norm\":\"" B "\",\"m.weight\":\"" A "\"}}",
	     {"'norm'", "is not in " B}},
	    {"{\"weight_map\":{\"norm\":\"" INDEX "\"}}", {INDEX, "header of"}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct test_folder folder = make_model(cases[i].index);

		check_refused(folder.path, NIB_STATUS_BAD_FILE, cases[i].says);
		test_folder_remove(&folder);
	}
}

static void refuses_missing_and_broken_shards(void **state)
{
	static const char *const missing[3] = {B, "cannot open",
					       "holds 'm.weight_scale"};
	static const char *const broken[3] = {B, "too short"};
	static const char *const twice[3] = {"tensor 'norm': is in both", A, B};
	struct test_folder folder = make_model(good_index);

	assert_int_equal(remove(test_path(&folder, B)), 0);
	check_refused(folder.path, NIB_STATUS_IO, missing);
	test_write_file(test_path(&folder, B), "x", 1);
	check_refused(folder.path, NIB_STATUS_BAD_FILE, broken);
	put(&folder, B,
	    "{\"norm\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
	    "\"m.weight_scale\":{\"dtype\":\"U8\",\"shape\":[0],"
	    "\"data_offsets\":[1,1]}}",
	    NULL, 1);
	check_refused(folder.path, NIB_STATUS_BAD_FILE, twice);
	test_folder_remove(&folder);
}

/* Opens a folder; its tensors, or -1 after a message with these words. */
static int64_t count_tensors(const struct test_folder *folder, const char *says)
{
	struct nib_file *file;
	struct nib_error err;
	int64_t n;

	if (nib_file_open(folder->path, &file, &err)) {
		assert_int_equal(err.status, NIB_STATUS_BAD_FILE);
		if (!says || !strstr(err.message, says))
			fail_msg("'%s'", err.message);
		return -1;
	}
	n = nib_file_tensor_count(file);
	nib_file_close(file);
	return n;
}

static void chooses_the_file_of_a_folder(void **state)
{
	struct test_folder folder = test_folder_new();

	assert_int_equal(count_tensors(&folder, "a folder without a safetensors file"),
			 -1);
	put(&folder, ".hidden.safetensors", header_a, NULL, 52);
	put(&folder, "x.bin", header_a, NULL, 52);
	assert_int_equal(count_tensors(&folder, "without"), -1);
	put(&folder, B, header_b, data_b, sizeof(data_b));
	assert_int_equal(count_tensors(&folder, NULL), 2);
	put(&folder, A, header_a, NULL, 52);
	assert_int_equal(count_tensors(&folder, "2 safetensors files and 0 indices"),
			 -1);
	put(&folder, "model.safetensors", "{}", NULL, 0);
	assert_int_equal(count_tensors(&folder, NULL), 0);
	put_index(&folder, good_index);
	assert_int_equal(count_tensors(&folder, "which does not name it"), -1);
	put_index(&folder, "{\"weight_map\": {\"a\": \"model.safetensors\"}}");
	put(&folder, "model.safetensors",
	    "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", NULL, 1);
	assert_int_equal(count_tensors(&folder, NULL), 1);
	put_index(&folder, good_index);
	assert_int_equal(
	    rename(test_path(&folder, INDEX), test_path(&folder, "other" INDEX)), 0);
	assert_int_equal(remove(test_path(&folder, "model.safetensors")), 0);
	assert_int_equal(count_tensors(&folder, NULL), 4);
	test_folder_remove(&folder);
}

static void survives_failed_allocations(void **state)
{
	struct test_folder folder = make_model(good_index);
	long before = test_alloc_live(), n = 0;
	bool failed = true;

	if (!test_alloc_works()) {
		test_folder_remove(&folder);
		skip();
	}
	while (failed) {
		struct nib_file *file = NULL;
		struct nib_error err = {0};
		enum nib_status status;

		test_alloc_fail(++n, TEST_ALLOC_FROM);
		status = nib_file_open(folder.path, &file, &err);
		nib_file_close(file);
		failed = test_alloc_stop();
		assert_int_equal(status,
				 failed ? NIB_STATUS_OUT_OF_MEMORY : NIB_STATUS_OK);
		assert_int_equal(test_alloc_live(), before);
	}
	/* The folder, two shards with their parts, what joins them. */
	assert_true(n > 15);
	test_folder_remove(&folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(joins_layers_across_shards),
	    cmocka_unit_test(joins_files_that_are_named),
	    cmocka_unit_test(refuses_a_wrong_index),
	    cmocka_unit_test(refuses_missing_and_broken_shards),
	    cmocka_unit_test(chooses_the_file_of_a_folder),
	    cmocka_unit_test(survives_failed_allocations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
