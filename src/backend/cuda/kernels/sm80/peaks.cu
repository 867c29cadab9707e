/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks.cu - peaks.cuh on Ampere and Ada, and the rate of their tensor cores.
 *
 *   probe_multiply   registers --mma.m16n8k16, 16 sums that do not depend on each
 *                    other--> sums
 *
 * Eight warps a multiprocessor without roles, barriers or shared memory.  Roofline:
 * the rate of mma.sync.
 */
#define NIB_ARCH sm80
#include "backend/cuda/kernels/common/peaks.cuh"
#include "backend/cuda/kernels/common/ptx_mma16.cuh"
#include "backend/cuda/kernels/sm80/probe_mma_params.h"

/* Two halves of 0.5 to 2, so that the power is that of a product. */
DEVICE uint32_t two_halves(uint32_t i)
{
	return 0x38003800u + (i * 0x9E3779B9u & 0x07FF07FFu);
}

extern "C" __global__ void __launch_bounds__(NIB_PROBE_MMA_THREADS)
    NIB_KERNEL(probe_multiply)(const __grid_constant__ struct nib_probe_args args)
{
	float d[NIB_PROBE_MMA_CHAINS][4] = {{0}};
	uint32_t a[4], b[2];
	float sum = 0;

#pragma unroll
	for (int i = 0; i < 4; i++)
		a[i] = two_halves(threadIdx.x * 6 + i);
#pragma unroll
	for (int i = 0; i < 2; i++)
		b[i] = two_halves(threadIdx.x * 6 + 4 + i);
	for (int64_t step = 0; step < args.count; step++) {
#pragma unroll
		for (int i = 0; i < NIB_PROBE_MMA_CHAINS; i++)
			mma_m16n8k16_f16(d[i], a[0], a[1], a[2], a[3], b[0], b[1]);
	}
#pragma unroll
	for (int i = 0; i < NIB_PROBE_MMA_CHAINS; i++)
		sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
	if (args.result)
		atomicXor(args.result, __float_as_uint(sum));
}
