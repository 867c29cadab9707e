/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.cu - C = alpha * A * B^T by gemm.cuh, for fp16 products, and the conversion of
 * NVFP4 activations.
 */
#include "activations.cuh"
#include "gemm.cuh"

GEMM_KERNEL(nib_gemm_sm90, NIB_GEMM_THREADS, false, NIB_A_FP16, NIB_LARGE_M_STEPS)

extern "C" __global__ void __launch_bounds__(NIB_CONVERT_THREADS)
    nib_activations_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	convert_activations<NIB_A_NVFP4>(&p.args, p.problems);
}
