/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - see device.h. */
#include "machine/device.h"

#include <stdlib.h>
#include <string.h>

#define MIB(n) ((uint64_t)(n) << 20)

/*
 * The values that the GPUs' drivers report.  The H100 is the SXM module of 80 GB.  The
 * B200 has 148 SMs, 132,644,864 bytes of L2, and 8 TB/s as 8192 bits at twice 3.996
 * GHz.  The RTX 5090 represents compute capability 12.0: 99 KB of shared memory in a
 * CTA, and no clusters, because its kernels use none.
 *
 * The A100 is the SXM module of 80 GB, compute capability 8.0, and the RTX 4090
 * represents 8.9.  No value of the two was read from a GPU here:
 *
 *   SMs, clocks, memory, bus, L2   NVIDIA's A100 datasheet (1.41 GHz; 2,039 GB/s as
 *                                  5120 bits at twice 1.593 GHz; 40 MB) and Ada
 *                                  whitepaper (2.52 GHz; 1,008 GB/s as 384 bits at
 *                                  twice 10.501 GHz; 72 MB)
 *   shared memory, threads and     CUDA C++ Programming Guide, "Compute Capabilities",
 *   CTAs of an SM                  and the tuning guides for Ampere and Ada: 164 and
 *                                  163 KB, 2048, 32 of 8.0; 100 and 99 KB, 1536, 24 of
 *                                  8.9
 *
 * deviceQuery of an A100 of 40 GB, on pages of the Paderborn Center for Parallel
 * Computing, reports the same SMs, clock, bus and 41,943,040 bytes of L2; its memory
 * runs at 1.215 GHz.
 */
static const struct emu_device devices[] = {
    {"h200", "H200 in software", 9, 0, 132, MIB(143771), 1980000, 3201000, 6144,
     60 << 20, 228 << 10, EMU_SHARED_MAX, 2048, 32, EMU_CLUSTER_MAX},
    {"h100", "H100 in software", 9, 0, 132, MIB(81559), 1980000, 2619000, 5120,
     50 << 20, 228 << 10, EMU_SHARED_MAX, 2048, 32, EMU_CLUSTER_MAX},
    {"b200", "B200 in software", 10, 0, 148, MIB(183359), 1965000, 3996000, 8192,
     132644864, 228 << 10, EMU_SHARED_MAX, 2048, 32, EMU_CLUSTER_MAX},
    {"a100", "A100 in software", 8, 0, 108, MIB(81920), 1410000, 1593000, 5120,
     40 << 20, 164 << 10, 163 << 10, 2048, 32, 1},
    {"rtx4090", "RTX 4090 in software", 8, 9, 128, MIB(24564), 2520000, 10501000, 384,
     72 << 20, 100 << 10, 99 << 10, 1536, 24, 1},
    {"rtx5090", "RTX 5090 in software", 12, 0, 170, MIB(32607), 2407000, 14001000, 512,
     96 << 20, 100 << 10, 99 << 10, 1536, 32, 1},
};

const struct emu_device *emu_device_find(const char *name)
{
	for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++)
		if (strcmp(devices[i].name, name) == 0)
			return &devices[i];
	return NULL;
}

const struct emu_device *emu_device_at(size_t i)
{
	return i < sizeof(devices) / sizeof(*devices) ? &devices[i] : NULL;
}

const struct emu_device *emu_device_default(void)
{
	return &devices[0];
}

const struct emu_device *emu_device_or_default(const struct emu_device *d)
{
	return d ? d : emu_device_default();
}

static bool has_target(const struct emu_device *d, const char *target)
{
	const int has = 10 * d->major + d->minor;
	char *end = NULL;
	const long wants = strtol(target + 3, &end, 10);

	/* There are no such targets before sm_90a. */
	if (strcmp(end, "a") == 0)
		return wants == has && wants >= 90;
	if (strcmp(end, "f") == 0)
		return wants >= 100 && wants / 10 == d->major && wants <= has;
	return *end == '\0' && wants >= 50 && wants <= has;
}

/* The oldest device that has a target; NULL: none. */
static const struct emu_device *oldest_with(const char *target)
{
	const struct emu_device *best = NULL, *d;

	for (size_t i = 0; (d = emu_device_at(i)); i++)
		if (has_target(d, target) &&
		    (!best ||
		     10 * d->major + d->minor < 10 * best->major + best->minor))
			best = d;
	return best;
}

bool emu_device_takes(const struct emu_device *d, const char *target,
		      struct emu_error *err)
{
	const struct emu_device *other;

	if (strncmp(target, "sm_", 3) != 0)
		return emu_fail(err, ".target %s is not known here", target);
	if (has_target(d, target))
		return true;
	other = oldest_with(target);
	return emu_fail(err,
			".target %s needs another device than the %s (compute "
			"capability %d.%d): %s%s",
			target, d->title, d->major, d->minor,
			other ? "nibemu run --device " : "none that is emulated has it",
			other ? other->name : "");
}
