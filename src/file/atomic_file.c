/* SPDX-License-Identifier: Apache-2.0 */
/* atomic_file.c - a new file that appears under its name all at once. */
#include "atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"
#include "file/open.h"

#define BUFFER_BYTES 65536
#define MAX_TRIES    100

struct nib_atomic_file {
	char *path;
	const char *base; /* path after its last '/' */
	char temp[40];	  /* name of the temporary file; "" = gone */
	int dir_fd, fd;
	bool replaces; /* a file that exists */
	unsigned mode; /* of the new file */
	int failed;    /* the errno that ended it, or 0 */
	/* Bytes not yet written, which belong at buffer_offset. */
	size_t buffered;
	uint64_t buffer_offset;
	unsigned char buffer[BUFFER_BYTES];
};

/* Removes the temporary file.  After it the file can only be discarded. */
static enum nib_status give_up(struct nib_atomic_file *file, const char *call, int code,
			       struct nib_error *err)
{
	if (file->temp[0])
		unlinkat(file->dir_fd, file->temp, 0);
	file->temp[0] = '\0';
	file->failed = code;
	return nib_fail_errno(err, file->path, call, code);
}

/* Sets dir_fd and base. */
static enum nib_status open_folder(struct nib_atomic_file *file, struct nib_error *err)
{
	char *slash = strrchr(file->path, '/');
	const char *folder = ".";

	file->base = slash ? slash + 1 : file->path;
	if (file->base[0] == '\0')
		return nib_fail_errno(err, file->path, "write",
				      file->path[0] ? EISDIR : ENOENT);
	if (slash == file->path) {
		folder = "/";
	} else if (slash) {
		*slash = '\0';
		folder = file->path;
	}
	file->dir_fd = nib_open_file(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0);
	if (slash)
		*slash = '/';
	if (file->dir_fd < 0)
		return nib_fail_errno(err, file->path, "open its folder", errno);
	return NIB_STATUS_OK;
}

/* Sets mode.  Refuses a device or a pipe, which a rename would replace by a file. */
static enum nib_status check_target(struct nib_atomic_file *file, struct nib_error *err)
{
	char shown[NIB_SHOWN_BYTES];
	struct stat st;

	file->mode = 0666;
	if (fstatat(file->dir_fd, file->base, &st, 0) != 0) {
		if (errno == ENOENT)
			return NIB_STATUS_OK;
		return nib_fail_errno(err, file->path, "write", errno);
	}
	if (S_ISDIR(st.st_mode))
		return nib_fail_errno(err, file->path, "write", EISDIR);
	if (!S_ISREG(st.st_mode))
		return nib_fail(err, NIB_STATUS_IO, "%s: not a regular file",
				nib_show_path(shown, file->path));
	file->replaces = true;
	file->mode = st.st_mode & 0777;
	return NIB_STATUS_OK;
}

/* Gives the new file the mode of the file that it replaces, whatever the umask. */
static enum nib_status keep_mode(struct nib_atomic_file *file, struct nib_error *err)
{
	if (file->replaces && fchmod(file->fd, (mode_t)file->mode) != 0)
		return give_up(file, "set the mode of its new content", errno, err);
	return NIB_STATUS_OK;
}

static enum nib_status create_temp(struct nib_atomic_file *file, struct nib_error *err)
{
	struct timespec now;

	for (int i = 0; i < MAX_TRIES; i++) {
		clock_gettime(CLOCK_REALTIME, &now);
		snprintf(file->temp, sizeof(file->temp), ".nib-%lx-%lx-%x.tmp",
			 (unsigned long)getpid(), (unsigned long)now.tv_nsec,
			 (unsigned)i);
		file->fd = nib_open_file(file->dir_fd, file->temp,
					 O_RDWR | O_CREAT | O_EXCL, file->mode);
		if (file->fd >= 0) {
			/* So that others can tell it from one of a process
			 * that is dead; file systems may have no locks. */
			(void)flock(file->fd, LOCK_EX | LOCK_NB);
			return keep_mode(file, err);
		}
		if (errno != EEXIST)
			break;
	}
	file->temp[0] = '\0'; /* not ours */
	return nib_fail_errno(err, file->path, "create a file in its folder", errno);
}

enum nib_status nib_atomic_file_open(struct nib_atomic_file **out, const char *path,
				     struct nib_error *err)
{
	struct nib_atomic_file *file = calloc(1, sizeof(*file));
	enum nib_status status;

