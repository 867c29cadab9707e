/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks.cu - peaks.cuh on Hopper, and the rate of its tensor cores, which multiply
 * operands from registers and shared memory.
 *
 *   probe_multiply   b (once) --sts--> 32 KiB --wgmma, a in registers--> d
 *
 * Two warpgroups and one __syncthreads(), between the stores of b and the first
 * wgmma; after it each warpgroup waits only for its wgmma groups.
 * Registers: 170.  Roofline: wgmma with A in registers
 * (docs/performance-hopper.md).
 */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/peaks.cuh"
#include "ptx_wgmma.cuh"

/* Halves of both signs, 0.5 to 1.75 in steps of a quarter: as many different bits as
 * dequantised weights have, because zeros would need less power. */
DEVICE uint32_t two_halves(uint32_t x)
{
	x = x * 747796405u + 2891336453u;
	x ^= x >> 15;
	return (x & 0x86008600u) | 0x38003800u;
}

/* 128-byte swizzle, k contiguous, 1024 bytes from 8 rows to the next 8. */
DEVICE uint64_t descriptor(uint32_t addr)
{
	return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 |
	       (addr & 0x3FFFF) >> 4;
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

/* Every step multiplies the same a, in registers, and the same b, in shared memory.
 * One wgmma group is always in flight. */
extern "C" __global__ void __launch_bounds__(NIB_PROBE_MULTIPLY_THREADS, 1)
    nib_probe_multiply_sm90(const __grid_constant__ struct nib_probe_args args)
{
	__shared__ __align__(1024)
	    uint32_t b[NIB_PROBE_MULTIPLY_N * NIB_PROBE_MULTIPLY_K / 2];
	const uint64_t desc = descriptor(smem_addr(b));
	float d[NIB_PROBE_MULTIPLY_N / 2];
	uint32_t a[4][4];
	float sum = 0;

	for (uint32_t i = threadIdx.x; i < sizeof(b) / sizeof(*b);
	     i += NIB_PROBE_MULTIPLY_THREADS)
		b[i] = two_halves(i);
	fence_proxy_async();
	__syncthreads();
	/* Loaded, because ptxas would compute it again in the loop. */
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
