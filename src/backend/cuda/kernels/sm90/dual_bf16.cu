/* SPDX-License-Identifier: Apache-2.0 */
/* dual_bf16.cu - the dual operation of sm90_gemm.cuh for A of bf16. */
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)
    nib_dual_bf16_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<true, NIB_A_BF16, NIB_LARGE_M_STEPS>(&p.args, p.problems);
}
