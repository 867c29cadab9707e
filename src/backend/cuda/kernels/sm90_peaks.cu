/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm90_peaks.cu - what the GPU can do at most, one thing at a time: read
 * memory, multiply what lies in registers, let its clock tick.  The limits that
 * other kernels are held against (nib_device_probe()).
 */
#include "probe_params.h"
#include "ptx_sm90.cuh"

#define DEVICE static __device__ __forceinline__

/*
 * Every unit once, neighbours by neighbours.  Eight loads of a thread are under
 * way at a time, 128 KiB of a multiprocessor: more than bandwidth times latency
 * (some 25 KiB).
 */
#define LOADS 8

extern "C" __global__ void __launch_bounds__(NIB_PROBE_READ_THREADS,
					     NIB_PROBE_READ_BLOCKS)
	nib_sm90_probe_read(const __grid_constant__ struct nib_probe_args args)
{
	const uint4 *data = (const uint4 *)args.data;
	const int64_t step = (int64_t)gridDim.x * NIB_PROBE_READ_THREADS;
	int64_t first =
		(int64_t)blockIdx.x * NIB_PROBE_READ_THREADS + threadIdx.x;
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

/* ---- the tensor cores ---------------------------------------------------- */

/* Halves of both signs, 0.5 to 1.75 in steps of a quarter: as many different
 * bits as dequantised weights have, since zeros would need less power. */
DEVICE uint32_t two_halves(uint32_t x)
{
	x = x * 747796405u + 2891336453u;
	x ^= x >> 15;
	return (x & 0x86008600u) | 0x38003800u;
}

/* 128-byte swizzle, k contiguous, 1024 bytes from eight rows to the next. */
DEVICE uint64_t descriptor(uint32_t addr)
{
	return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 |
	       (uint64_t)1 << 16 | (addr & 0x3FFFF) >> 4;
}

template <bool FIRST>
DEVICE void multiply_step(float *d, const uint32_t (*a)[4], uint64_t desc)
{
	wgmma_fence();
	wgmma_f16<NIB_PROBE_MULTIPLY_N>(d, a[0], desc, !FIRST);
	wgmma_f16<NIB_PROBE_MULTIPLY_N>(d, a[1], desc + 2, 1);
	wgmma_f16<NIB_PROBE_MULTIPLY_N>(d, a[2], desc + 4, 1);
	wgmma_f16<NIB_PROBE_MULTIPLY_N>(d, a[3], desc + 6, 1);
	wgmma_commit();
}

/* The steps of a block: a in registers, b (32 KiB) in shared memory, both the
 * same in every step; one group of wgmma is always in flight. */
extern "C" __global__ void __launch_bounds__(NIB_PROBE_MULTIPLY_THREADS, 1)
	nib_sm90_probe_multiply(
		const __grid_constant__ struct nib_probe_args args)
{
	__shared__ __align__(1024) uint32_t
		b[NIB_PROBE_MULTIPLY_N * NIB_PROBE_MULTIPLY_K / 2];
	const uint64_t desc = descriptor(smem_addr(b));
	float d[NIB_PROBE_MULTIPLY_N / 2];
	uint32_t a[4][4];
	float sum = 0;

	for (uint32_t i = threadIdx.x; i < sizeof(b) / sizeof(*b);
	     i += NIB_PROBE_MULTIPLY_THREADS)
		b[i] = two_halves(i);
	fence_proxy_async();
	__syncthreads();
	/* Loaded: what is computed, ptxas would compute again in the loop. */
#pragma unroll
	for (uint32_t i = 0; i < 16; i++)
		a[i / 4][i % 4] = lds_32(smem_addr(b + threadIdx.x * 16 + i));
	multiply_step<true>(d, a, desc);
	for (int64_t i = 1; i < args.count; i++) {
		multiply_step<false>(d, a, desc);
		wgmma_wait<1>();
	}
	wgmma_wait<0>();
#pragma unroll
	for (int i = 0; i < NIB_PROBE_MULTIPLY_N / 2; i++)
		sum += d[i];
	if (args.result)
		atomicXor(args.result, __float_as_uint(sum));
}

/* ---- the clock ----------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(32)
    nib_sm90_probe_cycles(const __grid_constant__ struct nib_probe_args args)
{
	const int64_t begin = clock64();

	while (clock64() - begin < args.count)
		;
}
