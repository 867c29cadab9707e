/* SPDX-License-Identifier: Apache-2.0 */
/* common/file.c - safetensors files made by hand, and folders for tests. */
#include "file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "file/little_endian.h"
#include "unit.h"

struct test_image test_image_new(const char *header, const void *data,
				 size_t data_bytes)
{
	const size_t header_bytes = strlen(header);
	struct test_image image;

	image.n_bytes = 8 + header_bytes + data_bytes;
	image.bytes = guard_new(image.n_bytes);
	for (int i = 0; i < 8; i++)
		image.bytes[i] = (unsigned char)((uint64_t)header_bytes >> 8 * i);
	memcpy(image.bytes + 8, header, header_bytes);
	for (size_t i = 0; i < data_bytes; i++)
		image.bytes[8 + header_bytes + i] =
		    data ? ((const unsigned char *)data)[i]
			 : (unsigned char)(i * 7 + 1);
	return image;
}

void test_image_free(struct test_image *image)
{
	guard_free(image->bytes, image->n_bytes);
}

enum nib_status test_image_open(const struct test_image *image, struct nib_file **file,
				struct nib_error *err)
{
	return nib_file_open_memory(image->bytes, image->n_bytes, "image", file, err);
}

struct test_folder test_folder_new(void)
{
	const char *base = getenv("TMPDIR");
	struct test_folder folder;

	snprintf(folder.path, sizeof(folder.path), "%s/nib-test-XXXXXX",
		 base ? base : "/tmp");
	assert_non_null(mkdtemp(folder.path));
	return folder;
}

const char *test_path(const struct test_folder *folder, const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder->path, name);
	return path;
}

/* Counts, and removes if asked to. */
static int walk(const struct test_folder *folder, int remove_files)
{
	DIR *dir = opendir(folder->path);
	struct dirent *entry;
	int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		n++;
		if (remove_files)
			assert_int_equal(remove(test_path(folder, entry->d_name)), 0);
	}
	closedir(dir);
	return n;
}

int test_folder_count(const struct test_folder *folder)
{
	return walk(folder, 0);
}

void test_folder_remove(struct test_folder *folder)
{
	walk(folder, 1);
	assert_int_equal(rmdir(folder->path), 0);
}

void test_write_file(const char *path, const void *bytes, size_t n_bytes)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
	assert_int_equal(fclose(f), 0);
}

unsigned char *test_read_file(const char *path, size_t *n_bytes)
{
	FILE *f = fopen(path, "rb");
	unsigned char *bytes;
	long size;

	*n_bytes = 0;
	if (!f)
		return NULL;
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	size = ftell(f);
	assert_true(size >= 0);
	rewind(f);
	bytes = malloc((size_t)size + 1);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, (size_t)size, f), (size_t)size);
	fclose(f);
	*n_bytes = (size_t)size;
	return bytes;
}

struct nib_writer *test_writer_open(const char *path)
{
	struct nib_writer *writer;
	struct nib_error err;

	assert_ok_err(nib_writer_open(path, &writer, &err), &err);
	return writer;
}

void test_declare(struct nib_writer *writer, const char *name, const char *dtype,
		  int rank, const int64_t *shape)
{
	struct nib_error err;

	assert_ok_err(nib_writer_declare(writer, name, dtype, rank, shape, &err), &err);
}

struct nib_file *test_file_open(const char *path)
{
	struct nib_file *file;
	struct nib_error err;

	assert_ok_err(nib_file_open(path, &file, &err), &err);
	return file;
}

void test_folder_holds(const struct test_folder *folder, const char *path,
		       const char *text)
{
	size_t n_bytes;
	unsigned char *bytes = test_read_file(path, &n_bytes);

	assert_non_null(bytes);
	assert_int_equal(n_bytes, strlen(text));
	assert_memory_equal(bytes, text, n_bytes);
	free(bytes);
	assert_int_equal(test_folder_count(folder), 1);
}

struct nib_file *test_open_parts(const struct test_part *parts,
				 struct test_image *image)
{
	unsigned char data[8192];
	char header[4096] = "{";
	size_t used = 0, at = 1;
	struct nib_error err;
	struct nib_file *file;

	for (; parts->name; parts++) {
		at += (size_t)snprintf(header + at, sizeof(header) - at,
				       "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
				       "\"data_offsets\":[%zu,%zu]}",
				       at > 1 ? "," : "", parts->name, parts->dtype,
				       parts->shape, used, used + parts->bytes);
		assert_true(used + parts->bytes <= sizeof(data));
		for (size_t i = 0; i < parts->bytes; i++)
			data[used + i] = (unsigned char)(i & 0x7F);
		for (size_t i = 0; parts->floats && i < parts->bytes / 4; i++)
			nib_store_fp32(data + used + 4 * i, parts->floats[i]);
		used += parts->bytes;
	}
	assert_true(at + 2 < sizeof(header));
	memcpy(header + at, "}", 2);
	*image = test_image_new(header, data, used);
	assert_ok_err(test_image_open(image, &file, &err), &err);
	return file;
}

void test_close_parts(struct nib_file *file, struct test_image *image)
{
	nib_file_close(file);
	test_image_free(image);
}
