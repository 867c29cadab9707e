/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time.cu - measures how long the engines of a Hopper GPU take.  Prints a table of
 * names, values and units, the source of the constants in src/machine/time_h200.def.
 * It takes less than a minute.  The sections from cold to pair ran on an H100
 * (time_start_h100.txt), whose SMs are the same; the others on an H200.
 *
 *	nvcc -O2 -std=c++17 -cudart shared -gencode arch=compute_90a,code=sm_90a \
 *		-o time probes/time.cu && ./time > probes/time_h200.txt
 */
#include "time_issue.cuh"
#include "time_launch.cuh"
#include "time_memory.cuh"
#include "time_pages.cuh"
#include "time_start.cuh"
#include "time_sync.cuh"
#include "time_wgmma.cuh"

/* Memory that is read once, above all for measurements of pages. */
#define FRESH_BYTES ((size_t)24 << 30)

static const struct {
	const char *name;
	void (*ask)(const gpu &g);
} sections[] = {
    {"clock", time_clock}, {"launch", time_launch},   {"sync", time_sync},
    {"code", time_code},   {"issue", time_issue},     {"shared", time_shared},
    {"wgmma", time_wgmma}, {"latency", time_latency}, {"rate", time_rates},
    {"cold", time_cold},   {"start", time_start},     {"pages", time_pages},
    {"ramp", time_ramp},   {"fence", time_fence},     {"pair", time_pair},
};

/* All sections, or those whose names follow. */
int main(int argc, char **argv)
{
	cudaDeviceProp device;
	size_t free_bytes, all_bytes;
	gpu g;

	must(cudaGetDeviceProperties(&device, 0), "device");
	g.n_sms = device.multiProcessorCount;
	g.n_bytes = (size_t)1 << 30;
	must(cudaMalloc(&g.bytes, g.n_bytes), "1 GiB");
	must(cudaMemGetInfo(&free_bytes, &all_bytes), "memory");
	free_bytes = std::min(free_bytes / 3, FRESH_BYTES);
	must(cudaMalloc(&g.fresh, free_bytes), "fresh memory");
	g.fresh_end = g.fresh + free_bytes;
	must(cudaMemset(g.bytes, 0, g.n_bytes), "memset");
	printf("# %s, %d SMs, L2 %d bytes\n", device.name, g.n_sms, device.l2CacheSize);
	for (const auto &section : sections) {
		bool is_asked = argc == 1;

		for (int i = 1; i < argc; i++)
			is_asked |= !strcmp(argv[i], section.name);
		if (is_asked)
			section.ask(g);
	}
	must(cudaDeviceSynchronize(), "end");
	puts("# done");
	return 0;
}
