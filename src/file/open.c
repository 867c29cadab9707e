/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opens files with descriptors other than those of the standard streams. */
#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int nib_open_file(int folder, const char *name, int flags, unsigned mode)
{
	int fd, above, code;

	do
		fd = openat(folder, name, flags | O_CLOEXEC, (mode_t)mode);
	while (fd < 0 && errno == EINTR);
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	code = errno;
	close(fd);
	/* The caller gets no descriptor, so it would not remove the new file. */
	if (above < 0 && flags & O_EXCL)
		unlinkat(folder, name, 0);
	errno = code;
	return above;
}