	*out = NULL;
	if (!file)
		return nib_fail_errno(err, path, "write", ENOMEM);
	file->dir_fd = file->fd = -1;
	file->path = strdup(path);
	if (!file->path) {
		free(file);
		return nib_fail_errno(err, path, "write", ENOMEM);
	}
	status = open_folder(file, err);
	if (!status)
		status = check_target(file, err);
	if (!status)
		status = create_temp(file, err);
	if (status) {
		nib_atomic_file_discard(file);
		return status;
	}
	*out = file;
	return NIB_STATUS_OK;
}

enum nib_status nib_atomic_file_check(struct nib_atomic_file *file,
				      struct nib_error *err)
{
	if (file->failed)
		return give_up(file, "write", file->failed, err);
	return NIB_STATUS_OK;
}

enum nib_status nib_atomic_file_reserve(struct nib_atomic_file *file, uint64_t n_bytes,
					struct nib_error *err)
{
	enum nib_status status = nib_atomic_file_check(file, err);

	if (status)
		return status;
	if (n_bytes > INT64_MAX)
		return give_up(file, "write", EFBIG, err);
#ifdef __linux__
	while (n_bytes > 0 && fallocate(file->fd, 0, 0, (off_t)n_bytes) != 0) {
		if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG ||
		    errno == EIO)
			return give_up(file, "write", errno, err);
		if (errno != EINTR)
			break; /* this file system does not report it */
	}
#endif
	return NIB_STATUS_OK;
}

static enum nib_status write_out(struct nib_atomic_file *file, uint64_t offset,
				 const void *bytes, size_t n_bytes,
				 struct nib_error *err)
{
	const unsigned char *at = bytes;

	while (n_bytes > 0) {
		ssize_t written = pwrite(file->fd, at, n_bytes, (off_t)offset);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0) /* 0: the disk is full */
			return give_up(file, "write", written ? errno : ENOSPC, err);
		at += written;
		offset += (uint64_t)written;
		n_bytes -= (size_t)written;
	}
	return NIB_STATUS_OK;
}

static enum nib_status flush(struct nib_atomic_file *file, struct nib_error *err)
{
	size_t n = file->buffered;

	file->buffered = 0;
	return write_out(file, file->buffer_offset, file->buffer, n, err);
}

enum nib_status nib_atomic_file_write(struct nib_atomic_file *file, uint64_t offset,
				      const void *bytes, size_t n_bytes,
				      struct nib_error *err)
{
	enum nib_status status = nib_atomic_file_check(file, err);

	if (status)
		return status;
	if (offset != file->buffer_offset + file->buffered ||
	    n_bytes > BUFFER_BYTES - file->buffered) {
		status = flush(file, err);
		if (status)
			return status;
		file->buffer_offset = offset;
	}
	if (n_bytes >= BUFFER_BYTES) {
		file->buffer_offset = offset + n_bytes;
		return write_out(file, offset, bytes, n_bytes, err);
	}
	if (n_bytes > 0)
		memcpy(file->buffer + file->buffered, bytes, n_bytes);
	file->buffered += n_bytes;
	return NIB_STATUS_OK;
}

static enum nib_status finish(struct nib_atomic_file *file, struct nib_error *err)
{
	enum nib_status status = nib_atomic_file_check(file, err);
	int fd = file->fd;

	if (!status)
		status = flush(file, err);
	if (status)
		return status;
	if (fsync(fd) != 0)
		return give_up(file, "write", errno, err);
	file->fd = -1;
	if (close(fd) != 0 && errno != EINTR) /* Linux closes it also with EINTR */
		return give_up(file, "write", errno, err);
	if (renameat(file->dir_fd, file->temp, file->dir_fd, file->base) != 0)
		return give_up(file, "replace", errno, err);
	file->temp[0] = '\0';
	/* Some file systems cannot sync a folder and return EINVAL. */
	if (fsync(file->dir_fd) != 0 && errno != EINVAL)
		return nib_fail_errno(err, file->path,
				      "sync its folder (the file exists)", errno);
	return NIB_STATUS_OK;
}

enum nib_status nib_atomic_file_commit(struct nib_atomic_file *file,
				       struct nib_error *err)
{
	enum nib_status status = finish(file, err);

	nib_atomic_file_discard(file);
	return status;
}

void nib_atomic_file_discard(struct nib_atomic_file *file)
{
	if (!file)
		return;
	if (file->temp[0])
		unlinkat(file->dir_fd, file->temp, 0);
	if (file->fd >= 0)
		close(file->fd);
	if (file->dir_fd >= 0)
		close(file->dir_fd);
	free(file->path);
	free(file);
}
