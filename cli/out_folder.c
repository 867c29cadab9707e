/* SPDX-License-Identifier: Apache-2.0 */
/* out_folder.c - a model's folder that appears whole or not at all. */
#include "out_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "leftovers.h"
#include "out_file.h"

#define COPY_BYTES 65536

static int fail(const char *path)
{
	return cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
}

/* ---- names --------------------------------------------------------------- */

char *out_folder_path(const char *folder, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", folder, name) < 0) {
		cli_no_memory("names of files");
		return NULL;
	}
	return path;
}

/* The entries of a folder but "." and "..": 1, 0 after the last, -1: errno. */
static int next_entry(DIR *folder, const struct dirent **entry)
{
	do {
		errno = 0;
		*entry = readdir(folder);
		if (!*entry)
			return errno ? -1 : 0;
	} while (!strcmp((*entry)->d_name, ".") || !strcmp((*entry)->d_name, ".."));
	return 1;
}

/* ---- where the folder may be --------------------------------------------- */

/* Refuses an OUT that exists and is not an empty folder. */
static int check_is_free(const char *path)
{
	const struct dirent *entry;
	DIR *folder = opendir(path);
	int found;

	if (!folder && errno == ENOENT)
		return CLI_OK;
	if (!folder && errno == ENOTDIR)
		return cli_error(CLI_USAGE,
				 "%s: a file; the input is a folder, so the "
				 "output must be one too",
				 path);
	if (!folder)
		return fail(path);
	found = next_entry(folder, &entry);
	closedir(folder);
	if (found < 0)
		return fail(path);
	return found ? cli_error(CLI_USAGE,
				 "%s: a folder that is not empty; nib does "
				 "not overwrite it",
				 path)
		     : CLI_OK;
}

