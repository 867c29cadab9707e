/* SPDX-License-Identifier: Apache-2.0 */
/*
 * submission.c - what makes libnibblas_submission.so of the library's own
 * objects: a CPU backend that is closed, so that it is not in
 * there, and kernels that are given at run time.  `python -m nibblas.gpumode
 * bundle` packs it into one file with the kernels of libnibblas.so.
 */
#include "core/error.h"
#include "backend/backend.h"
#include "backend/cuda/cuda.h"

#define MOST_IMAGES 16

static struct cuda_image images[MOST_IMAGES + 1];
const struct cuda_image *cuda_images = images;

/*
 * Adds the kernels of one source file, before a device is opened: their names
 * with spaces between, and the code.  All three must stay, and are not copied.
 * Returns 0 if there is no backend for more.
 */
NIB_API int nib_submission_add(const char *kernels, const void *cubin,
			       const void *ptx);

int nib_submission_add(const char *kernels, const void *cubin, const void *ptx)
{
	int count = 0;

	while (images[count].name)
		count++;
	if (count == MOST_IMAGES)
		return 0;
	images[count] = (struct cuda_image){kernels, cubin, ptx, kernels};
	return 1;
}

static enum nib_status refuse(const char *name,
			      const struct nib_device_options *options,
			      struct nib_device **device, struct nib_error *err)
{
	(void)options;
	(void)device;
	return nib_fail_argument(err, NIB_UNSUPPORTED, "name", " = '%.32s': only GPUs are in this library", name);
}

/* A device that cannot be opened needs no other function. */
const struct nib_backend nib_backend_cpu = {
    .name = "cpu", .is_host = true, .open = refuse};
