/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_probes.c - the probes on a GPU.  Their rates are within the hardware's
 * specification, and twice the work takes twice the time, so the compiler has removed
 * nothing.  On the software GPU they only run.
 */
#include "gpu_common.h"

#include <stdio.h>
#include <time.h>

#include "nibblas_tune.h"

/* FLOP of a multiprocessor in a cycle: dense fp16 on Hopper, dense NVFP4 on
 * Blackwell. */
#define HOPPER_FLOP    4096.0
#define BLACKWELL_FLOP 32768.0
/* A rate may exceed that of the highest clocks by this: clocks are rounded. */
#define SLACK 1.03
#define RUNS  14

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Times a probe: *best is the least time so far, *done what was done. */
static void probe_s(enum nib_probe probe, const void *data, int64_t amount,
		    double *best, double *done)
{
	int64_t units;
	double begin = now_s(), end;

	gpu_must(nib_device_probe(gpu_test.gpu, probe, data, amount, &units, NULL,
				  &gpu_test.err),
		 "probe");
	gpu_must(nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err), "wait");
	end = now_s();
	*done = (double)units;
	*best = end - begin < *best ? end - begin : *best;
}

/* Checks that units a second lie in (least, most), and that the time grows as
 * the amount. */
static void check(enum nib_probe probe, const char *name, const void *data,
		  int64_t amount, double least, double most)
{
	double done, more, s = 1e9, more_s = 1e9, rate;
	char text[160];

	/* The two alternate, so that a change of the clock changes both. */
	for (int i = 0; i < RUNS; i++) {
		probe_s(probe, data, amount / 32 * 16, &s, &done);
		probe_s(probe, data, amount, &more_s, &more);
	}
	/* Their difference has no launch and no wait. */
	rate = (more - done) / (more_s - s);
	snprintf(text, sizeof(text), "%.4g a second: must be %.4g to %.4g", rate, least,
		 most);
	printf("# %s: %s\n", name, text);
	gpu_verdict(rate > least && rate < most, name, text);
	snprintf(text, sizeof(text), "%.3f times as long for %.3f times it", more_s / s,
		 more / done);
	gpu_verdict(more_s / s > 1.6 && more_s / s < 2.2, name, text);
}

static void check_runs(enum nib_probe probe, const char *name, const void *data,
		       int64_t amount)
{
	double s = 1e9, done = 0;

	probe_s(probe, data, amount, &s, &done);
	gpu_verdict(done >= (double)amount, name, "less than was asked for");
}

static int run_only(void)
{
	const int64_t bytes = 1 << 20;
	struct gpu_twin twin = gpu_twin_new((size_t)bytes);
	const void *data = gpu_device_of(&twin);

	gpu_upload(&twin);
	check_runs(NIB_PROBE_READ, "read", data, bytes);
	check_runs(NIB_PROBE_READ, "read a piece", data, 16);
	check_runs(NIB_PROBE_MULTIPLY, "multiply", NULL, 1);
	check_runs(NIB_PROBE_MULTIPLY, "multiply more", NULL, 1000000000);
	check_runs(NIB_PROBE_CYCLES, "cycles", NULL, 1000);
	gpu_twin_free(&twin);
	return gpu_end();
}

int main(void)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	const int64_t bytes = INT64_C(2) << 30;
	void *data;
	double clock, bandwidth, flop;
	int code;

	if (!gpu_begin(&code))
		return code;
	gpu_must(nib_device_get_info(gpu_test.gpu, &info, &gpu_test.err), "info");
	if (gpu_in_software())
		return run_only();
	clock = info.clock_khz * 1e3;
	/* Two transfers a cycle. */
	bandwidth = info.memory_clock_khz * 1e3 * 2 * info.memory_bus_bits / 8;
	flop = clock * info.multiprocessors *
	       (info.compute_capability >= 100 ? BLACKWELL_FLOP : HOPPER_FLOP);
	gpu_must(nib_device_alloc(gpu_test.gpu, (size_t)bytes, &data, &gpu_test.err),
		 "alloc");
	check(NIB_PROBE_READ, "read", data, bytes, 0.6 * bandwidth, SLACK * bandwidth);
	check(NIB_PROBE_MULTIPLY, "multiply", NULL, INT64_C(8000000000000), 0.4 * flop,
	      SLACK * flop);
	check(NIB_PROBE_CYCLES, "cycles", NULL, 4000000, 0.3 * clock, SLACK * clock);
	nib_device_free(gpu_test.gpu, data);
	return gpu_end();
}