/* The length of path without the slashes at its end. */
static size_t length_of(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

/* Whether a folder next to path can be renamed to it. */
static int check_is_replaceable(const char *path)
{
	struct stat own, around;
	int n = (int)length_of(path), code = CLI_OK;
	char *name, *up;

	if (asprintf(&name, "%.*s", n, path) < 0)
		return cli_no_memory("names of files");
	if (asprintf(&up, "%s/..", name) < 0) {
		free(name);
		return cli_no_memory("names of files");
	}
	if (lstat(name, &own))
		code = errno == ENOENT ? CLI_OK : fail(path);
	else if (S_ISLNK(own.st_mode))
		code = cli_error(CLI_USAGE,
				 "%s: a link, which nib does not replace: "
				 "name the folder that it points to",
				 path);
	else if (S_ISDIR(own.st_mode) && stat(up, &around) == 0 &&
		 around.st_dev != own.st_dev)
		code = cli_error(CLI_USAGE,
				 "%s: a file system is mounted there, so nib "
				 "cannot replace it: name a folder inside it",
				 path);
	free(name);
	free(up);
	return code;
}

int out_folder_check(const char *path)
{
	const size_t n = length_of(path);
	const char *last = memrchr(path, '/', n);
	const size_t begin = last ? (size_t)(last - path) + 1 : 0;
	int code;

	if (!*path)
		return cli_error(CLI_USAGE, "the output folder has no name");
	if ((n - begin == 1 && path[begin] == '.') ||
	    (n - begin == 2 && !strncmp(path + begin, "..", 2)))
		return cli_error(CLI_USAGE,
				 "%s: nib replaces the folder: name it, "
				 "not . or ..",
				 path);
	code = check_is_replaceable(path);
	return code ? code : check_is_free(path);
}

/* ---- the folder that is made --------------------------------------------- */

#define MAX_TRIES 100

int out_folder_begin(struct out_folder *out, const char *path)
{
	const int n = (int)length_of(path);
	char *work = NULL;
	int made = -1;

	leftovers_name(path, length_of(path));
	for (int i = 0; i < MAX_TRIES && made; i++) {
		free(work);
		if (asprintf(&work, "%.*s" LEFTOVERS_INFIX "%08x", n, path,
			     out_file_number()) < 0)
			return cli_no_memory("names of files");
		made = mkdir(work, 0777);
		if (made && errno != EEXIST)
			break;
	}
	if (made) {
		const int code = fail(work);

		free(work);
		return code;
	}
	out->path = path;
	out->work = work;
	/* Where locks are not supported, the folder is never called a leftover. */
	out->lock = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (out->lock >= 0)
		(void)flock(out->lock, LOCK_EX | LOCK_NB);
	return CLI_OK;
}

static void forget(struct out_folder *out)
{
	if (out->lock >= 0)
		close(out->lock);
	free(out->work);
	out->work = NULL;
}

int out_folder_commit(struct out_folder *out)
{
	if (rename(out->work, out->path))
		return fail(out->path);
	forget(out);
	return CLI_OK;
}

void out_folder_discard(struct out_folder *out)
{
	const struct dirent *entry;
	DIR *folder;

	if (!out->work)
		return;
	folder = opendir(out->work);
	while (folder && next_entry(folder, &entry) > 0)
		unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		closedir(folder);
	rmdir(out->work);
	forget(out);
}

/* ---- the files next to the tensors ---------------------------------------- */

/* Files of weights, in any format, those that are written anew, and the certificate of
 * the old weights. */
static int is_left_out(const char *name)
{
	static const char *const ends[] = {
	    ".safetensors", ".index.json", ".bin",     ".pt",	".pth", ".ckpt",
	    ".gguf",	    ".h5",	   ".msgpack", ".onnx", ".npz"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (strlen(name) >= strlen(ends[i]) &&
		    !strcmp(name + strlen(name) - strlen(ends[i]), ends[i]))
			return 1;
	return name[0] == '.' || !strcmp(name, "config.json") ||
	       !strcmp(name, "hf_quant_config.json") || !strcmp(name, CERTIFICATE_FILE);
}

/* 0, or an errno. */
static int write_all(int to, const char *bytes, ssize_t n)
{
	while (n > 0) {
		ssize_t done = write(to, bytes, (size_t)n);

		if (done < 0 && errno != EINTR)
			return errno;
		if (done > 0) {
			bytes += done;
			n -= done;
		}
	}
	return 0;
}

static int fail_input(const char *path)
{
	return cli_error(CLI_INPUT, "%s: %s", path, strerror(errno));
}

/* Copies what is left to read of from; CLI_OK, or an exit code after a message
 * that names the file that failed. */
static int copy_bytes(int from, const char *from_path, int to, const char *to_path)
{
	char bytes[COPY_BYTES];
	ssize_t n;

	do {
		n = read(from, bytes, sizeof(bytes));
		if (n < 0 && errno != EINTR)
			return fail_input(from_path);
		errno = write_all(to, bytes, n);
		if (errno)
			return fail(to_path);
	} while (n);
	return CLI_OK;
}

static int copy_file(const char *from_path, const char *to_path)
{
	int from = open(from_path, O_RDONLY | O_CLOEXEC), to;
	int code;

	if (from < 0)
		return fail_input(from_path);
	to = open(to_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	code = to < 0 ? fail(to_path) : copy_bytes(from, from_path, to, to_path);
	close(from);
	if (to >= 0 && close(to) && !code)
		code = fail(to_path);
	return code;
}

/*
 * Goes over the files to copy of folder.  Folders, which hold other forms of
 * the model, are left out; a link to nothing is an error, as is a file that may
 * not be read.  out NULL: nothing is copied.
 */
static int each_file(const struct out_folder *out, const char *folder, const char *name)
{
	char *from, *to = NULL;
	struct stat st;
	int code = CLI_OK;

	if (is_left_out(name))
		return CLI_OK;
	from = out_folder_path(folder, name);
	if (from && out)
		to = out_folder_path(out->work, name);
	if (!from || (out && !to))
		code = CLI_FAILED;
	else if (stat(from, &st) || (S_ISREG(st.st_mode) && access(from, R_OK)))
		code = fail_input(from);
	else if (out && S_ISREG(st.st_mode))
		code = copy_file(from, to);
	free(from);
	free(to);
	return code;
}

static int each_entry(const struct out_folder *out, const char *folder)
{
	const struct dirent *entry;
	DIR *list = opendir(folder);
	int code = CLI_OK, more;

	if (!list)
		return fail_input(folder);
	while (!code && (more = next_entry(list, &entry)) != 0)
		code = more < 0 ? fail_input(folder)
				: each_file(out, folder, entry->d_name);
	closedir(list);
	return code;
}

int out_folder_check_rest(const char *folder)
{
	return each_entry(NULL, folder);
}

int out_folder_copy_rest(const struct out_folder *out, const char *folder)
{
	return each_entry(out, folder);
}
