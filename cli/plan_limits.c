/* SPDX-License-Identifier: Apache-2.0 */
/* plan_limits.c - what limits a plan, by the peaks of the benchmark. */
#include "plan_limits.h"

#include <math.h>
#include <string.h>

#include "cli.h"
#include "peaks.h"

#define SAMPLES 3

/* The instruction that a room multiplies with. */
static enum peak_kind room_peak(const char *room)
{
	if (!strcmp(room, "cpu-avx512"))
		return PEAK_DOT8_AVX512;
	if (!strcmp(room, "cpu-avx512bw"))
		return PEAK_MADD8_AVX512;
	if (!strcmp(room, "cpu-avx2"))
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

static void measure(const struct nib_device *device, struct limits *limits)
{
	enum peak_kind kind = room_peak(cli_room(device));
	struct peaks *peaks = peaks_create();
	int threads = cli_threads(device);

	*limits = (struct limits){
	    .gflops = INFINITY,
	    .gbps = INFINITY,
	    .compute_name = peak_name(kind),
	    .memory_name = peak_name(PEAK_READ),
	};
	if (!peaks)
		return;
	limits->gflops = best(peaks, kind, threads);
	limits->gbps = best(peaks, PEAK_READ, threads);
	peaks_free(peaks);
}

/*
 * What a GPU's clocks promise: 4096 fp16 operations a clock and multiprocessor
 * (compute capability 9.0), two transfers a clock and wire of the memory.
 */
static void nominal(const struct nib_device *device, struct limits *limits)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	nib_device_get_info(device, &info, NULL);
	*limits = (struct limits){
	    .gflops = 4096.0 * info.threads * info.clock_khz * 1e-6,
	    .gbps =
		2.0 * info.memory_bus_bits / 8 * info.memory_clock_khz * 1e-6,
	    .compute_name = "nominal wgmma",
	    .memory_name = "nominal read bandwidth",
	};
}

void limits_measure(const struct nib_device *device, struct limits *limits)
{
	if (!cli_is_host(device))
		nominal(device, limits);
	else
		measure(device, limits);
}
