/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks.cu - peaks.cuh on Blackwell, and the rate of its tensor cores, which multiply
 * codes from shared memory.
 *
 *   probe_multiply   codes, scales (once) --sts--> 34 KiB --tcgen05.cp--> scales
 *                    in tensor memory; codes --tcgen05.mma--> accumulators
 *
 * Four warps store the codes, one thread multiplies.  Barriers: __syncthreads()
 * around the multiplication, and an mbarrier for every other step, so that one
 * step waits while another runs.  Tensor memory: all 512 columns, 256 of them
 * accumulators and 12 scales.  Registers: docs/kernels.md.  Roofline:
 * tcgen05.mma of 128 x 256 x 64, 128 cycles each (docs/performance-blackwell.md).
 */
#define NIB_ARCH sm100
#include "backend/cuda/kernels/common/peaks.cuh"
#include "gemm_mainloop.cuh"

#define COLUMNS	 512
#define A_SCALES NIB_PROBE_FP4_N
#define B_SCALES (A_SCALES + 4)

/* Codes of both signs: as many different bits as weights have. */
DEVICE uint32_t eight_codes(uint32_t x)
{
	x = x * 747796405u + 2891336453u;
	return x ^ x >> 15;
}

/* Both operands are the same rows, and every step is the same product. */
DEVICE void multiply_steps(int64_t steps, uint32_t codes_at, uint32_t scales_at,
			   uint32_t done, uint32_t tensor_memory)
{
	const uint64_t codes = descriptor(CODES_DESC, codes_at);
	const uint64_t scales = descriptor(SCALES_DESC, scales_at);
	const uint32_t shape = mma_shape<1>(NIB_PROBE_FP4_N);

#pragma unroll
	for (int i = 0; i < 3; i++)
		tcgen05_cp_scales<1>(tensor_memory + A_SCALES + 4 * i, scales);
	for (int64_t i = 0; i < steps; i++) {
#pragma unroll
		for (int j = 0; j < NIB_PROBE_FP4_K / MMA_K; j++) {
			const uint64_t at = codes + j * DESC_BYTES(MMA_CODES_BYTES);

			tcgen05_mma<1>(tensor_memory, at, at, shape,
				       tensor_memory + A_SCALES,
				       tensor_memory + B_SCALES, i > 0 || j > 0);
		}
		tcgen05_commit<1>(done + i % 2 * 8, 0);
		if (i > 0)
			wait(done + (i - 1) % 2 * 8, (i - 1) / 2 % 2);
	}
	wait(done + (steps - 1) % 2 * 8, (steps - 1) / 2 % 2);
}

extern "C" __global__ void __launch_bounds__(NIB_PROBE_FP4_THREADS, 1)
    nib_probe_multiply_sm100(const __grid_constant__ struct nib_probe_args args)
{
	__shared__ __align__(1024)
	    uint32_t codes[NIB_PROBE_FP4_N * NIB_PROBE_FP4_K / 8];
	__shared__ __align__(1024) uint32_t scales[MMA_SCALE_BYTES / 4];
	__shared__ __align__(8) uint64_t done[2];
	__shared__ uint32_t tensor_memory;
	const bool is_first_warp = threadIdx.x < 32;

	for (uint32_t i = threadIdx.x; i < sizeof(codes) / sizeof(*codes);
	     i += NIB_PROBE_FP4_THREADS)
		codes[i] = eight_codes(i);
	for (uint32_t i = threadIdx.x; i < sizeof(scales) / sizeof(*scales);
	     i += NIB_PROBE_FP4_THREADS)
		scales[i] = 0x38383838; /* 1 */
	if (is_first_warp)
		tcgen05_alloc<1>(smem_addr(&tensor_memory), COLUMNS);
	if (threadIdx.x == 0) {
		mbarrier_init(smem_addr(done), 1);
		mbarrier_init(smem_addr(done + 1), 1);
		fence_mbarrier_init();
	}
	fence_proxy_async();
	tcgen05_fence_before();
	__syncthreads();
	tcgen05_fence_after();
	if (is_first_warp && elect_one())
		multiply_steps(args.count, smem_addr(codes), smem_addr(scales),
			       smem_addr(done), tensor_memory);
	tcgen05_fence_before();
	__syncthreads();
	tcgen05_fence_after();
	if (is_first_warp)
		tcgen05_dealloc<1>(tensor_memory, COLUMNS);
}
