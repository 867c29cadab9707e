/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_device.c - the devices emu:h200 and emu:b200: the library opens their
 * driver as it opens any, by NIB_CUDA_LIBRARY, which is set to the software GPU
 * beside the command or among the libraries of its prefix; NIBEMU_DEVICE says
 * which of them it is.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define LIBRARY "libnibemu.so"

/* In the build the library lies beside the command. */
#ifndef NIB_EMU_LIBDIR
#define NIB_EMU_LIBDIR "lib"
#endif

/* The command's folder; false where /proc does not say. */
static bool find_folder(char *folder, size_t bytes)
{
	const ssize_t length = readlink("/proc/self/exe", folder, bytes - 1);
	char *slash;

	if (length <= 0)
		return false;
	folder[length] = '\0';
	slash = strrchr(folder, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return true;
}

int cli_check_timed(const char *device)
{
	if (strncmp(device, "emu:", 4) != 0)
		return CLI_OK;
	return cli_error(CLI_USAGE,
			 "--device %s: a GPU in software cannot be timed",
			 device);
}

int cli_emu_device(const char *name, const char **device)
{
	static const char *const places[] = {"", "../" NIB_EMU_LIBDIR "/",
					     "../lib/"};
	char folder[3500], path[4096];

	*device = name;
	if (strncmp(name, "emu:", 4) != 0)
		return CLI_OK;
	if (strcmp(name, "emu:h200") != 0 && strcmp(name, "emu:b200") != 0)
		return cli_error(CLI_USAGE,
				 "--device %s: the GPUs in software are "
				 "emu:h200 and emu:b200",
				 name);
	*device = "cuda:0";
	snprintf(path, sizeof(path), LIBRARY);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		char there[4096];

		if (!find_folder(folder, sizeof(folder)))
			break;
		snprintf(there, sizeof(there), "%s/%s" LIBRARY, folder,
			 places[i]);
		if (access(there, R_OK) == 0) {
			memcpy(path, there, sizeof(path));
			break;
		}
	}
	/* Nowhere near: wherever the loader finds it. */
	if (setenv("NIBEMU_DEVICE", name + 4, 1) != 0 ||
	    setenv("NIB_CUDA_LIBRARY", path, 1) != 0)
		return cli_no_memory("environment");
	return CLI_OK;
}
