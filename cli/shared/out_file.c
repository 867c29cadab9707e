/* SPDX-License-Identifier: Apache-2.0 */
/* out_file.c - writes a text file whole or not at all: see out_file.h. */
#include "out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_TRIES 100

unsigned out_file_number(void)
{
	struct timespec now;
	unsigned number;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number))
		return number;
	clock_gettime(CLOCK_REALTIME, &now);
	return (unsigned)now.tv_nsec;
}

/* Creates a file in the folder of path; returns its descriptor, or -1. */
static int create(struct out_file *out, const char *path)
{
	const char *slash = strrchr(path, '/');
	const int before = slash ? (int)(slash - path) + 1 : 0;
	int fd = -1;

	for (int i = 0; i < MAX_TRIES && fd < 0; i++) {
		free(out->temp);
		if (asprintf(&out->temp, "%.*s.nib-%08x.tmp", before, path,
			     out_file_number()) < 0) {
			out->temp = NULL;
			errno = ENOMEM;
			return -1;
		}
		fd = open(out->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd < 0) {
		free(out->temp);
		out->temp = NULL;
	} else {
		(void)flock(fd, LOCK_EX | LOCK_NB); /* see leftovers.h */
	}
	return fd;
}

bool out_file_open(struct out_file *out, const char *path)
{
	struct stat old;
	int fd;

	*out = (struct out_file){.path = path};
	fd = create(out, path);
	if (fd < 0)
		return false;
	if (!stat(path, &old) && S_ISREG(old.st_mode) &&
	    fchmod(fd, old.st_mode & 0777)) {
		close(fd);
	} else {
		out->stream = fdopen(fd, "w");
		if (out->stream)
			return true;
		close(fd);
	}
	out_file_discard(out);
	return false;
}

bool out_file_commit(struct out_file *out)
{
	FILE *stream = out->stream;
	bool ok;

	errno = 0;
	ok = !fflush(stream) && !ferror(stream) && !fsync(fileno(stream));
	if (!ok && !errno)
		errno = EIO; /* of a write long past */
	if (!ok || fclose(stream)) {
		out->stream = ok ? NULL : stream;
		out_file_discard(out);
		return false;
	}
	out->stream = NULL;
	if (rename(out->temp, out->path)) {
		out_file_discard(out);
		return false;
	}
	free(out->temp);
	*out = (struct out_file){0};
	return true;
}

void out_file_discard(struct out_file *out)
{
	const int why = errno;

	if (out->stream)
		fclose(out->stream);
	if (out->temp)
		unlink(out->temp);
	free(out->temp);
	*out = (struct out_file){0};
	errno = why;
}
