/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c - loads the kernels of one source file as a module.  NVIDIA's drivers load
 * the embedded machine code.  The software GPU's driver accepts only PTX: that of the
 * same build, from the file nibblas/NAME.ptx in the folder of the driver's library.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "cuda.h"

#define PATH_BYTES 512

static bool is_refusal(CUresult result)
{
	return result == CUDA_ERROR_INVALID_IMAGE ||
	       result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
	       result == CUDA_ERROR_INVALID_SOURCE;
}

/* Puts the messages of the driver's compiler on one line. */
static void make_line(char *text)
{
	size_t length = strlen(text);

	while (length && (text[length - 1] == '\n' || text[length - 1] == ' '))
		text[--length] = '\0';
	for (size_t i = 0; i < length; i++)
		if (text[i] == '\n' || text[i] == '\t')
			text[i] = ' ';
}

/* Bytes of the first word. */
static int name_bytes(const struct cuda_image *image)
{
	return (int)strcspn(image->words, " ");
}

/* Bytes of the first two words, which the PTX repeats in its first line. */
static size_t id_bytes(const struct cuda_image *image)
{
	const size_t name = (size_t)name_bytes(image);

	return name + strspn(image->words + name, " ") +
	       strcspn(image->words + name + 1, " ");
}

/* The path of the PTX.  False if the path of the driver's library is unknown. */
static bool find_ptx(const struct cuda_driver *cu, const struct cuda_image *image,
		     char *path, size_t bytes)
{
	const char *slash;
	Dl_info info;
	void *function;
	int n;

	memcpy(&function, &cu->cuModuleLoadDataEx, sizeof(function));
	if (!dladdr(function, &info) || !info.dli_fname)
		return false;
	slash = strrchr(info.dli_fname, '/');
	n = snprintf(path, bytes, "%.*snibblas/%.*s.ptx",
		     slash ? (int)(slash + 1 - info.dli_fname) : 0, info.dli_fname,
		     name_bytes(image), image->words);
	return n > 0 && (size_t)n < bytes;
}

/* The file's text, terminated by a NUL and allocated with malloc().  NULL if it cannot
 * be read; errno is set. */
static char *read_text(const char *path)
{
	FILE *file = fopen(path, "re");
	struct stat facts;
	char *text = NULL;

	if (!file)
		return NULL;
	if (fstat(fileno(file), &facts) == 0)
		text = calloc((size_t)facts.st_size + 1, 1);
	if (text &&
	    fread(text, 1, (size_t)facts.st_size, file) != (size_t)facts.st_size) {
		errno = EIO;
		free(text);
		text = NULL;
	}
	fclose(file);
	return text;
}

/* Whether the text's first line has the words of the image. */
static bool is_of_build(const struct cuda_image *image, const char *text)
{
	static const char begin[] = "// nibblas ";
	const size_t bytes = id_bytes(image);

	return strncmp(text, begin, sizeof(begin) - 1) == 0 &&
	       strncmp(text + sizeof(begin) - 1, image->words, bytes) == 0 &&
	       text[sizeof(begin) - 1 + bytes] == '\n';
}

static enum nib_status load_ptx(const struct cuda_device *device,
				const struct cuda_image *image, const char *text,
				CUmodule *module, struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	char log[96] = "", what[192];
	int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
	CUresult result = cu->cuModuleLoadDataEx(module, text, 2, options, values);

	if (!result)
		return NIB_STATUS_OK;
	log[sizeof(log) - 1] = '\0';
	make_line(log);
	snprintf(what, sizeof(what),
		 "%s: the driver (CUDA %d.%d) takes neither machine code nor PTX of "
		 "%.*s%s%s",
		 device->name, cu->version / 1000, cu->version % 1000 / 10,
		 name_bytes(image), image->words, *log ? ": " : "", log);
	return cuda_fail(cu, result, what, err);
}

/* Loads the PTX, for a driver that accepts no machine code, or not that of this
 * build. */
static enum nib_status load_beside(const struct cuda_device *device,
				   const struct cuda_image *image, CUresult refusal,
				   CUmodule *module, struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	char path[PATH_BYTES], what[192];
	char *text = NULL;
	enum nib_status status;

	errno = 0;
	if (find_ptx(cu, image, path, sizeof(path)))
		text = read_text(path);
	if (!text && errno == ENOMEM)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for the kernels of %.*s", name_bytes(image),
				image->words);
	if (!text) {
		snprintf(what, sizeof(what),
			 "%s: the driver (CUDA %d.%d) does not take the "
			 "kernels of %.*s; one of the CUDA that compiled "
			 "them, or later, does",
			 device->name, cu->version / 1000, cu->version % 1000 / 10,
			 name_bytes(image), image->words);
		return cuda_fail(cu, refusal, what, err);
	}
	if (is_of_build(image, text))
		status = load_ptx(device, image, text, module, err);
	else
		status = nib_fail(err, NIB_STATUS_UNSUPPORTED,
				  "%.160s: is of another build than this "
				  "library",
				  path);
	free(text);
	return status;
}

enum nib_status cuda_image_load(const struct cuda_device *device,
				const struct cuda_image *image, CUmodule *module,
				struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	char what[192];
	CUresult result = cu->cuModuleLoadDataEx(module, image->code, 0, NULL, NULL);

	if (is_refusal(result))
		return load_beside(device, image, result, module, err);
	snprintf(what, sizeof(what), "%s: loading the kernels of %.*s", device->name,
		 name_bytes(image), image->words);
	return result ? cuda_fail(cu, result, what, err) : NIB_STATUS_OK;
}
