/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.cu - C = alpha * A * B^T (sm90_gemm.cuh), and the conversion of
 * NVFP4 activations.
 */
#include "activations.cuh"
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)
    nib_gemm_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<false, NIB_A_FP16, NIB_LARGE_M_STEPS>(&p.args, p.problems);
}

extern "C" __global__ void __launch_bounds__(NIB_CONVERT_THREADS)
    nib_activations_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	convert_activations<NIB_A_NVFP4>(&p.args, p.problems);
}
