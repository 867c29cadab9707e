/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks.cuh - probes of a GPU's limits, which other kernels are compared with
 * (nib_device_probe()): the rate of memory and the clock.
 *
 *   probe_read       data --ldg, 8 at a time--> registers --xor--> sum
 *   probe_cycles     clock64() until it has counted enough
 *
 * The warps have no roles, no barrier and no shared memory.  Nothing is stored: the
 * address of the result is NULL, which the compiler cannot see.  Registers: 46 to 48,
 * and 8 (docs/kernels.md).  The probes measure rooflines: of memory, and of the clock.
 */
#ifndef NIB_PEAKS_CUH
#define NIB_PEAKS_CUH

#include "kernel_name.h"
#include "probe_params.h"

/*
 * Reads every 16 bytes once; neighbouring threads read neighbouring ones.  A thread has
 * eight loads in flight, so that an SM has 128 KiB: more than bandwidth times latency
 * (some 25 KiB).
 */
#define LOADS 8

extern "C" __global__ void __launch_bounds__(NIB_PROBE_READ_THREADS,
					     NIB_PROBE_READ_BLOCKS)
    NIB_KERNEL(probe_read)(const __grid_constant__ struct nib_probe_args args)
{
	const uint4 *data = (const uint4 *)args.data;
	const int64_t step = (int64_t)gridDim.x * NIB_PROBE_READ_THREADS;
	int64_t first = (int64_t)blockIdx.x * NIB_PROBE_READ_THREADS + threadIdx.x;
	uint32_t sum = 0;

	for (; first < args.count; first += LOADS * step) {
		uint4 x[LOADS];

#pragma unroll
		for (int i = 0; i < LOADS; i++) {
			const int64_t at = first + i * step;

			x[i] = at < args.count ? __ldcs(data + at)
					       : make_uint4(0, 0, 0, 0);
		}
#pragma unroll
		for (int i = 0; i < LOADS; i++)
			sum ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
	}
	if (args.result)
		atomicXor(args.result, sum);
}

/* ---- the clock ----------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(32)
    NIB_KERNEL(probe_cycles)(const __grid_constant__ struct nib_probe_args args)
{
	const int64_t begin = clock64();

	while (clock64() - begin < args.count)
		;
}

#endif
