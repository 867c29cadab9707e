/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c - the kernels of this build on a device: the images (image.c) of its
 * architecture are loaded when it is opened, and a function is looked up by
 * name, once a device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "core/error.h"
#include "cuda.h"

struct kernel {
	char name[64];
	CUfunction function;
	int shared_bytes;
};

struct module {
	const struct cuda_image *image;
	CUmodule module;
};

struct cuda_modules {
	struct module *modules;
	int count;
	/* Guards what follows. */
	pthread_mutex_t lock;
	struct kernel *kernels;
	size_t kernel_count, kernel_capacity;
};

bool cuda_has_images(const struct cuda_arch *arch)
{
	int i = 0;

	while (cuda_images[i].words && !cuda_arch_has_image(arch, cuda_images[i].words))
		i++;
	return cuda_images[i].words != NULL;
}

enum nib_status cuda_modules_load(struct cuda_device *device, struct nib_error *err)
{
	struct cuda_modules *all = calloc(1, sizeof(*all));
	enum nib_status status = NIB_STATUS_OK;
	int count = 0;

	while (cuda_images[count].words)
		count++;
	if (all && pthread_mutex_init(&all->lock, NULL) != 0) {
		free(all);
		all = NULL;
	}
	device->modules = all;
	if (all)
		all->modules = calloc((size_t)count + 1, sizeof(*all->modules));
	if (!all || !all->modules)
		status =
		    nib_fail(err, NIB_STATUS_OUT_OF_MEMORY, "no memory for a device");
	for (int i = 0; i < count && !status; i++) {
		const struct cuda_image *image = &cuda_images[i];
		struct module *next;

		if (!cuda_arch_has_image(device->arch, image->words))
			continue;
		next = &all->modules[all->count];
		next->image = image;
		status = cuda_image_load(device, image, &next->module, err);
		all->count += !status;
	}
	if (status)
		cuda_modules_free(device, true);
	return status;
}

void cuda_modules_free(struct cuda_device *device, bool has_context)
{
	struct cuda_modules *all = device->modules;

	if (!all)
		return;
	for (int i = 0; has_context && all->modules && i < all->count; i++)
		(void)device->driver->cuModuleUnload(all->modules[i].module);
	pthread_mutex_destroy(&all->lock);
	free(all->modules);
	free(all->kernels);
	free(all);
	device->modules = NULL;
}

static bool has_kernel(const struct cuda_image *image, const char *name)
{
	const size_t length = strlen(name);
	const char *at = image->words;

	while (*at) {
		const size_t word = strcspn(at, " ");

		if (word == length && memcmp(at, name, length) == 0)
			return true;
		at += word + (at[word] != '\0');
	}
	return false;
}

/* Asks only the module that has the function, since compute-sanitizer reports every
 * driver call that fails. */
static enum nib_status find_function(const struct cuda_device *device, const char *name,
				     CUfunction *function, struct nib_error *err)
{
	const struct cuda_modules *all = device->modules;
	CUresult result;
	int i = 0;

	while (i < all->count && !has_kernel(all->modules[i].image, name))
		i++;
	if (i == all->count)
		return nib_fail(err, NIB_STATUS_DEVICE_FAILED,
				"%s: no such kernel in this library", name);
	result =
	    device->driver->cuModuleGetFunction(function, all->modules[i].module, name);
	return result ? cuda_fail(device->driver, result, name, err) : NIB_STATUS_OK;
}

static struct kernel *find_kernel(struct cuda_modules *all, const char *name)
{
	for (size_t i = 0; i < all->kernel_count; i++)
		if (strcmp(all->kernels[i].name, name) == 0)
			return &all->kernels[i];
	return NULL;
}

/* Space for one more; false if there is no memory. */
static bool grow_kernels(struct cuda_modules *all)
{
	size_t capacity = all->kernel_capacity ? 2 * all->kernel_capacity : 16;
	struct kernel *more;

	if (all->kernel_count < all->kernel_capacity)
		return true;
	more = realloc(all->kernels, capacity * sizeof(*more));
	if (!more)
		return false;
	all->kernels = more;
	all->kernel_capacity = capacity;
	return true;
}

static enum nib_status add_kernel(struct cuda_device *device, const char *name,
				  struct kernel **kernel, struct nib_error *err)
{
	struct cuda_modules *all = device->modules;
	struct kernel k = {.shared_bytes = 0};
	enum nib_status status;

	if (!grow_kernels(all))
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for the kernel %s", name);
	snprintf(k.name, sizeof(k.name), "%s", name);
	status = find_function(device, name, &k.function, err);
	if (status)
		return status;
	*kernel = &all->kernels[all->kernel_count++];
	**kernel = k;
	return NIB_STATUS_OK;
}

/* A CTA has at most 48 KiB of shared memory unless this attribute is set. */
static enum nib_status allow_shared(struct cuda_device *device, struct kernel *kernel,
				    int shared_bytes, struct nib_error *err)
{
	CUresult result;

	if (shared_bytes <= kernel->shared_bytes)
		return NIB_STATUS_OK;
	result = device->driver->cuFuncSetAttribute(
	    kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
	    shared_bytes);
	if (result)
		return cuda_fail(device->driver, result, kernel->name, err);
	kernel->shared_bytes = shared_bytes;
	return NIB_STATUS_OK;
}

enum nib_status cuda_kernel(struct cuda_device *device, const char *name,
			    int shared_bytes, CUfunction *function,
			    struct nib_error *err)
{
	struct cuda_modules *all = device->modules;
	struct kernel *kernel;
	char full[sizeof(kernel->name)];
	enum nib_status status = NIB_STATUS_OK;

	snprintf(full, sizeof(full), "%s_%s", name, device->arch->tag);
	pthread_mutex_lock(&all->lock);
	kernel = find_kernel(all, full);
	if (!kernel)
		status = add_kernel(device, full, &kernel, err);
	if (kernel)
		status = allow_shared(device, kernel, shared_bytes, err);
	if (kernel && !status)
		*function = kernel->function;
	pthread_mutex_unlock(&all->lock);
	return status;
}

static unsigned one_at_least(unsigned x)
{
	return x ? x : 1;
}

enum nib_status cuda_launch(const struct cuda_device *device, CUfunction function,
			    CUlaunchConfig config, void **arguments,
			    struct nib_error *err)
{
	CUresult result;

	config.gridDimY = one_at_least(config.gridDimY);
	config.gridDimZ = one_at_least(config.gridDimZ);
	config.blockDimY = one_at_least(config.blockDimY);
	config.blockDimZ = one_at_least(config.blockDimZ);
	result = device->driver->cuLaunchKernelEx(&config, function, arguments, NULL);
	return result ? cuda_fail(device->driver, result, device->name, err)
		      : NIB_STATUS_OK;
}
