/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submission.c - turns the library's own objects into
 * libnibblas_submission.so: the CPU backend is closed, so that its code is left
 * out; kernels are given at run time; and the environment is ignored, so that a
 * submission always works with libcuda.so.1.
 * `python -m nibblas.gpumode bundle` packs it into one file with the kernels.
 */
#include "backend/backend.h"
#include "backend/cuda/common/cuda.h"
#include "core/error.h"

#define MOST_IMAGES 32

static struct cuda_image images[MOST_IMAGES + 1];
const struct cuda_image *cuda_images = images;

/*
 * Adds the kernels of one source file, before a device is opened: words and
 * code as in struct cuda_image, which must stay and are not copied.  Returns 0
 * if there is no space for more.
 */
NIB_API int nib_submission_add(const char *words, const void *code);

int nib_submission_add(const char *words, const void *code)
{
	int count = 0;

	while (images[count].words)
		count++;
	if (count == MOST_IMAGES)
		return 0;
	images[count] = (struct cuda_image){words, code};
	return 1;
}

/* The linker gives every call of getenv() and secure_getenv() to these (--wrap). */
char *__wrap_getenv(const char *name);
char *__wrap_secure_getenv(const char *name);

char *__wrap_getenv(const char *name)
{
	(void)name;
	return NULL;
}

char *__wrap_secure_getenv(const char *name)
{
	return __wrap_getenv(name);
}

static enum nib_status refuse(const char *name,
			      const struct nib_device_options *options,
			      struct nib_device **device, struct nib_error *err)
{
	(void)options;
	(void)device;
	return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED, "name",
				 " = '%.32s': only GPUs are in this library", name);
}

/* A device that cannot be opened needs no other function. */
const struct nib_backend nib_backend_cpu = {
    .name = "cpu", .is_host = true, .open = refuse};
