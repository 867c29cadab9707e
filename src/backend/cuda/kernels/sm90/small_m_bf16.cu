/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_m_bf16.cu - sm90_gemm.cuh for A of bf16 and tiles of at most
 * NIB_SMALL_M_MAX rows of A.
 */
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(NIB_SMALL_M_THREADS, 1)
    nib_gemm_small_m_bf16_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<false, NIB_A_BF16, NIB_SMALL_M_STEPS>(&p.args, p.problems);
}

extern "C" __global__ void __launch_bounds__(NIB_SMALL_M_THREADS, 1)
    nib_dual_small_m_bf16_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<true, NIB_A_BF16, NIB_SMALL_M_STEPS>(&p.args, p.problems);
}
