/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - GPUs opened by name: their properties, the retained primary
 * context, and how a group of calls makes it current.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "core/error.h"
#include "cuda.h"

static enum nib_status read_properties(struct cuda_device *d, CUresult *result)
{
	const struct {
		int attribute;
		int *value;
	} wanted[] = {
	    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &d->multiprocessors},
	    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &d->shared_bytes},
	    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &d->l2_bytes},
	    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &d->clock_khz},
	    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &d->memory_clock_khz},
	    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &d->memory_bus_bits},
	};
	const struct cuda_driver *cu = d->driver;
	int major = 0, minor = 0;

	if ((*result = cu->cuDeviceGet(&d->device, d->ordinal)) ||
	    (*result = cu->cuDeviceGetName(d->hardware, (int)sizeof(d->hardware),
					   d->device)) ||
	    (*result = cu->cuDeviceTotalMem_v2(&d->memory_bytes, d->device)) ||
	    (*result = cu->cuDeviceGetAttribute(
		 &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->device)) ||
	    (*result = cu->cuDeviceGetAttribute(
		 &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->device)))
		return NIB_STATUS_DEVICE_FAILED;
	d->capability = major * 10 + minor;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		*result = cu->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute,
						   d->device);
		if (*result)
			return NIB_STATUS_DEVICE_FAILED;
	}
	return NIB_STATUS_OK;
}

/* Lists all hardware that this build has kernels for. */
static void list_hardware(char *text, size_t bytes)
{
	size_t used = 0;

	*text = '\0';
	for (int i = 0; i < CUDA_ARCHS && used < bytes; i++)
		if (cuda_has_images(cuda_archs[i]))
			used += (size_t)snprintf(text + used, bytes - used, "%s%s",
						 used ? " and " : "",
						 cuda_archs[i]->hardware);
}

/* The architecture whose kernels the GPU uses, NULL without one. */
static enum nib_status take_arch(struct cuda_device *device, struct nib_error *err)
{
	const char *tag = cuda_arch_forced();
	const struct cuda_arch *arch = tag ? cuda_arch_named(tag) : NULL;

	if (!tag) {
		device->arch = cuda_arch_of(device->capability);
		return NIB_STATUS_OK;
	}
	if (!arch || !cuda_has_images(arch))
		return nib_fail(err, NIB_STATUS_UNSUPPORTED,
				"NIB_CUDA_ARCH=%.32s: this build has no kernels of "
				"that name",
				tag);
	if (!cuda_arch_runs_on(arch, device->capability))
		return nib_fail(
		    err, NIB_STATUS_UNSUPPORTED,
		    "NIB_CUDA_ARCH=%.32s: these kernels are for %s; %s, %s, "
		    "has compute capability %d.%d",
		    tag, arch->hardware, device->name, device->hardware,
		    device->capability / 10, device->capability % 10);
	device->arch = arch;
	return NIB_STATUS_OK;
}

enum nib_status cuda_describe(const struct cuda_driver *driver, int ordinal,
			      struct cuda_device *device, struct nib_error *err)
{
	char hardware[128];
	enum nib_status status;
	CUresult result;

	memset(device, 0, sizeof(*device));
	device->driver = driver;
	device->ordinal = ordinal;
	snprintf(device->name, sizeof(device->name), "cuda:%d", ordinal);
	if (read_properties(device, &result))
		return cuda_fail(driver, result, device->name, err);
	status = take_arch(device, err);
	if (status)
		return status;
	if (device->arch && cuda_has_images(device->arch))
		return NIB_STATUS_OK;
	list_hardware(hardware, sizeof(hardware));
	return nib_fail(err, NIB_STATUS_UNSUPPORTED,
			"%s, %s, has compute capability %d.%d: the kernels are "
			"for %s",
			device->name, device->hardware, device->capability / 10,
			device->capability % 10, hardware);
}

/* "cuda" or "cuda:N". */
static enum nib_status take_ordinal(const char *name, int *ordinal,
				    struct nib_error *err)
{
	const char *digits = name + strlen("cuda");
	char *end;
	unsigned long value;

	*ordinal = 0;
	if (!*digits)
		return NIB_STATUS_OK;
	digits++;
	value = strtoul(digits, &end, 10);
	if (*digits < '0' || *digits > '9' || *end || value > 9999)
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, "name",
					 " = '%.32s': a GPU is 'cuda' or 'cuda:N' "
					 "with N = 0 to 9999",
					 name);
	*ordinal = (int)value;
	return NIB_STATUS_OK;
}

/* Retains the device's context and loads the kernels. */
static enum nib_status start(struct cuda_device *device, struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	enum nib_status status;
	CUresult result;

	result = cu->cuDevicePrimaryCtxRetain(&device->context, device->device);
	if (result)
		return cuda_fail(cu, result, device->name, err);
	status = cuda_enter(device, err);
	if (!status) {
		status = cuda_modules_load(device, err);
		cuda_leave(device);
	}
	if (status)
		(void)cu->cuDevicePrimaryCtxRelease_v2(device->device);
	return status;
}

enum nib_status cuda_open(const char *name, const struct nib_device_options *options,
			  struct nib_device **out, struct nib_error *err)
{
	const struct cuda_driver *driver;
	struct cuda_device *device;
	const char *reason;
	int ordinal;
	enum nib_status status;

	(void)options;
	status = take_ordinal(name, &ordinal, err);
	if (status)
		return status;
	if (!cuda_images[0].words)
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, "name",
					 " = '%.32s': this build has no GPU "
					 "kernels: it was made without nvcc",
					 name);
	driver = cuda_driver(&reason);
	if (!driver)
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, "name",
					 " = '%.32s': %s", name, reason);
	if (ordinal >= driver->devices)
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, "name",
					 " = '%.32s': this machine has %d GPU%s", name,
					 driver->devices,
					 driver->devices == 1 ? "" : "s");
	device = malloc(sizeof(*device));
	if (!device)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for a device");
	status = cuda_describe(driver, ordinal, device, err);
	if (!status) {
		device->base.backend = &nib_backend_cuda;
		device->costs = *device->arch->costs;
		status = start(device, err);
	}
	if (status)
		free(device);
	else
		*out = &device->base;
	return status;
}

void cuda_close(struct nib_device *base)
{
	struct cuda_device *device = cuda_device(base);
	/* If the context cannot be entered it is lost, and its modules are lost as
	 * well.  Their handles must not be used. */
	const bool has_context = cuda_enter(device, NULL) == NIB_STATUS_OK;

	cuda_modules_free(device, has_context);
	if (has_context)
		cuda_leave(device);
	(void)device->driver->cuDevicePrimaryCtxRelease_v2(device->device);
	free(device);
}

enum nib_status cuda_enter(const struct cuda_device *device, struct nib_error *err)
{
	CUresult result = device->driver->cuCtxPushCurrent_v2(device->context);

	if (result)
		return cuda_fail(device->driver, result, device->name, err);
	return NIB_STATUS_OK;
}

void cuda_leave(const struct cuda_device *device)
{
	CUcontext popped;

	(void)device->driver->cuCtxPopCurrent_v2(&popped);
}
