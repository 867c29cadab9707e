/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_index.c - opens any bytes as the index of two shards, and compares the result
 * with jansson's reading of the index.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nibblas.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n_bytes);

#define CHECK(condition)                                                               \
	do {                                                                           \
		if (!(condition))                                                      \
			abort();                                                       \
	} while (0)

static const char *const names[] = {"a.safetensors", "b.safetensors",
				    "m.safetensors.index.json"};
static char folder[256], paths[3][300];

static void remove_folder(void)
{
	for (int i = 0; i < 3; i++)
		(void)unlink(paths[i]);
	(void)rmdir(folder);
}

/* A shard with the given tensors of U8 [2]. */
static void write_shard(const char *path, const char *const *tensors, int n)
{
	static const int64_t shape[] = {2};
	struct nib_writer *writer;
	struct nib_error err;

	CHECK(!nib_writer_open(path, &writer, &err));
	for (int i = 0; i < n; i++)
		CHECK(!nib_writer_declare(writer, tensors[i], "U8", 1, shape, &err));
	for (int i = 0; i < n; i++)
		CHECK(!nib_writer_write(writer, "12", 2, &err));
	CHECK(!nib_writer_commit(writer, &err));
}

static void make_folder(void)
{
	static const char *const a[] = {"x.weight", "norm"}, *const b[] = {"y"};
	const char *base = getenv("TMPDIR");

	snprintf(folder, sizeof(folder), "%.200s/nib-fuzz-XXXXXX",
		 base ? base : "/tmp");
	CHECK(mkdtemp(folder));
	for (int i = 0; i < 3; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", folder, names[i]);
	CHECK(atexit(remove_folder) == 0);
	write_shard(paths[0], a, 2);
	write_shard(paths[1], b, 1);
}

/* Whatever is accepted is JSON, and each of its tensors is where it says. */
static void compare(const struct nib_file *file, const uint8_t *text, size_t n_bytes)
{
	json_error_t error;
	json_t *root = json_loadb((const char *)text, n_bytes, 0, &error);
	json_t *map, *shard;
	const char *name;
	int64_t tensors = 0;

	/* Numbers that are skipped may be of any size. */
	if (!root && json_error_code(&error) == json_error_numeric_overflow)
		return;
	CHECK(root);
	map = json_object_get(root, "weight_map");
	CHECK(json_object_size(map) > 0);
	json_object_foreach(map, name, shard)
	{
		const struct nib_file_tensor *t = nib_file_find(file, name);

		CHECK(t && !strcmp(nib_file_shard_at(file, t->shard),
				   json_string_value(shard)));
	}
	for (int64_t i = 0; i < nib_file_shard_count(file); i++) {
		const char *is = nib_file_shard_at(file, i);

		CHECK(!strcmp(is, names[0]) || !strcmp(is, names[1]));
		tensors += strcmp(is, names[0]) ? 1 : 2;
	}
	CHECK(nib_file_tensor_count(file) == tensors);
	json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n_bytes)
{
	struct nib_error err;
	struct nib_file *file;
	enum nib_status status;
	FILE *index;

	if (!*folder)
		make_folder();
	index = fopen(paths[2], "wb");
	CHECK(index);
	CHECK(fwrite(input, 1, n_bytes, index) == n_bytes);
	CHECK(fclose(index) == 0);
	status = nib_file_open(paths[2], &file, &err);
	if (status) {
		CHECK(status == NIB_STATUS_BAD_FILE || status == NIB_STATUS_IO);
		CHECK(err.status == status && err.message[0] && !file);
		for (const char *c = err.message; *c; c++)
			CHECK((unsigned char)*c >= 0x20);
		return 0;
	}
	compare(file, input, n_bytes);
	nib_file_close(file);
	return 0;
}
