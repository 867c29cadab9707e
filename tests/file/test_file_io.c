/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_io.c - paths that cannot be read or written, and full disks.  After every
 * failure the path has its old content, and no other file is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"

/* ---- files that cannot be read ------------------------------------------- */

static void check_io(const char *path, const char *says)
{
	struct nib_error err;
	struct nib_file *file;

	assert_refused(nib_file_open(path, &file, &err), NIB_STATUS_IO, &err, says);
	assert_null(file);
}

static void says_why_a_file_cannot_be_read(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *secret = test_path(&folder, "secret");
	const char *pipe = test_path(&folder, "pipe");

	check_io(test_path(&folder, "absent"), strerror(ENOENT));
	assert_int_equal(mkfifo(pipe, 0600), 0);
	check_io(pipe, "not a regular file");
	check_io("/dev/zero", "not a regular file");
	test_write_file(secret, "x", 1);
	assert_int_equal(chmod(secret, 0), 0);
	assert_int_equal(chmod(folder.path, 0755), 0);
	if (geteuid() == 0) { /* root may read everything: be nobody */
		assert_int_equal(seteuid(65534), 0);
		check_io(secret, strerror(EACCES));
		assert_int_equal(seteuid(0), 0);
	} else {
		check_io(secret, strerror(EACCES));
	}
	test_folder_remove(&folder);
}

static void refuses_an_empty_file(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "empty");
	struct nib_error err;
	struct nib_file *file;

	test_write_file(path, "", 0);
	assert_refused(nib_file_open(path, &file, &err), NIB_STATUS_BAD_FILE, &err,
		       "0 bytes");
	test_folder_remove(&folder);
}

/* A sparse file larger than the address space that the process may have. */
static void names_other_formats(void **state)
{
	static const struct {
		const char *begin, *says;
		size_t bytes;
	} cases[] = {
	    {"GGUF\3\0\0\0\x10\0\0\0", "but a GGUF file: run it by llama.cpp", 12},
	    {"PK\3\4\0\0\10\10\0\0", "but a pickle of PyTorch", 10},
	    {"\x80\2}q\0.\0\0\0", "safetensors.torch.save_file()", 9},
	    {"\x80\5", "a pickle of PyTorch", 2},
	    {"version https://git-lfs.github.com/spec/v1\n",
	     "fetch the file by git lfs pull", 43},
	    {"<!DOCTYPE html><html>", "a failed download", 21},
	    {"ftrt\1\2\3\4\5\6", "TensorRT engine", 10},
	    {"\2\0\0\0\0\0\0\0{ ", "expected a string", 10},
	    {"\4\0\0\0\0\0\0\0GGUF", "does not begin with '{'", 12},
	};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "model");
	struct nib_file *file;
	struct nib_error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		test_write_file(path, cases[i].begin, cases[i].bytes);
		assert_refused(nib_file_open(path, &file, &err), NIB_STATUS_BAD_FILE,
			       &err, cases[i].says);
	}
	test_write_file(test_path(&folder, "m.gguf"), "GGUF", 4);
	assert_refused(nib_file_open(folder.path, &file, &err), NIB_STATUS_BAD_FILE,
		       &err, "m.gguf is named as a GGUF file");
	test_folder_remove(&folder);
}

static void says_when_memory_cannot_be_mapped(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "huge");
	struct rlimit old, low;
	void *probe;
	struct nib_error err;
	struct nib_file *file;
	enum nib_status status;

	test_write_file(path, "", 0);
	if (!test_alloc_works() || truncate(path, (off_t)1 << 40) != 0) {
		test_folder_remove(&folder);
		skip();
	}
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	low = old;
	/* qemu-user honours no limit. */
	low.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	probe = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	low.rlim_cur = (rlim_t)1 << 39;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	if (probe != MAP_FAILED) {
		munmap(probe, 4096);
		setrlimit(RLIMIT_AS, &old);
		test_folder_remove(&folder);
		skip();
	}
	status = nib_file_open(path, &file, &err);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_int_equal(status, NIB_STATUS_OUT_OF_MEMORY);
	assert_contains(err.message, "cannot map");
	test_folder_remove(&folder);
}

static void reads_a_file_from_disk(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "good");
	struct test_image image = test_image_new(
	    "{"
	    "\"x\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}"
	    "}",
	    NULL, 5);
	struct nib_error err;
	struct nib_file *file;

	test_write_file(path, image.bytes, image.n_bytes);
	assert_ok(nib_file_open(path, &file, &err));
	assert_memory_equal(nib_file_find(file, "x")->data,
			    image.bytes + image.n_bytes - 5, 5);
	nib_file_close(file);
	test_image_free(&image);
	test_folder_remove(&folder);
}

/* ---- all or nothing ------------------------------------------------------ */

