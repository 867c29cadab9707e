/* SPDX-License-Identifier: Apache-2.0 */
/* plan_limits.c - what limits a plan, by the peaks of the benchmark. */
#include "plan_limits.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "cli.h"
#include "peaks.h"

#define SAMPLES 3

/* The instruction that a backend multiplies with. */
static enum peak_kind backend_peak(const char *backend)
{
	if (!strcmp(backend, "cpu-avx512"))
		return PEAK_DOT8_AVX512;
	if (!strcmp(backend, "cpu-avx512bw"))
		return PEAK_MADD8_AVX512;
	if (!strcmp(backend, "cpu-avx2"))
		return PEAK_MADD8_AVX2;
	return PEAK_PMADDWD;
}

static double best(struct peaks *peaks, enum peak_kind kind, int threads)
{
	double most = 0;

	for (int i = 0; i < SAMPLES; i++)
		most = fmax(most, peaks_sample(peaks, kind, threads));
	return most > 0 ? most * 1e-9 : INFINITY;
}

/* Of a GPU that is the software GPU: measuring it would say nothing. */
static bool is_software(const struct nib_device_info *info)
{
	return strstr(info->hardware, " in software") != NULL;
}

/* What the GPU that it stands for can do at its highest clocks. */
static void limits_by_clock(const struct nib_device_info *info,
			    struct limits *limits)
{
	/* Of dense fp16 products, a multiprocessor and cycle. */
	const double flop = 4096;

	limits->compute_name = "clock";
	limits->memory_name = "memory clock";
	limits->gflops = flop * info->threads * info->clock_khz * 1e-6;
	limits->gbps =
	    2e-6 * info->memory_clock_khz * info->memory_bus_bits / 8;
}

void limits_measure(const struct nib_device *device, struct limits *limits)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	bool on_gpu = !cli_is_host(device);
	enum peak_kind compute =
	    on_gpu ? PEAK_GPU_MULTIPLY : backend_peak(cli_backend(device));
	enum peak_kind memory = on_gpu ? PEAK_GPU_READ : PEAK_READ;
	int threads = on_gpu ? 1 : cli_threads(device);
	struct peaks *peaks;
	struct nib_error err;

	*limits = (struct limits){
	    .gflops = INFINITY,
	    .gbps = INFINITY,
	    .compute_name = peak_name(compute),
	    .memory_name = peak_name(memory),
	};
	nib_device_get_info(device, &info, NULL);
	if (is_software(&info)) {
		limits_by_clock(&info, limits);
		return;
	}
	peaks = peaks_create();
	if (peaks && (!on_gpu || !peaks_use_gpu(peaks, info.name, &err))) {
		limits->gflops = best(peaks, compute, threads);
		limits->gbps = best(peaks, memory, threads);
	}
	peaks_free(peaks);
}
