/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - devices for the commands: see device.h.  For emu:h200, emu:b200, ...
 * the library opens the driver of the GPU in software as it opens any driver:
 * NIB_CUDA_LIBRARY names the one next to the command or in its prefix, and
 * NIBEMU_DEVICE says which GPU it is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "device.h"
#include "fail.h"
#include "message.h"
#include "parallel.h"
#include "tuning.h"

#define EMU_LIBRARY "libnibemu.so"

/* ---- opening ------------------------------------------------------------- */

int cli_is_emu(const char *device)
{
	return !strncmp(device, "emu:", 4);
}

int cli_check_timed(const char *device)
{
	if (!cli_is_emu(device))
		return CLI_OK;
	return cli_error(CLI_USAGE, "--device %s: a GPU in software cannot be timed",
			 device);
}

/* The path of the software GPU in a build: next to the command. */
static const char *find_emu(char path[4096])
{
	static const char *const folders[] = {"", "../" NIB_EMU_LIBDIR "/", "../lib/"};
	char own[3500];
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

	while (length > 0 && own[length - 1] != '/')
		length--;
	for (int i = 0; i < 3 && length > 0; i++) {
		snprintf(path, 4096, "%.*s%s" EMU_LIBRARY, (int)length, own,
			 folders[i]);
		if (!access(path, R_OK))
			return path;
	}
	return EMU_LIBRARY; /* the loader may find it */
}

/* Makes cuda:0 the GPU in software that name selects. */
static int use_emu(const char *name)
{
	static const char *const gpus[] = {"h200", "h100",    "b200",
					   "a100", "rtx4090", "rtx5090"};
	const size_t count = sizeof(gpus) / sizeof(*gpus);
	char path[4096];
	size_t i = 0;

	while (i < count && strcmp(name + 4, gpus[i]) != 0)
		i++;
	if (i == count)
		return cli_error(CLI_USAGE,
				 "--device %s: the GPUs in software are emu:h200, "
				 "emu:h100, emu:b200, emu:a100, emu:rtx4090 and "
				 "emu:rtx5090",
				 name);
	if (setenv("NIBEMU_DEVICE", name + 4, 1) ||
	    setenv("NIB_CUDA_LIBRARY", find_emu(path), 1))
		return cli_no_memory("environment");
	return CLI_OK;
}

int cli_open_device(const struct device_args *args, struct nib_device **device)
{
	const struct nib_device_options options = {
	    .struct_bytes = sizeof(options),
	    .threads = (int)args->threads,
	    .isa = args->isa,
	};
	static const struct cli_name names[] = {
	    {"name", "--device", NULL},
	    {"options.isa", "--isa", NULL},
	    {"options.threads", "--threads", NULL},
	    {0},
	};
	const char *name = args->device ? args->device : "cpu";
	struct nib_error err;
	int code = cli_is_emu(name) ? use_emu(name) : CLI_OK;

	if (code)
		return code;
	if (nib_device_open(cli_is_emu(name) ? "cuda:0" : name, &options, device, &err))
		return cli_fail_named(NULL, &err, names);
	tuning_load(*device, NULL);
	/* The loops of nib itself keep to --threads too. */
	cli_set_loop_threads(cli_is_host(*device) ? cli_threads(*device)
						  : (int)args->threads);
	return CLI_OK;
}

/* ---- what a device is ---------------------------------------------------- */

static struct nib_device_info device_info(const struct nib_device *device)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	/* Cannot fail for an open device; zeroes would be printed. */
	nib_device_get_info(device, &info, NULL);
	return info;
}

const char *cli_backend(const struct nib_device *device)
{
	return device_info(device).backend;
}

int cli_threads(const struct nib_device *device)
{
	return device_info(device).threads;
}

enum nib_arithmetic cli_arithmetic(const struct nib_device *device)
{
	return device_info(device).arithmetic;
}

const char *cli_arithmetic_name(enum nib_arithmetic arithmetic)
{
	switch (arithmetic) {
	case NIB_ARITHMETIC_BLOCKS:
		return "blocks";
	case NIB_ARITHMETIC_FP16_TENSOR:
		return "fp16-tensor";
	case NIB_ARITHMETIC_FP4_TENSOR:
		return "fp4-tensor";
	}
	return "unknown";
}

int cli_is_host(const struct nib_device *device)
{
	return strcmp(device_info(device).name, "cpu") == 0;
}

const char *cli_machine(const struct nib_device *device)
{
	static char text[256];
	struct nib_device_info info = device_info(device);
	struct utsname os;
	char driver[48] = "";

	if (info.driver_version)
		snprintf(driver, sizeof(driver), ", CUDA %d.%d driver",
			 info.driver_version / 1000, info.driver_version % 1000 / 10);
	if (uname(&os))
		snprintf(text, sizeof(text), "%s%s", info.hardware, driver);
	else
		snprintf(text, sizeof(text), "%s%s, %.32s %.64s", info.hardware, driver,
			 os.sysname, os.release);
	return text;
}