static void keeps_the_old_file_until_commit(void **state)
{
	static const int64_t shape[] = {100000};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	char *data = calloc(1, 100000);
	struct nib_writer *w;
	struct nib_error err;
	struct nib_file *file;

	test_write_file(path, "before", 6);
	for (int step = 0; step < 3; step++) {
		w = test_writer_open(path);
		if (step > 0)
			test_declare(w, "a", "U8", 1, shape);
		if (step > 1)
			assert_ok(nib_writer_write(w, data, 100000, &err));
		/* The old file, and the temporary one. */
		assert_int_equal(test_folder_count(&folder), 2);
		nib_writer_discard(w);
		test_folder_holds(&folder, path, "before");
	}
	w = test_writer_open(path);
	test_declare(w, "a", "U8", 1, shape);
	assert_ok(nib_writer_write(w, data, 100000, &err));
	assert_ok(nib_writer_commit(w, &err));
	assert_int_equal(test_folder_count(&folder), 1);
	file = test_file_open(path);
	assert_int_equal(nib_file_tensor_count(file), 1);
	nib_file_close(file);
	free(data);
	test_folder_remove(&folder);
}

static void follows_umask_and_replaces_links(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	const char *other = test_path(&folder, "other");
	struct nib_error err;
	struct stat st;
	mode_t old = umask(027);

	test_write_file(other, "other", 5);
	assert_int_equal(symlink(other, path), 0);
	assert_ok(nib_writer_commit(test_writer_open(path), &err));
	umask(old);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_equal(remove(path), 0);
	test_folder_holds(&folder, other, "other");
	test_folder_remove(&folder);
}

static void keeps_the_mode_of_what_it_replaces(void **state)
{
	static const mode_t modes[] = {0600, 0640, 0664, 0755, 0400, 0};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_writer *w;
	struct stat st;
	mode_t old = umask(022);

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		unlink(path);
		test_write_file(path, "old", 3);
		assert_int_equal(chmod(path, modes[i]), 0);
		w = test_writer_open(path);
		assert_ok(nib_writer_commit(w, NULL));
		assert_int_equal(stat(path, &st), 0);
		assert_true(st.st_size > 3);
		assert_int_equal(st.st_mode & 07777, modes[i]);
	}
	umask(old);
	test_folder_remove(&folder);
}

/*
 * A program without standard streams: no file of the library takes the place of
 * one, where everything that is printed would be written into it.
 */
static void keeps_off_the_standard_streams(void **state)
{
	static const int64_t shape[] = {5};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_file *file = NULL;
	struct nib_writer *w = NULL;
	int kept[3], taken = 0;
	enum nib_status opened, done;

	for (int closed = 1; closed < 8; closed++) {
		struct nib_error err = {.message = ""};

		for (int fd = 0; fd < 3; fd++) {
			kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
			if (closed >> fd & 1)
				close(fd);
		}
		opened = nib_writer_open(path, &w, &err);
		for (int fd = 0; fd < 3; fd++)
			if (closed >> fd & 1)
				taken += fcntl(fd, F_GETFD) != -1;
		done =
		    opened ? opened : nib_writer_declare(w, "x", "U8", 1, shape, &err);
		if (!done)
			done = nib_writer_write(w, "bytes", 5, &err);
		for (int fd = 0; fd < 3; fd++)
			if (closed >> fd & 1)
				taken += write(fd, "noise", 5) != -1;
		if (!done)
			done = nib_writer_commit(w, &err);
		if (!done)
			done = nib_file_open(path, &file, &err);
		for (int fd = 0; fd < 3; fd++) {
			dup2(kept[fd], fd);
			close(kept[fd]);
		}
		if (done || taken)
			fail_msg("streams %x: %s; %d descriptors below 3",
				 (unsigned)closed, err.message, taken);
		assert_memory_equal(nib_file_find(file, "x")->data, "bytes", 5);
		nib_file_close(file);
	}
	test_folder_remove(&folder);
}

static void writes_relative_to_the_folder_at_open(void **state)
{
	struct test_folder folder = test_folder_new();
	char *before = getcwd(NULL, 0);
	struct nib_writer *w;
	struct nib_error err;

	assert_non_null(before);
	assert_int_equal(chdir(folder.path), 0);
	w = test_writer_open("x");
	assert_int_equal(chdir(before), 0);
	assert_ok(nib_writer_commit(w, &err));
	free(before);
	nib_file_close(test_file_open(test_path(&folder, "x")));
	assert_int_equal(test_folder_count(&folder), 1);
	test_folder_remove(&folder);
}

