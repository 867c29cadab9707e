/* SPDX-License-Identifier: Apache-2.0 */
/* mapped_file.c - a whole file, read-only, in memory. */
#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"
#include "file/open.h"

static enum nib_status map_fd(struct nib_mapped_file *map, int fd, const char *path,
			      struct nib_error *err)
{
	char shown[NIB_SHOWN_BYTES];
	struct stat st;
	void *bytes;

	if (fstat(fd, &st) != 0)
		return nib_fail_errno(err, path, "read its size", errno);
	if (S_ISDIR(st.st_mode))
		return nib_fail_errno(err, path, "read", EISDIR);
	if (!S_ISREG(st.st_mode))
		return nib_fail(err, NIB_STATUS_IO, "%s: not a regular file",
				nib_show_path(shown, path));
	if ((uintmax_t)st.st_size > SIZE_MAX)
		return nib_fail_errno(err, path, "map", EFBIG);
	map->n_bytes = (size_t)st.st_size;
	if (map->n_bytes == 0) { /* mmap refuses a length of 0 */
		map->bytes = "";
		return NIB_STATUS_OK;
	}
	bytes = mmap(NULL, map->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED) {
		map->n_bytes = 0;
		return nib_fail_errno(err, path, "map", errno);
	}
	map->bytes = bytes;
	return NIB_STATUS_OK;
}

enum nib_status nib_file_map(struct nib_mapped_file *map, const char *path,
			     struct nib_error *err)
{
	enum nib_status status;
	int fd;

	*map = (struct nib_mapped_file){0};
	/* O_NONBLOCK: opening a pipe must not wait for its writer. */
	fd = nib_open_file(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return nib_fail_errno(err, path, "open", errno);
	status = map_fd(map, fd, path, err);
	close(fd);
	return status;
}

void nib_file_unmap(struct nib_mapped_file *map)
{
	if (map->n_bytes > 0)
		munmap((void *)(uintptr_t)map->bytes, map->n_bytes);
	*map = (struct nib_mapped_file){0};
}
