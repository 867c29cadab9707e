/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_few.cu - the products of sm90_gemm.cu and sm90_dual.cu where no tile has
 * more than NIB_FEW_TOKENS tokens. */
#include "sm90_gemm.cuh"

extern "C" __global__ void __launch_bounds__(NIB_FEW_THREADS, 1)
nib_gemm_few_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<false, NIB_FEW_STEPS>(&p.args, p.problems);
}

extern "C" __global__ void __launch_bounds__(NIB_FEW_THREADS, 1)
nib_dual_few_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<true, NIB_FEW_STEPS>(&p.args, p.problems);
}
