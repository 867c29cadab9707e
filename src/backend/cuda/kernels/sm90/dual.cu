/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dual.cu - C = silu(alpha * A * B^T) * (alpha2 * A * B2^T);
 * sm90_gemm.cuh.
 */
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)
    nib_dual_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<true, NIB_A_FP16, NIB_LARGE_M_STEPS>(&p.args, p.problems);
}
