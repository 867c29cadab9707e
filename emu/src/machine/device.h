/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the GPUs that are emulated, and the PTX that each accepts. */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include "hardware/emu.h"

/* Limits that all devices share, as the driver's attributes give them. */
#define EMU_MAX_THREADS	 1024
#define EMU_SM_REGISTERS 65536
#define EMU_MAX_BLOCK_Z	 64
#define EMU_MAX_GRID_X	 2147483647u
#define EMU_MAX_GRID_YZ	 65535u

/* For messages. */
#define EMU_DEVICE_NAMES "h200, h100, b200, a100, rtx4090 or rtx5090"

struct emu_device {
	const char *name;  /* for NIBEMU_DEVICE: "h200" */
	const char *title; /* for cuDeviceGetName */
	int major, minor;  /* compute capability */
	uint32_t sms;
	uint64_t memory_bytes;
	int clock_khz, memory_clock_khz, bus_bits, l2_bytes;
	/* Bytes of shared memory of an SM and, opted in, of a CTA; threads and CTAs
	 * of an SM; CTAs of a cluster. */
	uint32_t sm_shared_bytes, cta_shared_bytes, sm_threads, sm_ctas, cluster_ctas;
};

/* NULL: no device has that name. */
const struct emu_device *emu_device_find(const char *name);
/* Device number i; NULL after the last. */
const struct emu_device *emu_device_at(size_t i);
/* The default device: an H200. */
const struct emu_device *emu_device_default(void);
/* d, or the default for NULL. */
const struct emu_device *emu_device_or_default(const struct emu_device *d);

/* True if it has clusters' instructions, tensor maps and dependent launches: 9.0. */
static inline bool emu_device_has_hopper(const struct emu_device *device)
{
	return device->major >= 9;
}

/*
 * True if the device loads a module of this .target: sm_90 on 9.0 and later;
 * sm_90a only on 9.0; sm_100f on 10.0 and later of the same family.
 */
bool emu_device_takes(const struct emu_device *device, const char *target,
		      struct emu_error *err);

#endif