static void refuses_paths_that_cannot_be_written(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *pipe = test_path(&folder, "pipe");
	char long_name[400] = "";
	struct {
		const char *path, *says;
	} bad[] = {
	    {test_path(&folder, "no/x"), strerror(ENOENT)},
	    {folder.path, strerror(EISDIR)},
	    {test_path(&folder, ""), strerror(EISDIR)},
	    {"", strerror(ENOENT)},
	    {"/dev/null", "not a regular file"},
	    {pipe, "not a regular file"},
	    {"/dev/null/x", strerror(ENOTDIR)},
	    {test_path(&folder, long_name), strerror(ENAMETOOLONG)},
	};

	assert_int_equal(mkfifo(pipe, 0600), 0);
	memset(long_name, 'n', 300);
	long_name[300] = '\0';
	bad[7].path = test_path(&folder, long_name);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct nib_writer *writer;
		struct nib_error err;

		assert_int_equal(nib_writer_open(bad[i].path, &writer, &err),
				 NIB_STATUS_IO);
		assert_null(writer);
		assert_contains(err.message, bad[i].says);
	}
	assert_int_equal(test_folder_count(&folder), 1);
	test_folder_remove(&folder);
}

/* A longest legal name leaves no space for one that is derived from it. */
static void writes_the_longest_name(void **state)
{
	struct test_folder folder = test_folder_new();
	char name[256];
	struct nib_error err;

	memset(name, 'n', 255);
	name[255] = '\0';
	assert_ok(nib_writer_commit(test_writer_open(test_path(&folder, name)), &err));
	test_folder_remove(&folder);
}

/* ---- full disks ---------------------------------------------------------- */

/* Limits the length of files; returns the old limit. */
static struct rlimit limit_files(rlim_t bytes)
{
	struct rlimit old, low;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	return old;
}

static void says_at_once_that_the_disk_is_full(void **state)
{
	static const int64_t shape[] = {1000000};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_writer *w;
	struct nib_error err;
	struct rlimit old;
	enum nib_status status;

	test_write_file(path, "before", 6);
	w = test_writer_open(path);
	test_declare(w, "a", "U8", 1, shape);
	old = limit_files(500000);
	status = nib_writer_write(w, "", 1, &err); /* of a million */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	if (status == NIB_STATUS_OK) {
		printf("this file system reserves nothing\n");
		nib_writer_discard(w);
		test_folder_remove(&folder);
		skip();
	}
	assert_int_equal(status, NIB_STATUS_IO);
	assert_contains(err.message, strerror(EFBIG));
	test_folder_holds(&folder, path, "before"); /* gone before discard */
	assert_int_equal(nib_writer_write(w, "", 1, &err), NIB_STATUS_IO);
	assert_int_equal(nib_writer_commit(w, &err), NIB_STATUS_IO);
	test_folder_holds(&folder, path, "before");
	test_folder_remove(&folder);
}

/* The disk fills up only after the space was promised. */
static void removes_its_file_when_a_write_fails(void **state)
{
	static const int64_t shape[] = {1000000};
	static const size_t pieces[] = {1000, 1000000};
	char *data = calloc(1, 1000000);

	for (int i = 0; i < 2; i++) {
		struct test_folder folder = test_folder_new();
		const char *path = test_path(&folder, "x");
		enum nib_status status = NIB_STATUS_OK;
		struct nib_writer *w;
		struct nib_error err;
		struct rlimit old;
		size_t at = 0;

		test_write_file(path, "before", 6);
		w = test_writer_open(path);
		test_declare(w, "a", "U8", 1, shape);
		assert_ok(nib_writer_write(w, NULL, 0, &err));
		old = limit_files(500000);
		for (; at < 1000000 && !status; at += pieces[i])
			status = nib_writer_write(w, data, pieces[i], &err);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_int_equal(status, NIB_STATUS_IO);
		assert_contains(err.message, strerror(EFBIG));
		assert_true(i == 1 || at <= 600000);
		test_folder_holds(&folder, path, "before");
		assert_refused(nib_writer_commit(w, &err), NIB_STATUS_IO, &err,
			       strerror(EFBIG));
		test_folder_holds(&folder, path, "before");
		test_folder_remove(&folder);
	}
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(says_why_a_file_cannot_be_read),
	    cmocka_unit_test(refuses_an_empty_file),
	    cmocka_unit_test(names_other_formats),
	    cmocka_unit_test(says_when_memory_cannot_be_mapped),
	    cmocka_unit_test(reads_a_file_from_disk),
	    cmocka_unit_test(keeps_the_old_file_until_commit),
	    cmocka_unit_test(follows_umask_and_replaces_links),
	    cmocka_unit_test(keeps_the_mode_of_what_it_replaces),
	    cmocka_unit_test(keeps_off_the_standard_streams),
	    cmocka_unit_test(writes_relative_to_the_folder_at_open),
	    cmocka_unit_test(refuses_paths_that_cannot_be_written),
	    cmocka_unit_test(writes_the_longest_name),
	    cmocka_unit_test(says_at_once_that_the_disk_is_full),
	    cmocka_unit_test(removes_its_file_when_a_write_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
