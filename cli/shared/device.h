/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - the one way to open a device, what the commands ask it, and host
 * buffers where it computes.
 */
#ifndef NIB_DEVICE_H
#define NIB_DEVICE_H

#include "nibblas.h"

struct device_args {
	const char *device; /* --device; NULL = "cpu" */
	int64_t threads;    /* --threads */
	const char *isa;    /* --isa */
};

/*
 * Opens the device, with the costs of its file (tuning.h); prints and returns
 * the exit code on failure.  emu:h200, emu:a100 and others are cuda:0 of the GPU in
 * software.
 */
int cli_open_device(const struct device_args *args, struct nib_device **device);
/* Whether the name is that of a GPU in software. */
int cli_is_emu(const char *device);
/* CLI_USAGE after a message for emu:..., whose times are not measured. */
int cli_check_timed(const char *device);
/* "cpu-avx512vnni"; lives as long as the device. */
const char *cli_backend(const struct nib_device *device);
/* The threads of the host in one call: 1 for a GPU. */
int cli_threads(const struct nib_device *device);
enum nib_arithmetic cli_arithmetic(const struct nib_device *device);
/* As JSON spells it: "blocks", "fp16-tensor", "fp4-tensor". */
const char *cli_arithmetic_name(enum nib_arithmetic arithmetic);
/* Whether the device computes in the host's memory. */
int cli_is_host(const struct nib_device *device);
/* The device's hardware, its driver if it has one, and the operating system:
 * "AMD EPYC, Linux 6.1". */
const char *cli_machine(const struct nib_device *device);

/* A host buffer and where the device has it: on "cpu" the same memory. */
struct staging {
	struct nib_device *device;
	void *host;
	void *data; /* for the device's calls; host on "cpu" */
};

/* data's contents are undefined on a GPU until staging_load(). */
enum nib_status staging_new(struct nib_device *device, const void *host, size_t bytes,
			    struct staging *staging, struct nib_error *err);
void staging_free(struct staging *staging); /* zeroed is fine */
/* The first bytes of the host buffer to the device; and back, when done. */
enum nib_status staging_load(const struct staging *staging, size_t bytes,
			     struct nib_error *err);
enum nib_status staging_fetch(const struct staging *staging, size_t bytes,
			      struct nib_error *err);
/* New and load, all of it. */
enum nib_status staging_new_loaded(struct nib_device *device, const void *host,
				   size_t bytes, struct staging *staging,
				   struct nib_error *err);

#endif
