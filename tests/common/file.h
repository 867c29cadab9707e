/* SPDX-License-Identifier: Apache-2.0 */
/* common/file.h - safetensors files made by hand, and folders for tests. */
#ifndef NIB_TESTS_COMMON_FILE_H
#define NIB_TESTS_COMMON_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "nibblas.h"

/* A file in memory: length, header, data. */
struct test_image {
	unsigned char *bytes;
	size_t n_bytes;
};

/* data_bytes of data, byte i is i * 7 + 1 unless data gives them. */
struct test_image test_image_new(const char *header, const void *data,
				 size_t data_bytes);
void test_image_free(struct test_image *image);

/* nib_file_open_memory() of such an image, ending at a guard page. */
enum nib_status test_image_open(const struct test_image *image, struct nib_file **file,
				struct nib_error *err);

/* A tensor of a file under construction; floats, or bytes counted up. */
struct test_part {
	const char *name, *dtype, *shape;
	size_t bytes;
	const float *floats;
};
/* Opens a file of these parts, until one without a name. */
struct nib_file *test_open_parts(const struct test_part *parts,
				 struct test_image *image);
void test_close_parts(struct nib_file *file, struct test_image *image);

/* A fresh folder; its path lives until test_folder_remove(). */
struct test_folder {
	char path[256];
};
struct test_folder test_folder_new(void);
/* "folder/name"; the next call but seven overwrites it. */
const char *test_path(const struct test_folder *folder, const char *name);
/* Files in the folder, hidden ones too. */
int test_folder_count(const struct test_folder *folder);
/* With all files in it. */
void test_folder_remove(struct test_folder *folder);

void test_write_file(const char *path, const void *bytes, size_t n_bytes);
/* The bytes, for free(); NULL if there is no such file. */
unsigned char *test_read_file(const char *path, size_t *n_bytes);
/* path, in the folder, holds this text, and is the only file. */
void test_folder_holds(const struct test_folder *folder, const char *path,
		       const char *text);

/* As the library's, where no failure is expected. */
struct nib_writer *test_writer_open(const char *path);
void test_declare(struct nib_writer *writer, const char *name, const char *dtype,
		  int rank, const int64_t *shape);
struct nib_file *test_file_open(const char *path);

#endif
