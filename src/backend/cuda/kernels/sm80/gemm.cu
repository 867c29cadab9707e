/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.cu - gemm.cuh with A of fp16, the conversion of A of NVFP4 to it, and the sums
 * of split-k slices.
 */
#define NIB_ARCH sm80
#include "gemm.cuh"
#include "gemm_convert.cuh"

GEMM_KERNEL(gemm, false, false)
GEMM_KERNEL(dual, false, true)

extern "C" __global__ void __launch_bounds__(NIB_CONVERT_THREADS)
    NIB_KERNEL(gemm_convert)(const __grid_constant__ struct nib_convert_args p)
{
	convert(p);
}

extern "C" __global__ void __launch_bounds__(NIB_REDUCE_THREADS)
    NIB_KERNEL(gemm_reduce)(const __grid_constant__ struct nib_gemm_args p, int is_dual,
			    float up)
{
	reduce(p, is_dual, up);
}
