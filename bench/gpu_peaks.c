/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_peaks.c - samples of what a GPU can do at most, by the library's probes:
 * see peaks.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "peaks.h"

/* One read is of this many bytes, or of an eighth of a smaller GPU's memory;
 * some 2 ms are read with one wait at the end. */
#define READ_BYTES (INT64_C(4) << 30)
#define READ_RUNS  2
/* Some 20 ms: long enough for the clock to settle under the load. */
#define MULTIPLY_FLOP INT64_C(16000000000000)
/* Some 2 ms, of which the wait is half a percent. */
#define CYCLES INT64_C(4000000)

struct gpu_peaks {
	struct nib_device *device;
	struct nib_device_info info;
	void *memory; /* made when first needed */
	int64_t memory_bytes;
};

enum nib_status gpu_peaks_open(const char *name, struct gpu_peaks **out,
			       struct nib_error *err)
{
	struct gpu_peaks *gpu = calloc(1, sizeof(*gpu));
	enum nib_status status;

	*out = NULL;
	if (!gpu) {
		err->status = NIB_OUT_OF_MEMORY;
		snprintf(err->message, sizeof(err->message),
			 "no memory for the peaks of %s", name);
		return NIB_OUT_OF_MEMORY;
	}
	gpu->info.struct_bytes = sizeof(gpu->info);
	status = nib_device_open(name, NULL, &gpu->device, err);
	if (!status)
		status = nib_device_get_info(gpu->device, &gpu->info, err);
	if (status)
		gpu_peaks_close(gpu);
	else
		*out = gpu;
	return status;
}

void gpu_peaks_close(struct gpu_peaks *gpu)
{
	if (!gpu)
		return;
	nib_device_free(gpu->device, gpu->memory);
	nib_device_close(gpu->device);
	free(gpu);
}

const char *gpu_peaks_backend(const struct gpu_peaks *gpu)
{
	return gpu->info.backend;
}

static bool make_memory(struct gpu_peaks *gpu)
{
	int64_t bytes = gpu->info.memory_bytes / 8 / 4096 * 4096;

	if (bytes > READ_BYTES)
		bytes = READ_BYTES;
	gpu->memory_bytes = bytes;
	return nib_device_alloc(gpu->device, (size_t)bytes, &gpu->memory,
				NULL) == NIB_OK;
}

/* Units a second of runs probes, enqueued between two waits. */
static double timed(const struct gpu_peaks *gpu, enum nib_probe probe,
		    int64_t amount, int runs)
{
	const void *data = probe == NIB_PROBE_READ ? gpu->memory : NULL;
	double begin, units = 0;
	int64_t done;

	if (nib_device_wait(gpu->device, NULL, NULL))
		return 0;
	begin = cli_now_s();
	for (int i = 0; i < runs; i++) {
		if (nib_device_probe(gpu->device, probe, data, amount, &done,
				     NULL, NULL))
			return 0;
		units += (double)done;
	}
	if (nib_device_wait(gpu->device, NULL, NULL))
		return 0;
	return units / (cli_now_s() - begin);
}

double gpu_peaks_sample(struct gpu_peaks *gpu, enum peak_kind kind)
{
	enum nib_probe probe = NIB_PROBE_CYCLES;
	int64_t amount = CYCLES;
	int runs = 1;

	if (kind == PEAK_GPU_READ) {
		if (!gpu->memory && !make_memory(gpu))
			return 0;
		probe = NIB_PROBE_READ;
		amount = gpu->memory_bytes;
		runs = READ_RUNS;
	} else if (kind == PEAK_GPU_MULTIPLY) {
		probe = NIB_PROBE_MULTIPLY;
		amount = MULTIPLY_FLOP;
	}
	/* The first launch of a kernel is slow, and an idle clock lower. */
	(void)timed(gpu, probe, amount / 16 / 16 * 16, 1);
	return timed(gpu, probe, amount, runs);
}
