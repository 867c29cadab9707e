/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.c - names unfinished files and folders: see leftovers.h. */
#include "leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

static const char infix[] = LEFTOVERS_INFIX, ending[] = ".tmp";
#define INFIX_BYTES (sizeof(infix) - 1)

/* Whether an entry is the temporary folder of an output named base, of n bytes. */
static int is_folder_of(const char *entry, const char *base, size_t n)
{
	const char *rest = entry + n + INFIX_BYTES;

	return !strncmp(entry, base, n) && !strncmp(entry + n, infix, INFIX_BYTES) &&
	       *rest && rest[strspn(rest, "0123456789abcdef")] == '\0';
}

/* Whether an entry is a temporary file of the library or of nib. */
static int is_file(const char *entry)
{
	const size_t n = strlen(entry);

	return n > INFIX_BYTES + sizeof(ending) - 1 &&
	       !strncmp(entry, infix, INFIX_BYTES) &&
	       !strcmp(entry + n - (sizeof(ending) - 1), ending);
}

/*
 * Whether an entry is not empty and not locked: a run locks a file or folder before
 * it writes to it.
 */
static int is_left(int parent, const char *name)
{
	const int fd =
	    openat(parent, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int left;

	if (fd < 0)
		return 0;
	left = !fstat(fd, &st) && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
	       !flock(fd, LOCK_EX | LOCK_NB);
	if (left && S_ISDIR(st.st_mode)) {
		DIR *folder = fdopendir(dup(fd));
		int entries = 0;

		while (folder && entries <= 2 && readdir(folder))
			entries++;
		left = entries > 2; /* more than . and .. */
		if (folder)
			closedir(folder);
	} else if (left) {
		left = st.st_size > 0;
	}
	close(fd);
	return left;
}

void leftovers_name(const char *out, size_t n)
{
	const char *slash = memrchr(out, '/', n);
	const char *base = slash ? slash + 1 : out;
	const int before = (int)(base - out);
	char *parent = before ? strndup(out, (size_t)before) : strdup(".");
	DIR *folder = parent ? opendir(parent) : NULL;
	const struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		const char *name = entry->d_name;

		if ((is_folder_of(name, base, n - (size_t)before) || is_file(name)) &&
		    is_left(dirfd(folder), name))
			cli_warn("%.*s%s: left by a run that was killed; "
				 "nothing uses it: remove it (rm -r)",
				 before, out, name);
	}
	if (folder)
		closedir(folder);
	free(parent);
}
