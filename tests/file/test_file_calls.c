/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_calls.c - system calls that fail, or do less than was requested: partial
 * writes, signals, full disks, errors of close().  The functions below replace the C
 * library's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/file.h"
#include "common/unit.h"

#define BYTES 300000

/* What the next calls do; zeros: what they always do. */
static struct {
	bool is_on;
	size_t most;	/* bytes that a write takes, if not 0 */
	int interrupts; /* writes that fail with EINTR */
	bool takes_nothing;
	int write_code, close_code; /* errno */
	int writes, closes;
} calls;

/* Shadows the C library's: declared there. */
ssize_t pwrite(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
	if (calls.is_on) {
		calls.writes++;
		if (calls.interrupts-- > 0 || calls.write_code) {
			errno = calls.write_code ? calls.write_code : EINTR;
			return -1;
		}
		if (calls.takes_nothing)
			return 0;
		if (calls.most && n_bytes > calls.most)
			n_bytes = calls.most;
	}
	return syscall(SYS_pwrite64, fd, bytes, n_bytes, offset);
}

int close(int fd)
{
	const long result = syscall(SYS_close, fd);

	if (calls.is_on && ++calls.closes == 1 && calls.close_code) {
		errno = calls.close_code;
		return -1;
	}
	return (int)result;
}

static unsigned char *data;

/* Writes a tensor of BYTES over "before", this many bytes a call. */
static enum nib_status write_tensor(const char *path, size_t piece,
				    struct nib_error *err)
{
	static const int64_t shape[] = {BYTES};
	struct nib_writer *w;
	enum nib_status status = NIB_STATUS_OK;

	test_write_file(path, "before", 6);
	w = test_writer_open(path);
	test_declare(w, "x", "U8", 1, shape);
	calls.is_on = true;
	for (size_t at = 0; at < BYTES && !status; at += piece)
		status = nib_writer_write(w, data + at,
					  at + piece < BYTES ? piece : BYTES - at, err);
	if (status)
		nib_writer_discard(w);
	else
		status = nib_writer_commit(w, err);
	calls.is_on = false;
	return status;
}

static void check_written(struct test_folder *folder, const char *path)
{
	struct nib_file *file = test_file_open(path);

	assert_memory_equal(nib_file_find(file, "x")->data, data, BYTES);
	nib_file_close(file);
	assert_int_equal(test_folder_count(folder), 1);
}

/* A write may take a part of what it is given, even a single byte. */
static void writes_in_pieces(void **state)
{
	static const size_t most[] = {1, 7, 4096, 65537};
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_error err;

	for (size_t i = 0; i < sizeof(most) / sizeof(*most); i++) {
		memset(&calls, 0, sizeof(calls));
		calls.most = most[i];
		assert_ok(write_tensor(path, i % 2 ? 1000 : BYTES, &err));
		assert_true(calls.writes >= BYTES / (int)most[i]);
		check_written(&folder, path);
	}
	test_folder_remove(&folder);
}

static void goes_on_after_signals(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_error err;

	memset(&calls, 0, sizeof(calls));
	calls.interrupts = 3;
	calls.close_code = EINTR; /* closed all the same */
	assert_ok(write_tensor(path, BYTES, &err));
	assert_true(calls.writes > 3);
	check_written(&folder, path);
	test_folder_remove(&folder);
}

static void fails_with(int write_code, bool takes_nothing, int close_code, int says)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_error err;

	memset(&calls, 0, sizeof(calls));
	calls.write_code = write_code;
	calls.takes_nothing = takes_nothing;
	calls.close_code = close_code;
	assert_refused(write_tensor(path, BYTES, &err), NIB_STATUS_IO, &err,
		       strerror(says));
	test_folder_holds(&folder, path, "before");
	test_folder_remove(&folder);
}

static void keeps_the_old_file_when_calls_fail(void **state)
{
	fails_with(EIO, false, 0, EIO);
	fails_with(ENOSPC, false, 0, ENOSPC);
	/* 0 bytes and no error: a disk that is full. */
	fails_with(0, true, 0, ENOSPC);
	/* Network file systems tell with close() what a write lost. */
	fails_with(0, false, EIO, EIO);
	fails_with(0, false, EDQUOT, EDQUOT);
}

/* Descriptors 0 to 2 are free, and no higher one: nothing is left behind. */
static void without_descriptors(void **state)
{
	struct test_folder folder = test_folder_new();
	const char *path = test_path(&folder, "x");
	struct nib_error err = {.message = ""};
	struct nib_writer *w = NULL;
	struct rlimit old, low;
	int kept[3];
	enum nib_status status;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (rlim_t most = 3; most < 5; most++) {
		for (int fd = 0; fd < 3; fd++) {
			kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
			close(fd);
		}
		low = old;
		low.rlim_cur = most;
		setrlimit(RLIMIT_NOFILE, &low);
		status = nib_writer_open(path, &w, &err);
		setrlimit(RLIMIT_NOFILE, &old);
		for (int fd = 0; fd < 3; fd++) {
			dup2(kept[fd], fd);
			close(kept[fd]);
		}
		assert_int_equal(status, NIB_STATUS_IO);
		assert_null(w);
		assert_int_equal(test_folder_count(&folder), 0);
	}
	test_folder_remove(&folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(writes_in_pieces),
	    cmocka_unit_test(goes_on_after_signals),
	    cmocka_unit_test(keeps_the_old_file_when_calls_fail),
	    cmocka_unit_test(without_descriptors),
	};
	int result;

	data = malloc(BYTES);
	if (!data)
		return 1;
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (unsigned char)(i * 7 + i / 251);
	result = cmocka_run_group_tests(tests, NULL, NULL);
	free(data);
	return result;
}
