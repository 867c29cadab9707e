/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the CUDA backend's table, and the description of its levels. */
#include "cuda.h"

#include <stdio.h>
#include <string.h>

#include "arch.h"

/* Whether GPU i of this machine has the architecture; if not, the reason. */
static bool is_of(const struct cuda_arch *arch, const struct cuda_driver *driver, int i,
		  char *reason, size_t bytes)
{
	struct cuda_device device;
	struct nib_error err;
	enum nib_status status = cuda_describe(driver, i, &device, &err);

	if (!status && device.arch == arch)
		return true;
	if (cuda_arch_forced())
		snprintf(reason, bytes, "NIB_CUDA_ARCH=%.32s selects other kernels",
			 cuda_arch_forced());
	else if (!status || status == NIB_STATUS_UNSUPPORTED)
		snprintf(reason, bytes,
			 "%s, %.48s, has compute capability %d.%d: the kernels "
			 "are for %s",
			 device.name, device.hardware, device.capability / 10,
			 device.capability % 10, arch->hardware);
	else
		snprintf(reason, bytes, "%.127s", err.message);
	return false;
}

/* A level is an architecture.  It is available if a GPU of this machine has it. */
static void level_info(int level, struct nib_backend_info *info)
{
	const struct cuda_arch *arch = cuda_archs[level];
	const struct cuda_driver *driver;
	char other[sizeof(info->reason)] = "";
	const char *reason;

	info->backend = arch->name;
	info->is_open = 0;
	if (!cuda_images[0].words) {
		snprintf(info->reason, sizeof(info->reason),
			 "this build has no GPU kernels: it was made without "
			 "nvcc");
		return;
	}
	if (!cuda_has_images(arch)) {
		snprintf(info->reason, sizeof(info->reason),
			 "this build has no kernels for %s", arch->hardware);
		return;
	}
	driver = cuda_driver(&reason);
	if (!driver) {
		snprintf(info->reason, sizeof(info->reason), "%s", reason);
		return;
	}
	for (int i = 0; i < driver->devices && !info->is_open; i++)
		info->is_open =
		    is_of(arch, driver, i, i ? other : info->reason, sizeof(other));
	if (info->is_open)
		info->reason[0] = '\0';
}

static void device_info(const struct nib_device *base, struct nib_device_info *info)
{
	const struct cuda_device *device = cuda_device(base);
	const char *forced = cuda_arch_forced();

	info->name = device->name;
	info->backend = device->arch->name;
	memcpy(info->hardware, device->hardware, sizeof(info->hardware));
	snprintf(info->features, sizeof(info->features),
		 "compute capability %d.%d, CUDA %d.%d driver%s%.16s",
		 device->capability / 10, device->capability % 10,
		 device->driver->version / 1000, device->driver->version % 1000 / 10,
		 forced ? ", NIB_CUDA_ARCH=" : "", forced ? forced : "");
	info->threads = 1;
	info->multiprocessors = device->multiprocessors;
	info->l2_bytes = device->l2_bytes;
	info->memory_bytes = (int64_t)device->memory_bytes;
	info->driver_version = device->driver->version;
	info->compute_capability = device->capability;
	info->clock_khz = device->clock_khz;
	info->memory_clock_khz = device->memory_clock_khz;
	info->memory_bus_bits = device->memory_bus_bits;
	info->arithmetic = device->arch->arithmetic;
}

const struct nib_backend nib_backend_cuda = {
    .name = "cuda",
    .levels = CUDA_ARCHS,
    .level_info = level_info,
    .open = cuda_open,
    .close = cuda_close,
    .device_info = device_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .wait = cuda_wait,
    .probe = cuda_probe,
    .costs_get = cuda_costs_get,
    .costs_set = cuda_costs_set,
    .pack = cuda_pack,
    .pack_shares = cuda_pack_shares,
    .packed_update = cuda_packed_update,
    .unpack = cuda_unpack,
    .packed_free = cuda_packed_free,
    .plan_new = cuda_plan_new,
    .plan = cuda_plan,
    .plan_free = cuda_plan_free,
    .workspace_new = cuda_alloc,
    .workspace_free = cuda_free,
    .run = cuda_run,
    .quantize = cuda_quantize,
    .amax = cuda_amax,
    .dequantize = cuda_dequantize,
    .convert_scales = cuda_convert_scales,
    .expert_rows = cuda_expert_rows,
    .moe_steps = &cuda_moe_steps,
};
